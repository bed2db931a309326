"""What a job found, in words for a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crowdshot.formatting import counted, percent, spread
from crowdshot.labels.spelling import Respelled

MOST_ROWS = 15  # annotators shown; the file has all
MOST_CLASSES = 10
MOST_ITEMS = 5
MOST_LEFT_OUT = 20
MOST_RESPELLED = 10
LONGEST = 30  # characters of a name in a table
OWN = (
    "combined",
    "labeling-search",
    "features",
    "Ours",
)  # methods that need no word, because the default is among them
ALONE = "one annotator alone is contradicted by nobody: the accuracy is too high, and so is every confidence"
WHAT = {
    "consensus.csv": "each item's label with its confidence",
    "annotators.csv": "how often each annotator is right",
    "confusion.csv": "what each annotator says of which class",
    "model.safetensors": "the classifier, for `crowdshot predict`",
    "report.html": "all of it on a page to read, in a browser",
    "feedback": "a page for each annotator to be given, without the others' names",
    "predictions.json": "the consensus as Label Studio imports it",
    "labels.csv": "who said what about which item",
    "truth.csv": "what the items really are",
    "clean.csv": "the items that were sure enough, with their labels",
    "images": "their images and metadata.csv, as imagefolder has it",
    "coco.json": "the same in the shape of COCO",
    "crowdkit.csv": "who said what about them, for crowd-kit",
    "cleanlab.csv": "the same for cleanlab",
    "label-studio.json": "their labels as Label Studio imports them",
    "argilla.json": "their labels as Argilla's suggestions",
    "cvat.xml": "their labels as CVAT imports them",
}


def tell(report: dict[str, Any]) -> str:
    """Counts, the method if it is not our own, how much is accepted, the annotators, the files: what the report has."""
    parts = [_counts(report)]
    if "method_summary" in report and report["method"] not in OWN:
        parts.append(f"{report['method']}: {report['method_summary']}")
    if "encoder_summary" in report:
        parts.append(report["encoder_summary"])
    if "accepted" in report:
        parts.append(_accepted(report))
    if "exported" in report:
        sure = f"probability {100 * report['exported_at']:g} % or more"
        parts.append(f"{counted(report['exported'], 'items')} with {sure} exported to {report['exported_to']}")
    if "need_a_person" in report:
        parts += _verdicts(report["need_a_person"], report["classifier"])
    if "looks" in report:
        parts += what_looks_were_worth(report["looks"], report["items"])
    if "n_questions" in report:
        parts.append(_questions(report))
    if report.get("gold"):
        parts.append(_gold(report))
    parts += remarks(report)
    if "annotator_table" in report:
        column, table, n = (report[name] for name in ("annotator_column", "annotator_table", "annotators"))
        parts.append("\n" + _annotators(column, table, n, truth_used=bool(report.get("gold"))) + "\n")
    if "do_next" in report:
        parts.append(_do_next(report["do_next"]))
    parts.append(_files(report["files"]))
    return "\n".join(parts)


def left_out(reasons: Mapping[str, int | list[str]]) -> list[str]:
    """What was not used and why, a line each: "2 unreadable images (a.png, b.png)"."""
    lines = []
    for reason, what in reasons.items():
        names = what if isinstance(what, list) else []
        number = len(what) if isinstance(what, list) else what
        if number:
            lines.append(counted(number, reason) + (f" ({_some(names, MOST_LEFT_OUT)})" if names else ""))
    return lines


def respelled(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Labels that were read otherwise than they were written, a line each."""
    lines = [f"{Respelled(**each)}" for each in found if each["of"] == "labels"]
    more = len(lines) - MOST_RESPELLED
    return [*lines[:MOST_RESPELLED], *([f"{more} more are read as others"] if more > 0 else [])]


def _counts(report: dict[str, Any]) -> str:
    sizes = [counted(report[k], k) for k in ("items", "annotators", "labels") if k in report]
    classes = report["classes"]
    number = "1 class" if len(classes) == 1 else f"{len(classes):,} classes"
    return f"{', '.join(sizes)}, {number}: {_some(classes, MOST_CLASSES)}"


