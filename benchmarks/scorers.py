"""Compare estimates of a classifier's accuracy from a crowd's labels with the true accuracy.

    python benchmarks/scorers.py --data ../shared/data --keep runs/features

The classifiers are fitted to the same crowd by three-fold cross-validation, as scorers are used: `CrowdClassifier`, and
logistic regression on majority votes. Problems are those of `reality_features.py`. Prints bias, mean absolute error
and, for `crowdshot.metrics.estimate_accuracy`, how often the truth is within its limits.
"""

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import reality_features
import sources
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from crowdshot import CrowdClassifier, aggregate, metrics

FEWEST = 30  # labelled items
REAL = ("leaves", "labelme:lite0", "cifar10s:lite0")
SIMULATED = ("digits", "wine", "cancer", "made")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--keep", type=Path, required=True, help="folder that caches embeddings")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--every", type=int, default=3, help="use one scenario in so many of the simulated ones")
    options = parser.parse_args()
    torch.set_num_threads(1)
    scenarios = [each for each in reality_features.scenarios() if not each.stray]
    chosen = [each for each in scenarios if each.source in REAL]
    chosen += [each for each in scenarios if each.source in SIMULATED][:: options.every]
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = [row for each in chosen for seed in range(options.seeds) for row in measure(each, seed, options)]
    show(pd.DataFrame(rows))


def measure(scenario: reality_features.Scenario, seed: int, options: argparse.Namespace) -> Iterator[dict[str, object]]:
    problem = reality_features.draw(scenario, sources.load(scenario.source, options.data, options.keep), 100 + seed)
    ann, rows = problem.annotations, np.unique(problem.annotations.item)
    if len(rows) < FEWEST:
        return
    posterior = aggregate.learned(ann).probabilities
    for name, fit_predict in (("CrowdClassifier", by_crowd), ("regression on votes", by_votes)):
        p = np.zeros((ann.n_items, ann.n_classes))
        for train, test in KFold(3, shuffle=True, random_state=0).split(p):
            p[test] = fit_predict(problem, train, test)
        predicted = p.argmax(1)
        true = (predicted == problem.truth)[rows].mean()
        found = metrics.estimate_accuracy(ann.classes[predicted], ann, p)
        source = scenario.source + (", noise" if scenario.noise else "")
        yield {
            "group": "simulated annotators" if scenario.kind else source,
            "classifier": name,
            "agreement with the consensus": (posterior.argmax(1) == predicted)[rows].mean() - true,
            "low": found.low - true,
            "estimate": found.estimate - true,
            "high": found.high - true,
            "within": found.low <= true <= found.high,
        }


def by_crowd(problem: reality_features.Problem, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    ann = problem.annotations
    clf = CrowdClassifier(encoder="identity")
    clf.fit(problem.items[train], ann.select_items(ann.items[train]), items=ann.items[train].tolist())
    return clf.predict_proba(problem.items[test])


def by_votes(problem: reality_features.Problem, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    votes = problem.annotations.vote_counts()
    label, p = votes[train].argmax(1), np.full((len(test), votes.shape[1]), 1e-9)
    if len(np.unique(label)) == 1:
        p[:, label[0]] = 1
        return p
    clf = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=500)).fit(problem.items[train], label)
    p[:, clf.classes_] = clf.predict_proba(problem.items[test])
    return p / p.sum(1, keepdims=True)


def show(table: pd.DataFrame) -> None:
    groups = table.groupby(["group", "classifier"])
    columns = ["agreement with the consensus", "low", "estimate", "high"]
    print("bias\n", groups[columns].mean().round(3).to_string())
    print("mean absolute error\n", groups[columns].agg(lambda error: error.abs().mean()).round(3).to_string())
    print("all\n", table[columns].abs().mean().round(3).to_string())
    print("truth within limits\n", groups["within"].agg(["mean", "size"]).round(2).to_string())


if __name__ == "__main__":
    main()
