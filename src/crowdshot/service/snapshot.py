"""The version of the service: everything that requests read, computed from all labels in a separate process."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from torch import Tensor

from crowdshot.classifier.crowd_classifier import CrowdClassifier
from crowdshot.encoders.items import Items
from crowdshot.errors import CrowdshotError
from crowdshot.io.cells import Ids, Positions, positions, unique_ids
from crowdshot.labels import asking, gold_labels
from crowdshot.labels.aggregation import aggregate_labels
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import AnnotatorPriors, judge
from crowdshot.labels.columns import Columns
from crowdshot.labels.consensus import THRESHOLD, Floats
from crowdshot.labels.formats.label_file import LabelsRead
from crowdshot.labels.gold_questions import GoldRule, GoldTests
from crowdshot.labels.label_times import Times, in_time
from crowdshot.labels.matching import file_finder, match_files, named_like
from crowdshot.service import schemas
from crowdshot.service.journal import Answer, Journal, State
from crowdshot.service.schemas import Annotator

CHOICES = "choices"  # the journal's fact with the classes of the labelling interface, as JSON
MOST_LIKES = 20  # held names for which a similar known name is looked for
MOST_COMPARED = 5_000  # known names among which a similar one is looked for
NEW_ANNOTATOR = "\N{REPLACEMENT CHARACTER} somebody new"


class Held(NamedTuple):
    """An unknown class or item; ``like`` is a known name of similar spelling, or ""."""

    kind: str
    name: str
    n_labels: int
    annotators: list[str]
    like: str


@dataclass(frozen=True)
class Version:
    """The results of a fit.

    Attributes
    ----------
    row : int
        The last row of the journal that the fit used.
    posterior : array (N, K)
        Class probabilities of the items of the annotations.
    confusion : array (R + 1, K, K)
        Expected confusion matrices of each `person` and, last, of a new annotator.
    seen : int
        The first ``seen`` items have images, texts or features; the others have only labels.
    several : bool
        Whether a class is a set of labels.
    history : AnnotatorPriors
        Records of the annotators from other projects.
    aliases : dict
        Positions of items by other names that labels use.
    files : bool
        Whether the items are files.
    names : dict
        {written name: merged name} of annotators.
    held : tuple of Held
        Unknown classes and items, whose labels wait for a decision.
    reviews : bool
        Whether labels of unknown classes are held.
    working : dict
        When, how fast and how evenly annotators work, by name (`labels.working_times.working_table`).
    known : dict
        The known class of each gold item, by its position, if questions about them are asked. Then the posterior of
        these items was computed without knowing it, so that nothing shows which items they are.
    tests : dict
        The results in these questions, by annotator.
    page : str
        The live page as HTML.
    """

    number: int
    row: int
    annotations: Annotations
    posterior: Floats
    confusion: Floats
    seen: int = 0
    several: bool = False
    history: AnnotatorPriors = field(default_factory=lambda: AnnotatorPriors({}))
    aliases: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    files: bool = False
    names: dict[str, str] = field(default_factory=dict)
    held: tuple[Held, ...] = ()
    reviews: bool = False
    working: dict[str, dict[str, Any]] = field(default_factory=dict)
    known: dict[int, int] = field(default_factory=dict, repr=False)
    tests: dict[str, GoldTests] = field(default_factory=dict)
    page: str = field(default="", repr=False)

    @cached_property
    def place(self) -> dict[str, int]:
        """Positions of the items by all their names."""
        return {str(name): row for row, name in enumerate(self.annotations.items)} | self.aliases

    def find(self, name: str) -> int | None:
        """Return the position of an item by any of its names or by its file name in a label tool; None if unknown."""
        row = self.place.get(name)
        if row is None and self.files and name:
            found = self._file_called(name)
            row = found if found >= 0 else None
        return row

    @cached_property
    def _file_called(self) -> Callable[[str], int]:
        return file_finder([PurePath(str(name)) for name in self.annotations.items[: self.seen]])

    @cached_property
    def person(self) -> dict[str, int]:
        """Positions of the annotators with labels or a history."""
        return {name: row for row, name in enumerate(known_people(self.annotations, self.history))}

    @cached_property
    def class_place(self) -> dict[str, int]:
        return {str(name): k for k, name in enumerate(self.annotations.classes)}

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Numbers of items, annotators and classes."""
        return self.annotations.n_items, len(self.person), self.annotations.n_classes

    @cached_property
    def n_labels(self) -> Any:
        """Number of labels of each item (N,)."""
        return np.bincount(self.annotations.item, minlength=self.annotations.n_items)

    @cached_property
    def confidence(self) -> Floats:
        return np.asarray(self.posterior.max(1))

    @property
    def certain_posterior(self) -> Floats:
        """The posterior with the known classes of gold items."""
        return with_known(self.posterior, self.known)

    @property
    def n_labelled(self) -> int:
        return int((self.n_labels > 0).sum())

    @property
    def n_accepted(self) -> int:
        """Number of labelled items that are accepted."""
        return int(((self.confidence >= THRESHOLD) & (self.n_labels > 0)).sum())

    def label(self, row: int) -> str:
        return str(self.annotations.classes[self.posterior[row].argmax()])

    @cached_property
    def consensus(self) -> list[str]:
        """A JSON object for each item, as text.

        Gold items without labels are left out if nothing else is known of them: only they would have no label.
        """
        votes = self.annotations.vote_counts()
        best = self.posterior.argmax(1)
        return [
            json.dumps(
                {
                    "item": str(item),
                    "label": str(self.annotations.classes[k]),
                    "confidence": float(self.posterior[row, k]),
                    "n_labels": int(self.n_labels[row]),
                    "agreement": float(votes[row, k] / self.n_labels[row]) if self.n_labels[row] else None,
                }
            )
            for row, (item, k) in enumerate(zip(self.annotations.items, best, strict=True))
            if row < self.seen or self.n_labels[row] or row not in self.known
        ]

    @cached_property
    def annotators(self) -> list[Annotator]:
        """The quality of each annotator with labels."""
        names = ("n_labels", "accuracy", "low", "high")
        table = judge(self.annotations, self.certain_posterior, self.history.of(self.annotations.annotators))
        rows = zip(self.annotations.annotators, *(table[name].tolist() for name in names), strict=True)
        return [
            Annotator(
                annotator=str(name),
                n_labels=n,
                accuracy=accuracy,
                low=low,
                high=high,
                working=self.working.get(str(name), {}),
                gold=schemas.KnownAnswers(**self.tests[str(name)]._asdict()) if str(name) in self.tests else None,
            )
            for name, n, accuracy, low, high in rows
            if n
        ]