def _accepted(report: dict[str, Any]) -> str:
    sure = f"{100 * report['accepted_at']:g} %"
    lines = [f"{report['accepted']:,} of {report['items']:,} items accepted (probability {sure} or more)"]
    if report.get("predicted"):
        lines.append(
            f"{report['predicted']:,} items that nobody labelled got a label from the classifier,"
            f" {report['predicted_accepted']:,} of them with probability {sure} or more"
        )
    return "\n".join(lines)


def _verdicts(kinds: Mapping[str, int], classifier: Mapping[str, Any]) -> list[str]:
    """What the page's first screen says too."""
    number = sum(kinds.values())
    need = f"{counted(number, 'items')} {'needs' if number == 1 else 'need'} a person: " if number else ""
    lines = [need + kinds_in_words(kinds)]
    right = classifier["share"]
    if right is None:
        return [*lines, f"what the classifier gets right on new items is not known: {classifier['verdict']}"]
    how_often = f"{percent(right)} right ({spread(classifier['low'], classifier['high'])})"
    return [*lines, f"classifier on new items: {how_often}, {classifier['verdict']}"]


def _do_next(steps: Sequence[Mapping[str, str]]) -> str:
    lines = ["do next, and report.html helps with it:"]
    for number, step in enumerate(steps, 1):
        lines += [f"  {number}. {step['text']}", *([f"     {step['command']}"] if step["command"] else [])]
    return "\n".join(lines) + "\n"


def kinds_in_words(kinds: Mapping[str, int]) -> str:
    """ "13 not accepted, 1 accepted against most labels": items that need a person, by `crowdshot.report.page.review_items`."""
    named = {"open": "not accepted", "overruled": "accepted against most labels", "unlabelled": "without a label"}
    return (
        ", ".join(f"{number:,} {named[kind]}" for kind, number in kinds.items() if number) or "every item is accepted"
    )


def what_looks_were_worth(looks: Mapping[str, Any], n_labelled: int) -> list[str]:
    """A sentence of what images or features were worth, and one of where labels alone would have it otherwise."""
    what, found = looks["of"], []
    if looks["foretold"] is not None:
        numbers = (
            f"labels of items whose labels were hidden are foretold from them with probability {looks['foretold']:.2f}"
            f" on average, by class sizes alone with {looks['by_class_sizes']:.2f}"
        )
        nearly = "nearly " if looks["differ"] else ""
        if looks["helped"]:
            found.append(f"The {what} helped: {numbers}.")
        elif looks["helped"] is None:
            found.append(f"Whether the {what} helped cannot be told from these few items: {numbers}.")
        else:
            found.append(f"The {what} did not help here, so the labels decide {nearly}alone.")
    if looks["differ"]:
        names = _some(looks["differ_items"], MOST_ITEMS)
        found.append(
            f"{_of_labelled(looks['differ'], n_labelled)} a consensus that labels alone would not give: {names}."
        )
    else:
        found.append("The consensus of every labelled item is what labels alone would give.")
    if looks["unsaid"]:
        names = _some(looks["unsaid_items"], MOST_ITEMS)
        found.append(f"{_of_labelled(looks['unsaid'], n_labelled)} a label that nobody gave: {names}.")
    return found


def _of_labelled(number: int, n_labelled: int) -> str:
    return f"{number:,} of {counted(n_labelled, 'labelled items')} {'has' if number == 1 else 'have'}"


def _questions(report: dict[str, Any]) -> str:
    """How many, for whom, and what is expected of them."""
    if not report["n_questions"]:
        if report["unasked"]:
            return "no question is worth asking: no answer is expected to change anything"
        return "nobody is left to ask: every annotator has labelled every item, and only another one could add to that"
    asked, doubt, gain = (report[name] for name in ("n_questions", "doubt", "gain"))
    people = "one annotator" if report["asked_annotators"] == 1 else f"{report['asked_annotators']:,} annotators"
    cost = f", at a cost of {report['cost']:g}" if report["cost"] != asked else ""
    lines = [f"{counted(asked, 'questions')} about {counted(report['asked_items'], 'items')}, for {people}{cost}"]
    lines.append(f"doubt, summed over all items: {doubt:.2f} now, {doubt - gain:.2f} expected after these answers")
    return "\n".join(lines)


