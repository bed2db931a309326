"""Parse and spell answers that name several labels, such as "cat;dog"."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError, Use
from crowdshot.formatting import show
from crowdshot.io.cells import trim
from crowdshot.labels.indexing import ordered, positions
from crowdshot.labels.spelling import Spelling, fold

JOINED = ";"
Split = Callable[[str], list[str]]


def parts(label: str, separators: str = r";|") -> list[str]:
    """Return the labels that an answer names, in their order and without repetitions."""
    return list(dict.fromkeys(filter(None, (trim(part) for part in re.split(f"[{separators}]", label)))))


def split_of(labels: Iterable[str]) -> Split:
    """Return the function that splits answers: at semicolons and bars, or at commas if there are none of these."""
    separators = ";|" if any(re.search("[;|]", label) for label in labels) else ","
    return lambda label: parts(label, separators)


def refuse_sets(labels: Collection[str], source: str) -> None:
    """Raise an error if a label with a semicolon or a bar seems to name several labels.

    That is the case if one of its parts is a label too, or a part of another one.
    """
    whole = [str(label) for label in labels]
    if not any(re.search("[;|]", label) for label in whole):
        return
    seen = Counter(fold(part) for label in whole for part in parts(label))
    for label in whole:
        if re.search("[;|]", label) and any(seen[fold(part)] > 1 for part in parts(label)):
            raise CrowdshotError(
                f"has the label {show(label)}, and a part of it is a label too",
                where=source,
                found=label,
                expected="one label per answer",
                hint=Use("if it names several labels", multi_label=True) | Use("if it is one", categories=True),
            )


def spell_each(spelling: Spelling, split: Split) -> Spelling:
    """Return the function that spells answers with several labels: each label once, in order, joined by semicolons."""

    def spelled(label: str) -> str:
        names = {spelling(part) for part in split(label)} - {""}
        return JOINED.join(ordered(np.array(list(names), dtype=object)))

    return spelled


def names_of(sets: Iterable[str]) -> NDArray[Any]:
    """Return all labels (K,) that the sets name, in order."""
    names = dict.fromkeys(part for label in sets for part in parts(label))
    return ordered(np.array(list(names), dtype=object))


def members(sets: Sequence[str] | NDArray[Any], names: NDArray[Any]) -> NDArray[np.bool_]:
    """Return an array (S, K): whether each set contains each name."""
    found = np.zeros((len(sets), len(names)), dtype=bool)
    for row, label in enumerate(sets):
        found[row, positions(names, parts(label))] = True
    return found
