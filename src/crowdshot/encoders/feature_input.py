"""Feature vectors from someone else's network, as an encoder's input."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from crowdshot.encoders.shipped import describe_input
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import described

LARGEST = 1e33  # of a feature: in a unit of their own, more would leave single precision
ROUNDED = 1e-4  # of its size, within which a feature loses digits that matter


@dataclass(frozen=True)
class FeatureInput:
    """Vectors of ``n_features`` numbers (None: any), read as (x - mean) / std where those are given."""

    kind: ClassVar[str] = "features"
    n_features: int | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.n_features is not None and not (isinstance(self.n_features, int) and self.n_features > 0):
            raise CrowdshotError(f"n_features is {self.n_features!r}, expected a positive whole number or None.")
        for name in ("mean", "std"):
            values = tuple(float(value) for value in getattr(self, name))
            if values and len(values) != self.n_features:
                raise CrowdshotError(f"{name} has {len(values)} numbers, expected {self.n_features}, one a feature.")
            object.__setattr__(self, name, values)
        if not np.isfinite(self.mean).all():
            raise CrowdshotError(f"mean is {self.mean}, expected finite numbers.")
        if not np.isfinite(self.std).all() or min(self.std, default=1.0) <= 0:
            raise CrowdshotError(f"std is {self.std}, expected finite numbers above 0.")

    def batches(self, X: Any, batch_size: int, bad: list[Any] | None = None) -> Iterator[Tensor]:
        return iter(torch.split(read_features(X, self), batch_size))

    def blank(self) -> Tensor | None:
        return None if self.n_features is None else torch.zeros(1, self.n_features)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "n_features": self.n_features, "mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FeatureInput:
        return cls(**{key: value for key, value in data.items() if key != "kind"})

    def describe(self) -> str:
        return describe_input(self.to_dict())


def read_features(X: Any, spec: FeatureInput) -> Tensor:
    """Array, tensor, DataFrame or sparse matrix (N, n_features) -> float32 on the CPU, as ``spec`` asks."""
    x = as_numbers(X)
    if x is None or x.ndim != 2 or spec.n_features not in (None, x.shape[1]):
        raise CrowdshotError(f"X is {described(X)}, expected {spec.describe()}, for which this encoder was made.")
    if x.shape[1] == 0:
        raise CrowdshotError(f"X is {described(X)}, without a feature, expected one or more.")
    if spec.mean:
        x = x - torch.tensor(spec.mean)
    return x / torch.tensor(spec.std) if spec.std else x


def _warn_rounded(array: NDArray[Any]) -> None:
    """Seconds since 1970 that lie within a minute are all the same in single precision."""
    if array.ndim != 2 or array.dtype.kind == "b" or len(array) < 2:
        return
    low, high = array.min(0).astype(np.float64), array.max(0).astype(np.float64)
    lost = (high > low) & (high - low < ROUNDED * np.maximum(abs(low), abs(high)))
    if lost.any():
        column = int(np.flatnonzero(lost)[0])
        told = f"X, column {column} lies between {low[column]:.10g} and {high[column]:.10g}, which single precision"
        warnings.warn(f"{told} hardly tells apart; take its mean off before.", UserWarning, stacklevel=2)


def as_numbers(X: Any) -> Tensor | None:
    """Anything array-like -> float32 tensor of finite numbers, any shape; None if it does not hold numbers."""
    if isinstance(X, Tensor):
        if X.is_meta or X.is_quantized:
            return None
        x = X.detach().to_dense().to("cpu", torch.float32)
    else:
        if isinstance(X, (list, tuple)) and any(isinstance(item, Image.Image) for item in X):
            return None  # NumPy would take their pixels for numbers
        try:
            array = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
            if array.dtype.kind == "O":  # a DataFrame with several types of number
                array = array.astype(np.float64)
        except (TypeError, ValueError):
            return None
        if array.dtype.kind == "c":
            raise CrowdshotError("X holds complex numbers, expected real ones (Complex data not supported).")
        if array.dtype.kind not in "buif" or array.ndim == 0:
            return None
        with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite and is told below
            x = torch.from_numpy(np.array(array, dtype=np.float32))
        _warn_rounded(array)
    finite = x.abs() <= LARGEST  # NaN is not
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0, 0]) if x.ndim else 0
        raise CrowdshotError(f"X has NaN, infinite or huge values, first in row {row}, expected finite numbers.")
    return x
