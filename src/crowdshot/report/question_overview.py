"""Show the results of several questions about the same items: a row for each question, and one for each person.

A person's accuracy over all questions is the mean over their labels. Its interval is the mean of the intervals of the
questions, which is too wide if their errors are independent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from crowdshot.formatting import align_columns, clean, percent, spread
from crowdshot.report.page.templates import STYLES, fill, inline
from crowdshot.report.summary import Result

HERE = Path(__file__).parent
PAGE = "index.html"
MOST_PRINTED = 15  # people on the terminal
MOST_PEOPLE = 500  # people on the page; annotators.csv has all
FEWEST_LABELS = 10  # of a person on a question that is called their weakest
LIKELY = 0.5  # probability of a too low accuracy from which a person is weak on a question


class OnQuestion(NamedTuple):
    """The accuracy of a person on a question, with its 90 % interval."""

    labels: int
    accuracy: float
    low: float
    high: float
    p_below: float


@dataclass(frozen=True)
class AskedQuestion:
    """A question: its folder, numbers, accepted items and agreement (None if undefined), and the people."""

    question: str
    folder: str
    items: int
    labels: int
    annotators: int
    classes: Sequence[str]
    accepted: int
    agreement: float | None
    alpha: float | None
    people: Mapping[str, OnQuestion]


@dataclass(frozen=True)
class OverQuestions:
    """A person over all questions; ``weak`` are questions on which the accuracy is probably below the minimum."""

    annotator: str
    labels: int
    accuracy: float
    low: float
    high: float
    weak: Sequence[str]
    questions: Mapping[str, OnQuestion]


@dataclass(frozen=True)
class QuestionsResult:
    """The questions, the people (the lowest accuracy first), and the files that were written."""

    questions: Sequence[AskedQuestion]
    annotators: Sequence[OverQuestions]
    min_accuracy: float
    files: Sequence[Path] = ()


def asked_question(question: str, folder: str, result: Result) -> AskedQuestion:
    """Return what the overview shows of the result of a question."""
    agreement = {} if result.agreement is None else {each.name: each.value for each in result.agreement.agreement}
    table = result.annotators
    assert table is not None
    assert result.accepted is not None
    people = {
        str(row[table.annotator_column]): OnQuestion(
            int(row["n_labels"]), *(float(row[name]) for name in ("accuracy", "low", "high", "p_below"))
        )
        for row in table.annotator_table
        if row["n_labels"]
    }
    alpha = next((value for name, value in agreement.items() if name.startswith("Krippendorff")), None)
    return AskedQuestion(
        question,
        folder,
        result.counts.items,
        result.counts.labels or 0,
        len(people),
        [str(name) for name in result.counts.classes],
        result.accepted.accepted,
        agreement.get("Pairwise agreement"),
        alpha,
        people,
    )


def over_questions(questions: Sequence[AskedQuestion]) -> list[OverQuestions]:
    """Return each person over all questions, those with the lowest accuracy first."""
    names = dict.fromkeys(name for each in questions for name in each.people)
    people = []
    for name in names:
        found = {each.question: each.people[name] for each in questions if name in each.people}
        total = sum(each.labels for each in found.values())

        def mean(of: str, found: Mapping[str, OnQuestion] = found, total: int = total) -> float:
            return sum(each.labels * float(getattr(each, of)) for each in found.values()) / total

        weak = [q for q, each in found.items() if each.p_below >= LIKELY and each.labels >= FEWEST_LABELS]
        people.append(OverQuestions(name, total, mean("accuracy"), mean("low"), mean("high"), weak, found))
    return sorted(people, key=lambda each: (each.accuracy, each.annotator))


def question_rows(result: QuestionsResult) -> list[dict[str, Any]]:
    """Return a row for each question, for a file."""
    return [
        {
            "question": each.question,
            "folder": each.folder,
            "items": each.items,
            "n_labels": each.labels,
            "annotators": each.annotators,
            "classes": len(each.classes),
            "accepted": each.accepted,
            "agreement": each.agreement,
            "alpha": each.alpha,
        }
        for each in result.questions
    ]


def annotator_rows(result: QuestionsResult) -> list[dict[str, Any]]:
    """Return a row for each person, for a file."""
    names = [each.question for each in result.questions]
    return [
        {
            "annotator": person.annotator,
            "n_labels": person.labels,
            "accuracy": person.accuracy,
            "low": person.low,
            "high": person.high,
            "weak": "; ".join(person.weak),
            **{
                f"{field} on {name}": getattr(person.questions[name], of) if name in person.questions else None
                for name in names
                for field, of in (("accuracy", "accuracy"), ("labels", "labels"))
            },
        }
        for person in result.annotators
    ]


def describe_questions(result: QuestionsResult) -> str:
    """Return the overview for the terminal."""
    rows = [("question", "items", "labels", "people", "classes", "accepted", "agreement", "alpha", "")]
    for each in result.questions:
        rows.append(
            (
                clean(each.question, 40),
                f"{each.items:,}",
                f"{each.labels:,}",
                f"{each.annotators:,}",
                f"{len(each.classes):,}",
                percent(each.accepted / max(each.items, 1)),
                "" if each.agreement is None else percent(each.agreement),
                "" if each.alpha is None else f"{each.alpha:.2f}",
                "",
            )
        )
    names = [each.question for each in result.questions]
    people = [("annotator", "labels", "accuracy", "90 % interval", *(clean(name, 20) for name in names), "")]
    for person in result.annotators[:MOST_PRINTED]:
        people.append(
            (
                clean(person.annotator, 40),
                f"{person.labels:,}",
                percent(person.accuracy),
                spread(person.low, person.high),
                *(percent(person.questions[name].accuracy) if name in person.questions else "" for name in names),
                f"weak on {', '.join(clean(name, 20) for name in person.weak)}" if person.weak else "",
            )
        )
    lines = [align_columns(rows), "", align_columns(people)]
    if len(result.annotators) > MOST_PRINTED:
        lines.append(f"… and {len(result.annotators) - MOST_PRINTED:,} more")
    return "\n".join(lines)


def render_questions(result: QuestionsResult) -> str:
    """Return the overview as an HTML page without network access or scripts, with links to the questions' reports."""
    return fill(
        "question_overview.html",
        HERE,
        r=result,
        most_people=MOST_PEOPLE,
        style=inline(*STYLES, HERE / "question_overview.css"),
    )