def with_known(posterior: Floats, known: Mapping[int, int]) -> Floats:
    """Return the posterior (N, K) with the known classes of gold items, {position: class}."""
    if not known:
        return posterior
    posterior, rows = posterior.copy(), list(known)
    posterior[rows] = 0
    posterior[rows, list(known.values())] = 1
    return posterior


def known_people(ann: Annotations, history: AnnotatorPriors) -> list[str]:
    """Return the annotators, followed by those without labels here but with a history."""
    return list(dict.fromkeys([*map(str, ann.annotators), *map(str, history)]))


def expected_answers(ann: Annotations, posterior: Floats, history: AnnotatorPriors) -> Floats:
    """Return expected confusion matrices (R + 1, K, K) of all annotators and of a new one (the last)."""
    people = known_people(ann, history)
    if not isinstance(posterior, np.ndarray):  # sparse: the confusion matrices would not fit into memory
        raise CrowdshotError(
            f"has {ann.n_annotators:,} annotators and {ann.n_classes:,} classes, too many for a service",
            argument="labels",
            hint="`crowdshot next` can choose questions for labels of any size.",
        )
    if ann.n_classes < 2:  # with one class, every answer is correct
        return np.ones((len(people) + 1, ann.n_classes, ann.n_classes))
    with_new = replace(ann, annotators=unique_ids([*people, NEW_ANNOTATOR], "annotators"))
    expected: Floats = asking.expected_confusion(with_new, posterior, history.of(with_new.annotators))
    return expected


# ---- fitting ----

Reading = Callable[[Sequence[LabelsRead]], LabelsRead]


@dataclass(frozen=True)
class Sources:
    """The inputs of the service.

    ``parts`` are the label files as they were read, and ``read`` joins them with other labels. ``items``, their
    ``embeddings`` (N, D) and the unfitted classifier are either all set or all None. ``classes`` are the known classes,
    and ``spelling`` maps a label to the classes that it names; without known classes, every label is used. ``tool`` is
    the address of Label Studio, and ``rule`` says how annotators are tested.
    """

    parts: Sequence[LabelsRead]
    read: Reading
    items: Items | None = None
    embeddings: Tensor | None = None
    clf: CrowdClassifier | None = None
    classes: frozenset[str] = frozenset()
    spelling: Callable[[str], Sequence[str]] = lambda label: [label]
    tool: str | None = None
    rule: GoldRule = field(default_factory=GoldRule)


