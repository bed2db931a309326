"""Check that functions of labels accept every form of labels that fit accepts."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdshot import (
    Annotations,
    CrowdAggregator,
    CrowdClassifier,
    CrowdshotError,
    aggregate,
    read_labels,
)
from crowdshot.errors import CrowdshotWarning, NoLabelError
from crowdshot.labels.matching import as_annotations
from crowdshot.metrics import fleiss_kappa, krippendorff_alpha, pairwise_agreement

M = [["cat", "cat", None], ["dog", "dog", "cat"], ["cat", "cat", "cat"]]
ANN = Annotations.from_matrix(M)
FUNCTIONS = [
    aggregate.learned, aggregate.dawid_skene, aggregate.one_coin, aggregate.majority_vote, pairwise_agreement,
    krippendorff_alpha, fleiss_kappa,
]  # fmt: skip


def result_of(found):
    return found.probabilities if hasattr(found, "probabilities") else found.value


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_form_gives_the_same_result(function, tmp_path):
    ANN.to_frame().to_csv(tmp_path / "labels.csv", index=False)
    forms = [
        M, np.array(M, dtype=object), pd.DataFrame(M), pd.DataFrame(M).astype("string"), ANN.to_frame(),
        {i: {r: label for r, label in enumerate(row) if label} for i, row in enumerate(M)},
        read_labels(tmp_path / "labels.csv"),
    ]  # fmt: skip
    for form in forms:
        np.testing.assert_allclose(result_of(function(form)), result_of(function(ANN)), err_msg=str(type(form)))
    assert function.__doc__


@pytest.mark.parametrize("given", ["labels.csv", None, 3])
def test_objects_without_labels_are_refused(given):
    with pytest.raises(CrowdshotError, match=r"^labels is (None|a \w+), expected Annotations, an array or a table"):
        aggregate.learned(given)


def test_missing_cells_of_pandas_dtypes_are_missing_labels():
    table = pd.DataFrame({"ann": [0, 1, None, 1], "bob": [0, 1, 0, None], "cyd": [0, 0, 0, 1]})
    for kind in ("Int64", "Float64", "int64[pyarrow]"):
        clf = CrowdClassifier(encoder="identity").fit(np.array([[0.0], [5.0], [0.1], [5.1]]), table.astype(kind))
        assert clf.annotations_.annotators.tolist() == ["ann", "bob", "cyd"]
        assert clf.annotations_.n_labels == 10


def test_weights_and_probabilities_are_matched_by_the_index_of_x():
    random = np.random.default_rng(0)
    X = pd.DataFrame(random.normal(size=(12, 2)), index=[f"i{n}" for n in range(12)])
    labels = random.integers(2, size=(12, 3))
    weight = pd.Series(random.integers(1, 4, size=12), index=X.index)
    right = random.random(12)
    p = pd.DataFrame({0: right, 1: 1 - right}, index=X.index)
    for name, used in (("sample_weight", weight), ("pred_probs", p)):
        here, there = (
            CrowdClassifier(encoder="identity").fit(X, labels, **{name: each}).label_proba_
            for each in (used, used[::-1])
        )
        np.testing.assert_allclose(here, there)
        other = CrowdClassifier(encoder="identity").fit(X, labels, **{name: used.to_numpy()[::-1]}).label_proba_
        assert abs(here - other).max() > 1e-4


def test_features_beyond_single_precision_cause_a_warning():
    X = np.c_[1.7e9 + np.arange(8.0), np.arange(8) % 2]
    with pytest.warns(
        UserWarning, match="values between 1700000000 and 1700000007 in column 0, which single precision"
    ):
        CrowdClassifier(encoder="identity").fit(X, (np.arange(8) % 2)[:, None].repeat(2, 1))


@pytest.mark.filterwarnings("ignore:.*dropped")
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(-2, 3)), min_size=3, max_size=25),
    st.booleans(),
)
def test_a_table_has_the_labels_of_its_file(tmp_path_factory, rows, as_dicts):
    """Rows with -1 are no labels of a class -1 in Python if they are missing labels on the command line."""
    table = pd.DataFrame(rows, columns=["item", "annotator", "label"]).astype({"annotator": str})
    path = tmp_path_factory.mktemp("file") / "labels.csv"
    table.to_csv(path, index=False)

    def triples(read):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = read().to_frame().astype(str)
        except NoLabelError:
            return None
        return sorted(found.itertuples(index=False, name=None))

    form = table.to_dict("records") if as_dicts else table
    assert triples(lambda: as_annotations(form)) == triples(lambda: read_labels(path).annotations)


def test_a_mark_of_missing_labels_applies_to_every_form():
    rows = [(i, a, (i + len(a)) % 3 if (i + ord(a[0])) % 4 else 99) for i in range(12) for a in ("ann", "bo", "cyd9")]
    table = pd.DataFrame(rows, columns=["item", "annotator", "label"])
    nested = {i: {a: label for j, a, label in rows if j == i} for i in range(12)}
    wide = table.pivot(index="item", columns="annotator", values="label")
    for form in (table, table.to_dict("records"), nested, wide):
        assert as_annotations(form, missing=99).n_labels == sum(label != 99 for *_, label in rows)
        assert as_annotations(form).n_labels == len(rows)
        assert as_annotations(form, missing=99, classes=[0, 1, 2, 99]).n_labels == len(rows)
    fitted = CrowdAggregator().fit(table[table["item"] < 9], missing=99)
    for more in (table[table["item"] >= 9], wide.iloc[9:]):
        assert fitted.partial_fit(more).classes_.tolist() == [0, 1, 2]
    with pytest.warns(CrowdshotWarning, match="rows with -1"):
        assert as_annotations(table.replace({"label": {99: -1}})).classes.tolist() == [0, 1, 2]
