"""What the page says at each threshold that a reader can choose: words are made here, the script only swaps them."""

from __future__ import annotations

from typing import Any

from crowdshot.labels.belief import SETTLED
from crowdshot.report import summary
from crowdshot.report.page.facts import Facts
from crowdshot.report.page.items import KINDS
from crowdshot.report.page.levels import STEPS
from crowdshot.report.page.more_labels import nearest
from crowdshot.report.page.next_steps import buy, steps
from crowdshot.wording import percent, plural

NEXT = ("merge", "look", "ask", "talk", "predict", "check")  # the keys of steps, in their order on the page
LINKS = {"look": "#items", "talk": "#annotators"}
Words = dict[str, str]


def tell(found: Facts, confidence: float = SETTLED) -> Words:
    """By name, what stands where the page has ``data-at="name"``."""
    level, kinds = found.settled(confidence), found.of_kind(confidence)
    shown = {kind: sum(item.kind(confidence) == kind for item in found.items) for kind in KINDS}
    todo = {step.key: step for step in steps(found, confidence)}
    return {
        "threshold": percent(confidence),
        "settled": f"{level.labelled:,}",
        "settled_bar": f"{100 * level.labelled / found.n_labelled:.1f}",
        "person": f"{sum(kinds.values()):,}",
        "person_kinds": summary.kinds_in_words(kinds),
        "buy": buy(found, confidence),
        "curve": percent(nearest(found.curves, confidence).settled_at),
        "verdict": found.verdict(confidence),
        "good": "yes" if found.by_itself(confidence) else "no",
        **{f"class_{each.label}": f"{each.settled[STEPS.index(confidence)]:,}" for each in found.class_facts},
        **{f"n_{kind}": f"{number:,}" for kind, number in kinds.items()},
        **{f"cut_{kind}": _cut(KINDS[kind], shown[kind], kinds[kind]) for kind in KINDS},
        **{f"{key}_text": todo[key].text if key in todo else "" for key in NEXT},
        **{f"{key}_command": todo[key].command if key in todo else "" for key in NEXT},
    }


def for_the_script(found: Facts) -> dict[str, Any]:
    """All of it, compact: ``levels`` has a row a threshold, of places in ``words``, in the order of ``names``."""
    told = [tell(found, step) for step in STEPS]
    words: dict[str, int] = {}
    levels = [[words.setdefault(text, len(words)) for text in at.values()] for at in told]
    return {"steps": STEPS, "names": list(told[0]), "words": list(words), "levels": levels}


def _cut(kind: str, shown: int, number: int) -> str:
    if shown == number:
        return ""
    cut = f"{shown:,} of {plural(number, 'item')}, the most doubtful of each kind"
    return f"{kind}: the page has {cut}; consensus.csv has all."
