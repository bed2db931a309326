"""The column of a long table that holds true labels, used where it can hold nothing else, and told in any case."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection

import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.files.cells import Ids
from crowdshot.files.tables import Table
from crowdshot.labels.choices import spell_each, split_of
from crowdshot.labels.columns import TRUTH, Columns, plain
from crowdshot.labels.formats.labels import LabelFile
from crowdshot.labels.formats.questions import labels_in
from crowdshot.labels.spelling import fold
from crowdshot.wording import listing

RIGHT_OR_WRONG = {"correct", "true"}  # columns that may as well say whether a label is right
YES_NO = {"yes", "no", "true", "false", "0", "1"}


def tell_taken(source: str, column: str) -> None:
    told = f"{source}: {column!r} is taken for the true labels, and for no annotator."
    warnings.warn(told, UserWarning, stacklevel=3)


def true_labels(
    file: LabelFile, table: Table, names: Columns, item: Ids, label: Ids, missing: Collection[str]
) -> dict[str, str]:
    """{item: true label}, {} where the table has no column of them or one that is not used, as is told.

    Each must be a label that somebody gave, by what labels are called, and the only one of its item. ``table``: those
    rows of the file that are read. ``missing``: what is no label.
    """
    columns = [place for place, name in enumerate(table.header) if name not in names and plain(name) in TRUTH]
    if not columns:
        return {}
    try:
        truth = pd.Series(labels_in(table, columns[0], file.several))
    except CrowdshotError:
        truth = pd.Series("", index=range(len(item)))  # lists and the like
    said = ~truth.map({word: fold(word) in missing for word in truth.unique()}).astype(bool) & (item != "")
    known = pd.DataFrame({"item": item, "label": truth})[said].drop_duplicates()
    if known.empty:
        return {}
    reason = (
        f"there are {len(columns)} such columns, {listing(table.header[place] for place in columns)}"
        if columns[1:]
        else _why_not(known, plain(table.header[columns[0]]), label, file)
    )
    if reason:
        told = f"{table.name}: {table.header[columns[0]]!r} is not taken for true labels, because {reason}."
        warnings.warn(told, UserWarning, stacklevel=3)
        return {}
    tell_taken(table.name, table.header[columns[0]])
    return dict(zip(known["item"], known["label"], strict=True))


def _why_not(known: pd.DataFrame, called: str, label: Ids, file: LabelFile) -> str:
    """Why a column of this name does not hold the true labels, "" where it does."""
    given = pd.Series(label).value_counts().to_dict()
    split = split_of(given) if file.several else lambda word: [word]
    written: Counter[str] = Counter()
    for word, number in given.items():
        for part in split(word):
            written[part] += number
    spelling = file.spells(written)
    names = {"", *map(spelling, written)}
    truths = known["label"].unique()
    strange = next((word for word in truths if not {spelling(part) for part in split(word)} <= names), "")
    if strange:
        return f"nobody gave the label {strange!r}"
    whole = spell_each(spelling, split)
    spelled = known.assign(label=known["label"].map({word: whole(word) for word in truths}))
    spelled = spelled[spelled["label"] != ""].drop_duplicates()
    twice = spelled[spelled["item"].duplicated()]
    if len(twice):
        return f"item {twice['item'].iloc[0]!r} has several"
    if called in RIGHT_OR_WRONG and set(map(fold, truths)) <= YES_NO:
        return "it may say whether a label is right"
    return ""
