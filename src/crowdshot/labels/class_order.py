"""The order of classes that nobody listed: as an ordered categorical dtype of pandas has it, else by themselves."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd

from crowdshot.files.cells import Ids
from crowdshot.labels.positions import WHOLE_NUMBER, positions
from crowdshot.wording import listing


def categories_order(labels: Any, classes: Ids) -> Ids | None:
    """The classes as an ordered categorical column has them; None where no column has them all, or two disagree."""
    kinds = labels.dtypes if isinstance(labels, pd.DataFrame) else [getattr(labels, "dtype", None)]
    found = []
    for kind in set(kinds):
        if isinstance(kind, pd.CategoricalDtype) and kind.ordered:
            place = positions(np.asarray(kind.categories), classes)
            found += [classes[np.argsort(place)]] if (place >= 0).all() else []
    return found[0] if found and all((order == found[0]).all() for order in found) else None


def tell_alphabet(labels: Any, classes: Ids, advice: str) -> None:
    """Words are in alphabetical order where nobody says another, which ordered classes seldom are; of two it is one."""
    words = [name for name in classes.tolist() if isinstance(name, str)]
    if len(classes) < 3 or all(WHOLE_NUMBER.fullmatch(word) for word in words):
        return
    if categories_order(labels, classes) is None:
        told = f"ordered=True takes the classes in alphabetical order, {listing(classes)}; {advice} says another."
        warnings.warn(told, UserWarning, stacklevel=4)
