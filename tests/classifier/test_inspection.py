"""Explanations account for the whole posterior; metrics and notebook output are right and safe."""

import math

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from crowdshot import Annotations, CrowdAggregator, CrowdClassifier, CrowdshotError
from crowdshot._cli.inputs import LabelFiles
from crowdshot._cli.next import ask

LABELS = [["cat", "cat", "dog"], ["cat", "cat", "cat"], ["dog", "dog", "cat"], ["dog", "cat", "dog"]]


def problem(n=24, seed=0):
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % 3
    X = rng.normal(size=(n, 4)) + 2 * np.eye(4)[truth]
    labels = np.where(rng.random((n, 5)) < [0.95, 0.9, 0.7, 0.6, 0.4], truth[:, None], rng.integers(3, size=(n, 5)))
    return X, labels


def accounts_for(estimator, item):
    found = estimator.explain(item)
    row = list(estimator.annotations_.items).index(item)
    posterior = np.sort(np.asarray(estimator.label_proba_)[row])[::-1]
    assert math.prod(found.factors.values()) == pytest.approx(posterior[0] / posterior[1], rel=1e-4)
    assert found.confidence == pytest.approx(posterior[0])
    assert found.label == estimator.consensus_.iloc[row, 1]
    assert list(found.probabilities.values()) == pytest.approx(posterior)
    return found


def sparse_crowd():
    """Six annotators with half of the labels each; the last one guesses."""
    rng = np.random.default_rng(3)
    truth = np.arange(40) % 3
    skill = [0.95, 0.9, 0.8, 0.7, 0.6, 0.0]
    labels = np.where(rng.random((40, 6)) < skill, truth[:, None], rng.integers(3, size=(40, 6)))
    labels = np.where(rng.random((40, 6)) < 0.5, labels, -1)
    return Annotations.from_matrix(labels, items=[f"i{n}" for n in range(40)], annotators=list("abcdef"))


@pytest.mark.filterwarnings("ignore:not asked")
def test_next_questions_are_those_of_the_command(tmp_path):
    ann = sparse_crowd()
    ann.to_frame().to_csv(tmp_path / "labels.csv", index=False)
    crowd = CrowdAggregator().fit(ann)
    _, table = ask(LabelFiles((tmp_path / "labels.csv",)), 8)
    found = crowd.next_questions(8)
    assert found[["item", "annotator"]].values.tolist() == table[["item", "annotator"]].values.tolist()
    np.testing.assert_allclose(found["gain"], table["gain"])
    assert found.columns.tolist() == ["item", "annotator", "gain", "consensus", "confidence", "n_labels"]
    consensus = crowd.consensus_.set_index("item").loc[found["item"]]
    assert found["confidence"].tolist() == consensus["confidence"].tolist()
    assert found["n_labels"].tolist() == consensus["n_labels"].tolist()


def test_next_questions_of_chosen_annotators():
    crowd = CrowdAggregator().fit(sparse_crowd())
    found = crowd.next_questions(12, annotators=["b", "zoe"])  # zoe is new
    assert set(found["annotator"]) == {"b", "zoe"}
    known = set(zip(*crowd.annotations_.to_frame()[["item", "annotator"]].to_numpy().T, strict=True))
    assert not known & set(zip(found["item"], found["annotator"], strict=True))


def test_next_questions_of_a_classifier_are_about_unlabelled_items_too():
    X = np.array([[0.0, 0.1], [0.2, 0.0], [5.0, 5.1], [5.2, 4.9], [2.6, 2.5]])
    labels = [["cat", "cat", "dog"], ["cat", None, "cat"], ["dog", "dog", "cat"], ["dog", "dog", None], [None] * 3]
    clf = CrowdClassifier(encoder="identity").fit(X, labels)
    found = clf.next_questions(2)
    assert found["item"].tolist()[0] == 4
    assert found["n_labels"].tolist()[0] == 0
    everything = CrowdAggregator().fit(np.array([[0, 0], [0, 1], [1, 1]] * 5))
    assert everything.next_questions(3).empty  # nobody is asked twice


@pytest.mark.parametrize("method", ["learned", "shrunk", "dawid-skene", "one-coin"])
def test_factors_of_labels_alone(method):
    crowd = CrowdAggregator(method).fit(problem()[1])
    for item in (0, 5, 23):
        found = accounts_for(crowd, item)
        assert list(found.factors) == ["class frequencies", "labels", "weighting"]
        assert found.factors["labels"] == pytest.approx(found.labels["factor"].prod())


def test_dawid_skene_is_the_product_of_its_confusion_matrices():
    crowd = CrowdAggregator("dawid-skene", settings={"b": 2.0, "c": 1.0}).fit(LABELS)
    found = accounts_for(crowd, 0)
    k, j = (list(crowd.classes_).index(one) for one in (found.label, found.alternative))
    said = [list(crowd.classes_).index(label) for label in LABELS[0]]
    ratios = [crowd.confusion_[r, k, label] / crowd.confusion_[r, j, label] for r, label in enumerate(said)]
    assert found.labels["factor"].tolist() == pytest.approx(ratios)
    assert found.labels["label"].tolist() == LABELS[0]


