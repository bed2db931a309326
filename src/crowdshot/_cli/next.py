"""``crowdshot next``: list the questions whose answers are expected to help most."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from crowdshot._cli.console import print_result
from crowdshot._cli.option_values import OTHERS, as_available, as_prices
from crowdshot._cli.options import (
    AllowOutside,
    AsJson,
    EncoderName,
    Features,
    FromText,
    GoldOptions,
    Images,
    Labels,
    ReadingOptions,
    Texts,
    flat,
    method_option,
    output_option,
)
from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.formatting import apart, first, listing, show
from crowdshot.progress import progress

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from crowdshot._cli.inputs import ItemFiles, LabelFiles
    from crowdshot.labels import asking
    from crowdshot.labels.annotations import Annotations
    from crowdshot.labels.formats.label_file import LabelsRead
    from crowdshot.labels.gold_questions import GoldRule
    from crowdshot.model.parts import PosteriorMatrix
    from crowdshot.report.summary import LeftOut, Result

TRUTH = "truth"  # the column of known answers, which annotators must not see
# Columns of the result that columns of the labels must not have the same names as.
RESERVED_NAMES = dict.fromkeys(("item", "annotator", "label"), ("gain", "cost", "consensus", "confidence", "n_labels"))
ANSWERS = ("consensus", "confidence")  # columns that annotators should not see
GOLD_SIGNS = ("gain", "n_labels")  # columns in which questions with known answers differ from others
MOST_NAMED = 5  # annotators in a note
MOST_CELLS = 50_000_000  # items × classes; above this, annotators are not judged individually
TEXT = "text"  # the column of texts, unless the item column has this name


class Estimate(NamedTuple):
    """The posterior (N, K) of the items, the labels it was estimated from, and the known classes (N,), -1 for none.

    ``left_out`` maps a reason to the number or names of what was not used. ``texts`` are the items, if they are texts.
    """

    labels: LabelsRead
    annotations: Annotations
    probabilities: PosteriorMatrix
    left_out: LeftOut
    known: NDArray[np.int64]
    texts: Sequence[str] = ()


class Candidates(NamedTuple):
    """The questions that may be asked.

    ``askable`` (R,) are the annotators who can be asked, and ``price`` (R,) is the cost of one answer. ``closed`` are
    the pairs of items and annotators, (M,) each, that need no question. ``other_costs`` counts the costs of people who
    gave no label.
    """

    askable: NDArray[np.bool_]
    price: NDArray[np.float64]
    closed: tuple[NDArray[np.int64], NDArray[np.int64]]
    other_costs: int


class Chosen(NamedTuple):
    """The chosen questions, and what they are expected to achieve (see `crowdshot.labels.asking`).

    ``most`` is the maximal number of questions per annotator, and ``limit`` (R,) that of each annotator.
    """

    questions: list[asking.Question]
    most: int
    limit: NDArray[np.int64]
    uncertainty: float
    errors_mended: float


def ask(
    labels: LabelFiles,
    budget: float,
    item_files: ItemFiles | None = None,
    cost: Mapping[str, float] | Path | None = None,
    most: int | None = None,
    out: Path | None = None,
    available: Sequence[str] | Path | None = None,
    stop_at: float | None = None,
    rule: GoldRule | None = None,
) -> tuple[Result, pd.DataFrame]:
    """Return the result and a table with one row per question, the most useful first.

    Parameters
    ----------
    labels : LabelFiles
        The labels.
    budget : float
        The maximal cost of all questions.
    item_files : ItemFiles, optional
        The items. Without them, only the labels are used.
    cost : mapping or Path, optional
        The cost of an answer of each annotator, or a table of costs. All others cost 1.
    most : int, optional
        The maximal number of questions per annotator.
    out : Path, optional
        The file to write: tasks for Label Studio if the name ends in .json, else CSV.
    available : sequence of str or Path, optional
        The annotators who can be asked, or a table of them. Unknown names are new annotators. By default all known
        annotators are asked, except those whose labels do not depend on the items.
    stop_at : float, optional
        A share of the items. The result then has the number of labels after which this share is accepted.
    rule : GoldRule, optional
        How many questions have known answers, and who is paused. Rows of such questions have their answer in the
        column "truth", and come at random places.
    """
    import numpy as np

    from crowdshot._cli.inputs import NO_ITEMS
    from crowdshot.labels.gold_questions import GoldRule
    from crowdshot.report.result_tables import check_columns

    rule = rule or GoldRule()
    item_files = NO_ITEMS if item_files is None else item_files
    _check_arguments(labels, item_files, cost, out, available, stop_at)
    estimate = _from_items(labels, item_files) if item_files else _from_labels(labels, item_files.encoder, rule)
    truth = (TRUTH,) if rule.share else ()
    check_columns(
        estimate.annotations.columns, str(labels), {role: (*names, *truth) for role, names in RESERVED_NAMES.items()}
    )
    if stop_at is not None and not isinstance(estimate.probabilities, np.ndarray):
        sizes = f"{estimate.annotations.n_classes:,} classes and {estimate.annotations.n_annotators:,} annotators"
        raise CrowdshotError(f"is not supported for {sizes}, which are too many for a forecast", argument="stop_at")
    rule.check(int((estimate.known >= 0).sum()))
    estimate, candidates = _candidates(estimate, cost, available)
    candidates, tests = _tested(estimate, candidates, rule)
    with progress("choosing questions"):
        chosen = _choose(estimate, candidates, budget, most, rule.share)
    table = _table(chosen.questions, estimate, None if cost is None else candidates.price, rule.share > 0)
    files = []
    if out is not None:
        with progress("writing"):
            files = _write(out, table, estimate, tests)
    return _result(estimate, candidates, chosen, budget, stop_at, files), table


def _check_arguments(
    labels: LabelFiles,
    item_files: ItemFiles,
    cost: Mapping[str, float] | Path | None,
    out: Path | None,
    available: Sequence[str] | Path | None,
    stop_at: float | None,
) -> None:
    from crowdshot.io.atomic import TABLES, check_table

    if out is not None:
        lists = [file for file in (cost, available) if isinstance(file, Path)]
        inputs = (*labels.inputs, item_files.features, item_files.texts, *lists)
        check_table(out, *inputs, endings=(*TABLES, ".json"))
        if out.suffix.lower() != ".json":
            check_table(_beside(out, "consensus"), *inputs)
        check_table(_beside(out, "people"), *inputs)
    if stop_at is not None and not 0 < stop_at <= 1:
        expected = "a share of the items, above 0 and at most 1"
        raise CrowdshotError(f"is {stop_at:g}", argument="stop_at", found=stop_at, expected=expected)


def _from_items(labels: LabelFiles, item_files: ItemFiles) -> Estimate:
    with progress("loading libraries"):
        from crowdshot._cli.fitting import fit  # here, as labels alone need not wait for torch

    fitted = fit(labels, item_files)
    clf = fitted.clf
    known = clf._known.gold
    return Estimate(fitted.labels, clf.annotations_, clf.label_proba_, fitted.left_out, known, fitted.items.texts)


def _from_labels(labels: LabelFiles, encoder: str | None, rule: GoldRule) -> Estimate:
    """Aggregate labels as `crowdshot aggregate` does, and add unlabelled items that the label file lists.

    Gold of items without labels is an error, unless the ``rule`` asks about them.
    """
    import numpy as np

    from crowdshot.labels import gold_labels
    from crowdshot.labels.aggregation import aggregate_labels
    from crowdshot.labels.formats.label_file import UNLABELLED_TASKS
    from crowdshot.model.parts import Sizes

    if encoder is not None:
        expected = "images, features or texts with it"
        raise CrowdshotError("is given without items", argument="encoder", found=encoder, expected=expected)
    read = labels.read()
    ann, left_out = read.annotations, dict(read.left_out)
    gold_labels.some_of(read.gold, ann.items, source=None if rule.share else labels.gold)
    if read.project is not None and not Sizes(ann.n_items, ann.n_annotators, ann.n_classes).sparse:
        items = dict.fromkeys([*ann.items, *(task.item for task in read.project.tasks)])
        ann = replace(ann, items=np.array(list(items), dtype=object))
        left_out.pop(UNLABELLED_TASKS, None)
    ann, _ = gold_labels.hold(gold_labels.join(ann, read.gold), read.gold)
    with progress("aggregating"):
        found = aggregate_labels(read, ann, gold=read.gold)
    _, known = gold_labels.hold(found.annotations, read.gold)
    if read.project is not None:  # tasks that are made up for other items would look different
        known[~np.isin(found.annotations.items.astype(str), [task.item for task in read.project.tasks])] = -1
    return Estimate(read, found.annotations, found.posterior, left_out, known)


# ---- who can be asked what ----


def _candidates(
    estimate: Estimate, cost: Mapping[str, float] | Path | None, available: Sequence[str] | Path | None
) -> tuple[Estimate, Candidates]:
    """Return the candidate questions, and the estimate with new annotators added."""
    import numpy as np

    useful = _useful_annotators(estimate) if available is None else None
    redundant_items, redundant_annotators = _redundant_questions(estimate)
    ann, named = _available(available, estimate.annotations)
    price, other_costs = (np.ones(ann.n_annotators), 0) if cost is None else _price(cost, ann)
    closed = np.append(ann.item, redundant_items), np.append(ann.annotator, redundant_annotators)
    askable = named if useful is None else useful
    return estimate._replace(annotations=ann), Candidates(askable, price, closed, other_costs)


def _can_judge_annotators(estimate: Estimate) -> bool:
    """Whether annotators can be judged individually: single labels, several classes, not too many items."""
    import numpy as np

    p = estimate.probabilities
    is_small = isinstance(p, np.ndarray) and p.size <= MOST_CELLS
    return is_small and not estimate.labels.several and estimate.annotations.n_classes > 1


def _tested(estimate: Estimate, candidates: Candidates, rule: GoldRule) -> tuple[Candidates, pd.DataFrame | None]:
    """Return the candidates without paused annotators, and everybody's results in tests if there is a rule."""
    import numpy as np

    from crowdshot.labels.gold_questions import PAUSED, describe_tests, gold_tests, tests_table

    if not rule.wanted:
        return candidates, None
    results = gold_tests(estimate.annotations, estimate.known, rule)
    askable = candidates.askable & np.array([found.status != PAUSED for found in results])
    named = {show(name): found for name, found in zip(estimate.annotations.annotators, results, strict=True)}
    for sentence in describe_tests(named):
        warnings.warn(CrowdshotWarning(sentence), stacklevel=2)
    if not askable.any():
        message = "pauses everybody who could be asked"
        raise CrowdshotError(message, argument="pause_below", found=rule.pause_below, expected="a smaller share")
    return candidates._replace(askable=askable), tests_table(estimate.annotations, results)


