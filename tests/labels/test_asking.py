"""Test the choice of questions: gains computed by hand, and properties for every crowd."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, norm

from crowdshot.errors import CrowdshotError
from crowdshot.labels import asking
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import PRIOR
from crowdshot.labels.asking import choose, expected_confusion, gains
from crowdshot.labels.consensus import uncertainty

NONE = (np.array([], dtype=np.int64), np.array([], dtype=np.int64))


def one_coin(*skills: float, K: int = 2) -> np.ndarray:
    return np.stack([np.full((K, K), (1 - q) / (K - 1)) + np.eye(K) * (q - (1 - q) / (K - 1)) for q in skills])


def crowd(seed: int, N: int = 6, R: int = 4, K: int = 3):
    """Beliefs (N, K), confusion matrices (R, K, K) and pairs that are closed."""
    random = np.random.default_rng(seed)
    posterior, confusion = random.dirichlet(np.full(K, 0.5), N), random.dirichlet(np.ones(K), (R, K))
    return posterior, confusion, np.nonzero(random.random((N, R)) < 0.3)


# ---- one question -----------------------------------------------------------------------------------------------


def test_uncertainty_by_hand():
    posterior = np.array([[0.25] * 4, [0.5, 0.5, 0, 0], [1, 0, 0, 0], [0.5, 0.25, 0.25, 0]])
    np.testing.assert_allclose(uncertainty(posterior), [0.75, 0.5, 0, 0.625])


def test_gains_by_hand():
    """An open item of two classes, asked of one who is right with probability q, leaves the doubt 2 q (1 - q)."""
    skills = np.array([1.0, 0.9, 0.5, 0.2])
    found = gains(np.array([[0.5, 0.5]]), one_coin(*skills))
    np.testing.assert_allclose(found, [0.5 - 2 * skills * (1 - skills)], atol=1e-15)
    # p = (0.8, 0.2), q = 0.75: the answers have 0.65 and 0.35, after them p is (12/13, 1/13) and (4/7, 3/7)
    left = 0.65 * (1 - 145 / 169) + 0.35 * (1 - 25 / 49)
    np.testing.assert_allclose(gains(np.array([[0.8, 0.2]]), one_coin(0.75)), [[0.32 - left]])


def test_a_spammer_and_a_certain_item_gain_nothing():
    spammer = np.array([[[0.7, 0.2, 0.1]] * 3])  # says what they like whatever the truth
    assert gains(np.array([[0.5, 0.3, 0.2]]), spammer)[0, 0] == pytest.approx(0, abs=1e-15)
    assert gains(np.array([[0.0, 1.0, 0.0]]), one_coin(0.9, K=3))[0, 0] == pytest.approx(0, abs=1e-15)


def test_an_annotator_who_is_always_wrong_is_as_informative_as_one_who_is_always_right():
    np.testing.assert_allclose(gains(np.array([[0.4, 0.6]]), one_coin(1, 0)), [[0.48, 0.48]])


def test_a_confusion_between_two_classes_is_no_help_between_them():
    """Who tells cats from the rest, but not dogs from wolves, gets the cats."""
    blind = np.array([[[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]]])
    assert gains(np.array([[0, 0.5, 0.5]]), blind)[0, 0] == pytest.approx(0, abs=1e-15)
    assert gains(np.array([[0.5, 0.5, 0]]), blind)[0, 0] == pytest.approx(0.5)


@given(st.integers(0, 10_000), st.integers(2, 5))
def test_a_gain_is_the_expected_reduction_of_uncertainty(seed, K):
    random = np.random.default_rng(seed)
    p, C = random.dirichlet(np.ones(K)), random.dirichlet(np.ones(K), K)
    left = 0.0
    for said in range(K):
        joint = [p[t] * C[t, said] for t in range(K)]
        left += sum(joint) * (1 - sum((j / sum(joint)) ** 2 for j in joint))
    found = gains(p[None], C[None])[0, 0]
    assert found == pytest.approx(uncertainty(p) - left)
    assert 0 <= found <= uncertainty(p)
    np.testing.assert_allclose(gains(0.3 * p[None], C[None]), 0.3 * found)  # a case that is 0.3 probable


# ---- expected answers ---------------------------------------------------------------------------------------------


def test_expected_confusion_by_hand():
    said = np.full((60, 4), -1)
    truth = np.arange(60) % 3
    said[:, 0] = truth  # always right
    said[:, 1] = np.where(truth == 1, 2, truth)  # calls 1 a 2
    said[:2, 2] = truth[:2]  # right, but who would know after two labels
    ann = Annotations.from_matrix(said, classes=range(3))
    confusion = expected_confusion(ann, np.eye(3)[truth])
    np.testing.assert_allclose(confusion.sum(2), 1)
    always, mistaken, new, silent = confusion
    assert always.diagonal().min() > 0.95
    assert mistaken[1].argmax() == 2
    assert mistaken[[0, 2], [0, 2]].min() > 0.8
    assert np.ptp(silent.diagonal()) == pytest.approx(0)
    assert silent[0, 0] == pytest.approx(0.7)  # of who said nothing nothing is known
    assert silent[0, 0] < new[0, 0] < always[0, 0]


def test_annotators_with_few_labels_get_an_optimistic_accuracy():
    """Seven of ten right, or seventy of a hundred: the first may be better than that."""
    said = np.full((110, 2), -1)
    said[:10, 0] = [1] * 7 + [0] * 3
    said[10:, 1] = [1] * 70 + [0] * 30
    posterior = np.tile([0.0, 1.0], (110, 1))
    few, many = expected_confusion(Annotations.from_matrix(said), posterior)[:, 1, 1]
    assert many + 0.01 < few < 0.9
    # by hand, for the second: the crowd's 77 + 2.8 in 110 + 4, which counts as PRIOR labels; the 95 % point of a
    # Beta with so many labels is 1.645 standard deviations above the mean, of which half counts; 70 + 20 of 120
    weight = 100 + PRIOR
    mean = (70 + PRIOR * (79.8 / 114)) / weight
    above = (beta(mean * weight, (1 - mean) * weight).ppf(0.95) - mean) / norm.ppf(0.95)
    assert many == pytest.approx((70 + 20 * (mean + above / 2)) / 120)


def test_one_class_is_refused():
    with pytest.raises(CrowdshotError, match="labels has only the class 'cat', expected two classes or more"):
        expected_confusion(Annotations.from_matrix([["cat"]]), np.ones((1, 1)))


# ---- several questions ------------------------------------------------------------------------------------------


def test_the_best_question_first_and_nobody_twice():
    posterior = np.array([[0.99, 0.01], [0.5, 0.5], [0.7, 0.3]])
    found = choose(posterior, one_coin(0.9, 0.8, 0.5), NONE, 6)
    assert [(q.item, q.annotator) for q in found[:2]] == [(1, 0), (2, 0)]
    assert len({(q.item, q.annotator) for q in found}) == len(found) == 6
    assert {q.annotator for q in found} == {0, 1}  # who guesses is not asked
    assert found[0].gain == pytest.approx(0.5 - 2 * 0.9 * 0.1)
    assert [q.item for q in found[-2:]] == [0, 0]  # of which there is next to no doubt


def test_the_gain_of_a_second_answer_takes_the_first_into_account():
    """Two who are right with 0.8 and 0.7 about an open item: all four ways their answers can turn out, by hand."""
    first, second = choose(np.array([[0.5, 0.5]]), one_coin(0.8, 0.7), NONE, 2)
    assert (first.annotator, second.annotator) == (0, 1)
    left = 0.0
    for a, b in itertools.product((0, 1), repeat=2):
        joint = np.array([0.5 * (0.8 if a == t else 0.2) * (0.7 if b == t else 0.3) for t in (0, 1)])
        left += joint.sum() * uncertainty(joint / joint.sum())
    assert first.gain == pytest.approx(0.5 - 0.32)
    assert second.gain == pytest.approx(0.32 - left)
    assert second.gain < gains(np.array([[0.5, 0.5]]), one_coin(0.7))[0, 0]


@pytest.mark.parametrize("most_cases", [1, 512])
def test_the_sum_of_gains_is_at_most_the_uncertainty(most_cases, monkeypatch):
    monkeypatch.setattr(asking, "MOST_CASES", most_cases)
    posterior, confusion, _ = crowd(0, N=2, R=8, K=3)
    found = choose(posterior, confusion, NONE, 16)
    assert len(found) == 16
    for item in (0, 1):
        assert 0 < sum(q.gain for q in found if q.item == item) <= uncertainty(posterior[item])


def test_cost_decides_between_a_good_and_a_cheap_answer():
    posterior, confusion = np.array([[0.5, 0.5]]), one_coin(0.9, 0.8)  # gains 0.32 and 0.18
    assert choose(posterior, confusion, NONE, 1, np.array([1.0, 1.0]))[0].annotator == 0
    assert choose(posterior, confusion, NONE, 1, np.array([1.0, 0.5]))[0].annotator == 1
    assert [q.annotator for q in choose(posterior, confusion, NONE, 2, np.array([3.0, 2.0]))] == [
        1
    ]  # the other is dear


def test_equal_annotators_share_the_questions():
    found = choose(np.full((6, 2), 0.5), one_coin(0.8, 0.8, 0.8), NONE, 6)
    assert sorted(q.item for q in found) == list(range(6))
    assert sorted(q.annotator for q in found) == [0, 0, 1, 1, 2, 2]
    assert len(choose(np.full((6, 2), 0.5), one_coin(0.9, 0.6), NONE, 9, most=2)) == 4


def test_errors_mended_by_hand():
    """A part of what Bayes' rule says; one answer cannot change what is sure enough, and two can."""
    posterior, confusion = np.array([[0.5, 0.5], [0.9, 0.1]]), one_coin(0.8, 0.8)
    assert asking.mended(posterior, confusion, []) == 0
    assert asking.mended(posterior, confusion, [asking.Question(0, 0, 0.0)]) == pytest.approx(
        asking.MENDED * (0.8 - 0.5)
    )
    once = [asking.Question(1, 0, 0.0)]
    assert asking.mended(posterior, confusion, once) == pytest.approx(0)
    # both say the second class: 0.9 · 0.04 against 0.1 · 0.64
    twice = [*once, asking.Question(1, 1, 0.0)]
    assert asking.mended(posterior, confusion, twice) == pytest.approx(asking.MENDED * (0.064 - 0.036))


