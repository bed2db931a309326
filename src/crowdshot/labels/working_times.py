"""Summarise when and how fast each annotator works.

The speed of an annotator is computed from the gaps between the times of consecutive labels. Gaps that
are breaks do not count (`is_break`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.formatting import clean, percent
from crowdshot.io.cells import Ids, Positions
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.label_times import DAY, Times

if TYPE_CHECKING:
    from crowdshot.labels.formats.label_file import LabelsRead
    from crowdshot.model.parts import PosteriorMatrix

LAST_ACTIVE, LABELS_PER_HOUR, MEDIAN_SECONDS = "last_active", "labels_per_hour", "median_seconds"
# Columns of `accuracy_trends`.
CHANGE, CHANGED_AT, BEFORE, AFTER = "accuracy_change", "changed_at", "accuracy_before", "accuracy_after"
COURSE = "accuracy_course"
EARLY, LATE = "accuracy_early_in_session", "accuracy_late_in_session"
FAST_BELOW, FAST_LABELS, FAST, SLOW = "fast_below_seconds", "fast_labels", "accuracy_fast", "accuracy_not_fast"
TRENDS = (COURSE, CHANGE, CHANGED_AT, BEFORE, AFTER, EARLY, LATE, FAST_BELOW, FAST_LABELS, FAST, SLOW)
TEXTS = (LAST_ACTIVE, COURSE, CHANGE, CHANGED_AT)  # the columns with text
SAME_MOMENT = 0.1  # seconds between two labels that were submitted together, or imported
LONGEST_GAP, SHORTEST_BREAK, BREAK_RATIO = 1800.0, 120.0, 10.0  # seconds, seconds, multiples of the median gap
FEWEST_GAPS = 5  # for a speed


# ---- annotators ----------------------------------------------------------------------------------------------------


def is_break(gaps: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which gaps (in seconds) between an annotator's labels are breaks.

    A break is longer than ten times the median gap (at least two minutes), or longer than half an hour.

    >>> is_break(np.array([10.0, 12.0, 11.0, 100.0, 1200.0])).tolist()
    [False, False, False, False, True]
    """
    if not len(gaps):
        return np.zeros(0, dtype=bool)
    least = max(SHORTEST_BREAK, BREAK_RATIO * float(np.median(gaps)))
    return gaps > min(least, LONGEST_GAP)


def _speed(seconds: NDArray[np.float64]) -> tuple[float, float]:
    """Return the labels per hour and the median seconds per label from known times of labels; NaN if they are too few.

    Labels of the same moment were submitted together: they share the gap before them. The labels at the start of the
    annotator's work and after breaks do not count, because when they were begun is unknown.
    """
    moments = np.sort(seconds)
    starts = np.flatnonzero(np.diff(moments, prepend=-np.inf) > SAME_MOMENT)
    counts = np.diff(starts, append=len(moments))[1:]
    gaps = np.diff(moments[starts])
    works = ~is_break(gaps)
    if works.sum() < FEWEST_GAPS:
        return np.nan, np.nan
    gaps, counts = gaps[works], counts[works]
    return 3600 * float(counts.sum() / gaps.sum()), float(np.median(np.repeat(gaps / counts, counts)))


def working_times(ann: Annotations, times: Times | None) -> pd.DataFrame:
    """Return when and how fast each annotator works, indexed by the annotators' names.

    Parameters
    ----------
    ann : Annotations
    times : Times or None
        When the labels were given, and how long they took.

    Returns
    -------
    DataFrame
        Those of the following columns that are known for any annotator:

        - last_active: the time of the newest label, as text; a date if all times are dates;
        - labels_per_hour: the speed without breaks (`is_break`);
        - median_seconds: the median duration of a label or, if the annotator's durations are unknown, the median gap.
    """
    names = pd.Index([str(name) for name in ann.annotators], dtype=object)
    if times is None:
        return pd.DataFrame(index=names)
    seconds = certain_seconds(times)
    durations = np.full(len(seconds), np.nan) if times.durations is None else times.durations
    only_dates = bool((seconds[~np.isnan(seconds)] % DAY == 0).all())
    found = [_summary(seconds[rows], durations[rows], only_dates) for rows in _rows_of(ann)]
    table = pd.DataFrame(found, index=names, columns=[LAST_ACTIVE, LABELS_PER_HOUR, MEDIAN_SECONDS])
    table = table.astype({LABELS_PER_HOUR: float, MEDIAN_SECONDS: float}).round(1)
    return table.loc[:, table.notna().any()]


def _summary(
    seconds: NDArray[np.float64], durations: NDArray[np.float64], only_dates: bool
) -> tuple[str | None, float, float]:
    """Return the values of an annotator in the columns of `working_times`."""
    known, took = seconds[~np.isnan(seconds)], durations[~np.isnan(durations)]
    per_hour, gap = _speed(known)
    last = time_text(float(known.max()), only_dates) if len(known) else None
    return last, per_hour, float(np.median(took)) if len(took) else gap


def certain_seconds(times: Times) -> NDArray[np.float64]:
    """Return the seconds of times, NaN for those that depend on an undecided order of day and month."""
    day_first, month_first = times.readings[0], times.readings[-1]
    return np.where(day_first == month_first, day_first, np.nan)


