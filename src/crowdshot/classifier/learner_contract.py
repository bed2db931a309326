"""Define what learners and fitted models have in common, and what is known besides items and labels.

Known are classes, earlier projects, weights and predictions. An item of sample weight 2 is duplicated: the model is
fitted as if there were two such items. An item of weight 0 is left out of the fit, and then classified by the fitted
model (`posterior_of_untaught`). Fractional weights are rounded at random (`whole_weights`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError, Use
from crowdshot.formatting import first, listing, show
from crowdshot.io.cells import Positions, positions
from crowdshot.labels import gold_labels
from crowdshot.labels.aggregation import check_probabilities
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import PriorsInput, as_priors
from crowdshot.labels.consensus import Floats
from crowdshot.labels.gold_labels import Gold

if TYPE_CHECKING:
    from torch import Tensor

    from crowdshot.encoders.encoder import Encoder

ARGUMENTS = ("steps", "tau", "b", "c", "scale", "covariance")  # of `mixture.fit` that a user may set
MOST_CELLS = 200_000_000  # of a table: 1.6 GB in double precision


@dataclass(frozen=True)
class SideInformation:
    """Information besides items and labels.

    Attributes
    ----------
    gold : (N,) array
        Known class of each item, -1 if unknown. Items of known class need no label.
    history : (R, 2) array or None
        Numbers of correct and wrong labels of each annotator in earlier projects.
    weight : (N,) array or None
        Sample weights. None: all are 1.
    pred_probs : (N, K) array or None
        Class probabilities from another classifier; NaN where there are none.
    ordered : bool
        Whether classes are ordered, so that confusions between neighbours are more likely.
    """

    gold: Positions
    history: Floats | None = None
    weight: Floats | None = None
    pred_probs: Floats | None = None
    ordered: bool = False

    @classmethod
    def nothing(cls, n_items: int) -> SideInformation:
        return cls(np.full(n_items, -1, dtype=np.int64))

    def without_gold(self) -> SideInformation:
        return replace(self, gold=np.full_like(self.gold, -1))

    def hide(self, rows: Positions) -> SideInformation:
        """Return the information without known classes and predictions of these items."""
        gold, pred_probs = self.gold.copy(), None if self.pred_probs is None else self.pred_probs.copy()
        gold[rows] = -1
        if pred_probs is not None:
            pred_probs[rows] = np.nan
        return replace(self, gold=gold, pred_probs=pred_probs)

    def refuse(self, method: str, expected: str, name: str) -> None:
        """Raise an error if a field is set that the method does not support."""
        if getattr(self, name) is not None:
            raise CrowdshotError(
                f"is given with method {method!r}",
                argument="sample_weight" if name == "weight" else name,
                found=method,
                expected=f"the method {expected} with it",
            )

    def of(self, rows: Positions) -> SideInformation:
        """Return the information about these items only."""
        weight, pred_probs = (None if each is None else each[rows] for each in (self.weight, self.pred_probs))
        return replace(self, gold=self.gold[rows], weight=weight, pred_probs=pred_probs)

    def rows_of(self, annotations: Annotations) -> Positions:
        """Return the positions (n,) of items with labels or known class."""
        out: Positions = np.union1d(annotations.item, np.flatnonzero(self.gold >= 0))
        return out

    def classes_of(self, annotations: Annotations) -> Positions:
        """Return the classes (k,) that occur in labels of items with positive weight, or are known of an item."""
        label = annotations.label
        if self.weight is not None:
            label = label[self.weight[annotations.item] > 0]
        out: Positions = np.unique(np.concatenate([label, self.gold[self.gold >= 0]]))
        return out

    def with_classes(self, place: Positions) -> SideInformation:
        """Return the information with class k renumbered as ``place[k]``; -1 removes a class."""
        gold = np.where(self.gold < 0, -1, place[self.gold])
        if self.pred_probs is None:
            return replace(self, gold=gold)
        p = self.pred_probs[:, np.argsort(place)[(place < 0).sum() :]]
        total = p.sum(1, keepdims=True)
        return replace(self, gold=gold, pred_probs=np.divide(p, total, np.full_like(p, np.nan), where=total > 0))


def known_of(
    annotations: Annotations,
    gold: Gold,
    priors: PriorsInput = None,
    items: Sequence[Any] | None = None,
    closed: bool = False,
    sample_weight: Any = None,
    pred_probs: Any = None,
    ordered: bool = False,
) -> tuple[Annotations, SideInformation]:
    """Read the arguments of `CrowdClassifier.fit` besides items and labels.

    Returns the annotations, to which classes of gold items are added unless the classes are ``closed``, and the side
    information.
    """
    true_classes = gold_labels.as_mapping(gold, annotations)
    rows = gold_labels.find_items(list(true_classes), annotations.items, items)
    if (rows < 0).any():
        unknown = show(list(true_classes)[first(rows < 0)])
        raise CrowdshotError(
            f"names item {unknown}",
            argument="gold",
            found=unknown,
            expected=f"items of X, such as {listing(annotations.items[:1])}",
        )
    gold = dict(zip(annotations.items[rows].tolist(), true_classes.values(), strict=True))
    held, known = gold_labels.hold(annotations, gold)
    if closed and held.n_classes > annotations.n_classes:
        unlisted = next(label for label in held.classes if label not in annotations.classes)
        raise CrowdshotError(
            f"has {show(unlisted)}",
            argument="gold",
            found=unlisted,
            expected=f"one of the classes {listing(annotations.classes)}",
        )
    history = as_priors(priors).of(annotations.annotators)
    weight = weights_of(in_order_of(sample_weight, items), annotations.n_items)
    predicted = None if pred_probs is None else check_probabilities(held, pred_probs, items)
    return held, SideInformation(known, history if history.any() else None, weight, predicted, ordered)


def in_order_of(values: Any, items: Sequence[Any] | None) -> Any:
    """Return a Series whose index has the names of X in X's order; return anything else unchanged."""
    if items is None or not isinstance(values, pd.Series) or not values.index.is_unique:
        return values
    names = pd.Index(list(items))
    return values.loc[names] if len(values) == len(names) and names.isin(values.index).all() else values


