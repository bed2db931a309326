"""Rename labels and annotators, and find names that are probably different spellings of one name.

Labels are renamed first. Then labels that differ only in case and spaces are merged if the user asks for it; the most
frequent spelling is kept. Otherwise such near-duplicates stay separate and are reported. Whole numbers such as 1.0,
which spreadsheets write, become 1.
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
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.formatting import listing, show
from crowdshot.io.cells import Positions, as_index, as_whole, fold, ordered, positions, trim
from crowdshot.io.tables import one_each, read_table
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import plain
from crowdshot.labels.label_times import Times, in_time

EMAIL = r"[^@\s]+@[^@\s]+\.[^@\s.]+"
NewNames = Mapping[str, str] | str | os.PathLike[str] | None
Strangers = Literal["refuse", "tell", "allow"]  # for names to be changed that do not occur: error, warning or nothing
Spelling = Callable[[str], str]  # maps a label as written to its name, "" for no label


class Twins(NamedTuple):
    """Names that may be spellings of one name, the most frequent first, with their numbers of labels.

    ``of`` is "labels", "annotators" or "items".
    """

    of: str
    names: tuple[str, ...]
    counts: tuple[int, ...]

    def __str__(self) -> str:
        """Return a phrase such as "the labels 'cat', 'Cat' and 'CAT'"."""
        return f"the {self.of} {and_so(quoted(self.names))}"


def near_duplicates(ann: Annotations, emails: Mapping[str, str] | None = None) -> list[Twins]:
    """Return labels and annotators that are probably spellings of one name, such as 'hot dog' and 'HotDog'.

    ``merge_case=True`` merges labels that differ in case and spaces around words, ``rename=`` others, and ``names=``
    annotators. ``emails`` are e-mail addresses of annotators.
    """
    labels, annotators = counts_of(ann.classes, ann.label), counts_of(ann.annotators, ann.annotator)
    return alike("labels", labels) + alike("annotators", annotators, emails)


def alike(of: str, counts: Mapping[str, int], emails: Mapping[str, str] | None = None) -> list[Twins]:
    """Return groups of names that are probably spellings of one name; ``counts``: number of labels by name.

    Names of labels and annotators are equal without case, width, and spaces and marks between words; see `_bare` for
    the exceptions. Annotators are also the same if they have the same e-mail address. Names of items differ at most in
    case, spaces and width.
    """
    if of == "items":
        keys = {name: [fold(name)] for name in counts}
    elif of == "labels":
        signed = any(re.search(r"\+\d", name) for name in counts)
        keys = {name: [_label_key(name, signed)] for name in counts}
    else:
        keys = {name: [_person_key(name)] for name in counts}
        _add_emails(keys, emails or {})
    groups = _connected(keys)
    if of == "annotators":
        groups = [part for group in groups for part in _of_one_domain(group)]
    twins = [sorted(group, key=lambda name: -counts[name]) for group in groups if len(group) > 1]
    return [Twins(of, tuple(group), tuple(counts[name] for name in group)) for group in twins]


class Misspelling(NamedTuple):
    """A rare label that differs by one letter from a frequent one, with their numbers of labels."""

    name: str
    like: str
    n_labels: int
    n_like: int


MOST_RARE = 3  # labels of a misspelled class
TIMES = 10  # as many labels has the class that was meant


def misspellings(ann: Annotations) -> list[Misspelling]:
    """Return classes that are probably misspelled: rare, and one letter or two exchanged letters from a frequent class.

    They are not merged, because "car" may be a rare class beside "cat".
    """
    counts = counts_of(ann.classes, ann.label)
    frequent = {name: n for name, n in counts.items() if n >= TIMES}
    found = []
    for name, n in counts.items():
        likes = [like for like, m in frequent.items() if n <= MOST_RARE and m >= TIMES * n and is_typo(name, like)]
        if likes:
            like = max(likes, key=lambda each: frequent[each])
            found.append(Misspelling(name, like, n, counts[like]))
    return found


def is_typo(name: str, like: str) -> bool:
    """Return whether two words differ by one letter, or two letters that are exchanged; digits must be equal.

    >>> is_typo("dgo", "dog"), is_typo("giraff", "giraffe"), is_typo("class 1", "class 2"), is_typo("car", "cat")
    (True, True, False, False)
    """
    a, b = sorted((fold(name), fold(like)), key=len)
    if a == b or len(b) - len(a) > 1 or re.sub(r"\D", "", a) != re.sub(r"\D", "", b):
        return False
    start = _n_common(a, b)
    end = _n_common(a[start:][::-1], b[start:][::-1])
    left, right = a[start : len(a) - end], b[start : len(b) - end]
    if len(left) == len(right) == 2:
        return len(b) >= SHORTEST - 1 and left == right[::-1]
    return len(b) >= SHORTEST and len(right) == 1


def _n_common(a: str, b: str) -> int:
    """Return the length of the common beginning."""
    return next((i for i, (c, d) in enumerate(zip(a, b, strict=False)) if c != d), min(len(a), len(b)))


def merging(groups: Sequence[Twins]) -> dict[str, Any]:
    """Return the arguments that merge groups of labels and annotators under their most frequent spelling."""
    options: dict[str, Any] = {}
    for group in groups:
        argument = {"labels": "rename", "annotators": "names"}.get(group.of)
        if argument is not None:
            options.setdefault(argument, {}).update(dict.fromkeys(group.names[1:], group.names[0]))
    labels = [group for group in groups if group.of == "labels"]
    if labels and all(len(set(map(fold, group.names))) == 1 for group in labels):
        del options["rename"]
        options["merge_case"] = True
    return options


MARKS = r"[\s_.\-\N{NON-BREAKING HYPHEN}\N{EN DASH}'\N{RIGHT SINGLE QUOTATION MARK}]+"
SHORTEST = 4  # letters and digits of a label; A-B and AB are often two
MOST_SHARING = 3  # annotators with one e-mail address; more are probably a team


def _bare(word: str, signed: bool = False) -> str:
    """Return a word without spaces and marks between its letters and digits.

    Marks between two digits stay (1.5 is not 15), and so do those at the ends (-1, C++) and signs (score -1).
    """

    def without(match: re.Match[str]) -> str:
        before, after = word[match.start() - 1 : match.start()], word[match.end() : match.end() + 1]
        inside = before.isalnum() and after.isalnum() and not (before.isdigit() and after.isdigit())
        is_sign = after.isdigit() and match[0][-1] == "-" and (signed or len(match[0]) > 1)
        return "" if inside and not is_sign else match[0]

    return re.sub(MARKS, without, word)


def _label_key(name: str, signed: bool) -> str:
    word = fold(name).rstrip(".,:") or name
    bare = _bare(word, signed)
    return bare if len(bare) >= SHORTEST else word


def _person_key(name: str) -> str:
    """Return a key of a name or of the user in an e-mail address; "Doe, Jane" equals "Jane Doe"."""
    word = fold(name)
    if re.fullmatch(EMAIL, word):
        word = word.partition("@")[0].partition("+")[0]
    last, comma, first = word.partition(",")
    word = f"{first} {last}".strip() if comma and "," not in first else word
    bare = _bare(word.rstrip(".,;:"))
    latin = "".join(c for c in unicodedata.normalize("NFD", bare) if not "\u0300" <= c < "\u0370")
    return latin if any(c.isalpha() for c in latin) else word


def _add_emails(keys: dict[str, list[str]], emails: Mapping[str, str]) -> None:
    shared = Counter(fold(email) for name, email in emails.items() if name in keys)
    for name, email in emails.items():
        if name in keys and shared[fold(email)] <= min(MOST_SHARING, len(keys) - 1):
            keys[name].append(f"@{fold(email)}")


def _connected(keys: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return groups of names that share a key, directly or through other names."""
    group_of: dict[str, list[str]] = {}
    for name, own in keys.items():
        joined = list(dict.fromkeys(each for key in own for each in group_of.get(key, ())))
        joined.append(name)
        touched = {key for other in joined for key in keys[other]}
        for key in touched:
            group_of[key] = joined
    return list({id(group): group for group in group_of.values()}.values())


