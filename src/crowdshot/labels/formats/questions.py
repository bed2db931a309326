"""Which question of a tool's export is read, which of its fields names the item, and what one answer says."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.files.cells import Ids, text
from crowdshot.files.image_names import PICTURES
from crowdshot.files.tables import Table
from crowdshot.labels.choices import JOINED
from crowdshot.labels.columns import Columns, GivenColumns
from crowdshot.wording import listing


def asked(columns: GivenColumns, source: str, roles: Iterable[str] = Columns._fields) -> dict[str, str]:
    """What the caller named, {role: name}; roles that this format tells by itself may not be named."""
    if columns is None:
        return {}
    if isinstance(columns, Mapping):
        named = dict(columns)
    elif isinstance(columns, list | tuple) and len(columns) == len(Columns._fields):
        named = dict(zip(Columns._fields, columns, strict=True))
    else:
        raise CrowdshotError(f"columns is {columns!r}, expected three names or a mapping, {{role: name}}.")
    strange = next((role for role in named if role not in roles), None)
    if strange is not None:
        choice = f"only {listing(roles)}" if roles else "nothing to choose"
        raise CrowdshotError(
            f"columns names {strange!r}, which the format of {source} tells by itself, expected {choice}."
        )
    return named


def choose(role: str, named: Mapping[str, str], found: Sequence[str], source: str, what: str, prefix: str = "") -> str:
    """The one of the names found that was asked for, with or without its prefix, or the only one."""
    wanted = named.get(role)
    if wanted is not None:
        name = wanted if wanted in found else prefix + wanted
        if name not in found:
            raise CrowdshotError(
                f"{source} has no {wanted!r} for the {role}, expected one of its {what}, {listing(found)}."
            )
        return name
    if len(found) != 1:
        number = len(found) or "no"
        raise CrowdshotError(
            f"{source} has {number} {what}, {listing(found)}, expected one; columns={{{role!r}: …}} says which."
            if found
            else f"{source} has no {what}, expected one."
        )
    return found[0]


def choose_item(
    named: Mapping[str, str],
    rows: Sequence[Mapping[str, Any]],
    fields: Sequence[str],
    source: str,
    otherwise: str | None = None,
    prefix: str = "",
    prefer: Sequence[str] = ("image",),
) -> str:
    """The field that names the item: asked for, else the one with pictures, else the only one, else ``otherwise``."""
    known = [*fields, otherwise] if otherwise is not None else list(fields)
    if "item" in named:
        return choose("item", named, known, source, "fields", prefix)
    pictures = [name for name in fields if _all_pictures(rows, name)]
    favourite = next((name for name in prefer if prefix + name in pictures), None)
    if len(pictures) > 1 and favourite is not None:
        return prefix + favourite
    if pictures:
        return choose("item", named, pictures, source, "fields with pictures")
    if len(fields) == 1 and all(_is_name(row.get(fields[0])) for row in rows):
        return fields[0]
    return otherwise if otherwise is not None else choose("item", named, fields, source, "fields")


def is_picture(value: Any) -> bool:
    """Is it the path or the address of a picture (and not the picture itself, as a data: address)?"""
    if not isinstance(value, str) or value.startswith("data:"):
        return False
    word = value.strip().lower()
    return word.endswith(PICTURES) or word.partition("?")[0].partition("#")[0].endswith(PICTURES)


def _all_pictures(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    filled = [row[name] for row in rows if row.get(name) not in (None, "")]
    return bool(filled) and all(map(is_picture, filled))


def _is_name(value: Any) -> bool:
    return bool(text(value)) and not str(value).startswith("data:")


def one_label(value: Any, place: str, several: bool = False) -> str:
    """The label that an answer names, "" if it names none; one that names several is an error, unless it may.

    Lists come as such, or as JSON or Python in a cell: ``["cat"]``, ``{"choices": ["cat", "dog"]}``, ``['cat']``.
    """
    if isinstance(value, str) and value.strip()[:1] in ("[", "{"):
        value = _parsed(value)
    if isinstance(value, dict) and list(value) == ["choices"]:
        value = value["choices"]
    value = value.tolist() if isinstance(value, np.ndarray) else value  # as Parquet has lists
    values = value if isinstance(value, list) else [] if value == {} else [value]
    words = [text(part) for part in values]
    if None in words:
        found = type(values[words.index(None)]).__name__
        raise CrowdshotError(
            f"{place} holds a {found}, expected one label an item; boxes, spans, rankings and the like are not read."
        )
    labels = list(dict.fromkeys(word for word in words if word))
    if len(labels) > 1 and not several:
        raise CrowdshotError(
            f"{place} has {len(labels)} labels, {listing(labels)}, expected one an item; multi_label=True takes more."
        )
    return JOINED.join(labels)


def labels_in(table: Table, column: int, several: bool) -> Ids:
    """The cells of a column as text, lists by what they name."""
    values = table.frame.iloc[:, column]
    try:
        listed = any(isinstance(value, str) and value.lstrip().startswith("[") for value in pd.unique(values))
    except TypeError:  # lists themselves, of JSON or Parquet
        listed = True
    if not listed:
        return table.text(column)
    cells = [one_label(value, table.place(row, column), several) for row, value in enumerate(values)]
    return np.array(cells, dtype=object)


def _parsed(cell: str) -> Any:
    """A list or a record that was written into a cell, as JSON, or a list by Python; else the cell as it is."""
    for parse in (json.loads, ast.literal_eval) if cell.strip()[0] == "[" else (json.loads,):
        try:
            return parse(cell.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return cell
