"""Test training steps: stacks equal single models, masks, the loss, validation, and diverging models."""

import pytest
import torch
from torch.testing import assert_close

from crowdshot.errors import CrowdshotError
from crowdshot.training.distributed import Processes
from crowdshot.training.episodes import draw
from crowdshot.training.loop import train
from crowdshot.training.pools import ClassPool
from crowdshot.training.random_streams import Uniforms
from crowdshot.training.recipe import Recipe
from crowdshot.training.trainer import Trainer
from crowdshot_paper.compared.maml import MAMLTrainer
from pools import QUICK, conv, feature_pool, image_pool, make_job, mlp


def trainer_of(*jobs, pool=None):
    return Trainer(jobs, image_pool() if pool is None else pool, "float32", Processes())


def weights(trainer, i=0, without=""):
    return torch.cat([x.flatten().float() for name, x in trainer.stack.unstack(i).items() if name != without])


# --- many models at once ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["paper", "one-coin"])
def test_a_stacked_model_is_the_same_model_trained_alone(prior):
    """Compare to 1e-5 after 25 steps, in which weights change by about 0.01."""
    settings = [
        {"seed": 1, "steps": 1, "b": 100.0, "learning_rate": 1e-3},
        {"seed": 2, "steps": 3, "b": 1.0, "learning_rate": 2e-3},
        {"seed": 3, "objective": "prototypical", "learning_rate": 5e-4},
        {"seed": 4, "pseudo_annotation": False},
    ]
    settings = [{**given, "prior": prior, "augment": "photo"} for given in settings]
    held_out = [(0, 1, 2), (3, 4, 5), (0, 4, 8), (7, 8, 9)]

    def jobs():
        return [make_job(conv(i), held_out=held_out[i], **given) for i, given in enumerate(settings)]

    together, alone = trainer_of(*jobs()), [trainer_of(job) for job in jobs()]
    start = [weights(t) for t in alone]
    for t in (together, *alone):
        for _ in range(25):
            t.step()
    for i, one in enumerate(alone):
        # Prototypes are invariant to translation, so the gradient of this bias is rounding error, which Adam
        # scales to steps of full length in random directions.
        idle = "blocks.3.1.bias" if i == 2 else ""
        assert_close(weights(together, i, idle), weights(one, 0, idle), atol=1e-5, rtol=0)
        assert (weights(one) - start[i]).abs().max() > 5e-3
        assert_close(together.loss_sum[i], one.loss_sum[0], atol=1e-3, rtol=0)
        for name, numbers in one.learned.state_dict().items():
            assert_close(together.learned.state_dict()[name][i], numbers[0], atol=1e-5, rtol=0)
    assert_close(torch.tensor(together.accuracies()), torch.tensor([t.accuracies()[0] for t in alone]))


def test_the_learning_rate_falls_to_zero_in_the_last_part_of_the_steps():
    """Read the learning rates of all parameter groups after each step."""
    trainer = trainer_of(make_job(conv(0), iterations=10, cool_down=0.4, learning_rate=1e-3, prior="one-coin"))
    rates = []
    for _ in range(10):
        trainer.step()
        rates.append([group["lr"] for group in trainer.optimizer.param_groups])
    expected = [1, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25]
    assert torch.tensor(rates).tolist() == [pytest.approx([x * 1e-3, x * 1e-2]) for x in expected]


def test_a_stopped_run_with_cool_down_continues_identically(tmp_path):
    def trained(**how):
        return train([make_job(conv(0), iterations=12, validate_every=4, cool_down=0.5)], image_pool(), **how)

    calls = iter([False] * 7 + [True])
    assert trained(checkpoint=tmp_path / "run", stop=lambda: next(calls)) is None
    resumed, whole = trained(checkpoint=tmp_path / "run"), trained()
    for name, value in whole[0].module.state_dict().items():
        assert_close(resumed[0].module.state_dict()[name], value, atol=0, rtol=0)
    assert len(whole[0].card["validation_accuracies"]) == 3
    assert resumed[0].card == whole[0].card