def _redundant_questions(estimate: Estimate) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return pairs of items and annotators, (M,) each, that a duplicate of the annotator has answered."""
    import numpy as np

    from crowdshot.labels import duplicate_annotators

    ann, p = estimate.annotations, estimate.probabilities
    if not _can_judge_annotators(estimate):
        return ann.item[:0], ann.annotator[:0]
    pairs = duplicate_annotators.compare_pairs(ann, np.asarray(p))
    duplicates = duplicate_annotators.in_words(ann, pairs)
    if duplicates:
        message = f"Some annotators may be duplicates: {duplicates}"
        hint = "An item that one of them has labelled is not given to the other"
        warnings.warn(CrowdshotWarning(message, hint=hint), stacklevel=2)
    return duplicate_annotators.predictable_answers(ann, pairs)


def _useful_annotators(estimate: Estimate) -> NDArray[np.bool_]:
    """Return (R,) the annotators whose labels depend on the items, and warn about the others."""
    import numpy as np

    ann, p = estimate.annotations, estimate.probabilities
    if not _can_judge_annotators(estimate):
        return np.ones(ann.n_annotators, dtype=bool)
    from crowdshot.labels.annotator_flags import (
        judge_each,
        useful_questions,  # here, as importing scipy.stats takes a second
    )

    judged = judge_each(ann, p, [apart(name) for name in ann.classes], estimate.labels.history.of(ann.annotators))
    useful = useful_questions(judged)
    flagged = [(r, one.flag) for r, one in enumerate(judged) if one and one.flag and not useful[r]]
    names = [f"{show(ann.annotators[r])} ({flag.name})" for r, flag in flagged]
    if names:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        message = f"not asked, because their labels hardly depend on the items: {', '.join(names[:MOST_NAMED])}{more}"
        hint = Use("to ask them anyway", available="NAME")
        warnings.warn(CrowdshotWarning(message, hint=hint), stacklevel=2)
    return useful


def _available(available: Sequence[str] | Path | None, ann: Annotations) -> tuple[Annotations, NDArray[np.bool_]]:
    """Return the annotations with new annotators added, and (R,) which annotators can be asked."""
    import numpy as np

    from crowdshot.io.cells import unique_ids

    if available is None:
        return ann, np.ones(ann.n_annotators, dtype=bool)
    names = _read_names(available, ann.columns.annotator) if isinstance(available, Path) else list(available)
    known = set(map(str, ann.annotators))
    new = [name for name in names if name not in known]
    if new:
        message = f"{listing(new)} gave no label yet and count as new annotators; known are {listing(ann.annotators)}"
        warnings.warn(CrowdshotWarning(message, found=new), stacklevel=2)
        ann = replace(ann, annotators=unique_ids([*ann.annotators, *new], "annotators_available"))
    return ann, np.isin(ann.annotators.astype(str), names)


def _read_names(path: Path, annotator: str) -> list[str]:
    """Read names from the column that is called as in the labels, or else from the first column."""
    from crowdshot.io.tables import one_each, read_table

    table = read_table(path)
    names: list[str] = one_each(table, table.header.index(annotator) if annotator in table.header else 0).tolist()
    return names


def _price(cost: Mapping[str, float] | Path, ann: Annotations) -> tuple[NDArray[np.float64], int]:
    """Return (R,) the cost of an answer of each annotator, and the number of costs of other people in a file."""
    import numpy as np

    from crowdshot.io.cells import positions
    from crowdshot.labels.label_costs import read_costs

    costs = dict(read_costs(cost, ann.columns.annotator) if isinstance(cost, Path) else cost)
    price = np.full(ann.n_annotators, costs.pop(OTHERS, 1.0))
    place = positions(ann.annotators.astype(str), costs)
    unknown = place < 0
    if unknown.any() and not isinstance(cost, Path):  # a price list in a file may name more people than the labels
        name, known = list(costs)[first(unknown)], listing(ann.annotators)
        message = f"names {show(name)}, who gave no label"
        raise CrowdshotError(message, argument="cost", found=name, expected=f"some of {known}")
    price[place[~unknown]] = np.array(list(costs.values()))[~unknown]
    return price, int(unknown.sum())


# ---- choosing ----


def _choose(
    estimate: Estimate, candidates: Candidates, budget: float, most: int | None, gold_share: float = 0.0
) -> Chosen:
    import numpy as np

    from crowdshot.labels import annotator_quality, asking
    from crowdshot.labels.consensus import uncertainty
    from crowdshot.labels.gold_questions import mix_in
    from crowdshot.labels.label_sets import yes_no_questions

    ann, askable, price = estimate.annotations, candidates.askable, candidates.price
    history = estimate.labels.history.of(ann.annotators)
    parts = [(ann, estimate.probabilities)]
    if estimate.labels.several:
        parts = yes_no_questions(ann, estimate.probabilities)
    p = asking.at_once([posterior for _, posterior in parts])
    confusion = asking.at_once([asking.expected_confusion(*part, history) for part in parts])
    if most is None:
        most = asking.fair_share(budget / price[askable].min() if math.isfinite(budget) else 1, int(askable.sum()))
    limit = np.where(askable, most, 0)
    n_labels = np.bincount(ann.annotator, minlength=ann.n_annotators) + history.sum(1)
    first = asking.first_limits(n_labels, limit)
    questions = asking.choose(p, confusion, candidates.closed, budget, price, limit, first=first)
    if gold_share:
        questions = mix_in(questions, ann, estimate.known, gold_share)
    cautious = asking.at_once([annotator_quality.expected_confusion(*part, history) for part in parts])
    mended = asking.mended(p, cautious, questions)
    return Chosen(questions, most, limit, float(uncertainty(p).sum()), mended)


def _result(
    estimate: Estimate,
    candidates: Candidates,
    chosen: Chosen,
    budget: float,
    stop_at: float | None,
    files: Sequence[Path],
) -> Result:
    import numpy as np

    from crowdshot.labels import asking, labels_needed
    from crowdshot.labels.consensus import THRESHOLD
    from crowdshot.model.posteriors import likeliest
    from crowdshot.report import summary

    ann, askable, price, closed = estimate.annotations, candidates.askable, candidates.price, candidates.closed
    questions, limit = chosen.questions, chosen.limit
    not_accepted = np.flatnonzero(likeliest(estimate.probabilities)[1] < THRESHOLD)
    asked = summary.AskedQuestions(
        n_questions=len(questions),
        asked_items=len({question.item for question in questions}),
        asked_annotators=len({question.annotator for question in questions}),
        cost=float(sum(price[question.annotator] for question in questions)),
        budget=budget,
        uncertainty=chosen.uncertainty,
        gain=float(sum(question.gain for question in questions)),
        errors_mended=chosen.errors_mended,
        unasked=ann.n_items * int(askable.sum()) - int(askable[ann.annotator].sum()),
        fewer=asking.why_no_more(ann.n_items, closed, questions, budget, price, limit),
        most=chosen.most,
        not_accepted=len(not_accepted),
        nobody_left=asking.nobody_left(not_accepted, closed, questions, limit),
        stop_at=None if stop_at is None else labels_needed.forecast(ann, estimate.probabilities, stop_at),
    )
    return summary.Result(
        counts=summary.count(ann),
        questions=asked,
        names=summary.note_spellings(estimate.labels),
        sources=estimate.labels.sources,
        left_out={**estimate.left_out, "costs of people who gave no label": candidates.other_costs},
        files=files,
    )


def _table(
    questions: Sequence[asking.Question], estimate: Estimate, price: NDArray[np.float64] | None, gold: bool = False
) -> pd.DataFrame:
    """Return the questions under the column names of the labels, with an empty column for the answers.

    The filled-in table can be read together with the labels. With ``gold``, the column "truth" has known classes.
    """
    import numpy as np
    import pandas as pd

    from crowdshot.io.cells import as_index
    from crowdshot.model.posteriors import likeliest

    ann = estimate.annotations
    item = np.array([question.item for question in questions], dtype=np.int64)
    annotator = np.array([question.annotator for question in questions], dtype=np.int64)
    label, confidence = likeliest(estimate.probabilities[item])
    return pd.DataFrame(
        {
            ann.columns.item: as_index(ann.items).take(item),
            **({TEXT: [estimate.texts[i] for i in item]} if estimate.texts and TEXT not in ann.columns else {}),
            ann.columns.annotator: as_index(ann.annotators).take(annotator),
            ann.columns.label: "",
            "gain": np.array([question.gain for question in questions], dtype=np.float64),
            **({} if price is None else {"cost": price[annotator]}),
            "consensus": as_index(ann.classes).take(label),
            "confidence": confidence,
            "n_labels": np.bincount(ann.item, minlength=ann.n_items)[item],
            **({TRUTH: np.append(ann.classes.astype(object), "")[estimate.known[item]]} if gold else {}),
        }
    )


def _beside(out: Path, what: str) -> Path:
    """Return the file of the current answers or of results in tests, which annotators should not see."""
    return out.with_name(f"{out.stem}-{what}{out.suffix if what == 'consensus' else '.csv'}")


def for_annotators(table: pd.DataFrame) -> pd.DataFrame:
    """Return the questions without the current answers, because people tend to agree with an answer that they see.

    Questions with known answers have no gain and more labels than others, so these columns are left out, too.
    """
    return table.drop(columns=[*ANSWERS, *((TRUTH, *GOLD_SIGNS) if TRUTH in table else ())])


def _write(out: Path, table: pd.DataFrame, estimate: Estimate, tests: pd.DataFrame | None) -> list[Path]:
    """Write the questions, and the current answers and tests to tables of their own; return the files."""
    from crowdshot.io.atomic import write_file
    from crowdshot.labels.formats.writers import check_unanswered, write_questions

    columns = estimate.annotations.columns
    check_unanswered(out, columns.label)
    people = []
    if tests is not None:
        people = [_beside(out, "people")]
        write_file(people[0], tests)
    if out.suffix.lower() != ".json":
        answers = table.drop(columns=["n_labels", "gain", columns.label, TEXT, "cost"], errors="ignore")
        write_file(out, for_annotators(table))
        write_file(_beside(out, "consensus"), answers)
        return [out, _beside(out, "consensus"), *people]
    items = estimate.annotations.items.tolist()
    texts = dict(zip(items, estimate.texts, strict=True)) if estimate.texts else None
    write_questions(out, for_annotators(table), estimate.labels, texts)
    return [out, *people]


# "\b" keeps the line breaks
EXAMPLES = """\b
Examples:
  crowdshot next labels.csv --budget 50
  crowdshot next labels.csv --images photos --budget 50 --max-per-annotator 10 --out questions.csv
  crowdshot next labels.csv --annotators-available ann,bob --stop-at 0.95
  crowdshot next labels.csv --budget 100 --cost expert=5,student=1 --out questions.csv
  crowdshot next labels.csv --gold known.csv --gold-share 0.1 --pause-below 0.6 --out questions.csv
  crowdshot next export.json --images photos --out questions.json
