"""What was found -> a folder of files, all of them or none."""

from __future__ import annotations

import warnings
from pathlib import Path

from crowdshot.classifier.classifier import CrowdClassifier
from crowdshot.files.whole import Writers, csv_writers, write_folder
from crowdshot.labels.formats import WRITERS
from crowdshot.labels.formats.labels import LabelsRead
from crowdshot.report.tables import confusion_table, of_kind, with_others


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
    consensus = clf.consensus_ if labels is None else of_kind(clf.consensus_, labels, clf.classes_, clf.belief_)
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
