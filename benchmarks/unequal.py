"""Compare methods for labels only if one class dominates: vote, one-coin, and the default with and without class sizes.

    python benchmarks/unequal.py [--crowds 30] [--seed 9000]

There are 300 items and ten annotators with an accuracy of 0.6 to 0.9; errors are uniform over the other classes; 1, 2,
3 or 5 annotators label each item. Prints the accuracy; ties of the vote are broken at random. Seeds below 9000 were
used in development.
"""

import argparse

import numpy as np

from crowdshot import Annotations, aggregate
from crowdshot.labels.aggregation import _label_model
from crowdshot.model.label_model import network_of

SHAPES = {"90, 5, 3 and 2 in a hundred": (0.9, 0.05, 0.03, 0.02), "4, 20 : 1": 20 ** -np.linspace(0, 1, 4)}
SHAPES |= {"10, 20 : 1": 20 ** -np.linspace(0, 1, 10), "4, equal": np.ones(4)}
N, R = 300, 10


def draw(random, weights, each):
    """Return annotations and the truth (N,)."""
    K = len(weights)
    truth = random.choice(K, size=N, p=np.asarray(weights) / np.sum(weights))
    other = (truth[:, None] + random.integers(1, K, (N, R))) % K
    said = np.where(random.random((N, R)) < random.uniform(0.6, 0.9, R), truth[:, None], other)
    said[np.arange(N)[:, None], random.permuted(np.tile(np.arange(R), (N, 1)), axis=1)[:, each:]] = -1
    return Annotations.from_matrix(said, classes=range(K)), truth


def right(ann, truth):
    votes = aggregate.majority_vote(ann).probabilities
    lead = votes == votes.max(1, keepdims=True)
    ways = (aggregate.one_coin(ann), _label_model(ann, None, network_of(None), power=1.0), aggregate.learned(ann))
    return [(lead[np.arange(N), truth] / lead.sum(1)).mean(), *((way.labels == truth).mean() for way in ways)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crowds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=9000)
    given = parser.parse_args()
    print("| classes | labels per item | vote | one-coin | ours, sizes not moved | ours |\n|---|---|---|---|---|---|")
    for name, weights in SHAPES.items():
        for each in (1, 2, 3, 5):
            seeds = range(given.seed, given.seed + given.crowds)
            found = np.mean([right(*draw(np.random.default_rng(seed), weights, each)) for seed in seeds], 0)
            print(f"| {name} | {each} | {' | '.join(f'{x:.3f}' for x in found)} |", flush=True)


if __name__ == "__main__":
    main()
