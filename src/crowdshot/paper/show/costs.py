"""What it costs: seconds of meta-training and of testing beside the paper's, and the whole bill."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from crowdshot.methods import METHODS
from crowdshot.paper.plan import published
from crowdshot.paper.plan.cells import TARGETS
from crowdshot.paper.plan.experiments import EXPERIMENTS
from crowdshot.paper.plan.wanted import MAML_SHORTER, wanted
from crowdshot.paper.run.store import TIMES, Store
from crowdshot.paper.show.comparison import column_name
from crowdshot.paper.show.layout import NOTHING, Line, PrintedTable
from crowdshot.paper.show.selection import CELL, Reader, in_order, select, summarise

CELL_SHOWN = (4, 5)  # support items and annotators: the paper's own
EPISODES = 50
COLUMNS = {  # of the table -> of its data
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


def build(read: Reader, results: Path) -> list[PrintedTable]:
    """Seconds for each method on Omniglot, and the bill of everything that was run; none where nothing was."""
    times = all_times(results)
    here = times[(times["dataset"] == "omniglot") & ((times["experiment"] == "main") | (times["what"] != "test"))]
    tables = [_by_method(here, read("main", "omniglot"))] if len(here) else []
    return [*tables, _bill(times)] if len(times) else tables


def all_times(results: Path) -> pd.DataFrame:
    """Every piece of work and every meta-training that the store knows of."""
    folders = [folder for name in EXPERIMENTS for folder in sorted((results / name).glob("*")) if folder.is_dir()]
    every = [Store(results, folder.parent.name, folder.name).times() for folder in folders]
    return pd.concat([part for part in every if len(part)] or [pd.DataFrame(columns=TIMES)], ignore_index=True)


def _by_method(times: pd.DataFrame, rows: pd.DataFrame) -> PrintedTable:
    data = seconds(times, rows)
    lines = tuple(
        Line((column_name(row["method"]),), tuple(_text(row[field], form) for field, form in COLUMNS.values()))
        for _, row in data.iterrows()
    )
    caption = (
        f"Seconds on Omniglot, N_S = {CELL_SHOWN[0]} and R = {CELL_SHOWN[1]}. Meta-training: one encoder's share of a "
        "stack that was trained side by side (of several stacks, the largest). "
        f"Testing: {EPISODES} episodes, learning from support items and "
        "predicting queries, a candidate's share of all; median over splits."
    )
    notes = (
        "An encoder trained alone takes longer than its share of a stack (`benchmarks/training.py` has both), and one "
        "serves all numbers of annotators here, where the paper trains one for each.",
        "Candidates share work, so that one alone may take longer than its share. MAML was meta-trained for "
        f"1/{MAML_SHORTER['omniglot']} of the others' iterations. The paper's seconds are of one A100.",
        "† Not in the paper.",
    )
    heads = tuple(name.strip() for name in COLUMNS)
    return PrintedTable("cost", caption, ("method",), heads, lines, data, notes)


def seconds(times: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each method of the paper's table or of this run: `COLUMNS`' data; NaN where there is none."""
    tests = times[(times["what"] == "test") & _shown(times)]
    trained = times[times["what"] == "meta-training"]
    theirs = published.times().set_index("method").add_prefix("paper_")
    right = summarise(select(rows, False), CELL) if len(rows) else pd.DataFrame(columns=[*CELL, "method", "accuracy"])
    right = right[_shown(right)].set_index("method")["accuracy"]
    found = []
    for name in in_order([*theirs.index, *times["method"].dropna()]):
        mine, encoders = tests[tests["method"] == name], trained[_serves(trained, name)]
        stack = encoders[encoders["candidates"] == encoders["candidates"].max()]
        devices = sorted(set(mine["device"]))
        mine = mine.groupby(["split", "episodes"])[["seconds", "candidates"]].sum().reset_index()  # run in parts or not
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


def _shown(frame: pd.DataFrame) -> pd.Series[bool]:
    return (frame["n_support"] == CELL_SHOWN[0]) & (frame["n_annotators"] == CELL_SHOWN[1])


def _serves(trained: pd.DataFrame, name: str) -> pd.Series[bool]:
    """Which encoders a method builds on in `main`; their names tell, but for split and settings."""
    method = METHODS.get(name)
    cell = EXPERIMENTS["main"].cells("omniglot")[0]
    one = None if method is None else wanted(method, method.default, TARGETS["omniglot"], cell, 0)
    if one is None:
        return pd.Series(False, index=trained.index)
    kind = "-".join(one.name.split("-")[1:7])
    return trained["encoder"].astype(str).str.contains(f"-{kind}", regex=False)


def _bill(times: pd.DataFrame) -> PrintedTable:
    """Minutes of work of every experiment that was run, by kind of work and device."""
    keys = ["experiment", "dataset", "what", "device"]
    groups = times.groupby(keys, sort=False)["seconds"]
    data = groups.agg(pieces="size", minutes=lambda part: part.sum() / 60).reset_index()
    lines = [
        Line(tuple(row[key] for key in keys), (str(row["pieces"]), f"{row['minutes']:.1f}"))
        for _, row in data.iterrows()
    ]
    total = Line(("all", "", "", ""), (str(data["pieces"].sum()), f"{data['minutes'].sum():.1f}"), ruled=True)
    caption = (
        "The bill: minutes of work, added up over devices that worked at the same time. Pieces are encoders, or a "
        "method with all its candidates on one cell of one split."
    )
    return PrintedTable("bill", caption, tuple(keys), ("pieces", "minutes"), (*lines, total), data)


def _text(value: object, form: str) -> str:
    return NOTHING if value is None or pd.isna(value) else form.format(value)  # type: ignore[call-overload]