@dataclass(frozen=True)
class Review:
    """The known classes, and the decisions about unknown classes and items: {(kind, name): new name or None}."""

    classes: frozenset[str] = frozenset()
    decided: Mapping[tuple[str, str], str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, sources: Sources, journal: Journal) -> Review:
        listed = json.loads(journal.fact(CHOICES) or "[]")  # by the labelling interface
        decided = {(each.kind, each.name): each.becomes for each in journal.decisions()}
        return cls(sources.classes | frozenset(listed), decided)

    def sort(self, sources: Sources, labels: Sequence[Answer]) -> tuple[dict[int, Answer], list[Held]]:
        """Return the labels to use, with the names that were decided, and the classes and items that are held.

        The labels to use are {position: label}.
        """
        known_class = self._by_name("class", {str(each.label) for each in labels}, partial(self._is_class, sources))
        is_item = _item_test(sources, {each.item for each in labels} | {name or "" for name in self.decided.values()})
        known_item = self._by_name("item", {each.item for each in labels}, is_item)
        used, held = dict[int, Answer](), dict[tuple[str, str], list[Answer]]()
        for position, each in enumerate(labels):
            names = known_item[each.item], known_class[str(each.label)]
            unknown = [pair for pair, name in zip(_names_of(each), names, strict=True) if name is False]
            for pair in unknown:
                held.setdefault(pair, []).append(each)
            if not unknown and None not in names:
                used[position] = each._replace(item=str(names[0]), label=str(names[1]))
        often = sorted(held, key=lambda pair: -len(held[pair]))
        likes = [self._like(sources, *pair) for pair in often[:MOST_LIKES]]
        likes += [""] * (len(often) - len(likes))
        return used, [
            Held(*pair, len(held[pair]), sorted({each.annotator for each in held[pair]}), like)
            for pair, like in zip(often, likes, strict=True)
        ]

    def _by_name(
        self, kind: str, names: set[str], known: Callable[[str], bool]
    ) -> dict[str, str | Literal[False] | None]:
        """Return the name to use for each name: None if it was discarded, False if it is held."""
        decided = {name: self.decided.get((kind, name), name if known(name) else False) for name in names}
        return decided  # type: ignore[return-value]

    def _is_class(self, sources: Sources, label: str) -> bool:
        return not self.classes or all(name in self.classes for name in sources.spelling(label))

    def _like(self, sources: Sources, kind: str, name: str) -> str:
        """Return the known name of the most similar spelling, or ""."""
        items = [] if sources.items is None else sources.items.ids[:MOST_COMPARED].tolist()
        known = sorted(self.classes)[:MOST_COMPARED] if kind == "class" else items
        by_key = {plain_key(str(each)): str(each) for each in known}
        like = difflib.get_close_matches(plain_key(name), list(by_key), 1, 0.6)
        return by_key[like[0]] if like else ""


def _names_of(answer: Answer) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("item", answer.item), ("class", str(answer.label))


def plain_key(name: str) -> str:
    """Return a name without case, spaces and punctuation."""
    return "".join(c for c in name.casefold() if c.isalnum()) or name


def _item_test(sources: Sources, names: set[str]) -> Callable[[str], bool]:
    """Return the function that tells whether a name is that of an item; without items, every name is."""
    if sources.items is None:
        return lambda name: True
    listed = np.array(sorted(names), dtype=object)
    rows = rows_of(listed, sources.items)
    known: set[str] = {str(name) for name, row in zip(listed.tolist(), rows.tolist(), strict=True) if row >= 0}
    known |= {str(name) for part in sources.parts for name in part.annotations.items}
    return known.__contains__


class Fitted(NamedTuple):
    """The result of a fit; ``clf`` is None without items, or if all labels are of one class.

    ``known`` has the classes of gold items by position.
    """

    read: LabelsRead
    annotations: Annotations
    posterior: Floats
    aliases: dict[str, int]
    seen: int
    clf: CrowdClassifier | None
    files: bool = False
    held: tuple[Held, ...] = ()
    reviews: bool = False
    known: Mapping[int, int] = {}


def fit(sources: Sources, later: State, review: Review | None = None) -> Fitted | None:
    """Aggregate all labels and fit the classifier; None if there are no labels to use."""
    review = review or Review()
    used, held = review.sort(sources, later.labels)
    newer = {(answer.item, answer.annotator) for answer in used.values()}  # these labels replace those of the files
    parts = [_without(part, later.withdrawn) for part in sources.parts]
    parts = [_without(part, newer) for part in parts if part.annotations.n_labels]
    if used:
        frame = pd.DataFrame([answer[:3] for answer in used.values()], columns=list(Columns()), dtype=object)
        times = Times(np.array([later.at[position] for position in used]))
        ann, kept = in_time(frame, Columns(), times, "the journal")
        parts.append(LabelsRead(ann, times=kept))
    if not parts:
        return None
    read = sources.read(parts)
    found = _fit(sources, read)
    if sources.rule.wanted and read.gold:
        found = _hide_gold(found, _fit(sources, replace(read, gold={})), read.gold)
    return found._replace(held=tuple(held), reviews=bool(review.classes))


