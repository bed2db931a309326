"""What to do next: a few sentences, and the commands that do it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from crowdshot.classifier.feature_learners import SEVERAL
from crowdshot.formatting import apart, percent, plural
from crowdshot.labels import aggregation, asking
from crowdshot.labels.annotator_flags import useful_questions
from crowdshot.labels.confidence import THRESHOLD
from crowdshot.labels.spelling import and_so
from crowdshot.report import summary
from crowdshot.report.page.basis import Basis, Floats
from crowdshot.report.page.thresholds import nearest

if TYPE_CHECKING:
    from crowdshot.report.page.facts import Facts

MOST_STEPS, FEWEST_STEPS = 4, 2
ROUND = 100  # questions at a time at most: every answer also tells who can be believed
NAMED = 3  # people
CHECK = (
    "Have a hundred of the accepted items checked by somebody you trust: mistakes that all annotators share cannot be"
    " seen in their labels."
)


class Step(NamedTuple):
    """``key``: by which the page knows it again when the threshold changes."""

    key: str
    text: str
    command: str = ""


class Asked(NamedTuple):
    """What `crowdshot next` will ask: so many questions about so many items, and who gets how many of them."""

    questions: int
    items: int
    people: list[tuple[str, int]]


def to_ask(n_open: int, everyone_asked: Floats, confidence: float = THRESHOLD) -> tuple[int, int, int]:
    """How many items are open, about how many of them nobody is left to ask, and how many questions make a round."""
    alone = int((everyone_asked < confidence).sum())
    return n_open, alone, min(n_open - alone, ROUND)


def ask_next(basis: Basis, budget: int) -> Asked:
    """What `crowdshot next --budget` asks."""
    if not budget:
        return Asked(0, 0, [])
    ann = basis.annotations
    parts = aggregation.questions(ann, basis.posterior, bool(basis.clf.settings_.get(SEVERAL)))
    posterior = asking.at_once([p for _, p in parts])
    confusion = asking.at_once([asking.expected_confusion(*part) for part in parts])
    can = useful_questions(basis.judged)
    most = np.where(can, asking.fair_share(budget, int(can.sum())), 0)
    questions = asking.choose(posterior, confusion, (ann.item, ann.annotator), budget, most=most)
    asked = Counter(question.annotator for question in questions).most_common()
    people = [(apart(ann.annotators[who]), number) for who, number in asked]
    return Asked(len(questions), len({question.item for question in questions}), people)


def with_everyone_asked(basis: Basis) -> Floats:
    """The confidence of labelled items about which nobody is left to ask."""
    n_people = len(np.unique(basis.annotations.annotator))
    return np.asarray(basis.confidence[basis.votes.sum(1) >= n_people])


def steps(found: Facts, confidence: float = THRESHOLD) -> list[Step]:
    """Two to four, the most urgent first."""
    first = [_merge(found), _look(found, confidence), _ask(found, confidence)]
    urgent = [step for step in [*first, _talk(found), _let_it_label(found, confidence)] if step is not None]
    if len(urgent) < FEWEST_STEPS:
        urgent.append(Step("check", CHECK))
    return urgent[:MOST_STEPS]


def _merge(found: Facts) -> Step | None:
    """Labels that may be one, and annotators."""
    twins = {
        of: [apart(and_so(each.names)) for each in found.run.twins if each.of == of] for of in ("labels", "annotators")
    }
    told = [f"Merge {_some(twins['labels'])}, if they mean the same."] if twins["labels"] else []
    if twins["annotators"]:
        who = _some(twins["annotators"])
        told.append(f"{who} may be one annotator: a table of annotators and names, given with --names, says so.")
    command = found.run.commands.get("merge", "") if twins["labels"] else ""
    return Step("merge", " ".join(told), command) if told else None


def _some(names: Sequence[str], between: str = "; ") -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return between.join(names[:NAMED]) + more


def _look(found: Facts, confidence: float) -> Step | None:
    kinds = found.of_kind(confidence)
    number = kinds["open"] + kinds["overruled"]
    if not number:
        return None
    shown = sum(item.kind(confidence) in ("open", "overruled") for item in found.items)
    which = f"the {shown:,} most doubtful of {number:,} items" if shown < number else _these(number)
    each = "it" if number == 1 else "each"
    text = f"Look at {which} yourself: accept or correct {each}, download corrections.csv, and let that count as truth."
    return Step("look", text, found.run.commands.get("gold", ""))


def _these(number: int) -> str:
    return "this one item" if number == 1 else f"these {number:,} items"


def _ask(found: Facts, confidence: float) -> Step | None:
    n_open, alone, budget = to_ask(found.of_kind(confidence)["open"], found.everyone_asked, confidence)
    if not n_open:
        return None
    if not budget:
        which = "it" if n_open == 1 else "them"
        return Step("ask", f"Find another person to ask about {_these(n_open)}: everyone has labelled {which}.")
    if confidence != THRESHOLD:
        text = f"Ask {plural(budget, 'question')}, as many as there are items that are not accepted"
        text += f", up to {ROUND} at a time" if budget == ROUND else ""
    elif found.asked.questions:
        asked = found.asked
        text = f"Ask {plural(asked.questions, 'question')} about {plural(asked.items, 'item')}: {_who(asked.people)}"
    else:
        return None
    if alone:
        text += f"; for {plural(alone, 'more item')} nobody is left to ask: find another person"
    text = f"{text}. {buy(found, confidence)}"
    command = found.run.commands.get("ask")
    return Step("ask", text, f"{command} --budget {budget}" if command else "")


def buy(found: Facts, confidence: float) -> str:
    """How many labels settle most items, in a sentence."""
    told = summary.until_accepted(nearest(found.curves, confidence).forecast._asdict())
    return f"{told[:1].upper()}{told[1:]}."


def _who(people: Sequence[tuple[str, int]]) -> str:
    """ "12 for Ann, 8 for Bob and 4 for 3 others"."""
    named = [f"{number:,} for {name}" for name, number in people[:NAMED]]
    rest = people[NAMED:]
    if rest:
        named.append(f"{sum(number for _, number in rest):,} for {plural(len(rest), 'other')}")
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def _talk(found: Facts) -> Step | None:
    flagged = [f"{apart(person.name)} ({person.flag.name})" for person in found.flagged if person.flag]
    pairs = {tuple(sorted((person.name, who.name))): who for person in found.people for who in person.alike}
    told = [f"Talk to {_some(flagged, ', ')}."] if flagged else []
    if pairs:
        (one, other), how = next(iter(pairs.items()))
        more = f" (and {plural(len(pairs) - 1, 'more pair')})" if len(pairs) > 1 else ""
        same = f"{how.same:,} of {plural(how.shared, 'item')}"
        told.append(f"Ask whether {apart(one)} and {apart(other)}{more} work apart: the same label of {same}.")
    return Step("talk", " ".join(told)) if told else None


def _let_it_label(found: Facts, confidence: float) -> Step | None:
    allowed = found.by_itself(confidence)
    if allowed is None:
        return None
    sure = f"where it is at least {percent(allowed.confidence)} sure"
    if found.n_unlabelled:
        text = f"Take the classifier's label of {allowed.number:,} of {plural(allowed.of, 'unlabelled item')}, {sure}"
        text += ": they are in consensus.csv. It can label new ones too."
    else:
        text = f"Let the classifier label new items, {sure}: about {percent(allowed.number / allowed.of)} of them."
    return Step("predict", text, found.run.commands.get("predict", ""))
