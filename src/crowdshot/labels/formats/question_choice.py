"""Choose the question of an export, the field that names the item, and the label in an answer.

Long tables may have a column that says which question a row answers; one question is read (see `of_question`). Such a
column separates the labels that an annotator gave to an item. It has a name such as "question", or no two of its values
share an answer and annotators answered most items more than once. Without the second condition, a column with a code of
the label would count as a question in tables in which annotators corrected a few labels.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError, Use
from crowdshot.formatting import listing
from crowdshot.io.cells import Ids, fold, text
from crowdshot.io.file_names import PICTURES
from crowdshot.io.tables import Record, Table
from crowdshot.labels.columns import NAMES, TRUTH, Columns, ColumnsInput, find_columns, input_names, plain
from crowdshot.labels.formats.label_file import Entry, LabelFile, LabelsRead, gather
from crowdshot.labels.label_times import WHEN
from crowdshot.labels.spelling import JOINED, and_so

QUESTIONS = """
    question questiontext field attribute aspect criterion criteria property feature dimension variable
    frage merkmal kriterium eigenschaft attribut aspekt feld critère propriété champ aspecto criterio critério pregunta
    pergunta atributo propiedad propriedade campo 質問 設問 属性 问题 問題 字段 欄位
"""
WORDS = {plain(word) for word in QUESTIONS.split()}
MOST = 50  # questions
UNEXPLAINED = 0.25  # largest share of the repeated labels that a question column may leave repeated (corrections)


def explicit_columns(columns: ColumnsInput, source: str, roles: Iterable[str] = Columns._fields) -> dict[str, str]:
    """Return the columns that the caller named as {role: name}; refuse roles that the format fixes itself."""
    if columns is None:
        return {}
    if isinstance(columns, Mapping):
        named = dict(columns)
    elif isinstance(columns, list | tuple) and len(columns) == len(Columns._fields):
        named = dict(zip(Columns._fields, columns, strict=True))
    else:
        raise CrowdshotError(
            f"is {columns!r}",
            argument="columns",
            found=columns,
            expected="three names or a mapping {role: name}",
        )
    odd = next((role for role in named if role not in roles), None)
    if odd is not None:
        raise CrowdshotError(
            f"names {odd!r}, which the format of {source} determines itself",
            argument="columns",
            found=odd,
            expected=f"only {listing(roles)}" if roles else None,
        )
    return named


def choose(role: str, named: Mapping[str, str], found: Sequence[str], source: str, what: str, prefix: str = "") -> str:
    """Return the name that the caller chose for a role, with or without its prefix, or else the only one.

    Parameters
    ----------
    role : {"item", "annotator", "label"}
    named : mapping
        {role: name} from the caller.
    found : sequence of str
        The names in the file.
    source, what : str
        The file, and the plural noun for these names, in messages.
    prefix : str
        Prefix of the names in the file that the caller may omit.
    """
    wanted = named.get(role)
    if wanted is not None:
        name = wanted if wanted in found else prefix + wanted
        if name not in found:
            raise CrowdshotError(
                f"has no {wanted!r} for the {role}",
                where=source,
                found=wanted,
                expected=f"one of its {what}, {listing(found)}",
                among=[*found, *(name.removeprefix(prefix) for name in found)],
            )
        return name
    if not found:
        raise CrowdshotError(f"has no {what}", where=source, expected="one")
    if len(found) > 1:
        raise CrowdshotError(
            f"has {len(found)} {what}, {listing(found)}",
            where=source,
            found=list(found),
            expected="one",
            hint=Use("to choose one", columns={role: "QUESTION" if role == "label" else "NAME"}),
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
    """Return the field that names the item.

    This is the field that the caller chose, or else the one with paths of images, the only one, or ``otherwise``. Of
    several fields with images, the first in ``prefer`` is taken.
    """
    known = [*fields, otherwise] if otherwise is not None else list(fields)
    if "item" in named:
        return choose("item", named, known, source, "fields", prefix)
    pictures = [name for name in fields if _all_pictures(rows, name)]
    preferred = next((name for name in prefer if prefix + name in pictures), None)
    if len(pictures) > 1 and preferred is not None:
        return prefix + preferred
    if pictures:
        return choose("item", named, pictures, source, "fields with images")
    if len(fields) == 1 and all(_is_name(row.get(fields[0])) for row in rows):
        return fields[0]
    return otherwise if otherwise is not None else choose("item", named, fields, source, "fields")


def is_picture(value: Any) -> bool:
    """Return whether a value is the path or URL of an image, but not an embedded image (a data: URL)."""
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
    """Return the label in an answer, "" if there is none.

    Parameters
    ----------
    value : Any
        Text, a number or a list, which may be written in a cell as JSON or Python: ``["cat"]``,
        ``{"choices": ["cat", "dog"]}``, ``['cat']``.
    place : str
        The answer's place in messages.
    several : bool
        Whether an answer may have several labels, which are then joined; otherwise several labels are an error.
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
            f"holds a {found}",
            where=place,
            found=found,
            expected="one label per item (boxes, spans and rankings are not read)",
        )
    labels = list(dict.fromkeys(word for word in words if word))
    if len(labels) > 1 and not several:
        raise CrowdshotError(
            f"has {len(labels)} labels, {listing(labels)}",
            where=place,
            found=labels,
            expected="one per item",
            hint=Use("if an item may have several labels", multi_label=True),
        )
    return JOINED.join(labels)


