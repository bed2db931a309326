"""Our own methods on batches of episodes, as the experiments compare them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from crowdshot.methods import Candidate, CrowdEpisodes
from crowdshot.model import combined, labeling_search, mixture
from crowdshot.model.combined import Floats, Positions
from crowdshot.model.label_model import shipped_network

EMBEDDED_AT_ONCE = 2**24  # numbers of input


@torch.no_grad()
def embed(encoder: nn.Module, items: Tensor) -> Tensor:
    """(B, n, *shape) -> (B, n, D), in evaluation mode; the module's mode is put back."""
    flat, training = items.flatten(0, 1), encoder.training
    at_once = max(1, EMBEDDED_AT_ONCE // max(1, flat[0].numel()))
    encoder.eval()
    try:
        parts = [encoder(part).flatten(1).float() for part in torch.split(flat, at_once)]
    finally:
        encoder.train(training)
    return torch.cat(parts).reshape(*items.shape[:2], -1)


CONSTANTS = ("steps", "b", "tau", "c")  # a candidate's settings that are arguments of `mixture.fit`


def map_em(episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int) -> list[Tensor]:
    """Ours and w/o PA: a Gaussian mixture over meta-learned embeddings with a confusion matrix for each annotator.

    Authors: Atsutoshi Kumagai, Tomoharu Iwata, Taishi Nishiyama, Yasutoshi Ida, Yasuhiro Fujiwara
    Title: Meta-learning Representations for Learning from Multiple Annotators
    Year: 2025
    Link: https://arxiv.org/abs/2506.10259

    Embeddings, true classes and annotators' mistakes are one probabilistic model, fitted to each episode by a few steps of
    MAP-EM (`crowdshot.mixture`), through which the encoder is meta-trained while simulated annotators label its episodes.
    "w/o PA" is the same model at test, on an encoder that was meta-trained with clean labels.

    Left open by the paper, and decided here: whether J and b at test must be those of training. In the experiments they are
    (`Needs.by`), but they need not be: one encoder serves all candidates, and more steps at test often help. For "w/o PA"
    the encoder is the prototypical network's: the paper's section on computation cost says that it shares its meta-training
    with PrMV, PrDS, MCL and MCNAL. That encoder has not met tau, which draws prototypes of few items to the origin, far
    from all embeddings, and so fails at one shot, as the paper's row does. ``centred`` puts the origin at the support's
    centre instead, and it fails no more (`crowdshot paper run centred`, docs/reproduction.md); nor does it if it is trained
    through the mixture with annotators who tell the truth (`Recipe.pseudo_annotation`).

    MAP-EM with the `CONSTANTS` of each candidate; ``centred``: around the centre of the labelled items.
    """
    support, query = embed(encoder, episodes.support), embed(encoder, episodes.query)
    labelled = (episodes.labels >= 0).any(-1)[..., None].to(support)
    centre = (support * labelled).sum(1, keepdim=True) / labelled.sum(1, keepdim=True).clamp_min(1)
    found = []
    for candidate in candidates:
        settings = {name: candidate[name] for name in CONSTANTS}
        origin = centre if candidate["centred"] else torch.zeros_like(centre)
        fit = mixture.fit(
            support - origin, episodes.labels, episodes.n_classes, track=False, classifier_only=True, **settings
        )
        found.append(fit.log_proba(query - origin).exp())
    return found


AT_ONCE = 2**25  # numbers that the search may fill


def average(
    episodes: CrowdEpisodes,
    encoder: nn.Module,
    candidates: Sequence[Candidate],
    seed: int,
    knows_matrices: bool = False,
) -> list[Tensor]:
    """Labelings: the paper's mixture, integrated and searched instead of maximised, on a prototypical network's embeddings.

    Authors: crowdshot
    Title: Beyond the paper (docs/beyond.md)
    Year: 2026
    Link: https://arxiv.org/abs/2506.10259, whose model it is

    This project's own. Means and confusion matrices are integrated out, a beam search finds the most probable true classes
    of the labelled items, and the classifier averages over them (`crowdshot.labelings`). The encoder has met clean labels
    only: simulated annotators in meta-training make it more patient with wrong labels, but blunter, and an inference that
    finds the wrong labels by itself has no need of that. In the experiments it learns from 16 classes at a time, more than
    it will meet, and from altered photographs (`paper.run.encoders`).

    Left open by the paper, as future work: to integrate over parameters rather than maximise. Decided on validation: the
    scale of the embedding's evidence, and tau.

    A candidate's settings are arguments of `labelings.fit`. ``knows_matrices`` is for `ceilings`.
    """
    embedded = episodes._replace(support=embed(encoder, episodes.support), query=embed(encoder, episodes.query))
    (N, R), K = episodes.labels.shape[1:], episodes.n_classes
    found = []
    for candidate in candidates:
        size = AT_ONCE // (candidate["width"] * K * (N + R * (K + 28)))
        parts = []
        for part in embedded.parts(size):
            known = part.confusion if knows_matrices else None
            fit = labeling_search.fit(part.support, part.labels, K, **candidate, confusion=known)
            parts.append(fit.log_proba(part.query).exp())
        found.append(torch.cat(parts))
    return found


Judge = Callable[[Floats, Positions, Floats, int], list[Floats]]


def by_looks(episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int) -> list[Tensor]:
    """Learned: labels believed by an inference that learned from crowds, and what items look like, told by the others.

    Authors: crowdshot
    Title: One inference for every crowd (docs/inference.md)
    Year: 2026
    Link: https://arxiv.org/abs/2506.10259, whose question it answers in another way

    This project's own, and its default where features come from elsewhere or labelled items are many. Labels are believed
    by a few rounds of EM whose constants a small network sets (`crowdshot.model.label_model`); features by ridge regressions
    in two ways to see, class means and logistic regressions, each believed as far as it foretells labels that it has not
    met (`crowdshot.model.feature_model`).

    Left open by the paper: how much an embedding that was trained for something else should weigh against annotators.
    Nothing is chosen on validation.
    """

    def judge(x: Floats, labels: Positions, query: Floats, K: int) -> list[Floats]:
        return [look_at(x, labels, K).forecast(query)] * len(candidates)

    return each_episode(episodes, encoder, judge, len(candidates))


def each_episode(episodes: CrowdEpisodes, encoder: nn.Module, judge: Judge, n_candidates: int) -> list[Tensor]:
    """One after the other, among the classes that somebody named; others have probability 0.

    ``judge``: x (N, D), labels (N, R), queries (Q, D) and K -> what each candidate says of the queries, (Q, K).
    """
    support, query = (embed(encoder, x).double().cpu().numpy() for x in (episodes.support, episodes.query))
    found = np.zeros((n_candidates, *query.shape[:2], episodes.n_classes))
    for b, labels in enumerate(episodes.labels.cpu().numpy()):
        named = np.unique(labels[labels >= 0])
        if len(named) < 2:
            found[:, b, :, named if len(named) else slice(None)] = 1 if len(named) else 1 / episodes.n_classes
            continue
        place = np.full(episodes.n_classes + 1, -1)  # the last one is for -1, a missing label
        place[named] = np.arange(len(named))
        found[:, b][..., named] = judge(support[b], place[labels], query[b], len(named))
    return [torch.from_numpy(each).to(episodes.support) for each in found]


def look_at(x: Floats, labels: Positions, K: int) -> combined.Joint:
    """x (N, D), labels (N, R)"""
    item, annotator = np.nonzero(labels >= 0)
    return combined.fit(x, item, annotator, labels[item, annotator], labels.shape[1], K, shipped_network())


def pooled(episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int) -> list[Tensor]:
    """Both: Labelings and Learned, each believed in part, where the search foretells hidden labels as well.

    Authors: crowdshot
    Title: What you can trust (docs/trust.md)
    Year: 2026
    Link: https://arxiv.org/abs/2506.10259, whose question it answers in another way

    This project's own, and its default for few items on a meta-trained encoder, as `CrowdClassifier` has it. A search for
    labelings is believed beside `Learned`, if it foretells labels that were hidden from it as well; else `Learned` alone is
    (`crowdshot.model.combined`).

    Left open by the paper: how to know that an encoder suits the items. Decided on validation: the scale of the embedding's
    evidence in the search, and tau.

    A candidate's settings are arguments of `labelings.fit`.
    """

    def judge(x: Floats, labels: Positions, query: Floats, K: int) -> list[Floats]:
        looks, seen = look_at(x, labels, K), (labels >= 0).any(1)
        by_looks = looks.forecast(query)
        items, said, new = (torch.from_numpy(each) for each in (x[seen], labels[seen], query))
        _, weight = combined.weights(float(combined.company(looks).mean()))
        sizes = combined.frequencies(looks.size, np.bincount(labels[labels >= 0], minlength=K))
        found = []
        for candidate in candidates:
            if combined.suits(items, said, looks, dict(candidate), sizes):
                search = labeling_search.fit(items, said, K, sizes=sizes, **candidate).log_proba(new)
                found.append(combined.pool(search, torch.from_numpy(by_looks).log(), weight, sizes).exp().numpy())
            else:
                found.append(by_looks)
        return found

    return each_episode(episodes, encoder, judge, len(candidates))
