"""Test matching of ids in tables with rows of X and with files."""

from pathlib import Path, PurePath

import numpy as np
import pandas as pd
import pytest

from crowdshot import read_labels
from crowdshot.errors import CrowdshotError, CrowdshotWarning
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.item_names import file_name, named_otherwise, same_files
from crowdshot.labels.matching import annotations_of, match_files, named_like, names_of, rows_of

TABLE = pd.DataFrame({"image": ["b", "a", "b"], "worker": ["x", "x", "y"], "label": [1, 0, 1]})


def test_a_table_is_brought_into_the_order_of_the_items():
    ann = annotations_of(TABLE, 3, ["a", "b", "c"], None)
    assert ann.items.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(ann.to_matrix(), [[0, -1], [1, 1], [-1, -1]])
    assert ann.columns == ("image", "worker", "label")
    assert annotations_of({1: {"x": "u"}, 0: {"x": "v"}}, 2, None, None).to_matrix().tolist() == [[1], [0]]


def test_a_matrix_is_matched_by_row():
    ann = annotations_of([["u", None], ["v", "u"]], 2, ["p", "q"], ["v", "u"])
    assert ann.items.tolist() == ["p", "q"]
    np.testing.assert_array_equal(ann.to_matrix(), [[1, -1], [0, 1]])


@pytest.mark.parametrize(
    ("labels", "items", "message"),
    [
        (
            TABLE,
            ["a", "z", "c"],
            "X has no item for 1 of the 2 labelled items, first 'b' (it has 'a', for instance), expected one for",
        ),
        (
            TABLE,
            None,
            "X has no item for 2 of the 2 labelled items, first 'b' (it has 0, for instance), expected one for each",
        ),
        (TABLE, ["a", "b"], "items has 2 ids, expected 3"),
        ([[0, 1]], None, "labels has 1 rows, expected 3 rows as in X"),
        (7, None, "labels is a int, expected 3 rows as in X"),
    ],
)
def test_mismatches_are_named_in_errors(labels, items, message):
    with pytest.raises(CrowdshotError) as error:
        annotations_of(labels, 3, items, None)
    assert message in str(error.value)


def test_names_of():
    assert names_of(np.zeros((2, 2))) is None
    assert names_of(["a/1.png", PurePath("b.png")]) == [PurePath("a/1.png"), PurePath("b.png")]
    assert names_of(pd.DataFrame({"f": [1.0, 2.0]}, index=["p", "q"])) == ["p", "q"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("photos/a/7.png", 0),  # the whole path
        ("a/7.png", 0),  # its end
        ("photos\\a\\7.png", 0),  # another system's
        ("b/7.png", 1),
        ("7.png", -1),  # two files have this name
        ("8.png", 2),
        ("8", 2),  # no suffix in the table
        ("8.jpg", 2),  # converted since
        ("/data/upload/3/8.png", 2),  # a label tool's folder before the name
        ("9.b", 3),  # a dot within the name
        ("10.png", -1),
        (11, 4),  # numbers as ids
    ],
)
def test_files_are_found_as_people_and_tools_name_them(name, expected):
    files = [PurePath(p) for p in ("photos/a/7.png", "photos/b/7.png", "photos/b/8.png", "photos/9.b.png", "11.png")]
    assert match_files(np.array([name], dtype=object), files).tolist() == [expected]


@pytest.mark.parametrize(
    ("name", "files", "expected"),
    [
        ("p/\u00e9t\u00e9.png", ["p/e\u0301te\u0301.png"], 0),  # a Mac's folder, a browser's table
        ("e\u0301te\u0301", ["p/\u00e9t\u00e9.png"], 0),
        ("/data/upload/1/b240bd95-%C3%A9t%C3%A9.png", ["p/e\u0301te\u0301.png"], 0),
        ("e\u0301.png", ["\u00e9.png", "e\u0301.png"], 1),  # an exact match is preferred
        ("\u00e9.png", ["\u00e9.png", "e\u0301.png"], 0),
        ("\u00e9.png", ["a/e\u0301.png", "b/\u00e9.png"], 1),
        ("\u00e9.png", ["a/e\u0301.png", "b/e\u0301.png"], -1),  # two files match this name
        ("e\u0301/x.png", ["\u00e9/x.png", "x.png"], 0),  # a folder in another spelling is preferred to a bare name
        ("e\u0301/x.png", ["\u00e9/x.png", "\u00e8/x.png"], 0),
    ],
)
def test_accents_may_be_spelled_in_two_ways(name, files, expected):
    assert match_files(np.array([name], dtype=object), [PurePath(p) for p in files]).tolist() == [expected]