def _of_one_domain(group: list[str]) -> list[list[str]]:
    """Return the group; or, if its e-mail addresses have different domains, the names that differ in case only."""
    domains = {fold(name).partition("@")[2] for name in group if re.fullmatch(EMAIL, fold(name))}
    if len(domains) < 2:
        return [group]
    parts: dict[str, list[str]] = {}
    for name in group:
        parts.setdefault(fold(name), []).append(name)
    return list(parts.values())


def counts_of(ids: Any, positions: Positions) -> dict[str, int]:
    """Return the number of labels of each id; ``positions`` (L,) are the ids' positions for each label."""
    return dict(zip(map(str, ids), np.bincount(positions, minlength=len(ids)).tolist(), strict=True))


def and_so(words: Sequence[str]) -> str:
    """Join words as in "cat, dog and owl"."""
    return " and ".join([", ".join(words[:-1]), *words[-1:]] if len(words) > 1 else words)


def quoted(names: Sequence[str]) -> list[str]:
    """Quote names; escape non-ASCII characters if names differ only in how accents are encoded."""
    look_alike = len({unicodedata.normalize("NFC", name) for name in names}) < len(names)
    return [ascii(name) if look_alike else repr(name) for name in names]


# ---- Renaming ------------------------------------------------------------------------------------------------------


