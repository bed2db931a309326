"""Determine the encoder that a candidate of a method needs, and estimate how long an experiment takes.

This module does not import torch, so that `crowdshot paper list` and ``--dry-run`` are fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from crowdshot.formatting import about_duration
from crowdshot.methods import Candidate, Method
from crowdshot.training.default_settings import WIDE
from crowdshot_paper import published
from crowdshot_paper.episode_cells import CROWDS, SOURCE_CROWD, TARGETS, VALIDATION, Cell, Target
from crowdshot_paper.experiments import PAPER, SYSTEMS, Experiment

if TYPE_CHECKING:
    from crowdshot.training.episodes import Range
    from crowdshot.training.recipe import Recipe
    from crowdshot_paper.experiments import Protocol


PHOTOGRAPHS = ("miniimagenet",)
WIDE_ITERATIONS = {"omniglot": 15_000, "miniimagenet": 30_000}
# The largest cell of the main table, for which the paper meta-trains here.
LARGEST = {"shots": (5, 5), "annotators": (7, 7)}
REAL_CELL = 5  # simulated annotators for a cell with real ones (experiment `each-cell`); the paper does not name them
# Meta-training episodes for real annotators (experiment `as-sparse`), which replace those of the source dataset.
SPARSE: dict[str, Any] = {"ways": 8, "annotators": (20, 20), "labels_per_item": (1, 7), "iterations": 16_000}
# A step of MAML takes ten times as long as those of other objectives. Validation accuracy shows that a sixth of the
# steps is enough for characters, and a quarter for photographs (docs/research/reproduction-details.md).
MAML_SHORTER = {"omniglot": 6, "miniimagenet": 8}
TRAINED = ("tau", "noise", "spammers")  # settings of meta-training, besides those in `Needs.by`
TRAINED_ONLY = ("noise", "spammers", "errors")  # which do not exist at test; errors = 0: annotators give true labels
SPAMMERS = CROWDS[SOURCE_CROWD]["spammer"]


@dataclass(frozen=True)
class Wanted:
    """The properties of an encoder, which make up the name of its file."""

    source: str
    split: int
    objective: str
    pseudo_annotation: bool
    ways: int
    shots: Range
    annotators: Range
    labels_per_item: Range | None = None
    steps: int = 2
    b: float = 100.0
    step_size: float = 0.1
    iterations: int = 30_000
    wide: bool = False
    precision: str = "bfloat16"
    tau: float = 1.0
    noise: float = 0.0  # the share of wrong labels in the source data
    spammers: float = 0.2  # their share among simulated annotators

    @property
    def name(self) -> str:
        def span(value: Range | None) -> str:
            return "all" if value is None else "to".join(map(str, sorted(set(value))))

        settings = {"mixture": f"J{self.steps}-b{self.b:g}", "maml": f"step{self.step_size:g}"}.get(self.objective, "")
        words = [
            f"split{self.split}",
            self.objective,
            "pa" if self.pseudo_annotation else "clean",
            f"{self.ways}way",
            f"{span(self.shots)}shot",
            f"{span(self.annotators)}annotators",
            f"{span(self.labels_per_item)}labels",
            settings,
            f"wide-cool{WIDE.cool_down:g}" if self.wide else "",
            f"{self.iterations}iterations",
            self.precision if self.precision != "bfloat16" else "",
            f"tau{self.tau:g}" if self.tau != 1 else "",
            f"noise{self.noise:g}" if self.noise else "",
            f"spammers{self.spammers:g}" if self.spammers != SPAMMERS else "",
        ]
        return "-".join(word for word in words if word)

    def file(self, work: Path) -> Path:
        return work / "encoders" / self.source / f"{self.name}.safetensors"

    @property
    def crowd(self) -> Mapping[str, float]:
        """Return the paper's simulated annotators, with another share of spammers in place of hammers."""
        paper = CROWDS[SOURCE_CROWD]
        more = self.spammers - SPAMMERS
        return {**paper, "hammer": paper["hammer"] - more, "spammer": paper["spammer"] + more} if more else paper

    def recipe(self, protocol: Protocol) -> Recipe:
        from crowdshot.training.recipe import Recipe  # here, as it needs torch

        return Recipe(
            ways=(self.ways, self.ways),
            shots=self.shots,
            annotators=self.annotators,
            labels_per_item=self.labels_per_item,
            queries=min(protocol.training_queries, WIDE.queries) if self.wide else protocol.training_queries,
            crowd=self.crowd,
            iterations=self.iterations,
            validate_every=protocol.validate_every,
            validation_episodes=protocol.training_validation_episodes,
            objective=self.objective,
            pseudo_annotation=self.pseudo_annotation,
            steps=self.steps,
            b=self.b,
            tau=self.tau,
            step_size=self.step_size,
            cool_down=WIDE.cool_down if self.wide else 0.0,
            augment="photo" if self.wide and self.source in PHOTOGRAPHS else "none",
            seed=self.split,
        )


