"""Read verdicts of language models as judges: JSON with a record per verdict of a judge on an item.

Fields are recognised by common names, including those of FastChat (MT-bench, Chatbot Arena) and AlpacaEval. A verdict
may be the last word of a text, written ``[[A]]``. Refusals are dropped; a tie is a label.

If two answers are compared, the labels are "A", "B" and "tie", whatever their names in the log. Verdicts on the same
answers in swapped order are swapped back. If a judge's verdict changes with the order, it becomes a tie.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from crowdshot.errors import CrowdshotError
from crowdshot.io.cells import text
from crowdshot.io.tables import Record
from crowdshot.labels.columns import Columns, ColumnsInput, matches, plain
from crowdshot.labels.formats.label_file import Entry, Format, LabelFile, LabelsRead, gather
from crowdshot.labels.formats.question_choice import explicit_columns

JUDGES = ("judge", "judge_model", "judge_name", "evaluator", "grader", "annotator", "model", "model_name", "model_id")
VERDICTS = ("g1_winner", "winner", "verdict", "preference", "score", "judgment", "judgement", "decision")
DISTINCTIVE = VERDICTS[:4]  # names that only logs of judges have
ITEMS = ("prompt_id", "prompt", "instruction", "uid")  # in addition to the names in tables
OTHER_ORDER = "g2_winner"
PAIRS = (("model_1", "model_2"), ("model_a", "model_b"), ("generator_1", "generator_2"))
TEXTS = (("response_a", "response_b"), ("answer_a", "answer_b"), ("output_1", "output_2"))  # two answers to one item

LONGEST = 60  # characters of a verdict; longer values are texts
LAST_WORD = re.compile(r"\[\[\s*([^\[\]]{1,40}?)\s*\]\]")
SIDE = re.compile(r"(?:(?:model|assistant|response|answer|output|option|generator)[ _-]?)?(?:(a|1|first)|(b|2|second))")
TIES = {"tie", "tied", "tie (bothbad)"}
NO_VERDICT = {"", "refusal", "refused", "refuse", "$error$", "null", "nan", "n/a"}
# Possible classes of single answers, but ties or errors in comparisons; "c" is MT-bench's, the numbers AlpacaEval's.
TIES_OF_TWO = {*TIES, "draw", "equal", "same", "both", "neither", "a=b", "b=a", "c", "0", "1.5"}
NO_VERDICT_OF_TWO = {*NO_VERDICT, "error", "invalid", "none"}
REFUSAL = re.compile(
    r"(i'?m |i am )?(sorry|unable to)\b|i (can'?t|cannot|can not|won'?t)\b|as an? (ai|language model)\b"
)
TIE, REFUSALS, NO_WORD = "tie", "refusals and verdicts that are missing", "verdicts that are texts without a last word"
BOTH_WAYS = "verdicts that changed with the order, taken for ties"
SWAP = str.maketrans("AB", "BA")


def recognises(file: LabelFile, columns: ColumnsInput = None) -> bool:
    fields = file.first
    known = _field(fields, JUDGES) is not None and _field(fields, DISTINCTIVE) is not None
    return (file.is_lines or file.is_array) and known and (_compared(fields) or "annotator" not in fields)


def read(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    named = explicit_columns(columns, file.name)
    found = {name: None for record in file.records for name in record.fields}
    names = Columns(
        named.get("item") or next(iter(matches("item", found)), None) or _required(file, found, "item", ITEMS),
        named.get("annotator") or _required(file, found, "judge", JUDGES),
        named.get("label") or _required(file, found, "verdict", VERDICTS),
    )
    left_out: Counter[str] = Counter()
    first_order: dict[str, tuple[str, ...]] = {}
    verdicts: dict[tuple[str, str], dict[tuple[bool, int], str]] = {}
    for record in file.records:
        subject = _subject(record, names)
        swapped = first_order.setdefault(subject.item, subject.order) != subject.order
        games = (names.label, OTHER_ORDER) if names.label == VERDICTS[0] else (names.label,)
        for game, name in enumerate(games):
            label, reason = _verdict(record, name, subject)
            if reason:
                left_out[reason] += 1
            else:
                label = label.translate(SWAP) if swapped and set(label) <= set("AB<>=") else label
                verdicts.setdefault((subject.item, subject.judge), {})[swapped, game] = label
    entries = []
    for (item, judge), labels in verdicts.items():
        changed = len(set(labels.values())) > 1
        left_out[BOTH_WAYS] += changed
        entries.append(Entry(item, judge, TIE if changed else next(iter(labels.values()))))
    return gather(file.name, entries, names, left_out)


class Subject(NamedTuple):
    """The judge and the item of a verdict; ``order`` has the two compared models as shown, () if not named."""

    item: str
    judge: str
    order: tuple[str, ...]
    compares: bool


def _subject(record: Record, names: Columns) -> Subject:
    """Return the subject of a verdict; the item is the prompt with the models that answered and the turn, if known."""
    fields = record.fields
    judge = fields.get(names.annotator)
    judge = text(judge[0] if isinstance(judge, list) and judge else judge)  # ["gpt-4", "pair-v2"]
    item = text(fields.get(names.item))
    if not item or not judge:
        missing = names.annotator if item else names.item
        raise CrowdshotError(f"has a verdict but no {missing!r}", where=record.place)
    two = next((pair for pair in PAIRS if set(pair) <= set(fields)), ())
    one = ("model",) if not two and "model" in fields and names.annotator != "model" else ()
    answered = tuple(text(fields[name]) or "" for name in (*two, *one))
    turn = (f"turn {text(fields['turn'])}",) if "turn" in fields else ()
    item = ", ".join([item, *([" | ".join(sorted(answered))] if answered else []), *turn])
    return Subject(item, judge, answered if two else (), _compared(fields))


def _verdict(record: Record, name: str, subject: Subject) -> tuple[str, str]:
    """Return the label, or "" and the reason why there is none."""
    verdict = text(record.fields.get(name))
    if verdict is None:
        found = type(record.fields[name]).__name__
        raise CrowdshotError(
            f"holds a {found}", where=f"{record.place}, {name!r}", found=found, expected="a verdict as text or number"
        )
    last = LAST_WORD.findall(verdict)
    word = last[-1] if last else verdict.strip(" \t\r\n.*_`'\"")
    folded = word.casefold().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    missing, ties = (NO_VERDICT_OF_TWO, TIES_OF_TWO) if subject.compares else (NO_VERDICT, TIES)
    if folded in missing or REFUSAL.match(folded) or (name == "score" and folded == "-1"):
        return "", REFUSALS
    if len(word) > LONGEST:
        return "", NO_WORD
    if folded in ties:
        return TIE, ""
    if not subject.compares:
        return word, ""
    if word in subject.order:
        return "AB"[subject.order.index(word)], ""
    if re.fullmatch(r"[12]\.\d+", word):  # strength of the preference
        return "AB"[float(word) > 1.5], ""
    side = SIDE.fullmatch(folded)
    return ("A" if side[1] else "B") if side else word, ""


def _compared(fields: Mapping[str, Any]) -> bool:
    """Return whether two answers are compared."""
    return any(set(pair) <= set(fields) for pair in (*PAIRS, *TEXTS))


def _field(found: Iterable[str], usual: Iterable[str]) -> str | None:
    """Return the most common of the usual names that occurs, ignoring case and punctuation."""
    spelled = {plain(name): name for name in found}
    return next((spelled[plain(name)] for name in usual if plain(name) in spelled), None)


def _required(file: LabelFile, found: Iterable[str], what: str, usual: Iterable[str]) -> str:
    name = _field(found, usual)
    if name is None:
        raise CrowdshotError(
            f"has no field for the {what}",
            where=file.name,
            found=list(found),
            expected=f"a field called {', '.join(usual)}",
        )
    return name


FORMAT = Format(recognises, read)
