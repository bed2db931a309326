"""Compare results with the paper's numbers, and two result folders with each other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import counted, shown
from crowdshot_paper import published
from crowdshot_paper.episode_cells import REAL, TARGETS
from crowdshot_paper.experiments import ADDED, EXPERIMENTS, Experiment
from crowdshot_paper.layout import NOTHING, Line, PrintedTable, markdown
from crowdshot_paper.selection import CELL, EPISODE, LEVEL, in_order, is_foreign, label, p_value, select, system
from crowdshot_paper.store import Store, read_rows

CLOSE = 2.0  # standard errors that count as agreement
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
    """Return the name of a column, marked with † if the method is listed with the paper's but is not in the paper."""
    added = [system(method)] if is_foreign(method) else [name for name in ADDED if method.startswith(name)]
    name = max(added, key=len, default="")
    return f"{name}†{method.removeprefix(name)}" if name else method


def lookup(summary: pd.DataFrame, by: Sequence[str]) -> dict[tuple[tuple[Any, ...], str], Any]:
    """Return rows by (key, method); the key of an average over all is ()."""
    found = {}
    for row in summary.itertuples(index=False):
        key = tuple(getattr(row, name) for name in by)
        found[() if any(pd.isna(value) for value in key) else key, row.method] = row
    return found


def by_cell(
    experiment: Experiment, dataset: str, summary: pd.DataFrame, sizes: Collection[tuple[int, int]]
) -> pd.DataFrame:
    """Join the paper's cells of these sizes with the run's, which are NaN if not run, and add each method's average.

    The average of a run is NaN unless all its cells were run. A column such as "Ours (main)" is compared with Ours.
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
    """Join the paper's averages with a summary by dataset, which is NaN if not run."""
    parts = [_as_paper(published.figures(experiment.name, name)).assign(dataset=name) for name in experiment.datasets]
    paper = pd.concat(parts, ignore_index=True)[["dataset", "method", "paper", "paper_stderr"]]
    return compared(paper.merge(summary, on=["dataset", "method"], how="left"))


def _as_paper(figures: pd.DataFrame) -> pd.DataFrame:
    return figures.rename(columns={"accuracy": "paper", "stderr": "paper_stderr"})


def _average(part: pd.DataFrame) -> dict[str, Any]:
    """Average the cells of a method; the standard error is that of a mean of independent numbers."""
    mean = part[["accuracy", "paper"]].astype(float).mean(skipna=False)
    error = np.sqrt(part[["stderr", "paper_stderr"]].astype(float).pow(2).sum(skipna=False)) / len(part)
    return {"method": part["method"].iloc[0], **mean, **error}


def compared(both: pd.DataFrame) -> pd.DataFrame:
    """Add the difference run - paper, and the difference divided by sqrt(se_run² + se_paper²).

    If the paper gives no standard error, that of the run is used, as both have the same number of episodes.
    """
    difference = both["accuracy"].astype(float) - both["paper"]
    theirs = both["paper_stderr"].fillna(both["stderr"]).astype(float)
    error = np.sqrt(both["stderr"].astype(float) ** 2 + theirs**2)
    return both.assign(difference=difference, in_standard_errors=difference / error.where(error > 0))


def within(paper: pd.DataFrame, method: str, by: Sequence[str]) -> tuple[int, int]:
    """Return (n, m): n of the m numbers of a method are within two standard errors of the paper's, without averages."""
    part = paper[(paper["method"] == method) & paper[by[0]].notna() & paper["in_standard_errors"].notna()]
    return int((part["in_standard_errors"].abs() <= CLOSE).sum()), len(part)


