"""Compare `CrowdAggregator` with the functions, for every form of labels, with weights and with further labels."""

import numpy as np
import pandas as pd
import pytest

from crowdshot import Annotations, CrowdAggregator, CrowdClassifier, CrowdshotError, aggregate
from crowdshot.labels import agreement


def crowd(n_items=60, n_annotators=6, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n_items)
    right = rng.random((n_items, n_annotators)) < np.linspace(0.5, 0.9, n_annotators)
    labels = np.where(right, truth[:, None], rng.integers(3, size=(n_items, n_annotators))).astype(object)
    labels[rng.random(labels.shape) < 0.4] = None
    labels[:, 0] = np.where(pd.isna(labels).all(1), truth, labels[:, 0])
    names = np.array(["cat", "dog", "emu"])
    return np.vectorize(lambda label: None if label is None else names[label], otypes=[object])(labels), names[truth]


LABELS, TRUTH = crowd()
ANN = Annotations.from_matrix(LABELS)


@pytest.mark.parametrize(
    ("method", "function"),
    [
        ("auto", aggregate.learned),
        ("shrunk", aggregate.shrunk),
        ("dawid-skene", aggregate.dawid_skene),
        ("one-coin", aggregate.one_coin),
        ("majority", aggregate.majority_vote),
    ],
)
def test_results_equal_those_of_the_function(method, function):
    fitted, expected = CrowdAggregator(method).fit(LABELS), function(ANN)
    np.testing.assert_allclose(fitted.label_proba_, expected.probabilities, atol=1e-12)
    pd.testing.assert_frame_equal(fitted.consensus_, expected.to_frame())
    assert fitted.classes_.tolist() == ["cat", "dog", "emu"]
    assert fitted.confusion_.shape == (6, 3, 3)
    np.testing.assert_allclose(fitted.confusion_.sum(2), 1)
    if expected.confusion is not None:
        np.testing.assert_allclose(fitted.confusion_, expected.confusion)


def test_fit_predict_returns_a_label_for_each_item():
    found = CrowdAggregator("majority").fit_predict([[1, 1, 0], [0, 0, None], [1, 0, 1]])
    assert found.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(found, [1, 0, 1])  # works as an array too

    table = pd.DataFrame({"task": ["b", "b", "a", "a"], "worker": ["x", "y", "x", "y"], "answer": list("qqpp")})
    fitted = CrowdAggregator()
    found = fitted.fit_predict(table, gold={"a": "q"})
    expected = CrowdAggregator().fit(table, gold={"a": "q"}).consensus_
    assert found.to_dict() == dict(zip(expected["task"], expected["answer"], strict=True))
    assert found["a"] == "q"
    assert (found.index.name, found.name) == ("task", "answer")


def test_consensus_names_its_items():
    found = aggregate.learned(ANN)
    assert found.items.tolist() == ANN.items.tolist()
    pd.testing.assert_frame_equal(found.to_frame(), found.to_frame(ANN))


def test_annotators_and_agreement():
    fitted = CrowdAggregator().fit(LABELS)
    people = fitted.annotators_
    assert (people["low"] < people["accuracy"]).all()
    assert (people["accuracy"] < people["high"]).all()
    assert people["accuracy"].iloc[-1] > people["accuracy"].iloc[0]
    kappa = fitted.agreement_.set_index("statistic").loc["Fleiss' kappa"]
    assert kappa["value"] == agreement.fleiss_kappa(ANN).value
    wrong = fitted.likely_wrong_
    assert 0 < len(wrong) < len(fitted.label_quality_) == len(ANN)
    assert (wrong["quality"] < 0.5).all()


def test_gold_is_kept_and_compared():
    gold = {item: TRUTH[item] for item in range(10)}
    fitted = CrowdAggregator().fit(LABELS, gold=gold)
    assert fitted.consensus_["label"].tolist()[:10] == TRUTH[:10].tolist()
    without = CrowdAggregator().fit(LABELS).consensus_["label"]
    assert fitted.gold_["consensus"].tolist() == without.tolist()[:10]
    with pytest.raises(CrowdshotError) as error:
        CrowdAggregator().fit(LABELS, gold={"nowhere": "cat"})
    assert error.value.argument == "gold"


