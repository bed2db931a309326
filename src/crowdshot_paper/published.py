"""Read the published numbers of the paper: Kumagai et al., ICML 2025, https://arxiv.org/abs/2506.10259."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).with_name("published_values")

IN_PAPER = (
    "Ours",
    "LRMV",
    "LRDS",
    "RFMV",
    "RFDS",
    "CL",
    "CNAL",
    "PrMV",
    "PrDS",
    "MaMV",
    "MaDS",
    "MCL",
    "MCNAL",
    "w/o PA",
)
"""The systems in the order of the paper's tables."""
PLACES = {
    "main": "Table 1",
    "labelme": "Table 2",
    "other-annotators": "Tables 3 and 4",
    "dirichlet-b": "Table 5",
    "class-imbalance": "Table 6",
    "with-pseudo-annotation": "Table 7",
    "noisy-label-learning": "Table 8",
    "example-dependent": "Table 9",
    "cifar10h": "Table 10",
    "large-support": "Table 11",
    "large-annotators": "Table 12",
    "cost": "Tables 13 and 14",
    "spammers": "Figure 3",
    "em-steps": "Figure 5",
    "embedding": "Figure 6",
    "confusion": "Figure 7",
}
"""The paper's tables and figures, by experiment. The other experiments are not in the paper."""
IN_MAIN = ("main", "labelme", "cifar10h", "each-cell", "as-sparse")
"""Experiments whose numbers are in the paper's main tables."""


def figures(experiment: str, dataset: str) -> pd.DataFrame:
    """Return the paper's numbers for an experiment.

    Columns: n_support, n_annotators, method, accuracy and stderr, which is NaN if the paper does not report it.
    ``n_annotators`` is 0 for real annotators. Both sizes are NaN in tables that report an average over cells only.
    """
    every = _read("tables.csv")
    table = "main" if experiment in IN_MAIN else experiment
    found = every[(every["table"] == table) & (every["dataset"] == dataset)]
    annotators = found["n_annotators"].where(found["n_annotators"].notna() | found["n_support"].isna(), 0)
    return found.assign(n_annotators=annotators).drop(columns=["table", "dataset"]).reset_index(drop=True)


def times() -> pd.DataFrame:
    """Return method, meta_train_seconds, test_seconds and accuracy on Omniglot (4 support items, 5 annotators)."""
    return _read("times.csv").copy()


@cache
def _read(name: str) -> pd.DataFrame:
    return pd.read_csv(FOLDER / name, comment="#")
