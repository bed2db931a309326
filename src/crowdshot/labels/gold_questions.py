"""Test annotators with questions whose answers are known, among the other questions.

A gold item is an item with a known class. Every label of a gold item is a test of its annotator, which is passed if it
is the known class. Nobody is asked about the same item twice, and items with fewer labels are used first, so that all
are used in turn. Nothing that annotators see may show which items are gold: questions come in a random order, without
their gain and without the number of labels, in which gold items differ from others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError, Use
from crowdshot.io.cells import Positions
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.asking import Question
from crowdshot.labels.consensus import Floats, interval

MOST_SHARE = 0.5
PAUSED, TESTED, NOT_TESTED = "paused", "tested", "not tested"


@dataclass(frozen=True)
class GoldRule:
    """How annotators are tested.

    Attributes
    ----------
    share : float
        The share of gold questions among all questions; 0 for none.
    pause_below : float or None
        Annotators who pass a smaller share of their tests get no more questions.
    after : int
        The number of tests before somebody may be paused.
    """

    share: float = 0.0
    pause_below: float | None = None
    after: int = 10

    def check(self, n_gold: int) -> None:
        """Raise an error for impossible numbers, or if there is no gold to test with."""
        if not 0 <= self.share <= MOST_SHARE:
            expected = f"a share of the questions, from 0 to {MOST_SHARE}"
            raise CrowdshotError(f"is {self.share:g}", argument="gold_share", found=self.share, expected=expected)
        if self.pause_below is not None and not 0 < self.pause_below <= 1:
            expected = "a share of the tests, above 0 and at most 1"
            raise CrowdshotError(
                f"is {self.pause_below:g}", argument="pause_below", found=self.pause_below, expected=expected
            )
        if self.after < 1:
            raise CrowdshotError(f"is {self.after}", argument="after", found=self.after, expected="1 or more")
        if self.wanted and not n_gold:
            argument, found = ("gold_share", self.share) if self.share else ("pause_below", self.pause_below)
            message = "needs items with a known class"
            raise CrowdshotError(message, argument=argument, found=found, hint=Use(gold="FILE"))

    @property
    def wanted(self) -> bool:
        return self.share > 0 or self.pause_below is not None

    def pauses(self, tests: int, passed: int) -> bool:
        """Return whether somebody with these results is paused.

        >>> rule = GoldRule(pause_below=0.6, after=10)
        >>> [rule.pauses(*result) for result in ((9, 0), (10, 5), (10, 6))]
        [False, True, False]
        """
        return self.pause_below is not None and tests >= self.after and passed / tests < self.pause_below


class GoldTests(NamedTuple):
    """The results of an annotator; ``low`` and ``high`` are the limits of the 90 % interval of the share passed."""

    tests: int
    passed: int
    low: float
    high: float
    status: str


def gold_tests(ann: Annotations, known: Positions, rule: GoldRule) -> list[GoldTests]:
    """Return the results of each annotator (R,); ``known`` (N,) has the known class of each item, -1 for none."""
    truth = known[ann.item]
    tests = np.bincount(ann.annotator[truth >= 0], minlength=ann.n_annotators)
    passed = np.bincount(ann.annotator[(truth >= 0) & (truth == ann.label)], minlength=ann.n_annotators)
    low, high = interval(passed + 0.5, tests - passed + 0.5)
    return [
        GoldTests(n, right, a, b, PAUSED if rule.pauses(n, right) else TESTED if n else NOT_TESTED)
        for n, right, a, b in zip(tests.tolist(), passed.tolist(), low.tolist(), high.tolist(), strict=True)
    ]


def tests_table(ann: Annotations, results: Sequence[GoldTests]) -> pd.DataFrame:
    """Return a row for each annotator: annotator, gold_tests, gold_passed, share, low, high and status."""
    table = pd.DataFrame(results, columns=list(GoldTests._fields))
    share = table["passed"] / table["tests"].where(table["tests"] > 0)
    names = {"tests": "gold_tests", "passed": "gold_passed"}
    table = table.rename(columns=names).astype({"low": float, "high": float}).round({"low": 3, "high": 3})
    column = ann.columns.annotator if ann.columns.annotator not in {*table, "share"} else "annotator"
    table.insert(0, column, [str(name) for name in ann.annotators])
    table.insert(3, "share", share.astype(float).round(3))
    table.loc[table["gold_tests"] == 0, ["low", "high"]] = np.nan
    return table


def least_used(candidates: Positions, used: Floats, n: int, random: np.random.Generator) -> list[int]:
    """Return up to n of the candidates with the smallest numbers of uses (N,), in random order among equals."""
    shuffled = random.permutation(candidates)
    return [int(item) for item in shuffled[np.argsort(used[shuffled], kind="stable")][:n]]


def mix_in(questions: Sequence[Question], ann: Annotations, known: Positions, share: float) -> list[Question]:
    """Replace questions by gold questions, and put these at random places.

    Each annotator gets ``share`` of gold on average, and somebody without a test at least one if they get two questions
    or more. The questions with the smallest gain are replaced. The same arguments give the same result. Gold questions
    have the gain 0.
    """
    random = np.random.default_rng([ann.n_items, ann.n_labels, len(questions)])
    gold = np.flatnonzero(known >= 0)
    used = np.bincount(ann.item, minlength=ann.n_items).astype(np.float64)
    rows: dict[int, list[int]] = {}
    for row, question in enumerate(questions):
        rows.setdefault(question.annotator, []).append(row)
    tested = set(ann.annotator[known[ann.item] >= 0].tolist())
    replaced: set[int] = set()
    added: list[Question] = []
    for annotator in random.permutation(sorted(rows)).tolist():
        wanted = len(rows[annotator]) * share
        n = int(wanted) + int(random.random() < wanted % 1)
        n = max(n, int(annotator not in tested and len(rows[annotator]) > 1))
        asked = [questions[row].item for row in rows[annotator]]
        candidates = np.setdiff1d(gold, [*ann.item[ann.annotator == annotator], *asked])
        chosen = least_used(candidates, used, n, random)
        used[chosen] += 1
        added += [Question(item, annotator, 0.0) for item in chosen]
        replaced |= set(rows[annotator][len(rows[annotator]) - len(chosen) :])
    mixed = [question for row, question in enumerate(questions) if row not in replaced]
    for index in random.permutation(len(added)).tolist():
        mixed.insert(int(random.integers(len(mixed) + 1)), added[index])
    return mixed


def describe_tests(tests: Mapping[str, GoldTests]) -> list[str]:
    """Return sentences on who was not tested yet, and who is paused."""
    by_status = {
        status: [name for name, found in tests.items() if found.status == status] for status in (PAUSED, NOT_TESTED)
    }
    out = []
    if by_status[NOT_TESTED]:
        out.append(f"not tested yet: {_names(by_status[NOT_TESTED])}")
    if by_status[PAUSED]:
        results = [f"{name} ({tests[name].passed} of {tests[name].tests})" for name in by_status[PAUSED]]
        out.append(f"paused, because too few tests were passed: {_names(results)}")
    return out


def _names(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
