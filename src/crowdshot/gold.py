"""True labels that are known beforehand: from a file of their own, or told by the file of labels itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from crowdshot.annotations import Annotations
from crowdshot.columns import Columns
from crowdshot.errors import CrowdshotError
from crowdshot.ids import positions
from crowdshot.tables import one_each, read_table


def usable(gold: Mapping[str, str], ann: Annotations) -> tuple[dict[str, str], int]:
    """{item: label} of the items that someone labelled and the labels that someone gave, and how many others."""
    if not gold:
        return {}, 0
    known = (positions(ann.items, gold) >= 0) & (positions(ann.classes, gold.values()) >= 0)
    return {item: label for (item, label), use in zip(gold.items(), known, strict=True) if use}, int((~known).sum())


def compare(gold: Mapping[str, str], consensus: pd.DataFrame, columns: Columns) -> dict[str, int]:
    """How many items' true labels are known, and how many of these the consensus has."""
    truth = consensus[columns.item].map(gold)
    return {"gold": int(truth.notna().sum()), "gold_right": int((truth == consensus[columns.label]).sum())}


def read(path: Path, ann: Annotations) -> tuple[dict[str, str], int]:
    """{item: label} of the items that someone labelled, and how many others there are.

    The columns are those of the labels' table, else the first is the item and the second its label.
    """
    table = read_table(path)
    header = table.header
    if len(header) < 2:
        raise CrowdshotError(f"{path} has {len(header)} column, expected the item and its true label.")
    item = header.index(ann.columns.item) if ann.columns.item in header else 0
    label = header.index(ann.columns.label) if ann.columns.label in header else 1
    if item == label:
        raise CrowdshotError(f"{path} has {header[item]!r} first and no item, expected the item and its true label.")
    ids, truth = one_each(table, item), table.text(label)
    known = (positions(ann.items, ids) >= 0) & (truth != "")
    if not known.any():
        raise CrowdshotError(
            f"{path} has the true label of no item that was labelled: its first item is {ids[0]!r}, the labels'"
            f" {str(ann.items[0])!r}."
        )
    strange = known & (positions(ann.classes, truth) < 0)
    if strange.any():
        row = int(np.argmax(strange))
        raise CrowdshotError(
            f"{table.place(row, label)} is {truth[row]!r}, which nobody answered: the classes are"
            f" {', '.join(map(repr, ann.classes[:10].tolist()))}."
        )
    return dict(zip(ids[known], truth[known], strict=True)), int((~known).sum())
