"""Which rows an experiment's tables and figures show, what to say about them, and what to run if there are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from crowdshot.methods import METHODS
from crowdshot.paper.plan import published
from crowdshot.paper.plan.cells import TARGETS
from crowdshot.paper.plan.experiments import ADDED, Experiment, candidate_of
from crowdshot.paper.run.store import COLUMNS, Store
from crowdshot.paper.show.selection import CELL, Reader, in_order, is_foreign, spread, system

LABELS = {
    "omniglot": "Omniglot",
    "miniimagenet": "miniImageNet",
    "tiny-imagenet-100": "tiny-imagenet-100 (stand-in)",
    "labelme": "LabelMe",
    "cifar10h": "CIFAR-10H",
    "cifar10s": "CIFAR-10S",
}

PIECE = ["dataset", *CELL, "split"]
SETTINGS_COMPARED = ("em-steps", "dirichlet-b")  # experiments whose methods are settings of Ours, run together
EVERYONE = ("spammers", "beyond", "beyond-other-annotators")  # those that show all rows of what stands beside
ALIKE = {  # experiments that change one thing -> what the same methods have in `main`, which stands beside
    "each-cell": "one encoder for all cells; the others have one for each",
    "as-long": "half as many steps of meta-training",
    "as-sparse": "meta-trained with four classes and every label of three to seven annotators",
    "hard-labels": "Dawid–Skene's posterior; the others take its likeliest class",
    "two-steps": "all three gradient steps; the others take two",
    "centred": "the origin as the encoder has it; for the others it is the support's centre",
}

TOY = "TOY SIZE (`--quick`): this shows that everything runs, not how well."


def label(dataset: str) -> str:
    """How a dataset is called in tables and figures."""
    return LABELS.get(dataset, dataset)


def gather(experiment: Experiment, dataset: str, read: Reader) -> pd.DataFrame:
    """The experiment's own rows, and those of others that it shows beside them."""
    own = read(experiment.name, dataset) if experiment.methods else pd.DataFrame(columns=COLUMNS)
    if experiment.name in ALIKE and not len(own):  # what it is set beside says nothing alone
        return own
    others = [read(name, dataset) for name in experiment.beside]
    beside = [_beside(experiment, rows) for rows in others if len(rows)]
    if experiment.name == "class-imbalance" and len(own):
        beside.append(spread(own[own["method"] == "Ours"], "b", "b"))
    parts = [part for part in (own, *beside) if len(part)]
    rows = pd.concat(parts, ignore_index=True) if parts else own
    return shared(rows) if experiment.name in SETTINGS_COMPARED else rows


def shared(rows: pd.DataFrame) -> pd.DataFrame:
    """Of the cells and splits those that every method has, so that averages are over the same episodes."""
    pieces = rows[[*PIECE, "method"]].drop_duplicates()
    counts = pieces.groupby(PIECE).size().reset_index(name="methods")
    everyone = counts.loc[counts["methods"] == pieces["method"].nunique(), PIECE]
    return rows.merge(everyone, on=PIECE)


def _beside(experiment: Experiment, rows: pd.DataFrame) -> pd.DataFrame:
    ours = rows[rows["method"] == "Ours"]
    if experiment.name == "dirichlet-b":
        return spread(ours, "b", "b")
    if experiment.name == "em-steps":
        return spread(rows[rows["method"].isin(["Ours", "w/o PA"])], "steps", "J")
    if experiment.name in ALIKE:
        same = rows[rows["method"].isin(experiment.methods) & _among(rows["candidate"], experiment.only)]
        return same.assign(method=same["method"] + " (main)")
    return rows if experiment.name in EVERYONE else ours


def _among(candidates: pd.Series[str], only: Mapping[str, float]) -> pd.Series[bool]:
    """Which candidates have these settings, as far as they have them at all."""
    fits = {
        name: all(value == only.get(key, value) for key, value in candidate_of(name).items())
        for name in candidates.unique()
    }
    return candidates.map(fits).astype(bool)


def is_there(experiment: Experiment, read: Reader) -> bool:
    """Whether any of its own rows are stored; an experiment without methods lives on those of others."""
    names = [experiment.name] if experiment.methods else experiment.beside
    return any(len(read(name, dataset)) for name in names for dataset in experiment.datasets)


def how_to_run(experiment: Experiment) -> str:
    name = experiment.name if experiment.methods else experiment.beside[0]
    return f"nothing was run yet; `crowdshot paper run {name}` makes its rows."


def notes(
    experiment: Experiment, datasets: Sequence[str], rows: pd.DataFrame, read: Reader, results: Path
) -> list[str]:
    """What a reader must know of these rows."""
    found = []
    marked = sorted(
        {name for name in ADDED if rows["method"].str.startswith(name).any()}
        | {system(label) for label in rows["method"].unique() if is_foreign(label)}
    )
    if marked:
        found.append("† Not in the paper. " + " ".join(f"{name}: {_summary(name)}." for name in marked))
    if experiment.name in ALIKE:
        told = ", ".join(f"{'J' if name == 'steps' else name} = {value:g}" for name, value in experiment.only.items())
        found.append(f"(main): {ALIKE[experiment.name]}." + (f" Here and there with {told} alone." if told else ""))
    if experiment.name in SETTINGS_COMPARED:
        every = [read(name, dataset) for name in experiment.beside for dataset in datasets]
        n, m = len(rows[PIECE].drop_duplicates()), sum(len(part[PIECE].drop_duplicates()) for part in every)
        if n < m:
            found.append(f"Over the {n} of {m} cells and splits that were run with all these settings.")
    found += stand_in_notes(datasets)
    found += _gaps(rows)
    if is_toy(experiment, datasets, results):
        found.append(TOY)
    return found


def _summary(name: str) -> str:
    return METHODS[name].summary if name in METHODS else "of a package that is not installed here"


def stand_in_notes(datasets: Sequence[str]) -> list[str]:
    found = []
    for dataset in datasets:
        source = TARGETS[dataset].source
        theirs = label(published.STAND_INS.get(source, source))
        if dataset in published.STAND_INS:
            found.append(f"{dataset} is a stand-in for {theirs}, of which the paper's numbers are.")
        elif source in published.STAND_INS:
            found.append(f"Encoders for {label(dataset)} learned from {source}, a stand-in for the paper's {theirs}.")
    return found


def _gaps(rows: pd.DataFrame) -> list[str]:
    """Methods that have fewer cells or splits than there are, or not all their candidates on all splits."""
    tested = rows.loc[rows["role"] == "test", [*PIECE, "method", "candidate"]].drop_duplicates()
    pieces = tested.drop_duplicates([*PIECE, "method"])
    every, counts = len(tested[PIECE].drop_duplicates()), pieces["method"].value_counts()
    told = [f"{name} ({counts[name]} of {every})" for name in in_order(counts.index) if counts[name] < every]
    found = [f"Not complete (cells by splits): {', '.join(told)}."] if told else []
    candidates = tested.groupby([*PIECE, "method"]).size().groupby("method").agg(["min", "max"])
    few = [f"{name} ({row['min']} of {row['max']})" for name, row in candidates.iterrows() if row["min"] < row["max"]]
    if few:
        found.append(
            f"Some splits have fewer candidates: {', '.join(few)}; only one that all splits have can be chosen."
        )
    return found


def is_toy(experiment: Experiment, datasets: Sequence[str], results: Path) -> bool:
    stores = [Store(results, name, one) for name in (experiment.name, *experiment.beside) for one in datasets]
    return any("--quick" in run.get("command", "") for store in stores for run in store.runs())