class Answered(NamedTuple):
    """What an annotator answered about an item: {question: answer}, the time and how long it took, as written."""

    place: str
    item: str
    annotator: str
    answers: Mapping[str, Any]
    when: str = ""
    duration: str = ""


def gather_answers(
    file: LabelFile,
    answered: Sequence[Answered],
    named: Mapping[str, str],
    columns: tuple[str, str],
    left_out: Counter[str],
    what: str = "questions",
    time: str = "",
) -> LabelsRead:
    """Convert the answers to one question, which the caller chose or is the only one, to labels.

    Parameters
    ----------
    file : LabelFile
    answered : sequence of Answered
    named : mapping
        {role: name} from the caller.
    columns : (str, str)
        The fields that name the item and the annotator.
    left_out : Counter
        Reason -> number of entries that were left out.
    what, time : str
        The plural noun for questions, and the field with the times, in messages.
    """
    found = list(dict.fromkeys(question for each in answered for question in each.answers))
    if not found and "label" not in named:
        return gather(file.name, [], Columns(), left_out)
    if len(found) > 1 and "label" not in named:
        raise CrowdshotError(
            f"has {len(found)} {what}, {listing(found)}",
            where=file.name,
            found=found,
            expected="one",
            hint=Use("to choose one", columns={"label": "QUESTION"}),
        )
    question = choose("label", named, found, file.name, what)
    entries: list[Entry] = []
    for each in answered:
        label = one_label(each.answers.get(question), f"{each.place}, {question!r}", file.several)
        if not label:
            left_out["records without an answer"] += 1
        elif not each.item or not each.annotator:
            missing = columns[1] if each.item else columns[0]
            raise CrowdshotError(f"has no {missing!r} for its label {label!r}", where=each.place)
        else:
            entries.append(Entry(each.item, each.annotator, label, each.when, each.duration))
    return gather(file.name, entries, Columns(*columns, question), left_out, times=file.times.otherwise(time))


def missing_id(record: Record, column: str) -> CrowdshotError:
    """Return the error for an answer without an item or an annotator."""
    return CrowdshotError(
        "is empty", where=f"{record.place}, column {column!r}", expected="an id, because the row has an answer"
    )


def labels_in(table: Table, column: int, several: bool) -> Ids:
    """Return the cells (n,) of a column as text; lists are converted to their labels."""
    values = table.frame.iloc[:, column]
    try:
        listed = any(isinstance(value, str) and value.lstrip().startswith("[") for value in pd.unique(values))
    except TypeError:  # typed lists of JSON or Parquet
        listed = True
    if not listed:
        return table.text(column)
    cells = [one_label(value, table.place(row, column), several) for row, value in enumerate(values)]
    return np.array(cells, dtype=object)


