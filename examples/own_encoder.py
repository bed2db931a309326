"""Use your own network as encoder: any function from items to vectors, here a small network trained on other digits."""

import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from crowdshot import CrowdClassifier

out = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
rng = np.random.default_rng(0)
digits = load_digits()
known, new = digits.target < 5, digits.target >= 5

# The network is trained on 0 to 4 and used for 5 to 9. In your project, use any network you have.
network = MLPClassifier((64,), max_iter=300, random_state=0).fit(digits.data[known], digits.target[known])


def encoder(items):
    """Return the hidden layer, (n, 64), of images (n, 8, 8)."""
    flat = np.asarray(items, dtype=float).reshape(len(items), -1)
    return np.maximum(flat @ network.coefs_[0] + network.intercepts_[0], 0)


images, truth = digits.images[new], digits.target[new]
chosen = np.concatenate([np.flatnonzero(truth == k)[:8] for k in range(5, 10)])
labels = np.where(rng.random((len(chosen), 3)) < 0.7, truth[chosen, None], rng.integers(5, 10, (len(chosen), 3)))

clf = CrowdClassifier(encoder=encoder).fit(images[chosen], labels)
rest = np.setdiff1d(np.arange(len(truth)), chosen)
print(f"labels right: {(labels == truth[chosen, None]).mean():.2f}")
print(f"consensus right: {(clf.consensus_['label'] == truth[chosen]).mean():.2f}")
print(f"new items right: {clf.score(images[rest], truth[rest]):.2f}")

# The same vectors, computed in advance, as in a table of features.
features = CrowdClassifier(encoder="identity").fit(encoder(images[chosen]), labels)
same = (features.predict(encoder(images[rest])) == clf.predict(images[rest])).mean()
print(f"the same from features: {same:.2f} of the predictions")
out.mkdir(parents=True, exist_ok=True)
np.savez(out / "features.npz", features=encoder(images))
