"""Combine labels, features and the labeling search into one posterior.

`fit` alternates the label model and the feature model ("features" in `METHODS`):

    evidence_nk = log p(labels of n | k)                          label model, once
    r_nk = c_n (log p(k | x_n, other items) - log size_k)         feature model, fitted to q
    q_nk proportional to size_k exp(evidence_nk + BESIDE_LABELS r_nk)

The exponent `BESIDE_LABELS` is below 1, because annotators err on items that look alike, and because the feature model
is fitted to the same labels. Class sizes are estimated again from q in each of `TURNS` turns
(`posteriors.class_sizes`).

For few items on a meta-trained encoder, the result L of `fit` is averaged with the labeling search S ("combined"). The
search is the stronger model for few items, but it relies on its embeddings even where they are uninformative; the
feature model weights features by held-out prediction. So labels of a tenth of the items at a time are hidden and
predicted from the rest, and the search is used unless it predicts them worse (`suits`). With c the mean of c_n = o_n /
(o_n + ALONE) over labelled items, where o_n is the expected number of other items in the item's class,

    labelled items    p proportional to S^w L^(1 - w),   w = min(c, 1/2)
    other items       p proportional to S^w L^(1 - w),   w = min(1, 3/2 - c)

A small c means that most items have few others of their class: labelled items then rely on their labels, while for
other items the search is at its best. The search also takes the class sizes of `fit`; with 60 and 3 items it would
otherwise assume nearly equal classes and overrule three annotators who agree. A class that was named once, where others
were named often, may be a slip and is left to L (`frequencies`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crowdshot.model import labeling_search
from crowdshot.model.feature_model import (
    ALONE,
    BESIDE_LABELS,
    MOST,
    FeatureModel,
    Forecast,
    spread_rows,
    together,
    trusted,
    weigh,
)
from crowdshot.model.label_model import Network
from crowdshot.model.label_model_parts import Rounds
from crowdshot.model.parts import Sizes, parts_of
from crowdshot.model.posteriors import Counted, believe, class_sizes, dense, joined, shares
from crowdshot.model.regressions import Numbers

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

TURNS = 3
CERTAIN = 30.0  # log-likelihood ratio, in nats, of a known class to any other
LEAST = 1e-70  # lower bound of a label posterior before its logarithm is taken


class Joint(NamedTuple):
    """The result of `fit`; n counts the items that have labels or a known class."""

    posterior: Floats  # (N, K) of all items; those without labels by their features
    alone: Floats  # (N, K) by the label model alone; class sizes for items without labels
    class_probs: Floats  # (K,)
    forecast: Forecast  # the classifier for new items
    taught: Floats  # (n, K) posterior of the n items, in their order
    unmet: Floats  # (n, K) their prediction by the feature model, from other items
    evidence: Floats  # (n, K) their log p(labels | class)
    size: Floats  # (K,) class sizes


class _Labels(NamedTuple):
    """The label model's result on the n items that have labels or a known class."""

    rows: Positions  # (n,) the items
    known: NDArray[np.bool_]  # (n,) whether the class is known
    truth: Floats  # one-hot rows of the known classes
    score: Floats  # (n, K) log p(class | labels)
    evidence: Floats  # (n, K) log p(labels | class)
    posterior: Floats  # (n, K) with adjusted class sizes

    def hold_known(self, score: Floats) -> Floats:
        """Return the softmax of scores (n, K), with known classes held fixed."""
        posterior = softmax(score)
        posterior[self.known] = self.truth
        return posterior


