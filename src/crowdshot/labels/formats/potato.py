"""Read annotations of Potato: a file ``annotated_instances.jsonl`` or ``user_state.json`` for each annotator.

In ``annotated_instances.jsonl``, a record has the item's ``id`` (or ``instance_id``), and in ``label_annotations`` the
answers to each question, ``{question: {option: "true"}}``; options of a scale are numbered ``scale_1``, ``scale_2`` and
so on. ``behavioral_data`` says how long the item took. In ``user_state.json``, one record has the answers to all items,
``instance_id_to_label_to_value``. Text boxes are not questions, unless one is chosen. Pages of a survey, such as a
consent form, are questions like all others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from crowdshot.errors import CrowdshotError
from crowdshot.io.cells import text
from crowdshot.io.json_text import as_record
from crowdshot.labels.columns import ColumnsInput
from crowdshot.labels.formats.label_file import Format, LabelFile, LabelsRead
from crowdshot.labels.formats.question_choice import Answered, explicit_columns, gather_answers

LABELS, SPANS, BEHAVIOUR = "label_annotations", "span_annotations", "behavioral_data"
STATE, STATE_SPANS = "instance_id_to_label_to_value", "instance_id_to_span_to_value"
STATE_BEHAVIOUR = "instance_id_to_behavioral_data"
OWN_NAMES = ("annotated_instances", "user_state")  # file names that do not name an annotator
VALUED = {"text_box", "textbox", "text", "slider", "number", "select", "dropdown"}  # options whose value is the answer
FREE_TEXT = {"text_box", "textbox", "text"}
SCALE = re.compile(r"scale[_ ]?(\d+)")
SPENT = re.compile(r"(\d+)\s*d\s+(\d+)\s*h\s+(\d+)\s*m\s+(\d+)\s*s")
UNCHECKED = {"", "false", "0"}


def recognises(file: LabelFile, columns: ColumnsInput = None) -> bool:
    return {LABELS, STATE} & set(file.first) != set() and bool({"id", "instance_id", STATE} & set(file.first))


def read(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    named = explicit_columns(columns, file.name, ("label",))
    answered: list[Answered] = []
    texts: set[str] = set()
    spans = 0
    for place, item, annotator, labels, item_spans, behaviour in _items(file):
        answers = {}
        for question, options in _questions(labels, place):
            answers[question] = _answer(options)
            if options and set(options) <= FREE_TEXT:
                texts.add(question)
        spans += bool(item_spans)
        when, duration = _time(behaviour)
        answered.append(Answered(place, item, annotator, answers, when, duration))
    texts -= {named.get("label", "")}
    answered = [
        each._replace(answers={name: answer for name, answer in each.answers.items() if name not in texts})
        for each in answered
    ]
    if not any(each.answers for each in answered) and (texts or spans):
        found = "spans" if spans else "text boxes"
        raise CrowdshotError(f"has only {found}", where=file.name, found=found, expected="answers with options")
    return gather_answers(file, answered, named, ("id", "annotator"), Counter(), time="timestamp")


def _items(file: LabelFile) -> Iterator[tuple[str, str, str, Any, Any, Any]]:
    """Yield the place, item, annotator, answers, spans and behaviour of each annotated item."""
    for record in file.records:
        fields = record.fields
        user = text(fields.get("user_id")) or _annotator(file)
        if STATE not in fields:
            item = text(fields.get("id")) or text(fields.get("instance_id")) or ""
            yield record.place, item, user, fields.get(LABELS), fields.get(SPANS), fields.get(BEHAVIOUR)
            continue
        answers, spans, behaviour = (
            as_record(fields.get(name) or {}, f"{record.place}, {name!r}")
            for name in (STATE, STATE_SPANS, STATE_BEHAVIOUR)
        )
        for item in dict.fromkeys([*answers, *spans]):
            yield f"{record.place}, item {item}", item, user, answers.get(item), spans.get(item), behaviour.get(item)


def _annotator(file: LabelFile) -> str:
    """Return the annotator of a whole file: Potato gives each a folder."""
    return file.annotator or (PurePath(file.name).parent.name if file.stem in OWN_NAMES else "") or file.stem


def _questions(labels: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each question with its {option: value}, from a record of records or from pairs of option and value."""
    if not isinstance(labels, list):
        for question, options in as_record(labels or {}, f"{place}, {LABELS!r}").items():
            options = as_record(options or {}, f"{place}, {question!r}")
            nested = options.get("labels")
            yield question, nested if isinstance(nested, dict) else options
        return
    found: dict[str, dict[str, Any]] = {}
    for pair in labels:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], dict):
            raise CrowdshotError("is no pair of an option and a value", where=f"{place}, {STATE!r}", found=pair)
        question, option = (text(pair[0].get(name)) or "" for name in ("schema", "name"))
        found.setdefault(question, {})[option] = pair[1]
    yield from found.items()


def _answer(options: Mapping[str, Any]) -> list[Any]:
    """Return the options that are checked, or the values of options that hold one."""
    answer: list[Any] = []
    for option, value in options.items():
        scale = SCALE.fullmatch(option)
        written = text(value)
        if option in VALUED:
            answer.append(value)
        elif written is None:
            answer.append(value)  # refused by `one_label`
        elif scale and written:
            answer.append(scale[1])
        elif written.lower() not in UNCHECKED:
            answer.append(option)
    return answer


def _time(behaviour: Any) -> tuple[str, str]:
    """Return the time and the seconds of an item, "" if unknown."""
    if not isinstance(behaviour, dict):
        return "", ""
    spent = SPENT.search(text(behaviour.get("time_string")) or "")
    seconds = text(behaviour.get("time_spent")) or ""
    if spent:
        days, hours, minutes, rest = map(int, spent.groups())
        seconds = str(86_400 * days + 3_600 * hours + 60 * minutes + rest)
    elif not seconds and (text(behaviour.get("total_time_ms")) or ""):
        seconds = f"{text(behaviour['total_time_ms'])} ms"
    return text(behaviour.get("timestamp")) or "", seconds


FORMAT = Format(recognises, read)
