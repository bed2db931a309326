"""Train a stack of G models side by side: the state of a run, the training step, and validation.

A single model is a stack of one. On a GPU the whole step, from drawing episodes to the optimiser, is captured once as a
CUDA graph and then replayed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from crowdshot.encoders.encoder import Encoder
from crowdshot.errors import CrowdshotError
from crowdshot.model import mixture, priors, prototypes
from crowdshot.training.distributed import Processes
from crowdshot.training.episodes import Batch, draw
from crowdshot.training.pools import ClassPool, input_of
from crowdshot.training.random_streams import Uniforms
from crowdshot.training.recipe import Job, check_stackable
from crowdshot.training.stack import stack

PIXELS_AT_ONCE = {"cuda": 32_000_000, "cpu": 1_000_000}  # embedded at a time in validation, to limit memory


def draw_all(jobs: Sequence[Job], pool: ClassPool, allowed: Tensor, clean: Tensor) -> list[Batch]:
    """Draw the validation episodes, which stay the same for the whole run.

    If there are fewer validation classes than a training episode has, episodes have only that many classes.

    Parameters
    ----------
    allowed : Tensor
        (G, C) bool, the pool's classes for validation of each model.
    clean : Tensor
        (G,) bool, which models get true labels instead of simulated annotators.

    Returns
    -------
    list of Batch
        Parts that fit in memory; in a part, the episodes of one model follow those of another.
    """
    few, device, trained = min(len(job.validation) for job in jobs), pool.examples.device, jobs[0].recipe
    recipe = replace(trained, ways=(min(trained.ways[0], few), min(trained.ways[1], few)))
    ways = recipe.ways[1]
    pixels = len(jobs) * ways * (recipe.shots[1] + recipe.queries) * pool.examples[0, 0].numel()
    at_once = max(1, PIXELS_AT_ONCE[device.type] // pixels)
    generators = [torch.Generator(device).manual_seed(job.recipe.seed + 1_000_003) for job in jobs]
    left, parts = recipe.validation_episodes, []
    while left > 0:
        n = min(at_once, left)
        left -= n
        drawn = [
            draw(pool, recipe, classes.expand(n, -1), true_labels.expand(n), generator, augmented=False)
            for classes, true_labels, generator in zip(allowed, clean, generators, strict=True)
        ]
        joined = (torch.cat(x) if x[0] is not None else None for x in zip(*drawn, strict=True))
        part = Batch(*joined)  # type: ignore[arg-type]
        if part.classes_in_use is None and ways < trained.ways[1]:
            part = part._replace(classes_in_use=torch.full((len(part.labels),), ways, device=device))
        parts.append(part)
    return parts


def query_losses(log_p: Tensor, truth: Tensor) -> Tensor:
    """Return (B,) mean negative log-likelihoods of queries, eq. (10), from (B, Q, K) and (B, Q); -1 is padding."""
    picked = log_p.gather(-1, truth.clamp_min(0)[..., None])[..., 0]
    asked = (truth >= 0).to(log_p.dtype)
    return -(torch.where(truth >= 0, picked, 0.0)).sum(-1) / asked.sum(-1)


def only_in_use(log_p: Tensor, classes_in_use: Tensor | None) -> Tensor:
    """Restrict log-probabilities (B, Q, K) to the first ``classes_in_use`` classes of each episode; None for all."""
    if classes_in_use is None:
        return log_p
    beyond = torch.arange(log_p.shape[-1], device=log_p.device) >= classes_in_use[:, None, None]
    return log_p.masked_fill(beyond, -torch.inf).log_softmax(-1)


WARM_UP = 3  # steps before a CUDA graph is captured, in which libraries choose their algorithms


class Progress(NamedTuple):
    """The report after a validation; lists have one element per model."""

    iteration: int
    iterations: int
    loss: list[float]  # mean over the steps since the last report
    accuracy: list[float]  # on the validation episodes
    best: list[float]  # best accuracy so far
    resting: list[bool]  # stopped early, or diverged
    diverged: list[int | None]  # the first step with a non-finite loss, or None


class Trainer:
    """The state of a training run of G models, with B episodes per model and step."""

    def __init__(self, jobs: Sequence[Job], pool: ClassPool, precision: str, world: Processes) -> None:
        recipes = [job.recipe for job in jobs]
        check_stackable(recipes)
        if precision not in ("float32", "bfloat16"):
            raise CrowdshotError(
                f"is {precision!r}", argument="precision", found=precision, expected="float32 or bfloat16"
            )
        self.jobs, self.pool, self.world, self.precision = jobs, pool, world, precision
        self.recipe, self.size, self.device = recipes[0], len(jobs), pool.examples.device
        self.as_input = input_of(jobs[0].encoder, self.device)
        self.stack: Any = self.stacked([job.encoder.module for job in jobs]).to(self.device).train()
        self.iteration = 0
        self.best_accuracy = [-1.0] * self.size
        self.validation_accuracies: list[list[float]] = []  # of the models at each validation
        self.since_best = [0] * self.size
        self.resting = [False] * self.size
        self.loss_sum = torch.zeros(self.size, device=self.device)
        self.finite_steps = torch.zeros(self.size, dtype=torch.int64, device=self.device)

        def each(name: str, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.tensor([getattr(recipe, name) for recipe in recipes], dtype=dtype, device=self.device)

        self.steps, self.most_steps = each("steps", torch.int64), max(recipe.steps for recipe in recipes)
        self.same_steps = len({recipe.steps for recipe in recipes}) == 1
        self.tau, self.b, self.clean = each("tau"), each("b"), ~each("pseudo_annotation", torch.bool)
        self.step_sizes = each("step_size")
        of_lnl = [i for i, recipe in enumerate(recipes) if recipe.objective == "lnl"]
        self.of_lnl = torch.tensor(of_lnl, dtype=torch.int64, device=self.device)
        self.learned: nn.Module = nn.Identity()
        if self.recipe.prior != "paper":
            self.learned = priors.LearnedPriors(self.recipe.prior, b=self.b, shape=(self.size,)).to(self.device)
        self.generators = [torch.Generator(self.device).manual_seed(recipe.seed) for recipe in recipes]
        self.source, self.validation = (self._mask([getattr(job, k) for job in jobs]) for k in ("source", "validation"))
        fewest = min(len(job.source) for job in jobs)
        if fewest < self.recipe.ways[1]:
            raise CrowdshotError(
                f"is up to {self.recipe.ways[1]}",
                argument="ways",
                found=self.recipe.ways[1],
                expected=f"at most {fewest}, the number of classes to learn from",
            )
        self.held_out = draw_all(jobs, pool, self.validation, self.clean)
        self.numbers_needed = self._count_numbers()

        fastest = max(recipe.learning_rate for recipe in recipes)
        self.rates = each("learning_rate") / fastest
        self.rates_differ = len({recipe.learning_rate for recipe in recipes}) > 1
        groups: list[dict[str, Any]] = [{"params": list(self.stack.parameters()), "lr": fastest}]
        if self.recipe.prior != "paper":
            groups.append({"params": list(self.learned.parameters()), "lr": self.recipe.prior_learning_rate})
        on_gpu = self.device.type == "cuda"
        self.full_rates = [float(group["lr"]) for group in groups]
        if on_gpu and self.recipe.cool_down > 0:  # a captured step reads the rate from a tensor, which can be changed
            for group in groups:
                group["lr"] = torch.tensor(group["lr"], device=self.device)
        self.optimizer = torch.optim.Adam(groups, fused=on_gpu, capturable=on_gpu)
        self.best = self.snapshot()
        self.graph: torch.cuda.CUDAGraph | None = None

    # ---- one step ----

    def step(self) -> None:
        """Run one iteration of Algorithm 1 for every model, from a CUDA graph if possible."""
        self.iteration += 1
        self._cool_down()
        if self.graph is not None:
            self.graph.replay()
        elif self.device.type != "cuda" or self.world.size > 1:
            self._step()
        else:
            self._step_on_side_stream()
            if self.iteration >= WARM_UP:
                self._capture()

    def _step(self) -> None:
        B, generators = self.recipe.episodes, self.generators
        blocks = torch.stack([torch.rand(B, self.numbers_needed, generator=g, device=self.device) for g in generators])
        statistics = self._statistics() if B > 1 else []
        before, after = [x.clone() for x in statistics], [torch.zeros_like(x) for x in statistics]
        self.optimizer.zero_grad(set_to_none=True)
        step_losses = []
        for episode in self.world.share(B):
            batch = draw(self.pool, self.recipe, self.source, self.clean, Uniforms(blocks[:, episode]))
            step_losses.append(self.learn(batch, 1 / B))
            # Each episode starts from the same running statistics; their new values are averaged afterwards.
            for statistic, start, total in zip(statistics, before, after, strict=True):
                total += statistic / B
                statistic.copy_(start)
        loss = sum(step_losses[1:], start=step_losses[0])
        self.world.add_up([*(p.grad for p in self._parameters() if p.grad is not None), *after, loss])
        self.loss_sum += loss
        self.finite_steps += self.loss_sum.isfinite()  # a sum stays non-finite, so this counts the steps before
        for statistic, total in zip(statistics, after, strict=True):
            statistic.copy_(total)
        self._update()

    def learn(self, batch: Batch, share: float) -> Tensor:
        """Add the gradients of one episode per model, times ``share``; return the losses (G,), times ``share``."""
        losses = self.losses(batch) * share
        losses.sum().backward()  # type: ignore[no-untyped-call]
        return losses.detach()

    def losses(self, batch: Batch) -> Tensor:
        """Return the losses (G,) of one episode per model."""
        return query_losses(self.log_proba(batch), batch.query_truth)

    def log_proba(self, batch: Batch, repeat: int = 1) -> Tensor:
        """Embed support and query items together, fit the mixture, and classify (lines 7 to 11 of Algorithm 1).

        The batch holds ``repeat`` episodes per model, grouped by model. Returns (G · repeat, Q, K).
        """
        embedded, K = self.embedded(batch), self.recipe.ways[1]
        current = priors.repeated(self.current_priors(), repeat)
        steps = self.most_steps if self.same_steps else self.steps.repeat_interleave(repeat)
        found = mixture.log_proba(embedded, batch.labels, K, steps, current, self.most_steps, batch.classes_in_use)
        if len(self.of_lnl):
            rows = (self.of_lnl[:, None] * repeat + torch.arange(repeat, device=self.device)).flatten()
            support, query = embedded[rows].tensor_split([batch.labels.shape[1]], 1)
            by_lnl = prototypes.log_proba(support, batch.labels[rows], query, K)
            in_use = None if batch.classes_in_use is None else batch.classes_in_use[rows]
            found = found.index_copy(0, rows, only_in_use(by_lnl, in_use))
        return found

    def embedded(self, batch: Batch) -> Tensor:
        """Return embeddings of support and query items, (B, N + Q, D); they share batch-normalisation statistics.

        B is a multiple of G.
        """
        items = torch.cat([batch.support, batch.query], 1)
        x = self.as_input(items.reshape(self.size, -1, *items.shape[2:]))
        with torch.autocast(self.device.type, torch.bfloat16, self.precision == "bfloat16", cache_enabled=False):
            embedded = self.stack(x)
        return embedded.float().reshape(len(items), items.shape[1], -1)  # type: ignore[no-any-return]

    def current_priors(self) -> priors.Priors:
        """Return the priors of every model, (G,) each; the prototypical objective keeps tau = 0."""
        if isinstance(self.learned, priors.LearnedPriors):
            learned: priors.Priors = self.learned()
            return {**learned, "tau": torch.where(self.tau > 0, learned["tau"], 0.0)}
        return {"tau": self.tau, "b": self.b, "c": 1.0}

    def _cool_down(self) -> None:
        """Set the learning rate of this step: constant, then falling linearly to zero."""
        recipe = self.recipe
        if recipe.cool_down == 0:
            return
        left = (recipe.iterations - self.iteration + 1) / (recipe.cool_down * recipe.iterations)
        for group, full in zip(self.optimizer.param_groups, self.full_rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(full * min(1.0, left))
            else:
                group["lr"] = full * min(1.0, left)

    def _update(self) -> None:
        """Take an Adam step. Its length is proportional to the learning rate, so slower models move part of the way."""
        if not self.rates_differ:
            self.optimizer.step()
            return
        before = [p.detach().clone() for p in self.stack.parameters()]
        self.optimizer.step()
        with torch.no_grad():
            for p, old in zip(self.stack.parameters(), before, strict=True):
                moved = torch.lerp(old.view(self.size, -1), p.view(self.size, -1), self.rates[:, None])
                p.copy_(moved.view_as(p))

    # ---- CUDA graph ----

    def _step_on_side_stream(self) -> None:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.backends.cudnn.flags(enabled=True, benchmark=True):
            self._step()
        torch.cuda.current_stream().wait_stream(side)

    def _capture(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph), torch.backends.cudnn.flags(enabled=True, benchmark=True):
            self._step()
        self.graph = graph

    # ---- validation and best weights ----

    def validate(self) -> Progress:
        """Measure accuracy on the validation episodes and keep the weights of every model that reached a new best."""
        recipe, since = self.recipe, (self.iteration - 1) % self.recipe.validate_every + 1
        losses = (self.loss_sum / since).tolist()
        self.loss_sum.zero_()
        accuracies = self.accuracies()
        self.validation_accuracies.append(accuracies)
        improved = []
        for i, (loss, accuracy) in enumerate(zip(losses, accuracies, strict=True)):
            improved.append(math.isfinite(loss) and not self.resting[i] and accuracy > self.best_accuracy[i])
            self.since_best[i] = 0 if improved[i] else self.since_best[i] + 1
            if improved[i]:
                self.best_accuracy[i] = accuracy
            stopped_early = recipe.patience > 0 and self.since_best[i] >= recipe.patience
            self.resting[i] |= stopped_early or not math.isfinite(loss)
        mask = torch.tensor(improved, device=self.device)[:, None]
        for name, value in self.snapshot().items():
            kept = torch.where(mask, value.view(self.size, -1), self.best[name].view(self.size, -1))
            self.best[name] = kept.view_as(value)
        return Progress(
            self.iteration,
            recipe.iterations,
            losses,
            accuracies,
            list(self.best_accuracy),
            list(self.resting),
            self.diverged(),
        )

    def diverged(self) -> list[int | None]:
        """Return each model's first step with a non-finite loss, or None. This waits for the device."""
        return [n + 1 if n < self.iteration else None for n in self.finite_steps.tolist()]

    def check_finite(self) -> None:
        """Raise an error if the loss of every model has become non-finite."""
        steps = [step for step in self.diverged() if step is not None]
        if len(steps) < self.size:
            return
        recipe, others = self.recipe, f", and {self.size - 1} other models" if self.size > 1 else ""
        hint = "Try a smaller learning rate" + (", or float32 precision" if self.precision != "float32" else "")
        raise CrowdshotError(
            f"Training diverged: the loss is not finite at iteration {steps[0]} (learning rate "
            f"{recipe.learning_rate:g}, {recipe.steps} EM steps, b = {recipe.b:g}, {recipe.prior} prior, "
            f"{self.precision}, seed {recipe.seed}{others})",
            argument="learning_rate",
            found=recipe.learning_rate,
            hint=hint,
        )

    @torch.no_grad()
    def accuracies(self) -> list[float]:
        """Return the current accuracy of each model on the validation queries."""
        self.stack.eval()
        right = []
        for part in self.held_out:
            log_p = self.log_proba(part, repeat=len(part.labels) // self.size)
            asked = part.query_truth >= 0
            hits = ((log_p.argmax(-1) == part.query_truth) & asked).sum(-1) / asked.sum(-1)
            right.append(hits.view(self.size, -1))
        self.stack.train()
        accuracies: list[float] = torch.cat(right, 1).mean(1).tolist()
        return accuracies

    def finish(self) -> list[Encoder]:
        """Return the encoders with their best weights; their cards record the recipe, priors and scores."""
        self.restore(self.best)
        current = self.current_priors()
        encoders = []
        for i, (job, diverged) in enumerate(zip(self.jobs, self.diverged(), strict=True)):
            job.encoder.module.load_state_dict(self.stack.unstack(i))
            job.encoder.module.eval()
            job.encoder.card |= {
                "recipe": job.recipe.to_card(),
                "priors": {**priors.to_card(current, i), "steps": job.recipe.steps},
                "scores": {"validation_accuracy": self.best_accuracy[i] if self.best_accuracy[i] >= 0 else None},
                "validation_accuracies": [round(accuracies[i], 4) for accuracies in self.validation_accuracies],
            }
            if diverged is not None:
                job.encoder.card["scores"]["diverged_at_step"] = diverged
            encoders.append(job.encoder)
        return encoders

    # ---- parts ----

    def stacked(self, modules: Sequence[nn.Module]) -> Any:
        """Return G networks as one module with ``size`` and ``unstack``."""
        return stack(modules)

    def _parameters(self) -> list[nn.Parameter]:
        return [*self.stack.parameters(), *self.learned.parameters()]

    def _statistics(self) -> list[Tensor]:
        return [x for x in self.stack.buffers() if x.is_floating_point()]

    def snapshot(self) -> dict[str, Tensor]:
        state = {f"stack.{k}": v for k, v in self.stack.state_dict().items()}
        state |= {f"learned.{k}": v for k, v in self.learned.state_dict().items()}
        return {k: v.detach().clone() for k, v in state.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        for prefix, module in (("stack.", self.stack), ("learned.", self.learned)):
            module.load_state_dict({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})

    def _mask(self, chosen: Sequence[Sequence[int]]) -> Tensor:
        """Return (G, C) bool, the pool's classes that each model may use."""
        mask = torch.zeros(self.size, len(self.pool.names), dtype=torch.bool)
        for row, classes in zip(mask, chosen, strict=True):
            row[list(classes)] = True
        return mask.to(self.device)

    def _count_numbers(self) -> int:
        """Return the number of random numbers that one episode needs."""
        plenty = Uniforms(torch.rand(1, 4 * (self.pool.examples.shape[0] + 100_000), device=self.device))
        draw(self.pool, self.recipe, self.source[:1], self.clean[:1], plenty)
        return plenty.taken
