"""Test simulated crowds: reproducibility, and the effect of every ingredient."""

from dataclasses import fields, replace

import pytest
import torch

from crowdshot.errors import CrowdshotError
from crowdshot.training.simulated_crowds import INGREDIENTS, Crowds, World, draw, with_gold

MORE_KNOWN = ("gold", "history", "told-order")  # these add side information to the same crowds


def crowds(world=None, seed=0, labels=6_000):
    return draw(world or World(), labels, torch.Generator().manual_seed(seed))


def plain(**given):
    """Return a world with only the given ingredients, in which nearly all labels are right."""
    world = World()
    for ingredient in INGREDIENTS:
        world = world.without(ingredient)
    sure = {"classes": (4,), "accuracy": (0.985, 0.985), "items": (100, 300), "annotators": (10, 30)}
    return replace(world, **{**sure, "labels_an_item": (5, 5), **given})


def right(c: Crowds):
    """Return (L,) whether each label is correct."""
    return c.label == c.truth[c.item]


def votes(c: Crowds):
    table = torch.zeros(len(c.truth), c.n_classes)
    return table.index_put_((c.item, c.label), torch.ones(len(c.item)), accumulate=True)


def vote_right(c: Crowds):
    """Return (N,) the accuracy of majority vote; ties count in part."""
    top = votes(c) == votes(c).max(1, keepdim=True).values
    return top[torch.arange(len(c.truth)), c.truth] / top.sum(1)


def by_annotator(values, c: Crowds):
    """Return (R,) the mean over each annotator's labels, and the number of labels."""
    n = torch.bincount(c.annotator, minlength=len(c.crowd_of_annotator))
    return torch.bincount(c.annotator, values.double(), len(c.crowd_of_annotator)) / n.clamp_min(1), n


def spread(values, n, most=1.0):
    """Return the variance over annotators with 20 labels or more, minus the variance of sampling."""
    some = values[n >= 20]
    return float(some.var() - (some * (most - some) / n[n >= 20]).mean())


def test_the_same_seed_gives_the_same_crowds():
    one, two, other = crowds(seed=3), crowds(seed=3), crowds(seed=4)
    for field in fields(Crowds):
        a, b = getattr(one, field.name), getattr(two, field.name)
        assert a == b if isinstance(a, int) else torch.equal(a, b)
    assert len(one.label) != len(other.label) or not torch.equal(one.label, other.label)


def test_only_the_generator_is_drawn_from():
    before = torch.get_rng_state()
    crowds()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("seed", range(8))
def test_crowds_are_sound(seed):
    c = crowds(seed=seed)
    N, R = len(c.truth), len(c.crowd_of_annotator)
    assert len(c.crowd_of_item) == N
    assert len(torch.unique(c.item * R + c.annotator)) == len(c.item)  # no annotator labels an item twice
    assert torch.equal(torch.unique(c.item), torch.arange(N))  # every item has a label
    assert torch.equal(c.crowd_of_item[c.item], c.crowd_of_annotator[c.annotator])  # of an annotator of its crowd
    assert 0 <= int(c.label.min()) <= int(c.label.max()) < c.n_classes in World().classes
    assert 0 <= int(c.truth.min()) <= int(c.truth.max()) < c.n_classes
    assert int(c.crowd_of_item.max()) + 1 == c.n_crowds
    assert len(c.label) > 3_000


def test_the_distribution_of_crowds_includes_real_ones():
    """Real crowds are in the range: their medians are 0.73 for labels and 0.89 for majority votes."""
    labels, vote = [], []
    for seed in range(25):
        c = crowds(seed=seed)
        per_crowd = torch.bincount(c.crowd_of_item[c.item], right(c).double()) / torch.bincount(c.crowd_of_item[c.item])
        labels += per_crowd.tolist()
        vote += (torch.bincount(c.crowd_of_item, vote_right(c).double()) / torch.bincount(c.crowd_of_item)).tolist()
    labels, vote = torch.tensor(labels), torch.tensor(vote)
    assert 0.5 < labels.median() < 0.6
    assert 0.6 < vote.median() < 0.75
    assert labels.quantile(0.05) < 0.3
    assert labels.quantile(0.95) > 0.75
    assert vote.quantile(0.95) > 0.93


@pytest.mark.parametrize("ingredient", INGREDIENTS)
def test_every_ingredient_has_a_switch(ingredient):
    world = World().without(ingredient)
    assert world != World()
    assert world.without(ingredient) == world
    assert crowds(world).n_classes == crowds().n_classes


@pytest.mark.parametrize("ingredient", [name for name in INGREDIENTS if name not in ("many-labels", "complete")])
def test_a_switch_changes_nothing_else(ingredient):
    """With the same seed, sizes, truth and labelled pairs are the same, unless the ingredient concerns them."""
    with_it, without = crowds(seed=7), crowds(World().without(ingredient), seed=7)
    assert torch.equal(with_it.crowd_of_item, without.crowd_of_item)
    assert torch.equal(with_it.crowd_of_annotator, without.crowd_of_annotator)
    if ingredient != "class-sizes":
        assert torch.equal(with_it.truth, without.truth)
    if ingredient not in ("class-sizes", "activity", "uneven-labels"):
        assert torch.equal(with_it.annotator, without.annotator)
        same = (with_it.label == without.label).double().mean()
        assert same == 1 if ingredient in MORE_KNOWN else 0.5 < same < 1


