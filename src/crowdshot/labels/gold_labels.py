"""Read gold labels (known true labels) from a file, from Python objects, or from the label file.

The class of an item with gold is fixed, and annotators are judged by it. A class that occurs only in gold labels is a
class like any other.
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

from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.formatting import counted, first, listing, show
from crowdshot.io.cells import Ids, Positions, as_index, ordered, positions, trim, unique_ids
from crowdshot.io.dataframes import to_pandas
from crowdshot.io.tables import ids_of, read_table
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import TRUTH, Columns, plain
from crowdshot.labels.consensus import Share
from crowdshot.labels.matching import match_files
from crowdshot.labels.spelling import Spelling
from crowdshot.model.parts import Aggregator, Part, PosteriorMatrix, Sizes, parts_of
from crowdshot.model.posteriors import believe, likeliest

Gold: TypeAlias = "Mapping[Any, Any] | pd.Series[Any] | pd.DataFrame | Sequence[Any] | NDArray[Any] | None"

FEWEST = 5  # labelled gold items needed before the crowd's agreement with gold is judged


# ---- Reading gold labels -------------------------------------------------------------------------------------------


def read(path: Path, columns: Columns, spelling: Spelling = trim) -> dict[str, str]:
    """Read ``{item: label}`` from a file; rows without a label are ignored, equal repetitions are allowed.

    Parameters
    ----------
    path : Path
    columns : Columns
        Column names of the label table. The item column has the same name as there, or is the first. The label column
        is the only other one, or is called truth, gold or similar, or has the name of the label table's label column.
    spelling : callable
        Renames labels as in the label table.
    """
    table = read_table(path)
    item, label = _columns(table.header, columns, where=str(path))
    known: dict[str, str] = {}
    for row, (name, cell) in enumerate(zip(ids_of(table, item), table.text(label), strict=True)):
        truth = spelling(cell)
        if truth and known.setdefault(name, truth) != truth:
            raise CrowdshotError(
                f"is {truth!r} for {name!r}, but an earlier row has {known[name]!r}",
                where=table.place(row, label),
                found=truth,
                expected="one label for each item",
            )
    return known


def as_mapping(gold: Gold, ann: Annotations) -> dict[Any, Any]:
    """Return ``{item: label}`` for a mapping, a Series, a table in the form that `read` reads, or an array (N,).

    Missing labels are ignored; -1 is missing unless it is a class.
    """
    if gold is None:
        return {}
    gold = to_pandas(gold, "gold")
    if isinstance(gold, list | tuple | np.ndarray):
        if len(gold) != ann.n_items or np.ndim(gold) != 1:
            raise CrowdshotError(
                f"has shape {np.shape(gold)}",
                argument="gold",
                found=np.shape(gold),
                expected=f"({ann.n_items},), or {{item: label}}",
            )
        gold = dict(zip(ann.items.tolist(), gold, strict=True))
    if isinstance(gold, pd.DataFrame):
        item, label = _columns(list(gold.columns), ann.columns, argument="gold")
        gold = pd.Series(gold.iloc[:, label].to_numpy(), index=as_index(gold.iloc[:, item]))
    if not isinstance(gold, Mapping | pd.Series):
        raise CrowdshotError(
            f"is a {type(gold).__name__}", argument="gold", expected="{item: label}, a Series or a table"
        )
    if isinstance(gold, pd.Series) and not gold.index.is_unique:
        repeated = gold.index[first(gold.index.duplicated())]
        raise CrowdshotError(
            f"names item {show(repeated)} more than once", argument="gold", found=repeated, expected="each item once"
        )
    missing = (None, "") if -1 in ann.classes.tolist() else (None, "", -1)
    return {item: label for item, label in gold.items() if not pd.isna(label) and label not in missing}


def _columns(
    header: Sequence[Any], columns: Columns, argument: str | None = None, where: str | None = None
) -> tuple[int, int]:
    """Return the positions of the item column and of the label column."""
    if len(header) < 2:
        raise CrowdshotError(
            f"has {len(header)} column",
            argument=argument,
            where=where,
            found=list(header),
            expected="the item and its true label",
        )
    called = [plain(name) for name in header]
    item = called.index(plain(columns.item)) if plain(columns.item) in called else int(called[0] in TRUTH)
    others = [column for column in range(len(header)) if column != item]
    if header[item] == columns.label:
        raise CrowdshotError(
            f"has {header[item]!r} as its first column and no item column",
            argument=argument,
            where=where,
            found=list(header[:10]),
            expected="the item and its true label",
        )
    by_meaning = [column for column in others if called[column] in TRUTH]
    by_name = [column for column in others if header[column] == columns.label]
    for found in (by_meaning, by_name, others):
        if len(found) == 1:
            return item, found[0]
    names = listing(header[column] for column in others)
    raise CrowdshotError(
        f"has {len(others)} columns beside the item: {names}",
        argument=argument,
        where=where,
        found=[header[column] for column in others[:10]],
        expected="one that is called truth",
    )


# ---- Matching gold to labels ---------------------------------------------------------------------------------------


def find_items(names: Sequence[Any], items: Ids, files: Sequence[Any] | None = None, source: str = "gold") -> Positions:
    """Return the position of each name in ``items``, -1 if it is not there.

    Parameters
    ----------
    names : sequence
    items : array of shape (N,)
    files : sequence of length N, optional
        Paths of the items; names may also be file names then.
    source : str
        The argument that the names come from, for error messages.
    """
    row = positions(items, names)
    if files is not None and all(isinstance(file, PurePath) for file in files):
        rest = row < 0
        row[rest] = match_files(np.array(list(names), dtype=object)[rest], files)
    repeated = (row >= 0) & pd.Index(row).duplicated()
    if repeated.any():
        item = items[row[first(repeated)]]
        raise CrowdshotError(
            f"names item {show(item)} more than once", argument=source, found=item, expected="each item once"
        )
    return row


def some_of(
    gold: Mapping[str, str], items: Ids, files: Sequence[Any] | None = None, source: Path | None = None
) -> tuple[dict[Any, str], int]:
    """Return the gold labels of these items, and the number of gold labels for other items.

    Raises
    ------
    CrowdshotError
        If ``source``, the gold file, names none of the items.
    """
    names = list(gold)
    row = find_items(names, items, files)
    if source is not None and (row < 0).all():
        raise CrowdshotError(
            f"has no true label of a labelled item; its first item is {names[0]!r}" if names else "has no true label",
            where=str(source),
            found=names[:1],
            expected=f"some of the labelled items, such as {listing(items, 1)}",
        )
    known = {items[place]: gold[name] for name, place in zip(names, row.tolist(), strict=True) if place >= 0}
    return known, int((row < 0).sum())


def warn_new_classes(truth: Iterable[str], labels: Iterable[Any], source: str, can_rename: bool = False) -> None:
    """Warn about gold labels that no annotator used: they may be misspelled.

    ``can_rename``: whether the caller has an argument ``rename``, which the hint sets.
    """
    known = [str(name) for name in labels]
    new = [label for label in dict.fromkeys(map(str, truth)) if label not in known]
    if new:
        close = {label: similar[0] for label in new if (similar := difflib.get_close_matches(label, known, 1))}
        hint: str | Use = "Check the spelling if that is unexpected."
        if close and can_rename:
            hint = Use(f"if that should be {listing(dict.fromkeys(close.values()))}", rename=close)
        elif new[0] in close:
            hint = f"Did you mean {close[new[0]]!r}?"
        warnings.warn(
            CrowdshotWarning(
                f"No annotator used the gold {'labels' if new[1:] else 'label'} {listing(new)}",
                where=source,
                found=new[:10],
                hint=hint,
            ),
            stacklevel=4,
        )


def warn_unlabelled(names: Iterable[Any], items: Ids, source: str) -> None:
    """Warn about gold of items without labels: without features it has no effect, and names may be misspelled."""
    names = list(names)
    others = [name for name, place in zip(names, positions(items, names), strict=True) if place < 0]
    if others:
        warnings.warn(
            CrowdshotWarning(
                f"Nobody labelled {counted(len(others), 'items')} with gold: {listing(others, 3)}",
                where=source,
                found=others[:10],
                hint="Check that their names are written as in the labels.",
            ),
            stacklevel=3,
        )


def hold(ann: Annotations, gold: Mapping[Any, Any]) -> tuple[Annotations, Positions]:
    """Add the classes of gold labels to the annotations; also return the known class of each item (N,), or -1."""
    spelled = {str(name): name for name in ann.classes}  # 1 and "1" are one class
    truth = [spelled.get(str(label), label) for label in gold.values()]
    ann = _with_classes(ann, truth)
    known = np.full(ann.n_items, -1, dtype=np.int64)
    known[positions(ann.items, list(gold))] = positions(ann.classes, truth)
    return ann, known


def join(ann: Annotations, gold: Mapping[Any, Any]) -> Annotations:
    """Append the gold items that nobody labelled to the annotations' items."""
    return replace(ann, items=unique_ids(dict.fromkeys([*ann.items, *gold]), "items")) if gold else ann


