"""Try to calibrate new items without checked items, by how well the feature model predicts held-out labels. Not used.

    python benchmarks/temperature_from_labels.py --data ../shared/data [--leave-out cifar10h] [--draws 200]

Held-out predictions p of five folds are tempered by an exponent b such that they predict the labels best,

    sum_n log sum_k p_b(k | x_n) prod_r p(label_nr | k),   p(l | k) = a_r for l = k, (1 - a_r) / (K - 1) otherwise

where the accuracies a_r of annotators are fitted at the same time (EM, shrunk to their mean). The n labels of an item
count as n ** 0.5, items as n ** 0.7, and log b has a normal prior (standard deviation SPREAD). New items are tempered
by b ** SHARE. The same EM also gives posteriors of labelled items, which are averaged with ours.

Prints the measures of `calibrated.py` before and after, for the scenarios of `reality.py` B and for simulated problems
in which mistakes are independent ("none"), shared on random items ("items"), on items near another class ("near"), of
half of the classes ("class"), or of a cluster of a class ("cluster").
"""

import argparse
import warnings
from pathlib import Path
from typing import NamedTuple

import calibrated
import numpy as np
import pandas as pd
import reality_features
import sources
from measures import score
from reality_features import CONSENSUS, UNSEEN
from rows import markdown
from scipy.special import logsumexp, softmax
from threadpoolctl import threadpool_limits

from crowdshot.model import combined
from crowdshot.model.label_model import shipped_network

FOLDS, NEW, TURNS = 5, 500, 6
SPREAD, SHARE, MIXED = 0.35, 0.6, 0.3  # MIXED is the weight of the EM's posteriors in the consensus
EXPONENTS = np.exp(np.linspace(np.log(0.2), np.log(8), 41))
KINDS = ("none", "items", "cluster", "near", "class")
NETWORK = shipped_network()


class Labels(NamedTuple):
    """Labels as `crowdshot.Annotations` has them."""

    item: np.ndarray
    annotator: np.ndarray
    label: np.ndarray
    n_annotators: int
    n_classes: int

    def fit(self, x: np.ndarray, kept: np.ndarray | slice = slice(None)) -> combined.Joint:
        triples = self.item[kept], self.annotator[kept], self.label[kept]
        return combined.fit(x, *triples, self.n_annotators, self.n_classes, NETWORK)


