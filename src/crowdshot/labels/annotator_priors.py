"""What is known of annotators from earlier projects: how many of their labels were right and how many wrong."""

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

EXPERT = (19.0, 1.0)  # what "expert" means: as if nineteen of twenty labels had been right
COUNTS = ("right", "wrong")


class AnnotatorPriors(Mapping[Any, tuple[float, float]]):
    """{annotator: (right, wrong)}, or "expert" in the place of the two numbers.

    >>> from crowdshot import AnnotatorPriors
    >>> AnnotatorPriors({"ann": (12, 3), "bob": "expert"})
    AnnotatorPriors({'ann': (12.0, 3.0), 'bob': (19.0, 1.0)})

    `CrowdClassifier.fit` takes it as ``priors=``, `aggregate.learned` as ``history=``; in a project that is new,
    annotators then begin with what they have shown in others. Who gave no label in a project is passed over there.
    Names are compared as text.
    """

    def __init__(self, records: Mapping[Any, tuple[float, float] | str]) -> None:
        self._records = {str(name): _counts(name, record) for name, record in records.items()}

    @classmethod
    def from_classifier(cls, classifier: Any) -> Self:
        """What a fitted `CrowdClassifier` has seen of its annotators, what it was told of them before included."""
        return cls.from_frame(classifier.annotators_)

    @classmethod
    def from_frame(cls, table: pd.DataFrame) -> Self:
        """A table with the columns right and wrong, and the annotator's first; like `CrowdClassifier.annotators_`."""
        names, right, wrong = _columns([str(name) for name in table.columns], "the table")
        ids = as_index(table.iloc[:, names])
        if not ids.is_unique:
            twice = show(ids[first(ids.duplicated())])
            raise CrowdshotError(f"the table names annotator {twice} more than once, expected each once.")
        return cls(dict(zip(ids, zip(table.iloc[:, right], table.iloc[:, wrong], strict=True), strict=True)))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """A file with such a table, as ``aggregate --annotators`` and ``adapt`` write it."""
        table = read_table(Path(path))
        names, right, wrong = _columns(table.header, str(path))
        for column in (right, wrong):
            numbers = table.numbers(column)
            bad = ~(np.isfinite(numbers) & (numbers >= 0))
            if bad.any():
                row = first(bad)
                raise CrowdshotError(f"{table.place(row, column)} is {numbers[row]:g}, expected a number, 0 or more.")
        counts = zip(table.numbers(right), table.numbers(wrong), strict=True)
        return cls(dict(zip(one_each(table, names), counts, strict=True)))

    def to_frame(self) -> pd.DataFrame:
        """annotator, right, wrong"""
        counts = np.array(list(self._records.values())).reshape(-1, 2)
        return pd.DataFrame({"annotator": list(self._records), "right": counts[:, 0], "wrong": counts[:, 1]})

    def of(self, annotators: Ids) -> NDArray[np.float64]:
        """(R, 2): right and wrong of these annotators, 0 of those of whom nothing is known."""
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


def as_priors(given: PriorsInput) -> AnnotatorPriors:
    if given is None:
        return AnnotatorPriors({})
    if isinstance(given, AnnotatorPriors):
        return given
    if isinstance(given, pd.DataFrame):
        return AnnotatorPriors.from_frame(given)
    if isinstance(given, Mapping):
        return AnnotatorPriors(given)
    raise CrowdshotError(f"priors is a {type(given).__name__}, expected {{annotator: (right, wrong)}} or a table.")


def _columns(header: list[str], source: str) -> tuple[int, int, int]:
    """Where the annotator, right and wrong stand; the annotator's is the first that is neither."""
    called = [plain(name) for name in header]
    names = [place for place, name in enumerate(called) if name not in COUNTS]
    if not names or any(name not in called for name in COUNTS):
        expected = "the annotator, right and wrong"
        raise CrowdshotError(f"{source} has {listing(header)} for columns, expected {expected}.")
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
            f"priors has {record!r} for annotator {show(name)}, expected numbers (right, wrong) of labels, or 'expert'."
        )
    return right, wrong
