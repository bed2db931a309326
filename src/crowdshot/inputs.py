"""What is to be classified, a folder of images or a file of features, and which of it the labels speak of."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from crowdshot.annotations import Annotations
from crowdshot.encoders import Encoder
from crowdshot.errors import CrowdshotError
from crowdshot.feature_files import read_feature_file
from crowdshot.features import FeatureInput
from crowdshot.ids import Ids, Positions, first, positions, show
from crowdshot.images import BadImage, ImageInput, list_images
from crowdshot.matching import match_files
from crowdshot.pixels import UnreadableError, decode, quiet_pillow, shown
from crowdshot.progress import Tick

AT_ONCE = 256  # images that are checked between two ticks
FEW = 3  # how many culprits a message names


@dataclass(frozen=True)
class Items:
    """N items of one kind. ``ids`` (N,): as the file calls them, or paths below the folder; ``X``: for an encoder."""

    kind: Literal["images", "features"]
    source: str
    ids: Ids
    X: list[Path] | NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, wanted: Positions) -> Items:
        X = [self.X[i] for i in wanted] if isinstance(self.X, list) else self.X[wanted]
        return replace(self, ids=self.ids[wanted], X=X)


def open_items(images: str | os.PathLike[str] | None, features: str | os.PathLike[str] | None) -> Items:
    """The images below a folder, or the vectors of a file: one of the two."""
    if (images is None) == (features is None):
        given = "both" if images is not None else "neither"
        raise CrowdshotError(f"expected either --images or --features, got {given}.")
    if images is not None:
        paths = list_images(images)
        ids = np.array([shown(name) for name in paths], dtype=object)  # text, even where a file's name is none
        return Items("images", shown(images), ids, list(paths.values()))
    assert features is not None
    file = read_feature_file(features)
    return Items("features", os.fspath(features), file.ids, file.features)


def check_kind(encoder: Encoder, items: Items, called: str) -> None:
    """Is the encoder, or the model that holds it (``called`` in the message), made for items of this kind?"""
    made_for = {ImageInput: "images", FeatureInput: "features"}.get(type(encoder.input))  # type: ignore[arg-type]
    if made_for is not None and made_for != items.kind:
        assert encoder.input is not None
        raise CrowdshotError(
            f"{called} was made for {encoder.input.describe()}, got {items.kind} from {items.source}: use --{made_for}."
        )
    width = encoder.input.n_features if isinstance(encoder.input, FeatureInput) else None
    check_width(items, width, called)


def check_width(items: Items, expected: int | None, called: str) -> None:
    if expected is not None and isinstance(items.X, np.ndarray) and items.X.shape[1] != expected:
        raise CrowdshotError(
            f"{items.source} has {items.X.shape[1]} features an item, expected {expected}, for which {called} was made."
        )


def match(annotations: Annotations, items: Items, skip: bool) -> tuple[Annotations, list[str]]:
    """The same labels, but their items are ``items``, in that order, labelled or not; and the ids of those not found.

    A labelled image goes by the id that the labels use. Labelled items that are not among ``items`` are an error or,
    with ``skip``, left out.
    """
    row = _find(annotations.items, items)
    lost = row < 0
    what = "image" if items.kind == "images" else "features"
    if lost.any() and (lost.all() or not skip):
        _refuse_shared_name(annotations.items[first(lost)], items)
        stranger, number = show(annotations.items[first(lost)]), f"{lost.sum()} of the {len(row)} labelled items"
        raise CrowdshotError(
            f"{items.source} has no {what} for {number}, first {stranger} (it has {show(items.ids[0])}, for instance)"
            + ("." if lost.all() else "; --skip-bad leaves them out.")
        )
    found = np.flatnonzero(~lost)
    taken, times = np.unique(row[found], return_counts=True)
    if (times > 1).any():
        file = taken[first(times > 1)]
        names = annotations.items[row == file]
        raise CrowdshotError(
            f"items {show(names[0])} and {show(names[1])} both mean {show(items.ids[file])} in {items.source},"
            " expected one item an image."
        )
    ids = items.ids.copy()
    ids[row[found]] = annotations.items[found]
    kept = row[annotations.item] >= 0
    matched = replace(
        annotations,
        item=row[annotations.item][kept],
        annotator=annotations.annotator[kept],
        label=annotations.label[kept],
        items=ids,
    )
    return matched, [str(name) for name in annotations.items[lost]]


def _refuse_shared_name(name: object, items: Items) -> None:
    """An image that several files are called by is not missing."""
    bare = PurePosixPath(str(name).replace("\\", "/")).name
    same = [show(other) for other in items.ids if PurePosixPath(str(other)).name == bare]
    if items.kind == "images" and len(same) > 1:
        raise CrowdshotError(
            f"{show(name)} may mean {same[0]} or {same[1]} in {items.source}, expected the folder before the name."
        )


def _find(ids: Ids, items: Items) -> Positions:
    if isinstance(items.X, np.ndarray):
        return positions(items.ids, ids)
    root = Path(items.source).resolve()
    row = match_files(ids, [Path(name) for name in items.ids])
    rest = row < 0  # some tables name files from further up than the folder
    row[rest] = match_files(ids[rest], [root / name for name in items.ids])
    return row


def find_readable(items: Items, skip: bool, tick: Tick) -> tuple[Positions, list[BadImage]]:
    """Positions of the images that can be read, and those that cannot, which are an error unless they are skipped.

    Every image is decoded once here, before any work that a bad one could spoil.
    """
    if isinstance(items.X, np.ndarray):
        return np.arange(len(items)), []

    def fault(path: Path) -> str | None:
        try:
            decode(path, {})
        except UnreadableError as error:
            return str(error)
        return None

    faults: list[str | None] = []
    with quiet_pillow(), ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for start in range(0, len(items), AT_ONCE):
            faults += pool.map(fault, items.X[start : start + AT_ONCE])
            tick(len(faults), len(items))
    bad = [BadImage(i, shown(items.ids[i]), why) for i, why in enumerate(faults) if why is not None]
    if bad and (len(bad) == len(items) or not skip):
        named = "; ".join(f"{image.name} {image.reason}" for image in bad[:FEW])
        more = f"; and {len(bad) - FEW} more" if len(bad) > FEW else ""
        hint = "" if skip else "; --skip-bad leaves them out"
        raise CrowdshotError(
            f"{len(bad)} of the {len(items)} images in {items.source} cannot be read: {named}{more}{hint}."
        )
    return np.array([i for i, why in enumerate(faults) if why is None], dtype=np.int64), bad
