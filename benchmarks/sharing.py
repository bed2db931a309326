"""Compare classifiers saved without labels with the originals: same predictions, and accuracy on new items.

    python benchmarks/sharing.py

Data of scikit-learn with five simulated annotators of accuracy 0.4 to 0.9, 30 % of the labels missing.
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.preprocessing import StandardScaler

from crowdshot import CrowdClassifier

ANNOTATORS = 5


def crowd(truth, n_classes, random):
    """Return labels (n, R) with gaps; every item has one at least."""
    skill = random.uniform(0.4, 0.9, ANNOTATORS)
    shape = (len(truth), ANNOTATORS)
    labels = np.where(random.random(shape) < skill, truth[:, None], random.integers(n_classes, size=shape)).astype(
        float
    )
    gaps = random.random(shape) < 0.3
    gaps[:, 0] &= ~gaps.all(1)
    labels[gaps] = np.nan
    return labels


def compare(name, clf, new, truth, folder):
    """Print one row."""
    clf.save(folder / "full.safetensors")
    clf.save(folder / "shared.safetensors", labels=False)
    p, q = clf.predict_proba(new), CrowdClassifier.load(folder / "shared.safetensors").predict_proba(new)
    same = (p.argmax(1) == q.argmax(1)).mean()
    before, after = ((clf.classes_[each.argmax(1)] == truth).mean() for each in (p, q))
    sizes = [(folder / f"{kind}.safetensors").stat().st_size // 1000 for kind in ("full", "shared")]
    print(
        f"{name:20} {clf.learner_:16} {same:.3f} the same; accuracy {before:.3f} {after:.3f};"
        f" mean difference {np.abs(p - q).mean():.4f}; {sizes[0]} and {sizes[1]} kB",
        flush=True,
    )


def main():
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name, data in {"wine": load_wine(), "cancer": load_breast_cancer(), "digits": load_digits()}.items():
            X = StandardScaler().fit_transform(data.data)
            for n in (24, 100, 140):
                order = random.permutation(len(X))
                known, new = order[:n], order[n:]
                labels = crowd(data.target[known], data.target.max() + 1, random)
                clf = CrowdClassifier("identity").fit(X[known], labels)
                compare(f"{name}, {n}", clf, X[new], data.target[new], folder)
        digits = load_digits()
        for n in (24, 60, 150, 400):
            order = random.permutation(len(digits.images))
            known, new = order[:n], order[n : n + 600]
            clf = CrowdClassifier().fit(digits.images[known], crowd(digits.target[known], 10, random))
            compare(f"digit images, {n}", clf, digits.images[new], digits.target[new], folder)


if __name__ == "__main__":
    main()
