"""Meta-training of MAML (`crowdshot.methods.maml`): as everywhere, with gradient steps in the place of EM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from crowdshot.encoders.stack import pure_stack
from crowdshot.episodes.crowd_labels import Batch
from crowdshot.model import votes
from crowdshot.model.gradient_steps import classify
from crowdshot.training.trainer import Trainer, only_in_use


class MAMLTrainer(Trainer):
    """G models, each with its own step size. A recipe's EM steps and priors are not used."""

    def stacked(self, modules: Sequence[nn.Module]) -> Any:
        return pure_stack(modules)

    def log_proba(self, batch: Batch, repeat: int = 1) -> Tensor:
        support, query = (self.as_input(items) for items in (batch.support, batch.query))
        targets = votes.soft_vote(batch.labels, self.recipe.ways[1])
        weights = {name: self._repeated(value, repeat) for name, value in self.stack.named_parameters()}
        networks = self.stack if repeat == 1 else pure_stack([self.jobs[0].encoder.module] * len(support)).to(support)
        with torch.autocast(self.device.type, torch.bfloat16, self.precision == "bfloat16", cache_enabled=False):
            found = classify(networks, weights, support, targets, query, self.step_sizes.repeat_interleave(repeat))
        return only_in_use(found, batch.classes_in_use)

    def _repeated(self, value: Tensor, repeat: int) -> Tensor:
        """A parameter of G models side by side, each ``repeat`` times."""
        each = value.view(self.size, -1, *value.shape[1:])
        return each.repeat_interleave(repeat, 0).flatten(0, 1).view(-1, *value.shape[1:])
