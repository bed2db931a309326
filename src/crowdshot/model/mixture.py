"""Fit a Gaussian mixture over embeddings with one confusion matrix for each annotator, by MAP-EM.

Kumagai et al., "Meta-learning Representations for Learning from Multiple Annotators", ICML 2025. Numbers in
parentheses are the paper's equations. Every item n has an unseen true class t_n; then

    t_n ~ pi        u_n ~ N(mu_t, I)        y_n^r ~ alpha^r[t, :]        (1)

with the priors (3), (4): mu_k ~ N(0, I / tau), pi ~ Dirichlet(b + 1), alpha^r[k, :] ~ Dirichlet(c + 1). MAP-EM
maximises the posterior of these parameters (2). With lambda from the soft vote at first, each step is

    M-step (7)   mu_k = sum_n lambda_nk u_n / (tau + sum_n lambda_nk)
                 pi_k = (sum_n lambda_nk + b) / (N + K b)
                 alpha^r[k, l] = (sum_n lambda_nk [y_n^r = l] + c) / (sum_n lambda_nk [r labelled n] + K c)
    E-step (6)   lambda_nk proportional to pi_k N(u_n | mu_k, I) prod_r alpha^r[k, y_n^r]

and the classifier of a query u is (8), p(t = k | u) proportional to pi_k N(u | mu_k, I).

    symbol       here                          shape            meaning
    u_n          embeddings                    (..., N, D)      the encoder's output for an item
    y_n^r        labels, votes                 (..., N, R)      label of annotator r, -1 = missing
    lambda_nk    responsibilities              (..., N, K)      posterior that item n is of class k
    mu_k         means                         (..., K, D)      class prototypes
    pi_k         class_probs                   (..., K)
    alpha^r_lk   confusion                     (..., R, K, K)   [annotator, true, observed]; the paper has l first
    tau, b, c    the priors of `priors`        (...)            one number, or one for every batch element
    K            n_classes                     (...)            ``classes_in_use``, where episodes of a batch differ
    J            steps                         (...)

Functions are pure, take any leading batch shape, and are differentiable. An item without labels has weight zero: it
gets responsibilities and does not affect anything else. This also pads ragged batches. ``classes_in_use`` gives the
number of classes of each episode; the remaining classes have probability zero.

``scale`` weighs the embeddings against the annotators: Gaussian terms and the prior on the means are raised to that
power. The M-step does not change, and EM still increases the (powered) posterior. The paper has scale 1.

>>> import torch
>>> from crowdshot import mixture
>>> embeddings = torch.tensor([[0.0], [0.2], [5.0], [5.1]])
>>> labels = torch.tensor([[0, 0], [0, -1], [1, 1], [1, 0]])
>>> fit = mixture.fit(embeddings, labels, n_classes=2, steps=2)
>>> fit.log_proba(torch.tensor([[0.1], [4.9]])).argmax(-1)
tensor([0, 1])
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from crowdshot.errors import CrowdshotError
from crowdshot.model.priors import ConfusionPrior, Number, Priors, as_confusion_prior, as_number

# ---- covariance ------------------------------------------------------------------------------------------------------
#
# The covariance of embeddings around their class mean is the identity, as in the paper, or is estimated and shared by
# the classes. Conjugate priors keep the M-step in closed form. Class means have the prior N(0, (tau P)^-1), where P is
# the precision (inverse covariance), so their update does not change. The prior of P has its mode at the identity and
# weighs as much as ``weight`` items:
#
#     isotropic, P = p I            p ~ Gamma(weight D / 2 + 1, weight D / 2)
#     diagonal,  P = diag(p_1..D)   p_d ~ Gamma(weight / 2 + 1, weight / 2)
#     full                          P ~ Wishart(weight + D + 1, I / weight)
#
# In each case log p(P) = weight/2 (log|P| - trace P) + constant, and the M-step is
#
#     covariance = (weight I + scatter) / (weight + N + K),
#
# averaged over dimensions if isotropic, its diagonal if diagonal. As ``weight`` grows, this becomes the paper's model.
# A covariance is stored as variances (..., 1) or (..., D), as a matrix (..., D, D), or as None for the identity.


KINDS = ("identity", "isotropic", "diagonal", "full")
WEIGHT = 1.0


def whiten(x: Tensor, covariance: Tensor | None, kind: str) -> Tensor:
    """Transform (..., N, D) to coordinates in which the covariance is the identity."""
    if covariance is None:
        return x
    if kind == "full":
        root = torch.linalg.cholesky(covariance)
        white: Tensor = torch.linalg.solve_triangular(root, x.mT, upper=False).mT
        return white
    return x * covariance.rsqrt()[..., None, :]


def log_det_precision(covariance: Tensor | None, kind: str, D: int) -> Tensor | float:
    """Return log|P|, (...)."""
    if covariance is None:
        return 0.0
    if kind == "full":
        log_det: Tensor = torch.linalg.slogdet(covariance).logabsdet
        return -log_det
    return -covariance.log().sum(-1) * (D / covariance.shape[-1])


def estimate(kind: str, scatter: Tensor, n: Tensor, weight: float = WEIGHT) -> Tensor:
    """Return the M-step's covariance. ``scatter`` is (..., D, D) if full, else its diagonal (..., D); ``n`` = N + K.

    A full covariance gets a diagonal term as large as rounding errors of its trace, so that it has a Cholesky factor.
    """
    if kind == "full":
        eye = torch.eye(scatter.shape[-1], dtype=scatter.dtype, device=scatter.device)
        least = 4 * torch.finfo(scatter.dtype).eps * scatter.diagonal(dim1=-2, dim2=-1).sum(-1).clamp_min(0)
        return ((weight + least[..., None, None]) * eye + (scatter + scatter.mT) / 2) / (weight + n)[..., None, None]
    variances = (weight + scatter) / (weight + n)[..., None]
    return variances.mean(-1, keepdim=True) if kind == "isotropic" else variances


def covariance_log_prior(covariance: Tensor | None, kind: str, D: int, weight: float = WEIGHT) -> Tensor | float:
    """Return log p(P), (...), with its constant."""
    if covariance is None:
        return 0.0
    if kind == "full":
        trace: Tensor = torch.linalg.inv(covariance).diagonal(dim1=-2, dim2=-1).sum(-1)
        dof = weight + D + 1
        multigamma = D * (D - 1) / 4 * math.log(math.pi) + sum(math.lgamma((dof - d) / 2) for d in range(D))
        constant = dof * D / 2 * math.log(weight / 2) - multigamma
    else:
        trace = covariance.reciprocal().sum(-1) * (D / covariance.shape[-1])
        n_free = covariance.shape[-1]
        half = weight * (D / n_free) / 2
        constant = n_free * ((half + 1) * math.log(half) - math.lgamma(half + 1))
    return weight / 2 * (log_det_precision(covariance, kind, D) - trace) + constant


# ---- steps of EM and objective ---------------------------------------------------------------------------------------


LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Parameters:
    """The estimates of an M-step. ``means`` are relative to the support's ``origin`` while EM runs."""

    means: Tensor
    class_probs: Tensor
    log_class_probs: Tensor
    confusion: Tensor
    pseudo_counts: Tensor
    covariance: Tensor | None