def comparison_table(
    name: str,
    caption: str,
    heads: tuple[str, ...],
    rows: Sequence[tuple[tuple[Any, ...], tuple[str, ...]]],
    by: list[str],
    paper: pd.DataFrame,
    about: Sequence[str],
) -> PrintedTable:
    """Return a table with several lines per row: this run, the paper, their difference, and it in standard errors.

    ``paper`` comes from `by_cell` or `by_dataset`, or from `same_draw_by_cell`, which adds a line.
    """
    shown = SAME_DRAW_LINES if "expected" in paper else LINES
    if shown is LINES:
        errors = "" if paper["paper_stderr"].notna().any() else ", with this run's where the paper gives none"
        caption += f" Differences are this run minus the paper; standard errors are sqrt(se_run² + se_paper²){errors}."
    columns, found = in_order(paper["method"]), lookup(paper, by)
    lines = []
    for key, names in rows:
        for i, (what, (field, form)) in enumerate(shown.items()):
            labels = names if i == 0 else ("",) * len(names)
            cells = tuple(_text(found, (key, method), field, form) for method in columns)
            lines.append(Line((*labels, what), cells, ruled=i == 0))
    counts = [within(paper, method, by) for method in columns]
    agreement = tuple(f"{n} of {m}" if m else NOTHING for n, m in counts)
    lines.append(Line((*("",) * len(heads), "within two"), agreement, ruled=True))
    caption += " Last line: how many differences are within two standard errors."
    kept = [*by, "method", *(column for column in NUMBERS if column in paper)]
    return PrintedTable(name, caption, (*heads, ""), tuple(columns), tuple(lines), paper[kept], _without_dagger(about))


def _text(found: Mapping[Any, Any], place: Any, field: str, form: str) -> str:
    value = getattr(found[place], field) if place in found else np.nan
    if pd.isna(value):
        return NOTHING
    text = form.format(value)
    return text.replace("-", "−") if float(text) else text.lstrip("+-")


def _without_dagger(about: Sequence[str]) -> tuple[str, ...]:
    """Drop the note about methods that are not in the paper, as they are not in a comparison with it."""
    return tuple(note for note in about if not note.startswith("†"))


# ---- comparison of two result folders over the same episodes ----


KEYS = ["experiment", "dataset", "method", *CELL]
COLUMNS = [*KEYS, "one", "other", "difference", "stderr", "p", "episodes", "one_candidate", "other_candidate"]


def compare(one: Path, other: Path, methods: Iterable[str] | None = None, against: str | None = None) -> pd.DataFrame:
    """Return a row for each common cell, and for each method's average over them, with columns `COLUMNS`.

    Settings are chosen on validation separately in each folder, on the episodes that both have. Episodes are paired by
    split, crowd and number. ``difference`` is ``other`` minus ``one``. With ``against``, every method of ``other`` is
    compared with this method of ``one``, which may be the same folder; else with itself.
    """
    for folder in (one, other):
        if not folder.is_dir():
            expected = "a folder with rows of `crowdshot paper run`"
            raise CrowdshotError("is not a folder", where=shown(folder), expected=expected)
    found = [
        _compared(name, dataset, one, other, against)
        for name, experiment in EXPERIMENTS.items()
        for dataset in experiment.datasets
        if all((folder / name / dataset).is_dir() for folder in (one, other))
    ]
    table = pd.concat([pd.DataFrame(columns=COLUMNS), *(part for part in found if len(part))], ignore_index=True)
    if methods is not None:
        table = table[table["method"].isin(list(methods))].reset_index(drop=True)
    if not len(table):
        of = "" if against is None else f" of {against}"
        raise CrowdshotError(f"has no cell{of} in common with {shown(one)}", where=shown(other), found=against)
    return table