def test_files_keep_the_ids_of_the_table():
    paths = names_of(["photos/b.png", "photos/a.png", "photos/c.png"])
    ann = annotations_of(Annotations.from_frame(TABLE), 3, paths, None)
    assert ann.items.tolist() == ["b", "a", "photos/c.png"]
    np.testing.assert_array_equal(ann.to_matrix(), [[1, 1], [0, -1], [-1, -1]])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("3f2a1b9c-cat.jpg", 0),  # Label Studio's upload
        ("/data/upload/3/3f2a1b9c-cat.jpg", 0),
        ("3f2a1b9c-cat", 0),
        ("3f2a1b9c-cat.png", 0),  # converted since
        ("0123abcd-owl.jpg", 1),  # a file with the prefix is preferred to one without
        ("owl.jpg", 2),
        ("4444dddd-owl.jpg", 2),
        ("3F2A1B9C-cat.jpg", -1),  # not what Label Studio puts there
        ("3f2a1b9-cat.jpg", -1),
        ("https://host/pets/cat.jpg?key=a/b&d=7#top", 0),
        ("s3://bucket/cat.jpg", 0),
        ("/data/local-files/?d=cat.jpg", 0),
        ("/data/local-files/?d=b/my%20dog.jpg", 4),  # the folder decides
        ("/data/local-files/?d=c%5Cmy%20dog.jpg", 5),
        ("/data/local-files/?d=my%20dog.jpg", -1),  # two files have this name
        ("9a9a9a9a-my dog.jpg", -1),
        ("deadbeef-fox.jpg", -1),  # two exact matches: the looser match fox.jpg is not used
        ("fox.jpg", 8),
        ("what?.jpg", 9),  # a question mark can be part of a name
        ("100%25.jpg", 11),  # and so can a percent sign
        ("100%.jpg", 10),
        ("?d=", -1),
        ("?", -1),
        ("", -1),
        ("3f2a1b9c-", -1),
    ],
)
def test_names_with_additions_of_label_tools(name, expected):
    files = (
        *("p/cat.jpg", "p/0123abcd-owl.jpg", "p/owl.jpg", "p/3f2a1b9c.jpg", "p/b/my dog.jpg", "p/c/my dog.jpg"),
        *("x/deadbeef-fox.jpg", "y/deadbeef-fox.jpg", "fox.jpg", "what?.jpg", "100%.jpg", "100%25.jpg"),
    )
    assert match_files(np.array([name], dtype=object), [PurePath(p) for p in files]).tolist() == [expected]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/data/upload/1/b240bd95-%C3%A9t%C3%A9_picture_0.png", 0),  # as a real server has named it
        ("/data/upload/1/b240bd95-my_cat.png", 2),  # a file of that very name comes first
        ("/data/upload/1/b240bd95-a_b.png", -1),  # two files match this name
        ("/data/upload/1/b240bd95-my_dog.png", -1),
    ],
)
def test_names_of_label_studio_uploads(name, expected):
    files = [
        PurePath("p", file) for file in ("été, picture (0).png", "my cat.png", "my_cat.png", "a b.png", "a_(b).png")
    ]
    assert match_files(np.array([name], dtype=object), files).tolist() == [expected]


def test_two_uploads_of_one_file_are_refused():
    files = np.array([Path("cat.jpg"), Path("dog.jpg")], dtype=object)
    labels = Annotations.from_dict({"3f2a1b9c-cat.jpg": {"x": "u"}, "00000000-cat.jpg": {"x": "v"}})
    with pytest.raises(CrowdshotError, match=r"has 'cat.jpg' for both '3f2a1b9c-cat.jpg' and '00000000-cat.jpg'"):
        rows_of(labels, files, "photos", "image", "leave out")


