"""Look at fitted estimators in Python: `report`, `explain`, `metrics_`, `next_questions`, and what a notebook shows.

`Explanation` states how the posterior of an item came about, as factors of the odds of the consensus class k against
the next class j:

    p_k / p_j = size_k / size_j                                     class frequencies
                · prod_r confusion[r, k, label_r] / confusion[r, j, label_r]    labels, each annotator alone
                · weighting                                         labels together: shared mistakes, shrinkage
                · features                                          the feature model, or the mixture's embeddings
                · labeling search                                   its average with the labeling search

Weighting and features are what the models' posteriors leave over, so that the product is always the posterior.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.classifier.learner_contract import SideInformation
from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.formatting import apart, clean, facts_and_tables, listing, percent, show
from crowdshot.io.cells import as_index, positions, unique_ids
from crowdshot.labels import asking, gold_labels
from crowdshot.labels.agreement import krippendorff_alpha, pairwise_agreement
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import MIN_ACCURACY, judge, label_quality, likely_wrong
from crowdshot.labels.consensus import THRESHOLD
from crowdshot.model.parts import MOST_CELLS, PosteriorMatrix
from crowdshot.model.posteriors import likeliest

Floats = NDArray[np.float64]

LEAST = 1e-300  # of a probability in a factor
MOST = 690.0  # of the logarithm of a factor
SHOWN = 5  # rows of a table in a notebook


@dataclass(frozen=True)
class Explanation:
    """How the posterior of an item came about.

    Attributes
    ----------
    item : object
        The item.
    label, alternative : object
        The consensus class, and the next most probable class.
    probabilities : mapping
        The posterior of each class, the most probable first.
    labels : DataFrame
        Columns annotator, label, accuracy, and factor: by how much the label alone multiplies the odds of ``label``
        against ``alternative``. NaN for a vote and for very many classes.
    factors : mapping
        By how much each source of information multiplies these odds. Their product is the odds.
    known : bool
        Whether the class is known (gold). There are then no factors, as for a vote and for very many classes.
    """

    item: Any
    label: Any
    alternative: Any
    probabilities: Mapping[Any, float]
    labels: pd.DataFrame
    factors: Mapping[str, float]
    known: bool = False

    @property
    def confidence(self) -> float:
        """Posterior of the consensus class."""
        return self.probabilities[self.label]

    @property
    def odds(self) -> float:
        """Odds of the consensus class against the alternative."""
        return self.confidence / max(self.probabilities[self.alternative], LEAST)

    @property
    def _title(self) -> str:
        how = "known" if self.known else f"probability {self.confidence:.3g}"
        other = f"next {show(self.alternative)}, {self.probabilities[self.alternative]:.2g}"
        return f"{clean(self.item, 60)}: {show(self.label)} ({how}; {other})"

    def __str__(self) -> str:
        rows = [(name, f"× {_two_digits(factor)}") for name, factor in self.factors.items()]
        people = [
            (
                f"  {clean(who, 30)}: {clean(label, 30)} (accuracy {percent(accuracy)})",
                "" if math.isnan(factor) else f"× {_two_digits(factor)}",
            )
            for who, label, accuracy, factor in self.labels.itertuples(index=False)
        ]
        at = next((place for place, (name, _) in enumerate(rows) if name == "labels"), len(rows) - 1) + 1
        rows[at:at] = people
        if self.factors:
            rows.append((f"odds of {show(self.label)} against {show(self.alternative)}", f"= {_two_digits(self.odds)}"))
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join([self._title, *(f"  {name:<{width}}  {factor}".rstrip() for name, factor in rows)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        factors = pd.DataFrame({"source": list(self.factors), "factor": list(self.factors.values())})
        return facts_and_tables(self._title, {"Sources": factors, "Labels": self.labels})


def _two_digits(factor: float) -> str:
    return f"{float(f'{factor:.2g}'):,.10g}" if 1e-4 < factor < 1e6 else f"{factor:.1e}"


class Inspection:
    """Results of `CrowdClassifier` and `CrowdAggregator`, and methods to look at them."""

    annotations_: Annotations
    _known: SideInformation
    _without_gold: PosteriorMatrix

    def _check_labels(self) -> None:
        """Raise an error unless the estimator is fitted and has its labels."""
        raise NotImplementedError

    @property
    def label_proba_(self) -> PosteriorMatrix:
        """Posterior class probabilities of the items, (N, K)."""
        raise NotImplementedError

    @property
    def gold_(self) -> pd.DataFrame:
        """Gold classes, compared with the consensus of a fit that does not know them."""
        self._check_labels()
        return gold_labels.compare(self.annotations_, self._known.gold, self._without_gold)

    @property
    def annotators_(self) -> pd.DataFrame:
        """Accuracy of every annotator against the consensus, with intervals that include the consensus' uncertainty."""
        return self.judge_annotators()

    def judge_annotators(self, min_accuracy: float = MIN_ACCURACY) -> pd.DataFrame:
        """Return ``annotators_`` with the probability ``p_below`` that the accuracy is below ``min_accuracy``."""
        self._check_labels()
        return judge(self.annotations_, self.label_proba_, self._known.history, min_accuracy)

    @property
    def label_quality_(self) -> pd.DataFrame:
        """Probability of every label that it is right."""
        return label_quality(self.annotations_, self.label_proba_)

    @property
    def likely_wrong_(self) -> pd.DataFrame:
        """Labels that are more likely wrong than right, most suspicious first."""
        return likely_wrong(self.annotations_, self.label_proba_)

    def explain(self, item: Any) -> Explanation:
        """Explain how the posterior of a fitted item came about.

        Parameters
        ----------
        item : object
            The id of the item.

        Returns
        -------
        Explanation
            It prints as a table.
        """
        return explain(self, item)

    @property
    def metrics_(self) -> dict[str, float]:
        """Numbers about the fit for an experiment tracker, such as ``mlflow.log_metrics(clf.metrics_)``."""
        return metrics(self)

    def next_questions(self, budget: int, annotators: Iterable[Any] | None = None) -> pd.DataFrame:
        """Return the questions worth asking next: which item, and which annotator.

        The rules are those of the command `crowdshot next`. `crowdshot.asking.choose` has more options, such as costs.

        Parameters
        ----------
        budget : int
            The largest number of questions. There are fewer if no further answer is expected to help.
        annotators : iterable or None
            The annotators who can be asked; unknown names are new annotators. None: all annotators of the fit, but
            those whose labels hardly depend on the items.

        Returns
        -------
        DataFrame
            A row for each question, the best first. Columns are item, annotator (with the names of the table of
            labels), gain (the expected reduction of uncertainty), consensus, confidence and n_labels.
        """
        check_fitted(self)
        return next_questions(self, budget, annotators)

    def report(self, path: str | os.PathLike[str], X: Any = None) -> None:
        """Write the report as an HTML page, as the commands `adapt` and `aggregate` do.

        Parameters
        ----------
        path : str or path
            The .html file; an existing one is replaced.
        X : sequence of paths or texts, optional
            The items in the order of the fit, to show them on the page.
        """
        from crowdshot.report.page.estimator_report import write_report  # here because it is above this package

        check_fitted(self)
        write_report(self, path, X)

    def _repr_html_(self) -> str:
        settings = getattr(super(), "_repr_html_", None)
        shown = settings() if settings is not None else f"<pre>{escape(repr(self))}</pre>"
        without_labels = getattr(self, "_named", None) is not None
        return shown + results_html(self) if is_fitted(self) and not without_labels else shown

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def is_fitted(estimator: Any) -> bool:
    return hasattr(estimator, "annotations_")