def _with_classes(ann: Annotations, labels: Iterable[Any]) -> Annotations:
    """Add classes; sort them if they were sorted, otherwise append the new ones."""
    labels = list(dict.fromkeys(labels))
    new = [label for label, place in zip(labels, positions(ann.classes, labels), strict=True) if place < 0]
    if not new:
        return ann
    classes = unique_ids([*ann.classes.tolist(), *new], "classes")
    if (ordered(ann.classes) == ann.classes).all():
        classes = ordered(classes)
    return replace(ann, label=positions(classes, ann.classes)[ann.label], classes=classes)


# ---- Agreement of the consensus with gold --------------------------------------------------------------------------


class Agreement(NamedTuple):
    """How often the consensus without gold equals the gold label, and its mean confidence.

    Attributes
    ----------
    right : Share or None
        Of the gold items with labels; None if there are none.
    unlabelled : Share or None
        Of the gold items without labels, which only a classifier can judge.
    confidence : float
        Mean confidence for the gold items with labels.
    """

    right: Share | None
    unlabelled: Share | None
    confidence: float

    @property
    def shared_mistakes(self) -> bool:
        """Return whether the accuracy is below the confidence by more than chance: annotators share mistakes."""
        return self.right is not None and self.right.of >= FEWEST and self.right.high < self.confidence


