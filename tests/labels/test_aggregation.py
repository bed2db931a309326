"""Test votes and EM on sparse triples by hand, against crowd-kit, and against loops over the equations."""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdshot import aggregate
from crowdshot._cli.aggregate import Aggregator
from crowdshot.errors import CrowdshotError
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.gold_labels import crowd_of


def likeliest_coin(ann, **settings):
    """Fit the one-coin model by maximum likelihood, without priors."""
    return aggregate.one_coin(ann, **{"b": 0.0, "c": 0.0, "right": 0.0, **settings})


EM = [aggregate.dawid_skene, likeliest_coin]

# Two items, two annotators, two classes: A and B label x as 0; A labels y as 1 and B labels y as 0.
TWO = Annotations.from_dict({"x": {"A": 0, "B": 0}, "y": {"A": 1, "B": 0}})


def random_crowd(seed, n_items=40, n_annotators=8, n_classes=3, density=0.6):
    """Draw annotators better than chance; every item and annotator has a label, and every class occurs."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n_items) % n_classes
    skill = rng.uniform(0.5, 0.95, n_annotators)
    right = rng.random((n_items, n_annotators)) < skill
    labels = np.where(right, truth[:, None], rng.integers(n_classes, size=(n_items, n_annotators)))
    missing = rng.random((n_items, n_annotators)) > density
    missing[np.arange(n_items), np.arange(n_items) % n_annotators] = False
    labels[np.arange(n_items), np.arange(n_items) % n_annotators] = truth
    return np.where(missing, -1, labels)


@st.composite
def sparse_crowds(draw):
    """Draw labels (N, R) below K, or -1; some items and annotators have no label, some classes no vote."""
    n_items, n_annotators, n_classes = draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(st.integers(2, 4))
    size = n_items * n_annotators
    cells = draw(st.lists(st.integers(-1, n_classes - 1), min_size=size, max_size=size))
    matrix = np.array(cells).reshape(n_items, n_annotators)
    if (matrix < 0).all():
        matrix[0, 0] = 0
    return matrix, n_classes


# ---- votes


def test_votes_by_hand():
    ann = Annotations.from_matrix([[0, 0, 1], [2, 1, -1], [2, -1, -1], [-1, -1, -1]])
    expected = np.array([[2 / 3, 1 / 3, 0], [0, 1 / 2, 1 / 2], [0, 0, 1], [1 / 3, 1 / 3, 1 / 3]])
    np.testing.assert_allclose(aggregate.soft_vote(ann), expected, rtol=1e-15)
    consensus = aggregate.majority_vote(ann)
    np.testing.assert_allclose(consensus.probabilities, expected, rtol=1e-15)
    assert consensus.labels.tolist() == [0, 1, 2, 0]
    np.testing.assert_allclose(consensus.class_probs, expected[:3].mean(axis=0))  # the unlabelled item has no vote
    assert consensus.confusion is None


def test_ties_go_to_the_first_class_in_the_given_order_or_stay_open():
    labels = {"x": {"A": "cat", "B": "dog"}, "y": {"A": "dog"}}
    for classes in (["cat", "dog", "owl"], ["dog", "owl", "cat"]):
        ann = Annotations.from_dict(labels, classes=classes)
        assert aggregate.majority_vote(ann).labels.tolist() == [classes[0], "dog"]
        assert aggregate.majority_vote(ann, ties="missing").labels.tolist() == [None, "dog"]
    with pytest.raises(CrowdshotError, match="ties is 'random', expected one of 'first', 'missing'"):
        aggregate.majority_vote(ann, ties="random")


def test_to_frame_uses_the_names_of_the_input():
    frame = pd.DataFrame({"image": ["a", "a", "a", "b"], "user": [1, 2, 3, 1], "answer": ["u", "v", "v", "u"]})
    ann = Annotations.from_frame(frame, items=["a", "b", "c"])
    table = aggregate.majority_vote(ann).to_frame(ann)
    expected = {
        "image": ["a", "b", "c"],
        "answer": ["v", "u", "u"],
        "confidence": [2 / 3, 1, 1 / 2],
        "n_labels": [3, 1, 0],
        "agreement": [2 / 3, 1, np.nan],
    }
    pd.testing.assert_frame_equal(table, pd.DataFrame(expected))


# ---- worked by hand


def test_maximum_likelihood_by_hand():
    # Soft votes: x (1, 0), y (1/2, 1/2). M-step: π = (3/4, 1/4);
    # A chooses 0 for class 0 in 1 of 3/2 cases and for class 1 in 0 of 1/2; B always chooses 0.
    # E-step: x: 3/4·2/3·1 = 1/2 against 1/4·0·1; y: 3/4·1/3·1 = 1/4 against 1/4·1·1. So this is a fixed point.
    for steps in (1, 5):
        fit = aggregate.dawid_skene(TWO, steps=steps, tolerance=0)
        np.testing.assert_allclose(fit.probabilities, [[1, 0], [1 / 2, 1 / 2]], atol=1e-8)
        np.testing.assert_allclose(fit.class_probs, [3 / 4, 1 / 4], atol=1e-8)
        np.testing.assert_allclose(fit.confusion, [[[2 / 3, 1 / 3], [0, 1]], [[1, 0], [1, 0]]], atol=1e-8)
        np.testing.assert_allclose(fit.log_posterior, [2 * np.log(1 / 2)] * steps, atol=1e-8)


def test_dirichlet_priors_by_hand():
    # b = c = 1: π = (5/2, 3/2)/4; A: (2, 3/2)/(7/2) and (1, 3/2)/(5/2); B: (5/2, 1)/(7/2) and (3/2, 1)/(5/2).
    fit = aggregate.dawid_skene(TWO, steps=1, b=1, c=1)
    np.testing.assert_allclose(fit.class_probs, [5 / 8, 3 / 8], rtol=1e-14)
    confusion = [[[4 / 7, 3 / 7], [2 / 5, 3 / 5]], [[5 / 7, 2 / 7], [3 / 5, 2 / 5]]]
    np.testing.assert_allclose(fit.confusion, confusion, rtol=1e-14)
    # x: 5/8·4/7·5/7 = 25/98 against 3/8·2/5·3/5 = 9/100; y: 5/8·3/7·5/7 = 75/392 against 3/8·3/5·3/5 = 27/200.
    x, y = np.array([25 / 98, 9 / 100]), np.array([75 / 392, 27 / 200])
    np.testing.assert_allclose(fit.probabilities, [x / x.sum(), y / y.sum()], rtol=1e-14)
    prior = np.log([5 / 8, 3 / 8]).sum() + np.log(confusion).sum()
    np.testing.assert_allclose(fit.log_posterior, [np.log(x.sum()) + np.log(y.sum()) + prior], rtol=1e-14)


def test_one_coin_by_hand():
    # Both are right in 1 + 1/2 of 2 cases: q = 3/4.
    # x: 3/4·3/4·3/4 against 1/4·1/4·1/4, 27 to 1; y: 3/4·1/4·3/4 against 1/4·3/4·1/4, 3 to 1.
    fit = likeliest_coin(TWO, steps=1)
    np.testing.assert_allclose(fit.confusion, [[[3 / 4, 1 / 4], [1 / 4, 3 / 4]]] * 2, rtol=1e-14)
    np.testing.assert_allclose(fit.probabilities, [[27 / 28, 1 / 28], [3 / 4, 1 / 4]], rtol=1e-14)
    np.testing.assert_allclose(fit.log_posterior, [np.log(28 / 64) + np.log(12 / 64)], rtol=1e-14)
    # c = 1 adds one right and one wrong answer: q = (3/2 + 1)/(2 + 2) = 5/8.
    smooth = likeliest_coin(TWO, steps=1, c=1)
    np.testing.assert_allclose(smooth.confusion[:, 0, 0], [5 / 8, 5 / 8], rtol=1e-14)


def test_gold_by_hand():
    # y is known to be 1, so π = (1/2, 1/2), A is always right and B always chooses 0: nothing is left uncertain.
    fit = aggregate.dawid_skene(TWO, gold={"y": 1}, tolerance=0, steps=3)
    np.testing.assert_allclose(fit.probabilities, [[1, 0], [0, 1]], atol=1e-8)
    np.testing.assert_allclose(fit.confusion, [[[1, 0], [0, 1]], [[1, 0], [1, 0]]], atol=1e-8)
    np.testing.assert_allclose(fit.log_posterior, [2 * np.log(1 / 2)] * 3, atol=1e-8)


# ---- crowd-kit as the oracle


def crowdkit_probabilities(name, ann, steps, gold=None):
    module = pytest.importorskip("crowdkit.aggregation")
    model = getattr(module, name)(n_iter=steps, tol=-np.inf)
    arguments = [ann.to_crowdkit()] if gold is None else [ann.to_crowdkit(), pd.Series(gold)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning of crowd-kit about pandas
        fitted = model.fit(*arguments)
    assert len(fitted.loss_history_) == steps
    return fitted, fitted.probas_.loc[ann.items, ann.classes].to_numpy()


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2, 10, 50])
@pytest.mark.parametrize("n_classes", [2, 4, 7])
def test_dawid_skene_agrees_with_crowdkit(steps, n_classes):
    ann = Annotations.from_matrix(random_crowd(seed=steps + n_classes, n_classes=n_classes, density=0.4))
    fitted, expected = crowdkit_probabilities("DawidSkene", ann, steps)
    fit = aggregate.dawid_skene(ann, steps=steps, tolerance=0)
    np.testing.assert_allclose(fit.probabilities, expected, atol=1e-6)
    assert len(fit.log_posterior) == steps
    # Its matrices stem from one more M-step than ours, and are indexed [annotator, observed, true].
    after = aggregate.dawid_skene(ann, steps=steps + 1, tolerance=0)
    errors = fitted.errors_.reindex(pd.MultiIndex.from_product([ann.annotators, ann.classes]), fill_value=0.0)
    errors = errors[ann.classes].to_numpy().reshape(-1, n_classes, n_classes)
    np.testing.assert_allclose(after.confusion, errors.transpose(0, 2, 1), atol=1e-6)
    np.testing.assert_allclose(after.class_probs, fitted.priors_[ann.classes], atol=1e-6)


@pytest.mark.parametrize("steps", [1, 10])
def test_dawid_skene_with_gold_agrees_with_crowdkit(steps):
    matrix = random_crowd(seed=3, density=0.3)
    ann = Annotations.from_matrix(matrix)
    gold = {item: (item + item % 2) % 3 for item in range(12)}
    _, expected = crowdkit_probabilities("DawidSkene", ann, steps, gold)
    fit = aggregate.dawid_skene(ann, steps=steps, tolerance=0, gold=gold)
    np.testing.assert_allclose(fit.probabilities, expected, atol=1e-6)


@pytest.mark.parametrize("steps", [1, 10])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_one_coin_agrees_with_crowdkit(steps, n_classes):
    ann = Annotations.from_matrix(random_crowd(seed=steps * n_classes, n_classes=n_classes))
    fitted, expected = crowdkit_probabilities("OneCoinDawidSkene", ann, steps)
    fit = likeliest_coin(ann, steps=steps, tolerance=0)
    np.testing.assert_allclose(fit.probabilities, expected, atol=1e-6)
    after = likeliest_coin(ann, steps=steps + 1, tolerance=0)
    np.testing.assert_allclose(after.confusion[:, 0, 0], fitted.skills_[ann.annotators], atol=1e-6)


@pytest.mark.slow
@given(sparse_crowds(), st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_dawid_skene_agrees_with_crowdkit_on_any_sparse_crowd(crowd, steps):
    table = Annotations.from_matrix(crowd[0]).to_frame()  # crowd-kit knows only what has a label
    ann = Annotations.from_frame(table)
    _, expected = crowdkit_probabilities("DawidSkene", ann, steps)
    np.testing.assert_allclose(aggregate.dawid_skene(ann, steps, tolerance=0).probabilities, expected, atol=1e-6)


def test_majority_vote_agrees_with_crowdkit():
    module = pytest.importorskip("crowdkit.aggregation")
    ann = Annotations.from_matrix(random_crowd(seed=5))
    expected = module.MajorityVote().fit_predict_proba(ann.to_crowdkit()).loc[ann.items, ann.classes]
    np.testing.assert_allclose(aggregate.majority_vote(ann).probabilities, expected, rtol=1e-12)


# ---- a second oracle, with priors, unlabelled items and annotators


def loops(matrix, n_classes, steps, b, c):
    """Compute π, α and λ with a Python loop for every sum; α is [r][l][k], with the observed label first."""
    n_items, n_annotators = matrix.shape
    labelled = [n for n in range(n_items) if (matrix[n] >= 0).any()]
    every, K = range(n_classes), n_classes
    lam = {n: [float(np.mean(matrix[n][matrix[n] >= 0] == k)) for k in every] for n in labelled}
    for _ in range(steps):
        pi = [(sum(lam[n][k] for n in labelled) + b) / (len(labelled) + K * b) for k in every]
        alpha = np.empty((n_annotators, K, K))
        for r, observed, k in itertools.product(range(n_annotators), every, every):
            mine = [n for n in labelled if matrix[n, r] >= 0]
            said = sum(lam[n][k] for n in mine if matrix[n, r] == observed)
            alpha[r, observed, k] = (said + c) / (sum(lam[n][k] for n in mine) + K * c)
        for n in labelled:
            joint = []
            for k in every:
                likelihoods = [alpha[r, matrix[n, r], k] for r in range(n_annotators) if matrix[n, r] >= 0]
                joint.append(pi[k] * float(np.prod(likelihoods)))
            lam[n] = [p / sum(joint) for p in joint]
    return np.array([lam.get(n, pi) for n in range(n_items)]), pi, alpha.transpose(0, 2, 1)


@given(sparse_crowds(), st.integers(1, 4), st.sampled_from([0.1, 1.0, 100.0]), st.sampled_from([0.01, 1.0, 5.0]))
@settings(max_examples=60, deadline=None)
def test_dirichlet_priors_agree_with_loops(crowd, steps, b, c):
    matrix, n_classes = crowd
    ann = Annotations.from_matrix(matrix, classes=range(n_classes), missing=-1)
    fit = aggregate.dawid_skene(ann, steps=steps, b=b, c=c, tolerance=0)
    probabilities, class_probs, confusion = loops(matrix, n_classes, steps, b, c)
    np.testing.assert_allclose(fit.probabilities, probabilities, atol=1e-10)
    np.testing.assert_allclose(fit.class_probs, class_probs, atol=1e-10)
    np.testing.assert_allclose(fit.confusion, confusion, atol=1e-10)


# ---- properties


@pytest.mark.parametrize("method", EM)
@given(crowd=sparse_crowds(), b=st.sampled_from([0.0, 1.0]), c=st.sampled_from([0.0, 0.5]))
@settings(max_examples=40, deadline=None)
def test_the_objective_never_falls_and_probabilities_are_probabilities(method, crowd, b, c):
    matrix, n_classes = crowd
    ann = Annotations.from_matrix(matrix, classes=range(n_classes), missing=-1)
    fit = method(ann, steps=8, b=b, c=c, tolerance=0)
    assert (np.diff(fit.log_posterior) >= -1e-7).all()
    for probabilities in (fit.probabilities, fit.confusion, fit.class_probs):
        assert (probabilities >= 0).all()
        np.testing.assert_allclose(probabilities.sum(axis=-1), 1, atol=1e-8)
    nobody = (matrix < 0).all(axis=1)
    # without a prior, an empty class has probability 1e-10
    np.testing.assert_allclose(fit.probabilities[nobody], np.tile(fit.class_probs, (nobody.sum(), 1)), atol=1e-9)
    idle = (matrix < 0).all(axis=0)
    np.testing.assert_allclose(fit.confusion[idle], 1 / n_classes, rtol=1e-12)


@pytest.mark.parametrize("method", EM)
@pytest.mark.parametrize("c", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_permuting_items_annotators_and_classes_permutes_the_answer(method, c, seed):
    matrix = random_crowd(seed=seed, n_items=10_000, density=0.5)  # more items than are normalised at a time
    rng = np.random.default_rng(seed)
    items, annotators = rng.permutation(matrix.shape[0]), rng.permutation(matrix.shape[1])
    classes = np.array([2, 0, 1])
    plain = method(Annotations.from_matrix(matrix), steps=5, c=c, tolerance=0)
    moved = method(Annotations.from_matrix(matrix[items][:, annotators], classes=classes), steps=5, c=c, tolerance=0)
    np.testing.assert_allclose(moved.probabilities, plain.probabilities[items][:, classes], atol=1e-9)
    np.testing.assert_allclose(moved.class_probs, plain.class_probs[classes], atol=1e-9)
    expected = plain.confusion[annotators][:, classes][:, :, classes]
    np.testing.assert_allclose(moved.confusion, expected, atol=1e-9)


@pytest.mark.parametrize("method", EM)
def test_the_order_of_the_rows_does_not_matter(method):
    frame = Annotations.from_matrix(random_crowd(seed=1)).to_frame()
    shuffled = frame.sample(frac=1, random_state=0)
    ids = {"items": range(40), "annotators": range(8)}
    fits = [method(Annotations.from_frame(df, **ids), steps=5) for df in (frame, shuffled)]
    np.testing.assert_allclose(fits[1].probabilities, fits[0].probabilities, atol=1e-10)


@pytest.mark.parametrize("method", EM)
def test_models_beat_the_vote_where_most_annotators_guess(method):
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=600)
    skill = np.array([0.95, 0.85, 0.1, 0.1, 0.1])
    right = rng.random((600, 5)) < skill
    ann = Annotations.from_matrix(np.where(right, truth[:, None], rng.integers(3, size=(600, 5))))
    vote = (aggregate.majority_vote(ann).labels == truth).mean()
    fit = method(ann)
    assert (fit.labels == truth).mean() > vote + 0.05
    accuracy = fit.confusion[:, range(3), range(3)].mean(axis=1)
    np.testing.assert_allclose(accuracy, skill + (1 - skill) / 3, atol=0.07)


# ---- corners


@pytest.mark.parametrize("method", EM)
@pytest.mark.parametrize("c", [0.0, 1.0])
def test_two_thousand_labels_an_item_do_not_underflow(method, c):
    rng = np.random.default_rng(0)
    truth = np.array([0, 1, 2, 3, 0])
    noise = rng.integers(4, size=(5, 2000))
    matrix = np.where(rng.random((5, 2000)) < 0.3, truth[:, None], noise)
    fit = method(Annotations.from_matrix(matrix), c=c)
    assert np.isfinite(fit.probabilities).all()
    assert np.isfinite(fit.log_posterior).all()
    assert fit.log_posterior[-1] < -700 or c == 0  # a plain product would have been zero
    assert fit.labels.tolist() == truth.tolist()


@pytest.mark.parametrize("method", EM)
def test_one_class_one_item_one_annotator(method):
    fit = method(Annotations.from_matrix([["cat"]]))
    assert fit.labels.tolist() == ["cat"]
    assert fit.probabilities.tolist() == [[1.0]]
    fit = method(Annotations.from_matrix([["cat"]], classes=["cat", "dog"]))
    np.testing.assert_allclose(fit.probabilities, [[1, 0]], atol=1e-9)


@pytest.mark.parametrize("method", EM)
def test_gold_is_held_fixed_even_against_everyone_and_without_labels(method):
    ann = Annotations.from_matrix([[0, 0, 0], [0, 0, 1], [1, 1, 1], [-1, -1, -1]], items=list("wxyz"), missing=-1)
    for gold in ({"w": 1, "z": 0, "x": None}, pd.Series({"w": 1.0, "z": 0.0, "x": np.nan})):
        fit = method(ann, steps=5, gold=gold)
        assert fit.probabilities[[0, 3]].tolist() == [[0, 1], [1, 0]]
        assert fit.labels[[0, 3]].tolist() == [1, 0]
        assert np.isfinite(fit.log_posterior).all()
    assert not np.allclose(fit.class_probs, method(ann, steps=5, gold={"w": 1}).class_probs)  # z counts as an item


@pytest.mark.parametrize("method", EM)
def test_tolerance_stops_and_zero_does_not(method):
    ann = Annotations.from_matrix(random_crowd(seed=2))
    every = method(ann, steps=60, tolerance=0).log_posterior
    assert len(every) == 60
    early = method(ann, steps=60, tolerance=1e-3).log_posterior
    assert 2 <= len(early) < 60
    gains = np.diff(every) / len(ann)
    assert len(early) == 2 + np.argmax(gains < 1e-3)


@pytest.mark.parametrize("method", EM)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "is 0, expected a whole number, 1 or more"),
        ({"steps": 2.5}, "is 2.5"),
        ({"b": -1.0}, "is -1.0, expected a number, 0 or more"),
        ({"c": -0.1}, "is -0.1"),
        ({"c": float("nan")}, "is nan"),
        ({"tolerance": -1.0}, "is -1.0"),
        ({"gold": {"w": 1}}, "names item 'w', which nobody labelled"),
        ({"gold": {"x": 0, "y": 7}}, "has label 7 for item 'y', expected one of 0, 1"),
        ({"gold": {"x"}}, "is a set, expected {item: label}, a Series or a table"),
        ({"gold": [0]}, r"has shape \(1,\), expected \(2,\), or {item: label}"),
        ({"gold": pd.Series([0, 1], index=["x", "x"])}, "names item 'x' more than once"),
    ],
)
def test_arguments_that_are_off(method, options, message):
    with pytest.raises(CrowdshotError, match=message) as error:
        method(TWO, **options)
    assert [error.value.argument] == list(options)


def test_one_coin_needs_a_prior_above_chance():
    """Three annotators, six labels. Soft votes are (2/3, 1/3), (0, 1), (0, 1), so that a's labels cat, dog have 2/3 + 1
    expected hits, and with c = 1, right = 2 first q = (5/3 + 3) / (2 + 4)."""
    ann = Annotations.from_dict({1: {"a": "cat", "b": "dog", "c": "cat"}, 2: {"a": "dog", "b": "dog"}, 3: {"b": "dog"}})
    first = aggregate.one_coin(ann, steps=1, b=0)
    assert first.confusion[0, 0, 0] == pytest.approx((5 / 3 + 3) / 6)
    with_prior = aggregate.one_coin(ann)
    assert with_prior.labels.tolist() == ["cat", "dog", "dog"]
    assert (with_prior.probabilities.max(axis=1) > 0.6).all()
    without_prior = aggregate.one_coin(ann, right=0)
    assert (without_prior.probabilities.max(axis=1) < 0.6).all()  # all annotators look like guessers


# ---- the registry


def test_the_command_offers_the_registered_methods():
    """The choices of --method are a separate enum, so that --help does not import the methods."""
    assert [choice.value for choice in Aggregator] == list(aggregate.AGGREGATORS)


@pytest.mark.parametrize("name", aggregate.AGGREGATORS)
def test_methods_give_the_same_in_memory_and_in_parts(name):
    ann = Annotations.from_matrix(random_crowd(3))
    method = aggregate.AGGREGATORS[name]
    sizes = aggregate.Sizes(ann.n_items, ann.n_annotators, ann.n_classes)
    aggregator = aggregate.aggregator_of(name, aggregate.Settings(sizes, len(ann), 5))
    _, posterior = crowd_of(ann).run(aggregator)
    np.testing.assert_allclose(posterior, method(ann, 5).probabilities)


@pytest.mark.parametrize("name", aggregate.VOTES)
def test_votes_refuse_gold_labels(name):
    with pytest.raises(CrowdshotError, match="gold") as error:
        aggregate.AGGREGATORS[name](TWO, 1, {"x": 0})
    assert error.value.argument == "method"
