"""Learners for the paper's model: the labeling search and the mixture fitted by MAP-EM.

`SearchLearner` averages over the most probable true labels of the labelled items. `MixtureLearner` maximises over the
parameters of the mixture instead, as the paper does.

For features from elsewhere, the mixture needs a weight of the features against the annotators, the argument ``scale``
of `mixture.fit`. Such features were never trained to have the model's unit variance: in many dimensions the Gaussian
term would outweigh all labels. `choose_scale` selects the scale by five-fold cross-validation, from the log-likelihood
of held-out labels, in two ways:

- single labels are held out, so that the items keep their other labels: a good consensus predicts them;
- all labels of an item are held out: a good classifier predicts them.

With few labels the score is noisy, so each halving or doubling away from `TYPICAL` costs one nat. Features are first
centred and scaled to a mean squared norm of one, so that a scale means the same for all features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crowdshot.classifier.encoder_choice import any_encoder
from crowdshot.classifier.learner_contract import (
    ARGUMENTS,
    FittedModel,
    Learner,
    LearnerResult,
    SideInformation,
    check_setting_names,
    unscaled,
)
from crowdshot.encoders.encoder import Encoder
from crowdshot.errors import CrowdshotError, Use
from crowdshot.io.cells import Positions
from crowdshot.labels.annotations import Annotations
from crowdshot.methods import METHODS
from crowdshot.model import labeling_search, mixture, priors
from crowdshot.model.priors import OneCoin, Priors

# ---- the weight of features from elsewhere ----

TYPICAL = 8.0
CANDIDATES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
FOLDS = 5
STEPS = 3
MOST_CELLS = 20_000_000


def priors_of(n_classes: int) -> Priors:
    """Return priors for features from elsewhere: annotators are better than chance, with one accuracy for all classes.

    The prior accuracy has the weight of three correct labels and one of each wrong class, as in `aggregate.one_coin`.
    """
    return {"tau": 1.0, "b": 100.0, "c": OneCoin(right=3.0, wrong=n_classes - 1.0, weight=10.0)}


def standardise(features: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the shift (D,) and factor () that give features (N, D) mean zero and mean squared norm one.

    ``weight`` (N,) weights the items. All dimensions share one factor, so that their relative spread is kept.
    """
    exact = features.double()  # squares of large numbers overflow single precision
    if weight is not None:
        exact, weight = exact[weight > 0], weight[weight > 0, None].to(exact)
    count = torch.ones_like(exact[:, :1]) if weight is None else weight
    shift = (exact * count).sum(0) / count.sum()
    size = ((exact - shift).square() * count).sum().div(count.sum()).sqrt()
    return shift.to(features), torch.where(size > 0, 1 / size.clamp_min(1e-38), 1.0).to(features)


def choose_scale(embeddings: Tensor, annotations: Annotations, *, steps: int, seed: int, priors: Priors) -> float:
    """Return the candidate that best predicts held-out labels of standardised embeddings (N, D).

    The result does not depend on the order of items and annotators: folds are drawn in a canonical order.
    """
    generator = torch.Generator().manual_seed(seed)
    random = np.random.default_rng(seed)
    labelled = np.unique(annotations.item)
    # votes give items with equal embeddings an order
    rows_to_order = [embeddings[labelled].double().cpu().numpy(), annotations.vote_counts()[labelled]]
    place = _canonical_order(np.concatenate(rows_to_order, axis=1), random)
    rows, labels = _few_enough(annotations, labelled[place], random)
    labels = labels[:, _canonical_order(labels.numpy().T + 1.0, random)].to(embeddings.device)
    embeddings = embeddings[rows]
    candidates = torch.tensor(CANDIDATES, dtype=embeddings.dtype, device=embeddings.device)
    score = -(candidates / TYPICAL).log2().abs()
    for lots in (torch.rand(labels.shape, generator=generator), torch.rand(len(labels), 1, generator=generator)):
        fold = (lots.flatten().argsort().argsort() % FOLDS).view(lots.shape).to(labels.device)
        hidden = (fold == torch.arange(FOLDS, device=labels.device)[:, None, None]) & (labels >= 0)  # (F, N, R)
        fit = mixture.fit(
            embeddings,
            torch.where(hidden, -1, labels),
            annotations.n_classes,
            steps=steps,
            scale=candidates[:, None],
            track=False,
            **priors,
        )  # batch shape (candidates, F)
        observed = labels.clamp_min(0).mT[:, None, :].expand(*fit.confusion.shape[:-1], -1)  # (..., R, K, N)
        likelihood = torch.einsum("...nk,...rkn->...nr", fit.responsibilities, fit.confusion.gather(-1, observed))
        score = score + (likelihood.clamp_min(torch.finfo(likelihood.dtype).tiny).log() * hidden).sum((1, 2, 3))
    return float(candidates[score.argmax()])


