"""The column of a long table that holds true labels, used where it can hold nothing else, and told in any case."""

from __future__ import annotations

import warnings
from collections.abc import Collection

import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.files.cells import Ids
from crowdshot.files.tables import Table
from crowdshot.labels.choices import split_of
from crowdshot.labels.columns import TRUTH, Columns, plain
from crowdshot.labels.formats.questions import labels_in
from crowdshot.labels.spelling import as_whole, fold
from crowdshot.wording import listing

RIGHT_OR_WRONG = {"correct", "true"}  # columns that may as well say whether a label is right
YES_NO = {"yes", "no", "true", "false", "0", "1"}


def tell_taken(source: str, column: str) -> None:
    told = f"{source}: {column!r} is taken for the true labels, and for no annotator."
    warnings.warn(told, UserWarning, stacklevel=3)


def true_labels(
    table: Table, names: Columns, item: Ids, label: Ids, missing: Collection[str], several: bool
) -> dict[str, str]:
    """{item: true label}, {} where the table has no column of them or one that is not used, as is told.

    Each must be a label that somebody gave, and the only one of its item. ``missing``: what is no label.
    """
    columns = [place for place, name in enumerate(table.header) if name not in names and plain(name) in TRUTH]
    if not columns:
        return {}
    try:
        truth = pd.Series(labels_in(table, columns[0], several))
    except CrowdshotError:
        truth = pd.Series("", index=range(len(item)))  # lists and the like
    said = ~truth.map({word: fold(word) in missing for word in truth.unique()}).astype(bool) & (item != "")
    known = pd.DataFrame({"item": item, "label": truth})[said].drop_duplicates()
    if known.empty:
        return {}
    reason = (
        f"there are {len(columns)} such columns, {listing(table.header[place] for place in columns)}"
        if columns[1:]
        else _why_not(known, plain(table.header[columns[0]]), label, several)
    )
    if reason:
        told = f"{table.name}: {table.header[columns[0]]!r} is not taken for true labels, because {reason}."
        warnings.warn(told, UserWarning, stacklevel=3)
        return {}
    tell_taken(table.name, table.header[columns[0]])
    return dict(zip(known["item"], known["label"], strict=True))


def _why_not(known: pd.DataFrame, called: str, label: Ids, several: bool) -> str:
    """Why a column of this name does not hold the true labels, "" where it does."""
    given = pd.unique(label)
    split = split_of(given) if several else lambda word: [word]
    given_parts = {as_whole(part) for word in given for part in split(word)}
    strange = next((word for word in known["label"] if not {as_whole(part) for part in split(word)} <= given_parts), "")
    if strange:
        return f"nobody gave the label {strange!r}"
    twice = known[known["item"].duplicated()]
    if len(twice):
        return f"item {twice['item'].iloc[0]!r} has several"
    if called in RIGHT_OR_WRONG and {fold(word) for word in known["label"]} <= YES_NO:
        return "it may say whether a label is right"
    return ""
