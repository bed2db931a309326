"""A grouped 3×3 convolution that is fast to differentiate, and to differentiate twice, for MAML.

With more than one group, torch's own second derivative of a convolution goes through the groups one by one, which for
G models side by side (`encoders.stack`) takes as long as G models one after the other. But <g, x * W> is linear in
each of items x, weights W and g; so its derivatives by one of them are three functions, each of which has the other
two as its derivatives, and every one is a single call. A derivative that nobody asks for, as that by the images behind
the first convolution, is not taken: it is the largest of all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F  # noqa: N812

PADDING = (1, 1)


def convolve(x: Tensor, weight: Tensor, groups: int) -> Tensor:
    """(n, groups · C, H, W) and (groups · C', C, 3, 3) -> (n, groups · C', H, W); differentiable to any order."""
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
    out: Tensor = _ByOut.apply(x, weight, groups)  # type: ignore[no-untyped-call]
    return out


class _Bilinear(Function):
    """Of two of x, W and g."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.groups = inputs[2]


def _of(function: type[Function], ctx: Any) -> Callable[[Tensor, Tensor], Any]:
    return lambda first, second: function.apply(first, second, ctx.groups)  # type: ignore[no-untyped-call]


def _derivatives(ctx: Any, by_first: Callable[[Tensor], Any], by_second: Callable[[Tensor], Any]) -> Any:
    """By the two arguments of a bilinear function, each only where it is needed; the number of groups has none."""
    first, second = ctx.saved_tensors
    of_first, of_second, _ = ctx.needs_input_grad
    return by_first(second) if of_first else None, by_second(first) if of_second else None, None


class _ByOut(_Bilinear):
    """The convolution itself, x * W."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, groups: int) -> Tensor:  # type: ignore[override]
        return F.conv2d(x, weight, padding=PADDING, groups=groups)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:  # type: ignore[override]
        by_items, by_weight = _of(_ByItems, ctx), _of(_ByWeight, ctx)
        return _derivatives(ctx, lambda weight: by_items(g, weight), lambda x: by_weight(x, g))


class _ByItems(_Bilinear):
    """d<g, x * W>/dx: a convolution too, with the weights of each group turned round and its channels exchanged.

    cuDNN's own kernels for this derivative take the groups one by one.
    """

    @staticmethod
    def forward(g: Tensor, weight: Tensor, groups: int) -> Tensor:  # type: ignore[override]
        turned = weight.reshape(groups, -1, *weight.shape[1:]).transpose(1, 2).flatten(0, 1).flip(2, 3)
        return F.conv2d(g, turned, padding=PADDING, groups=groups)

    @staticmethod
    def backward(ctx: Any, x: Tensor) -> Any:  # type: ignore[override]
        by_out, by_weight = _of(_ByOut, ctx), _of(_ByWeight, ctx)
        return _derivatives(ctx, lambda weight: by_out(x, weight), lambda g: by_weight(x, g))


class _ByWeight(_Bilinear):
    """d<g, x * W>/dW."""

    @staticmethod
    def forward(x: Tensor, g: Tensor, groups: int) -> Tensor:  # type: ignore[override]
        like = x.new_empty(g.shape[1], x.shape[1] // groups, 3, 3)
        only_weight = (False, True, False)
        found = torch.ops.aten.convolution_backward(
            g, x, like, None, (1, 1), PADDING, (1, 1), False, (0, 0), groups, only_weight
        )
        out: Tensor = found[1]
        return out

    @staticmethod
    def backward(ctx: Any, weight: Tensor) -> Any:  # type: ignore[override]
        by_items, by_out = _of(_ByItems, ctx), _of(_ByOut, ctx)
        return _derivatives(ctx, lambda g: by_items(g, weight), lambda x: by_out(x, weight))