@given(st.integers(0, 10_000), st.floats(0.5, 30), st.one_of(st.none(), st.integers(1, 4)), st.booleans())
def test_properties_of_every_list_of_questions(seed, budget, most, priced):
    posterior, confusion, closed = crowd(seed)
    random = np.random.default_rng(seed)
    cost = random.uniform(0.3, 3, len(confusion)) if priced else np.ones(len(confusion))
    found = choose(posterior, confusion, closed, budget, cost, most)
    pairs = {(q.item, q.annotator) for q in found}
    assert len(pairs) == len(found)
    assert not pairs & set(zip(*map(list, closed), strict=True))
    assert sum(cost[q.annotator] for q in found) <= budget * (1 + 1e-6)
    assert all(q.gain > 0 for q in found)
    times = np.bincount([q.annotator for q in found], minlength=4)
    assert most is None or times.max() <= most
    # twice the price for twice the money is the same list
    assert choose(posterior, confusion, closed, 2 * budget, 2 * cost, most) == found


@given(st.integers(0, 10_000))
def test_the_order_of_items_and_annotators_does_not_matter(seed):
    posterior, confusion, closed = crowd(seed)
    random = np.random.default_rng(seed)
    items, people = random.permutation(len(posterior)), random.permutation(len(confusion))
    elsewhere = (items.argsort()[closed[0]], people.argsort()[closed[1]])
    found = choose(posterior, confusion, closed, 8)
    moved = choose(posterior[items], confusion[people], elsewhere, 8)
    assert [(int(items[q.item]), int(people[q.annotator])) for q in moved] == [(q.item, q.annotator) for q in found]
    np.testing.assert_allclose([q.gain for q in moved], [q.gain for q in found])


