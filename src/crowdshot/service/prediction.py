"""Predict the items of a request with the newest classifier."""

from __future__ import annotations

import base64
import binascii
import io
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from crowdshot.classifier.crowd_classifier import CrowdClassifier
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first
from crowdshot.io.image_decoding import quiet_pillow
from crowdshot.service.schemas import Prediction, ToPredict

MOST_PIXELS = 50_000_000  # of one image
MOST_IN_ALL = 200_000_000  # pixels of the images of a request
AT_ONCE = 4_000_000  # pixels of images that are decoded and predicted together
KINDS = ("features", "texts", "images")


class Predictor:
    """Predict with the classifier of a file, which is loaded at the first request and kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._clf: CrowdClassifier | None = None

    def predict(self, path: Path, request: ToPredict) -> list[Prediction]:
        with self._lock:
            clf = self._load(path)
            items = items_of(request, clf)
            if request.images is None:
                return self._predictions(clf, items)
            return [each for batch in batches(items) for each in self._predictions(clf, batch)]

    def predict_pictures(self, path: Path, pictures: Sequence[Picture]) -> list[Prediction]:
        """Return predictions for pictures; an empty list if the classifier is for other items."""
        with self._lock:
            clf = self._load(path)
            if kind_of_items(clf) != "images":
                return []
            return [each for batch in batches(pictures) for each in self._predictions(clf, batch)]

    def _load(self, path: Path) -> CrowdClassifier:
        if path != self._path or self._clf is None:
            self._clf, self._path = CrowdClassifier.load(path), path
        return self._clf

    def _predictions(self, clf: CrowdClassifier, X: Any) -> list[Prediction]:
        probabilities = clf.predict_proba(X)
        names = [str(name) for name in clf.classes_]
        return [
            Prediction(
                label=names[int(p.argmax())],
                confidence=float(p.max()),
                probabilities=dict(zip(names, map(float, p), strict=True)),
            )
            for p in probabilities.clip(0, 1)
        ]


def kind_of_items(clf: CrowdClassifier) -> str:
    return "features" if clf.encoder_.input is None else clf.encoder_.input.kind


def items_of(request: ToPredict, clf: CrowdClassifier) -> Any:
    """Return the items of a request in the form that the classifier takes.

    Raises an error if the request has another kind of items, or items of another shape.
    """
    kinds = [kind for kind in KINDS if getattr(request, kind) is not None]
    kind = kind_of_items(clf)
    if kinds != [kind]:
        raise CrowdshotError(
            f"The request has {' and '.join(kinds) or 'nothing to predict'}, but the classifier predicts {kind}",
            found=kinds,
            expected=f"only {kind}",
        )
    if request.texts is not None:
        return list(request.texts)
    if request.images is not None:
        return [_picture(place, text) for place, text in enumerate(request.images, 1)]
    rows = request.features or []
    width = getattr(clf, "n_features_in_", None)
    if isinstance(clf.encoder_.input, FeatureInput):
        width = clf.encoder_.input.n_features
    for place, row in enumerate(rows, 1):
        if len(row) != (width or len(rows[0])):
            raise CrowdshotError(
                f"has {len(row)} numbers",
                where=f"features, item {place}",
                found=len(row),
                expected=f"{width or len(rows[0])}",
            )
    X = np.array(rows, dtype=np.float64)
    large = (np.abs(X) > np.finfo(np.float32).max).any(1)
    if large.any():
        raise CrowdshotError(
            "has a number above 3.4e38", where=f"features, item {first(large) + 1}", expected="smaller numbers"
        )
    return X.astype(np.float32)


class Picture:
    """The file of an image. Its pixels are decoded only while it is predicted: a few bytes can claim a billion."""

    def __init__(self, data: bytes, place: str) -> None:
        self._data, self._place = data, place
        with self._readable() as image:
            width, height = image.size
        self.pixels = width * height
        if self.pixels > MOST_PIXELS:
            raise self._too_large()

    def decode(self) -> Image.Image:
        with self._readable() as image:
            image.load()
            return image

    @contextmanager
    def _readable(self) -> Iterator[Image.Image]:
        try:
            with quiet_pillow():
                yield Image.open(io.BytesIO(self._data))
        except Image.DecompressionBombError:
            raise self._too_large() from None
        except Exception:  # Pillow raises many kinds of errors for damaged bytes
            expected = "a format such as JPEG or PNG"
            raise CrowdshotError("is not a readable image", where=self._place, expected=expected) from None

    def _too_large(self) -> CrowdshotError:
        return CrowdshotError("has too many pixels", where=self._place, expected=f"at most {MOST_PIXELS:,}")


def batches(pictures: Sequence[Picture]) -> Iterator[list[Image.Image]]:
    """Decode pictures a few at a time.

    Raises an error before any is decoded if they have too many pixels together.
    """
    total = sum(picture.pixels for picture in pictures)
    if total > MOST_IN_ALL:
        raise CrowdshotError(
            f"have {total:,} pixels together",
            where="images",
            found=total,
            expected=f"at most {MOST_IN_ALL:,} a request",
        )
    batch: list[Image.Image] = []
    pixels = 0
    for picture in pictures:
        if batch and pixels + picture.pixels > AT_ONCE:
            yield batch
            batch, pixels = [], 0
        batch.append(picture.decode())
        pixels += picture.pixels
    if batch:
        yield batch


def _picture(place: int, text: str) -> Picture:
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, ValueError):
        raise CrowdshotError(
            "is not valid base64", where=f"images, item {place}", expected="an image file in base64"
        ) from None
    return Picture(data, f"images, item {place}")
