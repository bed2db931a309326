"""Measure how long adapting to new problems takes on one core: one classifier at a time, and episodes in a batch.

    python benchmarks/adapting.py [--episodes 10000]

Problems have 40 items, 5 annotators, 4 classes and 64 dimensions. `mixture.fit` with two EM steps is compared in a
batch, once per episode, and with a plain implementation with loops over classes and annotators. The labeling search is
compared with the mixture's EM on the same problems, and with a plain implementation with loops over lists
(``tests/plain_labelings.py``) on fewer items.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch

from crowdshot import labelings, mixture
from crowdshot.classifier.crowd_classifier import CrowdClassifier

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from plain_labelings import Problem

N, R, K, D = 40, 5, 4, 64


def looped(u, y, steps=2):
    """Run EM for one episode with loops over classes and annotators."""
    votes = torch.nn.functional.one_hot(y, K).float()
    lam = votes.mean(1)
    for _ in range(steps):
        means = torch.stack([(lam[:, k : k + 1] * u).sum(0) / (1 + lam[:, k].sum()) for k in range(K)])
        pi = (lam.sum(0) + 100) / (len(u) + 100 * K)
        log_joint = -0.5 * torch.stack([(u - m).square().sum(1) for m in means], 1) + pi.log()
        for r in range(R):
            alpha = (lam.T @ votes[:, r] + 1) / (lam.sum(0)[:, None] + K)
            log_joint = log_joint + votes[:, r] @ alpha.log().T
        lam = log_joint.softmax(1)
    return lam


def plain(u, y, width=8):
    problem = Problem(u, y, K, labelings.SCALE, labelings.TAU)
    return problem.search(range(len(u)), width)


def timed(run, times):
    run()
    start = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - start) / times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=10_000)
    n_episodes = parser.parse_args().episodes
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(0)
    u, y = torch.randn(n_episodes, N, D, generator=g), torch.randint(K, (n_episodes, N, R), generator=g)
    same = mixture.fit(u[0], y[0], K, steps=2).responsibilities
    assert torch.allclose(same, looped(u[0], y[0]), atol=1e-4)

    def batched():
        for part, labels in zip(u.split(500), y.split(500), strict=True):
            mixture.fit(part, labels, K, steps=2, track=False)

    rows = [
        ("loops over classes and annotators", timed(lambda: looped(u[0], y[0]), 50)),
        ("mixture.fit, one episode", timed(lambda: mixture.fit(u[0], y[0], K, steps=2, track=False), 100)),
        (f"mixture.fit, {n_episodes:,} episodes in batches of 500", timed(batched, 1) / n_episodes),
    ]
    few = u[:200], y[:200]
    larger = torch.randn(200, D, generator=g), torch.randint(10, (200, 20), generator=g)
    found = labelings.fit(*larger, 10)
    rows += [
        ("labelings.fit, one episode", timed(lambda: labelings.fit(u[0], y[0], K), 50)),
        ("labelings.fit, 200 episodes in one batch", timed(lambda: labelings.fit(*few, K), 1) / 200),
        ("labelings.fit, 200 items × 20 annotators × 10 classes", timed(lambda: labelings.fit(*larger, 10), 5)),
        ("labelings.item_posteriors of these", timed(lambda: labelings.item_posteriors(found, larger[1]), 5)),
        ("labelings as loops, 12 items, 8 labelings", timed(lambda: plain(u[0, :12], y[0, :12]), 1)),
        ("labelings.fit, the same", timed(lambda: labelings.fit(u[0, :12], y[0, :12], K, width=8), 50)),
    ]
    print(f"{'one core, 40 items × 5 annotators':55s} {'ms/episode':>14s} {'per second':>10s} {'ratio':>7s}")
    for name, seconds in rows:
        print(f"{name:55s} {seconds * 1e3:14.3f} {1 / seconds:10,.0f} {rows[0][1] / seconds:7.2g}")

    features, labels = u[0].numpy(), np.asarray(y[0])
    for name, scale in (("CrowdClassifier.fit_embeddings, scale given", 1.0), ("… scale chosen from the labels", None)):
        clf = CrowdClassifier("identity", method="ours", settings={"scale": scale})
        embeddings = clf.embed(features)
        seconds = timed(lambda: clf.fit_embeddings(embeddings, labels), 20)  # noqa: B023
        print(f"{name:55s} {seconds * 1e3:14.3f} {1 / seconds:10,.0f}")


if __name__ == "__main__":
    main()
