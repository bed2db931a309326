"""Read the exports of every label tool, real ones where available, and check the values."""

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from crowdshot.errors import CrowdshotError
from crowdshot.labels.formats import FORMATS, read_labels
from crowdshot.labels.formats.label_file import LabelFile
from label_exports import ARGILLA, TOLOKA, answer, batch, image, job, lines, response

EXPORTS = Path(__file__).parents[2] / "fixtures" / "label_studio"
HOST = "http://127.0.0.1:8099/static/images/"


@pytest.fixture
def read(tmp_path):
    def write_and_read(content, *args, name="labels", **kwargs):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if not isinstance(content, str | bytes):
            content = json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_labels(path, *args, **kwargs)

    return write_and_read


def triples(labels) -> list[tuple[str, str, str]]:
    return sorted(labels.annotations.to_frame().itertuples(index=False, name=None))


# ---- Label Studio -----------------------------------------------------------------------------------------------

FIVE = [
    (f"{HOST}a.png", "2", "Cat"),
    (f"{HOST}a.png", "3", "Dog"),
    (f"{HOST}b.png", "2", "Fox"),
    (f"{HOST}b.png", "3", "Fox"),
    (f"{HOST}c.png", "3", "Dog"),
]


@pytest.mark.parametrize(
    ("name", "more", "left_out"),
    [
        (
            "export.json",
            [(f"{HOST}d.png", "1", "Fox"), ("x.png", "1", "Fox"), ("x.png", "2", "Cat")],
            {"cancelled annotations": 1},
        ),
        (
            "export_snapshot.json",
            [(f"{HOST}d.png", "1", "Fox"), ("x.png", "2", "Cat")],
            {"cancelled annotations": 1},
        ),
        ("export_min.json", [], {"tasks nobody labelled": 1}),
        ("export.csv", [], {"tasks nobody labelled": 1}),
    ],
)
def test_label_studio_real_exports(name, more, left_out) -> None:
    labels = read_labels(EXPORTS / name)
    assert triples(labels) == sorted(FIVE + more)
    assert labels.left_out == left_out
    assert labels.annotations.columns == ("image", "annotator", "choice")
    assert labels.annotations.items[:3].tolist() == [HOST + "a.png", HOST + "b.png", HOST + "c.png"]
    project = labels.project
    assert (project.from_name, project.to_name, project.data_key) == ("choice", "image", "image")
    assert project.tasks[1] == (f"{HOST}b.png", 2, {"image": f"{HOST}b.png", "item": "img_002"})
    assert [task.id for task in project.tasks] == ([1, 2, 3, 4, 5] if more else [1, 2, 3, 4])


def test_label_studio_items_by_another_field() -> None:
    assert triples(read_labels(EXPORTS / "export.json", {"item": "item"}))[0] == ("img_001", "2", "Cat")
    assert triples(read_labels(EXPORTS / "export.csv", {"item": "id"}))[0] == ("1", "2", "Cat")
    with pytest.raises(
        CrowdshotError, match="no 'name' for the item, expected one of its fields, 'image', 'item', 'id'"
    ):
        read_labels(EXPORTS / "export.json", {"item": "name"})


def choice(*labels, tag="choice", **value):
    return {"from_name": tag, "to_name": "img", "type": "choices", "value": {"choices": list(labels), **value}}


def annotation(who, *results, **more):
    return {"id": 7, "completed_by": who, "result": list(results), "was_cancelled": False, **more}


def task(number, *annotations, **more):
    return {"id": number, "annotations": list(annotations), "data": {"photo": f"/data/upload/1/{number}.jpg"}, **more}


def test_label_studio_two_tags_users_drafts(read) -> None:
    user = {"id": 5, "email": "ann@x.org"}
    tasks = [
        task(1, annotation(user, choice("cat"), choice("good", tag="quality"))),
        task(2, annotation(5, choice("good", tag="quality")), annotation(6, choice("dog")), drafts=[{"id": 1}]),
        task(3, annotation(None, choice("dog")), annotation(8, {"type": "textarea", "value": {"text": ["?"]}})),
        task(4),
        task(5, annotation(5, choice("cat"), was_cancelled=True)),
    ]
    with pytest.raises(
        CrowdshotError, match=r"2 Choices tags, 'choice', 'quality', expected one\. Use columns={'label': 'QUESTION'}"
    ):
        read(tasks)
    labels = read(tasks, {"label": "choice"})
    assert triples(labels) == [("/data/upload/1/1.jpg", "ann@x.org", "cat"), ("/data/upload/1/2.jpg", "6", "dog")]
    assert labels.left_out == {
        "annotations without a choice": 2,
        "annotations of unknown users": 1,
        "drafts": 1,
        "cancelled annotations": 1,
        "tasks nobody labelled": 1,
    }
    assert (labels.project.from_name, labels.project.to_name) == ("choice", "img")