def _rows_of(ann: Annotations) -> list[Positions]:
    order = np.argsort(ann.annotator, kind="stable")
    return np.split(order, np.cumsum(np.bincount(ann.annotator, minlength=ann.n_annotators))[:-1])


def time_text(seconds: float, only_date: bool) -> str:
    """Return a time as ISO 8601 in UTC."""
    written = datetime.fromtimestamp(int(seconds // 1), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return written[:10] if only_date else written


def working_table(labels: LabelsRead, ann: Annotations, posterior: PosteriorMatrix) -> pd.DataFrame:
    """Return `working_times` and `accuracy_trends.accuracy_trends` of the annotators, the columns with any value.

    ``posterior`` (N, K) has the class probabilities of the items of ``ann``, which has the labels and maybe more items.
    """
    found = working_times(labels.annotations, labels.times)
    if labels.times is None:
        return found
    from crowdshot.labels.accuracy_trends import trends_of  # here, as importing scipy.stats takes a second

    trends = trends_of(labels, ann, posterior)
    return pd.concat([found, trends.loc[:, trends.notna().any()]], axis=1)


def with_working_times(people: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Return a table of annotators, whose first column has their names, with the columns of `working_table`."""
    if not len(found.columns):
        return people
    names: Ids = people.iloc[:, 0].astype(str).to_numpy()
    return people.assign(**{name: found[name].reindex(names).to_numpy() for name in found})


def working_records(found: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return the rows of a table such as `working_times` by names as pages show them, without unknown values."""
    rows = found.to_dict("index")
    known = {clean(name): {key: value for key, value in row.items() if pd.notna(value)} for name, row in rows.items()}
    return {name: row for name, row in known.items() if row}


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


def describe_working(known: Mapping[str, Any]) -> str:
    """Return a sentence on when and how fast an annotator works.

    >>> describe_working({"last_active": "2026-03-04T16:05:00Z", "labels_per_hour": 212.4, "median_seconds": 14.0})
    'Last active 2026-03-04 16:05 UTC; 212 labels per hour without breaks; median 14 seconds per label.'
    """
    parts = []
    if LAST_ACTIVE in known:
        day, _, clock = known[LAST_ACTIVE].partition("T")
        parts.append(f"last active {day} {clock[:5]} UTC" if clock else f"last active {day}")
    if LABELS_PER_HOUR in known:
        parts.append(f"{_short(known[LABELS_PER_HOUR])} labels per hour without breaks")
    if MEDIAN_SECONDS in known:
        parts.append(f"median {_short(known[MEDIAN_SECONDS])} seconds per label")
    sentence = "; ".join(parts)
    return "" if not parts else f"{sentence[:1].upper()}{sentence[1:]}."


def describe_trends(known: Mapping[str, Any]) -> list[str]:
    r"""Return sentences on how an annotator's accuracy changes; ``known`` has columns of `TRENDS`.

    >>> describe_trends({"accuracy_change": "fell", "changed_at": "2026-03-04", "accuracy_before": 0.91,
    ...                  "accuracy_after": 0.64})
    ['Accuracy fell from 91\xa0% to 64\xa0% on 2026-03-04.']
    """
    out = []
    if CHANGE in known:
        day, _, clock = known.get(CHANGED_AT, "").partition("T")
        when = f" on {day}" + (f" {clock[:5]} UTC" if clock else "") if day else ""
        out.append(f"Accuracy {known[CHANGE]} from {percent(known[BEFORE])} to {percent(known[AFTER])}{when}.")
    if EARLY in known:
        verb = "falls" if known[LATE] < known[EARLY] else "rises"
        out.append(
            f"Within sessions, accuracy {verb} from {percent(known[EARLY])} early to {percent(known[LATE])} late."
        )
    if FAST in known:
        out.append(
            f"{known[FAST_LABELS]:,.0f} answers in less than {known[FAST_BELOW]:.3g} seconds are less accurate:"
            f" {percent(known[FAST])}, the others {percent(known[SLOW])}."
        )
    return out


def course_points(known: Mapping[str, Any]) -> str:
    """Return the accuracy in successive parts of the labels as points of a line in a box of 100 x 24; "" if unknown.

    >>> course_points({"accuracy_course": "0.90 0.50 1.00"})
    '0.0,2.4 50.0,12.0 100.0,0.0'
    """
    parts = [float(part) for part in known.get(COURSE, "").split()]
    return " ".join(f"{100 * i / (len(parts) - 1):.1f},{24 * (1 - part):.1f}" for i, part in enumerate(parts))


def warning_signs(known: Mapping[str, Any]) -> list[str]:
    """Return short names of the findings that are a reason to talk to the annotator.

    >>> warning_signs({"accuracy_change": "fell gradually", "accuracy_fast": 0.5})
    ['accuracy fell', 'fast answers are worse']
    """
    signs = {
        "accuracy fell": str(known.get(CHANGE, "")).startswith("fell"),
        "worse late in sessions": EARLY in known and known[LATE] < known[EARLY],
        "fast answers are worse": FAST in known,
    }
    return [name for name, found in signs.items() if found]