def _canonical_order(vectors: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.int64]:
    """Return positions of vectors (n, d) sorted along a random direction, independent of their order."""
    return np.argsort(vectors @ random.standard_normal(vectors.shape[1]), kind="stable")


def _few_enough(
    annotations: Annotations, rows: NDArray[np.int64], random: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Return positions (n,) of labelled items, or of a random part, and their labels (n, r)."""
    while True:
        kept = np.isin(annotations.item, rows)
        people, column = np.unique(annotations.annotator[kept], return_inverse=True)
        if len(rows) * len(people) * annotations.n_classes * FOLDS * len(CANDIDATES) <= MOST_CELLS or len(rows) <= 20:
            break
        rows = rows[np.sort(random.choice(len(rows), len(rows) // 2, replace=False))]
    labels = np.full((len(rows), len(people)), -1, dtype=np.int64)
    place = np.empty(annotations.n_items, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    labels[place[annotations.item[kept]], column] = annotations.label[kept]
    return torch.from_numpy(rows), torch.from_numpy(labels)


# ---- the labeling search ----

LABELING_SEARCH, OURS = "labeling-search", "Ours"
MOST_SEARCHED = 2_000  # labelled items
LARGEST = 1e12  # of a setting; larger values have no use in single precision


@dataclass(frozen=True)
class SearchLearner(Learner):
    """Averages over the most probable true labels, on embeddings that were meta-trained to form round clusters.

    Parameters
    ----------
    given : mapping
        scale, tau and width of `labeling_search.fit`. Missing ones are those of the encoder's card, which were selected
        on validation when it was trained, or the defaults.
    seed : int
    """

    given: Mapping[str, Any]
    seed: int
    name = LABELING_SEARCH

    def __post_init__(self) -> None:
        check_setting_names(self.name, self.given, ("scale", "tau", "width"))
        for name, value in self.given.items():
            if not isinstance(value, Real) or isinstance(value, bool) or not 0 < cast(float, value) <= LARGEST:
                raise self._bad(name, f"a positive number, {LARGEST:g} at most")
        if not isinstance(self.given.get("width", 1), Integral):
            raise self._bad("width", "a whole number")

    def _bad(self, name: str, expected: str) -> CrowdshotError:
        value = self.given[name]
        return CrowdshotError(
            f"has {value!r} as {name} of {self.name}", argument="settings", found=value, expected=expected
        )

    def settings_for(self, encoder: Encoder) -> dict[str, Any]:
        """Return the defaults, overridden by the encoder's card and by ``given``."""
        return {**METHODS[self.name].default, **encoder.card.get("labelings", {}), **self.given}

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder, side: SideInformation) -> LearnerResult:
        side.refuse(self.name, "'auto', 'features' or 'ours'", "weight")
        side.refuse(self.name, "'auto' or 'features'", "pred_probs")
        problem, settings = CanonicalProblem.of(x, annotations, side), self.settings_for(encoder)
        if len(problem.place) > MOST_SEARCHED:
            raise CrowdshotError(
                f"has {len(problem.place):,} labelled items",
                argument="labels",
                found=len(problem.place),
                expected=f"{MOST_SEARCHED:,} or fewer for {self.name}",
                hint=Use("to fit any number of items", method="ours"),
            )
        fit = labeling_search.fit(
            problem.x,
            problem.labels,
            annotations.n_classes,
            truth=problem.truth,
            history=problem.history,
            **settings,
        )
        return LearnerResult(self.name, problem.in_original_order(fit, x), settings, *unscaled(x))

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> FittedModel:
        return labeling_search.Posterior(**tensors)


