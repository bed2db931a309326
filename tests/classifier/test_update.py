"""`update` and `partial_fit`: the same as a fit with everything, and nothing is embedded twice."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import nn

from crowdshot import Annotations, CrowdClassifier, CrowdshotError

RANDOM = np.random.default_rng(0)
TRUTH = np.arange(30) % 3
NAMES = [f"item-{i}" for i in range(30)]
X = pd.DataFrame(np.eye(3)[TRUTH] + 0.3 * RANDOM.normal(size=(30, 3)), index=NAMES)
SAID = [
    (NAMES[i], f"ann{r}", "xyz"[TRUTH[i] if RANDOM.random() < 0.8 else RANDOM.integers(3)])
    for i in range(30)
    for r in range(4)
    if RANDOM.random() < 0.7
]
LABELS = pd.DataFrame(SAID, columns=["item", "annotator", "label"])
METHODS = ["auto", "features", "labeling-search", "ours", "paper", "LRDS"]


def same(one: CrowdClassifier, other: CrowdClassifier, atol: float = 1e-6) -> None:
    """All that is found, by name."""
    assert one.classes_.tolist() == other.classes_.tolist()
    found = pd.DataFrame(one.label_proba_, index=one.annotations_.items)
    np.testing.assert_allclose(found.loc[other.annotations_.items], other.label_proba_, atol=atol)
    people, others = (clf.annotators_.set_index(clf.annotations_.columns.annotator) for clf in (one, other))
    people = people.loc[others.index]
    np.testing.assert_allclose(people["accuracy"], others["accuracy"], atol=atol)
    np.testing.assert_allclose(one.predict_proba(X.to_numpy()), other.predict_proba(X.to_numpy()), atol=atol)
    assert one.learner_ == other.learner_


@pytest.mark.parametrize("method", METHODS)
def test_an_update_is_a_fit_with_everything(method):
    """Ten items and some of the labels; then more of these, and all other items, with people that nobody knew."""
    first = LABELS["item"].isin(NAMES[:12]) & (LABELS["annotator"] != "ann3")
    part = first & (np.arange(len(LABELS)) % 2 == 0)
    clf = CrowdClassifier("identity", method=method).fit(X[:12], LABELS[part])
    clf.update(LABELS[first & ~part])
    clf.update(LABELS[~first], X[12:])
    same(clf, CrowdClassifier("identity", method=method).fit(X, LABELS))


@pytest.mark.slow
@settings(max_examples=15)
@given(st.permutations(range(len(LABELS))), st.integers(5, 25), st.integers(10, len(LABELS) - 5))
def test_whatever_comes_when(order, n_first, cut):
    shuffled = LABELS.iloc[list(order)]
    known = shuffled["item"].isin(NAMES[:n_first])
    begin = shuffled[known][:cut]
    if begin["label"].nunique() < 2:
        return
    clf = CrowdClassifier("identity").fit(X[:n_first], begin)
    clf.update(pd.concat([shuffled[known][cut:], shuffled[~known]]), X[n_first:])
    same(clf, CrowdClassifier("identity").fit(X, LABELS))


def test_the_last_label_counts_and_a_class_may_be_new():
    clf = CrowdClassifier("identity").fit(X, LABELS)
    item, who, _ = SAID[0]
    clf.update({item: {who: "w"}})
    changed = LABELS.copy()
    changed.loc[0, "label"] = "w"
    assert clf.annotations_.n_labels == len(LABELS)
    assert clf.classes_.tolist() == ["w", "x", "y", "z"]
    same(clf, CrowdClassifier("identity").fit(X, changed))


def test_matrices_go_row_by_row():
    wide = LABELS.pivot(index="item", columns="annotator", values="label").reindex(NAMES)
    matrix = wide.to_numpy()
    x = X.to_numpy()
    expected = CrowdClassifier("identity").fit(x, matrix)
    clf = CrowdClassifier("identity")
    for start in (0, 10, 20):
        clf.partial_fit(x[start : start + 10], matrix[start : start + 10])
    same(clf, expected)
    assert clf.annotations_.items.tolist() == list(range(30))
    clf = CrowdClassifier("identity").fit(x, np.where(np.arange(4) < 2, matrix, None))
    same(clf.update(np.where(np.arange(4) >= 2, matrix, None)), expected)


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize(("missing", "shift"), [(99, 0), (np.int64(99), 0), (None, -1), (float("nan"), -1)])
def test_what_stands_for_no_label_stays_so(missing, shift, saved, tmp_path):
    """99 is no class of an update, and -1 is one where the fit says so, though it may not have met it."""
    said = np.where(RANDOM.random((30, 4)) < 0.8, TRUTH[:, None], RANDOM.integers(3, size=(30, 4)))
    said[:15] = said[:15].clip(1)  # the lowest class comes later
    said += shift
    if not shift:
        said[RANDOM.random((30, 4)) < 0.3] = 99
    x = X.to_numpy()
    clf = CrowdClassifier("identity").fit(x[:15], said[:15], missing=missing)
    if saved:
        clf.save(tmp_path / "model.safetensors")
        clf = CrowdClassifier.load(tmp_path / "model.safetensors")
    clf.update(said[15:20], x[15:20]).partial_fit(x[20:], said[20:])
    assert clf.classes_.tolist() == [shift, 1 + shift, 2 + shift]
    same(clf, CrowdClassifier("identity").fit(x, said, missing=missing))


def test_a_class_is_no_missing_label():
    """-1 among the classes was one in the fit, whatever stands for no label elsewhere."""
    said = np.tile((TRUTH - 1)[:, None], 3)
    clf = CrowdClassifier("identity").fit(X.to_numpy()[:15], said[:15], classes=[-1, 0, 1])
    assert clf.update(said[15:], X.to_numpy()[15:]).annotations_.n_labels == said.size


PEOPLE = ["ann", "bob", "cyd", "dee"]
MATRIX = LABELS.pivot(index="item", columns="annotator", values="label").reindex(NAMES).to_numpy()


@pytest.mark.parametrize("people", [PEOPLE, [3, 1, 4, 2], [3, 1, 0, 2]])
def test_columns_without_names_are_those_that_are_known(people):
    """By number, where all numbers are somebody's."""
    named = pd.DataFrame(MATRIX, columns=people)
    expected = CrowdClassifier("identity").fit(X.to_numpy(), named)
    by_number = named[sorted(people)].to_numpy() if 0 in people else MATRIX
    for more in (by_number[20:], pd.DataFrame(by_number[20:]), by_number[20:].tolist()):
        clf = CrowdClassifier("identity").fit(X.to_numpy()[:20], named[:20])
        same(clf.update(more, X.to_numpy()[20:]), expected)
        assert clf.annotations_.annotators.tolist() == people


