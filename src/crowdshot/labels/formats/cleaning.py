"""Rename labels and annotators after reading, and refuse or warn about suspicious names."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.formatting import counted, listing, show
from crowdshot.io.cells import as_whole, fold
from crowdshot.labels import gold_labels
from crowdshot.labels.annotations import Annotations, refuse_fractions
from crowdshot.labels.formats.label_file import LabelsRead
from crowdshot.labels.item_names import file_name, same_files
from crowdshot.labels.label_times import warn_undecided
from crowdshot.labels.spelling import (
    NewNames,
    Strangers,
    Twins,
    alike,
    merging,
    names_of,
    new_names,
    parts,
    refuse_sets,
    report_unknown,
    respell,
    respelled,
    spell_each,
    spelling_of,
    split_of,
)

SAME_ITEM = "If they are the same item, use one spelling in the files"
MOST_LISTED = 6  # names in a hint
SHORTENED = re.compile(r"-?\d[.,](\d+)[eE]\+(\d{2,})")  # 1.23457E+18
WITH_FILE = {"labels": "--write-rename rename.csv", "annotators": "--write-names names.csv"}
BLANKS = {  # upper and lower case
    *("na", "n/a", "#n/a", "nan", "null", "none", "?", "-", "skip", "skipped", "unsure", "not sure", "unclear", "idk"),
    *("don't know", "dont know", "i don't know", "i dont know", "can't tell", "cant tell", "cannot tell", "no answer"),
}


@dataclass(frozen=True)
class Naming:
    """Options of `read_labels` that rename labels, annotators and items, or say what labels are.

    ``strangers`` says what happens if they mention a name that does not occur (yet).
    """

    rename: NewNames = None
    merge_case: bool = False
    names: NewNames = None
    multi_label: bool = False
    ordered: Sequence[str] = ()
    categories: bool = False
    leave_out: Sequence[str] = ()
    file_names: bool = False
    strangers: Strangers = "refuse"
    gold: Collection[str] = ()  # spellings of true labels in another file, which `rename` may name

    def check(self) -> None:
        if self.multi_label and self.ordered:
            raise CrowdshotError("cannot be combined with several labels per answer (multi_label)", argument="ordered")
        if self.ordered and (len(self.ordered) < 2 or len(set(self.ordered)) < len(self.ordered)):
            raise CrowdshotError(
                f"is {list(self.ordered)}",
                argument="ordered",
                found=list(self.ordered),
                expected="two or more different classes",
            )


def apply_naming(
    labels: LabelsRead, naming: Naming, source: str, similar_items: Sequence[Sequence[str]] = ()
) -> LabelsRead:
    """Rename labels, true labels and annotators, and drop annotators; warn about suspicious names.

    ``similar_items`` are groups of items of several files that may be the same; a warning lists them.
    """
    everyone = labels.annotations.annotators
    listed = new_names(naming.names, "names", ("annotator", "name"), everyone, naming.strangers)
    people = {written: name for written, name in listed.items() if name}
    labels = _without_annotators(naming, labels, people, source) if naming.leave_out else labels
    labels = _renamed(labels, naming, people, source)
    warn_new_classes(labels.gold, labels, source)
    if not naming.categories:
        refuse_fractions(labels.names, source)
    warn_blanks(labels.names, source)
    if not (naming.multi_label or naming.categories):
        _warn_commas(labels.names, source)
    _warn_near_duplicates(labels, similar_items, source)
    warn_shortened(labels.annotations.items, "item", source)
    warn_shortened(labels.annotations.annotators, "annotator", source)
    return labels


def _renamed(labels: LabelsRead, naming: Naming, people: dict[str, str], source: str) -> LabelsRead:
    ann = labels.annotations
    split: Callable[[str], list[str]] = split_of(ann.classes) if naming.multi_label else lambda label: [label]
    if not (naming.multi_label or naming.categories):
        refuse_sets(ann.classes, source)
    written: dict[str, int] = {}
    for label, number in zip(ann.classes, np.bincount(ann.label, minlength=ann.n_classes).tolist(), strict=True):
        for part in split(label):
            written[part] = written.get(part, 0) + number
    truth = [part for label in (*labels.gold.values(), *naming.gold) for part in split(label)]
    spelling = spelling_of(written, naming.rename, naming.merge_case, naming.ordered, naming.strangers, truth)
    changes = respelled("labels", spelling, written)
    by_person = dict(zip(ann.annotators, np.bincount(ann.annotator, minlength=ann.n_annotators).tolist(), strict=True))
    changes += respelled("annotators", lambda name: people.get(name, name), by_person)
    whole = spell_each(spelling, split) if naming.multi_label else spelling
    ann, times = respell(ann, whole, people, source, labels.times)
    warn_undecided(times, source)
    gold = {item: whole(label) for item, label in labels.gold.items()}
    gold = {item: label for item, label in gold.items() if label}
    if naming.ordered:
        ann = _in_order(ann, naming.ordered, source)
        refuse_others(gold.values(), naming.ordered, source)
    return replace(
        labels,
        annotations=ann,
        gold=gold,
        spelling=whole,
        people=people,
        emails={people.get(name, name): email for name, email in labels.emails.items()},
        respelled=changes,
        several=naming.multi_label,
        ordered=bool(naming.ordered),
        times=times,
    )


def _without_annotators(naming: Naming, labels: LabelsRead, people: Mapping[str, str], source: str) -> LabelsRead:
    """Drop the labels of the annotators in ``leave_out``, by their old or new names; all items stay."""
    ann, left_out = labels.annotations, naming.leave_out
    names_of = [{str(name), people.get(str(name), str(name))} for name in ann.annotators]
    everyone = set().union(*names_of)
    stranger = next((name for name in left_out if name not in everyone), None)
    if stranger is not None:
        report_unknown(stranger, ann.annotators, naming.strangers, argument="leave_out")
    stays = np.array([not names & set(left_out) for names in names_of])
    labels = labels.keep(stays[ann.annotator])
    kept = labels.annotations
    if not kept.n_labels:
        raise CrowdshotError(f"names all annotators of {source}, so no labels remain", argument="leave_out")
    place = np.cumsum(stays) - 1
    kept = replace(kept, annotator=place[kept.annotator], annotators=ann.annotators[stays])
    dropped = {"labels of annotators not wanted": ann.n_labels - kept.n_labels}
    return replace(labels, annotations=kept, left_out={**labels.left_out, **dropped})


def _in_order(ann: Annotations, ordered: Sequence[str], source: str) -> Annotations:
    """Return the annotations with the classes in this order, including classes that nobody chose."""
    refuse_others(ann.classes, ordered, source)
    place = np.array([list(ordered).index(name) for name in ann.classes], dtype=np.int64)
    return replace(ann, label=place[ann.label], classes=np.array(ordered, dtype=object))


def refuse_others(labels: Iterable[str], ordered: Collection[str], source: str) -> None:
    """Refuse labels that are not among the ordered classes."""
    unknown = next((label for label in labels if label not in ordered), None)
    if unknown is not None:
        same = [name for name in ordered if fold(name) == fold(unknown)]
        raise CrowdshotError(
            f"has the label {show(unknown)}",
            where=source,
            found=unknown,
            expected=f"one of {listing(ordered)}",
            hint=Use(f"to read it as {listing(same)}", merge_case=True) if same else None,
        )


def warn_new_classes(gold: Mapping[str, str], labels: LabelsRead, source: str) -> None:
    """Warn about true labels that no annotator chose."""
    truth = names_of(gold.values()) if labels.several else gold.values()
    gold_labels.warn_new_classes(truth, labels.names, source, can_rename=True)


def warn_blanks(labels: Iterable[Any], source: str) -> None:
    """Warn about labels that people and programs write for a missing label."""
    blanks = [name for name in map(str, labels) if fold(name).replace("’", "'") in BLANKS]
    if blanks:
        one = f"The label {blanks[0]!r} is read as a class"
        warnings.warn(
            CrowdshotWarning(
                one if len(blanks) == 1 else f"The labels {listing(blanks)} are read as classes",
                where=source,
                found=blanks,
                hint=Use("if there is no label in these cases", rename=dict.fromkeys(blanks, "")),
            ),
            stacklevel=4,
        )


def warn_shortened(ids: Iterable[Any], role: str, source: str) -> None:
    """Warn about long numbers that lost digits in a spreadsheet or as floats: several ids may have become one."""
    matches = [SHORTENED.fullmatch(name) for name in map(str, ids)]
    found = [each[0] for each in matches if each and int(each[2]) > len(each[1])]
    if found:
        warnings.warn(
            CrowdshotWarning(
                f"has {counted(len(found), role + 's')} such as {found[0]!r}, a long number whose last digits are lost,"
                f" so different {role}s may be read as one",
                where=source,
                found=found[:10],
                hint="Export the table again with such ids as text.",
            ),
            stacklevel=4,
        )


def _warn_commas(labels: Collection[str], source: str) -> None:
    """Warn about labels with commas whose parts all occur in other labels too: they may name several labels."""
    split = {label: parts(label, ",") for label in map(str, labels)}
    seen = Counter(fold(part) for found in split.values() for part in found)
    several = [label for label, found in split.items() if found[1:] and all(seen[fold(part)] > 1 for part in found)]
    if several:
        warnings.warn(
            CrowdshotWarning(
                f"The label {several[0]!r} is read as one label",
                where=source,
                found=several[0],
                hint=Use("to read it as several", multi_label=True),
            ),
            stacklevel=4,
        )


def _warn_near_duplicates(labels: LabelsRead, similar_items: Sequence[Sequence[str]], source: str) -> None:
    """Warn about names that may mean the same: 'Cat' and 'cat', or 'cat.png?key=1' and 'cat.png?key=2'."""
    items = [str(item) for item in labels.annotations.items]
    beyond_ascii = [item for item in items if not item.isascii()]  # IMG_1 and img_1 are often two files
    groups = alike("items", dict.fromkeys(beyond_ascii, 1))
    groups += [Twins("items", tuple(group[:2]), ()) for group in same_files(items)]
    whole = {item: as_whole(item) for item in items if "." in item}  # 7.0 is how programs write 7 beside an empty cell
    known = set(items) - whole.keys() if whole else set()
    groups += [Twins("items", (name, item), ()) for item, name in whole.items() if name in known]
    listed = {item for group in similar_items for item in group}
    groups = labels.near_duplicates + [group for group in groups if not listed.issuperset(group.names)]
    warn_near_duplicates(groups + [Twins("items", tuple(group), ()) for group in similar_items], source)


def warn_near_duplicates(groups: Sequence[Twins], source: str) -> None:
    """Warn about groups of similar names, once for labels, annotators and items each."""
    for kind in ("labels", "annotators", "items"):
        found = [group for group in groups if group.of == kind]
        if found:
            number = {2: "two", 3: "three"}.get(len(found[0].names), str(len(found[0].names)))
            more = f" (and {counted(len(found) - 1, 'more groups like it')})" if found[1:] else ""
            sentence = str(found[0])
            warnings.warn(
                CrowdshotWarning(
                    f"{sentence[:1].upper()}{sentence[1:]} are read as {number} different {kind}{more}",
                    where=source,
                    found=list(found[0].names),
                    hint=_merging_hint(kind, found),
                ),
                stacklevel=4,
            )


def _merging_hint(kind: str, groups: Sequence[Twins]) -> str | Use:
    """Return the options that merge the names, or the command that writes a file for these options."""
    if kind == "items":
        files = all(len(set(map(file_name, group.names))) == 1 for group in groups)
        return Use("if they are the same files", file_names=True) if files else SAME_ITEM
    options = merging(groups)
    listed = [name for value in options.values() if isinstance(value, dict) for pair in value.items() for name in pair]
    if len(listed) > 2 * MOST_LISTED or any("," in name or "=" in name for name in listed):
        return f"To merge them, write the names with `crowdshot check FILE {WITH_FILE[kind]}`, and edit the file"
    return Use("to merge them", **options)