def test_label_studio_the_newest_answer_counts(read) -> None:
    newer = annotation(1, choice("new"), updated_at="2026-02-01")
    older = annotation(1, choice("old"), updated_at="2026-01-01")
    with pytest.warns(UserWarning, match="1 label dropped"):
        labels = read([task(1, newer, older)])
    assert triples(labels) == [("/data/upload/1/1.jpg", "1", "new")]


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([task(3, annotation(1, choice("a", "b")))], r"labels, task 3, annotation 7 has 2 labels, 'a', 'b'"),
        ([task(3, annotation(1, choice("a", x=1, y=2)))], "task 3, annotation 7 is a label of a region"),
        (
            [task(3, annotation(1, {"type": "rectanglelabels", "value": {"x": 1, "rectanglelabels": ["a"]}}))],
            "has only results of type 'rectanglelabels', expected choices",
        ),
        ([task(3, annotation(1, {"type": "rating", "value": {"rating": 4}}))], "has only results of type 'rating'"),
        ([task(3, annotation(1, was_cancelled=True))], r"holds no label that can be used \(1 cancelled annotation"),
        ([task(3, annotation(1, choice({"a": 1})))], "task 3, annotation 7 holds a dict, expected one label per item"),
        ([{"annotations": 3, "data": {}}], "labels, record 1, annotations holds a int, expected a list"),
        ([{"annotations": [], "data": None}], "labels, record 1, data holds a NoneType"),
        ([task(1), 4], "labels, record 2 holds a int, expected a record"),
        ([], "labels holds an empty list, expected a list of records"),
        (
            '[{"annotations": [], "data"',
            r"labels, character 28 is not JSON \(.*\)\. Is the file complete",
        ),
        ('[\n{"annotations": [],\n "data"', "labels, row 3, character 8 is not JSON"),
        ("[" * 100_000, "labels is not JSON that can be read"),
        ('[{"annotations": [], "data": {"a": "\\ud800"}}]', "labels is not JSON that can be read"),
    ],
)
def test_label_studio_refused(read, tasks, message: str) -> None:
    with pytest.raises(CrowdshotError, match=message):
        read(tasks)


def row(number, who, **more):
    return {"image": f"{number}.png", "id": number, **more, "annotator": who, "annotation_id": 1, "lead_time": 2.0}


def test_the_tag_of_label_studio_rows_is_found(read) -> None:
    one = [row(1, 5, animal="cat"), row(1, 6, animal="dog"), row(2, 5, animal="cat")]
    assert triples(read(one)) == [("1.png", "5", "cat"), ("1.png", "6", "dog"), ("2.png", "5", "cat")]
    few = "animal,id,image,annotator,annotation_id,lead_time\ncat,1,1.png,5,1,2\ndog,2,2.png,5,1,2\n"
    assert triples(read(few)) == [("1.png", "5", "cat"), ("2.png", "5", "dog")]
    two = [row(1, 5, animal="cat", quality="good"), row(2, 5, animal="cat", quality="good")]
    with pytest.raises(
        CrowdshotError,
        match="2 columns that could be the label, 'animal', 'quality', expected one",
    ):
        read(two)
    labels = read(two, {"label": "animal"})
    assert triples(labels) == [("1.png", "5", "cat"), ("2.png", "5", "cat")]
    assert labels.project.tasks[0].data == {"image": "1.png"}
    csv = "camera,id,animal,annotator,annotation_id,lead_time\nx,1,cat,5,1,2\nx,2,cat,5,1,2\ny,3,dog,5,1,2\n"
    with pytest.raises(CrowdshotError, match="2 columns that could be the label, 'camera', 'animal'"):
        read(csv)
    assert triples(read(csv, {"label": "animal", "item": "id"})) == [
        ("1", "5", "cat"),
        ("2", "5", "cat"),
        ("3", "5", "dog"),
    ]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"choices": ["a", "b"]}, "labels, record 1 has 2 labels"),
        ('{"choices": ["a", "b"]}', "labels, record 1 has 2 labels"),
        ([{"x": 1.0, "rectanglelabels": ["a"]}], "labels, record 1 holds a dict, expected one label per item .boxes"),
    ],
)
def test_label_studio_rows_refused(read, said, message: str) -> None:
    with pytest.raises(CrowdshotError, match=message):
        read([row(1, 5, animal=said), row(2, 5, animal="cat"), row(2, 6, animal="cat")])


