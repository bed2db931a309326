"""Recommend what to do next, as sentences with the commands that do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from crowdshot.formatting import apart, percent, plural
from crowdshot.labels.consensus import THRESHOLD
from crowdshot.labels.spelling import and_so
from crowdshot.report import summary
from crowdshot.report.page.facts import Facts
from crowdshot.report.page.review_items import ROUND, plan_round
from crowdshot.report.page.thresholds import nearest

MOST_STEPS, FEWEST_STEPS = 4, 2
NAMED = 3  # annotators named in a sentence
CHECK = (
    "Let somebody you trust check a hundred accepted items: mistakes that all annotators share are not visible in the"
    " labels."
)


class Step(NamedTuple):
    """A recommendation; the page finds it by ``key`` when the threshold changes."""

    key: str
    text: str
    command: str = ""


def steps(found: Facts, confidence: float = THRESHOLD) -> list[Step]:
    """Return two to four steps, the most urgent first."""
    first = [_merge(found), _review(found, confidence), _ask(found, confidence)]
    urgent = [step for step in [*first, _talk(found), _label_automatically(found, confidence)] if step is not None]
    if len(urgent) < FEWEST_STEPS:
        urgent.append(Step("check", CHECK))
    return urgent[:MOST_STEPS]


def _merge(found: Facts) -> Step | None:
    """Recommend merging labels, and annotators, whose names differ only in spelling."""
    duplicates = {
        kind: [apart(and_so(each.names)) for each in found.run.near_duplicates if each.of == kind]
        for kind in ("labels", "annotators")
    }
    sentences = [f"Merge {_some(duplicates['labels'])} if they mean the same."] if duplicates["labels"] else []
    if duplicates["annotators"]:
        names = _some(duplicates["annotators"])
        sentences.append(f"{names} may be the same annotator. If so, merge the names with a table passed to --names.")
    command = found.run.commands.get("merge", "") if duplicates["labels"] else ""
    return Step("merge", " ".join(sentences), command) if sentences else None


def _some(names: Sequence[str], between: str = "; ") -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return between.join(names[:NAMED]) + more


def _review(found: Facts, confidence: float) -> Step | None:
    kinds = found.of_kind(confidence)
    number = kinds["open"] + kinds["overruled"]
    if not number:
        return None
    shown = sum(item.kind(confidence) in ("open", "overruled") for item in found.items)
    which = f"the {shown:,} most uncertain of {number:,} items" if shown < number else _these(number)
    each = "its label" if number == 1 else "each label"
    text = f"Review {which} yourself: confirm or correct {each}, download corrections.csv, and use it as true labels."
    return Step("look", text, found.run.commands.get("gold", ""))


def _these(number: int) -> str:
    return "this one item" if number == 1 else f"these {number:,} items"


def _ask(found: Facts, confidence: float) -> Step | None:
    n_open, exhausted, budget = plan_round(found.of_kind(confidence)["open"], found.fully_labelled, confidence)
    if not n_open:
        return None
    if not budget:
        which = "it" if n_open == 1 else "them"
        text = f"Find another annotator for {_these(n_open)}: all annotators have labelled {which} already."
        return Step("ask", text)
    if confidence != THRESHOLD:
        limit = f" (at most {ROUND} at a time)" if budget == ROUND else ""
        text = f"Ask {plural(budget, 'question')}, one for each item that is not accepted{limit}"
    elif found.asked.questions:
        asked = found.asked
        text = f"Ask {plural(asked.questions, 'question')} about {plural(asked.items, 'item')}: {_shares(asked.people)}"
    else:
        return None
    if exhausted:
        text += f". All annotators have labelled {plural(exhausted, 'more item')} already: find another annotator"
    text = f"{text}. {forecast_sentence(found, confidence)}"
    command = found.run.commands.get("ask")
    return Step("ask", text, f"{command} --budget {budget}" if command else "")


def forecast_sentence(found: Facts, confidence: float) -> str:
    """Return how many more labels are needed until most items are accepted."""
    text = summary.until_accepted(nearest(found.curves, confidence).forecast)
    return f"{text[:1].upper()}{text[1:]}."


def _shares(people: Sequence[tuple[str, int]]) -> str:
    """Return the questions for each annotator.

    >>> _shares([("Ann", 12), ("Bob", 8)])
    '12 for Ann and 8 for Bob'
    """
    named = [f"{number:,} for {name}" for name, number in people[:NAMED]]
    rest = people[NAMED:]
    if rest:
        named.append(f"{sum(number for _, number in rest):,} for {plural(len(rest), 'other')}")
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def _talk(found: Facts) -> Step | None:
    """Recommend talking to flagged annotators and to pairs with the same answers."""
    flagged = [f"{apart(person.name)} ({person.flag.name})" for person in found.flagged if person.flag]
    pairs = {tuple(sorted((person.name, other.name))): other for person in found.people for other in person.duplicates}
    sentences = [f"Talk to {_some(flagged, ', ')}."] if flagged else []
    if pairs:
        (one, other), match = next(iter(pairs.items()))
        more = f" (and {plural(len(pairs) - 1, 'more pair')})" if len(pairs) > 1 else ""
        same = f"they gave the same label to {match.same:,} of {plural(match.shared, 'item')}"
        sentences.append(f"Ask whether {apart(one)} and {apart(other)}{more} work independently: {same}.")
    return Step("talk", " ".join(sentences)) if sentences else None


def _label_automatically(found: Facts, confidence: float) -> Step | None:
    allowed = found.automatic(confidence)
    if allowed is None:
        return None
    limit = f"a confidence of {percent(allowed.confidence)} or more"
    if found.n_unlabelled:
        which = f"{allowed.number:,} of {plural(allowed.of, 'unlabelled item')}"
        text = f"Use the classifier's labels for {which}, those with {limit}: they are in consensus.csv."
        text += " The classifier can also label new items."
    else:
        share = percent(allowed.number / allowed.of)
        text = f"Let the classifier label new items if it has {limit}: about {share} of them."
    return Step("predict", text, found.run.commands.get("predict", ""))
