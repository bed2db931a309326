"""Fast convolutions for stacks of networks (`crowdshot.training.stack`): twice differentiable, and a CPU first block.

`convolve` is a grouped 3×3 convolution for MAML, which needs second derivatives. torch computes the second derivative
of a grouped convolution group by group, so that G stacked models take as long as G single ones. But <g, x * W> is
linear in the items x, the weights W and the gradient g. Its derivatives by x, W and g are therefore three functions
that have each other as derivatives, and each is a single call. Derivatives that are not needed are skipped; the
derivative by the images, before the first convolution, would be the largest.

`first_block_cpu` computes the first block of Conv4 on a CPU without its largest activation, as `first_block_gpu` does
on a GPU. A convolution of the images is a product of their 3×3 patches with the weights. The mean and variance for
batch normalisation follow from the moments of the patches, and normalisation only changes the weights and adds a bias:

    p = (patch, 1), A = mean p p'       (t + 1, t + 1) for t = 9·C
    mean = w'A[:t, t], var = w'A[:t, :t] w - mean²
    w̃ = (γ w / σ, β - γ mean / σ)       so that γ (w·patch - mean) / σ + β = w̃·p
    out = relu(max over 2×2 of w̃·p)     four small products and a running maximum

The backward pass recomputes the four products instead of storing them. The working set stays in the processor's cache,
and the result is in channels-last format, which the following blocks prefer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F  # noqa: N812

PADDING = (1, 1)


def convolve(x: Tensor, weight: Tensor, groups: int) -> Tensor:
    """Convolve (n, groups · C, H, W) with (groups · C', C, 3, 3); differentiable to any order.

    Returns (n, groups · C', H, W).
    """
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
    out: Tensor = _ByOut.apply(x, weight, groups)  # type: ignore[no-untyped-call]
    return out


class _Bilinear(Function):
    """A bilinear function of two of x, W and g."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.groups = inputs[2]


def _with_groups(function: type[Function], ctx: Any) -> Callable[[Tensor, Tensor], Any]:
    return lambda first, second: function.apply(first, second, ctx.groups)  # type: ignore[no-untyped-call]


def _derivatives(ctx: Any, by_first: Callable[[Tensor], Any], by_second: Callable[[Tensor], Any]) -> Any:
    """Return the derivatives by the two tensors, None where not needed, and None for the number of groups."""
    first, second = ctx.saved_tensors
    needs_first, needs_second, _ = ctx.needs_input_grad
    return by_first(second) if needs_first else None, by_second(first) if needs_second else None, None


class _ByOut(_Bilinear):
    """The convolution itself, x * W."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, groups: int) -> Tensor:  # type: ignore[override]
        return F.conv2d(x, weight, padding=PADDING, groups=groups)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:  # type: ignore[override]
        by_items, by_weight = _with_groups(_ByItems, ctx), _with_groups(_ByWeight, ctx)
        return _derivatives(ctx, lambda weight: by_items(g, weight), lambda x: by_weight(x, g))


class _ByItems(_Bilinear):
    """d<g, x * W>/dx: a convolution with each group's weights rotated by 180° and its channels transposed.

    cuDNN's kernels for this derivative process the groups one by one.
    """

    @staticmethod
    def forward(g: Tensor, weight: Tensor, groups: int) -> Tensor:  # type: ignore[override]
        turned = weight.reshape(groups, -1, *weight.shape[1:]).transpose(1, 2).flatten(0, 1).flip(2, 3)
        return F.conv2d(g, turned, padding=PADDING, groups=groups)

    @staticmethod
    def backward(ctx: Any, x: Tensor) -> Any:  # type: ignore[override]
        by_out, by_weight = _with_groups(_ByOut, ctx), _with_groups(_ByWeight, ctx)
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
        by_items, by_out = _with_groups(_ByItems, ctx), _with_groups(_ByOut, ctx)
        return _derivatives(ctx, lambda g: by_items(g, weight), lambda x: by_out(x, weight))


# ---- the first block on a CPU ----


ROWS = 2048  # patches processed at a time
IMAGES = 64  # images processed at a time, if running statistics are used


def first_block_cpu(
    items: Tensor,
    weight: Tensor,
    gamma: Tensor,
    beta: Tensor,
    epsilon: float,
    running: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Apply the first block to images (G, n, C, H, W).

    Parameters
    ----------
    weight : Tensor
        (G·width, C, 3, 3).
    gamma, beta : Tensor
        (G·width,).
    running : tuple of Tensor, optional
        Mean and variance to normalise by, instead of those of the batch.

    Returns
    -------
    tuple of Tensor
        The output (n, G·width, ⌊H/2⌋, ⌊W/2⌋), and the mean and variance (G·width,) that were used.
    """
    G = len(items)
    statistics: list[Any] = [None] * G if running is None else list(zip(*(x.chunk(G) for x in running), strict=True))
    with torch.autocast("cpu", enabled=False):
        parts = [
            _one_model(*arguments, epsilon)
            for arguments in zip(items, weight.chunk(G), gamma.chunk(G), beta.chunk(G), statistics, strict=True)
        ]
    outs, means, variances = zip(*parts, strict=True)
    out = outs[0] if G == 1 else torch.cat(outs, 1)
    return out, torch.cat(means), torch.cat(variances)


def _one_model(
    images: Tensor, weight: Tensor, gamma: Tensor, beta: Tensor, running: tuple[Tensor, Tensor] | None, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    H, W = images.shape[-2:]
    w = weight.flatten(1)  # (width, t)
    parts: Iterable[Tensor]
    if running is None:
        patches = _patches(images)
        parts = [patches]
        mean, var = _moments(patches, w)
    else:  # there may be many images
        parts = map(_patches, torch.split(images, IMAGES))
        mean, var = running
    factor = gamma * (var + epsilon).rsqrt()
    folded = torch.cat([w * factor[:, None], (beta - mean * factor)[:, None]], 1).mT.contiguous()  # (t + 1, width)
    outs = []
    for part in parts:
        out = _Pooled.apply(_by_window(part), folded)  # type: ignore[no-untyped-call]
        outs.append(out.view(len(part), H // 2, W // 2, -1))
    return torch.cat(outs).permute(0, 3, 1, 2), mean.detach(), var.detach()


def _patches(images: Tensor) -> Tensor:
    """Return the patches of images (n, C, H, W), each followed by a 1: (n, H, W, 9·C + 1)."""
    n, C, H, W = images.shape
    windows = F.pad(images, (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1)  # (n, C, H, W, 3, 3)
    patches = images.new_ones(n, H, W, 9 * C + 1)
    patches[..., :-1].view(n, H, W, C, 3, 3).copy_(windows.permute(0, 2, 3, 1, 4, 5))
    return patches


def _by_window(patches: Tensor) -> Tensor:
    """Group patches (n, H, W, t) by their place in a 2×2 window: (4, n·⌊H/2⌋·⌊W/2⌋, t)."""
    n, H, W, t = patches.shape
    h, w = H // 2, W // 2
    windows = patches[:, : 2 * h, : 2 * w].reshape(n, h, 2, w, 2, t)
    return windows.permute(2, 4, 0, 1, 3, 5).reshape(4, n * h * w, t)


def _moments(patches: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and variance (width,) of w·patch over all patches; float64 avoids cancellation."""
    A = torch.zeros(patches.shape[-1], patches.shape[-1], dtype=torch.float64)
    for part in torch.split(patches.flatten(0, 2), 32 * ROWS):
        p = part.double()
        A.addmm_(p.mT, p)
    A /= patches[..., 0].numel()
    precise = w.double()
    mean = precise @ A[:-1, -1]
    var = ((precise @ A[:-1, :-1]) * precise).sum(1) - mean.square()
    return mean.to(w), var.clamp_min(0).to(w)


class _Pooled(torch.autograd.Function):
    """Return relu(max over the four of patches @ weights), (m, width), for patches (4, m, t), weights (t, width)."""

    @staticmethod
    def forward(ctx: Any, patches: Tensor, weights: Tensor) -> Tensor:
        out = patches.new_empty(patches.shape[1], weights.shape[1])
        for p, o in zip(torch.split(patches, ROWS, 1), torch.split(out, ROWS), strict=True):
            torch.mm(p[0], weights, out=o)
            for place in (1, 2, 3):
                torch.maximum(o, p[place] @ weights, out=o)
            o.clamp_min_(0)
        ctx.save_for_backward(patches, weights, out)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        """Pass each gradient to the first place with the maximum, as `torch.nn.functional.max_pool2d` does."""
        patches, weights, out = ctx.saved_tensors
        where_above = torch.ops.aten.threshold_backward  # (gradient, x, limit): the gradient if x > limit, else 0
        total = torch.zeros_like(weights)
        parts = zip(torch.split(patches, ROWS, 1), torch.split(out, ROWS), torch.split(gradients[0], ROWS), strict=True)
        for p, o, gradient in parts:
            left = where_above(gradient, o, 0)
            for place in (0, 1, 2):
                here = where_above(left, (p[place] @ weights).sub_(o), -1e-30)  # above the limit: equal to the maximum
                total.addmm_(p[place].mT, here)
                left = left - here
            total.addmm_(p[3].mT, left)
        return None, total
