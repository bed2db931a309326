"""Tables with a column for each annotator, and labels of one annotator, as Python callers have them."""

import re
from contextlib import nullcontext
from pathlib import PurePath

import numpy as np
import pandas as pd
import pytest

from crowdshot import Annotations, CrowdAggregator, CrowdClassifier, CrowdshotError, read_labels
from crowdshot.labels.matching import annotations_of, as_annotations
from crowdshot.labels.wide_tables import wide_table

WIDE = pd.DataFrame({"ann": ["cat", "cat", "dog"], "bob": ["cat", None, "dog"], "cyd": ["dog", "", "dog"]})
MATRIX = [[0, 0, 1], [0, -1, -1], [1, 1, 1]]  # positions of cat and dog


def of(labels, items=None, n=3, classes=None):
    ann = annotations_of(labels, n, items, classes)
    return ann.items.tolist(), ann.annotators.tolist(), ann.to_matrix().tolist()


@pytest.mark.parametrize(
    "labels",
    [["cat", None, "dog"], np.array(["cat", "", "dog"]), pd.Series(["cat", None, "dog"], index=[0, 1, 2])],
    ids=["list", "array", "series"],
)
def test_one_axis_is_one_annotator(labels):
    for ann in (Annotations.from_matrix(labels), annotations_of(labels, 3, None, None)):
        assert (ann.n_annotators, ann.annotators.tolist()) == (1, [0])
        assert ann.to_matrix().tolist() == [[0], [-1], [1]]
        assert ann.classes.tolist() == ["cat", "dog"]


def test_a_column_has_its_name_and_its_index():
    column = pd.Series(["dog", "cat", "cat"], index=["z", "x", "y"], name="eve")
    assert of(column) == (["z", "x", "y"], ["eve"], [[1], [0], [0]])
    assert of(column, items=["x", "y", "z"]) == (["x", "y", "z"], ["eve"], [[0], [0], [1]])


def test_rows_of_different_length_are_no_matrix():
    for labels in ([["a", "b"], ["a"], ["b"]], [["a"], "b", "a"]):
        with pytest.raises(
            CrowdshotError, match=r"shape \(3,\) of lists that differ in length, expected \(items, annotators\)"
        ):
            annotations_of(labels, 3, None, None)


def test_columns_of_a_wide_table_are_annotators():
    assert of(WIDE) == ([0, 1, 2], ["ann", "bob", "cyd"], MATRIX)
    named = WIDE.set_axis(["x", "y", "z"])
    assert of(named) == (["x", "y", "z"], ["ann", "bob", "cyd"], MATRIX)
    assert of(WIDE.astype("category")) == of(WIDE)
    clf = CrowdClassifier("identity").fit([[0.0], [0.1], [5.0]], named)
    assert clf.consensus_["item"].tolist() == ["x", "y", "z"]
    assert clf.annotators_["annotator"].tolist() == ["ann", "bob", "cyd"]


def test_rows_go_by_name_where_both_sides_have_one():
    shuffled = WIDE.set_axis(["x", "y", "z"]).loc[["z", "x", "y"]]
    assert of(shuffled, items=["x", "y", "z"]) == (["x", "y", "z"], ["ann", "bob", "cyd"], MATRIX)
    assert of(WIDE.loc[[2, 0, 1]], items=[0, 1, 2]) == ([0, 1, 2], ["ann", "bob", "cyd"], MATRIX)
    with pytest.raises(CrowdshotError, match="X has no item for 1 of the 3 labelled items, first 'z'"):
        of(shuffled, items=["x", "y", "w"])


def test_rows_follow_the_items_where_one_side_only_counts():
    named = WIDE.set_axis(["x", "y", "z"])
    assert of(WIDE, items=["x", "y", "z"]) == (["x", "y", "z"], ["ann", "bob", "cyd"], MATRIX)
    assert of(named, items=[0, 1, 2]) == ([0, 1, 2], ["ann", "bob", "cyd"], MATRIX)
    assert of(WIDE.set_axis([7, 7, 8]), items=["x", "y", "z"])[0] == ["x", "y", "z"]
    assert of(WIDE.set_axis([7, 7, 8]))[0] == [0, 1, 2]
    with pytest.raises(CrowdshotError, match="labels has 3 rows, expected 4 rows as in X"):
        of(WIDE, n=4)