def wanted(
    method: Method,
    candidate: Candidate,
    target: Target,
    cell: Cell,
    split: int,
    trained_for: str = "one",
    iterations: int = 0,
    precision: str = "",
) -> Wanted | None:
    """Return the encoder that a candidate of a method needs, or None if it needs no encoder.

    ``trained_for`` is `Experiment.encoders`. ``iterations`` 0 and ``precision`` "" select the values of the source.
    """
    needs, learns = method.needs, TARGETS[target.source]
    if needs is None:
        return None
    precision = precision or learns.precision
    if needs.wide:  # one for all targets of a source
        return Wanted(
            target.source,
            split,
            needs.objective,
            needs.pseudo_annotation,
            WIDE.ways,
            (1, 5),
            learns.annotators if needs.pseudo_annotation else (3, 3),
            iterations=iterations or WIDE_ITERATIONS[target.source],
            wide=True,
            precision=precision,
        )
    if trained_for == "sparse":
        learns = replace(learns, **SPARSE)
    shots, annotators = (1, 5), learns.annotators
    if trained_for == "cell":  # three annotators, as their number does not matter if they make no mistakes
        simulated = cell.n_annotators or REAL_CELL
        shots, annotators = (cell.shots,) * 2, (simulated if needs.pseudo_annotation else 3,) * 2
    elif trained_for == "largest":
        shots, annotators = LARGEST["shots"], LARGEST["annotators"]
    return Wanted(
        target.source,
        split,
        needs.objective,
        needs.pseudo_annotation and candidate.get("errors", 1) > 0,
        learns.ways,
        shots,
        annotators,
        learns.labels_per_item,
        **{name: candidate[name] for name in needs.by},
        iterations=iterations or learns.iterations // (MAML_SHORTER[target.source] if needs.objective == "maml" else 1),
        precision=precision,
        **{name: candidate[name] for name in TRAINED if name in candidate and needs.objective == "mixture"},
    )


# ---- estimates of time ----
#
# The constants are rounded from measured times (results/…/times.csv). Estimates distinguish minutes from days only: the
# sizes of episodes and stacks and other load on the machine change times by a factor of a few.


class Seconds(NamedTuple):
    core: float  # on a CPU core
    gpu: float  # on an NVIDIA H200

    def times(self, factor: float) -> Seconds:
        return Seconds(self.core * factor, self.gpu * factor)

    def plus(self, other: Seconds) -> Seconds:
        return Seconds(self.core + other.core, self.gpu + other.gpu)


NONE = Seconds(0, 0)
# Per encoder in a stack and 1,000 iterations, on characters.
TRAINING = {"narrow": Seconds(40, 0.25), "wide": Seconds(100, 0.75), "maml": Seconds(400, 0.3)}
# Per candidate and 1,000 episodes, on characters.
EMBEDDING = Seconds(0.4, 0.1)  # of class means and EM, which take less time than computing the embeddings
TESTING = {
    **dict.fromkeys(
        ("labeling-search", "labeling-search narrow", "combined", "features", "True matrices"), Seconds(2, 0.3)
    ),
    **dict.fromkeys(("LRMV", "LRDS"), Seconds(0.5, 0.5)),
    **dict.fromkeys(("RFMV", "RFDS"), Seconds(13, 0.3)),
    **dict.fromkeys(("MaMV", "MaDS", "MaMV w/ PA", "MaDS w/ PA"), Seconds(300, 0.1)),
    **dict.fromkeys(("CL", "CNAL", "MCL", "MCNAL", "MCL w/ PA", "MCNAL w/ PA", "LF", "MLF"), Seconds(4500, 6)),
}
PHOTOGRAPHS_TAKE = 9  # times as long as characters: they have nine times as many pixels
SOON = 3_600  # seconds on a core; methods that take longer are listed separately