def test_an_unknown_ingredient_is_refused():
    with pytest.raises(CrowdshotError, match=r"^ingredient is 'salt', expected one of skills, biases, .*\.$"):
        World().without("salt")


def test_a_generator_on_another_device_is_refused():
    with pytest.raises(CrowdshotError, match=r"^generator is on the device cpu, expected meta\.$"):
        draw(World(), 100, torch.Generator(), "meta")


# ---- each ingredient alone, in a world in which nearly all labels are right -----------------------------------------


def test_plain_crowds_are_right():
    c = crowds(plain())
    assert right(c).double().mean() > 0.97
    assert torch.bincount(c.item).unique().tolist() in ([5], [4], [5, 6], [4, 5])


def test_skills():
    c, varied = crowds(plain()), crowds(plain(accuracy=(0.7, 0.7), skill_spread=(1.5, 1.5)))
    assert spread(*by_annotator(right(varied), varied)) > 0.01 > spread(*by_annotator(right(c), c)) + 0.005


def test_spammers_are_right_by_chance():
    c = crowds(plain(spammers=(1, 1), spammer_crowds=1.0, spammer_bias=(0, 0)))
    assert right(c).double().mean() == pytest.approx(0.25, abs=0.03)


def test_spammers_prefer_classes():
    c = crowds(plain(spammers=(1, 1), spammer_crowds=1.0, spammer_bias=(8, 8)))
    counts = torch.zeros(len(c.crowd_of_annotator), 4).index_put_(
        (c.annotator, c.label), torch.ones(len(c.label)), accumulate=True
    )
    most = (counts.max(1).values / counts.sum(1).clamp_min(1))[counts.sum(1) >= 10]
    assert most.mean() > 0.85
    assert right(c).double().mean() < 0.4


def test_adversaries_avoid_the_truth():
    assert right(crowds(plain(adversaries=1.0))).double().mean() < 0.05


def test_biases_are_each_annotators_own():
    c = crowds(plain(classes=(2,), accuracy=(0.62, 0.62), bias=(2, 2)))
    ones = by_annotator(c.label == 1, c)
    assert spread(*ones) > 0.005
    assert spread(*by_annotator((fair := crowds(plain(classes=(2,), accuracy=(0.62, 0.62)))).label == 1, fair)) < 0.005


def test_a_shared_bias_concerns_the_whole_crowd():
    c = crowds(plain(accuracy=(0.62, 0.62), shared_bias=(2, 2), shared_bias_crowds=1.0))
    per_crowd = torch.zeros(c.n_crowds, 4).index_put_(
        (c.crowd_of_item[c.item], c.label), torch.ones(len(c.label)), accumulate=True
    )
    largest = (per_crowd.max(1).values / per_crowd.sum(1)).mean()
    fair = crowds(plain(accuracy=(0.62, 0.62)))
    counted = torch.bincount(fair.label).double()
    assert largest > 0.4 > (counted.max() / counted.sum()) + 0.1


def shared_mistakes(c: Crowds):
    """Return the share of pairs of wrong labels of an item that are equal."""
    wrong = votes(c)
    wrong[torch.arange(len(c.truth)), c.truth] = 0
    pairs = wrong.sum(1) * (wrong.sum(1) - 1)
    return float((wrong * (wrong - 1)).sum() / pairs.sum())


def test_similar_classes_cause_shared_mistakes():
    c = crowds(plain(accuracy=(0.8, 0.8), look_alikes=(0.25, 0.25), look_alike_strength=(1, 1)))
    base = crowds(plain(accuracy=(0.8, 0.8)))
    assert shared_mistakes(c) > shared_mistakes(base) + 0.1
    assert shared_mistakes(base) == pytest.approx(1 / 3, abs=0.05)


def test_own_confusions_are_not_shared():
    c = crowds(plain(accuracy=(0.8, 0.8), own_confusions=(6, 6), own_confusion_crowds=1.0))
    assert right(c).double().mean() < 0.8
    assert shared_mistakes(c) == pytest.approx(1 / 3, abs=0.06)


def test_ordered_classes_are_confused_with_neighbours():
    c = crowds(plain(classes=(5,), ordered_crowds=1.0))
    wrong = ~right(c)
    assert ((c.label - c.truth[c.item]).abs()[wrong] == 1).double().mean() > 0.6


