"""Read exports of doccano: JSON lines or JSON of each annotator, or the ZIP file with them.

A record is an example with its ``id`` and its ``text`` or ``filename``. Its labels are a list, ``label`` or ``cats``;
spans are not read. Each annotator has a file, named after the annotator. Old exports have ``annotations``, a list of
records with the user's and the label's number.
"""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from crowdshot.errors import CrowdshotError
from crowdshot.io.archive_limits import ZIP, check_parts, open_archive
from crowdshot.io.cells import text
from crowdshot.io.json_text import as_record
from crowdshot.io.tables import Record, parse_array, parse_lines, starts_with
from crowdshot.labels.columns import ColumnsInput, matches
from crowdshot.labels.formats.label_file import Format, LabelFile, LabelsRead
from crowdshot.labels.formats.label_studio import OBJECTS
from crowdshot.labels.formats.question_choice import Answered, explicit_columns, gather_answers, is_picture

LABELS = ("label", "labels", "cats")
PEOPLE = ("annotator", "username", "user")
CONTENT = ("filename", "text")
OLD = "annotations"
OTHERS = {"answer", "responses", "data"}  # fields of other tools
ENDINGS = (".jsonl", ".json")


def recognises(file: LabelFile, columns: ColumnsInput = None) -> bool:
    if file.data.startswith(ZIP):
        return _archive(file) is not None
    fields = file.first
    if OTHERS & set(fields) or matches("annotator", fields):  # a table with annotators is read as a table
        return False
    listed = any(isinstance(fields.get(name), list) for name in (*LABELS, "entities"))
    old = fields.get(OLD)
    is_old = isinstance(old, list) and all(isinstance(each, dict) and {"label", "user"} <= set(each) for each in old)
    return ("id" in fields or listed) and bool(set(CONTENT) & set(fields)) and (listed or (is_old and old != []))


def read(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    named = explicit_columns(columns, file.name)
    parts = list(_parts(file))
    fields = dict.fromkeys(name for _, records in parts for record in records for name in record.fields)
    if "label" in named or not any(name in fields for name in LABELS):
        label = named.get("label", "label")
    else:
        label = next(name for name in LABELS if name in fields)
    item = named.get("item") or _item([record for _, records in parts for record in records], list(fields))
    person = named.get("annotator") or next((name for name in PEOPLE if name in fields), "annotator")
    for role, name in (("item", item), ("annotator", person), ("label", label)):
        if role in named and name not in fields:
            raise CrowdshotError(
                f"has no {name!r} for the {role}", where=file.name, found=name, expected="a field", among=list(fields)
            )
    left_out: Counter[str] = Counter()
    answered: list[Answered] = []
    for annotator, records in parts:
        for record in records:
            known = text(record.fields.get(person)) or annotator
            name = text(record.fields.get(item)) or ""
            for user, answer in _answers(record, label):
                answered.append(Answered(record.place, name, user or known, {label: answer}))
    return gather_answers(file, answered, {"label": label}, (item, person), left_out)


def _item(records: list[Record], fields: list[str]) -> str:
    """Return the field with images, else the id."""
    names = [text(record.fields.get("filename")) for record in records]
    if "filename" in fields and all(map(is_picture, names)):
        return "filename"
    return next((name for name in ("id", *CONTENT) if name in fields), "id")


def _answers(record: Record, label: str) -> Iterator[tuple[str, Any]]:
    """Yield the annotator, if the record names one for each label, and the labels."""
    old = record.fields.get(OLD)
    if label in record.fields or not isinstance(old, list):
        answer = record.fields.get(label)
        _refuse_spans(answer, record.place)
        yield "", answer
        return
    found: dict[str, list[Any]] = {}
    for each in old:
        annotation = as_record(each, f"{record.place}, {OLD!r}")
        if "start_offset" in annotation:
            _refuse_spans([[annotation["start_offset"]]], record.place)
        found.setdefault(text(annotation.get("user")) or "", []).append(annotation.get("label"))
    yield from found.items()


def _refuse_spans(answer: Any, place: str) -> None:
    if isinstance(answer, list) and any(isinstance(part, list | dict) for part in answer):
        raise CrowdshotError("has spans", where=place, found="spans", expected="labels of the whole text", hint=OBJECTS)


def _parts(file: LabelFile) -> Iterator[tuple[str, list[Record]]]:
    """Yield the annotator and the records of the file, or of each file in the archive."""
    archive = _archive(file)
    if archive is None:
        yield file.annotator or file.stem, file.records
        return
    names = _members(archive)
    check_parts(file.name, archive, names)
    for name in names:
        place = f"{file.name}, {name}"
        try:
            data = archive.read(name)
        except Exception as error:  # each compression method raises errors of its own for damaged bytes
            raise CrowdshotError(f"could not be read ({error})", where=place) from None
        if data.strip():
            parse = parse_array if starts_with(data, b"[") else parse_lines
            yield PurePath(name).stem, parse(data, place)


def _archive(file: LabelFile) -> zipfile.ZipFile | None:
    """Return the ZIP archive, None if the file is not a ZIP file of doccano."""
    archive = open_archive(file.data)
    if archive is None:
        return None
    return archive if _members(archive) and len(_members(archive)) == len(archive.namelist()) else None


def _members(archive: zipfile.ZipFile) -> list[str]:
    return [name for name in archive.namelist() if name.endswith(ENDINGS)]


FORMAT = Format(recognises, read)
