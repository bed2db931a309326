"""Labels as they were read -> by what they are called; and what is odd about them, refused or told."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import counted, listing, show
from crowdshot.labels import gold_labels, label_sets
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.formats.label_file import LabelsRead
from crowdshot.labels.label_values import refuse_fractions
from crowdshot.labels.matching import same_files
from crowdshot.labels.spelling import (
    NewNames,
    Strangers,
    Twins,
    alike,
    fold,
    new_names,
    report_unknown,
    respell,
    respelled,
    spelling_of,
)

REMEDIES = {
    "labels": "merge_case=True merges them",
    "annotators": "names= can merge them",
    "items": "if they are one, write them alike in the files",
}
BLANKS = {  # in any case
    *("na", "n/a", "#n/a", "nan", "null", "none", "?", "-", "skip", "skipped", "unsure", "not sure", "unclear", "idk"),
    *("don't know", "dont know", "i don't know", "i dont know", "can't tell", "cant tell", "cannot tell", "no answer"),
}


@dataclass(frozen=True)
class Naming:
    """What labels and annotators are called, and what labels are; see `read_labels`.

    ``strangers``: what becomes of names among these that nobody has, or has yet.
    """

    rename: NewNames = None
    merge_case: bool = False
    names: NewNames = None
    multi_label: bool = False
    ordered: Sequence[str] = ()
    categories: bool = False
    leave_out: Sequence[str] = ()
    strangers: Strangers = "refuse"

    def check(self) -> None:
        if self.multi_label and self.ordered:
            raise CrowdshotError("ordered is given with multi_label=True, expected one of them.")
        if self.ordered and (len(self.ordered) < 2 or len(set(self.ordered)) < len(self.ordered)):
            raise CrowdshotError(f"ordered is {list(self.ordered)}, expected two or more different classes.")


def call(labels: LabelsRead, naming: Naming, source: str, named_otherwise: Sequence[Sequence[str]] = ()) -> LabelsRead:
    """The labels, the true ones included, and the annotators by what they are called; those left out are gone.

    ``named_otherwise``: groups of items that may be one, of several files, to be told with other near-twins.
    """
    everyone = labels.annotations.annotators
    listed = new_names(naming.names, "names", ("annotator", "name"), everyone, naming.strangers)
    people = {written: name for written, name in listed.items() if name}
    labels = _without(naming, labels, people, source) if naming.leave_out else labels
    ann = labels.annotations
    split: Callable[[str], list[str]] = (
        label_sets.split_of(ann.classes) if naming.multi_label else lambda label: [label]
    )
    if not (naming.multi_label or naming.categories):
        label_sets.refuse_sets(ann.classes, source)
    written: dict[str, int] = {}
    for label, number in zip(ann.classes, np.bincount(ann.label, minlength=ann.n_classes).tolist(), strict=True):
        for part in split(label):
            written[part] = written.get(part, 0) + number
    spelling = spelling_of(written, naming.rename, naming.merge_case, naming.ordered, naming.strangers)
    told = respelled("labels", spelling, written)
    by_person = dict(zip(ann.annotators, np.bincount(ann.annotator, minlength=ann.n_annotators).tolist(), strict=True))
    told += respelled("annotators", lambda name: people.get(name, name), by_person)
    whole = label_sets.spell_each(spelling, split) if naming.multi_label else spelling
    ann = respell(ann, whole, people, source, labels.when)
    gold = {item: whole(label) for item, label in labels.gold.items()}
    gold = {item: label for item, label in gold.items() if label}
    if naming.ordered:
        ann = _in_order(ann, naming.ordered, source)
        refuse_others(gold.values(), naming.ordered, source)
    labels = replace(
        labels, annotations=ann, gold=gold, spelling=whole, people=people, respelled=told, several=naming.multi_label,
        ordered=bool(naming.ordered), when=None,
    )  # fmt: skip
    warn_new_classes(gold, labels, source)
    if not naming.categories:
        refuse_fractions(labels.names, source)
    warn_blanks(labels.names, source)
    if not (naming.multi_label or naming.categories):
        _warn_commas(labels.names, source)
    _warn_near_duplicates(labels, named_otherwise, source)
    return labels


def _without(naming: Naming, labels: LabelsRead, people: Mapping[str, str], source: str) -> LabelsRead:
    """Without the labels of these annotators, by the name they are written or called; items stay."""
    ann, left_out = labels.annotations, naming.leave_out
    called = [{str(name), people.get(str(name), str(name))} for name in ann.annotators]
    everyone = set().union(*called)
    stranger = next((name for name in left_out if name not in everyone), None)
    if stranger is not None:
        report_unknown(stranger, ann.annotators, naming.strangers, argument="leave_out")
    stays = np.array([not names & set(left_out) for names in called])
    labels = labels.keep(stays[ann.annotator])
    kept = labels.annotations
    if not kept.n_labels:
        raise CrowdshotError(f"leave_out names all who labelled in {source}, expected somebody to stay.")
    place = np.cumsum(stays) - 1
    kept = replace(kept, annotator=place[kept.annotator], annotators=ann.annotators[stays])
    gone = {"labels of annotators not wanted": ann.n_labels - kept.n_labels}
    return replace(labels, annotations=kept, left_out={**labels.left_out, **gone})


def _in_order(ann: Annotations, ordered: Sequence[str], source: str) -> Annotations:
    """With classes in this order, those that nobody said included."""
    refuse_others(ann.classes, ordered, source)
    place = np.array([list(ordered).index(name) for name in ann.classes], dtype=np.int64)
    return replace(ann, label=place[ann.label], classes=np.array(ordered, dtype=object))


def refuse_others(labels: Iterable[str], ordered: Collection[str], source: str) -> None:
    stranger = next((label for label in labels if label not in ordered), None)
    if stranger is not None:
        alike = f"; merge_case=True reads it as {listing([n for n in ordered if fold(n) == fold(stranger)])}"
        hint = alike if fold(stranger) in map(fold, ordered) else ""
        raise CrowdshotError(f"{source} has the label {show(stranger)}, expected one of {listing(ordered)}{hint}.")


def warn_new_classes(gold: Mapping[str, str], labels: LabelsRead, source: str) -> None:
    """What gold names and no annotator said."""
    truth = label_sets.names_of(gold.values()) if labels.several else gold.values()
    gold_labels.warn_new_classes(truth, labels.names, source)


def warn_blanks(labels: Iterable[Any], source: str) -> None:
    """People and programs write these where they have nothing to write."""
    blanks = [name for name in map(str, labels) if fold(name).replace("’", "'") in BLANKS]
    if blanks:
        are = (
            f"labels {listing(blanks)} are taken for classes"
            if blanks[1:]
            else f"label {blanks[0]!r} is taken for a class"
        )
        new = ",".join(f"{name!r}: ''" for name in blanks)
        told = f"{source}: the {are} like any other; rename={{{new}}} makes no label of it."
        warnings.warn(told, UserWarning, stacklevel=4)


def _warn_commas(labels: Collection[str], source: str) -> None:
    """Those whose parts are all labels too, or parts of others, may be meant for several."""
    split = {label: label_sets.parts(label, ",") for label in map(str, labels)}
    seen = Counter(fold(part) for found in split.values() for part in found)
    several = [label for label, found in split.items() if found[1:] and all(seen[fold(part)] > 1 for part in found)]
    if several:
        told = f"{source}: the label {several[0]!r} is taken for one; multi_label=True takes it for several."
        warnings.warn(told, UserWarning, stacklevel=4)


def _warn_near_duplicates(labels: LabelsRead, named_otherwise: Sequence[Sequence[str]], source: str) -> None:
    """Names that somebody may have meant for one: 'Cat' and 'cat', or 'cat.png?key=1' and 'cat.png?key=2'."""
    items = [str(item) for item in labels.annotations.items]
    beyond_ascii = [item for item in items if not item.isascii()]  # IMG_1 and img_1 are two
    twins = alike("items", dict.fromkeys(beyond_ascii, 1))
    twins += [Twins("items", tuple(group[:2]), ()) for group in same_files(items)]
    listed = {item for group in named_otherwise for item in group}
    twins = labels.near_duplicates + [each for each in twins if not listed.issuperset(each.names)]
    warn_near_duplicates(twins + [Twins("items", tuple(group), ()) for group in named_otherwise], source)


def warn_near_duplicates(twins: Sequence[Twins], source: str) -> None:
    for of in REMEDIES:
        found = [each for each in twins if each.of == of]
        if found:
            number = {2: "two", 3: "three"}.get(len(found[0].names), str(len(found[0].names)))
            more = f" (and {counted(len(found) - 1, 'more groups like it')})" if found[1:] else ""
            told = f"{source}: {found[0]} are taken for {number}{more}; {REMEDIES[of]}."
            warnings.warn(told, UserWarning, stacklevel=4)