def test_a_column_of_items_names_the_rows():
    table = WIDE.assign(image=["b.png", "a.png", "c.png"])
    items = [PurePath("photos/a.png"), PurePath("photos/b.png"), PurePath("photos/c.png")]
    assert of(table, items=items)[2] == [MATRIX[1], MATRIX[0], MATRIX[2]]
    assert of(table)[0] == ["b.png", "a.png", "c.png"]


def test_a_column_of_truth_or_notes_is_no_annotator():
    table = WIDE.assign(Truth=["cat", "cat", "dog"], notes=["cat", "", ""])
    with pytest.warns(UserWarning, match="not annotators and are ignored: 'Truth', 'notes'"):
        assert of(table) == of(WIDE)


def test_a_long_table_is_never_taken_for_a_wide_one():
    long = pd.DataFrame({"item": ["a", "b"], "worker": ["x", "y"], "label": ["p", "q"]})
    assert wide_table(long) is None
    oddly_named = long.set_axis(["das Bild", "wer", "was"], axis=1)
    assert wide_table(oddly_named) is None
    with pytest.raises(CrowdshotError, match="no column for the item"):
        annotations_of(oddly_named, 2, None, None)
    assert wide_table(pd.DataFrame({"u": [["p"], ["q"]], "v": [["p"], ["q"]]})) is None


def numbered(n_items=30, n_annotators=12, each=4, seed=0):
    """Return a long table of numbers, in which ids of items and annotators are also classes."""
    random = np.random.default_rng(seed)
    annotator = np.concatenate([random.permutation(n_annotators)[:each] for _ in range(n_items)])
    item = np.repeat(np.arange(n_items), each)
    return pd.DataFrame({"item": item, "worker": annotator, "label": (item + random.integers(0, 2, len(item))) % 3})


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        (["page", "worker", "label"], "columns={'item': 'page'}"),
        (["item", "w", "label"], "columns={'annotator': 'w'}"),
        (["item", "worker", "l"], "columns={'label': 'l'}"),
        (["page", "rater_id", "toxicity"], "columns={'item': 'NAME', 'label': 'NAME'}"),
        (["a", "b", "c"], "columns={'item': 'NAME', 'annotator': 'NAME', 'label': 'NAME'}"),
    ],
)
def test_a_long_table_of_numbers_needs_known_names(names, advice):
    """Its columns share values, as those of annotators do."""
    table = numbered().set_axis(names, axis=1)
    for fit in (CrowdAggregator().fit, lambda labels: CrowdClassifier("identity").fit(np.eye(30), labels)):
        with pytest.raises(CrowdshotError, match="has no column for the") as error:
            fit(table)
        assert advice in error.value.hint
        assert "Annotations.from_matrix(table)" in error.value.hint
    columns = dict(zip(["item", "annotator", "label"], names, strict=True))
    assert (
        Annotations.from_frame(table, columns).to_matrix().tolist() == as_annotations(numbered()).to_matrix().tolist()
    )


def test_a_small_long_table_is_recognised_by_the_name_of_one_column():
    table = pd.DataFrame({"page": [0, 0, 1, 1, 2, 2], "user": [0, 1] * 3, "tone": [0, 1, 1, 1, 0, 0]})
    with pytest.raises(CrowdshotError, match="has no column for the item among 'page', 'user', 'tone'"):
        CrowdAggregator().fit(table)


def test_a_text_beside_the_ids_does_not_make_a_long_table_wide():
    with pytest.raises(CrowdshotError, match="2 columns that could be the item, 'task', 'text'") as error:
        CrowdAggregator().fit(numbered().rename(columns={"item": "task"}).assign(text="words"))
    assert "Annotations.from_frame" in error.value.hint


