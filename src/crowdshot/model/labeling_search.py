"""Few labels, many explanations: the model of `crowdshot.mixture`, integrated instead of maximised.

A crowd's labels of forty items or fewer leave several explanations open, and EM, which starts from the vote, ends in
one of them. Here means and confusion matrices are integrated out. That leaves, in closed form, the probability of a
*labeling*, which is a true class for every labelled item; a beam search finds the most probable ones
(`labeling_search`), and the classifier averages over them.

    t_n ~ pi, pi ~ Dirichlet(b + 1)        u_n ~ N(mu_t, I / s)        mu_k ~ N(0, I / (s tau))

Embeddings u are taken around the support's centre and in units of its spread, the root of the mean squared distance
from the centre, so that the same scale s serves characters, photographs and feature vectors from elsewhere. With means
integrated out, a labeling with class sizes n_k and class sums S_k has, but for a constant,

    log p(u | t) = -s/2 [ sum_n |u_n|^2 - sum_k |S_k|^2 / (tau + n_k) ]

without the normaliser D/2 sum_k log(tau + n_k): embeddings are no spherical clouds in D dimensions, and meta-learning
sets its factor to zero. What annotators said is weighed by `annotator_skills`. For queries the means are the paper's
(7), S_k / (tau + n_k), and the classifier its (8), for each labeling.

The choice of labelings has no gradient; all else, their weights included, can be differentiated.

>>> import torch
>>> from crowdshot import labelings
>>> embeddings = torch.tensor([[0.0], [0.2], [5.0], [5.1]])
>>> labels = torch.tensor([[0, 0], [0, -1], [1, 1], [1, 0]])  # -1 = no label
>>> labelings.fit(embeddings, labels, n_classes=2).log_proba(torch.tensor([[0.1], [4.9]])).argmax(-1)
tensor([0, 1])
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from crowdshot.errors import CrowdshotError
from crowdshot.model import annotator_model
from crowdshot.model.annotator_model import P_KIND, compact, next_label, tables_for
from crowdshot.model.array_api import Array, ArrayApi, array_api_of
from crowdshot.model.priors import Number, OneCoin, as_number

# ---- labeling search ------------------------------------------------------------
#
# The most probable labelings of a crowd-labelled set, by beam search.
#
# Items are taken one after the other; of all ways to extend the labelings kept so far by one item's class, the most
# probable are kept. How probable a labeling is, `labelings.log_probability` says; what one more item adds to it needs, of
# a labeling, only its class sizes, the inner products of its class sums with the item, and what is known of those
# annotators who labelled the item (`Annotators`).
#
# These are many small steps, in which calls cost more than numbers. On the processor NumPy takes them, whose calls are
# the quickest, on an accelerator torch (`array_ways`); the body is one. Arrays that meet have the same shape where that
# can be: NumPy then has nothing to think about. All is in float64, so that rounding decides nothing.
#
# M labelings are kept of each of B episodes, and may be extended by K classes. Such a *child* is at (b K + k) M + m.


TOGETHER = 16  # probabilities that are multiplied before a logarithm is taken: fewer than would vanish


def search(
    gram: Tensor,
    labels: Tensor,
    order: Tensor,
    taken: Tensor,
    n_classes: int,
    scale: float,
    tau: float,
    b: float,
    width: int,
    evidence: Tensor | None = None,
    history: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Labelings (B, M, N), at most ``width`` of each episode, the most probable first; and log p but for a constant.

    ``gram`` (B, N, N) has the inner products of items, ``labels`` is (B, N, R). ``taken`` (B, N) tells which items
    there are; the others, last in ``order`` (B, N), are -1 and change nothing. ``evidence`` (B, N, K) is log p of what
    else is known of items, given their class, ``history`` (B, R, 2) how many of annotators' labels were right and wrong
    elsewhere. Where episodes have fewer labelings than others, log p is -inf.
    """
    ways, M = array_api_of(gram.device), min(width, n_classes ** min(gram.shape[1], 30))
    episode = torch.arange(len(gram), device=gram.device)[:, None]
    labels, taken = labels[episode, order], taken[episode, order]
    products = (scale * gram.double())[episode[..., None], order[..., None], order[:, None]]
    known = None if evidence is None else ways.array(evidence.double()[episode, order].movedim(1, 0)[..., None])
    n = int(taken.sum(1).max())
    crowd = Annotators(ways, ways.array(labels[:, :n]), M, n_classes, history) if labels[:, :n].numel() else None
    found = extend(
        ways, ways.array(products.movedim(0, -1)), ways.array(taken.mT), crowd, known, (n_classes, M), tau, b
    )
    classes, log_p = (torch.as_tensor(x) for x in found)
    log_p, best = log_p.sort(dim=-1, descending=True)
    classes = classes.movedim(0, -1)[episode, best].masked_fill(~taken[:, None, :n], -1)  # (B, M, n)
    labelings = order.new_full((*best.shape, order.shape[1]), -1)
    return labelings.scatter_(2, order[:, None, :n].expand_as(classes), classes), log_p