def _parsed(cell: str) -> Any:
    """Parse a list or record in a cell, written as JSON, or a list written as Python; return other cells unchanged."""
    for parse in (json.loads, ast.literal_eval) if cell.strip()[0] == "[" else (json.loads,):
        try:
            return parse(cell.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return cell


def of_question(table: Table, columns: ColumnsInput, several: bool) -> tuple[Table, ColumnsInput]:
    """Keep the rows of one question if the caller named a question as the label instead of a column.

    Returns the table and the caller's columns, without the label if it named a question.
    """
    named = input_names(columns)
    question = named.pop("label", "")
    column = asked_in(table, columns, several)
    if column is None:
        return table, columns
    rows = np.flatnonzero(table.text(column) == question)
    return replace(table, frame=table.frame.iloc[rows].reset_index(drop=True), rows=table.rows[rows]), named


def asked_in(table: Table, columns: ColumnsInput, several: bool) -> int | None:
    """Return the column of questions if the caller named one of its questions as the label, else None."""
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
    by_name = [place for place, name in enumerate(table.header) if name not in names and _is_question(name)]
    candidates = by_name if found is None else [found]
    return next((column for column in candidates if question in table.text(column)), None)


def refuse_several(table: Table, names: Columns, item: Ids, annotator: Ids, label: Ids) -> None:
    """Refuse a long table with the answers to several questions."""
    column = _question_column(table, names, item, annotator, label)
    if column is None:
        return
    found = [name for name in pd.unique(table.text(column)) if name]
    questions = listing(found) if len(found) > 10 else and_so([repr(name) for name in found])
    raise CrowdshotError(
        f"has several questions in column {table.header[column]!r}, {questions}",
        where=table.name,
        found=found,
        expected="one",
        hint=Use("to choose one", columns={"label": "QUESTION"}),
    )


def _question_column(table: Table, names: Columns, item: Ids, annotator: Ids, label: Ids) -> int | None:
    """Return the column of questions by the rule in the module's docstring, None if there is none."""
    labelled = label != ""
    pairs = pd.DataFrame({"item": item[labelled], "annotator": annotator[labelled]})
    repeated = pairs[pairs.duplicated(keep=False)]
    if repeated.empty:
        return None
    others = [place for place, name in enumerate(table.header) if name not in names]
    candidates = [place for place in others if _separates(pairs, cells_of(table, place)[labelled])]
    by_name = [place for place in candidates if _is_question(table.header[place])]
    if by_name or 2 * len(repeated.drop_duplicates()) < len(pairs.drop_duplicates()):
        return next(iter(by_name), None)
    candidates = [place for place in candidates if plain(table.header[place]) not in {*WHEN, *TRUTH}]
    return next(
        (place for place in candidates if _answers_differ(cells_of(table, place)[labelled], label[labelled])), None
    )


def _is_question(name: str) -> bool:
    return not WORDS.isdisjoint({plain(name), re.sub(rf"({NAMES})?(id)?$", "", plain(name))})


def cells_of(table: Table, column: int) -> Ids:
    """Return the cells of a column as text, all blank if they hold lists or records."""
    try:
        return table.text(column)
    except CrowdshotError:
        return np.full(len(table.frame), "", dtype=object)


def _separates(pairs: pd.DataFrame, cells: Ids) -> bool:
    """Return whether a column has few values, which differ for nearly all labels of the same item and annotator."""
    values = pd.unique(cells)
    if not 2 <= len(values) <= MOST or "" in values:
        return False
    return bool(pairs.assign(cell=cells).duplicated().sum() <= UNEXPLAINED * pairs.duplicated().sum())


def _answers_differ(questions: Ids, label: Ids) -> bool:
    """Return whether every question has several rows and no two questions share an answer."""
    code, words = pd.factorize(label)
    folded = np.array([fold(word) for word in words], dtype=object)[code]
    answers = pd.DataFrame({"question": questions, "answer": folded})
    return bool(answers["question"].value_counts().min() > 1 and answers.drop_duplicates()["answer"].is_unique)
