"""Ids in tables against rows of X and against files."""

from pathlib import PurePath

import numpy as np
import pandas as pd
import pytest

from crowdshot.annotations import Annotations
from crowdshot.errors import CrowdshotError
from crowdshot.matching import annotations_of, match_files, names_of

TABLE = pd.DataFrame({"image": ["b", "a", "b"], "worker": ["x", "x", "y"], "label": [1, 0, 1]})


def test_a_table_is_brought_into_the_order_of_the_items():
    ann = annotations_of(TABLE, 3, ["a", "b", "c"], None)
    assert ann.items.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(ann.to_matrix(), [[0, -1], [1, 1], [-1, -1]])
    assert ann.columns == ("image", "worker", "label")
    assert annotations_of({1: {"x": "u"}, 0: {"x": "v"}}, 2, None, None).to_matrix().tolist() == [[1], [0]]


def test_a_matrix_goes_row_by_row():
    ann = annotations_of([["u", None], ["v", "u"]], 2, ["p", "q"], ["v", "u"])
    assert ann.items.tolist() == ["p", "q"]
    np.testing.assert_array_equal(ann.to_matrix(), [[1, -1], [0, 1]])


@pytest.mark.parametrize(
    ("labels", "items", "message"),
    [
        (TABLE, ["a", "z", "c"], "labels: item 'b' is not among the 3 items of X ('a', 'z', 'c', ...)"),
        (TABLE, None, "labels: item 'b' is not among the 3 items of X (0, 1, 2, ...)"),
        (TABLE, ["a", "b"], "items: found 2 ids, expected 3"),
        ([[0, 1]], None, "labels: found 1 rows, expected 3 as in X"),
        (7, None, "labels: found int rows, expected 3 as in X"),
    ],
)
def test_what_does_not_fit_is_named(labels, items, message):
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


def test_files_keep_the_ids_of_the_table():
    paths = names_of(["photos/b.png", "photos/a.png", "photos/c.png"])
    ann = annotations_of(Annotations.from_frame(TABLE), 3, paths, None)
    assert ann.items.tolist() == ["b", "a", "photos/c.png"]
    np.testing.assert_array_equal(ann.to_matrix(), [[1, 1], [0, -1], [-1, -1]])
