"""Our own ways to learn: the search for labelings, and the mixture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crowdshot.classifier.encoder_choice import any_encoder, clean_encoder
from crowdshot.classifier.learner_contract import Fitted, Learned, check_names, untouched
from crowdshot.classifier.side_information import Known
from crowdshot.encoders.encoder import Encoder
from crowdshot.errors import CrowdshotError
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.indexing import Positions
from crowdshot.model import labeling_search, mixture, priors
from crowdshot.model.priors import OneCoin, Priors

# ---- evidence scale ------------------------------------------------------------
#
# How much outside features should weigh against the annotators, told by the labels themselves.
#
# Feature vectors from someone else's network were never trained to agree with the model's unit variance. In many
# dimensions their Gaussian term decides everything and EM walks away from the labels; so one number, `mixture.fit`'s
# ``scale``, is chosen from the data. Labels are held back in two ways, a fifth at a time, and each candidate is scored
# by the log-probability it gives to them:
#
# - single labels, whose items keep their other labels: a good consensus predicts them;
# - all labels of an item: a good classifier predicts them.
#
# With few labels the score is noisy, so each halving or doubling away from `TYPICAL` costs one nat.
# Features are first centred and brought to a mean squared norm of one, which makes candidates mean the same everywhere.


TYPICAL = 8.0
CANDIDATES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
FOLDS = 5
STEPS = 3
MOST_CELLS = 20_000_000


def priors_of(n_classes: int) -> Priors:
    """What outside features are fitted with: an annotator is better than chance, and mostly one-coin.

    An accuracy starts from three right labels and one of each wrong one, as in `aggregate.one_coin`.
    """
    return {"tau": 1.0, "b": 100.0, "c": OneCoin(right=3.0, wrong=n_classes - 1.0, weight=10.0)}


def standardise(features: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Shift (D,) and factor () that bring features (N, D) to mean zero and mean squared norm one; by (N,) weights.

    One factor for all dimensions: which dimension counts for more is the features' own affair.
    """
    exact = features.double()  # squares of large numbers leave single precision
    if weight is not None:
        exact, weight = exact[weight > 0], weight[weight > 0, None].to(exact)
    count = torch.ones_like(exact[:, :1]) if weight is None else weight
    shift = (exact * count).sum(0) / count.sum()
    size = ((exact - shift).square() * count).sum().div(count.sum()).sqrt()
    return shift.to(features), torch.where(size > 0, 1 / size.clamp_min(1e-38), 1.0).to(features)


def choose_scale(embeddings: Tensor, annotations: Annotations, *, steps: int, seed: int, priors: Priors) -> float:
    """The candidate that predicts held-back labels best. Embeddings (N, D), standardised, one row for each item.

    The order of items and annotators does not matter: lots are drawn for them in an order of their own.
    """
    generator = torch.Generator().manual_seed(seed)
    random = np.random.default_rng(seed)
    labelled = np.unique(annotations.item)
    told = [embeddings[labelled].double().cpu().numpy(), annotations.vote_counts()[labelled]]  # votes tell twins apart
    place = _in_own_order(np.concatenate(told, axis=1), random)
    rows, labels = _few_enough(annotations, labelled[place], random)
    labels = labels[:, _in_own_order(labels.numpy().T + 1.0, random)].to(embeddings.device)
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
        said = labels.clamp_min(0).mT[:, None, :].expand(*fit.confusion.shape[:-1], -1)  # (..., R, K, N)
        likelihood = torch.einsum("...nk,...rkn->...nr", fit.responsibilities, fit.confusion.gather(-1, said))
        score = score + (likelihood.clamp_min(torch.finfo(likelihood.dtype).tiny).log() * hidden).sum((1, 2, 3))
    return float(candidates[score.argmax()])


def _in_own_order(vectors: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.int64]:
    """Positions of (n, d) vectors, sorted by where they lie along some direction: the same in whichever order given."""
    return np.argsort(vectors @ random.standard_normal(vectors.shape[1]), kind="stable")


