"""Summarise each annotator: accuracy, flag, confusions, likely mistakes and agreement with others.

Annotators are compared with the consensus, to which their labels contribute.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from crowdshot.formatting import clean, whole_counts
from crowdshot.io.cells import Positions
from crowdshot.labels.annotator_flags import Agreement, Evidence, Flag
from crowdshot.labels.consensus import Floats
from crowdshot.labels.duplicate_annotators import compare_pairs
from crowdshot.report.page.basis import Basis

MOST_PEOPLE = 300  # annotators on the page
PICTURED, EXAMPLES_EACH = 40, 4  # the first 40 annotators are shown with pictures of 4 mistakes each
MOST_CONFUSED = 3  # confusions listed per annotator
MOST_EXAMPLES = 8  # likely mistakes kept per annotator, for the feedback sheet
SURE = 0.5  # least confidence of the consensus for a different label to count as a mistake
MOST_PARTNERS = 5  # annotators that each is compared with by name
# names that Windows does not allow for files
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10))}


class Mistake(NamedTuple):
    """A pair of confused classes, with the expected number of labels, rounded."""

    true: int
    observed: int
    times: int
    of: int  # labels of items of the true class


class Example(NamedTuple):
    """A label that is probably wrong, and the consensus of its item."""

    row: int
    name: str
    observed: int
    true: int
    confidence: float


class Partner(NamedTuple):
    """Agreement with another annotator: shared items, equal labels, and the expected number of equal labels."""

    name: str
    shared: int
    same: int
    expected: float
    stands_out: bool


@dataclass(frozen=True)
class Person:
    """The summary of an annotator.

    Attributes
    ----------
    position : int
        Position among the annotators of the annotations.
    p_below : float
        Probability that the accuracy is below the minimum.
    guessing : float
        Expected accuracy of the same labels in random order.
    counts : array (K, K) [true, observed]
        Expected numbers of labels, with true classes from the consensus.
    examples : list of Example
        The most certain of ``n_wrong`` likely mistakes.
    partners : list of Partner
        Annotators who agree with this one too often first, then those with the most shared items.
    """

    position: int
    name: str
    n_labels: int
    accuracy: float
    low: float
    high: float
    p_below: float
    guessing: float
    agreement: Agreement | None
    evidence: Evidence | None
    counts: Floats
    flag: Flag | None
    examples: list[Example]
    n_wrong: int
    partners: list[Partner]

    @property
    def mistakes(self) -> list[Mistake]:
        """The most frequent confusions."""
        wrong, whole = self.counts * (1 - np.eye(len(self.counts))), whole_counts(self.counts)
        worst = np.argsort(-wrong, axis=None, kind="stable")[:MOST_CONFUSED]
        cells = [divmod(int(cell), len(wrong)) for cell in worst]
        return [Mistake(t, s, int(whole[t, s]), int(whole[t].sum())) for t, s in cells if t != s and whole[t, s]]

    @property
    def duplicates(self) -> list[Partner]:
        """Annotators with the same labels more often than can be explained."""
        return [partner for partner in self.partners if partner.stands_out]


def summarise_annotators(basis: Basis) -> Iterator[Person]:
    """Yield the summary of each annotator with labels, in the order of the annotations."""
    ann, table = basis.annotations, basis.people
    pairs = compare_pairs(ann, basis.posterior)
    for person, judged in enumerate(basis.judged):
        if judged is None:
            continue
        rows, (accuracy, low, high, p_below) = judged.rows, table.loc[person, ["accuracy", "low", "high", "p_below"]]
        wrong = _likely_mistakes(basis, ann.item[rows], ann.label[rows])
        yield Person(
            position=person,
            name=clean(ann.annotators[person]),
            n_labels=len(rows),
            accuracy=accuracy,
            low=low,
            high=high,
            p_below=p_below,
            guessing=judged.guessing,
            agreement=judged.agreement,
            evidence=judged.evidence,
            counts=judged.counts,
            flag=judged.flag,
            examples=wrong[:MOST_EXAMPLES],
            n_wrong=len(wrong),
            partners=_partners(basis, pairs, person),
        )


def file_names(people: Sequence[Person]) -> dict[int, str]:
    """Return {position: file name} with names that every system allows, unique even if case is ignored."""
    names: dict[int, str] = {}
    taken = set(RESERVED)
    for person in people[:MOST_PEOPLE]:
        plain = unicodedata.normalize("NFKD", person.name).encode("ascii", "ignore").decode()
        stem = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:40] or "annotator"
        while stem in taken:
            stem = f"{stem}-{person.position + 1}"
        taken.add(stem)
        names[person.position] = f"{stem}.html"
    return names


def _likely_mistakes(basis: Basis, item: Positions, observed: Positions) -> list[Example]:
    """Return the labels that differ from a confident consensus, the most certain first."""
    label, confidence = basis.label[item], basis.confidence[item]
    wrong = np.flatnonzero((label != observed) & (confidence >= SURE))
    chosen = wrong[np.argsort(-confidence[wrong], kind="stable")]
    return [
        Example(int(item[i]), basis.name(item[i]), int(observed[i]), int(label[i]), float(confidence[i]))
        for i in chosen
    ]


def _partners(basis: Basis, pairs: pd.DataFrame, person: int) -> list[Partner]:
    partners = pairs[(pairs["one"] == person) | (pairs["other"] == person)]
    partners = partners.sort_values(["stands_out", "shared"], ascending=False, kind="stable")[:MOST_PARTNERS]
    names = basis.annotations.annotators
    return [
        Partner(
            clean(names[row.other if row.one == person else row.one], 60),
            int(row.shared),
            int(row.same),
            float(row.expected),
            bool(row.stands_out),
        )
        for row in partners.itertuples()
    ]
