"""What decided an item's label, in a sentence: how many people say so, how many of them are reliable, and its looks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crowdshot.report.page.basis import Basis

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
