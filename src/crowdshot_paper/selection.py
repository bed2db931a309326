"""Select a candidate per method from stored rows, and compute means, standard errors and paired tests for tables.

The paper chooses the settings of Ours on validation and reports the other methods' best candidates on test. `select`
follows the paper or, with ``fair``, chooses on validation for all methods.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import ttest_rel

from crowdshot.methods import METHODS
from crowdshot_paper import published
from crowdshot_paper.experiments import ADDED, BEYOND, SYSTEMS, Experiment, candidate_name, candidate_of
from crowdshot_paper.registry import CEILINGS
from crowdshot_paper.store import COLUMNS, Store, read_rows

CELL = ["n_support", "n_annotators"]
EPISODE = [*CELL, "split", "mixture", "episode"]  # the columns by which methods are paired
LEVEL = 0.05  # of the paired t-test

NOT_IN_PAPER = (*ADDED, *BEYOND)
_EXTRA = [name for name in SYSTEMS if name not in published.IN_PAPER and name not in NOT_IN_PAPER]
ORDER = [*published.IN_PAPER, *_EXTRA, *NOT_IN_PAPER]
"""Methods in the paper's order, then those that are not in the paper."""
BY_VALIDATION = ("Ours", "labeling-search", "combined", "labeling-search narrow", "Ours wide", "True matrices")
"""Methods whose candidates are never chosen on test."""

Reader = Callable[[str, str], pd.DataFrame]
"""Returns the rows of (experiment, dataset)."""


def reader(results: Path) -> Reader:
    """Return a function that reads the rows of an experiment on a dataset and caches them."""
    return cache(lambda experiment, dataset: read_rows(results, experiment, dataset))


def system(label: str) -> str:
    """Return the method of a column: "Ours" for "Ours b=10"."""
    return re.sub(r" (\(main\)|[a-zA-Z]+=\S+)$", "", label)


def is_foreign(label: str) -> bool:
    """Return whether a column shows a method of another package, which need not be installed."""
    return system(label) not in SYSTEMS


def in_order(labels: Iterable[str]) -> list[str]:
    """Sort columns in the order of the paper; those of the same method by name."""
    place = {name: i for i, name in enumerate(ORDER)}
    return sorted(set(labels), key=lambda label: (place.get(system(label), len(place)), label))


def spread(rows: pd.DataFrame, setting: str, letter: str) -> pd.DataFrame:
    """Make each value of a setting a separate method: "Ours" with candidate "steps=2, b=10" becomes "Ours b=10"."""
    value = rows["candidate"].str.extract(rf"(?:^|, ){setting}=([^,]+)", expand=False)
    known = rows[value.notna()]
    return known.assign(method=known["method"] + f" {letter}=" + value[value.notna()])


def choose(rows: pd.DataFrame, role: str) -> pd.DataFrame:
    """Choose the candidate with the best mean accuracy over splits for each cell and method; the first one of ties.

    Columns of the result: n_support, n_annotators, method, candidate. ``role`` is "validation" or "test". A candidate
    that was not run on all splits of its method cannot be chosen, as its mean would be over other episodes.
    """
    keys = [*CELL, "method", "candidate"]
    part = rows[rows["role"] == role]
    groups = part.astype({"accuracy": float}).groupby(keys)
    means = groups["accuracy"].mean().round(9).to_frame().assign(splits=groups["split"].nunique()).reset_index()
    means = means[means["splits"] == means.groupby(keys[:-1])["splits"].transform("max")]
    place = [_place(method, candidate) for method, candidate in zip(means["method"], means["candidate"], strict=True)]
    means = means.assign(place=place).sort_values(["accuracy", "place"], ascending=[False, True], kind="stable")
    return means.drop_duplicates(keys[:-1])[keys]


@cache
def _place(label: str, candidate: str) -> int:
    """Return the position of a candidate among those of its method."""
    method = SYSTEMS.get(system(label))
    names = [] if method is None else [candidate_name(one) for one in method.candidates]
    return names.index(candidate) if candidate in names else len(names)


def select(rows: pd.DataFrame, fair: bool) -> pd.DataFrame:
    """Return the test rows of the chosen candidates.

    Candidates of `BY_VALIDATION` are chosen on validation, others on test or, if ``fair``, also on validation.
    """
    chosen, by_test = choose(rows, "validation"), choose(rows, "test")
    if not fair:
        ours, theirs = (part["method"].map(system).isin(BY_VALIDATION) for part in (chosen, by_test))
        chosen = pd.concat([chosen[ours], by_test[~theirs]])
    return rows[rows["role"] == "test"].merge(chosen, on=[*CELL, "method", "candidate"])


