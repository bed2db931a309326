"""A network of somebody else's as a module of ours: loaded when first needed, known again by its weights."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.outside import LIBRARIES
from crowdshot.encoders.outside.contract import Loaded
from crowdshot.errors import CrowdshotError
from crowdshot.wording import first_line


class OutsideNetwork(nn.Module):
    """Items as its library takes them -> (n, D). Its state is empty: names and a checksum are its arguments."""

    library: str
    name: str
    revision: str | None
    weights: str | None
    here: Tensor

    def __init__(self, library: str, name: str, revision: str | None = None, weights: str | None = None) -> None:
        super().__init__()
        self.library, self.name, self.revision, self.weights = library, name, revision, weights
        self.register_buffer("here", torch.empty(0), persistent=False)  # tells the device

    def forward(self, batch: Any) -> Tensor:
        loaded = _load(self.library, self.name, self.revision, str(self.here.device))
        if self.weights not in (None, loaded.weights):
            raise CrowdshotError(
                f"{self.library}:{self.name} has weights with the checksum {loaded.weights}, expected {self.weights},"
                " with which this was made."
            )
        return loaded.run(batch)


def is_outside(name: str) -> bool:
    return name.partition(":")[0] in LIBRARIES and ":" in name


def outside_encoder(name: str) -> Encoder:
    """``library:name``, or ``library:name@commit`` for a model of the Hugging Face hub."""
    library, _, rest = name.partition(":")
    rest, _, revision = rest.partition("@") if not os.path.exists(rest) else (rest, "", "")
    if not rest:
        raise CrowdshotError(f"encoder is {name!r}, expected a name after the colon.")
    loaded = _load(library, rest, revision or None, "cpu")
    arguments: dict[str, Any] = {
        "library": library,
        "name": rest,
        "revision": loaded.revision,
        "weights": loaded.weights,
    }
    at = f", commit {loaded.revision}" if loaded.revision else ""
    about = f"{library}:{rest}{at}, weights {loaded.weights}"
    return Encoder(OutsideNetwork(**arguments), "outside", arguments, loaded.input, {"about": about})


@lru_cache(maxsize=4)
def _load(library: str, name: str, revision: str | None, device: str) -> Loaded:
    if library not in LIBRARIES:
        raise CrowdshotError(f"library is {library!r}, expected one of {', '.join(LIBRARIES)}.")
    entry = LIBRARIES[library]
    try:
        loaded: Loaded = import_module(f"crowdshot.encoders.outside.{entry.module}").load(name, revision, device)
    except CrowdshotError:
        raise
    except ImportError as error:
        raise CrowdshotError(
            f"{library}:{name} could not be loaded ({first_line(error)}), expected its library; pip install"
            f" 'crowdshot[{entry.extra}]' brings it."
        ) from None
    except Exception as error:  # whatever somebody else's library raises is about their model
        raise CrowdshotError(
            f"{library}:{name} could not be loaded ({type(error).__name__}: {first_line(error)})."
        ) from None
    return loaded
