"""``crowdshot next``: from files of labels to a list of the questions that are worth asking."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from crowdshot._cli.console import flat, print_result
from crowdshot._cli.options import (
    AsJson,
    EncoderName,
    Features,
    Images,
    Labels,
    ReadingOptions,
    SkipBad,
    Texts,
    as_available,
    as_costs,
)
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import apart, first, listing, show
from crowdshot.progress import progress

if TYPE_CHECKING:
    import numpy as np


if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from crowdshot._cli.inputs import ItemFiles, LabelFiles
    from crowdshot.labels import asking
    from crowdshot.labels.annotations import Annotations
    from crowdshot.labels.formats.label_file import LabelsRead
    from crowdshot.model.parts import PosteriorMatrix as Table


OWN_NAMES = dict.fromkeys(("item", "annotator", "label"), ("gain", "cost", "consensus", "confidence", "n_labels"))
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
    given: ItemFiles | None = None,
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
    import numpy as np

    from crowdshot._cli.inputs import NO_ITEMS, spellings
    from crowdshot.io.atomic import TABLES, check_table, write_file
    from crowdshot.labels import aggregation, annotator_quality, asking, labels_needed
    from crowdshot.labels.confidence import THRESHOLD, uncertainty
    from crowdshot.labels.formats.writers import write_questions
    from crowdshot.model.posteriors import likeliest
    from crowdshot.report.result_tables import check_columns

    given = NO_ITEMS if given is None else given
    if out is not None:
        lists = [input_kind for input_kind in (cost, available) if isinstance(input_kind, Path)]
        check_table(out, *labels.inputs, given.features, given.texts, *lists, endings=(*TABLES, ".json"))
    if stop_at is not None and not 0 < stop_at <= 1:
        raise CrowdshotError(f"stop_at is {stop_at:g}, expected a share of the items, above 0 and at most 1.")
    if not given:
        posterior = _from_labels(labels, given.encoder)
    else:
        from crowdshot._cli.fitting import fit  # here, as labels alone need not wait for torch

        fitted = fit(labels, given)
        posterior = Belief(
            fitted.labels, fitted.clf.annotations_, fitted.clf.label_proba_, fitted.left_out, fitted.items.texts
        )
    check_columns(posterior.annotations.columns, str(labels), OWN_NAMES)
    if stop_at is not None and not isinstance(posterior.probabilities, np.ndarray):
        many = f"{posterior.annotations.n_classes:,} classes of {posterior.annotations.n_annotators:,} annotators"
        raise CrowdshotError(f"stop_at is given with labels of {many}, expected fewer of them for a forecast.")
    can = _useful_questions(posterior) if available is None else None
    foretold = _foretold(posterior)
    ann, named = _available(available, posterior.annotations)
    can = named if can is None else can
    posterior = posterior._replace(annotations=ann)
    price, others = (np.ones(ann.n_annotators), 0) if cost is None else _price(cost, ann)
    closed = np.append(ann.item, foretold[0]), np.append(ann.annotator, foretold[1])
    history = posterior.labels.history.of(ann.annotators)
    with progress("choosing questions"):
        asked = aggregation.questions(ann, posterior.probabilities, posterior.labels.several)
        p = asking.at_once([of_one for _, of_one in asked])
        confusion = asking.at_once([asking.expected_confusion(*one, history) for one in asked])
        if most is None:
            most = asking.fair_share(budget / price[can].min() if math.isfinite(budget) else 1, int(can.sum()))
        limit = np.where(can, most, 0)
        questions = asking.choose(p, confusion, closed, budget, price, limit)
        plain = asking.at_once([annotator_quality.expected_confusion(*one, history) for one in asked])
        open_ = np.flatnonzero(likeliest(posterior.probabilities)[1] < THRESHOLD)
    table = _table(questions, posterior, None if cost is None else price)
    if out is not None:
        with progress("writing"):
            if out.suffix.lower() == ".json":
                texts = dict(zip(ann.items.tolist(), posterior.texts, strict=True)) if posterior.texts else None
                write_questions(out, table, posterior.labels, texts)
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
        "doubt": float(uncertainty(p).sum()),
        "gain": float(sum(question.gain for question in questions)),
        "errors_mended": asking.mended(p, plain, questions),
        "unasked": ann.n_items * int(can.sum()) - int(can[ann.annotator].sum()),
        "fewer": asking.why_no_more(ann.n_items, closed, questions, budget, price, limit),
        "most": most,
        "not_accepted": len(open_),
        "nobody_left": asking.nobody_left(open_, closed, questions, limit),
        **(
            {}
            if stop_at is None
            else {"stop_at": labels_needed.forecast(ann, posterior.probabilities, stop_at)._asdict()}
        ),
        **spellings(posterior.labels),
        "left_out": {**posterior.left_out, "costs of people who gave no label": others},
        "files": [] if out is None else [str(out)],
    }
    return report, table


def _from_labels(labels: LabelFiles, encoder: str | None) -> Belief:
    """By labels alone, as `aggregate` does it; what nobody labelled may be asked too, where the file tells of it."""
    import numpy as np

    from crowdshot.labels import gold_labels
    from crowdshot.labels.aggregation import aggregate_labels
    from crowdshot.labels.formats.label_studio import UNLABELLED
    from crowdshot.model.parts import Sizes

    if encoder is not None:
        raise CrowdshotError("encoder is given without items, expected images=, features= or texts= with it.")
    read = labels.read()
    ann, left_out = read.annotations, dict(read.left_out)
    gold_labels.some_of(read.gold, ann.items, source=labels.gold)
    if read.project is not None and not Sizes(ann.n_items, ann.n_annotators, ann.n_classes).sparse:
        items = dict.fromkeys([*ann.items, *(task.item for task in read.project.tasks)])
        ann = replace(ann, items=np.array(list(items), dtype=object))
        left_out.pop(UNLABELLED, None)
    ann, _ = gold_labels.hold(gold_labels.join(ann, read.gold), read.gold)
    with progress("aggregating"):
        believed = aggregate_labels(read, ann, gold=read.gold)
    return Belief(read, believed.annotations, believed.posterior, left_out)


def _judged_one_by_one(posterior: Belief) -> bool:
    import numpy as np

    p = posterior.probabilities
    few = isinstance(p, np.ndarray) and p.size <= MOST_CELLS
    return few and not posterior.labels.several and posterior.annotations.n_classes > 1


def _foretold(posterior: Belief) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Items and annotators, (M,) each: who gives the same answers as somebody else is not asked what that one was."""
    import numpy as np

    from crowdshot.labels import duplicate_annotators

    ann, p = posterior.annotations, posterior.probabilities
    if not _judged_one_by_one(posterior):
        return ann.item[:0], ann.annotator[:0]
    pairs = duplicate_annotators.compare_pairs(ann, np.asarray(p))
    told = duplicate_annotators.in_words(ann, pairs)
    if told:
        warnings.warn(f"{told}; neither is asked what the other has said.", UserWarning, stacklevel=2)
    return duplicate_annotators.predictable_answers(ann, pairs)


