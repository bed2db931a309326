"""Read when labels were given; `label_durations` reads how long they took.

Times are ISO 8601, `3/4/2026 16:05`, `4. März 2026`, epoch numbers and others (`crowdshot.io.date_parsing`).

Whether 3/4/2026 is in March or in April is decided for a whole column: a number above 12 is a day; otherwise the order
in which the rows increase decides, if there are enough different dates. A column that stays undecided has two readings
(`Times`), and whoever needs the order of its labels compares both. Durations are never read as times: a time needs a
date.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.formatting import counted, first, listing
from crowdshot.io.cells import Ids, Positions, text
from crowdshot.io.date_parsing import Moment, parse_compact, parse_moment
from crowdshot.io.tables import Table
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import Columns, plain

DateOrder = Literal["day-first", "month-first"]
ORDERS = get_args(DateOrder)
LONG_AGO, FAR_AWAY = 1e8, 1e11  # plausible seconds since 1970: years 1973 to 5138
EPOCH = pd.Timestamp(0, tz="UTC").as_unit("us")  # in which years up to 9999 can be counted
SERIALS = (20_000, 80_000)  # days since 1899-12-30, as Excel counts: years 1954 to 2119
SERIALS_ELSEWHERE = (38_353, 51_502)  # the same outside workbooks: years 2005 to 2040
ISO = r"\d{4}-\d\d-\d\d"
ENOUGH = 5  # different dates; fewer may increase by chance
SAMPLE = 200  # cells from which a column of times is recognised
DAY = 86_400.0
TIME_OF_DAY = r"\d{1,3}:\d\d(:\d\d)?([.,]\d+)?\s*([ap]m)?"  # or a duration
DURATION = rf"[-+]?\d+([.,]\d+)?\s*(ms|s|sec|min|h)?|{TIME_OF_DAY}"
MOST = 0.9  # share of cells

# Names of columns with a label's time, the most reliable first.
WHEN = [
    *("updatedat", "updated", "modifiedat", "submittedat", "submittime", "submissiontime", "completedat", "finishedat"),
    *("updatedon", "lastmodified", "modified", "datemodified", "submittedon", "datesubmitted", "submissiondate"),
    *("completiontime", "completeddate", "datecompleted", "timecompleted", "enddate", "endtime", "recordeddate"),
    *("assignmentsubmitted", "submitted", "fertigstellungszeit", "abgabezeit"),
    *("labeledat", "labelledat", "annotatedat", "answeredat", "createdat", "created", "timestamp", "datetime"),
    *("labeledon", "labelledon", "annotatedon", "createdon", "datecreated", "creationdate", "annotationdate", "ts"),
    *("date", "time", "datum", "zeitstempel", "zeitpunkt", "fecha", "horodatage", "horodateur", "dateheure"),
    *("marcatemporal", "fechahora", "fechayhora", "carimbodedatahora", "datahora", "informazionicronologiche"),
    *map(plain, ("erstellt am", "geändert am", "日時", "タイムスタンプ", "时间", "時間", "日期", "提交时间")),
    *map(plain, ("時間戳記", "时间戳记", "完了時刻", "完成时间", "starttime", "startdate", "startedat", "startzeit")),
]
MAY_BE_DURATIONS = {"time", "starttime", "endtime", "completiontime", *map(plain, ("时间", "時間"))}
CLOCK = {"time", "uhrzeit", "zeit", "heure", "hora", "ora", "clock", "timeofday", *map(plain, ("時刻", "时间", "時間"))}
LATE = re.compile(r"end|submi|complet|finish|updat|modif|fertig|abgabe|soumis|envi")


@dataclass(frozen=True)
class Times:
    """When labels were given.

    Attributes
    ----------
    seconds : (L,) array
        Seconds since 1970, NaN if unknown. A time without a zone counts as UTC.
    month_first : (L,) array or None
        The same if dates such as 3/4/2026 begin with the month, where that is undecided. Then ``seconds`` holds the
        reading in which they begin with the day.
    column : str
        The column, for messages.
    example : str
        A date that can be read in two ways.
    order : str
        The order of day and month: "day-first", "month-first", "undecided", or "" if no date depends on it.
    durations : (L,) array or None
        How many seconds each label took, NaN if unknown (`labels.working_times`).
    """

    seconds: NDArray[np.float64]
    month_first: NDArray[np.float64] | None = None
    column: str = ""
    example: str = ""
    order: str = ""
    durations: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Self:
        """Return the times of some labels."""
        other, durations = (None if of is None else of[rows] for of in (self.month_first, self.durations))
        return replace(self, seconds=self.seconds[rows], month_first=other, durations=durations)

    @property
    def readings(self) -> list[NDArray[np.float64]]:
        """The possible seconds: one array, or two if the order of day and month is undecided."""
        return [self.seconds] if self.month_first is None else [self.seconds, self.month_first]

    def decided(self, order: str) -> Self:
        """Return the times with this order of day and month, if it is undecided."""
        if self.month_first is None:
            return self
        seconds = self.seconds if order == "day-first" else self.month_first
        return replace(self, seconds=seconds, month_first=None, order=order)

    @classmethod
    def unknown(cls, n: int) -> Self:
        return cls(np.full(n, np.nan))


def join_times(parts: Sequence[Times]) -> Times:
    """Return the times of several tables. Undecided ones follow the others, if these agree on the order."""
    orders = {part.order for part in parts} & set(ORDERS)
    if len(orders) == 1:
        parts = [part.decided(*orders) for part in parts]
    columns = {part.column for part in parts if part.column}
    durations = None
    if any(part.durations is not None for part in parts):
        durations = np.concatenate(
            [np.full(len(part), np.nan) if part.durations is None else part.durations for part in parts]
        )
    undecided = next((part for part in parts if part.month_first is not None), None)
    column = columns.pop() if len(columns) == 1 else ""
    if undecided is None:
        order = orders.pop() if len(orders) == 1 else ""
        return Times(np.concatenate([part.seconds for part in parts]), None, column, "", order, durations)
    seconds, other = (np.concatenate([part.readings[side] for part in parts]) for side in (0, -1))
    return Times(seconds, other, column, undecided.example, "undecided", durations)


# ---- repeated labels: the newest counts ---------------------------------------------------------------------------


def with_durations(times: Times | None, durations: NDArray[np.float64]) -> Times:
    """Return the times of labels with their durations (L,)."""
    return replace(times or Times.unknown(len(durations)), durations=durations)


def in_time(
    frame: pd.DataFrame,
    columns: Columns,
    times: Times | None,
    source: str,
    items: Iterable[Any] | None = None,
    annotators: Iterable[Any] | None = None,
) -> tuple[Annotations, Times | None]:
    """Convert a table with a row for each label ("" for none) to annotations; also return the times of kept labels.

    Of repeated labels, the newest counts, or the last row if some of their times are unknown.

    Parameters
    ----------
    frame : DataFrame
    columns : Columns
    times : Times or None
        The times of the rows, if there are any.
    source : str
        Name of the table, for messages.
    items, annotators : iterable, optional
        All ids, as in `Annotations.from_frame`.
    """
    if times is not None:
        labelled = (frame[columns.label] != "").to_numpy()
        if labelled.any():
            frame, times = frame[labelled], times.take(labelled)
            rows = _newest(frame, columns, times, source)
            frame, times = (frame, times) if rows is None else (frame.iloc[rows], times.take(rows))
    annotations = Annotations.from_frame(frame, columns, items=items, annotators=annotators, source=source)
    if times is not None and annotations.n_labels < len(times):
        times = times.take(~frame.duplicated([columns.item, columns.annotator], keep="last").to_numpy())
    return annotations, times


def _newest(frame: pd.DataFrame, columns: Columns, times: Times, source: str) -> Positions | None:
    """Return the rows to keep, None for all; the newest of repeated labels takes the place of the first."""
    pairs = frame[[columns.item, columns.annotator]]
    repeated = np.flatnonzero(pairs.duplicated(keep=False).to_numpy())
    if not len(repeated):
        return None
    pair = pairs.iloc[repeated].groupby(list(pairs), sort=False).ngroup().to_numpy()  # numbered as they first appear
    known = (np.bincount(pair, weights=np.isnan(times.seconds[repeated])) == 0)[pair]
    if not known.any():
        return None
    repeated, pair = repeated[known], np.unique(pair[known], return_inverse=True)[1]
    first = repeated[np.unique(pair, return_index=True)[1]]
    newest = newest_rows(pair, times.take(repeated), frame[columns.label].to_numpy()[repeated], source)
    dropped = counted(len(repeated) - len(first), "labels")
    because = "because an annotator labelled the same item more than once"
    by = f" by {times.column!r}" if times.column else ""
    warnings.warn(CrowdshotWarning(f"{dropped} dropped {because}; the newest{by} counts", where=source), stacklevel=2)
    rows = np.arange(len(frame))
    rows[first] = repeated[newest]
    kept = np.ones(len(frame), dtype=bool)
    kept[repeated], kept[first] = False, True
    return rows[kept]


def newest_rows(group: Positions, times: Times, labels: Ids, source: str) -> Positions:
    """Return the newest row of each group 0, 1, …; of equal times, the last row.

    Raise an error if the newest label of a group depends on the undecided order of day and month.
    """
    found = []
    for seconds in times.readings:
        by_time = np.argsort(seconds, kind="stable")
        newest = np.empty(group.max() + 1, dtype=np.int64)
        newest[group[by_time]] = by_time  # the last assignment to a group wins
        found.append(newest)
    differ = int((labels[found[0]] != labels[found[-1]]).sum())
    if differ:
        raise undecided_error(times, differ, source)
    return found[0]


def warn_undecided(times: Times | None, source: str) -> None:
    """Note that the order of day and month is undecided, and that no label depends on it."""
    if times is not None and times.month_first is not None:
        warnings.warn(
            CrowdshotWarning(
                f"Dates such as {times.example!r} may begin with the day or with the month; no label depends on it",
                where=source,
                found=times.example,
                hint=Use("if the day comes first", dates="day-first") | Use("if the month does", dates="month-first"),
            ),
            stacklevel=3,
        )


def undecided_error(times: Times, number: int, source: str) -> CrowdshotError:
    """Return the error for ``number`` labels that depend on the order of day and month."""
    column = f" in column {times.column!r}" if times.column else ""
    return CrowdshotError(
        f"Dates such as {times.example!r}{column} may begin with the day or with the month, and which of the"
        f" repeated labels is the newest depends on it ({counted(number, 'labels')})",
        argument="dates",
        where=source,
        found=times.example,
        expected=f"one of {listing(ORDERS)}",
        hint=Use("if the day comes first", dates="day-first") | Use("if the month does", dates="month-first"),
    )


# ---- columns of times ----------------------------------------------------------------------------------------------


class TimeOptions(NamedTuple):
    """The caller's choice of the column with times, and of the order of day and month in dates."""

    column: str | None = None
    dates: DateOrder | None = None

    def otherwise(self, column: str) -> TimeOptions:
        """Return the same with a format's own column of times."""
        return self._replace(column=column)


