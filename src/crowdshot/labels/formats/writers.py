"""Write results to files for people and label tools; `WRITERS` lists the formats.

The argument ``table`` is always a consensus: a row for each item with the item, its label and the confidence, under the
column names of the input labels. The files for crowd-kit and cleanlab have the input labels instead of the consensus.
"""

from __future__ import annotations

import io
import itertools
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError, Use
from crowdshot.formatting import first_line, plural, show
from crowdshot.io.atomic import replacing, write_csv
from crowdshot.io.cells import Ids, as_index
from crowdshot.io.tables import read_table
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import TRUTH, plain
from crowdshot.labels.formats.label_file import LabelsRead, Project
from crowdshot.labels.matching import match_files
from crowdshot.labels.spelling import members, parts
from crowdshot.version import __version__

FilePath = str | os.PathLike[str]
Writer = Callable[[FilePath, pd.DataFrame, LabelsRead], None]


def to_label_studio(
    table: pd.DataFrame, labels: LabelsRead, *, model_version: str | None = None, by_id: bool = False
) -> list[dict[str, Any]]:
    """Return a consensus as predictions for Label Studio (1.23), with the confidence as score.

    Parameters
    ----------
    table : DataFrame
        The consensus.
    labels : LabelsRead
        If the labels come from an export of Label Studio, the result has all its tasks, also those nobody labelled.
    model_version : str, optional
        By default "crowdshot-" and the version of crowdshot.
    by_id : bool
        Return predictions for existing tasks by id, for ``/api/projects/<id>/import/predictions``, instead of tasks
        with their data, for import into a project as a file.

    Returns
    -------
    list of dict
    """
    columns = labels.annotations.columns
    for name in (columns.item, columns.label, "confidence"):
        if name not in table:
            raise CrowdshotError(
                f"has no column {name!r}, which predictions for Label Studio need",
                where="the consensus",
                found=list(table.columns),
            )
    project = labels.project or Project()
    tasks = _tasks(table[columns.item].tolist(), labels.project)
    names, scores = table[columns.label].tolist(), table["confidence"].tolist()
    out: list[dict[str, Any]] = []
    for row, task_id, data in tasks:
        if not math.isfinite(scores[row]):
            continue  # nobody labelled the item, and there is no classifier
        prediction = {
            "model_version": model_version or f"crowdshot-{__version__}",
            "score": float(scores[row]),
            "result": [
                {
                    "from_name": project.from_name,
                    "to_name": project.to_name,
                    "type": "choices",
                    "value": {"choices": _label_names(names[row], labels)},
                }
            ],
        }
        if not by_id:
            known = {} if task_id is None else {"id": task_id}
            out.append({**known, "data": data, "predictions": [prediction]})
        elif task_id is None:
            item = show(table[columns.item].iloc[row])
            raise CrowdshotError(
                "has no task id", where=f"item {item}", expected="labels from an export of Label Studio"
            )
        else:
            out.append({"task": task_id, **prediction})
    return out


def _label_names(label: Any, labels: LabelsRead) -> list[str]:
    """Return the labels of a consensus label, which may be a set."""
    return parts(label) if labels.several else [str(label)]


def _tasks(items: list[Any], project: Project | None) -> list[tuple[int, Any, dict[str, Any]]]:
    """Return (row of the consensus, task id, data) for each task whose item is in the consensus."""
    if project is None:
        return [(row, None, {Project().data_key: str(item)}) for row, item in enumerate(items)]
    row_of = {str(item): row for row, item in enumerate(items)}
    names = np.array([task.item for task in project.tasks], dtype=object)
    taken = {row_of[name] for name in names if name in row_of}
    files = match_files(names, [PurePosixPath(str(item)) for item in items]).tolist()  # for tasks nobody labelled
    rows = [row_of.get(name, -1 if file in taken else file) for name, file in zip(names, files, strict=True)]
    return [(row, task.id, task.data) for row, task in zip(rows, project.tasks, strict=True) if row >= 0]


def check_unanswered(out: Path, label: str) -> None:
    """Refuse to replace an earlier table of questions that has answers in the column ``label``."""
    if out.suffix.lower() == ".json" or not out.is_file() or not out.stat().st_size:
        return
    table = read_table(out)
    answers = sum(map(bool, table.text(table.header.index(label)))) if label in table.header else 0
    if answers:
        stem = re.sub(r"-\d+$", "", out.stem)
        names = (out.with_name(f"{stem}-{number}{out.suffix}") for number in itertools.count(2))
        free = next(name for name in names if not name.exists())
        raise CrowdshotError(
            f"has {plural(answers, 'answer')}, which would be lost", where=out, hint=Use("for this round", out=free)
        )