def simulate(seed: int) -> tuple[str, np.ndarray, Labels, np.ndarray, np.ndarray, np.ndarray]:
    """Return kind, features, labels, truth, features of new items, and their truth."""
    random = np.random.default_rng(70_000 + seed)
    K = int(random.choice([2, 2, 2, 3, 3, 4, 5, 6, 8, 10, 15]))
    n = max(int(np.exp(random.uniform(np.log(15), np.log(700)))), 2 * K)
    sizes = np.ones(K) if random.random() < 0.6 else np.geomspace(1, 1 / random.uniform(3, 20), K)
    truth = random.choice(K, n + NEW, p=sizes / sizes.sum())
    C, D = int(random.choice([1, 1, 1, 2, 3])), int(np.exp(random.uniform(np.log(3), np.log(100))))
    centres = random.normal(size=(K, C, D)) * random.uniform(0.5, 5) * np.sqrt(min(D, random.uniform(1, 12)) / D)
    cluster = random.integers(C, size=n + NEW)
    scale = np.exp(random.uniform(0, 0.8) * random.normal(size=D))
    x = centres[truth, cluster] + random.normal(size=(n + NEW, D)) * scale
    R = int(np.exp(random.uniform(np.log(3), np.log(60))))
    per_item = int(min(R, random.choice([1, 2, 2, 3, 3, 4, 5, 10])))
    mean, strength = random.uniform(0.5, 0.95), random.uniform(5, 60)
    accuracy = np.maximum(random.beta(mean * strength, (1 - mean) * strength, R), 1 / K)
    if random.random() < 0.4:
        accuracy[: round(random.uniform(0, 0.4) * R)] = 1 / K
    t, kind, pull = truth[:n], KINDS[random.integers(len(KINDS))], random.uniform(0.3, 0.9)
    said = np.where(random.random((n, R)) < accuracy, t[:, None], (t[:, None] + random.integers(1, K, (n, R))) % K)
    other, hard = (t + random.integers(1, K, n)) % K, np.zeros(n, bool)
    if kind == "items":
        hard = random.random(n) < random.uniform(0.05, 0.35)
    elif kind == "cluster":
        hard, other = (cluster[:n] == 0) & (t < max(1, K // 3)), (t + 1) % K
    elif kind == "class":
        hard, other, pull = t < max(1, K // 2), (t + 1) % K, pull / 2
    elif kind == "near":
        far = np.stack([((x[:n, None] - of_class) ** 2).sum(-1).min(1) for of_class in centres], 1)
        own = far[np.arange(n), t].copy()
        far[np.arange(n), t] = np.inf
        other, gap = far.argmin(1), far.min(1) - own
        hard = gap < np.quantile(gap, random.uniform(0.05, 0.35))
    said = np.where(hard[:, None] & (random.random((n, R)) < pull), other[:, None], said)
    asked = random.random((n, R)).argsort(1)[:, :per_item].ravel()
    item = np.repeat(np.arange(n), per_item)
    annotator = np.unique(asked, return_inverse=True)[1]
    labels = Labels(item, annotator, said[item, asked], int(annotator.max()) + 1, K)
    return kind, x[:n], labels, t, x[n:], truth[n:]


def held_out(x: np.ndarray, labels: Labels) -> np.ndarray:
    part = np.random.default_rng(0).permutation(len(x)) % FOLDS
    p = np.full((len(x), labels.n_classes), 1 / labels.n_classes)
    for number in range(FOLDS):
        hidden, kept = part == number, part[labels.item] != number
        if len(np.unique(labels.label[kept])) > 1:
            p[hidden] = labels.fit(x, kept).posterior[hidden]
    return p


def exponent(p: np.ndarray, posterior: np.ndarray, labels: Labels) -> tuple[float, np.ndarray]:
    """Return b, and the posteriors of the EM."""
    (n, K), item, annotator, label = p.shape, labels.item, labels.annotator, labels.label
    weight = (np.bincount(item, minlength=n).clip(1) ** -0.5)[item]
    tempered = np.stack([np.log(softmax(b * np.log(p.clip(1e-12)), 1).clip(1e-300)) for b in EXPONENTS])
    prior, q, best = -((np.log(EXPONENTS) / SPREAD) ** 2) / 2, posterior, 0
    number = np.bincount(annotator, minlength=labels.n_annotators)
    for _ in range(TURNS):
        right = q[item, label]
        mean = (right.sum() + 2) / (len(right) + 3)
        a = ((np.bincount(annotator, right, len(number)) + 5 * mean) / (number + 5)).clip(1 / K / 2, 0.99)
        evidence = np.zeros((n, K))
        np.add.at(evidence, (item, label), weight * (np.log(a) - np.log((1 - a) / (K - 1)))[annotator])
        best = int((logsumexp(tempered + evidence, axis=2).sum(1) * n**-0.3 + prior).argmax())
        q = softmax(tempered[best] + evidence, 1)
    return float(EXPONENTS[best]), q


def measure(about: dict, x, labels: Labels, truth, new, new_truth) -> list[dict]:
    joint = labels.fit(x)
    rows = np.unique(labels.item)
    posterior, truth = joint.posterior[rows], truth[rows]
    p = held_out(x, labels)
    b = exponent(p, joint.posterior, labels)[0]
    q = (
        exponent(softmax(np.log(joint.unmet.clip(1e-12)), 1), posterior, labels)[1]
        if len(rows) == len(x)
        else posterior
    )
    mixed = softmax(np.log(posterior.clip(1e-12)) * (1 - MIXED) + np.log(q.clip(1e-12)) * MIXED, 1)
    found = [(CONSENSUS, "before", posterior, truth), (CONSENSUS, "after", mixed, truth)]
    if len(new):
        unseen = joint.forecast(new)
        after = softmax(b**SHARE * np.log(unseen.clip(1e-12)), 1)
        found += [(UNSEEN, "before", unseen, new_truth), (UNSEEN, "after", after, new_truth)]
    return [{**about, "of": of, "when": when, "checked": 0, **score(p, right)} for of, when, p, right in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--draws", type=int, default=200, help="simulated problems")
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="SOURCE")
    parser.add_argument("--keep", type=Path, default=Path("runs/reality"), help="where features are kept")
    parser.add_argument("--out", type=Path, default=Path("results/calibrated"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for scenario in reality_features.scenarios():
        if scenario.source.split(":")[0] in options.leave_out:
            continue
        problem = reality_features.draw(scenario, sources.load(scenario.source, options.data, options.keep), 0)
        ann = problem.annotations
        labels = Labels(ann.item, ann.annotator, ann.label, ann.n_annotators, ann.n_classes)
        about = {"world": "B", "scenario": scenario.name, "group": scenario.group}
        rows += measure(about, problem.items.astype(float), labels, problem.truth, problem.unseen, problem.unseen_truth)
    for seed in range(options.draws):
        kind, *problem = simulate(seed)
        rows += measure({"world": "simulated", "scenario": str(seed), "group": kind}, *problem)
    table = pd.DataFrame(rows)
    options.out.mkdir(parents=True, exist_ok=True)
    table.round(4).to_parquet(options.out / "from-labels.parquet", index=False)
    for world, part in table.groupby("world"):
        print(f"{world}\n\n{markdown(calibrated.summary(part))}\n")
        columns = ["accuracy", "log_loss", "over", "settled_right"]
        print(markdown(part.groupby(["of", "group", "when"], sort=False)[columns].mean().reset_index()), flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
