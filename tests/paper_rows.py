"""Rows of the paper's experiments with given values, in the format of `crowdshot_paper.store`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from crowdshot_paper.episode_cells import SOURCE_CROWD, TARGET_CROWDS
from crowdshot_paper.store import Piece, Store

FIRST, *_, LAST = TARGET_CROWDS
CELL = (4, 3)


def some(
    method: str,
    accuracies: Sequence[float],
    candidate: str = "",
    role: str = "test",
    split: int = 0,
    cell: tuple[int, int] = CELL,
    crowd: str | None = None,
    dataset: str = "omniglot",
) -> pd.DataFrame:
    """Return a row for each accuracy, for episodes 0, 1, …"""
    return pd.DataFrame(
        {
            "experiment": "main",
            "dataset": dataset,
            "split": split,
            "n_support": cell[0],
            "n_annotators": cell[1],
            "mixture": crowd or (FIRST if role == "test" else SOURCE_CROWD),
            "method": method,
            "candidate": candidate,
            "role": role,
            "episode": range(len(accuracies)),
            "accuracy": accuracies,
            "ece": 0.1,
        }
    )


def both(
    method: str, accuracies: Sequence[float], candidate: str = "", validation: float = 0.5, **place: object
) -> pd.DataFrame:
    """Return test rows and one validation row."""
    parts = [some(method, accuracies, candidate, **place), some(method, [validation], candidate, "validation", **place)]  # type: ignore[arg-type]
    return pd.concat(parts, ignore_index=True)


def keep(root: Path, experiment: str, rows: pd.DataFrame, seconds: Mapping[str, object] | None = None) -> None:
    """Write rows to a store, one piece per method, split and cell."""
    about = {"what": "test", "seconds": 1.0, "episodes": 250, "candidates": 1, "device": "CPU", **(seconds or {})}
    fields = ["dataset", "split", "n_support", "n_annotators", "method"]
    for key, part in rows.groupby(fields):
        Store(root, experiment, str(key[0])).add(Piece(experiment, *key), part, about)
