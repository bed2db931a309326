"""Read annotations of Prodigy as ``prodigy db-out`` prints them (1.11 and later): JSON lines, a record for each answer.

``answer`` is "accept", "reject" or "ignore"; ``_annotator_id`` or ``_session_id`` names the annotator. With the choice
interface, ``accept`` lists the ids of the chosen options. With the classification interface (yes or no), ``label`` is
the proposed label: an accepted proposal is the label, a rejected one becomes the label "not …".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from crowdshot.errors import CrowdshotError
from crowdshot.io.cells import text
from crowdshot.io.tables import Record
from crowdshot.labels.columns import Columns, ColumnsInput
from crowdshot.labels.formats.label_file import Entry, Format, LabelFile, LabelsRead, gather
from crowdshot.labels.formats.question_choice import choose, explicit_columns, one_label

ANSWERS = ("accept", "reject", "ignore")
PRODIGY_FIELDS = {"_input_hash", "_task_hash", "_session_id", "_annotator_id", "_view_id", "accept"}
ITEM = ("image", "path", "file", "text", "_input_hash")  # "file" is a field of "meta"


def recognises(file: LabelFile, columns: ColumnsInput = None) -> bool:
    return file.first.get("answer") in ANSWERS and not PRODIGY_FIELDS.isdisjoint(file.first)


def read(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    named = explicit_columns(columns, file.name)
    records = file.records
    odd = next((record for record in records if record.fields.get("answer") not in ANSWERS), None)
    if odd is not None:
        found = (text(odd.fields.get("answer")) or "nothing")[:80]
        raise CrowdshotError(
            f"has the answer {found!r}", where=odd.place, found=found, expected="accept, reject or ignore"
        )
    choice = any("accept" in record.fields for record in records)
    wanted = "" if choice else _proposed_label(file.name, records, named)
    left_out: Counter[str] = Counter()
    entries: list[Entry] = []
    for record in records:
        label, reason = _choice(record, file.several) if choice else _verdict(record, wanted)
        if reason:
            left_out[reason] += 1
        else:
            entries.append(Entry(_item(record, named), _annotator(record, named, file), label))
    key = named.get("item") or next((name for name in ITEM if name in records[0].fields), "item")
    return gather(file.name, entries, Columns(key, named.get("annotator", "annotator"), "label"), left_out)


def _choice(record: Record, several: bool) -> tuple[str, str]:
    """Return the label of an answer, or "" and the reason why it has none."""
    if record.fields["answer"] != "accept":
        return "", {"reject": "rejected answers", "ignore": "ignored answers"}[record.fields["answer"]]
    label = one_label(record.fields.get("accept"), f"{record.place}, 'accept'", several)
    return label, "" if label else "answers without a choice"


def _verdict(record: Record, wanted: str) -> tuple[str, str]:
    if text(record.fields.get("label")) != wanted:
        return "", "answers about other labels"
    if record.fields["answer"] == "ignore":
        return "", "ignored answers"
    return (wanted if record.fields["answer"] == "accept" else f"not {wanted}"), ""


def _proposed_label(source: str, records: Sequence[Record], named: Mapping[str, str]) -> str:
    """Return the label that annotators accepted or rejected."""
    found = list(dict.fromkeys(text(record.fields.get("label")) or "" for record in records))
    if found == [""]:
        raise CrowdshotError(
            "has neither 'accept' nor 'label'",
            where=records[0].place,
            expected="one label per item (spans and boxes are not read)",
        )
    return choose("label", named, [label for label in found if label], source, "labels asked about with yes or no")


def _item(record: Record, named: Mapping[str, str]) -> str:
    """Return the name of the item; an embedded image has its path or name in another field."""
    meta = record.fields.get("meta")
    fields: dict[str, Any] = {"file": meta.get("file") if isinstance(meta, dict) else None, **record.fields}
    for name in (named["item"],) if "item" in named else ITEM:
        item = text(fields.get(name))
        if item and not item.startswith("data:"):
            return item
    raise CrowdshotError(f"has no {named.get('item', 'image')!r}", where=record.place, expected="the name of the item")


def _annotator(record: Record, named: Mapping[str, str], file: LabelFile) -> str:
    names = (named["annotator"],) if "annotator" in named else ("_annotator_id", "_session_id")
    known = (text(record.fields.get(name)) for name in names)
    return next(filter(None, known), None) or file.annotator or file.stem


FORMAT = Format(recognises, read)
