"""Plots show the estimators' numbers, on the given axes or a new figure."""

import sys
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from scipy.sparse import csr_array

from crowdshot import CrowdAggregator, CrowdClassifier, CrowdshotError
from crowdshot.extras import MissingPackageError
from crowdshot.labels.consensus import interval
from crowdshot.plots import _names, plot_annotators, plot_calibration, plot_confusion, plot_map

mpl.use("Agg")

LABELS = [["cat", "cat", "dog"], ["cat", "cat", "cat"], ["dog", "dog", "cat"], ["dog", "cat", "dog"]]
TRUTH = {0: "cat", 1: "cat", 2: "dog", 3: "dog"}


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def crowd():
    return CrowdAggregator().fit(LABELS)


@pytest.fixture(scope="module")
def clf():
    rng = np.random.default_rng(0)
    truth = np.arange(40) % 2
    X = rng.normal(size=(40, 3)) + 4 * truth[:, None]
    labels = np.where(rng.random((40, 4)) < 0.8, truth[:, None], 1 - truth[:, None])
    labels = labels.astype(object)
    labels[30:] = None
    return CrowdClassifier(encoder="identity").fit(X, labels)


def image_of(ax):
    return ax.images[0].get_array()


@pytest.mark.parametrize("plot", [plot_confusion, plot_annotators, lambda *a, **k: plot_calibration(*a, TRUTH, **k)])
def test_given_axes_are_used(crowd, plot):
    _, ax = plt.subplots()
    assert plot(crowd, ax=ax) is ax
    assert plot(crowd).figure is not ax.figure
    ax.figure.canvas.draw()


def test_the_matrix_of_an_annotator(crowd):
    ax = plot_confusion(crowd, 1)
    np.testing.assert_allclose(image_of(ax), crowd.confusion_[1])
    assert ax.get_title() == "1"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["cat", "dog"]


def test_the_matrix_of_all_labels_has_shares_by_true_class():
    crowd = CrowdAggregator().fit(LABELS, gold=TRUTH, classes=["cat", "dog", "owl"])
    np.testing.assert_allclose(image_of(plot_confusion(crowd))[:2], [[5 / 6, 1 / 6, 0], [2 / 6, 4 / 6, 0]])
    assert np.ma.getmaskarray(image_of(plot_confusion(crowd)))[2].all(), "no item is an owl"


def test_very_many_classes():
    rng = np.random.default_rng(0)
    names = np.char.add("word ", rng.integers(3_500, size=(3_000, 3)).astype(str))
    crowd = CrowdAggregator().fit(names)
    with pytest.raises(CrowdshotError) as error:
        plot_confusion(crowd)
    assert error.value.argument == "fitted"
    plot_annotators(crowd).figure.canvas.draw()
    few = CrowdAggregator().fit(rng.integers(60, size=(200, 3)))
    sparse = SimpleNamespace(annotations_=few.annotations_, classes_=few.classes_, label_proba_=None)
    sparse.label_proba_ = csr_array(few.label_proba_)
    np.testing.assert_allclose(image_of(plot_confusion(sparse)), image_of(plot_confusion(few)))


def test_an_unknown_annotator(crowd):
    with pytest.raises(CrowdshotError) as error:
        plot_confusion(crowd, "ada")
    assert (error.value.argument, error.value.found) == ("annotator", "ada")


def test_annotators_are_sorted_and_have_their_intervals(crowd):
    ax = plot_annotators(crowd)
    people = crowd.annotators_.sort_values("accuracy", kind="stable")
    np.testing.assert_allclose(ax.lines[0].get_xdata(), people["accuracy"])
    assert [tick.get_text() for tick in ax.get_yticklabels()] == [str(name) for name in people["annotator"]]
    ends = np.array([segment[:, 0] for segment in ax.collections[0].get_segments()])
    np.testing.assert_allclose(ends, people[["low", "high"]])


@pytest.mark.parametrize(("n", "named"), [(40, True), (41, False)])
def test_many_annotators_have_no_names(n, named):
    rng = np.random.default_rng(0)
    crowd = CrowdAggregator().fit(rng.integers(2, size=(20, n)))
    ax = plot_annotators(crowd)
    assert len(ax.lines[0].get_xdata()) == n
    assert (len(ax.get_yticks()) == n) == named


def test_calibration_against_known_classes(crowd):
    ax = plot_calibration(crowd, TRUTH)
    confidence = crowd.consensus_["confidence"].to_numpy()
    right = crowd.consensus_["label"].to_numpy() == np.array(list(TRUTH.values()))
    bins = (confidence * 10).astype(int).clip(max=9)
    shown = dict(zip(*ax.lines[1].get_data(), strict=True))
    assert shown == pytest.approx({confidence[bins == b].mean(): right[bins == b].mean() for b in np.unique(bins)})
    assert sum(int(text.get_text()) for text in ax.texts) == 4


def test_calibration_of_a_table():
    table = pd.DataFrame({"confidence": [0.55, 0.95], "accuracy": [0.5, 0.9], "items": [4, 10]})
    ax = plot_calibration(table)
    segments = [tuple(segment[:, 1]) for segment in ax.collections[0].get_segments()]
    assert segments == [pytest.approx(interval(2.5, 2.5)), pytest.approx(interval(9.5, 1.5))]


def test_calibration_uses_gold_that_the_consensus_does_not_know():
    crowd = CrowdAggregator().fit(LABELS, gold={0: "cat", 3: "cat"})
    ax = plot_calibration(crowd)
    table = crowd.gold_
    assert sum(int(text.get_text()) for text in ax.texts) == 2
    assert sorted(ax.lines[1].get_xdata()) == pytest.approx(sorted(table["confidence"]))


def test_calibration_needs_truth(crowd):
    with pytest.raises(CrowdshotError) as error:
        plot_calibration(crowd)
    assert error.value.argument == "truth"


def test_the_map_has_every_item_by_class_and_kind(clf):
    ax = plot_map(clf)
    points = sum(len(group.get_offsets()) for group in ax.collections)
    assert points == 40
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names[:2] == ["0", "1"]
    assert "without labels" in names


def test_the_map_of_very_many_classes_has_ten_colours():
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 15
    X = np.eye(15)[truth] * 5 + rng.normal(size=(60, 15))
    ax = plot_map(CrowdClassifier(encoder="identity").fit(X, np.repeat(truth[:, None], 3, 1)))
    assert "5 other classes" in [text.get_text() for text in ax.get_legend().get_texts()]


def test_a_map_needs_items(crowd, clf, tmp_path):
    with pytest.raises(CrowdshotError) as error:
        plot_map(crowd)
    assert error.value.argument == "fitted"


def test_long_names_stay_different():
    names = [f"a.very.long.name-{n:02d}@company.example.org" for n in range(30)]
    assert len(set(_names(names))) == 30
    assert max(map(len, _names(names))) <= 22
    assert _names(["cat", "dog"]) == ["cat", "dog"]


def test_names_are_not_mathematics():
    crowd = CrowdAggregator().fit({"a": {"$x^2$": "$c_", "y": "$d"}, "b": {"$x^2$": "$d", "y": "$d"}})
    for ax in (plot_confusion(crowd), plot_confusion(crowd, "$x^2$"), plot_annotators(crowd)):
        ax.figure.canvas.draw()


def test_without_matplotlib(crowd, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [name for name in sys.modules if name.startswith("matplotlib.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingPackageError) as error:
        plot_annotators(crowd)
    assert error.value.found == "matplotlib"
