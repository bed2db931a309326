"""Define the experiments of the paper: their methods, datasets and cells, and the rows that their tables show.

Many of the paper's tables and figures use the same grid of nine cells by four crowds. Such an experiment shows its
methods next to the rows of `main`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from crowdshot.errors import CrowdshotError
from crowdshot.methods import METHODS, Candidate, Method, grid
from crowdshot_paper import published
from crowdshot_paper.episode_cells import OTHER_CROWDS, REAL, TARGET_CROWDS, TARGETS, Cell
from crowdshot_paper.registry import BUILT_IN, CEILINGS, VARIANTS

SIMULATED = ("omniglot", "miniimagenet")
EVERYWHERE = (*SIMULATED, "labelme")
CROWDED = ("labelme", "cifar10h")  # labelled by real annotators


class _Systems(dict[str, Method]):
    """The compared methods. A method of another package can be looked up, but is not listed."""

    def __missing__(self, name: str) -> Method:
        return METHODS[name]


SYSTEMS = _Systems({**BUILT_IN, **VARIANTS, **CEILINGS})
ELSEWHERE = ("labeling-search", "features", "combined", "LF", "MLF", "LNL")  # methods with separate experiments
IN_MAIN = tuple(name for name in BUILT_IN if name not in ELSEWHERE and not name.endswith("w/ PA"))
BEYOND = ("labeling-search", "features", "combined", *VARIANTS, *CEILINGS)
ADDED = tuple(
    name for name in IN_MAIN if name not in published.IN_PAPER
)  # methods in the main table that are not in the paper
WITH_ANNOTATION = tuple(name for name in BUILT_IN if name.endswith("w/ PA"))


@dataclass(frozen=True)
class Experiment:
    """An experiment.

    Attributes
    ----------
    name, title : str
        Its name on the command line and its title in tables.
    section : str
        The section of the paper.
    datasets, methods : tuple of str
        The methods run on each dataset; no methods if the experiment uses the rows of others only.
    crowds, shots, annotators, scarce
        The values that make up the cells.
    beside : tuple of str
        Other experiments whose rows are shown as well.
    encoders : str
        The episodes for meta-training: "one" encoder for all cells and all datasets with the same source; one per
        "cell", as in the paper; one for the "largest" cell of the main table; or one for crowds as "sparse" as real
        ones.
    only : mapping
        Restricts candidates to those with these settings.
    settings : mapping
        Settings added to every candidate.
    times : int
        The number of episodes as a multiple of the paper's.
    sweep : mapping
        A further setting and its values, each of which makes a candidate of its own. It is a setting of the method or
        of meta-training (`encoder_plan.TRAINED`).
    ways : int
        The number of classes of test episodes; 0 for the dataset's own.
    """

    name: str
    title: str
    section: str
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
    sweep: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    ways: int = 0

    def candidates(self, possible: Iterable[Candidate]) -> list[Candidate]:
        """Return the candidates of a method that the experiment runs, with its settings."""
        return [
            {**one, **self.settings, **swept}
            for one in possible
            if all(one.get(name, value) == value for name, value in self.only.items())
            for swept in grid(**self.sweep)
        ]

    def cells(self, dataset: str) -> list[Cell]:
        """Return the cells: shots by annotators by crowds, or only shots if the dataset has real annotators."""
        ways = self.ways or TARGETS[dataset].ways
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
        "Embeddings of one episode",
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
        "Compared methods meta-trained with simulated annotators",
        "Comparison with Meta-learning Methods with the Pseudo-annotation",
        EVERYWHERE,
        WITH_ANNOTATION,
        beside=("main", "labelme"),
    ),
    Experiment(
        "noisy-label-learning",
        "Learning from noisy labels without distinguishing annotators",
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
        "Encoders meta-trained separately for every cell, as in the paper",
        "Results",
        (*EVERYWHERE, "cifar10h"),
        ("Ours", "PrMV", "MaMV"),
        beside=("main", "labelme", "cifar10h"),
        encoders="cell",
        only={"steps": 2, "b": 100.0},
    ),
    Experiment(
        "as-sparse",
        "Encoders meta-trained for sparse labels: eight classes, twenty annotators, 1 to 7 labels per item",
        "Results",
        CROWDED,
        tuple(name for name in IN_MAIN if BUILT_IN[name].needs),
        beside=("labelme", "cifar10h"),
        encoders="sparse",
    ),
    Experiment(
        "hard-labels",
        "Most probable class of Dawid–Skene instead of its posterior",
        "Comparison Method Details",
        ("omniglot",),
        ("PrDS", "MaDS"),
        beside=("main",),
        settings={"hard": True},
    ),
    Experiment(
        "two-steps",
        "MAML with two gradient steps at test and three in meta-training",
        "Comparison Method Details",
        EVERYWHERE,
        ("MaMV", "MaDS"),
        beside=("main", "labelme"),
        only={"step_size": 0.1},
        settings={"gradient_steps": 2},
    ),
    Experiment(
        "source-noise",
        "A share of wrong labels in the source data",
        "Limitation",
        ("omniglot",),
        ("Ours",),
        beside=("main",),
        only={"steps": 2, "b": 100.0},
        sweep={"noise": (0.1, 0.2, 0.4)},
    ),
    Experiment(
        "simulated-spammers",
        "The share of spammers among the simulated annotators of meta-training",
        "Conclusion",
        ("omniglot",),
        ("Ours",),
        beside=("main",),
        only={"steps": 2, "b": 100.0},
        sweep={"spammers": (0.0, 0.4, 0.6)},
    ),
    Experiment(
        "strength-of-means",
        "The prior of means tau, in meta-training and at test",
        "Conclusion",
        ("omniglot",),
        ("Ours",),
        beside=("main",),
        only={"steps": 2, "b": 100.0},
        sweep={"tau": (0.1, 0.3, 3.0, 10.0)},
    ),
    Experiment(
        "strength-of-matrices",
        "The prior of confusion matrices c at test; meta-training has c = 1",
        "Conclusion",
        (*EVERYWHERE, "cifar10h"),
        ("Ours",),
        beside=("main", "labelme", "cifar10h"),
        only={"steps": 2, "b": 100.0},
        sweep={"c": (0.1, 0.3, 3.0, 10.0)},
    ),
    Experiment(
        "covariance",
        "The variance of embeddings around class means at test; meta-training has 1",
        "Conclusion",
        (*EVERYWHERE, "cifar10h"),
        ("Ours",),
        beside=("main", "labelme", "cifar10h"),
        only={"steps": 2, "b": 100.0},
        sweep={"variance": (0.3, 0.5, 2.0, 3.0)},
    ),
    Experiment(
        "without-errors",
        "Ours meta-trained through the mixture on true labels",
        "Comparison Method Details",
        ("omniglot",),
        ("Ours",),
        beside=("main",),
        only={"steps": 2, "b": 100.0},
        sweep={"errors": (0.0,)},
    ),
    Experiment(
        "five-classes",
        "Test episodes of five classes; meta-training has four",
        "Conclusion",
        SIMULATED,
        ("Ours", "PrMV", "PrDS", "PrSV", "w/o PA"),
        shots=(1, 5),
        only={"steps": 2, "b": 100.0},
        ways=5,
    ),
    Experiment(
        "twenty-classes",
        "Test episodes of twenty classes; meta-training has four",
        "Conclusion",
        ("omniglot",),
        ("Ours", "PrMV", "PrDS", "PrSV", "w/o PA"),
        shots=(1, 5),
        only={"steps": 2, "b": 100.0},
        ways=20,
    ),
    Experiment(
        "centred",
        "Origin of the prior at the centre of the support set",
        "Comparison Method Details",
        (*EVERYWHERE, "cifar10h"),
        ("Ours", "w/o PA"),
        beside=("main", "labelme", "cifar10h"),
        settings={"centred": True},
    ),
    Experiment(
        "beyond",
        "Beyond the paper: labeling search, and upper bounds from known truth",
        "Conclusion",
        (*EVERYWHERE, "cifar10h"),
        BEYOND,
        beside=("main", "labelme", "cifar10h", "noisy-label-learning"),
    ),
    Experiment(
        "beyond-more-episodes",
        "Real annotators with ten times as many episodes, for smaller standard errors",
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
        "Beyond the paper, with other types of annotators",
        "Conclusion",
        SIMULATED,
        BEYOND,
        crowds=OTHER_CROWDS,
        beside=("other-annotators",),
    ),
]

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _EXPERIMENTS}


def chosen(names: str) -> list[Experiment]:
    """Return the experiments of a comma-separated list of names, or of "all"."""
    if names == "all":
        return list(EXPERIMENTS.values())
    wanted = dict.fromkeys(name.strip() for name in names.split(","))
    unknown = next((name for name in wanted if name not in EXPERIMENTS), None)
    if unknown is not None:
        expected = f"{', '.join(EXPERIMENTS)} or all"
        message = f"There is no experiment {unknown!r}"
        raise CrowdshotError(message, argument="names", found=unknown, expected=expected)
    return [EXPERIMENTS[name] for name in wanted]


def is_outside(name: str) -> bool:
    """Return whether a method comes from another package."""
    return name not in SYSTEMS and name in METHODS


def joined_by(experiments: Sequence[Experiment], named: Iterable[str]) -> list[Experiment]:
    """Return the experiments, with the named methods of other packages added to them."""
    outside = tuple(filter(is_outside, named))
    return [replace(one, methods=(*one.methods, *outside)) if one.methods else one for one in experiments]


def candidate_name(candidate: Any) -> str:
    """Return the settings of a candidate as stored, such as "steps=2, b=100"."""
    return ", ".join(f"{key}={value:g}" for key, value in candidate.items())


def candidate_of(name: str) -> dict[str, float]:
    """Return the settings that `candidate_name` has written."""
    return {key: float(value) for key, value in (word.split("=") for word in name.split(", ") if word)}


# ---- sizes of experiments: the paper's, or a toy size to test that everything runs ----

PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Protocol:
    """Sizes that all experiments share. None, 0 and "" select the value of the target (`episode_cells.TARGETS`)."""

    splits: tuple[int, ...] = (0, 1, 2, 3, 4)
    episodes: int | None = None  # per cell, for validation and test
    iterations: int = 0  # of meta-training
    validate_every: int = 1_000
    training_validation_episodes: int = 100  # to select the best weights of a run
    training_queries: int = 10
    precision: str = ""  # of meta-training on a GPU
    width: int = 64  # channels of the encoder
    only: tuple[tuple[str, float], ...] = ()  # settings of candidates; other candidates are not run
    sizes: tuple[tuple[int, int], ...] = ()  # items and annotators of cells; other cells are not run
    toy: bool = False  # small random datasets, few cells and cheap candidates

    def __post_init__(self) -> None:
        if not self.splits or min(self.splits) < 0:
            found = list(self.splits)
            raise CrowdshotError(f"is {found}", argument="splits", found=found, expected="one or more, each 0 or more")
        if self.precision not in ("", *PRECISIONS):
            message, expected = f"is {self.precision!r}", " or ".join(PRECISIONS)
            raise CrowdshotError(message, argument="precision", found=self.precision, expected=expected)

    def candidates(self, method: Method) -> list[Candidate]:
        some = [one for one in method.candidates if all(one.get(name, value) == value for name, value in self.only)]
        return [one for one in some if not self.toy or all(one[k] <= CHEAP.get(k, one[k]) for k in one)]

    def cells(self, experiment: Experiment, dataset: str) -> list[Cell]:
        cells = [cell for cell in experiment.cells(dataset) if not self.sizes or cell.size in self.sizes]
        if not self.toy or not cells:
            return cells
        cells = [_with_few_classes(cell) for cell in cells if cell.shots <= TOY_SHOTS]
        first, last = cells[0], cells[0 if cells[0].crowd == REAL else -1]
        return [
            cell for cell in cells if cell.size in (first.size, last.size) and cell.crowd in (first.crowd, last.crowd)
        ]


def _with_few_classes(cell: Cell) -> Cell:
    if cell.crowd == REAL or cell.ways <= TOY_WAYS:
        return cell
    return replace(cell, ways=TOY_WAYS, n_support=TOY_WAYS * cell.shots)


TOY_WAYS = 5  # how many classes their test episodes have at most, except those of real annotators
TOY_SHOTS = 10  # how many items the classes of toy datasets have, besides the queries
# the largest values of the settings of cheap candidates
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
