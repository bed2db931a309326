"""Read what a label of each annotator costs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first, listing, show
from crowdshot.io.tables import one_each, read_table
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.consensus import Floats

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
