"""Read what a label of each annotator costs, and compute what right labels and more accuracy cost.

The cost of a right label is the cost of a label divided by the annotator's accuracy. The cost of the next percent of
accuracy is that of the labels that `labels_needed.gain_forecast` expects, by annotators like these: an estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import clean, first, listing, percent, show
from crowdshot.io.json_text import OMITTED
from crowdshot.io.tables import one_each, read_table
from crowdshot.labels import labels_needed
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.consensus import Floats
from crowdshot.model.parts import PosteriorMatrix
from crowdshot.model.posteriors import likeliest

GAIN = 0.01  # the next percent of accuracy
OTHERS = "others"  # the name of the cost of all annotators that are not listed


def costs_of(cost: Mapping[str, float] | Path, ann: Annotations) -> Floats:
    """Return the cost of a label of each annotator (R,).

    ``cost`` maps annotators to costs, or is a table of them. `OTHERS` are all annotators who are not listed. A table
    may list more people than the labels. An annotator without a cost is an error.
    """
    costs = read_costs(cost, ann.columns.annotator) if isinstance(cost, Path) else dict(cost)
    names = [str(name) for name in ann.annotators]
    unknown = [name for name in costs if name not in names and name != OTHERS]
    if unknown and not isinstance(cost, Path):
        message = f"names {show(unknown[0])}, who gave no label"
        expected = f"some of {listing(names)}"
        raise CrowdshotError(message, argument="cost", found=unknown[0], expected=expected, among=names)
    missing = [name for name in names if name not in costs]
    if missing and OTHERS not in costs:
        message = f"has no cost for {listing(missing, 5)}"
        hint = f"Add {OTHERS}=C for all annotators who are not listed."
        raise CrowdshotError(message, argument="cost", found=missing[:10], expected="a cost for everyone", hint=hint)
    return np.array([costs.get(name, costs.get(OTHERS, 0.0)) for name in names])


def read_costs(path: Path, annotator: str) -> dict[str, float]:
    """Read the columns that are called "cost" and like the annotator in the labels, or else the first and second."""
    table = read_table(path)
    header = table.header
    expected = "the annotator and the cost of a label"
    if len(header) < 2:
        raise CrowdshotError(f"has {len(header)} column", where=path, found=header, expected=expected)
    names_at = header.index(annotator) if annotator in header else 0
    costs_at = header.index("cost") if "cost" in header else 1
    if names_at == costs_at:
        message = f"has {header[names_at]!r} first and no annotator"
        raise CrowdshotError(message, where=path, found=header, expected=expected)
    names, numbers = one_each(table, names_at), table.numbers(costs_at)
    bad = ~(np.isfinite(numbers) & (numbers > 0))
    if bad.any():
        row = first(bad)
        place, number = table.place(row, costs_at), float(numbers[row])
        raise CrowdshotError(f"is {number:g}", where=place, found=number, expected="a number above 0")
    return dict(zip(names.tolist(), numbers.tolist(), strict=True))


@dataclass(frozen=True)
class GainCost:
    """An estimate of the labels, and their cost, until the consensus has the accuracy ``to``.

    Numbers are None if 20 more labels per item are not enough.
    """

    to: float
    labels: int | None
    cost: float | None
    at_best: float | None
    at_worst: float | None


@dataclass(frozen=True)
class Money:
    """What labels cost.

    Attributes
    ----------
    spent : float
        The cost of all labels.
    cost_per_label, cost_per_right_label : float
    cost_per_item : float
        The cost of the labels of a labelled item.
    next_percent : GainCost or None
        None if the accuracy is too high, or if there are too many classes for a forecast.
    annotators : DataFrame
        A row for each annotator, in the order of the labels: cost, spent, cost_per_right.
    """

    spent: float
    cost_per_label: float
    cost_per_right_label: float
    cost_per_item: float
    next_percent: GainCost | None
    annotators: pd.DataFrame = field(repr=False, metadata=OMITTED)


def count_money(ann: Annotations, posterior: PosteriorMatrix, accuracy: Floats, price: Floats) -> Money:
    """Compute what labels, right labels and the next percent of accuracy cost.

    Parameters
    ----------
    ann : Annotations
    posterior : array of shape (N, K)
        Class probabilities of the items.
    accuracy : array of shape (R,)
        The accuracy of each annotator.
    price : array of shape (R,)
        The cost of a label of each annotator.
    """
    n_labels = np.bincount(ann.annotator, minlength=ann.n_annotators)
    spent = n_labels * price
    total, right = float(spent.sum()), float((n_labels * np.nan_to_num(accuracy)).sum())
    names = [str(name) for name in ann.annotators]
    people = pd.DataFrame({"cost": price, "spent": spent, "cost_per_right": price / accuracy}, index=names)
    n_items = len(np.unique(ann.item))
    return Money(
        total, total / ann.n_labels, total / right, total / n_items, _next_percent(ann, posterior, total), people
    )


def _next_percent(ann: Annotations, posterior: PosteriorMatrix, spent: float) -> GainCost | None:
    labelled = np.unique(ann.item)
    if not isinstance(posterior, np.ndarray) or likeliest(posterior)[1][labelled].mean() > 1 - GAIN:
        return None
    place = np.full(ann.n_items, -1, dtype=np.int64)
    place[labelled] = np.arange(len(labelled))
    found = labels_needed.gain_forecast(ann.with_items(place, ann.items[labelled]), posterior[labelled], GAIN)
    each = spent / ann.n_labels  # annotators give more labels in proportion to those so far
    needed = (found.labels, found.at_best, found.at_worst)
    return GainCost(found.share, found.labels, *(None if n is None else n * each for n in needed))


def with_costs(people: pd.DataFrame, money: Money | None) -> pd.DataFrame:
    """Return a table of annotators, whose first column has their names, with what their labels cost."""
    if money is None:
        return people
    names = people.iloc[:, 0].astype(str).to_numpy()
    return people.assign(**{name: money.annotators[name].reindex(names).to_numpy() for name in money.annotators})


def describe_money(money: Money) -> list[str]:
    """Return sentences on what labels cost."""
    lines = [
        f"{_amount(money.spent)} spent: {_amount(money.cost_per_label)} a label,"
        f" {_amount(money.cost_per_right_label)} a right label, {_amount(money.cost_per_item)} an item."
    ]
    more = money.next_percent
    if more is None:
        return lines
    if more.cost is None:
        return [
            *lines,
            "The next 1 % of accuracy needs more than 20 further labels per item. This is an estimate.",
        ]
    least = "0" if more.at_best is None else _amount(more.at_best)
    worst = "more than 20 labels per item" if more.at_worst is None else _amount(more.at_worst)
    return [
        *lines,
        f"The next 1 % of accuracy, to {percent(more.to)}, costs about {_amount(more.cost)} ({least} at best, {worst}"
        f" at worst) for {more.labels:,} more labels. This is an estimate.",
    ]


def describe_costs(money: Money) -> dict[str, str]:
    """Return a sentence on what the labels of each annotator cost, by names as pages show them."""
    return {
        clean(name): f"A label costs {_amount(row.cost)}, a right label {_amount(row.cost_per_right)};"
        f" {_amount(row.spent)} in all."
        for name, row in zip(money.annotators.index, money.annotators.itertuples(), strict=True)
        if row.spent > 0
    }


def _amount(amount: Any) -> str:
    """Return an amount with two decimals, or with three significant digits if it is small."""
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.3g}"
