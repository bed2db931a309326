"""Long tables in which a column says which question a row answers: of several questions one is read.

Such a column tells apart the labels that somebody gave one item. It is called question or the like, or no two of its
questions have an answer in common, and most items were answered more than once by the same person: a column with the
code of a label, say, tells the few labels apart that somebody corrected, but is no question.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.files.cells import Ids
from crowdshot.files.tables import Table
from crowdshot.labels.columns import NAMES, TRUTH, WHEN, Columns, GivenColumns, find_columns, given_names, plain
from crowdshot.labels.formats.questions import labels_in
from crowdshot.labels.spelling import and_so, fold
from crowdshot.wording import listing

QUESTIONS = """
    question questiontext field attribute aspect criterion criteria property feature dimension variable
    frage merkmal kriterium eigenschaft attribut aspekt feld critère propriété champ aspecto criterio critério pregunta
    pergunta atributo propiedad propriedade campo 質問 設問 属性 问题 問題 字段 欄位
"""
WORDS = {plain(word) for word in QUESTIONS.split()}
MOST = 50  # questions
UNTOLD = 0.25  # of the labels that are too many: corrections, which no question tells apart


def of_question(table: Table, columns: GivenColumns, several: bool) -> tuple[Table, GivenColumns]:
    """The rows of the question that is named as the label, where no column is called so; else all, as given."""
    named = given_names(columns)
    question = named.pop("label", "")
    column = asked_in(table, columns, several)
    if column is None:
        return table, columns
    rows = np.flatnonzero(table.text(column) == question)
    return replace(table, frame=table.frame.iloc[rows].reset_index(drop=True), rows=table.rows[rows]), named


def asked_in(table: Table, columns: GivenColumns, several: bool) -> int | None:
    """The column with the question that is named as the label; None where a column is called so, or none has it."""
    named = given_names(columns)
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
