"""The paper's tables from stored rows: as the paper selects, with everyone selected fairly, and beside its numbers."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from crowdshot.paper.plan.cells import CROWDS, TARGET_CROWDS
from crowdshot.paper.plan.experiments import BEYOND, EXPERIMENTS, Experiment, chosen
from crowdshot.paper.show import comparison, costs, gaps, layout, same_draw
from crowdshot.paper.show.gathering import gather, how_to_run, is_there, label, notes
from crowdshot.paper.show.layout import NOTHING, Line, PrintedTable
from crowdshot.paper.show.selection import (
    BY_VALIDATION,
    CELL,
    Reader,
    choose,
    in_order,
    reader,
    select,
    summarise,
    system,
)

BOLD = "Bold: the best, and those whom a paired t-test at 0.05 does not tell from it."
FAIR = "Fair: every method shows its best candidate on validation, none saw the test."
FIGURES_ONLY = ("embedding", "confusion")
AVERAGED = "average over support sizes and numbers of annotators"

Key = tuple[Any, ...]
Row = tuple[Key, tuple[str, ...]]
"""What a line shows (values of the columns that a summary was made by; none: the average), and how it is called."""


def make(name: str, results: Path, out: Path | None = None) -> list[str]:
    """Write an experiment's tables, or all; a sentence for each experiment says where, or why there are none."""
    read_once, told = reader(results), []
    for experiment in chosen(name):
        seen: dict[tuple[str, str], None] = {}

        def read(experiment: str, dataset: str, seen: dict[tuple[str, str], None] = seen) -> pd.DataFrame:
            seen[experiment, dataset] = None
            return read_once(experiment, dataset)

        tables = build(experiment, read, results)
        if not tables:
            drawn = "it is a figure, see `crowdshot paper figures`." if experiment.name in FIGURES_ONLY else ""
            told.append(f"{experiment.name}: {drawn or how_to_run(experiment)}")
            continue
        folder = (out or results) / experiment.name
        layout.write(folder, f"{experiment.name}: {experiment.title}", tables, made_of(results, seen))
        n = "one table" if len(tables) == 1 else f"{len(tables)} tables"
        told.append(f"{experiment.name}: {n} in {folder / 'tables.md'}.")
    return told


def made_of(results: Path, places: Iterable[tuple[str, str]]) -> str:
    """The rows behind tables, by their checksums: what tells that tables are older than rows."""
    files = {f"{name}/{dataset}": results / name / dataset / "rows.parquet" for name, dataset in sorted(places)}
    sums = {name: f"{zlib.crc32(file.read_bytes()):08x}" for name, file in files.items() if file.exists()}
    return f"Made of the rows {', '.join(f'{name} ({number})' for name, number in sums.items())}." if sums else ""


def build(experiment: Experiment, read: Reader, results: Path) -> list[PrintedTable]:
    """All tables of an experiment; none where nothing was run."""
    if experiment.name == "cost":
        return costs.build(read, results)
    if experiment.name in FIGURES_ONLY or not is_there(experiment, read):
        return []
    if experiment.name in BY_DATASET:
        return _by_dataset(experiment, read, results)
    kind = {"spammers": _by_crowd, "em-steps": _by_steps}.get(experiment.name, _by_cell)
    parts = [(dataset, gather(experiment, dataset, read)) for dataset in experiment.datasets]
    found = [
        table
        for dataset, rows in parts
        if len(rows)
        for table in kind(experiment, dataset, rows, notes(experiment, [dataset], rows, read, results))
    ]
    gap = gaps.table({dataset: rows for dataset, rows in parts if len(rows)}) if experiment.methods == BEYOND else None
    return found if gap is None else [gap, *found]


# ---- one kind of table each -----------------------------------------------------------------------------------------