# ---- Argilla ----------------------------------------------------------------------------------------------------


SAID = [("r1", "u1", "cat"), ("r1", "u2", "dog"), ("r2", "u1", "cat")]


def test_argilla_in_three_formats(read, tmp_path) -> None:
    pd.DataFrame(ARGILLA).to_parquet(tmp_path / "a.parquet")
    for labels in (read(ARGILLA), read(lines(ARGILLA)), read_labels(tmp_path / "a.parquet")):
        assert triples(labels) == SAID
        assert labels.left_out == {"drafts": 1, "discarded responses": 1, "records nobody labelled": 1}
        assert labels.annotations.columns == ("id", "user", "animal")


def test_argilla_nested_and_with_pictures(read) -> None:
    answers = {"animal": [{"value": "cat", "user_id": "u1"}, {"value": "dog", "user_id": "u2"}]}
    nested = [{"id": "r1", "fields": {"picture": "https://x.org/1.png?size=9"}, "responses": answers}]
    assert triples(read(nested)) == [
        ("https://x.org/1.png?size=9", "u1", "cat"),
        ("https://x.org/1.png?size=9", "u2", "dog"),
    ]
    assert triples(read(nested, {"item": "id"}))[0] == ("r1", "u1", "cat")


def test_argilla_two_questions(read) -> None:
    more = {"rating.responses": [4], "rating.responses.users": ["u1"], "rating.responses.status": ["submitted"]}
    records = [response(1, ["cat"], ["u1"], ["submitted"], **more)]
    with pytest.raises(CrowdshotError, match="2 questions, 'animal', 'rating', expected one"):
        read(records)
    assert triples(read(records, {"label": "rating"})) == [("r1", "u1", "4")]
    with pytest.raises(
        CrowdshotError, match="no 'colour' for the label, expected one of its questions, 'animal', 'rating'"
    ):
        read(records, {"label": "colour"})


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (response(1, [["cat", "dog"]], ["u1"], ["submitted"]), "record 1, 'animal' has 2 labels, 'cat', 'dog'"),
        (response(1, [[{"value": "a", "rank": 1}]], ["u1"], ["submitted"]), "record 1, 'animal' holds a dict"),
        (
            response(1, ["cat"], ["u1", "u2"], ["submitted"]),
            "record 1 has 'animal.responses', its users and its status",
        ),
        (response(1, "cat", ["u1"], ["submitted"]), "expected lists of the same length"),
        (response(1, ["cat"], [None], ["submitted"]), "record 1 has no user for its label 'cat'"),
        (response(None, ["cat"], ["u"], ["submitted"], id=""), "record 1 has no 'id' for its label 'cat'"),
    ],
)
def test_argilla_refused(read, record, message: str) -> None:
    with pytest.raises(CrowdshotError, match=message):
        read([record])


# ---- Prodigy ----------------------------------------------------------------------------------------------------


def test_prodigy_choices(read) -> None:
    data = "data:image/png;base64,AAAA"
    labels = read(
        lines(
            [
                answer("1.png", "db-ann", accept=["cat"]),
                answer("1.png", "db-bob", accept=[2]),
                answer(data, "db-ann", accept=["cat"], path="photos/2.png"),
                answer(data, "db-bob", accept=["cat"], meta={"file": "2.png"}),
                answer("3.png", "db-ann", "ignore", accept=[]),
                answer("3.png", "db-bob", "reject", accept=["cat"]),
                answer("4.png", "db-bob", accept=[]),
            ]
        )
    )
    assert triples(labels) == [
        ("1.png", "db-ann", "cat"),
        ("1.png", "db-bob", "2"),
        ("2.png", "db-bob", "cat"),
        ("photos/2.png", "db-ann", "cat"),
    ]
    assert labels.left_out == {"ignored answers": 1, "rejected answers": 1, "answers without a choice": 1}
    assert labels.annotations.columns == ("image", "annotator", "label")


