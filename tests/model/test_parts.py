"""Aggregation in parts: results do not depend on how a crowd is divided."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crowdshot.model import dawid_skene, label_model_parts, parts
from crowdshot.model.dawid_skene import Coins, Em, Matrices, MatrixCounts
from crowdshot.model.label_model_parts import Rounds
from crowdshot.model.parts import Keyed, Part, Sizes, added, asked, parts_of, run
from crowdshot.model.posteriors import Votes, joined, likeliest, normalise, posterior_at
from crowdshot.model.posteriors import believe as believe_in_memory

from .test_label_model import NETWORK, crowd, posterior_matrix, side_information

SEEDS = st.integers(0, 2**32 - 1)
SOME = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
AGGREGATORS = ("votes", "coins", "matrices", "matrices with a prior", "rounds")


@pytest.fixture(params=[False, True], ids=["all classes", "classes named"])
def many(request, monkeypatch):
    """Run with dense tables, and with sparse ones, where items have only named classes."""
    if request.param:
        monkeypatch.setattr(parts, "MOST_CELLS", 0)
    return request.param


def aggregator_of(name, sizes, n_labels, given):
    if name == "votes":
        return Votes(sizes)
    if name == "rounds":
        more = {key: value for key, value in given.items() if key != "known"}
        return Rounds(sizes, NETWORK, gold="known" in given, **more)
    model = {"coins": Coins(), "matrices": Matrices(), "matrices with a prior": Matrices(0.5)}[name]
    return Em(sizes, n_labels, model, steps=4, b=1.0, tolerance=0)


def whole_of(triples, sizes, known=None):
    monolith = parts_of(*triples, sizes, known)
    assert len(monolith) == 1
    return monolith[0]


def cut(whole, at):
    """Divide a part at these items."""
    edges = [0, *sorted(set(at)), whole.n_items]
    ends = np.append(0, np.cumsum(whole.per_item))
    out = []
    for start, stop in pairwise(edges):
        rows = slice(ends[start], ends[stop])
        known = None if whole.known is None else whole.known[start:stop]
        out.append(Part(whole.per_item[start:stop], whole.annotator[rows], whole.label[rows], known))
    return out


def posterior_of(aggregator, some):
    state = run(aggregator, asked(some))
    posterior = joined([aggregator.believe(part, state) for part in some])
    return posterior if isinstance(posterior, np.ndarray) else posterior.toarray()


@SOME
@given(
    seed=SEEDS,
    at=st.lists(st.integers(0, 13)),
    piece=st.integers(1, 12),
    name=st.sampled_from(AGGREGATORS),
    more=st.booleans(),
)
def test_any_parts_and_pieces_give_the_same(many, seed, at, piece, name, more):
    triples, (N, R, K) = crowd(seed, 14)
    sizes = Sizes(N, R, K)
    assert sizes.sparse == many
    given = side_information(seed, (N, R, K)) if more else {}
    whole = whole_of(triples, sizes, given.get("known"))
    aggregator = aggregator_of(name, sizes, len(triples[0]), given)
    expected = posterior_of(aggregator, [whole])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_model_parts, "PIECE", piece)
        patch.setattr(label_model_parts, "PIECE_NAMED", piece)
        patch.setattr(dawid_skene, "PIECE", piece)
        found = posterior_of(aggregator, cut(whole, [place for place in at if place < N]))
    np.testing.assert_allclose(found, expected, atol=1e-10, rtol=0)


@SOME
@given(seed=SEEDS, more=st.booleans())
def test_label_model_in_parts_equals_that_of_the_whole(many, seed, more):
    triples, (N, R, K) = crowd(seed, 14)
    given = side_information(seed, (N, R, K)) if more else {}
    sizes = Sizes(N, R, K)
    whole = whole_of(triples, sizes, given.get("known"))
    found = posterior_of(aggregator_of("rounds", sizes, 0, {**given, "power": 1.0}), cut(whole, range(0, N, 3)))
    np.testing.assert_allclose(
        found, posterior_matrix(triples, (N, R, K), named_only=many, **given), atol=1e-10, rtol=0
    )


@SOME
@given(seed=SEEDS, name=st.sampled_from(AGGREGATORS))
def test_sparse_equals_dense_where_all_classes_are_named(seed, name):
    randomness = np.random.default_rng(seed)
    N, K, R = 6, 3, 8
    item = np.repeat(np.arange(N), R)
    label = np.concatenate([randomness.permutation([*range(K), *randomness.integers(K, size=R - K)]) for _ in range(N)])
    sizes = Sizes(N, R, K)
    triples = item, np.tile(np.arange(R), N), label
    aggregator = aggregator_of(name, sizes, len(item), {})
    dense = posterior_of(aggregator, parts_of(*triples, sizes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "MOST_CELLS", 0)
        named = posterior_of(aggregator_of(name, sizes, len(item), {}), parts_of(*triples, sizes))
    np.testing.assert_allclose(named, dense, atol=1e-9, rtol=0)


def test_a_repeated_step_gives_the_same(many):
    """A worker that stops after writing its posteriors, before returning its counts, repeats the step."""
    triples, (N, R, K) = crowd(7, 14)
    sizes = Sizes(N, R, K)
    expected = posterior_of(aggregator_of("rounds", sizes, 0, {}), [whole_of(triples, sizes)])
    part = whole_of(triples, sizes)
    once = asked([part])

    def twice(function, *given):
        once(function, *given)
        return once(function, *given)

    aggregator = aggregator_of("rounds", sizes, 0, {})
    state = run(aggregator, twice)
    found = aggregator.believe(part, state)
    np.testing.assert_array_equal(found if isinstance(found, np.ndarray) else found.toarray(), expected)


def test_an_interrupted_run_continues(many):
    triples, (N, R, K) = crowd(3, 14)
    sizes = Sizes(N, R, K)
    part = whole_of(triples, sizes)
    aggregator = aggregator_of("matrices", sizes, len(triples[0]), {})
    states = []
    whole = run(aggregator, asked([part]), after=lambda state: states.append(pickle.dumps(state)))
    again = run(aggregator, asked([part]), pickle.loads(states[2]))
    np.testing.assert_array_equal(again.log_posterior, whole.log_posterior)


def test_parts_in_memory_hold_so_many_labels(monkeypatch):
    monkeypatch.setattr(parts, "LABELS", 5)
    monkeypatch.setattr(parts, "LABELS_A_CELL", 1)
    item = np.array([4, 0, 1, 1, 0, 2, 2, 2, 4, 4, 4, 4, 4, 4, 4])
    annotator = np.arange(len(item)) % 2
    found = parts_of(item, annotator, annotator, Sizes(6, 2, 2))
    assert [part.per_item.tolist() for part in found] == [[2, 2, 3, 0], [8, 0]]
    assert found[1].annotator.tolist() == [0, 0, 1, 0, 1, 0, 1, 0]  # in the order in which they came


@pytest.mark.parametrize("name", AGGREGATORS)
def test_threads_give_the_same_bytes(monkeypatch, name):
    triples, (N, R, K) = crowd(7, 14)
    sizes = Sizes(N, R, K)
    found = []
    for limit in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", limit)
        monkeypatch.setattr(parts, "cores", lambda: 2)
        divided = cut(whole_of(triples, sizes), range(0, N, 2))
        assert len(divided) > 2
        found.append(believe_in_memory(aggregator_of(name, sizes, len(triples[0]), {}), divided)[1])
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize(("limit", "expected"), [("", 4), ("3", 3), ("2,1", 2), ("9", 4), ("0", 4), ("many", 4)])
def test_omp_num_threads_limits_the_threads(monkeypatch, limit, expected):
    monkeypatch.setattr(parts, "cores", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert parts.threads() == expected


def test_posteriors_of_very_unlikely_labels():
    """The likelihoods of an item are below the smallest number, but not their ratio."""
    scores = np.array([[-2000.0, -2001.0], [-1.0, -1.0], [-np.inf, -900.0], [-3000.0, -9000.0]])
    log_likelihood = normalise(scores, np.log([0.5, 0.5]))
    right = 1 / (1 + np.exp(-1))
    np.testing.assert_allclose(scores, [[right, 1 - right], [0.5, 0.5], [0, 1], [1, 0]], atol=1e-15)
    expected = -2000 + np.log1p(np.exp(-1)) - np.log(2) - 1 - 900 - np.log(2) - 3000 - np.log(2)
    assert log_likelihood == pytest.approx(expected, abs=1e-10)


def test_keyed_sums_by_hand():
    some = Keyed.total(np.array([1.0, 2.0, 4.0]), np.array([7, 2**60, 7]))
    some += Keyed.total(np.array([8.0, 16.0]), np.array([2**60, 1]))
    assert some[np.array([1, 7, 8, 2**60])].tolist() == [16.0, 5.0, 0.0, 10.0]
    assert [values.tolist() for values in pickle.loads(pickle.dumps(some)).items()] == [
        [1, 7, 2**60],
        [16.0, 5.0, 10.0],
    ]
    nothing = Keyed.total(np.empty(0), np.empty(0, np.int64))
    assert nothing[np.array([3])].tolist() == [0.0]


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), max_size=8), min_size=1, max_size=8))
def test_keyed_sums_are_sums(batches):
    def keyed(batch):
        return Keyed.total(np.array([v for _, v in batch], float), np.array([k for k, _ in batch], np.int64))

    total = added(MatrixCounts(keyed(batch), keyed(batch)) for batch in batches).cells
    expected = [sum(v for batch in batches for k, v in batch if k == key) for key in range(10)]
    assert total[np.arange(10)].tolist() == expected


def test_sparse_and_dense_posteriors_are_read_alike():
    from scipy import sparse

    dense = np.array([[0.2, 0.8, 0.0], [0.0, 0.0, 0.0], [0.5, 0.0, 0.5]])
    for posterior in (dense, sparse.csr_array(dense)):
        best, top = likeliest(posterior)
        assert best.tolist() == [1, 0, 0]
        assert top.tolist() == [0.8, 0.0, 0.5]
        assert posterior_at(posterior, np.array([0, 1, 2, 2]), np.array([0, 2, 1, 2])).tolist() == [0.2, 0.0, 0.0, 0.5]
