"""Compute all facts that the report shows; `page.html` renders them."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from crowdshot.formatting import clean
from crowdshot.labels import gold_labels
from crowdshot.labels.agreement import FEWEST_SHARED, Statistic, kappa_warning, pairs, statistics
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import MIN_ACCURACY
from crowdshot.labels.auditing import Audit
from crowdshot.labels.consensus import THRESHOLD, Floats, Share, Unanimous, agreed, agreeing_labels
from crowdshot.labels.gold_labels import Agreement
from crowdshot.labels.spelling import Twins
from crowdshot.labels.working_times import warning_signs
from crowdshot.progress import progress
from crowdshot.report.page.annotator_summaries import (
    EXAMPLES_EACH,
    PICTURED,
    Person,
    file_names,
    summarise_annotators,
)
from crowdshot.report.page.basis import Basis
from crowdshot.report.page.class_summaries import (
    Class,
    Confusion,
    Odd,
    choose_examples,
    confusion_of,
    describe_classes,
    find_odd,
    most_confused,
)
from crowdshot.report.page.item_map import Map, Picture, draw_map, thumbnails
from crowdshot.report.page.review_items import (
    Asked,
    Item,
    ask_next,
    budget_of,
    confidence_if_fully_labelled,
    describe_items,
    excerpt,
    items_to_review,
    plan_round,
)
from crowdshot.report.page.thresholds import Automatic, Curve, Level, at, automatic, count_levels, curves, verdict
from crowdshot.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

    from crowdshot.classifier.crowd_classifier import CrowdClassifier
    from crowdshot.classifier.diagnostics import Check
    from crowdshot.encoders.encoder import Encoder

COMPARED_NOTE = (
    "; the consensus of labelled items and everything about annotators are from Dawid–Skene on the labels alone"
)
LABEL_VERSIONS = ("numpy", "scipy", "pandas")
VERSIONS = ("torch", *LABEL_VERSIONS, "scikit-learn", "pillow")
IN_MATRIX = 12  # annotators in the matrix of kappas
MOST_KNOWN = 10_000  # true labels that the page contains, so that a download of corrections includes them


@dataclass(frozen=True)
class Run:
    """The inputs of a run, as the report shows them.

    Attributes
    ----------
    sources : sequence of str
        The label files.
    items_from : str
        Where the items were read from; "" for labels alone.
    paths, texts : sequences
        The image files or the texts, in the order of the items; empty for features and for labels alone.
    how : mapping
        Terms and their descriptions, such as the method (see `describe`).
    command : str
        The command that repeats the run.
    commands : mapping
        The commands of the next steps; that of "ask" has no budget yet.
    respelled : sequence of str
        Labels that were read under another name.
    near_duplicates : sequence of `Twins`
        Names that differ only in spelling.
    feature_value : sequence of str
        Sentences about the value of the images, texts or features.
    ordered : bool
        Whether the classes are ordered.
    table : str
        The name of the table with all items.
    min_accuracy : float
        The accuracy that an annotator should have.
    working : mapping
        When and how fast annotators work, by name (`labels.working_times`); those who are missing are unknown.
    money : sequence of str
        Sentences about what labels cost.
    costs : mapping
        A sentence about what the labels of each annotator cost, by name.
    price : float
        The mean cost of a label, in which the budget of "ask" is counted.
    prices : sequence of float
        The cost of a label of each annotator (R,); empty if all cost 1.
    """

    sources: Sequence[str]
    items_from: str
    paths: Sequence[Path]
    how: Mapping[str, str]
    command: str
    commands: Mapping[str, str] = field(default_factory=dict)
    respelled: Sequence[str] = ()
    near_duplicates: Sequence[Twins] = ()
    left_out: Sequence[str] = ()
    feature_value: Sequence[str] = ()
    ordered: bool = False
    texts: Sequence[str] = ()
    table: str = "consensus.csv"
    min_accuracy: float = MIN_ACCURACY
    working: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    money: Sequence[str] = ()
    costs: Mapping[str, str] = field(default_factory=dict)
    price: float = 1.0
    prices: Sequence[float] = ()

    @property
    def thing(self) -> str:
        """The kind of item: "image", "text", "features", or "" for labels alone."""
        return "image" if self.paths else "text" if self.texts else "features" if self.items_from else ""

    @property
    def things(self) -> str:
        return self.thing if self.thing.endswith("s") or not self.thing else f"{self.thing}s"


def describe(clf: CrowdClassifier, encoder: str | None) -> dict[str, str]:
    """Return how the results were computed; ``encoder`` is the name the user gave, None if it was chosen."""
    from crowdshot.classifier.compared_methods import Compared
    from crowdshot.methods import find

    learner = clf._learner_again()
    method = find(learner.name)
    settings = ", ".join(f"{name} = {_plain(value)}" for name, value in _numbers(clf.settings_).items())
    return {
        "Method": f"{method.name}: {method.summary}" + (COMPARED_NOTE if isinstance(learner, Compared) else ""),
        "Encoder": f"{encoder or 'chosen automatically'}: {_encoder(clf.encoder_)}",
        "Settings": f"{settings or 'none'}; seed {clf._seed}",
        "Versions": _versions(VERSIONS),
    }


def describe_labels(method: str, several: bool = False) -> dict[str, str]:
    """Return how results of labels alone were computed."""
    sets = "; each answer is a set of labels" if several else ""
    return {"Method": f"{method}, from the labels alone{sets}", "Versions": _versions(LABEL_VERSIONS)}


def _versions(packages: Sequence[str]) -> str:
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return f"crowdshot {__version__}, {versions}, Python {platform.python_version()}"


def _encoder(encoder: Encoder) -> str:
    if "about" in encoder.card:
        return str(encoder.card["about"])
    fed = "" if encoder.input is None else f" for {encoder.input.describe()}"
    trained_on, learned_from = encoder.card.get("trained_on"), encoder.card.get("source", {}).get("learned_from")
    part = f"{learned_from:,} of " if learned_from else ""  # the rest were for validation and test
    return f"{encoder.architecture or 'a network'}{fed}" + (f", trained on {part}{trained_on}" if trained_on else "")


def _numbers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with the prior on confusion matrices as its name and parameters."""
    if "c" not in settings:
        return dict(settings)
    from crowdshot.model import priors

    card = priors.to_card(priors.Priors(tau=settings["tau"], b=settings["b"], c=settings["c"]))
    prior = card.pop("confusion")
    kind, numbers = prior.pop("kind"), ", ".join(f"{name} {value:.3g}" for name, value in prior.items())
    return {**settings, **card, "c": f"{kind} ({numbers})"}