def _few_enough(
    annotations: Annotations, rows: NDArray[np.int64], random: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Positions (n,) of labelled items, all or a random part, and their labels (n, r) without idle annotators."""
    while True:
        kept = np.isin(annotations.item, rows)
        who, column = np.unique(annotations.annotator[kept], return_inverse=True)
        if len(rows) * len(who) * annotations.n_classes * FOLDS * len(CANDIDATES) <= MOST_CELLS or len(rows) <= 20:
            break
        rows = rows[np.sort(random.choice(len(rows), len(rows) // 2, replace=False))]
    labels = np.full((len(rows), len(who)), -1, dtype=np.int64)
    place = np.empty(annotations.n_items, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    labels[place[annotations.item[kept]], column] = annotations.label[kept]
    return torch.from_numpy(rows), torch.from_numpy(labels)


# ---- own ------------------------------------------------------------


LABELINGS, OURS = "labeling-search", "Ours"
MOST_SEARCHED = 2_000
MOST_DENSE = 20_000_000  # cells of the vote matrix; a larger crowd is kept sparse
LARGEST = 1e12  # of what a user may set: single precision has no use for more
ARGUMENTS = ("steps", "tau", "b", "c", "scale", "covariance")  # of `mixture.fit`, to be set by a user


@dataclass(frozen=True)
class Searched:
    """An average over the most probable labelings, on embeddings that were meta-trained to form round clouds.

    ``given``: arguments of `labelings.fit`; what they leave open was chosen on validation when the encoder was trained.
    """

    given: Mapping[str, Any]
    seed: int
    name = LABELINGS

    def __post_init__(self) -> None:
        check_names(self.name, self.given, ("scale", "tau", "width"))
        for name, value in self.given.items():
            if not isinstance(value, Real) or isinstance(value, bool) or not 0 < cast(float, value) <= LARGEST:
                raise CrowdshotError(
                    f"settings has {value!r} as {name} of {self.name}, expected a positive number, {LARGEST:g} at most."
                )
        if not isinstance(self.given.get("width", 1), Integral):
            width = self.given["width"]
            raise CrowdshotError(f"settings has {width!r} as width of {self.name}, expected a whole number.")

    def default_encoder(self, X: Any) -> Encoder:
        return clean_encoder(X)

    def reader(self, encoder: Encoder) -> Encoder:
        return encoder

    def settings_for(self, encoder: Encoder) -> dict[str, Any]:
        usual: dict[str, Any] = {
            "scale": labeling_search.SCALE,
            "tau": labeling_search.TAU,
            "width": labeling_search.WIDTH,
        }
        return {**usual, **encoder.card.get("labelings", {}), **self.given}

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder, known: Known) -> Learned:
        known.refuse(self.name, "'auto', 'learned' or 'ours'", "weight")
        known.refuse(self.name, "'auto' or 'learned'", "pred_probs")
        own, settings = OwnOrder.of(x, annotations, known), self.settings_for(encoder)
        if len(own.place) > MOST_SEARCHED:
            raise CrowdshotError(
                f"labels has {len(own.place):,} labelled items, expected {MOST_SEARCHED:,} or less for {self.name};"
                " method='ours' takes any number."
            )
        return Learned(self.name, search(x, own, settings), settings, *untouched(x))

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> Fitted:
        return labeling_search.Posterior(**tensors)


def search(
    x: Tensor, own: OwnOrder, settings: dict[str, Any], sizes: Tensor | None = None
) -> labeling_search.Posterior:
    """Of a problem in its own order, told of all items x (N, D) in theirs. ``sizes`` as of `labelings.fit`."""
    K = len(own.classes)
    fit = labeling_search.fit(own.x, own.labels, K, truth=own.truth, history=own.history, sizes=sizes, **settings)
    believed = labeling_search.item_posteriors(fit, own.labels, own.truth, own.history)
    everywhere = torch.full((len(fit.labelings), len(x)), -1, dtype=torch.int16, device=x.device)  # small in a file
    everywhere[:, own.place] = own.classes[fit.labelings.long()].to(everywhere)
    back, people = own.classes.argsort(), own.annotators.argsort()
    return replace(
        fit,
        embeddings=x,
        labelings=everywhere,
        confusion=fit.confusion[people][:, back][..., back],
        believed=believed[own.place.argsort()][:, back],
        sizes=None if fit.sizes is None else fit.sizes[back],
    )


class OwnOrder(NamedTuple):
    """A problem with its labelled items, classes and annotators in orders that come from x and the labels alone.

    A search breaks ties by what comes first, and sums differ in the last digit by their order; so that neither names
    nor the order of rows decide, items come as they lie along one direction, classes as their items do, annotators by
    what they said.
    """

    x: Tensor  # (n, D)
    labels: Tensor  # (n, R)
    truth: Tensor  # (n,)
    history: Tensor | None  # (R, 2)
    place: Tensor  # (n,) among all items
    classes: Tensor  # (K,) what the first, second, … class was
    annotators: Tensor  # (R,)

    @classmethod
    def of(cls, x: Tensor, annotations: Annotations, known: Known) -> OwnOrder:
        rows, K = known.rows_of(annotations), annotations.n_classes
        said = annotations.select_items(annotations.items[rows]).to_tensor().numpy()
        gold = known.gold[rows]
        embedded = x[torch.from_numpy(rows).to(x.device)].double().cpu().numpy()
        along = embedded @ np.sin(np.arange(x.shape[1]) + 1.0)
        every = np.concatenate([said, gold[:, None]], 1)
        votes = (every[..., None] == np.arange(K)).sum(1)  # (n, K)
        classes = ((votes * (along - along.mean())[:, None]).sum(0) / votes.sum(0).clip(1)).argsort(kind="stable")
        items = np.lexsort((*votes[:, classes].T, along))
        renamed = np.concatenate([classes.argsort(), [-1]])  # the last one is for -1, a missing label
        labels, truth = renamed[said[items]], renamed[gold[items]]
        annotators = np.lexsort(labels[::-1])

        def tensor(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(array).to(x.device)

        return cls(
            x=x[tensor(rows[items])],
            labels=tensor(labels[:, annotators]),
            truth=tensor(truth),
            history=None if known.history is None else tensor(known.history[annotators]),
            place=tensor(rows[items]),
            classes=tensor(classes),
            annotators=tensor(annotators),
        )


@dataclass(frozen=True)
class Mixture:
    """MAP-EM on embeddings: Ours, and whatever differs from it in constants or encoder alone.

    ``given``: arguments of `mixture.fit`. What they leave open the encoder was trained with; for outside features it is
    what `evidence_scale` recommends, and the weight of the features is chosen by how well held-back labels are
    predicted. So it is for encoders of an objective that is not among ``at_home``.
    """

    name: str
    given: Mapping[str, Any]
    seed: int
    choose: Callable[[Any], Encoder] = any_encoder
    at_home: tuple[str, ...] = ("mixture",)

    def __post_init__(self) -> None:
        check_names(self.name, self.given, ARGUMENTS)
        steps = self.given.get("steps", 1)
        if not isinstance(steps, Integral) or int(steps) < 1:
            raise CrowdshotError(f"steps is {steps!r}, expected a whole number, 1 or more.")
        for name, value in self.given.items():
            if name == "covariance" or (name == "c" and callable(value) and not isinstance(value, type)):
                continue
            numbers = value if name == "c" and isinstance(value, tuple | list) and len(value) == 2 else [value]
            if not all(_is_number(one) and 0 <= one <= LARGEST for one in numbers):
                pair = ", a pair (right, wrong) or a prior" if name == "c" else ""
                raise CrowdshotError(
                    f"{name} is {value!r}, expected a number, 0 or more{pair}, and {LARGEST:g} at most."
                )

    def default_encoder(self, X: Any) -> Encoder:
        return self.choose(X)

    def reader(self, encoder: Encoder) -> Encoder:
        return encoder

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder, known: Known) -> Learned:
        known.refuse(self.name, "'auto' or 'learned'", "pred_probs")
        objective = encoder.card.get("recipe", {}).get("objective", "mixture")
        trained = encoder.card.get("priors") if objective in self.at_home else None
        held = priors_of(annotations.n_classes)
        settings: dict[str, Any] = {"steps": STEPS, **held, "scale": None, "covariance": "identity"}
        if trained:
            settings |= {"steps": trained.get("steps", 2), **priors.from_card(trained), "scale": 1.0}
        settings |= {name: float(value) if isinstance(value, Tensor) else value for name, value in self.given.items()}
        if isinstance(settings["c"], tuple | list):
            settings["c"] = priors.Diagonal(*settings["c"])
        weight = None if known.weight is None else torch.from_numpy(known.weight).to(x.device)
        shift, factor = untouched(x) if trained else standardise(x, weight)
        x = (x - shift) * factor
        if settings["scale"] is None:
            held = priors.Priors(tau=settings["tau"], b=settings["b"], c=settings["c"])
            taught = annotations if known.weight is None else annotations.keep(known.weight[annotations.item] > 0)
            settings["scale"] = choose_scale(x, taught, steps=settings["steps"], seed=self.seed, priors=held)
        votes, prior = _votes(annotations).to(x.device), with_history(settings["c"], known, annotations.n_classes)
        fit = mixture.fit(
            x,
            votes,
            annotations.n_classes,
            truth=_on(x, known.gold),
            item_weight=weight,
            **{**settings, "c": prior},
        )
        return Learned(self.name, fit, settings, shift, factor)

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> Fitted:
        fields: dict[str, Any] = {"covariance": None, **tensors}
        return mixture.Fit(**fields, covariance_kind=settings["covariance"])


@dataclass(frozen=True)
class WithHistory:
    """A prior on confusion matrices, and pseudo-counts (R, K, K) of what annotators did elsewhere beside its own."""

    prior: priors.ConfusionPrior
    counts: Tensor

    def __call__(self, counts: Tensor, K: int | Tensor) -> Tensor:
        return self.prior(counts, K) + self.counts.to(counts)


def with_history(c: Any, known: Known, K: int) -> Any:
    """``c`` of `mixture.fit`. Of which classes labels elsewhere were is not known, so they are shared out evenly."""
    if known.history is None:
        return c
    right, wrong = torch.from_numpy(known.history).unbind(-1)
    eye = torch.eye(K, dtype=torch.float64)
    counts = right[:, None, None] / K * eye + wrong[:, None, None] / (K * (K - 1)) * (1 - eye)
    return WithHistory(priors.as_confusion_prior(c), counts)


def _on(x: Tensor, gold: Positions) -> Tensor | None:
    return torch.from_numpy(gold).to(x.device) if (gold >= 0).any() else None


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1)


def _votes(ann: Annotations) -> Tensor:
    """What `mixture.fit` takes for labels: a dense matrix, or a sparse one where that would be too large."""
    if ann.n_items * ann.n_annotators * ann.n_classes <= MOST_DENSE:
        return ann.to_tensor()
    item, annotator, label = (torch.from_numpy(x) for x in (ann.item, ann.annotator, ann.label))
    return mixture.sparse_votes(item, annotator, label, (ann.n_items, ann.n_annotators, ann.n_classes))
