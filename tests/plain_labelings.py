"""A plain second implementation of the labeling search, with lists, loops, and probabilities from their definitions.

`crowdshot.model.labeling_search` must give the same results; this is hundreds of times slower and shares only
constants.
"""

import math
from functools import cache

from crowdshot.model import annotator_model, labeling_search


@cache
def kinds_by_hand(counts):
    """Return log p(labels | kind) for the three kinds, by sums and factorials; counts are tuples of tuples."""
    K = len(counts)
    q = [min(1 / K + (1 - 1 / K) * rho, annotator_model.NEVER_WRONG) for rho in annotator_model.SKILLS]

    def coin(right, labels):
        return sum(p * x**right * (1 - x) ** (labels - right) for p, x in zip(annotator_model.P_SKILL, q, strict=True))

    right = [counts[k][k] for k in range(K)]
    labels = [sum(counts[k]) for k in range(K)]
    one = coin(sum(right), sum(labels)) / (K - 1) ** (sum(labels) - sum(right))
    each = math.prod(coin(r, n) for r, n in zip(right, labels, strict=True)) / (K - 1) ** (sum(labels) - sum(right))
    flips = coin(sum(right), sum(labels))
    for k in range(K):  # an urn that remembers: each wrong label makes the next one like it likelier
        seen = {other: annotator_model.ALPHA for other in range(K) if other != k}
        for other in seen:
            for _ in range(counts[k][other]):
                flips *= seen[other] / sum(seen.values())
                seen[other] += 1
    return [math.log(one), math.log(each), math.log(flips)]


@cache
def evidence(counts):
    """Return log p(an annotator's labels | true classes)."""
    kinds = zip(annotator_model.P_KIND, kinds_by_hand(counts), strict=True)
    return math.log(sum(p * math.exp(x) for p, x in kinds))


class Problem:
    """One episode: embeddings (N, D) and labels (N, R) as tensors; items without labels are left out.

    ``known`` (N, K) is the log-likelihood of other information about the items, given their class.
    """

    def __init__(self, u, labels, K, scale, tau, known=None):
        self.labels, self.K, self.scale, self.tau = labels.tolist(), K, scale, tau
        self.known = [[0.0] * K] * len(labels) if known is None else known.tolist()
        self.seen = [n for n, said in enumerate(self.labels) if max(said) >= 0]
        u = u.double()
        centre = u[self.seen].mean(0)
        spread = float((u[self.seen] - centre).square().sum()) / max(len(self.seen) - 1, 1)
        self.u = ((u - centre) / math.sqrt(spread or 1)).tolist()

    def log_probability(self, classes):
        """Return the log-probability of {item: class}, for any part of the labelled items."""
        out = sum(self.known[n][c] for n, c in classes.items())
        for k in range(self.K):
            mine = [self.u[n] for n, c in classes.items() if c == k]
            total = [sum(x) for x in zip(*mine, strict=True)]
            squares = sum(x * x for one in mine for x in one)
            out -= 0.5 * self.scale * (squares - sum(x * x for x in total) / (self.tau + len(mine)))
            out += math.lgamma(labeling_search.B + 1 + len(mine))
        out -= math.lgamma(self.K * (labeling_search.B + 1) + len(classes))
        for r in range(len(self.labels[0])):
            counts = [[0] * self.K for _ in range(self.K)]
            for n, c in classes.items():
                if self.labels[n][r] >= 0:
                    counts[c][self.labels[n][r]] += 1
            out += evidence(tuple(map(tuple, counts)))
        return out

    def search(self, order, width):
        """Return the labelings that beam search keeps, {tuple of classes, -1 for items left out: log p}."""
        beam = [{}]
        for n in order:
            if n in self.seen:
                grown = [{**classes, n: k} for classes in beam for k in range(self.K)]
                beam = sorted(grown, key=self.log_probability, reverse=True)[:width]
        items = range(len(self.labels))
        return {tuple(classes.get(n, -1) for n in items): self.log_probability(classes) for classes in beam}

    def item_posteriors(self, found):
        """Return p(class of each labelled item): by each labeling given all other items, averaged."""
        top = max(found.values())
        weights = {classes: math.exp(x - top) for classes, x in found.items()}
        out = []
        for n in self.seen:
            posterior = [0.0] * self.K
            for classes, weight in weights.items():
                others = {i: c for i, c in enumerate(classes) if c >= 0}
                ways = [self.log_probability({**others, n: k}) for k in range(self.K)]
                total = sum(math.exp(x - max(ways)) for x in ways)
                for k in range(self.K):
                    posterior[k] += weight * math.exp(ways[k] - max(ways)) / total
            out.append([x / sum(weights.values()) for x in posterior])
        return out
