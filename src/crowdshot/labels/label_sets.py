"""Answers that name several labels at once: sets of labels, written "cat;dog"."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import show
from crowdshot.io.cells import trim
from crowdshot.labels.indexing import ordered, positions
from crowdshot.labels.spelling import Spelling, fold

JOINED = ";"
Split = Callable[[str], list[str]]


def parts(label: str, separators: str = r";|") -> list[str]:
    """What a label names, in its order, each once."""
    return list(dict.fromkeys(filter(None, (trim(part) for part in re.split(f"[{separators}]", label)))))


def split_of(labels: Iterable[str]) -> Split:
    """How labels that name several are split: at semicolons and bars or, where nobody wrote any, at commas."""
    separators = ";|" if any(re.search("[;|]", label) for label in labels) else ","
    return lambda label: parts(label, separators)


def refuse_sets(labels: Collection[str], source: str) -> None:
    """A label with a semicolon or a bar, of which a part is a label too or a part of another one, names several."""
    whole = [str(label) for label in labels]
    if not any(re.search("[;|]", label) for label in whole):
        return
    seen = Counter(fold(part) for label in whole for part in parts(label))
    for label in whole:
        if re.search("[;|]", label) and any(seen[fold(part)] > 1 for part in parts(label)):
            raise CrowdshotError(
                f"{source} has the label {show(label)}, of which a part is a label too, expected one label an answer;"
                " multi_label=True takes it for several, categories=True for one."
            )


def spell_each(spelling: Spelling, split: Split) -> Spelling:
    """What a whole set is called, given what its labels are called: in their order, each once."""

    def called(label: str) -> str:
        names = {spelling(part) for part in split(label)} - {""}
        return JOINED.join(ordered(np.array(list(names), dtype=object)))

    return called


def names_of(sets: Iterable[str]) -> NDArray[Any]:
    """(K,) all that is named in them, in order."""
    names = dict.fromkeys(part for label in sets for part in parts(label))
    return ordered(np.array(list(names), dtype=object))


def members(sets: Sequence[str] | NDArray[Any], names: NDArray[Any]) -> NDArray[np.bool_]:
    """(S, K): which set has which of the names."""
    found = np.zeros((len(sets), len(names)), dtype=bool)
    for row, label in enumerate(sets):
        found[row, positions(names, parts(label))] = True
    return found
