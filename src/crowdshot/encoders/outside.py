"""Use models of other libraries as encoders by name: ``hf:facebook/dinov2-small``, ``onnx:model.onnx``.

`LIBRARIES` lists the libraries. A model is loaded by its library on first use and prepares items by its own
configuration. A saved classifier contains only its name, its commit, and a checksum of its weights, which is verified.
Code that comes with weights is never run, and weights are never unpickled.

A file from elsewhere may name any model: of a hub, which would be contacted, or a local path. Therefore a model is only
loaded if the user named it in this process, or allowed the file to name it (``allow_outside``).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from crowdshot.encoders.encoder import Encoder, Input
from crowdshot.encoders.shipped import LIBRARIES
from crowdshot.errors import CrowdshotError, Use
from crowdshot.extras import install_hint
from crowdshot.formatting import first_line, show

_named: set[tuple[str, str]] = set()  # the models that the user named, as (library, name)
_allowed: ContextVar[bool] = ContextVar("allow_outside", default=False)


@contextmanager
def allowed(allow: bool = True) -> Iterator[None]:
    """Let files that are loaded in the block name models of other libraries, if ``allow``."""
    token = _allowed.set(allow or _allowed.get())
    try:
        yield
    finally:
        _allowed.reset(token)


def stay_allowed(allow: bool) -> None:
    """Set `allowed` for the rest of the process, in all threads."""
    global _stays_allowed
    _stays_allowed = allow


_stays_allowed = False


class Loaded(NamedTuple):
    """A loaded network, as the loader ``load(name, revision, device)`` of each library returns it.

    ``run`` maps a batch of ``input`` to (n, D). ``revision`` is the commit, if known; ``weights`` a checksum.
    """

    run: Callable[[Any], Tensor]
    input: Input
    revision: str | None
    weights: str


def checksum(parts: Iterable[tuple[str, bytes]]) -> str:
    """Return a checksum of named contents."""
    found = hashlib.sha256()
    for name, content in parts:
        found.update(name.encode() + b"\0" + content)
    return found.hexdigest()[:16]


def checksum_of(state: dict[str, Tensor]) -> str:
    """Return a checksum of the tensors of a network."""
    plain = ((name, tensor.detach().cpu().contiguous().flatten()) for name, tensor in sorted(state.items()))
    return checksum((name, tensor.view(torch.uint8).numpy().tobytes()) for name, tensor in plain)


class OutsideNetwork(nn.Module):
    """Wraps a model of another library, which is loaded on first use. The state is empty; the arguments identify it."""

    library: str
    name: str
    revision: str | None
    weights: str | None
    here: Tensor

    def __init__(self, library: str, name: str, revision: str | None = None, weights: str | None = None) -> None:
        super().__init__()
        self.library, self.name, self.revision, self.weights = library, name, revision, weights
        self.is_allowed = _allowed.get() or _stays_allowed or (library, name) in _named
        self.register_buffer("here", torch.empty(0), persistent=False)  # follows the module to its device

    def forward(self, batch: Any) -> Tensor:
        if not self.is_allowed:
            raise CrowdshotError(
                f"The file uses the network {show(f'{self.library}:{self.name}')} of another library, which may be"
                " downloaded or read from another file",
                found=f"{self.library}:{self.name}",
                hint=Use("if you trust the file", allow_outside=True),
            )
        loaded = _load(self.library, self.name, self.revision, str(self.here.device))
        if self.weights not in (None, loaded.weights):
            raise CrowdshotError(
                f"has weights with the checksum {loaded.weights}",
                where=f"{self.library}:{self.name}",
                found=loaded.weights,
                expected=f"{self.weights}, with which this encoder was made",
            )
        return loaded.run(batch)


def is_outside(name: str) -> bool:
    return name.partition(":")[0] in LIBRARIES and ":" in name


def outside_encoder(name: str) -> Encoder:
    """Return the encoder for ``library:name``, or ``library:name@commit`` for a model of the Hugging Face hub."""
    library, _, rest = name.partition(":")
    rest, _, revision = rest.partition("@") if not os.path.exists(rest) else (rest, "", "")
    if not rest:
        raise CrowdshotError(f"is {name!r}", argument="encoder", found=name, expected="a name after the colon")
    _named.add((library, rest))
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
        raise CrowdshotError(
            f"is {library!r}", argument="library", found=library, expected=f"one of {', '.join(LIBRARIES)}"
        )
    entry = LIBRARIES[library]
    try:
        module, function = entry.loader.split(":")
        loaded: Loaded = getattr(import_module(f"crowdshot.encoders.{module}"), function)(name, revision, device)
    except CrowdshotError:
        raise
    except ImportError as error:
        raise CrowdshotError(
            f"could not be loaded ({first_line(error)})",
            where=f"{library}:{name}",
            hint=install_hint(entry.extra),
        ) from None
    except Exception as error:  # another library may raise anything about its model
        raise CrowdshotError(
            f"could not be loaded ({type(error).__name__}: {first_line(error)})", where=f"{library}:{name}"
        ) from None
    return loaded
