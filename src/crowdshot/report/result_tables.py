"""What was found, as tables."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.io.atomic import Writers, csv_writers, write_folder
from crowdshot.io.cells import Ids
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_priors import AnnotatorPriors
from crowdshot.labels.columns import Columns
from crowdshot.labels.formats import WRITERS
from crowdshot.labels.formats.label_file import LabelsRead
from crowdshot.labels.indexing import as_index
from crowdshot.labels.label_sets import members, names_of
from crowdshot.model.parts import MANY, PosteriorMatrix
from crowdshot.model.posteriors import expected_rank, top_classes

if TYPE_CHECKING:
    from crowdshot.classifier.crowd_classifier import CrowdClassifier

OWN_NAMES: Mapping[str, Collection[str]] = {  # columns of ours that stand beside the input's own, in a table each
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
        "true",
        "observed",
        "probability",
    },
}


def check_columns(columns: Columns, source: str, own: Mapping[str, Collection[str]] = OWN_NAMES) -> None:
    """Results use the input's names, so these must not be ours."""
    for role, name in zip(Columns._fields, columns, strict=True):
        if name in own[role]:
            raise CrowdshotError(
                f"{source} has a column {name!r} for the {role}, expected another name; rename it, as results mean "
                "something else by it."
            )


def confusion_table(ann: Annotations, confusion: NDArray[np.float64]) -> pd.DataFrame:
    """(R, K, K) -> one row for each annotator, true class and observed class."""
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
    """The annotators of a project, and with nothing but their records those of earlier ones who gave no label in it."""
    here = set(people.iloc[:, 0].astype(str))
    others = [(name, *counts) for name, counts in history.items() if name not in here]
    if not others:
        return people
    names, right, wrong = zip(*others, strict=True)
    rows = pd.DataFrame({people.columns[0]: names, "n_labels": 0, "most_confused": "", "right": right, "wrong": wrong})
    return pd.concat([people, rows.assign(low=0.0, high=1.0)], ignore_index=True)


def with_probabilities(table: pd.DataFrame, classes: Any, probabilities: Any) -> pd.DataFrame:
    """The table and a column ``p_<class>`` for each class, unless these are many; probabilities (N, K)."""
    if len(classes) > MANY:
        return table
    columns = [f"p_{name}" for name in classes]
    return pd.concat([table, pd.DataFrame(probabilities, columns=columns, index=table.index)], axis=1)


def of_kind(table: pd.DataFrame, labels: LabelsRead, classes: Ids, posterior: NDArray[np.float64]) -> pd.DataFrame:
    """A consensus, with its expected rank where classes are ordered, with each label's probability where they are sets.

    posterior (N, K) in the classes.
    """
    if labels.ordered:
        table = table.assign(expected_rank=expected_rank(posterior))
    return with_probabilities(table, *_of_each_label(classes, posterior)) if labels.several else table


def prediction_table(
    ids: Any, classes: Any, probabilities: Any, item: str, label: str, several: bool = False
) -> pd.DataFrame:
    """``several``: classes are sets of labels."""
    best = probabilities.argmax(1)
    table = pd.DataFrame({item: as_index(ids), label: as_index(classes).take(best), "confidence": probabilities.max(1)})
    return with_probabilities(table, *_of_each_label(classes, probabilities) if several else (classes, probabilities))


def _of_each_label(sets: Ids, posterior: NDArray[np.float64]) -> tuple[Ids, NDArray[np.float64]]:
    """(K,) the labels that sets name, and (N, K) how probable each is."""
    names = names_of(sets)
    return names, (posterior @ members(sets, names)).clip(0, 1)


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as plain JSON values, NaN as null."""
    rows = table.to_dict("records")
    return [
        {str(k): None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()} for row in rows
    ]


# ---- likeliest ------------------------------------------------------------
#
# The likeliest few classes of each item, as a long table: what stays readable where classes are many.


def likeliest_table(ann: Annotations, posterior: PosteriorMatrix, most: int) -> pd.DataFrame:
    """item, rank, label, probability"""
    item, rank, label, p = top_classes(posterior, most)
    return pd.DataFrame(
        {
            ann.columns.item: as_index(ann.items).take(item),
            "rank": rank,
            ann.columns.label: as_index(ann.classes).take(label),
            "probability": p,
        }
    )


# ---- folder ------------------------------------------------------------
#
# What was found -> a folder of files, all of them or none.


def write_results(
    clf: CrowdClassifier,
    out: Path,
    overwrite: bool = False,
    labels: LabelsRead | None = None,
    pages: Writers | None = None,
) -> list[Path]:
    """A fitted classifier -> consensus.csv, annotators.csv, confusion.csv and model.safetensors in a folder.

    Where the labels came from a Label Studio project, predictions.json for it. ``pages``: report.html and the like.
    """
    consensus = clf.consensus_ if labels is None else of_kind(clf.consensus_, labels, clf.classes_, clf.label_proba_)
    tables = {
        "consensus": consensus,
        "annotators": clf.annotators_ if labels is None else with_others(clf.annotators_, labels.history),
        "confusion": confusion_table(clf.annotations_, clf.confusion_),
    }
    writers = {**csv_writers(tables), "model.safetensors": clf.save, **(pages or {})}
    if labels is not None and labels.project is not None:
        writers["predictions.json"] = lambda path: WRITERS["label-studio"](path, consensus, labels)
    files = write_folder(out, writers, overwrite)
    for stale in {"predictions.json", "report.html", "feedback"} - set(writers):
        if (out / stale).exists():
            warnings.warn(f"{out / stale} was there before, and is not of these results.", UserWarning, stacklevel=2)
    return files
