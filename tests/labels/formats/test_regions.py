"""Read boxes and spans from tables and exports, and run `crowdshot objects`."""

import contextlib
import copy
import json
import subprocess
import sys
import zipfile

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdshot.errors import CrowdshotError
from crowdshot.labels.formats.regions import read_regions
from crowdshot.labels.object_matching import find_objects
from label_exports import BOX, BOXES, COCO, SPANS, STUDIO_REGIONS, image, job, lines, studio_region
from labels.formats.test_fuzz import ODD, places


@pytest.fixture
def read(tmp_path):
    def write_and_read(content, columns=None, name="ann.csv"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return [tuple(region) for region in read_regions([path], columns)]

    return write_and_read


def refused(read, content, columns=None) -> CrowdshotError:
    with pytest.raises(CrowdshotError) as error:
        read(content, columns)
    return error.value


EXPECTED = [
    ("1.png", "ann", "cat", (0, 0, 10, 10)),
    ("1.png", "bob", "cat", (1, 0, 11, 10)),
    ("1.png", "bob", "dog", (50.5, 50, 55.5, 55)),
    ("2.png", "ann", "", ()),
]


def test_tables(read) -> None:
    assert read(BOXES) == EXPECTED
    corners = "file,worker,class,xmin,ymin,xmax,ymax\n1.png,ann,cat,0,0,10,10\n"
    assert read(corners) == EXPECTED[:1]
    assert read("item,annotator,label,start,end\nd,ann,CITY,7,11\n") == [("d", "ann", "CITY", (7, 11))]
    other = BOXES.replace("x,y,width,height", "a,b,c,d")
    assert read(other, {"x": "a", "y": "b", "width": "c", "height": "d"}) == EXPECTED
    assert read("item;annotator;label;x;y;width;height\n1;ann;cat;0,5;0;1;1\n") == [
        ("1", "ann", "cat", (0.5, 0, 1.5, 1))
    ]


def test_exports(read) -> None:
    assert read(STUDIO_REGIONS) == [
        ("/data/upload/1.png", "5", "", ()),
        ("/data/upload/1.png", "5", "cat", (10, 20, 40, 60)),
        ("/data/upload/1.png", "bob@x.org", "", ()),
    ]
    span = studio_region("labels", "CITY", start=7, end=11, text="Rome")
    task = {"id": 9, "data": {"text": "Fly to Rome"}, "annotations": [{"completed_by": 1, "result": [span]}]}
    assert read([task])[1] == ("9", "1", "CITY", (7, 11))
    assert read(lines(SPANS)) == [("1", "ann", "", ()), ("1", "ann", "CITY", (7, 11)), ("2", "ann", "", ())]
    for indent in (None, 1):
        assert read(json.dumps(COCO, indent=indent)) == [
            ("1.png", "ann", "", ()),
            ("2.png", "ann", "", ()),
            ("1.png", "ann", "cat", (0, 0, 10, 20)),
        ]


def cvat_box(label="cat", xtl="1", ytl="2", xbr="30.5", ybr="40", **more):
    fields = {"label": label, "source": "manual", "occluded": "0", "xtl": xtl, "ytl": ytl, "xbr": xbr, "ybr": ybr}
    return "<box " + " ".join(f'{name}="{value}"' for name, value in (fields | more).items()) + "><attribute/></box>"


def test_boxes_of_cvat(read, tmp_path) -> None:
    points = '<points label="eye" points="1,1"/>'
    images = image("1.png", "day", more=cvat_box() + points + cvat_box("dog", rotation="0.0")) + image("2.png")
    expected = [("1.png", "", ()), ("1.png", "cat", (1, 2, 30.5, 40)), ("1.png", "dog", (1, 2, 30.5, 40))]
    expected.append(("2.png", "", ()))
    for assignee, annotator in (("ann", "ann"), ("", "job7")):
        text = job(images, assignee)
        assert read(text, name="job7.xml") == [(item, annotator, *rest) for item, *rest in expected]
    with zipfile.ZipFile(tmp_path / "job7.zip", "w") as archive:
        archive.writestr("annotations.xml", job(images))
    assert len(read_regions([tmp_path / "job7.zip"])) == 4
    bob = tmp_path / "bob.xml"
    bob.write_text(job(image("1.png", more=cvat_box(xtl="2")) + image("2.png")))
    found = find_objects(read_regions([tmp_path / "job7.zip", bob]))
    assert found.objects[["label", "marked_by", "seen_by"]].values.tolist() == [["cat", 2, 2], ["dog", 1, 2]]


@pytest.mark.parametrize(
    ("box", "word"),
    [
        (cvat_box(rotation="359.3"), "rotated"),
        (cvat_box(xtl="left"), "coordinate 'left'"),
        (cvat_box(xtl="31"), "without any size"),
        (cvat_box(label=""), "no label"),
        ('<box label="cat" xtl="1" ytl="1" xbr="2"/>', "coordinate None"),
    ],
)
def test_boxes_of_cvat_refused(read, box, word) -> None:
    error = refused(read, job(image("1.png", more=box), "ann"))
    assert word in error.message
    assert error.where.endswith("ann.csv, line 5")


ROTATED = {**BOX, "value": {**BOX["value"], "rotation": 9}}


@pytest.mark.parametrize(
    ("content", "columns", "where", "word"),
    [
        (BOXES.replace("50.5", "left"), None, "row 4", "coordinate 'left'"),
        (BOXES.replace("50.5", ""), None, "row 4", "coordinate ''"),
        (BOXES.replace("50.5", "nan"), None, "row 4", "coordinate 'nan'"),
        (BOXES.replace(",5,5", ",0,5"), None, "row 4", "without any size"),
        (BOXES.replace("dog", ""), None, "row 4", "no label"),
        (BOXES.replace("2.png", ""), None, "row 5", "no item"),
        (BOXES.replace("width,", "wide,"), None, "ann.csv", "no columns with coordinates"),
        (BOXES, {"x": "left"}, "ann.csv", "no column 'left' for x"),
        (BOXES, {"size": "x"}, None, "names 'size'"),
        (STUDIO_REGIONS, {"x": "x"}, None, "export of a label tool"),
        (job(image("1.png", more=cvat_box())), {"x": "x"}, None, "export of a label tool"),
        (job(image("1.png", "tag")), None, "ann.csv", "no box and no span"),
        ("image,annotator,label,x,y,width,height\n2.png,ann,,,,,\n", None, "ann.csv", "no box and no span"),
        (
            [{"id": 1, "data": {}, "annotations": [{"completed_by": 1, "result": [ROTATED]}]}],
            None,
            "record 1",
            "rotated",
        ),
    ],
)
def test_regions_refused(read, content, columns, where, word) -> None:
    error = refused(read, content, columns)
    assert word in error.message
    assert error.where is None if where is None else where in error.where


@pytest.mark.parametrize("records", [STUDIO_REGIONS, SPANS, [COCO]], ids=["studio", "doccano", "coco"])
@given(data=st.data())
def test_values_of_other_types_are_refused(tmp_path_factory, records, data) -> None:
    held = [copy.deepcopy(records)]
    paths = list(places(held))[1:]
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(paths))
        target = held
        with contextlib.suppress(KeyError, IndexError, TypeError):  # an earlier change removed this place
            for key in way:
                target = target[key]
            target[last] = data.draw(ODD)
    path = tmp_path_factory.getbasetemp() / "fuzzed.json"
    path.write_text(json.dumps(held[0]))
    with contextlib.suppress(CrowdshotError):
        find_objects(read_regions([path]))


