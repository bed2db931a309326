"""Open the items to classify: a folder of images, a file of features, or texts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.encoders.encoder import FILES, Encoder
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.encoders.image_input import BadImage, list_images
from crowdshot.encoders.text_input import unreadable
from crowdshot.errors import CrowdshotError, Use
from crowdshot.formatting import shown
from crowdshot.io.cells import Ids
from crowdshot.io.embedding_store import content_key, is_active, remembered
from crowdshot.io.feature_files import read_feature_file
from crowdshot.io.image_decoding import UnreadableError, decode, quiet_pillow
from crowdshot.progress import Tick

AT_ONCE = 256  # images that are checked between two progress reports
THREADS = min(16, os.cpu_count() or 1)
FEW = 3  # unreadable items that a message names


@dataclass(frozen=True)
class Items:
    """N items of one kind.

    Attributes
    ----------
    kind : str
        "images", "features" or "texts".
    source : str
        File or folder, for messages.
    ids : (N,) array
        Ids from the file, or paths relative to the folder.
    X : list, array or DataFrame
        The items, in the form that an encoder accepts.
    are_files : bool
        Whether ids are file names.
    called : (N,) array or None
        Names in results, if they differ from ids.
    """

    kind: Literal["images", "features", "texts"]
    source: str
    ids: Ids
    X: list[Path] | list[str] | NDArray[np.float32] | pd.DataFrame
    are_files: bool = False
    called: Ids | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, wanted: NDArray[np.int64]) -> Items:
        called = None if self.called is None else self.called[wanted]
        if isinstance(self.X, list):
            return replace(self, ids=self.ids[wanted], X=[self.X[i] for i in wanted], called=called)
        X = self.X.iloc[wanted] if isinstance(self.X, pd.DataFrame) else self.X[wanted]
        return replace(self, ids=self.ids[wanted], X=X, called=called)

    @property
    def paths(self) -> list[Path]:
        """Return the files of images; empty for other kinds."""
        return [x for x in self.X if isinstance(x, Path)] if self.kind == "images" else []

    @property
    def texts(self) -> list[str]:
        return [x for x in self.X if isinstance(x, str)] if self.kind == "texts" else []


def open_items(
    images: str | os.PathLike[str] | None,
    features: str | os.PathLike[str] | None,
    mixed: bool | None = False,
    wanted: Sequence[str] | None = None,
) -> Items:
    """Open the images below a folder, or the vectors of a file; ``mixed`` and ``wanted`` as in `read_feature_file`."""
    if (images is None) == (features is None):
        if images is not None:
            raise CrowdshotError("is given together with features", argument="images", expected="one of the two")
        raise CrowdshotError(
            "Images, features and texts are all missing", argument="images", expected="one of the three"
        )
    if images is not None:
        paths = list_images(images)
        ids = np.array([shown(name) for name in paths], dtype=object)  # valid text, even for undecodable file names
        return Items("images", shown(images), ids, list(paths.values()), are_files=True)
    assert features is not None
    file = read_feature_file(features, mixed, wanted)
    return Items("features", os.fspath(features), file.ids, file.features)


def check_kind(encoder: Encoder, items: Items, called: str) -> None:
    """Raise an error unless the encoder, or the model that holds it (``called``), was made for this kind of items."""
    if encoder.input is not None and encoder.input.kind != items.kind:
        raise CrowdshotError(
            f"holds {items.kind}",
            where=items.source,
            found=items.kind,
            expected=f"{encoder.input.describe()}, which {called} was made for",
            hint=Use("for such items", **{encoder.input.kind: "PATH"}),
        )
    width = encoder.input.n_features if isinstance(encoder.input, FeatureInput) else None
    check_width(items, width, called)


def check_width(items: Items, expected: int | None, called: str) -> None:
    if expected is not None and not isinstance(items.X, list) and items.X.shape[1] != expected:
        raise CrowdshotError(
            f"has {items.X.shape[1]} features per item",
            where=items.source,
            found=items.X.shape[1],
            expected=f"{expected}, which {called} was made for",
        )


def find_readable(items: Items, skip: bool, tick: Tick, some: bool = True) -> tuple[NDArray[np.int64], list[BadImage]]:
    """Return the positions of readable items, and the unreadable ones, which are an error unless ``skip`` is true.

    Every image is decoded once here, before work that a bad image would interrupt. ``some``: raise an error if all
    items are unreadable.
    """
    if not isinstance(items.X, list):
        return np.arange(len(items)), []

    def fault(item: Path | str) -> str | None:
        if isinstance(item, str):
            return unreadable(item)
        try:
            decode(item, {})
        except UnreadableError as error:
            return str(error)
        return None

    X, faults = items.X, dict[int, str]()

    def check(places: list[int], start: int) -> Iterator[NDArray[np.float32]]:
        with quiet_pillow(), ThreadPoolExecutor(THREADS) as pool:
            for first in range(0, len(places), AT_ONCE):
                part = [start + place for place in places[first : first + AT_ONCE]]
                reasons = list(pool.map(fault, (X[place] for place in part)))
                faults.update((place, why) for place, why in zip(part, reasons, strict=True) if why is not None)
                yield np.array([[why is None] for why in reasons], np.float32)

    files = items.kind == "images" and is_active()
    for start in range(0, len(items), FILES):
        keys = [content_key(x) if files else None for x in X[start : start + FILES]]
        done = start
        for places, marks in remembered("readable", keys, partial(check, start=start)):  # cached marks come first
            for place in (start + places[row] for row in np.flatnonzero(marks[:, 0] == 0)):
                if place not in faults and (why := fault(X[place])) is not None:
                    faults[place] = why
            done += len(places)
            tick(done, len(items))
    bad = [BadImage(i, shown(items.ids[i]), why) for i, why in sorted(faults.items())]
    if bad and ((some and len(bad) == len(items)) or not skip):
        named = "; ".join(f"{image.name} {image.reason}" for image in bad[:FEW])
        more = f"; and {len(bad) - FEW} more" if len(bad) > FEW else ""
        raise CrowdshotError(
            f"has {len(bad)} {items.kind} of {len(items)} that cannot be read ({named}{more})",
            where=items.source,
            found=[image.name for image in bad[:FEW]],
            hint=None if skip else Use("to leave them out", skip_bad=True),
        )
    return np.setdiff1d(np.arange(len(items)), list(faults)), bad