def soft_vote(votes: Tensor, K: int) -> tuple[Tensor, Tensor]:
    """Return each item's share of votes, (..., N, K), and 1 where it has any, (..., N, 1): Algorithm 1, line 7."""
    counts = votes @ torch.eye(K, dtype=votes.dtype, device=votes.device).repeat(votes.shape[-1] // K, 1)
    total = counts.sum(-1, keepdim=True)
    weight = (total > 0).to(votes.dtype)
    return torch.where(total > 0, counts / total.clamp_min(1), 1 / K), weight


def ruled_out_by(truth: Tensor, K: int) -> Tensor:
    """Mark the classes (..., N, K) that items cannot have, because their class, (..., N), is known; -1 = unknown."""
    return (truth >= 0)[..., None] & (truth[..., None] != torch.arange(K, device=truth.device))


def m_step(
    u: Tensor,
    origin: Tensor,
    votes: Tensor,
    weighted: Tensor,
    tau: Tensor,
    b: Tensor,
    prior: ConfusionPrior,
    covariance: str,
    present: Tensor | None,
) -> Parameters:
    """Return (7) from weighted lambda. Around an origin o, mu_k - o = (sum lambda (u - o) - tau o) / (tau + n_k)."""
    tiny = torch.finfo(u.dtype).tiny
    K = weighted.shape[-1]
    n_k = weighted.sum(-2)  # (..., K)
    sums = weighted.mT @ u  # (..., K, D)
    means = (sums - tau[..., None, None] * origin) / (tau[..., None] + n_k).clamp_min(tiny)[..., None]

    class_probs = n_k + b[..., None] * (1 if present is None else present)
    class_probs = class_probs / class_probs.sum(-1, keepdim=True).clamp_min(tiny)
    log_class_probs = class_probs.clamp_min(tiny).log()
    if present is not None:
        log_class_probs = log_class_probs.masked_fill(present == 0, -torch.inf)

    counts = votes.mT @ weighted  # (..., R·K observed, K true)
    counts = counts.reshape(*counts.shape[:-2], -1, K, K).mT  # (..., R, K true, K observed)
    if present is None:
        pseudo_counts = prior(counts, K)
    else:  # none for classes that are not in use
        pseudo_counts = (
            prior(counts, present.sum(-1)) * (present[..., :, None] * present[..., None, :])[..., None, :, :]
        )
    confusion = counts + pseudo_counts
    confusion = confusion / confusion.sum(-1, keepdim=True).clamp_min(tiny)

    estimated = None
    if covariance != "identity":
        scatter = _scatter(u, means, origin, weighted, sums, n_k, tau, full=covariance == "full")
        estimated = estimate(covariance, scatter, n_k.sum(-1) + K)
    return Parameters(means, class_probs, log_class_probs, confusion, pseudo_counts, estimated)


def _scatter(
    u: Tensor,
    means: Tensor,
    origin: Tensor,
    weighted: Tensor,
    sums: Tensor,
    n_k: Tensor,
    tau: Tensor,
    full: bool,
) -> Tensor:
    """Return sum_nk lambda (u - mu)(u - mu)' + tau sum_k mu mu', or its diagonal (..., D) unless ``full``.

    The first sum is computed as sum_n w u u' - sum_k [mu s_k' + s_k mu' - n_k mu mu'], with s_k = sum_n lambda u.
    """
    weight = weighted.sum(-1, keepdim=True)
    around_zero = means + origin
    if full:
        within = (weight * u).mT @ u - means.mT @ sums - sums.mT @ means + (n_k[..., None] * means).mT @ means
        return within + tau[..., None, None] * around_zero.mT @ around_zero
    within = (weight * u.square()).sum(-2) - (means * (2 * sums - n_k[..., None] * means)).sum(-2)
    return within.clamp_min(0) + tau[..., None] * around_zero.square().sum(-2)


def e_step(
    u: Tensor, votes: Tensor, parameters: Parameters, scale: Tensor, covariance: str, ruled_out: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return lambda (6) and each item's log-evidence: the logarithm of its factor in (1), powered by ``scale``."""
    tiny = torch.finfo(u.dtype).tiny
    log_confusion = parameters.confusion.clamp_min(tiny).log().mT.flatten(-3, -2)  # (..., R·K observed, K true)
    gaussian, common = log_gaussian(u, parameters.means, parameters.covariance, covariance)
    log_joint = scale[..., None, None] * gaussian + parameters.log_class_probs[..., None, :] + votes @ log_confusion
    if ruled_out is not None:
        log_joint = log_joint.masked_fill(ruled_out, -torch.inf)
    return log_joint.softmax(-1), log_joint.logsumexp(-1) + scale[..., None] * common


def log_gaussian(u: Tensor, means: Tensor, covariance: Tensor | None, kind: str) -> tuple[Tensor, Tensor]:
    """Return log N(u_n | mu_k, covariance) as a term for each class (..., N, K) and a common term (..., N).

    The terms are separate because |u|^2 is common to all classes and can be large: adding it would lose precision.
    """
    D = u.shape[-1]
    u, means = whiten(u, covariance, kind), whiten(means, covariance, kind)
    differs = u @ means.mT - 0.5 * means.square().sum(-1)[..., None, :]
    log_det = as_number(log_det_precision(covariance, kind, D), u)
    return differs, 0.5 * (log_det[..., None] - D * LOG_2PI - u.square().sum(-1))


def log_prior(parameters: Parameters, origin: Tensor, tau: Tensor, b: Tensor, scale: Tensor, covariance: str) -> Tensor:
    """Return the log-priors (3) and (4) with their constants; a flat prior on means (tau = 0) counts as zero."""
    D = parameters.means.shape[-1]
    K = parameters.class_probs.shape[-1]
    around_zero = parameters.means + origin
    squared = whiten(around_zero, parameters.covariance, covariance).square().sum((-2, -1))
    log_det = log_det_precision(parameters.covariance, covariance, D)
    safe_tau = torch.where(tau > 0, tau, 1)
    means = 0.5 * (K * (D * (safe_tau.log() - LOG_2PI) + log_det) - tau * squared)
    means = torch.where(tau > 0, means, 0) + covariance_log_prior(parameters.covariance, covariance, D)
    class_probs = _log_dirichlet(parameters.class_probs, b[..., None].expand_as(parameters.class_probs))
    confusion = _log_dirichlet(parameters.confusion, parameters.pseudo_counts).sum((-2, -1))
    return scale * means + class_probs + confusion


def _log_dirichlet(p: Tensor, exponents: Tensor) -> Tensor:
    """Return log Dirichlet(p | exponents + 1) over the last axis."""
    a = exponents + 1
    return torch.xlogy(exponents, p).sum(-1) + torch.lgamma(a.sum(-1)) - torch.lgamma(a).sum(-1)


def hold(going: Tensor, new: Parameters, old: Parameters) -> Parameters:
    """Return the new parameters where ``going`` (...) is true, the old ones elsewhere."""
    vector, matrix, matrices = going[..., None], going[..., None, None], going[..., None, None, None]
    covariance = new.covariance
    if covariance is not None and old.covariance is not None:
        full = covariance.ndim > new.class_probs.ndim
        covariance = torch.where(matrix if full else vector, covariance, old.covariance)
    return Parameters(
        torch.where(matrix, new.means, old.means),
        torch.where(vector, new.class_probs, old.class_probs),
        torch.where(vector, new.log_class_probs, old.log_class_probs),
        torch.where(matrices, new.confusion, old.confusion),
        torch.where(matrices, new.pseudo_counts, old.pseudo_counts),
        covariance,
    )


# ---- fit
# --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """A fitted episode, or a batch of them; shapes as in the module's table. With a full covariance, all is float64."""

    means: Tensor
    class_probs: Tensor
    confusion: Tensor
    responsibilities: Tensor
    log_posterior: Tensor  #: (..., steps), the MAP objective (2) after each step
    covariance: Tensor | None  #: None for the identity, else (..., 1), (..., D) or (..., D, D)
    covariance_kind: str
    scale: Tensor
    origin: Tensor  #: (..., 1, D); distances are computed around it, for precision
    log_class_probs: Tensor  #: (..., K), -inf for classes not in use

    def log_proba(self, queries: Tensor) -> Tensor:
        """Return log p(t = k | u), (..., Q, K), of queries (..., Q, D): equation (8)."""
        if queries.shape[-1] != self.means.shape[-1]:
            raise CrowdshotError(
                f"is of shape {tuple(queries.shape)}",
                argument="queries",
                found=tuple(queries.shape),
                expected=f"(..., Q, {self.means.shape[-1]}) as in fit",
            )
        evidence, _ = log_gaussian(
            queries - self.origin, self.means - self.origin, self.covariance, self.covariance_kind
        )
        log_joint = self.scale[..., None, None] * evidence + self.log_class_probs[..., None, :]
        return log_joint.log_softmax(-1).to(queries.dtype)


def fit(
    embeddings: Tensor,
    labels: Tensor,
    n_classes: int,
    *,
    steps: int | Tensor = 2,
    tau: Number = 1.0,
    b: Number = 100.0,
    c: Number | ConfusionPrior = 1.0,
    scale: Number = 1.0,
    covariance: str = "identity",
    classes_in_use: Tensor | None = None,
    truth: Tensor | None = None,
    item_weight: Tensor | None = None,
    most_steps: int | None = None,
    track: bool = True,
    classifier_only: bool = False,
) -> Fit:
    """Fit the mixture by J times (M-step, E-step) from the soft vote: lines 7 to 11 of the paper's Algorithm 1.

    Batch shapes broadcast, so one support set can be fitted with many settings at once.

    Parameters
    ----------
    embeddings : (..., N, D) float Tensor
        The support.
    labels : (..., N, R) int Tensor, or sparse (N, R·K) Tensor
        Labels with -1 = missing; or, for a large sparse crowd, the vote matrix of `sparse_votes`.
    n_classes : int
        K.
    steps : int or (...) Tensor
        J.
    tau, b, scale : float or (...) Tensor
        Priors of means and class probabilities, and the weight of embeddings.
    c : float, (...) Tensor or prior of `crowdshot.priors`
        Prior of confusion matrices.
    covariance : str
        "identity", "isotropic", "diagonal" or "full".
    classes_in_use : (...) int Tensor, optional
        Number of classes of each episode; K is then an upper bound, and ``log_posterior`` has the constants of K.
    truth : (..., N) int Tensor, optional
        The class of items whose class is known, -1 elsewhere.
    item_weight : (..., N) Tensor, optional
        Weights of items.
    most_steps : int, optional
        Upper bound of a tensor of steps, which saves a synchronisation with the device.
    track : bool
        Compute ``log_posterior``.
    classifier_only : bool
        Leave out the last E-step, on which the classifier does not depend; ``responsibilities`` are those before it.

    Returns
    -------
    Fit

    Raises
    ------
    CrowdshotError
        An argument has the wrong type, shape or value.
    """
    _check(embeddings, labels, n_classes, covariance)
    if covariance == "full":  # single precision could lose positive definiteness
        embeddings = embeddings.double()
    dtype, device = embeddings.dtype, embeddings.device
    tau, b, scale = (as_number(x, embeddings) for x in (tau, b, scale))
    prior = as_confusion_prior(c)
    votes = labels.to(dtype) if labels.is_sparse else dense_votes(labels, n_classes, dtype)
    present = _present(classes_in_use, n_classes, device)
    responsibilities, weight = soft_vote(votes, n_classes)
    ruled_out: Tensor | None = None
    if truth is not None:
        ruled_out = ruled_out_by(truth, n_classes)
        known = (truth >= 0)[..., None]
        responsibilities = torch.where(known, (~ruled_out).to(dtype), responsibilities)
        weight = torch.where(known, 1, weight)
    if item_weight is not None:
        weight = weight * item_weight[..., None].to(dtype)

    # Any origin gives the same result in exact arithmetic; the data's centre gives the best precision.
    origin = (weight * embeddings.detach()).sum(-2, keepdim=True) / weight.sum(-2, keepdim=True).clamp_min(1)
    em = _Em(embeddings - origin, origin, votes, weight, tau, b, scale, prior, covariance, present, ruled_out)
    n_steps = most_steps if most_steps is not None else int(steps.max()) if isinstance(steps, Tensor) else steps
    if n_steps < 1:
        raise CrowdshotError(f"is {n_steps}", argument="steps", found=n_steps, expected="1 or more")
    parameters, responsibilities, history = em.run(
        responsibilities, steps, n_steps, track and not classifier_only, classifier_only
    )
    return Fit(
        means=parameters.means + origin,
        class_probs=parameters.class_probs,
        confusion=parameters.confusion,
        responsibilities=responsibilities,
        log_posterior=torch.stack(history, -1) if history else embeddings.new_empty((*embeddings.shape[:-2], 0)),
        covariance=parameters.covariance,
        covariance_kind=covariance,
        scale=scale,
        origin=origin,
        log_class_probs=parameters.log_class_probs,
    )


@dataclass(frozen=True)
class _Em:
    """EM on an episode; the fields stay the same in all steps."""

    u: Tensor  # embeddings around the origin
    origin: Tensor
    votes: Tensor
    weight: Tensor  # (..., N, 1)
    tau: Tensor
    b: Tensor
    scale: Tensor
    prior: ConfusionPrior
    covariance: str
    present: Tensor | None
    ruled_out: Tensor | None

    def run(
        self, responsibilities: Tensor, steps: int | Tensor, n_steps: int, track: bool, classifier_only: bool
    ) -> tuple[Parameters, Tensor, list[Tensor]]:
        """Return parameters, responsibilities and, if tracked, the objective after each step."""
        parameters: Parameters | None = None
        history: list[Tensor] = []
        for step in range(n_steps):
            weighted = responsibilities * self.weight
            new = m_step(
                self.u, self.origin, self.votes, weighted, self.tau, self.b, self.prior, self.covariance, self.present
            )
            new_responsibilities = responsibilities
            if not (classifier_only and step == n_steps - 1):
                new_responsibilities, log_evidence = e_step(
                    self.u, self.votes, new, self.scale, self.covariance, self.ruled_out
                )
                if track:
                    log_likelihood = (log_evidence * self.weight[..., 0]).sum(-1)
                    prior = log_prior(new, self.origin, self.tau, self.b, self.scale, self.covariance)
                    history.append(log_likelihood + prior)
            if isinstance(steps, Tensor) and parameters is not None:  # finished elements do not change
                going = steps.to(self.u.device) > step
                new = hold(going, new, parameters)
                new_responsibilities = torch.where(going[..., None, None], new_responsibilities, responsibilities)
                if history:
                    history[-1] = torch.where(going, history[-1], history[-2])
            parameters, responsibilities = new, new_responsibilities
        assert parameters is not None
        return parameters, responsibilities, history


def dense_votes(labels: Tensor, n_classes: int, dtype: torch.dtype) -> Tensor:
    """Return one-hot labels (..., N, R·K) from labels (..., N, R), so that both steps of EM are matrix products."""
    classes = torch.arange(n_classes, device=labels.device)
    return (labels[..., None] == classes).to(dtype).flatten(-2)


def sparse_votes(
    item: Tensor,
    annotator: Tensor,
    label: Tensor,
    shape: tuple[int, int, int],
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return the same matrix, sparse, from (item, annotator, label) triples; ``shape`` is (N, R, K)."""
    N, R, K = shape
    indices = torch.stack([item, annotator * K + label])
    ones = torch.ones(item.shape[0], dtype=dtype, device=item.device)
    return torch.sparse_coo_tensor(indices, ones, (N, R * K), check_invariants=True).coalesce()


def _present(classes_in_use: Tensor | None, K: int, device: torch.device) -> Tensor | None:
    """Return (..., K) int, 1 for classes in use, from numbers of classes (...)."""
    if classes_in_use is None:
        return None
    return (torch.arange(K, device=device) < classes_in_use.to(device)[..., None]).long()


def _check(embeddings: Tensor, labels: Tensor, n_classes: int, covariance: str) -> None:
    if covariance not in KINDS:
        raise CrowdshotError(
            f"is {covariance!r}", argument="covariance", found=covariance, expected=f"one of {', '.join(KINDS)}"
        )
    if n_classes < 2:
        raise CrowdshotError(f"is {n_classes}", argument="n_classes", found=n_classes, expected="2 or more")
    shape, N = tuple(labels.shape), embeddings.shape[-2] if embeddings.ndim > 1 else None
    if N is None or not embeddings.is_floating_point():
        raise CrowdshotError(
            f"is {embeddings.dtype} of shape {tuple(embeddings.shape)}",
            argument="embeddings",
            found=(embeddings.dtype, tuple(embeddings.shape)),
            expected="floats (..., N, D)",
        )
    if labels.is_sparse:
        if labels.ndim != 2 or shape[0] != N or shape[1] % n_classes:
            raise CrowdshotError(
                f"is a sparse vote matrix of shape {shape}",
                argument="labels",
                found=shape,
                expected=f"(N, R·K) = ({N}, R·{n_classes})",
            )
        return
    if labels.ndim < 2 or labels.is_floating_point() or shape[-2] != N:
        raise CrowdshotError(
            f"is {labels.dtype} of shape {shape}",
            argument="labels",
            found=(labels.dtype, shape),
            expected=f"integers (..., N, R) with N = {N} as in embeddings",
        )
    # Checking values on an accelerator would synchronise; there, labels out of range count as missing.
    if labels.device.type == "cpu" and labels.numel():
        least, largest = int(labels.min()), int(labels.max())
        if not -1 <= least <= largest < n_classes:
            raise CrowdshotError(
                f"holds values from {least} to {largest}",
                argument="labels",
                found=(least, largest),
                expected=f"0 to {n_classes - 1}, or -1 for a missing label",
            )


# ---- meta-training ---------------------------------------------------------------------------------------------------


def log_proba(
    embedded: Tensor,
    labels: Tensor,
    n_classes: int,
    steps: int | Tensor,
    priors: Priors,
    most_steps: int,
    classes_in_use: Tensor | None = None,
) -> Tensor:
    """Fit the support and return log p(t = k | u) of the queries, (B, Q, K).

    Runs the GPU kernels of `mixture_gpu` where the episode fits into them, otherwise `fit`; the results agree.

    Parameters
    ----------
    embedded : (B, N + Q, D) Tensor
        Embeddings, support items first.
    labels, n_classes, steps, classes_in_use
        As in `fit`.
    priors : Priors
        The arguments tau, b and c of `fit`.
    most_steps : int
        Upper bound of ``steps``.
    """
    n_support, c = labels.shape[1], priors["c"]
    if embedded.is_cuda and isinstance(c, float):  # the paper's prior
        from crowdshot.model import mixture_gpu  # imports triton, which takes a quarter of a second

        if mixture_gpu.is_available(embedded, labels, n_classes):
            each = steps if isinstance(steps, Tensor) else torch.full_like(labels[:, 0, 0], steps)
            return mixture_gpu.log_proba(
                embedded, labels, n_classes, each, priors["tau"], priors["b"], c, classes_in_use, most_steps
            )
    fitted = fit(
        embedded[:, :n_support],
        labels,
        n_classes,
        steps=steps,
        most_steps=most_steps,
        classes_in_use=classes_in_use,
        track=False,
        classifier_only=True,
        **priors,
    )
    return fitted.log_proba(embedded[:, n_support:])
