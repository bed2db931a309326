"""Results -> files that people and label tools read; the registry is ``WRITERS``.

``table`` is always a consensus: a row for each item with the item, its label and the confidence, under the column
names of the labels that it came from. crowd-kit and cleanlab take the labels themselves, not the consensus.
"""

from __future__ import annotations

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

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import digits, show
from crowdshot.io.atomic import replacing
from crowdshot.labels.formats.label_file import LabelsRead, Project
from crowdshot.labels.label_sets import parts
from crowdshot.labels.matching import match_files
from crowdshot.version import __version__

FilePath = str | os.PathLike[str]
Writer = Callable[[FilePath, pd.DataFrame, LabelsRead], None]


def to_label_studio(
    table: pd.DataFrame, labels: LabelsRead, *, model_version: str | None = None, by_id: bool = False
) -> list[dict[str, Any]]:
    """A consensus as Label Studio's predictions (1.23), with the confidence as score.

    Tasks with their data, to be imported into a project as a file; those of the export that the labels came from, if
    they did, that nobody labelled included. With ``by_id``, predictions for tasks that are there already, each by its
    task's id: what ``/api/projects/<id>/import/predictions`` takes.
    """
    columns = labels.annotations.columns
    for name in (columns.item, columns.label, "confidence"):
        if name not in table:
            raise CrowdshotError(f"the consensus has no column {name!r}, expected it for Label Studio's predictions.")
    project = labels.project or Project()
    tasks = _tasks(table[columns.item].tolist(), labels.project)
    said, scores = table[columns.label].tolist(), table["confidence"].tolist()
    out: list[dict[str, Any]] = []
    for row, task_id, data in tasks:
        if not math.isfinite(scores[row]):
            continue  # of an item that nobody labelled nothing is known, unless there is a classifier
        prediction = {
            "model_version": model_version or f"crowdshot-{__version__}",
            "score": float(scores[row]),
            "result": [
                {
                    "from_name": project.from_name,
                    "to_name": project.to_name,
                    "type": "choices",
                    "value": {"choices": _named(said[row], labels)},
                }
            ],
        }
        if not by_id:
            known = {} if task_id is None else {"id": task_id}
            out.append({**known, "data": data, "predictions": [prediction]})
        elif task_id is None:
            item = show(table[columns.item].iloc[row])
            raise CrowdshotError(f"item {item} has no task's id, expected labels from an export of Label Studio.")
        else:
            out.append({"task": task_id, **prediction})
    return out


def _named(label: Any, labels: LabelsRead) -> list[str]:
    """The labels that an answer names: one, unless answers are sets."""
    return parts(label) if labels.several else [str(label)]


def _tasks(items: list[Any], project: Project | None) -> list[tuple[int, Any, dict[str, Any]]]:
    """(row of the consensus, the task's id, its data) for each task that the consensus speaks of."""
    if project is None:
        return [(row, None, {Project().data_key: str(item)}) for row, item in enumerate(items)]
    row_of = {str(item): row for row, item in enumerate(items)}
    names = np.array([task.item for task in project.tasks], dtype=object)
    taken = {row_of[name] for name in names if name in row_of}
    files = match_files(names, [PurePosixPath(str(item)) for item in items]).tolist()  # what nobody labelled
    rows = [row_of.get(name, -1 if file in taken else file) for name, file in zip(names, files, strict=True)]
    return [(row, task.id, task.data) for row, task in zip(rows, project.tasks, strict=True) if row >= 0]


def write_questions(
    path: FilePath, table: pd.DataFrame, labels: LabelsRead, texts: Mapping[Any, str] | None = None
) -> None:
    """Questions (item, annotator, gain; a row each) as tasks that Label Studio imports, in the same order.

    Each is the item's own data and three fields more: ``next_item``, by which `label_studio` knows the item again, and
    ``next_annotator`` and ``next_gain``, to filter and to sort by.
    There are no predictions in it: who sees an answer tends to agree with it. ``texts``: the items' own, where the
    labels came from no project that has them.
    """
    columns = labels.annotations.columns
    items = list(dict.fromkeys(table[columns.item].tolist()))
    key = (labels.project or Project()).data_key
    data_of = {item: {key: str(item)} for item in items}  # unless the export knows better
    for row, _, data in reversed(_tasks(items, labels.project)):  # of several tasks of an item, the first
        data_of[items[row]] = data
    if texts is not None and labels.project is None:
        data_of = {item: {"text": texts[item]} for item in items}
    asked = zip(table[columns.item], table[columns.annotator], table["gain"], strict=True)
    tasks = [
        {
            "data": {
                **data_of[item],
                "next_item": str(item),
                "next_annotator": str(annotator),
                "next_gain": float(f"{gain:.6g}"),
            }
        }
        for item, annotator, gain in asked
    ]
    _write_json(path, tasks)


