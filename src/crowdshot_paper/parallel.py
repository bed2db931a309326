"""Distribute jobs over devices: in this process, in one process per device, or on a Ray cluster."""

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
from crowdshot.extras import require
from crowdshot.io.atomic import end_with_parent
from crowdshot.progress import Tick

Work = Callable[..., None]


def devices(text: str) -> list[str]:
    """Return the devices of a list: "cuda:0,cpu*2" becomes ["cuda:0", "cpu", "cpu"]; "auto" prefers a GPU."""
    found: list[str] = []
    for word in text.split(","):
        name, star, times = word.strip().partition("*")
        if star and (not times.isdecimal() or int(times) == 0):
            expected = "devices like cuda, cuda:0,cuda:1 or cpu*4"
            raise CrowdshotError(f"is {text!r}", argument="device", found=text, expected=expected)
        found += [str(choose_device(name))] * (int(times) if star else 1)
    return found


def run_all(work: Work, jobs: Sequence[tuple[Any, ...]], devices: Sequence[str], tick: Tick) -> None:
    """Call ``work(*job, device)`` for every job, in this process or, with several devices, in one process per device.

    If a job fails, the running jobs are finished and the others are not started.
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
            message = f"One of the {len(devices)} processes was killed, possibly because memory ran out"
            hint = "Finished work is stored. Repeat the command with fewer devices to continue"
            raise CrowdshotError(message, argument="device", found=len(devices), hint=hint) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_device = "cpu"


def _take_device(free: Any) -> None:
    global _device
    _device = free.get()
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches all processes: end without a traceback
    end_with_parent()


def _work_here(work: Work, job: tuple[Any, ...]) -> None:
    work(*job, _device)


def run_all_on_ray(work: Work, jobs: Sequence[tuple[Any, ...]], devices: Sequence[str], tick: Tick) -> None:
    """Call ``work`` for every job on an existing Ray cluster, or on a local one with a worker per device.

    Every worker uses the first device. Paths in jobs must be valid on every machine.
    """
    require("ray", user="--on-ray")
    import ray

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
            hint = "Finished work is stored. Repeat the command to continue"
            lost = CrowdshotError(f"Ray has lost a worker ({reason})", hint=hint)
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