class CanonicalProblem(NamedTuple):
    """A problem with its labelled items, classes and annotators in an order that depends on the data alone.

    A search breaks ties by position, and sums differ in the last digit by order. So that neither names nor the order
    of rows affect results, items are sorted along one direction of the embedding, classes by the mean position of their
    items, and annotators by their labels.
    """

    x: Tensor  # (n, D)
    labels: Tensor  # (n, R)
    truth: Tensor  # (n,)
    history: Tensor | None  # (R, 2)
    place: Tensor  # (n,), original positions of the items
    classes: Tensor  # (K,), original positions of the classes
    annotators: Tensor  # (R,), original positions of the annotators

    @classmethod
    def of(cls, x: Tensor, annotations: Annotations, side: SideInformation) -> CanonicalProblem:
        rows, K = side.rows_of(annotations), annotations.n_classes
        labels = annotations.select_items(annotations.items[rows]).to_tensor().numpy()
        gold = side.gold[rows]
        embedded = x[torch.from_numpy(rows).to(x.device)].double().cpu().numpy()
        along = embedded @ np.sin(np.arange(x.shape[1]) + 1.0)
        every = np.concatenate([labels, gold[:, None]], 1)
        votes = (every[..., None] == np.arange(K)).sum(1)  # (n, K)
        classes = ((votes * (along - along.mean())[:, None]).sum(0) / votes.sum(0).clip(1)).argsort(kind="stable")
        items = np.lexsort((*votes[:, classes].T, along))
        renamed = np.concatenate([classes.argsort(), [-1]])  # the last one is for -1, a missing label
        labels, truth = renamed[labels[items]], renamed[gold[items]]
        annotators = np.lexsort(labels[::-1])

        def tensor(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(array).to(x.device)

        return cls(
            x=x[tensor(rows[items])],
            labels=tensor(labels[:, annotators]),
            truth=tensor(truth),
            history=None if side.history is None else tensor(side.history[annotators]),
            place=tensor(rows[items]),
            classes=tensor(classes),
            annotators=tensor(annotators),
        )

    def in_original_order(self, fit: labeling_search.Posterior, x: Tensor) -> labeling_search.Posterior:
        """Return a fit of this problem for the original items x (N, D), classes and annotators."""
        posterior = labeling_search.item_posteriors(fit, self.labels, self.truth, self.history)
        everywhere = torch.full((len(fit.labelings), len(x)), -1, dtype=torch.int16, device=x.device)  # small in a file
        everywhere[:, self.place] = self.classes[fit.labelings.long()].to(everywhere)
        classes, annotators = self.classes.argsort(), self.annotators.argsort()
        return replace(
            fit,
            embeddings=x,
            labelings=everywhere,
            confusion=fit.confusion[annotators][:, classes][..., classes],
            believed=posterior[self.place.argsort()][:, classes],
            sizes=None if fit.sizes is None else fit.sizes[classes],
        )


# ---- the mixture ----

MOST_DENSE = 20_000_000  # cells of the vote matrix; larger ones are sparse


@dataclass(frozen=True)
class MixtureLearner(Learner):
    """Fits the paper's mixture by MAP-EM: "Ours", and methods that differ from it in constants or encoder only.

    Parameters
    ----------
    name : str
    given : mapping
        Arguments of `mixture.fit`. Missing ones are those with which the encoder was trained. For features from
        elsewhere, missing ones are those of `priors_of`, and `choose_scale` selects the scale.
    seed : int
    choose : callable
        Returns the default encoder for X.
    trained_with : tuple of str
        Objectives of meta-training whose priors the model takes from the encoder's card. Embeddings of encoders with
        another objective are treated as features from elsewhere.
    """

    name: str
    given: Mapping[str, Any]
    seed: int
    choose: Callable[[Any], Encoder] = any_encoder
    trained_with: tuple[str, ...] = ("mixture",)
    takes_fractions = True

    def __post_init__(self) -> None:
        check_setting_names(self.name, self.given, ARGUMENTS)
        steps = self.given.get("steps", 1)
        if not isinstance(steps, Integral) or int(steps) < 1:
            raise CrowdshotError(f"is {steps!r}", argument="steps", found=steps, expected="a whole number, 1 or more")
        for name, value in self.given.items():
            if name == "covariance" or (name == "c" and callable(value) and not isinstance(value, type)):
                continue
            numbers = value if name == "c" and isinstance(value, tuple | list) and len(value) == 2 else [value]
            if not all(_is_number(one) and 0 <= one <= LARGEST for one in numbers):
                pair = ", a pair (right, wrong) or a prior" if name == "c" else ""
                raise CrowdshotError(
                    f"is {value!r}",
                    argument=name,
                    found=value,
                    expected=f"a number, 0 or more{pair}, and {LARGEST:g} at most",
                )

    def default_encoder(self, X: Any) -> Encoder:
        return self.choose(X)

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder, side: SideInformation) -> LearnerResult:
        side.refuse(self.name, "'auto' or 'features'", "pred_probs")
        objective = encoder.card.get("recipe", {}).get("objective", "mixture")
        trained = encoder.card.get("priors") if objective in self.trained_with else None
        settings: dict[str, Any] = {
            "steps": STEPS,
            **priors_of(annotations.n_classes),
            "scale": None,
            "covariance": "identity",
        }
        if trained:
            settings |= {"steps": trained.get("steps", 2), **priors.from_card(trained), "scale": 1.0}
        settings |= {name: float(value) if isinstance(value, Tensor) else value for name, value in self.given.items()}
        if isinstance(settings["c"], tuple | list):
            settings["c"] = priors.Diagonal(*settings["c"])
        weight = None if side.weight is None else torch.from_numpy(side.weight).to(x.device)
        shift, factor = unscaled(x) if trained else standardise(x, weight)
        x = (x - shift) * factor
        if settings["scale"] is None:
            chosen = priors.Priors(tau=settings["tau"], b=settings["b"], c=settings["c"])
            taught = annotations if side.weight is None else annotations.keep(side.weight[annotations.item] > 0)
            settings["scale"] = choose_scale(x, taught, steps=settings["steps"], seed=self.seed, priors=chosen)
        votes, prior = _votes(annotations).to(x.device), with_history(settings["c"], side, annotations.n_classes)
        fit = mixture.fit(
            x,
            votes,
            annotations.n_classes,
            truth=_on(x, side.gold),
            item_weight=weight,
            **{**settings, "c": prior},
        )
        return LearnerResult(self.name, fit, settings, shift, factor)

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> FittedModel:
        fields: dict[str, Any] = {"covariance": None, **tensors}
        return mixture.Fit(**fields, covariance_kind=settings["covariance"])


