"""Check the values of labels: their order, and whether they are numbers rather than classes.

Classes that nobody listed are in the order of pandas' ordered categorical dtype, otherwise sorted.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.formatting import listing
from crowdshot.io.cells import Ids
from crowdshot.labels.indexing import WHOLE_NUMBER, positions

MOST = 50  # different whole numbers that are accepted as classes
AS_CLASSES = Use("if they are names of classes; measurements cannot be aggregated", categories=True)


def categories_order(labels: Any, classes: Ids) -> Ids | None:
    """Return the classes in the order of an ordered categorical column.

    Return None if no such column has all classes, or if two columns have different orders.
    """
    kinds = labels.dtypes if isinstance(labels, pd.DataFrame) else [getattr(labels, "dtype", None)]
    found = []
    for kind in set(kinds):
        if isinstance(kind, pd.CategoricalDtype) and kind.ordered:
            place = positions(np.asarray(kind.categories), classes)
            found += [classes[np.argsort(place)]] if (place >= 0).all() else []
    return found[0] if found and all((order == found[0]).all() for order in found) else None


def warn_alphabetical_order(labels: Any, classes: Ids, advice: str) -> None:
    """Warn if three or more ordered classes are words whose order nobody gave: alphabetical is seldom right."""
    words = [name for name in classes.tolist() if isinstance(name, str)]
    if len(classes) < 3 or all(WHOLE_NUMBER.fullmatch(word) for word in words):
        return
    if categories_order(labels, classes) is None:
        warnings.warn(
            CrowdshotWarning(
                f"Ordered classes are taken in alphabetical order: {listing(classes)}",
                argument="ordered",
                found=classes.tolist()[:10],
                hint=f"Set another order with {advice}.",
            ),
            stacklevel=4,
        )


def refuse_fractions(labels: Collection[str], source: str) -> None:
    """Raise an error if most labels are numbers and some have decimals, such as 3.5 (or 3,5 in many countries)."""
    numbers = [label for label in map(str, labels) if re.fullmatch(r"[-+]?(\d+([.,]\d*)?|[.,]\d+)", label)]
    found = [label for label in numbers if re.search(r"[.,]\d*[1-9]", label)]
    if found and 2 * len(numbers) > len(labels):
        raise CrowdshotError(
            f"has numbers with decimals as labels: {listing(found, 3)}",
            where=source,
            found=found[:10],
            expected="classes",
            hint=AS_CLASSES,
        )


def refuse_many(labels: Collection[str], source: str) -> None:
    """Raise an error if the labels are more than `MOST` different whole numbers: they are probably measurements."""
    if len(labels) > MOST and all(re.fullmatch(r"[-+]?\d+", str(label)) for label in labels):
        raise CrowdshotError(
            f"has {len(labels)} different numbers as labels: {listing(labels, 3)}",
            where=source,
            found=len(labels),
            expected=f"{MOST} at most",
            hint=AS_CLASSES,
        )