def write_questions(
    path: FilePath, table: pd.DataFrame, labels: LabelsRead, texts: Mapping[Any, str] | None = None
) -> None:
    """Write questions as tasks for import into Label Studio, in the same order.

    A task has the item's data and three more fields: ``next_item``, by which `label_studio` recognises the item, and
    ``next_annotator`` and ``next_gain`` for filters and sorting. Tasks have no predictions, because annotators tend to
    agree with an answer that they see. A table without gains has questions with known answers; its tasks have no field
    that is called like a known answer.

    Parameters
    ----------
    path : path-like
    table : DataFrame
        A row per question with the item, the annotator and, unless answers are known, the gain.
    labels : LabelsRead
    texts : mapping, optional
        Item -> text, used if the labels do not come from a project of Label Studio.
    """
    columns = labels.annotations.columns
    items = list(dict.fromkeys(table[columns.item].tolist()))
    key = (labels.project or Project()).data_key
    data_of = {item: {key: str(item)} for item in items}  # replaced by the data of the export, if there is one
    for row, _, data in reversed(_tasks(items, labels.project)):  # the first task of an item wins
        data_of[items[row]] = data
    if texts is not None and labels.project is None:
        data_of = {item: {"text": texts[item]} for item in items}
    tasks: list[dict[str, Any]] = [
        {"data": {**data_of[item], "next_item": str(item), "next_annotator": str(annotator)}}
        for item, annotator in zip(table[columns.item], table[columns.annotator], strict=True)
    ]
    if "gain" in table:
        for task, gain in zip(tasks, table["gain"], strict=True):
            task["data"]["next_gain"] = float(f"{gain:.6g}")
    else:
        for task in tasks:
            task["data"] = {name: cell for name, cell in task["data"].items() if plain(name) not in TRUTH}
    _write_json(path, tasks)


def soft_labels(ann: Annotations, names: Ids, probabilities: NDArray[np.float64]) -> pd.DataFrame:
    """Return the label distribution of each item, to train on instead of one label.

    The columns are the item, ``label`` (the position of the most probable class in ``names``), ``probabilities`` (of
    the consensus), ``shares`` (of the annotators' labels, None if there are none) and ``n_labels``. Lists have a number
    for each class in the order of ``names``. If classes are sets of labels, ``names`` are the single labels, their
    shares are those of the answers that name them, and there is no column ``label``.

    Parameters
    ----------
    ann : Annotations
    names : (K,) array
    probabilities : (N, K) array
    """
    size = ann.n_items, ann.n_classes
    counts = np.bincount(ann.item * size[1] + ann.label, minlength=size[0] * size[1]).reshape(size).astype(float)
    n_labels = counts.sum(1).astype(int)
    is_set = len(names) != size[1] or (names != ann.classes).any()
    shares = (counts @ members(ann.classes, names) if is_set else counts) / np.maximum(n_labels, 1)[:, None]
    table = pd.DataFrame({ann.columns.item: as_index(ann.items)})
    if not is_set:
        table["label"] = probabilities.argmax(1)
    table["probabilities"] = probabilities.tolist()
    table["shares"] = [row if n else None for row, n in zip(shares.tolist(), n_labels, strict=True)]
    return table.assign(n_labels=n_labels)


def write_soft_labels(path: FilePath, table: pd.DataFrame, names: Ids) -> None:
    """Write the table of `soft_labels`: lists in JSON lines and Parquet, columns ``p_`` and ``share_`` in CSV."""
    ending = Path(path).suffix
    if ending == ".parquet":
        _write_parquet(path, table)
    elif ending == ".jsonl":
        rows = (json.dumps(row, ensure_ascii=False) for row in table.to_dict("records"))
        _write_text(path, "".join(f"{row}\n" for row in rows))
    else:
        blank = [None] * len(names)
        parts = [table.drop(columns=["probabilities", "shares"])]
        for prefix, name in (("p_", "probabilities"), ("share_", "shares")):
            cells = [blank if row is None else row for row in table[name]]
            parts.append(pd.DataFrame(cells, columns=[f"{prefix}{each}" for each in names]))
        _write_csv(path, pd.concat(parts, axis=1))


def _write_json(path: FilePath, content: list[Any] | dict[str, Any]) -> None:
    _write_text(path, json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1) + "\n")


