"""Verdicts of language models: JSON, a record for each, with the judge, the item and what was said of it.

The fields go by their usual names, and by those of FastChat (MT-bench, Chatbot Arena) and AlpacaEval. A verdict may
stand at the end of a text, as ``[[A]]``. A refusal is no label, a tie is one. Where two answers are compared, labels
are "A", "B" and "tie", whatever the log calls them; of the same two the other way round the verdict is turned, and one
that changes with the order is a tie.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from crowdshot.errors import CrowdshotError
from crowdshot.io.cells import text
from crowdshot.io.records import Record
from crowdshot.labels.columns import Columns, ColumnsInput, matches, plain
from crowdshot.labels.formats.label_file import Entry, Format, LabelFile, LabelsRead, gather
from crowdshot.labels.formats.question_choice import asked

JUDGES = ("judge", "judge_model", "judge_name", "evaluator", "grader", "annotator", "model", "model_name", "model_id")
VERDICTS = ("g1_winner", "winner", "verdict", "preference", "score", "judgment", "judgement", "decision")
TELLING = VERDICTS[:4]  # that it is a judge's log
ITEMS = ("prompt_id", "prompt", "instruction", "uid")  # beside what tables call them
OTHER_ORDER = "g2_winner"
PAIRS = (("model_1", "model_2"), ("model_a", "model_b"), ("generator_1", "generator_2"))
TEXTS = (("response_a", "response_b"), ("answer_a", "answer_b"), ("output_1", "output_2"))  # compared under one id

LONGEST = 60  # characters of a verdict; more are a text
LAST_WORD = re.compile(r"\[\[\s*([^\[\]]{1,40}?)\s*\]\]")
SIDE = re.compile(r"(?:(?:model|assistant|response|answer|output|option|generator)[ _-]?)?(?:(a|1|first)|(b|2|second))")
TIES = {"tie", "tied", "tie (bothbad)"}
NO_VERDICT = {"", "refusal", "refused", "refuse", "$error$", "null", "nan", "n/a"}
# What may be a class elsewhere, but not of two to choose from; "c" is MT-bench's, the numbers are AlpacaEval's.
TIES_OF_TWO = {*TIES, "draw", "equal", "same", "both", "neither", "a=b", "b=a", "c", "0", "1.5"}
NO_VERDICT_OF_TWO = {*NO_VERDICT, "error", "invalid", "none"}
REFUSAL = re.compile(
    r"(i'?m |i am )?(sorry|unable to)\b|i (can'?t|cannot|can not|won'?t)\b|as an? (ai|language model)\b"
)
TIE, REFUSALS, NO_WORD = "tie", "refusals and verdicts that are missing", "verdicts that are texts without a last word"
BOTH_WAYS = "verdicts that changed with the order, taken for ties"


def recognises(file: LabelFile, columns: ColumnsInput = None) -> bool:
    fields = file.first
    known = _field(fields, JUDGES) is not None and _field(fields, TELLING) is not None
    return (file.is_lines or file.is_array) and known and (_compared(fields) or "annotator" not in fields)


def read(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    named = asked(columns, file.name)
    found = {name: None for record in file.records for name in record.fields}
    names = Columns(
        named.get("item") or next(iter(matches("item", found)), None) or _needed(file, found, "item", ITEMS),
        named.get("annotator") or _needed(file, found, "judge", JUDGES),
        named.get("label") or _needed(file, found, "verdict", VERDICTS),
    )
    left_out: Counter[str] = Counter()
    first_order: dict[str, tuple[str, ...]] = {}
    said: dict[tuple[str, str], dict[tuple[bool, int], str]] = {}
    for record in file.records:
        about = _about(record, names)
        turned = first_order.setdefault(about.item, about.order) != about.order
        games = (names.label, OTHER_ORDER) if names.label == VERDICTS[0] else (names.label,)
        for game, name in enumerate(games):
            label, reason = _verdict(record, name, about)
            if reason:
                left_out[reason] += 1
            else:
                label = label.translate(TURN) if turned and set(label) <= set("AB<>=") else label
                said.setdefault((about.item, about.judge), {})[turned, game] = label
    entries = []
    for (item, judge), labels in said.items():
        changed = len(set(labels.values())) > 1
        left_out[BOTH_WAYS] += changed
        entries.append(Entry(item, judge, TIE if changed else next(iter(labels.values()))))
    return gather(file.name, entries, names, left_out)


TURN = str.maketrans("AB", "BA")


class About(NamedTuple):
    """Who judged what; ``order``: the two that were compared, as they were shown, () where none were named."""

    item: str
    judge: str
    order: tuple[str, ...]
    compares: bool


def _about(record: Record, names: Columns) -> About:
    """The item is what was asked and, where the log has them, the models that answered and the turn."""
    fields = record.fields
    judge = fields.get(names.annotator)
    judge = text(judge[0] if isinstance(judge, list) and judge else judge)  # ["gpt-4", "pair-v2"]
    item = text(fields.get(names.item))
    if not item or not judge:
        missing = names.annotator if item else names.item
        raise CrowdshotError(f"{record.place} has no {missing!r}, expected a name beside its verdict.")
    two = next((pair for pair in PAIRS if set(pair) <= set(fields)), ())
    one = ("model",) if not two and "model" in fields and names.annotator != "model" else ()
    answered = tuple(text(fields[name]) or "" for name in (*two, *one))
    turn = (f"turn {text(fields['turn'])}",) if "turn" in fields else ()
    item = ", ".join([item, *([" | ".join(sorted(answered))] if answered else []), *turn])
    return About(item, judge, answered if two else (), _compared(fields))


def _verdict(record: Record, name: str, about: About) -> tuple[str, str]:
    """The label, or why there is none."""
    said = text(record.fields.get(name))
    if said is None:
        found = type(record.fields[name]).__name__
        raise CrowdshotError(f"{record.place}, {name!r} holds a {found}, expected a verdict.")
    last = LAST_WORD.findall(said)
    word = last[-1] if last else said.strip(" \t\r\n.*_`'\"")
    folded = word.casefold().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    nothing, ties = (NO_VERDICT_OF_TWO, TIES_OF_TWO) if about.compares else (NO_VERDICT, TIES)
    if folded in nothing or REFUSAL.match(folded) or (name == "score" and folded == "-1"):
        return "", REFUSALS
    if len(word) > LONGEST:
        return "", NO_WORD
    if folded in ties:
        return TIE, ""
    if not about.compares:
        return word, ""
    if word in about.order:
        return "AB"[about.order.index(word)], ""
    if re.fullmatch(r"[12]\.\d+", word):  # how much one is preferred
        return "AB"[float(word) > 1.5], ""
    side = SIDE.fullmatch(folded)
    return ("A" if side[1] else "B") if side else word, ""


def _compared(fields: Mapping[str, Any]) -> bool:
    """Are two answers compared?"""
    return any(set(pair) <= set(fields) for pair in (*PAIRS, *TEXTS))


def _field(found: Iterable[str], usual: Iterable[str]) -> str | None:
    """The most usual of the names, however it is spelled."""
    spelled = {plain(name): name for name in found}
    return next((spelled[plain(name)] for name in usual if plain(name) in spelled), None)


def _needed(file: LabelFile, found: Iterable[str], what: str, usual: Iterable[str]) -> str:
    name = _field(found, usual)
    if name is None:
        raise CrowdshotError(f"{file.name} has no field for the {what}, expected one called {', '.join(usual)}.")
    return name


FORMAT = Format(recognises, read)