def test_one_annotator_stays_one():
    one = pd.Series(MATRIX[:, 0], name="ann").fillna("x")
    clf = CrowdClassifier("identity").fit(X.to_numpy()[:20], one[:20])
    clf.update(one[20:].to_numpy(), X.to_numpy()[20:])
    assert clf.annotators_[["annotator", "n_labels"]].to_numpy().tolist() == [["ann", 30]]


def test_more_columns_are_new_people_where_all_are_numbered():
    clf = CrowdClassifier("identity").fit(X.to_numpy()[:20], MATRIX[:20, :3])
    clf.update(MATRIX[20:25, :2], X.to_numpy()[20:25]).update(MATRIX[25:], X.to_numpy()[25:])
    assert clf.annotations_.annotators.tolist() == [0, 1, 2, 3]
    clf.update(pd.DataFrame(MATRIX[:, :2], columns=[0, "eve"]))
    assert clf.annotations_.annotators.tolist() == [0, 1, 2, 3, "eve"]


@pytest.mark.parametrize("width", [1, 3, 5])
def test_who_columns_without_names_are_has_to_be_clear(width):
    clf = CrowdClassifier("identity").fit(X.to_numpy(), pd.DataFrame(MATRIX, columns=PEOPLE))
    with pytest.raises(CrowdshotError) as error:
        clf.update(np.hstack([MATRIX, MATRIX])[:, :width])
    columns = "1 column without names" if width == 1 else f"{width} columns without names"
    expected = "expected 4, one for each of 'ann', 'bob', 'cyd' and 1 more."
    assert str(error.value).startswith(f"labels has {columns}, {expected}")
    assert (error.value.argument, error.value.found) == ("labels", width)