def check_fitted(estimator: Any) -> None:
    if not is_fitted(estimator):
        raise CrowdshotError(f"This {type(estimator).__name__} is not fitted", hint="Call fit first.")


def known_of(estimator: Any) -> SideInformation:
    known: SideInformation = estimator._known
    return known


# ---- explanations ----


def explain(estimator: Any, item: Any) -> Explanation:
    """Return the explanation of an item's posterior."""
    check_fitted(estimator)
    posterior = estimator.label_proba_  # first: it raises an error if the classifier was saved without labels
    ann, known = estimator.annotations_, known_of(estimator)
    row = int(positions(ann.items, np.array([item], dtype=object))[0])
    if row < 0:
        raise CrowdshotError(
            f"is {show(item)}",
            argument="item",
            found=item,
            expected=f"an item of the fit, such as {show(ann.items[0])}",
        )
    posterior = dense_row(posterior, row)
    order = np.argsort(-posterior, kind="stable")
    best, other = order[:2].tolist()

    mine = np.flatnonzero(ann.item == row)
    who, said = ann.annotator[mine], ann.label[mine]
    confusion = _confusion(estimator)
    each = np.full(len(who), np.nan)
    if confusion is not None:
        each = _log_ratio(confusion[who, best, said], confusion[who, other, said])
    accuracy = estimator.annotators_.set_index(ann.columns.annotator)["accuracy"]
    labels = pd.DataFrame(
        {
            "annotator": ann.annotators[who],
            "label": ann.classes[said],
            "accuracy": accuracy.reindex(ann.annotators[who]).to_numpy(),
            "factor": np.exp(each),
        }
    )
    is_known = bool(known.gold[row] >= 0)
    steps = {} if is_known or confusion is None else _steps(estimator, row, best, other, posterior, float(each.sum()))
    return Explanation(
        item=ann.items[row],
        label=ann.classes[best],
        alternative=ann.classes[other],
        probabilities={ann.classes[k]: float(posterior[k]) for k in order.tolist()},
        labels=labels,
        factors={name: math.exp(np.clip(step, -MOST, MOST)) for name, step in steps.items()},
        known=is_known,
    )