def test_prodigy_yes_or_no(read) -> None:
    records = [answer("1", "a", label="SPAM"), answer("1", "b", "reject", label="SPAM"), answer("2", "a", label="SPAM")]
    assert triples(read(lines(records))) == [("1", "a", "SPAM"), ("1", "b", "not SPAM"), ("2", "a", "SPAM")]
    records += [answer("2", "b", label="JOKE"), answer("3", "b", "ignore", label="SPAM")]
    with pytest.raises(
        CrowdshotError,
        match="2 labels asked about with yes or no, 'SPAM', 'JOKE', expected one",
    ):
        read(lines(records))
    labels = read(lines(records), {"label": "SPAM"})
    assert labels.left_out == {"answers about other labels": 1, "ignored answers": 1}
    assert labels.annotations.n_labels == 3


def test_prodigy_annotators_of_other_names(read) -> None:
    record = answer("1.png", None, accept=["cat"])
    assert triples(read(lines([record]), name="carol.jsonl")) == [("1.png", "carol", "cat")]
    assert triples(read(lines([record | {"who": "dan"}]), {"annotator": "who"})) == [("1.png", "dan", "cat")]
    assert triples(read(lines([record | {"_session_id": "eve"}]))) == [("1.png", "eve", "cat")]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([answer("1", "a", accept=["x"]), answer("2", "a", accept=["x", "y"])], "labels, row 2, 'accept' has 2"),
        ([answer("1", "a", spans=[{"label": "x"}])], "row 1 has neither 'accept' nor 'label', .*spans and boxes"),
        ([answer("1", "a", accept=["x"]), answer("2", "a", "maybe", accept=[])], "row 2 has the answer 'maybe'"),
        ([answer("1", "a", accept=["x"]), answer(None, "a", accept=["x"])], "row 2 has no 'image'"),
        ([answer("1", "a", accept=[{"x": 1}])], "row 1, 'accept' holds a dict"),
        ([answer("1", "a", "ignore", accept=["x"])], r"no label that can be used \(1 ignored answer"),
    ],
)
def test_prodigy_refused(read, records, message: str) -> None:
    with pytest.raises(CrowdshotError, match=message):
        read(lines(records))


# ---- Toloka -----------------------------------------------------------------------------------------------------


def test_toloka(read) -> None:
    labels = read(TOLOKA)
    assert triples(labels) == [
        ("https://x.org/1.jpg", "w1", "cat"),
        ("https://x.org/1.jpg", "w2", "dog"),
        ("https://x.org/2.jpg", "w1", "dog"),
    ]
    assert labels.left_out == {"rejected answers": 1, "rows without an answer": 1, "skipped answers": 1}
    assert labels.gold == {"https://x.org/2.jpg": "cat"}
    assert labels.annotations.columns == ("INPUT:image", "ASSIGNMENT:worker_id", "OUTPUT:result")


def test_toloka_several_answers_and_inputs(read) -> None:
    two = TOLOKA.replace("HINT:text", "OUTPUT:sure")
    with pytest.raises(
        CrowdshotError,
        match="2 columns with answers, 'OUTPUT:result', 'OUTPUT:sure', expected one",
    ):
        read(two)
    assert read(two, {"label": "result"}).annotations.n_labels == 3
    assert triples(read(two, {"label": "OUTPUT:result", "item": "page"}))[0] == ("https://x.org/1", "w1", "cat")
    with pytest.raises(CrowdshotError, match="has 2 fields, 'INPUT:image', 'INPUT:page', expected one"):
        read(TOLOKA.replace(".jpg", ""))
    with pytest.raises(CrowdshotError, match=r"row 2, column 'OUTPUT:result' has 2 labels, 'a', 'b'"):
        read(TOLOKA.replace("\tcat\t\t", '\t"[""a"", ""b""]"\t\t', 1))
    with pytest.raises(CrowdshotError, match="row 2, column 'ASSIGNMENT:worker_id' is empty, expected an id"):
        read(TOLOKA.replace("w1", ""))


# ---- Mechanical Turk --------------------------------------------------------------------------------------------


def test_mturk(read) -> None:
    labels = read(
        batch(
            ("H1", "A1", "W1", "Approved", "", "https://x.org/1.jpg?v=2", "cat", "x", ""),
            ("H1", "A2", "W2", "Submitted", "", "https://x.org/1.jpg?v=2", "dog", "", ""),
            ("H2", "A3", "W1", "Rejected", "Mon", "https://x.org/2.jpg", "dog", "", ""),
            ("H2", "A4", "W2", "Submitted", "", "https://x.org/2.jpg", "dog", "", "too fast"),
            ("H2", "A5", "W3", "Submitted", "", "https://x.org/2.jpg", "", "", ""),
        )
    )
    assert triples(labels) == [("https://x.org/1.jpg?v=2", "W1", "cat"), ("https://x.org/1.jpg?v=2", "W2", "dog")]
    assert labels.left_out == {"rejected assignments": 2, "rows without an answer": 1}
    assert labels.annotations.columns == ("Input.image_url", "WorkerId", "Answer.category.label")