def test_a_diverging_model_does_not_affect_the_others():
    wild = {"seed": 9, "learning_rate": 1e25}  # with 1e9 the loss is huge, but batch normalisation keeps it finite
    calm = [{"seed": 1, "learning_rate": 1e-3}, {"seed": 2, "learning_rate": 2e-3}]
    last = {"iterations": 20, "validate_every": 10}

    reports = []
    jobs = [make_job(conv(i), **given, **last) for i, given in enumerate([calm[0], wild, calm[1]])]
    encoders = train(jobs, image_pool(), report=reports.append)
    without = train([make_job(conv(i), **given, **last) for i, given in ((0, calm[0]), (2, calm[1]))], image_pool())
    assert encoders is not None
    assert without is not None
    for mine, other in ((encoders[0], without[0]), (encoders[2], without[1])):
        for name, value in mine.module.state_dict().items():
            assert_close(value, other.module.state_dict()[name], atol=1e-6, rtol=0)
        assert mine.card["scores"] == other.card["scores"]
    step = reports[0].diverged[1]
    assert step is not None
    assert 1 < step <= 10
    assert [r.diverged for r in reports] == [[None, step, None]] * 2
    assert reports[0].resting == [False, True, False]
    assert encoders[1].card["scores"]["diverged_at_step"] == step


@pytest.mark.slow
def test_a_single_diverging_model_stops_the_run():
    """Divergence is detected long before the next validation."""
    job = make_job(conv(), learning_rate=1e25, seed=7, iterations=1000, validate_every=1000)
    done = []
    with pytest.raises(CrowdshotError, match=r"not finite at iteration \d+ \(learning rate 1e\+25, 2 EM steps, .*7"):
        train([job], image_pool(), tick=lambda step, total: done.append(step))
    assert done == [*range(1, 101)]


# --- random numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [None, (1, 2)])
def test_episodes_of_all_sizes_have_a_finite_loss(sparse):
    recipe = {"ways": (2, 5), "shots": (1, 3), "annotators": (1, 4), "labels_per_item": sparse, "queries": 3}
    trainer = trainer_of(make_job(conv(), held_out=(0, 1, 2, 3, 4), **recipe))
    seen = set()
    for seed in range(40):
        block = torch.rand(1, trainer.numbers_needed, generator=torch.Generator().manual_seed(seed))
        batch = draw(trainer.pool, trainer.recipe, trainer.source, trainer.clean, Uniforms(block))
        used = int(batch.classes_in_use[0])
        shots = torch.bincount(batch.support_truth[0] + 1, minlength=6)[1:]
        assert shots[:used].unique().numel() == 1
        assert not shots[used:].any()
        labels = batch.labels[0]
        assert labels.max() < used
        assert ((labels >= 0).any(1) == (batch.support_truth[0] >= 0)).all()
        if sparse:
            assert (labels >= 0).sum(1).max() <= 2
        present = (labels >= 0).any(0)
        assert sparse or present[: int(present.sum())].all(), "absent annotators come last"
        assert (batch.query_truth[0] >= 0).sum() == 3 * used
        loss = trainer.losses(batch)
        assert loss.isfinite().all()
        seen.add((used, int(shots[0]), int(present.sum())))
    assert {s[0] for s in seen} == {2, 3, 4, 5}
    assert {s[1] for s in seen} == {1, 2, 3}


def test_a_step_uses_only_its_block_of_random_numbers():
    """A checkpoint would not contain other sources of randomness."""
    trainer = trainer_of(make_job(conv(), augment="photo"))
    before = torch.get_rng_state()
    trainer.step()
    trainer.validate()
    assert torch.equal(before, torch.get_rng_state())


def test_validation_is_not_augmented():
    plain, augmented = (trainer_of(make_job(conv(), augment=kind)).held_out[0] for kind in ("none", "photo"))
    assert torch.equal(plain.query, augmented.query)
    assert torch.equal(plain.labels, augmented.labels)