def test_rows_of_item_annotator_and_label_are_no_matrix():
    table = numbered()
    with pytest.raises(CrowdshotError, match="rows of") as error:
        CrowdAggregator().fit(table.to_numpy())
    assert error.value.found == (120, 3)
    assert Annotations.from_matrix(table.to_numpy()).n_annotators == 3
    rows = list(table.itertuples(index=False))  # named tuples
    assert as_annotations(rows).to_matrix().tolist() == as_annotations(table).to_matrix().tolist()
    with pytest.raises(CrowdshotError, match="labels has 120 rows") as error:
        CrowdClassifier("identity").fit(np.eye(30), table.to_numpy())
    assert "columns" in error.value.hint
    with pytest.raises(CrowdshotError, match="labels has 3 rows") as error:
        CrowdClassifier("identity").fit(np.eye(4), np.zeros((3, 4)))
    assert "labels.T" in error.value.hint


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_classes", [2, 5, 20])
def test_annotators_of_numbers_are_still_a_wide_table(seed, n_classes):
    """Whether they are right or guess; also beside columns that number pages and rows of a page."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, n_classes, 60)
    for skill in (0.7, 0.0):
        labels = np.where(random.random((60, 3)) < skill, truth[:, None], random.integers(0, n_classes, (60, 3)))
        wide = pd.DataFrame(labels, columns=["ann", "bob", "cyd"])
        assert as_annotations(wide).annotators.tolist() == ["ann", "bob", "cyd"]
        assert as_annotations(labels).n_annotators == 3
    words = wide.map("class {}".format).assign(page=np.arange(60) // 6, place=np.arange(60) % 6)
    with pytest.warns(UserWarning, match="not annotators and are ignored: 'page', 'place'"):
        assert as_annotations(words).annotators.tolist() == ["ann", "bob", "cyd"]


def test_an_index_may_hold_items_and_annotators():
    table = numbered()
    expected = as_annotations(table).to_matrix().tolist()
    pairs = table.set_index(["item", "worker"])
    for labels in (table.set_index("item"), pairs, pairs["label"], pairs["label"].rename("tone")):
        assert as_annotations(labels).to_matrix().tolist() == expected
    assert as_annotations(pairs["label"].rename_axis([None, None])).to_matrix().tolist() == expected
    assert annotations_of(pairs["label"], 30, None, None).to_matrix().tolist() == expected
    one = pd.Series(
        [0, 1, 1], index=pd.MultiIndex.from_tuples([("p", 1), ("p", 2), ("q", 1)], names=["patient", "slide"])
    )
    assert as_annotations(one).items.tolist() == [("p", 1), ("p", 2), ("q", 1)]  # a single annotator


def test_a_column_of_items_names_rows_whose_numbers_are_also_classes():
    wide = pd.DataFrame({"item": [3, 1, 2, 9, 8, 7], "ann": [1, 2, 1, 2, 1, 2], "bob": [1, 2, 2, 2, 1, 2]})
    ann = as_annotations(wide)
    assert (ann.items.tolist(), ann.annotators.tolist()) == ([3, 1, 2, 9, 8, 7], ["ann", "bob"])


def test_continuous_numbers_are_no_classes_unless_listed():
    X, y = np.arange(8.0).reshape(4, 2), np.array([0.5, 1.0, 0.5, 1.0])
    for labels in (y, y[:, None], pd.Series(y)):
        with pytest.raises(CrowdshotError, match=r"labels contains 0\.5 .*Use classes="):
            CrowdClassifier("identity").fit(X, labels)
    assert CrowdClassifier("identity").fit(X, y, classes=[0.5, 1.0]).classes_.tolist() == [0.5, 1.0]
    with pytest.raises(CrowdshotError, match="labels contains inf"):
        CrowdClassifier("identity").fit(X, [1.0, np.inf, 2.0, 1.0])


@pytest.mark.parametrize(
    ("labels", "classes", "warning"),
    [
        (np.array([[-1, 0], [0, 1]]), [0, 1], None),  # integers have no other mark
        (np.array([[-1, 5], [5, 7]]), [5, 7], None),
        (np.array([[-2, -1], [1, 2]]), [-2, -1, 1, 2], None),  # another negative label
        (np.array([[-2.0, -1], [np.nan, 2]]), [-2, -1, 2], None),
        (np.array([["cat", -1], ["dog", "cat"]], dtype=object), ["cat", "dog"], None),
        (np.array([[-1.0, 0], [np.nan, 1]]), [-1, 0, 1], "-1 is read as a class. Use missing=-1"),
        ([[-1, 0], [None, 1]], [-1, 0, 1], "-1 is read as a class. Use missing=-1"),
        (pd.DataFrame({"ann": [-1, 0, 1], "bob": [-1, None, 1]}), [-1, 0, 1], "-1 is read as a class"),
        (pd.DataFrame({"ann": [-1.0, 0, 1], "bob": [-1.0, 0, 1]}), [0, 1], "missing label. Use missing=None"),
        (np.array([-1, 1, 1, -1]), [-1, 1], "-1 beside 1; -1 is read as a class"),  # one annotator
    ],
)
def test_minus_one_marks_missing_labels_where_nothing_else_can(labels, classes, warning):
    with pytest.warns(UserWarning, match=re.escape(warning)) if warning else nullcontext():
        assert Annotations.from_matrix(labels).classes.tolist() == classes
    assert -1 in Annotations.from_matrix(labels, missing=None).classes.tolist()
    assert -1 not in Annotations.from_matrix(labels, missing=-1).classes.tolist()
    assert Annotations.from_matrix(labels, classes=[-2, -1, 0, 1, 2, 5, 7, "cat", "dog"]).n_classes == 9


def test_a_scale_with_negative_values_keeps_its_classes():
    random = np.random.default_rng(0)
    truth = random.integers(-2, 3, 60)
    labels = np.where(random.random((60, 5)) < 0.7, truth[:, None], random.integers(-2, 3, (60, 5))).astype(float)
    labels[random.random((60, 5)) < 0.3] = np.nan
    clf = CrowdClassifier("identity").fit(np.eye(5)[truth + 2], labels)
    assert clf.classes_.tolist() == [-2, -1, 0, 1, 2]
    assert (clf.consensus_["label"] == truth).mean() > 0.9
    assert clf._missing is None  # for `update`


def test_a_column_of_something_else_is_left_out_of_a_dataframe_too():
    table = WIDE.assign(mail=["x@y.z", "x@y.z", ""], Dauer=[3, 4, 3], cyd=["DOG", "cat ", "dog"])
    spelled = pytest.warns(UserWarning, match="'DOG', 'dog', which may be one class")
    with spelled, pytest.warns(UserWarning, match="not annotators and are ignored: 'mail', 'Dauer'"):
        assert of(table)[1] == ["ann", "bob", "cyd"]


def test_features_that_are_none():
    for X, sentence in [(np.zeros((4, 0)), "without features"), (np.ones((4, 2)) * 1j, "X holds complex numbers")]:
        with pytest.raises(CrowdshotError, match=sentence):
            CrowdClassifier("identity").fit(X, [0, 1, 0, 1])


@pytest.mark.parametrize("title", ["Labels,March", "Labels,March,v2"])
def test_a_title_that_is_nearly_as_wide_as_the_table_is_named(tmp_path, title):
    """It might be a header without a name for the row names, so it is not skipped."""
    rows = "item,ann,ben,cleo\ni1,cat,dog,cat\ni2,cat,cat,cat\n"
    (tmp_path / "x.csv").write_text(f"{title},v3\n{rows}" if title.count(",") == 1 else f"{title}\n{rows}")
    with pytest.raises(CrowdshotError, match="expected 3") as error:
        read_labels(tmp_path / "x.csv")
    assert "row 1 is a title" in str(error.value.hint)
