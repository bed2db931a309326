"""The order of classes that nobody listed: as an ordered categorical dtype of pandas has it, else by themselves."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing
from crowdshot.io.cells import Ids
from crowdshot.labels.indexing import WHOLE_NUMBER, positions


def categories_order(labels: Any, classes: Ids) -> Ids | None:
    """The classes as an ordered categorical column has them; None where no column has them all, or two disagree."""
    kinds = labels.dtypes if isinstance(labels, pd.DataFrame) else [getattr(labels, "dtype", None)]
    found = []
    for kind in set(kinds):
        if isinstance(kind, pd.CategoricalDtype) and kind.ordered:
            place = positions(np.asarray(kind.categories), classes)
            found += [classes[np.argsort(place)]] if (place >= 0).all() else []
    return found[0] if found and all((order == found[0]).all() for order in found) else None


def warn_alphabetical_order(labels: Any, classes: Ids, advice: str) -> None:
    """Words are in alphabetical order where nobody says another, which ordered classes seldom are; of two it is one."""
    words = [name for name in classes.tolist() if isinstance(name, str)]
    if len(classes) < 3 or all(WHOLE_NUMBER.fullmatch(word) for word in words):
        return
    if categories_order(labels, classes) is None:
        told = f"ordered=True takes the classes in alphabetical order, {listing(classes)}; {advice} says another."
        warnings.warn(told, UserWarning, stacklevel=4)


# ---- numbers ------------------------------------------------------------
#
# Labels that are numbers, and more likely measurements than names of classes.


MOST = 50  # whole numbers that may be classes
REMEDY = "categories=True takes them for names of classes, measurements are not read"


def refuse_fractions(labels: Collection[str], source: str) -> None:
    """3.5 or, in many a country, 3,5, where most labels are numbers."""
    numbers = [label for label in map(str, labels) if re.fullmatch(r"[-+]?(\d+([.,]\d*)?|[.,]\d+)", label)]
    found = [label for label in numbers if re.search(r"[.,]\d*[1-9]", label)]
    if found and 2 * len(numbers) > len(labels):
        raise CrowdshotError(
            f"{source} has numbers with a decimal part as labels, {listing(found, 3)}, expected classes; {REMEDY}."
        )


def refuse_many(labels: Collection[str], source: str) -> None:
    if len(labels) > MOST and all(re.fullmatch(r"[-+]?\d+", str(label)) for label in labels):
        raise CrowdshotError(
            f"{source} has {len(labels)} different numbers as labels, {listing(labels, 3)}, expected {MOST} at most;"
            f" {REMEDY}."
        )
