"""Predict queries of batches of episodes with crowdshot's methods, as experiments compare them.

Each function has the signature `methods.Predict`. The default method calls the same steps as `CrowdClassifier`, which
are defined in `crowdshot.classifier.feature_learners`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from crowdshot.classifier.feature_learners import (
    fit_labels_and_features,
    fit_useful_search,
    pool_new_items,
    search_class_sizes,
)
from crowdshot.methods import Candidate, CrowdEpisodes
from crowdshot.model import combined, labeling_search, mixture
from crowdshot.model.combined import Floats, Positions

EMBEDDED_AT_ONCE = 2**24  # numbers of input per forward pass


@torch.no_grad()
def embed(encoder: nn.Module, items: Tensor) -> Tensor:
    """Embed items (B, n, *shape) in evaluation mode: (B, n, D). The mode of the module is restored."""
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
    """Ours and w/o PA: a Gaussian mixture on meta-learned embeddings with a confusion matrix for each annotator.

    Authors: Atsutoshi Kumagai, Tomoharu Iwata, Taishi Nishiyama, Yasutoshi Ida, Yasuhiro Fujiwara
    Title: Meta-learning Representations for Learning from Multiple Annotators
    Year: 2025
    Link: https://arxiv.org/abs/2506.10259

    One probabilistic model describes embeddings, true classes and annotators' errors. A few steps of MAP-EM
    (`crowdshot.mixture`) fit it to each episode. The encoder is meta-trained through these steps on episodes with
    simulated annotators. "w/o PA" is the same model at test time, with an encoder that was meta-trained on clean
    labels.

    Our choices where the paper is silent. In the experiments J and b at test time equal those of training
    (`Needs.by`). They need not: one encoder serves all candidates, and more steps at test time often help.
    For "w/o PA" the encoder is the prototypical network's: according to the paper's section on computation cost, it
    shares its meta-training with PrMV, PrDS, MCL and MCNAL. That encoder was trained without tau, which draws
    prototypes of few items to the origin, far from all embeddings. It therefore fails at one shot, as the paper's row
    does. With ``centred`` the origin is the centre of the labelled support items, and it no longer fails (`crowdshot
    paper run centred`, docs/reproduction.md). Meta-training through the mixture with annotators who make no errors
    closes two thirds of the gap to Ours (`crowdshot paper run without-errors`). ``variance``, 1 in the paper, is that
    of embeddings around their class mean; means have the prior variance / tau (`crowdshot paper run covariance`).
    """
    support, query = embed(encoder, episodes.support), embed(encoder, episodes.query)
    labelled = (episodes.labels >= 0).any(-1)[..., None].to(support)
    centre = (support * labelled).sum(1, keepdim=True) / labelled.sum(1, keepdim=True).clamp_min(1)
    found = []
    for candidate in candidates:
        settings = {name: candidate[name] for name in CONSTANTS}
        origin = centre if candidate["centred"] else torch.zeros_like(centre)
        fit = mixture.fit(
            support - origin,
            episodes.labels,
            episodes.n_classes,
            scale=1 / candidate["variance"],
            track=False,
            classifier_only=True,
            **settings,
        )
        found.append(fit.log_proba(query - origin).exp())
    return found


AT_ONCE = 2**25  # numbers that the beam search may allocate


def average(
    episodes: CrowdEpisodes,
    encoder: nn.Module,
    candidates: Sequence[Candidate],
    seed: int,
    knows_matrices: bool = False,
) -> list[Tensor]:
    """Labeling search: the paper's mixture, integrated by beam search, on embeddings of a prototypical network.

    Authors: crowdshot
    Title: Beyond the paper (docs/beyond.md)
    Year: 2026
    Link: https://arxiv.org/abs/2506.10259 (the model)

    Developed in this project. Means and confusion matrices are integrated out. A beam search finds the most probable
    true classes of the labelled items, and the classifier averages over them (`crowdshot.labelings`). The encoder was
    meta-trained on clean labels only. Simulated annotators in meta-training make it more tolerant of wrong labels, but
    less accurate; the search finds wrong labels by itself. In the experiments the encoder learns from 16 classes at a
    time, more than in a test episode, and from augmented photographs (`crowdshot_paper`).

    Our choices where the paper is silent. It integrates over the parameters instead of maximising, which the paper
    names as future work. Validation selects the scale of the embedding's evidence, and tau.

    The settings of a candidate are arguments of `labeling_search.fit`. With ``knows_matrices`` the true confusion
    matrices are known, for upper bounds.
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