def _useful_questions(posterior: Belief) -> NDArray[np.bool_]:
    """(R,) whom to ask where nobody is named: not those whose labels, as it seems, do not follow the items."""
    import numpy as np

    ann, p = posterior.annotations, posterior.probabilities
    if not _judged_one_by_one(posterior):
        return np.ones(ann.n_annotators, dtype=bool)
    from crowdshot.labels.annotator_flags import (
        judge_each,
        useful_questions,  # here, as scipy.stats takes a second
    )

    judged = judge_each(ann, p, [apart(name) for name in ann.classes], posterior.labels.history.of(ann.annotators))
    can = useful_questions(judged)
    flagged = [(r, one.flag) for r, one in enumerate(judged) if one and one.flag and not can[r]]
    idle = [f"{show(ann.annotators[r])} ({flag.name})" for r, flag in flagged]
    if idle:
        told = f"not asked, as their labels hardly follow the items: {', '.join(idle[:NAMED])}"
        more = f" and {len(idle) - NAMED} more" if len(idle) > NAMED else ""
        warnings.warn(f"{told}{more}; available= asks whom it names.", UserWarning, stacklevel=2)
    return can


def _available(given: Sequence[str] | Path | None, ann: Annotations) -> tuple[Annotations, NDArray[np.bool_]]:
    """The annotations with those who gave no label yet, and (R,) which annotators can be asked."""
    import numpy as np

    from crowdshot.labels.indexing import unique_ids

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
    from crowdshot.io.tables import one_each, read_table

    table = read_table(path)
    names: list[str] = one_each(table, table.header.index(annotator) if annotator in table.header else 0).tolist()
    return names


