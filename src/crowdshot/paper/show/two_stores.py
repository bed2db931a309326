"""Two stores side by side: where both have a cell of a method, their difference over the same episodes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.paper.plan.cells import REAL
from crowdshot.paper.plan.experiments import EXPERIMENTS
from crowdshot.paper.run.store import read_rows
from crowdshot.paper.show.gathering import label
from crowdshot.paper.show.layout import Line, PrintedTable, markdown
from crowdshot.paper.show.selection import CELL, EPISODE, LEVEL, in_order, p_value, select
from crowdshot.wording import counted, shown

WHERE = ["experiment", "dataset", "method", *CELL]
COLUMNS = [*WHERE, "one", "other", "difference", "stderr", "p", "episodes", "one_candidate", "other_candidate"]


def compare(one: Path, other: Path, methods: Iterable[str] | None = None) -> pd.DataFrame:
    """`COLUMNS`: a row for each cell that both stores have, and for each method's average over them (no cell).

    Settings are chosen on validation, in each store for itself, on the episodes that both have: what one store has
    more of changes nothing. Episodes are paired by split, crowd and number. ``difference`` is the other's less the
    one's.
    """
    for folder in (one, other):
        if not folder.is_dir():
            raise CrowdshotError(f"{shown(folder)} is no folder, expected one with rows as `paper run` stores them.")
    found = [
        _compared(name, dataset, one, other)
        for name, experiment in EXPERIMENTS.items()
        for dataset in experiment.datasets
        if all((folder / name / dataset).is_dir() for folder in (one, other))
    ]
    table = pd.concat([pd.DataFrame(columns=COLUMNS), *(part for part in found if len(part))], ignore_index=True)
    if methods is not None:
        table = table[table["method"].isin(list(methods))].reset_index(drop=True)
    if not len(table):
        raise CrowdshotError(f"{shown(other)} has no cell that {shown(one)} has, expected some to compare.")
    return table


def _compared(experiment: str, dataset: str, one: Path, other: Path) -> pd.DataFrame:
    """Of one experiment on one dataset."""
    parts = [read_rows(folder, experiment, dataset) for folder in (one, other)]
    keys = [*EPISODE, "role", "method", "candidate"]
    both = parts[0][keys].merge(parts[1][keys])
    chosen = [select(part.merge(both, on=keys), fair=True) for part in parts]
    pairs = chosen[0].merge(chosen[1], on=[*EPISODE, "method"], suffixes=("_one", "_other"))
    rows = []
    for method in in_order(pairs["method"]):
        cells = [
            {**dict(zip(CELL, cell, strict=True)), **_difference(part)}
            for cell, part in pairs[pairs["method"] == method].groupby(CELL)
        ]
        rows += [{"method": method, **cell} for cell in cells]
        if len(cells) > 1:
            rows.append({"method": method, **_average(pairs[pairs["method"] == method], pd.DataFrame(cells))})
    return pd.DataFrame(rows).reindex(columns=COLUMNS).assign(experiment=experiment, dataset=dataset)


def _difference(pairs: pd.DataFrame) -> dict[str, object]:
    # Stored in float32, of which a store may have another's last digit; a query more or less is far larger.
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


def _average(pairs: pd.DataFrame, cells: pd.DataFrame) -> dict[str, object]:
    """Over cells, each counting alike; p over all episodes."""
    means = cells[["one", "other", "difference"]].mean()
    error = float(np.sqrt((cells["stderr"] ** 2).sum(skipna=False))) / len(cells)
    return {**means, "stderr": error, "p": _difference(pairs)["p"], "episodes": cells["episodes"].sum()}


def tell(table: pd.DataFrame, one: Path, other: Path) -> str:
    """As Markdown, a table for each experiment and dataset, and how many cells differ."""
    parts = [
        markdown(_printed(f"{experiment}, {label(dataset)}", part, one, other))
        for (experiment, dataset), part in table.groupby(["experiment", "dataset"], sort=False)
    ]
    cells = table[table[CELL[0]].notna()]
    differ, chance = int((cells["p"] < LEVEL).sum()), LEVEL * len(cells)
    parts.append(
        f"{counted(len(cells), 'cells')} that both have, {differ} of them different at p < {LEVEL:g} (by chance alone: "
        f"{chance:.1f}). Settings are chosen on validation, episodes paired; ± is a standard error.\n"
    )
    return "\n".join(parts)


def _printed(name: str, part: pd.DataFrame, one: Path, other: Path) -> PrintedTable:
    lines, differ = [], []
    for row in part.itertuples():
        is_average = pd.isna(row.n_support)
        size = ("Avg.", "") if is_average else (str(int(row.n_support)), str(int(row.n_annotators) or REAL))
        cells = (f"{row.one:.3f}", f"{row.other:.3f}", f"{row.difference:+.3f} ± {row.stderr:.3f}", f"{row.p:.2g}")
        lines.append(Line((row.method, *size), cells))
        if not is_average and row.one_candidate != row.other_candidate:
            differ.append(f"{' '.join(lines[-1].labels)} ({row.one_candidate} → {row.other_candidate})")
    columns = (str(one), str(other), "difference", "p")
    notes = (f"Not with the same settings, as validation chose others: {'; '.join(differ)}.",) if differ else ()
    return PrintedTable(name, f"{other} less {one}.", ("method", "N_S", "R"), columns, tuple(lines), part, notes)