def fit(
    x: Numbers,
    item: Positions,
    annotator: Positions,
    label: Positions,
    n_annotators: int,
    K: int,
    network: Network,
    known: Positions | None = None,
    history: Floats | None = None,
    pred_probs: Floats | None = None,
    ordered: bool = False,
) -> Joint:
    """Fit the label model and the feature model to labels and features.

    Parameters
    ----------
    x : (N, D) array
        Features of all items, in single or double precision.
    item, annotator, label : (L,) int arrays
        The labels.
    n_annotators, K : int
        Numbers of annotators and classes.
    network : mapping
        The label model's network.
    known : (N,) int array, optional
        The class of items whose class is known, with labels or without; -1 elsewhere.
    history : (R, 2) array, optional
        Labels of each annotator that were right and wrong elsewhere.
    pred_probs : (N, K) array, optional
        Predictions of any other classifier, NaN for items without. They are averaged with the feature model; both are
        weighted by their held-out likelihood of the labels.
    ordered : bool
        Classes are numbered in order.
    """
    N = len(x)
    labels = _fit_labels(N, item, annotator, label, n_annotators, K, network, known, history, ordered)
    rows, evidence = labels.rows, labels.evidence
    posterior = labels.hold_known(labels.score)
    train = spread_rows(x if len(rows) == N else x[rows], MOST)
    others = np.setdiff1d(np.arange(len(rows)), train)
    model = FeatureModel(x if len(train) == N else x[rows[train]])
    log_ratio = np.zeros_like(posterior)
    for _ in range(TURNS + 1):  # the last turn fits the classifier to the last posterior
        size = class_sizes(posterior)
        by_features = model.fit(posterior[train], evidence[train], size)
        log_ratio[train] = by_features.log_ratio
        if len(others):
            log_ratio[others] = np.log(by_features.forecast(x, rows[others])) - np.log(size)
        averaged, weights, given = _with_predictions(log_ratio, pred_probs, rows, evidence, size)
        posterior = labels.hold_known(evidence + np.log(size) + BESIDE_LABELS * averaged)
    forecast = by_features.forecast
    all_items, by_labels = np.empty((N, K)), np.tile(posterior.mean(0), (N, 1))
    all_items[rows], by_labels[rows] = posterior, labels.posterior
    if len(rows) < N:
        unlabelled = np.full(N, True)
        unlabelled[rows] = False
        all_items[unlabelled] = forecast(x, np.flatnonzero(unlabelled))
        if pred_probs is not None and given is not None and len(weights) > 1:
            predicted = unlabelled & np.isfinite(pred_probs).all(1)
            ratio = np.log(all_items[predicted]) - np.log(size)
            all_items[predicted] = softmax(together([ratio, given[predicted]], weights, size) + np.log(size))
    held_out = softmax(np.log(size) + log_ratio)
    return Joint(all_items, by_labels, posterior.mean(0), forecast, posterior, held_out, evidence, size)


def _fit_labels(
    N: int,
    item: Positions,
    annotator: Positions,
    label: Positions,
    n_annotators: int,
    K: int,
    network: Network,
    known: Positions | None,
    history: Floats | None,
    ordered: bool,
) -> _Labels:
    gold = np.full(N, -1) if known is None else known
    rows = np.unique(np.concatenate([item, np.flatnonzero(gold >= 0)]))
    place = np.full(N, -1)
    place[rows] = np.arange(len(rows))
    right, wrong = (None, None) if history is None else history.T
    held = gold[rows] >= 0
    sizes = Sizes(len(rows), n_annotators, K)
    parts = parts_of(place[item], annotator, label, sizes, gold[rows] if held.any() else None)
    rounds = Rounds(sizes, network, ordered, right, wrong, gold=bool(held.any()))
    state, named = believe(rounds, parts)
    plain = state._replace(classes=Counted(state.classes.modest, state.classes.modest))  # class sizes not adjusted
    score = np.log(dense(joined([rounds.believe(part, plain) for part in parts])).clip(LEAST))
    truth = np.eye(K)[gold[rows][held]]
    score[held] = CERTAIN * (truth - 1)
    return _Labels(rows, held, truth, score, score - np.log(shares(state.classes.modest)), dense(named))


def _with_predictions(
    log_ratio: Floats, pred_probs: Floats | None, rows: Positions, evidence: Floats, size: Floats
) -> tuple[Floats, Floats, Floats | None]:
    """Average the feature model with the predictions of another classifier.

    Returns
    -------
    averaged : (n, K) array
    weights : (1,) or (2,) array
        Of the feature model and, if there are predictions for these items, of the other classifier.
    given : (N, K) array or None
        The tempered predictions.
    """
    if pred_probs is None:
        return log_ratio, np.ones(1), None
    given, has = _tempered(pred_probs, rows, evidence)
    if not has.any():
        return log_ratio, np.ones(1), given
    weights = weigh([log_ratio[has], given[rows][has]], evidence[has], size)
    return np.where(has[:, None], together([log_ratio, given[rows]], weights, size), log_ratio), weights, given