class Respelled(NamedTuple):
    """A new name of labels or annotators ("" for dropped labels), and how often each old spelling occurred."""

    of: str
    name: str
    counts: dict[str, int]

    def __str__(self) -> str:
        """Return a phrase such as "the labels 'cat' (20) and 'Cat' (5) are read as 'cat'"."""
        spelled = [f"{name} ({n:,})" for name, n in zip(quoted(list(self.counts)), self.counts.values(), strict=True)]
        subject = (
            f"{self.of} {and_so(spelled)} are" if len(spelled) > 1 else f"{self.of.removesuffix('s')} {spelled[0]} is"
        )
        return f"the {subject} read as {show(self.name) if self.name else 'no label'}"


def spelling_of(
    written: Mapping[str, int],
    rename: NewNames = None,
    merge_case: bool = False,
    known: Iterable[str] = (),
    strangers: Strangers = "refuse",
    gold: Iterable[str] = (),
) -> Spelling:
    """Return the function that renames labels.

    Parameters
    ----------
    written : mapping
        Number of labels by their spelling in the input.
    rename : mapping or path, optional
        New names by old names, or a table with them.
    merge_case : bool
        Merge labels that differ only in case, spaces or width, after renaming.
    known : iterable
        Spellings that take precedence when labels are merged.
    strangers : {"refuse", "tell", "allow"}
        What to do about old names that do not occur: raise an error, warn, or nothing.
    gold : iterable
        Spellings of true labels, which may be renamed too.
    """
    present = list(dict.fromkeys(as_whole(trim(label)) for label in [*written, *gold]))
    listed = new_names(rename, "rename", ("old", "new"), present, strangers)
    new = {as_whole(old): name for old, name in listed.items()}

    def renamed(label: str) -> str:
        label = as_whole(trim(label))
        return new.get(label, label)

    frequency: Counter[str] = Counter()
    for label, number in written.items():
        frequency[renamed(label)] += number
    preferred = [*known, *(label for label, _ in frequency.most_common())]
    kept = {fold(label): label for label in reversed(preferred)} if merge_case else {}
    return lambda label: kept.get(fold(renamed(label)), renamed(label))


def new_names(
    source: NewNames,
    argument: str,
    columns: tuple[str, str],
    known: Collection[str],
    strangers: Strangers = "refuse",
) -> dict[str, str]:
    """Return ``{old: new}`` from a mapping, or from a file with these columns (otherwise its first two).

    Spaces around names are removed. An old name that is not ``known`` is treated as ``strangers`` says. A file may also
    list names that do not occur: it is refused only if it lists no known annotator.
    """
    if source is None:
        return {}
    if isinstance(source, Mapping):
        new = {trim(str(old)): trim(str(name)) for old, name in source.items()}
        unknown = next((old for old in new if as_whole(old) not in known), None)
        if unknown is not None:
            report_unknown(unknown, known, strangers, argument=argument)
        return new
    table = read_table(source)
    called = [plain(name) for name in table.header]
    old, name = (called.index(column) if column in called else place for place, column in enumerate(columns))
    if len(called) < 2 or old == name or (columns[0] not in called and table.header[old] in known):
        raise CrowdshotError(
            f"has the header {listing(table.header)}",
            where=table.name,
            found=table.header[:10],
            expected=f"{columns[0]!r} and {columns[1]!r}",
        )
    found = dict(zip(one_each(table, old), table.text(name), strict=True))
    if argument == "names" and found and not any(each in known for each in found):
        report_unknown(next(iter(found)), known, strangers, where=table.name)
    return found


