"""Define the results of commands, and summarise them as text for the terminal.

The fields of `Result` are in the order of the keys of ``--json`` (see `crowdshot.io.json_text.to_json`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from crowdshot.formatting import align_columns, counted, listing, percent, spread
from crowdshot.io.json_text import INLINE, OPTIONAL
from crowdshot.labels import gold_labels
from crowdshot.labels.consensus import kinds_in_words
from crowdshot.labels.labels_needed import until_accepted
from crowdshot.labels.spelling import Respelled, Twins

if TYPE_CHECKING:
    import pandas as pd

    from crowdshot.classifier.crowd_classifier import CrowdClassifier
    from crowdshot.classifier.diagnostics import FeatureValue
    from crowdshot.labels.agreement import Statistic
    from crowdshot.labels.annotations import Annotations
    from crowdshot.labels.formats.label_file import LabelsRead, SourceUsed
    from crowdshot.labels.label_costs import Money
    from crowdshot.labels.labels_needed import Forecast
    from crowdshot.report.export import Export

MOST_ROWS = 15  # annotators in the table; annotators.csv has all
MOST_CLASSES = 10
MOST_ITEMS = 5
MOST_LEFT_OUT = 20
MOST_PAIRS = 100  # pairs of annotators in the agreement of a result
MOST_RESPELLED = 10
LONGEST = 30  # characters of a name in a table
DEFAULT_METHODS = ("combined", "labeling-search", "features", "Ours")  # not described: chosen by default
SINGLE_ANNOTATOR = "nobody can contradict a single annotator: this accuracy and all confidences are too high"
DESCRIPTIONS = {
    "consensus.csv": "the consensus label and confidence of each item",
    "annotators.csv": "the accuracy of each annotator",
    "confusion.csv": "the confusion matrix of each annotator",
    "model.safetensors": "the classifier, for `crowdshot predict`",
    "report.html": "the report, for a browser",
    "run.json": "how these results were made, for `crowdshot report` and `crowdshot audit`",
    "labels.safetensors": "all labels and probabilities, for `crowdshot report`",
    "feedback": "a feedback page for each annotator, which names no other annotator",
    "predictions.json": "the consensus, for import into Label Studio",
    "labels.csv": "the labels of all annotators",
    "truth.csv": "the true labels",
    "clean.csv": "the accepted items with their labels",
    "images": "their images with metadata.csv, as a Hugging Face imagefolder",
    "coco.json": "the same as COCO",
    "crowdkit.csv": "all labels of these items, for crowd-kit",
    "cleanlab.csv": "all labels of these items, for cleanlab",
    "label-studio.json": "their labels, for import into Label Studio",
    "argilla.json": "their labels, as suggestions for Argilla",
    "cvat.xml": "their labels, for import into CVAT",
    "soft-labels.jsonl": "the label distributions of all items, to train on",
    "soft-labels.parquet": "the same as Parquet",
    "soft-labels.csv": "the same as a table",
    "classes.json": "the classes of these distributions, in order",
}


# ---- results ----

LeftOut = Mapping[str, int | Sequence[str]]  # {what was left out: how many, or their names}


@dataclass(frozen=True)
class MethodUsed:
    """The name of the method and, of a classifier, summaries of the method and of an encoder that has one."""

    method: str
    method_summary: str | None = field(default=None, metadata=OPTIONAL)
    encoder_summary: str | None = field(default=None, metadata=OPTIONAL)
    engine: str | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class CrowdCounts:
    """The numbers of items, annotators and labels, and the names of the classes."""

    items: int
    annotators: int | None = field(default=None, metadata=OPTIONAL)
    labels: int | None = field(default=None, metadata=OPTIONAL)
    classes: Sequence[Any] = ()


@dataclass(frozen=True)
class Accepted:
    """How many of the items are accepted, because their confidence is ``accepted_at`` or more.

    For a classifier, ``predicted`` is the number of items without labels, and ``predicted_accepted`` are accepted.
    """

    accepted: int
    accepted_at: float
    predicted: int | None = field(default=None, metadata=OPTIONAL)
    predicted_accepted: int | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class NewItems:
    """How often the classifier agrees with the consensus of held-out items, with a 90 % interval; None if unknown.

    ``verdict`` is a sentence about what the classifier may be used for.
    """

    share: float | None
    low: float | None
    high: float | None
    verdict: str


class Recommendation(NamedTuple):
    """A recommendation, and the command that does it ("" for none)."""

    text: str
    command: str


@dataclass(frozen=True)
class FeatureEffect:
    """How well features predict held-out labels, and which items of the consensus they changed.

    Attributes
    ----------
    kind : str
        "images", "texts" or "features".
    held_out_probability, by_class_sizes : float or None
        Mean probability of held-out labels, predicted from features and from class frequencies.
    informative : bool or None
        None if there is too little data to tell.
    changed, unchosen
        The number and names of labelled items whose consensus would be different from labels alone, and of those whose
        consensus no annotator chose.
    """

    kind: str
    held_out_probability: float | None
    by_class_sizes: float | None
    informative: bool | None
    changed: int
    changed_items: Sequence[str]
    unchosen: int
    unchosen_items: Sequence[str]

    @classmethod
    def of(cls, clf: CrowdClassifier, value: FeatureValue, kind: str) -> FeatureEffect:
        """Return a `FeatureValue` with the names of the items."""
        names = clf.annotations_.items
        changed, unchosen = ([str(name) for name in names[rows]] for rows in (value.changed, value.unchosen))
        probabilities = value.held_out_probability, value.by_class_sizes
        return cls(kind, *probabilities, value.informative, len(changed), changed, len(unchosen), unchosen)


@dataclass(frozen=True)
class Review:
    """What needs a person, and what to do next.

    Attributes
    ----------
    need_a_person : mapping
        The number of items to review by kind (see `crowdshot.report.page.review_items`).
    classifier : NewItems or None
        The accuracy on new items; None for labels alone.
    do_next : sequence of Recommendation
        Recommendations, the most urgent first.
    feature_effect : FeatureEffect or None
        The value of the images, texts or features; None for labels alone.
    """

    need_a_person: Mapping[str, int]
    classifier: NewItems | None
    do_next: Sequence[Recommendation]
    feature_effect: FeatureEffect | None


@dataclass(frozen=True)
class AnnotatorAgreement:
    """The agreement of annotators with each other.

    Attributes
    ----------
    agreement : sequence of Statistic
        See `crowdshot.labels.agreement.statistics`.
    agreement_warning : str, optional
        Why kappa and alpha mislead.
    agreement_pairs : sequence of mappings
        The pairs with the most shared items, at most `MOST_PAIRS` (see `crowdshot.labels.agreement.pairs`).
    """

    agreement: Sequence[Statistic]
    agreement_warning: str | None = field(metadata=OPTIONAL)
    agreement_pairs: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class AnnotatorTable:
    """The table of annotators as records, the name of its first column, and the minimum accuracy of ``p_below``."""

    annotator_column: str
    annotator_table: Sequence[Mapping[str, Any]]
    min_accuracy: float


@dataclass(frozen=True)
class GoldCheck:
    """How often the consensus without gold labels agrees with them.

    The consensus is right for ``gold_right`` of the ``gold_labelled`` labelled gold items. The 90 % interval is
    ``gold_low`` to ``gold_high``, and ``gold_claimed`` is the mean confidence.
    """

    gold_right: int
    gold_labelled: int
    gold_low: float
    gold_high: float
    gold_claimed: float
    shared_mistakes: bool


@dataclass(frozen=True)
class Gold:
    """The number of gold labels and their source; ``check`` is None if no gold item has labels."""

    gold: int
    gold_from: str
    check: GoldCheck | None = field(default=None, metadata=INLINE)


@dataclass(frozen=True)
class AskedQuestions:
    """The chosen questions and their expected effect (see `crowdshot.labels.asking`).

    Attributes
    ----------
    n_questions, asked_items, asked_annotators : int
        The numbers of questions, and of the items and annotators in them.
    cost, budget : float
        The cost of the questions, and its limit.
    uncertainty, gain : float
        The uncertainty summed over all items, and how much of it the answers are expected to remove.
    errors_mended : float
        The expected number of consensus labels that the answers correct.
    unasked : int
        The number of possible questions.
    fewer : str or None
        Why the budget is not spent: "gain", "most", "cost" or "nobody".
    most : int
        The maximal number of questions per annotator.
    not_accepted, nobody_left : int
        The number of items that are not accepted, and of those that no annotator is left for.
    stop_at : Forecast, optional
        The labels that are needed until a share of the items is accepted.
    """

    n_questions: int
    asked_items: int
    asked_annotators: int
    cost: float
    budget: float
    uncertainty: float
    gain: float
    errors_mended: float
    unasked: int
    fewer: str | None
    most: int
    not_accepted: int
    nobody_left: int
    stop_at: Forecast | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class SpellingNotes:
    """Names that are nearly equal, and names that were read differently than written."""

    near_duplicates: Sequence[Twins]
    respelled: Sequence[Respelled]


@dataclass(frozen=True)
class Exported:
    """The number of exported items, their least confidence and their folder."""

    exported: int
    exported_at: float
    exported_to: Path


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a command; a part that the command does not have is None.

    ``left_out`` maps a reason to the number or names of what was not used, ``sources`` says which columns of the label
    files were read, and ``files`` were written.
    """

    method: MethodUsed | None = field(default=None, metadata=INLINE)
    counts: CrowdCounts = field(metadata=INLINE)
    accepted: Accepted | None = field(default=None, metadata=INLINE)
    review: Review | None = field(default=None, metadata=INLINE)
    agreement: AnnotatorAgreement | None = field(default=None, metadata=INLINE)
    annotators: AnnotatorTable | None = field(default=None, metadata=INLINE)
    gold: Gold | None = field(default=None, metadata=INLINE)
    money: Money | None = field(default=None, metadata=INLINE)
    questions: AskedQuestions | None = field(default=None, metadata=INLINE)
    names: SpellingNotes | None = field(default=None, metadata=INLINE)
    exported: Exported | None = field(default=None, metadata=INLINE)
    left_out: LeftOut
    sources: Sequence[SourceUsed] | None = field(default=None, metadata=OPTIONAL)
    files: Sequence[Path]


