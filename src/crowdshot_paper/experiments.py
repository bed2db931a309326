"""The paper's experiments as data: which methods meet which cells of which datasets, and how that is shown.

Many of the paper's tables and figures look at the same grid, nine cells by four crowds; such an experiment adds its own
methods to the rows of `main` and has no cells of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from crowdshot.errors import CrowdshotError
from crowdshot.methods import METHODS, Candidate, Method
from crowdshot_paper import published
from crowdshot_paper.episode_cells import OTHER_CROWDS, REAL, TARGET_CROWDS, TARGETS, Cell
from crowdshot_paper.registry import BUILT_IN, CEILINGS, VARIANTS

SIMULATED = ("omniglot", "miniimagenet")
EVERYWHERE = (*SIMULATED, "labelme")
CROWDED = ("labelme", "cifar10h")  # labelled by real annotators


class _Systems(dict[str, Method]):
    """All that the experiments compare; a method of another package is found by its name, but listed nowhere."""

    def __missing__(self, name: str) -> Method:
        return METHODS[name]


SYSTEMS = _Systems({**BUILT_IN, **VARIANTS, **CEILINGS})
ELSEWHERE = ("labeling-search", "features", "combined", "LF", "MLF", "LNL")  # have experiments of their own
IN_MAIN = tuple(name for name in BUILT_IN if name not in ELSEWHERE and not name.endswith("w/ PA"))
BEYOND = ("labeling-search", "features", "combined", *VARIANTS, *CEILINGS)
ADDED = tuple(name for name in IN_MAIN if name not in published.IN_PAPER)  # to the paper's: PrSV, and what joins later
WITH_ANNOTATION = tuple(name for name in BUILT_IN if name.endswith("w/ PA"))


@dataclass(frozen=True)
class Experiment:
    """``methods`` it runs itself, on ``cells`` of each dataset; ``beside`` names rows of another experiment to show.

    ``encoders`` says which episodes encoders are meta-trained on: "one" encoder for all cells of all datasets that share
    a source; one for each "cell", as in the paper; one for the "largest" cell of the main table; or one for crowds as
    "sparse" as real ones. ``only`` restricts candidates, ``settings`` adds to them. ``times`` as many episodes are drawn
    as the paper has.
    """

    name: str
    title: str
    section: str  # where the paper has it
    datasets: tuple[str, ...]
    methods: tuple[str, ...] = ()
    crowds: tuple[str, ...] = TARGET_CROWDS
    shots: tuple[int, ...] = (1, 3, 5)
    annotators: tuple[int, ...] = (3, 5, 7)
    scarce: int = 0
    beside: tuple[str, ...] = ()
    encoders: str = "one"
    only: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, float] = field(default_factory=dict)
    times: int = 1

    def candidates(self, possible: Iterable[Candidate]) -> list[Candidate]:
        """Of a method's."""
        return [
            {**one, **self.settings}
            for one in possible
            if all(one.get(name, value) == value for name, value in self.only.items())
        ]

    def cells(self, dataset: str) -> list[Cell]:
        """Simulated annotators by number and crowd; a dataset with real ones has a cell for each number of shots."""
        ways = TARGETS[dataset].ways
        if dataset in CROWDED:
            if self.scarce:
                return [Cell(self.scarce + 5 * (ways - self.scarce), 0, REAL, ways, self.scarce)]
            return [Cell(ways * shots, 0, REAL, ways) for shots in self.shots]
        return [
            Cell(ways * shots, annotators, crowd, ways)
            for shots in self.shots
            if shots <= TARGETS[dataset].most_shots
            for annotators in self.annotators
            for crowd in self.crowds
        ]