def report_unknown(
    name: str,
    known: Collection[str],
    strangers: Strangers,
    *,
    argument: str | None = None,
    where: str | None = None,
) -> None:
    """Raise an error or warn that ``argument``, or the file ``where``, names something that does not occur."""
    if strangers == "refuse":
        raise CrowdshotError(
            f"names {name!r}, which is not there",
            argument=argument,
            where=where,
            found=name,
            expected=f"some of {listing(known)}",
            among=known,
        )
    if strangers == "tell":
        warnings.warn(
            CrowdshotWarning(
                f"names {name!r}, which is not in the files",
                argument=argument,
                where=where,
                found=name,
                hint="Labels that arrive later may have it.",
            ),
            stacklevel=5,
        )


def respell(
    ann: Annotations, label: Spelling, annotator: Mapping[str, str], source: str, times: Times | None = None
) -> tuple[Annotations, Times | None]:
    """Rename labels and annotators; ``times`` (L,) are those of the labels, if known.

    Return the annotations and the times of the labels that remain. If two annotators become one, the newest of their
    labels for an item counts.
    """
    labels = [label(str(name)) for name in ann.classes]
    annotators = [annotator.get(str(name), str(name)) for name in ann.annotators]
    if labels == list(ann.classes) and annotators == list(ann.annotators):
        return ann, times
    ids = (ann.items, ann.item), (annotators, ann.annotator), (labels, ann.label)
    cells = (as_index(names).take(place) for names, place in ids)
    frame = pd.DataFrame(dict(zip(ann.columns, cells, strict=True)))
    return in_time(frame, ann.columns, times, source, items=ann.items, annotators=dict.fromkeys(annotators))


def respelled(of: str, spelling: Spelling, counts: Mapping[str, int]) -> list[Respelled]:
    """Return the names that were changed, by new name; 7.0 read as 7 does not count. ``counts``: labels by old name."""
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


# ---- answers with several labels, such as "cat;dog" ----

JOINED = ";"
Split = Callable[[str], list[str]]


def parts(label: str, separators: str = r";|") -> list[str]:
    """Return the labels that an answer names, in their order and without repetitions."""
    return list(dict.fromkeys(filter(None, (trim(part) for part in re.split(f"[{separators}]", label)))))


def split_of(labels: Iterable[str]) -> Split:
    """Return the function that splits answers: at semicolons and bars, or at commas if there are none of these."""
    separators = ";|" if any(re.search("[;|]", label) for label in labels) else ","
    return lambda label: parts(label, separators)


def refuse_sets(labels: Collection[str], source: str) -> None:
    """Raise an error if a label with a semicolon or a bar seems to name several labels.

    That is the case if one of its parts is a label too, or a part of another one.
    """
    whole = [str(label) for label in labels]
    if not any(re.search("[;|]", label) for label in whole):
        return
    seen = Counter(fold(part) for label in whole for part in parts(label))
    for label in whole:
        if re.search("[;|]", label) and any(seen[fold(part)] > 1 for part in parts(label)):
            raise CrowdshotError(
                f"has the label {show(label)}, and a part of it is a label too",
                where=source,
                found=label,
                expected="one label per answer",
                hint=Use("if it names several labels", multi_label=True) | Use("if it is one", categories=True),
            )


def spell_each(spelling: Spelling, split: Split) -> Spelling:
    """Return the function that spells answers with several labels: each label once, in order, joined by semicolons."""

    def spelled(label: str) -> str:
        names = {spelling(part) for part in split(label)} - {""}
        return JOINED.join(ordered(np.array(list(names), dtype=object)))

    return spelled


def names_of(sets: Iterable[str]) -> NDArray[Any]:
    """Return all labels (K,) that the sets name, in order."""
    names = dict.fromkeys(part for label in sets for part in parts(label))
    return ordered(np.array(list(names), dtype=object))


def members(sets: Sequence[str] | NDArray[Any], names: NDArray[Any]) -> NDArray[np.bool_]:
    """Return an array (S, K): whether each set contains each name."""
    found = np.zeros((len(sets), len(names)), dtype=bool)
    for row, label in enumerate(sets):
        found[row, positions(names, parts(label))] = True
    return found
