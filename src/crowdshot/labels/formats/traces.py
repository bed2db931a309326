"""Read scores of Langfuse and annotations of Phoenix: JSON, JSON lines or a table with a row for each.

The item is the trace, the part of it (observation) or the span that was judged; the question is the score's name. The
annotator is the person, or the kind of evaluator if the file names none. The label is the category, else the number. An
answer of the interface (API), ``{"data": […]}``, is read too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from crowdshot.errors import CrowdshotError
from crowdshot.io.cells import text
from crowdshot.io.json_text import as_record
from crowdshot.io.tables import Record
from crowdshot.labels.columns import ColumnsInput
from crowdshot.labels.formats.label_file import Format, LabelFile, LabelsRead
from crowdshot.labels.formats.question_choice import Answered, explicit_columns, gather_answers


class Fields(NamedTuple):
    """The names of the fields, the most specific first; ``required`` are those by which a file is recognised."""

    required: tuple[tuple[str, ...], ...]
    item: tuple[str, ...]
    question: tuple[str, ...]
    people: tuple[str, ...]
    kind: tuple[str, ...]
    label: tuple[str, ...]
    when: tuple[str, ...]


LANGFUSE_FIELDS = Fields(
    required=(("traceId", "trace_id"), ("name",), ("source",), ("value", "stringValue", "string_value")),
    item=("observationId", "observation_id", "traceId", "trace_id", "sessionId", "session_id"),
    question=("name",),
    people=("authorUserId", "author_user_id", "authorUserName"),
    kind=("source",),
    label=("stringValue", "string_value", "value"),
    when=("timestamp", "createdAt", "created_at"),
)
PHOENIX_FIELDS = Fields(
    required=(("span_id",), ("annotator_kind",), ("name", "annotation_name")),
    item=("span_id",),
    question=("name", "annotation_name"),
    people=("user_id", "identifier"),
    kind=("annotator_kind",),
    label=("label", "result.label", "score", "result.score"),
    when=("updated_at", "created_at"),
)


def _fits(fields: Fields, found: Mapping[str, Any]) -> bool:
    data = found.get("data")
    if isinstance(data, list) and data and isinstance(data[0], dict):
        found = data[0]
    return all(any(name in found for name in names) for names in fields.required)


def _read(fields: Fields, file: LabelFile, columns: ColumnsInput) -> LabelsRead:
    named = explicit_columns(columns, file.name)
    records = _records(file)
    if not any(_fits(fields, record.fields) for record in records):
        names = [" or ".join(map(repr, each)) for each in fields.required]
        raise CrowdshotError(f"lacks the fields {', '.join(names)}", where=file.name, found=sorted(file.first))
    answered: list[Answered] = []
    for record in records:
        flat = _flat(record)
        item, question, person, label, when = (
            _first(flat, (named[role],) if role in named else names)
            for role, names in (
                ("item", fields.item),
                ("question", fields.question),
                ("annotator", (*fields.people, *fields.kind)),
                ("answer", fields.label),
                ("time", fields.when),
            )
        )
        answers = {question: label} if question else {}
        answered.append(Answered(record.place, item, person, answers, when))
    item = named.get("item") or next((name for name in fields.item if _known(records, name)), fields.item[-1])
    return gather_answers(
        file, answered, named, (item, named.get("annotator", "annotator")), Counter(), time=fields.when[0]
    )


def _records(file: LabelFile) -> list[Record]:
    """Return the records, without the wrapping of an answer of the interface."""
    records: list[Record] = []
    for record in file.records:
        data = record.fields.get("data")
        if not isinstance(data, list):
            records.append(record)
            continue
        for number, each in enumerate(data, 1):
            place = f"{record.place}, data {number}"
            records.append(Record(place, as_record(each, place)))
    return records


def _flat(record: Record) -> dict[str, Any]:
    """Return the fields, with those of the result of Phoenix among them."""
    result = record.fields.get("result")
    nested = {f"result.{name}": value for name, value in result.items()} if isinstance(result, dict) else {}
    return {**record.fields, **nested}


def _first(fields: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Return the first value that is not blank."""
    return next(filter(None, (text(fields.get(name)) for name in names)), "")


def _known(records: list[Record], name: str) -> bool:
    return any(text(record.fields.get(name)) for record in records)


def _format(fields: Fields) -> Format:
    def recognises(file: LabelFile, columns: ColumnsInput = None) -> bool:
        return _fits(fields, file.first)

    def read(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
        return _read(fields, file, columns)

    return Format(recognises, read)


LANGFUSE, PHOENIX = _format(LANGFUSE_FIELDS), _format(PHOENIX_FIELDS)