def _plain(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class Decisions(NamedTuple):
    """The data with which the page's script records confirmed and corrected labels.

    Attributes
    ----------
    store : str
        Identifies the set of items, so that the browser finds its decisions again in the next round.
    classes : list of str
        The names of the classes. Names are as in the label files.
    items, labels : lists
        The ids of the items on the page, and the positions of their consensus classes.
    known : list
        Pairs of an item and its known true label.
    """

    store: str
    classes: list[str]
    items: list[str]
    labels: list[int]
    known: list[list[str]]


def decisions(basis: Basis, shown: list[int]) -> Decisions:
    """Return the data for decisions about the items at the positions ``shown``."""
    ids = [str(name) for name in basis.annotations.items]
    known = basis.compared.iloc[:MOST_KNOWN, :2].astype(str).to_numpy().tolist()
    return Decisions(
        store=hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()[:16],
        classes=[str(name) for name in basis.annotations.classes],
        items=[ids[i] for i in shown],
        labels=[int(basis.label[i]) for i in shown],
        known=known,
    )


@dataclass(frozen=True)
class Facts:
    """Everything that the report shows.

    Attributes
    ----------
    people : list of Person
        Annotators by the probability that they are below the minimum accuracy, the highest first.
    items : list of Item
        The items that need review at any threshold.
    fully_labelled : array
        The confidence of the items that every annotator has labelled.
    unanimous : list of Unanimous
        The confidence that agreeing labels reach.
    audit : Audit or None
        What a person found who checked accepted items.
    sheets : dict
        File names of the feedback sheets, by position of the annotator.
    crowd : array (K, K) [true, observed]
        Expected label counts of all annotators together.
    pairs : DataFrame
        The agreement of each pair of annotators (see `crowdshot.labels.agreement`).
    kappas : list of (name, kappas)
        The kappa, NaN if unknown, of each of the annotators with the most labels and the others of these.
    map : Map or None
        None for labels alone.
    pictures, texts : dicts
        Previews, by position of the item.
    """

    run: Run
    classes: list[str]
    n_items: int
    n_labelled: int
    n_labels: int
    levels: list[Level]
    check: Share | None
    why_unchecked: str
    gold: Agreement
    n_known: int
    items: list[Item]
    asked: Asked
    fully_labelled: Floats
    unanimous: list[Unanimous]
    audit: Audit | None
    curves: list[Curve]
    people: list[Person]
    agreement: list[Statistic]
    kappa_warning: str | None
    pairs: pd.DataFrame
    kappas: list[tuple[str, list[float]]]
    class_facts: list[Class]
    odd: list[Odd]
    crowd: Floats
    confusions: list[Confusion]
    map: Map | None
    sheets: dict[int, str]
    pictures: dict[int, Picture]
    texts: dict[int, str]
    decisions: Decisions

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @property
    def n_unlabelled(self) -> int:
        return self.n_items - self.n_labelled

    @property
    def flagged(self) -> list[Person]:
        return [person for person in self.people if person.flag or person.duplicates or self.signs(person)]

    def signs(self, person: Person) -> list[str]:
        """Return the warning signs in the annotator's accuracy over time (`labels.accuracy_trends`)."""
        known = self.run.working.get(person.name)
        return warning_signs(known) if known else []

    def accepted(self, confidence: float = THRESHOLD) -> Level:
        return at(self.levels, confidence)

    def of_kind(self, confidence: float = THRESHOLD) -> dict[str, int]:
        """Return the number of items of each kind that needs review, shown on the page or not."""
        level = self.accepted(confidence)
        return {
            "open": self.n_labelled - level.labelled,
            "overruled": level.overruled,
            "unlabelled": self.n_unlabelled - level.unlabelled,
        }

    def automatic(self, confidence: float = THRESHOLD) -> Automatic | None:
        """Return the items that the classifier may label automatically with this accuracy."""
        return automatic(self.levels, confidence, self.n_unlabelled, self.check.of) if self.check else None

    def verdict(self, confidence: float = THRESHOLD) -> str:
        return verdict(self.automatic(confidence), confidence, self.n_unlabelled) if self.check else self.why_unchecked


def gather(clf: CrowdClassifier, embeddings: Tensor, run: Run) -> Facts:
    """Compute the facts of a classifier and the embeddings (N, D) that it was fitted to."""
    return gather_facts(Basis.of_classifier(clf, embeddings, run.min_accuracy), run)


def gather_facts(basis: Basis, run: Run, audit: Audit | None = None) -> Facts:
    """Compute the facts of labels, and of a classifier if the basis has one."""
    wanted = items_to_review(basis)
    why_unchecked, check = _check(basis, wanted)
    everyone = sorted(summarise_annotators(basis), key=lambda person: (-person.p_below, person.high))
    examples = choose_examples(basis)
    crowd = confusion_of(everyone, basis.annotations.n_classes)
    levels = count_levels(basis, check)
    agreement = statistics(basis.annotations, run.ordered)
    each_pair = pairs(basis.annotations, "quadratic" if run.ordered else None)
    n_labelled, fully_labelled = int(basis.labelled.sum()), confidence_if_fully_labelled(basis)
    n_asked = plan_round(n_labelled - at(levels).labelled, fully_labelled)[2]
    mistakes = [example.row for person in everyone[:PICTURED] for example in person.examples[:EXAMPLES_EACH]]
    shown = sorted({*wanted, *mistakes, *(i for pair in examples for some in pair for i in some)})
    seed = 0 if basis.clf is None else basis.clf._seed
    return Facts(
        run=run,
        classes=[clean(name) for name in basis.annotations.classes],
        n_items=len(basis.label),
        n_labelled=n_labelled,
        n_labels=basis.annotations.n_labels,
        levels=levels,
        check=check.when_sure() if check else None,
        why_unchecked=why_unchecked,
        gold=gold_labels.agreement(basis.compared),
        n_known=len(basis.compared),
        items=describe_items(basis, wanted, check, run.thing),
        asked=ask_next(basis, budget_of(n_asked, run.price), run.prices),
        fully_labelled=fully_labelled,
        unanimous=_unanimous(basis),
        audit=audit,
        curves=curves(basis),
        people=everyone,
        agreement=agreement,
        kappa_warning=kappa_warning(basis.annotations, agreement),
        pairs=each_pair,
        kappas=_kappas(everyone, basis.annotations, each_pair),
        class_facts=describe_classes(basis, check, examples),
        odd=find_odd(basis),
        crowd=crowd,
        confusions=most_confused(crowd),
        map=None if basis.embeddings is None else draw_map(basis, basis.embeddings, run.paths, seed),
        sheets=file_names(everyone),
        pictures=thumbnails({i: run.paths[i] for i in shown}) if run.paths else {},
        texts={i: excerpt(run.texts[i]) for i in shown} if run.texts else {},
        decisions=decisions(basis, wanted),
    )


def _kappas(people: Sequence[Person], ann: Annotations, pairs: pd.DataFrame) -> list[tuple[str, list[float]]]:
    """Return ``Facts.kappas``; empty if no kappa is known."""
    chosen = sorted(people, key=lambda person: -person.n_labels)[:IN_MATRIX]
    place = {ann.annotators[person.position]: row for row, person in enumerate(chosen)}
    out = np.full((len(chosen), len(chosen)), np.nan)
    for pair in pairs[pairs["shared"] >= FEWEST_SHARED].itertuples():
        if pair.one in place and pair.other in place:
            row, column = place[pair.one], place[pair.other]
            out[row, column] = out[column, row] = pair.kappa
    if np.isnan(out).all():
        return []
    return [(person.name, row.tolist()) for person, row in zip(chosen, out, strict=True)]


def _unanimous(basis: Basis) -> list[Unanimous]:
    ann = basis.annotations
    n_labels, agreement = agreed(ann.item, ann.label, basis.label)
    return agreeing_labels(n_labels, agreement == 1, basis.confidence)


def _check(basis: Basis, wanted: list[int]) -> tuple[str, Check | None]:
    """Cross-validate the classifier; return why that is impossible, or "" and the check."""
    if basis.clf is None or basis.embeddings is None:
        return "labels alone make no classifier", None
    from crowdshot.classifier import diagnostics

    why_not = diagnostics.why_not(basis.clf, basis.embeddings)
    if why_not:
        return why_not, None
    with progress("checking the classifier"):
        return "", diagnostics.leave_out(basis.clf, basis.embeddings, wanted)