def extend(
    ways: ArrayApi,
    gram: Array,
    taken: Array,
    crowd: Annotators | None,
    evidence: Array | None,
    children: tuple[int, int],
    tau: float,
    b: float,
) -> tuple[Array, Array]:
    """Item after item: the classes of all (n, B, M) in the labelings that are left, and log p of these, (B, M).

    All is in the order in which items are taken: ``gram`` (N, N, B), times scale; ``taken`` (N, B); ``evidence``
    (N, B, K, 1). ``children``: K, M.
    """
    xp, (K, M), B, n = ways.xp, children, gram.shape[-1], int(taken.sum(0).max())
    everywhere = taken.all(1).tolist()
    own = 0.5 * gram.diagonal() if B == 1 else 0.5 * gram.diagonal().T  # |u|^2
    episode, m = ways.numbers(B, 1), ways.numbers(M)
    # of each child: squared class sum, times scale / 2; size + tau + 1; log(size + b + 1) - squared / (size + tau)
    state = ways.full((3, B, K, M), 0.0)
    state[1] += tau + 1
    state[2] += math.log(b + 1)
    log_p = ways.full((B, M), -math.inf)
    log_p[:, 0] = 0
    past = ways.full((n + 1, 3, B * M), 0)  # of each item: class k, labeling m that it was added to, k M + m
    # places: of episodes' first labelings and children, of children by class, of a child's labeling, of siblings
    first, first_child = ways.filled(episode * M, (B, M)), ways.filled(episode * (K * M), (B, M))
    as_class = first_child + m
    labeling = ways.filled((first + m)[:, None], (3, B, K, M))
    siblings = ways.filled(ways.numbers(3, B, K, 1) * M, (3, B, K, M))
    for i in range(n):
        squared, weight, prior = state
        sums = squared + (own[0, i] if B == 1 else own[i][:, None, None])
        if i:
            sums += ways.sums_by_class(gram[i, :i], past[1 : i + 1, 0], as_class, K)
        score = sums / weight
        total = score + prior
        if crowd is not None:
            total += crowd.gain(i, past)
        if evidence is not None:
            total += evidence[i]
        if not everywhere[i]:  # an item that is not there is of class 0 and adds nothing
            total[~taken[i]] = -math.inf
            total[~taken[i], 0] = 0
        total += log_p.take(labeling[0])
        best = ways.top(total.reshape(B, K * M), M)  # (B, M)
        k = best // M
        parent = best - k * M
        child = best + first_child
        log_p = total.take(child)
        grown = weight.take(child) + 1
        changed = sums.take(child), grown, xp.log(grown + (b - tau)) - score.take(child)
        past = ways.pick(past, (parent + first).reshape(-1))
        for what, value in enumerate((k, parent, best)):
            past[i + 1, what] = value.reshape(-1)
        state = state.take(parent.take(labeling) + siblings)
        flat, at = state.reshape(3, -1), (as_class + k * M).reshape(-1)
        for what, value in enumerate(changed):
            flat[what, at] = value.reshape(-1)
    return past[1:, 0].reshape(n, B, M), log_p


