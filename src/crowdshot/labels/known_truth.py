"""True labels that are known beforehand: from a file of their own, or told by the file of labels itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.files.tables import one_each, read_table
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import TRUTH, Columns, plain
from crowdshot.labels.positions import positions
from crowdshot.labels.spelling import Spelling
from crowdshot.wording import listing


def usable(gold: Mapping[str, str], ann: Annotations) -> tuple[dict[str, str], int]:
    """{item: label} of the items that someone labelled and the labels that someone gave, and how many others."""
    if not gold:
        return {}, 0
    known = (positions(ann.items, gold) >= 0) & (positions(ann.classes, gold.values()) >= 0)
    return {item: label for (item, label), use in zip(gold.items(), known, strict=True) if use}, int((~known).sum())


def _label_column(path: Path, header: list[str], item: int, usual: str) -> int:
    others = [column for column in range(len(header)) if column != item]
    if header[item] == usual:
        raise CrowdshotError(f"{path} has {header[item]!r} first and no item, expected the item and its true label.")
    called_so = [column for column in others if plain(header[column]) in TRUTH]
    as_usual = [column for column in others if header[column] == usual]
    for found in (called_so, as_usual, others):
        if len(found) == 1:
            return found[0]
    names = listing(header[column] for column in others)
    raise CrowdshotError(f"{path} has {len(others)} columns beside the item, {names}, expected one called truth.")


def compare(gold: Mapping[str, str], consensus: pd.DataFrame, columns: Columns) -> dict[str, int]:
    """How many items' true labels are known, and how many of these the consensus has."""
    truth = consensus[columns.item].map(gold)
    return {"gold": int(truth.notna().sum()), "gold_right": int((truth == consensus[columns.label]).sum())}


def read(path: Path, ann: Annotations, spelling: Spelling = str.strip) -> tuple[dict[str, str], int]:
    """{item: label} of the items that someone labelled, and how many others there are; spelled as the labels are.

    The item's column is called as in the labels' table, else it is the first. The label's is the only other one, or
    called truth, gold or the like, or as in the labels' table.
    """
    table = read_table(path)
    header = table.header
    if len(header) < 2:
        raise CrowdshotError(f"{path} has {len(header)} column, expected the item and its true label.")
    called = [plain(name) for name in header]
    item = called.index(plain(ann.columns.item)) if plain(ann.columns.item) in called else int(called[0] in TRUTH)
    label = _label_column(path, header, item, ann.columns.label)
    ids, truth = one_each(table, item), np.array([spelling(word) for word in table.text(label)], dtype=object)
    known = (positions(ann.items, ids) >= 0) & (truth != "")
    if not known.any():
        raise CrowdshotError(
            f"{path} has true labels of {ids[0]!r} and others, expected some of the labelled items, "
            f"{listing(ann.items, 1)}."
        )
    strange = known & (positions(ann.classes, truth) < 0)
    if strange.any():
        row = int(np.argmax(strange))
        raise CrowdshotError(
            f"{table.place(row, label)} is {truth[row]!r}, which nobody answered, expected one of"
            f" {listing(ann.classes)}."
        )
    return dict(zip(ids[known], truth[known], strict=True)), int((~known).sum())