def test_an_index_that_names_no_row_is_no_name():
    X = pd.DataFrame([[0.0], [1.0]], index=[0, 0])
    assert names_of(X) is None
    assert annotations_of([["a"], ["b"]], 2, names_of(X), None).items.tolist() == [0, 1]


FILES = [PurePath("Camera A/1.JPG"), PurePath("Camera A/2.JPG"), PurePath("Camera B/2.JPG"), PurePath("3.png")]


@pytest.mark.parametrize(
    ("ids", "called"),
    [
        (["1.JPG"], ["1.JPG", "Camera A/2.JPG", "Camera B/2.JPG", "3.png"]),
        (["1.jpg", "x"], ["1.JPG", "Camera A/2.JPG", "Camera B/2.JPG", "3.png"]),
        (["1", "v.2"], ["1", "Camera A/2.JPG", "Camera B/2.JPG", "3"]),
        ([1, 2], ["1", "Camera A/2.JPG", "Camera B/2.JPG", "3"]),
        (["Camera A/1.JPG", "3.png"], [file.as_posix() for file in FILES]),
        (["Camera A\\1.JPG"], [file.as_posix() for file in FILES]),
    ],
)
def test_files_are_named_as_in_the_labels(ids, called):
    assert named_like(ids, FILES).tolist() == called


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://s3.aws.com/b/img_00.png?sig=AAA0", "https://s3.aws.com/b/img_00.png?sig=BBB0"),
        ("https://s3.aws.com/b/talk_00.wav?sig=AAA0", "https://s3.aws.com/b/talk_00.wav?sig=BBB0"),
        ("aaaa1111-img_1.png", "bbbb2222-img_1.png"),
        ("/data/upload/3/aaaa1111-img_1.png", "/data/upload/4/bbbb2222-img_1.png"),
        ("aaaa1111-img_1.png", "img_1.png"),
        ("img_12.png", "img_12.PNG"),
        ("photos/my%20cat.jpg", "photos\\my cat.jpg"),
    ],
)
def test_names_that_may_mean_the_same_image(one, other):
    assert same_files(["b.png", one, "d.png?x", other]) == [[one, other]]


@pytest.mark.parametrize(
    "names",
    [
        ["a/frame_1.png", "b/frame_1.png", "c/frame_1.PNG"],  # folders tell them apart
        ["aaaa1111-1.png", "bbbb2222-1.png", "https://x/1.png?a", "https://x/1.png?b"],  # numbers
        ["20260304-cat.png", "20260305-cat.png"],  # days
        ["IMG_1.png?a", "img_1.png?a"],
        ["https://x/show.png?id=1", "https://x/show.png?id=2", "https://x/show.png?id=3"],  # the query alone
        ["is it a?", "is it a#", "v1.0?", "v1.0#"],  # no pictures
    ],
)
def test_names_that_mean_different_images(names):
    assert same_files(names) == []


@pytest.mark.parametrize(
    ("files", "groups"),
    [
        ([["IMG_1.jpg", "IMG_2.jpg"], ["img_1.jpg"], ["photos/IMG_1.jpg"]],
         [["IMG_1.jpg", "img_1.jpg", "photos/IMG_1.jpg"]]),
        ([["1.0", "2.0"], ["1", "3"]], [["1.0", "1"]]),
        ([["007", "010", "0"], ["7", "10", "00x"]], [["007", "7"], ["010", "10"]]),
        ([["007", "7"], ["7", "8"]], []),
        ([["a\\b\\7.png"], ["B/7.png"]], [["a\\b\\7.png", "B/7.png"]]),
        ([["a/1.jpg"], ["b/1.jpg"]], []),
        ([["x1", "x2"], ["x3", "x4"]], []),
        ([["a", "b", "A"]], []),
        ([["a", "b"], ["A", "b"]], []),  # both use b, so a and A are different
        ([["a", "b"], ["b", "c"], ["c", "A"], ["B", "d"]], [["b", "B"]]),  # the first three match each other
        ([["/data/upload/3/3f2a1b9c-7.png", "/data/upload/3/3f2a1b9d-8.png"], ["a/7.png"], ["https://host/b/7.png?key=1"]],
         [["/data/upload/3/3f2a1b9c-7.png", "a/7.png", "https://host/b/7.png?key=1"]]),
        ([["https://host/a/1.jpg"], ["https://host/b/1.jpg"]], []),
        ([["https://host/a/7"], ["b/7"]], []),  # ids, not files
        ([["text " + "and/or " * 500], ["Text " + "and/or " * 500]],
         [["text " + "and/or " * 500, "Text " + "and/or " * 500]]),
    ],
)  # fmt: skip
def test_spellings_in_two_files_without_common_items(files, groups):
    assert named_otherwise([np.array(items, dtype=object) for items in files]) == groups


