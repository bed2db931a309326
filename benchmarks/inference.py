"""Measure time and memory of the learned aggregation, for many small crowds at once and for one large crowd.

    OMP_NUM_THREADS=1 python benchmarks/inference.py [--most 1000000] [--device cuda]

Small crowds are episodes of 40 items, 5 annotators and 4 classes in a batch, with torch (as in training). Large crowds
have 4 classes, 5 labels per item and at most 50,000 annotators, with NumPy in double precision, each size in a process
of its own, compared with the one-coin model's EM on the same labels (20 steps).
"""

import argparse
import resource
import time
from multiprocessing import get_context

import numpy as np
import pandas as pd
import torch
from rows import markdown

from crowdshot import Annotations, aggregate
from crowdshot.model import label_model
from crowdshot.model.label_model import shipped_network
from crowdshot.training.simulated_crowds import Crowds
from crowdshot_paper.label_model_training import total, training_problem

ITEMS, ANNOTATORS, CLASSES, LABELS_AN_ITEM = 40, 5, 4, 5


def episodes(G: int, device: str) -> Crowds:
    """Draw G episodes in which every annotator labels every item."""
    random = torch.Generator().manual_seed(0)
    item = torch.arange(G * ITEMS).repeat_interleave(ANNOTATORS)
    annotator = (item // ITEMS) * ANNOTATORS + torch.arange(ANNOTATORS).repeat(G * ITEMS)
    truth = torch.randint(CLASSES, (G * ITEMS,), generator=random)
    anything = torch.randint(CLASSES, (len(item),), generator=random)
    label = torch.where(torch.rand(len(item), generator=random) < 0.7, truth[item], anything)
    of_item, of_annotator = (torch.arange(G).repeat_interleave(n) for n in (ITEMS, ANNOTATORS))
    tensors = (each.to(device) for each in (item, annotator, label, truth, of_item, of_annotator))
    return Crowds(*tensors, n_classes=CLASSES, n_crowds=G)


def small(G: int, device: str) -> dict[str, object]:
    network = {
        name: torch.tensor(value, dtype=torch.float32, device=device) for name, value in shipped_network().items()
    }
    crowds = episodes(G, device)
    seconds = []
    for _ in range(4):
        began = time.perf_counter()
        with torch.inference_mode():
            score = label_model.infer(training_problem(crowds), network, torch, total)[-1]
        float(score.sum())  # waits for the device
        seconds.append(time.perf_counter() - began)
    best = min(seconds[1:])
    return {"episodes at once": G, "on": device, "ms an episode": 1000 * best / G, "episodes a second": round(G / best)}


def large(L: int) -> dict[str, object]:
    random = np.random.default_rng(0)
    N, R = L // LABELS_AN_ITEM, min(50_000, max(20, L // 200))
    item = np.repeat(np.arange(N), LABELS_AN_ITEM)
    truth = random.integers(CLASSES, size=N)
    label = np.where(random.random(len(item)) < 0.7, truth[item], random.integers(CLASSES, size=len(item)))
    annotator = random.integers(R, size=len(item))
    names = {"items": np.arange(N), "annotators": np.arange(R), "classes": np.arange(CLASSES)}
    ann = Annotations(item=item, annotator=annotator, label=label, **names)
    took = []
    for way in (lambda: aggregate.one_coin(ann, steps=20, tolerance=0), lambda: aggregate.learned(ann)):
        began = time.perf_counter()
        way()
        took.append(time.perf_counter() - began)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"labels": f"{L:,}", "one-coin, s": took[0], "learned, s": took[1], "ratio": took[1] / took[0], "GB": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1_000_000, help="labels of the largest crowd")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(markdown(pd.DataFrame([small(G, args.device) for G in (1, 100, 1_000)]), digits=2))
    sizes = [L for L in (10_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000) if args.most >= L]
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        print(markdown(pd.DataFrame(pool.map(large, sizes, chunksize=1)), digits=2))


if __name__ == "__main__":
    main()
