"""Summarise the classes: size, cross-validation, example items, frequent confusions and possible typos."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdshot.labels.consensus import Floats, Share
from crowdshot.report.page.annotator_summaries import Person
from crowdshot.report.page.basis import Basis
from crowdshot.report.page.thresholds import STEPS

if TYPE_CHECKING:
    from torch import Tensor

    from crowdshot.classifier.diagnostics import Check

MOST_CLASSES = 100  # on the page, the largest
EXAMPLES = 4  # typical items of a class, and as many borderline ones
MOST_EXAMPLES = 240  # of all classes together
OFTEN = 0.05  # least share of a confusion in a class's predictions to be listed
MOST_CONFUSIONS = 8  # listed for all annotators together
RARE, RARER = 2, 10  # a class chosen at most twice may be a typo of a similar name that is 10 times as frequent
MOST_NUMBERS = 3_000_000  # embedding values converted at a time
SIMILAR = 0.85  # least similarity of a typo to the intended name, by difflib

Rows = list[int]


class Example(NamedTuple):
    row: int
    name: str
    confidence: float


class Confused(NamedTuple):
    label: int
    share: float


class Class(NamedTuple):
    """The summary of a class.

    ``accepted`` counts items at each threshold. ``check`` is the share of hidden items that the classifier recognised;
    ``mistaken_for`` lists its most frequent wrong predictions.
    """

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
    """A class that may be a typo: its number of labels, and the class with a similar name, or -1."""

    label: int
    times: int
    like: int


class Confusion(NamedTuple):
    """A frequent confusion: the expected number of labels, and their share of all labels of the true class."""

    true: int
    observed: int
    times: float
    share: float


def choose_examples(basis: Basis) -> list[tuple[Rows, Rows]]:
    """Return typical and borderline items of each class.

    Typical items are nearest to the centre of the class. Borderline items are almost as near to another centre.
    """
    K, embeddings = basis.posterior.shape[1], basis.embeddings
    if embeddings is None:
        return [([], [])] * K
    each = min(EXAMPLES, MOST_EXAMPLES // (2 * K))
    weight = basis.posterior * basis.labelled[:, None]
    chunks = np.array_split(np.arange(len(weight)), -(-embeddings.numel() // MOST_NUMBERS))
    centres = (
        sum(weight[rows].T @ _numbers(embeddings, rows) for rows in chunks) / np.maximum(weight.sum(0), 1e-9)[:, None]
    )
    distance, margin = np.empty(len(weight)), np.empty(len(weight))
    for rows in chunks:
        x, here = _numbers(embeddings, rows), (np.arange(len(rows)), basis.label[rows])
        squared = np.square(x).sum(1)[:, None] - 2 * x @ centres.T + np.square(centres).sum(1)  # (n, K)
        distance[rows] = squared[here]
        squared[here] = np.inf
        margin[rows] = squared.min(1) - distance[rows]
    out = []
    for k in range(K):
        rows = np.flatnonzero(basis.label == k)
        central = rows[np.argsort(distance[rows], kind="stable")][: min(each, (len(rows) + 1) // 2)].tolist()
        rest = np.setdiff1d(rows, central)
        out.append((central, rest[np.argsort(margin[rest], kind="stable")][:each].tolist()))
    return out


def _numbers(embeddings: Tensor, rows: NDArray[np.int64]) -> Floats:
    out: Floats = embeddings[rows].double().cpu().numpy()
    return out


def describe_classes(basis: Basis, check: Check | None, examples: Sequence[tuple[Rows, Rows]]) -> list[Class]:
    """Return the summaries of the largest classes that have items, in class order."""
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
    """Return the expected counts (K, K) [true, observed] of all annotators together."""
    return sum((person.counts for person in people), np.zeros((K, K)))


def most_confused(crowd: Floats) -> list[Confusion]:
    """Return the most frequent confusions with an expected count of at least 1."""
    wrong = crowd * (1 - np.eye(len(crowd)))
    cells = [divmod(int(cell), len(crowd)) for cell in np.argsort(-wrong, axis=None, kind="stable")[:MOST_CONFUSIONS]]
    return [Confusion(t, s, wrong[t, s], wrong[t, s] / crowd[t].sum()) for t, s in cells if wrong[t, s] >= 1]


def find_odd(basis: Basis) -> list[Odd]:
    """Return classes without items, and rare classes with a name similar to a frequent one."""
    names = [str(name) for name in basis.annotations.classes]
    times = np.bincount(basis.annotations.label, minlength=len(names))
    sizes = np.bincount(basis.label, minlength=len(names))
    out = []
    for k in np.flatnonzero((sizes == 0) | (times <= RARE)).tolist():
        frequent = [names[other] for other in np.flatnonzero(times >= RARER * max(times[k], 1)).tolist() if other != k]
        close = difflib.get_close_matches(names[k].casefold(), [name.casefold() for name in frequent], 1, SIMILAR)
        like = next((names.index(name) for name in frequent if name.casefold() in close), -1) if times[k] else -1
        if sizes[k] == 0 or like >= 0:
            out.append(Odd(k, int(times[k]), like))
    return out


def _confused(counts: Floats, label: int, most: int = 2) -> list[Confused]:
    """Return the most frequent other classes with about one prediction or more and a share of at least ``OFTEN``."""
    total = counts.sum()
    order = [int(k) for k in np.argsort(-counts, kind="stable") if k != label]
    return [Confused(k, counts[k] / total) for k in order[:most] if counts[k] >= max(0.95, OFTEN * total)]
