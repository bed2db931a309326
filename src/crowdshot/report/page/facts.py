"""Everything that the page says, computed; how it looks is `page.html`'s affair."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import Tensor

from crowdshot.classifier import diagnostics
from crowdshot.classifier.compared_methods import Compared
from crowdshot.classifier.crowd_classifier import CrowdClassifier
from crowdshot.encoders.encoder import Encoder
from crowdshot.formatting import clean
from crowdshot.labels import gold_labels
from crowdshot.labels.agreement import Statistic, statistics
from crowdshot.labels.confidence import THRESHOLD, Share
from crowdshot.labels.gold_labels import Agreement
from crowdshot.labels.spelling import Twins
from crowdshot.methods import find
from crowdshot.model import priors
from crowdshot.report.page.annotator_summaries import EXAMPLES_EACH, PICTURED, Person, file_names, people
from crowdshot.report.page.basis import Basis, Floats
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
from crowdshot.report.page.item_map import Map, draw_map
from crowdshot.report.page.next_steps import Asked, ask_next, to_ask, with_everyone_asked
from crowdshot.report.page.review_items import Item, excerpt, in_detail, need_a_person
from crowdshot.report.page.thresholds import ByItself, Curve, Level, at, by_itself, count_levels, curves, verdict
from crowdshot.report.page.thumbnails import Picture, thumbnails
from crowdshot.version import __version__

# ---- how made ------------------------------------------------------------
#
# How the results came about: what a page says of the run, and the command that repeats it.


BY_OTHERS = "; the consensus of labelled items and all that is said of annotators is Dawid–Skene's, from labels alone"
VERSIONS = ("torch", "numpy", "scipy", "scikit-learn", "pandas", "pillow")


@dataclass(frozen=True)
class Run:
    """What the results do not know of themselves.

    ``sources``: the files of labels. ``paths``, ``texts``: the items' images, or texts themselves, in the items' order;
    none for features. ``how``: terms and what they are. ``looks``: what images, features or texts were worth, in
    sentences. ``commands``: those that the next steps name, "ask" without what is to be spent. ``respelled``: what was
    read as something else than it was written; ``twins``: what may be one name.
    ``ordered``: whether the classes are.
    """

    sources: Sequence[str]
    items_from: str
    paths: Sequence[Path]
    how: Mapping[str, str]
    command: str
    commands: Mapping[str, str] = field(default_factory=dict)
    respelled: Sequence[str] = ()
    twins: Sequence[Twins] = ()
    left_out: Sequence[str] = ()
    looks: Sequence[str] = ()
    ordered: bool = False
    texts: Sequence[str] = ()

    @property
    def thing(self) -> str:
        """What there is of an item but its labels."""
        return "image" if self.paths else "text" if self.texts else "features"

    @property
    def things(self) -> str:
        return self.thing if self.thing.endswith("s") else f"{self.thing}s"


def describe(clf: CrowdClassifier, encoder: str | None) -> dict[str, str]:
    """``encoder``: what the user called it, None where it was chosen."""
    learner = clf.learner_again()
    method = find(learner.name)
    settings = ", ".join(f"{name} = {_plain(value)}" for name, value in _numbers(clf.settings_).items())
    versions = ", ".join(f"{name} {version(name)}" for name in VERSIONS)
    return {
        "Method": f"{method.name}: {method.summary}" + (BY_OTHERS if isinstance(learner, Compared) else ""),
        "Encoder": f"{encoder or 'chosen by the items'}: {_encoder(clf.encoder_)}",
        "Settings": f"{settings or 'none'}; seed {clf.seed}",
        "Versions": f"crowdshot {__version__}, {versions}, Python {platform.python_version()}",
    }


def _encoder(encoder: Encoder) -> str:
    if "about" in encoder.card:
        return str(encoder.card["about"])
    fed = "" if encoder.input is None else f" for {encoder.input.describe()}"
    trained_on, learned_from = encoder.card.get("trained_on"), encoder.card.get("source", {}).get("learned_from")
    part = f"{learned_from:,} of " if learned_from else ""  # the others validated and tested it
    return f"{encoder.architecture or 'a network'}{fed}" + (f", trained on {part}{trained_on}" if trained_on else "")


def _numbers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The prior on confusion matrices by its name and numbers; all else as it is."""
    if "c" not in settings:
        return dict(settings)
    card = priors.to_card(priors.Priors(tau=settings["tau"], b=settings["b"], c=settings["c"]))
    prior = card.pop("confusion")
    kind, numbers = prior.pop("kind"), ", ".join(f"{name} {value:.3g}" for name, value in prior.items())
    return {**settings, **card, "c": f"{kind} ({numbers})"}


