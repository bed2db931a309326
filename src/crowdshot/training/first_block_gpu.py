"""Compute the first block of a stack of Conv4 networks on a GPU without storing its largest activation.

Convolution, batch normalisation, max-pooling and ReLU of the first block pass several times over the largest tensor of
the network, which is 64 times the size of the images. Here this tensor z is never stored. z = w · patch for each of the
M 3×3 patches (t = 9·C numbers each) of a model's images:

    S = sum patch, A = sum patch patch'      (t,), (t, t): small, one product over the patches
    mean z = w·S / M, mean z² = w'A w / M    the statistics do not need z
    out = relu(max over 2×2 of (γ (z - μ) / σ + β))                     one kernel, z computed from the patches

In the backward pass, d is the gradient of `out` if `out` is positive, else 0, at the place of the maximum:

    dβ = sum d,  dγ = sum d (z - μ) / σ,  E = sum d patch               one kernel, z recomputed
    dw = γ/σ (E - dβ S / M - dγ (A w - μ S) / (σ M))

Patches are stored in float16, which has as many digits as TF32, cuDNN's format for products. Gathering patches takes
longer than all computations with them. If networks see the same images at every step, patches, S and A are computed
only once. `first_block` is differentiable in w, γ and β; images get no gradient.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # no GPU: `stack` uses plain torch operations
    triton = None

PIXELS = 32  # output pixels that a program processes at a time
ROUNDS = 16  # blocks of pixels that a program adds up, at most, before it writes its partial sum
PROGRAMS = 1024  # enough to occupy the GPU; more would only write more partial sums
FEW = 16  # channels whose statistics a program computes
WARPS = 4


def is_available(items: Tensor, weight: Tensor) -> bool:
    """Return whether images are on a GPU, of even size, with three channels at most, and Triton can tile the width."""
    channels, width = weight.shape[1], weight.shape[0] // items.shape[0]
    even = items.shape[-1] % 2 == 0 and items.shape[-2] % 2 == 0
    return triton is not None and items.is_cuda and even and channels <= 3 and width in (16, 32, 64, 128)


class Patches(NamedTuple):
    """The patches of images (G, n, C, H, W), and their sums.

    ``values`` (G, 4, n·H/2·W/2, T) in float16 are the patches around the four places of each output pixel's 2×2 window:
    9·C numbers (three rows of three per channel), then a 1, then zeros up to T. ``S`` (G, t) is their sum and ``A``
    (G, t, t) the sum of their outer products.
    """

    values: Tensor
    S: Tensor
    A: Tensor
    shape: torch.Size


def patches(items: Tensor) -> Patches:
    """Gather the patches of images (G, n, C, H, W) of even height and width."""
    items = items.contiguous()
    G, n, C, H, W = items.shape
    pixels, t = n * (H // 2) * (W // 2), 9 * C
    T = 16 if t < 16 else 32
    values = torch.empty((G, 4, pixels, T), dtype=torch.float16, device=items.device)
    _lay_out[(triton.cdiv(pixels, PIXELS), G)](items, values, n, C, H, W, T, PIXELS, num_warps=WARPS)
    blocks, rounds = _shares(pixels, G)
    sums = torch.empty((G, blocks, T, T), dtype=torch.float32, device=items.device)
    _second_moments[(blocks, G)](values, sums, pixels, T, PIXELS, rounds, num_warps=WARPS)
    moments = sums.sum(1)  # every patch has a 1 at position t, so row t is their sum
    return Patches(values, moments[:, t, :t].contiguous(), moments[:, :t, :t].contiguous(), items.shape)


def first_block(
    patches: Patches,
    weight: Tensor,
    gamma: Tensor,
    beta: Tensor,
    epsilon: float,
    running: tuple[Tensor, Tensor],
    momentum: float,
    dtype: torch.dtype,
) -> Tensor:
    """Apply the first block to the patches of images (G, n, C, H, W).

    ``weight`` is (G·width, C, 3, 3); ``gamma``, ``beta`` and the ``running`` mean and variance are (G·width,). The
    running statistics are updated in place with ``momentum``. Returns (n, G·width, H/2, W/2) of ``dtype``, in
    channels-last format.
    """
    out: Tensor = _FirstBlock.apply(weight, gamma, beta, patches, epsilon, *running, momentum, dtype)  # type: ignore[no-untyped-call]
    return out


class _FirstBlock(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        gamma: Tensor,
        beta: Tensor,
        patches: Patches,
        epsilon: float,
        running_mean: Tensor,
        running_var: Tensor,
        momentum: float,
        dtype: torch.dtype,
    ) -> Tensor:
        values, S, A, (G, n, C, H, W) = patches
        t, width, device = 9 * C, weight.shape[0] // G, values.device
        w_t = weight.view(G, width, t).mT.contiguous()  # (G, t, width)
        mean, rstd, factor, shift = torch.empty((4, G, width), dtype=torch.float32, device=device)
        _statistics[(G, width // FEW)](
            w_t, S, A, gamma, beta, mean, rstd, factor, shift, running_mean, running_var,
            t, n * H * W, epsilon, momentum, width, values.shape[-1], FEW, num_warps=WARPS,
        )  # fmt: skip
        shape, last = (n, G * width, H // 2, W // 2), torch.channels_last
        out = torch.empty(shape, dtype=dtype, device=device, memory_format=last)
        grid = (triton.cdiv(values.shape[2], PIXELS), G)
        _forward[grid](values, w_t, factor, shift, out, *_sizes(patches, width), num_warps=WARPS)
        ctx.patches = patches
        ctx.save_for_backward(w_t, factor, shift, mean, rstd)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        w_t, factor, shift, mean, rstd = ctx.saved_tensors
        values, S, A, (G, n, C, H, W) = ctx.patches
        t, T, width = 9 * C, values.shape[-1], w_t.shape[-1]
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        blocks, rounds = _shares(values.shape[2], G)
        sums = torch.empty((G, blocks, T + 2, width), dtype=torch.float32, device=values.device)
        _backward[(blocks, G)](
            values, w_t, factor, shift, mean, rstd, gradient, sums, *_sizes(ctx.patches, width), rounds, num_warps=WARPS
        )
        sums = sums.sum(1)  # E, dβ and dγ
        d_weight = torch.empty((G * width, C, 3, 3), dtype=torch.float32, device=values.device)
        _gradient[(G, width // FEW)](
            w_t, S, A, factor, mean, rstd, sums, d_weight, t, n * H * W, width, T, FEW, num_warps=WARPS
        )
        return d_weight, sums[:, -1].flatten(), sums[:, -2].flatten(), *[None] * 6


def _sizes(patches: Patches, width: int) -> tuple[int, ...]:
    """Return the kernels' last arguments: t, output pixels per model, G, width, padded patch size, pixels at a time."""
    G, _, pixels, T = patches.values.shape
    return (9 * patches.shape[2], pixels, G, width, T, PIXELS)


