"""What is known of each annotator: judged by the consensus, in which their own labels have a part."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from crowdshot.formatting import clean
from crowdshot.labels.annotator_flags import Agreement, Flag
from crowdshot.labels.duplicate_annotators import compare_pairs
from crowdshot.labels.indexing import Positions
from crowdshot.report.page.basis import Basis, Floats

MOST_PEOPLE = 300  # on the page
PICTURED, EXAMPLES_EACH = 40, 4  # of them so many with pictures of so many mistakes
MOST_CONFUSED = 3
MOST_EXAMPLES = 8  # mistakes that are kept, for the feedback sheet
SURE = 0.5  # so sure must the consensus be that a label is called a mistake
MOST_PARTNERS = 5  # others with whom an annotator is compared by name
# names that no file may have on some systems
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10))}


class Mistake(NamedTuple):
    true: int
    said: int
    times: float
    of: float  # labels on items of the true class


class Example(NamedTuple):
    """A label that is probably wrong: what was said of an item, and what it is, so surely."""

    row: int
    name: str
    said: int
    true: int
    confidence: float


class Partner(NamedTuple):
    """Another annotator: of so many items that both labelled, how many have the same label, and how many should."""

    name: str
    shared: int
    same: int
    expected: float
    stands_out: bool


@dataclass(frozen=True)
class Person:
    """``position``: among the annotators. ``counts`` (K, K) [true, said]: how often, as the consensus has it.

    ``partners``: those who agree with them far too often first, then those with whom they share most items.
    """

    position: int
    name: str
    n_labels: int
    accuracy: float
    low: float
    high: float
    guessing: float  # how often labels like these are right if they are dealt at random
    agreement: Agreement | None
    counts: Floats
    flag: Flag | None
    examples: list[Example]  # the surest of `n_wrong` answers that are surely wrong
    n_wrong: int
    partners: list[Partner]

    @property
    def mistakes(self) -> list[Mistake]:
        """The most frequent ones, those that probably happened at all."""
        wrong = self.counts * (1 - np.eye(len(self.counts)))
        worst = np.argsort(-wrong, axis=None, kind="stable")[:MOST_CONFUSED]
        cells = [divmod(int(cell), len(wrong)) for cell in worst]
        return [Mistake(t, s, wrong[t, s], self.counts[t].sum()) for t, s in cells if wrong[t, s] >= 0.5]

    @property
    def alike(self) -> list[Partner]:
        return [partner for partner in self.partners if partner.stands_out]


def people(basis: Basis) -> Iterator[Person]:
    """Each annotator who gave a label, in the order of the annotations."""
    ann, table = basis.annotations, basis.clf.annotators_
    pairs = compare_pairs(ann, basis.posterior)
    for person, judged in enumerate(basis.judged):
        if judged is None:
            continue
        rows, (accuracy, low, high) = judged.rows, table.loc[person, ["accuracy", "low", "high"]]
        wrong = _surely_wrong(basis, ann.item[rows], ann.label[rows])
        yield Person(
            position=person,
            name=clean(ann.annotators[person]),
            n_labels=len(rows),
            accuracy=accuracy,
            low=low,
            high=high,
            guessing=judged.guessing,
            agreement=judged.agreement,
            counts=judged.counts,
            flag=judged.flag,
            examples=wrong[:MOST_EXAMPLES],
            n_wrong=len(wrong),
            partners=_partners(basis, pairs, person),
        )


def file_names(people: Sequence[Person]) -> dict[int, str]:
    """{position: name}: names of files that every system takes, no two the same even where case does not count."""
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


def _surely_wrong(basis: Basis, item: Positions, said: Positions) -> list[Example]:
    """The surest mistakes first."""
    label, confidence = basis.label[item], basis.confidence[item]
    wrong = np.flatnonzero((label != said) & (confidence >= SURE))
    chosen = wrong[np.argsort(-confidence[wrong], kind="stable")]
    return [
        Example(int(item[i]), basis.name(item[i]), int(said[i]), int(label[i]), float(confidence[i])) for i in chosen
    ]


def _partners(basis: Basis, pairs: pd.DataFrame, person: int) -> list[Partner]:
    theirs = pairs[(pairs["one"] == person) | (pairs["other"] == person)]
    theirs = theirs.sort_values(["stands_out", "shared"], ascending=False, kind="stable")[:MOST_PARTNERS]
    names = basis.annotations.annotators
    return [
        Partner(
            clean(names[row.other if row.one == person else row.one], 60),
            int(row.shared),
            int(row.same),
            float(row.expected),
            bool(row.stands_out),
        )
        for row in theirs.itertuples()
    ]