@given(st.integers(0, 10_000))
def test_each_question_is_the_best_that_is_left(seed):
    """Against a plain loop that looks at every pair again, with every way that the answers before can turn out."""
    posterior, confusion, closed = crowd(seed, N=4, R=3)
    cost = np.random.default_rng(seed).uniform(0.5, 2, 3)
    asked: list[tuple[int, int]] = []
    for question in choose(posterior, confusion, closed, 4, cost):
        best = {}
        for item, annotator in itertools.product(range(4), range(3)):
            if (item, annotator) in {*asked, *zip(*map(list, closed), strict=True)}:
                continue
            before = [a for i, a in asked if i == item]
            worth = _doubt_left(posterior[item], confusion[before]) - _doubt_left(
                posterior[item], confusion[[*before, annotator]]
            )
            if cost[[a for _, a in asked]].sum() + cost[annotator] <= 4:
                best[item, annotator] = worth / cost[annotator]
        top = max(best, key=best.__getitem__)
        assert (question.item, question.annotator) == top
        assert question.gain == pytest.approx(best[top] * cost[top[1]])
        asked.append(top)


@given(st.integers(0, 10_000), st.floats(0.5, 30), st.booleans())
def test_batches_of_items_do_not_change_the_questions(seed, budget, priced):
    """One at a time, or all at once: the same questions."""
    posterior, confusion, closed = crowd(seed, N=20)
    cost = np.random.default_rng(seed).uniform(0.3, 3, 4) if priced else None
    together = choose(posterior, confusion, closed, budget, cost, most=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking, "AT_ONCE", 1)
        assert [q[:2] for q in choose(posterior, confusion, closed, budget, cost, most=3)] == [q[:2] for q in together]


