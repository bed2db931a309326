"""The most probable labelings of a crowd-labelled set, by beam search.

Items are taken one after the other; of all ways to extend the labelings kept so far by one item's class, the most
probable are kept. How probable a labeling is, `labelings.log_probability` says; what one more item adds to it needs, of
a labeling, only its class sizes, the inner products of its class sums with the item, and what is known of those
annotators who labelled the item (`Annotators`).

These are many small steps, in which calls cost more than numbers. On the processor NumPy takes them, whose calls are
the quickest, on an accelerator torch (`array_ways`); the body is one. Arrays that meet have the same shape where that
can be: NumPy then has nothing to think about. All is in float64, so that rounding decides nothing.

M labelings are kept of each of B episodes, and may be extended by K classes. Such a *child* is at (b K + k) M + m.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from crowdshot.model.annotator_skills import P_KIND, compact, next_label, tables_for
from crowdshot.model.array_ways import Array, Ways, ways_of

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
    ways, M = ways_of(gram.device), min(width, n_classes ** min(gram.shape[1], 30))
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
    ways: Ways,
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

    def __init__(self, ways: Ways, labels: Array, M: int, K: int, history: Tensor | None = None) -> None:
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


def repeats(ways: Ways, keys: Array) -> tuple[Array, int, Array]:
    """Keys numbered from 0 on, how many there are, and where in the flattened array each was last before, or -1."""
    flat = keys.reshape(-1)
    order = ways.sorted_places(flat)
    flat = flat[order]
    new = flat[1:] != flat[:-1]
    number, before = ways.full(order.shape, 0), ways.full(order.shape, -1)
    number[order[1:]] = new.cumsum(0)
    before[order[1:]] = ways.xp.where(new, -1, order[:-1])
    return number.reshape(keys.shape), int(number.max()) + 1, before.reshape(keys.shape)