def _price(cost: Mapping[str, float] | Path, ann: Annotations) -> tuple[NDArray[np.float64], int]:
    """(R,) what an answer of each annotator costs, and how many others a file tells of."""
    import numpy as np

    from crowdshot.labels.indexing import positions

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
    import numpy as np

    from crowdshot.io.tables import one_each, read_table

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


def _table(questions: Sequence[asking.Question], posterior: Belief, price: NDArray[np.float64] | None) -> pd.DataFrame:
    """Under the column names that came in: item, text, annotator, room for the label, gain, cost, and what is believed.

    The label is empty until somebody answers, so that the file can be filled in and given back beside the old one.
    """
    import numpy as np
    import pandas as pd

    from crowdshot.labels.indexing import as_index
    from crowdshot.model.posteriors import likeliest

    ann = posterior.annotations
    item = np.array([question.item for question in questions], dtype=np.int64)
    annotator = np.array([question.annotator for question in questions], dtype=np.int64)
    consensus, confidence = likeliest(posterior.probabilities[item])
    return pd.DataFrame(
        {
            ann.columns.item: as_index(ann.items).take(item),
            **({TEXT: [posterior.texts[i] for i in item]} if posterior.texts and TEXT not in ann.columns else {}),
            ann.columns.annotator: as_index(ann.annotators).take(annotator),
            ann.columns.label: "",
            "gain": np.array([question.gain for question in questions], dtype=np.float64),
            **({} if price is None else {"cost": price[annotator]}),
            "consensus": as_index(ann.classes).take(consensus),
            "confidence": confidence,
            "n_labels": np.bincount(ann.item, minlength=ann.n_items)[item],
        }
    )


# ---- next ------------------------------------------------------------
#
# ``crowdshot next`` on the command line; `app` adds it.


# "\b" keeps the lines that follow as they are
EXAMPLES = """\b
Examples:
  crowdshot next labels.csv --budget 50
  crowdshot next labels.csv --images photos --budget 50 --max-per-annotator 10 --out questions.csv
  crowdshot next labels.csv --annotators-available ann,bob --stop-at 0.95
  crowdshot next labels.csv --budget 100 --cost expert=5,student=1 --out questions.csv
  crowdshot next export.json --images photos --out questions.json
"""


@flat
def ask_next(
    labels: Labels,
    budget: Annotated[float, typer.Option(metavar="N", help="What may be spent: labels, or what they cost.")] = 20,
    images: Images = None,
    features: Features = None,
    texts: Texts = None,
    encoder: EncoderName = None,
    cost: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=COST,…|FILE",
            help="What a label of each annotator costs, or a table with annotator and cost; who is not named costs 1.",
        ),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            "--most",
            "--max-per-annotator",
            min=1,
            help="Questions for one annotator at most; else a tenth, or an equal share if that is more.",
        ),
    ] = None,
    available: Annotated[
        str | None,
        typer.Option(
            "--annotators-available",
            metavar="NAME,…|FILE",
            help="Who can be asked, else everybody; who gave no label yet is taken for somebody new.",
        ),
    ] = None,
    stop_at: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Tell how many labels should settle this share of the items, like 0.95."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The list to write: CSV or, where the name ends in .json, tasks for Label Studio."
        ),
    ] = None,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Which items to ask about again, and whom: the list of questions that should help most.

    A question's gain is how much doubt about the item the annotator's answer should take away. With images or features
    the classifier's doubt counts, and items that nobody labelled may be asked; else labels alone.
    """
    from crowdshot._cli.inputs import ItemFiles

    items = ItemFiles(images, features, encoder, skip_bad, texts)
    report, table = ask(reading.of(labels), budget, items, as_costs(cost), most, out, as_available(available), stop_at)
    print_result(report, as_json, table if out is None else None, "questions")