def weights_of(sample_weight: Any, n_items: int) -> Floats | None:
    """Return the checked sample weights (N,); None if all are 1."""
    if sample_weight is None:
        return None
    try:
        weight = np.array(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise CrowdshotError(
            "is not a list of numbers", argument="sample_weight", expected="one for each item"
        ) from None
    if weight.ndim == 0:
        weight = np.full(n_items, float(weight))
    if weight.shape != (n_items,):
        raise CrowdshotError(
            f"has shape {weight.shape}",
            argument="sample_weight",
            found=weight.shape,
            expected=f"({n_items},), a number for each item",
        )
    bad = ~(np.isfinite(weight) & (weight >= 0))
    if bad.any():
        raise CrowdshotError(
            f"contains {weight[first(bad)]:g}",
            argument="sample_weight",
            found=float(weight[first(bad)]),
            expected="numbers, 0 or more",
        )
    if not weight.any():
        raise CrowdshotError(
            "is zero for every item", argument="sample_weight", expected="one positive weight at least"
        )
    return None if (weight == 1).all() else weight


def check_classes(annotations: Annotations, side: SideInformation, listed: bool = True) -> None:
    """Raise an error if there are fewer than two classes, or tables would not fit into memory.

    ``listed``: the classes were listed by the user, so that fractions are accepted as classes.
    """
    classes, numbers = annotations.classes, annotations.classes.dtype.kind in "iu"
    if classes.dtype.kind == "f" and not listed:
        fraction = next(value for value in classes.tolist() if not value.is_integer())
        raise CrowdshotError(
            f"contains {fraction!r} (Unknown label type: continuous)",
            argument="labels",
            found=fraction,
            expected="names or whole numbers",
            hint=Use("to list fractions that are classes", classes=[fraction]),
        )
    N, R, K = annotations.n_items, annotations.n_annotators, annotations.n_classes
    if max(R * K, N) * K > MOST_CELLS:
        raise CrowdshotError(
            f"has {K:,} classes, {R:,} annotators and {N:,} items, for which tables of annotators × classes × classes"
            f" and items × classes have more than {MOST_CELLS:,} cells",
            argument="labels",
            found=(N, R, K),
            hint="Aggregation alone (crowdshot.aggregate) needs no such tables.",
        )
    named = side.classes_of(annotations)
    if len(named) == 1:
        only = classes[named[0]]
        raise CrowdshotError(
            f"has {show(only)} alone (only one class)",
            argument="labels",
            found=only,
            expected="two classes or more",
            hint="-1 means no label, unless missing is None." if numbers else None,
        )


# ---- sample weights ----


def whole_weights(side: SideInformation, seed: int) -> SideInformation:
    """Round fractional weights up or down at random, so that they are right on average.

    Systematic sampling keeps the sum of the weights to within one.
    """
    if side.weight is None or (side.weight == np.floor(side.weight)).all():
        return side
    random, weight = np.random.default_rng(seed), np.floor(side.weight)
    order = random.permutation(len(weight))
    reached = np.floor(np.cumsum((side.weight - weight)[order]) + random.random())
    weight[order] += np.diff(reached, prepend=0)
    if not weight.any():
        raise CrowdshotError(
            f"sums to {side.weight.sum():g}, less than one item",
            argument="sample_weight",
            found=float(side.weight.sum()),
            expected="a sum above 1",
        )
    return replace(side, weight=weight)


POWER = 0.55  # n labels of an item count as n^POWER, like the label model before it knows a crowd
LEAST = 1e-12


def repeated(annotations: Annotations, side: SideInformation) -> tuple[Positions, Annotations, SideInformation]:
    """Return the items repeated by their weights: positions (n,), their annotations and their side information."""
    assert side.weight is not None
    times = side.weight.astype(np.int64)
    rows = np.repeat(np.arange(len(times)), times)
    start = np.cumsum(times) - times
    label = np.repeat(np.arange(len(annotations)), times[annotations.item])
    begin = np.cumsum(times[annotations.item]) - times[annotations.item]
    copy = np.arange(len(label)) - begin[label]
    taught = replace(
        annotations,
        item=start[annotations.item[label]] + copy,
        annotator=annotations.annotator[label],
        label=annotations.label[label],
        items=np.arange(len(rows)),
    )
    pred_probs = None if side.pred_probs is None else side.pred_probs[rows]
    return rows, taught, replace(side, gold=side.gold[rows], weight=None, pred_probs=pred_probs)


def posterior_of_untaught(ann: Annotations, predicted: Floats, confusion: Floats, side: SideInformation) -> Floats:
    """Return posteriors (N, K) from a classifier's predictions (N, K) and labels with confusion matrices (R, K, K).

    Used for items of weight 0, which have no part in the fit.
    """
    score = np.log(predicted.clip(LEAST))
    log_likelihood = np.zeros_like(score)
    np.add.at(log_likelihood, ann.item, np.log(confusion.clip(LEAST))[ann.annotator, :, ann.label])
    score += log_likelihood * np.bincount(ann.item, minlength=ann.n_items).clip(1)[:, None] ** (POWER - 1)
    posterior: Floats = np.exp(score - score.max(1, keepdims=True))
    posterior /= posterior.sum(1, keepdims=True)
    is_gold = side.gold >= 0
    posterior[is_gold] = np.eye(posterior.shape[1])[side.gold[is_gold]]
    return posterior


def gold_of(ann: Annotations, known: SideInformation) -> dict[Any, Any]:
    rows = (known.gold >= 0).nonzero()[0]
    return dict(zip(ann.items[rows].tolist(), ann.classes[known.gold[rows]].tolist(), strict=True))


def keep_side_information(
    old: Annotations, before: SideInformation, new: Annotations, side: SideInformation
) -> SideInformation:
    """Return ``side`` with what was known of the old items and annotators.

    New items have weight 1 and no predictions of another classifier.
    """
    added = new.n_items - old.n_items
    history = weight = pred_probs = None
    if before.history is not None:
        history = np.zeros((new.n_annotators, 2))
        history[positions(new.annotators, old.annotators)] = before.history
    if before.weight is not None:
        weight = np.append(before.weight, np.ones(added))
    if before.pred_probs is not None:
        pred_probs = np.zeros((new.n_items, new.n_classes))
        pred_probs[: old.n_items, positions(new.classes, old.classes)] = before.pred_probs
        pred_probs[old.n_items :] = np.nan
    return replace(side, history=history, weight=weight, pred_probs=pred_probs, ordered=before.ordered)


# ---- learners and fitted models ----


class FittedModel(Protocol):
    """A model fitted to N items with K classes and R annotators.

    Examples are `labeling_search.Posterior`, `mixture.Fit`, `feature_learners.FeatureFit` and
    `compared_methods.ComparedFit`. Fields of theirs that are tensors are saved.
    """

    @property
    def responsibilities(self) -> Tensor:
        """Posterior class probabilities of the items, (N, K)."""

    @property
    def class_probs(self) -> Tensor:
        """Class frequencies, (K,)."""

    @property
    def confusion(self) -> Tensor:
        """Confusion matrices, (R, K, K) [annotator, true, observed]."""

    def log_proba(self, queries: Tensor, /) -> Tensor:
        """Return log p(class | item) of new items: (Q, D) -> (Q, K)."""


class LearnerResult(NamedTuple):
    """A fitted model and how it was obtained.

    ``learner`` is the name of the learner that fitted it; with ``settings``, that learner fits the same model again.
    Embeddings are transformed by (x - shift) * factor before the model sees them; shift is (D,), factor ().
    """

    learner: str
    fit: FittedModel
    settings: dict[str, Any]
    shift: Tensor
    factor: Tensor


class Learner(ABC):
    """Fits a model to embeddings and labels.

    Attributes
    ----------
    name : str
        Name of the method, as in `methods.METHODS`.
    ignores_unlabelled : bool
        Whether items without labels or known class have no influence on the model.
    takes_fractions : bool
        Whether sample weights may be fractions.
    """

    name: str
    ignores_unlabelled: ClassVar[bool] = False
    takes_fractions: ClassVar[bool] = False

    def default_encoder(self, X: Any) -> Encoder:
        """Return the encoder for X when the user names none."""
        from crowdshot.classifier.encoder_choice import clean_encoder  # imports torch

        return clean_encoder(X)

    def reader(self, encoder: Encoder) -> Encoder:
        """Return the encoder that turns X into the vectors that `learn` takes."""
        return encoder

    def is_quick(self, n_numbers: int) -> bool:
        """Return whether the model can be fitted several times to embeddings of this size, for cross-validation."""
        return True

    @abstractmethod
    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder, side: SideInformation) -> LearnerResult:
        """Fit a model to vectors x (N, D) of the reader, one row for each of the annotations' items."""

    @abstractmethod
    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> FittedModel:
        """Rebuild a saved model from its tensors and settings."""


def posterior_of(fit: FittedModel) -> NDArray[np.float64]:
    """Return p(class | labels, items), (N, K), in double precision with rows that sum to one."""
    posterior = fit.responsibilities.double()
    out: NDArray[np.float64] = (posterior / posterior.sum(-1, keepdim=True)).cpu().numpy()
    return out


def unscaled(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the shift (D,) and the factor () that leave x unchanged."""
    return x.new_zeros(x.shape[1]), x.new_ones(())


def pop_settings(params: dict[str, Any]) -> dict[str, Any]:
    """Remove ``settings__steps`` and the like from parameters and return them as {"steps": value}."""
    prefix = "settings__"
    return {name.removeprefix(prefix): params.pop(name) for name in list(params) if name.startswith(prefix)}


def check_setting_names(method: str, settings: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raise an error if a setting is not one of the method's."""
    unknown = sorted(set(settings) - set(known))
    if unknown:
        expected = f"some of {', '.join(known)} for {method}" if known else f"none for {method}"
        raise CrowdshotError(f"has {unknown[0]!r}", argument="settings", found=unknown[0], expected=expected)


def tensors_of_part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, without the prefix."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
