"""A Ray cluster as workers: each actor keeps to its share of the parts, what all are given is sent to a machine once.

The folder of results must be one that all machines see. An actor that dies is replaced, and its task done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from crowdshot.engine.workers import TRIES
from crowdshot.errors import CrowdshotError


class Actors:
    """``n`` actors of one core each, on the cluster that Ray finds, or else on this machine."""

    def __init__(self, n: int) -> None:
        try:
            import ray  # an extra
        except ImportError:
            raise CrowdshotError(
                "engine is 'ray', which is not installed, expected 'local'; pip install 'crowdshot[ray]' adds it."
            ) from None
        self.ray, self.n = ray, n
        self.began = not ray.is_initialized()
        if self.began:
            ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
        self.actor: Any = ray.remote(num_cpus=1)(Actor)
        self.actors: list[Any] = [self.actor.remote() for _ in range(n)]

    def each(self, function: Callable[..., Any], tasks: Sequence[Any], *given: Any) -> Iterator[tuple[int, Any]]:
        shared = self.ray.put(given)
        waiting = list(enumerate(tasks))[::-1]
        running: dict[Any, tuple[int, int, Any]] = {}  # reference -> who does which task
        free = list(range(self.n))
        deaths = 0
        while waiting or running:
            while waiting and free:
                place, task = waiting.pop()
                who = free.pop(0)
                running[self.actors[who].call.remote(function, task, shared)] = (who, place, task)
            (done,), _ = self.ray.wait(list(running))
            who, place, task = running.pop(done)
            free.append(who)
            try:
                result = self.ray.get(done)
            except self.ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except self.ray.exceptions.RayError as error:
                deaths += 1
                if deaths == TRIES:
                    reason = str(error).splitlines()[0]
                    raise CrowdshotError(f"engine lost {TRIES} actors ({reason}), expected them to live.") from None
                self.actors[who] = self.actor.remote()
                waiting.append((place, task))
                continue
            yield place, result

    def close(self) -> None:
        for actor in self.actors:
            self.ray.kill(actor)
        if self.began:
            self.ray.shutdown()


class Actor:
    def call(self, function: Callable[..., Any], task: Any, given: tuple[Any, ...]) -> Any:
        return function(task, *given)
