"""What was found -> files, all of them or none."""

from __future__ import annotations

import math
import os
import secrets
import shutil
import warnings
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from crowdshot.atomic import replacing
from crowdshot.classifier import CrowdClassifier
from crowdshot.columns import Columns
from crowdshot.errors import CrowdshotError
from crowdshot.formats import WRITERS, Labels
from crowdshot.formats.write import digits
from crowdshot.ids import as_index

SETTLED = 0.9  # an item is settled when its label is at least this probable
OWN_NAMES: Mapping[str, Collection[str]] = {  # columns of ours that stand beside the input's own, in a table each
    "item": {"confidence", "n_labels", "agreement"},
    "label": {"confidence", "n_labels", "agreement"},
    "annotator": {"n_labels", "accuracy", "low", "high", "most_confused", "true", "observed", "probability"},
}

Writers = Mapping[str, Callable[[Path], None]]
"""File name -> what writes it, given the path."""

# ---- tables -----------------------------------------------------------------------------------------------------
TABLES = ("", ".csv", ".txt")  # endings of files that hold CSV


def check_columns(columns: Columns, source: str, own: Mapping[str, Collection[str]] = OWN_NAMES) -> None:
    """Results use the input's names, so these must not be ours."""
    for role, name in zip(Columns._fields, columns, strict=True):
        if name in own[role]:
            raise CrowdshotError(
                f"{source}: the column for the {role} is called {name!r}, a name that results have for"
                " something else: rename it."
            )


def confusion_table(clf: CrowdClassifier) -> pd.DataFrame:
    """One row for each annotator, true class and observed class."""
    ann, confusion = clf.annotations_, clf.confusion_
    annotator, true, observed = (index.ravel() for index in np.indices(confusion.shape))
    return pd.DataFrame(
        {
            ann.columns.annotator: as_index(ann.annotators).take(annotator),
            "true": as_index(ann.classes).take(true),
            "observed": as_index(ann.classes).take(observed),
            "probability": confusion.ravel(),
        }
    )


def with_probabilities(table: pd.DataFrame, classes: Any, probabilities: Any) -> pd.DataFrame:
    """The table and a column ``p_<class>`` for each class; probabilities (N, K)."""
    columns = [f"p_{name}" for name in classes]
    return pd.concat([table, pd.DataFrame(probabilities, columns=columns, index=table.index)], axis=1)


def prediction_table(ids: Any, clf: CrowdClassifier, probabilities: Any, item: str, label: str) -> pd.DataFrame:
    best = probabilities.argmax(1)
    table = pd.DataFrame(
        {item: as_index(ids), label: as_index(clf.classes_).take(best), "confidence": probabilities.max(1)}
    )
    return with_probabilities(table, clf.classes_, probabilities)


def write_csv(table: pd.DataFrame, target: Path | IO[str]) -> None:
    """UTF-8, six digits."""
    table.to_csv(target, index=False, float_format=digits, lineterminator="\n")


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as plain JSON values, NaN as null."""
    rows = table.to_dict("records")
    return [
        {str(k): None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()} for row in rows
    ]


# ---- files ------------------------------------------------------------------------------------------------------


def write_results(
    clf: CrowdClassifier,
    out: Path,
    overwrite: bool = False,
    labels: Labels | None = None,
    report: Callable[[Path], None] | None = None,
) -> list[Path]:
    """A fitted classifier -> consensus.csv, annotators.csv, confusion.csv and model.safetensors in a folder.

    Where the labels came from a Label Studio project, predictions.json for it; where there is one, the report.
    """
    consensus = clf.consensus_
    tables = {"consensus": consensus, "annotators": clf.annotators_, "confusion": confusion_table(clf)}
    writers = {**csv_writers(tables), "model.safetensors": clf.save}
    if labels is not None and labels.project is not None:
        writers["predictions.json"] = lambda path: WRITERS["label-studio"](path, consensus, labels)
    if report is not None:
        writers["report.html"] = report
    files = write_folder(out, writers, overwrite)
    for stale in {"predictions.json", "report.html"} - set(writers):
        if (out / stale).is_file():
            warnings.warn(f"{out / stale} was there before, and is not of these results.", UserWarning, stacklevel=2)
    return files


def csv_writers(tables: Mapping[str, pd.DataFrame]) -> Writers:
    return {f"{name}.csv": lambda path, table=table: write_csv(table, path) for name, table in tables.items()}  # type: ignore[misc]


def check_folder(out: Path, overwrite: bool) -> None:
    """To be called before the work: may results go into this folder?"""
    try:
        if out.is_dir():
            if not overwrite and any(out.iterdir()):
                raise CrowdshotError(f"{out} is not empty, expected a new or empty folder; --overwrite writes into it.")
            writable = out
        else:
            if out.exists() or out.is_symlink():
                raise CrowdshotError(f"{out} is a file, expected a folder to write to.")
            writable = next(parent for parent in out.absolute().parents if parent.exists())
    except OSError as error:
        raise CrowdshotError(f"{out} cannot be written to ({error.strerror or error}).") from None
    if not writable.is_dir() or not os.access(writable, os.W_OK | os.X_OK):
        found = "may not be written to" if writable.is_dir() else "is a file"
        raise CrowdshotError(f"{out} cannot be written to, because {writable} {found}.")


def write_folder(out: Path, writers: Writers, overwrite: bool = False) -> list[Path]:
    """Write every file into a hidden folder, then move them into place; of a failure nothing stays.

    That folder is inside ``out``, because ``out`` may be a disk of its own. Other files in it are left alone.
    """
    check_folder(out, overwrite)
    target = out.resolve()
    made = [folder for folder in (target, *target.parents) if not folder.exists()]
    temporary = target / f".crowdshot-{secrets.token_hex(4)}.tmp"
    complete = False
    try:
        target.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        for name, write in writers.items():
            write(temporary / name)
        for name in writers:
            if (target / name).is_dir():
                shutil.rmtree(target / name)
            os.replace(temporary / name, target / name)
        complete = True
    except OSError as error:
        raise CrowdshotError(f"{out} could not be written ({error.strerror or error}).") from error
    except CrowdshotError as error:  # which names a file that is about to go
        raise CrowdshotError(str(error).replace(str(temporary), str(out))) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if not complete:
            for folder in made:
                with suppress(OSError):  # not empty: someone else uses it
                    folder.rmdir()
    return [out / name for name in writers]


def check_table(out: Path, *inputs: Path | None, endings: Collection[str] = TABLES) -> None:
    """As `check_file`, for a file that will hold CSV."""
    check_file(out, *inputs)
    if out.suffix.lower() not in endings:
        raise CrowdshotError(f"{out} would hold CSV, expected a name that ends in .csv, which spreadsheets open too.")


def check_file(out: Path, *inputs: Path | None) -> None:
    """To be called before the work: may this file be written, and is it none of the inputs?"""
    if out.is_dir():
        raise CrowdshotError(f"{out} is a folder, expected the name of a file to write.")
    if not out.absolute().parent.is_dir():
        raise CrowdshotError(f"{out} cannot be written, because the folder {out.parent} does not exist.")
    for source in inputs:
        if source is not None and out.exists() and source.exists() and out.samefile(source):
            raise CrowdshotError(f"{out} is what is read, expected another file to write to.")


def write_file(out: Path, table: pd.DataFrame) -> None:
    """A table as a CSV file, complete or not at all."""
    with replacing(out) as temporary:
        write_csv(table, temporary)