def crowd_pool():
    """Annotator 0 is right, 1 chooses the next class, and 2 labels even examples as class 7."""
    pool = image_pool()
    truth = torch.arange(10)[:, None].expand(10, 6)
    third = torch.where(torch.arange(6) % 2 == 1, -1, 7).expand(10, 6)
    return ClassPool(pool.examples, pool.counts, pool.names, torch.stack([truth, (truth + 1) % 10, third], -1).short())


def test_labels_of_real_annotators_are_used():
    pool = crowd_pool()
    recipe = Recipe(**{**QUICK, "ways": (2, 4), "shots": (1, 2)})
    allowed = torch.ones(200, 10, dtype=torch.bool)
    batch = draw(pool, recipe, allowed, torch.zeros(200, dtype=torch.bool), torch.Generator().manual_seed(0))
    # finds the class and example of an item by its nearest item in the pool
    flat = pool.examples.flatten(0, 1).flatten(1).float()
    at = torch.cdist(batch.support.flatten(0, 1).flatten(1).float(), flat).argmin(1).view(200, -1)
    of_class, example = at // 6, at % 6
    in_use = set(batch.classes_in_use.tolist())
    assert in_use == {2, 3, 4}
    n_next = n_third = 0
    for b in range(200):
        place = {
            int(of_class[b, i]): int(batch.support_truth[b, i]) for i in range(8) if batch.support_truth[b, i] >= 0
        }
        for i in range(8):
            chosen = batch.labels[b, i].tolist()
            if batch.support_truth[b, i] < 0:
                assert chosen == [-1, -1, -1]
                continue
            c = int(of_class[b, i])
            third = place.get(7, -1) if example[b, i] % 2 == 0 else -1
            assert chosen == [place[c], place.get((c + 1) % 10, -1), third]
            n_next += chosen[1] >= 0
            n_third += chosen[2] >= 0
    assert min(n_next, n_third) > 50

    clean = draw(pool, recipe, allowed, torch.ones(200, dtype=torch.bool), torch.Generator().manual_seed(0))
    labelled = clean.labels >= 0
    assert torch.equal(labelled, batch.labels >= 0)
    assert torch.equal(clean.labels[labelled], clean.support_truth[..., None].expand_as(labelled)[labelled])


def test_training_on_real_annotators():
    trainer = trainer_of(make_job(conv()), pool=crowd_pool())
    for _ in range(3):
        trainer.step()
    assert trainer.loss_sum.isfinite().all()


# --- the loss --------------------------------------------------------------------------------------------------------