def test_mturk_items(read) -> None:
    one = batch(("H1", "A1", "W1", "Approved", "", "some text", "cat", "", ""))
    assert triples(read(one)) == [("some text", "W1", "cat")]
    many = batch(("H1", "A1", "W1", "Approved", "", "7", "8", "cat", "", ""), inputs=("Input.a", "Input.b"))
    assert triples(read(many)) == [("H1", "W1", "cat")]
    assert triples(read(many, {"item": "b"})) == [("8", "W1", "cat")]
    assert triples(read(many, ("Input.a", "AssignmentId", "category.label"))) == [("7", "A1", "cat")]


def test_mturk_answers_of_crowd_elements(read) -> None:
    """The options of a question are columns of true and false, or JSON."""
    options = ("Answer.animal.cat", "Answer.animal.dog")
    said = batch(
        ("H1", "A1", "W1", "Approved", "", "1.png", "true", "false", "", ""),
        ("H1", "A2", "W2", "Approved", "", "1.png", "false", "true", "", ""),
        ("H2", "A3", "W2", "Approved", "", "2.png", "false", "false", "", ""),
        answers=options,
    )
    packed = batch(
        ("H1", "A1", "W1", "Approved", "", "1.png", "[{~animal~:{~cat~:true,~dog~:false}}]", "", ""),
        ("H1", "A2", "W2", "Approved", "", "1.png", "[{~animal~:{~cat~:false,~dog~:true}}]", "", ""),
        ("H2", "A3", "W2", "Approved", "", "2.png", "[{~animal~:{~cat~:false,~dog~:false}}]", "", ""),
        answers=("Answer.taskAnswers",),
    )
    for labels in (read(said), read(packed)):
        assert triples(labels) == [("1.png", "W1", "cat"), ("1.png", "W2", "dog")]
        assert labels.left_out == {"rows without an answer": 1}
        assert labels.annotations.columns.label == "Answer.animal"
    classifier = batch(
        ("H1", "A1", "W1", "Approved", "", "1.png", "[{~animal~:{~label~:~cat~}}]", "", ""),
        answers=("Answer.taskAnswers",),
    )
    assert triples(read(classifier)) == [("1.png", "W1", "cat")]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("cat|dog", r"labels, row 2, column 'Answer.a' has 2 labels, 'cat', 'dog'"),
        ("[~cat~, ~dog~]", "labels, row 2, column 'Answer.a' has 2 labels"),
        ("", r"holds no label that can be used \(1 row without an answer"),
    ],
)
def test_mturk_refused(read, said: str, message: str) -> None:
    with pytest.raises(CrowdshotError, match=message):
        read(batch(("H1", "A1", "W1", "Approved", "", "1.png", said, "", ""), answers=("Answer.a",)))


def test_mturk_asks_which_answer(read) -> None:
    two = batch(("H1", "A1", "W1", "Approved", "", "1.png", "x", "y", "", ""), answers=("Answer.a", "Answer.b"))
    with pytest.raises(CrowdshotError, match=r"2 columns with answers, 'Answer\.a', 'Answer\.b', expected one"):
        read(two)
    assert triples(read(two, {"label": "b"})) == [("1.png", "W1", "y")]


# ---- CVAT -------------------------------------------------------------------------------------------------------


BOX = '<box label="cat" xtl="1" ytl="1" xbr="2" ybr="2" occluded="0" z_order="0"></box>'


def test_cvat(read) -> None:
    images = (
        image("a/1.png", "cat")
        + image("2.png", "Katze &amp; Maus", more=BOX)
        + image("3.png")
        + image("4.png", "x", "x")
    )
    labels = read(job(images, "ann"))
    assert triples(labels) == [("2.png", "ann", "Katze & Maus"), ("4.png", "ann", "x"), ("a/1.png", "ann", "cat")]
    assert labels.left_out == {"images without a tag": 1}
    assert labels.annotations.columns == ("image", "annotator", "label")
    assert triples(read(job(images), name="bob.xml"))[0] == ("2.png", "bob", "Katze & Maus")
    assert triples(read(job(images).encode("utf-8-sig")))[0][2] == "Katze & Maus"