def _compared(experiment: str, dataset: str, one: Path, other: Path, against: str | None) -> pd.DataFrame:
    """Compare an experiment on a dataset."""
    _check_same_draw(experiment, dataset, one, other)
    parts = [read_rows(folder, experiment, dataset) for folder in (one, other)]
    same = ["method"]
    if against is not None:
        same = []
        parts[0] = parts[0][parts[0]["method"] == against]
        if one == other:
            parts[1] = parts[1][parts[1]["method"] != against]
    keys = [*EPISODE, "role", *same, *(["candidate"] if same else [])]
    both = parts[0][keys].drop_duplicates().merge(parts[1][keys].drop_duplicates())
    chosen = [select(part.merge(both, on=keys), fair=True) for part in parts]
    pairs = chosen[0][[*EPISODE, *same, "candidate", "accuracy"]].merge(
        chosen[1], on=[*EPISODE, *same], suffixes=("_one", "_other")
    )
    rows = []
    for method in in_order(pairs["method"]):
        cells = [
            {**dict(zip(CELL, cell, strict=True)), **_difference(part)}
            for cell, part in pairs[pairs["method"] == method].groupby(CELL)
        ]
        rows += [{"method": method, **cell} for cell in cells]
        if len(cells) > 1:
            rows.append({"method": method, **_store_average(pairs[pairs["method"] == method], pd.DataFrame(cells))})
    return pd.DataFrame(rows).reindex(columns=COLUMNS).assign(experiment=experiment, dataset=dataset)


def _check_same_draw(experiment: str, dataset: str, one: Path, other: Path) -> None:
    """Refuse runs with more episodes than the paper's, unless both have as many: they have drawn other episodes."""
    usual = TARGETS[dataset].episodes
    drawn = [
        max([usual, *(run.get("episodes") or 0 for run in Store(folder, experiment, dataset).runs())])
        for folder in (one, other)
    ]
    if drawn[0] != drawn[1]:
        message = f"was run with {drawn[1]} episodes per cell and split, and {shown(one)} with {drawn[0]}"
        expected = f"the same number, or at most {usual}: else the episodes differ"
        where = shown(other / experiment / dataset)
        raise CrowdshotError(message, argument="episodes", where=where, found=drawn, expected=expected)


def _difference(pairs: pd.DataFrame) -> dict[str, object]:
    # The last digits of stored float32 numbers may differ; the effect of a single query is far larger.
    one, other = (pairs[f"accuracy_{which}"].to_numpy(dtype=np.float64).round(6) for which in ("one", "other"))
    spread = (other - one).std(ddof=1) if len(one) > 1 else np.nan
    return {
        "one": one.mean(),
        "other": other.mean(),
        "difference": (other - one).mean(),
        "stderr": spread / np.sqrt(len(one)),
        "p": p_value(other, one),
        "episodes": len(one),
        **{f"{which}_candidate": pairs[f"candidate_{which}"].iloc[0] for which in ("one", "other")},
    }


def _store_average(pairs: pd.DataFrame, cells: pd.DataFrame) -> dict[str, object]:
    """Average cells with equal weights; the p-value is computed over all episodes."""
    means = cells[["one", "other", "difference"]].mean()
    error = float(np.sqrt((cells["stderr"] ** 2).sum(skipna=False))) / len(cells)
    return {**means, "stderr": error, "p": _difference(pairs)["p"], "episodes": cells["episodes"].sum()}


def comparison_text(table: pd.DataFrame, one: Path, other: Path, against: str | None = None) -> str:
    """Return the comparison as Markdown: a table per experiment and dataset, and the number of cells that differ."""
    caption, columns = f"{other} minus {one}.", (str(one), str(other))
    if against is not None:
        caption, columns = f"Each method of {other} minus {against} of {one}.", (against, "the method")
    parts = [
        markdown(_printed(f"{experiment}, {label(dataset)}", caption, columns, part, same_method=against is None))
        for (experiment, dataset), part in table.groupby(["experiment", "dataset"], sort=False)
    ]
    cells = table[table[CELL[0]].notna()]
    differ, chance = int((cells["p"] < LEVEL).sum()), LEVEL * len(cells)
    parts.append(
        f"{counted(len(cells), 'cells')} in common; {differ} differ at p < {LEVEL:g} (expected by chance: "
        f"{chance:.1f}). Settings are chosen on validation, episodes are paired; ± is a standard error.\n"
    )
    return "\n".join(parts)