def _fit(sources: Sources, read: LabelsRead) -> Fitted:
    return _by_labels(read) if sources.items is None else _with_items(sources, read)


def _hide_gold(found: Fitted, without: Fitted, gold: Mapping[Any, Any]) -> Fitted:
    """Return a fit whose posteriors of gold items are those of a fit ``without`` gold.

    A gold item that nobody labelled has the mean posterior, like any other item without labels.
    """
    ann = found.annotations
    row = positions(ann.items, list(gold))
    label = positions(ann.classes.astype(str), list(map(str, gold.values())))
    known = {int(i): int(k) for i, k in zip(row, label, strict=True) if i >= 0 and k >= 0}
    column = positions(ann.classes, without.annotations.classes)
    posterior = found.posterior.copy()
    for i, place in zip(known, positions(without.annotations.items, ann.items[list(known)]), strict=True):
        posterior[i] = 0
        if place >= 0:
            posterior[i, column[column >= 0]] = without.posterior[place][column >= 0]
        else:
            posterior[i, column[column >= 0]] = without.posterior.mean(0)[column >= 0]
    return found._replace(posterior=posterior, known=known)


def _without(part: LabelsRead, withdrawn: set[tuple[str, str]]) -> LabelsRead:
    ann = part.annotations
    pairs = zip(ann.items[ann.item], ann.annotators[ann.annotator], strict=True)
    kept = np.array([(str(item), str(annotator)) not in withdrawn for item, annotator in pairs], dtype=bool)
    return part if kept.all() else part.keep(kept)


def _by_labels(read: LabelsRead) -> Fitted:
    gold = read.gold
    ann, _ = gold_labels.hold(gold_labels.join(read.annotations, gold), gold)
    result = aggregate_labels(read, ann, gold=gold)
    return Fitted(read, result.annotations, result.posterior, {}, 0, None)


def _with_items(sources: Sources, read: LabelsRead) -> Fitted:
    """Fit the classifier to the items; labelled items without image, text or features come last and use labels only."""
    items, embeddings, clf = sources.items, sources.embeddings, sources.clf
    assert items is not None
    assert embeddings is not None
    assert clf is not None
    ann, aliases = _joined(read.annotations, items)
    seen = ann.keep(ann.item < len(items))
    n_classes = len(np.unique(seen.label))
    gold, _ = gold_labels.some_of(read.gold, ann.items)
    posterior = aggregate_labels(read, ann, gold=gold).posterior
    if read.several:  # the classifier knows only the sets that an annotator chose
        posterior = posterior[:, : ann.n_classes] / posterior[:, : ann.n_classes].sum(1, keepdims=True)
    if n_classes < 2:
        return Fitted(read, ann, posterior, aliases, len(items), None, items.are_files)
    known = replace(seen, items=ann.items[: len(items)])
    known_gold = {item: label for item, label in gold.items() if item in set(known.items)}
    clf.fit_embeddings(embeddings, known, items=known.items, gold=known_gold, priors=read.history)
    posterior[: len(items)] = clf.label_proba_
    return Fitted(read, ann, posterior, aliases, len(items), clf, items.are_files)


def _joined(ann: Annotations, items: Items) -> tuple[Annotations, dict[str, int]]:
    """Return the labels with all items, then other labelled items; and the positions of items by other names."""
    row = rows_of(ann.items, items)
    names = np.array(named_like(ann.items, [PurePath(name) for name in items.ids]) if items.are_files else items.ids)
    names = names.astype(object)
    names[row[row >= 0][::-1]] = ann.items[row >= 0][::-1]  # the first name that the labels use
    others = ann.items[row < 0]
    place = row.copy()
    place[row < 0] = len(items) + np.arange(len(others))
    aliases = {str(name): int(at) for name, at in zip(ann.items, place, strict=True)}
    whole = np.concatenate([names, others])
    frame = replace(ann, item=place[ann.item], items=whole).to_frame()
    columns, classes, people = ann.columns, ann.classes, ann.annotators
    return Annotations.from_frame(frame, columns, classes=classes, items=whole, annotators=people), aliases


def rows_of(names: Ids, items: Items) -> Positions:
    """Return the position of the item that each name refers to, -1 for none."""
    return (
        match_files(names, [PurePath(name) for name in items.ids]) if items.are_files else positions(items.ids, names)
    )
