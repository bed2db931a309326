"""Integrate the mixture model over its parameters by a beam search over labelings (the labeling search).

With few labelled items, several explanations of the labels are plausible, and EM, which starts from the vote, ends in
one of them. Here class means and confusion matrices are integrated out. The posterior of a *labeling*, which assigns a
class to every labelled item, then has a closed form. `search` finds the most probable labelings, and the classifier
averages over them. The generative model is

    t_n ~ pi,   pi ~ Dirichlet(b + 1),   u_n ~ N(mu_t, I / s),   mu_k ~ N(0, I / (s tau))

and annotators are modelled by `crowdshot.model.annotator_model`. Embeddings u are centred on the support, and divided
by the root mean squared distance from its centre, so that one scale s suits characters, photographs and other feature
vectors. With means integrated out, a labeling with class sizes n_k and class sums S_k has, up to a constant,

    log p(u | t) = -s/2 [ sum_n |u_n|^2 - sum_k |S_k|^2 / (tau + n_k) ]
    log p(t) = sum_k log Gamma(b + 1 + n_k) - log Gamma(K (b + 1) + sum_k n_k)

The normaliser D/2 sum_k log(tau + n_k) is left out: embeddings are not spherical clouds in D dimensions, and
meta-training sets its factor to zero. For a query and a labeling, the means are the paper's (7), S_k / (tau + n_k), and
the classifier is the paper's (8).

The choice of labelings has no gradient. Everything else, including their weights, is differentiable.

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
from crowdshot.model.annotator_model import AnnotatorCounts
from crowdshot.model.array_api import Array, ArrayApi, array_api_of
from crowdshot.model.priors import Number, OneCoin, as_number

__all__ = ["SCALE", "TAU", "WIDTH", "Posterior", "fit", "item_posteriors"]

# ---- beam search -----------------------------------------------------------------------------------------------------
#
# Items are added one at a time. Each of the M labelings kept of each of B episodes is extended by every class of the
# next item, and the M most probable extensions are kept. The gain in log-probability needs, of a labeling, only its
# class sizes, the inner products of its class sums with the item, and the counts of those annotators who labelled the
# item (`AnnotatorCounts`). A *child*, the extension of labeling m of episode b by class k, has the flat index
# (b K + k) M + m.
#
# The search consists of many small steps, in which calls cost more than arithmetic. So it runs on NumPy on the
# processor, and operands have equal shapes where possible, which saves broadcasting. All numbers are float64, so that
# rounding does not decide between labelings.


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
    """Return the most probable labelings, (B, M, N), in decreasing order, and log p up to a constant, (B, M).

    Parameters
    ----------
    gram : (B, N, N) Tensor
        Inner products of items.
    labels : (B, N, R) Tensor
        -1 = missing.
    order : (B, N) Tensor
        The order in which items are added; items that are not taken come last.
    taken : (B, N) Tensor
        Items that take part. The others are -1 in all labelings.
    width : int
        Most labelings kept of each episode. Episodes with fewer labelings are padded with log p = -inf.
    evidence : (B, N, K) Tensor, optional
        log p of further evidence on items, given their class.
    history : (B, R, 2) Tensor, optional
        Labels of each annotator that were right and wrong elsewhere.
    """
    api, M = array_api_of(gram.device), min(width, n_classes ** min(gram.shape[1], 30))
    episode = torch.arange(len(gram), device=gram.device)[:, None]
    labels, taken = labels[episode, order], taken[episode, order]
    products = (scale * gram.double())[episode[..., None], order[..., None], order[:, None]]
    known = None if evidence is None else api.array(evidence.double()[episode, order].movedim(1, 0)[..., None])
    n = int(taken.sum(1).max())
    crowd = AnnotatorCounts(api, api.array(labels[:, :n]), M, n_classes, history) if labels[:, :n].numel() else None
    found = _extend(api, api.array(products.movedim(0, -1)), api.array(taken.mT), crowd, known, (n_classes, M), tau, b)
    classes, log_p = (torch.as_tensor(x) for x in found)
    log_p, best = log_p.sort(dim=-1, descending=True)
    classes = classes.movedim(0, -1)[episode, best].masked_fill(~taken[:, None, :n], -1)  # (B, M, n)
    labelings = order.new_full((*best.shape, order.shape[1]), -1)
    return labelings.scatter_(2, order[:, None, :n].expand_as(classes), classes), log_p


class _Places:
    """Flat indices of labelings and children, which stay the same in all steps."""

    def __init__(self, api: ArrayApi, B: int, K: int, M: int) -> None:
        episode, m = api.numbers(B, 1), api.numbers(M)
        self.first = api.filled(episode * M, (B, M))  # the episode's first labeling
        self.first_child = api.filled(episode * (K * M), (B, M))  # its first child
        self.as_class = self.first_child + m  # the child of class 0 of each labeling
        self.labeling = api.filled((self.first + m)[:, None], (3, B, K, M))  # a child's labeling
        self.siblings = api.filled(api.numbers(3, B, K, 1) * M, (3, B, K, M))  # first child of the same class


def _extend(
    api: ArrayApi,
    gram: Array,
    taken: Array,
    crowd: AnnotatorCounts | None,
    evidence: Array | None,
    children: tuple[int, int],
    tau: float,
    b: float,
) -> tuple[Array, Array]:
    """Run the beam search; return the classes of all items in the labelings kept, (n, B, M), and their log p, (B, M).

    Items are in the order in which they are added: ``gram`` (N, N, B), times the scale; ``taken`` (N, B); ``evidence``
    (N, B, K, 1). ``children`` is (K, M).
    """
    (K, M), B, n = children, gram.shape[-1], int(taken.sum(0).max())
    everywhere = taken.all(1).tolist()
    norm = 0.5 * gram.diagonal() if B == 1 else 0.5 * gram.diagonal().T  # scale / 2 |u|^2
    places = _Places(api, B, K, M)
    # of each child: scale / 2 |class sum|^2; size + tau + 1; log(size + b + 1) - scale / 2 |class sum|^2 / (size + tau)
    state = api.full((3, B, K, M), 0.0)
    state[1] += tau + 1
    state[2] += math.log(b + 1)
    log_p = api.full((B, M), -math.inf)
    log_p[:, 0] = 0
    past = api.full((n + 1, 3, B * M), 0)  # of each item and labeling: class k, parent m, and k M + m
    for i in range(n):
        squared, weight, prior = state
        sums = squared + (norm[0, i] if B == 1 else norm[i][:, None, None])
        if i:
            sums += api.sums_by_class(gram[i, :i], past[1 : i + 1, 0], places.as_class, K)
        score = sums / weight
        total = score + prior
        if crowd is not None:
            total += crowd.gain(i, past)
        if evidence is not None:
            total += evidence[i]
        if not everywhere[i]:  # where an item is missing, only class 0 is possible, and it adds nothing
            total[~taken[i]] = -math.inf
            total[~taken[i], 0] = 0
        total += log_p.take(places.labeling[0])
        k, child, log_p, past = _keep_best(api, places, i, total, past)
        grown = weight.take(child) + 1
        changed = sums.take(child), grown, api.xp.log(grown + (b - tau)) - score.take(child)
        state = state.take(past[i + 1, 1].reshape(B, M).take(places.labeling) + places.siblings)
        flat, at = state.reshape(3, -1), (places.as_class + k * M).reshape(-1)
        for row, value in enumerate(changed):
            flat[row, at] = value.reshape(-1)
    return past[1:, 0].reshape(n, B, M), log_p


def _keep_best(api: ArrayApi, places: _Places, i: int, total: Array, past: Array) -> tuple[Array, Array, Array, Array]:
    """Keep the M best children of each episode; return their class, flat index and log p, (B, M) each, and ``past``."""
    B, K, M = total.shape
    best = api.top(total.reshape(B, K * M), M)  # (B, M)
    k = best // M
    parent = best - k * M
    child = best + places.first_child
    past = api.pick(past, (parent + places.first).reshape(-1))
    for row, value in enumerate((k, parent, best)):
        past[i + 1, row] = value.reshape(-1)
    return k, child, total.take(child), past


# ---- order of items --------------------------------------------------------------------------------------------------
#
# Items are added in turns of classes, those with the highest posterior first. Early decisions are then safe, and every
# class soon has a mean to compare later items with. A width of 16 finds what took 256 with items ordered by agreement.
#
# The posterior comes from a few steps of the mixture's EM with a `OneCoin` prior. It is implemented again here, on
# inner products and for NumPy, because `mixture.fit` would take a third of the time of the search.


STEPS = 3  # of EM
PRIOR = OneCoin()


def order_of(
    gram: Tensor, labels: Tensor, K: int, scale: float, tau: float, b: float, ruled_out: Tensor | None = None
) -> Tensor:
    """Return the order in which items are added, (B, N); items without labels come last.

    ``gram`` (B, N, N) is that of centred embeddings, ``labels`` (B, N, R). ``ruled_out`` (B, N, K) marks classes that
    an item cannot have, because its class is known.
    """
    api = array_api_of(gram.device)
    out = None if ruled_out is None else api.array(ruled_out)
    posterior, labelled = quick_posterior(api.array(gram.double()), api.array(labels), K, scale, tau, b, out, api)
    xp, (B, N, _) = api.xp, posterior.shape
    episode = api.numbers(B, 1)
    surest = api.sorted_places(xp.where(labelled, -xp.amax(posterior, -1), 1.0))
    k = posterior.argmax(-1)[episode, surest]
    turns = (k[..., None] == api.numbers(K)).cumsum(1)[episode, api.numbers(N), k]  # rank within its class
    return torch.as_tensor(surest[episode, api.sorted_places(xp.where(labelled[episode, surest], turns, N + 1))])


def quick_posterior(
    gram: Array, labels: Array, K: int, scale: float, tau: float, b: float, ruled_out: Array | None, api: ArrayApi
) -> tuple[Array, Array]:
    """Return p(class), (B, N, K), after a few steps of EM, and which items have labels or a known class, (B, N)."""
    xp, (B, N, R), eye = api.xp, labels.shape, api.floats(api.eye(K))
    votes = api.floats(labels[..., None] == api.numbers(K))
    shares = votes.sum(2)
    if ruled_out is not None:
        shares = xp.where(ruled_out.any(-1)[..., None], api.floats(~ruled_out), shares)
    total = shares.sum(-1)
    labelled = total > 0
    weight, total = api.floats(labelled)[..., None], xp.where(labelled, total, 1.0)[..., None]
    posterior = xp.where(labelled[..., None], shares / total, 1 / K)
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
    return posterior, labelled


# ---- posterior over labelings ----------------------------------------------------------------------------------------


B = 100.0  # pseudo-counts of classes, the paper's: classes of few-shot problems are about equally frequent
SCALE, TAU, WIDTH = (
    20.0,
    0.5,
    32,
)  # near the best on characters and on photographs alike (docs/research/beyond-details.md)
AT_ONCE = 2**25  # most numbers in memory for a batch of queries
NEGLIGIBLE = 1e-9  # labelings of less weight are left out of expected confusion matrices


@dataclass(frozen=True)
class Posterior:
    """The most probable labelings of an episode, or of a batch of episodes, with their weights."""

    embeddings: Tensor  #: (..., N, D) of the support
    labelings: Tensor  #: (..., M, N) int, the class of every item; -1 without labels or known class
    log_weights: Tensor  #: (..., M) log-probabilities of the labelings, normalised
    confusion: Tensor  #: (..., R, K, K) [annotator, true, observed], expected
    centre: Tensor  #: (..., 1, D) of the support
    unit: Tensor  #: (..., 1, 1) root mean squared distance of the support from its centre
    scale: Tensor
    tau: Tensor
    believed: Tensor | None = None  #: (n, K) `item_posteriors` of labelled items, if computed
    sizes: Tensor | None = None  #: (..., K) class frequencies, if given

    @property
    def n_classes(self) -> int:
        return self.confusion.shape[-1]

    @property
    def _labelled(self) -> Tensor:
        """(N,) whether an item has labels in some episode; often only forty of a million items have."""
        return (self.labelings >= 0).flatten(0, -2).any(0)

    @property
    def _chosen(self) -> Tensor:
        """(..., M, n, K) one-hot labelings of the labelled items."""
        return one_hot(self.labelings[..., self._labelled], self.n_classes, self.embeddings.dtype)

    def log_proba(self, queries: Tensor) -> Tensor:
        """Return log p(t = k | u), (..., Q, K), of queries (..., Q, D): the paper's (8), averaged over labelings."""
        if queries.shape[-1] != self.embeddings.shape[-1]:
            raise CrowdshotError(
                f"is of shape {tuple(queries.shape)}",
                argument="queries",
                found=tuple(queries.shape),
                expected=f"(..., Q, {self.embeddings.shape[-1]}) as in fit",
            )
        u, share, prior = self.terms()

        def averaged(query: Tensor) -> Tensor:
            products = ((query - self.centre) / self.unit) @ u.mT  # (..., Q, n)
            evidence = self.scale[..., None, None, None] * products[..., None, :, :] @ share + prior[..., None, :]
            return torch.logsumexp(evidence.log_softmax(-1) + self.log_weights[..., None, None], -3)

        at_once = max(1, AT_ONCE // max(1, prior.numel()))
        return torch.cat([averaged(part) for part in torch.split(queries, at_once, -2)], -2)

    def terms(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the items (..., n, D), their shares in class means (..., M, n, K), and the class terms (..., M, K).

        A class mean is a weighted sum of items, so `log_proba` needs inner products with the items only.
        """
        u = (self.embeddings[..., self._labelled, :] - self.centre) / self.unit
        chosen = self._chosen
        size = chosen.sum(-2)  # (..., M, K)
        share = chosen / (self.tau[..., None, None] + size)[..., None, :]
        squared = (share * ((u @ u.mT)[..., None, :, :] @ share)).sum(-2)  # |mean|^2, (..., M, K)
        return u, share, self._log_class_probs(size) - 0.5 * self.scale[..., None, None] * squared

    @property
    def responsibilities(self) -> Tensor:
        """Posteriors (..., N, K): from the labelings for labelled items, from the classifier for others.

        The weighted share of labelings is over-confident where items are many, because a few dozen labelings cannot
        represent the joint uncertainty of fifty items. `item_posteriors` corrects this.
        """
        predicted = self.log_proba(self.embeddings).exp()
        posterior = torch.zeros_like(predicted)
        shares = (self.log_weights.exp()[..., None, None] * self._chosen).sum(-3)
        posterior[..., self._labelled, :] = shares if self.believed is None else self.believed
        labelled = (self.labelings[..., :1, :] >= 0).mT  # (..., N, 1)
        return torch.where(labelled, posterior, predicted)

    @property
    def class_probs(self) -> Tensor:
        """Class probabilities (..., K), averaged over labelings."""
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
    """Search for the most probable labelings.

    Parameters
    ----------
    embeddings : (..., N, D) float Tensor
        The support.
    labels : (..., N, R) int Tensor
        -1 = missing.
    n_classes : int
        K.
    scale, tau : float or Tensor
        Weight of the embeddings, and precision of the prior on class means.
    width : int
        Most labelings kept.
    confusion : (..., R, K, K) Tensor, optional
        The annotators' confusion matrices, if they are known.
    truth : (..., N) int Tensor, optional
        The class of items whose class is known, with labels or without; -1 elsewhere.
    history : (..., R, 2) Tensor, optional
        Labels of each annotator that were right and wrong elsewhere.
    sizes : (..., K) Tensor, optional
        Class frequencies; about equal by default.

    Returns
    -------
    Posterior

    Raises
    ------
    CrowdshotError
        An argument has the wrong type, shape or value.
    """
    _check(embeddings, labels, n_classes, width)
    lead, (N, D), R = embeddings.shape[:-2], embeddings.shape[-2:], labels.shape[-1]
    u, labels = embeddings.reshape(-1, N, D).double(), labels.reshape(-1, N, R).long()
    scale, tau = as_number(scale, u), as_number(tau, u)
    truth = None if truth is None else truth.reshape(-1, N)
    labelled = (labels >= 0).any(-1) if truth is None else (labels >= 0).any(-1) | (truth >= 0)  # (B, N)
    centre, unit = _centre_and_spread(u, labelled[..., None].to(u.dtype))
    u = labelled[..., None] * (u - centre) / unit
    gram = u @ u.mT
    history = None if history is None else history.reshape(-1, R, 2)
    known = None if confusion is None else confusion.reshape(-1, R, n_classes, n_classes).to(u)
    with torch.no_grad():
        numbers = scale.item(), tau.item(), B
        ruled_out = None if truth is None else (truth >= 0)[..., None] & (one_hot(truth, n_classes, truth.dtype) == 0)
        order = order_of(gram, labels, n_classes, *numbers, ruled_out)
        evidence = _evidence(u, labels, known, sizes, ruled_out)
        searched = labels if known is None else labels[..., :0]  # known matrices are in the evidence
        labelings, log_joint = search(gram, searched, order, labelled, n_classes, *numbers, width, evidence, history)
    if gram.requires_grad or scale.requires_grad or tau.requires_grad:  # the search has no gradients
        formula = log_probability(labelings, gram, n_classes, scale, tau)
        log_joint = log_joint + (formula - formula.detach())
    log_weights = log_joint.log_softmax(-1)  # (B, M)
    expected = (
        known if known is not None else _expected_confusion(labelings, log_weights.detach(), labels, n_classes, history)
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


def _evidence(
    u: Tensor, labels: Tensor, confusion: Tensor | None, sizes: Tensor | None, ruled_out: Tensor | None
) -> Tensor | None:
    """Return log p of known matrices, class frequencies and known classes, given items' classes: (B, N, K) or None."""
    evidence = None if confusion is None else _evidence_of_items(confusion, labels)
    if sizes is not None:
        K = sizes.shape[-1]
        frequent = sizes.reshape(-1, 1, K).to(u).log().expand(len(u), labels.shape[1], -1)
        evidence = frequent if evidence is None else frequent + evidence
    if ruled_out is not None:
        evidence = torch.where(ruled_out, -torch.inf, 0.0 if evidence is None else evidence)
    return evidence


@torch.no_grad()
def item_posteriors(
    fit: Posterior, labels: Tensor, truth: Tensor | None = None, history: Tensor | None = None
) -> Tensor:
    """Return p(class of an item | all labels), (N, K), by Rao-Blackwellisation.

    The weighted share of labelings would count each labeling for one class of the item. Instead, the conditional
    probability of the item's class given the classes of all others is averaged over labelings with weights w_m:

        p(t_n = k) = sum_m w_m p(t_n = k | t_-n of labeling m)

    Parameters
    ----------
    fit : Posterior
        Of one episode, all of whose items have labels or a known class.
    labels, truth, history
        As in `fit`.
    """
    u, K = ((fit.embeddings - fit.centre) / fit.unit).double(), fit.n_classes
    gram, labelings = u @ u.mT, fit.labelings.long()  # (N, N), (M, N)
    chosen = one_hot(labelings, K, u.dtype)  # (M, N, K)
    inner = gram @ chosen  # (M, N, K), items times class sums
    # class sums and sizes without the item itself
    norm = gram.diagonal()[:, None]
    size = chosen.sum(-2, keepdim=True) - chosen
    squared = (chosen * inner).sum(-2, keepdim=True) - chosen * (2 * inner - norm)
    weight = fit.tau + size
    distance = norm - 2 * (inner - chosen * norm) / weight + squared / weight.square()
    gain = -0.5 * fit.scale * distance * weight / (weight + 1) + log_class_probs(size)
    if fit.sizes is not None:
        gain = gain + fit.sizes.log()
    api = array_api_of(u.device)
    evidence = annotator_model.evidence_of_each(api.array(labelings), api.array(labels), K, api, history)  # (N, K, M)
    p = (gain + torch.as_tensor(evidence).movedim(-1, 0)).softmax(-1)
    posterior = (fit.log_weights.double().exp()[:, None, None] * p).sum(0).to(fit.embeddings)
    return (
        posterior
        if truth is None
        else torch.where((truth >= 0)[:, None], one_hot(truth, K, posterior.dtype), posterior)
    )


def log_probability(labelings: Tensor, gram: Tensor, K: int, scale: Tensor, tau: Tensor) -> Tensor:
    """Return log p(labeling, embeddings) up to a constant, (B, M), of labelings (B, M, N) and gram (B, N, N)."""
    chosen = one_hot(labelings, K, gram.dtype)  # (B, M, N, K)
    size = chosen.sum(-2)  # (B, M, K)
    squared = (chosen * (gram[:, None] @ chosen)).sum(-2)  # |S_k|^2
    distances = gram.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None] - (squared / (tau + size)).sum(-1)
    classes = torch.lgamma(B + 1 + size).sum(-1) - torch.lgamma(K * (B + 1) + size.sum(-1))
    return -0.5 * scale * distances + classes


def log_class_probs(size: Tensor) -> Tensor:
    """Return log p(the next item is of class k), (..., K), from class sizes (..., K)."""
    weight = size + B + 1
    return weight.log() - weight.sum(-1, keepdim=True).log()


def one_hot(classes: Tensor, K: int, dtype: torch.dtype) -> Tensor:
    """Return one-hot rows (..., K) of classes (...); zeros for -1."""
    return (classes[..., None] == torch.arange(K, device=classes.device)).to(dtype)


def _evidence_of_items(matrices: Tensor, labels: Tensor) -> Tensor:
    """Return log p(labels of an item | its class), (B, N, K), by known matrices (B, R, K, K)."""
    log_p = matrices.clamp_min(torch.finfo(matrices.dtype).tiny).log()
    return torch.einsum("bnrl,brkl->bnk", one_hot(labels, log_p.shape[-1], log_p.dtype), log_p)


def _expected_confusion(
    labelings: Tensor, log_weights: Tensor, labels: Tensor, K: int, history: Tensor | None
) -> Tensor:
    """Return annotators' matrices, (B, R, K, K), averaged over labelings (B, M, N) by their weights."""
    weights, api = log_weights.exp(), array_api_of(labels.device)
    some = int((weights > NEGLIGIBLE).any(0).sum())  # the most probable come first
    tables = annotator_model.tables_for(int((labels >= 0).sum(1).max()), K, api, history)
    counts = annotator_model.counts_of(api.array(labelings[:, :some]), api.array(labels), K, api)
    expected = torch.as_tensor(annotator_model.expected_confusion(counts, tables, api))  # (B, R, K, K, M)
    return (expected * weights[:, None, None, None, :some]).sum(-1)


def _centre_and_spread(u: Tensor, labelled: Tensor) -> tuple[Tensor, Tensor]:
    """Return centre (B, 1, D) and spread (B, 1, 1) of the labelled items; the spread of identical items is 1."""
    n = labelled.sum(-2, keepdim=True)
    centre = (labelled * u).sum(-2, keepdim=True) / n.clamp_min(1)
    squared = (labelled * (u - centre).square()).sum((-2, -1), keepdim=True) / (n - 1).clamp_min(1)
    return centre, torch.where(squared > 0, squared, 1).sqrt()


def _check(embeddings: Tensor, labels: Tensor, n_classes: int, width: int) -> None:
    for name, value, least in (("n_classes", n_classes, 2), ("width", width, 1)):
        if value < least:
            raise CrowdshotError(f"is {value}", argument=name, found=value, expected=f"{least} or more")
    if embeddings.ndim < 2 or not embeddings.is_floating_point():
        raise CrowdshotError(
            f"is {embeddings.dtype} of shape {tuple(embeddings.shape)}",
            argument="embeddings",
            found=(embeddings.dtype, tuple(embeddings.shape)),
            expected="floats (..., N, D)",
        )
    if labels.is_floating_point() or labels.shape[:-1] != embeddings.shape[:-1]:
        raise CrowdshotError(
            f"is {labels.dtype} of shape {tuple(labels.shape)}",
            argument="labels",
            found=(labels.dtype, tuple(labels.shape)),
            expected=f"integers (..., N, R) with the leading shape {tuple(embeddings.shape[:-1])} of embeddings",
        )
