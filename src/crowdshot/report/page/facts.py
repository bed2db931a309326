"""Everything that the page says, computed; how it looks is `page.html`'s affair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from crowdshot.classifier import cross_check
from crowdshot.classifier.classifier import CrowdClassifier
from crowdshot.classifier.cross_check import Check
from crowdshot.labels import known_truth
from crowdshot.labels.belief import SETTLED, Share
from crowdshot.labels.known_truth import Agreement
from crowdshot.report.page.basis import Basis
from crowdshot.report.page.classes import Class, choose_examples, describe_classes
from crowdshot.report.page.how_made import Run
from crowdshot.report.page.items import Item, in_detail, need_a_person
from crowdshot.report.page.map import Map, draw_map
from crowdshot.report.page.people import Person, people
from crowdshot.report.page.pictures import thumbnails
from crowdshot.wording import clean

LEVELS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)  # confidences to choose from
TRUSTED = 0.9  # so often right, surely, is right often enough


class Level(NamedTuple):
    """What is settled at a confidence, and how often the classifier agrees with the consensus when it is so sure."""

    confidence: float
    labelled: int
    unlabelled: int
    check: Share | None


@dataclass(frozen=True)
class Facts:
    """``people``: the flagged first, then those whose interval ends lowest, so that few labels do not make a bad one.

    ``n_of_kind``: how many items there are of each kind, shown or not.
    """

    run: Run
    classes: list[str]
    settled_at: float
    n_items: int
    n_labelled: int
    n_labels: int
    settled: int
    predicted_settled: int
    levels: list[Level]
    check: Share | None
    why_unchecked: str
    gold: Agreement
    items: list[Item]
    n_of_kind: dict[str, int]
    people: list[Person]
    class_facts: list[Class]
    map: Map

    @property
    def flagged(self) -> list[Person]:
        return [person for person in self.people if person.flag]

    @property
    def trusted(self) -> Level | None:
        """The lowest level at which the classifier is right often enough, by the lower end of the interval."""
        return next((level for level in self.levels if level.check and level.check.low >= TRUSTED), None)


def gather(clf: CrowdClassifier, embeddings: Tensor, run: Run) -> Facts:
    """A fitted classifier and the embeddings (N, D) that it was fitted with -> what there is to say."""
    basis = Basis(clf, embeddings)
    why_unchecked = cross_check.why_not(clf, embeddings)
    check = None if why_unchecked else cross_check.leave_out(clf, embeddings)
    everyone = sorted(people(basis), key=lambda person: (person.flag is None, person.high))
    wanted, n_of_kind = need_a_person(basis)
    examples = choose_examples(basis)
    shown = sorted({*wanted, *(i for pair in examples for some in pair for i in some)})
    pictures = dict(zip(shown, thumbnails([run.paths[i] for i in shown]), strict=True)) if run.paths else {}
    return Facts(
        run=run,
        classes=[clean(name) for name in clf.classes_],
        settled_at=SETTLED,
        n_items=len(basis.label),
        n_labelled=int(basis.labelled.sum()),
        n_labels=basis.annotations.n_labels,
        settled=int((basis.settled & basis.labelled).sum()),
        predicted_settled=int((basis.settled & ~basis.labelled).sum()),
        levels=[_level(basis, check, confidence) for confidence in LEVELS],
        check=check.when_sure() if check else None,
        why_unchecked=why_unchecked,
        gold=known_truth.agreement(clf.gold_),
        items=in_detail(basis, wanted, check, pictures),
        n_of_kind=n_of_kind,
        people=everyone,
        class_facts=describe_classes(basis, everyone, check, examples, pictures),
        map=draw_map(basis, run.paths),
    )


def _level(basis: Basis, check: Check | None, confidence: float) -> Level:
    sure = basis.confidence >= confidence
    return Level(
        confidence,
        int((sure & basis.labelled).sum()),
        int((sure & ~basis.labelled).sum()),
        check.when_sure(confidence) if check else None,
    )