def _write_json(path: FilePath, content: list[dict[str, Any]] | dict[str, Any]) -> None:
    _write_text(path, json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1) + "\n")


def _write_text(path: FilePath, text: str) -> None:
    with replacing(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def _write_label_studio(path: FilePath, table: pd.DataFrame, labels: LabelsRead, by_id: bool = False) -> None:
    _write_json(path, to_label_studio(table, labels, by_id=by_id))


def to_coco(table: pd.DataFrame, labels: LabelsRead) -> dict[str, Any]:
    """A consensus in the shape of COCO, which has no format for whole images: annotations with a category and a score.

    Where answers are sets, an annotation for each label of an item's, with the score of them all together. The
    file's name is that of the column ``file``, where the table has it, else the item; likewise width and height.
    """
    columns = labels.annotations.columns
    items, said, scores = (table[name].tolist() for name in (columns.item, columns.label, "confidence"))
    files = table["file"].tolist() if "file" in table else list(map(str, items))
    number = {str(name): i for i, name in enumerate(labels.names, 1)}
    rows = enumerate(zip(said, scores, strict=True), 1)
    tags = [(i, name, score) for i, (label, score) in rows for name in _named(label, labels)]
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
    """A consensus as suggestions of Argilla 2's records, as ``records.from_json`` reads them.

    The field and the question are called as in the labels' table. Where answers are sets, a suggestion has a list of
    labels and, as Argilla asks for, one of scores: for each that of them all together.
    """
    columns = labels.annotations.columns
    rows = zip(table[columns.item], table[columns.label], table["confidence"], strict=True)
    agent = f"crowdshot-{__version__}"
    out: list[dict[str, Any]] = []
    for item, label, score in rows:
        sure, names = float(score), _named(label, labels)
        each = {"value": names, "score": [sure] * len(names)} if labels.several else {"value": names[0], "score": sure}
        out.append(
            {
                "id": str(item),
                "fields": {columns.item: str(item)},
                "metadata": {},
                "suggestions": {columns.label: {**each, "agent": agent}},
                "responses": {},
                "vectors": {},
            }
        )
    return out


def to_cvat(table: pd.DataFrame, labels: LabelsRead) -> str:
    """A consensus as tags, in "CVAT for images 1.1", one a label; CVAT knows images by their names, the items'."""
    columns = labels.annotations.columns
    root = ElementTree.Element("annotations")
    ElementTree.SubElement(root, "version").text = "1.1"
    sizes = table[["width", "height"]].astype(str).to_dict("records") if "width" in table else [{}] * len(table)
    rows = zip(table[columns.item], table[columns.label], sizes, strict=True)
    for i, (item, label, size) in enumerate(rows):
        image = ElementTree.SubElement(root, "image", {"id": str(i), "name": _for_xml(item), **size})
        for name in _named(label, labels):
            ElementTree.SubElement(image, "tag", {"label": _for_xml(name), "source": "auto"})
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _for_xml(name: Any) -> str:
    """Without the characters that XML cannot hold."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\N{REPLACEMENT CHARACTER}", str(name))


def _write_csv(path: FilePath, table: pd.DataFrame, index: bool = False) -> None:
    _write_text(path, table.to_csv(index=index, float_format=digits, lineterminator="\n"))


def _write_parquet(path: FilePath, table: pd.DataFrame, labels: LabelsRead) -> None:
    with replacing(Path(path)) as temporary:
        try:
            table.to_parquet(temporary, index=False)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise CrowdshotError(f"{path} could not be written as Parquet ({str(error).splitlines()[0]}).") from error


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
