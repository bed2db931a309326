"""Hold the numbers of right and wrong labels that annotators had in earlier projects."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first, listing, show
from crowdshot.io.cells import Ids
from crowdshot.io.tables import one_each, read_table
from crowdshot.labels.columns import plain
from crowdshot.labels.indexing import as_index

EXPERT = (19.0, 1.0)  # right and wrong labels of an "expert"
COUNTS = ("right", "wrong")


class AnnotatorPriors(Mapping[Any, tuple[float, float]]):
    """Numbers of right and wrong labels of annotators in earlier projects.

    Pass it to `CrowdClassifier.fit` as ``priors=`` or to `aggregate.learned` as ``history=``. Annotators without labels
    in the new project are ignored. Names are compared as text.

    Parameters
    ----------
    records : mapping
        ``{annotator: (right, wrong)}``, or ``{annotator: "expert"}``, which means (19, 1).

    Examples
    --------
    >>> from crowdshot import AnnotatorPriors
    >>> AnnotatorPriors({"ann": (12, 3), "bob": "expert"})
    AnnotatorPriors({'ann': (12.0, 3.0), 'bob': (19.0, 1.0)})
    """

    def __init__(self, records: Mapping[Any, tuple[float, float] | str]) -> None:
        self._records = {str(name): _counts(name, record) for name, record in records.items()}

    @classmethod
    def from_classifier(cls, classifier: Any) -> Self:
        """Return the counts of a fitted `CrowdClassifier`, including its own ``priors``."""
        return cls.from_frame(classifier.annotators_)

    @classmethod
    def from_frame(cls, table: pd.DataFrame) -> Self:
        """Convert a table with columns for the annotator, right and wrong, such as ``CrowdClassifier.annotators_``."""
        names, right, wrong = _columns([str(name) for name in table.columns], "the table")
        ids = as_index(table.iloc[:, names])
        if not ids.is_unique:
            repeated = ids[first(ids.duplicated())]
            raise CrowdshotError(
                f"names annotator {show(repeated)} more than once",
                where="the table",
                found=repeated,
                expected="each annotator once",
            )
        return cls(dict(zip(ids, zip(table.iloc[:, right], table.iloc[:, wrong], strict=True), strict=True)))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read such a table from a file, as ``aggregate --annotators`` and ``adapt`` write it."""
        table = read_table(Path(path))
        names, right, wrong = _columns(table.header, str(path))
        for column in (right, wrong):
            numbers = table.numbers(column)
            bad = ~(np.isfinite(numbers) & (numbers >= 0))
            if bad.any():
                row = first(bad)
                raise CrowdshotError(
                    f"is {numbers[row]:g}",
                    where=table.place(row, column),
                    found=float(numbers[row]),
                    expected="a number, 0 or more",
                )
        counts = zip(table.numbers(right), table.numbers(wrong), strict=True)
        return cls(dict(zip(one_each(table, names), counts, strict=True)))

    def to_frame(self) -> pd.DataFrame:
        """Return a table with the columns annotator, right and wrong."""
        counts = np.array(list(self._records.values())).reshape(-1, 2)
        return pd.DataFrame({"annotator": list(self._records), "right": counts[:, 0], "wrong": counts[:, 1]})

    def of(self, annotators: Ids) -> NDArray[np.float64]:
        """Return an array (R, 2) of right and wrong labels, 0 for unknown annotators."""
        found = [self._records.get(str(name), (0.0, 0.0)) for name in annotators]
        return np.array(found, dtype=np.float64).reshape(-1, 2)

    def __getitem__(self, annotator: Any) -> tuple[float, float]:
        return self._records[str(annotator)]

    def __contains__(self, annotator: object) -> bool:
        return str(annotator) in self._records

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"AnnotatorPriors({self._records!r})"


PriorsInput: TypeAlias = "AnnotatorPriors | Mapping[Any, tuple[float, float] | str] | pd.DataFrame | None"


def as_priors(priors: PriorsInput) -> AnnotatorPriors:
    if priors is None:
        return AnnotatorPriors({})
    if isinstance(priors, AnnotatorPriors):
        return priors
    if isinstance(priors, pd.DataFrame):
        return AnnotatorPriors.from_frame(priors)
    if isinstance(priors, Mapping):
        return AnnotatorPriors(priors)
    raise CrowdshotError(
        f"is a {type(priors).__name__}", argument="priors", expected="{annotator: (right, wrong)} or a table"
    )


def _columns(header: list[str], source: str) -> tuple[int, int, int]:
    """Return the positions of the columns annotator, right and wrong; annotator is the first that is neither."""
    called = [plain(name) for name in header]
    names = [place for place, name in enumerate(called) if name not in COUNTS]
    if not names or any(name not in called for name in COUNTS):
        raise CrowdshotError(
            f"has the columns {listing(header)}",
            where=source,
            found=header[:10],
            expected="columns for the annotator, right and wrong",
        )
    return names[0], called.index("right"), called.index("wrong")


def _counts(name: Any, record: Any) -> tuple[float, float]:
    if isinstance(record, str) and record.strip().lower() == "expert":
        return EXPERT
    try:
        right, wrong = (float(number) for number in record)
    except (TypeError, ValueError):
        right = wrong = math.nan
    if not (0 <= right < math.inf and 0 <= wrong < math.inf):
        raise CrowdshotError(
            f"has {record!r} for annotator {show(name)}",
            argument="priors",
            found=record,
            expected="numbers (right, wrong) of labels, or 'expert'",
        )
    return right, wrong