class Annotators:
    """What is known of each annotator in every labeling that is kept, while labels come in, item after item.

    Of an annotator: how many labels are right and how many wrong, in all and for each true class, as places in
    `Tables`; and how probable each kind of annotator has become. Of an annotator and a label: how often each class was
    mistaken so. All that is brought up to date only where it is needed: ``past`` tells, for each labeling that is kept
    now, which labeling and class it was made of when the annotator last said something. So a step takes K numbers a
    label, however many annotators there are.
    """

    def __init__(self, ways: ArrayApi, labels: Array, M: int, K: int, history: Tensor | None = None) -> None:
        """Labels (B, n, R), in the order in which items are taken."""
        tables = tables_for(int((labels >= 0).sum(1).max()), K, ways, history)
        self.ways, self.M, side, (B, n, R) = ways, M, tables.side, labels.shape
        xp, numbers = ways.xp, ways.numbers
        who, said = (xp.moveaxis(x, 0, -1) for x in compact(labels, ways))  # (n, L, B)
        L, given = who.shape[1], said >= 0
        self.given, self.complete = given[..., None, None], given.all(-1).all(-1).tolist()
        who = xp.where(given, who, R) + (R + 1) * numbers(B)  # R is one who says nothing
        said = xp.where(given, said, 0)
        place = who
        who, n_who, last = repeats(ways, who)
        cell, n_cells, last_there = repeats(ways, who * K + said)

        # what is known, in rows of M: right and wrong labels in all, by class, and mistakes
        self.known = ways.full((n_who * (1 + K) + n_cells * K, M), 0)
        if tables.start is not None:
            start = ways.full((2, B, R + 1), 0)
            start[..., :R] = tables.start
            begin = ways.full((2, n_who), 0)
            begin[:, who.reshape(-1)] = start.reshape(2, -1)[:, place.reshape(-1)]
            self.known[:n_who] += begin[0][:, None]
            self.known[n_who : n_who * (1 + K)] += begin[1][numbers(n_who * K) // K][:, None]
        rows = [who[..., None] + 0 * numbers(K), n_who + who[..., None] * K + numbers(K)]
        rows.append(n_who * (1 + K) + cell[..., None] * K + numbers(K))
        self.rows = xp.stack(rows, 1).reshape(n, -1)  # (n, 3 L B K)
        # the kinds, in rows of K M
        self.kinds = xp.concatenate([ways.full((n_who, K * M), p) for p in P_KIND])
        self.kind_rows = (numbers(3, 1, 1) * n_who + who[:, None]).reshape(n, -1)  # (n, 3 L B)

        # what a label adds to what is known, by true class: a row for each kind of row, class, and label or none
        row, column, label, true = numbers(3, 1, 1, 1), numbers(K, 1, 1), numbers(K + 1, 1), numbers(K)
        more = xp.where(row < 2, xp.where(label == true, side, 1), 1 * (label != true))
        self.more = (more * (((row == 0) | (column == true)) & (label < K))).reshape(-1, K)
        before = xp.where(given[:, None], xp.stack([last, last, last_there], 1), -1)  # (n, 3, L, B)
        label = xp.where(before < 0, K, said.reshape(-1)[before])
        self.more_rows = ((numbers(3, 1, 1, 1) * K + numbers(K)) * (K + 1) + label[..., None]).reshape(n, -1)
        item = xp.where(before < 0, 0, before // (L * B) + 1)[:, 1:, :, None]  # (n, 2, L, 1, B), 0 for none
        self.items = (item * 3 + numbers(3, 1)) * B + numbers(B)  # (n, 2, L, 3, B)

        self.tables, self.missed = tables, ways.filled(numbers(2, 1) * tables.missed, (2, M))
        missed = 1 * (said[..., None] != numbers(K))  # (n, L, B, K)
        self.missed_rows = xp.stack([missed, missed], 1).reshape(n, -1)

        # where entries of (3, L, B, K, M) find their labeling's parent, class and child in (2, L, 3, B, M), and places
        # in the rows of what is known, of what a label adds, and of kinds, to which these are added
        shape = 3, L, B, K, M
        label, labeling, place = numbers(L, 1, 1, 1), numbers(B, 1, M), numbers(3, L, B, K, 1)
        true = ways.filled((numbers(3, 1, 1, 1, 1) // 2 * L + label) * (3 * B * M) + labeling, shape)
        child = ways.filled((label * 3 + 2) * (B * M) + labeling, shape)
        self.in_past = xp.stack([true + B * M, true, child])
        self.in_rows = xp.stack([ways.filled(each, shape) for each in (place * M, place * K, place // K * (K * M))])

    def gain(self, i: int, past: Array) -> Array:
        """log p(labels of the i-th item | its class, labels before), (B, K, M)."""
        ways, M, rows, kind_rows = self.ways, self.M, self.rows[i], self.kind_rows[i]
        was = ways.rows(past.reshape(-1, M), self.items[i])  # (2, L, 3, B, M)
        parent, true, child = was.take(self.in_past) + self.in_rows
        known = ways.rows(self.known, rows).take(parent)
        known += ways.rows(self.more, self.more_rows[i]).take(true)
        self.known[rows] = known.reshape(-1, M)
        kinds = ways.rows(self.kinds, kind_rows).take(child)

        places = known[:2] + ways.rows(self.missed, self.missed_rows[i]).reshape(known[:2].shape)
        p, flips = next_label(places, known[2], self.tables)
        kinds[:2] *= p
        kinds[2] *= flips
        p = kinds.sum(0)
        kinds /= p
        self.kinds[kind_rows] = kinds.reshape(len(kind_rows), -1)
        if not self.complete[i]:
            p = ways.xp.where(self.given[i], p, 1.0)
        found = ways.xp.log(p[:TOGETHER].prod(0))
        for j in range(TOGETHER, len(p), TOGETHER):
            found += ways.xp.log(p[j : j + TOGETHER].prod(0))
        return found


def repeats(ways: ArrayApi, keys: Array) -> tuple[Array, int, Array]:
    """Keys numbered from 0 on, how many there are, and where in the flattened array each was last before, or -1."""
    flat = keys.reshape(-1)
    order = ways.sorted_places(flat)
    flat = flat[order]
    new = flat[1:] != flat[:-1]
    number, before = ways.full(order.shape, 0), ways.full(order.shape, -1)
    number[order[1:]] = new.cumsum(0)
    before[order[1:]] = ways.xp.where(new, -1, order[:-1])
    return number.reshape(keys.shape), int(number.max()) + 1, before.reshape(keys.shape)


# ---- labeling order ------------------------------------------------------------
#
# The order in which the search for labelings takes items: in turns one of every class, the surest first.
#
# Early decisions are then safe ones, and soon every class has a mean that later items can be compared with. A width of 16
# so finds what took 256 with the items in the order of their agreement.
#
# How sure an item is, a quick fit of `mixture` says, by `OneCoin`. It is written once more here, on inner products of
# items and for NumPy too, as `mixture.fit` itself would take as long as a third of the search.


STEPS = 3  # of EM
PRIOR = OneCoin()


def order_of(
    gram: Tensor, labels: Tensor, K: int, scale: float, tau: float, b: float, ruled_out: Tensor | None = None
) -> Tensor:
    """(B, N), with items that nobody labelled last.

    ``gram`` (B, N, N) of centred embeddings, ``labels`` (B, N, R). ``ruled_out`` (B, N, K): classes that items cannot
    have, as their own is known to be another.
    """
    ways = array_api_of(gram.device)
    out = None if ruled_out is None else ways.array(ruled_out)
    posterior, named = guess(ways.array(gram.double()), ways.array(labels), K, scale, tau, b, out, ways)
    xp, (B, N, _) = ways.xp, posterior.shape
    episode = ways.numbers(B, 1)
    surest = ways.sorted_places(xp.where(named, -xp.amax(posterior, -1), 1.0))
    k = posterior.argmax(-1)[episode, surest]
    turns = (k[..., None] == ways.numbers(K)).cumsum(1)[episode, ways.numbers(N), k]  # an item's place among its class
    return torch.as_tensor(surest[episode, ways.sorted_places(xp.where(named[episode, surest], turns, N + 1))])


def guess(
    gram: Array, labels: Array, K: int, scale: float, tau: float, b: float, ruled_out: Array | None, ways: ArrayApi
) -> tuple[Array, Array]:
    """p(class) of items by a few steps of EM, (B, N, K), and of which something is known, (B, N)."""
    xp, (B, N, R), eye = ways.xp, labels.shape, ways.floats(ways.eye(K))
    votes = ways.floats(labels[..., None] == ways.numbers(K))
    shares = votes.sum(2)
    if ruled_out is not None:
        shares = xp.where(ruled_out.any(-1)[..., None], ways.floats(~ruled_out), shares)
    total = shares.sum(-1)
    named = total > 0
    weight, total = ways.floats(named)[..., None], xp.where(named, total, 1.0)[..., None]
    posterior = xp.where(named[..., None], shares / total, 1 / K)
    votes = votes.reshape(B, N, R * K)
    for _ in range(STEPS):
        known = posterior * weight
        size = known.sum(1)[:, None]  # (B, 1, K)
        inner = gram @ known
        gaussian = (inner - 0.5 * (known * inner).sum(1)[:, None] / (tau + size)) / (tau + size)
        counts = (xp.swapaxes(votes, 1, 2) @ known).reshape(B, R, K, K)  # [annotator, observed, true]
        right = (counts * eye).sum(-1).sum(-1)
        q = ((right + PRIOR.right) / (counts.sum(-1).sum(-1) + PRIOR.right + PRIOR.wrong))[..., None, None]
        matrices = counts + PRIOR.weight * (eye * q + (1 - eye) * ((1 - q) / (K - 1)))
        matrices = matrices / matrices.sum(2)[:, :, None]
        score = scale * gaussian + xp.log(size + b) + votes @ xp.log(matrices).reshape(B, R * K, K)
        if ruled_out is not None:
            score = xp.where(ruled_out, -xp.inf, score)
        posterior = xp.exp(score - xp.amax(score, -1)[..., None])
        posterior = posterior / posterior.sum(-1)[..., None]
    return posterior, named


# ---- labelings ------------------------------------------------------------


B = 100.0  # the paper's: classes of few-shot problems are about equally frequent
SCALE, TAU, WIDTH = 20.0, 0.5, 32  # near the best on characters and on photographs alike (docs/beyond-details.md)
AT_ONCE = 2**25  # numbers that queries may fill
NEGLIGIBLE = 1e-9  # weights of labelings


@dataclass(frozen=True)
class Posterior:
    """The most probable labelings of an episode, or of a batch of them, and what follows."""

    embeddings: Tensor  #: (..., N, D), of the support
    labelings: Tensor  #: (..., M, N) int, the class of every item; -1 for one that nobody labelled
    log_weights: Tensor  #: (..., M), normalised
    confusion: Tensor  #: (..., R, K, K) [annotator, true, observed], expected
    centre: Tensor  #: (..., 1, D), of the support
    unit: Tensor  #: (..., 1, 1), its spread
    scale: Tensor
    tau: Tensor
    believed: Tensor | None = (
        None  #: (n, K), `item_posteriors` of the items that have labels, where they were asked for
    )
    sizes: Tensor | None = None  #: (..., K), how frequent classes are, where that was given

    @property
    def n_classes(self) -> int:
        return self.confusion.shape[-1]

    @property
    def _seen(self) -> Tensor:
        """(N,): which items have labels in some episode; of a million, a user may have had forty labelled."""
        return (self.labelings >= 0).flatten(0, -2).any(0)

    @property
    def _chosen(self) -> Tensor:
        """The labelings of these: (..., M, n, K) ones and zeros."""
        return one_hot(self.labelings[..., self._seen], self.n_classes, self.embeddings.dtype)

    def log_proba(self, queries: Tensor) -> Tensor:
        """(8), averaged over labelings: log p(t = k | u), (..., Q, D) -> (..., Q, K)."""
        if queries.shape[-1] != self.embeddings.shape[-1]:
            raise CrowdshotError(
                f"queries is of shape {tuple(queries.shape)}, expected (..., Q, {self.embeddings.shape[-1]}) as in fit."
            )
        u, share, prior = self.terms()

        def averaged(query: Tensor) -> Tensor:
            near = ((query - self.centre) / self.unit) @ u.mT  # (..., Q, n)
            evidence = self.scale[..., None, None, None] * near[..., None, :, :] @ share + prior[..., None, :]
            return torch.logsumexp(evidence.log_softmax(-1) + self.log_weights[..., None, None], -3)

        at_once = max(1, AT_ONCE // max(1, prior.numel()))
        return torch.cat([averaged(part) for part in torch.split(queries, at_once, -2)], -2)

    def terms(self) -> tuple[Tensor, Tensor, Tensor]:
        """What `log_proba` is made of: items (..., n, D), their shares in means (..., M, n, K), the rest (..., M, K).

        A mean is a sum of items, so that inner products with the items are all it takes, whatever D.
        """
        u = (self.embeddings[..., self._seen, :] - self.centre) / self.unit
        chosen = self._chosen
        size = chosen.sum(-2)  # (..., M, K)
        share = chosen / (self.tau[..., None, None] + size)[..., None, :]
        squared = (share * ((u @ u.mT)[..., None, :, :] @ share)).sum(-2)  # |mean|^2, (..., M, K)
        return u, share, self._log_class_probs(size) - 0.5 * self.scale[..., None, None] * squared

    @property
    def responsibilities(self) -> Tensor:
        """(..., N, K): by the labelings where an item has labels, else by the classifier.

        The share of labelings that give an item to a class is sharper than it should be where items are many: a few
        dozen labelings cannot hold what is open about fifty items in all their combinations. See `item_posteriors`.
        """
        predicted = self.log_proba(self.embeddings).exp()
        believed = torch.zeros_like(predicted)
        shares = (self.log_weights.exp()[..., None, None] * self._chosen).sum(-3)
        believed[..., self._seen, :] = shares if self.believed is None else self.believed
        labelled = (self.labelings[..., :1, :] >= 0).mT  # (..., N, 1)
        return torch.where(labelled, believed, predicted)

    @property
    def class_probs(self) -> Tensor:
        """(..., K)"""
        size = self._chosen.sum(-2)
        return (self.log_weights.exp()[..., None] * self._log_class_probs(size).exp()).sum(-2)

    def _log_class_probs(self, size: Tensor) -> Tensor:
        found = log_class_probs(size)
        return found if self.sizes is None else (found + self.sizes.log()[..., None, :]).log_softmax(-1)


def fit(
    embeddings: Tensor,
    labels: Tensor,
    n_classes: int,
    *,
    scale: Number = SCALE,
    tau: Number = TAU,
    width: int = WIDTH,
    confusion: Tensor | None = None,
    truth: Tensor | None = None,
    history: Tensor | None = None,
    sizes: Tensor | None = None,
) -> Posterior:
    """The most probable labelings, as far as a search of ``width`` finds them.

    ``embeddings`` (..., N, D) float and ``labels`` (..., N, R) int with -1 = missing, with the same leading shape;
    ``scale`` and ``tau`` are numbers. ``confusion`` (..., R, K, K): the annotators' matrices, where they are known.
    ``truth`` (..., N) int: the class of items whose class is known, labelled or not; -1 elsewhere. ``history``
    (..., R, 2): how many labels of each annotator were right and wrong elsewhere. ``sizes`` (..., K): how frequent
    classes are thought to be; without it about equally.
    """
    _check(embeddings, labels, n_classes, width)
    lead, (N, D), R = embeddings.shape[:-2], embeddings.shape[-2:], labels.shape[-1]
    u, said = embeddings.reshape(-1, N, D).double(), labels.reshape(-1, N, R).long()
    scale, tau = as_number(scale, u), as_number(tau, u)
    told = None if truth is None else truth.reshape(-1, N)
    labelled = (said >= 0).any(-1) if told is None else (said >= 0).any(-1) | (told >= 0)  # (B, N)
    centre, unit = _centre_and_spread(u, labelled[..., None].to(u.dtype))
    u = labelled[..., None] * (u - centre) / unit
    gram = u @ u.mT
    with torch.no_grad():
        ruled_out = None if told is None else (told >= 0)[..., None] & (one_hot(told, n_classes, told.dtype) == 0)
        by_number = scale.item(), tau.item(), B
        before = None if history is None else history.reshape(-1, R, 2)
        order = order_of(gram, said, n_classes, *by_number, ruled_out)
        known = None if confusion is None else confusion.reshape(-1, R, n_classes, n_classes).to(u)
        evidence = None if known is None else _evidence_of_items(known, said)
        if sizes is not None:
            frequent = sizes.reshape(-1, 1, n_classes).to(u).log().expand(len(u), N, -1)
            evidence = frequent if evidence is None else frequent + evidence
        if ruled_out is not None:
            evidence = torch.where(ruled_out, -torch.inf, 0.0 if evidence is None else evidence)
        of_unknown = said if known is None else said[..., :0]
        labelings, log_joint = search(gram, of_unknown, order, labelled, n_classes, *by_number, width, evidence, before)
    if gram.requires_grad or scale.requires_grad or tau.requires_grad:  # the search has summed it up, without gradients
        formula = log_probability(labelings, gram, n_classes, scale, tau)
        log_joint = log_joint + (formula - formula.detach())
    log_weights = log_joint.log_softmax(-1)  # (B, M)
    expected = (
        known if known is not None else _expected_confusion(labelings, log_weights.detach(), said, n_classes, before)
    )
    return Posterior(
        embeddings=embeddings,
        labelings=labelings.reshape(*lead, -1, N),
        log_weights=log_weights.reshape(*lead, -1).to(embeddings),
        confusion=expected.reshape(*lead, R, n_classes, n_classes).to(embeddings),
        centre=centre.reshape(*lead, 1, D).to(embeddings),
        unit=unit.reshape(*lead, 1, 1).to(embeddings),
        scale=scale.to(embeddings),
        tau=tau.to(embeddings),
        sizes=None if sizes is None else sizes.to(embeddings),
    )


@torch.no_grad()
def item_posteriors(
    fit: Posterior, labels: Tensor, truth: Tensor | None = None, history: Tensor | None = None
) -> Tensor:
    """p(class of an item | all labels), (N, K), of one problem whose items all have labels, (N, R), or a known class.

    Each labeling says how probable every class of an item is given the classes of all others, and these are averaged,
    where the share of labelings would count each labeling for its one class (Rao and Blackwell):

        p(t_n = k) = sum_m w_m p(t_n = k | t_-n of labeling m)
    """
    u, K = ((fit.embeddings - fit.centre) / fit.unit).double(), fit.n_classes
    gram, labelings = u @ u.mT, fit.labelings.long()  # (N, N), (M, N)
    chosen = one_hot(labelings, K, u.dtype)  # (M, N, K)
    inner = gram @ chosen  # (M, N, K), items times class sums
    # without the item itself
    own = gram.diagonal()[:, None]
    size = chosen.sum(-2, keepdim=True) - chosen
    squared = (chosen * inner).sum(-2, keepdim=True) - chosen * (2 * inner - own)
    weight = fit.tau + size
    distance = own - 2 * (inner - chosen * own) / weight + squared / weight.square()
    gain = -0.5 * fit.scale * distance * weight / (weight + 1) + log_class_probs(size)
    if fit.sizes is not None:
        gain = gain + fit.sizes.log()
    ways = array_api_of(u.device)
    said = annotator_model.evidence_of_each(ways.array(labelings), ways.array(labels), K, ways, history)  # (N, K, M)
    p = (gain + torch.as_tensor(said).movedim(-1, 0)).softmax(-1)
    posterior = (fit.log_weights.double().exp()[:, None, None] * p).sum(0).to(fit.embeddings)
    return (
        posterior
        if truth is None
        else torch.where((truth >= 0)[:, None], one_hot(truth, K, posterior.dtype), posterior)
    )


def log_probability(labelings: Tensor, gram: Tensor, K: int, scale: Tensor, tau: Tensor) -> Tensor:
    """log p(labeling, embeddings) but for a constant: labelings (B, M, N), gram (B, N, N) -> (B, M)."""
    chosen = one_hot(labelings, K, gram.dtype)  # (B, M, N, K)
    size = chosen.sum(-2)  # (B, M, K)
    squared = (chosen * (gram[:, None] @ chosen)).sum(-2)  # |S_k|^2
    distances = gram.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None] - (squared / (tau + size)).sum(-1)
    classes = torch.lgamma(B + 1 + size).sum(-1) - torch.lgamma(K * (B + 1) + size.sum(-1))
    return -0.5 * scale * distances + classes


def log_class_probs(size: Tensor) -> Tensor:
    """log p(the next item is of class k | class sizes (..., K))."""
    weight = size + B + 1
    return weight.log() - weight.sum(-1, keepdim=True).log()


def one_hot(classes: Tensor, K: int, dtype: torch.dtype) -> Tensor:
    """(...) int -> (..., K); a row of zeros for -1."""
    return (classes[..., None] == torch.arange(K, device=classes.device)).to(dtype)


def _evidence_of_items(matrices: Tensor, labels: Tensor) -> Tensor:
    """log p(labels of an item | its class) by matrices (B, R, K, K) that are known: (B, N, K)."""
    log_p = matrices.clamp_min(torch.finfo(matrices.dtype).tiny).log()
    return torch.einsum("bnrl,brkl->bnk", one_hot(labels, log_p.shape[-1], log_p.dtype), log_p)


def _expected_confusion(
    labelings: Tensor, log_weights: Tensor, labels: Tensor, K: int, history: Tensor | None
) -> Tensor:
    """Annotators' matrices averaged over labelings (B, M, N), as far as these count: (B, R, K, K)."""
    weights, ways = log_weights.exp(), array_api_of(labels.device)
    some = int((weights > NEGLIGIBLE).any(0).sum())  # the most probable come first
    tables = annotator_model.tables_for(int((labels >= 0).sum(1).max()), K, ways, history)
    counts = annotator_model.counts_of(ways.array(labelings[:, :some]), ways.array(labels), K, ways)
    expected = torch.as_tensor(annotator_model.expected_confusion(counts, tables, ways))  # (B, R, K, K, M)
    return (expected * weights[:, None, None, None, :some]).sum(-1)


def _centre_and_spread(u: Tensor, labelled: Tensor) -> tuple[Tensor, Tensor]:
    """Of the labelled items, (B, 1, D) and (B, 1, 1); items that are all alike have the spread 1."""
    n = labelled.sum(-2, keepdim=True)
    centre = (labelled * u).sum(-2, keepdim=True) / n.clamp_min(1)
    squared = (labelled * (u - centre).square()).sum((-2, -1), keepdim=True) / (n - 1).clamp_min(1)
    return centre, torch.where(squared > 0, squared, 1).sqrt()


def _check(embeddings: Tensor, labels: Tensor, n_classes: int, width: int) -> None:
    if n_classes < 2:
        raise CrowdshotError(f"n_classes is {n_classes}, expected 2 or more.")
    if width < 1:
        raise CrowdshotError(f"width is {width}, expected 1 or more.")
    if embeddings.ndim < 2 or not embeddings.is_floating_point():
        raise CrowdshotError(
            f"embeddings is {embeddings.dtype} of shape {tuple(embeddings.shape)}, expected floats (..., N, D)."
        )
    if labels.is_floating_point() or labels.shape[:-1] != embeddings.shape[:-1]:
        raise CrowdshotError(
            f"labels is {labels.dtype} of shape {tuple(labels.shape)}, expected integers (..., N, R) with the "
            f"leading shape {tuple(embeddings.shape[:-1])} of embeddings."
        )
