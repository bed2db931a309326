"""Any function from items to vectors as an encoder: it gets the items as they came, in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from crowdshot.encoders.encoder import Encoder
from crowdshot.errors import CrowdshotError
from crowdshot.wording import described


@dataclass(frozen=True)
class AsTheyCame:
    """Anything that can be cut into pieces: a list, an array, a DataFrame."""

    kind: ClassVar[str] = "items"

    def batches(self, X: Any, batch_size: int, bad: list[Any] | None = None) -> Iterator[Any]:
        if isinstance(X, str) or not hasattr(X, "__len__"):
            raise CrowdshotError(f"X is {described(X)}, expected a list, an array or a table of items.")
        cut = getattr(X, "iloc", X)
        try:
            return iter([cut[start : start + batch_size] for start in range(0, len(X), batch_size)])
        except (TypeError, KeyError):
            raise CrowdshotError(f"X is {described(X)}, expected a list, an array or a table of items.") from None

    def blank(self) -> None:
        return None

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def describe(self) -> str:
        return "items as its function takes them"


class FunctionNetwork(nn.Module):
    """What the function returns, as a tensor."""

    name: str

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function
        self.name = str(getattr(function, "__name__", type(function).__name__))

    def forward(self, batch: Any) -> Any:
        out = self.function(batch)
        if out is None or isinstance(out, Tensor):
            return out
        try:
            return torch.from_numpy(np.asarray(out, dtype=np.float32))
        except (TypeError, ValueError):
            return out  # is told by the encoder


def function_encoder(function: Callable[[Any], Any]) -> Encoder:
    """``function``: a batch of items -> (n, D)."""
    module = FunctionNetwork(function)
    return Encoder(module, input=AsTheyCame(), card={"about": f"a function, {module.name}"})