def _gold(report: dict[str, Any]) -> str:
    """What was known to be true, how often it would be right without, and whether the crowd fools itself."""
    lines = [f"{counted(report['gold'], 'true labels')} known and held fixed (from {report['gold_from']})"]
    if "gold_right" in report:
        right, of = report["gold_right"], report["gold_labelled"]
        lines.append(
            f"without them {right:,} of {counted(of, 'items with labels')} would be right: {percent(right / of)}"
            f" ({spread(report['gold_low'], report['gold_high'])})"
        )
    return "\n".join(lines)


def remarks(report: Mapping[str, Any]) -> list[str]:
    """What a reader ought to know even where a table takes the place of all other words."""
    lines = []
    if report.get("shared_mistakes"):
        lines.append(
            f"of the items with known truth {percent(report['gold_right'] / report['gold_labelled'])} would be right,"
            f" {percent(report['gold_claimed'])} by their confidence: the annotators share mistakes, so"
            " probabilities of other items are too high as well"
        )
    if report.get("n_questions") and report["fewer"]:
        lines.append(f"fewer questions than the budget of {report['budget']:g} allows: {_why_fewer(report)}")
        if report["nobody_left"]:
            lines.append(
                f"for {counted(report['nobody_left'], 'items')} that are not accepted nobody is left to ask:"
                " find another person"
            )
    if "stop_at" in report:
        lines.append(until_accepted(report["stop_at"]))
    return lines


def _why_fewer(report: Mapping[str, Any]) -> str:
    return {
        "gain": "no other answer is expected to change anything",
        "most": f"everybody who could be asked has {counted(report['most'], 'questions')}, which is the most for one"
        " (--max-per-annotator)",
        "cost": f"{report['budget'] - report['cost']:g} is left, for which nobody answers",
        "nobody": "everybody who can be asked has labelled all items then",
    }[report["fewer"]]


def until_accepted(forecast: Mapping[str, Any]) -> str:
    share, labels, best, worst = (forecast[name] for name in ("share", "labels", "at_best", "at_worst"))
    if labels == 0:
        return f"{percent(share)} of the items or more are accepted already"
    if labels is None:
        least = "" if best is None else f", though {best:,} would do at best"
        return (
            f"no number of labels from people like these can be expected to settle {percent(share)} of the items{least}"
        )
    low = "" if best is None else f"{best:,} at best, "
    high = "and many more at worst" if worst is None else f"{worst:,} at worst"
    return f"about {labels:,} more labels should settle {percent(share)} of the items ({low}{high})"


def _annotators(column: str, table: Sequence[dict[str, Any]], n: int, truth_used: bool) -> str:
    """Those first whose interval ends lowest, as on the page: they are surely weak, not only by their few labels.

    ``n``: how many there are, of whom the table may have the weakest.
    """
    worst = sorted(table, key=lambda row: (row["accuracy"] is None, row["high"]))[:MOST_ROWS]
    rows = [
        (
            _short(row[column]),
            f"{row['n_labels']:,}",
            "–" if row["accuracy"] is None else f"{row['accuracy']:.2f}",  # none of their labels was left
            f"{row['low']:.2f}–{row['high']:.2f}",
            _short(row["most_confused"], 2 * LONGEST),
        )
        for row in worst
    ]
    head = (_short(column), "labels", "accuracy", "90 % interval", "confuses most (true → said)")
    text = columns([head, *rows])
    more = n - len(worst)
    if n == 1:
        return text if truth_used else f"{text}\n{ALONE}"
    return text + (f"\n… and {more:,} whose interval ends higher" if more else "")


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Text in columns, the numbers in the middle to the right."""
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
    rows = [(file, WHAT.get(file.replace("\\", "/").rsplit("/", 1)[-1], "")) for file in files]
    return columns(rows) if rows else ""


def _some(names: Sequence[Any], most: int) -> str:
    shown = ", ".join(_short(name) for name in names[:most])
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _short(name: Any, longest: int = LONGEST) -> str:
    """One line without control characters, however long or odd the name."""
    text = "".join(c if c.isprintable() else " " for c in str(name))
    return text if len(text) <= longest else text[: longest - 1] + "…"
