"""Compare the report's estimate of the accuracy on new items with the true accuracy, on real digits.

    python benchmarks/new_items.py [--problems 12]

The data are the ten classes of scikit-learn's digits, with 3 or 10 images of each, labelled by 1, 3 or 5 of the demo's
seven annotators (an expert, five of medium accuracy, a spammer). The estimate is the report's: it hides all labels of a
tenth of the images, ten times, and weights predictions for them by the posterior. "New" is the accuracy on 500 other
images. Images are used with the default encoder and as feature vectors of pixels. The last part is a table of three
columns that determine three classes for about 80 % of the items: 200 rows with 2.4 labels, and 1,000 new ones.
"""

import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits

from crowdshot import CrowdClassifier
from crowdshot._cli.demo import draw_problem
from crowdshot.classifier.diagnostics import leave_out

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
    print("items per class, labels per item " + "   ".join(f"{name}: estimate    new" for name in kinds))
    for shots, labels in SIZES:
        found = {name: [] for name in kinds}
        for seed in range(n):
            problem = draw_problem(truth, seed, shots, labels)
            support, new, ann = problem.support, problem.query, problem.annotations
            for name, X in kinds.items():
                clf = CrowdClassifier()
                clf.encoder_ = clf._choose_encoder(X)
                clf.fit_embeddings(embedded[name][support], ann, items=ann.items)
                check = leave_out(clf, embedded[name][support])
                found[name].append((check.when_sure().share, clf.score(X[new], truth[new])))
        means = {name: np.mean(pairs, axis=0) for name, pairs in found.items()}
        cells = "   ".join(f"{'':{len(name) + 1}} {a:8.3f} {b:6.3f}" for name, (a, b) in means.items())
        print(f"{shots:13} {labels:14}   {cells}", flush=True)
    found = np.array([of_table(np.random.default_rng(seed)) for seed in range(101, 113)])
    worst = found[(found[:, 0] - found[:, 1]).argmax()]
    print(
        "a table, twelve draws: estimate {:.3f}, new {:.3f};".format(*found.mean(0)),
        "at worst {:.3f}, {:.3f}".format(*worst),
    )


def of_table(random):
    """Return the estimate and the accuracy on new rows."""
    k = random.integers(3, size=1200)
    country = np.where(random.random(1200) < 0.6, k, random.integers(0, 4, 1200))
    month = np.clip(k + random.integers(0, 3, 1200), 0, 4)
    yes = random.random(1200) < 0.2 + 0.3 * k
    X = np.column_stack([np.eye(4)[country], np.eye(5)[month], yes]).astype(np.float32)
    right = random.random((200, 4)) < (0.9, 0.8, 0.75, 0.4)
    said = np.where(right, k[:200, None], (k[:200, None] + random.integers(1, 3, (200, 4))) % 3)
    said[random.random((200, 4)) >= 0.6] = -1
    kept = np.flatnonzero((said >= 0).any(1))
    clf = CrowdClassifier().fit(X[kept], said[kept])
    return leave_out(clf, clf.embed(X[kept])).when_sure().share, clf.score(X[200:], k[200:])


if __name__ == "__main__":
    main()
