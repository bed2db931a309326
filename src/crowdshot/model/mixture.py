"""The model: a Gaussian mixture over embeddings with one confusion matrix per annotator, fitted by MAP-EM.

Kumagai et al., "Meta-learning Representations for Learning from Multiple Annotators", ICML 2025. Numbers in
parentheses are the paper's equations. Every item n has an unseen true class t_n; then

    t_n ~ pi        u_n ~ N(mu_t, I)        y_n^r ~ alpha^r[t, :]        (1)

with the priors (3), (4): mu_k ~ N(0, I / tau), pi ~ Dirichlet(b + 1), alpha^r[k, :] ~ Dirichlet(c + 1).

    symbol       here                          shape            meaning
    u_n          embeddings                    (..., N, D)      what the encoder makes of an item
    y_n^r        labels, votes                 (..., N, R)      what annotator r said, -1 = nothing
    lambda_nk    responsibilities              (..., N, K)      belief that item n is of class k
    mu_k         means                         (..., K, D)      class prototypes
    pi_k         class_probs                   (..., K)
    alpha^r_lk   confusion                     (..., R, K, K)   [annotator, true, observed]; the paper has l first
    tau, b, c    the priors of `priors`        (...)            one number, or one for every batch element
    K            n_classes                                      (...) in use, where episodes of a batch differ
    J            steps                         (...)

Everything is pure, takes any leading batch shape, and can be differentiated. An item that nobody labelled has
weight zero: it gets responsibilities and changes nothing, which also makes it the padding of ragged batches.
Likewise ``classes_in_use`` says how many of the first classes an episode has; the others have probability zero.

``scale`` weighs the embedding's evidence against the annotators': Gaussian terms and the prior on the means are
raised to that power. The M-step does not change, and EM still climbs the (powered) posterior. The paper's is 1.

>>> import torch
>>> from crowdshot import mixture
>>> embeddings = torch.tensor([[0.0], [0.2], [5.0], [5.1]])
>>> labels = torch.tensor([[0, 0], [0, -1], [1, 1], [1, 0]])
>>> fit = mixture.fit(embeddings, labels, n_classes=2, steps=2)
>>> fit.log_proba(torch.tensor([[0.1], [4.9]])).argmax(-1)
tensor([0, 1])
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from crowdshot.errors import CrowdshotError
from crowdshot.model import mixture_steps, spread
from crowdshot.model.priors import ConfusionPrior, Number, as_confusion_prior, as_number


@dataclass(frozen=True)
class Fit:
    """A fitted episode, or a batch of them; shapes in the module's table. With a full covariance it is float64."""

    means: Tensor
    class_probs: Tensor
    confusion: Tensor
    responsibilities: Tensor
    log_posterior: Tensor  #: (..., steps), the MAP objective (2) after each step
    covariance: Tensor | None  #: None for the identity; else see `crowdshot.model.spread`
    covariance_kind: str
    scale: Tensor
    origin: Tensor  #: (..., 1, D); distances are taken around it for precision's sake
    log_class_probs: Tensor  #: (..., K), -inf for classes not in use

    def log_proba(self, queries: Tensor) -> Tensor:
        """(8): log p(t = k | u), normalised. (..., Q, D) -> (..., Q, K)."""
        if queries.shape[-1] != self.means.shape[-1]:
            raise CrowdshotError(
                f"queries is of shape {tuple(queries.shape)}, expected (..., Q, {self.means.shape[-1]}) as in fit."
            )
        evidence, _ = mixture_steps.log_gaussian(
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
    """J times (M-step, E-step), from the soft vote: lines 7 to 11 of the paper's Algorithm 1.

    ``embeddings`` (..., N, D) float and ``labels`` (..., N, R) int with -1 = missing; or, for a large sparse crowd,
    the sparse vote matrix (N, R·K) of `sparse_votes`. ``steps``, ``tau``, ``b``, ``c`` and ``scale`` are numbers or
    tensors of the batch shape; ``c`` may be any prior of `crowdshot.priors`. Batch shapes broadcast, so that one
    support set meets many settings at once. ``classes_in_use`` (...) makes K an upper bound (``log_posterior`` then
    counts constants for all K). ``truth`` (..., N) int has the class of items whose class is known, -1 elsewhere,
    ``item_weight`` (..., N) how much items count.
    ``most_steps`` bounds a tensor of steps, so that the device need not be asked.
    ``track=False`` leaves ``log_posterior`` empty and saves its cost; ``classifier_only`` also leaves out the last
    E-step, on which the classifier does not depend, so that ``responsibilities`` are those before it.
    """
    _check(embeddings, labels, n_classes, covariance)
    if covariance == "full":  # what is left of large differences must still be a covariance
        embeddings = embeddings.double()
    dtype, device = embeddings.dtype, embeddings.device
    tau, b, scale = (as_number(x, embeddings) for x in (tau, b, scale))
    prior = as_confusion_prior(c)
    votes = labels.to(dtype) if labels.is_sparse else dense_votes(labels, n_classes, dtype)
    present = _present(classes_in_use, n_classes, device)
    responsibilities, weight = mixture_steps.soft_vote(votes, n_classes)
    ruled_out: Tensor | None = None
    if truth is not None:
        ruled_out = mixture_steps.ruled_out_by(truth, n_classes)
        told = (truth >= 0)[..., None]
        responsibilities = torch.where(told, (~ruled_out).to(dtype), responsibilities)
        weight = torch.where(told, 1, weight)
    if item_weight is not None:
        weight = weight * item_weight[..., None].to(dtype)

    # Exact in exact arithmetic for any origin; in floating point, far better around the data's own centre.
    origin = (weight * embeddings.detach()).sum(-2, keepdim=True) / weight.sum(-2, keepdim=True).clamp_min(1)
    centred = embeddings - origin

    parameters: mixture_steps.Parameters | None = None
    history: list[Tensor] = []
    n_steps = most_steps if most_steps is not None else int(steps.max()) if isinstance(steps, Tensor) else steps
    if n_steps < 1:
        raise CrowdshotError(f"steps is {n_steps}, expected 1 or more.")
    for step in range(n_steps):
        new = mixture_steps.m_step(
            centred, origin, votes, responsibilities * weight, tau, b, prior, covariance, present
        )
        if classifier_only and step == n_steps - 1:
            new_responsibilities, log_evidence = responsibilities, weight[..., 0]
        else:
            new_responsibilities, log_evidence = mixture_steps.e_step(centred, votes, new, scale, covariance, ruled_out)
        if track and not classifier_only:
            log_likelihood = (log_evidence * weight[..., 0]).sum(-1)
            objective = log_likelihood + mixture_steps.log_prior(new, origin, tau, b, scale, covariance)
            history.append(objective)
        if isinstance(steps, Tensor) and parameters is not None:  # elements that have had their steps stay put
            going = steps.to(embeddings.device) > step
            new = mixture_steps.hold(going, new, parameters)
            new_responsibilities = torch.where(going[..., None, None], new_responsibilities, responsibilities)
            if history:
                history[-1] = torch.where(going, history[-1], history[-2])
        parameters, responsibilities = new, new_responsibilities
    assert parameters is not None
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


def dense_votes(labels: Tensor, n_classes: int, dtype: torch.dtype) -> Tensor:
    """(..., N, R) labels -> (..., N, R·K) ones and zeros, with which both EM steps are matrix products."""
    classes = torch.arange(n_classes, device=labels.device)
    return (labels[..., None] == classes).to(dtype).flatten(-2)


def sparse_votes(
    item: Tensor,
    annotator: Tensor,
    label: Tensor,
    shape: tuple[int, int, int],
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The same matrix from (item, annotator, label) triples, sparse; ``shape`` is (N, R, K)."""
    N, R, K = shape
    indices = torch.stack([item, annotator * K + label])
    ones = torch.ones(item.shape[0], dtype=dtype, device=item.device)
    return torch.sparse_coo_tensor(indices, ones, (N, R * K), check_invariants=True).coalesce()


def _present(classes_in_use: Tensor | None, K: int, device: torch.device) -> Tensor | None:
    """(...) numbers of classes -> (..., K) int, 1 for those in use."""
    if classes_in_use is None:
        return None
    return (torch.arange(K, device=device) < classes_in_use.to(device)[..., None]).long()


def _check(embeddings: Tensor, labels: Tensor, n_classes: int, covariance: str) -> None:
    if covariance not in spread.KINDS:
        raise CrowdshotError(f"covariance is {covariance!r}, expected one of {', '.join(spread.KINDS)}.")
    if n_classes < 2:
        raise CrowdshotError(f"n_classes is {n_classes}, expected 2 or more.")
    if embeddings.ndim < 2 or not embeddings.is_floating_point():
        raise CrowdshotError(
            f"embeddings is {embeddings.dtype} of shape {tuple(embeddings.shape)}, expected floats (..., N, D)."
        )
    if labels.is_sparse:
        if labels.ndim != 2 or labels.shape[0] != embeddings.shape[-2] or labels.shape[1] % n_classes:
            raise CrowdshotError(
                f"labels is a sparse vote matrix of shape {tuple(labels.shape)}, expected (N, R·K) = "
                f"({embeddings.shape[-2]}, R·{n_classes})."
            )
        return
    if labels.ndim < 2 or labels.is_floating_point() or labels.shape[-2] != embeddings.shape[-2]:
        raise CrowdshotError(
            f"labels is {labels.dtype} of shape {tuple(labels.shape)}, expected integers (..., N, R) with "
            f"N = {embeddings.shape[-2]} as in embeddings."
        )
    # On an accelerator the look would cost a synchronisation; there an impossible label counts as missing.
    if labels.device.type == "cpu" and labels.numel() and not -1 <= int(labels.min()) <= int(labels.max()) < n_classes:
        raise CrowdshotError(
            f"labels holds values from {int(labels.min())} to {int(labels.max())}, expected 0 to {n_classes - 1}, "
            "or -1 where there is none."
        )
