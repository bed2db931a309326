"""Read exports of Label Studio (the layout of version 1.23): JSON (also snapshots), JSON_MIN, CSV and TSV.

JSON has a record for each task with its ``data`` and its ``annotations``. An annotation has its annotator
(``completed_by``) and a list of results; results of type "choices" are read. ``ground_truth`` is ignored, because
imported annotations have it too.

The other formats have a row for each annotation, the newest first: the task's data, a column named after each tag, then
``annotator``, ``annotation_id`` and others. Several choices are a list, in CSV written as JSON. These exports lack
cancelled annotations, and they do not mark the columns of tags, which are therefore inferred (`_tags`).

Tasks created by `crowdshot next` name their item in ``next_item``, because the new project may use another field for
it. Their other ``next_`` fields are not part of the item's data.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crowdshot.errors import CrowdshotError, NoLabelError
from crowdshot.formatting import listing
from crowdshot.io.cells import text
from crowdshot.io.json_text import as_list, as_record, as_records
from crowdshot.io.tables import Record
from crowdshot.labels.columns import Columns, ColumnsInput
from crowdshot.labels.formats.label_file import (
    UNLABELLED_TASKS,
    Entry,
    Format,
    LabelFile,
    LabelsRead,
    Project,
    ProjectTask,
    gather,
)
from crowdshot.labels.formats.question_choice import choose, choose_item, explicit_columns, is_picture, one_label

TASK = {"annotations", "data"}
ROW = {"annotator", "annotation_id", "lead_time"}
ABOUT = ROW | {"id", "created_at", "updated_at", "agreement"}
QUESTION_FIELDS = {"next_item", "next_annotator", "next_gain"}  # fields of `crowdshot next` beside the item's data
NUMBER = re.compile("[0-9]{1,18}")
OBJECTS = "`crowdshot objects` matches boxes and spans."
REGION = {"x", "y", "points", "rle", "start", "end", "ranges"}  # a choice with these labels a part of the item


@dataclass
class Task:
    """A task with its answers as (place, annotator, time, duration, {tag: answer}).

    ``item`` is the value of ``next_item`` in tasks of `crowdshot next`, "" in others.
    """

    place: str
    id: Any
    data: dict[str, Any]
    item: str = ""
    answers: list[tuple[str, str, str, str, dict[str, Any]]] = field(default_factory=list)
    cancelled: int = 0


def recognises(file: LabelFile, columns: ColumnsInput = None) -> bool:
    return set(file.first) >= TASK or set(file.first) >= ROW


def read(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    if not recognises(file):
        found = sorted(file.first)
        raise CrowdshotError(
            f"has {listing(found)}",
            where=file.name,
            found=found,
            expected="'annotations' and 'data' as in an export of Label Studio",
        )
    left_out: Counter[str] = Counter()
    if set(file.first) >= TASK:
        named = explicit_columns(columns, file.name, ("item", "label"))
        tasks, tag, to_name = _from_json(file, named, left_out)
    else:
        named = explicit_columns(columns, file.name)
        tasks, tag, to_name = _from_rows(file, named)
    rows = [task.data for task in tasks]
    fields = list(dict.fromkeys(name for row in rows for name in row))
    key = choose_item(named, rows, fields, file.name, otherwise="id", prefer=(to_name, "image"))
    entries: list[Entry] = []
    known: list[ProjectTask] = []
    for task in tasks:
        item = task.item if task.item and "item" not in named else ""
        item = item or text(task.data.get(key) if key in fields else task.id) or ""
        known += [ProjectTask(item, task.id, task.data)] if item else []
        for place, annotator, when, duration, answers in task.answers:
            label = one_label(answers.get(tag), place, file.several)
            if label and annotator and not item:
                raise CrowdshotError(
                    f"has no {key!r}", where=task.place, expected="the item, because the task has a label"
                )
            if label and annotator:
                entries.append(Entry(item, annotator, label, when, duration))
            else:
                left_out["annotations of unknown users" if label else "annotations without a choice"] += 1
    left_out["cancelled annotations"] = sum(task.cancelled for task in tasks)
    left_out[UNLABELLED_TASKS] = sum(not task.answers and not task.cancelled for task in tasks)
    return gather(
        file.name,
        entries,
        Columns(key, named.get("annotator", "annotator"), tag),
        left_out,
        project=Project(tag, to_name or key, key, tuple(known)),
        times=file.times.otherwise("updated_at"),
    )


# ---- JSON -----------------------------------------------------------------------------------------------------------


def _from_json(file: LabelFile, named: Mapping[str, str], left_out: Counter[str]) -> tuple[list[Task], str, str]:
    """Return the tasks, the tag to read and the tag of the object that it labels."""
    tasks: list[Task] = []
    to_names: dict[str, str] = {}
    other_types: set[str] = set()
    for record in file.records:
        number = text(record.fields.get("id"))
        place = f"{file.name}, task {number}" if number else record.place
        task = _task(place, record.fields.get("id"), as_record(record.fields.get("data"), f"{place}, data"))
        for annotation in as_records(record.fields.get("annotations"), f"{place}, annotations"):
            where = f"{place}, annotation {text(annotation.get('id')) or len(task.answers) + 1}"
            if annotation.get("was_cancelled") is True:
                task.cancelled += 1
                continue
            answers: dict[str, list[Any]] = {}
            for result in as_records(annotation.get("result"), f"{where}, result"):
                kind, tag = (text(result.get(name)) or "" for name in ("type", "from_name"))
                if kind == "choices":
                    to_names.setdefault(tag, text(result.get("to_name")) or "")
                    answers.setdefault(tag, []).extend(_choices(result.get("value"), where))
                else:
                    other_types.add(kind)
            when, duration = (text(annotation.get(name)) or "" for name in ("updated_at", "lead_time"))
            task.answers.append((where, user_of(annotation.get("completed_by")), when, duration, dict(answers)))
        left_out["drafts"] += len(as_list(record.fields.get("drafts"), f"{place}, drafts"))
        tasks.append(task)
    if other_types and not to_names:
        raise CrowdshotError(
            f"has only results of type {listing(sorted(other_types))}",
            where=file.name,
            found=sorted(other_types),
            expected="choices (other types are not read)",
            hint=OBJECTS if other_types & {"rectanglelabels", "labels"} else None,
        )
    tag = choose("label", named, list(to_names) or ["choice"], file.name, "Choices tags")
    return tasks, tag, to_names.get(tag, "")


def _task(place: str, number: Any, data: Mapping[str, Any]) -> Task:
    item_data = {name: value for name, value in data.items() if name not in QUESTION_FIELDS}
    if isinstance(number, dict | list):
        raise CrowdshotError("has an id with parts", where=place, found=number, expected="a number or text")
    try:
        json.dumps([number, item_data], allow_nan=False)  # predictions are written with the id and the data
    except ValueError:
        raise CrowdshotError(
            "has NaN or an infinite number as its id or in its data", where=place, expected="numbers that JSON allows"
        ) from None
    return Task(place, number, item_data, text(data.get("next_item")) or "")


def _choices(value: Any, place: str) -> list[Any]:
    value = as_record(value, f"{place}, value")
    if REGION & set(value):
        raise CrowdshotError("is a label of a region", where=place, expected="a label of the whole item")
    return as_list(value.get("choices"), f"{place}, choices")


def user_of(user: Any) -> str:
    """Return a user's e-mail address or id; users are numbers or, depending on the version, records."""
    if isinstance(user, dict):
        return text(user.get("email")) or text(user.get("id")) or ""
    return text(user) or ""