# ---- the command ----


def test_command(tmp_path, call, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boxes.csv").write_text(BOXES)
    done = call("objects", "boxes.csv", "--out", "o.csv", "--annotators-out", "p.csv")
    assert (done.code, done.err) == (0, "")
    found = pd.read_csv(tmp_path / "o.csv")
    assert found[["item", "label", "marked_by", "seen_by", "x"]].values.tolist() == [
        ["1.png", "cat", 2, 2, 0.5],
        ["1.png", "dog", 1, 2, 50.5],
    ]
    assert pd.read_csv(tmp_path / "p.csv")["regions"].tolist() == [1, 2]
    done = call("objects", "boxes.csv", "--json", "--overlap", "0.95")
    assert len(json.loads(done.out)["objects"]) == 3


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("boxes.csv", "--overlap", "2"), "--overlap"),
        (("boxes.csv", "--out", "boxes.csv"), "overwritten"),
        (("boxes.csv", "--out", "o.csv", "--annotators-out", "o.csv"), "--annotators-out"),
        (("boxes.csv", "--columns", "x=left"), "left"),
        (("none.csv",), "none.csv"),
    ],
)
def test_command_refuses(tmp_path, call, monkeypatch, arguments, word) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boxes.csv").write_text(BOXES)
    done = call("objects", *arguments)
    assert (done.code, done.out) == (2, "")
    assert word in done.err
    assert "Traceback" not in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["boxes.csv"]


@pytest.mark.slow
def test_aggregate_does_not_import_what_it_does_not_use(tmp_path) -> None:
    (tmp_path / "plain.csv").write_text("item,annotator,label\n1,a,x\n1,b,x\n2,a,y\n")
    code = (
        "import sys\nfrom crowdshot.__main__ import main\nsys.argv[1:] = ['aggregate', 'plain.csv', '--out', 'o.csv']\n"
    )
    code += "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    found = {name.rpartition(".")[2] for name in done.stdout.split() if name.startswith("crowdshot.labels")}
    assert not found & {"object_matching", "regions", "potato", "doccano", "zooniverse", "labelbox", "traces"}
