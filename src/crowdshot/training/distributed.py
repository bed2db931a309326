"""Distribute a step's episodes over the processes that `torchrun` starts.

Every process holds the whole model and draws all random numbers, so the episodes of a step do not depend on the number
of processes. Batch statistics are not synchronised: every episode is normalised by its own statistics, as in a single
process. Running statistics move by the average over the step's episodes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from crowdshot.errors import CrowdshotError


@dataclass(frozen=True)
class Processes:
    """This process among ``size``."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes files and reports progress."""
        return self.rank == 0

    def share(self, n_episodes: int) -> range:
        """Return the indices of this process's episodes in a step."""
        if n_episodes % self.size:
            raise CrowdshotError(
                f"is {n_episodes}",
                argument="episodes",
                found=n_episodes,
                expected=f"a multiple of {self.size}, the number of processes",
            )
        return range(self.rank, n_episodes, self.size)

    def add_up(self, tensors: Iterable[Tensor]) -> None:
        """Sum each tensor over all processes, in place, with a single message."""
        if self.size > 1:
            tensors = list(tensors)
            joined = torch.cat([tensor.flatten() for tensor in tensors])
            dist.all_reduce(joined)
            for tensor, part in zip(tensors, torch.split(joined, [tensor.numel() for tensor in tensors]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process, so that all of them stop together."""
        if self.size == 1:
            return flag
        raised = torch.tensor(float(flag), device="cuda" if dist.get_backend() == "nccl" else "cpu")
        dist.all_reduce(raised)
        return bool(raised)


def join_world() -> Processes:
    """Join the process group that torchrun describes in the environment; without one, return a single process."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return Processes()
    if not dist.is_initialized():
        on_gpu = torch.cuda.is_available()
        if on_gpu:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if on_gpu else "gloo")
    return Processes(dist.get_rank(), dist.get_world_size())


def _ignore(*_: Any) -> None:
    pass


@contextmanager
def interruptions() -> Iterator[Callable[[], bool]]:
    """Catch the first Ctrl-C or SIGTERM in the block; the yielded function returns whether there was one.

    A second signal has its usual effect.
    """
    noted = False
    usual: dict[int, Any] = {}

    def note(number: int, _: Any) -> None:
        nonlocal noted
        noted = True
        signal.signal(number, usual[number])

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(ValueError):  # not in the main thread
                usual[number] = signal.signal(number, note)
        yield lambda: noted
    finally:
        for each, handler in usual.items():
            signal.signal(each, handler)
