"""Everything that the page says, computed; how it looks is `page.html`'s affair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from crowdshot.classifier import cross_check
from crowdshot.classifier.classifier import CrowdClassifier
from crowdshot.labels import known_truth
from crowdshot.labels.agreement import Statistic, statistics
from crowdshot.labels.belief import SETTLED, Share
from crowdshot.labels.known_truth import Agreement
from crowdshot.report.page.basis import Basis, Floats
from crowdshot.report.page.classes import (
    Class,
    Confusion,
    Odd,
    choose_examples,
    confusion_of,
    describe_classes,
    find_odd,
    most_confused,
)
from crowdshot.report.page.deciding import decisions
from crowdshot.report.page.how_made import Run
from crowdshot.report.page.items import Item, excerpt, in_detail, need_a_person
from crowdshot.report.page.levels import ByItself, Level, at, by_itself, count_levels, verdict
from crowdshot.report.page.map import Map, draw_map
from crowdshot.report.page.more_labels import Curve, curves
from crowdshot.report.page.next_steps import Asked, ask_next, to_ask, with_everyone_asked
from crowdshot.report.page.people import EXAMPLES_EACH, PICTURED, Person, file_names, people
from crowdshot.report.page.pictures import Picture, thumbnails
from crowdshot.wording import clean


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

    def settled(self, confidence: float = SETTLED) -> Level:
        return at(self.levels, confidence)

    def of_kind(self, confidence: float = SETTLED) -> dict[str, int]:
        """How many items there are of each kind that needs a person, shown or not."""
        level = self.settled(confidence)
        return {
            "open": self.n_labelled - level.labelled,
            "overruled": level.overruled,
            "unlabelled": self.n_unlabelled - level.unlabelled,
        }

    def by_itself(self, confidence: float = SETTLED) -> ByItself | None:
        """What the classifier may label without anybody, so that it is right in so many of all cases."""
        return by_itself(self.levels, confidence, self.n_unlabelled, self.check.of) if self.check else None

    def verdict(self, confidence: float = SETTLED) -> str:
        return verdict(self.by_itself(confidence), confidence, self.n_unlabelled) if self.check else self.why_unchecked


def gather(clf: CrowdClassifier, embeddings: Tensor, run: Run) -> Facts:
    """A fitted classifier and the embeddings (N, D) that it was fitted with -> what there is to say."""
    basis = Basis(clf, embeddings)
    why_unchecked = cross_check.why_not(clf, embeddings)
    wanted = need_a_person(basis)
    check = None if why_unchecked else cross_check.leave_out(clf, embeddings, wanted)
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
        gold=known_truth.agreement(clf.gold_),
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