def _shares(pixels: int, G: int) -> tuple[int, int]:
    """Return the number of programs that a sum over a model's output pixels is divided into, and the rounds of each."""
    pieces = triton.cdiv(pixels, PIXELS)
    rounds = 1
    while rounds < ROUNDS and pieces * G >= 2 * rounds * PROGRAMS:
        rounds *= 2
    return triton.cdiv(pieces, rounds), rounds


if triton is not None:

    @triton.jit
    def _lay_out(items, values, n, C, H, W, T: tl.constexpr, P: tl.constexpr):  # type: ignore[no-untyped-def]
        g = tl.program_id(1)
        pixels = n * (H // 2) * (W // 2)
        pixel, t = (tl.program_id(0) * P + tl.arange(0, P))[:, None], tl.arange(0, T)[None, :]
        image, y, x = pixel // ((H // 2) * (W // 2)), pixel // (W // 2) % (H // 2), pixel % (W // 2)
        c, ky, kx = t // 9, t // 3 % 3, t % 3
        first = items + (g * n + image).to(tl.int64) * C * H * W
        for place in tl.static_range(4):
            row, column = 2 * y + place // 2 - 1 + ky, 2 * x + place % 2 - 1 + kx
            inside = (row >= 0) & (row < H) & (column >= 0) & (column < W) & (c < C) & (image < n)
            patch = tl.load(first + (c * H + row) * W + column, mask=inside, other=0.0)
            patch = tl.where(t == 9 * C, 1.0, patch)
            where = values + ((g * 4 + place).to(tl.int64) * pixels + pixel) * T + t
            tl.store(where, patch.to(tl.float16), mask=pixel < pixels)

    @triton.jit
    def _patch(values, g, place, pixel, pixels, T: tl.constexpr):  # type: ignore[no-untyped-def]
        """Load patches (pixels, T), zero beyond the last pixel."""
        where = values + ((g * 4 + place).to(tl.int64) * pixels + pixel[:, None]) * T + tl.arange(0, T)[None, :]
        return tl.load(where, mask=(pixel < pixels)[:, None], other=0.0)

    @triton.jit
    def _second_moments(values, sums, pixels, T: tl.constexpr, P: tl.constexpr, TIMES: tl.constexpr):  # type: ignore[no-untyped-def]
        g = tl.program_id(1)
        t = tl.arange(0, T)
        total = tl.full((T, T), 0.0, tl.float32)
        for times in range(TIMES):
            pixel = (tl.program_id(0) * TIMES + times) * P + tl.arange(0, P)
            for place in tl.static_range(4):
                patch = _patch(values, g, place, pixel, pixels, T)
                total += tl.dot(tl.trans(patch), patch)
        start = sums + (g * tl.num_programs(0) + tl.program_id(0)) * T * T
        tl.store(start + t[:, None] * T + t[None, :], total)

    @triton.jit
    def _small(w_t, S, A, g, channel, t, T, WIDTH: tl.constexpr, TP: tl.constexpr):  # type: ignore[no-untyped-def]
        """Load weights (T, channels), S (T, 1) and A w (T, channels) of model g, zero beyond a patch's T numbers."""
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
    def _weights(w_t, g, t, WIDTH: tl.constexpr, T: tl.constexpr):  # type: ignore[no-untyped-def]
        """Load weights (T, WIDTH), zero beyond the t numbers of a patch."""
        row, channel = tl.arange(0, T), tl.arange(0, WIDTH)
        where = w_t + (g * t + row[:, None]) * WIDTH + channel[None, :]
        return tl.load(where, mask=(row < t)[:, None], other=0.0).to(tl.float16)

    @triton.jit
    def _forward(values, w_t, factor, shift, out, t, pixels, G, WIDTH: tl.constexpr, T: tl.constexpr,  # type: ignore[no-untyped-def]
                 P: tl.constexpr):  # fmt: skip
        g = tl.program_id(1)
        pixel = tl.program_id(0) * P + tl.arange(0, P)
        channel = tl.arange(0, WIDTH)
        w = _weights(w_t, g, t, WIDTH, T)
        a = tl.load(factor + g * WIDTH + channel)[None, :]
        b = tl.load(shift + g * WIDTH + channel)[None, :]
        best = tl.full((P, WIDTH), 0.0, tl.float32)  # ReLU: nothing below zero
        for place in tl.static_range(4):
            best = tl.maximum(best, tl.dot(_patch(values, g, place, pixel, pixels, T), w) * a + b)
        where = pixel.to(tl.int64)[:, None] * (G * WIDTH) + g * WIDTH + channel[None, :]
        tl.store(out + where, best.to(out.dtype.element_ty), mask=(pixel < pixels)[:, None])

    @triton.jit
    def _backward(values, w_t, factor, shift, mean, rstd, gradient, sums, t, pixels, G, WIDTH: tl.constexpr,  # type: ignore[no-untyped-def]
                  T: tl.constexpr, P: tl.constexpr, TIMES: tl.constexpr):  # fmt: skip
        g = tl.program_id(1)
        channel = tl.arange(0, WIDTH)
        w = _weights(w_t, g, t, WIDTH, T)
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
                z = tl.dot(_patch(values, g, place, pixel, pixels, T), w)
                y = z * a + b
                better = y > best
                best = tl.where(better, y, best)
                best_z = tl.where(better, z, best_z)
                best_place = tl.where(better, place, best_place)
            where = pixel.to(tl.int64)[:, None] * (G * WIDTH) + g * WIDTH + channel[None, :]
            d = tl.load(gradient + where, mask=(pixel < pixels)[:, None], other=0.0).to(tl.float32)
            d = tl.where(best > 0, d, 0.0)
            d_beta += tl.sum(d, 0)
            d_gamma += tl.sum(d * (best_z - mu) * r, 0)
            for place in tl.static_range(4):
                patch = tl.trans(_patch(values, g, place, pixel, pixels, T))
                here = tl.where(best_place == place, d, 0.0)
                e += tl.dot(patch.to(gradient.dtype.element_ty), here.to(gradient.dtype.element_ty))
        row = tl.arange(0, T)
        start = sums + (g * tl.num_programs(0) + tl.program_id(0)) * (T + 2) * WIDTH
        tl.store(start + row[:, None] * WIDTH + channel[None, :], e)
        tl.store(start + T * WIDTH + channel, d_beta)
        tl.store(start + (T + 1) * WIDTH + channel, d_gamma)
