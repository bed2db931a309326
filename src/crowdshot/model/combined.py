"""Labels and looks together: what is believed of items whose features come from anywhere.

Labels are believed as `inference` has it; what features say of an item, told by the other items (`looks`), counts for
less than it claims beside them, as people err where items look alike, and as what looks like a
class is learned from the same labels. The two take turns: a better posterior teaches the features better.

Class sizes are believed anew in each turn (`class_sizes`).
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
    Numbers,
    spread_out,
    together,
    trusted,
    weigh,
)
from crowdshot.model.label_model import Network
from crowdshot.model.label_model_parts import Rounds
from crowdshot.model.parts import Sizes, parts_of
from crowdshot.model.posteriors import Counted, believe, class_sizes, dense, joined, shares

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

TURNS = 3
CERTAIN = 30.0  # nats by which a known class is likelier than any other, where features are judged
LEAST = 1e-70  # of a probability by labels, where its logarithm is taken


class Joint(NamedTuple):
    posterior: Floats  # (N, K), of all items: those without labels by their features
    alone: Floats  # (N, K), by labels alone; class sizes where there are none
    class_probs: Floats  # (K,)
    forecast: Forecast  # for any other item
    taught: Floats  # (n, K), the posterior of those with labels, in their order
    unmet: Floats  # (n, K), of the same by the features of others alone, as far as these are believed
    evidence: Floats  # (n, K), log p(labels | class) of the same, by labels alone
    size: Floats  # (K,), of classes as these are believed


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
    """x (N, D) in single or double precision, a row for each item; item, annotator, label (L,).

    ``known`` (N,): the class of items whose class is known, labelled or not; -1 elsewhere. ``history`` (R, 2): labels
    of annotators that were right and wrong elsewhere. ``pred_probs`` (N, K): what any classifier says of the items, NaN
    where it says nothing; it and the features are believed as far as they foretell labels, and averaged.
    ``ordered``: classes are numbered in order.
    """
    N = len(x)
    gold = np.full(N, -1) if known is None else known
    rows = np.unique(np.concatenate([item, np.flatnonzero(gold >= 0)]))
    place = np.full(N, -1)
    place[rows] = np.arange(len(rows))
    right, wrong = (None, None) if history is None else history.T
    held = gold[rows] >= 0
    sizes = Sizes(len(rows), n_annotators, K)
    parts = parts_of(place[item], annotator, label, sizes, gold[rows] if held.any() else None)
    way = Rounds(sizes, network, ordered, right, wrong, gold=bool(held.any()))
    state, named = believe(way, parts)
    plain = state._replace(classes=Counted(state.classes.modest, state.classes.modest))
    score = np.log(dense(joined([way.believe(part, plain) for part in parts])).clip(LEAST))
    truth = np.eye(K)[gold[rows][held]]
    score[held] = CERTAIN * (truth - 1)

    def accepted(score: Floats) -> Floats:
        posterior = softmax(score)
        posterior[held] = truth
        return posterior

    posterior = accepted(score)
    evidence = score - np.log(shares(state.classes.modest))
    teach = spread_out(x if len(rows) == N else x[rows], MOST)
    others = np.setdiff1d(np.arange(len(rows)), teach)
    looks = FeatureModel(x[rows[teach]].astype(np.float64))
    told = np.zeros_like(posterior)
    for _ in range(TURNS + 1):  # the last one after the last posterior, for the forecast to be of it
        size = class_sizes(posterior)
        told[teach], forecast = looks.believed(posterior[teach], evidence[teach], size)
        if len(others):
            told[others] = np.log(forecast(x, rows[others])) - np.log(forecast.size)
        heard, weights = told, np.ones(1)
        if pred_probs is not None:
            said, asked = _said(pred_probs, rows, evidence, size)
            if asked.any():
                weights = weigh([told[asked], said[rows][asked]], evidence[asked], size)
                heard = np.where(asked[:, None], together([told, said[rows]], weights, size), told)
        posterior = accepted(evidence + np.log(size) + BESIDE_LABELS * heard)
    everyone, by_labels = np.empty((N, K)), np.tile(posterior.mean(0), (N, 1))
    everyone[rows], by_labels[rows] = posterior, dense(named)
    if len(rows) < N:
        everyone[place < 0] = forecast(x, np.flatnonzero(place < 0))
        if pred_probs is not None and len(weights) > 1:
            other = (place < 0) & np.isfinite(pred_probs).all(1)
            by_looks = np.log(everyone[other]) - np.log(size)
            everyone[other] = softmax(together([by_looks, said[other]], weights, size) + np.log(size))
    unmet = softmax(np.log(size) + told)
    return Joint(everyone, by_labels, posterior.mean(0), forecast, posterior, unmet, evidence, size)


def _said(p: Floats, rows: Positions, evidence: Floats, size: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """What a classifier says, log p - log size, (N, K), as far as it is trusted; and of which rows (n,) it says it."""
    known = np.asarray(np.isfinite(p).all(axis=1))
    judged = np.zeros((len(p), p.shape[1]))
    judged[rows] = evidence
    counted = np.zeros(len(p), dtype=bool)
    counted[rows] = True
    out = np.zeros_like(judged)
    if (known & counted).any():
        out[known] = trusted(p[known], judged[known], counted[known])
    return out, known[rows]


def softmax(score: Floats) -> Floats:
    out: Floats = np.exp(score - score.max(1, keepdims=True))
    out /= out.sum(1, keepdims=True)
    return out


# ---- both ------------------------------------------------------------
#
# A search for labelings and what looks tell, each believed in part: the default for few items on our own encoders.
#
# `labelings` sees deepest into few items, and believes its embeddings whatever they are: photographs through an encoder
# of characters lead it astray. `learned` believes features only as far as they foretell labels, and stays near the
# labels. So the search is asked for what `learned` knows of itself by a formula: labels are hidden, those of a tenth of
# the items at a time, and foretold from what is left. The search is believed unless it does worse (`suits`).
#
# The two are then averaged, as logarithms. An item has company c if it has others of its class: n of them are
# n / (n + 2). With the mean of c, S of the search and L of `learned`,
#
#     labelled items    S^w L^(1 - w),  w = min(c, 1/2)        those without company are judged by their labels
#     other items       S^w L^(1 - w),  w = min(1, 3/2 - c)    of which the search knows most while items are few
#
# The search, too, is told how frequent classes are, as `learned` believes them: taking 60 and 3 for about equal it would
# overrule three who agree. A class that was named once, where others were named often, may be a slip of the pen, and is
# left to `learned`.


PARTS = 10  # of the items, whose labels are hidden in turn
# Nats by which the search may foretell labels worse than class sizes, and than `learned`, which it may for each item
# besides. Chosen on digits, characters and drawn textures, judged on photographs of LabelMe and CIFAR-10S
# (docs/trust.md): through encoders of another domain it is mostly worse by 0.15 to 1 an item, else by less than 0.1.
WORSE, WORSE_EACH = 1.0, 0.1
DIGITS = 6  # of sizes for the search, whose ties must not be broken by the order in which these were added up
OFTEN = 5.0  # labels of each other class, on average, beside which one alone may be a slip


def suits(
    x: Tensor,
    labels: Tensor,
    looks: Joint,
    settings: dict[str, Any],
    sizes: Tensor | None = None,
    truth: Tensor | None = None,
    history: Tensor | None = None,
) -> bool:
    """Whether the search may be believed; x (n, D), labels (n, R) and the rest as of `labelings.fit`."""
    p = held_back(x, labels, looks.taught.shape[1], settings, sizes, truth, history).double().cpu().numpy()
    likely, c = np.exp(looks.evidence - looks.evidence.max(1, keepdims=True)), company(looks)

    def foretold(p: Floats) -> float:
        return float(c @ np.log((p * likely).sum(1)))

    by_search, by_looks, by_size = (foretold(each) for each in (p, looks.unmet, looks.size))
    return by_search >= by_size - WORSE and by_search >= by_looks - WORSE - WORSE_EACH * len(x)


def held_back(
    x: Tensor,
    labels: Tensor,
    K: int,
    settings: dict[str, Any],
    sizes: Tensor | None = None,
    truth: Tensor | None = None,
    history: Tensor | None = None,
) -> Tensor:
    """p(class) of every item, (n, K), by searches that do not know its labels."""
    n, device = len(x), x.device
    parts = min(PARTS, n)
    part = torch.arange(n, device=device) % parts
    hidden = part == torch.arange(parts, device=device)[:, None]  # (parts, n)
    told = None if truth is None else truth.masked_fill(hidden, -1)
    before = None if history is None else history.expand(parts, -1, -1)
    frequent = None if sizes is None else sizes.expand(parts, -1)
    items, said = x.expand(parts, -1, -1), labels.masked_fill(hidden[..., None], -1)
    fit = labeling_search.fit(items, said, K, truth=told, history=before, sizes=frequent, **settings)
    return fit.log_proba(items).exp()[part, torch.arange(n, device=device)]


def company(looks: Joint) -> Floats:
    """(n,) how far items that have labels have others of their class."""
    q = looks.taught
    others = (q * (q.sum(0) - q)).sum(1)
    out: Floats = others / (others + ALONE)
    return out


def weights(company: float) -> tuple[float, float]:
    """How far the search is believed: of labelled items, and of others."""
    return min(company, 0.5), min(1.0, 1.5 - company)


def frequencies(size: Floats, named: NDArray[np.int64]) -> Tensor:
    """``sizes`` for the search, (K,): as they are believed, 0 for classes that may be slips, by how often each was
    named."""
    once = named == 1
    slips = once & (not once.all() and named[~once].mean() >= OFTEN)
    return torch.from_numpy(np.where(slips, 0.0, size.round(DIGITS)))


def pool(search: Tensor, looks: Tensor, weight: float, sizes: Tensor | None = None) -> Tensor:
    """log p (..., K) of both -> log p: ``weight`` is the search's, but classes of size 0 are left to looks."""
    if sizes is None or bool((sizes > 0).all()):
        return (weight * search + (1 - weight) * looks).log_softmax(-1)
    left, looks = sizes == 0, looks.log_softmax(-1)
    both = (weight * search + (1 - weight) * looks).masked_fill(left, -torch.inf).log_softmax(-1)
    return torch.where(left, looks, both + looks[..., ~left].logsumexp(-1, keepdim=True))
