"""Meta-training's way through the mixture: fit the support, classify the queries, nothing else kept.

By the kernels of `em_gpu` where an episode fits into them, else by `mixture`; the two agree.
"""

from __future__ import annotations

import torch
from torch import Tensor

from crowdshot.model import em_gpu, mixture
from crowdshot.model.priors import Priors


def log_proba(
    embedded: Tensor,
    labels: Tensor,
    n_classes: int,
    steps: int | Tensor,
    priors: Priors,
    most_steps: int,
    classes_in_use: Tensor | None = None,
) -> Tensor:
    """log p(t = k | u) of the queries, (B, Q, K), after ``steps`` of EM, one number or (B,), at most ``most_steps``.

    ``embedded`` (B, N + Q, D) has support items first; ``labels`` (B, N, R), ``priors`` and ``classes_in_use`` (B,) as
    in `mixture.fit`.
    """
    n_support, c = labels.shape[1], priors["c"]
    if isinstance(c, float) and em_gpu.is_available(embedded, labels, n_classes):  # the paper's prior
        each = steps if isinstance(steps, Tensor) else torch.full_like(labels[:, 0, 0], steps)
        return em_gpu.log_proba(
            embedded, labels, n_classes, each, priors["tau"], priors["b"], c, classes_in_use, most_steps
        )
    fit = mixture.fit(
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
    return fit.log_proba(embedded[:, n_support:])