_EXPERIMENTS = [
    Experiment("main", "All systems by support items and annotators", "Results", SIMULATED, IN_MAIN),
    Experiment("spammers", "Accuracy against the share of spammers", "Results", SIMULATED, beside=("main",)),
    Experiment("labelme", "Real annotators: LabelMe", "Results", ("labelme",), IN_MAIN),
    Experiment(
        "cifar10h",
        "Real annotators: CIFAR-10H",
        "Evaluation on CIFAR-10H",
        ("cifar10h",),
        IN_MAIN,
    ),
    Experiment(
        "em-steps",
        "Accuracy against EM steps J",
        "Impact of Numbers of EM steps J",
        EVERYWHERE,
        beside=("main", "labelme"),
    ),
    Experiment(
        "embedding",
        "What the encoders make of one episode",
        "Visualization of Data Representations",
        ("omniglot",),
        beside=("main",),
    ),
    Experiment(
        "confusion",
        "Estimated confusion matrices of one episode",
        "Estimated Annotator's Confusion Matrices",
        ("omniglot",),
        beside=("main",),
    ),
    Experiment(
        "other-annotators",
        "Hammers, pair-wise flippers, class-wise spammers",
        "Experiments with Other Annotator's Types",
        SIMULATED,
        IN_MAIN,
        crowds=OTHER_CROWDS,
    ),
    Experiment(
        "dirichlet-b",
        "The prior b on class probabilities",
        "Impact of the Dirichlet Parameter b",
        EVERYWHERE,
        beside=("main", "labelme"),
    ),
    Experiment(
        "class-imbalance",
        "Three of eight classes with one support item, five with five",
        "Results with Class-imbalanced Data",
        ("labelme",),
        ("Ours", "CL", "CNAL", "PrMV", "PrDS", "PrSV", "MaMV", "MaDS", "MCL", "MCNAL", "w/o PA"),
        scarce=3,
    ),
    Experiment(
        "with-pseudo-annotation",
        "Rivals whose meta-training meets simulated annotators too",
        "Comparison with Meta-learning Methods with the Pseudo-annotation",
        EVERYWHERE,
        WITH_ANNOTATION,
        beside=("main", "labelme"),
    ),
    Experiment(
        "noisy-label-learning",
        "Learning from noisy labels without telling annotators apart",
        "Comparison with Meta-learning Methods for Learning from Noisy Labels",
        EVERYWHERE,
        ("LNL",),
        beside=("main", "labelme"),
    ),
    Experiment(
        "example-dependent",
        "Confusion that depends on the item",
        "Comparison with Example-dependent Confusion Matrix-based Methods",
        EVERYWHERE,
        ("LF", "MLF"),
        beside=("main", "labelme"),
    ),
    Experiment(
        "large-support",
        "More support items at test than in meta-training",
        "Results with Large Numbers of Support Data and Annotators",
        SIMULATED,
        ("Ours", "PrMV", "PrDS", "PrSV"),
        shots=(5, 10, 20, 30, 40),
        annotators=(7,),
        encoders="largest",
        only={"steps": 2, "b": 100.0},
    ),
    Experiment(
        "large-annotators",
        "More annotators at test than in meta-training",
        "Results with Large Numbers of Support Data and Annotators",
        SIMULATED,
        ("Ours", "PrMV", "PrDS", "PrSV"),
        shots=(10,),
        annotators=(7, 10, 20, 30),
        encoders="largest",
        only={"steps": 2, "b": 100.0},
    ),
    Experiment(
        "cost", "Seconds of meta-training and of testing", "Detailed Computation Cost", ("omniglot",), beside=("main",)
    ),
    Experiment(
        "each-cell",
        "Encoders meta-trained for every cell apart, as the paper does",
        "Results",
        ("omniglot",),
        ("Ours", "PrMV", "MaMV"),
        beside=("main",),
        encoders="cell",
        only={"steps": 2, "b": 100.0},
    ),
    Experiment(
        "as-sparse",
        "Encoders meta-trained as real annotators work: eight classes, twenty annotators, 1 to 7 labels an item",
        "Results",
        CROWDED,
        tuple(name for name in IN_MAIN if BUILT_IN[name].needs),
        beside=("labelme", "cifar10h"),
        encoders="sparse",
    ),
    Experiment(
        "hard-labels",
        "Dawid–Skene's likeliest class in the place of its posterior",
        "Comparison Method Details",
        ("omniglot",),
        ("PrDS", "MaDS"),
        beside=("main",),
        settings={"hard": True},
    ),
    Experiment(
        "two-steps",
        "MAML that takes two gradient steps at test, of the three it has learned to take",
        "Comparison Method Details",
        EVERYWHERE,
        ("MaMV", "MaDS"),
        beside=("main", "labelme"),
        only={"step_size": 0.1},
        settings={"gradient_steps": 2},
    ),
    Experiment(
        "centred",
        "The prior's origin put where the support's centre is",
        "Comparison Method Details",
        (*EVERYWHERE, "cifar10h"),
        ("Ours", "w/o PA"),
        beside=("main", "labelme", "cifar10h"),
        settings={"centred": True},
    ),
    Experiment(
        "beyond",
        "Beyond the paper: labelings, and what perfect knowledge would give",
        "Conclusion",
        (*EVERYWHERE, "cifar10h"),
        BEYOND,
        beside=("main", "labelme", "cifar10h", "noisy-label-learning"),
    ),
    Experiment(
        "beyond-more-episodes",
        "Real annotators, ten times as many episodes: what fifty of them cannot tell apart",
        "Conclusion",
        CROWDED,
        (
            "labeling-search",
            "combined",
            "labeling-search narrow",
            "Ours",
            "PrMV",
            "PrDS",
            "PrSV",
            "PrSV wide",
            "EM wide",
            "Ours wide",
        ),
        only={"scale": 20.0, "tau": 1.5, "b": 100.0},
        times=10,
    ),
    Experiment(
        "beyond-other-annotators",
        "The same with annotators of other kinds",
        "Conclusion",
        SIMULATED,
        BEYOND,
        crowds=OTHER_CROWDS,
        beside=("other-annotators",),
    ),
]

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _EXPERIMENTS}