def test_the_prototypical_loss_by_hand():
    """Prototypes are means weighted by shares of votes; logits are minus half the squared distance."""
    trainer = trainer_of(make_job(mlp(), objective="prototypical", ways=(3, 3)), pool=feature_pool())
    block = torch.rand(1, trainer.numbers_needed, generator=torch.Generator().manual_seed(0))
    batch = draw(trainer.pool, trainer.recipe, trainer.source, trainer.clean, Uniforms(block))
    u = trainer.stack(batch.support.float())[0].double()
    q = trainer.stack(batch.query.float())[0].double()
    losses = []
    votes = torch.stack([(batch.labels[0] == k).sum(1) for k in range(3)], 1).double()
    labelled = votes.sum(1) > 0
    share = votes[labelled] / votes[labelled].sum(1, keepdim=True)
    prototypes = torch.stack([(share[:, k, None] * u[labelled]).sum(0) / share[:, k].sum() for k in range(3)])
    for item, truth in zip(q, batch.query_truth[0], strict=True):
        logits = torch.stack([-0.5 * (item - p).square().sum() for p in prototypes])
        losses.append(-logits.log_softmax(0)[truth])
    assert share.sum(0).min() > 0, "an empty class has no average: choose another seed"
    assert_close(trainer.losses(batch)[0].double(), torch.stack(losses).mean(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("prior", ["paper", "diagonal"])
def test_gradients_through_the_whole_step(prior):
    """Compare the directional derivative along the gradient with central differences in float32."""
    trainer = trainer_of(make_job(mlp(), prior=prior, steps=3, ways=(3, 3)), pool=feature_pool())
    block = torch.rand(1, trainer.numbers_needed, generator=torch.Generator().manual_seed(3))
    batch = draw(trainer.pool, trainer.recipe, trainer.source, trainer.clean, Uniforms(block))
    parameters = trainer._parameters()
    gradients = torch.autograd.grad(trainer.losses(batch).sum(), parameters)
    length = torch.sqrt(sum(g.square().sum() for g in gradients))
    assert length > 0.01
    change = []
    for sign in (1, -1):
        with torch.no_grad():
            for p, g in zip(parameters, gradients, strict=True):
                p += sign * 2e-3 * g / length
            change.append(trainer.losses(batch).double().sum())
            for p, g in zip(parameters, gradients, strict=True):
                p -= sign * 2e-3 * g / length
    assert_close((change[0] - change[1]) / 4e-3, length.double(), rtol=0.02, atol=0)


def test_the_loss_falls_on_an_easy_problem():
    losses = []
    job = make_job(conv(), ways=(3, 3), crowd={"expert": 1.0}, learning_rate=1e-2, iterations=60, validate_every=20)
    train([job], image_pool(), report=lambda progress: losses.append(progress.loss[0]))
    assert losses[-1] < 0.6 * losses[0]


@pytest.mark.slow
def test_traced_maml_learns_as_maml():
    """On a GPU the gradient function is traced and compiled; here it is only traced."""
    jobs = [make_job(conv(i), seed=i, objective="maml", step_size=size, ways=(2, 3)) for i, size in enumerate((0.1, 1))]
    plain, traced = (MAMLTrainer(jobs, image_pool(), "float32", Processes()) for _ in range(2))
    traced.learn = lambda batch, share: traced.learn_compiled(batch, share, "eager")
    for _ in range(3):  # other episodes than the traced one
        for trainer in (plain, traced):
            trainer.step()
        for found, expected in zip(traced.stack.parameters(), plain.stack.parameters(), strict=True):
            assert expected.grad.abs().max() > 1e-6
            assert_close(found.grad, expected.grad, atol=1e-5, rtol=1e-3)
    assert_close(traced.loss_sum, plain.loss_sum, atol=1e-4, rtol=1e-4)


# --- several episodes per step ---------------------------------------------------------------------------------------


def test_batch_normalisation_with_several_episodes_per_step():
    settings = {"episodes": 3, "seed": 5}
    trainer = trainer_of(make_job(conv(), **settings))
    blocks = torch.rand(3, trainer.numbers_needed, generator=torch.Generator().manual_seed(5))
    expected = [torch.zeros_like(x) for x in trainer._statistics()]
    losses, gradients = [], []
    for block in blocks:
        alone = trainer_of(make_job(conv(), **settings))
        batch = draw(alone.pool, alone.recipe, alone.source, alone.clean, Uniforms(block[None]))
        losses.append(alone.losses(batch))
        gradients.append(torch.autograd.grad(losses[-1].sum(), list(alone.stack.parameters())))
        expected = [total + x / 3 for total, x in zip(expected, alone._statistics(), strict=True)]
    trainer.step()
    for found, wanted in zip(trainer._statistics(), expected, strict=True):
        assert_close(found, wanted, atol=1e-6, rtol=1e-6)
    assert_close(trainer.loss_sum, torch.stack(losses).mean(0).detach())
    mean_gradients = [torch.stack(g).mean(0) for g in zip(*gradients, strict=True)]
    for p, g in zip(trainer.stack.parameters(), mean_gradients, strict=True):
        assert_close(p.grad, g, atol=1e-5, rtol=1e-4)


def test_episodes_must_divide_among_processes():
    assert list(Processes(1, 2).share(6)) == [1, 3, 5]
    with pytest.raises(CrowdshotError, match="episodes is 3, expected a multiple of 2"):
        Processes(0, 2).share(3)


# --- validation ------------------------------------------------------------------------------------------------------


@pytest.fixture
def scripted(monkeypatch):
    """Return a function that sets the accuracies of validations and returns the weights at each of them."""
    seen = []

    def script(*rows):
        left = list(rows)

        def accuracies(self):
            seen.append(self.snapshot())
            return left.pop(0)

        monkeypatch.setattr(Trainer, "accuracies", accuracies)
        return seen

    return script


def test_validation_keeps_the_best_of_each_model(scripted):
    seen = scripted([0.5, 0.1], [0.4, 0.3], [0.5, 0.2])
    jobs = [make_job(conv(i), seed=i, iterations=6, validate_every=2) for i in range(2)]
    encoders = train(jobs, image_pool())
    assert encoders is not None
    for encoder, i, best, score in ((encoders[0], 0, 0, 0.5), (encoders[1], 1, 1, 0.3)):
        kept = encoder.module.state_dict()["blocks.0.0.weight"]
        assert torch.equal(kept, seen[best]["stack.weight0"].chunk(2)[i])
        assert not torch.equal(kept, seen[2]["stack.weight0"].chunk(2)[i])
        assert encoder.card["scores"] == {"validation_accuracy": score}
        assert encoder.card["priors"] == {
            "tau": 1.0,
            "b": 100.0,
            "steps": 2,
            "confusion": {"kind": "symmetric", "c": 1.0},
        }
        assert not encoder.module.training


def test_patience_stops_models_and_then_the_run(scripted):
    scripted([0.5, 0.1], [0.4, 0.2], [0.5, 0.3], [0.9, 0.2], [0.9, 0.2], [0.9, 0.9])
    reports = []
    jobs = [make_job(conv(i), seed=i, iterations=100, validate_every=2, patience=2) for i in range(2)]
    encoders = train(jobs, image_pool(), report=reports.append)
    assert encoders is not None
    assert [r.resting for r in reports] == [[False, False], [False, False], [True, False], [True, False], [True, True]]
    assert [r.iteration for r in reports] == [2, 4, 6, 8, 10]
    # accuracies of a stopped model do not count
    assert [e.card["scores"]["validation_accuracy"] for e in encoders] == [0.5, 0.3]


def test_accuracy_is_the_share_of_queries_of_classes_in_use(monkeypatch):
    trainer = trainer_of(make_job(conv(), ways=(2, 3), validation_episodes=5))
    always_first = torch.tensor([0.0, -1.0, -2.0])
    monkeypatch.setattr(trainer, "log_proba", lambda batch, repeat: always_first.expand(*batch.query_truth.shape, 3))
    in_use = torch.cat([part.classes_in_use for part in trainer.held_out])
    assert set(in_use.tolist()) == {2, 3}
    assert_close(trainer.accuracies(), [float((1 / in_use).mean())])


def test_training_and_validation_classes_are_disjoint():
    trainer = trainer_of(make_job(conv(), held_out=(1, 4, 6)))
    pool = trainer.pool.examples
    for part in trainer.held_out:
        for items in (part.support, part.query):
            for item in items.flatten(0, 1):
                found = (pool == item).flatten(2).all(2).nonzero()[0, 0]
                assert int(found) in (1, 4, 6)


def test_fewer_validation_classes_than_classes_of_an_episode():
    trainer = trainer_of(make_job(conv(), held_out=(1, 4), ways=(5, 5), validation_episodes=4))
    (part,) = trainer.held_out
    assert part.classes_in_use.tolist() == [2] * 4
    assert set(part.query_truth.flatten().tolist()) == {0, 1}
    log_p = trainer.log_proba(part, repeat=4)
    assert_close(log_p[..., :2].exp().sum(-1), torch.ones(part.query_truth.shape))
    assert log_p[..., 2:].exp().max() == 0
    trainer.step()
    assert 0.0 <= trainer.accuracies()[0] <= 1.0
    with pytest.raises(CrowdshotError, match="ways is up to 9, expected at most 7"):
        trainer_of(make_job(conv(), held_out=(1, 4, 6), ways=(9, 9)))


def test_precision_must_be_known():
    with pytest.raises(CrowdshotError, match="precision is 'float16'"):
        Trainer([make_job(conv())], image_pool(), "float16", Processes())