@dataclass(frozen=True)
class WithHistory:
    """A prior on confusion matrices with additional pseudo-counts (R, K, K) from earlier projects."""

    prior: priors.ConfusionPrior
    counts: Tensor

    def __call__(self, counts: Tensor, K: int | Tensor) -> Tensor:
        return self.prior(counts, K) + self.counts.to(counts)


def with_history(c: Any, side: SideInformation, K: int) -> Any:
    """Return ``c`` of `mixture.fit` with labels from earlier projects, spread evenly over the classes."""
    if side.history is None:
        return c
    right, wrong = torch.from_numpy(side.history).unbind(-1)
    eye = torch.eye(K, dtype=torch.float64)
    counts = right[:, None, None] / K * eye + wrong[:, None, None] / (K * (K - 1)) * (1 - eye)
    return WithHistory(priors.as_confusion_prior(c), counts)


def _on(x: Tensor, gold: Positions) -> Tensor | None:
    return torch.from_numpy(gold).to(x.device) if (gold >= 0).any() else None


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1)


def _votes(ann: Annotations) -> Tensor:
    """Return labels for `mixture.fit`: a dense matrix, or a sparse one if that would be too large."""
    if ann.n_items * ann.n_annotators * ann.n_classes <= MOST_DENSE:
        return ann.to_tensor()
    item, annotator, label = (torch.from_numpy(x) for x in (ann.item, ann.annotator, ann.label))
    return mixture.sparse_votes(item, annotator, label, (ann.n_items, ann.n_annotators, ann.n_classes))