@dataclass(frozen=True)
class Share:
    """The work of a method in an experiment on a dataset: test episodes, and the encoders of each candidate."""

    method: str
    dataset: str
    episodes: int
    encoders: tuple[frozenset[Wanted], ...]

    def kept(self, work: Path) -> int:
        """Return the number of candidates whose encoders exist in ``work`` or that need none."""
        return sum(all(one.file(work).exists() for one in needed) for needed in self.encoders)

    @property
    def meta_trains(self) -> bool:
        return any(self.encoders)


def shares(experiment: Experiment, dataset: str) -> list[Share]:
    """Return the work of each method of the experiment on a dataset, at the paper's size."""
    target, cells = TARGETS[dataset], experiment.cells(dataset)
    n = target.episodes * experiment.times
    by_size = {cell.size: cell for cell in cells}
    episodes = len(PAPER.splits) * (len(cells) * n + len(by_size) * max(n, VALIDATION))
    found = []
    for name in experiment.methods:
        method = SYSTEMS[name]
        encoders = [
            {
                wanted(method, candidate, target, cell, split, experiment.encoders)
                for cell in by_size.values()
                for split in PAPER.splits
            }
            for candidate in experiment.candidates(method.candidates)
        ]
        needed = tuple(frozenset(one for one in some if one is not None) for some in encoders)
        found.append(Share(name, dataset, episodes, needed))
    return found


def training(encoders: Iterable[Wanted]) -> Seconds:
    """Estimate the time of meta-training."""
    total = NONE
    for one in encoders:
        kind = "wide" if one.wide else one.objective if one.objective in TRAINING else "narrow"
        total = total.plus(TRAINING[kind].times(one.iterations / 1_000 * _pixel_factor(one.source)))
    return total


def testing(method: str, dataset: str, episodes: int) -> Seconds:
    """Estimate the time of testing; ``episodes`` is the sum over candidates."""
    return TESTING.get(method, EMBEDDING).times(episodes / 1_000 * _pixel_factor(TARGETS[dataset].source))


def time_of(some: Sequence[Share], work: Path | None = None) -> Seconds:
    """Estimate the time of the shares; with ``work``, only of testing the candidates whose encoders exist there."""
    total = NONE if work else training({one for share in some for needed in share.encoders for one in needed})
    for share in some:
        candidates = share.kept(work) if work else len(share.encoders)
        total = total.plus(testing(share.method, share.dataset, share.episodes * candidates))
    return total


def describe(experiment: Experiment, work: Path) -> list[str]:
    """Describe an experiment: its title, data and estimated time, and the methods whose encoders exist in ``work``."""
    place = f" [{published.PLACES[experiment.name]}]" if experiment.name in published.PLACES else ""
    lines = [f"{experiment.name}: {experiment.title} ({', '.join(experiment.datasets)}){place}"]
    if not experiment.methods:
        return [*lines, f"  uses the results of {' and '.join(experiment.beside)}"]
    sources = {TARGETS[name].source for name in experiment.datasets}
    every = [share for dataset in experiment.datasets for share in shares(experiment, dataset)]
    others = sorted(sources - set(experiment.datasets))
    training_data = f"; for meta-training {', '.join(others)}" if others else ""
    lines.append(f"  data: {', '.join(experiment.datasets)}{training_data}")
    encoders = {one for share in every for needed in share.encoders for one in needed}
    time = time_of(every)
    trained = f"{len(encoders)} encoders to meta-train: " if encoders else ""
    lines.append(f"  {trained}{about_duration(time.gpu)} on a GPU, {about_duration(time.core)} on a CPU core")
    ready = [share for share in every if share.meta_trains and share.kept(work)]
    for dataset in dict.fromkeys(share.dataset for share in ready):
        some = [share for share in ready if share.dataset == dataset and time_of([share], work).core < SOON]
        rest = [share for share in ready if share.dataset == dataset and share not in some]
        parts = [
            f"{about_duration(time_of(part, work).core)} for "
            + ", ".join(_with_settings(share, work) for share in part)
            for part in (some, rest)
            if part
        ]
        lines.append(f"  {dataset} with --work {work}, on a CPU core: {'; '.join(parts)}")
    return lines


def _with_settings(share: Share, work: Path) -> str:
    kept, n_candidates = share.kept(work), len(share.encoders)
    return share.method if kept == n_candidates else f"{share.method} ({kept} of {n_candidates} settings)"


def _pixel_factor(source: str) -> int:
    return PHOTOGRAPHS_TAKE if source in PHOTOGRAPHS else 1