def _by_cell(experiment: Experiment, dataset: str, rows: pd.DataFrame, about: list[str]) -> list[PrintedTable]:
    """A line for each (support items, annotators), and their average."""
    cells = _sizes(experiment, dataset)
    real = cells[0][1] == 0
    heads = ("N_S",) if real else ("N_S", "R")
    lines: list[Row] = [(size, tuple(map(str, size))[: len(heads)]) for size in cells]
    lines.append(((), ("Avg.", "")[: len(heads)]))
    columns = in_order([*experiment.methods, *rows["method"].unique()])
    crowds = "" if real else f"Crowds: {', '.join(experiment.crowds)}. "
    what = f"{label(dataset)}. {experiment.title}. {crowds}Mean accuracy over episodes (standard error). {BOLD}"
    partly = [] if len(rows[CELL].drop_duplicates()) == len(cells) else ["Avg. is over the cells that were run."]
    tables, has_ours = [], "Ours" in set(rows["method"])
    for fair in (False, True):
        selected = select(rows, fair)
        summary = pd.concat([summarise(selected, CELL), summarise(selected, [])], ignore_index=True)
        extra = [*about, *partly, *([(_ours_best if fair else _ours_settings)(rows)] if has_ours else [])]
        name, caption = (f"{dataset}-fair", FAIR) if fair else (dataset, papers_way(rows["method"].unique()))
        data = summary.merge(_candidates(selected), on=[*CELL, "method"], how="left")
        tables.append(_shown(name, f"{what} {caption}", heads, lines, columns, CELL, summary, extra, data))
    paper = comparison.by_cell(experiment, dataset, summarise(select(rows, False), CELL), cells)
    if len(paper):
        caption = f"{label(dataset)}. {experiment.title}: this run and the paper. {papers_way(())}"
        tables.append(comparison.twin(f"{dataset}-twin", caption, heads, lines, CELL, paper, about))
    alike = same_draw.by_cell(experiment, dataset, select(rows, False))
    if len(alike):
        caption = (
            f"{label(dataset)}. {experiment.title}: this run on the paper's draw of test episodes, as "
            f"{same_draw.CONTROL} tells how easy it was (paper/same_draw.py). Differences: the second line's less the "
            "paper's."
        )
        tables.append(comparison.twin(f"{dataset}-draw", caption, heads, lines, CELL, alike, about))
    return tables


BY_DATASET = ("dirichlet-b", "class-imbalance", "with-pseudo-annotation", "noisy-label-learning", "example-dependent")


def _by_dataset(experiment: Experiment, read: Reader, results: Path) -> list[PrintedTable]:
    """A line for each dataset: the average over its cells."""
    found = [gather(experiment, name, read) for name in experiment.datasets]
    if not any(map(len, found)):
        return []
    rows = pd.concat([part for part in found if len(part)], ignore_index=True)
    about = notes(experiment, experiment.datasets, rows, read, results)
    lines: list[Row] = [((name,), (label(name),)) for name in experiment.datasets]
    if any(len(part[CELL].drop_duplicates()) < len(_sizes(experiment, name)) for name, part in rows.groupby("dataset")):
        about = [*about, "Averages are over the cells that were run."]
    only_ours = experiment.name == "dirichlet-b"
    columns = in_order([*experiment.methods, *rows["method"].unique(), *([] if only_ours else ["Ours"])])
    title = experiment.title if experiment.scarce else f"{experiment.title}: {AVERAGED}"
    what = f"{title}. Mean accuracy over episodes (standard error). {BOLD}"
    tables, by, heads = [], ["dataset"], ("dataset",)
    for fair in (False,) if only_ours else (False, True):
        parts = [select(part, fair) for _, part in rows.groupby("dataset")]
        summary = summarise(pd.concat(parts, ignore_index=True), by)
        name, caption = ("average-fair", FAIR) if fair else ("average", papers_way(rows["method"].unique()))
        caption = "The number of EM steps J is the one that is best on validation." if only_ours else caption
        tables.append(_shown(name, f"{what} {caption}", heads, lines, columns, by, summary, about, summary))
    paper = comparison.by_dataset(experiment, tables[0].data)
    caption = f"{title}: this run and the paper."
    return [*tables, comparison.twin("average-twin", caption, heads, lines, by, paper, about)]


def _sizes(experiment: Experiment, dataset: str) -> list[tuple[int, int]]:
    return list(dict.fromkeys(cell.size for cell in experiment.cells(dataset)))


def _by_crowd(experiment: Experiment, dataset: str, rows: pd.DataFrame, about: list[str]) -> list[PrintedTable]:
    """A line for each crowd, with its share of spammers; settings are chosen for each cell, not for each crowd."""
    lines: list[Row] = [((crowd,), (crowd, f"{CROWDS[crowd]['spammer']:.1f}")) for crowd in TARGET_CROWDS]
    columns = in_order([*EXPERIMENTS["main"].methods, *rows["method"].unique()])
    what = f"{label(dataset)}. {experiment.title}, {AVERAGED}. Mean accuracy over episodes (standard error). {BOLD}"
    tables = []
    for fair in (False, True):
        summary = summarise(select(rows, fair), ["mixture"])
        share = [CROWDS[crowd]["spammer"] for crowd in summary["mixture"]]
        name, caption = (f"{dataset}-fair", FAIR) if fair else (dataset, papers_way(rows["method"].unique()))
        heads, data = ("crowd", "spammers"), summary.assign(spammers=share)
        tables.append(_shown(name, f"{what} {caption}", heads, lines, columns, ["mixture"], summary, about, data))
    return tables


