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

from dataclasses import dataclass

import torch
from torch import Tensor

from crowdshot.errors import CrowdshotError
from crowdshot.model import annotator_skills
from crowdshot.model.array_ways import ways_of
from crowdshot.model.labeling_order import order_of
from crowdshot.model.labeling_search import search
from crowdshot.model.priors import Number, as_number

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
    believed: Tensor | None = None  #: (n, K), `item_beliefs` of the items that have labels, where they were asked for
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
        dozen labelings cannot hold what is open about fifty items in all their combinations. See `item_beliefs`.
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
def item_beliefs(fit: Posterior, labels: Tensor, truth: Tensor | None = None, history: Tensor | None = None) -> Tensor:
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
    ways = ways_of(u.device)
    said = annotator_skills.evidence_of_each(ways.array(labelings), ways.array(labels), K, ways, history)  # (N, K, M)
    p = (gain + torch.as_tensor(said).movedim(-1, 0)).softmax(-1)
    belief = (fit.log_weights.double().exp()[:, None, None] * p).sum(0).to(fit.embeddings)
    return belief if truth is None else torch.where((truth >= 0)[:, None], one_hot(truth, K, belief.dtype), belief)


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
    weights, ways = log_weights.exp(), ways_of(labels.device)
    some = int((weights > NEGLIGIBLE).any(0).sum())  # the most probable come first
    tables = annotator_skills.tables_for(int((labels >= 0).sum(1).max()), K, ways, history)
    counts = annotator_skills.counts_of(ways.array(labelings[:, :some]), ways.array(labels), K, ways)
    expected = torch.as_tensor(annotator_skills.expected_confusion(counts, tables, ways))  # (B, R, K, K, M)
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