def _tempered(p: Floats, rows: Positions, evidence: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return a classifier's tempered log p - log size, (N, K), and for which rows (n,) it has predictions."""
    finite = np.asarray(np.isfinite(p).all(axis=1))
    of_items = np.zeros((len(p), p.shape[1]))
    of_items[rows] = evidence
    labelled = np.zeros(len(p), dtype=bool)
    labelled[rows] = True
    out = np.zeros_like(of_items)
    if (finite & labelled).any():
        out[finite] = trusted(p[finite], of_items[finite], labelled[finite])
    return out, finite[rows]


def softmax(score: Floats) -> Floats:
    out: Floats = np.exp(score - score.max(1, keepdims=True))
    out /= out.sum(1, keepdims=True)
    return out


# ---- the labeling search beside the feature model --------------------------------------------------------------------


PARTS = 10  # of the items, whose labels are hidden in turn
# Nats by which the search may predict hidden labels worse than class sizes (WORSE), and worse than the feature model
# (WORSE plus WORSE_EACH for each item). Tuned on digits, characters and drawn textures, evaluated on photographs of
# LabelMe and CIFAR-10S (docs/trust.md). With encoders of another domain the search is mostly worse by 0.15 to 1 for
# each item, otherwise by less than 0.1.
WORSE, WORSE_EACH = 1.0, 0.1
DIGITS = 6  # of class sizes for the search, so that rounding errors do not break its ties
OFTEN = 5.0  # mean number of labels of the other classes, from which on a class named once may be a slip


def suits(
    x: Tensor,
    labels: Tensor,
    joint: Joint,
    settings: dict[str, Any],
    sizes: Tensor | None = None,
    truth: Tensor | None = None,
    history: Tensor | None = None,
) -> bool:
    """Return whether the search predicts hidden labels well enough to be used.

    The held-out log-likelihood of predictions p is sum_n c_n log sum_k p_nk p(labels of n | k). That of the search may
    be lower by `WORSE` than that of class sizes, and by `WORSE` + n `WORSE_EACH` than that of the feature model.

    Parameters
    ----------
    x : (n, D) Tensor
        Embeddings of the items that have labels or a known class.
    labels : (n, R) Tensor
        Their labels, -1 = missing.
    joint : Joint
        The result of `fit` on the same items.
    settings, sizes, truth, history
        Arguments of `labelings.fit`.
    """
    p = held_back(x, labels, joint.taught.shape[1], settings, sizes, truth, history).double().cpu().numpy()
    likelihood, c = np.exp(joint.evidence - joint.evidence.max(1, keepdims=True)), company(joint)

    def log_likelihood(p: Floats) -> float:
        return float(c @ np.log((p * likelihood).sum(1)))

    by_search, by_features, by_size = (log_likelihood(each) for each in (p, joint.unmet, joint.size))
    return by_search >= by_size - WORSE and by_search >= by_features - WORSE - WORSE_EACH * len(x)


def held_back(
    x: Tensor,
    labels: Tensor,
    K: int,
    settings: dict[str, Any],
    sizes: Tensor | None = None,
    truth: Tensor | None = None,
    history: Tensor | None = None,
) -> Tensor:
    """Return the search's p(class) of every item, (n, K), with labels and known class of the item hidden."""
    n, device = len(x), x.device
    parts = min(PARTS, n)
    part = torch.arange(n, device=device) % parts
    hidden = part == torch.arange(parts, device=device)[:, None]  # (parts, n)
    truth = None if truth is None else truth.masked_fill(hidden, -1)
    history = None if history is None else history.expand(parts, -1, -1)
    sizes = None if sizes is None else sizes.expand(parts, -1)
    items, visible = x.expand(parts, -1, -1), labels.masked_fill(hidden[..., None], -1)
    fit = labeling_search.fit(items, visible, K, truth=truth, history=history, sizes=sizes, **settings)
    return fit.log_proba(items).exp()[part, torch.arange(n, device=device)]


def company(joint: Joint) -> Floats:
    """Return c_n = o_n / (o_n + ALONE), (n,), with o_n the expected number of other items in the item's class."""
    q = joint.taught
    others = (q * (q.sum(0) - q)).sum(1)
    out: Floats = others / (others + ALONE)
    return out


def weights(company: float) -> tuple[float, float]:
    """Return the search's weight for labelled items and for other items."""
    return min(company, 0.5), min(1.0, 1.5 - company)


def frequencies(size: Floats, named: NDArray[np.int64]) -> Tensor:
    """Return class sizes for the search, (K,), with 0 for classes that may be slips.

    ``named`` (K,) counts the labels of each class.
    """
    once = named == 1
    slips = once & (not once.all() and named[~once].mean() >= OFTEN)
    return torch.from_numpy(np.where(slips, 0.0, size.round(DIGITS)))


def pool(search: Tensor, features: Tensor, weight: float, sizes: Tensor | None = None) -> Tensor:
    """Average log p (..., K) of the search, with ``weight``, and of the feature model.

    Classes of size 0 keep the probability that the feature model gives them.
    """
    if sizes is None or bool((sizes > 0).all()):
        return (weight * search + (1 - weight) * features).log_softmax(-1)
    left, features = sizes == 0, features.log_softmax(-1)
    pooled = (weight * search + (1 - weight) * features).masked_fill(left, -torch.inf).log_softmax(-1)
    return torch.where(left, features, pooled + features[..., ~left].logsumexp(-1, keepdim=True))
