"""Groups of items and people: by hand, against plain loops, and the level and power of the permutation test."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from crowdshot import Annotations, CrowdshotError, aggregate
from crowdshot.labels.subgroups import compare_groups, groups_of_ids, kind_of, label_distributions, variation


def crowd(seed: int, split: float = 0.0, items: int = 60, people: int = 12):
    """Two groups of people; for a share of the items, the second group sees another class."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=items)
    other = np.where(rng.random(items) < split, 1 - truth, truth)
    labels = np.full((items, people), -1)
    for person in range(people):
        seen = truth if person < people // 2 else other
        right = rng.random(items) < rng.uniform(0.6, 0.9)
        labels[:, person] = np.where(rng.random(items) < 0.5, np.where(right, seen, 1 - seen), -1)
    return Annotations.from_matrix(labels, classes=[0, 1], missing=-1)


def of_people(ann: Annotations):
    group = (np.arange(ann.n_annotators) >= ann.n_annotators // 2).astype(np.int64)[ann.annotator]
    posterior = np.asarray(aggregate.learned(ann).probabilities)
    return compare_groups(ann, posterior, "country", ["north", "south"], group)


def test_groups_by_hand() -> None:
    """Four items, three people: items 0 and 1 are in "de", 2 and 3 in "en"; the classes are known."""
    ann = Annotations.from_matrix([["a", "a", "b"], ["b", "b", "b"], ["a", None, "b"], ["b", "a", None]])
    posterior = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], dtype=float)
    values, of_item = groups_of_ids(["0", "1", "2", "3"], {"0": "de", "1": "de", "2": "en", "3": "en"})
    found = compare_groups(ann, posterior, "language", values, of_item[ann.item])
    assert (found.of, found.unknown, found.perspectives) == ("items", 0, None)
    german, english = found.groups
    assert (german.items, german.people, german.right.labels) == (2, 3, 6)
    assert german.agreement.value == pytest.approx(4 / 6)  # 1 of 3 pairs of item 0, 3 of 3 of item 1
    assert english.agreement.value == 0
    assert [share.share for share in german.shares] == pytest.approx([(2 / 3 + 0) / 2, (1 / 3 + 1) / 2])
    assert german.right.share > english.right.share  # 5 of 6 against 2 of 4, both drawn to 7 of 10
    assert german.small
    assert german.accepted == 1


def test_large_groups_have_the_accuracy_of_their_counts() -> None:
    ann = crowd(0, items=1000)
    rng = np.random.default_rng(1)
    truth = rng.integers(2, size=1000)
    group = (np.arange(1000) % 2)[ann.item]
    found = compare_groups(ann, np.eye(2)[truth], "half", ["even", "odd"], group)
    for place, each in enumerate(found.groups):
        share = (ann.label == truth[ann.item])[group == place].mean()
        assert each.right.share == pytest.approx(share, abs=0.003)
        assert each.right.low < share < each.right.high


def test_agreement_is_that_of_pairs_within_the_group() -> None:
    ann = crowd(3)
    for place, found in enumerate(of_people(ann).groups):
        same = total = 0
        for item in range(ann.n_items):
            rows = (ann.item == item) & ((ann.annotator >= 6) == bool(place))
            for one, other in combinations(ann.label[rows].tolist(), 2):
                same, total = same + (one == other), total + 1
        assert found.agreement.value == pytest.approx(same / total)


def test_variation_is_its_definition() -> None:
    rng = np.random.default_rng(0)
    item, group, label = rng.integers(5, size=80), rng.integers(3, size=80), rng.integers(4, size=80)
    expected = np.zeros(5)
    for n in range(5):
        of_item = item == n
        for g in range(3):
            n_g = (of_item & (group == g)).sum()
            for k in range(4):
                n_k = (of_item & (label == k)).sum()
                if n_g:
                    n_gk = (of_item & (group == g) & (label == k)).sum()
                    expected[n] += (n_gk - n_g * n_k / of_item.sum()) ** 2 / n_g
    assert variation(item, group, label, (5, 3, 4)) == pytest.approx(expected)


