"""Read records of Argilla 2, as its Python package exports them (``argilla`` 2.8), in JSON, JSON lines or Parquet.

``records.to_datasets()`` and ``records.to_list(flatten=True)`` have three parallel lists for each question:
``<question>.responses``, ``<question>.responses.users`` and ``<question>.responses.status``. ``records.to_json()``
has nested records, ``responses: {question: [{value, user_id}]}``, without the status of a response.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from crowdshot.errors import CrowdshotError
from crowdshot.io.cells import text
from crowdshot.io.tables import Record
from crowdshot.labels.columns import Columns, ColumnsInput
from crowdshot.labels.formats.label_file import Entry, Format, LabelFile, LabelsRead, gather
from crowdshot.labels.formats.question_choice import choose, choose_item, explicit_columns, one_label

RESPONSES, USERS, STATUS = ".responses", ".responses.users", ".responses.status"
ABOUT = (RESPONSES, USERS, STATUS, ".suggestion", ".suggestion.score", ".suggestion.agent")
LEFT_OUT = {"draft": "drafts", "discarded": "discarded responses", "pending": "pending responses"}


def recognises(file: LabelFile, columns: ColumnsInput = None) -> bool:
    names = set(file.first)
    return names >= {"fields", "responses"} or any(
        name.endswith(RESPONSES) and name.removesuffix(RESPONSES) + USERS in names for name in names
    )


def read(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    named = explicit_columns(columns, file.name, ("item", "label"))
    records = [_flat(record) for record in file.records]
    names = list(dict.fromkeys(name for record in records for name in record.fields))
    questions = [name.removesuffix(RESPONSES) for name in names if name.endswith(RESPONSES)]
    question = choose("label", named, questions, file.name, "questions")
    fields = [name for name in names if not name.endswith(ABOUT) and name not in ("id", "status", "_server_id")]
    item_field = choose_item(named, [record.fields for record in records], [*fields, "id"], file.name, otherwise="id")
    left_out: Counter[str] = Counter()
    entries: list[Entry] = []
    for record in records:
        item = text(record.fields.get(item_field))
        responses = list(zip(*_lists(record, question), strict=True))
        left_out["records nobody labelled"] += not responses
        for value, user, status in responses:
            label = one_label(value, f"{record.place}, {question!r}", file.several)
            if status not in (None, "submitted"):
                left_out[LEFT_OUT.get(str(status), "responses of another status")] += 1
            elif not label:
                left_out["responses without an answer"] += 1
            elif not item or not text(user):
                missing = repr(item_field) if not item else "user"
                raise CrowdshotError(f"has no {missing} for its label {label!r}", where=record.place)
            else:
                entries.append(Entry(item, text(user) or "", label))
    return gather(file.name, entries, Columns(item_field, "user", question), left_out)


def _flat(record: Record) -> Record:
    """Convert a nested record of `to_json` to the form of `to_list(flatten=True)`."""
    fields = record.fields
    if not isinstance(fields.get("responses"), dict) or not isinstance(fields.get("fields"), dict):
        return record
    flat: dict[str, Any] = {**fields["fields"], "id": fields.get("id"), "_server_id": fields.get("_server_id")}
    for question, responses in fields["responses"].items():
        if not isinstance(responses, list) or not all(isinstance(response, dict) for response in responses):
            raise CrowdshotError(
                "is not a list of records", where=f"{record.place}, responses to {question!r}", expected="[{…}, …]"
            )
        for ending, key in ((RESPONSES, "value"), (USERS, "user_id"), (STATUS, "status")):
            flat[question + ending] = [response.get(key) for response in responses]
    return Record(record.place, flat)


def _lists(record: Record, question: str) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the values, users and statuses of the responses to a question."""
    values, users, status = (record.fields.get(question + ending) or [] for ending in (RESPONSES, USERS, STATUS))
    if status == [] and isinstance(values, list):
        status = [None] * len(values)
    if not all(isinstance(part, list) and len(part) == len(values) for part in (values, users, status)):
        raise CrowdshotError(
            f"has {question + RESPONSES!r}, its users and its status of different lengths",
            where=record.place,
            expected="lists of the same length",
        )
    return values, users, status


FORMAT = Format(recognises, read)
