"""``crowdshot next``: from files of labels to a list of the questions that are worth asking."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.commands.counts import spellings
from crowdshot.commands.given import NO_ITEMS, ItemFiles, LabelFiles
from crowdshot.errors import CrowdshotError
from crowdshot.files.tables import one_each, read_table
from crowdshot.files.whole import TABLES, check_table, write_file
from crowdshot.labels import annotators, asking, copying, known_truth, settling, yes_no
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.belief import SETTLED, doubt
from crowdshot.labels.believed import believe
from crowdshot.labels.columns import Columns
from crowdshot.labels.formats.label_studio import UNLABELLED
from crowdshot.labels.formats.labels import LabelsRead
from crowdshot.labels.formats.write import write_questions
from crowdshot.labels.positions import as_index, positions, unique_ids
from crowdshot.model.beliefs import likeliest
from crowdshot.model.parts import Belief as Table
from crowdshot.model.parts import Sizes
from crowdshot.progress import progress
from crowdshot.report.tables import check_columns
from crowdshot.wording import apart, first, listing, show

Floats = NDArray[np.float64]
OWN_NAMES = dict.fromkeys(Columns._fields, ("gain", "cost", "believed", "confidence", "n_labels"))
NAMED = 5  # people, in a note
MOST_CELLS = 50_000_000  # items × classes, beyond which annotators are not looked at one by one
TEXT = "text"  # what a column of texts is called, unless that is the item's name


class Belief(NamedTuple):
    """What is believed of the annotations' items, (N, K), and what was not used for it."""

    labels: LabelsRead
    annotations: Annotations
    probabilities: Table
    left_out: dict[str, Any]
    texts: Sequence[str] = ()  # the items themselves, where they are texts


