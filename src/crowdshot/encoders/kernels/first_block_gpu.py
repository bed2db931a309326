"""The first block of a stack of Conv4 networks on a GPU, without its largest activation.

Convolution, batch normalisation, max-pooling and ReLU of the first block (see `stack`) pass several times over the
largest tensor of the network, 64 times the size of the images. Here it never exists. With z = w · patch for every
3×3 patch (t = 9·C numbers) of a model's images, M patches in all:

    S = sum patch, A = sum patch patch'      (t,), (t, t): small, one product over the images
    mean z = w·S / M, mean z² = w'A w / M    so the statistics need no z
    out = relu(max over 2×2 of (γ (z - μ) / σ + β))                        one kernel, z recomputed from the images

and backwards, with d the gradient of `out` where it is positive, given to the place of the maximum:

    dβ = sum d,  dγ = sum d (z - μ) / σ,  E = sum d patch                  one kernel, z recomputed again
    dw = γ/σ (E - dβ S / M - dγ (A w - μ S) / (σ M))

`first_block` is differentiable in w, γ and β; images get no gradient. Products are rounded to TF32, as cuDNN's are.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # no GPU here; `stack` then takes the plain way
    triton = None

PIXELS = 32  # output pixels a program works on at a time
ROUNDS = 16  # how many times a program does so at most before it writes its share of a sum
PROGRAMS = 1024  # that many keep the GPU busy; more of them only write more
FEW = 16  # channels of which a program finishes the statistics
WARPS = 4


def is_available(items: Tensor, weight: Tensor) -> bool:
    """Images on a GPU with an even size, at most three channels, and a width that Triton can tile."""
    channels, width = weight.shape[1], weight.shape[0] // items.shape[0]
    even = items.shape[-1] % 2 == 0 and items.shape[-2] % 2 == 0
    return triton is not None and items.is_cuda and even and channels <= 3 and width in (16, 32, 64, 128)


def first_block(
    items: Tensor,
    weight: Tensor,
    gamma: Tensor,
    beta: Tensor,
    epsilon: float,
    running: tuple[Tensor, Tensor],
    momentum: float,
    dtype: torch.dtype,
) -> Tensor:
    """Images (G, n, C, H, W) -> (n, G·width, H/2, W/2) of ``dtype``, channels last.

    ``weight`` is (G·width, C, 3, 3), ``gamma`` and ``beta`` (G·width,), and so are the ``running`` mean and variance,
    which move towards the batch's by ``momentum``, in place.
    """
    with torch.autocast("cuda", enabled=False):  # sums over many thousands of pixels stay in float32
        S, A = _moments(items)
        out: Tensor = _FirstBlock.apply(items, weight, gamma, beta, S, A, epsilon, *running, momentum, dtype)  # type: ignore[no-untyped-call]
    return out


def _moments(items: Tensor) -> tuple[Tensor, Tensor]:
    """S (G, t) and A (G, t, t) over all patches of a model's images.

    The four patches of a 2×2 window lie in one square of 4×4 pixels, and so their second moments in the square's.
    """
    G, n, C, H, W = items.shape
    T = 32 if C == 1 else 64  # 16 C pixels and a constant 1, padded
    blocks, rounds = _shares(items)
    sums = torch.empty((G, blocks, 2, T, T), dtype=torch.float32, device=items.device)
    _second_moments[(blocks, G)](items, sums, n, C, H, W, T, PIXELS, rounds, num_warps=WARPS)
    high, mixed = sums.sum(1).unbind(1)
    square = high + mixed + mixed.mT
    patch = _patches_of_squares(C, items.device)  # (4, t)
    S, A = square[:, 16 * C, patch], square[:, patch[:, :, None], patch[:, None]]
    return S.sum(1), A.sum(1)


@cache
def _patches_of_squares(C: int, device: torch.device) -> Tensor:
    """Where in a square of C channels and 4×4 pixels the patches of its four places lie: (4, t)."""
    t = torch.arange(9 * C)
    c, ky, kx = t // 9, t // 3 % 3, t % 3
    return torch.stack([16 * c + 4 * (ky + dy) + kx + dx for dy in (0, 1) for dx in (0, 1)]).to(device)


class _FirstBlock(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        items: Tensor,
        weight: Tensor,
        gamma: Tensor,
        beta: Tensor,
        S: Tensor,
        A: Tensor,
        epsilon: float,
        running_mean: Tensor,
        running_var: Tensor,
        momentum: float,
        dtype: torch.dtype,
    ) -> Tensor:
        G, n, _, H, W = items.shape
        t, width = S.shape[1], weight.shape[0] // G
        w_t = weight.view(G, width, t).mT.contiguous()  # (G, t, width)
        mean, rstd, factor, shift = torch.empty((4, G, width), dtype=torch.float32, device=items.device)
        _statistics[(G, width // FEW)](
            w_t, S, A, gamma, beta, mean, rstd, factor, shift, running_mean, running_var,
            t, n * H * W, epsilon, momentum, width, _padded(t), FEW, num_warps=WARPS,
        )  # fmt: skip
        shape, last = (n, G * width, H // 2, W // 2), torch.channels_last
        out = torch.empty(shape, dtype=dtype, device=items.device, memory_format=last)
        grid = (triton.cdiv(n * (H // 2) * (W // 2), PIXELS), G)
        _forward[grid](items, w_t, factor, shift, out, *_sizes(items, width), num_warps=WARPS)
        ctx.save_for_backward(items, w_t, factor, shift, mean, rstd, S, A)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        items, w_t, factor, shift, mean, rstd, S, A = ctx.saved_tensors
        G, n, C, H, W = items.shape
        t, width = S.shape[1], w_t.shape[-1]
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        blocks, rounds = _shares(items)
        rows = _padded(t) + 2
        sums = torch.empty((G, blocks, rows, width), dtype=torch.float32, device=items.device)
        sizes = _sizes(items, width)
        _backward[(blocks, G)](items, w_t, factor, shift, mean, rstd, gradient, sums, *sizes, rounds, num_warps=WARPS)
        sums = sums.sum(1)  # E, dβ and dγ
        d_weight = torch.empty((G * width, C, 3, 3), dtype=torch.float32, device=items.device)
        _gradient[(G, width // FEW)](
            w_t, S, A, factor, mean, rstd, sums, d_weight,
            t, n * H * W, width, _padded(t), FEW, num_warps=WARPS,
        )  # fmt: skip
        return None, d_weight, sums[:, -1].flatten(), sums[:, -2].flatten(), *[None] * 7


def _sizes(items: Tensor, width: int) -> tuple[Any, ...]:
    """The kernels' last arguments: G, n, C, H, W, width, padded patch size, pixels."""
    G, n, C, H, W = items.shape
    return (G, n, C, H, W, width, _padded(9 * C), PIXELS)


