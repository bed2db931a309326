"""Compare two ways to aggregate answers that name several labels: each set as a class, or each label separately.

    python benchmarks/sets.py [--problems 5]

Simulated data: every label applies to a third of the items and adds a direction to 16 features; annotators are right
about each label with probability 0.85, and three of six answer each item. Prints the share of items with an entirely
correct set, for the labelled items and for 200 new ones.
"""

import argparse
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from crowdshot import CrowdClassifier, read_labels
from crowdshot.labels.aggregation import aggregate_labels
from crowdshot.labels.spelling import members

SHAPES = ((60, 3, 1.0), (60, 5, 1.0), (200, 5, 1.0), (200, 8, 1.0), (200, 8, 3.0))  # items, labels, noise of features
PEOPLE, ANSWERS, RIGHT, NEW = 6, 3, 0.85, 200
SETS = {"method": "learned", "settings": {"several": True}}


def problem(seed, N, M, noise):
    """Return features and true sets, (N + NEW, M), of which the first N are labelled; and a table of labels."""
    random = np.random.default_rng(seed)
    truth = random.random((N + NEW, M)) < 0.35
    truth[np.arange(N + NEW), random.integers(M, size=N + NEW)] |= ~truth.any(1)
    x = 2 * truth @ random.normal(size=(M, 16)) + noise * random.normal(size=(N + NEW, 16))
    rows = []
    for item in range(N):
        for who in random.choice(PEOPLE, ANSWERS, replace=False):
            said = truth[item] ^ (random.random(M) > RIGHT)
            said[random.integers(M)] |= not said.any()
            rows.append((item, who, ";".join(f"l{k}" for k in np.flatnonzero(said))))
    return x.astype(np.float32), truth, pd.DataFrame(rows, columns=["item", "annotator", "label"])


def right(sets, truth):
    return (
        (members(list(sets), np.array([f"l{k}" for k in range(truth.shape[1])], dtype=object)) == truth).all(1).mean()
    )


def one(seed, N, M, noise, folder):
    x, truth, table = problem(seed, N, M, noise)
    table.to_csv(folder / "labels.csv", index=False)
    read = read_labels(folder / "labels.csv", multi_label=True)
    ann = read.annotations
    row = ann.items.astype(int)
    found = [ann.n_classes, right(aggregate_labels(read, ann).consensus.labels, truth[row])]
    for how in ({"method": "learned"}, SETS):
        clf = CrowdClassifier("identity", **how).fit(x[row], ann, items=ann.items)
        found += [right(clf.consensus_["label"], truth[row]), right(clf.predict(x[N:]), truth[N:])]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=5)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| items | labels | noise | sets named | labels alone | sets as classes | new | a label at a time | new |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for N, M, noise in SHAPES:
            found = np.mean([one(seed, N, M, noise, Path(folder)) for seed in range(args.problems)], 0)
            shares = " | ".join(f"{share:.2f}" for share in found[1:])
            print(f"| {N} | {M} | {noise:g} | {found[0]:.0f} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
