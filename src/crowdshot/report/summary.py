"""Summarise the result of a command as text for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crowdshot.formatting import counted, percent, spread
from crowdshot.labels.spelling import Respelled

MOST_ROWS = 15  # annotators in the table; annotators.csv has all
MOST_CLASSES = 10
MOST_ITEMS = 5
MOST_LEFT_OUT = 20
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
}


def summarise(report: dict[str, Any]) -> str:
    """Return the summary of a command's report: counts, method, accepted items, annotators, next steps and files."""
    parts = [_counts(report)]
    if "method_summary" in report and report["method"] not in DEFAULT_METHODS:
        parts.append(f"{report['method']}: {report['method_summary']}")
    if "encoder_summary" in report:
        parts.append(report["encoder_summary"])
    if "accepted" in report:
        parts.append(_accepted(report))
    if "exported" in report:
        limit = f"probability {100 * report['exported_at']:g} % or more"
        parts.append(f"{counted(report['exported'], 'items')} with {limit} exported to {report['exported_to']}")
    if "need_a_person" in report:
        parts += _verdicts(report["need_a_person"], report["classifier"])
    if "looks" in report:
        parts += describe_feature_value(report["looks"], report["items"])
    if "n_questions" in report:
        parts.append(_questions(report))
    if report.get("gold"):
        parts.append(_gold(report))
    parts += notes(report)
    if "annotator_table" in report:
        column, table, n = (report[name] for name in ("annotator_column", "annotator_table", "annotators"))
        parts.append("\n" + _annotators(column, table, n, truth_used=bool(report.get("gold"))) + "\n")
    if "do_next" in report:
        parts.append(_do_next(report["do_next"]))
    parts.append(_files(report["files"]))
    return "\n".join(parts)


def left_out(reasons: Mapping[str, int | list[str]]) -> list[str]:
    """Return a line for each reason why something was left out, such as "2 unreadable images (a.png, b.png)"."""
    lines = []
    for reason, found in reasons.items():
        names = found if isinstance(found, list) else []
        number = len(found) if isinstance(found, list) else found
        if number:
            lines.append(counted(number, reason) + (f" ({_some(names, MOST_LEFT_OUT)})" if names else ""))
    return lines


