"""How many items each class has, by what is believed of them.

A belief by labels alone is modest, as people share mistakes: of an item that three of three call common it leaves a
good part to the rare class, and the mean of such beliefs takes one item in twenty for one in four. So sizes are counted
by beliefs to the power of `SHARPER`, and what labels say, which has the modest sizes in it, is moved to them,

    belief_nk ∝ believed_nk · sharp_k / modest_k

By labels alone that is done once, as again and again it would run away with the frequent class, and between the classes
that somebody named for the item: sizes decide where people disagree, and speak against nobody who is alone or agreed
with, because people are also wrong in that they say the frequent class where it is not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crowdshot.model.parts import Floats
from crowdshot.model.problem import Problem, settle, total

SHARPER = 2.0
EQUAL = 8.0  # items that each class has more, before any was seen


class Counted(NamedTuple):
    """(K,), (K,): items of each class, by beliefs as they are and by sharper ones; sums over items."""

    modest: Floats
    sharp: Floats


def class_sizes(belief: Floats, power: float = SHARPER) -> Floats:
    """(n, K) -> (K,) the share of items that are of each class, a little of every class added."""
    sharper = belief**power
    return shares((sharper / sharper.sum(1, keepdims=True)).sum(0))


def shares(counts: Floats) -> Floats:
    out: Floats = (counts + EQUAL) / (counts + EQUAL).sum()
    return out


def count(p: Problem, belief: Floats, power: float) -> Counted:
    """Of items that somebody labelled, or whose class is known. ``belief`` (P,)"""
    told = total(p.weight, p.item, p.n_items) > 0
    if p.known is not None:
        told |= total(~np.isnan(p.known), p.pair_item, p.n_items) > 0
    sharper = belief**power
    sharper /= total(sharper, p.pair_item, p.n_items).clip(1e-300)[p.pair_item]
    counts = (total(values * told[p.pair_item], p.pair_class, p.n_classes) for values in (belief, sharper))
    return Counted(*counts)


def resized(p: Problem, belief: Floats, counted: Counted) -> Floats:
    """(P,) -> (P,), of classes that somebody named; what these have together stays."""
    named = total(p.weight, p.label_pair, len(belief)) > 0
    moved = belief * named * (shares(counted.sharp) / shares(counted.modest))[p.pair_class]
    before, after = (total(values, p.pair_item, p.n_items) for values in (belief * named, moved))
    moved *= (before / after.clip(1e-300))[p.pair_item]
    out: Floats = settle(np, p, np.where(named, moved, belief))
    return out
