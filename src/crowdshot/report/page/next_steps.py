"""Recommend what to do next, as sentences with the commands that do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from crowdshot.formatting import apart, named_annotator, percent, plural
from crowdshot.labels.consensus import THRESHOLD
from crowdshot.labels.labels_needed import until_accepted
from crowdshot.labels.spelling import and_so
from crowdshot.report.folder_audit import recommend_threshold, why_none_accepted
from crowdshot.report.page.annotator_summaries import Person
from crowdshot.report.page.facts import Facts
from crowdshot.report.page.review_items import ROUND, budget_of, plan_round
from crowdshot.report.page.thresholds import describe_automatic, nearest

MOST_STEPS = 4  # besides the audit
NAMED = 3  # annotators named in a sentence
AUDITED = 50  # accepted items to check; with all of them right, at least 94 % of the accepted labels are


class Step(NamedTuple):
    """A recommendation; the page finds it by ``key`` when the threshold changes."""

    key: str
    text: str
    command: str = ""


def steps(found: Facts, confidence: float = THRESHOLD) -> list[Step]:
    """Return the steps, the most urgent first; the audit of accepted labels comes last."""
    first = [_merge(found), _review(found, confidence), _ask(found, confidence)]
    urgent = [step for step in [*first, _talk(found), _label_automatically(found, confidence)] if step is not None]
    return [*urgent[:MOST_STEPS], *[step for step in [_audit(found, confidence)] if step is not None]]


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
    number = sum(found.of_kind(confidence).values())
    if not number:
        return None
    shown = sum(item.kind(confidence) != "accepted" for item in found.items)
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
    return Step("ask", text, f"{command} --budget {budget_of(budget, found.run.price):.6g}" if command else "")


def forecast_sentence(found: Facts, confidence: float) -> str:
    """Return how many more labels are needed until most items are accepted."""
    text = until_accepted(nearest(found.curves, confidence).forecast)
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
    """Recommend talking to annotators who are flagged or below the minimum, and to pairs with the same answers."""
    signs = [(person.name, _signs(found, person)) for person in found.people]
    flagged = [f"{named_annotator(name)} ({', '.join(some)})" for name, some in signs if some]
    pairs = {tuple(sorted((person.name, other.name))): other for person in found.people for other in person.duplicates}
    sentences = [f"Talk to {_some(flagged, ', ')}."] if flagged else []
    if pairs:
        (one, other), match = next(iter(pairs.items()))
        more = f" (and {plural(len(pairs) - 1, 'more pair')})" if len(pairs) > 1 else ""
        same = f"they gave the same label to {match.same:,} of {plural(match.shared, 'item')}"
        sentences.append(
            f"Ask whether {named_annotator(one)} and {named_annotator(other)}{more} work independently: {same}."
        )
    return Step("talk", " ".join(sentences)) if sentences else None


def _signs(found: Facts, person: Person) -> list[str]:
    """Return why to talk to an annotator: flags, or else an interval below the minimum accuracy."""
    flags = [*([person.flag.name] if person.flag else []), *found.signs(person)]
    below = person.high < found.run.min_accuracy
    return flags or ([f"{percent(person.accuracy)} correct"] if below else [])


def _audit(found: Facts, confidence: float) -> Step | None:
    """Recommend to check a random sample of accepted labels, or what follows from the sample that was checked."""
    if found.audit is not None:
        return None if found.audit.keeps is found.audit.overall else Step("check", recommend_threshold(found.audit))
    level = found.accepted(confidence)
    number = level.labelled + level.unlabelled - found.n_known  # known items are accepted, and not checked
    if not number:
        why = "Only items whose true label is known are accepted."
        why = why if found.n_known else why_none_accepted(found.unanimous, confidence)
        return Step(
            "check", f"{why} Collect more labels, or lower the threshold and check a sample of the accepted items."
        )
    which = f"{AUDITED} random accepted items" if number > AUDITED else f"all {plural(number, 'accepted item')}"
    if found.n_known:
        which += " without a known true label"
    elif level.unlabelled:
        which += f" (of {level.labelled} labelled and {level.unlabelled} unlabelled ones)"
    text = f"Have {which} checked by somebody you trust: mistakes that annotators share are not visible in the labels."
    command = found.run.commands.get("audit")
    options = f" --sample {min(number, AUDITED)}" + ("" if confidence == THRESHOLD else f" --threshold {confidence:g}")
    return Step("check", text, f"{command}{options}" if command else "")


def _label_automatically(found: Facts, confidence: float) -> Step | None:
    allowed = found.automatic(confidence)
    if allowed is None:
        return None
    which = describe_automatic(allowed, confidence, found.n_unlabelled)
    text = f"Let the classifier label automatically: {which}."
    if found.n_unlabelled:
        text += f" These labels are in {found.run.table}."
    return Step("predict", text, found.run.commands.get("predict", ""))
