"""Measure the time of one fit by items, annotators and classes, for the default, the labeling search and EM.

    python benchmarks/fitting.py [--device cuda] [--most 5000] [--episodes 10000]

Features are 64 normal numbers around the class mean, every annotator is right with probability 0.7, and an item has 5
labels. The default always runs on the CPU; the search and EM run on the device. "Loops" is a plain implementation of
the search with loops over lists (``tests/plain_labelings.py``), for sizes at which it ends in reasonable time. The last
rows show batches: many episodes of 40 items × 5 annotators × 4 classes in one call.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import torch

from crowdshot import labelings, mixture
from crowdshot.classifier.crowd_classifier import CrowdClassifier

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from plain_labelings import Problem

D, LABELS = 64, 5
SIZES = [(n, r, k) for n in (40, 200, 1_000, 5_000) for r, k in ((5, 4), (20, 4), (20, 20))]
SEARCHED = 1_000  # items at most
LOOPED = 4_000  # items × annotators × classes at most


def problem(N, R, K, B=(), seed=0):
    """Return items (*B, N, D) and labels (*B, N, R); -1 is a missing label."""
    g = torch.Generator().manual_seed(seed)
    truth = torch.randint(K, (*B, N), generator=g)
    centres = torch.randn(K, D, generator=g)
    right = torch.rand(*B, N, R, generator=g) < 0.7
    said = torch.where(right, truth[..., None], torch.randint(K, (*B, N, R), generator=g))
    asked = torch.rand(*B, N, R, generator=g).argsort(-1).argsort(-1) < LABELS
    return centres[truth] + torch.randn(*B, N, D, generator=g), torch.where(asked, said, -1)


def timed(run, device, least=0.5):
    """Return the mean seconds of the calls that fit into half a second, after one call to warm up."""

    def wait():
        if device != "cpu":
            torch.cuda.synchronize()

    run()
    wait()
    start, times = time.perf_counter(), 0
    while times < 1 or time.perf_counter() - start < least:
        run()
        wait()
        times += 1
    return (time.perf_counter() - start) / times


def shown(seconds):
    return "–" if seconds is None else f"{seconds * 1e3:,.1f}" if seconds < 1 else f"{seconds * 1e3:,.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--most", type=int, default=5_000, help="items")
    parser.add_argument("--episodes", type=int, default=200)
    given = parser.parse_args()
    device = given.device
    torch.set_num_threads(1)
    where = "one core" if device == "cpu" else torch.cuda.get_device_name()
    print(f"{where}, load {os.getloadavg()[0]:.1f}; ms of one fit")
    print("| items | annotators | classes | default | items a second | search | EM | search as loops |")
    print("|---|---|---|---|---|---|---|---|")
    for N, R, K in SIZES:
        if given.most < N:
            continue
        x, y = problem(N, R, K)
        clf = CrowdClassifier("identity")
        embedded, labels = clf.embed(x.numpy()), y.numpy()
        default = timed(lambda: clf.fit_embeddings(embedded, labels), "cpu")  # noqa: B023
        x, y = x.to(device), y.to(device)
        search = timed(lambda: labelings.fit(x, y, K), device) if N <= SEARCHED else None  # noqa: B023
        em = timed(lambda: mixture.fit(x, y, K, track=False), device)  # noqa: B023
        looped = None
        if N * R * K <= LOOPED and device == "cpu":
            plain = Problem(x, y, K, labelings.SCALE, labelings.TAU)
            looped = timed(lambda: plain.search(range(N), labelings.WIDTH), "cpu", least=0)  # noqa: B023
        row = N, R, K, shown(default), f"{N / default:,.0f}", shown(search), shown(em), shown(looped)
        print("| " + " | ".join(f"{each:,}" if isinstance(each, int) else each for each in row) + " |", flush=True)
    x, y = (each.to(device) for each in problem(40, 5, 4, (given.episodes,)))
    for name, fit in (("labelings.fit", labelings.fit), ("mixture.fit", mixture.fit)):
        seconds = timed(lambda: fit(x, y, 4), device, least=0)  # noqa: B023
        print(
            f"{name}: {given.episodes:,} episodes of 40 × 5 × 4 in one call: {given.episodes / seconds:,.0f} a second"
        )


if __name__ == "__main__":
    main()
