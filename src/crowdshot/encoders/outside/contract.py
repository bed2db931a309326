"""What a library's module promises: ``load(name, revision, device) -> Loaded``; and the steps that these share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from crowdshot.encoders.encoder import Input


class Loaded(NamedTuple):
    """A network that is ready: ``run`` takes a batch as ``input`` gives it and returns (n, D).

    ``revision``: the commit it came from, where that is known; ``weights``: a checksum of them.
    """

    run: Callable[[Any], Tensor]
    input: Input
    revision: str | None
    weights: str


def checksum(parts: Iterable[tuple[str, bytes]]) -> str:
    """Of names and what they stand for."""
    found = hashlib.sha256()
    for name, content in parts:
        found.update(name.encode() + b"\0" + content)
    return found.hexdigest()[:16]


def checksum_of(state: dict[str, Tensor]) -> str:
    """Of a network's tensors."""
    plain = ((name, tensor.detach().cpu().contiguous().flatten()) for name, tensor in sorted(state.items()))
    return checksum((name, tensor.view(torch.uint8).numpy().tobytes()) for name, tensor in plain)
