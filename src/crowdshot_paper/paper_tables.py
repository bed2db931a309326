"""Make the paper's tables from stored rows.

Each table is made with the paper's selection of settings and with a fair one, and compared with the paper's numbers.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from crowdshot.methods import METHODS
from crowdshot_paper import layout, paper_comparison, published
from crowdshot_paper.encoder_plan import MAML_SHORTER, wanted
from crowdshot_paper.episode_cells import CROWDS, TARGET_CROWDS, TARGETS
from crowdshot_paper.experiments import BEYOND, EXPERIMENTS, Experiment, chosen
from crowdshot_paper.layout import NOTHING, Line, PrintedTable
from crowdshot_paper.paper_comparison import column_name
from crowdshot_paper.selection import (
    BY_VALIDATION,
    CELL,
    Reader,
    choose,
    gather,
    how_to_run,
    in_order,
    is_there,
    label,
    notes,
    reader,
    select,
    summarise,
    system,
)
from crowdshot_paper.store import TIMES, Store

# ---- costs: seconds of meta-training and testing compared with the paper's, and the total time ----


CELL_SHOWN = (4, 5)  # support items and annotators of the paper's table
EPISODES = 50
COLUMNS = {  # columns of the table: columns of its data and format
    "meta-training": ("meta_train_seconds", "{:.1f}"),
    "stack of": ("stack", "{:.0f}"),
    "all the stack": ("stack_seconds", "{:.0f}"),
    "paper": ("paper_meta_train_seconds", "{:.1f}"),
    "testing": ("test_seconds", "{:.3f}"),
    "candidates": ("candidates", "{:.0f}"),
    "all candidates": ("test_seconds_all", "{:.3f}"),
    "paper, testing": ("paper_test_seconds", "{:.3f}"),
    "accuracy": ("accuracy", "{:.3f}"),
    "paper, accuracy": ("paper_accuracy", "{:.3f}"),
    "tested on": ("device", "{}"),
}


def build_costs(read: Reader, results: Path) -> list[PrintedTable]:
    """Return tables of the seconds of each method on Omniglot and of the total time; none if nothing was run."""
    times = all_times(results)
    here = times[(times["dataset"] == "omniglot") & ((times["experiment"] == "main") | (times["what"] != "test"))]
    tables = [_by_method(here, read("main", "omniglot"))] if len(here) else []
    return [*tables, _bill(times)] if len(times) else tables


def all_times(results: Path) -> pd.DataFrame:
    """Return the times of all stored pieces of work and meta-trainings."""
    folders = [folder for name in EXPERIMENTS for folder in sorted((results / name).glob("*")) if folder.is_dir()]
    every = [Store(results, folder.parent.name, folder.name).times() for folder in folders]
    return pd.concat([part for part in every if len(part)] or [pd.DataFrame(columns=TIMES)], ignore_index=True)


def _by_method(times: pd.DataFrame, rows: pd.DataFrame) -> PrintedTable:
    data = seconds(times, rows)
    lines = tuple(
        Line((column_name(row["method"]),), tuple(_cost_text(row[field], form) for field, form in COLUMNS.values()))
        for _, row in data.iterrows()
    )
    caption = (
        f"Seconds on Omniglot, N_S = {CELL_SHOWN[0]} and R = {CELL_SHOWN[1]}. Meta-training: the share of one encoder "
        "in a stack of encoders that were trained together (the largest stack if there are several). "
        f"Testing: {EPISODES} episodes, including learning from support items and predicting queries; the share of one "
        "candidate; median over splits."
    )
    notes = (
        "An encoder trained alone takes longer than its share of a stack (`benchmarks/training.py` measures both). One "
        "encoder is used for all numbers of annotators here; the paper trains one for each.",
        "Candidates share work, so a single one may take longer than its share. MAML was meta-trained for "
        f"1/{MAML_SHORTER['omniglot']} of the others' iterations. The paper's seconds were measured on one A100.",
        "† Not in the paper.",
    )
    heads = tuple(name.strip() for name in COLUMNS)
    return PrintedTable("cost", caption, ("method",), heads, lines, data, notes)


def seconds(times: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the data of `COLUMNS` for each method of the paper's table or of this run; NaN if missing."""
    tests = times[(times["what"] == "test") & _shown_cost(times)]
    trained = times[times["what"] == "meta-training"]
    theirs = published.times().set_index("method").add_prefix("paper_")
    right = summarise(select(rows, False), CELL) if len(rows) else pd.DataFrame(columns=[*CELL, "method", "accuracy"])
    right = right[_shown_cost(right)].set_index("method")["accuracy"]
    found = []
    for name in in_order([*theirs.index, *times["method"].dropna()]):
        mine, encoders = tests[tests["method"] == name], trained[_serves(trained, name)]
        stack = encoders[encoders["candidates"] == encoders["candidates"].max()]
        devices = sorted(set(mine["device"]))
        # add up pieces that were run in parts
        mine = mine.groupby(["split", "episodes"])[["seconds", "candidates"]].sum().reset_index()
        every = mine["seconds"] / mine["episodes"] * EPISODES
        found.append(
            {
                "method": name,
                "meta_train_seconds": stack["seconds"].astype(float).mean(),
                "stack": stack["candidates"].astype(float).mean(),
                "stack_seconds": (stack["seconds"] * stack["candidates"]).astype(float).mean(),
                "test_seconds_all": every.astype(float).median(),
                "candidates": mine["candidates"].astype(float).max(),
                "test_seconds": (every / mine["candidates"]).astype(float).median(),
                "accuracy": right.get(name),
                "device": ", ".join(devices) or None,
            }
        )
    return pd.DataFrame(found).join(theirs, on="method")


