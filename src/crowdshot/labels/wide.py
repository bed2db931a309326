"""A DataFrame with a row for each item and a column for each annotator."""

from __future__ import annotations

import warnings
from typing import Any

import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.labels.columns import NO_ANNOTATOR, TRUTH, Columns, find_columns, plain
from crowdshot.wording import listing


def wide_table(labels: pd.DataFrame | pd.Series[Any]) -> pd.DataFrame | None:
    """Items as index and annotators as columns; None for a table of another kind.

    Columns of a wide table have labels in common, which those of a long one have not, whatever they are called. A lone
    column is one annotator's. A column that is called like an item and names each row is the items'; columns called
    like a truth or like notes are no annotator's and left out.
    """
    if isinstance(labels, pd.Series):
        return labels.to_frame(0 if labels.name is None else labels.name)
    if _is_long(labels) or labels.columns.has_duplicates:
        return None
    try:
        said = {name: set(labels[name].dropna().unique()) - {"", -1} for name in labels.columns}
    except TypeError:  # lists or the like, which are no labels
        return None
    item = _item_column(labels)
    if item is not None and not any(said[item] & said[name] for name in said if name != item):
        labels = labels.set_index(item)
    idle = [name for name in labels.columns if plain(name) in TRUTH | NO_ANNOTATOR]
    annotators = [name for name in labels.columns if name not in idle]
    shared = any(said[one] & said[two] for i, one in enumerate(annotators) for two in annotators[:i])
    if not (shared or len(labels.columns) == 1):
        return None
    if idle:
        told = f"labels: left out, as no annotator is called so: {listing(idle)}."
        warnings.warn(told, UserWarning, stacklevel=2)
    return labels[annotators]


def _is_long(labels: pd.DataFrame) -> bool:
    try:
        find_columns(labels.columns)
    except CrowdshotError:
        return False
    return True


def _item_column(labels: pd.DataFrame) -> Any:
    """The one that is called like an item and has another value in each row; None where there is none."""
    others = {role: f"\0{role}" for role in Columns._fields if role != "item"}
    try:
        name = find_columns([*labels.columns, *others.values()], others).item
    except CrowdshotError:
        return None
    return name if labels[name].is_unique and labels[name].notna().all() and len(labels.columns) > 1 else None