def test_a_number_with_and_without_decimals_is_reported(tmp_path):
    """A program that joins tables may write 7.0 for some of the rows."""
    path = tmp_path / "labels.csv"
    path.write_text("item,annotator,label\n7,ann,x\n8,ann,y\n7.0,bob,x\n8.0,bob,y\n9.5,bob,y\n")
    with pytest.warns(CrowdshotWarning, match="'7' and '7.0' are read as two different items .and 1 more group"):
        assert read_labels(path).annotations.n_items == 5


def test_items_with_different_spellings_in_two_files_are_reported(tmp_path):
    written = {"ann": "IMG_1.jpg IMG_2.JPG", "bob": "img_1.jpg img_2.jpg", "cy": "photos/IMG_1.jpg x.jpg"}
    for name, items in written.items():
        one, two = items.split()
        (tmp_path / f"{name}.csv").write_text(f"item,label\n{one},cat\n{two},dog\n")
    told = r"The items 'IMG_1.jpg', 'img_1.jpg' and 'photos/IMG_1.jpg' are read as three different items"
    with pytest.warns(UserWarning, match=told):
        assert read_labels([tmp_path / f"{name}.csv" for name in ("ann", "bob", "cy")]).annotations.n_items == 6


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ("a/b/7.png", "7.png"),
        ("a\\7.PNG", "7.PNG"),
        ("https://host/a/my%20cat.jpg?key=1#x", "my cat.jpg"),
        ("/data/local-files/?d=photos/7.png", "7.png"),
        ("/data/upload/3/3f2a1b9c-7.png", "7.png"),
        ("/data/upload/3/20260304-7.png", "7.png"),
        ("a/3f2a1b9c-7.png", "3f2a1b9c-7.png"),  # no upload
        ("3/4", "3/4"),
        ("and/or 3.5", "and/or 3.5"),
        ("https://host/7", "https://host/7"),
    ],
)
def test_name_of_the_file(item, name):
    assert file_name(item) == name
    assert file_name(name) == name


def test_items_of_three_tools_by_file_name(tmp_path):
    upload = "/data/upload/3/3f2a1b9{}-{}.png"
    written = {
        "ann": "".join(f"{upload.format(n, n)},cat\n" for n in range(3)),
        "bob": "".join(f"batch/{n}.png,cat\n" for n in range(3)),
        "cy": "".join(f"https://host/x/{n}.png,dog\n" for n in range(3)),
    }
    for name, rows in written.items():
        (tmp_path / f"{name}.csv").write_text("item,label\n" + rows)
    files = [tmp_path / f"{name}.csv" for name in written]
    with pytest.warns(CrowdshotWarning) as caught:
        assert read_labels(files).annotations.n_items == 9
    assert caught[0].message.hint.arguments == {"file_names": True}
    read = read_labels(files, file_names=True)
    assert read.annotations.items.tolist() == ["0.png", "1.png", "2.png"]
    assert read.annotations.to_matrix().tolist() == [[0, 0, 1]] * 3
    files[1].write_text("item,label\na/0.png,cat\nb/0.png,dog\n")
    with pytest.raises(CrowdshotError) as error:
        read_labels(files, file_names=True)
    assert (error.value.argument, error.value.found) == ("file_names", ["a/0.png", "b/0.png"])
    signed = [f"https://host/0.png?key={n},ann,{label},2026-03-0{3 - n}" for n, label in ((1, "cat"), (2, "dog"))]
    files[1].write_text("\n".join(["item,annotator,label,time", *signed]))
    with pytest.warns(CrowdshotWarning, match="newest"):
        assert read_labels(files[1], file_names=True).annotations.to_frame()["label"].tolist() == ["cat"]
