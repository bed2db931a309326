"""Read the results of Amazon Mechanical Turk and Toloka.

Mechanical Turk: CSV, a row for each assignment, as downloaded from the Requester website. ``Input.<name>`` is the
content of the task and ``Answer.<name>`` the answer (several choices joined by bars). Forms of crowd elements store
answers as JSON in ``Answer.taskAnswers``, or as columns of true and false for the options of a question,
``Answer.<question>.<option>``. Both are converted to the answer of the question.

Toloka: tab-separated, a row for each answer, as described in its guide of 2023. ``INPUT:<field>`` is the content of the
task, ``OUTPUT:<field>`` the answer and ``GOLDEN:<field>`` the correct answer to a control task.
``ASSIGNMENT:worker_id`` is the annotator and ``ASSIGNMENT:status`` whether the answer was accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from crowdshot.errors import CrowdshotError
from crowdshot.io.cells import text
from crowdshot.io.json_text import parse_json
from crowdshot.io.tables import Record
from crowdshot.labels.columns import Columns, ColumnsInput
from crowdshot.labels.formats.label_file import Entry, Format, LabelFile, LabelsRead, gather
from crowdshot.labels.formats.question_choice import choose, choose_item, explicit_columns, missing_id, one_label

# ---- Amazon Mechanical Turk ----

INPUT, ANSWER = "Input.", "Answer."
HIT, WORKER, STATUS, REJECT = "HITId", "WorkerId", "AssignmentStatus", "Reject"
SUBMITTED, WORK_TIME = "SubmitTime", "WorkTimeInSeconds"
PACKED = "Answer.taskAnswers"


def recognises_mturk(file: LabelFile, columns: ColumnsInput = None) -> bool:
    return {HIT, WORKER} <= set(file.first) and any(name.startswith(ANSWER) for name in file.first)


def read_mturk(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    named = explicit_columns(columns, file.name)
    names, records = list(file.first), file.records
    if not {HIT, WORKER} <= set(names):
        raise CrowdshotError(
            f"lacks columns {HIT!r} and {WORKER!r}",
            where=file.name,
            found=names,
            expected="batch results of Mechanical Turk",
        )
    answers = _join_options([_answers(record) for record in records])
    questions = list(dict.fromkeys(name for answer in answers for name in answer))
    question = choose("label", named, questions, file.name, "columns with answers", ANSWER)
    inputs = [name for name in names if name.startswith(INPUT)]
    key = choose_item(named, [record.fields for record in records], inputs, file.name, HIT, INPUT)
    worker = choose("annotator", {"annotator": WORKER, **named}, names, file.name, "columns")
    left_out: Counter[str] = Counter()
    entries: list[Entry] = []
    for record, answer in zip(records, answers, strict=True):
        item, annotator, status, reject = (text(record.fields.get(name)) for name in (key, worker, STATUS, REJECT))
        label = one_label(answer.get(question), f"{record.place}, column {question!r}", file.several)
        if str(status).lower() == "rejected" or reject:
            left_out["rejected assignments"] += 1
        elif not label:
            left_out["rows without an answer"] += 1
        elif not item or not annotator:
            raise missing_id(record, worker if item else key)
        else:
            when, duration = (text(record.fields.get(name)) or "" for name in (SUBMITTED, WORK_TIME))
            entries.append(Entry(item, annotator, label, when, duration))
    times = file.times.otherwise(SUBMITTED)
    return gather(file.name, entries, Columns(key, worker, question), left_out, times=times)


def _answers(record: Record) -> dict[str, Any]:
    """Return {column: answer}, with a column for each answer in the JSON column."""
    found: dict[str, Any] = {}
    for name, value in record.fields.items():
        if name == PACKED and value:
            parts = parse_json(str(value), f"{record.place}, column {PACKED!r}")
            for part in parts if isinstance(parts, list) else [parts]:
                found |= _unpack(part) if isinstance(part, dict) else {}
        elif name.startswith(ANSWER) and name != PACKED:
            found[name] = value.split("|") if isinstance(value, str) and "|" in value else value
    return found


def _unpack(answers: Mapping[str, Any]) -> dict[str, Any]:
    """Convert {"animal": {"label": "cat"}} to {"Answer.animal.label": "cat"}."""
    found: dict[str, Any] = {}
    for question, answer in answers.items():
        nested = answer.items() if isinstance(answer, dict) else ()
        found |= {f"{ANSWER}{question}.{part}": value for part, value in nested}
        found |= {} if nested else {ANSWER + question: answer}
    return found


def _join_options(answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replace the columns of true and false of a question by the list of options that are true."""
    options: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for answer in answers for name in answer):
        values = {text(answer.get(name)) for answer in answers}
        question, dot, _ = name.removeprefix(ANSWER).rpartition(".")
        if dot and values - {""} and values <= {"true", "false", ""}:
            options.setdefault(ANSWER + question, []).append(name)
    joined = []
    for answer in answers:
        kept = dict(answer)
        for question, names in options.items():
            if len(names) > 1:
                chosen = [name for name in names if text(kept.pop(name, None)) == "true"]
                kept[question] = [name.removeprefix(f"{question}.") for name in chosen]
        joined.append(kept)
    return joined