NO_OPTIONS = TimeOptions()


def check_dates(dates: str | None) -> None:
    if dates is not None and dates not in ORDERS:
        raise CrowdshotError(
            f"is {dates!r}", argument="dates", found=dates, expected=f"one of {listing(ORDERS)}", among=ORDERS
        )


def time_columns(
    table: Table, used: Sequence[str], options: TimeOptions = NO_OPTIONS, item: int | None = None
) -> list[int]:
    """Return the column with the times of the rows, and a second one if date and time of day are apart; [] for none.

    Parameters
    ----------
    table : Table
    used : sequence of str
        Columns with another meaning.
    options : TimeOptions
    item : int, optional
        The column of items. A column of dates that are the same for every label of an item is about the item.
    """
    header = table.header
    if options.column is not None:
        if header.count(options.column) != 1:
            raise CrowdshotError(
                f"names {options.column!r} for the time",
                argument="columns",
                where=table.name,
                found=options.column,
                expected=f"one of {listing(header)}",
                among=header,
            )
        return [header.index(options.column)]
    called = {
        plain(re.sub(r"\(.*?\)|\[.*?\]|\butc\b", "", name, flags=re.IGNORECASE)): i
        for i, name in reversed(list(enumerate(header)))
    }
    named = next((called[word] for word in WHEN if word in called and header[called[word]] not in used), None)
    if named is None:
        named = _by_content(table, used, item)
    if named is None:
        return []
    others = [i for i, name in enumerate(header) if i != named and name not in used and plain(name) in CLOCK]
    if (
        others
        and _share(_sample(table, named), r".*\d:\d\d.*") == 0
        and _share(_sample(table, others[0]), r"\d{1,2}:\d\d.*") > 0.9
    ):
        return [named, others[0]]
    return [named]


