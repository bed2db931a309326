"""Items that need a person: those that people labelled first and, of each kind, the most helpful first.

How much an answer would help is the item's `doubt`, which is what a sure answer takes away (`crowdshot next` goes
further and weighs who would answer). Three kinds are shown: labelled items that are not settled, unlabelled ones of
which the classifier is not sure, and items that are settled, but not on what most said of them. Labelled items whose
consensus nobody said are among the first two or the last, are shown before others where not all can be, and say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from crowdshot.classifier.cross_check import Check
from crowdshot.labels.belief import doubt
from crowdshot.report.page.basis import Basis, Floats
from crowdshot.wording import clean

MOST = 60  # of each kind
VOTERS = 6  # names after each answer
LIKELY = 3  # classes whose probability is shown
HARDLY = 0.005  # less probable classes are not worth a line


class Guess(NamedTuple):
    label: int
    probability: float


class Vote(NamedTuple):
    label: int
    names: list[str]
    more: int


class Item(NamedTuple):
    """``alone``: what the classifier says without the item's labels. ``unsaid``: the consensus is none of them."""

    name: str
    kind: str
    doubt: float
    guesses: list[Guess]
    votes: list[Vote]
    alone: Guess | None
    unsaid: bool
    picture: str


def need_a_person(basis: Basis) -> tuple[dict[int, str], dict[str, int]]:
    """{item: kind} in the order of the page, and how many there are of each kind."""
    overruled = basis.votes_for(basis.label) < basis.votes.max(1)
    kinds = {
        "open": basis.labelled & ~basis.settled,
        "overruled": basis.labelled & basis.settled & overruled,
        "unlabelled": ~basis.labelled & ~basis.settled,
    }
    doubts, unsaid = doubt(basis.belief), basis.unsaid
    chosen: dict[int, str] = {}
    for kind, mask in kinds.items():
        rows = np.flatnonzero(mask)
        kept = rows[np.lexsort((-doubts[rows], ~unsaid[rows]))][:MOST]
        chosen |= {int(i): kind for i in kept[np.lexsort((kept, -doubts[kept]))]}
    return chosen, {kind: int(mask.sum()) for kind, mask in kinds.items()}


def in_detail(basis: Basis, wanted: Mapping[int, str], check: Check | None, pictures: Mapping[int, str]) -> list[Item]:
    ann, doubts = basis.annotations, doubt(basis.belief)
    said: dict[int, dict[int, list[str]]] = {i: {} for i in wanted}
    for row in np.flatnonzero(np.isin(ann.item, list(wanted))):
        answers = said[int(ann.item[row])].setdefault(int(ann.label[row]), [])
        answers.append(clean(ann.annotators[ann.annotator[row]], 60))
    alone = {int(i): p for i, p in zip(check.rows, check.probabilities, strict=True)} if check else {}
    return [
        Item(
            name=basis.names[i],
            kind=kind,
            doubt=float(doubts[i]),
            guesses=_guesses(basis.belief[i]),
            votes=[
                Vote(label, names[:VOTERS], len(names[VOTERS:]))
                for label, names in sorted(said[i].items(), key=lambda pair: -len(pair[1]))
            ],
            alone=_guesses(alone[i])[0] if i in alone else None,
            unsaid=bool(basis.unsaid[i]),
            picture=pictures.get(i, ""),
        )
        for i, kind in wanted.items()
    ]


def _guesses(belief: Floats) -> list[Guess]:
    """The classes that are probable at all, the likeliest first."""
    order = np.argsort(-belief, kind="stable")[:LIKELY]
    return [Guess(int(k), float(belief[k])) for k in order if belief[k] >= HARDLY]