def chosen(names: str) -> list[Experiment]:
    """Experiments by their names, with commas between them, or all."""
    if names == "all":
        return list(EXPERIMENTS.values())
    wanted = dict.fromkeys(name.strip() for name in names.split(","))
    strange = [name for name in wanted if name not in EXPERIMENTS]
    if strange:
        raise CrowdshotError(f"experiment {strange[0]!r} is not known, expected {', '.join(EXPERIMENTS)} or all.")
    return [EXPERIMENTS[name] for name in wanted]


def is_outside(name: str) -> bool:
    """Whether it is a method that another package adds."""
    return name not in SYSTEMS and name in METHODS


def joined_by(experiments: Sequence[Experiment], named: Iterable[str]) -> list[Experiment]:
    """The same experiments with those of the named methods that another package adds: they join only when named."""
    outside = tuple(filter(is_outside, named))
    return [replace(one, methods=(*one.methods, *outside)) if one.methods else one for one in experiments]


def candidate_name(candidate: Any) -> str:
    """As the store writes it: "steps=2, b=100"."""
    return ", ".join(f"{key}={value:g}" for key, value in candidate.items())


def candidate_of(name: str) -> dict[str, float]:
    """What has the name that the store writes."""
    return {key: float(value) for key, value in (word.split("=") for word in name.split(", ") if word)}


# ---- protocol ------------------------------------------------------------
#
# How large an experiment is: the paper's size, or a toy's that shows that everything runs.

PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Protocol:
    """Sizes that are not an experiment's own. None and 0: as the target has it (`cells.TARGETS`)."""

    splits: tuple[int, ...] = (0, 1, 2, 3, 4)
    episodes: int | None = None  # of a cell, for validation as for test
    iterations: int = 0  # of meta-training
    validate_every: int = 1_000
    training_validation_episodes: int = 100  # that choose the best weights of one run
    training_queries: int = 10
    precision: str = ""  # of meta-training on a GPU; "": as the source has it
    width: int = 64  # channels of the encoder
    only: tuple[tuple[str, float], ...] = ()  # settings of candidates; others are left out
    sizes: tuple[tuple[int, int], ...] = ()  # items and annotators of cells; others are left out
    toy: bool = False  # small drawn datasets, few cells and cheap candidates only

    def __post_init__(self) -> None:
        if not self.splits or min(self.splits) < 0:
            raise CrowdshotError(f"splits is {list(self.splits)}, expected some from 0 upwards.")
        if self.precision not in ("", *PRECISIONS):
            raise CrowdshotError(f"precision is {self.precision!r}, expected {' or '.join(PRECISIONS)}.")

    def candidates(self, method: Method) -> list[Candidate]:
        some = [one for one in method.candidates if all(one.get(name, value) == value for name, value in self.only)]
        return [one for one in some if not self.toy or all(one[k] <= CHEAP.get(k, one[k]) for k in one)]

    def cells(self, experiment: Experiment, dataset: str) -> list[Cell]:
        cells = [cell for cell in experiment.cells(dataset) if not self.sizes or cell.size in self.sizes]
        if not self.toy or not cells:
            return cells
        cells = [cell for cell in cells if cell.shots <= TOY_SHOTS]
        first, last = cells[0], cells[0 if cells[0].crowd == REAL else -1]
        return [
            cell for cell in cells if cell.size in (first.size, last.size) and cell.crowd in (first.crowd, last.crowd)
        ]


TOY_SHOTS = 10  # that its classes have items for
CHEAP = {"iterations": 10, "trees": 10, "steps": 2, "bases": 5, "C": 1e-3, "step_size": 0.1}
PAPER = Protocol()
QUICK = Protocol(
    splits=(0,),
    episodes=2,
    iterations=2,
    validate_every=2,
    training_validation_episodes=2,
    training_queries=2,
    width=4,
    toy=True,
)