def _shares(items: Tensor) -> tuple[int, int]:
    """Into how many programs a sum over a model's output pixels is divided, and how many rounds each makes."""
    G, n, _, H, W = items.shape
    pieces = triton.cdiv(n * (H // 2) * (W // 2), PIXELS)
    rounds = 1
    while rounds < ROUNDS and pieces * G >= 2 * rounds * PROGRAMS:
        rounds *= 2
    return triton.cdiv(pieces, rounds), rounds


def _padded(t: int) -> int:
    return 16 if t <= 16 else 32


if triton is not None:

    @triton.jit
    def _patches(items, g, pixel, t, n, C, H, W, dy, dx):  # type: ignore[no-untyped-def]
        """The patches around place (dy, dx) of the 2×2 window of each output pixel; zero outside.

        ``pixel`` (pixels, 1) and ``t`` (1, T), or (1, pixels) and (T, 1) for a product over pixels.
        """
        c, ky, kx = t // 9, t // 3 % 3, t % 3
        image, y, x = pixel // ((H // 2) * (W // 2)), pixel // (W // 2) % (H // 2), pixel % (W // 2)
        row = 2 * y + dy - 1 + ky
        column = 2 * x + dx - 1 + kx
        inside = (row >= 0) & (row < H) & (column >= 0) & (column < W) & (c < C) & (image < n)
        place = (((g * n + image) * C + c) * H + row) * W + column
        return tl.load(items + place, mask=inside, other=0.0)

    @triton.jit
    def _second_moments(items, sums, n, C, H, W, T: tl.constexpr, P: tl.constexpr, TIMES: tl.constexpr):  # type: ignore[no-untyped-def]
        """With x = high + low, of eleven bits each: x x' is high high' + high low' + low high', but for a millionth.

        Three of four products, and two of those are each other's transpose: two that a GPU does at full speed.
        """
        g = tl.program_id(1)
        t = tl.arange(0, T)
        c, ky, kx = (t // 16)[:, None], (t // 4 % 4)[:, None], (t % 4)[:, None]
        total = tl.full((T, T), 0.0, tl.float32)
        mixed = tl.full((T, T), 0.0, tl.float32)
        for times in range(TIMES):
            pixel = ((tl.program_id(0) * TIMES + times) * P + tl.arange(0, P))[None, :]
            image, y, x = pixel // ((H // 2) * (W // 2)), pixel // (W // 2) % (H // 2), pixel % (W // 2)
            row, column = 2 * y - 1 + ky, 2 * x - 1 + kx
            inside = (row >= 0) & (row < H) & (column >= 0) & (column < W) & (c < C) & (image < n)
            square = tl.load(items + (((g * n + image) * C + c) * H + row) * W + column, mask=inside, other=0.0)
            square = tl.where((image < n) & (t == 16 * C)[:, None], 1.0, square)
            high = square.to(tl.float16)
            low = (square - high.to(tl.float32)).to(tl.float16)
            total += tl.dot(high, tl.trans(high))
            mixed += tl.dot(high, tl.trans(low))
        start = sums + (g * tl.num_programs(0) + tl.program_id(0)) * 2 * T * T + t[:, None] * T + t[None, :]
        tl.store(start, total)
        tl.store(start + T * T, mixed)

    @triton.jit
    def _small(w_t, S, A, g, channel, t, T, WIDTH: tl.constexpr, TP: tl.constexpr):  # type: ignore[no-untyped-def]
        """Weights (T, channels), S (T, 1) and A w (T, channels) of model g, zero beyond the T numbers of a patch."""
        inside = t < T
        w = tl.load(w_t + (g * T + t[:, None]) * WIDTH + channel[None, :], mask=inside[:, None], other=0.0)
        s = tl.load(S + g * T + t, mask=inside, other=0.0)[:, None]
        both = inside[:, None] & inside[None, :]
        a = tl.load(A + (g * T + t[:, None]) * T + t[None, :], mask=both, other=0.0)
        return w, s, tl.dot(a, w, input_precision="ieee")

    @triton.jit
    def _statistics(w_t, S, A, gamma, beta, mean, rstd, factor, shift, running_mean, running_var, T, M, epsilon,  # type: ignore[no-untyped-def]
                    momentum, WIDTH: tl.constexpr, TP: tl.constexpr, C: tl.constexpr):  # fmt: skip
        g = tl.program_id(0)
        channel = tl.program_id(1) * C + tl.arange(0, C)
        w, s, a_w = _small(w_t, S, A, g, channel, tl.arange(0, TP), T, WIDTH, TP)
        mu = tl.sum(w * s, 0) / M
        var = tl.maximum(tl.sum(w * a_w, 0) / M - mu * mu, 0.0)
        at = g * WIDTH + channel
        r = 1 / tl.sqrt(var + epsilon)
        slope = tl.load(gamma + at) * r
        tl.store(mean + at, mu)
        tl.store(rstd + at, r)
        tl.store(factor + at, slope)
        tl.store(shift + at, tl.load(beta + at) - mu * slope)
        before = tl.load(running_mean + at)
        tl.store(running_mean + at, before + momentum * (mu - before))
        before = tl.load(running_var + at)
        tl.store(running_var + at, before + momentum * (var * (M / (M - 1)) - before))

    @triton.jit
    def _gradient(w_t, S, A, factor, mean, rstd, sums, d_weight, T, M, WIDTH: tl.constexpr, TP: tl.constexpr,  # type: ignore[no-untyped-def]
                  C: tl.constexpr):  # fmt: skip
        g = tl.program_id(0)
        channel = tl.program_id(1) * C + tl.arange(0, C)
        t = tl.arange(0, TP)
        _, s, a_w = _small(w_t, S, A, g, channel, t, T, WIDTH, TP)
        at = g * WIDTH + channel
        normalised = (a_w - tl.load(mean + at)[None, :] * s) * tl.load(rstd + at)[None, :]
        sums += g * (TP + 2) * WIDTH
        e = tl.load(sums + t[:, None] * WIDTH + channel[None, :])
        d_beta = tl.load(sums + TP * WIDTH + channel)[None, :]
        d_gamma = tl.load(sums + (TP + 1) * WIDTH + channel)[None, :]
        d_w = tl.load(factor + at)[None, :] * (e - (d_beta * s + d_gamma * normalised) / M)
        tl.store(d_weight + at[None, :] * T + t[:, None], d_w, mask=(t < T)[:, None])

    @triton.jit
    def _forward(items, w_t, factor, shift, out, G, n, C, H, W, WIDTH: tl.constexpr, T: tl.constexpr,  # type: ignore[no-untyped-def]
                 P: tl.constexpr):  # fmt: skip
        g = tl.program_id(1)
        pixel = tl.program_id(0) * P + tl.arange(0, P)
        channel, t = tl.arange(0, WIDTH), tl.arange(0, T)
        w = tl.load(w_t + (g * 9 * C + t[:, None]) * WIDTH + channel[None, :], mask=(t < 9 * C)[:, None], other=0.0)
        a = tl.load(factor + g * WIDTH + channel)[None, :]
        b = tl.load(shift + g * WIDTH + channel)[None, :]
        best = tl.full((P, WIDTH), 0.0, tl.float32)  # ReLU: nothing below zero
        for place in tl.static_range(4):
            patch = _patches(items, g, pixel[:, None], t[None, :], n, C, H, W, place // 2, place % 2)
            best = tl.maximum(best, tl.dot(patch, w) * a + b)
        where = pixel.to(tl.int64)[:, None] * (G * WIDTH) + g * WIDTH + channel[None, :]
        there = (pixel < n * (H // 2) * (W // 2))[:, None]
        tl.store(out + where, best.to(out.dtype.element_ty), mask=there)

    @triton.jit
    def _backward(items, w_t, factor, shift, mean, rstd, gradient, sums, G, n, C, H, W, WIDTH: tl.constexpr,  # type: ignore[no-untyped-def]
                  T: tl.constexpr, P: tl.constexpr, TIMES: tl.constexpr):  # fmt: skip
        g = tl.program_id(1)
        channel, t = tl.arange(0, WIDTH), tl.arange(0, T)
        w = tl.load(w_t + (g * 9 * C + t[:, None]) * WIDTH + channel[None, :], mask=(t < 9 * C)[:, None], other=0.0)
        a = tl.load(factor + g * WIDTH + channel)[None, :]
        b = tl.load(shift + g * WIDTH + channel)[None, :]
        mu = tl.load(mean + g * WIDTH + channel)[None, :]
        r = tl.load(rstd + g * WIDTH + channel)[None, :]
        e = tl.full((T, WIDTH), 0.0, tl.float32)
        d_beta = tl.full((WIDTH,), 0.0, tl.float32)
        d_gamma = tl.full((WIDTH,), 0.0, tl.float32)
        for times in range(TIMES):
            pixel = (tl.program_id(0) * TIMES + times) * P + tl.arange(0, P)
            best = tl.full((P, WIDTH), float("-inf"), tl.float32)
            best_z = tl.full((P, WIDTH), 0.0, tl.float32)
            best_place = tl.full((P, WIDTH), 0, tl.int32)
            for place in tl.static_range(4):
                patch = _patches(items, g, pixel[:, None], t[None, :], n, C, H, W, place // 2, place % 2)
                z = tl.dot(patch, w)
                y = z * a + b
                better = y > best
                best = tl.where(better, y, best)
                best_z = tl.where(better, z, best_z)
                best_place = tl.where(better, place, best_place)
            where = pixel.to(tl.int64)[:, None] * (G * WIDTH) + g * WIDTH + channel[None, :]
            there = (pixel < n * (H // 2) * (W // 2))[:, None]
            d = tl.load(gradient + where, mask=there, other=0.0).to(tl.float32)
            d = tl.where(best > 0, d, 0.0)
            d_beta += tl.sum(d, 0)
            d_gamma += tl.sum(d * (best_z - mu) * r, 0)
            for place in tl.static_range(4):
                patch = _patches(items, g, pixel[None, :], t[:, None], n, C, H, W, place // 2, place % 2)
                here = tl.where(best_place == place, d, 0.0)
                e += tl.dot(patch.to(gradient.dtype.element_ty), here.to(gradient.dtype.element_ty))
        start = sums + (g * tl.num_programs(0) + tl.program_id(0)) * (T + 2) * WIDTH
        tl.store(start + t[:, None] * WIDTH + channel[None, :], e)
        tl.store(start + T * WIDTH + channel, d_beta)
        tl.store(start + (T + 1) * WIDTH + channel, d_gamma)
