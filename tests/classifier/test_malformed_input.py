"""Things that nobody means, and that once ended in an error of a library."""

import numpy as np
import pytest
import torch
from scipy import sparse

from crowdshot import CrowdClassifier, CrowdshotError, read_labels

X = np.array([[0.0, 1], [5, 5], [0, 2], [6, 5]])
LABELS = [["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]]
NUMBERS = np.array([[0, 0], [1, 1], [0, 1], [1, 1]])
FAR = "x" * 5000


def fit(X=X, labels=LABELS, encoder="identity", **options):
    return CrowdClassifier(encoder, **options).fit(X, labels)


@pytest.mark.parametrize(
    ("do", "told"),
    [
        (lambda: fit(labels=[[["a"], "b"], *LABELS[1:]]), "labels has a list as a label, expected names or numbers."),
        (lambda: fit(labels=[[{}, {}]] * 4), "labels has a dict as a label, expected names or numbers."),
        (lambda: fit(labels=sparse.csr_matrix(NUMBERS)), "labels is a sparse or empty csr_matrix, expected an array"),
        (
            lambda: fit(labels=torch.tensor(NUMBERS).to_sparse()),
            "labels is a sparse or empty Tensor, expected",
        ),
        (lambda: fit(labels=torch.empty(4, 2, device="meta")), "labels is a sparse or empty Tensor, expected"),
        (lambda: fit(torch.empty(4, 2, device="meta")), "X is a tensor of shape (4, 2), expected"),
        (lambda: fit(encoder=None), "encoder is None, expected a name, a file, a network or a function."),
        (lambda: fit(encoder=7), "encoder is 7, expected a name, a file, a network or a function."),
        (lambda: fit(encoder=f"{FAR}.safetensors"), "could not be read (File name too long)"),
        (
            lambda: fit(method="ours", settings={"tau": 1e300}),
            "tau is 1e+300, expected a number, 0 or more, and 1e+12 at most.",
        ),
        (
            lambda: fit(method="ours", settings={"b": 1e13}),
            "b is 10000000000000.0, expected a number, 0 or more, and 1e+12 at most.",
        ),
        (lambda: fit(method="ours", settings={"scale": 10**400}), "expected a number, 0 or more, and 1e+12 at most."),
        (
            lambda: fit(method="labeling-search", settings={"tau": 1e300}),
            "1e+300 as tau of labeling-search, expected a pos",
        ),
        (lambda: read_labels(FAR), "could not be read (File name too long)"),
        (lambda: CrowdClassifier.load(FAR), "could not be read (File name too long)"),
        (lambda: fit().save(FAR), "could not be written (File name too long)"),
        (lambda: fit(labels=[["a" * 70_000, None]] * 4), "alone (only one class), expected two classes or more."),
    ],
)
def test_bad_input_is_told_in_a_sentence(do, told):
    with pytest.raises(CrowdshotError) as caught:
        do()
    sentence = str(caught.value)
    assert told in sentence
    assert len(sentence) < 5000


def test_features_of_torchs_sparse_layout_are_features():
    held = torch.tensor(X).to_sparse()
    np.testing.assert_allclose(fit(held).predict_proba(held), fit().predict_proba(X))


def test_a_zero_character_would_come_back_in_a_table_that_nobody_reads(tmp_path):
    row = '{"item": "a%sb", "annotator": "x", "label": "cat"}\n'
    (tmp_path / "l.jsonl").write_text(row % "\\u0000" + row % "c")
    with pytest.raises(CrowdshotError, match=r"l\.jsonl, row 1 is not JSON .*\\u0000, which tables cannot hold"):
        read_labels(tmp_path / "l.jsonl")
    (tmp_path / "l.jsonl").write_text(row % "\\\\u0000" + row % "c")
    assert read_labels(tmp_path / "l.jsonl").annotations.items.tolist() == ["a\\u0000b", "acb"]


# ---- what stands for no label -------------------------------------------------------------------------------------

SIGNS = np.array([[-1, -1], [1, 1], [-1, 1], [1, 1]])


def test_minus_one_is_a_class_if_nothing_but_none_is_missing():
    with pytest.raises(CrowdshotError, match=r"labels has 1 alone .* -1 means no label, unless missing is None\."):
        fit(labels=SIGNS)
    clf = CrowdClassifier("identity").fit(X, SIGNS, missing=None)
    assert clf.classes_.tolist() == [-1, 1]
    assert clf.annotations_.n_labels == 8
    assert clf.predict([[0, 1], [5, 5]]).tolist() == [-1, 1]
    more = clf.update(np.array([[-1, -1]]), X=[[0.0, 1.5]])
    assert more.annotations_.n_labels == 10


def test_another_number_may_stand_for_no_label():
    clf = CrowdClassifier("identity").fit(X, np.where(SIGNS == [[-1, 1]], 99, SIGNS + 1), missing=99)
    assert clf.annotations_.n_labels == int((SIGNS != [[-1, 1]]).sum())
    assert 99 not in clf.classes_
