"""Export the accepted items as a training dataset and for label tools.

The folder contains

- clean.csv: the accepted items with their labels;
- images/: a folder of images for each class, and metadata.csv, as a Hugging Face imagefolder. If items have sets of
  labels, there are no class folders, and metadata.csv has the labels;
- coco.json: images, categories, and annotations with image_id, category_id and score;
- crowdkit.csv, cleanlab.csv: all labels of these items;
- label-studio.json, argilla.json, cvat.xml: the consensus labels as predictions;
- soft-labels.jsonl, .parquet and .csv: the label distributions of all items, and classes.json: their classes in order.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError, CrowdshotWarning
from crowdshot.io.atomic import write_csv, write_exactly, write_folder
from crowdshot.io.cells import Ids
from crowdshot.io.file_names import safe_names
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.consensus import THRESHOLD
from crowdshot.labels.formats import WRITERS
from crowdshot.labels.formats.label_file import LabelsRead
from crowdshot.labels.formats.writers import soft_labels, write_soft_labels
from crowdshot.model.parts import MANY

METADATA = "metadata.csv"
BY_TOOL = {
    "coco.json": "coco",
    "crowdkit.csv": "crowdkit",
    "cleanlab.csv": "cleanlab",
    "label-studio.json": "label-studio",
    "argilla.json": "argilla",
    "cvat.xml": "cvat",
}


class Export(NamedTuple):
    """Options of an export.

    Attributes
    ----------
    folder : Path
        Where to write.
    threshold : float
        Least probability of the label of an exported item.
    copies : bool
        Whether to copy images instead of linking them.
    """

    folder: Path
    threshold: float = THRESHOLD
    copies: bool = False

    def check(self, *inputs: Path | None) -> None:
        """Raise an error, before the work starts, if the export would overwrite inputs or other files."""
        if not 0 <= self.threshold <= 1:
            raise CrowdshotError(
                f"is {self.threshold:g}",
                argument="threshold",
                found=self.threshold,
                expected="a probability from 0 to 1",
            )
        here = self.folder.resolve()
        for source in inputs:
            there = None if source is None else source.resolve()
            if there is not None and (here == there or there in here.parents or here in there.parents):
                raise CrowdshotError(
                    f"is {self.folder}, which overlaps with {source}",
                    argument="export",
                    found=str(self.folder),
                    expected="a separate folder",
                )
        old = self.folder / "images"
        if old.exists() and not (old / METADATA).is_file():
            raise CrowdshotError(
                "exists and was not exported by crowdshot",
                where=old,
                hint="Choose another folder for the export.",
            )


def write_export(
    export: Export,
    consensus: pd.DataFrame,
    annotations: Annotations,
    labels: LabelsRead,
    images: Sequence[Path] = (),
    texts: Sequence[str] = (),
    overwrite: bool = False,
    soft: tuple[Ids, NDArray[np.float64]] | None = None,
) -> list[Path]:
    """Write the export of a consensus and return the written files.

    Parameters
    ----------
    export : Export
        Where and what to write.
    consensus : DataFrame
        A row for each item of ``annotations``.
    annotations : Annotations
        The labels.
    labels : LabelsRead
        The labels as they were read, with information about the format.
    images, texts : sequences
        The image files or the texts of the items, if there are any.
    overwrite : bool
        Whether to replace an existing export.
    soft : (array, array), optional
        The classes (K,) and the probabilities (N, K), for the label distributions; not written for very many classes.

    Returns
    -------
    list of Path
        The written files.
    """
    rows = np.flatnonzero(consensus["confidence"].to_numpy() >= export.threshold)
    if len(rows) == 0:
        _warn_empty(export, consensus["confidence"].max())
    clean = consensus.iloc[rows].reset_index(drop=True)
    if texts and "text" not in clean:
        clean = clean.assign(text=[texts[row] for row in rows.tolist()])
    place = np.full(annotations.n_items, -1)
    place[rows] = np.arange(len(rows))
    about = replace(labels, annotations=annotations.with_items(place, annotations.items[rows]))
    listed = clean
    writers: dict[str, Callable[[Path], None]] = {"clean.csv": partial(write_csv, clean)}
    if images:
        sources = [images[row] for row in rows.tolist()]
        names = clean[annotations.columns.label]
        files = safe_names((s.name for s in sources), [METADATA]) if labels.several else _files(names, sources)
        listed = clean.assign(file=files, **_sizes(sources))
        folder = export.folder.resolve() / "images"
        writers["images"] = lambda path: _write_images(path, folder, files, sources, clean, about, export.copies)
    for name, tool in BY_TOOL.items():
        writers[name] = lambda path, write=WRITERS[tool]: write(path, listed, about)  # type: ignore[misc]
    if soft is not None and len(soft[0]) <= MANY:
        writers |= _soft_writers(annotations, *soft, texts)
    return write_folder(export.folder, writers, overwrite)


def _soft_writers(
    annotations: Annotations, names: Ids, probabilities: NDArray[np.float64], texts: Sequence[str]
) -> dict[str, Callable[[Path], None]]:
    """Return the writers of the label distributions of all items, and of the classes in their order."""
    table = soft_labels(annotations, names, probabilities)
    if texts and "text" not in table:
        table.insert(1, "text", list(texts))
    ordered = json.dumps([str(name) for name in names], ensure_ascii=False, indent=1) + "\n"
    writers: dict[str, Callable[[Path], None]] = {
        f"soft-labels{ending}": lambda path: write_soft_labels(path, table, names)
        for ending in (".jsonl", ".parquet", ".csv")
    }
    writers["classes.json"] = lambda path: _write_classes(path, ordered)
    return writers


def _write_classes(path: Path, ordered: str) -> None:
    path.write_text(ordered, encoding="utf-8", newline="\n")


def _warn_empty(export: Export, highest: float) -> None:
    warnings.warn(
        CrowdshotWarning(
            f"No item has a probability of {export.threshold:g} or more (the highest is {highest:.3g}), so the export"
            " is empty",
            argument="threshold",
            found=export.threshold,
            where=export.folder,
        ),
        stacklevel=3,
    )


def _files(labels: pd.Series[str], sources: Sequence[Path]) -> list[str]:
    """Return the path of each image below the image folder, "class/name"."""
    classes = list(dict.fromkeys(labels))
    folder = dict(zip(classes, safe_names(classes, taken=[METADATA]), strict=True))
    out = [""] * len(sources)
    for name in classes:
        rows = np.flatnonzero((labels == name).to_numpy())
        for row, file in zip(rows.tolist(), safe_names(sources[row].name for row in rows.tolist()), strict=True):
            out[row] = f"{folder[name]}/{file}"
    return out


def _sizes(sources: Sequence[Path]) -> dict[str, list[int]]:
    from PIL import Image  # imported late: exports without images do not need it

    sizes = []
    for source in sources:
        with Image.open(source) as image:
            sizes.append(image.size)
    return {"width": [width for width, _ in sizes], "height": [height for _, height in sizes]}


def _write_images(
    path: Path,
    final: Path,
    files: Sequence[str],
    sources: Sequence[Path],
    clean: pd.DataFrame,
    labels: LabelsRead,
    copies: bool,
) -> None:
    """Write the images to ``path``; links are relative to ``final``, where the folder is moved afterwards."""
    path.mkdir()
    for file, source in zip(files, sources, strict=True):
        target = path / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if copies or not _linked(target, os.path.relpath(source.resolve(), (final / file).parent)):
            shutil.copyfile(source, target)
    table = pd.DataFrame({"file_name": files, "label": clean[labels.annotations.columns.label]})
    write_exactly(table.assign(confidence=clean["confidence"]), path / METADATA)


def _linked(target: Path, to: str) -> bool:
    """Create a link and return whether it worked: some systems do not allow links."""
    try:
        target.symlink_to(to)
    except OSError:
        return False
    return True