# ---- JSON_MIN, CSV, TSV ---------------------------------------------------------------------------------------------


def _from_rows(file: LabelFile, named: Mapping[str, str]) -> tuple[list[Task], str, str]:
    records = file.records
    annotator = choose("annotator", {"annotator": "annotator", **named}, list(file.first), file.name, "columns")
    if not any(text(record.fields.get(annotator)) for record in records):
        raise NoLabelError(f"holds {len(records)} tasks but no label", where=file.name)
    columns = [name for name in dict.fromkeys(k for record in records for k in record.fields) if name not in ABOUT]
    tags = _tags(records, [name for name in columns if name not in QUESTION_FIELDS], annotator, in_order=file.is_array)
    tag = choose("label", named, columns if "label" in named else tags, file.name, "columns that could be the label")
    tasks: dict[str, Task] = {}
    for record in records:
        fields = record.fields
        data = {name: fields[name] for name in columns if name in fields and name not in {tag, *tags}}
        number = text(fields.get("id")) or record.place
        task = tasks.setdefault(
            number, _task(record.place, int(number) if NUMBER.fullmatch(number) else fields.get("id"), data)
        )
        user, answer = text(fields.get(annotator)) or "", fields.get(tag)
        if user or answer not in (None, ""):
            when, duration = (text(fields.get(name)) or "" for name in ("updated_at", "lead_time"))
            task.answers.append((record.place, user, when, duration, {tag: answer}))
    return list(tasks.values()), tag, ""


def _tags(records: Sequence[Record], columns: Sequence[str], annotator: str, in_order: bool) -> list[str]:
    """Return the columns that may be a tag's: all columns except those that are certainly the task's data.

    A column holds data if it is filled in tasks without an annotator, or holds paths of images, or (in JSON_MIN) stands
    before the task's id. Of several remaining columns, those with one distinct value per task are data, such as ids.
    """
    unlabelled = [record for record in records if not text(record.fields.get(annotator))]
    tags = []
    for name in columns:
        filled = [record.fields[name] for record in records if record.fields.get(name) not in (None, "")]
        is_data = all(map(is_picture, filled)) or any(
            record.fields.get(name) not in (None, "") for record in unlabelled
        )
        if not is_data and (not in_order or any(_stands_after_id(record.fields, name) for record in records)):
            tags.append(name)
    return tags if len(tags) < 2 else [name for name in tags if not _names_tasks(records, name)] or tags


def _names_tasks(records: Sequence[Record], name: str) -> bool:
    pairs = {(text(record.fields.get("id")), str(text(record.fields.get(name)))) for record in records}
    return len(pairs) == len({number for number, _ in pairs}) == len({value for _, value in pairs}) > 1


def _stands_after_id(fields: Mapping[str, Any], name: str) -> bool:
    names = list(fields)
    return name in fields and ("id" not in fields or names.index(name) > names.index("id"))


FORMAT = Format(recognises, read)