def _by_steps(experiment: Experiment, dataset: str, rows: pd.DataFrame, about: list[str]) -> list[PrintedTable]:
    """A line for each number of EM steps."""
    summary = by_steps(rows)
    lines: list[Row] = [((steps,), (str(steps),)) for steps in sorted(set(summary["J"]))]
    caption = (
        f"{label(dataset)}. {experiment.title}, {AVERAGED}. Mean accuracy over episodes (standard error). {BOLD} "
        "For Ours, b is the one that is best on validation."
    )
    columns = ["Ours", "w/o PA"]
    return [_shown(dataset, caption, ("J",), lines, columns, ["J"], summary, about, summary)]


def by_steps(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows whose methods are "Ours J=2" and the like -> a summary by J and method."""
    selected = select(rows, fair=True)
    steps = selected["method"].str.extract(r"J=(\d+)$", expand=False).astype(int)
    return summarise(selected.assign(J=steps, method=selected["method"].map(system)), ["J"])


# ---- parts of tables ------------------------------------------------------------------------------------------------


def _shown(
    name: str,
    caption: str,
    heads: tuple[str, ...],
    lines: Sequence[Row],
    columns: Sequence[str],
    by: list[str],
    summary: pd.DataFrame,
    about: Sequence[str],
    data: pd.DataFrame,
) -> PrintedTable:
    """A summary as a table: a dash where there is nothing, and no column for a method that has nothing at all."""
    found = comparison.lookup(summary, by)
    compared = Counter(key for key, _ in found)
    shown = {method for _, method in found}
    not_run = [column for column in columns if column not in shown]
    columns = [column for column in columns if column in shown]
    if not_run:
        about = [*about, f"Not run: {', '.join(map(comparison.column_name, not_run))}."]
    body = tuple(
        Line(names, tuple(_text(found.get((key, column)), compared[key] > 1) for column in columns), key == ())
        for key, names in lines
    )
    return PrintedTable(name, caption, heads, tuple(map(comparison.column_name, columns)), body, data, tuple(about))


def papers_way(methods: Iterable[str]) -> str:
    """How the paper chooses settings, with all that are chosen as its own method is."""
    there = set(methods)
    ours = [name for name in BY_VALIDATION if name in there] or ["Ours"]
    told = f"{', '.join(ours[:-1])} and {ours[-1]} show" if len(ours) > 1 else f"{ours[0]} shows"
    return f"{told} the candidate that is best on validation, every other method its best on test, as in the paper."


def _text(value: Any, compared: bool) -> str:
    """Bold where it is among the best of several."""
    if value is None:
        return NOTHING
    mean = f"{value.accuracy:.3f}"
    mean = f"**{mean}**" if value.best and compared else mean
    return mean if pd.isna(value.stderr) else f"{mean} ({value.stderr:.3f})"


def _candidates(selected: pd.DataFrame) -> pd.DataFrame:
    return selected[[*CELL, "method", "candidate"]].drop_duplicates()


def _ours_settings(rows: pd.DataFrame) -> str:
    """Which candidate of Ours validation chose, in words."""
    ours = choose(rows[rows["method"] == "Ours"], "validation").sort_values(CELL)
    told = [f"{_cell_name(row)} {row.candidate}" for row in ours.itertuples()]
    return f"Ours, chosen on validation: {'; '.join(told)}."


def _ours_best(rows: pd.DataFrame) -> str:
    """What Ours would show if it were chosen on test, as its rivals are in the paper."""
    ours = rows[rows["method"] == "Ours"]
    best = ours[ours["role"] == "test"].merge(choose(ours, "test"), on=[*CELL, "method", "candidate"])
    told = [f"{_cell_name(row)} {row.accuracy:.3f}" for row in summarise(best, CELL).itertuples()]
    told += [f"Avg. {row.accuracy:.3f}" for row in summarise(best, []).itertuples()]
    return f"Ours with its best candidate on test would have {', '.join(told)}."


def _cell_name(row: Any) -> str:
    return f"({row.n_support}, {row.n_annotators})" if row.n_annotators else f"({row.n_support})"
