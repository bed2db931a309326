"""From stored rows to what tables show: which candidate of a method counts, its mean, and who is as good as the best.

The paper chooses the settings of Ours on validation and reports its rivals' best candidate on test. Both are here for
everyone: `select` follows the paper, or, with ``fair``, chooses on validation for all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import ttest_rel

from crowdshot.methods.variants import CEILINGS
from crowdshot.paper.plan import published
from crowdshot.paper.plan.experiments import ADDED, BEYOND, SYSTEMS, candidate_name
from crowdshot.paper.run.store import read_rows

CELL = ["n_support", "n_annotators"]
EPISODE = [*CELL, "split", "mixture", "episode"]  # what methods are paired by
LEVEL = 0.05  # of the paired t-test

NOT_IN_PAPER = (*ADDED, *BEYOND)
_EXTRA = [name for name in SYSTEMS if name not in published.IN_PAPER and name not in NOT_IN_PAPER]
ORDER = [*published.IN_PAPER, *_EXTRA, *NOT_IN_PAPER]
"""The paper's order; what it does not have at the end."""
BY_VALIDATION = ("Ours", "Labelings", "Both", "Labelings narrow", "Ours wide", "True matrices")
"""Those whose candidates are never chosen on test."""

Reader = Callable[[str, str], pd.DataFrame]
"""(experiment, dataset) -> its rows."""


def reader(results: Path) -> Reader:
    """Reads each experiment's rows once, however many tables ask for them."""
    return cache(lambda experiment, dataset: read_rows(results, experiment, dataset))


def system(label: str) -> str:
    """The method that a column shows: "Ours b=10" is of Ours."""
    return re.sub(r" (\(main\)|[bJ]=\S+)$", "", label)


def is_foreign(label: str) -> bool:
    """Whether a column shows a method of another package, which need not be installed where tables are made."""
    return system(label) not in SYSTEMS


def in_order(labels: Iterable[str]) -> list[str]:
    """As the paper has them; those of one method by their names."""
    place = {name: i for i, name in enumerate(ORDER)}
    return sorted(set(labels), key=lambda label: (place.get(system(label), len(place)), label))


def spread(rows: pd.DataFrame, setting: str, letter: str) -> pd.DataFrame:
    """Each value of a setting as a method of its own: "Ours" with candidate "steps=2, b=10" -> "Ours b=10"."""
    value = rows["candidate"].str.extract(rf"(?:^|, ){setting}=([^,]+)", expand=False)
    known = rows[value.notna()]
    return known.assign(method=known["method"] + f" {letter}=" + value[value.notna()])


def choose(rows: pd.DataFrame, role: str) -> pd.DataFrame:
    """The candidate with the best mean accuracy of each cell and method, over splits; the earlier one of equals.

    Columns: n_support, n_annotators, method, candidate. ``role``: "validation" or "test". A candidate that was not run
    on all of its method's splits cannot be chosen, as its mean would be of other episodes.
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
    """Where a candidate stands among its method's."""
    method = SYSTEMS.get(system(label))
    names = [] if method is None else [candidate_name(one) for one in method.candidates]
    return names.index(candidate) if candidate in names else len(names)


def select(rows: pd.DataFrame, fair: bool) -> pd.DataFrame:
    """The test rows of the candidates that count: ours by validation, others by test, or, if fair, by validation."""
    chosen, by_test = choose(rows, "validation"), choose(rows, "test")
    if not fair:
        ours, theirs = (part["method"].map(system).isin(BY_VALIDATION) for part in (chosen, by_test))
        chosen = pd.concat([chosen[ours], by_test[~theirs]])
    return rows[rows["role"] == "test"].merge(chosen, on=[*CELL, "method", "candidate"])


def summarise(selected: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Mean, standard error and who is best, for every group of ``by``, averaged over the cells in it.

    Columns: *by, method, accuracy, stderr, episodes, p, best. A group's accuracy is the mean of its cells' means, its
    standard error comes from the spread within them. ``p`` is the paired t-test's against the best of the group;
    ``best`` marks that one and those that do not differ from it. A method that lacks a cell that others have is left
    out of the group.
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
    """Of the paired t-test; NaN for fewer than two pairs, 1 and 0 where the two differ never or always alike."""
    difference = (one - other).round(9)
    if len(difference) < 2:
        return float("nan")
    if np.ptp(difference) == 0:
        return float(difference[0] == 0)
    return float(ttest_rel(one, other).pvalue)