"""


@flat
def ask_next(
    labels: Labels,
    budget: Annotated[
        float, method_option(metavar="N", help="The number of labels to ask for, or with --cost their total cost.")
    ] = 20,
    images: Images = None,
    features: Features = None,
    texts: Texts = None,
    encoder: EncoderName = None,
    allow_outside: AllowOutside = False,
    cost: Annotated[
        Mapping[str, float] | Path | None,
        FromText(as_prices),
        method_option(
            metavar="C|NAME=C,…|FILE",
            help="The cost of a label: one number, or numbers of annotators, like expert=5,others=0.5, or a table with"
            " the columns annotator and cost. Annotators without a cost cost 1.",
        ),
    ] = None,
    most: Annotated[
        int | None,
        method_option(
            "--most",
            "--max-per-annotator",
            min=1,
            help="The maximal number of questions per annotator (default: a tenth of all questions, or an equal share"
            " if that is more).",
        ),
    ] = None,
    available: Annotated[
        Sequence[str] | Path | None,
        FromText(as_available),
        method_option(
            "--annotators-available",
            metavar="NAME,…|FILE",
            help="The annotators who can be asked (default: all whose labels depend on the items). Unknown names count"
            " as new annotators.",
        ),
    ] = None,
    stop_at: Annotated[
        float | None,
        method_option(
            metavar="SHARE",
            help="Forecast how many labels it takes until this share of the items is accepted, like 0.95.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        output_option(
            metavar="FILE",
            help="The list to write: tasks for Label Studio if the name ends in .json, else CSV, with the current"
            " answers in a second file, FILE-consensus.csv (default: print CSV to stdout).",
        ),
    ] = None,
    as_json: AsJson = False,
    *,
    gold_options: GoldOptions,
    reading: ReadingOptions,
) -> None:
    """List which items to label next, and by whom.

    The gain of a question is the expected reduction of the item's uncertainty, 1 - Σ p², by the annotator's answer.
    With images, features or texts, the posterior of the classifier is used, and unlabelled items may be listed.
    Without them, the posterior comes from the labels alone.
    """
    from crowdshot._cli.inputs import ItemFiles

    items = ItemFiles(
        images, features, encoder, reading.skip_bad, texts, sheet=reading.sheet, allow_outside=allow_outside
    )
    result, table = ask(reading.of(labels), budget, items, cost, most, out, available, stop_at, gold_options.rule())
    shown = table if as_json else for_annotators(table)
    print_result(result, as_json, shown if out is None else None, "questions")