def test_names_for_as_many_columns_as_were_numbered_are_refused():
    clf = CrowdClassifier("identity").fit(X.to_numpy(), MATRIX)
    with pytest.raises(CrowdshotError) as error:
        clf.update(pd.DataFrame(MATRIX, columns=PEOPLE))
    assert (error.value.argument, error.value.found) == ("labels", ["ann", "bob", "cyd"])
    assert error.value.expected == "0, 1, 2 and 1 more as in fit"
    assert "labels.to_numpy()" in error.value.hint


def test_gold_and_records_stay_and_may_be_added():
    gold, priors = {"item-0": "y", "item-3": "x"}, {"ann0": (30, 2)}
    expected = CrowdClassifier("identity").fit(X, LABELS, gold={**gold, "item-20": "z"}, priors=priors)
    clf = CrowdClassifier("identity").fit(X[:15], LABELS[LABELS["item"].isin(NAMES[:15])], gold=gold, priors=priors)
    clf.update(LABELS, X[15:], gold={"item-20": "z"})
    same(clf, expected)
    pd.testing.assert_frame_equal(clf.gold_, expected.gold_, atol=1e-6)


def test_a_loaded_classifier_goes_on(tmp_path):
    for method in ("auto", "labeling-search"):
        clf = CrowdClassifier("identity", method=method).fit(X[:20], LABELS[LABELS["item"].isin(NAMES[:20])])
        clf.save(tmp_path / "model.safetensors")
        again = CrowdClassifier.load(tmp_path / "model.safetensors")
        again.update(LABELS, X[20:])
        same(again, CrowdClassifier("identity", method=method).fit(X, LABELS))


class Counting(nn.Module):
    """What an encoder is asked to embed, counted."""

    def __init__(self) -> None:
        super().__init__()
        self.items = 0

    def forward(self, x):
        self.items += len(x)
        return x


def test_nothing_is_embedded_twice():
    network = Counting()
    clf = CrowdClassifier(network).fit(
        X[:20].to_numpy(),
        LABELS.pivot(index="item", columns="annotator", values="label").reindex(NAMES[:20]).to_numpy(),
    )
    network.items = 0
    clf.update({0: {0: "x"}})
    assert network.items == 0
    clf.update({25: {0: "y"}}, X[20:].to_numpy())
    assert network.items == 10


def test_images_go_by_their_names(tmp_path: Path):
    paths = []
    for i in range(6):
        paths.append(tmp_path / "photos" / f"{i}.png")
        paths[-1].parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((8, 8), 255 * (i % 2), np.uint8)).save(paths[-1])
    table = pd.DataFrame(
        [(f"{i}.png", who, "xy"[i % 2]) for i in range(6) for who in "ab"], columns=["item", "annotator", "label"]
    )
    clf = CrowdClassifier("glyphs").fit(paths[:4], table[:8])
    clf.update(table[8:], paths[4:])
    assert clf.annotations_.items.tolist() == [f"{i}.png" for i in range(6)]
    same_items = CrowdClassifier("glyphs").fit(paths, table)
    np.testing.assert_allclose(clf.label_proba_, same_items.label_proba_, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({"nowhere": {"ann0": "x"}},), "X has no item for 1 of the 1 labelled items, first 'nowhere'"),
        ((LABELS, X[:3]), "X has item 'item-0', which was fitted already, expected new items only."),
        ((LABELS, X.iloc[:3, :2].set_axis(["a", "b", "c"])), "X has 2 features"),
        ((LABELS, X[:3].set_axis(["a", "b", "c"]), ["a"]), "items has 1 ids, expected 3, one for each row of X."),
        (([["x"]],), "labels has 1 rows, expected 30 rows as in X."),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_lost(arguments, message):
    clf = CrowdClassifier("identity").fit(X, LABELS)
    before = clf.label_proba_
    with pytest.raises(CrowdshotError) as error:
        clf.update(*arguments)
    assert message in str(error.value)
    np.testing.assert_array_equal(clf.label_proba_, before)


def test_annotations_take_part_too():
    clf = CrowdClassifier("identity").fit(X, Annotations.from_frame(LABELS[:40]))
    same(clf.update(Annotations.from_frame(LABELS[40:])), CrowdClassifier("identity").fit(X, LABELS))
