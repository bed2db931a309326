"""Learners that combine annotators' labels with features from any encoder.

- `FeatureLearner` fits a label model and a feature model in turn (`crowdshot.model.combined`). It is the default for
  features from elsewhere and for more than `FEW` labelled items.
- `CombinedLearner` averages it with the labeling search. It is the default for few items on a meta-trained encoder.
- `MultiLabelLearner` handles classes that are sets of labels, such as "cat;dog".

The functions `fit_labels_and_features`, `search_class_sizes`, `fit_useful_search` and `pool_new_items` are the steps of
the default method. The comparison on episodes (`crowdshot.classifier.episode_methods`) calls the same functions.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from crowdshot.classifier.learner_contract import (
    FittedModel,
    Learner,
    LearnerResult,
    SideInformation,
    posterior_of,
    posterior_of_untaught,
    repeated,
    tensors_of_part,
    unscaled,
)
from crowdshot.classifier.mixture_learners import CanonicalProblem, SearchLearner
from crowdshot.encoders.encoder import Encoder
from crowdshot.errors import CrowdshotWarning
from crowdshot.io.cells import Positions
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import expected_confusion
from crowdshot.labels.label_sets import NO_YES
from crowdshot.labels.spelling import members, names_of
from crowdshot.model import combined, labeling_search
from crowdshot.model.combined import Floats, Joint
from crowdshot.model.feature_model import Forecast
from crowdshot.model.label_model import shipped_network
from crowdshot.model.labeling_search import Posterior
from crowdshot.model.regressions import Numbers

FEATURES, COMBINED = "features", "combined"
FEW = 200  # labelled items, above which the feature model alone is at least as accurate (docs/trust.md)


# ---- steps of the default method ----


def fit_labels_and_features(
    x: Numbers,
    item: Positions,
    annotator: Positions,
    label: Positions,
    n_annotators: int,
    n_classes: int,
    side: SideInformation | None = None,
) -> Joint:
    """Fit the label model and the feature model to x (N, D) and labels, given as three arrays (L,)."""
    known: dict[str, Any] = {}
    if side is not None:
        known = {"known": side.gold, "history": side.history, "pred_probs": side.pred_probs, "ordered": side.ordered}
    return combined.fit(x, item, annotator, label, n_annotators, n_classes, shipped_network(), **known)


def search_class_sizes(joint: Joint, label: Positions, gold: Positions | None = None) -> Tensor:
    """Return the class frequencies for the search, (K,): those of ``joint``, but 0 for classes that may be slips.

    An item of known class counts as two labels, because a known class is no slip.
    """
    n_named = np.bincount(label, minlength=len(joint.size))
    if gold is not None:
        n_named[gold[gold >= 0]] += 2
    return combined.frequencies(joint.size, n_named)


def fit_useful_search(
    x: Tensor,
    labels: Tensor,
    joint: Joint,
    settings: Mapping[str, Any],
    sizes: Tensor,
    truth: Tensor | None = None,
    history: Tensor | None = None,
    check: bool = True,
) -> Posterior | None:
    """Fit the labeling search to labelled items; return None if it predicts held-out labels too badly.

    Parameters
    ----------
    x, labels : Tensor
        Embeddings (n, D) and labels (n, R) of the labelled items, in the order of the rows of ``joint.taught``.
    joint : Joint
        The label model and feature model, with which the held-out predictions are compared.
    settings : mapping
        scale, tau and width of the search.
    sizes, truth, history : Tensor
        As in `labeling_search.fit`.
    check : bool
        False fits the search without that test.
    """
    if check and not combined.suits(x, labels, joint, dict(settings), sizes, truth, history):
        return None
    K = len(joint.size)
    return labeling_search.fit(x, labels, K, truth=truth, history=history, sizes=sizes, **settings)


def pool_new_items(search: Posterior, queries: Tensor, by_features: Tensor, company: float) -> Tensor:
    """Average the search's log p(class | item) of new items with that of the feature model, (Q, K).

    ``company`` is the mean of `combined.company`, on which the weights depend.
    """
    by_search = search.log_proba(queries).to(by_features)
    return combined.pool(by_search, by_features, combined.weights(company)[1], search.sizes)


# ---- the feature model ----


@dataclass(frozen=True, eq=False)
class FeatureFit:
    """Posterior of the fitted items, and a feature model for other items. A `learner_contract.FittedModel`.

    The fields after ``alone`` are those of `feature_model.Forecast`.
    """

    responsibilities: Tensor  # (N, K)
    class_probs: Tensor  # (K,)
    confusion: Tensor  # (R, K, K)
    alone: Tensor  # (N, K), posterior from labels alone; class frequencies for items without labels
    centre: Tensor
    factor: Tensor
    landmarks: Tensor
    plain_slopes: Tensor
    plain_starts: Tensor
    plain_weights: Tensor
    near_slopes: Tensor
    near_starts: Tensor
    near_weights: Tensor
    means: Tensor
    unit: Tensor
    mean_weights: Tensor
    nothing: Tensor
    mean: Tensor
    size: Tensor
    foretold: Tensor
    counted: Tensor

    @property
    def forecast(self) -> Forecast:
        return Forecast(**{field.name: getattr(self, field.name).numpy() for field in fields(Forecast)})

    @property
    def feature_fits(self) -> tuple[FeatureFit, ...]:
        return (self,)

    def log_proba(self, queries: Tensor, /) -> Tensor:
        return torch.from_numpy(np.log(self.forecast(queries.cpu().numpy()))).to(queries.device)


def _joint_of(x: Tensor, ann: Annotations, side: SideInformation) -> Joint:
    features = x.cpu().numpy()
    return fit_labels_and_features(features, ann.item, ann.annotator, ann.label, ann.n_annotators, ann.n_classes, side)


def _feature_fit(
    joint: Joint, annotations: Annotations, side: SideInformation, confusion: Floats | None = None
) -> FeatureFit:
    """Return the results to keep, with ``confusion`` or else the expected confusion matrices."""
    if confusion is None:
        confusion = expected_confusion(annotations, joint.posterior, side.history)
    arrays = {
        "responsibilities": joint.posterior,
        "class_probs": joint.class_probs,
        "confusion": confusion,
        "alone": joint.alone,
        **{field.name: np.asarray(getattr(joint.forecast, field.name)) for field in fields(Forecast)},
    }
    return FeatureFit(**{name: torch.from_numpy(array) for name, array in arrays.items()})


@dataclass(frozen=True)
class FeatureLearner(Learner):
    """Fits the label model and the feature model. The features may come from any encoder."""

    seed: int
    name = FEATURES
    ignores_unlabelled = True

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder, side: SideInformation) -> LearnerResult:
        if side.weight is None:
            fit = _feature_fit(_joint_of(x, annotations, side), annotations, side)
            return LearnerResult(self.name, fit, {}, *unscaled(x))
        rows, taught, taught_side = repeated(annotations, side)
        joint = _joint_of(x[torch.from_numpy(rows).to(x.device)], taught, taught_side)
        confusion = expected_confusion(taught, joint.posterior, taught_side.history)
        # posteriors of each item once, including the items of weight 0
        posterior = posterior_of_untaught(annotations, joint.forecast(x.cpu().numpy()), confusion, side)
        frequencies = np.tile(joint.class_probs, (len(posterior), 1))
        alone = posterior_of_untaught(annotations, frequencies, confusion, side)
        posterior[rows], alone[rows] = joint.posterior, joint.alone
        fit = _feature_fit(joint._replace(posterior=posterior, alone=alone), annotations, side, confusion)
        return LearnerResult(self.name, fit, {}, *unscaled(x))

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> FittedModel:
        return FeatureFit(**tensors)


# ---- the combined model ----


@dataclass(frozen=True)
class CombinedFit:
    """The labeling search and the feature model, averaged. A `learner_contract.FittedModel`."""

    search: Posterior
    looks: FeatureFit  # the feature model; saved files have this name
    company: Tensor  # (), mean of `combined.company`: how many other items of their class labelled items have
    confusion: Tensor  # (R, K, K)

    @property
    def feature_fits(self) -> tuple[FeatureFit, ...]:
        return self.looks.feature_fits

    @property
    def responsibilities(self) -> Tensor:
        by_search, by_features = (_log(fit.responsibilities.to(self.company)) for fit in (self.search, self.looks))
        labelled = (self.search.labelings[0] >= 0)[:, None]
        weights = combined.weights(float(self.company))
        of_labelled, of_others = (combined.pool(by_search, by_features, w, self.search.sizes) for w in weights)
        return torch.where(labelled, of_labelled, of_others).exp()

    @property
    def class_probs(self) -> Tensor:
        return self.responsibilities[self.search.labelings[0] >= 0].mean(0)

    def log_proba(self, queries: Tensor, /) -> Tensor:
        by_features = self.looks.log_proba(queries).to(self.company)
        return pool_new_items(self.search, queries, by_features, float(self.company))


def _log(p: Tensor) -> Tensor:
    return p.clamp_min(torch.finfo(p.dtype).tiny).log()


@dataclass(frozen=True)
class CombinedLearner(Learner):
    """Averages the labeling search and the feature model.

    Fits the feature model alone if there are more than `FEW` labelled items, the encoder was not meta-trained, or the
    search predicts held-out labels too badly.

    Parameters
    ----------
    seed : int
    given : mapping
        scale, tau and width of the search. Missing ones are those of the encoder's card, or the defaults.
    always_search : bool
        Use the search without these tests.
    """

    seed: int
    given: Mapping[str, Any] = field(default_factory=dict)
    always_search: bool = False
    name = COMBINED
    ignores_unlabelled = True

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder, side: SideInformation) -> LearnerResult:
        meta_trained = "recipe" in encoder.card
        if side.weight is not None:
            if self.always_search or meta_trained:
                warnings.warn(
                    CrowdshotWarning(
                        "is not supported by the labeling search, so only the feature model is fitted",
                        argument="sample_weight",
                        hint="To use the search as well, leave items of weight 0 out of fit.",
                    ),
                    stacklevel=2,
                )
            return FeatureLearner(self.seed).learn(x, annotations, encoder, side)
        joint = _joint_of(x, annotations, side)
        features = _feature_fit(joint, annotations, side)
        settings = SearchLearner(self.given, self.seed).settings_for(encoder)
        features_only = LearnerResult(FEATURES, features, {}, *unscaled(x))
        if not self.always_search and (len(joint.taught) > FEW or not meta_trained):
            return features_only
        problem = CanonicalProblem.of(x, annotations, side)
        sizes = search_class_sizes(joint, annotations.label, side.gold).to(x.device)[problem.classes]
        search = fit_useful_search(
            problem.x,
            problem.labels,
            _in_order_of(problem, joint, side.rows_of(annotations)),
            settings,
            sizes,
            problem.truth,
            problem.history,
            check=not self.always_search,
        )
        if search is None:
            return features_only
        search = problem.in_original_order(search, x)
        company = torch.tensor(combined.company(joint).mean(), device=x.device)
        fit = CombinedFit(search, features, company, search.confusion)
        confusion = torch.from_numpy(expected_confusion(annotations, posterior_of(fit), side.history)).to(company)
        return LearnerResult(self.name, replace(fit, confusion=confusion), settings, *unscaled(x))

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> FittedModel:
        search = Posterior(**tensors_of_part(tensors, "search."))
        features = FeatureFit(**tensors_of_part(tensors, "looks."))
        return CombinedFit(search, features, tensors["company"], tensors["confusion"])


def _in_order_of(problem: CanonicalProblem, joint: Joint, rows: Positions) -> Joint:
    """Return ``joint``, whose items are ``rows``, with the items and classes in the order of the problem."""
    items = np.searchsorted(rows, problem.place.cpu().numpy())
    classes = problem.classes.cpu().numpy()
    arrays = {name: getattr(joint, name)[items][:, classes] for name in ("taught", "unmet", "evidence")}
    return joint._replace(**arrays, size=joint.size[classes])


# ---- sets of labels ----
#
# If every set of labels were a class, sets would share no information: eight labels have 255 sets, most of them rare.
# Instead, each label is a yes/no question that is learned from all items. The probability of a set is the product of
# the probabilities of its answers, normalised over the sets that somebody named.


SEVERAL = "several"  # the setting of "features" that turns this on
LEAST = -700.0  # smallest logarithm of a probability, so that answers of probability 0 can be added


@dataclass(frozen=True, eq=False)
class MultiLabelFit:
    """Feature models of M labels for S sets of labels. A `learner_contract.FittedModel`."""

    has: Tensor  # (S, M), 1 if a set contains a label; without labels that all sets contain
    questions: tuple[FeatureFit, ...]  # one for each of the M labels; the classes are no and yes
    class_probs: Tensor  # (S,)
    confusion: Tensor  # (R, S, S)

    @property
    def feature_fits(self) -> tuple[FeatureFit, ...]:
        return self.questions

    @property
    def responsibilities(self) -> Tensor:
        return _log_proba_of_sets(self.has, [question.responsibilities.log() for question in self.questions]).exp()

    def log_proba(self, queries: Tensor, /) -> Tensor:
        return _log_proba_of_sets(self.has, [question.log_proba(queries) for question in self.questions])


def _log_proba_of_sets(has: Tensor, answers: list[Tensor]) -> Tensor:
    """Return log p of sets, (n, S), from log p of no and yes for each of M labels, each (n, 2)."""
    no, yes = torch.stack(answers).clamp_min(LEAST).unbind(-1)
    has = has.to(no)
    return ((1 - has) @ no + has @ yes).T.log_softmax(-1)


@dataclass(frozen=True)
class MultiLabelLearner(FeatureLearner):
    """Fits a feature model for each label, where classes are sets of labels."""

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder, side: SideInformation) -> LearnerResult:
        sets = annotations.classes.astype(str)
        has = members(sets, names_of(sets))
        has = has[:, ~has.all(0)]  # a label that all sets contain does not distinguish them
        one_label = FeatureLearner(self.seed)
        questions = tuple(
            cast(FeatureFit, one_label.learn(x, *_question(annotations, one.astype(np.int64), encoder, side)).fit)
            for one in has.T
        )
        of_sets = torch.from_numpy(has.astype(np.float64))
        posterior = _log_proba_of_sets(of_sets, [question.responsibilities.log() for question in questions]).exp()
        class_probs = posterior[torch.from_numpy(side.rows_of(annotations))].mean(0)
        confusion = torch.from_numpy(expected_confusion(annotations, posterior.numpy(), side.history))
        fit = MultiLabelFit(of_sets, questions, class_probs, confusion)
        return LearnerResult(self.name, fit, {SEVERAL: True}, *unscaled(x))

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> FittedModel:
        n_labels = tensors["has"].shape[1]
        questions = tuple(FeatureFit(**tensors_of_part(tensors, f"questions.{m}.")) for m in range(n_labels))
        return MultiLabelFit(tensors["has"], questions, tensors["class_probs"], tensors["confusion"])


def _question(
    annotations: Annotations, has: Positions, encoder: Encoder, side: SideInformation
) -> tuple[Annotations, Encoder, SideInformation]:
    """Return the arguments of `FeatureLearner.learn` for one label; has (S,) is 1 if a set contains it."""
    p = side.pred_probs
    p = None if p is None else np.stack([p @ (1 - has), p @ has], 1)
    gold = np.where(side.gold < 0, -1, has[side.gold])
    answers = replace(annotations, label=has[annotations.label], classes=NO_YES)
    return answers, encoder, replace(side, gold=gold, pred_probs=p, ordered=False)
