"""Choose the items that a person should review, and explain the label of each.

An item needs review for one of three reasons, which depend on the threshold that the reader chooses:

- "open": it has labels, and its confidence is below the threshold;
- "overruled": it is accepted, but another class has more labels;
- "unlabelled": it has no labels, and the classifier's confidence is below the threshold.

The page contains the most uncertain items of each kind and shows those that need review at the chosen threshold. If
there are too many, items whose consensus class nobody chose come first. Uncertainty is the expected error that a
certain answer would remove; `crowdshot next` also takes into account who would answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdshot.formatting import apart, clean, named_annotator
from crowdshot.labels import asking
from crowdshot.labels.annotator_flags import useful_questions
from crowdshot.labels.consensus import THRESHOLD, Floats, review_kinds, uncertainty
from crowdshot.labels.duplicate_annotators import compare_pairs, predictable_answers
from crowdshot.labels.label_sets import yes_no_questions
from crowdshot.report.page.basis import Basis

if TYPE_CHECKING:
    from crowdshot.classifier.diagnostics import Check


# ---- items to review ----

RELIABLE = 0.8  # least estimated accuracy of a reliable annotator
MOST = 60  # items of each kind
HIGHEST = 0.99  # the highest threshold that a reader can choose
VOTERS = 6  # annotators named for each class
LIKELY = 3  # classes shown with their probability, chosen or not
LONGEST = 2_000  # characters of a text
HARDLY = 0.005  # least probability of a class that is shown though nobody chose it
NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")


class Guess(NamedTuple):
    """A class with its probability and the annotators who chose it: the first names, and the number of others."""

    label: int
    probability: float
    names: Sequence[str] = ()
    more: int = 0


class Votes(NamedTuple):
    """The labels of an item: whether each annotator for the consensus is reliable, and reliable dissenters' classes."""

    agreeing: Sequence[bool]
    dissenting: int
    reliable_dissent: Sequence[str]


class Item(NamedTuple):
    """An item to review.

    ``guesses`` are the probable or chosen classes, the most probable first. ``predicted`` is the classifier's
    prediction without the labels of the item. ``unchosen`` means that no annotator chose the consensus class.
    """

    row: int
    name: str
    labelled: bool
    overruled: bool
    confidence: float
    uncertainty: float
    guesses: list[Guess]
    predicted: Guess | None
    unchosen: bool
    reason: str = ""

    def kind(self, accepted: float = THRESHOLD) -> str:
        """Return why the item needs review at this threshold, or "accepted"."""
        if self.confidence < accepted:
            return "open" if self.labelled else "unlabelled"
        return "overruled" if self.overruled else "accepted"


def reliable(basis: Basis) -> NDArray[np.bool_]:
    """Return which annotators (R,) are reliable, each judged without their own labels."""
    accuracy = basis.people.set_index(basis.annotations.columns.annotator)["accuracy"]
    return np.asarray(accuracy.reindex(basis.annotations.annotators).to_numpy() >= RELIABLE)


def explain(votes: Votes, predicted: str | None, thing: str) -> str:
    """Explain the label of an item by its votes and by the classifier's prediction without them.

    >>> explain(Votes([True, True, False], 1, []), "cat", "image")
    "3 of 4 annotators chose this class (2 reliable). The image model supports 'cat'."
    >>> explain(Votes([], 2, ["coast", "coast"]), "forest", "image")
    "No annotator chose this class. Two reliable annotators chose 'coast'; the image model supports 'forest'."
    """
    model = f"{thing.removesuffix('s')} model"
    if not votes.agreeing and not votes.dissenting:
        return "" if predicted is None else f"No annotator labelled this item: the label comes from the {model}."
    evidence = [_dissent(votes.reliable_dissent)] if votes.reliable_dissent else []
    if predicted is not None:
        evidence.append(f"{'the' if evidence else 'The'} {model} supports '{predicted}'")
    return " ".join(f"{sentence}." for sentence in (_support(votes), "; ".join(evidence)) if sentence)


def _support(votes: Votes) -> str:
    n, n_reliable = len(votes.agreeing), sum(votes.agreeing)
    total = n + votes.dissenting
    if n == 0:
        return "No annotator chose this class"
    if n == 1:
        subject = "The only annotator" if total == 1 else f"One of {total} annotators"
        return f"{subject} chose this class ({'reliable' if n_reliable else 'not reliable'})"
    subject = f"All {n} annotators" if n == total else f"{n} of {total} annotators"
    how_many = "none" if n_reliable == 0 else "all" if n_reliable == n else str(n_reliable)
    return f"{subject} chose this class ({how_many} reliable)"


def _dissent(classes: Sequence[str]) -> str:
    n = len(classes)
    who = f"{NUMBERS[n] if n < len(NUMBERS) else n} reliable annotator{'' if n == 1 else 's'}"
    return f"{who} chose '{classes[0]}'" if len(set(classes)) == 1 else f"{who} chose other classes"


def items_to_review(basis: Basis) -> list[int]:
    """Return the items that need review at any threshold: labelled ones first, then by uncertainty."""
    scores = uncertainty(basis.posterior)
    masks = review_kinds(basis.confidence, basis.labelled, basis.overruled, HIGHEST)
    masks["overruled"] = basis.labelled & basis.overruled
    chosen: set[int] = set()
    for mask in masks.values():
        rows = np.flatnonzero(mask)
        chosen.update(rows[np.lexsort((-scores[rows], ~basis.unchosen[rows]))][:MOST].tolist())
    rows = np.array(sorted(chosen), dtype=np.int64)
    order: list[int] = rows[np.lexsort((-scores[rows], ~basis.labelled[rows]))].tolist()
    return order


