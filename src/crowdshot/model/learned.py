"""Labels and looks together: what is believed of items whose features come from anywhere.

Labels are believed as `inference` has it; what features say of an item, told by the other items (`looks`), counts for
less than it claims beside them, as people err where items look alike, and as what looks like a
class is learned from the same labels. The two take turns: a better belief teaches the features better.

Class sizes are believed anew in each turn (`class_sizes`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdshot.model.beliefs import believe, dense, joined
from crowdshot.model.class_sizes import Counted, class_sizes, shares
from crowdshot.model.forecast import Forecast, Numbers
from crowdshot.model.guesses import BESIDE_LABELS, together, trusted, weigh
from crowdshot.model.inference_network import Network
from crowdshot.model.looks import MOST, Looks, spread_out
from crowdshot.model.parts import Sizes, parts_of
from crowdshot.model.rounds import Rounds

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

TURNS = 3
CERTAIN = 30.0  # nats by which a known class is likelier than any other, where features are judged
LEAST = 1e-70  # of a probability by labels, where its logarithm is taken


class Joint(NamedTuple):
    belief: Floats  # (N, K), of all items: those without labels by their features
    alone: Floats  # (N, K), by labels alone; class sizes where there are none
    class_probs: Floats  # (K,)
    forecast: Forecast  # for any other item
    taught: Floats  # (n, K), the belief of those with labels, in their order
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

    def settled(score: Floats) -> Floats:
        belief = softmax(score)
        belief[held] = truth
        return belief

    belief = settled(score)
    evidence = score - np.log(shares(state.classes.modest))
    teach = spread_out(x if len(rows) == N else x[rows], MOST)
    others = np.setdiff1d(np.arange(len(rows)), teach)
    looks = Looks(x[rows[teach]].astype(np.float64))
    told = np.zeros_like(belief)
    for _ in range(TURNS + 1):  # the last one after the last belief, for the forecast to be of it
        size = class_sizes(belief)
        told[teach], forecast = looks.believed(belief[teach], evidence[teach], size)
        if len(others):
            told[others] = np.log(forecast(x, rows[others])) - np.log(forecast.size)
        heard, weights = told, np.ones(1)
        if pred_probs is not None:
            said, asked = _said(pred_probs, rows, evidence, size)
            if asked.any():
                weights = weigh([told[asked], said[rows][asked]], evidence[asked], size)
                heard = np.where(asked[:, None], together([told, said[rows]], weights, size), told)
        belief = settled(evidence + np.log(size) + BESIDE_LABELS * heard)
    everyone, by_labels = np.empty((N, K)), np.tile(belief.mean(0), (N, 1))
    everyone[rows], by_labels[rows] = belief, dense(named)
    if len(rows) < N:
        everyone[place < 0] = forecast(x, np.flatnonzero(place < 0))
        if pred_probs is not None and len(weights) > 1:
            other = (place < 0) & np.isfinite(pred_probs).all(1)
            by_looks = np.log(everyone[other]) - np.log(size)
            everyone[other] = softmax(together([by_looks, said[other]], weights, size) + np.log(size))
    unmet = softmax(np.log(size) + told)
    return Joint(everyone, by_labels, belief.mean(0), forecast, belief, unmet, evidence, size)


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
