"""Judge models by people's labels: agreement, accuracy, the replacement test, families, and models first.

A model's labels do not count as evidence here: the posterior comes from people's labels and known labels alone. If
`FEWEST_KNOWN` items or more are known, accuracies are computed on these items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import align_columns, clean, counted, listing, percent, plural, spread
from crowdshot.labels.aggregation import aggregate_labels
from crowdshot.labels.alternative_test import (
    FEWEST_ITEMS,
    FEWEST_PEOPLE,
    ReplacementTest,
    agreement_among_people,
    agreement_with_people,
    replacement_test,
)
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.consensus import Floats, Share
from crowdshot.labels.formats.label_file import LabelsRead
from crowdshot.labels.judge_families import ModelPair, find_families
from crowdshot.labels.judge_quality import (
    OnClass,
    RightShare,
    answers_of,
    judge_classes,
    judge_groups,
    judge_models,
    take_annotators,
)
from crowdshot.labels.models_first import ModelsFirst, PricePerItem, plan_models_first
from crowdshot.report.page.templates import STYLES, fill, inline

HERE = Path(__file__).parent
MANY_KNOWN = 100  # known items to recommend: plans from 100 to 200 kept their promise in simulated projects
FEWEST_KNOWN = 50  # known items from which accuracies are those on known items
MOST_CLASSES = 12  # printed or on the page for each model; --json has all


@dataclass(frozen=True)
class JudgedModel:
    """A model.

    ``agreement`` is with people, ``right`` the accuracy, ``family`` the other models that it errs together with.
    ``cost`` is that of a label, ``cost_per_right`` of a right label; both are None without prices.
    """

    model: str
    agreement: Share | None
    right: RightShare
    replacement: ReplacementTest
    classes: Sequence[OnClass]
    family: Sequence[str] = ()
    cost: float | None = None
    cost_per_right: float | None = None


@dataclass(frozen=True)
class JudgedModels:
    """The result of `judge_all`.

    ``people_cost`` is the mean cost of a label of a person. ``known`` is the number of known items by which labels are
    judged, 0 if they are judged by people's labels; then ``too_few_known`` items are known.
    """

    models: Sequence[JudgedModel]
    people: int
    people_kind: str
    people_agreement: Share | None
    people_right: RightShare
    people_cost: float | None
    families: Sequence[Sequence[str]]
    pairs: Sequence[ModelPair]
    excess_with_people: float
    models_first: ModelsFirst | None
    known: int = 0
    too_few_known: int = 0
    left_out: dict[str, Any] = field(default_factory=dict)
    files: Sequence[Path] = ()


def judge_all(
    read: LabelsRead,
    ann: Annotations,
    known: NDArray[np.bool_],
    is_model: NDArray[np.bool_],
    people_kind: str,
    epsilon: float,
    promise: float,
    cost: Floats | None = None,
) -> JudgedModels:
    """Judge models by people's labels.

    Parameters
    ----------
    read : LabelsRead
        The labels as read.
    ann : Annotations
        The same labels, with the items and classes of known labels.
    known : array of shape (N,)
        Which items have a known label.
    is_model : array of shape (R,)
        Which annotators are models.
    people_kind : str
        A key of `alternative_test.EPSILON`, for the text.
    epsilon : float
        The advantage that a person may have in the replacement test.
    promise : float
        The accuracy of models' labels in the plan with models first.
    cost : array of shape (R,), optional
        The cost of a label of each annotator.
    """
    models, people = (take_annotators(ann, np.flatnonzero(mask).tolist()) for mask in (is_model, ~is_model))
    posterior = aggregate_labels(read, people, gold=read.gold or None).consensus.probabilities
    if not isinstance(posterior, np.ndarray):
        raise CrowdshotError(f"has {ann.n_classes:,} classes", argument="labels", expected="fewer")
    answers = [answers_of(models, model) for model in range(models.n_annotators)]
    families = find_families(models, answers, people, posterior)
    of_model = {name: family for family in families.families for name in family}
    weights = [1 / len(of_model.get(str(name), [name])) for name in models.annotators]
    n_checked = int((known & (np.bincount(models.item, minlength=ann.n_items) > 0)).sum())
    n_known = n_checked if n_checked >= FEWEST_KNOWN else 0
    judged_by = known if n_known else known | (np.bincount(people.item, minlength=ann.n_items) > 0)
    alone = aggregate_labels(read, people).consensus.probabilities.argmax(1) if known.any() else None
    theirs, checked = people.keep(judged_by[people.item]), models.keep(judged_by[models.item])
    group = np.zeros(theirs.n_labels, dtype=np.int64)
    people_right = judge_groups(theirs.item, theirs.label, group, 1, posterior)[0]
    price, people_price = _prices(models, people, is_model, cost)
    right, classes = judge_models(checked, posterior), judge_classes(checked, posterior)
    judged = [
        JudgedModel(
            str(name),
            agreement_with_people(people, answer),
            right[place],
            replacement_test(people, answer, epsilon, read.ordered),
            classes[place],
            [other for other in of_model.get(str(name), []) if other != str(name)],
            None if cost is None else float(cost[is_model][place]),
            None if cost is None else float(cost[is_model][place]) / right[place].share,
        )
        for place, (name, answer) in enumerate(zip(models.annotators, answers, strict=True))
    ]
    return JudgedModels(
        sorted(judged, key=lambda each: -each.right.share if each.right.labels else 0.0),
        people.n_annotators,
        people_kind,
        agreement_among_people(people),
        people_right,
        people_price,
        families.families,
        families.pairs,
        families.with_people,
        plan_models_first(answers, weights, people, posterior, judged_by, promise, price, alone),
        n_known,
        n_checked - n_known,
        dict(read.left_out),
    )


def _prices(
    models: Annotations, people: Annotations, is_model: NDArray[np.bool_], cost: Floats | None
) -> tuple[PricePerItem | None, float | None]:
    """Return the cost of an item by models and by people, and the mean cost of a label of a person."""
    if cost is None:
        return None, None
    n_labelled = len(np.unique(people.item))
    total = float(cost[~is_model][people.annotator].sum())
    by_models = float(cost[is_model][models.annotator].sum()) / max(len(np.unique(models.item)), 1)
    return PricePerItem(by_models, total / max(n_labelled, 1)), total / max(people.n_labels, 1)


# ---- in words ----


def verdict(test: ReplacementTest) -> str:
    """Return whether a model may replace a person."""
    if test.may_replace is None:
        return "too few"
    return "yes" if test.may_replace else "no"


def family_sentences(found: JudgedModels) -> list[str]:
    """Describe the families of models."""
    return [
        f"{listing(family)} err together: they count as one model. Keep the best of them, or merge them with"
        f" --names {','.join(f'{name}={family[0]}' for name in family[1:])}"
        for family in found.families
    ]


def known_sentences(found: JudgedModels) -> list[str]:
    """Say that there are too few known items to compute accuracies on them."""
    if not found.too_few_known:
        return []
    only = plural(found.too_few_known, "known item")
    return [
        f"Only {only}: with {FEWEST_KNOWN} or more, accuracies would be computed on them. Here, they are estimated from"
        f" people's labels, with wide intervals."
    ]


def plan_sentences(found: JudgedModels) -> list[str]:
    """Describe what labelling with models first would save."""
    first = found.models_first
    if first is None:
        return ["Too few items have labels of models and of people to estimate what labelling with models first saves."]
    if first.plan is None:
        best = max((stage.right.low for stage in first.stages), default=0.0)
        return [
            f"Labelling with models first: at no threshold are {percent(first.promise)} of the models' labels shown to"
            f" be right (the best lower limit is {percent(best)}). {_more_known(found)}, or lower --promise."
        ]
    plan, saved = first.plan, first.saving or 0.0
    share = (
        f"{percent(plan.share)} of the items are left to models at a confidence of {percent(plan.threshold)} or more"
    )
    money = (
        ""
        if plan.cost is None or first.people_cost is None
        else f" The cost falls from {first.people_cost:,.2f} to {plan.cost:,.2f} for {first.items:,} items."
    )
    saving = f"saves {percent(saved)}" if saved > 0 else "saves nothing"
    return [
        f"Labelling with models first {saving} of {'the cost' if plan.cost is not None else 'the labels of people'}:"
        f" {share}, and {percent(plan.right.share)} ({spread(plan.right.low, plan.right.high)}) of their labels are"
        f" right.{money}"
    ]


def _more_known(found: JudgedModels) -> str:
    """Return how to get narrower intervals."""
    if found.known or found.too_few_known:
        return f"Add more known items to --gold, {MANY_KNOWN} or more"
    return f"Check {MANY_KNOWN} random items and add --gold"


def describe_models(found: JudgedModels) -> str:
    """Return the result for the terminal."""
    priced = found.people_cost is not None
    head = ["model", "labels", "agrees", "90 %", "right", "90 %", "replaces", "wins", "as good"]
    rows = [[*head, *(["a right label"] if priced else []), ""]]
    for each in found.models:
        test = each.replacement
        rows.append(
            [
                clean(each.model, 40),
                f"{each.right.labels:,}",
                *_share(each.agreement),
                *_right(each.right),
                verdict(test),
                "" if test.winning_rate is None else f"{test.winning_rate:.2f}",
                "" if test.advantage is None else f"{test.advantage:.2f}",
                *([_price(each.cost_per_right)] if priced else []),
                "",
            ]
        )
    people = found.people_right
    rows.append(
        [
            plural(found.people, "person").replace("persons", "people"),
            f"{people.labels:,}",
            *_share(found.people_agreement),
            *_right(people),
            *["", "", ""],
            *([_price((found.people_cost or 0) / people.share)] if priced else []),
            "",
        ]
    )
    lines = [align_columns(rows), ""]
    if any(each.replacement.may_replace is None for each in found.models):
        lines.append(
            f"too few: the replacement test needs {FEWEST_PEOPLE} people with {FEWEST_ITEMS} items that the model and"
            " another person labelled too."
        )
    return "\n".join([*lines, *known_sentences(found), *family_sentences(found), *plan_sentences(found)])


def _share(share: Share | None) -> list[str]:
    return ["", ""] if share is None else [percent(share.share), spread(share.low, share.high)]


def _right(right: RightShare) -> list[str]:
    return [percent(right.share), spread(right.low, right.high)] if right.labels else ["", ""]


def _price(price: float | None) -> str:
    return "" if price is None or np.isnan(price) else f"{price:.3g}"


def table_of(found: JudgedModels) -> list[dict[str, Any]]:
    """Return a row for each model, for a file."""
    return [
        {
            "model": each.model,
            "n_labels": each.right.labels,
            "agreement": each.agreement.share if each.agreement else None,
            "agreement_low": each.agreement.low if each.agreement else None,
            "agreement_high": each.agreement.high if each.agreement else None,
            "accuracy": each.right.share,
            "low": each.right.low if each.right.labels else None,
            "high": each.right.high if each.right.labels else None,
            "may_replace": verdict(each.replacement),
            "winning_rate": each.replacement.winning_rate,
            "advantage": each.replacement.advantage,
            "family": ", ".join(each.family),
            "cost": each.cost,
            "cost_per_right": each.cost_per_right,
        }
        for each in found.models
    ]


def render_models(found: JudgedModels) -> str:
    """Return the result as an HTML page without network access or scripts."""
    return fill(
        "model_judging.html",
        HERE,
        f=found,
        verdict=verdict,
        counted=counted,
        families=family_sentences(found),
        plan=plan_sentences(found),
        too_few=known_sentences(found),
        most_classes=MOST_CLASSES,
        fewest_items=FEWEST_ITEMS,
        fewest_people=FEWEST_PEOPLE,
        style=inline(*STYLES, HERE / "model_judging.css"),
    )
