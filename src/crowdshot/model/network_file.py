"""The learned inference's network as a file: safetensors and a card, written and read without torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.files.cards import Card, read_arrays, read_card, write_arrays
from crowdshot.model import inference_network

KIND = "inference"
SHIPPED = Path(__file__).parent / "weights" / "inference.safetensors"

Floats = NDArray[np.float64]


def network_of(given: str | os.PathLike[str] | Mapping[str, Floats] | None) -> Mapping[str, Floats]:
    """By its file, as it is, or the shipped one."""
    if isinstance(given, Mapping):
        return given
    return shipped_network() if given is None else load_network(given)


@cache
def shipped_network() -> dict[str, Floats]:
    """The one that `aggregate` uses."""
    return load_network(SHIPPED)


def load_network(path: str | os.PathLike[str]) -> dict[str, Floats]:
    """Its tensors, in double precision; a file that holds anything else is refused."""
    found, _ = read_arrays(path, KIND)
    rounds = sum(name.startswith("crowd.") and name.endswith(".in.bias") for name in found)
    hidden = found.get("crowd.0.in.bias", np.empty(0)).size
    expected = inference_network.shapes(rounds, hidden) if hidden else {}
    for name in (expected.keys() ^ found.keys()) or ([] if expected else ["crowd.0.in.bias"]):
        what = "a tensor" if name in found else "no tensor"
        raise CrowdshotError(f"{path} has {what} {name}, expected those of an inference network.")
    for name, shape in expected.items():
        if found[name].shape != shape:
            raise CrowdshotError(f"{path} has {name} of shape {found[name].shape}, expected {shape}.")
        if found[name].dtype.kind != "f" or not np.isfinite(found[name]).all():
            raise CrowdshotError(f"{path} has a number in {name} that is not finite, expected finite ones.")
    return {name: found[name].astype(np.float64) for name in expected}


def network_card(path: str | os.PathLike[str] = SHIPPED) -> Card:
    """What a network learned from, and how it scored."""
    return read_card(path, KIND)


def save_network(path: str | os.PathLike[str], network: Mapping[str, NDArray[Any]], card: Mapping[str, Any]) -> None:
    """In single precision, with a card that says what it learned from; all or nothing."""
    write_arrays(path, {name: np.asarray(value, np.float32) for name, value in network.items()}, {**card, "kind": KIND})