def predict_features(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    """Features: a learned label model, and a feature model weighted by how well it predicts held-out labels.

    Authors: crowdshot
    Title: One inference for every crowd (docs/research/inference.md)
    Year: 2026
    Link: https://arxiv.org/abs/2506.10259 (the problem)

    Developed in this project, and its default for features from elsewhere and for many labelled items. The label model
    is a few rounds of EM whose constants are set by a small network (`crowdshot.model.label_model`). The feature model
    averages ridge regressions in two feature spaces, nearest class means and logistic regressions, each weighted by its
    likelihood of held-out labels (`crowdshot.model.feature_model`).

    Our choices where the paper is silent. An embedding that was trained for another purpose is weighed against the
    annotators by how well it predicts held-out labels. Nothing is selected on validation.
    """

    def predict(x: Floats, labels: Positions, query: Floats, K: int) -> list[Floats]:
        return [_fit_joint(x, labels, K).forecast(query)] * len(candidates)

    return _predict_each(episodes, encoder, predict, len(candidates))


def predict_combined(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    """Combined: the labeling search and the feature model, averaged if the search predicts held-out labels well.

    Authors: crowdshot
    Title: What you can trust (docs/trust.md)
    Year: 2026
    Link: https://arxiv.org/abs/2506.10259 (the problem)

    Developed in this project, and the default of `CrowdClassifier` for few items on a meta-trained encoder. The
    labeling search is averaged with the feature model if it predicts held-out labels about as well; otherwise the
    feature model is used alone (`crowdshot.model.combined`).

    Our choices where the paper is silent. An encoder that does not suit the items is detected by how badly the search
    predicts held-out labels. Validation selects the scale of the embedding's evidence in the search, and tau.

    The settings of a candidate are arguments of `labeling_search.fit`.
    """

    def predict(x: Floats, labels: Positions, query: Floats, K: int) -> list[Floats]:
        joint, labelled = _fit_joint(x, labels, K), (labels >= 0).any(1)
        by_features = joint.forecast(query)
        support, observed, queries = (torch.from_numpy(array) for array in (x[labelled], labels[labelled], query))
        company = float(combined.company(joint).mean())
        sizes = search_class_sizes(joint, labels[labels >= 0])
        found = []
        for candidate in candidates:
            search = fit_useful_search(support, observed, joint, candidate, sizes)
            if search is None:
                found.append(by_features)
            else:
                log_proba = pool_new_items(search, queries, torch.from_numpy(by_features).log(), company)
                found.append(log_proba.exp().numpy())
        return found

    return _predict_each(episodes, encoder, predict, len(candidates))


PredictEpisode = Callable[[Floats, Positions, Floats, int], list[Floats]]
"""Maps x (N, D), labels (N, R), queries (Q, D) and K to the probabilities (Q, K) of each candidate."""


def _predict_each(
    episodes: CrowdEpisodes, encoder: nn.Module, predict: PredictEpisode, n_candidates: int
) -> list[Tensor]:
    """Predict one episode after the other, among the classes that occur; the others get probability 0."""
    support, query = (embed(encoder, x).double().cpu().numpy() for x in (episodes.support, episodes.query))
    found = np.zeros((n_candidates, *query.shape[:2], episodes.n_classes))
    for b, labels in enumerate(episodes.labels.cpu().numpy()):
        named = np.unique(labels[labels >= 0])
        if len(named) < 2:
            found[:, b, :, named if len(named) else slice(None)] = 1 if len(named) else 1 / episodes.n_classes
            continue
        place = np.full(episodes.n_classes + 1, -1)  # the last entry is for -1, a missing label
        place[named] = np.arange(len(named))
        found[:, b][..., named] = predict(support[b], place[labels], query[b], len(named))
    return [torch.from_numpy(each).to(episodes.support) for each in found]


def _fit_joint(x: Floats, labels: Positions, K: int) -> combined.Joint:
    item, annotator = np.nonzero(labels >= 0)
    return fit_labels_and_features(x, item, annotator, labels[item, annotator], labels.shape[1], K)
