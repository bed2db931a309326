"""What is said of annotators: worked out by hand, by brute force, or against the plain way of computing it."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from crowdshot.labels.annotator_flags import agree
from crowdshot.report.page.annotator_summaries import file_names, summarise_annotators
from crowdshot.report.page.basis import Basis

from .made import basis_of, coin, crowd, fitted_crowd


@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(2, 6))
def test_agreement_is_compared_with_all_ways_to_deal_the_labels(seed, K, m):
    random = np.random.default_rng(seed)
    said, others = random.integers(K, size=m), random.integers(0, 3, (m, K)).astype(float)
    others[np.arange(m), random.integers(K, size=m)] += 1  # someone else labelled each item
    votes = others.copy()
    votes[np.arange(m), said] += 1
    share = others / others.sum(1, keepdims=True)
    dealt = [share[np.arange(m), list(order)].sum() for order in itertools.permutations(said)]
    found = agree(votes, said)
    assert found.n_labels == m
    assert found.share == pytest.approx(share[np.arange(m), said].mean())
    assert found.by_chance == pytest.approx(np.mean(dealt) / m)
    if np.std(dealt) > 1e-6:
        z = (found.share * m - np.mean(dealt)) / np.std(dealt)
        assert found.p_value == pytest.approx(2 * stats.norm.sf(abs(z)), abs=1e-9)
    else:
        assert found.p_value == 1


def test_items_that_nobody_else_labelled_say_nothing_of_agreement():
    assert agree(np.array([[1.0, 0.0]]), np.array([0])) is None
    found = agree(np.array([[1.0, 0.0], [2.0, 1.0]]), np.array([0, 0]))
    assert (found.n_labels, found.share) == (1, 0.5)


def flags(basis: Basis) -> list[str]:
    return [person.flag.name if person.flag else "" for person in summarise_annotators(basis)]


def test_flags_for_those_who_earn_them():
    K = 4
    one_class = np.tile(np.eye(K)[2], (K, 1))
    swapped = coin(0.95, K)[[1, 0, 2, 3]]
    shifted = coin(0.9, K)[[1, 2, 3, 0]]
    kinds = [coin(0.95, K), coin(0.85, K), coin(0.7, K), coin(0.25, K), one_class, swapped, shifted]
    basis = fitted_crowd(kinds, 100)
    expected = ["", "", "", "spammer-like", "one class only", "swaps two classes", "systematically wrong"]
    assert flags(basis) == expected
    why = [person.flag.why for person in summarise_annotators(basis) if person.flag]
    assert re.search(r"guessing has 2\d.%; agrees with others ", why[0])
    assert not any("p =" in each for each in why)  # p-values are details
    assert why[1] == "every label is \u20682\u2069, the class of about 25\u00a0% of the items"
    assert why[2].startswith("\u20680\u2069 and \u20681\u2069 labelled as each other 4")


def test_no_flag_from_a_few_labels():
    K = 4
    kinds = [coin(0.95, K)] * 3 + [coin(0.25, K), coin(0.95, K)[[1, 0, 2, 3]]]
    assert flags(fitted_crowd(kinds, 8)) == [""] * 5
    alone, _ = crowd([coin(0.5, 2)], 100)
    posterior = np.eye(2)[np.arange(100) % 2]
    assert flags(basis_of(posterior, alone)) == [""]  # nobody to compare a guesser with


@pytest.mark.slow
@pytest.mark.parametrize(("K", "n_items", "per_item"), [(2, 120, 3), (4, 60, 3), (10, 100, 5)])
def test_hardly_ever_a_flag_for_the_honest(K, n_items, per_item):
    kinds = [coin(right, K) for right in (0.95, 0.9, 0.85, 0.8, 0.75, 0.75, 0.7)]
    raised = [flag for seed in range(10) for flag in flags(fitted_crowd(kinds, n_items, seed, per_item)) if flag]
    assert len(raised) <= 1, raised  # of 70


def test_one_class_is_no_fault_where_nearly_all_items_are_of_it():
    truth = np.array([0] * 57 + [1] * 3)
    posterior = np.eye(2)[truth]
    assert flags(basis_of(posterior, np.column_stack([truth, 0 * truth, truth]))) == ["", "", ""]
    truth = np.array([0] * 30 + [1] * 30)
    basis = basis_of(np.eye(2)[truth], np.column_stack([truth, 0 * truth, truth]))
    assert flags(basis) == ["", "one class only", ""]


def test_what_is_known_of_a_person():
    posterior = np.array([[0.9, 0.1], [0.2, 0.8], [1.0, 0.0], [0.5, 0.5]])
    basis = basis_of(posterior, [[0, 1], [0, -1], [1, 1], [-1, -1]], annotators=["ann\x00", "bob"])
    ann, bob = summarise_annotators(basis)
    assert (ann.name, ann.n_labels, bob.n_labels) == ("ann\ufffd", 3, 2)
    np.testing.assert_allclose(ann.counts, [[1.1, 1.0], [0.9, 0.0]])  # [true, said]
    assert [(m.true, m.observed) for m in ann.mistakes] == [(0, 1), (1, 0)]
    assert ann.mistakes[0].times == 1
    assert ann.mistakes[0].of == 2  # rounded
    table = basis.clf.annotators_
    assert (ann.accuracy, ann.low, ann.high) == tuple(table.loc[0, ["accuracy", "low", "high"]])
    assert ann.guessing == pytest.approx((2 / 3) * (2.1 / 3) + (1 / 3) * (0.9 / 3))


def test_examples_of_mistakes_are_the_surest():
    posterior = [[0.9, 0.1], [0.2, 0.8], [0.97, 0.03], [0.45, 0.55], [0.5, 0.5]]
    (person,) = summarise_annotators(basis_of(posterior, [[1], [0], [1], [0], [0]]))
    shown = [(example.row, example.observed, example.true, example.confidence) for example in person.examples]
    assert shown == [(2, 1, 0, 0.97), (0, 1, 0, 0.9), (1, 0, 1, 0.8), (3, 0, 1, 0.55)]
    assert person.n_wrong == 4
    (careless,) = summarise_annotators(basis_of([[0.9, 0.1]] * 11, [[1]] * 10 + [[0]]))
    assert (len(careless.examples), careless.n_wrong) == (8, 10)


def test_with_whom_somebody_is_compared():
    said, truth = crowd([coin(0.7, 4)] * 6, 120)
    said[:, 5] = said[:, 2]
    said[:90, 1] = -1
    copied = list(summarise_annotators(basis_of(np.eye(4)[truth], said, annotators=[*"abcdef"])))
    assert [partner.name for partner in copied[2].duplicates] == ["f"]
    first, *others = copied[2].partners
    assert (first.name, first.shared, first.same, first.stands_out) == ("f", 120, 120, True)
    assert [partner.name for partner in others] == ["a", "d", "e", "b"]  # by how many items both labelled
    assert not copied[0].duplicates


def test_files_that_every_system_takes():
    names = ["Ann", "ann", "../../etc", "con", "", "שלום", "Zoë B.", "x" * 300]
    said = np.arange(len(names))[None, :] % 2
    found = file_names(list(summarise_annotators(basis_of([[0.5, 0.5]], said, annotators=names))))
    assert list(found.values()) == [
        *("ann.html", "ann-2.html", "etc.html", "con-4.html", "annotator.html", "annotator-6.html", "zoe-b.html"),
        f"{'x' * 40}.html",
    ]
