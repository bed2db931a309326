"""Of labels that an annotator gave an item more than once, the newest counts, where it is known when each was given.

Times must be unmistakable, 2026-03-04… or since 1970: elsewhere 03/04 is in March or in April, and 12 how long somebody
took. They are read only where labels are repeated, which may be as late as when files are joined or people renamed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.formatting import counted
from crowdshot.io.cells import Ids, text
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import Columns
from crowdshot.labels.indexing import Positions

LONG_AGO, FAR_AWAY = 1e8, 1e11  # seconds since 1970: in 1973, and in 5138
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
    """Annotations from a table with a row for each label, "" for none, and when those that stay were given.

    ``when``: (L,) as it was written, or None where nobody wrote it. ``by``: the column that it stands in. Of repeated
    labels whose times are not all known, the last in order counts.
    """
    if when is not None:
        said = (frame[columns.label] != "").to_numpy()
        if said.any():
            frame, when = frame[said], when[said]
            rows = _newest(frame, columns, when, f"{source}: ", f" by {by!r}" if by else "")
            frame, when = (frame, when) if rows is None else (frame.iloc[rows], when[rows])
    annotations = Annotations.from_frame(frame, columns, items=items, annotators=annotators, source=source)
    if when is not None and annotations.n_labels < len(when):
        when = when[~frame.duplicated([columns.item, columns.annotator], keep="last").to_numpy()]
    return annotations, when


def _newest(frame: pd.DataFrame, columns: Columns, when: Ids, source: str, by: str) -> Positions | None:
    """The rows that stay, None for all: of repeated labels with known times the newest, where the first one stood."""
    pairs = frame[[columns.item, columns.annotator]]
    again = np.flatnonzero(pairs.duplicated(keep=False).to_numpy())
    if not len(again):
        return None
    times = seconds(when[again])
    pair = pairs.iloc[again].groupby(list(pairs), sort=False).ngroup().to_numpy()  # numbered as they first appear
    known = (np.bincount(pair, weights=np.isnan(times)) == 0)[pair]
    if not known.any():
        return None
    again, times, pair = again[known], times[known], np.unique(pair[known], return_inverse=True)[1]
    first = again[np.unique(pair, return_index=True)[1]]
    by_time = np.argsort(times, kind="stable")
    newest = np.empty_like(first)
    newest[pair[by_time]] = again[by_time]  # of each pair the last stays
    told = f"{counted(len(again) - len(first), 'labels')} dropped because an annotator labelled the same item"
    warnings.warn(f"{source}{told} more than once; the newest{by} counts.", UserWarning, stacklevel=2)
    rows = np.arange(len(frame))
    rows[first] = newest
    stays = np.ones(len(frame), dtype=bool)
    stays[again], stays[first] = False, True
    return rows[stays]


def seconds(when: Ids) -> NDArray[np.float64]:
    """(n,) since 1970, NaN where that cannot be told for certain. Numbers may count thousandths of them, too."""
    cells = pd.Series([text(value) or "" for value in when], dtype=object)
    dated = cells.str.match(DATED).to_numpy(dtype=bool)
    numbers: NDArray[np.float64] = np.array(pd.to_numeric(cells.where(~dated), errors="coerce"), dtype=np.float64)
    numbers[~(numbers > LONG_AGO) | np.isinf(numbers)] = np.nan
    while (numbers > FAR_AWAY).any():
        numbers[numbers > FAR_AWAY] /= 1000
    dates = pd.to_datetime(cells[dated], format="ISO8601", utc=True, errors="coerce")
    numbers[dated] = (dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy()
    return numbers
