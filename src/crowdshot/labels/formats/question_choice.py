"""Which question of a tool's export is read, which of its fields names the item, and what one answer says."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing
from crowdshot.io.cells import Ids, text
from crowdshot.io.file_names import PICTURES
from crowdshot.io.tables import Table
from crowdshot.labels.columns import NAMES, TRUTH, WHEN, Columns, ColumnsInput, find_columns, input_names, plain
from crowdshot.labels.label_sets import JOINED
from crowdshot.labels.spelling import and_so, fold


def asked(columns: ColumnsInput, source: str, roles: Iterable[str] = Columns._fields) -> dict[str, str]:
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


# ---- several questions ------------------------------------------------------------
#
# Long tables in which a column says which question a row answers: of several questions one is read.
#
# Such a column tells apart the labels that somebody gave one item. It is called question or the like, or no two of its
# questions have an answer in common, and most items were answered more than once by the same person: a column with the
# code of a label, say, tells the few labels apart that somebody corrected, but is no question.


QUESTIONS = """
    question questiontext field attribute aspect criterion criteria property feature dimension variable
    frage merkmal kriterium eigenschaft attribut aspekt feld critère propriété champ aspecto criterio critério pregunta
    pergunta atributo propiedad propriedade campo 質問 設問 属性 问题 問題 字段 欄位
"""
WORDS = {plain(word) for word in QUESTIONS.split()}
MOST = 50  # questions
UNTOLD = 0.25  # of the labels that are too many: corrections, which no question tells apart


def of_question(table: Table, columns: ColumnsInput, several: bool) -> tuple[Table, ColumnsInput]:
    """The rows of the question that is named as the label, where no column is called so; else all, as given."""
    named = input_names(columns)
    question = named.pop("label", "")
    column = asked_in(table, columns, several)
    if column is None:
        return table, columns
    rows = np.flatnonzero(table.text(column) == question)
    return replace(table, frame=table.frame.iloc[rows].reset_index(drop=True), rows=table.rows[rows]), named


def asked_in(table: Table, columns: ColumnsInput, several: bool) -> int | None:
    """The column with the question that is named as the label; None where a column is called so, or none has it."""
    named = input_names(columns)
    question = named.pop("label", None)
    if question is None or question in table.header:
        return None
    try:
        names = find_columns(table.header, named)
    except CrowdshotError:
        return None
    item, annotator, label = (table.header.index(name) for name in names)
    found = _question_column(table, names, table.text(item), table.text(annotator), labels_in(table, label, several))
    called_so = [place for place, name in enumerate(table.header) if name not in names and _is_question(name)]
    maybe = called_so if found is None else [found]
    return next((column for column in maybe if question in table.text(column)), None)


def refuse_several(table: Table, names: Columns, item: Ids, annotator: Ids, label: Ids) -> None:
    column = _question_column(table, names, item, annotator, label)
    if column is None:
        return
    found = [name for name in pd.unique(table.text(column)) if name]
    questions = listing(found) if len(found) > 10 else and_so([repr(name) for name in found])
    raise CrowdshotError(
        f"{table.name} has several questions in column {table.header[column]!r}, {questions}, expected one;"
        " columns={'label': …} says which."
    )


def _question_column(table: Table, names: Columns, item: Ids, annotator: Ids, label: Ids) -> int | None:
    """The column that tells apart what somebody said of one item, as the module says; None where there is none."""
    said = label != ""
    pairs = pd.DataFrame({"item": item[said], "annotator": annotator[said]})
    again = pairs[pairs.duplicated(keep=False)]
    if again.empty:
        return None
    others = [place for place, name in enumerate(table.header) if name not in names]
    maybe = [place for place in others if _tells_apart(pairs, _cells(table, place)[said])]
    called_so = [place for place in maybe if _is_question(table.header[place])]
    if called_so or 2 * len(again.drop_duplicates()) < len(pairs.drop_duplicates()):
        return next(iter(called_so), None)
    untimed = [place for place in maybe if plain(table.header[place]) not in {*WHEN, *TRUTH}]
    return next((place for place in untimed if _have_own(_cells(table, place)[said], label[said])), None)


def _is_question(name: str) -> bool:
    return not WORDS.isdisjoint({plain(name), re.sub(rf"({NAMES})?(id)?$", "", plain(name))})


def _cells(table: Table, column: int) -> Ids:
    """The cells as text, blank ones where they hold lists and the like."""
    try:
        return table.text(column)
    except CrowdshotError:
        return np.full(len(table.frame), "", dtype=object)


def _tells_apart(pairs: pd.DataFrame, cells: Ids) -> bool:
    """Has each row one of a few values, by which nearly all labels of the same item and annotator differ?"""
    values = pd.unique(cells)
    if not 2 <= len(values) <= MOST or "" in values:
        return False
    return bool(pairs.assign(cell=cells).duplicated().sum() <= UNTOLD * pairs.duplicated().sum())


def _have_own(questions: Ids, label: Ids) -> bool:
    """Has each question rows, and no answer in common with another?"""
    code, words = pd.factorize(label)
    folded = np.array([fold(word) for word in words], dtype=object)[code]
    answers = pd.DataFrame({"question": questions, "answer": folded})
    return bool(answers["question"].value_counts().min() > 1 and answers.drop_duplicates()["answer"].is_unique)