def count(ann: Annotations) -> CrowdCounts:
    return CrowdCounts(ann.n_items, ann.n_annotators, ann.n_labels, ann.classes.tolist())


def check_gold(compared: pd.DataFrame, source: str) -> Gold:
    """Compare the consensus without gold labels with them; ``compared``: see `gold_labels.compare`."""
    found = gold_labels.agreement(compared)
    if found.right is None:
        return Gold(len(compared), source)
    right, of, low, high = found.right.hits, found.right.of, found.right.low, found.right.high
    check = GoldCheck(right, of, low, high, found.confidence, found.shared_mistakes)
    return Gold(len(compared), source, check)


def agreement_of(statistics: Sequence[Statistic], warning: str | None, pairs: pd.DataFrame) -> AnnotatorAgreement:
    return AnnotatorAgreement(statistics, warning, records(pairs.head(MOST_PAIRS)))


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as JSON values, with NaN as null."""
    rows = table.to_dict("records")
    return [
        {str(k): None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()} for row in rows
    ]


def note_spellings(read: LabelsRead) -> SpellingNotes:
    return SpellingNotes(read.near_duplicates, read.respelled)


def count_exported(export: Export, consensus: pd.DataFrame) -> Exported:
    number = int((consensus["confidence"] >= export.threshold).sum())
    return Exported(number, export.threshold, export.folder)


# ---- the summary ----


def summarise(result: Result) -> str:
    """Return the summary of a result: counts, method, accepted items, annotators, next steps and files."""
    parts = [counts_in_words(result.counts)]
    if result.method is not None:
        if result.method.method_summary is not None and result.method.method not in DEFAULT_METHODS:
            parts.append(f"{result.method.method}: {result.method.method_summary}")
        if result.method.encoder_summary is not None:
            parts.append(result.method.encoder_summary)
    if result.accepted is not None:
        parts.append(_accepted(result.accepted, result.counts.items))
    if result.exported is not None:
        limit = f"probability {100 * result.exported.exported_at:g} % or more"
        parts.append(
            f"{counted(result.exported.exported, 'items')} with {limit} exported to {result.exported.exported_to}"
        )
    if result.review is not None:
        parts += _verdicts(result.review.need_a_person, result.review.classifier)
        if result.review.feature_effect is not None:
            parts += describe_feature_effect(result.review.feature_effect, result.counts.items)
    if result.questions is not None:
        parts.append(_questions(result.questions))
    truth_used = result.gold is not None and result.gold.gold > 0
    if result.gold is not None and truth_used:
        parts.append(_gold(result.gold))
    if result.money is not None:
        from crowdshot.labels.label_costs import describe_money  # here, as most runs have no costs

        parts += describe_money(result.money)
    parts += notes(result)
    if result.annotators is not None:
        parts.append("\n" + _annotators(result.annotators, result.counts.annotators or 0, truth_used) + "\n")
    if result.review is not None:
        parts.append(_do_next(result.review.do_next))
    parts += sources_in_words(result.sources or ())
    parts.append(_files(map(str, result.files)))
    return "\n".join(parts)


def left_out(reasons: LeftOut) -> list[str]:
    """Return a line for each reason why something was left out, such as "2 unreadable images (a.png, b.png)"."""
    lines = []
    for reason, found in reasons.items():
        number = found if isinstance(found, int) else len(found)
        if number:
            names = "" if isinstance(found, int) else f" ({_some(found, MOST_LEFT_OUT)})"
            lines.append(counted(number, reason) + names)
    return lines


def sources_in_words(sources: Sequence[SourceUsed]) -> list[str]:
    """Return a line for each kind of file: its format, and the columns that were used."""
    alike: dict[str, list[SourceUsed]] = {}
    for source in sources:
        alike.setdefault(_columns_in_words(source), []).append(source)
    lines = []
    for columns, same in alike.items():
        first = same[0]
        more = f" and {counted(len(same) - 1, 'more files')}" if same[1:] else ""
        sheet = f", sheet {first.sheet!r}" if first.sheet else ""
        lines.append(f"{first.file}{sheet}{more} ({first.format}): {columns}")
    return lines


def _columns_in_words(source: SourceUsed) -> str:
    columns = []
    for role, name in source.columns.items():
        several = isinstance(name, list) and len(name) > 1
        columns.append(f"{role}{'s' if several else ''} = {listing(name if isinstance(name, list) else [name], 5)}")
    unused = f"; not used: {listing(source.unused, 8)}" if source.unused else ""
    return ", ".join(columns) + unused


def respelled(names: SpellingNotes | None) -> list[str]:
    """Return a line for each label that was read under another name."""
    lines = [str(each) for each in names.respelled if each.of == "labels"] if names else []
    more = len(lines) - MOST_RESPELLED
    return [*lines[:MOST_RESPELLED], *([f"{more} more labels are read under another name"] if more > 0 else [])]


def counts_in_words(found: CrowdCounts) -> str:
    numbers = {"items": found.items, "annotators": found.annotators, "labels": found.labels}
    sizes = [counted(number, name) for name, number in numbers.items() if number is not None]
    number = "1 class" if len(found.classes) == 1 else f"{len(found.classes):,} classes"
    return f"{', '.join(sizes)}, {number}: {_some(found.classes, MOST_CLASSES)}"


def _accepted(found: Accepted, n_items: int) -> str:
    limit = f"{100 * found.accepted_at:g} %"
    lines = [f"{found.accepted:,} of {counted(n_items, 'items')} accepted (probability {limit} or more)"]
    if found.predicted:
        predicted = f"{counted(found.predicted, 'unlabelled items')} labelled by the classifier"
        lines.append(f"{predicted}, {found.predicted_accepted:,} of them with probability {limit} or more")
    return "\n".join(lines)


def _verdicts(kinds: Mapping[str, int], classifier: NewItems | None) -> list[str]:
    """Return the lines about items to review and about the classifier, as on the first screen of the page."""
    number = sum(kinds.values())
    need = f"{counted(number, 'items')} {'needs' if number == 1 else 'need'} review: " if number else ""
    lines = [need + kinds_in_words(kinds)]
    if classifier is None:
        return lines
    if classifier.share is None or classifier.low is None or classifier.high is None:
        return [*lines, f"classifier on new items: accuracy not known ({classifier.verdict})"]
    correct = f"{percent(classifier.share)} correct (90 % interval {spread(classifier.low, classifier.high)})"
    return [*lines, f"classifier on new items: {correct}, {classifier.verdict}"]


def _do_next(steps: Sequence[Recommendation]) -> str:
    lines = ["do next (see report.html):"]
    for number, step in enumerate(steps, 1):
        lines += [f"  {number}. {step.text}", *([f"     {step.command}"] if step.command else [])]
    return "\n".join(lines) + "\n"


def describe_feature_effect(effect: FeatureEffect, n_labelled: int) -> list[str]:
    """Return sentences about the value of images, texts or features, and about labels that they changed."""
    items, sentences = effect.kind, []
    if effect.held_out_probability is not None:
        numbers = (
            f"they predict held-out labels with probability {effect.held_out_probability:.2f}"
            f" ({effect.by_class_sizes:.2f} from class frequencies alone)"
        )
        if effect.informative:
            sentences.append(f"The {items} are informative: {numbers}.")
        elif effect.informative is None:
            sentences.append(f"There are too few items to tell whether the {items} are informative: {numbers}.")
        else:
            nearly = "almost " if effect.changed else ""
            sentences.append(f"The {items} are not informative, so the consensus depends {nearly}only on the labels.")
    of_all = f"of {counted(n_labelled, 'labelled items')}"
    if effect.changed:
        names = _some(effect.changed_items, MOST_ITEMS)
        sentences.append(f"Labels alone would give a different consensus for {effect.changed:,} {of_all}: {names}.")
    else:
        sentences.append("Labels alone would give the same consensus for every labelled item.")
    if effect.unchosen:
        names = _some(effect.unchosen_items, MOST_ITEMS)
        have = "has" if effect.unchosen == 1 else "have"
        sentences.append(f"{effect.unchosen:,} {of_all} {have} a consensus label that no annotator chose: {names}.")
    return sentences


def _questions(found: AskedQuestions) -> str:
    """Return the number of questions, their cost and their expected effect."""
    asked = found.n_questions
    if not asked:
        if found.unasked:
            return "no questions: no answer is expected to change a label or its confidence"
        return "no questions: every annotator has labelled every item, so only a new annotator could add information"
    people = counted(found.asked_annotators, "annotators")
    cost = f", at a cost of {found.cost:g}" if found.cost != asked else ""
    after = found.uncertainty - found.gain
    return (
        f"{counted(asked, 'questions')} about {counted(found.asked_items, 'items')} for {people}{cost}\n"
        f"uncertainty, summed over all items: {found.uncertainty:.2f} now, {after:.2f} expected after these answers"
    )


def _gold(found: Gold) -> str:
    """Return the number of true labels, and how accurate the consensus would be without them."""
    lines = [f"{counted(found.gold, 'true labels')} from {found.gold_from} held fixed"]
    if found.check is not None:
        right, of = found.check.gold_right, found.check.gold_labelled
        lines.append(
            f"without them, {right:,} of {counted(of, 'items with labels')} would be correct: {percent(right / of)}"
            f" (90 % interval {spread(found.check.gold_low, found.check.gold_high)})"
        )
    return "\n".join(lines)


def notes(result: Result) -> list[str]:
    """Return notes that are printed even if a table replaces the summary."""
    lines = []
    check, questions = result.gold and result.gold.check, result.questions
    if check and check.shared_mistakes:
        lines.append(
            f"{percent(check.gold_right / check.gold_labelled)} of the items with a known true label would be"
            f" correct without it, but their mean confidence is {percent(check.gold_claimed)}: the annotators share"
            " mistakes, so the probabilities of other items are too high as well"
        )
    if questions and questions.n_questions and questions.fewer:
        lines.append(f"fewer questions than the budget of {questions.budget:g} allows: {_why_fewer(questions)}")
        if questions.nobody_left:
            lines.append(
                f"{counted(questions.nobody_left, 'items')} not accepted, but already labelled by every annotator:"
                " find another annotator"
            )
    if questions and questions.stop_at is not None:
        lines.append(until_accepted(questions.stop_at))
    return lines


def _why_fewer(found: AskedQuestions) -> str:
    return {
        "gain": "no other answer is expected to change a label or its confidence",
        "most": f"every available annotator has {counted(found.most, 'questions')}, the limit (--max-per-annotator)",
        "cost": f"no annotator answers for the remaining {found.budget - found.cost:g}",
        "nobody": "every available annotator will then have labelled every item",
    }[found.fewer or ""]


def _annotators(table: AnnotatorTable, n: int, truth_used: bool) -> str:
    """Return a table of the annotators who are most likely below the minimum accuracy.

    ``table`` may hold only some of ``n`` annotators.
    """
    column = table.annotator_column
    worst = sorted(table.annotator_table, key=lambda row: (row["p_below"] is None, -(row["p_below"] or 0), row["high"]))
    worst = worst[:MOST_ROWS]
    rows = [
        (
            _short(row[column]),
            f"{row['n_labels']:,}",
            "–" if row["accuracy"] is None else f"{row['accuracy']:.2f}",  # all labels of this annotator were left out
            f"{row['low']:.2f}–{row['high']:.2f}",
            "–" if row["p_below"] is None else f"{row['p_below']:.2f}",
            _short(row["most_confused"], 2 * LONGEST),
        )
        for row in worst
    ]
    below = f"below {100 * table.min_accuracy:g} %"
    head = (_short(column), "labels", "accuracy", "90 % interval", below, "most confused (true → chosen)")
    text = align_columns([head, *rows])
    if n == 1:
        return text if truth_used else f"{text}\n{SINGLE_ANNOTATOR}"
    return text + (f"\n… and {n - len(worst):,} more who are less likely {below}" if n > len(worst) else "")


def _files(files: Iterable[str]) -> str:
    rows = [(file, DESCRIPTIONS.get(file.replace("\\", "/").rsplit("/", 1)[-1], "")) for file in files]
    return align_columns(rows) if rows else ""


def _some(names: Sequence[Any], most: int) -> str:
    shown = ", ".join(_short(name) for name in names[:most])
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _short(name: Any, longest: int = LONGEST) -> str:
    """Return a name as one line without control characters, shortened if necessary."""
    text = "".join(c if c.isprintable() else " " for c in str(name))
    return text if len(text) <= longest else text[: longest - 1] + "…"
