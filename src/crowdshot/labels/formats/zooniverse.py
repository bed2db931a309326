"""Read classification exports of Zooniverse: CSV with a row for each classification of a subject by a volunteer.

``annotations`` has the answers as JSON: a list of tasks, each with its ``task`` such as T0, its ``task_label`` (the
question) and its ``value``. Answers to questions and choices of surveys are labels; drawings are not read. Volunteers
who are not logged in are named after their address. ``metadata`` says when the classification began and ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from crowdshot.errors import CrowdshotError, Use
from crowdshot.formatting import listing
from crowdshot.io.cells import text
from crowdshot.io.json_text import as_record, parse_json
from crowdshot.io.tables import Record
from crowdshot.labels.columns import ColumnsInput
from crowdshot.labels.formats.label_file import Format, LabelFile, LabelsRead
from crowdshot.labels.formats.question_choice import Answered, explicit_columns, gather_answers

USER, SUBJECT, ANNOTATIONS = "user_name", "subject_ids", "annotations"
WORKFLOW, CREATED, METADATA = "workflow_id", "created_at", "metadata"
DEEPEST = 5  # combined tasks in combined tasks


def recognises(file: LabelFile, columns: ColumnsInput = None) -> bool:
    return {USER, SUBJECT, ANNOTATIONS} <= set(file.first)


def read(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    named = explicit_columns(columns, file.name, ("item", "annotator", "label"))
    if not recognises(file):
        raise CrowdshotError(
            f"lacks the columns {USER!r}, {SUBJECT!r} and {ANNOTATIONS!r}",
            where=file.name,
            found=list(file.first),
            expected="a classification export of Zooniverse",
        )
    item, user = named.get("item", SUBJECT), named.get("annotator", USER)
    for role, name in (("item", item), ("annotator", user)):
        if name not in file.first:
            raise CrowdshotError(
                f"has no column {name!r} for the {role}", where=file.name, found=name, among=list(file.first)
            )
    several = len({text(record.fields.get(WORKFLOW)) for record in file.records}) > 1
    asked: dict[str, str] = {}
    unread: Counter[str] = Counter()
    answered: list[Answered] = []
    for record in file.records:
        fields = record.fields
        answers: dict[str, Any] = {}
        for task, question, value in _tasks(_json(record, ANNOTATIONS, list), record.place):
            answer = _labels(value)
            if answer is None:
                unread["drawings"] += 1
                continue
            name = f"{text(fields.get(WORKFLOW))} {task}" if several else task  # each workflow has its own T0
            asked.setdefault(name, question)
            answers[name] = answer
        annotator, subject, when = (text(fields.get(name)) or "" for name in (user, item, CREATED))
        duration = _seconds(_json(record, METADATA, dict))
        answered.append(Answered(record.place, subject, annotator, answers, when, duration))
    if not asked and unread:
        raise CrowdshotError("has only drawings", where=file.name, expected="answers to questions")
    named = _choose(asked, named, file.name)
    return gather_answers(file, answered, named, (item, user), unread, "tasks", CREATED)


def _choose(asked: Mapping[str, str], named: dict[str, str], source: str) -> dict[str, str]:
    """Replace the question that the caller named by its task; refuse several tasks and say what they ask."""
    wanted = named.get("label")
    if wanted is not None and wanted not in asked:
        tasks = [task for task, question in asked.items() if question == wanted]
        return {**named, "label": tasks[0]} if len(tasks) == 1 else named
    if wanted is None and len(asked) > 1:
        questions = [f"{task} ({question[:60]})" if question else task for task, question in asked.items()]
        raise CrowdshotError(
            f"has {len(asked)} tasks, {listing(questions)}",
            where=source,
            found=list(asked),
            expected="one",
            hint=Use("to choose one", columns={"label": "QUESTION"}),
        )
    return named


def _json(record: Record, column: str, kind: type) -> Any:
    """Return the list or record in a cell of JSON, an empty one if the cell is blank."""
    cell = record.fields.get(column)
    if isinstance(cell, str) and cell.strip():
        cell = parse_json(cell, f"{record.place}, column {column!r}")
    if cell is None or cell == "":
        return kind()
    if not isinstance(cell, kind):
        raise CrowdshotError(
            f"holds a {type(cell).__name__}",
            where=f"{record.place}, column {column!r}",
            found=type(cell).__name__,
            expected=f"a {kind.__name__} as JSON",
        )
    return cell


def _tasks(annotations: list[Any], place: str, depth: int = 0) -> Iterator[tuple[str, str, Any]]:
    """Yield the name, the question and the answer of each task; combined tasks have tasks as their answer."""
    for each in annotations:
        annotation = as_record(each, f"{place}, column {ANNOTATIONS!r}")
        value = annotation.get("value")
        parts = value if isinstance(value, list) and depth < DEEPEST else []
        if parts and all(isinstance(part, dict) and "task" in part and "tool" not in part for part in parts):
            yield from _tasks(parts, place, depth + 1)
        else:
            name, question = (text(annotation.get(key)) or "" for key in ("task", "task_label"))
            yield name, question, value


def _labels(value: Any) -> list[str] | None:
    """Return the labels in an answer, None if it is a drawing or something else."""
    values = value if isinstance(value, list) else [value]
    if values and all(isinstance(each, dict) and "choice" in each for each in values):  # of a survey
        values = [each["choice"] for each in values]
    elif values and all(isinstance(each, dict) and "option" in each for each in values):  # of a dropdown list
        values = [each.get("label") or each.get("value") for each in values]
    words = [text(each) for each in values]
    return None if None in words else [word for word in words if word]


def _seconds(metadata: Mapping[str, Any]) -> str:
    """Return how long the classification took, "" if unknown."""
    try:
        start, end = (
            datetime.fromisoformat(str(metadata[name]).replace("Z", "+00:00")) for name in ("started_at", "finished_at")
        )
        seconds = (end - start).total_seconds()
    except (KeyError, ValueError, TypeError, OverflowError):
        return ""
    return str(seconds) if seconds >= 0 else ""


FORMAT = Format(recognises, read)
