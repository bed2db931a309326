"""Names that people write in several ways: which these are, and what they are called then.

Labels are renamed first, then those that differ in case and spaces alone are merged: the most frequent spelling stays.
Where nobody wishes that, near-twins stay two, and are told. A whole number is never written 1.0, as spreadsheets do.
"""

from __future__ import annotations

import os
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing, show
from crowdshot.io.cells import Ids, trim
from crowdshot.io.tables import one_each, read_table
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import plain
from crowdshot.labels.indexing import Positions, as_index
from crowdshot.labels.timestamps import in_time

NewNames = Mapping[str, str] | str | os.PathLike[str] | None
Strangers = Literal["refuse", "tell", "allow"]  # what becomes of names to be changed that nothing has
Spelling = Callable[[str], str]  # what somebody wrote -> what it is called, "" for no label


class Twins(NamedTuple):
    """Spellings of what may be one name, the most frequent first, and how many labels have each.

    ``of``: what they name, "labels" or "annotators" (or "items").
    """

    of: str
    names: tuple[str, ...]
    counts: tuple[int, ...]

    def __str__(self) -> str:
        """The labels 'cat', 'Cat' and 'CAT'"""
        return f"the {self.of} {and_so(quoted(self.names))}"


def near_duplicates(ann: Annotations) -> list[Twins]:
    """Labels, and annotators, that differ in case, spaces or width alone: 'Cat' and 'cat'.

    ``merge_case=True`` makes one of such labels, ``names=`` of such annotators.
    """
    labels, people = counts_of(ann.classes, ann.label), counts_of(ann.annotators, ann.annotator)
    return alike("labels", labels) + alike("annotators", people)


def alike(of: str, counts: Mapping[str, int]) -> list[Twins]:
    """Groups of names that may be one; ``counts``: how many labels have each."""
    groups: dict[str, list[str]] = {}
    for name in counts:
        groups.setdefault(fold(name), []).append(name)
    twins = [sorted(group, key=lambda name: -counts[name]) for group in groups.values() if len(group) > 1]
    return [Twins(of, tuple(group), tuple(counts[name] for name in group)) for group in twins]


def counts_of(ids: Any, positions: Positions) -> dict[str, int]:
    """``positions`` (L,): which of the ids each label has."""
    return dict(zip(map(str, ids), np.bincount(positions, minlength=len(ids)).tolist(), strict=True))


def fold(name: str) -> str:
    """What names that differ in case, spaces or width alone have in common; 7.0 is a 7."""
    return as_whole(unicodedata.normalize("NFKC", " ".join(name.split())).casefold())


def as_whole(label: str) -> str:
    """A whole number without its decimal point, any other label as it is."""
    return re.sub(r"^(-?\d+)\.0*$", r"\1", label)


def and_so(words: Sequence[str]) -> str:
    """cat, dog and owl"""
    return " and ".join([", ".join(words[:-1]), *words[-1:]] if len(words) > 1 else words)


def quoted(names: Sequence[str]) -> list[str]:
    """As Python writes them; by their codes where some differ only in how an accent is stored."""
    look_alike = len({unicodedata.normalize("NFC", name) for name in names}) < len(names)
    return [ascii(name) if look_alike else repr(name) for name in names]


# ---- what names become ----------------------------------------------------------------------------------------------


class Respelled(NamedTuple):
    """What labels or annotators are called now, and how many were written how; labels that are none any more: ""."""

    of: str
    name: str
    counts: dict[str, int]

    def __str__(self) -> str:
        """The labels 'cat' (20) and 'Cat' (5) are read as 'cat'"""
        spelled = [f"{name} ({n:,})" for name, n in zip(quoted(list(self.counts)), self.counts.values(), strict=True)]
        what = (
            f"{self.of} {and_so(spelled)} are" if len(spelled) > 1 else f"{self.of.removesuffix('s')} {spelled[0]} is"
        )
        return f"the {what} read as {show(self.name) if self.name else 'no label'}"


