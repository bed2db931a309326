"""Classes that are sets of labels, "cat;dog": a yes/no question for each label, learned as `learned` has it.

Taken for classes of their own, sets would share nothing: of eight labels there are 255, most of them rare. So each
label is learned from all items, and the probability of a set is that of all its answers together, among the sets that
somebody named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from crowdshot.classifier.contract import Fitted, Learned, untouched
from crowdshot.classifier.known import Known
from crowdshot.classifier.learned import Believed, ByLooks
from crowdshot.encoders.encoder import Encoder
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotators import expected_confusion
from crowdshot.labels.choices import members, names_of
from crowdshot.labels.positions import Positions
from crowdshot.labels.yes_no import NO_YES

SEVERAL = "several"  # the setting of Learned that says so
LEAST = -700.0  # of a logarithm, so that answers that are ruled out can be added up


@dataclass(frozen=True, eq=False)
class Answered:
    """What is left of a problem of S sets. A `contract.Fitted`."""

    has: Tensor  # (S, M): 1 where a set has a label, of the labels that tell sets apart
    questions: tuple[Believed, ...]  # M of them, of no and yes
    class_probs: Tensor  # (S,)
    confusion: Tensor  # (R, S, S)

    @property
    def responsibilities(self) -> Tensor:
        """(N, S)"""
        return _together(self.has, [question.responsibilities.log() for question in self.questions]).exp()

    def log_proba(self, queries: Tensor, /) -> Tensor:
        return _together(self.has, [question.log_proba(queries) for question in self.questions])


def _together(has: Tensor, answers: list[Tensor]) -> Tensor:
    """M times (n, 2), logarithms of no and yes -> (n, S)"""
    no, yes = torch.stack(answers).clamp_min(LEAST).unbind(-1)
    has = has.to(no)
    return ((1 - has) @ no + has @ yes).T.log_softmax(-1)


@dataclass(frozen=True)
class BySets(ByLooks):
    """Learns as this module says; the encoder may be any."""

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder, known: Known) -> Learned:
        sets = annotations.classes.astype(str)
        has = members(sets, names_of(sets))
        has = has[:, ~has.all(0)]  # a label that all sets have is no question
        asked = [_question(annotations, known, one.astype(np.int64)) for one in has.T]
        one_label = ByLooks(self.seed)
        questions = tuple(cast(Believed, one_label.learn(x, ann, encoder, told).fit) for ann, told in asked)
        of_sets = torch.from_numpy(has.astype(np.float64))
        belief = _together(of_sets, [question.responsibilities.log() for question in questions]).exp()
        sizes = belief[torch.from_numpy(known.rows_of(annotations))].mean(0)
        confusion = torch.from_numpy(expected_confusion(annotations, belief.numpy(), known.history))
        return Learned(self.name, Answered(of_sets, questions, sizes, confusion), {SEVERAL: True}, *untouched(x))

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> Fitted:
        def part(start: str) -> dict[str, Tensor]:
            return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}

        questions = (Believed(**part(f"questions.{number}.")) for number in range(tensors["has"].shape[1]))
        return Answered(tensors["has"], tuple(questions), tensors["class_probs"], tensors["confusion"])


def _question(annotations: Annotations, known: Known, has: Positions) -> tuple[Annotations, Known]:
    """The same crowd, asked whether items have a label; has (S,): 1 where a set has it."""
    said = known.pred_probs
    said = None if said is None else np.stack([said @ (1 - has), said @ has], 1)
    told = replace(known, gold=np.where(known.gold < 0, -1, has[known.gold]), pred_probs=said, ordered=False)
    return replace(annotations, label=has[annotations.label], classes=NO_YES), told
