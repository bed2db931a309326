"""Items that need a person: those that people labelled first, the most helpful first.

How much an answer would help is the item's `doubt`, which is what a sure answer takes away (`crowdshot next` goes
further and weighs who would answer). Three kinds need one: labelled items that are not accepted ("open"), items that are
accepted, but not on what most said of them ("overruled"), and unlabelled ones of which the classifier is not sure
("unlabelled"). Which kind an item is depends on the threshold, which the reader chooses: the page has the most doubtful
items of each, and shows those that are of a kind. Items whose consensus nobody said are taken before others where not
all can be shown, and say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdshot.classifier.diagnostics import Check
from crowdshot.formatting import clean
from crowdshot.labels.confidence import THRESHOLD, uncertainty
from crowdshot.report.page.basis import Basis, Floats

# ---- reasons ------------------------------------------------------------
#
# What decided an item's label, in a sentence: how many people say so, how many of them are reliable, and its looks.


RELIABLE = 0.8  # of their labels right


def reliable(basis: Basis) -> NDArray[np.bool_]:
    """(R,): annotators who are right often enough; each is judged without their own labels."""
    found = basis.clf.annotators_.set_index(basis.annotations.columns.annotator)["accuracy"]
    return np.asarray(found.reindex(basis.annotations.annotators).to_numpy() >= RELIABLE)


def say(for_it: Sequence[bool], against: Sequence[bool], looks_agree: bool | None, thing: str) -> str:
    """Of those who said the consensus label and of those who did not: whether each is reliable.

    ``looks_agree``: whether the item itself, told by other items, is taken for the same; None where that is not known.

    >>> say([True, True, False], [False], True, "image")
    '3 of 4 people say so, 2 of them reliable; the image agrees.'
    """
    everybody, doubting = len(for_it) + len(against), sum(against)
    parts = [_said(for_it, everybody)] if for_it else ["nobody says so"] if against else []
    if doubting:
        parts.append(f"{doubting} reliable {'person says' if doubting == 1 else 'people say'} otherwise")
    if looks_agree is not None:
        s = "" if thing.endswith("s") else "s"
        verb = f"agree{s}" if looks_agree else f"do{'es' if s else ''} not"
        parts.append(f"the {thing} {verb}" if everybody else f"nobody labelled it, so the {thing} decide{s}")
    sentence = "; ".join(parts)
    return sentence and f"{sentence[0].upper()}{sentence[1:]}."


def _said(for_it: Sequence[bool], everybody: int) -> str:
    n, sure = len(for_it), sum(for_it)
    if n == 1:
        who = "the one person who labelled it" if everybody == 1 else f"1 of {everybody} people"
        return f"{who} says so{', a reliable one' if sure else ''}"
    who = "everybody says so" if n == everybody else f"{n} of {everybody} people say so"
    return f"{who}, {'none' if not sure else 'all' if sure == n else sure} of them reliable"


# ---- items ------------------------------------------------------------


MOST = 60  # of each kind
HIGHEST = 0.99  # a threshold above which nobody asks
VOTERS = 6  # names after each answer
LIKELY = 3  # classes whose probability is shown, said or not
LONGEST = 2_000  # characters of a text
HARDLY = 0.005  # less probable classes are not worth a line
KINDS = {
    "open": "Not accepted",
    "overruled": "Settled against most labels",
    "unlabelled": "Nobody labelled it",
}


class Guess(NamedTuple):
    """A class, how probable it is, and who said it; of many the first, and how many more."""

    label: int
    probability: float
    names: Sequence[str] = ()
    more: int = 0


class Item(NamedTuple):
    """``guesses``: what is probable or was said, the likeliest first. ``unsaid``: the consensus is none of the labels.

    ``alone``: what the classifier says without the item's labels. ``decided``: by what, in words.
    """

    row: int
    name: str
    labelled: bool
    overruled: bool
    confidence: float
    doubt: float
    guesses: list[Guess]
    alone: Guess | None
    unsaid: bool
    decided: str = ""

    def kind(self, accepted: float = THRESHOLD) -> str:
        """Why it needs a person at this threshold, or "accepted"."""
        if self.confidence < accepted:
            return "open" if self.labelled else "unlabelled"
        return "overruled" if self.overruled else "accepted"


def is_overruled(basis: Basis) -> NDArray[np.bool_]:
    """(N,): labelled, and another class than the likeliest has more labels, though nobody knows that it is so."""
    return np.asarray((basis.votes_for(basis.label) < basis.votes.max(1)) & ~basis.known)


def need_a_person(basis: Basis) -> list[int]:
    """The items to be shown, at one threshold or another: labelled ones first, and then by doubt."""
    doubts = uncertainty(basis.posterior)
    doubtful = basis.confidence < HIGHEST
    chosen: set[int] = set()
    for mask in (basis.labelled & doubtful, is_overruled(basis), ~basis.labelled & doubtful):
        rows = np.flatnonzero(mask)
        chosen.update(rows[np.lexsort((-doubts[rows], ~basis.unsaid[rows]))][:MOST].tolist())
    rows = np.array(sorted(chosen), dtype=np.int64)
    order: list[int] = rows[np.lexsort((-doubts[rows], ~basis.labelled[rows]))].tolist()
    return order


def in_detail(basis: Basis, wanted: Sequence[int], check: Check | None, thing: str = "image") -> list[Item]:
    """``thing``: what the items are called."""
    ann, doubts, overruled = basis.annotations, uncertainty(basis.posterior), is_overruled(basis)
    said: dict[int, dict[int, list[str]]] = {i: {} for i in wanted}
    sides: dict[int, tuple[list[bool], list[bool]]] = {i: ([], []) for i in wanted}  # for the consensus, and against
    is_reliable = reliable(basis)
    for row in np.flatnonzero(np.isin(ann.item, wanted)):
        against = int(ann.label[row] != basis.label[ann.item[row]])
        sides[int(ann.item[row])][against].append(bool(is_reliable[ann.annotator[row]]))
        answers = said[int(ann.item[row])].setdefault(int(ann.label[row]), [])
        answers.append(clean(ann.annotators[ann.annotator[row]], 60))
    alone = {**dict(zip(check.rows.tolist(), check.probabilities, strict=True)), **check.besides} if check else {}
    return [
        Item(
            row=i,
            name=basis.name(i),
            labelled=bool(basis.labelled[i]),
            overruled=bool(overruled[i]),
            confidence=float(basis.confidence[i]),
            doubt=float(doubts[i]),
            guesses=_guesses(basis.posterior[i], said[i]),
            alone=_guesses(alone[i], {})[0] if i in alone else None,
            unsaid=bool(basis.unsaid[i]),
            decided=say(*sides[i], bool(alone[i].argmax() == basis.label[i]) if i in alone else None, thing),
        )
        for i in wanted
    ]


def excerpt(text: str) -> str:
    """The beginning of a text, line by line, without what no page can hold."""
    lines = [clean(line, LONGEST) for line in text[:LONGEST].splitlines()]
    return "\n".join(lines) + ("…" if len(text) > LONGEST else "")


def _guesses(posterior: Floats, said: Mapping[int, list[str]]) -> list[Guess]:
    """The classes that are probable at all or that somebody said, the likeliest first."""
    order = np.argsort(-posterior, kind="stable")
    likely = [int(k) for k in order[:LIKELY] if posterior[k] >= HARDLY]
    return [
        Guess(k, float(posterior[k]), said.get(k, [])[:VOTERS], len(said.get(k, [])[VOTERS:]))
        for k in [*likely, *(int(k) for k in order if k in said and k not in likely)]
    ]
