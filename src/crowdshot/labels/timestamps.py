"""Keep the newest label if an annotator labelled an item more than once and the times are known.

Times must be unambiguous: ISO dates (2026-03-04…) or seconds since 1970. 03/04 may be in March or April, and 12 may be
a duration. Times are read only if labels are repeated, which may happen when files are joined or annotators renamed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotWarning
from crowdshot.formatting import counted
from crowdshot.io.cells import Ids, text
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import Columns
from crowdshot.labels.indexing import Positions

LONG_AGO, FAR_AWAY = 1e8, 1e11  # plausible seconds since 1970: years 1973 to 5138
DATED = r"\d{4}-\d\d-\d\d"


def in_time(
    frame: pd.DataFrame,
    columns: Columns,
    when: Ids | None,
    source: str,
    by: str = "",
    items: Iterable[Any] | None = None,
    annotators: Iterable[Any] | None = None,
) -> tuple[Annotations, Ids | None]:
    """Convert a table with a row for each label ("" for none) to annotations; also return the times of kept labels.

    Of repeated labels, the newest counts, or the last row if some of their times are unknown.

    Parameters
    ----------
    frame : DataFrame
    columns : Columns
    when : array of shape (L,) or None
        Times as written in the input, if there are any.
    source, by : str
        Names of the table and of its time column, for messages.
    items, annotators : iterable, optional
        All ids, as in `Annotations.from_frame`.
    """
    if when is not None:
        labelled = (frame[columns.label] != "").to_numpy()
        if labelled.any():
            frame, when = frame[labelled], when[labelled]
            rows = _newest(frame, columns, when, source, f" by {by!r}" if by else "")
            frame, when = (frame, when) if rows is None else (frame.iloc[rows], when[rows])
    annotations = Annotations.from_frame(frame, columns, items=items, annotators=annotators, source=source)
    if when is not None and annotations.n_labels < len(when):
        when = when[~frame.duplicated([columns.item, columns.annotator], keep="last").to_numpy()]
    return annotations, when


def _newest(frame: pd.DataFrame, columns: Columns, when: Ids, source: str, by: str) -> Positions | None:
    """Return the rows to keep, None for all; the newest of repeated labels takes the place of the first."""
    pairs = frame[[columns.item, columns.annotator]]
    repeated = np.flatnonzero(pairs.duplicated(keep=False).to_numpy())
    if not len(repeated):
        return None
    times = seconds(when[repeated])
    pair = pairs.iloc[repeated].groupby(list(pairs), sort=False).ngroup().to_numpy()  # numbered as they first appear
    known = (np.bincount(pair, weights=np.isnan(times)) == 0)[pair]
    if not known.any():
        return None
    repeated, times, pair = repeated[known], times[known], np.unique(pair[known], return_inverse=True)[1]
    first = repeated[np.unique(pair, return_index=True)[1]]
    by_time = np.argsort(times, kind="stable")
    newest = np.empty_like(first)
    newest[pair[by_time]] = repeated[by_time]  # the last assignment to a pair wins
    dropped = counted(len(repeated) - len(first), "labels")
    because = "because an annotator labelled the same item more than once"
    warnings.warn(CrowdshotWarning(f"{dropped} dropped {because}; the newest{by} counts", where=source), stacklevel=2)
    rows = np.arange(len(frame))
    rows[first] = newest
    kept = np.ones(len(frame), dtype=bool)
    kept[repeated], kept[first] = False, True
    return rows[kept]


def seconds(when: Ids) -> NDArray[np.float64]:
    """Return seconds since 1970 (n,), NaN if ambiguous. Numbers may also be milliseconds or smaller units."""
    cells = pd.Series([text(value) or "" for value in when], dtype=object)
    dated = cells.str.match(DATED).to_numpy(dtype=bool)
    numbers: NDArray[np.float64] = np.array(pd.to_numeric(cells.where(~dated), errors="coerce"), dtype=np.float64)
    numbers[~(numbers > LONG_AGO) | np.isinf(numbers)] = np.nan
    while (numbers > FAR_AWAY).any():
        numbers[numbers > FAR_AWAY] /= 1000
    dates = pd.to_datetime(cells[dated], format="ISO8601", utc=True, errors="coerce")
    numbers[dated] = (dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy()
    return numbers