def spelling_of(
    written: Mapping[str, int],
    rename: NewNames = None,
    merge_case: bool = False,
    known: Iterable[str] = (),
    strangers: Strangers = "refuse",
) -> Spelling:
    """What labels are called, given how often each was written: renamed first, then merged, by names that are known."""
    there = [as_whole(trim(label)) for label in written]
    listed = new_names(rename, "rename", ("old", "new"), there, strangers)
    new = {as_whole(old): name for old, name in listed.items()}

    def renamed(label: str) -> str:
        label = as_whole(trim(label))
        return new.get(label, label)

    often: Counter[str] = Counter()
    for label, number in written.items():
        often[renamed(label)] += number
    best = [*known, *(label for label, _ in often.most_common())]
    stays = {fold(label): label for label in reversed(best)} if merge_case else {}
    return lambda label: stays.get(fold(renamed(label)), renamed(label))


def new_names(
    given: NewNames,
    argument: str,
    columns: tuple[str, str],
    known: Collection[str],
    strangers: Strangers = "refuse",
) -> dict[str, str]:
    """{old: new}, as given or from a file with these columns, else its first two; without the spaces around names.

    Old names that are not known are ``strangers``, unless a file has them and others, which may be longer than what it
    is used for.
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        new = {trim(str(old)): trim(str(name)) for old, name in given.items()}
        stranger = next((old for old in new if as_whole(old) not in known), None)
        if stranger is not None:
            meet(f"{argument} names {stranger!r}, which is not there", known, strangers)
        return new
    table = read_table(given)
    called = [plain(name) for name in table.header]
    old, name = (called.index(column) if column in called else place for place, column in enumerate(columns))
    if len(called) < 2 or old == name or (columns[0] not in called and table.header[old] in known):
        raise CrowdshotError(
            f"{table.name} has the header {listing(table.header)}, expected {columns[0]!r} and {columns[1]!r}."
        )
    found = dict(zip(one_each(table, old), table.text(name), strict=True))
    if argument == "names" and found and not any(each in known for each in found):  # other people's
        meet(f"{table.name} names {next(iter(found))!r} and others, which are not there", known, strangers)
    return found


def meet(found: str, known: Collection[str], strangers: Strangers) -> None:
    """Names that are not there, as the sentence says that was ``found``, are refused or told."""
    if strangers == "refuse":
        raise CrowdshotError(f"{found}, expected some of {listing(known)}.")
    if strangers == "tell":
        told = f"{found}, in the files at least; labels that come otherwise may have it."
        warnings.warn(told, UserWarning, stacklevel=5)


def respell(
    ann: Annotations, label: Spelling, annotator: Mapping[str, str], source: str, when: Ids | None = None
) -> Annotations:
    """The same labels by what they and the annotators are called; (L,) when they were given, where that is known."""
    labels = [label(str(name)) for name in ann.classes]
    people = [annotator.get(str(name), str(name)) for name in ann.annotators]
    if labels == list(ann.classes) and people == list(ann.annotators):
        return ann
    ids = (ann.items, ann.item), (people, ann.annotator), (labels, ann.label)
    cells = (as_index(names).take(place) for names, place in ids)
    frame = pd.DataFrame(dict(zip(ann.columns, cells, strict=True)))
    return in_time(frame, ann.columns, when, source, items=ann.items, annotators=dict.fromkeys(people))[0]


def respelled(of: str, spelling: Spelling, counts: Mapping[str, int]) -> list[Respelled]:
    """What is called otherwise than it was written (so often), by new name; a number that is written as one aside."""
    called = {old: spelling(old) for old in counts}
    changed = dict.fromkeys(name for old, name in called.items() if name != as_whole(old))
    return [
        Respelled(
            of,
            name,
            {old: counts[old] for old in sorted(counts, key=counts.__getitem__, reverse=True) if called[old] == name},
        )
        for name in changed
    ]
