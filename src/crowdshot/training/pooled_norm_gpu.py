"""Fuse batch normalisation, 2×2 max-pooling and ReLU of a stack of Conv4 networks on a GPU.

As separate operations they pass ten times over a convolution's output z. Here two kernels read z in the forward pass
and two in the backward pass, and the only tensor of its size that is written is its gradient. A channel has M values
with mean μ and standard deviation σ. d is the gradient of `out` if `out` is positive, else 0, at the place of the
maximum:

    out = relu(max over 2×2 of (γ (z - μ) / σ + β))
    dβ = sum d,  dγ = sum d (z - μ) / σ
    dz = γ/σ (d - dβ / M - dγ (z - μ) / (σ M))

If the size is odd, the last row and column count for μ and σ but are in no pooling window.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # no GPU: `stack` uses plain torch operations
    triton = None

PIXELS, CHANNELS = 32, 128  # that a program processes at a time
ROUNDS = 16  # blocks of pixels that a program adds up, at most, before it writes its partial sum
PROGRAMS = 2048  # enough to occupy the GPU; more would only write more partial sums
ROWS, FEW = 128, 32  # blocks and channels whose partial sums a program adds up at a time
WARPS = 8


def is_available(z: Tensor) -> bool:
    return triton is not None and z.is_cuda


def pooled_norm(
    z: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, running: tuple[Tensor, Tensor], momentum: float
) -> Tensor:
    """Apply batch normalisation, max-pooling and ReLU to (n, channels, H, W).

    Returns (n, channels, H // 2, W // 2) in channels-last format. The ``running`` mean and variance, (channels,) each,
    are updated in place with ``momentum``.
    """
    z = z.contiguous(memory_format=torch.channels_last)
    out: Tensor = _PooledNorm.apply(z, gamma, beta, epsilon, *running, momentum)  # type: ignore[no-untyped-call]
    return out


class _PooledNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        gamma: Tensor,
        beta: Tensor,
        epsilon: float,
        running_mean: Tensor,
        running_var: Tensor,
        momentum: float,
    ) -> Tensor:
        n, channels, H, W = z.shape
        M = n * H * W
        blocks, rounds = _shares(M, channels)
        sums = torch.empty((blocks, 2, channels), dtype=torch.float32, device=z.device)
        _sum_up[(blocks, _parts(channels))](z, sums, M, channels, PIXELS, CHANNELS, rounds, num_warps=WARPS)
        mean, rstd, factor, shift = torch.empty((4, channels), dtype=torch.float32, device=z.device)
        _statistics[(triton.cdiv(channels, FEW),)](
            sums, gamma, beta, mean, rstd, factor, shift, running_mean, running_var,
            blocks, channels, M, epsilon, momentum, triton.cdiv(blocks, ROWS), ROWS, FEW, num_warps=WARPS,
        )  # fmt: skip
        shape, last = (n, channels, H // 2, W // 2), torch.channels_last
        out = torch.empty(shape, dtype=z.dtype, device=z.device, memory_format=last)
        grid = (triton.cdiv(n * (H // 2) * (W // 2), PIXELS), _parts(channels))
        _forward[grid](z, factor, shift, out, n, channels, H, W, PIXELS, CHANNELS, num_warps=WARPS)
        ctx.save_for_backward(z, factor, shift, mean, rstd)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        z, factor, shift, mean, rstd = ctx.saved_tensors
        n, channels, H, W = z.shape
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        sizes = (n, channels, H, W, PIXELS, CHANNELS)
        blocks, rounds = _shares(n * (H // 2) * (W // 2), channels)
        sums = torch.empty((blocks, 2, channels), dtype=torch.float32, device=z.device)
        grid = (blocks, _parts(channels))
        _sum_gradients[grid](z, factor, shift, mean, rstd, gradient, sums, *sizes, rounds, num_warps=WARPS)
        d_beta, d_gamma, constant, slope = torch.empty((4, channels), dtype=torch.float32, device=z.device)
        _slopes[(triton.cdiv(channels, FEW),)](
            sums, factor, rstd, d_beta, d_gamma, constant, slope,
            blocks, channels, n * H * W, triton.cdiv(blocks, ROWS), ROWS, FEW, num_warps=WARPS,
        )  # fmt: skip
        d_z = torch.empty_like(z)
        grid = (triton.cdiv(n * -(-H // 2) * -(-W // 2), PIXELS), _parts(channels))
        _backward[grid](z, factor, shift, mean, constant, slope, gradient, d_z, *sizes, num_warps=WARPS)
        return d_z, d_gamma, d_beta, *[None] * 4


def _parts(channels: int) -> int:
    found: int = triton.cdiv(channels, CHANNELS)
    return found


def _shares(pixels: int, channels: int) -> tuple[int, int]:
    """Return the number of programs that a sum over pixels is divided into, and the rounds of each."""
    pieces = triton.cdiv(pixels, PIXELS)
    rounds = 1
    while rounds < ROUNDS and pieces * _parts(channels) >= 2 * rounds * PROGRAMS:
        rounds *= 2
    return triton.cdiv(pieces, rounds), rounds


if triton is not None:

    @triton.jit
    def _sum_up(z, sums, M, channels, P: tl.constexpr, C: tl.constexpr, TIMES: tl.constexpr):  # type: ignore[no-untyped-def]
        channel = tl.program_id(1) * C + tl.arange(0, C)
        total = tl.full((P, C), 0.0, tl.float32)
        squares = tl.full((P, C), 0.0, tl.float32)
        for times in range(TIMES):
            pixel = (tl.program_id(0) * TIMES + times) * P + tl.arange(0, P)
            there = (pixel < M)[:, None] & (channel < channels)[None, :]
            value = tl.load(z + pixel.to(tl.int64)[:, None] * channels + channel[None, :], mask=there, other=0.0)
            value = value.to(tl.float32)
            total += value
            squares += value * value
        start = sums + tl.program_id(0) * 2 * channels + channel
        tl.store(start, tl.sum(total, 0), mask=channel < channels)
        tl.store(start + channels, tl.sum(squares, 0), mask=channel < channels)

    @triton.jit
    def _added_up(sums, which, channel, blocks, channels, TIMES: tl.constexpr, ROWS: tl.constexpr, C: tl.constexpr):  # type: ignore[no-untyped-def]
        """Sum ``which`` of the two over all blocks, (C,); double precision, because a small difference may follow."""
        total = tl.full((ROWS, C), 0.0, tl.float64)
        for times in range(TIMES):
            block = times * ROWS + tl.arange(0, ROWS)
            there = (block < blocks)[:, None] & (channel < channels)[None, :]
            where = sums + (block * 2 + which)[:, None] * channels + channel[None, :]
            total += tl.load(where, mask=there, other=0.0).to(tl.float64)
        return tl.sum(total, 0)

    @triton.jit
    def _statistics(sums, gamma, beta, mean, rstd, factor, shift, running_mean, running_var, blocks, channels, M,  # type: ignore[no-untyped-def]
                    epsilon, momentum, TIMES: tl.constexpr, ROWS: tl.constexpr, C: tl.constexpr):  # fmt: skip
        channel = tl.program_id(0) * C + tl.arange(0, C)
        inside = channel < channels
        mu = _added_up(sums, 0, channel, blocks, channels, TIMES, ROWS, C) / M
        squares = _added_up(sums, 1, channel, blocks, channels, TIMES, ROWS, C) / M
        var = tl.maximum(squares - mu * mu, 0.0).to(tl.float32)
        mu = mu.to(tl.float32)
        r = 1 / tl.sqrt(var + epsilon)
        a = tl.load(gamma + channel, mask=inside, other=0.0) * r
        tl.store(mean + channel, mu, mask=inside)
        tl.store(rstd + channel, r, mask=inside)
        tl.store(factor + channel, a, mask=inside)
        tl.store(shift + channel, tl.load(beta + channel, mask=inside, other=0.0) - mu * a, mask=inside)
        before = tl.load(running_mean + channel, mask=inside, other=0.0)
        tl.store(running_mean + channel, before + momentum * (mu - before), mask=inside)
        before = tl.load(running_var + channel, mask=inside, other=0.0)
        unbiased = var * (M / (M - 1))
        tl.store(running_var + channel, before + momentum * (unbiased - before), mask=inside)

    @triton.jit
    def _slopes(sums, factor, rstd, d_beta, d_gamma, constant, slope, blocks, channels, M, TIMES: tl.constexpr,  # type: ignore[no-untyped-def]
                ROWS: tl.constexpr, C: tl.constexpr):  # fmt: skip
        channel = tl.program_id(0) * C + tl.arange(0, C)
        inside = channel < channels
        of_beta = _added_up(sums, 0, channel, blocks, channels, TIMES, ROWS, C).to(tl.float32)
        of_gamma = _added_up(sums, 1, channel, blocks, channels, TIMES, ROWS, C).to(tl.float32)
        share = tl.load(factor + channel, mask=inside, other=0.0) / M
        tl.store(d_beta + channel, of_beta, mask=inside)
        tl.store(d_gamma + channel, of_gamma, mask=inside)
        tl.store(constant + channel, share * of_beta, mask=inside)
        tl.store(slope + channel, share * of_gamma * tl.load(rstd + channel, mask=inside, other=0.0), mask=inside)

    @triton.jit
    def _row(values, channel, channels):  # type: ignore[no-untyped-def]
        """Load a number for each channel, as a row."""
        return tl.load(values + channel, mask=channel < channels, other=0.0)[None, :]

    @triton.jit
    def _window(z, pixel, channel, n, channels, H, W, rows, columns, dy, dx):  # type: ignore[no-untyped-def]
        """Return pointers to place (dy, dx) of each output pixel's window, and a mask; (pixels, channels)."""
        image, y, x = pixel // (rows * columns), pixel // columns % rows * 2 + dy, pixel % columns * 2 + dx
        where = z + ((image.to(tl.int64) * H + y) * W + x)[:, None] * channels + channel[None, :]
        there = ((image < n) & (y < H) & (x < W))[:, None] & (channel < channels)[None, :]
        return where, there

    @triton.jit
    def _forward(z, factor, shift, out, n, channels, H, W, P: tl.constexpr, C: tl.constexpr):  # type: ignore[no-untyped-def]
        pixel = tl.program_id(0) * P + tl.arange(0, P)
        channel = tl.program_id(1) * C + tl.arange(0, C)
        a = _row(factor, channel, channels)
        b = _row(shift, channel, channels)
        best = tl.full((P, C), 0.0, tl.float32)  # ReLU: nothing below zero
        for place in tl.static_range(4):
            where, there = _window(z, pixel, channel, n, channels, H, W, H // 2, W // 2, place // 2, place % 2)
            best = tl.maximum(best, tl.load(where, mask=there, other=0.0).to(tl.float32) * a + b)
        where = out + pixel.to(tl.int64)[:, None] * channels + channel[None, :]
        there = (pixel < n * (H // 2) * (W // 2))[:, None] & (channel < channels)[None, :]
        tl.store(where, best.to(out.dtype.element_ty), mask=there)

    @triton.jit
    def _sum_gradients(z, factor, shift, mean, rstd, gradient, sums, n, channels, H, W, P: tl.constexpr,  # type: ignore[no-untyped-def]
                       C: tl.constexpr, TIMES: tl.constexpr):  # fmt: skip
        channel = tl.program_id(1) * C + tl.arange(0, C)
        inside = channel < channels
        a = _row(factor, channel, channels)
        b = _row(shift, channel, channels)
        mu = _row(mean, channel, channels)
        r = _row(rstd, channel, channels)
        d_beta = tl.full((P, C), 0.0, tl.float32)
        d_gamma = tl.full((P, C), 0.0, tl.float32)
        for times in range(TIMES):
            pixel = (tl.program_id(0) * TIMES + times) * P + tl.arange(0, P)
            best = tl.full((P, C), float("-inf"), tl.float32)
            best_z = tl.full((P, C), 0.0, tl.float32)
            for place in tl.static_range(4):
                where, there = _window(z, pixel, channel, n, channels, H, W, H // 2, W // 2, place // 2, place % 2)
                value = tl.load(where, mask=there, other=0.0).to(tl.float32)
                y = value * a + b
                best_z = tl.where(y > best, value, best_z)
                best = tl.maximum(best, y)
            where = gradient + pixel.to(tl.int64)[:, None] * channels + channel[None, :]
            there = (pixel < n * (H // 2) * (W // 2))[:, None] & inside[None, :]
            d = tl.where(best > 0, tl.load(where, mask=there, other=0.0).to(tl.float32), 0.0)
            d_beta += d
            d_gamma += d * (best_z - mu) * r
        start = sums + tl.program_id(0) * 2 * channels + channel
        tl.store(start, tl.sum(d_beta, 0), mask=inside)
        tl.store(start + channels, tl.sum(d_gamma, 0), mask=inside)

    @triton.jit
    def _backward(z, factor, shift, mean, constant, slope, gradient, d_z, n, channels, H, W, P: tl.constexpr,  # type: ignore[no-untyped-def]
                  C: tl.constexpr):  # fmt: skip
        channel = tl.program_id(1) * C + tl.arange(0, C)
        inside = channel < channels
        a = _row(factor, channel, channels)
        b = _row(shift, channel, channels)
        mu = _row(mean, channel, channels)
        c0 = _row(constant, channel, channels)
        c1 = _row(slope, channel, channels)
        rows, columns = (H + 1) // 2, (W + 1) // 2  # including incomplete windows
        pixel = tl.program_id(0) * P + tl.arange(0, P)
        image, y, x = pixel // (rows * columns), pixel // columns % rows, pixel % columns
        whole = (image < n) & (y < H // 2) & (x < W // 2)
        best = tl.full((P, C), float("-inf"), tl.float32)
        best_place = tl.full((P, C), 0, tl.int32)
        for place in tl.static_range(4):
            where, there = _window(z, pixel, channel, n, channels, H, W, rows, columns, place // 2, place % 2)
            value = tl.load(where, mask=there, other=0.0).to(tl.float32) * a + b
            best_place = tl.where(value > best, place, best_place)
            best = tl.maximum(best, value)
        where = ((image.to(tl.int64) * (H // 2) + y) * (W // 2) + x)[:, None] * channels + channel[None, :]
        d = tl.load(gradient + where, mask=whole[:, None] & inside[None, :], other=0.0).to(tl.float32)
        d = tl.where(best > 0, d * a, 0.0)
        for place in tl.static_range(4):
            where, there = _window(z, pixel, channel, n, channels, H, W, rows, columns, place // 2, place % 2)
            value = tl.load(where, mask=there, other=0.0).to(tl.float32)
            here = tl.where(best_place == place, d, 0.0) - c0 - c1 * (value - mu)
            where, there = _window(d_z, pixel, channel, n, channels, H, W, rows, columns, place // 2, place % 2)
            tl.store(where, here.to(d_z.dtype.element_ty), mask=there)