def test_cvat_several_jobs(tmp_path) -> None:
    paths = []
    for who, label in (("ann", "cat"), ("bob", "dog"), ("eve", "cat")):
        (tmp_path / who).mkdir()
        paths.append(tmp_path / who / "annotations.xml")
        paths[-1].write_text(job(image("1.png", label), "carol" if who == "eve" else ""))
    labels = read_labels(paths)
    assert triples(labels) == [("1.png", "ann", "cat"), ("1.png", "bob", "dog"), ("1.png", "carol", "cat")]


def test_cvat_zip(read) -> None:
    def packed(name: str, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w", compression) as archive:
            archive.writestr("images/1.png", b"PNG")
            archive.writestr(name, job(image("1.png", "cat")))
        return held.getvalue()

    assert triples(read(packed("annotations.xml"), name="ann.zip")) == [("1.png", "ann", "cat")]
    with pytest.raises(CrowdshotError, match="labels is a zip archive, expected CSV"):
        read(packed("sheet.xml"))
    broken = packed("annotations.xml", zipfile.ZIP_STORED).replace(b"cat", b"dog", 1)  # its checksum is wrong now
    with pytest.raises(CrowdshotError, match=r"labels, annotations\.xml could not be read"):
        read(broken)


LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE annotations [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(9))
    + ']><annotations><image name="1.png"><tag label="&j;"/></image></annotations>'
)
SECRET = (
    '<?xml version="1.0"?>\n<!DOCTYPE annotations [<!ENTITY a SYSTEM "file:///etc/passwd">]>\n'
    '<annotations><image name="1.png"><tag label="x">&a;</tag></image></annotations>'
)


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        (LAUGHS, "labels, line 1 has a document type"),
        (SECRET, "labels, line 2 has a document type"),
        ('<?xml version="1.0"?><!DOCTYPE annotations SYSTEM "http://x.org/a.dtd"><annotations/>', "a document type"),
        ('<?xml version="1.0"?><dataset/>', "labels, line 1 starts with <dataset>, expected <annotations>"),
        (job('<track id="0" label="cat"/>'), 'labels, line 5 has tracks, expected an export as "CVAT for images 1.1"'),
        (job(image("1.png", more=BOX)), "has 1 of <box> and no tags on its images, expected one tag per image"),
        (job(image("1.png", "a", "b")), "labels, line 5, image '1.png' has 2 labels, 'a', 'b'"),
        (job(image("", "a")), "labels, line 5 has an <image> without a name"),
        (job(image("1.png")), r"no label that can be used \(1 image without a tag"),
        (job("")[:-9], r"labels is damaged or not XML \(no element found|unclosed token"),
        (job("").replace("utf-8", "klingon"), "labels is damaged or not XML"),
        ("<annotations>" + "<a>" * 100_000, "labels, line 1 is nested too deeply, expected 100 levels"),
    ],
)
def test_cvat_refused(read, xml: str, message: str) -> None:
    with pytest.raises(CrowdshotError, match=message):
        read(xml)


def test_cvat_has_no_columns(read) -> None:
    with pytest.raises(CrowdshotError, match=r"columns names 'label', which the format of .* determines itself"):
        read(job(image("1.png", "cat")), {"label": "cat"})


# ---- all --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("wide", "long")])
def test_a_plain_table_is_not_a_tool_export(read, tmp_path, name: str) -> None:
    (tmp_path / "plain.csv").write_text("item,annotator,label\n1,a,x\n")
    assert not FORMATS[name].recognises(LabelFile(tmp_path / "plain.csv"), None)
    with pytest.raises(CrowdshotError, match=r"plain\.csv"):
        read_labels(tmp_path / "plain.csv", format_name=name)


TABLES = {"label_file", "cleaning", "label_selection", "question_choice", "plain_tables", "writers"}


@pytest.mark.slow
def test_a_plain_table_imports_no_other_reader(tmp_path) -> None:
    (tmp_path / "plain.csv").write_text("item,annotator,label\n1,a,x\n2,a,y\n")
    code = "import sys\nfrom crowdshot.labels.formats import read_labels\nread_labels(sys.argv[1])\nprint(*sys.modules)"
    command = [sys.executable, "-c", code, tmp_path / "plain.csv"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    readers = {name.removeprefix("crowdshot.labels.formats.") for name in found if "labels.formats." in name}
    assert readers == TABLES
    assert "crowdshot.io.workbooks" not in found
