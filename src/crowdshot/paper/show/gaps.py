"""How far Labelings is ahead, and how much of what perfect knowledge would give it reaches: a line for each dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from crowdshot.paper.plan.experiments import BEYOND
from crowdshot.paper.show.comparison import column_name
from crowdshot.paper.show.gathering import label
from crowdshot.paper.show.layout import NOTHING, Line, PrintedTable
from crowdshot.paper.show.selection import CELL, select, summarise

OURS, VOTES = "Labelings", "PrSV wide"  # soft votes on the same encoder
WIDE = ("PrSV wide", "PrDS wide", "EM wide", "Ours wide")  # rivals whose encoders are trained as Labelings' is
LABELS, MATRICES = "True labels", "True matrices"
CAPTION = (
    "Labelings beside its best rival with an encoder of the paper's kind (four classes at a time), beside the best of "
    "those whose encoder is trained as its own is, and beside soft votes and both ceilings on its own encoder. "
    "Everyone's candidates are chosen on validation. Ahead: cells in which Labelings is above every rival of the first "
    "kind. Closed: the part of the way from soft votes to a ceiling that Labelings goes. Calibration error: the mean "
    "over episodes, whose few queries alone make it some hundredths."
)


def table(parts: Mapping[str, pd.DataFrame]) -> PrintedTable | None:
    """From the rows of each dataset; None where none has all that it takes."""
    data = pd.DataFrame([found for dataset, rows in parts.items() if (found := _line(dataset, rows)) is not None])
    if not len(data):
        return None
    columns: dict[str, Callable[[Any], str]] = {
        "best rival": lambda row: f"{row.rival_accuracy:.3f} ({column_name(row.rival)})",
        "best rival, wide": lambda row: f"{row.wide_accuracy:.3f} ({column_name(row.wide_rival)})",
        "Labelings": lambda row: f"{row.labelings:.3f}",
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
