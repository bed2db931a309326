"""Test the paper's episodes: their numbers, reproducibility, classes and labels."""

import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.errors import CrowdshotError
from crowdshot.training.pools import ClassPool
from crowdshot_paper.datasets.dataset_files import Dataset
from crowdshot_paper.draws import draw_episodes, split_classes, toy_dataset
from crowdshot_paper.episode_cells import CROWDS, QUERIES, REAL, SOURCE_CROWD, TARGETS, Cell
from crowdshot_paper.experiments import EXPERIMENTS, IN_MAIN, WITH_ANNOTATION

CELL = Cell(12, 5, SOURCE_CROWD)


def numbered(n_classes=12, n_examples=20, crowd=None, name="numbered"):
    """Return a dataset whose examples are numbers: class * 100 + place."""
    numbers = torch.arange(n_classes)[:, None, None] * 100 + torch.arange(n_examples)[:, None]
    pool = ClassPool(numbers, torch.full((n_classes,), n_examples), tuple(map(str, range(n_classes))), crowd)
    return Dataset(name, pool, FeatureInput(1), "")


def equal(a, b):
    return all(x is y is None or torch.equal(x, y) for x, y in zip(a, b, strict=True))


# ---- numbers --------------------------------------------------------------------------------------------------------


def test_omniglots_classes_are_split_as_in_the_paper():
    parts = split_classes(TARGETS["omniglot"], 964, 0)
    assert [len(part) for part in parts] == [764, 100, 100]
    assert sorted(c for part in parts for c in part) == list(range(964)), "each class once"
    assert split_classes(TARGETS["omniglot"], 964, 0) == parts
    others = [split_classes(TARGETS["omniglot"], 964, split)[2] for split in range(5)]
    assert len({tuple(test) for test in others}) == 5
    assert len(set(others[0]) & set(others[1])) < 30, "one in ten by chance"


def test_photos_are_split_as_in_the_paper():
    for name in ("miniimagenet", "labelme", "cifar10h"):
        parts = split_classes(TARGETS[name], 100, 3)
        assert [len(part) for part in parts] == [70, 10, 20]
        assert len({c for part in parts for c in part}) == 100


def test_too_few_classes_are_refused():
    with pytest.raises(CrowdshotError, match=re.escape("omniglot has 900 classes, expected 964 for splits of 764 + 1")):
        split_classes(TARGETS["omniglot"], 900, 0)


def test_main_has_nine_sizes_by_four_crowds():
    for dataset in ("omniglot", "miniimagenet"):
        cells = EXPERIMENTS["main"].cells(dataset)
        assert len(cells) == len(set(cells)) == 36
        assert {cell.size for cell in cells} == {(n, r) for n in (4, 12, 20) for r in (3, 5, 7)}
        assert {cell.shots for cell in cells} == {1, 3, 5}
        assert {cell.ways for cell in cells} == {4}
        assert TARGETS[dataset].episodes == 50
    spammers = {cell.crowd: CROWDS[cell.crowd]["spammer"] for cell in cells}
    assert spammers == {"E0.1 H0.8 S0.1": 0.1, "E0.1 H0.7 S0.2": 0.2, "E0.1 H0.6 S0.3": 0.3, "E0.1 H0.5 S0.4": 0.4}
    assert CROWDS[SOURCE_CROWD] == {"expert": 0.1, "hammer": 0.7, "spammer": 0.2}


def test_other_annotators_are_four_other_crowds():
    crowds = {cell.crowd for cell in EXPERIMENTS["other-annotators"].cells("omniglot")}
    assert crowds == {"H1", "F1", "C1", "H0.33 F0.33 C0.33"}
    assert CROWDS["F1"] == {"flipper": 1.0}


def test_real_crowds_have_all_their_classes_and_ten_episodes():
    assert EXPERIMENTS["labelme"].cells("labelme") == [Cell(n, 0, REAL, 8) for n in (8, 24, 40)]
    assert EXPERIMENTS["cifar10h"].cells("cifar10h") == [Cell(n, 0, REAL, 10) for n in (10, 30, 50)]
    assert {TARGETS[name].episodes for name in ("labelme", "cifar10h")} == {10}
    assert EXPERIMENTS["class-imbalance"].cells("labelme") == [Cell(28, 0, REAL, 8, scarce=3)]