def test_weight_counts_an_item_as_often():
    weight = np.ones(60)
    weight[:5] = 3
    weighted = CrowdAggregator("dawid-skene", settings={"steps": 8}).fit(LABELS, sample_weight=weight)
    repeated = np.vstack([LABELS, LABELS[:5], LABELS[:5]])
    expected = CrowdAggregator("dawid-skene", settings={"steps": 8}).fit(repeated)
    np.testing.assert_allclose(weighted.label_proba_, expected.label_proba_[:60], atol=1e-9)
    np.testing.assert_allclose(weighted.confusion_, expected.confusion_, atol=1e-9)


def test_an_item_of_weight_zero_gets_a_consensus_and_changes_nothing():
    weight = np.r_[0, np.ones(59)]
    weighted = CrowdAggregator().fit(LABELS, sample_weight=weight)
    rest = CrowdAggregator().fit(LABELS[1:])
    np.testing.assert_allclose(weighted.label_proba_[1:], rest.label_proba_, atol=1e-9)
    assert weighted.label_proba_[0].sum() == pytest.approx(1)


@pytest.mark.parametrize("form", ["array", "long", "dict"])
def test_partial_fit_equals_fit_on_everything(form):
    if form == "array":
        first, second, everything = LABELS[:40], LABELS[40:], LABELS
    else:
        frame = Annotations.from_matrix(LABELS, items=[f"i{n}" for n in range(60)]).to_frame()
        late = frame["item"].isin([f"i{n}" for n in range(40, 60)]) | (frame["annotator"] == 5)
        first, second, everything = frame[~late], frame[late], frame
        if form == "dict":
            second = {item: dict(part[["annotator", "label"]].to_numpy()) for item, part in second.groupby("item")}
    fitted = CrowdAggregator().partial_fit(first).partial_fit(second)
    expected = CrowdAggregator().fit(everything)
    one, two = (each.consensus_.set_index(each.annotations_.columns.item) for each in (fitted, expected))
    pd.testing.assert_frame_equal(one.loc[two.index], two, check_index_type=False)


def test_partial_fit_keeps_gold_and_weights():
    weight = np.r_[2, np.ones(39)]
    fitted = CrowdAggregator().fit(LABELS[:40], gold={3: "emu"}, sample_weight=weight)
    fitted.partial_fit(LABELS[40:], gold={50: "cat"})
    expected = CrowdAggregator().fit(LABELS, gold={3: "emu", 50: "cat"}, sample_weight=np.r_[weight, np.ones(20)])
    np.testing.assert_allclose(fitted.label_proba_, expected.label_proba_, atol=1e-9)


def test_priors_and_order_reach_the_label_model():
    history = {5: (95, 5), 0: (20, 80)}
    expected = aggregate.learned(ANN, history=history, ordered=True)
    found = CrowdAggregator().fit(LABELS, priors=history, ordered=True, classes=["cat", "dog", "emu"])
    np.testing.assert_allclose(found.label_proba_, expected.probabilities)


@pytest.mark.parametrize(
    ("method", "settings", "arguments", "argument"),
    [
        ("kappa", None, {}, "method"),
        ("one-coin", {"size": 3}, {}, "settings"),
        ("auto", {"gold": {0: "cat"}}, {}, "settings"),
        ("majority", None, {"gold": {0: "cat"}}, "gold"),
        ("dawid-skene", None, {"priors": {0: (9, 1)}}, "priors"),
        ("one-coin", None, {"pred_probs": np.full((60, 3), 1 / 3)}, "pred_probs"),
        ("auto", None, {"sample_weight": [1, 2]}, "sample_weight"),
    ],
)
def test_bad_arguments_are_refused(method, settings, arguments, argument):
    with pytest.raises(CrowdshotError) as error:
        CrowdAggregator(method, settings=settings).fit(LABELS, **arguments)
    assert error.value.argument == argument


def test_results_need_a_fit():
    with pytest.raises(CrowdshotError, match="fit"):
        _ = CrowdAggregator().consensus_


def test_parameters_and_clone():
    from sklearn.base import clone

    made = clone(CrowdAggregator("one-coin", settings={"steps": 5}))
    assert made.get_params() == {"method": "one-coin", "settings": {"steps": 5}}
    assert "one-coin" in repr(made.set_params(settings=None))
    with pytest.raises(CrowdshotError):
        made.set_params(steps=5)


def test_classifier_without_items_names_the_aggregator():
    with pytest.raises(CrowdshotError) as error:
        CrowdClassifier().fit(None, LABELS)
    assert error.value.argument == "X"
    assert "CrowdAggregator" in str(error.value.hint)
