"""The classes: how large they are, what they are taken for, and what they look like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from crowdshot.classifier.cross_check import Check
from crowdshot.labels.belief import Share
from crowdshot.report.page.basis import Basis, Floats
from crowdshot.report.page.people import Person

EXAMPLES = 4
MOST_EXAMPLES = 240  # of all classes together
OFTEN = 0.05  # rarer confusions are left out

Rows = list[int]


class Example(NamedTuple):
    row: int
    name: str
    confidence: float


class Confused(NamedTuple):
    label: int
    share: float


class Class(NamedTuple):
    """``said``: what people call items of this class instead; ``check``: how the classifier fares on hidden ones."""

    label: int
    labelled: int
    unlabelled: int
    settled: int
    said: list[Confused]
    check: Share | None
    mistaken_for: list[Confused]
    central: list[Example]
    border: list[Example]


def choose_examples(basis: Basis) -> list[tuple[Rows, Rows]]:
    """For each class the items nearest to its centre, and those that are nearly as near to another's."""
    K = basis.belief.shape[1]
    each = min(EXAMPLES, MOST_EXAMPLES // (2 * K))
    x = basis.embeddings.double().cpu().numpy()
    weight = basis.belief * basis.labelled[:, None]
    centres = (weight.T @ x) / np.maximum(weight.sum(0), 1e-9)[:, None]
    squared = np.square(x).sum(1)[:, None] - 2 * x @ centres.T + np.square(centres).sum(1)  # (N, K)
    own = squared[np.arange(len(x)), basis.label]
    squared[np.arange(len(x)), basis.label] = np.inf
    margin = squared.min(1) - own
    out = []
    for k in range(K):
        rows = np.flatnonzero(basis.label == k)
        central = rows[np.argsort(own[rows], kind="stable")][: min(each, (len(rows) + 1) // 2)].tolist()
        rest = np.setdiff1d(rows, central)
        out.append((central, rest[np.argsort(margin[rest], kind="stable")][:each].tolist()))
    return out


def describe_classes(
    basis: Basis,
    people: Sequence[Person],
    check: Check | None,
    examples: Sequence[tuple[Rows, Rows]],
) -> list[Class]:
    K = len(examples)
    said = sum((person.counts for person in people), np.zeros((K, K)))

    def show(rows: Rows) -> list[Example]:
        return [Example(i, basis.names[i], float(basis.confidence[i])) for i in rows]

    out = []
    for k, (central, border) in enumerate(examples):
        here = basis.label == k
        hidden = check.said[check.consensus == k] if check else np.empty(0, dtype=np.int64)
        out.append(
            Class(
                label=k,
                labelled=int((here & basis.labelled).sum()),
                unlabelled=int((here & ~basis.labelled).sum()),
                settled=int((here & basis.settled).sum()),
                said=_confused(said[k], k),
                check=Share.of_all(hidden == k),
                mistaken_for=_confused(np.bincount(hidden, minlength=K).astype(np.float64), k),
                central=show(central),
                border=show(border),
            )
        )
    return out


def _confused(counts: Floats, own: int, most: int = 2) -> list[Confused]:
    """The other classes that come up most, if often, and once at least."""
    total = counts.sum()
    order = [int(k) for k in np.argsort(-counts, kind="stable") if k != own]
    return [Confused(k, counts[k] / total) for k in order[:most] if counts[k] >= max(0.95, OFTEN * total)]
