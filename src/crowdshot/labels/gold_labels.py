"""Gold: true labels that are known beforehand, from a file of their own, from Python, or told by the labels' file.

Items with gold have that class for sure, whatever anybody said, and annotators are judged by it. A class that only gold
names is a class like any other.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import counted, first, listing, show
from crowdshot.io.cells import Ids, trim
from crowdshot.io.tables import ids_of, read_table
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import TRUTH, Columns, plain
from crowdshot.labels.confidence import Share
from crowdshot.labels.indexing import Positions, as_index, ordered, positions, unique_ids
from crowdshot.labels.matching import match_files
from crowdshot.labels.spelling import Spelling
from crowdshot.model.parts import PosteriorMatrix
from crowdshot.model.posteriors import likeliest

Gold: TypeAlias = "Mapping[Any, Any] | pd.Series[Any] | pd.DataFrame | Sequence[Any] | NDArray[Any] | None"

FEWEST = 5  # items with gold and labels, below which one mistake would say too much


# ---- from anywhere to {item: label} -----------------------------------------------------------------------------


def read(path: Path, columns: Columns, spelling: Spelling = trim) -> dict[str, str]:
    """{item: label} of a file's rows that have a label, spelled as the labels are; an item may repeat its own.

    The item's column is called as in the labels' table, else it is the first. The label's is the only other one, or
    called truth, gold or the like, or as in the labels' table.
    """
    table = read_table(path)
    item, label = _columns(str(path), table.header, columns)
    known: dict[str, str] = {}
    for row, (name, word) in enumerate(zip(ids_of(table, item), table.text(label), strict=True)):
        said = spelling(word)
        if said and known.setdefault(name, said) != said:
            where = table.place(row, label)
            raise CrowdshotError(
                f"{where} is {said!r} for {name!r}, which is {known[name]!r} above, expected one label."
            )
    return known


def as_mapping(gold: Gold, ann: Annotations) -> dict[Any, Any]:
    """{item: label} from a mapping, a Series, a table like those that `read` reads, or (N,) labels.

    Missing labels are passed over; so is -1 where it is no class.
    """
    if gold is None:
        return {}
    if isinstance(gold, list | tuple | np.ndarray):
        if len(gold) != ann.n_items or np.ndim(gold) != 1:
            raise CrowdshotError(f"gold is of shape {np.shape(gold)}, expected ({ann.n_items},), or {{item: label}}.")
        gold = dict(zip(ann.items.tolist(), gold, strict=True))
    if isinstance(gold, pd.DataFrame):
        item, label = _columns("gold", list(gold.columns), ann.columns)
        gold = pd.Series(gold.iloc[:, label].to_numpy(), index=as_index(gold.iloc[:, item]))
    if not isinstance(gold, Mapping | pd.Series):
        raise CrowdshotError(f"gold is a {type(gold).__name__}, expected {{item: label}}, a Series or a table.")
    if isinstance(gold, pd.Series) and not gold.index.is_unique:
        twice = show(gold.index[first(gold.index.duplicated())])
        raise CrowdshotError(f"gold names item {twice} more than once, expected each once.")
    missing = (None, "") if -1 in ann.classes.tolist() else (None, "", -1)
    return {item: label for item, label in gold.items() if not pd.isna(label) and label not in missing}


def _columns(source: str, header: Sequence[Any], columns: Columns) -> tuple[int, int]:
    """Where the items and the true labels stand."""
    if len(header) < 2:
        raise CrowdshotError(f"{source} has {len(header)} column, expected the item and its true label.")
    called = [plain(name) for name in header]
    item = called.index(plain(columns.item)) if plain(columns.item) in called else int(called[0] in TRUTH)
    others = [column for column in range(len(header)) if column != item]
    if header[item] == columns.label:
        raise CrowdshotError(f"{source} has {header[item]!r} first and no item, expected the item and its true label.")
    called_so = [column for column in others if called[column] in TRUTH]
    as_usual = [column for column in others if header[column] == columns.label]
    for found in (called_so, as_usual, others):
        if len(found) == 1:
            return item, found[0]
    names = listing(header[column] for column in others)
    raise CrowdshotError(f"{source} has {len(others)} columns beside the item, {names}, expected one called truth.")


# ---- among the labels -------------------------------------------------------------------------------------------


def find_items(names: Sequence[Any], items: Ids, files: Sequence[Any] | None = None, source: str = "gold") -> Positions:
    """Which of ``items`` each name means, -1 for none; ``files``: the same items as paths, where they are images."""
    row = positions(items, names)
    if files is not None and all(isinstance(file, PurePath) for file in files):
        rest = row < 0
        row[rest] = match_files(np.array(list(names), dtype=object)[rest], files)
    twice = (row >= 0) & pd.Index(row).duplicated()
    if twice.any():
        raise CrowdshotError(
            f"{source} names item {show(items[row[first(twice)]])} more than once, expected each once."
        )
    return row


def some_of(
    gold: Mapping[str, str], items: Ids, files: Sequence[Any] | None = None, source: Path | None = None
) -> tuple[dict[Any, str], int]:
    """Gold of these items, and how many other items it has; a file that was named (``source``) has some of them."""
    names = list(gold)
    row = find_items(names, items, files)
    if source is not None and (row < 0).all():
        found = f"has true labels of {names[0]!r} and others" if names else "has no true label"
        raise CrowdshotError(f"{source} {found}, expected some of the labelled items, {listing(items, 1)}.")
    known = {items[place]: gold[name] for name, place in zip(names, row.tolist(), strict=True) if place >= 0}
    return known, int((row < 0).sum())


def warn_new_classes(truth: Iterable[str], said: Iterable[Any], source: str) -> None:
    """What no annotator said may be a slip of the pen, or a class that all of them missed."""
    known = [str(name) for name in said]
    new = [label for label in dict.fromkeys(map(str, truth)) if label not in known]
    if new:
        like = difflib.get_close_matches(new[0], known, 1)
        hint = f" (or is it {like[0]!r}?)" if like else ""
        what = "classes of their own" if new[1:] else "a class of its own"
        told = f"{source}: {listing(new)}, which no annotator said, {'are' if new[1:] else 'is'} {what}{hint}."
        warnings.warn(told, UserWarning, stacklevel=4)


def warn_unlabelled(names: Iterable[Any], items: Ids, source: str) -> None:
    """Of labels alone, gold of other items teaches nothing: their names may be written in another way."""
    others = [name for name, place in zip(names, positions(items, list(names)), strict=True) if place < 0]
    if others:
        told = (
            f"{source}: {counted(len(others), 'items')} that nobody labelled, {listing(others, 3)}: are they called so?"
        )
        warnings.warn(told, UserWarning, stacklevel=3)


def hold(ann: Annotations, gold: Mapping[Any, Any]) -> tuple[Annotations, Positions]:
    """The annotations with classes for all labels of gold, and (N,) the class of each item, -1 where none is known."""
    spelled = {str(name): name for name in ann.classes}  # 1 and "1" are one class
    truth = [spelled.get(str(label), label) for label in gold.values()]
    ann = _with_classes(ann, truth)
    known = np.full(ann.n_items, -1, dtype=np.int64)
    known[positions(ann.items, list(gold))] = positions(ann.classes, truth)
    return ann, known


def join(ann: Annotations, gold: Mapping[Any, Any]) -> Annotations:
    """The annotations with all items of gold, those that nobody labelled last."""
    return replace(ann, items=unique_ids(dict.fromkeys([*ann.items, *gold]), "items")) if gold else ann


def _with_classes(ann: Annotations, labels: Iterable[Any]) -> Annotations:
    """In order if they were, else the new ones last."""
    labels = list(dict.fromkeys(labels))
    more = [label for label, place in zip(labels, positions(ann.classes, labels), strict=True) if place < 0]
    if not more:
        return ann
    classes = unique_ids([*ann.classes.tolist(), *more], "classes")
    if (ordered(ann.classes) == ann.classes).all():
        classes = ordered(classes)
    return replace(ann, label=positions(classes, ann.classes)[ann.label], classes=classes)


# ---- how it agrees with what is believed ------------------------------------------------------------------------


class Agreement(NamedTuple):
    """What would be believed of gold items if they had none: how often that is right, and its confidence.

    ``right``: of the items that somebody labelled; None where nobody labelled one. ``unlabelled``: of the others, where
    a classifier judges them. ``confidence``: the mean of what the consensus of the labelled ones would claim.
    """

    right: Share | None
    unlabelled: Share | None
    confidence: float

    @property
    def shared_mistakes(self) -> bool:
        """Whether the crowd is surely less often right than it seems to be: it makes the same mistakes."""
        return self.right is not None and self.right.of >= FEWEST and self.right.high < self.confidence


def compare(ann: Annotations, known: Positions, believed: PosteriorMatrix) -> pd.DataFrame:
    """A row for each item whose class is ``known`` (N,), and what was ``believed`` (n, K) of these without knowing."""
    row = np.flatnonzero(known >= 0)
    best, confidence = likeliest(believed)
    return pd.DataFrame(
        {
            ann.columns.item: as_index(ann.items).take(row),
            "truth": as_index(ann.classes).take(known[row]),
            "believed": as_index(ann.classes).take(best),
            "confidence": confidence,
            "n_labels": np.bincount(ann.item, minlength=ann.n_items)[row],
        }
    )


def agreement(compared: pd.DataFrame) -> Agreement:
    """Of the table that `compare` makes."""
    right, labelled = (compared["truth"] == compared["believed"]).to_numpy(), (compared["n_labels"] > 0).to_numpy()
    confidence = float(compared["confidence"][labelled].mean()) if labelled.any() else 0.0
    return Agreement(Share.of_all(right[labelled]), Share.of_all(right[~labelled]), confidence)
