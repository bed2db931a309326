"""How far the report's estimate of what a classifier gets right on new items is from the truth, on real digits.

    python benchmarks/new_items.py [--problems 12]

Ten classes of scikit-learn's digits, 3 or 10 images of each, labelled by the demo's seven annotators (an expert, five
middling ones, a spammer), of whom 1, 3 or 5 label each image. The estimate is the report's: all labels of a tenth of
the images are hidden, ten times over, and what is then said of these counts as far as it is believed. "New" is what is
right of 500 other images. Once by the default for images, once with pixels as feature vectors.
"""

import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits

from crowdshot import CrowdClassifier
from crowdshot.classifier.cross_check import leave_out
from crowdshot.commands.demo import draw_problem

SIZES = [(shots, labels) for shots in (3, 10) for labels in (1, 3, 5)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=12)
    n = parser.parse_args().problems
    torch.set_num_threads(1)
    digits = load_digits()
    truth = digits.target.astype(np.int64)
    kinds = {"images": digits.images / 16, "pixels": digits.data / 16}
    embedded = {name: CrowdClassifier().embed(X) for name, X in kinds.items()}
    print("items a class, labels an item   " + "   ".join(f"{name}: estimate    new" for name in kinds))
    for shots, labels in SIZES:
        found = {name: [] for name in kinds}
        for seed in range(n):
            problem = draw_problem(truth, seed, shots, labels)
            support, new, ann = problem.support, problem.query, problem.annotations
            for name, X in kinds.items():
                clf = CrowdClassifier()
                clf.encoder_ = clf.choose_encoder(X)
                clf.fit_embeddings(embedded[name][support], ann, items=ann.items)
                check = leave_out(clf, embedded[name][support])
                found[name].append((check.when_sure().share, clf.score(X[new], truth[new])))
        means = {name: np.mean(pairs, axis=0) for name, pairs in found.items()}
        told = "   ".join(f"{'':{len(name) + 1}} {a:8.3f} {b:6.3f}" for name, (a, b) in means.items())
        print(f"{shots:13} {labels:14}   {told}", flush=True)


if __name__ == "__main__":
    main()
