"""Read exports of Labelbox (version 2): JSON lines with a record for each data row.

``projects`` has the data row's ``labels``. Each label has its annotator and its time in ``label_details``, and its
answers in ``classifications``: one (``radio_answer``), several (``checklist_answers``) or a text (``text_answer``).
Texts are read only if they are chosen, and objects such as boxes are not read. An answer may lead to more questions,
which are questions like the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from crowdshot.errors import CrowdshotError
from crowdshot.io.cells import text
from crowdshot.io.json_text import as_list, as_record
from crowdshot.labels.columns import ColumnsInput
from crowdshot.labels.formats.label_file import UNLABELLED_TASKS, Format, LabelFile, LabelsRead
from crowdshot.labels.formats.question_choice import Answered, choose, explicit_columns, gather_answers

ROW, PROJECTS = "data_row", "projects"
ITEMS = ("global_key", "external_id", "id")
DEEPEST = 20  # answers that lead to more questions


def recognises(file: LabelFile, columns: ColumnsInput = None) -> bool:
    return {ROW, PROJECTS} <= set(file.first) and isinstance(file.first[ROW], dict)


def read(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    named = explicit_columns(columns, file.name, ("item", "label"))
    rows = [as_record(record.fields.get(ROW), f"{record.place}, {ROW!r}") for record in file.records]
    known = [name for name in dict.fromkeys(key for row in rows for key in row) if any(text(r.get(name)) for r in rows)]
    item = choose("item", named, known, file.name, "fields") if "item" in named else _item(rows)
    left_out: Counter[str] = Counter()
    answered: list[Answered] = []
    texts: set[str] = set()
    objects = 0
    for record, row in zip(file.records, rows, strict=True):
        labels = list(_labels(record.fields.get(PROJECTS), f"{record.place}, {PROJECTS!r}"))
        left_out[UNLABELLED_TASKS] += not labels
        for label in labels:
            details, performance, content = (
                as_record(label.get(name) or {}, f"{record.place}, {name!r}")
                for name in ("label_details", "performance_details", "annotations")
            )
            if performance.get("skipped") is True:
                left_out["skipped labels"] += 1
                continue
            answers: dict[str, Any] = {}
            for question, answer, is_text in _questions(content.get("classifications"), record.place):
                answers.setdefault(question, answer)
                if is_text:
                    texts.add(question)
            objects += bool(content.get("objects"))
            user, when = (text(details.get(name)) or "" for name in ("created_by", "created_at"))
            seconds = text(performance.get("seconds_to_create")) or ""
            answered.append(Answered(record.place, text(row.get(item)) or "", user, answers, when, seconds))
    texts -= {named.get("label", "")}
    answered = [
        each._replace(answers={name: answer for name, answer in each.answers.items() if name not in texts})
        for each in answered
    ]
    _check(file, answered, objects)
    return gather_answers(file, answered, named, (item, "created_by"), left_out, time="created_at")


def _item(rows: list[dict[str, Any]]) -> str:
    """Return the first field that names every data row."""
    return next((name for name in ITEMS if all(text(row.get(name)) for row in rows)), "id")


def _check(file: LabelFile, answered: list[Answered], objects: int) -> None:
    """Refuse an export without classifications, or without annotators."""
    if objects and not any(each.answers for each in answered):
        raise CrowdshotError("has only objects", where=file.name, found="objects", expected="classifications")
    if any(each.answers for each in answered) and not any(each.annotator for each in answered):
        raise CrowdshotError(
            "does not say who created the labels",
            where=file.name,
            expected="label_details",
            hint='Export with "label_details".',
        )


def _labels(projects: Any, place: str) -> Iterator[dict[str, Any]]:
    for project in as_record(projects or {}, place).values():
        for label in as_list(as_record(project, place).get("labels"), f"{place}, 'labels'"):
            yield as_record(label, f"{place}, 'labels'")


def _questions(classifications: Any, place: str, depth: int = 0) -> Iterator[tuple[str, Any, bool]]:
    """Yield the name and the answer of each question, and whether the answer is a text."""
    where = f"{place}, 'classifications'"
    for each in as_list(classifications, where):
        question = as_record(each, where)
        name = text(question.get("name")) or text(question.get("value")) or ""
        answers = question.get("checklist_answers", question.get("radio_answer"))
        if answers is None and "text_answer" in question:
            yield name, as_record(question["text_answer"] or {}, where).get("content"), True
            continue
        records = [as_record(part, where) for part in (answers if isinstance(answers, list) else [answers or {}])]
        yield name, [text(part.get("name")) or text(part.get("value")) or "" for part in records], False
        for part in records:
            if depth < DEEPEST:
                yield from _questions(part.get("classifications"), place, depth + 1)


FORMAT = Format(recognises, read)
