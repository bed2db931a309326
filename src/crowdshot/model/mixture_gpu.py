"""Fit the mixture to small episodes and classify queries on a GPU: EM and its gradient as one kernel each.

For an episode of the paper's size, `mixture.fit` and `Fit.log_proba` launch some hundred tiny kernels, and as many for
the gradient. But EM uses the embeddings only in inner products. Around an origin o, with x = u - o,

    mu_k - o = sum_n a_nk x_n - (tau / (tau + n_k)) o        a_nk = w_nk / (tau + n_k)

Treat o as one more item, whose a is minus the second factor. Then EM needs only the Gram matrix of all items with the
support and o, which is one matrix product for any D. The remaining N × K numbers fit into the registers of one program
for each episode. It runs J times (M-step, E-step) forwards, and the chain rule from the last step to the first
backwards. With L = E - H / 2 + log pi + the annotators' evidence, E = S a and H_k = a_k' S a_k:

    dE = dL    dH_k = -1/2 sum_n dL_nk    da = S dL + 2 (S a) dH    dS = dL a' + a dH a'
    d log confusion[t, l] = sum_n dL_nt [y_n = l]

Only the paper's priors (a number c for every cell of a confusion matrix) and the identity covariance are supported.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from crowdshot.model.priors import Number

try:
    import triton
    import triton.language as tl
except ImportError:  # without a GPU, `mixture.log_proba` uses `mixture.fit`
    triton = None

MOST_ITEMS, MOST_CLASSES, MOST_QUERIES = 31, 8, 128  # limits of a program's registers


def is_available(embedded: Tensor, labels: Tensor, n_classes: int) -> bool:
    N = labels.shape[1]
    small = N <= MOST_ITEMS and n_classes <= MOST_CLASSES and embedded.shape[1] - N <= MOST_QUERIES
    return triton is not None and embedded.is_cuda and small


def log_proba(
    embedded: Tensor,
    labels: Tensor,
    n_classes: int,
    steps: Tensor,
    tau: Number,
    b: Number,
    c: float = 1.0,
    classes_in_use: Tensor | None = None,
    most_steps: int | None = None,
) -> Tensor:
    """Return log p(t = k | u) of the queries, (B, Q, K), after ``steps`` (B,) of EM on the support.

    In ``embedded`` (B, N + Q, D), support items come first. In ``labels`` (B, N, R), -1 is a missing label. ``tau`` and
    ``b`` have shape (B,). ``classes_in_use`` (B,) and ``most_steps`` are those of `mixture.fit`.
    """
    in_use = torch.full_like(steps, n_classes) if classes_in_use is None else classes_in_use
    most = int(steps.max()) if most_steps is None else most_steps
    found: Tensor = _Classify.apply(
        embedded, labels, steps, torch.as_tensor(tau), torch.as_tensor(b), in_use, n_classes, float(c), most
    )  # type: ignore[no-untyped-call]
    return found


class _Classify(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        embedded: Tensor,
        labels: Tensor,
        steps: Tensor,
        tau: Tensor,
        b: Tensor,
        in_use: Tensor,
        K: int,
        c: float,
        most_steps: int,
    ) -> Tensor:
        B, P, _ = embedded.shape
        N, R = labels.shape[1:]
        # The same origin as in `mixture.fit`: it matters for classes without items if tau = 0.
        labelled = (labels >= 0).any(-1).to(embedded)
        origin = torch.einsum("bn,bnd->bd", labelled, embedded[:, :N]) / labelled.sum(1, keepdim=True).clamp_min(1)
        origin = origin[:, None]
        x = embedded - origin
        y = torch.cat([x[:, :N], origin], 1)
        gram = torch.bmm(x, y.mT)  # (B, N + Q, N + 1)
        norm = origin.square().sum((1, 2))
        inputs = [value.contiguous() for value in (labels, steps, tau.to(gram), b.to(gram), in_use)]
        out = gram.new_empty(B, P - N, K)
        posteriors = gram.new_empty(B, most_steps, N, K)
        sizes = N, P - N, K, c, R, most_steps, *map(triton.next_power_of_2, (N + 1, P - N, K))
        _forward[(B,)](gram, norm, *inputs, out, posteriors, *sizes, num_warps=WARPS)
        ctx.save_for_backward(x, y, gram, norm, *inputs, out, posteriors)
        ctx.sizes = sizes
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        x, y, gram, norm, *inputs, out, posteriors = ctx.saved_tensors
        N = ctx.sizes[0]
        d_gram = torch.empty_like(gram)
        _backward[(len(x),)](
            gram, norm, *inputs, out, posteriors, gradient.contiguous(), d_gram, *ctx.sizes, num_warps=WARPS
        )
        # The gradient of the origin is left out: results depend on it only for classes without items.
        d_x = torch.bmm(d_gram, y)
        d_x[:, :N] += torch.bmm(d_gram[:, :, :N].mT, x)
        return d_x, *[None] * 8


WARPS = 4

if triton is not None:
    TINY = tl.constexpr(1.1754943508222875e-38)  # the smallest normal number of single precision

    @triton.jit
    def _times(m, a):  # type: ignore[no-untyped-def]
        """Return (I, J) @ (J, K), for K too small for the matrix units."""
        return tl.sum(m[:, :, None] * a[None, :, :], 1)

    @triton.jit
    def _support(gram, norm, n, j, N):  # type: ignore[no-untyped-def]
        """Return S, (N + 1, N + 1): inner products of the support's items and, last, the origin."""
        inside = (n < N)[:, None] & (j <= N)[None, :]
        products = tl.load(gram + n[:, None] * (N + 1) + j[None, :], inside, 0.0)
        mirrored = (n == N)[:, None] & (j < N)[None, :]  # S is symmetric
        products += tl.load(gram + j[None, :] * (N + 1) + N + 0 * n[:, None], mirrored, 0.0)
        return tl.where((n == N)[:, None] & (j == N)[None, :], norm, products)

    @triton.jit
    def _sizes(w, tau):  # type: ignore[no-untyped-def]
        """Return n_k and tau + n_k, (K,) each."""
        n_k = tl.sum(w, 0)
        return n_k, tl.maximum(tau + n_k, TINY)

    @triton.jit
    def _shares(w, tau, below, n, N):  # type: ignore[no-untyped-def]
        """Return a, (N + 1, K): the coefficients of items and origin in the means."""
        return tl.where((n == N)[:, None], -tau, w) / below[None, :]

    @triton.jit
    def _counts(w, y, k, present, c):  # type: ignore[no-untyped-def]
        """Return one annotator's one-hot labels, counts plus c, (K true, K observed), and the sums of the rows."""
        observed = (y[:, None] == k[None, :]).to(w.dtype)
        counts = tl.sum(w[:, :, None] * observed[:, None, :], 0) + c * present[:, None] * present[None, :]
        return observed, counts, tl.maximum(tl.sum(counts, 1), TINY)

    @triton.jit
    def _log(x):  # type: ignore[no-untyped-def]
        return tl.log(tl.maximum(x, TINY))

    @triton.jit
    def _log_class_probs(n_k, b, present):  # type: ignore[no-untyped-def]
        raised = (n_k + b) * present
        return tl.where(present > 0, _log(raised) - tl.log(tl.sum(raised, 0)), -float("inf"))

    @triton.jit
    def _softmax(scores, used):  # type: ignore[no-untyped-def]
        """Return the softmax over the last axis, zero for classes not in use, and its logarithm."""
        top = tl.max(tl.where(used, scores, -float("inf")), 1)
        shifted = tl.where(used, scores - top[:, None], 0.0)
        raised = tl.where(used, tl.exp(shifted), 0.0)
        total = tl.sum(raised, 1)
        return raised / total[:, None], shifted - tl.log(total)[:, None]

    @triton.jit
    def _forward(gram, norm, labels, steps, tau, b, in_use, out, posteriors, N, Q, K, c, R: tl.constexpr,  # type: ignore[no-untyped-def]
                 MOST: tl.constexpr, NP: tl.constexpr, QP: tl.constexpr, KP: tl.constexpr):  # fmt: skip
        e = tl.program_id(0)
        gram += e * (N + Q) * (N + 1)
        labels += e * N * R
        posteriors += e * MOST * N * K
        tau, b, norm = tl.load(tau + e), tl.load(b + e), tl.load(norm + e)
        n, j, k = tl.arange(0, NP), tl.arange(0, NP), tl.arange(0, KP)
        S = _support(gram, norm, n, j, N)
        present = (k < tl.load(in_use + e)).to(S.dtype)
        used = (present > 0)[None, :]
        inside = (n < N)[:, None] & (k < K)[None, :]

        votes = tl.zeros((NP, KP), S.dtype)
        for r in range(R):
            y = tl.load(labels + n * R + r, n < N, -1)
            votes += (y[:, None] == k[None, :]).to(S.dtype)
        total = tl.sum(votes, 1)
        weight = (total > 0).to(S.dtype)
        w = votes / tl.maximum(total, 1.0)[:, None]

        J = tl.load(steps + e)
        at = n[:, None] * K + k[None, :]
        tl.store(posteriors + at, w, inside)
        for step in range(1, MOST):  # a finished episode does not change
            n_k, below = _sizes(w, tau)
            a = _shares(w, tau, below, n, N)
            near = _times(S, a)
            scores = near - 0.5 * tl.sum(a * near, 0)[None, :] + _log_class_probs(n_k, b, present)[None, :]
            for r in range(R):
                y = tl.load(labels + n * R + r, n < N, -1)
                observed, counts, rows = _counts(w, y, k, present, c)
                scores += tl.sum(observed[:, None, :] * _log(counts / rows[:, None])[None, :, :], 2)
            posterior, _ = _softmax(scores, used)
            w = tl.where(step < J, posterior * weight[:, None], w)
            tl.store(posteriors + step * N * K + at, w, inside)

        n_k, below = _sizes(w, tau)
        a = _shares(w, tau, below, n, N)
        q = tl.arange(0, QP)
        M = tl.load(gram + (N + q[:, None]) * (N + 1) + j[None, :], (q < Q)[:, None] & (j <= N)[None, :], 0.0)
        scores = _times(M, a) - 0.5 * tl.sum(a * _times(S, a), 0)[None, :]
        _, log_p = _softmax(scores + _log_class_probs(n_k, b, present)[None, :], used)
        log_p = tl.where(used, log_p, -float("inf"))
        tl.store(out + e * Q * K + q[:, None] * K + k[None, :], log_p, (q < Q)[:, None] & (k < K)[None, :])

    @triton.jit
    def _through_means(S, w, a, near, n_k, below, d_a, d_h, d_log_pi, tau, b, present, n, N):  # type: ignore[no-untyped-def]
        """Return the gradient of w, (N + 1, K), from those of a, H and log pi."""
        d_a += 2 * near * d_h[None, :]
        is_item = (n < N)[:, None]
        d_below = -tl.sum(d_a * a, 0) / below  # the origin's a is -tau / below: the same rule
        raised = tl.where(present > 0, n_k + b, 1.0)
        norm = tl.sum(tl.where(present > 0, raised, 0.0), 0)
        d_n = d_below + tl.where(present > 0, d_log_pi / raised - tl.sum(d_log_pi, 0) / norm, 0.0)
        return tl.where(is_item, d_a / below[None, :] + d_n[None, :], 0.0)

    @triton.jit
    def _backward(gram, norm, labels, steps, tau, b, in_use, out, posteriors, gradient, d_gram, N, Q, K, c,  # type: ignore[no-untyped-def]
                  R: tl.constexpr, MOST: tl.constexpr, NP: tl.constexpr, QP: tl.constexpr,
                  KP: tl.constexpr):  # fmt: skip
        e = tl.program_id(0)
        gram += e * (N + Q) * (N + 1)
        d_gram += e * (N + Q) * (N + 1)
        labels += e * N * R
        posteriors += e * MOST * N * K
        tau, b, norm = tl.load(tau + e), tl.load(b + e), tl.load(norm + e)
        n, j, k, q = tl.arange(0, NP), tl.arange(0, NP), tl.arange(0, KP), tl.arange(0, QP)
        S = _support(gram, norm, n, j, N)
        present = (k < tl.load(in_use + e)).to(S.dtype)
        used = (present > 0)[None, :]
        inside = (n < N)[:, None] & (k < K)[None, :]
        asked = (q < Q)[:, None] & (k < K)[None, :] & used

        # the classifier
        J = tl.load(steps + e)
        at = n[:, None] * K + k[None, :]
        w = tl.load(posteriors + (J - 1) * N * K + at, inside, 0.0)
        n_k, below = _sizes(w, tau)
        a = _shares(w, tau, below, n, N)
        near = _times(S, a)
        of_query = e * Q * K + q[:, None] * K + k[None, :]
        d_log_p = tl.load(gradient + of_query, asked, 0.0)
        p = tl.where(asked, tl.exp(tl.load(out + of_query, asked, 0.0)), 0.0)
        d_q = d_log_p - p * tl.sum(d_log_p, 1)[:, None]  # (Q, K)
        reach = (q < Q)[:, None] & (j <= N)[None, :]
        M = tl.load(gram + (N + q[:, None]) * (N + 1) + j[None, :], reach, 0.0)
        d_m = tl.sum(d_q[:, None, :] * a[None, :, :], 2)
        tl.store(d_gram + (N + q[:, None]) * (N + 1) + j[None, :], d_m, reach)
        d_log_pi = tl.sum(d_q, 0)
        d_h = -0.5 * d_log_pi
        d_a = tl.sum(M[:, :, None] * d_q[:, None, :], 0)
        d_s = tl.sum((a * d_h[None, :])[:, None, :] * a[None, :, :], 2)
        d_w = _through_means(S, w, a, near, n_k, below, d_a, d_h, d_log_pi, tau, b, present, n, N)

        # the steps, from the last to the first
        for back in range(1, MOST):
            going = back < J
            # w is the posterior after the step; for items without labels it is zero, and so is the gradient
            d_l = tl.where(going, w * (d_w - tl.sum(w * d_w, 1)[:, None]), 0.0)  # (N + 1, K)
            w = tl.load(posteriors + (J - 1 - back) * N * K + at, inside & going, 0.0)
            n_k, below = _sizes(w, tau)
            a = _shares(w, tau, below, n, N)
            near = _times(S, a)
            d_log_pi = tl.sum(d_l, 0)
            d_h = -0.5 * d_log_pi
            d_a = tl.sum(S[:, :, None] * d_l[:, None, :], 0)
            d_s += tl.sum((d_l + a * d_h[None, :])[:, None, :] * a[None, :, :], 2)
            d_w = _through_means(S, w, a, near, n_k, below, d_a, d_h, d_log_pi, tau, b, present, n, N)
            for r in range(R):
                y = tl.load(labels + n * R + r, n < N, -1)
                observed, counts, rows = _counts(w, y, k, present, c)
                d_log = tl.sum(d_l[:, :, None] * observed[:, None, :], 0)  # (K true, K observed)
                d_counts = d_log / tl.where(counts > 0, counts, 1.0) - (tl.sum(d_log, 1) / rows)[:, None]
                d_w += tl.sum(observed[:, None, :] * d_counts[None, :, :], 2)

        mirrored = tl.where((n < N)[:, None] & (j == N)[None, :], tl.trans(d_s), 0.0)
        tl.store(d_gram + n[:, None] * (N + 1) + j[None, :], d_s + mirrored, (n < N)[:, None] & (j <= N)[None, :])