def ask(
    labels: LabelFiles,
    budget: float,
    given: ItemFiles = NO_ITEMS,
    cost: Mapping[str, float] | Path | None = None,
    most: int | None = None,
    out: Path | None = None,
    available: Sequence[str] | Path | None = None,
    stop_at: float | None = None,
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Labels, and items where there are any -> a table with a row for each question, the best first.

    ``cost``: {annotator: what an answer costs}, or a file of it; who is not in it costs 1. ``available``: who can be
    asked, or a file of it, else everybody; who gave no label yet is taken for somebody new. ``stop_at``: a share of the
    items, to tell how many labels would settle it. ``out``: a file that ends in .json is for Label Studio, any other is
    CSV.
    """
    if out is not None:
        lists = [given_as for given_as in (cost, available) if isinstance(given_as, Path)]
        check_table(out, *labels.inputs, given.features, given.texts, *lists, endings=(*TABLES, ".json"))
    if stop_at is not None and not 0 < stop_at <= 1:
        raise CrowdshotError(f"stop_at is {stop_at:g}, expected a share of the items, above 0 and at most 1.")
    if not given:
        belief = _from_labels(labels, given.encoder)
    else:
        from crowdshot.commands.fit_from_files import fit  # here, as labels alone need not wait for torch

        fitted = fit(labels, given)
        belief = Belief(fitted.labels, fitted.clf.annotations_, fitted.clf.belief_, fitted.left_out, fitted.items.texts)
    check_columns(belief.annotations.columns, str(labels), OWN_NAMES)
    if stop_at is not None and not isinstance(belief.probabilities, np.ndarray):
        many = f"{belief.annotations.n_classes:,} classes of {belief.annotations.n_annotators:,} annotators"
        raise CrowdshotError(f"stop_at is given with labels of {many}, expected fewer of them for a forecast.")
    can = _worth_asking(belief) if available is None else None
    foretold = _foretold(belief)
    ann, named = _available(available, belief.annotations)
    can = named if can is None else can
    belief = belief._replace(annotations=ann)
    price, others = (np.ones(ann.n_annotators), 0) if cost is None else _price(cost, ann)
    closed = np.append(ann.item, foretold[0]), np.append(ann.annotator, foretold[1])
    history = belief.labels.history.of(ann.annotators)
    with progress("choosing questions"):
        asked = yes_no.questions(ann, belief.probabilities, belief.labels.several)
        p = asking.at_once([of_one for _, of_one in asked])
        confusion = asking.at_once([asking.expected_confusion(*one, history) for one in asked])
        if most is None:
            most = asking.fair_share(budget / price[can].min() if math.isfinite(budget) else 1, int(can.sum()))
        limit = np.where(can, most, 0)
        questions = asking.choose(p, confusion, closed, budget, price, limit)
        plain = asking.at_once([annotators.expected_confusion(*one, history) for one in asked])
        open_ = np.flatnonzero(likeliest(belief.probabilities)[1] < SETTLED)
    table = _table(questions, belief, None if cost is None else price)
    if out is not None:
        with progress("writing"):
            if out.suffix.lower() == ".json":
                texts = dict(zip(ann.items.tolist(), belief.texts, strict=True)) if belief.texts else None
                write_questions(out, table, belief.labels, texts)
            else:
                write_file(out, table)
    report = {
        "items": ann.n_items,
        "annotators": ann.n_annotators,
        "labels": ann.n_labels,
        "classes": ann.classes.tolist(),
        "n_questions": len(questions),
        "asked_items": len({question.item for question in questions}),
        "asked_annotators": len({question.annotator for question in questions}),
        "cost": float(sum(price[question.annotator] for question in questions)),
        "budget": budget,
        "doubt": float(doubt(p).sum()),
        "gain": float(sum(question.gain for question in questions)),
        "errors_mended": asking.mended(p, plain, questions),
        "unasked": ann.n_items * int(can.sum()) - int(can[ann.annotator].sum()),
        "fewer": asking.why_no_more(ann.n_items, closed, questions, budget, price, limit),
        "most": most,
        "not_settled": len(open_),
        "nobody_left": asking.nobody_left(open_, closed, questions, limit),
        **({} if stop_at is None else {"stop_at": settling.forecast(ann, belief.probabilities, stop_at)._asdict()}),
        **spellings(belief.labels),
        "left_out": {**belief.left_out, "costs of people who gave no label": others},
        "files": [] if out is None else [str(out)],
    }
    return report, table


def _from_labels(labels: LabelFiles, encoder: str | None) -> Belief:
    """By labels alone, as `aggregate` does it; what nobody labelled may be asked too, where the file tells of it."""
    if encoder is not None:
        raise CrowdshotError("encoder is given without items, expected images=, features= or texts= with it.")
    read = labels.read()
    ann, left_out = read.annotations, dict(read.left_out)
    known_truth.some_of(read.gold, ann.items, source=labels.gold)
    if read.project is not None and not Sizes(ann.n_items, ann.n_annotators, ann.n_classes).sparse:
        items = dict.fromkeys([*ann.items, *(task.item for task in read.project.tasks)])
        ann = replace(ann, items=np.array(list(items), dtype=object))
        left_out.pop(UNLABELLED, None)
    ann, _ = known_truth.hold(known_truth.join(ann, read.gold), read.gold)
    with progress("aggregating"):
        believed = believe(read, ann, gold=read.gold)
    return Belief(read, believed.annotations, believed.belief, left_out)


def _judged_one_by_one(belief: Belief) -> bool:
    p = belief.probabilities
    few = isinstance(p, np.ndarray) and p.size <= MOST_CELLS
    return few and not belief.labels.several and belief.annotations.n_classes > 1


def _foretold(belief: Belief) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Items and annotators, (M,) each: who gives the same answers as somebody else is not asked what that one was."""
    ann, p = belief.annotations, belief.probabilities
    if not _judged_one_by_one(belief):
        return ann.item[:0], ann.annotator[:0]
    pairs = copying.compare_pairs(ann, np.asarray(p))
    told = copying.in_words(ann, pairs)
    if told:
        warnings.warn(f"{told}; neither is asked what the other has said.", UserWarning, stacklevel=2)
    return copying.said_by_partner(ann, pairs)


def _worth_asking(belief: Belief) -> NDArray[np.bool_]:
    """(R,) whom to ask where nobody is named: not those whose labels, as it seems, do not follow the items."""
    ann, p = belief.annotations, belief.probabilities
    if not _judged_one_by_one(belief):
        return np.ones(ann.n_annotators, dtype=bool)
    from crowdshot.report.page.flags import judge_each, worth_asking  # here, as scipy.stats takes a second

    judged = judge_each(ann, p, [apart(name) for name in ann.classes], belief.labels.history.of(ann.annotators))
    can = worth_asking(judged)
    flagged = [(r, one.flag) for r, one in enumerate(judged) if one and one.flag and not can[r]]
    idle = [f"{show(ann.annotators[r])} ({flag.name})" for r, flag in flagged]
    if idle:
        told = f"not asked, as their labels hardly follow the items: {', '.join(idle[:NAMED])}"
        more = f" and {len(idle) - NAMED} more" if len(idle) > NAMED else ""
        warnings.warn(f"{told}{more}; available= asks whom it names.", UserWarning, stacklevel=2)
    return can


def _available(given: Sequence[str] | Path | None, ann: Annotations) -> tuple[Annotations, NDArray[np.bool_]]:
    """The annotations with those who gave no label yet, and (R,) which annotators can be asked."""
    if given is None:
        return ann, np.ones(ann.n_annotators, dtype=bool)
    names = _read_names(given, ann.columns.annotator) if isinstance(given, Path) else list(given)
    known = set(map(str, ann.annotators))
    new = [name for name in names if name not in known]
    if new:
        told = f"{listing(new)} gave no label yet: somebody new; labels are of {listing(ann.annotators)}."
        warnings.warn(told, UserWarning, stacklevel=2)
        ann = replace(ann, annotators=unique_ids([*ann.annotators, *new], "annotators_available"))
    return ann, np.isin(ann.annotators.astype(str), names)


def _read_names(path: Path, annotator: str) -> list[str]:
    """The column is the annotator's as in the labels, else the first."""
    table = read_table(path)
    names: list[str] = one_each(table, table.header.index(annotator) if annotator in table.header else 0).tolist()
    return names


def _price(cost: Mapping[str, float] | Path, ann: Annotations) -> tuple[Floats, int]:
    """(R,) what an answer of each annotator costs, and how many others a file tells of."""
    given = _read_cost(cost, ann.columns.annotator) if isinstance(cost, Path) else cost
    place = positions(ann.annotators.astype(str), given)
    unknown = place < 0
    if unknown.any() and not isinstance(cost, Path):  # a price list may be longer than a file of labels
        stranger, known = show(list(given)[first(unknown)]), listing(ann.annotators)
        raise CrowdshotError(f"cost names {stranger}, who gave no label, expected some of {known}.")
    price = np.ones(ann.n_annotators)
    price[place[~unknown]] = np.array(list(given.values()))[~unknown]
    return price, int(unknown.sum())


def _read_cost(path: Path, annotator: str) -> dict[str, float]:
    """The columns are the annotator's as in the labels and "cost", else the first and the second."""
    table = read_table(path)
    header = table.header
    if len(header) < 2:
        raise CrowdshotError(f"{path} has {len(header)} column, expected the annotator and the cost of a label.")
    who = header.index(annotator) if annotator in header else 0
    what = header.index("cost") if "cost" in header else 1
    if who == what:
        raise CrowdshotError(f"{path} has {header[who]!r} first and no annotator, expected the annotator and the cost.")
    names, numbers = one_each(table, who), table.numbers(what)
    bad = ~(np.isfinite(numbers) & (numbers > 0))
    if bad.any():
        row = first(bad)
        raise CrowdshotError(f"{table.place(row, what)} is {numbers[row]:g}, expected a number above 0.")
    return dict(zip(names.tolist(), numbers.tolist(), strict=True))


def _table(questions: Sequence[asking.Question], belief: Belief, price: Floats | None) -> pd.DataFrame:
    """Under the column names that came in: item, text, annotator, room for the label, gain, cost, and what is believed.

    The label is empty until somebody answers, so that the file can be filled in and given back beside the old one.
    """
    ann = belief.annotations
    item = np.array([question.item for question in questions], dtype=np.int64)
    annotator = np.array([question.annotator for question in questions], dtype=np.int64)
    believed, confidence = likeliest(belief.probabilities[item])
    return pd.DataFrame(
        {
            ann.columns.item: as_index(ann.items).take(item),
            **({TEXT: [belief.texts[i] for i in item]} if belief.texts and TEXT not in ann.columns else {}),
            ann.columns.annotator: as_index(ann.annotators).take(annotator),
            ann.columns.label: "",
            "gain": np.array([question.gain for question in questions], dtype=np.float64),
            **({} if price is None else {"cost": price[annotator]}),
            "believed": as_index(ann.classes).take(believed),
            "confidence": confidence,
            "n_labels": np.bincount(ann.item, minlength=ann.n_items)[item],
        }
    )