def respelled(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each label that was read under another name."""
    lines = [f"{Respelled(**each)}" for each in found if each["of"] == "labels"]
    more = len(lines) - MOST_RESPELLED
    return [*lines[:MOST_RESPELLED], *([f"{more} more labels are read under another name"] if more > 0 else [])]


def _counts(report: dict[str, Any]) -> str:
    sizes = [counted(report[k], k) for k in ("items", "annotators", "labels") if k in report]
    classes = report["classes"]
    number = "1 class" if len(classes) == 1 else f"{len(classes):,} classes"
    return f"{', '.join(sizes)}, {number}: {_some(classes, MOST_CLASSES)}"


def _accepted(report: dict[str, Any]) -> str:
    limit = f"{100 * report['accepted_at']:g} %"
    lines = [f"{report['accepted']:,} of {counted(report['items'], 'items')} accepted (probability {limit} or more)"]
    if report.get("predicted"):
        predicted = f"{counted(report['predicted'], 'unlabelled items')} labelled by the classifier"
        lines.append(f"{predicted}, {report['predicted_accepted']:,} of them with probability {limit} or more")
    return "\n".join(lines)


def _verdicts(kinds: Mapping[str, int], classifier: Mapping[str, Any]) -> list[str]:
    """Return the lines about items to review and about the classifier, as on the first screen of the page."""
    number = sum(kinds.values())
    need = f"{counted(number, 'items')} {'needs' if number == 1 else 'need'} review: " if number else ""
    lines = [need + kinds_in_words(kinds)]
    accuracy = classifier["share"]
    if accuracy is None:
        return [*lines, f"classifier on new items: accuracy not known ({classifier['verdict']})"]
    correct = f"{percent(accuracy)} correct (90 % interval {spread(classifier['low'], classifier['high'])})"
    return [*lines, f"classifier on new items: {correct}, {classifier['verdict']}"]


def _do_next(steps: Sequence[Mapping[str, str]]) -> str:
    lines = ["do next (see report.html):"]
    for number, step in enumerate(steps, 1):
        lines += [f"  {number}. {step['text']}", *([f"     {step['command']}"] if step["command"] else [])]
    return "\n".join(lines) + "\n"


def kinds_in_words(kinds: Mapping[str, int]) -> str:
    """Return the numbers of items to review by kind (see `crowdshot.report.page.review_items`).

    >>> kinds_in_words({"open": 13, "overruled": 1, "unlabelled": 0})
    '13 not accepted, 1 accepted against the majority'
    """
    named = {
        "open": "not accepted",
        "overruled": "accepted against the majority",
        "unlabelled": "unlabelled and not accepted",
    }
    return (
        ", ".join(f"{number:,} {named[kind]}" for kind, number in kinds.items() if number) or "every item is accepted"
    )


def describe_feature_value(value: Mapping[str, Any], n_labelled: int) -> list[str]:
    """Return sentences about the value of images, texts or features, and about labels that they changed."""
    items, sentences = value["of"], []
    if value["foretold"] is not None:
        numbers = (
            f"they predict held-out labels with probability {value['foretold']:.2f}"
            f" ({value['by_class_sizes']:.2f} from class frequencies alone)"
        )
        if value["helped"]:
            sentences.append(f"The {items} are informative: {numbers}.")
        elif value["helped"] is None:
            sentences.append(f"There are too few items to tell whether the {items} are informative: {numbers}.")
        else:
            nearly = "almost " if value["differ"] else ""
            sentences.append(f"The {items} are not informative, so the consensus depends {nearly}only on the labels.")
    if value["differ"]:
        names = _some(value["differ_items"], MOST_ITEMS)
        changed = f"{value['differ']:,} of {counted(n_labelled, 'labelled items')}"
        sentences.append(f"Labels alone would give a different consensus for {changed}: {names}.")
    else:
        sentences.append("Labels alone would give the same consensus for every labelled item.")
    if value["unsaid"]:
        names = _some(value["unsaid_items"], MOST_ITEMS)
        have = "has" if value["unsaid"] == 1 else "have"
        changed = f"{value['unsaid']:,} of {counted(n_labelled, 'labelled items')}"
        sentences.append(f"{changed} {have} a consensus label that no annotator chose: {names}.")
    return sentences


def _questions(report: dict[str, Any]) -> str:
    """Return the number of questions, their cost and their expected effect."""
    if not report["n_questions"]:
        if report["unasked"]:
            return "no questions: no answer is expected to change a label or its confidence"
        return "no questions: every annotator has labelled every item, so only a new annotator could add information"
    asked, uncertainty, gain = (report[name] for name in ("n_questions", "doubt", "gain"))
    people = counted(report["asked_annotators"], "annotators")
    cost = f", at a cost of {report['cost']:g}" if report["cost"] != asked else ""
    lines = [f"{counted(asked, 'questions')} about {counted(report['asked_items'], 'items')} for {people}{cost}"]
    after = uncertainty - gain
    lines.append(f"uncertainty, summed over all items: {uncertainty:.2f} now, {after:.2f} expected after these answers")
    return "\n".join(lines)


def _gold(report: dict[str, Any]) -> str:
    """Return the number of true labels, and how accurate the consensus would be without them."""
    lines = [f"{counted(report['gold'], 'true labels')} from {report['gold_from']} held fixed"]
    if "gold_right" in report:
        right, of = report["gold_right"], report["gold_labelled"]
        lines.append(
            f"without them, {right:,} of {counted(of, 'items with labels')} would be correct: {percent(right / of)}"
            f" (90 % interval {spread(report['gold_low'], report['gold_high'])})"
        )
    return "\n".join(lines)


def notes(report: Mapping[str, Any]) -> list[str]:
    """Return notes that are printed even if a table replaces the summary."""
    lines = []
    if report.get("shared_mistakes"):
        lines.append(
            f"{percent(report['gold_right'] / report['gold_labelled'])} of the items with a known true label would be"
            f" correct without it, but their mean confidence is {percent(report['gold_claimed'])}: the annotators share"
            " mistakes, so the probabilities of other items are too high as well"
        )
    if report.get("n_questions") and report["fewer"]:
        lines.append(f"fewer questions than the budget of {report['budget']:g} allows: {_why_fewer(report)}")
        if report["nobody_left"]:
            lines.append(
                f"{counted(report['nobody_left'], 'items')} not accepted, but already labelled by every annotator:"
                " find another annotator"
            )
    if "stop_at" in report:
        lines.append(until_accepted(report["stop_at"]))
    return lines


def _why_fewer(report: Mapping[str, Any]) -> str:
    return {
        "gain": "no other answer is expected to change a label or its confidence",
        "most": f"every available annotator has {counted(report['most'], 'questions')}, the limit"
        " (--max-per-annotator)",
        "cost": f"no annotator answers for the remaining {report['budget'] - report['cost']:g}",
        "nobody": "every available annotator will then have labelled every item",
    }[report["fewer"]]


def until_accepted(forecast: Mapping[str, Any]) -> str:
    """Return how many more labels are needed until a share of the items is accepted."""
    share, labels, best, worst = (forecast[name] for name in ("share", "labels", "at_best", "at_worst"))
    if labels == 0:
        return f"{percent(share)} of the items or more are already accepted"
    if labels is None:
        least = "" if best is None else f" ({best:,} labels at best)"
        people = "annotators like these"
        return f"more labels from {people} are not expected to be enough to accept {percent(share)} of the items{least}"
    low = "" if best is None else f"{best:,} at best, "
    high = "many more at worst" if worst is None else f"{worst:,} at worst"
    return f"about {labels:,} more labels are needed until {percent(share)} of the items are accepted ({low}{high})"


def _annotators(column: str, table: Sequence[dict[str, Any]], n: int, truth_used: bool) -> str:
    """Return a table of the annotators with the lowest upper bounds.

    The upper bound separates weak annotators from those with few labels. ``table`` may hold only the weakest of ``n``
    annotators.
    """
    worst = sorted(table, key=lambda row: (row["accuracy"] is None, row["high"]))[:MOST_ROWS]
    rows = [
        (
            _short(row[column]),
            f"{row['n_labels']:,}",
            "–" if row["accuracy"] is None else f"{row['accuracy']:.2f}",  # all labels of this annotator were left out
            f"{row['low']:.2f}–{row['high']:.2f}",
            _short(row["most_confused"], 2 * LONGEST),
        )
        for row in worst
    ]
    head = (_short(column), "labels", "accuracy", "90 % interval", "most confused (true → chosen)")
    text = columns([head, *rows])
    more = n - len(worst)
    if n == 1:
        return text if truth_used else f"{text}\n{SINGLE_ANNOTATOR}"
    return text + (f"\n… and {more:,} more with a higher upper bound" if more else "")


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Align rows in columns: the first and the last to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i in (0, last) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _files(files: Iterable[str]) -> str:
    rows = [(file, DESCRIPTIONS.get(file.replace("\\", "/").rsplit("/", 1)[-1], "")) for file in files]
    return columns(rows) if rows else ""


def _some(names: Sequence[Any], most: int) -> str:
    shown = ", ".join(_short(name) for name in names[:most])
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _short(name: Any, longest: int = LONGEST) -> str:
    """Return a name as one line without control characters, shortened if necessary."""
    text = "".join(c if c.isprintable() else " " for c in str(name))
    return text if len(text) <= longest else text[: longest - 1] + "…"
