"""A run beside the paper as if both had met the same test episodes.

Systems share a table's episodes, so that an easy draw lifts them all. A system whose code leaves nothing open, PrMV,
tells how easy the paper's draw was: over a cell's episodes here, a system's accuracy y is regressed on PrMV's x,

    y = a + slope x + rest,    on the paper's draw: mean y + slope (paper's x - mean x)

and what then differs from the paper is the rest's, whose standard error is sd(rest) sqrt(2 / n): the paper has as many
episodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from crowdshot.paper.plan import published
from crowdshot.paper.plan.cells import TARGETS
from crowdshot.paper.plan.experiments import Experiment
from crowdshot.paper.show.selection import CELL, EPISODE, in_order, system

CONTROL = "PrMV"
FEWEST = 10  # episodes to see a slope in


def by_cell(experiment: Experiment, dataset: str, selected: pd.DataFrame) -> pd.DataFrame:
    """Columns: *CELL, method, accuracy, expected, paper, difference, in_standard_errors; averages have no cell.

    Empty where the paper's encoders learned from another dataset, or PrMV was not run.
    """
    control = f"{CONTROL} (main)" if f"{CONTROL} (main)" in set(selected["method"]) else CONTROL
    if TARGETS[dataset].source in published.STAND_INS or control not in set(selected["method"]):
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
            rest = y - y.mean() - slope * (x - x.mean())
            expected = y.mean() + slope * (controls - x.mean())
            error = float(rest.std(ddof=2)) * (2 / len(y)) ** 0.5
            found.append(
                {**dict(zip(CELL, cell, strict=True)), "method": method}
                | {"accuracy": y.mean(), "expected": expected, "paper": theirs, "error": error}
            )
    if not found:
        return pd.DataFrame()
    n_cells = wide.groupby(level=CELL).ngroups
    cells = pd.DataFrame(found).astype(dict.fromkeys(CELL, object))
    averages = [_average(part) for _, part in cells.groupby("method", sort=False) if len(part) == n_cells]
    both = pd.concat([cells, pd.DataFrame(averages)], ignore_index=True)
    difference = both["expected"] - both["paper"]
    return both.assign(difference=difference, in_standard_errors=difference / both["error"].where(both["error"] > 0))


def _average(part: pd.DataFrame) -> dict[str, Any]:
    means = part[["accuracy", "expected", "paper"]].astype(float).mean()
    error = float(np.sqrt(part["error"].astype(float).pow(2).sum())) / len(part)
    return {"method": part["method"].iloc[0], **means, "error": error}