def _shown_cost(frame: pd.DataFrame) -> pd.Series[bool]:
    return (frame["n_support"] == CELL_SHOWN[0]) & (frame["n_annotators"] == CELL_SHOWN[1])


def _serves(trained: pd.DataFrame, name: str) -> pd.Series[bool]:
    """Return which encoders a method uses in `main`, by their names without split and settings."""
    method = METHODS.get(name)
    cell = EXPERIMENTS["main"].cells("omniglot")[0]
    one = None if method is None else wanted(method, method.default, TARGETS["omniglot"], cell, 0)
    if one is None:
        return pd.Series(False, index=trained.index)
    kind = "-".join(one.name.split("-")[1:7])
    return trained["encoder"].astype(str).str.contains(f"-{kind}", regex=False)


def _bill(times: pd.DataFrame) -> PrintedTable:
    """Return a table of minutes by experiment, kind of work and device."""
    keys = ["experiment", "dataset", "what", "device"]
    groups = times.groupby(keys, sort=False)["seconds"]
    data = groups.agg(pieces="size", minutes=lambda part: part.sum() / 60).reset_index()
    lines = [
        Line(tuple(row[key] for key in keys), (str(row["pieces"]), f"{row['minutes']:.1f}"))
        for _, row in data.iterrows()
    ]
    total = Line(("all", "", "", ""), (str(data["pieces"].sum()), f"{data['minutes'].sum():.1f}"), ruled=True)
    caption = (
        "Minutes of computing, summed over devices. A piece is an encoder, or a method with all its candidates on one "
        "cell of one split."
    )
    return PrintedTable("bill", caption, tuple(keys), ("pieces", "minutes"), (*lines, total), data)


def _cost_text(value: object, form: str) -> str:
    return NOTHING if value is None or pd.isna(value) else form.format(value)  # type: ignore[call-overload]


# ---- labeling-search compared with its best competitors and with upper bounds, per dataset ----


OURS, VOTES = "labeling-search", "PrSV wide"  # soft votes on the same encoder
WIDE = ("PrSV wide", "PrDS wide", "EM wide", "Ours wide")  # competitors with encoders of the same recipe
LABELS, MATRICES = "True labels", "True matrices"
CAPTION = (
    "labeling-search compared with the best method whose encoder is meta-trained as in the paper (best rival), with "
    "the best method whose encoder has the same recipe as its own (best rival, wide), and, on its own encoder, with "
    "soft votes and with two upper bounds. All candidates are chosen on validation. Ahead: the cells in which "
    "labeling-search is better than every rival of the first kind. Closed: how much of the gap between soft votes and "
    "the upper bound labeling-search closes. Calibration error: the mean over episodes; as episodes have few queries, "
    "even a perfectly calibrated method has some hundredths."
)


