"""Names that people write in several ways."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from crowdshot.labels.annotations import Annotations
from crowdshot.labels.positions import Positions


class Twins(NamedTuple):
    """Spellings of what may be one name, the most frequent first, and how many labels have each.

    ``of``: what they name, "labels" or "annotators" (or "items").
    """

    of: str
    names: tuple[str, ...]
    counts: tuple[int, ...]

    def __str__(self) -> str:
        """The labels 'cat', 'Cat' and 'CAT'"""
        return f"the {self.of} {' and '.join([', '.join(quoted(self.names)[:-1]), quoted(self.names)[-1]])}"


def near_twins(ann: Annotations) -> list[Twins]:
    """Labels, and annotators, that differ in case, spaces or width alone: 'Cat' and 'cat'.

    ``merge_case=True`` makes one of such labels, ``names=`` of such annotators.
    """
    return alike("labels", ann.classes, ann.label) + alike("annotators", ann.annotators, ann.annotator)


def alike(of: str, ids: Any, positions: Positions) -> list[Twins]:
    """Groups of ids that may be one; ``positions`` (L,): which of them each label has."""
    counts = dict(zip(map(str, ids), np.bincount(positions, minlength=len(ids)).tolist(), strict=True))
    groups: dict[str, list[str]] = {}
    for name in counts:
        groups.setdefault(fold(name), []).append(name)
    twins = [sorted(group, key=lambda name: -counts[name]) for group in groups.values() if len(group) > 1]
    return [Twins(of, tuple(group), tuple(counts[name] for name in group)) for group in twins]


def fold(name: str) -> str:
    """What names that differ in case, spaces or width alone have in common; 7.0 is a 7."""
    return as_whole(unicodedata.normalize("NFKC", " ".join(name.split())).casefold())


def as_whole(label: str) -> str:
    """A whole number without its decimal point, any other label as it is."""
    return re.sub(r"^(-?\d+)\.0*$", r"\1", label)


def quoted(names: Sequence[str]) -> list[str]:
    """As Python writes them; by their codes where some differ only in how an accent is stored."""
    look_alike = len({unicodedata.normalize("NFC", name) for name in names}) < len(names)
    return [ascii(name) if look_alike else repr(name) for name in names]
