"""Read the results of a Toloka pool: tab-separated, a row for each answer, as described in its guide of 2023.

``INPUT:<field>`` is the content of the task, ``OUTPUT:<field>`` the answer and ``GOLDEN:<field>`` the correct answer to
a control task. ``ASSIGNMENT:worker_id`` is the annotator and ``ASSIGNMENT:status`` whether the answer was accepted.
"""

from __future__ import annotations

from collections import Counter

from crowdshot.errors import CrowdshotError
from crowdshot.io.cells import text
from crowdshot.labels.columns import Columns, ColumnsInput
from crowdshot.labels.formats.label_file import Entry, Format, LabelFile, LabelsRead, gather
from crowdshot.labels.formats.question_choice import choose, choose_item, explicit_columns, missing_id, one_label

INPUT, OUTPUT, GOLDEN = "INPUT:", "OUTPUT:", "GOLDEN:"
WORKER, STATUS, TASK = "ASSIGNMENT:worker_id", "ASSIGNMENT:status", "ASSIGNMENT:task_id"
LEFT_OUT = {
    "REJECTED": "rejected answers",
    "SKIPPED": "skipped answers",
    "EXPIRED": "expired answers",
    "ACTIVE": "unfinished answers",
}


def recognises(file: LabelFile, columns: ColumnsInput = None) -> bool:
    return WORKER in file.first and any(name.startswith(OUTPUT) for name in file.first)


def read(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    named = explicit_columns(columns, file.name)
    names, records = list(file.first), file.records
    if WORKER not in names:
        raise CrowdshotError(
            f"has no column {WORKER!r}", where=file.name, found=names, expected="the results of a Toloka pool"
        )
    output = choose(
        "label", named, [n for n in names if n.startswith(OUTPUT)], file.name, "columns with answers", OUTPUT
    )
    inputs = [name for name in names if name.startswith(INPUT)]
    rows = [record.fields for record in records]
    key = choose_item(named, rows, inputs, file.name, TASK if TASK in names else None, INPUT)
    golden = GOLDEN + output.removeprefix(OUTPUT)
    worker = choose("annotator", {"annotator": WORKER, **named}, names, file.name, "columns")
    left_out: Counter[str] = Counter()
    entries: list[Entry] = []
    gold: dict[str, str] = {}
    for record in records:
        item, annotator = (text(record.fields.get(name)) for name in (key, worker))
        label = one_label(record.fields.get(output), f"{record.place}, column {output!r}", file.several)
        truth = one_label(record.fields.get(golden), f"{record.place}, column {golden!r}", file.several)
        if item and truth:
            gold[item] = truth
        reason = LEFT_OUT.get(str(record.fields.get(STATUS)).upper())
        if reason or not label:
            left_out[reason or "rows without an answer"] += 1
        elif not item or not annotator:
            raise missing_id(record, worker if item else key)
        else:
            entries.append(Entry(item, annotator, label))
    return gather(file.name, entries, Columns(key, worker, output), left_out, gold)


FORMAT = Format(recognises, read)