def test_gains_of_items_with_little_uncertainty_are_not_computed(monkeypatch):
    """A toss-up and thousands of items that are nearly sure: an answer about these cannot be worth as much."""
    monkeypatch.setattr(asking, "AT_ONCE", 100)
    posterior = np.vstack([np.tile([0.99, 0.01], (5_000, 1)), [[0.5, 0.5]]])
    looked_at = []
    monkeypatch.setattr(asking, "gains", real := lambda p, C: looked_at.append(len(p)) or gains(p, C))
    found = choose(posterior, one_coin(0.9, 0.8), NONE, 1, by=real)
    assert [q[:2] for q in found] == [(5_000, 0)]
    assert sum(looked_at) < 100


def _doubt_left(p: np.ndarray, confusion: np.ndarray) -> float:
    left = 0.0
    for answers in itertools.product(range(len(p)), repeat=len(confusion)):
        joint = p.copy()
        for C, said in zip(confusion, answers, strict=True):
            joint = joint * C[:, said]
        left += joint.sum() - (joint**2).sum() / joint.sum()
    return left


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": 0}, "budget is 0, expected a number above 0"),
        ({"budget": float("nan")}, "budget is nan"),
        ({"cost": np.array([1.0, 0.0])}, "cost contains 0, expected numbers above 0"),
        ({"cost": np.array([1.0])}, "cost has shape"),
        ({"posterior": np.ones((2, 3)) / 3}, "confusion has shape"),
        ({"most": 0}, "most is 0, expected 1 or more"),
    ],
)
def test_invalid_arguments(change, message):
    given = {"posterior": np.full((2, 2), 0.5), "confusion": one_coin(0.9, 0.8), "closed": NONE, "budget": 2} | change
    with pytest.raises(CrowdshotError, match=message):
        choose(**given)