def _confusion(estimator: Any) -> Floats | None:
    """Return the confusion matrices (R, K, K) of the model; None for a vote, and for too many classes."""
    if hasattr(estimator, "_found") and estimator._found.confusion is None:
        return None
    out: Floats = estimator.confusion_
    return out


def _steps(estimator: Any, row: int, best: int, other: int, posterior: Floats, by_labels: float) -> dict[str, float]:
    """Return the contribution of each source to the log odds; they add up to those of the posterior."""

    def odds(p: Floats) -> float:
        return float(_log_ratio(p[[best]], p[[other]])[0])

    total = odds(posterior)
    fit = getattr(estimator, "_model", None)
    sizes = estimator._found.class_probs if fit is None else fit.class_probs.double().cpu().numpy()
    steps = {"class frequencies": odds(sizes), "labels": by_labels}
    before = sum(steps.values())
    if fit is None:
        return steps | {"weighting": total - before}
    models: tuple[Any, ...] = getattr(fit, "feature_fits", ())
    if len(models) != 1:  # sets of labels, or a mixture
        return steps | {"weighting and features" if models else "features": total - before}
    alone, joint = (odds(p[row].double().cpu().numpy()) for p in (models[0].alone, models[0].responsibilities))
    steps |= {"weighting": alone - before, "features": joint - alone}
    return steps if models[0] is fit else steps | {"labeling search": total - joint}


def _log_ratio(p: Floats, q: Floats) -> Floats:
    ratio: Floats = np.log(np.maximum(p, LEAST)) - np.log(np.maximum(q, LEAST))
    return ratio


def dense_row(posterior: PosteriorMatrix, row: int) -> Floats:
    """Return a row of a posterior as an array (K,)."""
    if isinstance(posterior, np.ndarray):
        found: Floats = posterior[row]
        return found
    out: Floats = posterior[[row]].toarray()[0]
    return out


# ---- questions ----


