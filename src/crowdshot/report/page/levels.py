"""What is settled from which confidence on: counted at every threshold that a reader can choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from crowdshot.classifier.cross_check import Check
from crowdshot.labels.belief import SETTLED, Share
from crowdshot.report.page.basis import Basis
from crowdshot.report.page.items import is_overruled
from crowdshot.wording import percent

STEPS = tuple(step / 100 for step in range(50, 100))  # thresholds to choose from
LISTED = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)  # those in the table, and those from which on the classifier may be trusted


class Level(NamedTuple):
    """Of labelled and unlabelled items, how many are settled, and how many of the labelled against most labels.

    ``check``: how often the classifier is right when it is so sure, by what is believed.
    """

    confidence: float
    labelled: int
    unlabelled: int
    overruled: int
    check: Share | None


class ByItself(NamedTuple):
    """What the classifier may label without anybody: where it is so confident, it is right as often as is wanted.

    ``of``: unlabelled items or, where there are none, items whose labels were hidden from it.
    """

    confidence: float
    number: int
    of: int


def count_levels(basis: Basis, check: Check | None) -> list[Level]:
    """One for each of the `STEPS`."""
    overruled = is_overruled(basis)
    sure = {
        name: np.sort(basis.confidence[mask])
        for name, mask in {
            "labelled": basis.labelled,
            "unlabelled": ~basis.labelled,
            "overruled": basis.labelled & overruled,
        }.items()
    }

    def above(name: str, confidence: float) -> int:
        return int(len(sure[name]) - np.searchsorted(sure[name], confidence, "left"))

    return [
        Level(
            step,
            above("labelled", step),
            above("unlabelled", step),
            above("overruled", step),
            check.when_sure(step) if check else None,
        )
        for step in STEPS
    ]


def listed(levels: Sequence[Level]) -> list[Level]:
    return [level for level in levels if level.confidence in LISTED]


def at(levels: Sequence[Level], confidence: float = SETTLED) -> Level:
    return levels[STEPS.index(confidence)]


def by_itself(levels: Sequence[Level], wanted: float, n_unlabelled: int, n_checked: int) -> ByItself | None:
    """What the classifier may label so that it is right in ``wanted`` of all cases, by the lower end of the interval.

    Only thresholds that are `LISTED` are tried, as one of many would pass by luck.
    """
    for level in listed(levels):
        if level.check and level.check.low >= wanted:
            number = level.unlabelled if n_unlabelled else level.check.of
            return ByItself(level.confidence, number, n_unlabelled or n_checked)
    return None


def verdict(found: ByItself | None, wanted: float, n_unlabelled: int) -> str:
    """Whether the classifier may label by itself, in a few words."""
    if found is None:
        return f"by the lower end too low to label by itself at {percent(wanted)}"
    if n_unlabelled:
        how_many = f"{found.number:,} of {found.of:,}"
    else:
        share = found.number / found.of
        how_many = f"{'nearly all' if share >= 0.995 else f'about {percent(share)} of'} new items"
    return f"good enough to label by itself at {percent(wanted)}: {how_many}"
