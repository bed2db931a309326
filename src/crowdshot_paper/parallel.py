"""Spreads pieces of work over devices: in this process, in one process for each device, or over a Ray cluster."""

from __future__ import annotations

import logging
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import torch

from crowdshot.encoders.networks import choose_device
from crowdshot.errors import CrowdshotError
from crowdshot.io.atomic import end_with_parent
from crowdshot.progress import Tick

Work = Callable[..., None]


def devices(text: str) -> list[str]:
    """ "cuda:0,cpu*2" -> ["cuda:0", "cpu", "cpu"]; "auto" is a GPU where there is one."""
    found: list[str] = []
    for word in text.split(","):
        name, star, times = word.strip().partition("*")
        if star and (not times.isdecimal() or int(times) == 0):
            raise CrowdshotError(f"device is {text!r}, expected devices like cuda, cuda:0,cuda:1 or cpu*4.")
        found += [str(choose_device(name))] * (int(times) if star else 1)
    return found


def run_all(work: Work, jobs: Sequence[tuple[Any, ...]], devices: Sequence[str], tick: Tick) -> None:
    """``work(*job, device)`` for every job; one device works here, several in a process each.

    When a job fails, those that have begun are finished and the rest is left.
    """
    if len(devices) == 1 or not jobs:
        for done, job in enumerate(jobs, start=1):
            work(*job, devices[0])
            tick(done, len(jobs))
        return
    context = multiprocessing.get_context("spawn")
    free = context.SimpleQueue()
    for device in devices:
        free.put(device)
    with ProcessPoolExecutor(len(devices), context, initializer=_take_device, initargs=(free,)) as pool:
        waiting = [pool.submit(_work_here, work, job) for job in jobs]
        try:
            for done, finished in enumerate(as_completed(waiting), start=1):
                finished.result()
                tick(done, len(jobs))
        except BrokenProcessPool:
            raise CrowdshotError(
                f"one of the {len(devices)} processes was killed, perhaps for want of memory, expected all to end by "
                "themselves; what is finished is kept: start again, with fewer devices."
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_device = "cpu"


def _take_device(free: Any) -> None:
    global _device
    _device = free.get()
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches all of us: end without a word
    end_with_parent()


def _work_here(work: Work, job: tuple[Any, ...]) -> None:
    work(*job, _device)


def run_all_on_ray(work: Work, jobs: Sequence[tuple[Any, ...]], devices: Sequence[str], tick: Tick) -> None:
    """The same over a Ray cluster that is there, or a local one with a worker for each of ``devices``.

    What one worker has is the first device. Paths in jobs must mean the same on every machine.
    """
    try:
        import ray  # an extra
    except ImportError:
        raise CrowdshotError("Ray is not installed, expected by ray=True; pip install 'crowdshot[ray]'.") from None
    if not ray.is_initialized():
        _join_cluster(ray, len(devices))
    device = devices[0]
    remote = ray.remote(num_cpus=1, num_gpus=1 if device.startswith("cuda") else 0)(_work_there)
    waiting = [remote.remote(work, job, device) for job in jobs]
    done = 0
    while waiting:
        ready, waiting = ray.wait(waiting)
        try:
            ray.get(ready)
        except ray.exceptions.RayError as error:
            for job in waiting:
                ray.cancel(job)
            reason = next(iter(str(error).splitlines()), "")
            lost = CrowdshotError(f"Ray has lost a worker ({reason}), expected all to end by themselves; start again.")
            raise getattr(error, "cause", lost) from None
        done += len(ready)
        tick(done, len(jobs))


def _join_cluster(ray: Any, workers: int) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        ray.init(address="auto", **quiet)
    except ConnectionError:
        ray.init(num_cpus=workers, include_dashboard=False, **quiet)


def _work_there(work: Work, job: tuple[Any, ...], device: str) -> None:
    torch.set_num_threads(1)
    work(*job, device)
