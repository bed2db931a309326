"""The classes: how large they are, what they are taken for, what they look like, and which are none."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdshot.classifier.diagnostics import Check
from crowdshot.labels.confidence import Share
from crowdshot.report.page.annotator_summaries import Person
from crowdshot.report.page.basis import Basis, Floats
from crowdshot.report.page.thresholds import STEPS

MOST_CLASSES = 100  # on the page, the largest
EXAMPLES = 4
MOST_EXAMPLES = 240  # of all classes together
OFTEN = 0.05  # rarer confusions are left out
MOST_CONFUSIONS = 8  # of the whole crowd
SELDOM, RARER = 2, 10  # a class is perhaps a typo if it was said so few times, and a like one so many times as often
AT_ONCE = 3_000_000  # numbers of embeddings
ALIKE = 0.85  # of two names, by difflib

Rows = list[int]


class Example(NamedTuple):
    row: int
    name: str
    confidence: float


class Confused(NamedTuple):
    label: int
    share: float


class Class(NamedTuple):
    """``accepted``: at each threshold. ``check``: how the classifier fares on hidden ones, which it else mistakes."""

    label: int
    labelled: int
    unlabelled: int
    accepted: list[int]
    check: Share | None
    mistaken_for: list[Confused]
    central: list[Example]
    border: list[Example]

    @property
    def size(self) -> int:
        return self.labelled + self.unlabelled


class Odd(NamedTuple):
    """A class that no item is, or that was hardly ever said: how many labels it has, and what may be meant, or -1."""

    label: int
    times: int
    like: int


class Confusion(NamedTuple):
    """What items of a class are called instead: about how often, and which part of the labels of that class."""

    true: int
    said: int
    times: float
    share: float


def choose_examples(basis: Basis) -> list[tuple[Rows, Rows]]:
    """For each class the items nearest to its centre, and those that are nearly as near to another's."""
    K = basis.posterior.shape[1]
    each = min(EXAMPLES, MOST_EXAMPLES // (2 * K))
    weight = basis.posterior * basis.labelled[:, None]
    places = np.array_split(np.arange(len(weight)), -(-basis.embeddings.numel() // AT_ONCE))
    centres = sum(weight[rows].T @ _numbers(basis, rows) for rows in places) / np.maximum(weight.sum(0), 1e-9)[:, None]
    own, margin = np.empty(len(weight)), np.empty(len(weight))
    for rows in places:
        x, here = _numbers(basis, rows), (np.arange(len(rows)), basis.label[rows])
        squared = np.square(x).sum(1)[:, None] - 2 * x @ centres.T + np.square(centres).sum(1)  # (n, K)
        own[rows] = squared[here]
        squared[here] = np.inf
        margin[rows] = squared.min(1) - own[rows]
    out = []
    for k in range(K):
        rows = np.flatnonzero(basis.label == k)
        central = rows[np.argsort(own[rows], kind="stable")][: min(each, (len(rows) + 1) // 2)].tolist()
        rest = np.setdiff1d(rows, central)
        out.append((central, rest[np.argsort(margin[rest], kind="stable")][:each].tolist()))
    return out


def _numbers(basis: Basis, rows: NDArray[np.int64]) -> Floats:
    out: Floats = basis.embeddings[rows].double().cpu().numpy()
    return out


def describe_classes(basis: Basis, check: Check | None, examples: Sequence[tuple[Rows, Rows]]) -> list[Class]:
    """Those that some item is, in their order; of very many the largest."""
    sizes = np.bincount(basis.label, minlength=len(examples))
    largest = np.argsort(-sizes, kind="stable")[:MOST_CLASSES]

    def show(rows: Rows) -> list[Example]:
        return [Example(i, basis.name(i), float(basis.confidence[i])) for i in rows]

    out = []
    for k in sorted(largest[sizes[largest] > 0].tolist()):
        here = basis.label == k
        sure = np.sort(basis.confidence[here])
        hidden = check.said[check.consensus == k] if check else np.empty(0, dtype=np.int64)
        out.append(
            Class(
                label=k,
                labelled=int((here & basis.labelled).sum()),
                unlabelled=int((here & ~basis.labelled).sum()),
                accepted=(len(sure) - np.searchsorted(sure, STEPS)).tolist(),
                check=Share.of_all(hidden == k),
                mistaken_for=_confused(np.bincount(hidden, minlength=len(examples)).astype(np.float64), k),
                central=show(examples[k][0]),
                border=show(examples[k][1]),
            )
        )
    return out


def confusion_of(people: Sequence[Person], K: int) -> Floats:
    """(K, K) [true, said]: the whole crowd's answers, as the consensus has it."""
    return sum((person.counts for person in people), np.zeros((K, K)))


def most_confused(crowd: Floats) -> list[Confusion]:
    """What is called what most often, if it happened at all."""
    wrong = crowd * (1 - np.eye(len(crowd)))
    cells = [divmod(int(cell), len(crowd)) for cell in np.argsort(-wrong, axis=None, kind="stable")[:MOST_CONFUSIONS]]
    return [Confusion(t, s, wrong[t, s], wrong[t, s] / crowd[t].sum()) for t, s in cells if wrong[t, s] >= 1]


def find_odd(basis: Basis) -> list[Odd]:
    """Classes that may be typos, or that nobody needs."""
    names = [str(name) for name in basis.annotations.classes]
    said = np.bincount(basis.annotations.label, minlength=len(names))
    sizes = np.bincount(basis.label, minlength=len(names))
    out = []
    for k in np.flatnonzero((sizes == 0) | (said <= SELDOM)).tolist():
        often = [names[other] for other in np.flatnonzero(said >= RARER * max(said[k], 1)).tolist() if other != k]
        close = difflib.get_close_matches(names[k].casefold(), [name.casefold() for name in often], 1, ALIKE)
        like = next((names.index(name) for name in often if name.casefold() in close), -1) if said[k] else -1
        if sizes[k] == 0 or like >= 0:
            out.append(Odd(k, int(said[k]), like))
    return out


def _confused(counts: Floats, own: int, most: int = 2) -> list[Confused]:
    """The other classes that come up most, if often, and once at least."""
    total = counts.sum()
    order = [int(k) for k in np.argsort(-counts, kind="stable") if k != own]
    return [Confused(k, counts[k] / total) for k in order[:most] if counts[k] >= max(0.95, OFTEN * total)]