def test_large_experiments_are_limited_by_class_sizes():
    def sizes(name, dataset):
        return {(cell.shots, cell.n_annotators) for cell in EXPERIMENTS[name].cells(dataset)}

    assert sizes("large-support", "miniimagenet") == {(5, 7), (10, 7), (20, 7), (30, 7), (40, 7)}
    assert sizes("large-support", "omniglot") == {(5, 7), (10, 7)}, "20 drawings of a character, 10 for queries"
    assert sizes("large-annotators", "omniglot") == {(10, 7), (10, 10), (10, 20), (10, 30)}


def test_every_experiment_and_method_is_registered():
    asked = """main spammers labelme cifar10h em-steps embedding confusion other-annotators dirichlet-b class-imbalance
    with-pseudo-annotation noisy-label-learning example-dependent large-support large-annotators cost"""
    assert set(asked.split()) <= set(EXPERIMENTS)
    main = "Ours LRMV LRDS RFMV RFDS PrMV PrDS PrSV MaMV MaDS CL MCL CNAL MCNAL"
    assert set(IN_MAIN) >= {*main.split(), "w/o PA"}
    assert set(WITH_ANNOTATION) == {f"{name} w/ PA" for name in ("PrMV", "PrDS", "MaMV", "MaDS", "MCL", "MCNAL")}
    for experiment in EXPERIMENTS.values():
        assert experiment.methods or experiment.beside, "nothing to show"
        assert set(experiment.beside) <= set(EXPERIMENTS)
        assert set(experiment.datasets) <= set(TARGETS)


# ---- episodes -------------------------------------------------------------------------------------------------------


def test_episodes_depend_only_on_their_arguments():
    def drawn(**changes):
        given = {"dataset": numbered(), "classes": None, "cell": CELL, "n": 6, "split": 0, "role": "test", **changes}
        torch.manual_seed(torch.seed())  # the global seed has no effect
        return draw_episodes(**given)

    first = drawn()
    assert equal(first, drawn())
    for changes in (
        {"split": 1},
        {"role": "validation"},
        {"dataset": numbered(name="another")},
        {"cell": replace(CELL, n_annotators=7)},
        {"cell": replace(CELL, crowd="H1")},
        {"cell": replace(CELL, n_support=20)},
    ):
        assert not torch.equal(drawn(**changes).query, first.query), changes


def test_episodes_are_those_of_stored_results():
    """Stored results were measured on these episodes."""
    batch = draw_episodes(numbered(), None, CELL, 50, 0, "test")
    assert batch.query[0, :4, 0].tolist() == [919, 911, 902, 904]
    assert batch.labels[0, 0].tolist() == [1, 0, 0, 1, 1]


