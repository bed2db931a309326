"""Ridge and logistic regressions of class posteriors on features, with leave-one-out predictions in closed form.

Let U (n, j) be an orthonormal basis of the columns of the features, diag(s) its squared singular values, q (n, K) the
posteriors, and lambda the ridge on the slopes; the intercept has none. With

    d = s / (s + lambda),   S = U diag(d) U^T,   g = (I - S) 1

the regression at the items is

    f = S q + g (g^T q) / (g^T 1),   h_n = sum_j U_nj^2 d_j + g_n^2 / (g^T 1)
    f_n without item n = (f_n - h_n q_n) / (1 - h_n)

So one eigendecomposition in the smaller of n and the number of features serves all ridges, classes and posteriors; h is
computed once. `Logistic` states the formulas of the logistic regression.

Predictions have classes first, (K, n), because numpy sums rows faster than short columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, eigh, solve_triangular
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpocon, dpotrf, dsygst
from scipy.optimize import minimize

from crowdshot.model.parts import each

Floats = NDArray[np.float64]
Numbers = NDArray[np.floating[Any]]
Positions = NDArray[np.int64]

RIDGES: Floats = np.logspace(-3, 2, 6)  # multiples of the mean squared norm of the centred features
SMALL = 1e-9
AT_ONCE = 500_000  # numbers processed at a time, so that intermediate arrays stay in the cache
COMPACT = 4_000_000  # numbers of a basis U, from which on it is kept in single precision (relative error 6e-8)
WELL = 1e-7  # reciprocal condition number of a kernel from which on Cholesky's decomposition is exact enough
SINGULAR = 1e-8  # eigenvalues of a kernel, relative to the largest, that are 0 but for rounding
ROUNDED = 1e-10  # entries of 1 - U U^T 1 that are 0 but for rounding


def chunks(n: int, width: int) -> Iterator[slice]:
    """Yield slices of n rows, about equally long; arrays with ``width`` numbers per row have at most `AT_ONCE`."""
    pieces = -(-n // max(1, AT_ONCE // max(1, width)))
    yield from (slice(n * i // pieces, n * (i + 1) // pieces) for i in range(pieces))


def kernel(a: Floats, b: Floats) -> Floats:
    """Return exp(-|a - b|^2 / (2 D)), (N, M), of standardised features (N, D) and (M, D)."""
    out: Floats = a @ b.T
    out *= -2
    out += (a * a).sum(1)[:, None]
    out += (b * b).sum(1)
    np.maximum(out, 0, out=out)
    out *= -0.5 / max(1, a.shape[1])
    np.exp(out, out=out)
    return out


# ---- ridge regression ------------------------------------------------------------------------------------------------


class Regression:
    """Ridge regressions for all `RIDGES`; build them with `on_features` or `on_kernel`.

    Parameters
    ----------
    n : int
        Number of items.
    basis : callable
        Returns the rows of the basis U (n, j) in a slice. Threads call it.
    ones : (j,) array
        U^T 1.
    squared : (j,) array
        Squared singular values.
    back : (m, j) array
        The slopes of the regression are back diag(d) U^T (q - intercept).
    """

    def __init__(self, n: int, basis: Callable[[slice], Floats], ones: Floats, squared: Floats, back: Floats) -> None:
        self.n = n
        self.ones, self.squared, self.back = ones, squared, back
        spread = (squared - squared * ones * ones / n).sum() / n  # mean squared norm of the centred features
        self.ridges: Floats = RIDGES * max(float(spread), SMALL)
        self.d: Floats = squared / (squared + self.ridges[:, None])  # (ridges, j)
        rest = self.ridges[:, None] / (squared + self.ridges[:, None]) * ones
        self.g, self.h = np.empty((2, n, len(RIDGES)))
        kept = np.float32 if n * len(squared) >= COMPACT else np.float64

        def block(rows: slice) -> Numbers:
            U = basis(rows)
            outside = 1 - U @ ones
            outside[np.abs(outside) < ROUNDED] = 0
            self.g[rows] = outside[:, None] + U @ rest.T
            self.h[rows] = (U * U) @ self.d.T
            return U.astype(kept, copy=False)

        pieces = list(chunks(n, len(squared)))
        self.blocks: list[tuple[slice, Numbers]] = list(zip(pieces, each(pieces, block), strict=True))
        self.total: Floats = self.g.sum(0)
        self.h += self.g * self.g / self.total

    @classmethod
    def on_features(cls, z: Floats) -> Regression:
        """Return the regressions on features (n, D)."""
        n, D = z.shape
        if n <= D:
            squared, U = _spectrum(z @ z.T)
            return cls(n, U.__getitem__, U.sum(0), squared, z.T @ (U / squared))
        squared, V = _spectrum(z.T @ z)
        back = V / np.sqrt(squared)
        return cls(n, lambda rows: z[rows] @ back, z.sum(0) @ back, squared, back)

    @classmethod
    def on_kernel(cls, z: Floats, landmarks: Positions) -> Regression:
        """Return the regressions on the kernel of standardised features (n, D) and the landmarks among them (m,).

        The Nystroem features are phi = C V diag(s)^(-1/2), where C (n, m) is the kernel of items and landmarks, and
        V diag(s) V^T that of the landmarks. Their inner products approximate the kernel. If every item is a landmark,
        phi = V diag(s)^(1/2), and V is the basis.
        """
        n, centres = len(z), z[landmarks]
        gram = kernel(centres, centres)
        if n > len(landmarks):
            squared, back, ones = _by_cholesky(z, centres, gram) or _by_eigenvectors(z, centres, gram)
            del gram
            return cls(n, lambda rows: kernel(z[rows], centres) @ back, ones, squared, back)
        size, V = np.linalg.eigh(gram)
        kept = size > size.max() * SINGULAR
        size, V = size[kept], V[:, kept]
        return cls(n, V.__getitem__, V.sum(0), size, V / size)

    def fit(self, q: Floats) -> RidgeFit:
        """Fit the regressions to posteriors (n, K)."""
        mean = q.mean(0)
        target = q - mean
        inner = np.zeros((len(self.squared), q.shape[1]))
        for rows, U in self.blocks:
            inner += U.astype(np.float64, copy=False).T @ target[rows]
        return RidgeFit(self, q, inner, mean, self.g.T @ target / self.total[:, None])


class RidgeFit(NamedTuple):
    """The regressions of a `Regression` on posteriors q."""

    on: Regression
    q: Floats  # (n, K)
    inner: Floats  # U^T (q - mean), (j, K)
    mean: Floats  # (K,)
    intercepts: Floats  # (ridges, K), less the mean

    def leave_one_out(self, places: Sequence[int], width: int = 1) -> Iterator[tuple[slice, Floats]]:
        """Yield some items and the regressions at each of them without this item, (places, K, items).

        Parameters
        ----------
        places : sequence of int
            Positions of the ridges.
        width : int
            Numbers that the caller computes from each prediction, to choose how many items to yield at a time.
        """
        some, K, j = list(places), len(self.mean), len(self.inner)
        if not some:
            return
        slopes = (self.on.d[some, None] * self.inner.T).reshape(len(some) * K, j)
        for piece, U in self.on.blocks:
            for within in chunks(len(U), j + len(some) * K + width * K):
                rows = slice(piece.start + within.start, piece.start + within.stop)
                f = (slopes @ U[within].astype(np.float64, copy=False).T).reshape(len(some), K, -1)
                g, h = (table[rows, some].T[:, None] for table in (self.on.g, self.on.h))
                f += self.intercepts[some, :, None] * g + self.mean[:, None] - h * self.q[rows].T
                f /= (1 - h).clip(SMALL)
                yield rows, f

    def weights(self, place: int) -> tuple[Floats, Floats]:
        """Return the slopes (m, K) and intercepts (K,) of the regression with one ridge."""
        intercept = self.intercepts[place]
        inner = self.inner - np.outer(self.on.ones, intercept)
        return self.on.back @ (self.on.d[place][:, None] * inner), self.mean + intercept


Basis = tuple[Floats, Floats, Floats]
"""Squared singular values of the Nystroem features, coefficients back with U = C back, and U^T 1."""


def _by_cholesky(z: Floats, centres: Floats, gram: Floats) -> Basis | None:
    """Return the basis of phi = C L^-T, where L L^T is the kernel of the landmarks; None if it is ill-conditioned.

    phi has the same inner products as in `on_kernel`. Here phi^T phi = L^-1 (C^T C) L^-T needs neither eigenvectors nor
    phi itself.
    """
    lower, info = dpotrf(gram, lower=1, clean=1)
    if info or dpocon(lower, np.abs(gram).sum(0).max(), uplo="L")[0] < WELL:
        return None

    def products(pieces: Sequence[slice]) -> tuple[Floats, Floats]:
        inner, sums = np.zeros(gram.shape, order="F"), np.zeros(len(gram))
        for rows in pieces:
            C = kernel(z[rows], centres)
            inner = dsyrk(1, C.T, beta=1, c=inner, lower=1, overwrite_c=1)  # the lower half of inner + C^T C
            sums += C.sum(0)
        return inner, sums

    pieces = list(chunks(len(z), len(centres)))
    (inner, sums), (more, more_sums) = each([pieces[::2], pieces[1::2]], products)
    inner += more
    sums += more_sums
    inner, _ = dsygst(inner, lower, lower=1, overwrite_a=1)
    squared, turn = _turned(inner, len(z))
    sums = solve_triangular(lower, sums, lower=True, check_finite=False) @ turn
    return squared, solve_triangular(lower, turn, lower=True, trans=1, overwrite_b=True, check_finite=False), sums


def _by_eigenvectors(z: Floats, centres: Floats, gram: Floats) -> Basis:
    size, V = np.linalg.eigh(gram)
    kept = size > size.max() * SINGULAR
    root = V[:, kept] / np.sqrt(size[kept])
    inner, sums = np.zeros((root.shape[1], root.shape[1])), np.zeros(root.shape[1])
    for rows in chunks(len(z), len(centres)):
        phi = kernel(z[rows], centres) @ root
        inner += phi.T @ phi
        sums += phi.sum(0)
    squared, turn = _turned(inner, len(z))
    return squared, root @ turn, sums @ turn


def _turned(inner: Floats, n: int) -> tuple[Floats, Floats]:
    """Return the eigenvalues of phi^T phi that are not 0 but for rounding, and W with U = phi W."""
    squared, W = eigh(inner, driver="evd", overwrite_a=True, check_finite=False)
    kept = squared > SMALL * squared.sum() / n
    return squared[kept], W[:, kept] / np.sqrt(squared[kept])


def _spectrum(gram: Floats) -> tuple[Floats, Floats]:
    """Return the eigenvalues and eigenvectors that are not 0 but for rounding."""
    squared, V = np.linalg.eigh(gram)
    kept = squared > max(squared.max(), SMALL) * SMALL
    return squared[kept], V[:, kept]


# ---- logistic regression ---------------------------------------------------------------------------------------------


LOGISTIC_RIDGES = np.array([1.0, 10.0, 100.0])
DIRECTIONS = 128  # most principal directions of the features
LEVEL = 1e-3  # penalty of the intercept, relative to the ridge
STEPS = 60  # most iterations of L-BFGS


class Logistic:
    """Multinomial logistic regression on posteriors, with approximate leave-one-out predictions.

    Features are projected on their first principal directions, phi (n, r), with a constant column. With class sizes s
    and posteriors q (n, K),

        p_k proportional to s_k exp(z_k),   z = phi W,   W = argmin -sum_n sum_k q_nk log p_nk + lambda/2 |W|^2

    is a convex problem (the intercept's penalty is `LEVEL` lambda). Leaving out item n changes its own z by about one
    Newton step, taken for each class on its own:

        z_n without item n = z_n + h / (1 - a h) (p_n - q_n)
        a = p (1 - p),   h = phi_n^T (Phi^T diag(a) Phi + lambda)^-1 phi_n

    Ridge regression has both in closed form. But where several classes lie side by side, it masks those in the middle:
    where planes separate the classes, a plain regression on votes had up to 0.08 more new items right.

    Parameters
    ----------
    z : (N, D) array
        Standardised features.
    train : (n,) int array
        Rows that the regression is fitted to.
    plain : Regression, optional
        The ridge regressions on the same features, whose basis is used if all rows are fitted to.
    """

    def __init__(self, z: Floats, train: Positions, plain: Regression | None = None) -> None:
        if plain is None or len(train) < len(z):
            plain = Regression.on_features(z[train])
        self.z, self.train = z, train
        first = slice(-DIRECTIONS, None)  # eigenvalues increase
        squared = plain.squared[first]
        U = np.concatenate([block[:, first] for _, block in plain.blocks])
        self.directions: Floats = plain.back[:, first] * np.sqrt(squared)  # (D, r)
        self.phi = np.column_stack([U * np.sqrt(squared), np.ones(len(train))])  # (n, r + 1)
        self.penalty = np.append(np.ones(len(squared)), LEVEL)
        self.curved = np.append(squared, len(train)) / 2  # upper bound of the curvature per direction (Böhning 1992)
        self.found: dict[float, Floats] = {}

    def fit(self, q: Floats, size: Floats, ridge: float) -> Floats:
        """Return W, (r + 1, K). The optimisation starts from the result of the last call with this ridge."""
        K, penalty = q.shape[1], ridge * self.penalty
        unit = 1 / np.sqrt(self.curved + penalty)
        target, phi, penalty = np.ascontiguousarray(q[self.train].T), self.phi * unit, penalty * unit * unit
        offset, total = np.log(size)[:, None], target.sum(0)
        start = self.found[ridge].T / unit if ridge in self.found else np.zeros((K, len(unit)))

        def loss(flat: Floats) -> tuple[float, Floats]:
            W = flat.reshape(start.shape)
            score = W @ phi.T
            score += offset
            score -= score.max(0)
            p = np.exp(score)
            sums = p.sum(0)
            p /= sums
            penalised = penalty * W
            value = np.vdot(total, np.log(sums)) - np.vdot(target, score) + 0.5 * np.vdot(penalised, W)
            p -= target
            return float(value), (p @ phi + penalised).ravel()

        options = {"maxiter": STEPS, "gtol": 1e-7, "ftol": 1e-12}
        end = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options=options)
        self.found[ridge] = (end.x.reshape(start.shape) * unit).T
        return self.found[ridge]

    def leave_one_out(self, q: Floats, size: Floats, ridge: float) -> tuple[Floats, Floats]:
        """Return W and z of all items, (N, K); z of an item in ``train`` is predicted without the item."""
        W = self.fit(q, size, ridge)
        slopes, start = self.weights(W)
        z: Floats = self.phi @ W if len(self.train) == len(self.z) else self.z @ slopes + start
        score = z[self.train] + np.log(size)
        p = np.exp(score - score.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        curvature, excess = p * (1 - p), p - q[self.train]
        for k in range(q.shape[1]):
            a = curvature[:, k]
            weighted = np.sqrt(a)[:, None] * self.phi
            hessian = weighted.T @ weighted
            hessian.flat[:: len(hessian) + 1] += ridge * self.penalty
            lower = cholesky(hessian, lower=True, overwrite_a=True, check_finite=False)
            whitened = solve_triangular(lower, self.phi.T, lower=True, check_finite=False)
            h = np.einsum("rn,rn->n", whitened, whitened)
            z[self.train, k] += h / (1 - a * h).clip(SMALL) * excess[:, k]
        return W, z

    def weights(self, W: Floats) -> tuple[Floats, Floats]:
        """Return the slopes (D, K) and intercepts (K,) of z as a function of the standardised features."""
        return self.directions @ W[:-1], W[-1]