def test_strict_annotators_name_higher_classes():
    c = crowds(plain(classes=(5,), ordered_crowds=1.0, strictness=(3, 3)))
    above = by_annotator((c.label > c.truth[c.item]), c)[0] - by_annotator((c.label < c.truth[c.item]), c)[0]
    base = crowds(plain(classes=(5,), ordered_crowds=1.0))
    lenient = by_annotator((base.label > base.truth[base.item]), base)[0]
    lenient -= by_annotator((base.label < base.truth[base.item]), base)[0]
    assert above.abs().mean() > 2 * lenient.abs().mean()
    no_order = crowds(plain(classes=(5,), strictness=(3, 3)))
    assert right(no_order).double().mean() > 0.97


def test_two_classes_have_no_order():
    assert right(crowds(plain(classes=(2,), ordered_crowds=1.0, strictness=(3, 3)))).double().mean() > 0.97


@pytest.mark.parametrize(
    "given",
    [{"difficulty": (3, 3)}, {"hard_items": (1, 1), "hard_item_crowds": 1.0}],
    ids=["difficulty", "hard items"],
)
def test_hard_items_are_hard_for_all(given):
    assert right(crowds(plain(**given))).double().mean() < 0.9


def test_the_vote_is_wrong_on_misleading_items():
    c = crowds(plain(misleading_items=(1, 1), misleading_crowds=1.0, misleading_strength=(1.8, 1.8)))
    assert vote_right(c).double().mean() < 0.3
    assert shared_mistakes(c) > 0.9


def test_copied_labels_agree():
    given = {"accuracy": (0.62, 0.62), "labels_an_item": (20, 20)}
    c, base = crowds(plain(copiers=(1, 1), copier_crowds=1.0, **given)), crowds(plain(**given))
    alike = [float((votes(each) * (votes(each) - 1)).sum() / len(each.item)) for each in (c, base)]
    assert alike[0] > 1.05 * alike[1]


def test_class_sizes():
    def evenness(c):
        share = torch.bincount(c.truth, minlength=4).double() / len(c.truth)
        return float((share * share).sum())

    assert evenness(crowds(plain())) == pytest.approx(0.25, abs=0.01)
    one_crowd = {"items": (900, 1000), "annotators": (10, 11)}
    assert evenness(crowds(plain(class_sizes=(0.5, 0.5), **one_crowd), labels=1_000)) > 0.27


def test_gold_is_correct_and_partial():
    c = crowds(plain(gold_crowds=1.0, gold=(0.2, 0.2)))
    known = c.known >= 0
    assert float(known.double().mean()) == pytest.approx(0.2, abs=0.03)
    assert torch.equal(c.known[known], c.truth[known])
    assert not (crowds(plain()).known >= 0).any()


def test_history_agrees_with_accuracy():
    c = crowds(plain(skill_spread=(1.5, 1.5), accuracy=(0.7, 0.7), history_crowds=1.0, history=(100, 200)))
    has = c.right + c.wrong > 0
    assert 0.4 < float(has.double().mean()) < 0.6
    accuracy, n = by_annotator(right(c), c)
    some = has & (n >= 20)
    before = c.right[some] / (c.right + c.wrong)[some]
    assert float((before - accuracy[some]).abs().mean()) < 0.08


def test_real_crowds_can_be_given_gold():
    c = replace(crowds(plain()), known=None)
    c = replace(c, truth=torch.where(torch.arange(len(c.truth)) % 3 == 0, -1, c.truth))
    more = with_gold(replace(World(), gold_crowds=1.0), c, torch.Generator().manual_seed(0))
    assert (more.known[c.truth < 0] < 0).all()
    assert (more.known >= 0).any()


def test_few_items_may_have_equal_classes():
    c = crowds(plain(equal_classes=1.0, class_sizes=(0.5, 0.5), items=(20, 40)))
    per_crowd = torch.zeros(c.n_crowds, 4).index_put_(
        (c.crowd_of_item, c.truth), torch.ones(len(c.truth)), accumulate=True
    )
    assert (per_crowd.max(1).values - per_crowd.min(1).values).max() <= 1


def test_activity_makes_heavy_and_light_annotators():
    def largest(c):
        n = torch.bincount(c.annotator, minlength=len(c.crowd_of_annotator)).double()
        each = torch.bincount(c.crowd_of_annotator, n) / torch.bincount(c.crowd_of_annotator)
        return float((n / each[c.crowd_of_annotator]).std())

    assert largest(crowds(plain(activity=(2, 2)))) > 2 * largest(crowds(plain()))


def test_uneven_labels():
    even, uneven = crowds(plain()), crowds(plain(uneven_labels=1.0))
    assert torch.bincount(even.item).double().std() < 1 < torch.bincount(uneven.item).double().std()


def test_many_labels_and_complete_crowds():
    usual, many = crowds(plain(labels_an_item=(1, 2))), crowds(plain(labels_an_item=(1, 2), many_labels=1.0))
    assert torch.bincount(usual.item).max() <= 3 < torch.bincount(many.item).double().mean()
    complete = crowds(plain(complete=1.0))
    people = torch.bincount(complete.crowd_of_annotator)
    assert torch.equal(torch.bincount(complete.item), people[complete.crowd_of_item])
