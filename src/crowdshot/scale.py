"""How much outside features should weigh against the annotators, told by the labels themselves.

Feature vectors from someone else's network were never trained to agree with the model's unit variance. In many
dimensions their Gaussian term decides everything and EM walks away from the labels; so one number, `mixture.fit`'s
``scale``, is chosen from the data. Labels are held back in two ways, a fifth at a time, and each candidate is scored
by the log-probability it gives to them:

- single labels, whose items keep their other labels: a good consensus predicts them;
- all labels of an item: a good classifier predicts them.

With few labels the score is noisy, so each halving or doubling away from `TYPICAL` costs one nat.
Features are first centred and brought to a mean squared norm of one, which makes candidates mean the same everywhere.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from crowdshot import mixture
from crowdshot.annotations import Annotations
from crowdshot.priors import OneCoin, Priors

TYPICAL = 8.0
CANDIDATES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
FOLDS = 5
#: What outside features are fitted with: an annotator is probably better than chance, and mostly one-coin.
PRIORS: Priors = {"tau": 1.0, "b": 100.0, "c": OneCoin(right=2.0, wrong=1.0, weight=10.0)}
STEPS = 3
MOST_CELLS = 20_000_000


def standardise(features: Tensor) -> tuple[Tensor, Tensor]:
    """Shift (D,) and factor () that bring features (N, D) to mean zero and mean squared norm one.

    One factor for all dimensions: which dimension counts for more is the features' own affair.
    """
    shift = features.mean(0)
    size = (features - shift).square().sum(-1).mean().sqrt()
    return shift, torch.where(size > 0, 1 / size.clamp_min(torch.finfo(features.dtype).tiny), 1.0)


def choose_scale(embeddings: Tensor, annotations: Annotations, *, steps: int, seed: int, priors: Priors) -> float:
    """The candidate that predicts held-back labels best. Embeddings (N, D), standardised, one row for each item."""
    generator = torch.Generator().manual_seed(seed)
    rows, labels = _few_enough(annotations, np.random.default_rng(seed))
    embeddings, labels = embeddings[rows], labels.to(embeddings.device)
    candidates = torch.tensor(CANDIDATES, dtype=embeddings.dtype, device=embeddings.device)
    score = -(candidates / TYPICAL).log2().abs()
    for lots in (torch.rand(labels.shape, generator=generator), torch.rand(len(labels), 1, generator=generator)):
        fold = (lots.flatten().argsort().argsort() % FOLDS).view(lots.shape).to(labels.device)
        hidden = (fold == torch.arange(FOLDS, device=labels.device)[:, None, None]) & (labels >= 0)  # (F, N, R)
        fit = mixture.fit(
            embeddings,
            torch.where(hidden, -1, labels),
            annotations.n_classes,
            steps=steps,
            scale=candidates[:, None],
            track=False,
            **priors,
        )  # batch shape (candidates, F)
        said = labels.clamp_min(0).mT[:, None, :].expand(*fit.confusion.shape[:-1], -1)  # (..., R, K, N)
        likelihood = torch.einsum("...nk,...rkn->...nr", fit.responsibilities, fit.confusion.gather(-1, said))
        score = score + (likelihood.clamp_min(torch.finfo(likelihood.dtype).tiny).log() * hidden).sum((1, 2, 3))
    return float(candidates[score.argmax()])


def _few_enough(annotations: Annotations, random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Positions (n,) of labelled items, all or a random part, and their labels (n, r) without idle annotators."""
    rows = np.unique(annotations.item)
    while True:
        kept = np.isin(annotations.item, rows)
        who, column = np.unique(annotations.annotator[kept], return_inverse=True)
        if len(rows) * len(who) * annotations.n_classes * FOLDS * len(CANDIDATES) <= MOST_CELLS or len(rows) <= 20:
            break
        rows = np.sort(random.choice(rows, len(rows) // 2, replace=False))
    labels = np.full((len(rows), len(who)), -1, dtype=np.int64)
    labels[np.searchsorted(rows, annotations.item[kept]), column] = annotations.label[kept]
    return torch.from_numpy(rows), torch.from_numpy(labels)
