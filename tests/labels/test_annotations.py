"""Test Annotations with expected values by hand: every input format, policy and output format."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdshot.errors import CrowdshotError
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import Columns, find_columns


def table(rows, columns=("item", "annotator", "label")):
    return pd.DataFrame(rows, columns=list(columns))


PETS = [("x.png", "ann", "dog"), ("x.png", "bob", "cat"), ("y.png", "ann", "cat")]


def triples(ann):
    """Return {(item id, annotator id): label id}."""
    ids = zip(ann.items[ann.item], ann.annotators[ann.annotator], ann.classes[ann.label], strict=True)
    return {(item, annotator): label for item, annotator, label in ids}


# ---- from a table


def test_from_frame_positions_and_ids():
    ann = Annotations.from_frame(table(PETS))
    assert ann.items.tolist() == ["x.png", "y.png"]
    assert ann.annotators.tolist() == ["ann", "bob"]
    assert ann.classes.tolist() == ["cat", "dog"]
    assert (ann.item.tolist(), ann.annotator.tolist(), ann.label.tolist()) == ([0, 0, 1], [0, 1, 0], [1, 0, 0])
    assert {a.dtype for a in (ann.item, ann.annotator, ann.label)} == {np.dtype(np.int64)}
    assert (ann.n_items, ann.n_annotators, ann.n_classes, ann.n_labels, len(ann)) == (2, 2, 2, 3, 3)
    assert repr(ann) == "Annotations(2 items × 2 annotators, 3 labels, 2 classes: 'cat', 'dog')"


@pytest.mark.parametrize(
    ("ids", "labels", "classes"),
    [
        ([7, 3, 7], [2, 0, 0], [0, 2]),
        (["b", "a", "b"], [True, False, True], [False, True]),
        ([1, "one", 1], ["b", 3, "a"], [3, "a", "b"]),
        ([1.5, 2.5, 1.5], [0.5, 2.0, 0.5], [0.5, 2.0]),
        (pd.to_datetime(["2024-01-02", "2024-01-01", "2024-01-02"]), [1, 1, 1], [1]),
    ],
)
def test_ids_and_labels_of_any_kind(ids, labels, classes):
    ann = Annotations.from_frame(table({"item": ids, "annotator": [10, 10, 11], "label": labels}))
    assert ann.item.tolist() == [0, 1, 0]
    assert list(ann.items) == list(pd.unique(pd.Series(ids)))
    assert ann.classes.tolist() == classes
    assert ann.classes[ann.label].tolist() == labels


@pytest.mark.parametrize("dtype", ["object", "string", "category", None])
def test_every_pandas_text_type_gives_plain_text(dtype):
    frame = table(PETS)
    ann = Annotations.from_frame(frame if dtype is None else frame.astype(dtype))
    assert triples(ann) == {("x.png", "ann"): "dog", ("x.png", "bob"): "cat", ("y.png", "ann"): "cat"}
    assert {type(v) for v in [*ann.items, *ann.annotators, *ann.classes]} == {str}


@pytest.mark.parametrize("labels", [[1.0, np.nan, 0.0], pd.array([1, None, 0], dtype="Int64"), [1.0, None, 0]])
def test_whole_numbers_beside_a_missing_label_are_integers(labels):
    ann = Annotations.from_frame(pd.DataFrame({"item": [1, 1, 2], "annotator": [1, 2, 1], "label": labels}))
    assert ann.classes.tolist() == [0, 1]
    assert ann.classes.dtype.kind == "i"
    assert ann.label.tolist() == [1, 0]


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, "", "  "])
def test_missing_labels_are_dropped_with_the_ids_only_they_name(missing):
    rows = [*PETS, ("z.png", "ann", missing), ("x.png", "cy", missing), (None, None, missing)]
    ann = Annotations.from_frame(table(rows))
    assert ann.items.tolist() == ["x.png", "y.png"]
    assert ann.annotators.tolist() == ["ann", "bob"]
    assert len(ann) == 3


def test_listed_ids_without_a_label_are_kept_in_the_given_order():
    lists = {"items": ["z.png", "y.png", "x.png"], "annotators": ["cy", "bob", "ann"]}
    ann = Annotations.from_frame(table(PETS), classes=["owl", "dog", "cat"], **lists)
    assert ann.items.tolist() == lists["items"]
    assert ann.annotators.tolist() == lists["annotators"]
    assert ann.classes.tolist() == ["owl", "dog", "cat"]
    assert triples(ann) == triples(Annotations.from_frame(table(PETS)))
    assert ann.vote_counts().tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 1]]


def test_a_label_outside_the_classes_names_the_first_by_its_row_in_the_table():
    rows = [("x.png", "cy", None), *PETS]
    with pytest.raises(CrowdshotError, match=r"^pets.csv, row 3, column 'label' is 'cat', which classes does not list"):
        Annotations.from_frame(table(rows), classes=["dog"], source="pets.csv")
    with pytest.raises(CrowdshotError, match=r"row 3, column 'item' is 'y.png', which items does not list"):
        Annotations.from_frame(table(PETS), items=["x.png"])
    with pytest.raises(CrowdshotError, match=r"row 2, column 'annotator' is 'bob', which annotators does not list"):
        Annotations.from_frame(table(PETS), annotators=["ann"])


def test_text_and_number_are_different_classes():
    frame = table([(1, 1, 0), (1, 2, 1)])
    with pytest.raises(CrowdshotError, match=r"row 1, column 'label' is 0, .* one of '0', '1'"):
        Annotations.from_frame(frame, classes=["0", "1"])


TWICE = [("x", "ann", "dog"), ("x", "bob", "cat"), ("x", "ann", "cat"), ("x", "ann", "owl"), ("y", "ann", "dog")]


@pytest.mark.parametrize(("policy", "label"), [("last", "owl"), ("first", "dog")])
def test_duplicates_keep_one_and_warn_with_their_number(policy, label):
    with pytest.warns(UserWarning, match=f"2 labels dropped .* the {policy} one in its order counts"):
        ann = Annotations.from_frame(table(TWICE), duplicates=policy)
    assert triples(ann) == {("x", "ann"): label, ("x", "bob"): "cat", ("y", "ann"): "dog"}


@pytest.mark.parametrize(("place", "argument"), [(0, "items"), (1, "annotators"), (2, "classes")])
def test_half_a_character_is_refused(place, argument):
    """An unpaired surrogate fits into no table and no file."""
    row = ["é", "漢", "🐈"]
    row[place] = "cat\ud800"
    with pytest.raises(CrowdshotError) as caught:
        Annotations.from_frame(pd.DataFrame([row], columns=["item", "annotator", "label"], dtype=object))
    assert (caught.value.argument, caught.value.found) == (argument, "cat\ud800")
    assert "\ud800" not in str(caught.value)


def test_duplicates_last_is_the_default_and_a_missing_label_does_not_replace_one():
    with pytest.warns(UserWarning, match="2 labels dropped"):
        ann = Annotations.from_frame(table([*TWICE, ("x", "ann", None)]))
    assert triples(ann)[("x", "ann")] == "owl"


def test_duplicates_may_be_an_error():
    with pytest.raises(CrowdshotError, match=r"row 3 is a second label of annotator 'ann' for item 'x'"):
        Annotations.from_frame(table(TWICE), duplicates="error")
    with pytest.raises(CrowdshotError, match=r"duplicates is 'mean', expected one of 'last', 'first', 'error'"):
        Annotations.from_frame(table(PETS), duplicates="mean")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(1, 1, 1), (None, 2, 1)], r"row 2, column 'item' is empty"),
        ([(1, 1, None), ("b", " ", 1)], r"row 2, column 'annotator' is empty"),
        ([], r"holds no label"),
        ([(1, 1, None), (2, 1, "")], r"holds no label in its 2 rows of 'label', expected one"),
    ],
)
def test_missing_ids_and_empty_tables(rows, message):
    with pytest.raises(CrowdshotError, match=message):
        Annotations.from_frame(table(rows))


def test_not_a_table():
    with pytest.raises(CrowdshotError, match="is a list, expected a table"):
        Annotations.from_frame(PETS)


@pytest.mark.parametrize("argument", ["items", "annotators", "classes"])
def test_lists_of_ids_must_be_unique_and_present(argument):
    with pytest.raises(CrowdshotError, match=f"{argument} lists 'a' more than once"):
        Annotations.from_frame(table(PETS), **{argument: ["b", "a", "a"]})
    with pytest.raises(CrowdshotError, match=f"{argument} has no value at position 2"):
        Annotations.from_frame(table(PETS), **{argument: ["b", None]})


# ---- columns


@pytest.mark.parametrize(
    "names",
    [
        ("item", "annotator", "label"),
        ("task", "worker", "label"),
        ("Image", "User", "Answer"),
        ("FileName", "labeller", "Class"),
        ("image_path", "Worker ID", "category"),
        ("HITId", "WorkerId", "answer"),
        ("id", "rater", "choice"),
    ],
)
def test_columns_by_their_usual_names(names):
    assert find_columns(["when", *reversed(names), "seconds"]) == names


def test_the_plainest_name_wins_over_weaker_ones():
    found = ["id", "image", "item", "annotator", "worker", "label", "label_id", "category"]
    assert find_columns(found) == ("item", "annotator", "label")
    assert find_columns(["id", "task", "worker", "answer"]) == ("task", "worker", "answer")


@pytest.mark.parametrize(
    "columns", [Columns("a", "b", "c"), ("a", "b", "c"), {"item": "a", "annotator": "b", "label": "c"}]
)
def test_columns_given(columns):
    ann = Annotations.from_frame(table(PETS, ("a", "b", "c")), columns)
    assert ann.columns == Columns("a", "b", "c")
    assert list(ann.to_frame().columns) == ["a", "b", "c"]


def test_columns_given_in_part_leave_the_others_to_their_names():
    assert find_columns(["label", "worker", "task", "truth"], {"label": "truth"}) == ("task", "worker", "truth")
    assert find_columns(["label", "worker", "x"], {"item": "label", "label": "x"}) == ("label", "worker", "x")


@pytest.mark.parametrize(
    ("found", "columns", "message"),
    [
        (["a", "b"], None, r"no column for the item among 'a', 'b', expected one called item, task, .*columns="),
        ([], None, r"no column for the item, expected"),
        (
            ["task", "image", "worker", "label"],
            None,
            r"2 columns that could be the item, 'task', 'image', expected one. Use columns=",
        ),
        (["item", "worker", "label"], {"item": "x"}, r"no column 'x' for the item among 'item', 'worker'"),
        (["item", "item", "worker", "label"], {"item": "item"}, r"more than one column 'item' for the item"),
        (["a", "worker", "label"], {"item": "a", "label": "a"}, r"columns names .*, expected three different columns"),
        (["a", "b", "c"], {"task": "a"}, r"keys among 'item', 'annotator', 'label'"),
        (["a", "b", "c"], "abc", r"columns is 'abc', expected three names"),
        ([f"c{i}" for i in range(1000)], None, r"'c9' and 990 more"),
    ],
)
def test_columns_that_cannot_be_recognised(found, columns, message):
    with pytest.raises(CrowdshotError, match=message) as caught:
        find_columns(found, columns, "votes.csv")
    assert len(str(caught.value)) < 400


# ---- from matrices and dicts


@pytest.mark.parametrize(
    "matrix",
    [
        np.array([[0, -1, 2], [-1, -1, -1], [2, 2, -1]]),
        np.array([[0, np.nan, 2], [np.nan] * 3, [2, 2, np.nan]]),
        [[0, None, 2], [None, None, None], [2, 2, None]],
        np.ma.array([[0, 1, 2], [0, 1, 2], [2, 2, 1]], mask=[[0, 1, 0], [1, 1, 1], [0, 0, 1]]),
        torch.tensor([[0, -1, 2], [-1, -1, -1], [2, 2, -1]]),
        pd.DataFrame([[0, None, 2], [None, None, None], [2, 2, None]], dtype="Int64"),
    ],
)
def test_from_matrix_keeps_items_and_annotators_without_labels(matrix):
    ann = Annotations.from_matrix(matrix)
    assert triples(ann) == {(0, 0): 0, (0, 2): 2, (2, 0): 2, (2, 1): 2}
    assert (ann.items.tolist(), ann.annotators.tolist(), ann.classes.tolist()) == ([0, 1, 2], [0, 1, 2], [0, 2])
    assert ann.to_matrix().tolist() == [[0, -1, 1], [-1, -1, -1], [1, 1, -1]]


def test_from_matrix_of_text_with_names():
    matrix = pd.DataFrame([["cat", None], ["", "dog"]], index=["x", "y"], columns=["ann", "bob"])
    ann = Annotations.from_matrix(matrix, classes=["dog", "cat"])
    assert triples(ann) == {("x", "ann"): "cat", ("y", "bob"): "dog"}
    assert ann.to_matrix().tolist() == [[1, -1], [-1, 0]]
    nan = float("nan")
    listed = Annotations.from_matrix([["cat", nan], [nan, "dog"]], items=["x", "y"], annotators=["ann", "bob"])
    assert triples(listed) == triples(ann)


def test_minus_one_is_a_label_where_the_classes_list_it():
    ann = Annotations.from_matrix([[-1, 1], [0, None]], classes=[-1, 0, 1])
    assert triples(ann) == {(0, 0): -1, (0, 1): 1, (1, 0): 0}


@pytest.mark.parametrize(
    ("matrix", "options", "message"),
    [
        (np.zeros((2, 2, 2)), {}, r"shape \(2, 2, 2\), expected \(items, annotators\), or \(items,\)"),
        ([[0, 1], [1]], {}, r"shape \(2,\) of lists"),
        ([[None, -1]], {}, r"holds no label"),
        ([[0, 1], [1, 5]], {"classes": [0, 1]}, r"the matrix, row 2, column 2 is 5, which classes does not list"),
        ([[0, 1]], {"items": ["x", "y"]}, r"items lists 2 ids, expected 1"),
        ([[0, 1]], {"annotators": ["x", "x"]}, r"annotators lists 'x' more than once"),
    ],
)
def test_bad_matrices(matrix, options, message):
    with pytest.raises(CrowdshotError, match=message):
        Annotations.from_matrix(matrix, **options)


def test_from_dict_keeps_every_name():
    ann = Annotations.from_dict({"x": {"ann": 1, "bob": 0}, "y": {}, 3: {"cy": None, "ann": 0}})
    assert ann.items.tolist() == ["x", "y", 3]
    assert ann.annotators.tolist() == ["ann", "bob", "cy"]
    assert triples(ann) == {("x", "ann"): 1, ("x", "bob"): 0, (3, "ann"): 0}


@pytest.mark.parametrize("labels", [{}, {"x": {}}, {"x": {"ann": None}}])
def test_from_dict_without_a_label(labels):
    with pytest.raises(CrowdshotError, match="the dict of labels holds no label"):
        Annotations.from_dict(labels)


@pytest.mark.parametrize("labels", [{"x": 1}, {"x": ["cat"]}, [1]])
def test_from_dict_wants_dicts_of_dicts(labels):
    with pytest.raises(CrowdshotError, match="labels is not a dict of dicts"):
        Annotations.from_dict(labels)


# ---- other tools' conventions


def test_crowdkit_round_trip():
    frame = table(PETS, ("task", "worker", "label"))
    ann = Annotations.from_crowdkit(frame)
    assert triples(ann) == triples(Annotations.from_frame(table(PETS)))
    pd.testing.assert_frame_equal(Annotations.from_frame(table(PETS)).to_crowdkit(), frame)
    with pytest.raises(CrowdshotError, match="no column 'task'"):
        Annotations.from_crowdkit(table(PETS))


def test_cleanlab_keeps_a_class_without_labels():
    labels = pd.DataFrame([[0, np.nan], [3, 1]], index=["x", "y"], columns=["ann", "bob"])
    ann = Annotations.from_cleanlab(labels)
    assert ann.classes.tolist() == [0, 1, 2, 3]
    assert triples(ann) == {("x", "ann"): 0, ("y", "ann"): 3, ("y", "bob"): 1}
    pd.testing.assert_frame_equal(ann.to_cleanlab(), labels.astype(float))
    assert Annotations.from_cleanlab(labels.to_numpy(), n_classes=6).n_classes == 6


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([["cat"]], {}, "labels has 'cat', expected integers from 0"),
        ([[0.5]], {}, "labels has 0.5, expected integers from 0"),
        ([[-2, 1]], {}, "labels has -2, 1, expected integers from 0"),
        ([[0, 4]], {"n_classes": 3}, "labels has 4, expected 0 to 2, as n_classes is 3"),
    ],
)
def test_not_cleanlab(labels, options, message):
    with pytest.raises(CrowdshotError, match=message):
        Annotations.from_cleanlab(labels, **options)


# ---- output


def test_to_tensor_and_votes():
    ann = Annotations.from_frame(table(PETS))
    tensor = ann.to_tensor()
    assert tensor.dtype == torch.int64
    assert tensor.tolist() == [[1, 0], [0, -1]]
    votes = ann.vote_counts()
    assert votes.dtype == np.float64
    assert votes.tolist() == [[1, 1], [1, 0]]


def test_select_items():
    ann = Annotations.from_frame(table([*PETS, ("z.png", "bob", "owl")]))
    part = ann.select_items(["z.png", "x.png"])
    assert part.items.tolist() == ["z.png", "x.png"]
    assert triples(part) == {("x.png", "ann"): "dog", ("x.png", "bob"): "cat", ("z.png", "bob"): "owl"}
    assert part.annotators is ann.annotators
    assert part.classes is ann.classes
    with pytest.raises(CrowdshotError, match=r"ids has 'w\.png', .* expected some of the 3 items"):
        ann.select_items(["w.png"])
    with pytest.raises(CrowdshotError, match="ids names 0 items without labels"):
        ann.select_items([])


ids = st.one_of(st.integers(-5, 5), st.text("abc", min_size=1, max_size=2))
crowds = st.dictionaries(st.tuples(ids, ids), st.sampled_from(["cat", "dog", 0, 1]), min_size=1, max_size=20)


@given(crowds)
@settings(max_examples=60, deadline=None)
def test_round_trips_in_every_form(crowd):
    rows = [(item, annotator, label) for (item, annotator), label in crowd.items()]
    ann = Annotations.from_frame(table(rows).astype(object))
    assert triples(ann) == crowd
    assert ann.items.tolist() == list(dict.fromkeys(item for item, _, _ in rows))
    assert triples(Annotations.from_frame(ann.to_frame())) == crowd
    assert list(ann.to_frame().itertuples(index=False, name=None)) == rows
    nested = {item: {} for item, _, _ in rows}
    for item, annotator, label in rows:
        nested[item][annotator] = label
    assert triples(Annotations.from_dict(nested)) == crowd
    matrix = Annotations.from_matrix(ann.to_matrix(), items=ann.items, annotators=ann.annotators)
    assert {pair: ann.classes[label] for pair, label in triples(matrix).items()} == crowd
    assert ann.vote_counts().sum() == len(crowd)


def test_a_hundred_times_the_rows_take_no_more_lines_of_python():
    few, many = (shuffled_crowd(n_items) for n_items in (200, 20_000))
    lines_of_few, _ = counting_lines(lambda: Annotations.from_frame(few))
    lines_of_many, ann = counting_lines(lambda: Annotations.from_frame(many))
    assert lines_of_many < lines_of_few + len(few)
    assert len(ann) == 99_000
    assert np.array_equal(ann.classes[ann.label], many["label"].dropna())


def shuffled_crowd(n_items):
    rng = np.random.default_rng(0)
    columns = {
        "item": np.repeat(np.arange(n_items), 5),
        "annotator": np.tile(np.arange(1000), n_items // 200),
        "label": rng.integers(4, size=5 * n_items).astype(float),
    }
    frame = pd.DataFrame(columns).sample(frac=1, random_state=0)
    frame.iloc[::100, 2] = np.nan
    return frame


def counting_lines(run):
    """Return the number of executed lines of Python, including libraries, and the result."""
    count, before = 0, sys.gettrace()

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        result = run()
    finally:
        sys.settrace(before)
    return count, result


def test_nan_as_text_from_numpy_is_missing():
    ann = Annotations.from_matrix(np.array([["x", np.nan], ["y", "x"]]))
    assert ann.classes.tolist() == ["x", "y"]
    assert len(ann.label) == 3


def test_numeric_classes_are_sorted():
    ann = Annotations.from_matrix([["10", "9"], ["2", "-1x"]])
    assert ann.classes.tolist() == ["-1x", "10", "2", "9"]
    ann = Annotations.from_matrix([["10", "9"], ["2", "02"]])
    assert ann.classes.tolist() == ["02", "2", "9", "10"]
