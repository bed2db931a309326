"""A run's numbers beside the paper's, with the difference in standard errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from crowdshot.paper.plan import published
from crowdshot.paper.plan.experiments import ADDED, Experiment
from crowdshot.paper.show.layout import NOTHING, Line, PrintedTable
from crowdshot.paper.show.selection import CELL, in_order, is_foreign, system

CLOSE = 2.0  # standard errors
LINES = {
    "this run": ("accuracy", "{:.3f}"),
    "paper": ("paper", "{:.3f}"),
    "difference": ("difference", "{:+.3f}"),
    "in standard errors": ("in_standard_errors", "{:+.1f}"),
}


NUMBERS = ("accuracy", "stderr", "expected", "paper", "paper_stderr", "error", "difference", "in_standard_errors")
SAME_DRAW_LINES = {
    "this run": ("accuracy", "{:.3f}"),
    "on the paper's draw": ("expected", "{:.3f}"),
    **{what: LINES[what] for what in ("paper", "difference", "in standard errors")},
}


def column_name(method: str) -> str:
    """Marked, where it is of a method that stands among the paper's and is not in the paper."""
    added = [system(method)] if is_foreign(method) else [name for name in ADDED if method.startswith(name)]
    name = max(added, key=len, default="")
    return f"{name}†{method.removeprefix(name)}" if name else method


def lookup(summary: pd.DataFrame, by: Sequence[str]) -> dict[tuple[tuple[Any, ...], str], Any]:
    """(key, method) -> the row; the key of an average over all is ()."""
    found = {}
    for row in summary.itertuples(index=False):
        key = tuple(getattr(row, name) for name in by)
        found[() if any(pd.isna(value) for value in key) else key, row.method] = row
    return found


def by_cell(
    experiment: Experiment, dataset: str, summary: pd.DataFrame, sizes: Collection[tuple[int, int]]
) -> pd.DataFrame:
    """The paper's cells of these sizes beside the run's (NaN where not run), and each method's average.

    The average of the run is there where all its cells are. A column like "Ours (main)" stands beside Ours.
    """
    paper = published.figures(experiment.name, dataset).dropna(subset=CELL).astype(dict.fromkeys(CELL, int))
    paper = paper.merge(pd.DataFrame(list(sizes), columns=CELL), on=CELL)
    if not len(paper):
        return paper
    labels = in_order([*(name for name in paper["method"] if name in experiment.methods), *summary["method"]])
    parts = [_as_paper(paper[paper["method"] == system(name)]).assign(method=name) for name in labels]
    both = pd.concat(parts).merge(summary[[*CELL, "method", "accuracy", "stderr"]], on=[*CELL, "method"], how="left")
    averages = pd.DataFrame([_average(part) for _, part in both.groupby("method", sort=False)])
    return compared(pd.concat([both.astype(dict.fromkeys(CELL, object)), averages], ignore_index=True))


def by_dataset(experiment: Experiment, summary: pd.DataFrame) -> pd.DataFrame:
    """The paper's averages beside a summary by dataset (NaN where not run)."""
    parts = [_as_paper(published.figures(experiment.name, name)).assign(dataset=name) for name in experiment.datasets]
    paper = pd.concat(parts, ignore_index=True)[["dataset", "method", "paper", "paper_stderr"]]
    return compared(paper.merge(summary, on=["dataset", "method"], how="left"))


def _as_paper(figures: pd.DataFrame) -> pd.DataFrame:
    return figures.rename(columns={"accuracy": "paper", "stderr": "paper_stderr"})


def _average(part: pd.DataFrame) -> dict[str, Any]:
    """Of a method's cells; standard errors of a mean of independent numbers."""
    mean = part[["accuracy", "paper"]].astype(float).mean(skipna=False)
    error = np.sqrt(part[["stderr", "paper_stderr"]].astype(float).pow(2).sum(skipna=False)) / len(part)
    return {"method": part["method"].iloc[0], **mean, **error}


def compared(both: pd.DataFrame) -> pd.DataFrame:
    """Adds difference = run - paper, and that over sqrt(se_run² + se_paper²).

    Where the paper gives no standard error, the run's own stands in: both come from as many episodes.
    """
    difference = both["accuracy"].astype(float) - both["paper"]
    theirs = both["paper_stderr"].fillna(both["stderr"]).astype(float)
    error = np.sqrt(both["stderr"].astype(float) ** 2 + theirs**2)
    return both.assign(difference=difference, in_standard_errors=difference / error.where(error > 0))


def within(paper: pd.DataFrame, method: str, by: Sequence[str]) -> tuple[int, int]:
    """(n, m): of m numbers of a method, n lie within two standard errors of the paper's; averages do not count."""
    part = paper[(paper["method"] == method) & paper[by[0]].notna() & paper["in_standard_errors"].notna()]
    return int((part["in_standard_errors"].abs() <= CLOSE).sum()), len(part)


def twin(
    name: str,
    caption: str,
    heads: tuple[str, ...],
    rows: Sequence[tuple[tuple[Any, ...], tuple[str, ...]]],
    by: list[str],
    paper: pd.DataFrame,
    about: Sequence[str],
) -> PrintedTable:
    """Some lines for each row: this run, the paper, their difference, and that in standard errors.

    ``paper`` comes from `by_cell` or `by_dataset`, or from `same_draw.by_cell`, which has a line more.
    """
    shown = SAME_DRAW_LINES if "expected" in paper else LINES
    if shown is LINES:
        errors = "" if paper["paper_stderr"].notna().any() else ", this run’s standing in where the paper gives none"
        caption += f" Differences are this run's less the paper's; standard errors sqrt(se_run² + se_paper²){errors}."
    columns, found = in_order(paper["method"]), lookup(paper, by)
    lines = []
    for key, names in rows:
        for i, (what, (field, form)) in enumerate(shown.items()):
            labels = names if i == 0 else ("",) * len(names)
            cells = tuple(_text(found, (key, method), field, form) for method in columns)
            lines.append(Line((*labels, what), cells, ruled=i == 0))
    counts = [within(paper, method, by) for method in columns]
    told = tuple(f"{n} of {m}" if m else NOTHING for n, m in counts)
    lines.append(Line((*("",) * len(heads), "within two"), told, ruled=True))
    caption += " Last line: how many lie within two standard errors."
    kept = [*by, "method", *(column for column in NUMBERS if column in paper)]
    return PrintedTable(name, caption, (*heads, ""), tuple(columns), tuple(lines), paper[kept], _fitting(about))


def _text(found: Mapping[Any, Any], place: Any, field: str, form: str) -> str:
    value = getattr(found[place], field) if place in found else np.nan
    if pd.isna(value):
        return NOTHING
    text = form.format(value)
    return text.replace("-", "−") if float(text) else text.lstrip("+-")


def _fitting(about: Sequence[str]) -> tuple[str, ...]:
    """PrSV is not in the paper and so not here either."""
    return tuple(note for note in about if not note.startswith("†"))