def table(parts: Mapping[str, pd.DataFrame]) -> PrintedTable | None:
    """Return the table from the rows of each dataset, or None if no dataset has all required methods."""
    data = pd.DataFrame([found for dataset, rows in parts.items() if (found := _line(dataset, rows)) is not None])
    if not len(data):
        return None
    columns: dict[str, Callable[[Any], str]] = {
        "best rival": lambda row: f"{row.rival_accuracy:.3f} ({column_name(row.rival)})",
        "best rival, wide": lambda row: f"{row.wide_accuracy:.3f} ({column_name(row.wide_rival)})",
        "labeling-search": lambda row: f"{row.labelings:.3f}",
        "ahead": lambda row: f"{row.cells_ahead} of {row.cells}",
        "soft votes": lambda row: f"{row.votes:.3f}",
        "true matrices": lambda row: NOTHING if pd.isna(row.matrices) else f"{row.matrices:.3f}",
        "closed": lambda row: _share(row.votes, row.labelings, row.matrices),
        "true labels": lambda row: f"{row.labels:.3f}",
        "closed of that": lambda row: _share(row.votes, row.labelings, row.labels),
        "calibration error": lambda row: f"{row.labelings_ece:.3f}",
        "of soft votes": lambda row: f"{row.votes_ece:.3f}",
        "of the best rival": lambda row: f"{row.rival_ece:.3f}",
    }
    lines = [Line((label(row.dataset),), tuple(text(row) for text in columns.values())) for row in data.itertuples()]
    return PrintedTable("gap", CAPTION, ("dataset",), tuple(columns), tuple(lines), data)


def _line(dataset: str, rows: pd.DataFrame) -> dict[str, object] | None:
    selected = select(rows, fair=True)
    mean = summarise(selected, []).set_index("method")["accuracy"]
    rivals = [name for name in mean.index if name not in BEYOND]
    if not rivals or not {OURS, VOTES, LABELS} <= set(mean.index):
        return None
    cells = summarise(selected, CELL).pivot(index=CELL, columns="method", values="accuracy")
    error = (
        selected.astype({"ece": float}).groupby([*CELL, "method"], observed=True)["ece"].mean().groupby("method").mean()
    )
    rival = str(mean[rivals].idxmax())
    wide_rival = str(mean[[name for name in WIDE if name in mean.index]].idxmax())
    return {
        "dataset": dataset,
        "rival": rival,
        "rival_accuracy": mean[rival],
        "wide_rival": wide_rival,
        "wide_accuracy": mean[wide_rival],
        "labelings": mean[OURS],
        "cells_ahead": int((cells[OURS] > cells[rivals].max(axis=1)).sum()),
        "cells": len(cells),
        "votes": mean[VOTES],
        "matrices": mean.get(MATRICES, float("nan")),
        "labels": mean[LABELS],
        "labelings_ece": error[OURS],
        "votes_ece": error[VOTES],
        "rival_ece": error[rival],
    }


def _share(start: float, reached: float, end: float) -> str:
    return f"{(reached - start) / (end - start):.0%}" if end > start else NOTHING


# ---- all tables of an experiment ----


BOLD = "Bold: the best method, and those that do not differ from it in a paired t-test at 0.05."
FAIR = "Fair: every method shows its best candidate on validation; no candidate was chosen on test."
FIGURES_ONLY = ("embedding", "confusion")
AVERAGED = "average over support sizes and numbers of annotators"

Key = tuple[Any, ...]
Row = tuple[Key, tuple[str, ...]]
"""The key of a line (values of the columns that a summary is grouped by; () is the average) and its labels."""


def make(name: str, results: Path, out: Path | None = None) -> list[str]:
    """Write the tables of experiments; return a sentence per experiment with the place, or why there are none."""
    read_once, sentences = reader(results), []
    for experiment in chosen(name):
        seen: dict[tuple[str, str], None] = {}

        def read(experiment: str, dataset: str, seen: dict[tuple[str, str], None] = seen) -> pd.DataFrame:
            seen[experiment, dataset] = None
            return read_once(experiment, dataset)

        tables = build(experiment, read, results)
        if not tables:
            drawn = "it is a figure, see `crowdshot paper figures`." if experiment.name in FIGURES_ONLY else ""
            sentences.append(f"{experiment.name}: {drawn or how_to_run(experiment)}")
            continue
        folder = (out or results) / experiment.name
        layout.write(folder, f"{experiment.name}: {experiment.title}", tables, made_of(results, seen))
        n = "one table" if len(tables) == 1 else f"{len(tables)} tables"
        sentences.append(f"{experiment.name}: {n} in {folder / 'tables.md'}.")
    return sentences


