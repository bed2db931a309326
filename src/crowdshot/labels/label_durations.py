"""Read how long labels took, from columns such as "Duration (in seconds)" or "time spent"."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdshot.io.cells import text
from crowdshot.io.tables import Table
from crowdshot.labels.columns import plain
from crowdshot.labels.label_times import DAY, is_of_items

UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
UNITS = {
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "milliseconds", "millisekunden"), "ms"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "sekunden", "secondes", "segundos", "secondi"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes", "minuten", "minutos", "minuti"), "min"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "stunden", "heures", "horas", "ore"), "h"),
}
# Names of columns with the duration of a label, without a unit.
DURATIONS = {
    *("duration", "labelduration", "taskduration", "leadtime", "worktime", "workingtime", "handlingtime"),
    *("timespent", "timetaken", "timeontask", "timeonpage", "timeelapsed", "elapsed", "elapsedtime"),
    *("annotationtime", "labelingtime", "labellingtime", "dauer", "bearbeitungszeit", "bearbeitungsdauer"),
    *map(plain, ("durée", "duración", "duração", "durata", "所要時間", "作業時間", "用时", "时长", "用時", "時長")),
}
NUMBER = re.compile(r"(\d+(?:[.,]\d+)?|[.,]\d+)(?:e[-+]?\d+)?\s*([a-z]*)\.?")
CLOCK_TIME = re.compile(r"(?:(?:(\d+)\s*days?,?\s+)?(\d+):)?(\d{1,3}):(\d\d(?:[.,]\d+)?)")  # h:mm:ss or mm:ss
ISO_DURATION = re.compile(r"pt(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")


def unit_of(column: str) -> str | None:
    """Return the unit of the durations in a column of this name ("ms", "s", "min" or "h"), None if it has none.

    >>> [unit_of(name) for name in ("Duration (in seconds)", "time_spent", "lead time [ms]", "timestamp", "times")]
    ['s', 's', 'ms', None, None]
    """
    word = plain(column)
    if word in DURATIONS or word in ("seconds", "secs"):
        return "s"
    for ending in sorted(UNITS, key=len, reverse=True):
        if word.endswith(ending):
            stem = word.removesuffix(ending).removesuffix("in")
            if stem in DURATIONS or (stem == "time" and len(ending) > 1):
                return UNITS[ending]
    return None


def seconds_of(cell: Any, unit: str = "s") -> float:
    """Return the seconds of a duration such as 12.5, "320 ms", "1:05" (minutes and seconds) or "PT2M"; NaN if unknown.

    >>> [seconds_of(cell) for cell in (12.5, "320 ms", "1:05", "0:01:05", "PT2M5S", "2 min", -1, "fast")]
    [12.5, 0.32, 65.0, 65.0, 125.0, 120.0, nan, nan]
    """
    word = (text(cell) or "").casefold()
    if match := CLOCK_TIME.fullmatch(word):
        days, hours, minutes, seconds = (float((part or "0").replace(",", ".")) for part in match.groups())
        return days * DAY + 3600 * hours + 60 * minutes + seconds
    if match := NUMBER.fullmatch(word):
        named = UNITS.get(match[2]) if match[2] else unit
        number = word[: match.start(2)].strip().rstrip(".").replace(",", ".") if match[2] else word.replace(",", ".")
        seconds = np.nan if named is None else float(number) * UNIT_SECONDS[named]
        return seconds if np.isfinite(seconds) else np.nan
    match = ISO_DURATION.fullmatch(word)
    if match and any(match.groups()):
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
        return 3600 * hours + 60 * minutes + seconds
    return np.nan


def read_durations(cells: Iterable[Any], unit: str = "s") -> NDArray[np.float64]:
    """Return the seconds of durations, NaN where unknown."""
    known: dict[str, float] = {}
    words = [text(cell) or "" for cell in cells]
    for word in words:
        if word not in known:
            known[word] = seconds_of(word, unit)
    return np.array([known[word] for word in words], dtype=np.float64)


def duration_column(table: Table, used: Sequence[str], item: int | None = None) -> int | None:
    """Return the column with the durations of labels, None if there is none.

    A column that is the same for every label of an item is about the item, such as the length of a video.

    Parameters
    ----------
    table : Table
    used : sequence of str
        Columns with another meaning.
    item : int, optional
        The column of items.
    """
    for place, name in enumerate(table.header):
        unit = None if name in used else unit_of(name)
        if unit is None or is_of_items(table, place, item):
            continue
        if not np.isnan(read_durations(table.frame.iloc[:, place], unit)).all():
            return place
    return None
