"""Compare crowdshot with logistic regression on linearly separable classes, and on classes with two clusters.

    python benchmarks/planes.py [--draws 6] [--seed 100]

The class of an item is the one with the highest linear score; three of five annotators label it. Prints the accuracy on
new items of logistic regression on the vote, of crowdshot, and of logistic regression on crowdshot's consensus; and
crowdshot's over-confidence (mean confidence minus accuracy). Then the same for scikit-learn's ``make_classification``
with two clusters per class, for which none of our feature models is designed.
"""

import argparse
import warnings

import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from crowdshot import CrowdClassifier

NEW = 1_000  # items
EACH = 3  # labels per item
PLANES = [  # features, classes, labelled items, accuracies of annotators
    (30, 6, 600, 0.90, 0.98),
    (30, 6, 600, 0.70, 0.90),
    (40, 10, 1000, 0.80, 0.95),
    (20, 4, 300, 0.80, 0.95),
    (10, 3, 1000, 0.80, 0.95),
    (10, 3, 150, 0.70, 0.90),
]
CLUSTERS = [(500, 0.5, 0.9), (500, 0.8, 0.95)]


def answers(random, truth, K, low, high, annotators):
    """Return (n, annotators) labels; -1 is a missing label."""
    n = len(truth)
    right = random.random((n, annotators)) < random.uniform(low, high, annotators)
    said = np.where(right, truth[:, None], (truth[:, None] + random.integers(1, K, (n, annotators))) % K)
    said[np.arange(n)[:, None], random.permuted(np.tile(np.arange(annotators), (n, 1)), axis=1)[:, EACH:]] = -1
    return said


def votes(random, said, K):
    """Return (n,) majority votes; ties are broken at random."""
    counts = np.stack([(said == k).sum(1) for k in range(K)], 1)
    return (counts + 0.5 * random.random(counts.shape)).argmax(1)


def compare(random, X, truth, n, said, K):
    """Return the accuracy on new items of regression on votes, of ours and of regression on our consensus, and our
    over-confidence.
    """
    clf = CrowdClassifier().fit(X[:n], said)
    regressions = [
        LogisticRegression(max_iter=1_000).fit(X[:n], labels).score(X[n:], truth[n:])
        for labels in (votes(random, said, K), clf.consensus_["label"].to_numpy())
    ]
    p = clf.predict_proba(X[n:])
    right = (clf.classes_[p.argmax(1)] == truth[n:]).mean()
    return regressions[0], right, regressions[1], p.max(1).mean() - right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--seed", type=int, default=100, help="the first; 0 to 5 were looked at in development")
    given = parser.parse_args()
    seeds = range(given.seed, given.seed + given.draws)
    warnings.simplefilter("ignore")
    print("| problem | regression on votes | ours | regression on our consensus | too sure by |\n|---|---|---|---|---|")
    for D, K, n, low, high in PLANES:
        found = []
        for seed in seeds:
            random = np.random.default_rng(seed)
            X = random.normal(size=(n + NEW, D))
            truth = (X @ random.normal(size=(D, K))).argmax(1)
            found.append(compare(random, X, truth, n, answers(random, truth[:n], K, low, high, 5), K))
        show(f"{D} features, {K} classes, {n:,} items, annotators {low:.2f} to {high:.2f}", found)
    for n, low, high in CLUSTERS:
        found = []
        for seed in seeds:
            random = np.random.default_rng(seed)
            sizes = {"n_features": 20, "n_informative": 8, "n_classes": 5, "n_clusters_per_class": 2, "flip_y": 0}
            X, truth = make_classification(n + NEW, random_state=seed, **sizes)
            found.append(compare(random, X, truth, n, answers(random, truth[:n], 5, low, high, 8), 5))
        show(f"two clusters a class, {n:,} items, annotators {low:.2f} to {high:.2f}", found)


def show(problem, found):
    means = np.mean(found, 0)
    print(f"| {problem} | {means[0]:.3f} | {means[1]:.3f} | {means[2]:.3f} | {means[3]:+.3f} |", flush=True)


if __name__ == "__main__":
    main()
