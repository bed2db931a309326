"""Make the tables of the results and write the result folder."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError, CrowdshotWarning
from crowdshot.io.atomic import Writers, csv_writers, write_folder
from crowdshot.io.cells import Ids, as_index
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import MIN_ACCURACY, AnnotatorPriors, by_risk, expected_confusion
from crowdshot.labels.columns import Columns
from crowdshot.labels.consensus import Consensus
from crowdshot.labels.formats import WRITERS
from crowdshot.labels.formats.label_file import LabelsRead
from crowdshot.labels.spelling import members, names_of
from crowdshot.labels.working_times import LABELS_PER_HOUR, LAST_ACTIVE, MEDIAN_SECONDS, TRENDS, with_working_times
from crowdshot.model.parts import MANY, PosteriorMatrix
from crowdshot.model.posteriors import expected_rank, top_classes

if TYPE_CHECKING:
    from crowdshot.classifier.crowd_classifier import CrowdClassifier
    from crowdshot.labels.label_costs import Money

RESERVED: Mapping[str, Collection[str]] = {  # {role: names of other columns in the tables that have this role}
    "item": {"confidence", "n_labels", "agreement", "expected_rank"},
    "label": {"confidence", "n_labels", "agreement", "expected_rank"},
    "annotator": {
        "n_labels",
        "accuracy",
        "low",
        "high",
        "most_confused",
        "right",
        "wrong",
        "p_below",
        *(LAST_ACTIVE, LABELS_PER_HOUR, MEDIAN_SECONDS, *TRENDS),
        "true",
        "observed",
        "probability",
    },
}


LEFT_BEHIND = {"predictions.json", "report.html", "feedback", "model.safetensors", "labels.safetensors", "run.json"}


def check_columns(columns: Columns, source: str, reserved: Mapping[str, Collection[str]] = RESERVED) -> None:
    """Raise an error if a column name of the input, which the results keep, has another meaning in the results."""
    for role, name in zip(Columns._fields, columns, strict=True):
        if name in reserved[role]:
            raise CrowdshotError(
                f"The {role} column is called {name!r}, which is the name of another column of the results",
                where=source,
                found=name,
                hint="Rename the column.",
            )


def confusion_table(ann: Annotations, confusion: NDArray[np.float64]) -> pd.DataFrame:
    """Return confusion matrices (R, K, K) as a table with a row per annotator, true class and observed class."""
    annotator, true, observed = (index.ravel() for index in np.indices(confusion.shape))
    return pd.DataFrame(
        {
            ann.columns.annotator: as_index(ann.annotators).take(annotator),
            "true": as_index(ann.classes).take(true),
            "observed": as_index(ann.classes).take(observed),
            "probability": confusion.ravel(),
        }
    )


def with_others(people: pd.DataFrame, history: AnnotatorPriors) -> pd.DataFrame:
    """Return the table of annotators with added rows for those with a history but no label in this project."""
    here = set(people.iloc[:, 0].astype(str))
    others = [(name, *counts) for name, counts in history.items() if name not in here]
    if not others:
        return people
    names, right, wrong = zip(*others, strict=True)
    rows = pd.DataFrame({people.columns[0]: names, "n_labels": 0, "most_confused": "", "right": right, "wrong": wrong})
    return pd.concat([people, rows.assign(low=0.0, high=1.0)], ignore_index=True)


def with_probabilities(table: pd.DataFrame, classes: Any, probabilities: Any) -> pd.DataFrame:
    """Return the table with a column ``p_<class>`` for each class, unless there are more than `MANY`.

    ``probabilities`` is (N, K).
    """
    if len(classes) > MANY:
        return table
    columns = [f"p_{name}" for name in classes]
    return pd.concat([table, pd.DataFrame(probabilities, columns=columns, index=table.index)], axis=1)


def of_kind(table: pd.DataFrame, labels: LabelsRead, classes: Ids, posterior: NDArray[np.float64]) -> pd.DataFrame:
    """Add the columns of special classes to a consensus table.

    Ordered classes add the expected rank. Sets of labels add the probability of each label. ``posterior`` is (N, K).
    """
    if labels.ordered:
        table = table.assign(expected_rank=expected_rank(posterior))
    return with_probabilities(table, *of_each_label(classes, posterior)) if labels.several else table


def prediction_table(
    ids: Any, classes: Any, probabilities: Any, item: str, label: str, several: bool = False
) -> pd.DataFrame:
    """Return a table of the most probable class of each item; with ``several``, classes are sets of labels."""
    best = probabilities.argmax(1)
    table = pd.DataFrame({item: as_index(ids), label: as_index(classes).take(best), "confidence": probabilities.max(1)})
    return with_probabilities(table, *of_each_label(classes, probabilities, several))


def of_each_label(sets: Ids, posterior: NDArray[np.float64], several: bool = True) -> tuple[Ids, NDArray[np.float64]]:
    """Return the labels in the sets, and the probability of each label for each item; without ``several``, no sets."""
    if not several:
        return sets, posterior
    names = names_of(sets)
    return names, (posterior @ members(sets, names)).clip(0, 1)


# ---- most probable classes ----


def likeliest_table(ann: Annotations, posterior: PosteriorMatrix, most: int) -> pd.DataFrame:
    """Return the most probable classes as a long table with the columns item, rank, label and probability."""
    item, rank, label, p = top_classes(posterior, most)
    return pd.DataFrame(
        {
            ann.columns.item: as_index(ann.items).take(item),
            "rank": rank,
            ann.columns.label: as_index(ann.classes).take(label),
            "probability": p,
        }
    )


# ---- result folder ----


def write_results(
    clf: CrowdClassifier,
    out: Path,
    overwrite: bool = False,
    labels: LabelsRead | None = None,
    pages: Writers | None = None,
    share: bool = False,
    min_accuracy: float = MIN_ACCURACY,
    working: pd.DataFrame | None = None,
    money: Money | None = None,
) -> list[Path]:
    """Write consensus.csv, annotators.csv, confusion.csv and model.safetensors to a folder, all of them or none.

    Parameters
    ----------
    clf : CrowdClassifier
        The fitted classifier.
    out : Path
        The folder.
    overwrite : bool
        Whether the folder may have results already.
    labels : LabelsRead, optional
        The labels as they were read. Labels of a Label Studio project add predictions.json.
    pages : mapping, optional
        Writers of more files, such as report.html.
    share : bool
        Whether the classifier is written without labels (`CrowdClassifier.save`).
    min_accuracy : float
        The accuracy that an annotator should have. Annotators who are most likely below it come first.
    working : DataFrame, optional
        When and how fast annotators work (`crowdshot.labels.working_times`), for annotators.csv.
    money : Money, optional
        What labels cost, for annotators.csv.

    Returns
    -------
    list of Path
        The written files.
    """
    consensus = clf.consensus_ if labels is None else of_kind(clf.consensus_, labels, clf.classes_, clf.label_proba_)
    people = by_risk(clf.judge_annotators(min_accuracy))
    people = people if working is None else with_working_times(people, working)
    if money is not None:
        from crowdshot.labels.label_costs import with_costs  # here, as most runs have no costs

        people = with_costs(people, money)
    tables = {
        "consensus": consensus,
        "annotators": people if labels is None else with_others(people, labels.history),
        "confusion": confusion_table(clf.annotations_, clf.confusion_),
    }
    writers: Writers = {
        **csv_writers(tables),
        "model.safetensors": partial(clf.save, labels=not share),
        **(pages or {}),
    }
    return _write(out, writers, consensus, labels, overwrite)


def write_label_results(
    found: Consensus,
    consensus: pd.DataFrame,
    people: pd.DataFrame,
    out: Path,
    overwrite: bool,
    labels: LabelsRead,
    pages: Writers,
) -> list[Path]:
    """Write consensus.csv, annotators.csv, confusion.csv and ``pages`` for labels alone, all of them or none."""
    ann = found.annotations
    assert ann is not None
    confusion = found.confusion
    if confusion is None:
        confusion = expected_confusion(ann, found.probabilities, labels.history.of(ann.annotators))
    tables = {"consensus": consensus, "annotators": people, "confusion": confusion_table(ann, confusion)}
    return _write(out, {**csv_writers(tables), **pages}, consensus, labels, overwrite)


def _write(
    out: Path, writers: Writers, consensus: pd.DataFrame, labels: LabelsRead | None, overwrite: bool
) -> list[Path]:
    """Write a result folder; warn about results of an earlier run that stay in it."""
    if labels is not None and labels.project is not None:
        writers = {**writers, "predictions.json": lambda path: WRITERS["label-studio"](path, consensus, labels)}
    files = write_folder(out, writers, overwrite)
    for stale in sorted(LEFT_BEHIND - set(writers)):
        if (out / stale).exists():
            warnings.warn(
                CrowdshotWarning("is from an earlier run and does not belong to these results", where=out / stale),
                stacklevel=2,
            )
    return files
