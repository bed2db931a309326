"""The crowd's verdict that a candidate asks for: what follows takes it as soft labels, targets or weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from crowdshot.model.votes import dawid_skene, majority_vote


def believe(labels: Tensor, n_classes: int, candidate: Mapping[str, Any]) -> Tensor:
    """Dawid–Skene where the candidate has a number of steps, else the majority vote; ``hard`` keeps the likeliest."""
    if candidate.get("steps") is None:
        return majority_vote(labels, n_classes)
    belief = dawid_skene(labels, n_classes, candidate["steps"])
    if candidate.get("hard"):
        belief = F.one_hot(belief.argmax(-1), n_classes).to(belief) * (belief.sum(-1, keepdim=True) > 0)
    return belief