@pytest.mark.slow
def test_the_level_and_the_power_of_the_permutation_test() -> None:
    p = [of_people(crowd(seed)).perspectives.p for seed in range(40)]
    assert np.mean(np.array(p) < 0.05) <= 0.125  # 5 of 40; 2 are expected
    assert 0.3 < np.mean(p) < 0.7
    p = [of_people(crowd(seed, split=0.5)).perspectives.p for seed in range(10)]
    assert np.mean(np.array(p) < 0.05) >= 0.9


def few_labels(seed: int, each: tuple[int, ...], bias: float = 0.0):
    """40 people of two groups; each item is labelled by random people, or by some of each group."""
    rng = np.random.default_rng(seed)
    half, truth = np.arange(40) % 2, rng.integers(2, size=200)
    rows = []
    for item in range(200):
        parts = [np.arange(40)] if len(each) == 1 else [np.flatnonzero(half == g) for g in (0, 1)]
        for part, n in zip(parts, each, strict=True):
            for person in rng.choice(part, n, replace=False):
                right = rng.random() < 0.7
                label = truth[item] if right else 1 - truth[item]
                rows.append((item, person, 1 if half[person] and rng.random() < bias else label))
    item, person, label = np.array(rows).T
    ann = Annotations(item, person, label, np.arange(200), np.arange(40), np.array(["a", "b"]))
    return compare_groups(ann, np.full((200, 2), 0.5), "country", ["north", "south"], half[person]).perspectives


@pytest.mark.slow
@pytest.mark.parametrize("each", [(2,), (3,), (1, 1), (1, 3)])
def test_few_labels_per_item_are_no_evidence(each: tuple[int, ...]) -> None:
    """Random groups share fewer items than groups that were chosen for sharing them."""
    p = np.array([few_labels(seed, each).p for seed in range(25)])
    assert (p < 0.05).sum() <= 4  # 1.25 are expected


@pytest.mark.slow
@pytest.mark.parametrize("each", [(2,), (1, 1)])
def test_a_preference_shows_in_few_labels_per_item(each: tuple[int, ...]) -> None:
    assert all(few_labels(seed, each, bias=0.5).differ for seed in range(5))


def test_items_that_differ_are_named() -> None:
    labels = np.full((20, 8), 0)
    labels[3, 4:] = 1  # only item 3 is seen differently by the second half
    ann = Annotations.from_matrix(labels, classes=[0, 1])
    found = of_people(ann).perspectives
    assert [each.item for each in found.differing] == ["3"]
    assert found.differing[0].labels == {"north": {"0": 4}, "south": {"1": 4}}
    assert found.differing[0].variation == pytest.approx(4)  # 4²/4 + 4²/4 - (4² + 4²)/8


def test_kinds() -> None:
    ann = crowd(0)
    assert kind_of(ann, ann.item % 2) == "items"
    assert kind_of(ann, ann.annotator % 2) == "people"
    assert kind_of(ann, (ann.item + ann.annotator) % 2) == "labels"
    some = np.where(ann.item < 30, ann.item % 2, -1)
    assert kind_of(ann, some) == "items"


def test_distributions_are_counts() -> None:
    ann = crowd(5)
    group = ann.annotator % 2
    table = label_distributions(ann, ["x", "y"], group)
    counts = Counter(zip(ann.item.tolist(), group.tolist(), ann.label.tolist(), strict=True))
    for row in table.to_dict("records"):
        n = [counts[row["item"], "xy".index(row["group"]), k] for k in (0, 1)]
        assert row["n_labels"] == sum(n)
        assert row["p_0"] == pytest.approx(n[0] / sum(n))
    assert table["n_labels"].sum() == ann.n_labels


def test_one_value_is_no_group() -> None:
    ann = crowd(0)
    with pytest.raises(CrowdshotError) as error:
        compare_groups(ann, np.full((60, 2), 0.5), "x", ["one"], np.zeros(ann.n_labels, dtype=np.int64))
    assert error.value.argument == "by"


def test_distributions_keep_the_items_of_a_column_called_group() -> None:
    ann = crowd(5)
    renamed = Annotations.from_frame(ann.to_frame().rename(columns={"item": "group"}), {"item": "group"})
    table = label_distributions(renamed, ["x", "y"], renamed.annotator % 2)
    assert set(table["item"]) == set(renamed.items)
    assert set(table["group"]) == {"x", "y"}