def made_of(results: Path, places: Iterable[tuple[str, str]]) -> str:
    """Return a sentence with the checksums of the rows, by which outdated tables can be detected."""
    files = {f"{name}/{dataset}": results / name / dataset / "rows.parquet" for name, dataset in sorted(places)}
    sums = {name: f"{zlib.crc32(file.read_bytes()):08x}" for name, file in files.items() if file.exists()}
    return f"Made of the rows {', '.join(f'{name} ({number})' for name, number in sums.items())}." if sums else ""


def build(experiment: Experiment, read: Reader, results: Path) -> list[PrintedTable]:
    """Return all tables of an experiment; none if nothing was run."""
    if experiment.name == "cost":
        return build_costs(read, results)
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
    gap = table({dataset: rows for dataset, rows in parts if len(rows)}) if experiment.methods == BEYOND else None
    return found if gap is None else [gap, *found]


# ---- kinds of tables ----


def _by_cell(experiment: Experiment, dataset: str, rows: pd.DataFrame, about: list[str]) -> list[PrintedTable]:
    """Return tables with a line per cell (support items, annotators) and their average."""
    cells = _sizes(experiment, dataset)
    real = cells[0][1] == 0
    heads = ("N_S",) if real else ("N_S", "R")
    lines: list[Row] = [(size, tuple(map(str, size))[: len(heads)]) for size in cells]
    lines.append(((), ("Avg.", "")[: len(heads)]))
    columns = in_order([*experiment.methods, *rows["method"].unique()])
    crowds = "" if real else f"Crowds: {', '.join(experiment.crowds)}. "
    what = f"{label(dataset)}. {experiment.title}. {crowds}Mean accuracy over episodes (standard error). {BOLD}"
    partly = [] if len(rows[CELL].drop_duplicates()) == len(cells) else ["The average is over the cells that were run."]
    tables, has_ours = [], "Ours" in set(rows["method"])
    for fair in (False, True):
        selected = select(rows, fair)
        summary = pd.concat([summarise(selected, CELL), summarise(selected, [])], ignore_index=True)
        extra = [*about, *partly, *([(_ours_best if fair else _ours_settings)(rows)] if has_ours else [])]
        name, caption = (f"{dataset}-fair", FAIR) if fair else (dataset, papers_way(rows["method"].unique()))
        data = summary.merge(_candidates(selected), on=[*CELL, "method"], how="left")
        tables.append(_shown(name, f"{what} {caption}", heads, lines, columns, CELL, summary, extra, data))
    paper = paper_comparison.by_cell(experiment, dataset, summarise(select(rows, False), CELL), cells)
    if len(paper):
        caption = f"{label(dataset)}. {experiment.title}: this run and the paper. {papers_way(())}"
        tables.append(paper_comparison.comparison_table(f"{dataset}-twin", caption, heads, lines, CELL, paper, about))
    adjusted = paper_comparison.same_draw_by_cell(experiment, dataset, select(rows, False))
    if len(adjusted):
        caption = (
            f"{label(dataset)}. {experiment.title}: this run adjusted to the paper's draw of test episodes, whose "
            f"difficulty is estimated from {paper_comparison.CONTROL}. Differences are the second line minus the paper."
        )
        tables.append(
            paper_comparison.comparison_table(f"{dataset}-draw", caption, heads, lines, CELL, adjusted, about)
        )
    return tables


BY_DATASET = ("dirichlet-b", "class-imbalance", "with-pseudo-annotation", "noisy-label-learning", "example-dependent")


def _by_dataset(experiment: Experiment, read: Reader, results: Path) -> list[PrintedTable]:
    """Return tables with a line per dataset: the average over its cells."""
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
    paper = paper_comparison.by_dataset(experiment, tables[0].data)
    caption = f"{title}: this run and the paper."
    return [*tables, paper_comparison.comparison_table("average-twin", caption, heads, lines, by, paper, about)]