def compare(ann: Annotations, known: Positions, posterior: PosteriorMatrix) -> pd.DataFrame:
    """Return a table that compares gold labels with the consensus that was computed without them.

    Parameters
    ----------
    ann : Annotations
    known : array of shape (N,)
        Known classes, -1 for items without gold.
    posterior : array of shape (n, K)
        Class probabilities of the n items with gold, computed without it.

    Returns
    -------
    DataFrame
        item, truth, consensus, confidence, n_labels
    """
    row = np.flatnonzero(known >= 0)
    consensus, confidence = likeliest(posterior)
    return pd.DataFrame(
        {
            ann.columns.item: as_index(ann.items).take(row),
            "truth": as_index(ann.classes).take(known[row]),
            "consensus": as_index(ann.classes).take(consensus),
            "confidence": confidence,
            "n_labels": np.bincount(ann.item, minlength=ann.n_items)[row],
        }
    )


def agreement(compared: pd.DataFrame) -> Agreement:
    """Summarise the table that `compare` returns."""
    right, labelled = (compared["truth"] == compared["consensus"]).to_numpy(), (compared["n_labels"] > 0).to_numpy()
    confidence = float(compared["confidence"][labelled].mean()) if labelled.any() else 0.0
    return Agreement(Share.of_all(right[labelled]), Share.of_all(right[~labelled]), confidence)


# ---- a crowd for an aggregator ----


class Crowd(NamedTuple):
    """A crowd in memory, in parts as aggregators take it (`crowdshot.model.parts`)."""

    sizes: Sizes
    parts: list[Part]
    known: Positions  # (N,) known classes, -1 for items without gold

    def run(self, aggregator: Aggregator) -> tuple[Any, PosteriorMatrix]:
        """Return the aggregator's final state and the posteriors (N, K)."""
        return believe(aggregator, self.parts)


def crowd_of(ann: Annotations, gold: Gold = None) -> Crowd:
    sizes = Sizes(ann.n_items, ann.n_annotators, ann.n_classes)
    known = np.full(ann.n_items, -1)
    item, label = gold_positions(ann, gold)
    known[item] = label
    fixed = known if len(item) else None
    return Crowd(sizes, parts_of(ann.item, ann.annotator, ann.label, sizes, fixed), known)


def gold_positions(ann: Annotations, gold: Gold) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return two arrays (G,): positions of the items with gold, and of their classes."""
    known = as_mapping(gold, ann)
    items, labels = list(known), list(known.values())
    item, label = positions(ann.items, items), positions(ann.classes, labels)
    if (item < 0).any():
        unknown = items[first(item < 0)]
        raise CrowdshotError(
            f"names item {show(unknown)}, which nobody labelled",
            argument="gold",
            found=unknown,
            expected="labelled items only",
        )
    if (label < 0).any():
        row = first(label < 0)
        raise CrowdshotError(
            f"has label {show(labels[row])} for item {show(items[row])}",
            argument="gold",
            found=labels[row],
            expected=f"one of {listing(ann.classes)}",
        )
    return item, label
