"""Measure how often annotators who copy from each other are found, and how often innocent ones are reported.

    python benchmarks/copying.py DATA [--crowds 30] [--seed 500]

Simulated annotators have an accuracy of 60 to 95 %; for 30 % of the items, two of five annotators give the same wrong
label. In some crowds one annotator copies a share of another's labels. The second table measures the cost of several
annotators who give one person's labels: the accuracy of the consensus and its mean confidence. The third counts
reported pairs in the real crowds of DATA/truth-inference, for which nobody knows who copied.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from crowdshot.labels import aggregation
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.duplicate_annotators import FEWEST, compare_pairs

SHAPES = ((10, 50, 4, 10), (10, 100, 4, 10), (10, 100, 2, 10), (20, 300, 4, 5), (20, 300, 2, 5))
COPIED = (0.0, 0.7, 1.0)
GROUPS = ((5, 100, 4, 5, (1, 2, 3)), (10, 100, 4, 10, (1, 2, 3, 5)), (20, 300, 4, 5, (1, 2, 5, 10)))


def simulated(seed, R, N, K, labels_per_item, copied, copiers=1):
    """Return labels, in which the next few annotators copy from the first one, and the truth."""
    random = np.random.default_rng(seed)
    truth, decoy, right = random.integers(K, size=N), random.integers(K, size=N), random.uniform(0.6, 0.95, R)
    fooled = (random.random(N) < 0.3)[:, None] & (random.random((N, R)) < 0.4)
    said = np.where(random.random((N, R)) < right, truth[:, None], random.integers(K, size=(N, R)))
    said = np.where(fooled, decoy[:, None], said)
    said[random.random((N, R)).argsort(1) >= labels_per_item] = -1
    taken = (said[:, 0] >= 0) & (random.random(N) < copied)
    said[taken, 1 : 1 + copiers] = said[taken, :1]
    return Annotations.from_matrix(said, classes=range(K)), truth


def reported_pairs(ann):
    pairs = compare_pairs(ann, aggregation.learned(ann).probabilities)
    return pairs[pairs["shared"] >= FEWEST], pairs[pairs["stands_out"]]


def cost(R, N, K, labels, copies, seeds):
    """Return the mean accuracy, the mean confidence, and the number of crowds in which a copying pair is reported."""
    right, confidence, found = [], [], 0
    for seed in seeds:
        ann, truth = simulated(seed, R, N, K, labels, float(copies > 1), copies - 1)
        consensus = aggregation.learned(ann)
        pairs = compare_pairs(ann, consensus.probabilities)
        right.append((consensus.labels == truth).mean())
        confidence.append(consensus.probabilities.max(1).mean())
        found += bool((pairs["stands_out"] & (pairs["other"] < copies)).any())
    return np.mean(right), np.mean(confidence), found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--crowds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=500, help="first seed; seeds below 30 were used in development")
    args = parser.parse_args()
    seeds = range(args.seed, args.seed + args.crowds)
    print("annotators  items  classes  labels per item   copied  reported  crowds with an innocent pair")
    for R, N, K, labels in SHAPES:
        for copied in COPIED:
            found = innocent = 0
            for seed in seeds:
                _, out = reported_pairs(simulated(seed, R, N, K, labels, copied)[0])
                guilty = (out["one"] == 0) & (out["other"] == 1) & (copied > 0)
                found, innocent = found + int(guilty.any()), innocent + int((~guilty).any())
            reported = f"{found} of {args.crowds}" if copied else "-"
            print(f"{R:10d} {N:6d} {K:8d} {labels:16d} {copied:8.0%} {reported:>9s} {innocent:5d} of {args.crowds}")
    print("annotators  items  classes  labels per item      copies  accuracy  confidence   reported")
    for R, N, K, labels, groups in GROUPS:
        for copies in groups:
            right, confidence, found = cost(R, N, K, labels, copies, seeds)
            reported = f"{found} of {args.crowds}" if copies > 1 else "-"
            print(f"{R:10d} {N:6d} {K:8d} {labels:16d} {copies:11d} {right:9.2f} {confidence:11.2f} {reported:>10s}")
    for file in sorted((args.data / "truth-inference").glob("*.answers.csv")):
        ann = Annotations.from_frame(pd.read_csv(file, dtype=str), source=file.name)
        pairs, out = reported_pairs(ann)
        print(f"{file.name.removesuffix('.answers.csv'):12s} {len(out):4d} of {len(pairs):6,d} pairs reported")


if __name__ == "__main__":
    main()
