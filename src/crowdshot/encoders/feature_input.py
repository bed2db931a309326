"""Read feature vectors: arrays, tensors, DataFrames and sparse matrices become float32 tensors."""

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
from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.formatting import described

LARGEST = 1e33  # of a feature; larger values overflow single precision when they are squared or scaled
MOST_FEATURES = 10_000_000  # 40 MB for one item; a damaged file may name any number
ROUNDED = 1e-4  # warn if a feature varies by less than this share of its size: single precision has 7 digits
IMPUTE = Use("with a DataFrame, which imputes the mean", encoder="table")


@dataclass(frozen=True)
class FeatureInput:
    """Feature vectors as the input of an encoder.

    Parameters
    ----------
    n_features : int or None
        Length of a vector. None: any.
    mean, std : tuple of float
        The vectors are standardised as (x - mean) / std. Empty: they are not.
    """

    kind: ClassVar[str] = "features"
    n_features: int | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        n = self.n_features
        if n is not None and not (isinstance(n, int) and 0 < n <= MOST_FEATURES):
            raise CrowdshotError(
                f"is {n!r}",
                argument="n_features",
                found=n,
                expected=f"a positive whole number up to {MOST_FEATURES:,} or None",
            )
        for name in ("mean", "std"):
            values = tuple(float(value) for value in getattr(self, name))
            if values and len(values) != self.n_features:
                raise CrowdshotError(
                    f"has {len(values)} numbers",
                    argument=name,
                    found=len(values),
                    expected=f"{self.n_features}, one per feature",
                )
            object.__setattr__(self, name, values)
        if not np.isfinite(self.mean).all():
            raise CrowdshotError(f"is {self.mean}", argument="mean", found=self.mean, expected="finite numbers")
        if not np.isfinite(self.std).all() or min(self.std, default=1.0) <= 0:
            raise CrowdshotError(f"is {self.std}", argument="std", found=self.std, expected="finite numbers above 0")

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
    """Return an array, tensor, DataFrame or sparse matrix (N, n_features) as standardised float32 tensor."""
    x = as_numbers(X)
    if x is None or x.ndim != 2 or spec.n_features not in (None, x.shape[1]):
        raise CrowdshotError(
            f"is {described(X)}",
            argument="X",
            expected=f"{spec.describe()}, which this encoder was made for",
            hint="Reshape your data: X.reshape(1, -1) is one item." if x is not None and x.ndim == 1 else None,
        )
    if x.shape[1] == 0:
        raise CrowdshotError(f"is {described(X)}, without features", argument="X", expected="one feature or more")
    if spec.mean:
        x = x - torch.tensor(spec.mean)
    return x / torch.tensor(spec.std) if spec.std else x


def _warn_rounded(array: NDArray[Any]) -> None:
    """Warn if single precision removes the differences in a column, such as seconds since 1970 within a minute."""
    if array.ndim != 2 or array.dtype.kind == "b" or len(array) < 2:
        return
    low, high = array.min(0).astype(np.float64), array.max(0).astype(np.float64)
    lost = (high > low) & (high - low < ROUNDED * np.maximum(abs(low), abs(high)))
    if lost.any():
        column = int(np.flatnonzero(lost)[0])
        warnings.warn(
            CrowdshotWarning(
                f"has values between {low[column]:.10g} and {high[column]:.10g} in column {column}, which single"
                " precision hardly distinguishes",
                argument="X",
                found=column,
                hint="Subtract the mean of the column first.",
            ),
            stacklevel=2,
        )


def as_numbers(X: Any) -> Tensor | None:
    """Return anything array-like as a float32 tensor of finite numbers; None if it does not hold numbers."""
    if isinstance(X, Tensor):
        if X.is_meta or X.is_quantized:
            return None
        x = X.detach().to_dense().to("cpu", torch.float32)
    else:
        if isinstance(X, (list, tuple)) and any(isinstance(item, Image.Image) for item in X):
            return None  # NumPy would convert their pixels to numbers
        try:
            array = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
            if array.dtype.kind == "O":  # a DataFrame with several types of number
                array = array.astype(np.float64)
        except (TypeError, ValueError):
            return None
        if array.dtype.kind == "c":
            raise CrowdshotError(
                "holds complex numbers (Complex data not supported)", argument="X", expected="real numbers"
            )
        if array.dtype.kind not in "buif" or array.ndim == 0:
            return None
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite, an error below
            x = torch.from_numpy(np.array(array, dtype=np.float32))
        _warn_rounded(array)
    low, high = x.aminmax() if x.numel() else (x.sum(), x.sum())  # NaN if any number is NaN
    if not (float(low) >= -LARGEST and float(high) <= LARGEST):
        finite = x.abs() <= LARGEST
        row = int((~finite).nonzero()[0, 0]) if x.ndim else 0
        raise CrowdshotError(
            f"has NaN, infinite or huge values, first in row {row}",
            argument="X",
            found=row,
            expected="finite numbers",
            hint=IMPUTE if bool(x.isnan().any()) else None,
        )
    return x