def _printed(name: str, caption: str, columns: tuple[str, str], part: pd.DataFrame, same_method: bool) -> PrintedTable:
    lines, differ = [], []
    for row in part.itertuples():
        is_average = pd.isna(row.n_support)
        size = ("Avg.", "") if is_average else (str(int(row.n_support)), str(int(row.n_annotators) or REAL))
        cells = (f"{row.one:.3f}", f"{row.other:.3f}", f"{row.difference:+.3f} ± {row.stderr:.3f}", f"{row.p:.2g}")
        lines.append(Line((row.method, *size), cells))
        if same_method and not is_average and row.one_candidate != row.other_candidate:
            differ.append(f"{' '.join(lines[-1].labels)} ({row.one_candidate} → {row.other_candidate})")
    notes = (f"Validation chose different settings: {'; '.join(differ)}.",) if differ else ()
    heads = ("method", "N_S", "R"), (*columns, "difference", "p")
    return PrintedTable(name, caption, *heads, tuple(lines), part, notes)


# ---- comparison with the paper, adjusted for its draw of test episodes ----
#
# All systems of a table use the same episodes, so an easy draw raises all their accuracies. PrMV, which is fully
# specified in the paper, serves as a control variate. Over the episodes of a cell, the accuracy y of a system is
# regressed on PrMV's accuracy x:
#
#     y = a + slope x + residual,    expected on the paper's draw: mean y + slope (paper's x - mean x)
#
# The standard error of the remaining difference is sd(residual) sqrt(2 / n), as the paper has the same number of
# episodes.


CONTROL = "PrMV"
FEWEST = 10  # episodes for a regression


def same_draw_by_cell(experiment: Experiment, dataset: str, selected: pd.DataFrame) -> pd.DataFrame:
    """Compare with the paper, adjusted for its draw of test episodes; an empty table if PrMV was not run.

    Columns: *CELL, method, accuracy, expected, paper, difference, in_standard_errors. Averages have no cell.
    """
    control = f"{CONTROL} (main)" if f"{CONTROL} (main)" in set(selected["method"]) else CONTROL
    if control not in set(selected["method"]):
        return pd.DataFrame()
    figures = published.figures(experiment.name, dataset).dropna(subset=CELL).astype(dict.fromkeys(CELL, int))
    paper = figures.set_index([*CELL, "method"])["accuracy"]
    wide = selected.pivot(index=EPISODE, columns="method", values="accuracy").astype(float)
    found: list[dict[str, Any]] = []
    for cell, part in wide.groupby(level=CELL):
        for method in in_order(wide.columns):
            pairs = part[[method, control]].dropna() if method != control else part[:0]
            theirs, controls = paper.get((*cell, system(method))), paper.get((*cell, CONTROL))
            if len(pairs) < FEWEST or theirs is None or controls is None:
                continue
            y, x = pairs.to_numpy().T
            slope = float(np.cov(x, y, bias=True)[0, 1] / x.var()) if x.var() > 0 else 0.0
            residual = y - y.mean() - slope * (x - x.mean())
            expected = y.mean() + slope * (controls - x.mean())
            error = float(residual.std(ddof=2)) * (2 / len(y)) ** 0.5
            found.append(
                {**dict(zip(CELL, cell, strict=True)), "method": method}
                | {"accuracy": y.mean(), "expected": expected, "paper": theirs, "error": error}
            )
    if not found:
        return pd.DataFrame()
    n_cells = wide.groupby(level=CELL).ngroups
    cells = pd.DataFrame(found).astype(dict.fromkeys(CELL, object))
    averages = [_same_draw_average(part) for _, part in cells.groupby("method", sort=False) if len(part) == n_cells]
    both = pd.concat([cells, pd.DataFrame(averages)], ignore_index=True)
    difference = both["expected"] - both["paper"]
    return both.assign(difference=difference, in_standard_errors=difference / both["error"].where(both["error"] > 0))


def _same_draw_average(part: pd.DataFrame) -> dict[str, Any]:
    means = part[["accuracy", "expected", "paper"]].astype(float).mean()
    error = float(np.sqrt(part["error"].astype(float).pow(2).sum())) / len(part)
    return {"method": part["method"].iloc[0], **means, "error": error}
