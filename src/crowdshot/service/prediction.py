"""What the newest classifier says of items that a request brings."""

from __future__ import annotations

import base64
import binascii
import io
import threading
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from crowdshot.classifier.crowd_classifier import CrowdClassifier
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first
from crowdshot.io.image_decoding import quiet_pillow
from crowdshot.service.schemas import ToPredict

MOST_PIXELS = 50_000_000  # of one image
KINDS = ("features", "texts", "images")


class Predictor:
    """Keeps the classifier of one file, which is loaded when somebody asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._clf: CrowdClassifier | None = None

    def predict(self, path: Path, given: ToPredict) -> list[dict[str, Any]]:
        with self._lock:
            clf = self._load(path)
            return self._said(clf, items_of(given, clf))

    def predict_pictures(self, path: Path, pictures: list[Image.Image]) -> list[dict[str, Any]]:
        """Nothing where the classifier was made for something else."""
        with self._lock:
            clf = self._load(path)
            return self._said(clf, pictures) if made_for(clf) == "images" and pictures else []

    def _load(self, path: Path) -> CrowdClassifier:
        if path != self._path or self._clf is None:
            self._clf, self._path = CrowdClassifier.load(path), path
        return self._clf

    def _said(self, clf: CrowdClassifier, X: Any) -> list[dict[str, Any]]:
        probabilities = clf.predict_proba(X)
        names = [str(name) for name in clf.classes_]
        return [
            {
                "label": names[int(p.argmax())],
                "confidence": float(p.max()),
                "probabilities": dict(zip(names, map(float, p), strict=True)),
            }
            for p in probabilities.clip(0, 1)
        ]


def made_for(clf: CrowdClassifier) -> str:
    return "features" if clf.encoder_.input is None else clf.encoder_.input.kind


def items_of(given: ToPredict, clf: CrowdClassifier) -> Any:
    """One kind of items, the one that the classifier was fitted with, as it takes them."""
    kinds = [kind for kind in KINDS if getattr(given, kind) is not None]
    kind = made_for(clf)
    if kinds != [kind]:
        found = " and ".join(kinds) or "nothing to predict"
        raise CrowdshotError(f"the request has {found}, expected {kind}, for which the classifier was made.")
    if given.texts is not None:
        return list(given.texts)
    if given.images is not None:
        return [_picture(place, text) for place, text in enumerate(given.images, 1)]
    rows = given.features or []
    width = getattr(clf, "n_features_in_", None)
    if isinstance(clf.encoder_.input, FeatureInput):
        width = clf.encoder_.input.n_features
    for place, row in enumerate(rows, 1):
        if len(row) != (width or len(rows[0])):
            raise CrowdshotError(f"features, item {place} has {len(row)} numbers, expected {width or len(rows[0])}.")
    X = np.array(rows, dtype=np.float64)
    large = (np.abs(X) > np.finfo(np.float32).max).any(1)
    if large.any():
        raise CrowdshotError(f"features, item {first(large) + 1} has a number above 3.4e38, expected smaller ones.")
    return X.astype(np.float32)


def _picture(place: int, text: str) -> Image.Image:
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, ValueError):
        raise CrowdshotError(f"images, item {place} is no base64, expected a file of an image in it.") from None
    return open_picture(data, f"images, item {place}")


def open_picture(data: bytes, place: str) -> Image.Image:
    """Decoded, if it is not larger than a picture needs to be: a few bytes can claim to be a billion pixels."""
    try:
        with quiet_pillow():
            image = Image.open(io.BytesIO(data))
            width, height = image.size
            if width * height > MOST_PIXELS:
                raise Image.DecompressionBombError
            image.load()
    except Image.DecompressionBombError:
        raise CrowdshotError(f"{place} has too many pixels, expected {MOST_PIXELS:,} at most.") from None
    except Exception:  # damaged bytes make Pillow's parsers raise nearly anything
        raise CrowdshotError(f"{place} is no image that can be read, expected a JPEG, a PNG or the like.") from None
    return image