def describe_items(basis: Basis, wanted: Sequence[int], check: Check | None, thing: str = "image") -> list[Item]:
    """Return the details of the wanted items; ``thing`` is "image", "text" or "features"."""
    scores, overruled = uncertainty(basis.posterior), basis.overruled
    names, votes = _votes(basis, wanted)
    predicted = {**dict(zip(check.rows.tolist(), check.probabilities, strict=True)), **check.besides} if check else {}
    classes = basis.annotations.classes
    return [
        Item(
            row=i,
            name=basis.name(i),
            labelled=bool(basis.labelled[i]),
            overruled=bool(overruled[i]),
            confidence=float(basis.confidence[i]),
            uncertainty=float(scores[i]),
            guesses=_guesses(basis.posterior[i], names[i]),
            predicted=_guesses(predicted[i], {})[0] if i in predicted else None,
            unchosen=bool(basis.unchosen[i]),
            reason=explain(votes[i], apart(classes[predicted[i].argmax()]) if i in predicted else None, thing),
        )
        for i in wanted
    ]


def _votes(basis: Basis, wanted: Sequence[int]) -> tuple[dict[int, dict[int, list[str]]], dict[int, Votes]]:
    """Return, for each wanted item, the annotators of each class by name, and its votes."""
    ann, is_reliable = basis.annotations, reliable(basis)
    names: dict[int, dict[int, list[str]]] = {i: {} for i in wanted}
    agreeing: dict[int, list[bool]] = {i: [] for i in wanted}
    dissenting = dict.fromkeys(wanted, 0)
    reliable_dissent: dict[int, list[str]] = {i: [] for i in wanted}
    for row in np.flatnonzero(np.isin(ann.item, wanted)):
        item, label, annotator = int(ann.item[row]), int(ann.label[row]), ann.annotator[row]
        names[item].setdefault(label, []).append(clean(ann.annotators[annotator], 60))
        if label == basis.label[item]:
            agreeing[item].append(bool(is_reliable[annotator]))
            continue
        dissenting[item] += 1
        if is_reliable[annotator]:
            reliable_dissent[item].append(apart(ann.classes[label]))
    return names, {i: Votes(agreeing[i], dissenting[i], reliable_dissent[i]) for i in wanted}


def excerpt(text: str) -> str:
    """Return the beginning of a text, line by line, without characters that a page cannot hold."""
    lines = [clean(line, LONGEST) for line in text[:LONGEST].splitlines()]
    return "\n".join(lines) + ("…" if len(text) > LONGEST else "")


def _guesses(posterior: Floats, names: Mapping[int, list[str]]) -> list[Guess]:
    """Return the classes that are probable or were chosen, the most probable first."""
    order = np.argsort(-posterior, kind="stable")
    likely = [int(k) for k in order[:LIKELY] if posterior[k] >= HARDLY]
    return [
        Guess(k, float(posterior[k]), names.get(k, [])[:VOTERS], len(names.get(k, [])[VOTERS:]))
        for k in [*likely, *(int(k) for k in order if k in names and k not in likely)]
    ]


# ---- questions to ask next ----

ROUND = 100  # most questions in a round: their answers change which questions are best afterwards


class Asked(NamedTuple):
    """The numbers of questions and of items that they are about, and the questions for each annotator by name."""

    questions: int
    items: int
    people: list[tuple[str, int]]


def plan_round(n_open: int, fully_labelled: Floats, confidence: float = THRESHOLD) -> tuple[int, int, int]:
    """Return the numbers of open items, of those that every annotator has labelled, and of questions in a round."""
    exhausted = int((fully_labelled < confidence).sum())
    return n_open, exhausted, min(n_open - exhausted, ROUND)


def budget_of(questions: int, price: float) -> float:
    """Return the cost of questions of this mean price, as the recommended command has it."""
    return float(f"{questions * price:.6g}")


def ask_next(basis: Basis, budget: float, prices: Sequence[float] = ()) -> Asked:
    """Return what `crowdshot next` would ask with this budget and the costs of each annotator's answers (R,)."""
    if not budget:
        return Asked(0, 0, [])
    ann = basis.annotations
    price = np.array(prices) if len(prices) else np.ones(ann.n_annotators)
    parts, closed = [(ann, basis.posterior)], (ann.item, ann.annotator)
    can = np.ones(ann.n_annotators, dtype=bool)
    if basis.several:
        parts = yes_no_questions(ann, basis.posterior)
    elif ann.n_classes > 1:
        can = useful_questions(basis.judged)
        redundant = predictable_answers(ann, compare_pairs(ann, basis.posterior))
        closed = (np.append(ann.item, redundant[0]), np.append(ann.annotator, redundant[1]))
    history = np.zeros((ann.n_annotators, 2)) if basis.history is None else basis.history
    posterior = asking.at_once([p for _, p in parts])
    confusion = asking.at_once([asking.expected_confusion(*part, history) for part in parts])
    most = np.where(can, asking.fair_share(budget / price[can].min(), int(can.sum())), 0)
    n_labels = np.bincount(ann.annotator, minlength=ann.n_annotators) + history.sum(1)
    first = asking.first_limits(n_labels, most)
    questions = asking.choose(posterior, confusion, closed, budget, price, most, first=first)
    asked = Counter(question.annotator for question in questions).most_common()
    people = [(named_annotator(ann.annotators[annotator]), number) for annotator, number in asked]
    return Asked(len(questions), len({question.item for question in questions}), people)


def confidence_if_fully_labelled(basis: Basis) -> Floats:
    """Return the confidence of the items that every annotator has labelled."""
    n_people = len(np.unique(basis.annotations.annotator))
    return np.asarray(basis.confidence[basis.votes.sum(1) >= n_people])
