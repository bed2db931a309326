"""Check that episodes have distinct classes, distinct examples and correct truths, without padding."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdshot.errors import CrowdshotError
from crowdshot.training.episodes import sample
from crowdshot.training.pools import ClassPool


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def numbered_pool(counts, shape=(2,)):
    """Return a pool in which every element of an example is class * 100 + place; padding is -1."""
    room = max(counts)
    examples = torch.full((len(counts), room), -1.0)
    for c, count in enumerate(counts):
        examples[c, :count] = c * 100 + torch.arange(count)
    examples = examples.view(len(counts), room, *(1 for _ in shape)).expand(len(counts), room, *shape)
    return ClassPool(examples.contiguous(), torch.tensor(counts), tuple(f"class {c}" for c in range(len(counts))))


@settings(max_examples=50, deadline=None)
@given(
    counts=st.lists(st.integers(4, 9), min_size=3, max_size=6),
    ways=st.integers(1, 3),
    shots=st.integers(1, 2),
    queries=st.integers(0, 2),
    n_episodes=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
def test_an_episode_is_consistent(counts, ways, shots, queries, n_episodes, seed):
    pool = numbered_pool(counts, shape=(2, 3))
    episodes = sample(pool, n_episodes, ways, shots, queries, seeded(seed))
    assert episodes.support.shape == (n_episodes, ways * shots, 2, 3)
    assert episodes.query.shape == (n_episodes, ways * queries, 2, 3)
    assert episodes.support_truth.shape == (n_episodes, ways * shots)
    assert episodes.query_truth.shape == (n_episodes, ways * queries)
    assert episodes.support_truth.dtype == torch.int64
    for b in range(n_episodes):
        numbers = torch.cat([episodes.support[b, :, 0, 0], episodes.query[b, :, 0, 0]]).long()
        truth = torch.cat([episodes.support_truth[b], episodes.query_truth[b]])
        assert (numbers >= 0).all(), "padding was drawn"
        assert len(numbers.unique()) == len(numbers), "an example was drawn twice"
        assert len(episodes.classes[b].unique()) == ways, "a class was drawn twice"
        assert (episodes.classes[b][truth] == numbers // 100).all(), "a truth names another class"
        assert torch.bincount(episodes.support_truth[b], minlength=ways).tolist() == [shots] * ways


def test_classes_and_examples_are_drawn_uniformly():
    pool = numbered_pool([3, 6, 4, 5])
    episodes = sample(pool, 8000, 2, 1, 1, seeded())
    classes = torch.bincount(episodes.classes.flatten(), minlength=4) / 8000
    assert (classes - 0.5).abs().max() < 0.03  # s.d. 0.0056
    first = torch.bincount(episodes.classes[:, 0], minlength=4) / 8000
    assert (first - 0.25).abs().max() < 0.025  # positions of classes are uniform: s.d. 0.0048
    for drawn in (episodes.support, episodes.query):
        numbers = torch.bincount(drawn[..., 0].long().flatten(), minlength=400).view(4, 100)
        for c, count in enumerate([3, 6, 4, 5]):
            share = numbers[c, :count] / numbers[c].sum()
            assert (share - 1 / count).abs().max() < 0.04  # about 4,000 draws a class, s.d. at most 0.0075


def test_labelled_items_are_drawn_first():
    """Class 0 has three labelled items and class 1 has one; padding has no labels and is never drawn."""
    pool = numbered_pool([6, 4])
    crowd = torch.full((2, 6, 3), -1, dtype=torch.int16)
    for place in (1, 2, 5):
        crowd[0, place, place % 3] = 1
    crowd[1, 3, 0] = 0
    pool = replace(pool, crowd_labels=crowd)
    episodes = sample(pool, 300, 2, 2, 2, seeded())
    support, query = (x[..., 0].long() for x in (episodes.support, episodes.query))
    of_0, of_1 = ([set(row[row // 100 == c].tolist()) for row in support] for c in (0, 1))
    assert {frozenset(pair) for pair in of_0} == {frozenset(x) for x in ({1, 2}, {1, 5}, {2, 5})}
    assert all(103 in pair for pair in of_1), "the only one, and then any other"
    assert set().union(*of_1) == {100, 101, 102, 103}
    assert all(len({1, 2, 5} & set(row.tolist())) == 1 for row in query), "queries follow: the third is asked"
    assert set(query.flatten().tolist()) == {*range(6), 100, 101, 102}


def test_the_whole_pool_is_reachable():
    pool = numbered_pool([4, 4])
    episodes = sample(pool, 1, 2, 3, 1, seeded())
    drawn = torch.cat([episodes.support[0, :, 0], episodes.query[0, :, 0]])
    assert sorted(drawn.tolist()) == [0, 1, 2, 3, 100, 101, 102, 103]


def test_the_seed_determines_episodes():
    pool = numbered_pool([9] * 8)
    a, b, c = (sample(pool, 5, 3, 2, 2, seeded(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert not torch.equal(a.support, c.support)


def test_type_is_the_pools():
    pool = ClassPool(torch.zeros(3, 4, 5, dtype=torch.uint8), torch.full((3,), 4), ("a", "b", "c"))
    assert sample(pool, 2, 2, 1, 1).support.dtype == torch.uint8


def test_split_is_disjoint_and_reproducible():
    pool = numbered_pool(list(range(3, 13)))
    parts = pool.split([5, 3], seed=0)
    assert [len(part.names) for part in parts] == [5, 3]
    names = [name for part in parts for name in part.names]
    assert len(set(names)) == 8
    for part in parts:
        for c, name in enumerate(part.names):
            old = pool.names.index(name)
            assert torch.equal(part.examples[c], pool.examples[old])
            assert part.counts[c] == pool.counts[old]
        assert part.smallest == part.counts.min()
    assert [part.names for part in pool.split([5, 3], seed=0)] == [part.names for part in parts]
    assert pool.split([5, 3], seed=1)[0].names != parts[0].names


def test_from_lists_pads():
    pool = ClassPool.from_lists({"b": np.ones((2, 3), np.uint8), "a": [np.full(3, 7, np.uint8)]})
    assert pool.names == ("b", "a")
    assert pool.counts.tolist() == [2, 1]
    assert pool.smallest == 1
    assert pool.examples.dtype == torch.uint8
    assert pool.examples.tolist() == [[[1] * 3] * 2, [[7] * 3, [0] * 3]]


def test_from_arrays_groups_by_label():
    pool = ClassPool.from_arrays(np.arange(10.0).reshape(5, 2), ["cat", "ant", "cat", "cat", "ant"])
    assert pool.names == ("ant", "cat")
    assert pool.counts.tolist() == [2, 3]
    assert pool.examples[0, :2].tolist() == [[2, 3], [8, 9]]
    assert pool.examples[1].tolist() == [[0, 1], [4, 5], [6, 7]]


def test_moving_a_pool_keeps_everything():
    pool = numbered_pool([4, 5]).to("cpu")
    assert pool.smallest == 4
    assert pool.names == ("class 0", "class 1")
    assert torch.equal(pool.examples, numbered_pool([4, 5]).examples)


def test_bad_arguments_are_refused():
    pool = numbered_pool([4, 6, 8])
    with pytest.raises(CrowdshotError, match="ways is 4, expected at most 3"):
        sample(pool, 1, 4, 1, 1)
    with pytest.raises(CrowdshotError, match=r"smallest class .* 4 examples, expected 5 for 3 shots and 2 queries"):
        sample(pool, 1, 2, 3, 2)
    with pytest.raises(CrowdshotError, match="shots is 0, expected 1 or more"):
        sample(pool, 1, 2, 0, 1)
    with pytest.raises(CrowdshotError, match=r"sizes is \[2, 2\], expected positive numbers with a sum of at most 3"):
        pool.split([2, 2], seed=0)
    with pytest.raises(CrowdshotError, match=r"examples has the shape .*, expected \(3, M, ...\) for 3 names"):
        ClassPool(pool.examples[:2], pool.counts, pool.names)
    with pytest.raises(CrowdshotError, match="counts has the value 9, expected 1 to 8"):
        ClassPool(pool.examples, torch.tensor([4, 9, 1]), pool.names)
    with pytest.raises(CrowdshotError, match="Class 'b' has no examples"):
        ClassPool.from_lists({"a": np.zeros((1, 2)), "b": np.zeros((0, 2))})
    with pytest.raises(CrowdshotError, match=r"'b' has examples of shape \(3,\).*expected \(2,\) .* as in class 'a'"):
        ClassPool.from_lists({"a": np.zeros((1, 2)), "b": np.zeros((1, 3))})
    with pytest.raises(
        CrowdshotError, match=r"classes has the shape \(2,\), expected \(3,\), the class of each example"
    ):
        ClassPool.from_arrays(np.zeros((3, 2)), ["a", "b"])
    with pytest.raises(CrowdshotError, match="examples is empty"):
        ClassPool.from_lists({})
