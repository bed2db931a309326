"""Parse dates and times as people and programs write them: `3/4/2026 16:05`, `4. März 2026`, `20260304T160500Z`.

Dates such as 3/4/2026 have two readings, with the day first and with the month first. Durations and times without a
date are not parsed.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import date, timedelta
from typing import NamedTuple

MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "jan january januar jänner janvier janv enero ene janeiro gennaio gen",
            "feb february februar février févr fév febrero fevereiro fev febbraio",
            "mar march märz mär mrz mars marzo março",
            "apr april avril avr abril abr aprile",
            "may mai mayo maio maggio mag",
            "jun june juni juin junio junho giugno giu",
            "jul july juli juillet juil julio julho luglio lug",
            "aug august août aoû agosto ago",
            "sep sept september septembre septiembre setembro set settembre",
            "oct october okt oktober octobre octubre outubro out ottobre ott",
            "nov november novembre noviembre novembro",
            "dec december dez dezember décembre déc diciembre dic dezembro dicembre",
        ),
        1,
    )
    for name in names.split()
}
WEEKDAYS = (
    "(?:mon|tue|wed|thu|fri|sat|sun|montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag|mo|di|mi|do|fr|sa|so"
    "|lun|mar|mer|jeu|ven|sam|dim|mié|jue|vie|sáb|dom|seg|ter|qua|qui|sex|sab)(?:[a-zéá]*day|sday|nesday|rsday|urday"
    "|di|edi|manche|es|ves|rnes|coles|do|ado|bado|ingo|mingo|dredi)?"
)
ZONES = {  # hours from UTC of abbreviations that mean one zone in practice
    **{"z": 0, "utc": 0, "gmt": 0, "pst": -8, "pdt": -7, "mst": -7, "mdt": -6, "cst": -6, "cdt": -5, "est": -5},
    **{"edt": -4, "wet": 0, "west": 1, "cet": 1, "cest": 2, "eet": 2, "eest": 3, "jst": 9, "mez": 1, "mesz": 2},
}
TIME = re.compile(
    r"(?:^|(?<=[\s,t]))(?P<before>am|pm|午前|午後|上午|下午)?\s*"
    r"(?:(?P<h>\d{1,2})\s?[:h]\s?(?P<m>\d\d)(?::(?P<s>\d\d)(?:[.,](?P<part>\d+))?)?(?:\s*uhr\b)?"
    r"(?:\s*(?P<after>[ap])\.?\s?m\b\.?)?|(?P<hour>\d{1,2})\s?(?P<half>[ap])\.?m\b\.?)"
    r"(?:\s*\(?(?P<zone>z|[a-z]{3,4}(?![a-z]))?\s*(?P<offset>[+-]\d{1,2}(?::?\d\d)?)?\)?(?![\d/:]))?"
)
YEAR_FIRST = re.compile(r"(\d{4})\s*[-/.]\s*(\d{1,2})\s*[-/.]\s*(\d{1,2})\.?")
YEAR_LAST = re.compile(r"(\d{1,2})\s*([-/.])\s*(\d{1,2})\s*\2\s*'?(\d{4}|\d{2})\.?")
COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)(?:t?(\d\d)(\d\d)(\d\d)?(?:z|\.\d+z?)?)?")
WORD = r"([^\W\d_]{3,})\.?"
BETWEEN = r"[\s\-/]*(?:de[l]?\s+|of\s+)?"
NAMED = (
    re.compile(rf"(?P<d>\d{{1,2}})(?:st|nd|rd|th|\.|er|º)?{BETWEEN}(?P<mon>{WORD}){BETWEEN}'?(?P<y>\d{{4}}|\d{{2}})"),
    re.compile(rf"(?P<mon>{WORD})[\s\-/]*(?P<d>\d{{1,2}})(?:st|nd|rd|th)?[\s\-/,]+'?(?P<y>\d{{4}}|\d{{2}})"),
    re.compile(rf"(?P<y>\d{{4}})[\s\-/]*(?P<mon>{WORD})[\s\-/]*(?P<d>\d{{1,2}})"),
)


def parse_compact(word: str) -> float | None:
    """Return the seconds of 20260304, 202603041605 or 20260304T160500Z."""
    match = COMPACT.fullmatch(word.casefold())
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
    midnight = _day(year, month, day)
    ok = midnight is not None and 1950 <= year < 2100 and hour < 24 and minute < 60 and second < 61
    return midnight + 3600 * hour + 60 * minute + second if ok and midnight is not None else None


class Moment(NamedTuple):
    """Both readings of a cell: with the day first and with the month first.

    ``shows`` is the order that the cell itself shows ("" for none), and ``is_open`` whether both readings are possible
    and different.
    """

    seconds: tuple[float, float]
    shows: str = ""
    is_open: bool = False


def parse_moment(word: str) -> Moment | None:
    """Return the readings of a date, with or without time; None for anything else, such as a time without a date."""
    word = unicodedata.normalize("NFKC", word).casefold().strip()
    if not any(c.isdigit() for c in word) or len(word) > 60:
        return None
    word = re.sub("[年月]", "-", word).replace("日", " ").strip()
    compact = parse_compact(word) if re.match(r"\d{8}t?\d*z?$", word) else None
    if compact is not None:
        return Moment((compact, compact))
    match = TIME.search(word)
    clock = 0.0
    if match is not None:
        seconds = _clock(match)
        if seconds is None:
            return None
        clock, word = seconds, f"{word[: match.start()]} {word[match.end() :]}"
    word = re.sub(r"(?<=\d)t$|\s(at|um|à)$", "", re.sub(r"[\s,]+", " ", word).strip())
    readings = _date(word) or _date(re.sub(rf"^{WEEKDAYS}[.,]?\s+", "", word))
    if readings is None:
        return None
    both, shows, is_open = readings
    return Moment((both[0] + clock, both[1] + clock), shows, is_open)


def _clock(match: re.Match[str]) -> float | None:
    """Return the seconds since midnight in UTC; None for 25:00 or an unknown zone with an offset."""
    hour, minute, second = (int(word or 0) for word in (match["h"] or match["hour"], match["m"], match["s"]))
    half = (
        match["after"]
        or match["half"]
        or {"am": "a", "午前": "a", "上午": "a", "pm": "p", "午後": "p", "下午": "p"}.get(match["before"] or "")
    )
    if (half and not 0 <= hour <= 12) or hour > 23 or minute > 59 or second > 60:
        return None
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    shift = 60.0 * ZONES.get(match["zone"] or "", 0)
    if match["offset"]:
        hours, minutes = re.fullmatch(r"[+-](\d{1,2}?):?(\d\d)?", match["offset"]).groups()  # type: ignore[union-attr]
        shift += (-1 if match["offset"][0] == "-" else 1) * (60 * int(hours) + int(minutes or 0))
    return 3600 * hour + 60 * minute + second + float(f"0.{match['part'] or 0}") - 60 * shift


def _date(word: str) -> tuple[tuple[float, float], str, bool] | None:
    """Return both readings of a date, the order it shows, and whether it is open."""
    match = YEAR_FIRST.fullmatch(word)
    if match is not None:
        return _same(_day(*map(int, match.groups())))
    for pattern in NAMED:
        match = pattern.fullmatch(word)
        if match is not None and match["mon"].rstrip(".") in MONTHS:
            return _same(_day(_year(match["y"]), MONTHS[match["mon"].rstrip(".")], int(match["d"])))
    match = YEAR_LAST.fullmatch(word)
    if match is None:
        return None
    one, separator, two, year = int(match[1]), match[2], int(match[3]), _year(match[4])
    if one > 31 and len(match[4]) == 2:  # 98-03-04
        return _same(_day(_year(match[1]), two, int(match[4])))
    day_first, month_first = _day(year, two, one), _day(year, one, two)
    if day_first is None or month_first is None:
        known = day_first if month_first is None else month_first
        shows = "day-first" if month_first is None else "month-first"
        return None if known is None else ((known, known), shows, False)
    if separator == ".":  # dates with points begin with the day wherever they are usual
        return (day_first, day_first), "", False
    return (day_first, month_first), "", day_first != month_first


def _same(midnight: float | None) -> tuple[tuple[float, float], str, bool] | None:
    return None if midnight is None else ((midnight, midnight), "", False)


def _year(digits: str) -> int:
    return int(digits) if len(digits) == 4 else int(digits) + (1900 if int(digits) >= 70 else 2000)


def _day(year: int, month: int, day: int) -> float | None:
    try:
        return (date(year, month, day) - date(1970, 1, 1)) / timedelta(seconds=1)
    except ValueError:
        return None