MTURK = Format(recognises_mturk, read_mturk)


# ---- Toloka ----

TOLOKA_INPUT, OUTPUT, GOLDEN = "INPUT:", "OUTPUT:", "GOLDEN:"
TOLOKA_WORKER, TOLOKA_STATUS, TASK = "ASSIGNMENT:worker_id", "ASSIGNMENT:status", "ASSIGNMENT:task_id"
TOLOKA_SUBMITTED = "ASSIGNMENT:submitted"
TOLOKA_LEFT_OUT = {
    "REJECTED": "rejected answers",
    "SKIPPED": "skipped answers",
    "EXPIRED": "expired answers",
    "ACTIVE": "unfinished answers",
}


def recognises_toloka(file: LabelFile, columns: ColumnsInput = None) -> bool:
    return TOLOKA_WORKER in file.first and any(name.startswith(OUTPUT) for name in file.first)


def read_toloka(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    named = explicit_columns(columns, file.name)
    names, records = list(file.first), file.records
    if TOLOKA_WORKER not in names:
        raise CrowdshotError(
            f"has no column {TOLOKA_WORKER!r}", where=file.name, found=names, expected="the results of a Toloka pool"
        )
    output = choose(
        "label", named, [n for n in names if n.startswith(OUTPUT)], file.name, "columns with answers", OUTPUT
    )
    inputs = [name for name in names if name.startswith(TOLOKA_INPUT)]
    rows = [record.fields for record in records]
    key = choose_item(named, rows, inputs, file.name, TASK if TASK in names else None, TOLOKA_INPUT)
    golden = GOLDEN + output.removeprefix(OUTPUT)
    worker = choose("annotator", {"annotator": TOLOKA_WORKER, **named}, names, file.name, "columns")
    left_out: Counter[str] = Counter()
    entries: list[Entry] = []
    gold: dict[str, str] = {}
    for record in records:
        item, annotator = (text(record.fields.get(name)) for name in (key, worker))
        label = one_label(record.fields.get(output), f"{record.place}, column {output!r}", file.several)
        truth = one_label(record.fields.get(golden), f"{record.place}, column {golden!r}", file.several)
        if item and truth:
            gold[item] = truth
        reason = TOLOKA_LEFT_OUT.get(str(record.fields.get(TOLOKA_STATUS)).upper())
        if reason or not label:
            left_out[reason or "rows without an answer"] += 1
        elif not item or not annotator:
            raise missing_id(record, worker if item else key)
        else:
            entries.append(Entry(item, annotator, label, text(record.fields.get(TOLOKA_SUBMITTED)) or ""))
    times = file.times.otherwise(TOLOKA_SUBMITTED)
    return gather(file.name, entries, Columns(key, worker, output), left_out, gold, times=times)


TOLOKA = Format(recognises_toloka, read_toloka)
