"""Check that random confusion matrices have the structure of their kind, and that labels follow the matrices."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdshot.errors import CrowdshotError
from crowdshot.training.simulated_annotators import (
    KINDS,
    OTHER_TARGETS,
    PAPER_SOURCE,
    PAPER_TARGETS,
    draw_annotators,
    draw_confusion,
    draw_kinds,
    draw_labels,
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def crowd_of(kind, n_annotators, n_classes, seed=0):
    crowd = draw_annotators(n_annotators, n_classes, {kind: 1.0}, generator=seeded(seed))
    assert (crowd.kind == KINDS.index(kind)).all()
    return crowd.confusion


@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_distributions(kind, n_classes):
    confusion = crowd_of(kind, 200, n_classes)
    assert confusion.shape == (200, n_classes, n_classes)
    assert confusion.dtype == torch.float32
    assert (confusion >= 0).all()
    torch.testing.assert_close(confusion.sum(-1), torch.ones(200, n_classes))


@pytest.mark.parametrize(("kind", "low", "high"), [("expert", 0.8, 1.0), ("hammer", 0.5, 0.8)])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_one_coin_kinds(kind, low, high, n_classes):
    confusion = crowd_of(kind, 5000, n_classes)
    q = confusion[:, 0, 0]
    assert (q >= low).all()
    assert (q <= high).all()
    assert abs(q.mean() - (low + high) / 2) < 0.01  # uniform on the range: 5,000 draws, s.d. of the mean 0.001
    assert abs(q.std() - (high - low) / 12**0.5) < 0.005
    eye = torch.eye(n_classes)
    wrong = ((1 - q) / (n_classes - 1))[:, None, None]
    torch.testing.assert_close(confusion, q[:, None, None] * eye + wrong * (1 - eye))


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_spammers_choose_uniformly(n_classes):
    confusion = crowd_of("spammer", 50, n_classes)
    torch.testing.assert_close(confusion, torch.full_like(confusion, 1 / n_classes))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_flippers_have_one_target_for_each_class(n_classes):
    confusion = crowd_of("flipper", 6000, n_classes)
    q = confusion.diagonal(dim1=-2, dim2=-1)
    assert (q[:, :1] == q).all(), "one accuracy for all classes of an annotator"
    assert (q >= 0.5).all()
    assert (q <= 0.8).all()
    off = confusion * (1 - torch.eye(n_classes))
    assert ((off > 0).sum(-1) == 1).all()
    torch.testing.assert_close(off.sum(-1), 1 - q)
    # every other class is the target equally often: 6,000 draws, s.d. of a share at most 0.0061
    share = (off > 0).float().mean(0)[~torch.eye(n_classes, dtype=torch.bool)]
    assert (share - 1 / (n_classes - 1)).abs().max() < 0.03


def test_flipping_targets_differ_between_classes_and_annotators():
    off = crowd_of("flipper", 300, 5) * (1 - torch.eye(5))
    step = (off.argmax(-1) - torch.arange(5)) % 5
    assert len(step.unique(dim=0)) > 100  # of 4^5 = 1,024 patterns


@pytest.mark.parametrize("n_classes", [2, 3, 4, 5])
def test_classwise_spammers_know_half_of_the_classes(n_classes):
    confusion = crowd_of("classwise", 6000, n_classes)
    spammed = torch.isclose(confusion, torch.tensor(1 / n_classes)).all(-1)
    perfect = torch.isclose(confusion, torch.eye(n_classes)).all(-1)
    assert (spammed ^ perfect).all()
    assert (spammed.sum(-1) == n_classes // 2).all()
    share = spammed.float().mean(0)  # s.d. at most 0.0065
    assert (share - (n_classes // 2) / n_classes).abs().max() < 0.03


@pytest.mark.parametrize("mixture", [PAPER_SOURCE, *PAPER_TARGETS, *OTHER_TARGETS, dict.fromkeys(KINDS, 0.2)])
def test_mixture_proportions(mixture):
    assert sum(mixture.values()) == pytest.approx(1)
    kind = draw_kinds((100, 200), mixture, seeded())
    for index, name in enumerate(KINDS):
        share = (kind == index).float().mean().item()
        assert share == pytest.approx(mixture.get(name, 0.0), abs=0.015)  # 20,000 draws, s.d. at most 0.0035
        if name not in mixture:
            assert share == 0


def test_the_papers_crowds():
    spammers = [mixture["spammer"] for mixture in PAPER_TARGETS]
    assert spammers == [0.1, 0.2, 0.3, 0.4]
    assert PAPER_SOURCE in PAPER_TARGETS
    assert [sorted(mixture) for mixture in OTHER_TARGETS] == [
        ["hammer"],
        ["flipper"],
        ["classwise"],
        ["classwise", "flipper", "hammer"],
    ]


def test_mixed_crowd_gives_each_annotator_the_matrix_of_its_kind():
    mixture = dict.fromkeys(KINDS, 0.2)
    confusion, kind = draw_annotators(2000, 4, mixture, generator=seeded())
    on = confusion.diagonal(dim1=-2, dim2=-1)
    expected = {"expert": (0.8, 1), "hammer": (0.5, 0.8), "spammer": (0.25, 0.25), "flipper": (0.5, 0.8)}
    for name, (low, high) in expected.items():
        mine = on[kind == KINDS.index(name)]
        assert len(mine) > 300
        assert mine.min() >= low
        assert mine.max() <= high
    assert set(on[kind == KINDS.index("classwise")].unique().tolist()) == {0.25, 1.0}


@pytest.mark.parametrize("kind", KINDS)
def test_label_frequencies_follow_the_matrix(kind):
    confusion = crowd_of(kind, 3, 4, seed=3)
    truth = torch.arange(4).repeat_interleave(10_000)
    labels = draw_labels(truth, confusion, generator=seeded(1))
    counted = torch.nn.functional.one_hot(labels, 4).float().view(4, 10_000, 3, 4).mean(1).transpose(0, 1)
    assert (counted - confusion).abs().max() < 0.025  # s.d. of a frequency at most 0.005
    assert (counted[confusion == 0] == 0).all()


def test_annotators_err_independently():
    spammers = draw_annotators(2, 2, {"spammer": 1.0}, generator=seeded()).confusion
    labels = draw_labels(torch.zeros(20_000, dtype=torch.int64), spammers, generator=seeded(1))
    assert abs((labels[:, 0] == labels[:, 1]).float().mean() - 0.5) < 0.02


def test_deterministic_rows_give_one_label():
    certain = torch.tensor([[[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    labels = draw_labels(torch.tensor([0, 1, 2] * 1000), certain, generator=seeded())
    assert labels[:, 0].tolist() == [2, 0, 1] * 1000


@settings(max_examples=40, deadline=None)
@given(
    batch=st.lists(st.integers(1, 3), max_size=2),
    n_items=st.integers(1, 6),
    n_annotators=st.integers(1, 6),
    n_classes=st.integers(2, 5),
    data=st.data(),
)
def test_shapes_and_exactly_m_labels_an_item(batch, n_items, n_annotators, n_classes, data):
    generator = seeded(data.draw(st.integers(0, 1000)))
    mixture = dict.fromkeys(KINDS, 0.2)
    crowd = draw_annotators(n_annotators, n_classes, mixture, batch, generator)
    assert crowd.kind.shape == (*batch, n_annotators)
    assert crowd.confusion.shape == (*batch, n_annotators, n_classes, n_classes)
    truth = torch.randint(n_classes, (*batch, n_items), generator=generator)
    m = data.draw(st.none() | st.integers(1, n_annotators))
    labels = draw_labels(truth, crowd.confusion, m, generator)
    assert labels.shape == (*batch, n_items, n_annotators)
    assert labels.dtype == torch.int64
    assert ((labels >= 0).sum(-1) == (n_annotators if m is None else m)).all()
    assert labels.min() >= -1
    assert labels.max() < n_classes


def test_annotators_of_each_item_are_random():
    confusion = draw_annotators(5, 3, PAPER_SOURCE, generator=seeded()).confusion
    labels = draw_labels(torch.zeros(10_000, dtype=torch.int64), confusion, 2, seeded(1))
    asked = labels >= 0
    assert (asked.float().mean(0) - 0.4).abs().max() < 0.025  # s.d. 0.0049
    assert len(asked.unique(dim=0)) == 10  # all pairs of five


def test_labels_per_item_may_differ_by_episode_and_by_item():
    confusion = draw_annotators(5, 3, PAPER_SOURCE, (2,), seeded()).confusion
    truth = torch.zeros(2, 4, dtype=torch.int64)
    by_episode = draw_labels(truth, confusion, torch.tensor([[1], [4]]), seeded())
    assert (by_episode >= 0).sum(-1).tolist() == [[1] * 4, [4] * 4]
    by_item = draw_labels(truth, confusion, torch.tensor([1, 2, 3, 9]), seeded())
    assert (by_item >= 0).sum(-1).tolist() == [[1, 2, 3, 5]] * 2


def test_one_crowd_may_label_a_batch_of_items():
    confusion = draw_annotators(5, 3, PAPER_SOURCE, generator=seeded()).confusion
    assert draw_labels(torch.zeros(7, 4, dtype=torch.int64), confusion, generator=seeded()).shape == (7, 4, 5)


def test_padding_gets_no_labels():
    confusion = draw_annotators(3, 3, PAPER_SOURCE, generator=seeded()).confusion
    labels = draw_labels(torch.tensor([2, -1, 0]), confusion, generator=seeded())
    assert ((labels >= 0).all(1)).tolist() == [True, False, True]
    assert (labels[1] == -1).all()


def test_annotators_in_use_share_the_work():
    confusion = draw_annotators(6, 3, PAPER_SOURCE, (3,), seeded()).confusion
    in_use = torch.tensor([1, 3, 6])
    truth = torch.zeros(3, 50, dtype=torch.int64)
    everyone = draw_labels(truth, confusion, generator=seeded(), annotators_in_use=in_use)
    assert (everyone >= 0).sum(-1).float().mean(1).tolist() == [1, 3, 6]
    assert (everyone[1, :, 3:] == -1).all()
    two = draw_labels(truth, confusion, 2, seeded(), in_use)
    assert ((two >= 0).sum(-1) == torch.tensor([[1], [2], [2]])).all()
    assert (two[1, :, 3:] == -1).all()
    assert (two[1, :, :3] >= 0).any(0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_classes_in_use_equal_a_smaller_problem(kind):
    in_use = torch.tensor([2, 3, 5])
    mixture = {kind: 1.0}
    confusion = draw_annotators(400, 5, mixture, (3,), seeded(), in_use).confusion
    for matrices, n in zip(confusion, in_use.tolist(), strict=True):
        real = matrices[:, :n, :n]
        torch.testing.assert_close(real.sum(-1), torch.ones(400, n))
        assert (matrices[:, :n, n:] == 0).all()
        # the mean over many annotators is that of annotators drawn for n classes: s.d. at most 0.025
        alone = draw_annotators(4000, n, mixture, generator=seeded(1)).confusion.mean(0)
        assert (real.mean(0) - alone).abs().max() < 0.1
    assert torch.isfinite(confusion).all()


def test_the_seed_determines_the_labels():
    def draw(seed):
        generator = seeded(seed)
        crowd = draw_annotators(4, 3, dict.fromkeys(KINDS, 0.2), (2,), generator)
        return crowd, draw_labels(torch.zeros(2, 9, dtype=torch.int64), crowd.confusion, 2, generator)

    (crowd, labels), (same_crowd, same_labels), (other_crowd, _) = draw(7), draw(7), draw(8)
    assert torch.equal(crowd.confusion, same_crowd.confusion)
    assert torch.equal(crowd.kind, same_crowd.kind)
    assert torch.equal(labels, same_labels)
    assert not torch.equal(crowd.confusion, other_crowd.confusion)


def test_kinds_may_be_given_instead_of_drawn():
    kinds = [KINDS.index(name) for name in ("expert", "spammer")]
    confusion = draw_confusion(torch.tensor(kinds), 4, seeded())
    assert (confusion[0].diagonal() > 0.8).all()
    torch.testing.assert_close(confusion[1], torch.full((4, 4), 0.25))


def test_bad_arguments_are_refused():
    with pytest.raises(CrowdshotError, match=r"crowd has the kind 'robot', expected some of expert, hammer"):
        draw_annotators(3, 4, {"robot": 1.0})
    with pytest.raises(CrowdshotError, match=r"crowd has probabilities that sum to 0\.9"):
        draw_annotators(3, 4, {"expert": 0.5, "hammer": 0.4})
    with pytest.raises(CrowdshotError, match=r"crowd has 'hammer' with -0\.5, expected a probability"):
        draw_annotators(3, 4, {"expert": 1.0, "hammer": -0.5})
    with pytest.raises(CrowdshotError, match="n_classes is 1, expected 2 or more"):
        draw_annotators(3, 1, PAPER_SOURCE)
    with pytest.raises(CrowdshotError, match=r"shape is \(0,\), expected 1 or more along every axis"):
        draw_annotators(0, 4, PAPER_SOURCE)
    confusion = draw_annotators(3, 4, PAPER_SOURCE, (2,), seeded()).confusion
    truth = torch.zeros(5, dtype=torch.int64)
    for m in (0, 4):
        with pytest.raises(CrowdshotError, match=f"labels_per_item is {m}, expected 1 to 3"):
            draw_labels(truth, confusion, m)
    with pytest.raises(CrowdshotError, match=r"confusion has the shape \(2, 3, 4, 4\), expected .*which has \(3, 5\)"):
        draw_labels(truth.expand(3, 5), confusion)