# ---- several labels an answer ---------------------------------------------------------------------------------------


def test_an_answer_that_names_several_labels_answers_a_question_for_each():
    """Two who are right four times in five, and two labels: p (1 - p) of yes before, by hand after."""
    yes = np.array([[0.5, 0.5, 0.9], [0.5, 1.0, 0.9]])  # [label, item]
    posterior = np.stack([1 - yes, yes], 2)
    (right,) = one_coin(0.8)
    confusion = np.stack([one_coin(0.8, 0.8)] * 2)
    chosen = choose(posterior, confusion, NONE, 3)
    # of a toss-up an answer leaves 2 · 0.8 · 0.2 = 0.32 of 0.5; item 0 is one twice, item 1 once
    assert [(question.item, round(question.gain, 6)) for question in chosen[:1]] == [(0, 0.36)]
    after = {answer: np.array([0.1, 0.9]) * right[:, answer] for answer in (0, 1)}
    left = sum(p.sum() * uncertainty(p / p.sum()) for p in after.values())
    third = 2 * (uncertainty(np.array([0.1, 0.9])) - left)
    found = {question.item: question.gain for question in choose(posterior, confusion, NONE, 6)[::-1]}
    assert found[1] == pytest.approx(0.18)
    assert found[2] == pytest.approx(third)


@given(st.integers(0, 50))
def test_the_same_question_twice_gains_twice_as_much(seed):
    posterior, confusion, _ = crowd(seed)
    once = choose(posterior, confusion, NONE, 8)
    twice = choose(np.stack([posterior] * 2), np.stack([confusion] * 2), NONE, 8)
    assert [question[:2] for question in twice] == [question[:2] for question in once]
    assert [question.gain for question in twice] == pytest.approx([2 * question.gain for question in once])
    assert asking.mended(np.stack([posterior] * 2), np.stack([confusion] * 2), once) == pytest.approx(
        2 * asking.mended(posterior, confusion, once)
    )


# ---- annotators with few labels ---------------------------------------------------------------------------------


def test_first_limits_are_the_known_labels_plus_one():
    assert asking.first_limits(np.array([0, 2, 40]), 10).tolist() == [1, 3, 10]
    assert asking.first_limits(np.array([5, 5]), np.array([0, 2])).tolist() == [0, 2]


def test_a_stranger_gets_few_questions_as_long_as_others_can_be_asked():
    posterior = np.full((12, 2), 0.5)
    confusion = np.array([[[0.9, 0.1], [0.1, 0.9]], [[0.8, 0.2], [0.2, 0.8]]])  # the stranger seems better
    closed = np.array([], dtype=int), np.array([], dtype=int)
    found = choose(posterior, confusion, closed, budget=8, most=6, first=np.array([2, 6]))
    assert [question.annotator for question in found].count(0) == 2
    more = choose(posterior, confusion, closed, budget=12, most=6, first=np.array([2, 6]))
    assert [question.annotator for question in more].count(0) == 6
    assert [question.annotator for question in more[8:]] == [0] * 4
    assert len({(question.item, question.annotator) for question in more}) == 12


@given(st.integers(0, 1_000))
def test_limits_that_do_not_bind_change_nothing(seed):
    random = np.random.default_rng(seed)
    posterior, confusion = random.dirichlet(np.ones(3), 8), random.dirichlet(np.ones(3), (4, 3))
    closed = np.array([0, 1]), np.array([0, 2])
    plain = choose(posterior, confusion, closed, budget=20, most=5)
    assert choose(posterior, confusion, closed, budget=20, most=5, first=np.full(4, 5)) == plain
    tight = choose(posterior, confusion, closed, budget=20, most=5, first=np.full(4, 1))
    assert len(tight) == len(plain)
    assert len({(question.item, question.annotator) for question in tight}) == len(tight)
    assert np.bincount([question.annotator for question in tight], minlength=4).max() <= 5