def _write_text(path: FilePath, text: str) -> None:
    with replacing(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def _write_label_studio(path: FilePath, table: pd.DataFrame, labels: LabelsRead, by_id: bool = False) -> None:
    _write_json(path, to_label_studio(table, labels, by_id=by_id))


def to_coco(table: pd.DataFrame, labels: LabelsRead) -> dict[str, Any]:
    """Return a consensus in the layout of COCO: annotations with a category and a score, without boxes.

    COCO has no format for labels of whole images. If labels are sets, each label of an item is an annotation with the
    score of the whole set. The file name comes from the column ``file`` if the table has it, otherwise it is the item;
    width and height come from columns of these names.
    """
    columns = labels.annotations.columns
    items, consensus, scores = (table[name].tolist() for name in (columns.item, columns.label, "confidence"))
    files = table["file"].tolist() if "file" in table else list(map(str, items))
    number = {str(name): i for i, name in enumerate(labels.names, 1)}
    rows = enumerate(zip(consensus, scores, strict=True), 1)
    tags = [(i, name, score) for i, (label, score) in rows for name in _label_names(label, labels)]
    sizes = table[["width", "height"]].to_dict("records") if "width" in table else [{}] * len(table)
    return {
        "info": {"description": f"crowdshot-{__version__}"},
        "images": [
            {"id": i, "file_name": file, "item": str(item), **size}
            for i, (file, item, size) in enumerate(zip(files, items, sizes, strict=True), 1)
        ],
        "categories": [{"id": i, "name": name} for name, i in number.items()],
        "annotations": [
            {"id": i, "image_id": image, "category_id": number[name], "score": float(score)}
            for i, (image, name, score) in enumerate(tags, 1)
        ],
    }


def to_argilla(table: pd.DataFrame, labels: LabelsRead) -> list[dict[str, Any]]:
    """Return a consensus as records of Argilla 2 with suggestions, for ``records.from_json``.

    The field and the question have the column names of the input. If labels are sets, a suggestion has a list of labels
    and, as Argilla requires, a list of scores, each the score of the whole set.
    """
    columns = labels.annotations.columns
    rows = zip(table[columns.item], table[columns.label], table["confidence"], strict=True)
    agent = f"crowdshot-{__version__}"
    out: list[dict[str, Any]] = []
    for item, label, score in rows:
        number, names = float(score), _label_names(label, labels)
        suggestion = (
            {"value": names, "score": [number] * len(names)} if labels.several else {"value": names[0], "score": number}
        )
        out.append(
            {
                "id": str(item),
                "fields": {columns.item: str(item)},
                "metadata": {},
                "suggestions": {columns.label: {**suggestion, "agent": agent}},
                "responses": {},
                "vectors": {},
            }
        )
    return out


def to_cvat(table: pd.DataFrame, labels: LabelsRead) -> str:
    """Return a consensus in the format "CVAT for images 1.1", with a tag for each label; items are names of images."""
    columns = labels.annotations.columns
    root = ElementTree.Element("annotations")
    ElementTree.SubElement(root, "version").text = "1.1"
    sizes = table[["width", "height"]].astype(str).to_dict("records") if "width" in table else [{}] * len(table)
    rows = zip(table[columns.item], table[columns.label], sizes, strict=True)
    for i, (item, label, size) in enumerate(rows):
        image = ElementTree.SubElement(root, "image", {"id": str(i), "name": _for_xml(item), **size})
        for name in _label_names(label, labels):
            ElementTree.SubElement(image, "tag", {"label": _for_xml(name), "source": "auto"})
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _for_xml(name: Any) -> str:
    """Replace the characters that XML does not allow."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\N{REPLACEMENT CHARACTER}", str(name))


def _write_csv(path: FilePath, table: pd.DataFrame, index: bool = False) -> None:
    if index:
        table = pd.concat([table.index.to_frame(name=table.index.name or ""), table], axis=1)
    with io.StringIO(newline="") as text:
        write_csv(table, text)
        _write_text(path, text.getvalue())


def _write_parquet(path: FilePath, table: pd.DataFrame, labels: LabelsRead | None = None) -> None:
    with replacing(Path(path)) as temporary:
        try:
            table.to_parquet(temporary, index=False)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise CrowdshotError(f"could not be written as Parquet ({first_line(error)})", where=path) from error


WRITERS: dict[str, Writer] = {
    "csv": lambda path, table, labels: _write_csv(path, table),
    "parquet": _write_parquet,
    "label-studio": _write_label_studio,
    "label-studio-by-id": lambda path, table, labels: _write_label_studio(path, table, labels, by_id=True),
    "crowdkit": lambda path, table, labels: _write_csv(path, labels.annotations.to_crowdkit()),
    "coco": lambda path, table, labels: _write_json(path, to_coco(table, labels)),
    "argilla": lambda path, table, labels: _write_json(path, to_argilla(table, labels)),
    "cvat": lambda path, table, labels: _write_text(path, to_cvat(table, labels)),
    "cleanlab": lambda path, table, labels: _write_csv(path, labels.annotations.to_cleanlab(), index=True),
}
