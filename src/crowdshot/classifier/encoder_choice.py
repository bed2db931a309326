"""Choose the encoder: the one that the user names, or the shipped one that suits the items and the method."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import islice
from numbers import Number
from statistics import median
from typing import Any

from torch import nn

from crowdshot.encoders.encoder import Encoder, function_encoder
from crowdshot.encoders.encoder_files import build_encoder, load_encoder
from crowdshot.encoders.networks import is_installed
from crowdshot.encoders.shipped import PROTOTYPICAL_SUFFIX, shipped_encoders
from crowdshot.encoders.table_input import is_mixed, learn_table_encoder
from crowdshot.encoders.text_input import learn_text_encoder
from crowdshot.errors import CrowdshotError
from crowdshot.extras import announce, install_command
from crowdshot.formatting import show
from crowdshot.io.file_names import strings_in
from crowdshot.io.image_decoding import UnreadableError, decode, scales_of
from crowdshot.methods import Method, encoder_suffix, training_command

INSPECTED = 16  # images, to distinguish drawings from photographs
EDGE = 0.1  # share of the range of brightness that counts as darkest or brightest
DRAWN = 0.45  # share of such pixels: characters and digits 0.55 to 1, grey photographs mostly 0.1, few above 0.4


def in_colour(images: Any) -> bool:
    """Return whether the first image has colours; False if it is unreadable."""
    if hasattr(images, "shape"):
        return len(images.shape) == 4 and 3 in (images.shape[1], images.shape[-1])
    first = next(iter(images.values() if isinstance(images, Mapping) else images), None)
    try:
        pixels, _ = decode(first, scales_of([first]))
    except (UnreadableError, TypeError, ValueError):
        return False
    if pixels.shape[1] < 3:
        return False
    return bool((pixels[:, :1] != pixels[:, 1:3]).any())


def are_drawn(images: Any) -> bool:
    """Return whether most of the first images are drawings: most pixels are near the darkest or the brightest."""
    shares = []
    for image in islice(images.values() if isinstance(images, Mapping) else images, INSPECTED):
        try:
            pixels, _ = decode(image, scales_of([image]))
        except (UnreadableError, TypeError, ValueError):
            continue
        grey = pixels.float().mean(1).flatten()
        low, high = grey.min(), grey.max()
        edge = (high - low) * EDGE
        shares.append(float(((grey <= low + edge) | (grey >= high - edge)).float().mean()))
    return not shares or median(shares) >= DRAWN


def default_encoder(X: Any) -> str:
    """Return the name of the shipped encoder for images, which depends on whether they are drawings or photographs."""
    if not in_colour(X) and are_drawn(X):
        return "glyphs"
    if is_installed():
        return "photo-lite0"
    announce("images")
    return "photo"


def clean_encoder(X: Any) -> Encoder:
    """Return the encoder for X; for images, the variant that was meta-trained on clean labels."""
    return no_images(X) or load_encoder(default_encoder(X) + PROTOTYPICAL_SUFFIX)


LEARNED_ENCODERS = {"texts": learn_text_encoder, "table": learn_table_encoder}
"""Encoders that are learned from the items, by name."""


def encoder_input(encoder: Any, X: Any) -> Encoder:
    """Return the encoder for the user's argument: a name, a file, a network, a function, or one to learn from X."""
    if isinstance(encoder, Encoder):
        return encoder
    if isinstance(encoder, nn.Module):
        return Encoder.wrap(encoder)
    if callable(encoder):
        return function_encoder(encoder)
    if not isinstance(encoder, str | os.PathLike):
        transform = hasattr(encoder, "transform")
        raise CrowdshotError(
            f"is {show(encoder)}",
            argument="encoder",
            found=encoder,
            expected="a name, a file, a network or a function",
            hint="Pass the function encoder.transform of the fitted transformer, or put it into a pipeline."
            if transform
            else None,
        )
    if isinstance(encoder, str) and encoder in LEARNED_ENCODERS:
        return LEARNED_ENCODERS[encoder](X)
    try:
        return load_encoder(encoder)
    except CrowdshotError as error:
        error.among = (*LEARNED_ENCODERS, *error.among) if error.among else ()
        raise


def any_encoder(X: Any) -> Encoder:
    """Return the encoder for X that was meta-trained with simulated annotators, or is learned from X."""
    return no_images(X) or load_encoder(default_encoder(X))


def no_images(X: Any) -> Encoder | None:
    """Return the encoder for feature vectors, texts or mixed tables; None if X has images."""
    _refuse_numbers(X)
    if is_mixed(X):
        return learn_table_encoder(X)
    if are_features(X):
        return load_encoder("identity")
    return learn_text_encoder(X) if strings_in(X) == "texts" else None


def _refuse_numbers(X: Any) -> None:
    """Raise an error for a column of numbers."""
    kind = getattr(getattr(X, "dtype", None), "kind", "f")  # tensors hold numbers
    is_column = getattr(X, "ndim", 0) == 1 and kind in "biuf"
    if is_column or (isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], Number)):
        raise CrowdshotError(
            f"has {len(X):,} numbers",
            argument="X",
            found=len(X),
            expected="a row of features for each item",
            hint="A single feature is a table with one column: X.reshape(-1, 1), or X.to_frame() in pandas.",
        )


def are_features(X: Any) -> bool:
    """Return whether X has rows of numbers instead of images, without converting a list of images to an array."""
    if hasattr(X, "ndim"):
        return bool(X.ndim == 2)
    first = X[0] if isinstance(X, list | tuple) and X else None
    return isinstance(first, list | tuple) or getattr(first, "ndim", 0) == 1


def shipped_encoder(method: Method, X: Any) -> Encoder:
    """Return the shipped encoder with the meta-training that the method needs; as `no_images` for other items."""
    assert method.needs is not None
    found = no_images(X)
    if found is not None:
        return found
    base = default_encoder(X)
    name = base + encoder_suffix(method.needs)
    if name not in shipped_encoders():
        extra = f"Run {install_command('images')}, which adds one, or" if base == "photo" else "Run"
        raise CrowdshotError(
            f"{method.name} needs {method.needs}, and no encoder {name} is shipped",
            argument="encoder",
            found=name,
            hint=f"{extra} `{training_command(method.needs)}` to train one, and name its file as the encoder.",
        )
    return load_encoder(name)


def items_as_they_are(X: Any) -> Encoder:
    """Return the encoder for methods without meta-training: as `no_images`, or the pixels of images.

    Photographs are embedded by the frozen backbone, if the default encoder has one: next to nothing can be learned from
    84×84 pixels directly.
    """
    found = no_images(X)
    if found is not None:
        return found
    base = default_encoder(X)
    if base == "photo-lite0":
        return load_encoder("lite0")
    return build_encoder("identity", {}, load_encoder(base).input)