@settings(max_examples=30)
@given(
    shots=st.integers(1, 10),
    annotators=st.integers(1, 7),
    ways=st.integers(2, 6),
    split=st.integers(0, 4),
    crowd=st.sampled_from(sorted(CROWDS)),
    classes=st.permutations(range(12)),
)
def test_an_episode_agrees_with_its_cell(shots, annotators, ways, split, crowd, classes):
    cell = Cell(shots * ways, annotators, crowd, ways)
    allowed = classes[:7]
    batch = draw_episodes(numbered(), allowed, cell, 3, split, "test")
    assert batch.support.shape == (3, cell.n_support, 1)
    assert batch.labels.shape == (3, cell.n_support, annotators)
    assert batch.query.shape == (3, ways * QUERIES, 1)
    assert batch.classes_in_use is None
    assert ((batch.labels >= 0) & (batch.labels < ways)).all(), "everyone labels everything"
    for support, query, truth, query_truth in zip(
        batch.support[..., 0], batch.query[..., 0], batch.support_truth, batch.query_truth, strict=True
    ):
        items = torch.cat([support, query])
        assert len(items.unique()) == len(items), "an item stands twice"
        assert {int(c) for c in items // 100} <= set(allowed)
        assert torch.bincount(query_truth).tolist() == [QUERIES] * ways
        pairs = {(int(c) // 100, int(t)) for c, t in zip(items, torch.cat([truth, query_truth]), strict=True)}
        assert len(pairs) == ways, "a truth is one class, and a class one truth"


def test_simulated_annotators_may_label_some_items_only():
    cell = Cell(12, 20, SOURCE_CROWD)
    batch = draw_episodes(numbered(), None, cell, 40, 0, "validation", (2, 3))
    given = (batch.labels >= 0).sum(-1)
    assert {int(n) for n in given.unique()} == {2, 3}
    assert torch.equal(batch.query, draw_episodes(numbered(), None, cell, 40, 0, "validation").query)


def test_simulated_annotators_have_the_expected_accuracy():
    batch = draw_episodes(numbered(), None, Cell(20, 7, "H1"), 400, 0, "test")
    right = (batch.labels == batch.support_truth[..., None]).float().mean()
    assert abs(right - 0.65) < 0.01  # a hammer's accuracy is uniform on (0.5, 0.8]: s.d. of the mean 0.0016 + 0.002


# ---- real crowds ----------------------------------------------------------------------------------------------------


def real_crowd(n_classes=8, n_examples=30, labelled=6, annotators=5):
    """Label the first ``labelled`` items of each class: annotator a chooses (class + place + a) mod C."""
    place = torch.arange(n_examples)[:, None] + torch.arange(annotators)
    answers = (torch.arange(n_classes)[:, None, None] + place) % n_classes
    answers[:, labelled:] = -1
    answers[:, :, -1] = -1  # an annotator without labels
    return numbered(n_classes, n_examples, answers.to(torch.int16))


def test_support_items_have_labels_of_real_annotators():
    dataset = real_crowd()
    batch = draw_episodes(dataset, None, Cell(40, 0, REAL, 8), 10, 0, "test")
    assert batch.labels.shape == (10, 40, 5)
    assert (batch.labels[..., :-1] >= 0).all(), "every support item is one that somebody labelled"
    assert (batch.labels[..., -1] == -1).all()
    numbers = batch.support[..., 0]
    for b in range(10):
        episode_class = {int(numbers[b, i]) // 100: int(batch.support_truth[b, i]) for i in range(40)}
        for i in range(40):
            number = int(numbers[b, i])
            chosen = [(number // 100 + number % 100 + a) % 8 for a in range(4)]
            assert batch.labels[b, i, :4].tolist() == [episode_class[c] for c in chosen]
    assert not any(set(s.tolist()) & set(q.tolist()) for s, q in zip(numbers, batch.query[..., 0], strict=True))


def test_a_simulated_crowd_replaces_a_real_one():
    dataset = real_crowd()
    batch = draw_episodes(dataset, None, Cell(8, 3, SOURCE_CROWD, 8), 10, 0, "validation")
    assert batch.labels.shape == (10, 8, 3)
    assert (batch.labels >= 0).all()


@pytest.mark.parametrize("crowd", [REAL, SOURCE_CROWD])
def test_three_classes_have_one_labelled_item_and_five_have_five(crowd):
    dataset = real_crowd() if crowd == REAL else numbered(8)
    cell = Cell(28, 0 if crowd == REAL else 20, crowd, 8, scarce=3)
    batch = draw_episodes(dataset, None, cell, 200, 0, "test")
    labelled = (batch.labels >= 0).any(-1)
    assert torch.equal(labelled, batch.support_truth >= 0)
    counts = torch.stack([(labelled & (batch.support_truth == k)).sum(-1) for k in range(8)], -1)  # (B, K)
    assert (counts.sort(-1).values == torch.tensor([1, 1, 1, 5, 5, 5, 5, 5])).all()
    scarce = (counts == 1).float().mean(0)
    assert (scarce - 3 / 8).abs().max() < 0.12  # the class is random: s.d. 0.034
    assert torch.bincount(batch.query_truth.flatten()).tolist() == [200 * QUERIES] * 8


def test_toy_datasets_have_the_shapes_of_real_ones():
    for name, target in TARGETS.items():
        toy = toy_dataset(name)
        assert toy.pool.examples.dtype == torch.uint8
        assert toy.pool.examples.ndim == (4 if name == "omniglot" else 5)
        assert toy.pool.smallest >= 10 + QUERIES
        if toy.pool.crowd_labels is None:
            assert len(toy.pool.names) >= 26
        else:
            assert len(toy.pool.names) == target.ways
            said = toy.pool.crowd_labels[:, :-1]
            assert ((said >= 0).sum(-1) == 3).all()
            right = (said == torch.arange(target.ways)[:, None, None]).sum() / (said >= 0).sum()
            assert 0.3 < right < 0.8
