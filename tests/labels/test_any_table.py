"""Check that every kind of table of labels and items gives the same result, and other input is refused."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdshot import Annotations, CrowdClassifier, CrowdshotError, aggregate
from crowdshot._cli.inputs import LabelFiles
from crowdshot.io.dataframes import to_pandas
from crowdshot.labels.matching import as_annotations

N = 30
RANDOM = np.random.default_rng(0)
TRUTH = np.array(["cat", "dog", "owl"], dtype=object)[np.arange(N) % 3]
SAID = np.where(RANDOM.random((N, 4)) < 0.7, TRUTH[:, None], RANDOM.choice(["cat", "dog", "owl"], (N, 4)))
SAID[RANDOM.random((N, 4)) < 0.2] = None
ITEMS = [f"img{row:02}" for row in range(N)]
PEOPLE = ["ann", "bob", "cyd", "dee"]
X = np.eye(3)[np.arange(N) % 3] * 3 + RANDOM.normal(size=(N, 3))
WIDE = pd.DataFrame(SAID, columns=PEOPLE)
LONG = pd.DataFrame(
    [(ITEMS[n], PEOPLE[r], SAID[n, r]) for n in range(N) for r in range(4) if SAID[n, r] is not None],
    columns=["item", "annotator", "label"],
)


class Column(list):
    """A fake for a column of a Hugging Face dataset."""


class Dataset:
    """A fake for a Hugging Face dataset, with the methods that crowdshot uses."""

    def __init__(self, table):
        self.table = table

    def with_format(self, kind):
        assert kind is None
        return self

    def to_pandas(self):
        return self.table


for kind in (Column, Dataset):
    kind.__module__ = "datasets.arrow_dataset"

TABLES = {
    "pandas": lambda table: table,
    "pandas string": lambda table: table.astype("string"),
    "pandas categorical": lambda table: table.astype("category"),
    "pandas Arrow": lambda table: pd.DataFrame(
        {name: table[name].astype(pd.ArrowDtype(pa.string())) for name in table}
    ),
    "polars": pl.from_pandas,
    "polars lazy": lambda table: pl.from_pandas(table).lazy(),
    "PyArrow": pa.Table.from_pandas,
    "Hugging Face": Dataset,
    "dicts": lambda table: table.astype(object).where(table.notna(), None).to_dict("records"),
    "columns": lambda table: table.astype(object).where(table.notna(), None).to_dict("list"),
}
LONG_ONLY = {"tuples": lambda table: list(table.itertuples(index=False, name=None))}
WIDE_ONLY = {
    "array": lambda table: table.to_numpy(),
    "lists": lambda table: table.to_numpy().tolist(),
    "masked": lambda table: np.ma.MaskedArray(table.fillna("?").to_numpy(), table.isna().to_numpy()),
    "rows of four": lambda table: list(table.itertuples(index=False, name=None)),
}


@pytest.fixture(scope="module")
def expected():
    ann = Annotations.from_matrix(SAID, annotators=PEOPLE)
    clf = CrowdClassifier("identity").fit(X, ann)
    return aggregate.learned(ann).probabilities, clf.label_proba_, clf.predict_proba(X)


@pytest.mark.parametrize("kind", [*TABLES, *WIDE_ONLY])
def test_wide(kind, expected):
    labels = (TABLES | WIDE_ONLY)[kind](WIDE)
    np.testing.assert_allclose(aggregate.learned(labels).probabilities, expected[0])
    clf = CrowdClassifier("identity").fit(X, labels)
    np.testing.assert_allclose(clf.label_proba_, expected[1])
    assert clf.classes_.tolist() == ["cat", "dog", "owl"]


@pytest.mark.parametrize("kind", [*TABLES, *LONG_ONLY])
def test_long(kind, expected):
    labels = (TABLES | LONG_ONLY)[kind](LONG)
    frame = aggregate.learned(labels).to_frame(Annotations.from_frame(LONG))
    np.testing.assert_allclose(frame.sort_values("item")["confidence"], expected[0].max(1))
    clf = CrowdClassifier("identity").fit(X, labels, items=ITEMS)
    np.testing.assert_allclose(clf.label_proba_, expected[1])


@pytest.mark.parametrize("kind", ["pandas", "polars", "polars lazy", "PyArrow", "Hugging Face"])
def test_features(kind, expected):
    table = TABLES[kind](pd.DataFrame(X, columns=["a", "b", "c"]))
    clf = CrowdClassifier("identity").fit(table, SAID)
    np.testing.assert_allclose(clf.predict_proba(table), expected[2], atol=1e-6)
    assert clf.feature_names_in_.tolist() == ["a", "b", "c"]


def test_texts_of_a_dataset():
    texts = [f"{label} {row}" for row, label in enumerate(TRUTH)]
    found = [
        CrowdClassifier().fit(column, SAID).label_proba_ for column in (texts, Column(texts), pl.Series("text", texts))
    ]
    np.testing.assert_allclose(found[1], found[0])
    np.testing.assert_allclose(found[2], found[0])


def test_gold_priors_and_predictions_in_other_tables(expected):
    known, p = {"item": [0, 4], "truth": ["owl", "owl"]}, expected[2]
    gold = [CrowdClassifier("identity").fit(X, SAID, gold=kind(known)) for kind in (pd.DataFrame, pl.DataFrame)]
    np.testing.assert_allclose(gold[1].label_proba_, gold[0].label_proba_)
    predicted = pl.DataFrame(p, schema=["owl", "cat", "dog"])  # named columns in another order
    by_name = CrowdClassifier("identity").fit(X, SAID, pred_probs=predicted)
    np.testing.assert_allclose(
        by_name.label_proba_, CrowdClassifier("identity").fit(X, SAID, pred_probs=p[:, [1, 2, 0]]).label_proba_
    )
    history = {"annotator": [0, 1], "right": [9, 1], "wrong": [1, 9]}
    priors = [CrowdClassifier("identity").fit(X, SAID, priors=kind(history)) for kind in (pd.DataFrame, pl.DataFrame)]
    np.testing.assert_allclose(priors[1].label_proba_, priors[0].label_proba_)


def test_tuples_that_may_be_records_or_a_matrix_are_refused():
    with pytest.raises(CrowdshotError) as error:
        aggregate.learned([(0, 1, 1), (1, 0, 0), (0, 0, 1)])
    assert error.value.argument == "labels"
    assert "tuples" in str(error.value)
    ann = as_annotations([(0, 1, 1), (0, 1, 0), (1, 1, 1)])  # a pair of item and annotator occurs twice
    assert (ann.n_items, ann.n_annotators) == (3, 3)


def test_collections_of_tables_are_refused():
    splits = type("DatasetDict", (dict,), {"__module__": "datasets.dataset_dict"})(train=Dataset(LONG))
    with pytest.raises(CrowdshotError) as error:
        CrowdClassifier("identity").fit(X, splits)
    assert error.value.found == ["train"]


def test_spaces_are_removed_and_other_spellings_reported():
    table = pd.DataFrame({"ann": ["cat ", "dog", "cat"], "bob": ["cat", " dog", "Cat"]})
    with pytest.warns(UserWarning, match="'Cat', 'cat'"):
        ann = as_annotations(table)
    assert ann.classes.tolist() == ["Cat", "cat", "dog"]
    assert ann.merge_case().classes.tolist() == ["cat", "dog"]
    with pytest.warns(UserWarning, match="may be one class"):
        mixed = as_annotations(np.array([["0", 0], ["1", 1]], dtype=object))
    assert mixed.merge_case().n_classes == 2


def test_merged_annotators_keep_one_label_an_item():
    ann = Annotations.from_dict({"a": {"Ann": "cat", "ann": "dog"}, "b": {"ann": "dog"}, "c": {"bob": "cat"}})
    merged = ann.merge_case()
    assert merged.annotators.tolist() == ["ann", "bob"]
    assert merged.n_labels == 3
    assert merged.items.tolist() == ["a", "b", "c"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(-(2**62), 2**62)), min_size=1, max_size=6))
def test_whole_numbers_survive_nullable_dtypes(values):
    found = to_pandas(pd.DataFrame({"id": pd.array(values, dtype="Int64")}))["id"]
    assert [None if pd.isna(value) else int(value) for value in found] == values


def test_a_named_column_that_a_table_without_header_lacks(tmp_path):
    file = tmp_path / "labels.csv"
    file.write_text("".join(f"{i:03}.png,ann{a},{'cat' if i % 2 else 'dog'}\n" for i in range(9) for a in range(3)))
    with pytest.raises(CrowdshotError):
        LabelFiles(paths=[file], columns={"label": "animal"}).read()