def _by_content(table: Table, used: Sequence[str], item: int | None) -> int | None:
    """Return the only unused column that holds dates (in words, not numbers), or the one named like an end."""
    found = []
    for place, name in enumerate(table.header):
        if name in used:
            continue
        words = _sample(table, place)
        if (
            len(words) > 1
            and all(parse_moment(word) is not None for word in words)
            and not is_of_items(table, place, item)
        ):
            found.append(place)
    late = [place for place in found if LATE.search(table.header[place].casefold())]
    return next((some[0] for some in (found, late) if len(some) == 1), None)


def _sample(table: Table, column: int) -> list[str]:
    values = table.frame.iloc[:SAMPLE, column]
    return [word for word in (text(value) for value in values) if word]


def _share(words: Sequence[str], pattern: str) -> float:
    return sum(bool(re.fullmatch(pattern, word)) for word in words) / max(1, len(words))


def is_of_items(table: Table, column: int, item: int | None) -> bool:
    """Return whether all labels of an item have the same cell, although some items have several labels."""
    if item is None:
        return False
    pairs = pd.DataFrame({"item": table.frame.iloc[:, item].map(text), "cell": table.frame.iloc[:, column].map(text)})
    several = pairs["item"].duplicated(keep=False)
    return bool(several.any() and (pairs[several].groupby("item")["cell"].nunique() <= 1).all())


