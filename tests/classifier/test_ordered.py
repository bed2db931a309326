"""Classes in order: near misses are likelier than far ones, to the classifier as to labels alone."""

import numpy as np
import pandas as pd
import pytest

from crowdshot import Annotations, CrowdClassifier, aggregate
from crowdshot._cli import fitting
from crowdshot._cli.inputs import ItemFiles, LabelFiles
from crowdshot.metrics import krippendorff_alpha

CLASSES = ["low", "medium", "high"]
random = np.random.default_rng(0)
truth = random.integers(3, size=60)
far = np.where(random.random((60, 4)) < 0.6, 0, random.choice([-1, 1], (60, 4)))  # by how much they miss
LABELS = np.array(CLASSES, dtype=object)[(truth[:, None] + far).clip(0, 2)]
X = truth[:, None] + random.normal(size=(60, 3))


def fit(**options):
    return CrowdClassifier("identity").fit(X, LABELS, classes=CLASSES, **options)


def test_labels_count_as_they_do_alone():
    said = Annotations.from_matrix(LABELS, classes=CLASSES)
    for ordered in (False, True):
        by_labels = aggregate.learned(said, ordered=ordered).probabilities
        np.testing.assert_allclose(fit(ordered=ordered)._model.alone, by_labels, atol=1e-9)
    assert np.abs(fit(ordered=True).label_proba_ - fit().label_proba_).max() > 0.01  # else this would show nothing


def test_it_is_kept_in_the_file_and_by_updates(tmp_path):
    clf = fit(ordered=True)
    clf.save(tmp_path / "clf.safetensors")
    loaded = CrowdClassifier.load(tmp_path / "clf.safetensors")
    more = {0: {0: "high", 1: "high"}}
    np.testing.assert_allclose(loaded.update(more).label_proba_, clf.update(more).label_proba_, atol=1e-6)
    assert loaded._known.ordered


def test_adapt_takes_it_from_its_option(tmp_path):
    rows = [(f"i{i}", f"a{r}", LABELS[i, r]) for i in range(60) for r in range(4)]
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(tmp_path / "labels.csv", index=False)
    table = pd.DataFrame(X, columns=["x", "y", "z"])
    table.insert(0, "item", [f"i{i}" for i in range(60)])
    table.to_csv(tmp_path / "features.csv", index=False)
    labels = LabelFiles((tmp_path / "labels.csv",), ordered=tuple(CLASSES))
    fitted = fitting.fit(labels, ItemFiles(features=tmp_path / "features.csv"))
    np.testing.assert_allclose(fitted.clf.label_proba_, fit(ordered=True).label_proba_, atol=1e-5)


IN_ORDER = pd.CategoricalDtype(["none", *CLASSES], ordered=True)  # one that nobody says is no class
WIDE = pd.DataFrame(LABELS, columns=list("wxyz")).astype(IN_ORDER)
LONG = (
    pd.DataFrame(LABELS, columns=list("wxyz"))
    .rename_axis("item")
    .reset_index()
    .melt("item", var_name="annotator", value_name="label")
    .astype({"label": IN_ORDER})
)


@pytest.mark.parametrize("labels", [WIDE, LONG, WIDE.rename_axis("item").reset_index()], ids=["wide", "long", "named"])
def test_a_categorical_dtype_tells_the_order(labels):
    clf = CrowdClassifier("identity").fit(X, labels, ordered=True)
    assert clf.classes_.tolist() == CLASSES
    np.testing.assert_allclose(clf.label_proba_, fit(ordered=True).label_proba_, atol=1e-6)
    said = Annotations.from_matrix(LABELS, classes=CLASSES)
    assert krippendorff_alpha(labels, ordered=True) == krippendorff_alpha(said, True)
    expected = aggregate.learned(said, ordered=True).probabilities
    np.testing.assert_allclose(aggregate.learned(labels, ordered=True).probabilities, expected, atol=1e-9)


def test_categories_without_an_order_or_with_two_are_sorted():
    alphabet = sorted(CLASSES)
    for table in (WIDE.astype(object), WIDE.astype(pd.CategoricalDtype(CLASSES))):
        assert Annotations.from_matrix(table).classes.tolist() == alphabet
    other = WIDE.assign(w=WIDE["w"].astype(pd.CategoricalDtype(CLASSES[::-1], ordered=True)))
    assert Annotations.from_matrix(other).classes.tolist() == alphabet


def test_an_update_puts_new_categories_in_their_places():
    known = (WIDE != "medium").all(axis=1).to_numpy()
    clf = CrowdClassifier("identity").fit(X[known], WIDE[known].reset_index(drop=True), ordered=True)
    assert clf.classes_.tolist() == ["low", "high"]
    more = WIDE[~known].set_axis(range(known.sum(), 60))
    assert clf.update(more, X[~known]).classes_.tolist() == CLASSES
    clf = CrowdClassifier("identity").fit(X[known], LABELS[known], classes=["high", "low"], ordered=True)
    columns = more.set_axis(range(4), axis=1)
    assert clf.update(columns, X[~known]).classes_.tolist() == ["high", "low", "medium"]


def test_words_in_alphabetical_order_are_told():
    told = "taken in alphabetical order: 'high', 'low', 'medium'. Set another order with classes="
    with pytest.warns(UserWarning, match=rf"{told}\."):
        clf = CrowdClassifier("identity").fit(X, LABELS, ordered=True)
    assert clf.classes_.tolist() == sorted(CLASSES)
    for arguments in ((LABELS, True), (WIDE.astype(object), True), (LONG.astype(object), True)):
        with pytest.warns(UserWarning, match=f"{told} of Annotations.from_matrix"):
            krippendorff_alpha(*arguments)
    with pytest.warns(UserWarning, match=told):
        aggregate.learned(LABELS, ordered=True)


def test_numbers_and_what_is_listed_are_not_told_of():
    place = np.array([[CLASSES.index(word) for word in row] for row in LABELS])
    two = np.where(LABELS == "medium", "low", LABELS)
    for labels in (place, place.astype(str), two, Annotations.from_matrix(LABELS)):
        krippendorff_alpha(labels, ordered=True)
        CrowdClassifier("identity").fit(X, labels, ordered=True)
    krippendorff_alpha(LABELS)
