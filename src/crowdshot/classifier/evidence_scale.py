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
from numpy.typing import NDArray
from torch import Tensor

from crowdshot.labels.annotations import Annotations
from crowdshot.model import mixture
from crowdshot.model.priors import OneCoin, Priors

TYPICAL = 8.0
CANDIDATES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
FOLDS = 5
STEPS = 3
MOST_CELLS = 20_000_000


def priors_of(n_classes: int) -> Priors:
    """What outside features are fitted with: an annotator is better than chance, and mostly one-coin.

    An accuracy starts from three right labels and one of each wrong one, as in `aggregate.one_coin`.
    """
    return {"tau": 1.0, "b": 100.0, "c": OneCoin(right=3.0, wrong=n_classes - 1.0, weight=10.0)}


def standardise(features: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Shift (D,) and factor () that bring features (N, D) to mean zero and mean squared norm one; by (N,) weights.

    One factor for all dimensions: which dimension counts for more is the features' own affair.
    """
    exact = features.double()  # squares of large numbers leave single precision
    if weight is not None:
        exact, weight = exact[weight > 0], weight[weight > 0, None].to(exact)
    count = torch.ones_like(exact[:, :1]) if weight is None else weight
    shift = (exact * count).sum(0) / count.sum()
    size = ((exact - shift).square() * count).sum().div(count.sum()).sqrt()
    return shift.to(features), torch.where(size > 0, 1 / size.clamp_min(1e-38), 1.0).to(features)


def choose_scale(embeddings: Tensor, annotations: Annotations, *, steps: int, seed: int, priors: Priors) -> float:
    """The candidate that predicts held-back labels best. Embeddings (N, D), standardised, one row for each item.

    The order of items and annotators does not matter: lots are drawn for them in an order of their own.
    """
    generator = torch.Generator().manual_seed(seed)
    random = np.random.default_rng(seed)
    labelled = np.unique(annotations.item)
    told = [embeddings[labelled].double().cpu().numpy(), annotations.vote_counts()[labelled]]  # votes tell twins apart
    place = _in_own_order(np.concatenate(told, axis=1), random)
    rows, labels = _few_enough(annotations, labelled[place], random)
    labels = labels[:, _in_own_order(labels.numpy().T + 1.0, random)].to(embeddings.device)
    embeddings = embeddings[rows]
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


def _in_own_order(vectors: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.int64]:
    """Positions of (n, d) vectors, sorted by where they lie along some direction: the same in whichever order given."""
    return np.argsort(vectors @ random.standard_normal(vectors.shape[1]), kind="stable")


def _few_enough(
    annotations: Annotations, rows: NDArray[np.int64], random: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Positions (n,) of labelled items, all or a random part, and their labels (n, r) without idle annotators."""
    while True:
        kept = np.isin(annotations.item, rows)
        who, column = np.unique(annotations.annotator[kept], return_inverse=True)
        if len(rows) * len(who) * annotations.n_classes * FOLDS * len(CANDIDATES) <= MOST_CELLS or len(rows) <= 20:
            break
        rows = rows[np.sort(random.choice(len(rows), len(rows) // 2, replace=False))]
    labels = np.full((len(rows), len(who)), -1, dtype=np.int64)
    place = np.empty(annotations.n_items, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    labels[place[annotations.item[kept]], column] = annotations.label[kept]
    return torch.from_numpy(rows), torch.from_numpy(labels)