def next_questions(estimator: Any, budget: int, annotators: Iterable[Any] | None) -> pd.DataFrame:
    """Return the questions that `crowdshot next` would ask."""
    posterior, ann = estimator.label_proba_, estimator.annotations_
    history = known_of(estimator).history
    history = np.zeros((ann.n_annotators, 2)) if history is None else history
    closed, can = (ann.item, ann.annotator), np.ones(ann.n_annotators, dtype=bool)
    if isinstance(posterior, np.ndarray) and posterior.size <= MOST_CELLS:
        from crowdshot.labels import duplicate_annotators  # here and below, as these modules load scipy.stats

        pairs = duplicate_annotators.compare_pairs(ann, posterior)
        redundant = duplicate_annotators.predictable_answers(ann, pairs)
        closed = np.append(ann.item, redundant[0]), np.append(ann.annotator, redundant[1])
        can = _useful_annotators(ann, posterior, history) if annotators is None else can
    if annotators is not None:
        names = unique_ids(annotators, "annotators")
        new = names[positions(ann.annotators, names) < 0].tolist()
        ann = replace(ann, annotators=unique_ids([*ann.annotators.tolist(), *new], "annotators"))
        history = np.concatenate([history, np.zeros((len(new), 2))])
        can = positions(names, ann.annotators) >= 0
    most = np.where(can, asking.fair_share(budget, int(can.sum())), 0)
    n_labels = np.bincount(ann.annotator, minlength=ann.n_annotators) + history.sum(1)
    confusion, first = asking.expected_confusion(ann, posterior, history), asking.first_limits(n_labels, most)
    chosen = asking.choose(posterior, confusion, closed, budget, most=most, first=first)
    item, annotator = (np.array([one[place] for one in chosen], dtype=np.int64) for place in (0, 1))
    label, confidence = likeliest(posterior[item])
    return pd.DataFrame(
        {
            ann.columns.item: as_index(ann.items).take(item),
            ann.columns.annotator: as_index(ann.annotators).take(annotator),
            "gain": np.array([one.gain for one in chosen], dtype=np.float64),
            "consensus": as_index(ann.classes).take(label),
            "confidence": confidence,
            "n_labels": np.bincount(ann.item, minlength=ann.n_items)[item],
        }
    )


def _useful_annotators(ann: Annotations, posterior: Floats, history: Floats) -> NDArray[np.bool_]:
    """Return (R,) the annotators whose labels depend on the items, and warn about the others."""
    from crowdshot.labels.annotator_flags import judge_each, useful_questions

    useful = useful_questions(judge_each(ann, posterior, [apart(name) for name in ann.classes], history))
    if not useful.all():
        names = ann.annotators[~useful]
        warnings.warn(
            CrowdshotWarning(
                f"not asked, because their labels hardly depend on the items: {listing(names)}",
                found=names.tolist(),
                hint=Use("to ask them anyway", annotators=["NAME"]),
            ),
            stacklevel=4,
        )
    return useful


# ---- numbers ----


def metrics(estimator: Any) -> dict[str, float]:
    """Return numbers about a fit by name; those that are not defined for its labels are left out."""
    check_fitted(estimator)
    ann = estimator.annotations_
    labelled = np.unique(ann.item)
    confidence = likeliest(estimator.label_proba_)[1]
    people = estimator.annotators_
    accuracy = people["accuracy"][people["n_labels"] > 0]
    quality = estimator.label_quality_["quality"]
    gold = estimator.gold_
    found = {
        "n_items": ann.n_items,
        "n_labels": ann.n_labels,
        "n_annotators": ann.n_annotators,
        "n_classes": ann.n_classes,
        "labels_per_item": ann.n_labels / max(len(labelled), 1),
        "accepted": (confidence[labelled] >= THRESHOLD).mean(),
        "confidence_mean": confidence[labelled].mean(),
        "annotator_accuracy_mean": accuracy.mean(),
        "annotator_accuracy_min": accuracy.min(),
        "likely_wrong_labels": (quality < 0.5).mean(),
        "agreement": pairwise_agreement(ann).value,
        "krippendorff_alpha": krippendorff_alpha(ann, known_of(estimator).ordered).value,
        "gold_items": len(gold),
        "gold_accuracy": (gold.iloc[:, 1] == gold["consensus"]).mean() if len(gold) else math.nan,
    }
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}


# ---- notebooks ----


def results_html(estimator: Any) -> str:
    """Return a summary of a fit for a notebook."""
    ann = estimator.annotations_
    labelled = np.unique(ann.item)
    accepted = int((likeliest(estimator.label_proba_)[1][labelled] >= THRESHOLD).sum())
    title = (
        f"{ann.n_labels:,} labels of {len(labelled):,} items by {ann.n_annotators:,} annotators;"
        f" {accepted:,} consensus labels with probability {THRESHOLD} or more"
    )
    people = estimator.annotators_.sort_values("accuracy", kind="stable")
    shown = {
        f"consensus_ ({ann.n_items:,} rows)": estimator.consensus_.head(SHOWN),
        f"annotators_ ({ann.n_annotators:,} rows), the least accurate first": people.head(SHOWN),
    }
    return facts_and_tables(title, shown)