def _sizes(experiment: Experiment, dataset: str) -> list[tuple[int, int]]:
    return list(dict.fromkeys(cell.size for cell in experiment.cells(dataset)))


def _by_crowd(experiment: Experiment, dataset: str, rows: pd.DataFrame, about: list[str]) -> list[PrintedTable]:
    """Return tables with a line per crowd and its share of spammers. Settings are chosen per cell, not per crowd."""
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
    """Return a table with a line per number of EM steps."""
    summary = by_steps(rows)
    lines: list[Row] = [((steps,), (str(steps),)) for steps in sorted(set(summary["J"]))]
    caption = (
        f"{label(dataset)}. {experiment.title}, {AVERAGED}. Mean accuracy over episodes (standard error). {BOLD} "
        "For Ours, b is the one that is best on validation."
    )
    columns = ["Ours", "w/o PA"]
    return [_shown(dataset, caption, ("J",), lines, columns, ["J"], summary, about, summary)]


def by_steps(rows: pd.DataFrame) -> pd.DataFrame:
    """Summarise rows by J and method; the methods of the rows are named "Ours J=2" etc."""
    selected = select(rows, fair=True)
    steps = selected["method"].str.extract(r"J=(\d+)$", expand=False).astype(int)
    return summarise(selected.assign(J=steps, method=selected["method"].map(system)), ["J"])


# ---- parts of tables ----


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
    """Return a summary as a table with dashes for missing numbers, without methods that were not run."""
    found = paper_comparison.lookup(summary, by)
    compared = Counter(key for key, _ in found)
    shown = {method for _, method in found}
    swept = {system(column) for column in shown if "=" in column}
    not_run = [column for column in columns if column not in shown | swept]
    columns = [column for column in columns if column in shown]
    if not_run:
        about = [*about, f"Not run: {', '.join(map(paper_comparison.column_name, not_run))}."]
    body = tuple(
        Line(names, tuple(_text(found.get((key, column)), compared[key] > 1) for column in columns), key == ())
        for key, names in lines
    )
    return PrintedTable(
        name, caption, heads, tuple(map(paper_comparison.column_name, columns)), body, data, tuple(about)
    )


def papers_way(methods: Iterable[str]) -> str:
    """Return a sentence about the paper's choice of settings, with the methods chosen on validation."""
    present = set(methods)
    ours = [name for name in BY_VALIDATION if name in present] or ["Ours"]
    subject = f"{', '.join(ours[:-1])} and {ours[-1]} show" if len(ours) > 1 else f"{ours[0]} shows"
    return f"{subject} the candidate that is best on validation, every other method its best on test, as in the paper."


def _text(value: Any, compared: bool) -> str:
    """Return mean and standard error, bold if it is among the best of several."""
    if value is None:
        return NOTHING
    mean = f"{value.accuracy:.3f}"
    mean = f"**{mean}**" if value.best and compared else mean
    return mean if pd.isna(value.stderr) else f"{mean} ({value.stderr:.3f})"


def _candidates(selected: pd.DataFrame) -> pd.DataFrame:
    return selected[[*CELL, "method", "candidate"]].drop_duplicates()


def _ours_settings(rows: pd.DataFrame) -> str:
    """Return a sentence with the candidates of Ours that were chosen on validation."""
    ours = choose(rows[rows["method"] == "Ours"], "validation").sort_values(CELL)
    settings = [f"{_cell_name(row)} {row.candidate}" for row in ours.itertuples()]
    return f"Ours, chosen on validation: {'; '.join(settings)}."


def _ours_best(rows: pd.DataFrame) -> str:
    """Return a sentence with the accuracy of Ours if it were chosen on test, like the other methods of the paper."""
    ours = rows[rows["method"] == "Ours"]
    best = ours[ours["role"] == "test"].merge(choose(ours, "test"), on=[*CELL, "method", "candidate"])
    numbers = [f"{_cell_name(row)} {row.accuracy:.3f}" for row in summarise(best, CELL).itertuples()]
    numbers += [f"Avg. {row.accuracy:.3f}" for row in summarise(best, []).itertuples()]
    return f"Ours with its best candidate on test would have {', '.join(numbers)}."


def _cell_name(row: Any) -> str:
    return f"({row.n_support}, {row.n_annotators})" if row.n_annotators else f"({row.n_support})"
