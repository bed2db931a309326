"""Find everything that keeps label files from being read, and the options that would solve it.

`diagnose` reads the files again and again, each time with the option that solves the error of the last time. It acts on
the fields of errors: a hint that names an option is tried, with a value found from the content where the hint has a
placeholder. Columns are recognised from their content by `guess_columns`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.formatting import listing
from crowdshot.io.cells import fold
from crowdshot.io.tables import Table
from crowdshot.labels.annotations import MOST
from crowdshot.labels.columns import TRUTH, Columns, matches, plain
from crowdshot.labels.formats import read_labels
from crowdshot.labels.formats.label_file import LabelFile, LabelsRead
from crowdshot.labels.formats.plain_tables import linked_columns
from crowdshot.labels.formats.question_choice import cells_of
from crowdshot.labels.label_times import time_columns
from crowdshot.labels.spelling import merging
from crowdshot.labels.wide_tables import is_called_otherwise

ASKS_NOBODY = {"skip_bad", "merge_case"}  # arguments whose effect is reported; others are choices
MOST_PROBLEMS = 12
ROWS = 2000  # from which columns are recognised
MOST_COLUMNS = 30
FREE_TEXT = 60  # characters; longer cells are no ids or labels
BETTER = 0.1  # agreement above chance that shows which column is the label


@dataclass(frozen=True)
class Problem:
    """A reason why the files cannot be read as they are, and the arguments that solve it ({} if none is known).

    ``choice`` says that the arguments are one of several possible answers, which a person has to confirm.
    """

    message: str
    arguments: dict[str, Any] = field(default_factory=dict)
    choice: bool = False


@dataclass(frozen=True)
class Diagnosis:
    """What keeps files from being read.

    Attributes
    ----------
    problems : list of Problem
    arguments : dict
        Arguments of `read_labels` that solve all problems that can be solved.
    read : LabelsRead or None
        What is read with these arguments.
    error : CrowdshotError or None
        The first error, if the files cannot be read as they are.
    notes : list of CrowdshotWarning
        Warnings on reading.
    """

    problems: list[Problem]
    arguments: dict[str, Any]
    read: LabelsRead | None
    error: CrowdshotError | None
    notes: list[CrowdshotWarning]

    @property
    def suggestions(self) -> dict[str, Any]:
        """Arguments that merge names which are probably spellings of one name."""
        return {} if self.read is None else merging(self.read.near_duplicates)


def diagnose(
    paths: Sequence[Any],
    arguments: Mapping[str, Any],
    read: Callable[[Mapping[str, Any]], LabelsRead] | None = None,
) -> Diagnosis:
    """Return what keeps files from being read, and what solves it.

    Parameters
    ----------
    paths : sequence of path-like
    arguments : mapping
        Arguments of `read_labels`.
    read : callable, optional
        Reads the files with such arguments; by default, this is `read_labels`.
    """
    read = read or (lambda arguments: read_labels(paths, **arguments))
    problems: list[Problem] = []
    found = dict(arguments)
    error: CrowdshotError | None = None
    for _ in range(MOST_PROBLEMS):
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                labels = read(found)
            notes = [each.message for each in caught if isinstance(each.message, CrowdshotWarning)]
            return Diagnosis(problems, _new(found, arguments), labels, error, notes)
        except CrowdshotError as now:
            error = error or now
            solved = _solutions(now, paths, found)
            problems += solved or [Problem(now.sentence())]
            more = _merged(found, solved)
            if not solved or more == found:
                break
            found = more
    return Diagnosis(problems, {}, None, error, [])


def _new(found: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in before or value != before[name]}


def _merged(arguments: Mapping[str, Any], problems: Sequence[Problem]) -> dict[str, Any]:
    """Add the arguments of the problems; mappings are joined."""
    found = dict(arguments)
    for problem in problems:
        for name, value in problem.arguments.items():
            before = found.get(name)
            if isinstance(before, Mapping) and isinstance(value, Mapping):
                value = {**before, **value}
            found[name] = value
    return found


def _solutions(error: CrowdshotError, paths: Sequence[Any], arguments: Mapping[str, Any]) -> list[Problem]:
    """Return the problems that an error shows, with their solutions; [] if none is known."""
    if not isinstance(error.hint, Use):
        return []
    hint = error.hint.arguments
    if "sheet" in hint:
        return _sheet(error, paths, arguments)
    if "annotator_columns" in hint or "columns" in hint:
        if list(hint.get("columns", {}).values()) == ["QUESTION"]:
            return [Problem(error.sentence(), {"columns": {"label": error.found[0]}}, choice=True)]
        try:
            return _columns(error, paths, arguments)
        except CrowdshotError:  # cells that hold lists or records
            return []
    if "categories" in hint:  # measurements are seldom classes
        return []
    if hint and not any("NAME" in str(value) for value in hint.values()):
        return [Problem(error.sentence(), dict(hint), choice=not ASKS_NOBODY.issuperset(hint))]
    return []


def _sheet(error: CrowdshotError, paths: Sequence[Any], arguments: Mapping[str, Any]) -> list[Problem]:
    """Choose the sheet with the most labels."""
    best, most, readable = None, 0, 0
    for sheet in error.found or []:
        found = diagnose(paths, {**arguments, "sheet": sheet})
        if found.read is not None:
            readable += 1
            if found.read.annotations.n_labels > most:
                best, most = sheet, found.read.annotations.n_labels
    return [] if best is None else [Problem(error.sentence(), {"sheet": best}, choice=readable > 1)]


def _columns(error: CrowdshotError, paths: Sequence[Any], arguments: Mapping[str, Any]) -> list[Problem]:
    """Recognise the columns of the file of the error from their content."""
    table = _table(error, paths, arguments)
    if table is None:
        return []
    named = {role: name for role, name in (arguments.get("columns") or {}).items() if role != "time"}
    long = guess_columns(table, named)
    if long is not None:
        new = {role: name for role, name in long.items() if named.get(role) != name and _unclear(role, table)}
        return [_unusual(table, role, name) for role, name in new.items()]
    item, people = guess_wide(table)
    if item is None or not people:
        return []
    found = [_unusual(table, "item", item)]
    if "annotator_columns" in (error.hint.arguments if isinstance(error.hint, Use) else {}):
        sentence = f"{table.name}: no columns are clearly annotators; {listing(people, 5)} share labels"
        found.append(Problem(sentence, {"annotator_columns": people}))
    return found


def _unusual(table: Table, role: str, name: str) -> Problem:
    sentence = f"{table.name}: no column has a usual name for the {role}, but {name!r} has such values"
    return Problem(sentence, {"columns": {role: name}})


def _unclear(role: str, table: Table) -> bool:
    return len(matches(role, table.header)) != 1


def _table(error: CrowdshotError, paths: Sequence[Any], arguments: Mapping[str, Any]) -> Table | None:
    for path in paths:
        file = LabelFile(path, sheet=arguments.get("sheet"), skip_bad=True)
        tables = list(file.sheets.values()) or [file.table]
        for table in tables:
            if isinstance(table, Table) and error.where is not None and error.where.startswith(table.name):
                return table
    return None


# ---- columns by their content --------------------------------------------------------------------------------------


def guess_columns(table: Table, named: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """Return the item, annotator and label columns of a table with a row for each label, None if that is not clear.

    No annotator labels an item twice (but for a few corrections), annotators and items have several labels, labels are
    few, and annotators agree on items more often than by chance. Columns with a usual name keep their role.
    """
    named = dict(named or {})
    header = table.header
    numbers = Counter(header)
    places = [place for place, name in enumerate(header) if name and numbers[name] == 1]
    cells = {header[place]: _filled(cells_of(table, place)[:ROWS]) for place in places}
    times = {table.header[place] for place in time_columns(table, [])}
    if any(role in Columns._fields and name not in cells for role, name in named.items()):
        return None
    usual = {role: [name for name in _usual(role, table) if name in cells] for role in Columns._fields}
    known = {role: [named[role]] if role in named else usual[role] for role in Columns._fields}
    free = [name for name in cells if _may_be_id(cells[name]) and name not in times and plain(name) not in TRUTH]
    taken = {name for names in known.values() for name in names if len(names) == 1}
    free = [name for name in free if name not in taken][:MOST_COLUMNS]
    candidates = {role: known[role] or free for role in Columns._fields}
    best, most, fewest = None, BETTER, 1.0
    for item in candidates["item"]:
        for annotator in candidates["annotator"]:
            repeated = None if item == annotator else _repeated_pairs(cells[item], cells[annotator])
            if repeated is None:
                continue
            for label in candidates["label"]:
                if label in (item, annotator) or not _may_be_label(cells[label], cells[item]):
                    continue
                lift = _agreement(cells[item], cells[label]) - 0.2 * bool(is_called_otherwise(label))
                if (lift, -repeated) > (most, -fewest):
                    best, most, fewest = {"item": item, "annotator": annotator, "label": label}, lift, repeated
    return best


def _filled(words: Any) -> Any:
    """Return the cells of merged cells, with the blank ones filled from above."""
    written = [word for word in words if word]
    if not written or not words[0] or len(set(written)) < len(written) or 2 * len(written) > len(words):
        return words
    return pd.Series(words).mask(words == "").ffill().to_numpy(dtype=object)


def _usual(role: str, table: Table) -> list[str]:
    return [str(name) for name in matches(role, table.header)]


def _may_be_id(words: Any) -> bool:
    filled = [word for word in words if word]
    if len(set(filled)) < 2 or 2 * len(filled) <= len(words):
        return False
    return bool(np.median([len(word) for word in filled]) <= FREE_TEXT)


def _repeated_pairs(item: Any, annotator: Any) -> float | None:
    """Return the share of rows that repeat an item and an annotator; None if columns cannot be items and annotators."""
    pairs = pd.DataFrame({"item": item, "annotator": annotator})
    pairs = pairs[(pairs["item"] != "") & (pairs["annotator"] != "")]
    n = len(pairs)
    items, annotators = pairs["item"].nunique(), pairs["annotator"].nunique()
    repeated = float(pairs.duplicated().mean())
    several = n > 3 and items < n and 1 < annotators < n and annotators <= 2 * items
    return repeated if several and repeated < 0.1 else None


def _may_be_label(label: Any, item: Any) -> bool:
    classes = {fold(word) for word in label if word}
    return 1 < len(classes) <= min(MOST, len({word for word in item if word}) + 1)


def _agreement(item: Any, label: Any) -> float:
    """Return how much more often two labels of an item are equal than two labels of any items."""
    table = pd.DataFrame({"item": item, "label": [fold(word) for word in label]})
    table = table[(table["item"] != "") & (table["label"] != "")]
    sizes = table.groupby("item").size()
    pairs = float((sizes * (sizes - 1)).sum())
    if not pairs:
        return -1.0
    cells = table.groupby(["item", "label"]).size()
    observed = float((cells * (cells - 1)).sum()) / pairs
    shares = table["label"].value_counts(normalize=True)
    by_chance = float((shares**2).sum())
    if observed > 0.999 and sizes.max() > 2:  # a property of the items, such as their category
        return -1.0
    return (observed - by_chance) / max(1e-9, 1 - by_chance)


def guess_wide(table: Table) -> tuple[str | None, list[str]]:
    """Return the item column and the annotators' columns of a table with a row for each item; None, [] if unclear."""
    people = linked_columns(table, range(len(table.header)))
    linked = set(people)
    others = [place for place in range(len(table.header)) if place not in linked]
    unique = [place for place in others if len(set(words := cells_of(table, place))) == len(words) > 1 and all(words)]
    if len(people) < 2 or not unique:
        return None, []
    return table.header[unique[0]], [table.header[place] for place in people]