def times_of(
    table: Table, used: Sequence[str], options: TimeOptions = NO_OPTIONS, item: int | None = None, serials: bool = False
) -> Times | None:
    """Return the times (n,) of the rows of a table, None if it has no column of times.

    ``serials``: whether numbers may be days as Excel counts them, because the table is from a workbook.
    """
    columns = time_columns(table, used, options, item)
    if not columns:
        return None
    cells = [text(value) or "" for value in table.frame.iloc[:, columns[0]]]
    if columns[1:]:
        clock = (text(value) or "" for value in table.frame.iloc[:, columns[1]])
        cells = [f"{day} {time}".strip() if day else "" for day, time in zip(cells, clock, strict=True)]
    name = table.header[columns[0]]
    return read_times(cells, name, table.name, options.dates, serials)


# ---- cells ---------------------------------------------------------------------------------------------------------


def read_times(
    cells: Sequence[str] | Ids,
    column: str = "",
    source: str = "",
    dates: DateOrder | None = None,
    serials: bool = False,
) -> Times:
    """Parse times; warn if some cannot be read.

    Parameters
    ----------
    cells : sequence of str
        "" where unknown.
    column, source : str
        Names in messages. A column such as "Date (MM/DD/YYYY)" says its order.
    dates : {"day-first", "month-first"}, optional
        The order of day and month. By default it is inferred.
    serials : bool
        Whether numbers may be days as Excel counts them.
    """
    check_dates(dates)
    code, words = pd.factorize(np.array([text(cell) or "" for cell in cells], dtype=object))
    found = pd.Series(words, dtype=object)
    if not serials and _are_serials(found, column):
        serials = True
        message = f"The numbers in {column!r} are read as dates, as Excel counts days"
        warnings.warn(CrowdshotWarning(message, where=source or None, found=column), stacklevel=4)
    seconds = _numbers(found, serials, plain(column))
    iso = found.str.match(ISO).to_numpy(dtype=bool) if len(found) else np.zeros(0, dtype=bool)
    dated = pd.to_datetime(found[iso], format="ISO8601", utc=True, errors="coerce")
    seconds[iso] = (dated - EPOCH).dt.total_seconds().to_numpy()
    rest = np.flatnonzero(np.isnan(seconds) & ~_are_numbers(found))
    parsed = {row: moment for row in rest if (moment := parse_moment(words[row])) is not None}
    other = seconds.copy()
    for row, moment in parsed.items():
        seconds[row], other[row] = moment.seconds
    open_rows = [row for row, moment in parsed.items() if moment.is_open]
    shown = _shown(list(parsed.values()))
    if dates and shown in ORDERS and shown != dates:
        _warn_order(next(words[row] for row, moment in parsed.items() if moment.shows), dates, column, source)
    order, example = shown if shown in ORDERS else dates or _stated(column) or shown, ""
    if open_rows:
        order, example = order or _by_rows(code, seconds, other), words[open_rows[0]]
    if order == "month-first":
        seconds = other
    _warn_unread(found, seconds, code, column, source)
    undecided = bool(open_rows) and order not in ORDERS
    if undecided:
        return Times(seconds[code], other[code], column, example, "undecided")
    return Times(seconds[code], None, column, example, order if order in ORDERS else "")