@pytest.mark.parametrize(
    ("method", "sources"),
    [
        ("features", ["class frequencies", "labels", "weighting", "features"]),
        ("combined", ["class frequencies", "labels", "weighting", "features", "labeling search"]),
        ("ours", ["class frequencies", "labels", "features"]),
        ("labeling-search", ["class frequencies", "labels", "features"]),
    ],
)
def test_factors_of_a_classifier(method, sources, tmp_path):
    X, labels = problem()
    labels = labels.astype(object)
    labels[20:] = None
    clf = CrowdClassifier(encoder="identity", method=method).fit(X, labels)
    for item in (0, 7, 23):
        assert list(accounts_for(clf, item).factors) == sources
    assert accounts_for(clf, 23).labels.empty
    clf.save(tmp_path / "clf.safetensors")
    accounts_for(CrowdClassifier.load(tmp_path / "clf.safetensors"), 7)


def test_factors_of_sets_of_labels():
    X, labels = problem()
    sets = np.array(["cat", "dog", "cat;dog"])[labels]
    clf = CrowdClassifier(encoder="identity", method="features", settings={"several": True}).fit(X, sets)
    assert list(accounts_for(clf, 7).factors) == ["class frequencies", "labels", "weighting and features"]


def test_features_decide_for_an_item_without_labels():
    X, labels = problem()
    labels = labels.astype(object)
    labels[20:] = None
    found = CrowdClassifier(encoder="identity").fit(X, labels).explain(23)
    assert found.factors["labels"] == 1
    assert found.factors["features"] > 1


def test_a_known_class_and_a_vote_have_no_factors():
    found = CrowdAggregator().fit(LABELS, gold={0: "dog"}).explain(0)
    assert (found.label, found.known, found.factors) == ("dog", True, {})
    found = CrowdAggregator("majority").fit(LABELS).explain(0)
    assert (found.label, found.known, found.factors) == ("cat", False, {})
    assert found.labels["factor"].isna().all()


def test_what_is_printed_has_every_number():
    crowd = CrowdAggregator().fit(LABELS)
    found = crowd.explain(0)
    text = str(found)
    assert len(text.splitlines()) == 1 + 3 + 3 + 1
    for factor in [*found.factors.values(), *found.labels["factor"], found.odds]:
        assert f"{factor:.2g}" in text
    assert "<td>cat</td>" in found._repr_html_()


@pytest.mark.slow
def test_very_many_classes():
    rng = np.random.default_rng(0)
    labels = np.char.add("word ", rng.integers(6_000, size=(3_000, 3)).astype(str))
    crowd = CrowdAggregator().fit(labels)
    assert not isinstance(crowd.label_proba_, np.ndarray), "the case of sparse posteriors"
    assert crowd.explain(5).label == crowd.consensus_["label"][5]
    assert crowd.metrics_["n_classes"] == crowd.annotations_.n_classes
    assert "annotators_" in crowd._repr_html_()


@pytest.mark.parametrize("look", [lambda e: e.explain(0), lambda e: e.metrics_, lambda e: e.report("x.html")])
@pytest.mark.parametrize("estimator", [CrowdAggregator(), CrowdClassifier()])
def test_before_fit(estimator, look, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CrowdshotError) as error:
        look(estimator)
    assert "fit" in str(error.value.hint)
    assert not list(tmp_path.iterdir())


def test_an_item_that_is_not_there():
    with pytest.raises(CrowdshotError) as error:
        CrowdAggregator().fit(LABELS).explain("z")
    assert (error.value.argument, error.value.found) == ("item", "z")


def test_metrics():
    crowd = CrowdAggregator().fit(LABELS, gold={0: "cat", 3: "cat"})
    found = crowd.metrics_
    assert all(type(value) is float and math.isfinite(value) for value in found.values())
    assert (found["n_items"], found["n_labels"], found["n_annotators"], found["labels_per_item"]) == (4, 12, 3, 3)
    assert found["agreement"] == pytest.approx((1 + 3 + 1 + 1) / 12)
    assert found["confidence_mean"] == pytest.approx(crowd.consensus_["confidence"].mean())
    assert found["annotator_accuracy_min"] == crowd.annotators_["accuracy"].min()
    assert found["gold_accuracy"] == (crowd.gold_["truth"] == crowd.gold_["consensus"]).mean()
    assert "gold_accuracy" not in CrowdAggregator().fit(LABELS).metrics_


def test_metrics_that_are_undefined_are_left_out():
    found = CrowdAggregator().fit([["cat", None], [None, "dog"]]).metrics_
    assert "agreement" not in found
    assert found["n_labels"] == 2


def test_a_notebook_shows_results_with_names_escaped():
    labels = {"<u>a": {"<i>x": "<script>", "y": "dog"}, "c": {"<i>x": "dog", "y": "dog"}}
    crowd = CrowdAggregator().fit(labels)
    for html in (crowd._repr_html_(), crowd.annotations_._repr_html_(), crowd.explain("<u>a")._repr_html_()):
        assert not any(raw in html for raw in ("<u>a", "<i>x", "<script>"))
        assert "&lt;u&gt;a" in html
    assert "annotators_" not in CrowdAggregator()._repr_html_()
    assert set(crowd._repr_mimebundle_()) == {"text/plain", "text/html"}


def test_a_notebook_shows_settings_and_results_of_a_classifier():
    X, labels = problem()
    clf = CrowdClassifier(encoder="identity")
    assert "annotators_" not in clf._repr_html_()
    assert "identity" in clf._repr_html_()
    html = clf.fit(X, labels)._repr_mimebundle_()["text/html"]
    assert "annotators_" in html
    assert "identity" in html
    assert "StandardScaler" in make_pipeline(StandardScaler(), clf)._repr_html_()


def test_a_notebook_shows_few_rows_of_many_labels():
    ann = Annotations.from_matrix(np.random.default_rng(0).integers(50, size=(1_000, 200)))
    assert len(ann._repr_html_()) < 10_000