def summarise(selected: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Compute mean, standard error and a test against the best method for every group of ``by``.

    Columns: *by, method, accuracy, stderr, episodes, p, best. The accuracy of a group is the mean of its cells' means.
    Its standard error is computed from the variance within cells. ``p`` is the p-value of a paired t-test against the
    best method of the group. ``best`` marks the best method and those that do not differ from it. A method without all
    cells of the group is left out.
    """
    groups = selected.groupby(list(by), sort=True) if by else [((), selected)]
    parts = [_summary(group).assign(**dict(zip(by, key, strict=True))) for key, group in groups if len(group)]
    columns = [*by, "method", "accuracy", "stderr", "episodes", "p", "best"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _summary(group: pd.DataFrame) -> pd.DataFrame:
    wide = group.pivot(index=EPISODE, columns="method", values="accuracy").astype(float)
    cells = wide.groupby(level=CELL)
    counts = cells.count()
    whole = [method for method in wide if (counts[method] > 0).all()]
    errors = (cells.std() / np.sqrt(counts))[whole]
    table = pd.DataFrame(
        {
            "accuracy": cells.mean()[whole].mean(),
            "stderr": np.sqrt(errors.pow(2).sum(skipna=False)) / len(errors),
            "episodes": counts[whole].sum(),
        }
    )
    table = table.rename_axis("method").loc[in_order(whole)].reset_index()
    rivals = table[~table["method"].isin(CEILINGS)]
    if not len(rivals):
        return table.assign(p=np.nan, best=False)
    best = rivals["method"][rivals["accuracy"].round(9).idxmax()]
    p = [1.0 if method == best else p_value(*_pairs(wide, best, method)) for method in table["method"]]
    return table.assign(p=p, best=(np.array(p) >= LEVEL) & table["method"].isin(rivals["method"]))


def _pairs(wide: pd.DataFrame, one: str, other: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    both = wide[[one, other]].dropna().to_numpy(dtype=np.float64)
    return both[:, 0], both[:, 1]


def p_value(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the p-value of the paired t-test, or NaN for fewer than two pairs.

    If all differences are equal, it is 1 if they are zero and 0 otherwise.
    """
    difference = (one - other).round(9)
    if len(difference) < 2:
        return float("nan")
    if np.ptp(difference) == 0:
        return float(difference[0] == 0)
    return float(ttest_rel(one, other).pvalue)


# ---- the rows that the tables and figures of an experiment show, and notes about them ----


LABELS = {
    "omniglot": "Omniglot",
    "miniimagenet": "miniImageNet",
    "labelme": "LabelMe",
    "cifar10h": "CIFAR-10H",
}

PIECE = ["dataset", *CELL, "split"]
SETTINGS_COMPARED = ("em-steps", "dirichlet-b")  # experiments whose columns are settings of Ours
ALL_METHODS = ("spammers", "beyond", "beyond-other-annotators")  # experiments that show all rows of `beside`
SINGLE_CHANGES = {  # experiments that change one thing, and what the columns "(main)" have instead
    "each-cell": "one encoder for all cells; the others have one for each",
    "as-sparse": "meta-trained with four classes and every label of three to seven annotators",
    "hard-labels": "Dawid–Skene's posterior; the others use its most probable class",
    "two-steps": "all three gradient steps; the others take two",
    "source-noise": "source data without wrong labels; noise is the share of source items with another item's class",
    "simulated-spammers": "20 % of the simulated annotators of meta-training are spammers",
    "strength-of-means": "tau = 1",
    "strength-of-matrices": "c = 1",
    "covariance": "variance = 1",
    "without-errors": "meta-trained with simulated annotators; the other column with annotators who make no errors",
    "centred": "the prior's origin is that of the encoder; for the others it is the centre of the support set",
}

TOY = "TOY SIZE (`--quick`): a test that everything runs; the numbers mean nothing."


def label(dataset: str) -> str:
    """Return the name of a dataset in tables and figures."""
    return LABELS.get(dataset, dataset)


def gather(experiment: Experiment, dataset: str, read: Reader) -> pd.DataFrame:
    """Return the rows of the experiment and those of other experiments that it shows."""
    rows = read(experiment.name, dataset) if experiment.methods else pd.DataFrame(columns=COLUMNS)
    if experiment.name in SINGLE_CHANGES and not len(rows):  # there is nothing to compare
        return rows
    others = [read(name, dataset) for name in experiment.beside]
    beside = [_beside(experiment, other) for other in others if len(other)]
    if experiment.name == "class-imbalance" and len(rows):
        beside.append(spread(rows[rows["method"] == "Ours"], "b", "b"))
    for setting in experiment.sweep:
        rows = spread(rows, setting, setting)
    parts = [part for part in (rows, *beside) if len(part)]
    rows = pd.concat(parts, ignore_index=True) if parts else rows
    return shared(rows) if experiment.name in SETTINGS_COMPARED else rows


def shared(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the cells and splits that every method has, so that averages are over the same episodes."""
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
    if experiment.name in SINGLE_CHANGES:
        same = rows[rows["method"].isin(experiment.methods) & _matches(rows["candidate"], experiment.only)]
        return same.assign(method=same["method"] + " (main)")
    return rows if experiment.name in ALL_METHODS else ours


def _matches(candidates: pd.Series[str], only: Mapping[str, float]) -> pd.Series[bool]:
    """Return which candidates have these values of the settings; candidates without a setting match."""
    fits = {
        name: all(value == only.get(key, value) for key, value in candidate_of(name).items())
        for name in candidates.unique()
    }
    return candidates.map(fits).astype(bool)


def is_there(experiment: Experiment, read: Reader) -> bool:
    """Return whether any rows are stored: of the experiment, or of those it shows if it has no methods."""
    names = [experiment.name] if experiment.methods else experiment.beside
    return any(len(read(name, dataset)) for name in names for dataset in experiment.datasets)


def how_to_run(experiment: Experiment) -> str:
    name = experiment.name if experiment.methods else experiment.beside[0]
    return f"there are no rows; run `crowdshot paper run {name}` first."


def notes(
    experiment: Experiment, datasets: Sequence[str], rows: pd.DataFrame, read: Reader, results: Path
) -> list[str]:
    """Return the notes below a table of these rows."""
    found = []
    marked = sorted(
        {name for name in ADDED if rows["method"].str.startswith(name).any()}
        | {system(label) for label in rows["method"].unique() if is_foreign(label)}
    )
    if marked:
        found.append("† Not in the paper. " + " ".join(f"{name}: {_rows_summary(name)}." for name in marked))
    if experiment.name in SINGLE_CHANGES:
        only = ", ".join(f"{'J' if name == 'steps' else name} = {value:g}" for name, value in experiment.only.items())
        restriction = f" All columns have {only} only." if only else ""
        found.append(f"(main): {SINGLE_CHANGES[experiment.name]}.{restriction}")
    if experiment.name in SETTINGS_COMPARED:
        every = [read(name, dataset) for name in experiment.beside for dataset in datasets]
        n, m = len(rows[PIECE].drop_duplicates()), sum(len(part[PIECE].drop_duplicates()) for part in every)
        if n < m:
            found.append(f"Over the {n} of {m} cells and splits that were run with all these settings.")
    found += precision_notes(experiment, datasets, results)
    found += _gaps(rows)
    if is_toy(experiment, datasets, results):
        found.append(TOY)
    return found


def _rows_summary(name: str) -> str:
    return METHODS[name].summary if name in METHODS else "from a package that is not installed"


def precision_notes(experiment: Experiment, datasets: Sequence[str], results: Path) -> list[str]:
    """Return sentences with the precision of meta-training on each dataset whose runs recorded it."""
    found = []
    for dataset in datasets:
        stores = [Store(results, name, dataset) for name in (experiment.name, *experiment.beside)]
        used = sorted({run["precision"] for store in stores for run in store.runs() if "precision" in run})
        if used:
            found.append(f"{label(dataset)}: encoders were meta-trained in {' or '.join(used)}.")
    return found


def _gaps(rows: pd.DataFrame) -> list[str]:
    """Return notes about methods without all cells and splits, or without all candidates on all splits."""
    tested = rows.loc[rows["role"] == "test", [*PIECE, "method", "candidate"]].drop_duplicates()
    pieces = tested.drop_duplicates([*PIECE, "method"])
    every, counts = len(tested[PIECE].drop_duplicates()), pieces["method"].value_counts()
    partial = [f"{name} ({counts[name]} of {every})" for name in in_order(counts.index) if counts[name] < every]
    found = [f"Incomplete (cells by splits): {', '.join(partial)}."] if partial else []
    found += _fewer_episodes(rows[rows["role"] == "test"])
    candidates = tested.groupby([*PIECE, "method"]).size().groupby("method").agg(["min", "max"])
    few = [f"{name} ({row['min']} of {row['max']})" for name, row in candidates.iterrows() if row["min"] < row["max"]]
    if few:
        found.append(
            f"Some splits have fewer candidates: {', '.join(few)}. Only candidates of all splits can be chosen."
        )
    return found


def _fewer_episodes(tested: pd.DataFrame) -> list[str]:
    """Return notes about methods that were tested on the first episodes of every crowd and split only."""
    found = []
    for dataset, part in tested.groupby("dataset"):
        counts = part.groupby("method")["episode"].max() + 1
        most = counts.max()
        some = [f"{name} ({counts[name]} of {most})" for name in in_order(counts.index) if counts[name] < most]
        if some:
            found.append(f"{label(str(dataset))}, first episodes of each crowd and split only: {', '.join(some)}.")
    return found


def is_toy(experiment: Experiment, datasets: Sequence[str], results: Path) -> bool:
    stores = [Store(results, name, one) for name in (experiment.name, *experiment.beside) for one in datasets]
    return any("--quick" in run.get("command", "") for store in stores for run in store.runs())
