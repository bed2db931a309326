"""A search for labelings and what looks tell, each believed in part: the default for few items on our own encoders.

`labelings` sees deepest into few items, and believes its embeddings whatever they are: photographs through an encoder
of characters lead it astray. `learned` believes features only as far as they foretell labels, and stays near the
labels. So the search is asked for what `learned` knows of itself by a formula: labels are hidden, those of a tenth of
the items at a time, and foretold from what is left. The search is believed unless it does worse (`suits`).

The two are then averaged, as logarithms. An item has company c if it has others of its class: n of them are
n / (n + 2). With the mean of c, S of the search and L of `learned`,

    labelled items    S^w L^(1 - w),  w = min(c, 1/2)        those without company are judged by their labels
    other items       S^w L^(1 - w),  w = min(1, 3/2 - c)    of which the search knows most while items are few

The search, too, is told how frequent classes are, as `learned` believes them: taking 60 and 3 for about equal it would
overrule three who agree. A class that was named once, where others were named often, may be a slip of the pen, and is
left to `learned`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crowdshot.model import labelings
from crowdshot.model.learned import Joint
from crowdshot.model.looks import ALONE

Floats = NDArray[np.float64]

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
    fit = labelings.fit(items, said, K, truth=told, history=before, sizes=frequent, **settings)
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