def _are_serials(words: pd.Series[str], column: str) -> bool:
    """Return whether all cells of a column of dates outside workbooks are days as Excel counts, with times of day."""
    if "date" not in plain(column) and plain(column) != "timestamp":
        return False
    filled = words[words != ""]
    values = pd.to_numeric(filled, errors="coerce").to_numpy(dtype=np.float64)
    plausible = (values > SERIALS_ELSEWHERE[0]) & (values < SERIALS_ELSEWHERE[1])
    return bool(len(values) and plausible.all() and (values % 1 != 0).any())


def _are_numbers(words: pd.Series[str]) -> NDArray[np.bool_]:
    numeric: NDArray[np.bool_] = pd.to_numeric(words, errors="coerce").notna().to_numpy(dtype=bool)
    return numeric


def _numbers(words: pd.Series[str], serials: bool, column: str) -> NDArray[np.float64]:
    """Return the seconds of cells that are numbers, NaN for the others.

    Numbers are seconds since 1970 or smaller units, dates such as 20260304 (if all are), or days as Excel counts.
    """
    values: NDArray[np.float64] = np.array(pd.to_numeric(words, errors="coerce"), dtype=np.float64)
    values[np.isinf(values)] = np.nan
    is_number = ~np.isnan(values)
    if not is_number.any():
        return values
    rows = np.flatnonzero(is_number)
    if all(parse_compact(words[row]) is not None for row in rows):
        values[rows] = [parse_compact(words[row]) for row in rows]
        return values
    numbers = values[is_number]
    if serials and column != "time" and ((numbers > SERIALS[0]) & (numbers < SERIALS[1])).all():
        return np.asarray((values - 25_569) * DAY)  # days from 1899-12-30 to 1970
    values[~(values > LONG_AGO)] = np.nan
    while (values > FAR_AWAY).any():
        values[values > FAR_AWAY] /= 1000
    return values


def _stated(column: str) -> str:
    """Return the order that the column's name states, as in "Date (DD/MM/YYYY)"."""
    name = column.casefold()
    if re.search(r"\b(dd?|tt?|jj?)\s*[-/.]\s*mm?\b", name):
        return "day-first"
    return "month-first" if re.search(r"\bmm?\s*[-/.]\s*(dd?|tt?|jj?)\b", name) else ""


def _shown(moments: Sequence[Moment]) -> str:
    """Return the order that days above 12 show; "undecided" if they contradict each other, "" if there are none."""
    shown = {moment.shows for moment in moments} - {""}
    return shown.pop() if len(shown) == 1 else "undecided" if shown else ""


def _by_rows(code: NDArray[np.int64], day_first: NDArray[np.float64], month_first: NDArray[np.float64]) -> str:
    """Return the only order in which the rows increase or decrease, "" if there is none or too few dates."""
    monotone = []
    for order, values in zip(ORDERS, (day_first, month_first), strict=True):
        times = values[code]
        steps = np.diff(times[~np.isnan(times)])
        days = np.unique(np.floor(times[~np.isnan(times)] / DAY))
        if len(days) >= ENOUGH and ((steps >= 0).all() or (steps <= 0).all()):
            monotone.append(order)
    return monotone[0] if len(monotone) == 1 else ""


def _warn_order(example: str, dates: str, column: str, source: str) -> None:
    warnings.warn(
        CrowdshotWarning(
            f"Dates in column {column!r} are not read as {dates}, because one is {example!r}",
            where=source or None,
            found=example,
            argument="dates",
        ),
        stacklevel=3,
    )


def _warn_unread(
    words: pd.Series[str], seconds: NDArray[np.float64], code: NDArray[np.int64], column: str, source: str
) -> None:
    """Warn about cells that should be times but cannot be read; small numbers may be durations."""
    unread = np.isnan(seconds) & (words != "").to_numpy(dtype=bool)
    if not unread.any() or not column:
        return
    if np.isnan(seconds).all():
        shares = _share(list(words[unread]), DURATION), _share(list(words[unread]), TIME_OF_DAY)
        if shares[1] > MOST or (shares[0] > MOST and plain(column) in MAY_BE_DURATIONS):
            return
    number, example = int(unread[code].sum()), words[first(unread)]
    filled = int((words != "").to_numpy(dtype=bool)[code].sum())
    warnings.warn(
        CrowdshotWarning(
            f"Column {column!r} looks like times, but {number:,} of {filled:,} cells cannot be read, such as"
            f" {example!r}; labels with such a time have no order",
            where=source or None,
            found=example,
            expected="dates such as 2026-03-04 16:05",
        ),
        stacklevel=4,
    )