def _plain(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# ---- deciding ------------------------------------------------------------
#
# What the page's script needs so that a reader can accept or correct labels and take them away as known truth.


MOST_KNOWN = 10_000  # true labels that were given before and stand in the page, so that they are downloaded too


def decisions(basis: Basis, shown: list[int]) -> dict[str, Any]:
    """``store``: by which the browser knows these items again, in the next round too.

    ``items``: the ids of the items shown, and ``labels``, what is believed of each; names are as in the labels.
    ``known``: pairs of items and their truth as given.
    """
    ids = [str(name) for name in basis.annotations.items]
    known = basis.clf.gold_.iloc[:MOST_KNOWN, :2].astype(str).to_numpy().tolist()
    return {
        "store": hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()[:16],
        "classes": [str(name) for name in basis.annotations.classes],
        "items": [ids[i] for i in shown],
        "labels": [int(basis.label[i]) for i in shown],
        "known": known,
    }


# ---- facts ------------------------------------------------------------


@dataclass(frozen=True)
class Facts:
    """``people``: those first whose interval ends lowest, so that few labels do not make a bad one.

    ``items``: those that need a person at one threshold or another. ``everyone_asked``: the confidence of those about
    which nobody is left to ask. ``sheets``: their files of feedback, by
    annotator. ``crowd`` (K, K) [true, said]: all answers. ``pictures``, ``texts``: by item.
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
    items: list[Item]
    asked: Asked
    everyone_asked: Floats
    curves: list[Curve]
    people: list[Person]
    agreement: list[Statistic]
    class_facts: list[Class]
    odd: list[Odd]
    crowd: Floats
    confusions: list[Confusion]
    map: Map
    sheets: dict[int, str]
    pictures: dict[int, Picture]
    texts: dict[int, str]
    decisions: dict[str, Any]

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @property
    def n_unlabelled(self) -> int:
        return self.n_items - self.n_labelled

    @property
    def flagged(self) -> list[Person]:
        return [person for person in self.people if person.flag or person.alike]

    def accepted(self, confidence: float = THRESHOLD) -> Level:
        return at(self.levels, confidence)

    def of_kind(self, confidence: float = THRESHOLD) -> dict[str, int]:
        """How many items there are of each kind that needs a person, shown or not."""
        level = self.accepted(confidence)
        return {
            "open": self.n_labelled - level.labelled,
            "overruled": level.overruled,
            "unlabelled": self.n_unlabelled - level.unlabelled,
        }

    def by_itself(self, confidence: float = THRESHOLD) -> ByItself | None:
        """What the classifier may label without anybody, so that it is right in so many of all cases."""
        return by_itself(self.levels, confidence, self.n_unlabelled, self.check.of) if self.check else None

    def verdict(self, confidence: float = THRESHOLD) -> str:
        return verdict(self.by_itself(confidence), confidence, self.n_unlabelled) if self.check else self.why_unchecked


def gather(clf: CrowdClassifier, embeddings: Tensor, run: Run) -> Facts:
    """A fitted classifier and the embeddings (N, D) that it was fitted with -> what there is to say."""
    basis = Basis(clf, embeddings)
    why_unchecked = diagnostics.why_not(clf, embeddings)
    wanted = need_a_person(basis)
    check = None if why_unchecked else diagnostics.leave_out(clf, embeddings, wanted)
    everyone = sorted(people(basis), key=lambda person: person.high)
    examples = choose_examples(basis)
    crowd = confusion_of(everyone, len(clf.classes_))
    levels = count_levels(basis, check)
    n_labelled, everyone_asked = int(basis.labelled.sum()), with_everyone_asked(basis)
    mistakes = [example.row for person in everyone[:PICTURED] for example in person.examples[:EXAMPLES_EACH]]
    shown = sorted({*wanted, *mistakes, *(i for pair in examples for some in pair for i in some)})
    return Facts(
        run=run,
        classes=[clean(name) for name in clf.classes_],
        n_items=len(basis.label),
        n_labelled=n_labelled,
        n_labels=basis.annotations.n_labels,
        levels=levels,
        check=check.when_sure() if check else None,
        why_unchecked=why_unchecked,
        gold=gold_labels.agreement(clf.gold_),
        items=in_detail(basis, wanted, check, run.thing),
        asked=ask_next(basis, to_ask(n_labelled - at(levels).labelled, everyone_asked)[2]),
        everyone_asked=everyone_asked,
        curves=curves(basis),
        people=everyone,
        agreement=statistics(basis.annotations, run.ordered),
        class_facts=describe_classes(basis, check, examples),
        odd=find_odd(basis),
        crowd=crowd,
        confusions=most_confused(crowd),
        map=draw_map(basis, run.paths),
        sheets=file_names(everyone),
        pictures=thumbnails({i: run.paths[i] for i in shown}) if run.paths else {},
        texts={i: excerpt(run.texts[i]) for i in shown} if run.texts else {},
        decisions=decisions(basis, wanted),
    )
