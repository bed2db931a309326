"""Compare estimates of the confidence of single labelled items by the labeling search.

    python benchmarks/item_confidence.py [--problems 12]

The data are the ten classes of scikit-learn's digits, with and without noise that makes images less informative, and
labels of the demo's seven annotators, some of whom label each image. The estimates are shares of 32 and 256 labelings,
and the posterior of each item given all others. Prints, for the consensus of the labelled images: accuracy, calibration
error (ten bins), mean negative log-probability of the truth, the number of items with 99 % confidence, and their
accuracy.
"""

import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits

from crowdshot import CrowdClassifier, labelings
from crowdshot._cli.demo import draw_problem

SIZES = [(3, 3), (3, 5), (5, 2), (10, 3)]
NOISE = {"as they are": 0.0, "with noise": 0.5}
SURE = 0.99


def summary(probabilities, truth):
    confidence, right = probabilities.max(1), probabilities.argmax(1) == truth
    where = np.minimum((confidence * 10).astype(int), 9)
    error = np.abs(np.bincount(where, right - confidence, 10)).sum() / len(truth)
    loss = -np.log(probabilities[np.arange(len(truth)), truth].clip(1e-6)).mean()
    sure = confidence >= SURE
    return f"{right.mean():.3f} {error:11.3f} {loss:8.2f} {sure.sum():5d} {right[sure].mean():6.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=12)
    n = parser.parse_args().problems
    torch.set_num_threads(1)
    digits = load_digits()
    truth = digits.target.astype(np.int64)
    print(f"{'digits, items per class, labels per item, method':58} right calibration  log-loss  sure  right")
    for kind, noise in NOISE.items():
        images = digits.images / 16 + noise * np.random.default_rng(0).normal(size=digits.images.shape)
        base = CrowdClassifier()
        embeddings = base.embed(images.clip(0, 1))
        settings = base.encoder_.card["labelings"]
        for shots, per_item in SIZES:
            found = {"shares of 32 labelings": [], "shares of 256": [], "each item given the others, 32": []}
            known = []
            for seed in range(n):
                problem = draw_problem(truth, seed, shots, per_item)
                support, ann = problem.support, problem.annotations
                if len(np.unique(ann.label)) < ann.n_classes:
                    continue
                known.append(truth[support])
                u, labels = embeddings[support], ann.to_tensor()
                fits = [labelings.fit(u, labels, ann.n_classes, **{**settings, "width": w}) for w in (32, 256)]
                posteriors = [
                    fits[0].responsibilities,
                    fits[1].responsibilities,
                    labelings.item_posteriors(fits[0], labels),
                ]
                for part, posterior in zip(found.values(), posteriors, strict=True):
                    part.append(posterior.double().numpy())
            for name, parts in found.items():
                place = f"{kind}, {shots}, {per_item}, {name}"
                print(f"{place:58} {summary(np.concatenate(parts), np.concatenate(known))}", flush=True)


if __name__ == "__main__":
    main()
