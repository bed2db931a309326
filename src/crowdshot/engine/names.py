"""What annotators and labels are called in all chunks together, and so which number each has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from crowdshot.engine.part_files import Arrays
from crowdshot.engine.scatter import read_list
from crowdshot.errors import NoLabelError
from crowdshot.files.cells import Ids
from crowdshot.labels import choices, wide
from crowdshot.labels.annotator_priors import AnnotatorPriors
from crowdshot.labels.formats.naming import Naming, refuse_others
from crowdshot.labels.formats.table import MINUS_ONE
from crowdshot.labels.numbers import refuse_fractions, refuse_many
from crowdshot.labels.positions import ordered
from crowdshot.labels.spelling import Respelled, fold, new_names, respelled, spelling_of

Codes = NDArray[np.int32]


@dataclass(frozen=True)
class Names:
    """``annotators`` (R,) in the order in which they first appear, ``classes`` (K,) sorted or as they are ordered."""

    annotators: Ids
    classes: Ids
    spelled: dict[str, str]  # labels as they are written -> as they are called, "" for none
    people: dict[str, str] = field(default_factory=dict)  # the same of annotators
    respelled: list[Respelled] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)  # {why: rows}
    counts: dict[str, int] = field(default_factory=dict)  # labels of each class, those given again included

    @cached_property
    def lists(self) -> tuple[pa.Array, pa.Array]:
        """Annotators and classes as Arrow has them."""
        return pa.array(self.annotators, pa.string()), pa.array(self.classes, pa.string())


def names_of(
    folder: Path, chunks: Sequence[str], naming: Naming, gold: dict[str, str], source: str, left_out: dict[str, int]
) -> Names:
    """``gold``: {item: true label}, whose labels are classes too. ``left_out``: rows, until here."""
    written: dict[str, int] = {}
    for chunk in chunks:
        table = read_list(folder / f"{chunk}.labels")
        for name, count in zip(table["name"].to_pylist(), table["count"].to_pylist(), strict=True):
            written[name] = written.get(name, 0) + count
    if not written:
        raise NoLabelError(f"{source} holds no label, expected one.")
    counts: Counter[str] = Counter()
    for name, count in written.items():
        counts[fold(name)] += count
    no_label = [] if wide.is_label(counts, source) else [name for name in written if fold(name) == "-1"]
    left_out = {**left_out, MINUS_ONE: sum(written.pop(name) for name in no_label)}
    if not naming.categories:
        choices.refuse_sets(np.array(list(written), dtype=object), source)
    spelling = spelling_of(written, naming.rename, naming.merge_case, naming.ordered)
    spelled = {**{name: spelling(name) for name in written}, **dict.fromkeys(no_label, "")}
    called = dict.fromkeys([*spelled.values(), *(spelling(label) for label in gold.values())])
    called.pop("", None)
    counted = dict.fromkeys(called, 0)
    for name, count in written.items():
        if spelled[name]:
            counted[spelled[name]] += count
    if naming.ordered:
        refuse_others(called, naming.ordered, source)
    classes = np.array(naming.ordered or list(ordered(np.array(list(called), dtype=object))), dtype=object)
    if not naming.categories:
        refuse_fractions(classes, source)
        if not naming.ordered:
            refuse_many(classes, source)
    seen: pa.Array = pa.array([], pa.string())
    for chunk in chunks:  # a few at a time, as most have the same
        names = read_list(folder / f"{chunk}.annotators")["name"].combine_chunks()
        seen = pa.compute.unique(pa.concat_arrays([seen, names]))
    annotators = np.array(seen.to_pylist(), dtype=object)
    people = new_names(naming.names, "names", ("annotator", "name"), annotators)
    if people:
        annotators = np.array(list(dict.fromkeys(people.get(name) or name for name in annotators)), dtype=object)
    return Names(annotators, classes, spelled, people, respelled("labels", spelling, written), left_out, counted)


def encode(chunk: str, folder: Path, names: Names) -> None:
    """Files that say which number each of a chunk's annotators and labels has; -1 for what is no label."""
    annotators, classes = names.lists
    for kind, called, ids in (("annotators", names.people, annotators), ("labels", names.spelled, classes)):
        codes = pa.compute.index_in(_called(folder / f"{chunk}.{kind}", called), value_set=ids)
        Arrays(folder)[f"{chunk}.{kind}"] = pa.compute.fill_null(codes, -1).to_numpy(zero_copy_only=False)


def codes_of(chunk: str, folder: Path) -> tuple[Codes, Codes]:
    arrays = Arrays(folder)
    return arrays[f"{chunk}.annotators"], arrays[f"{chunk}.labels"]


def history_of(names: Names, history: AnnotatorPriors) -> NDArray[np.float64] | None:
    """(R, 2)"""
    return history.of(names.annotators) if history else None


def _called(file: Path, new: dict[str, str]) -> pa.Array:
    names = read_list(file)["name"].combine_chunks()
    if not any(new.get(name, name) != name for name in new):
        return names
    return pa.array([new.get(name) if name in new else name for name in names.to_pylist()], pa.string())
