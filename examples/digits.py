"""Train a classifier from crowd labels: 30 handwritten digits, five annotators, one of whom guesses; 200 new digits."""

import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from crowdshot import CrowdClassifier

out = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
rng = np.random.default_rng(0)
digits = load_digits()
chosen = np.concatenate([np.flatnonzero(digits.target == k)[:3] for k in range(10)])
truth = digits.target[chosen]

# Ada is always right, Gus guesses, the others have an accuracy of 70 %. In your project, use your own labels.
skill = {"Ada": 1.0, "Ben": 0.7, "Cleo": 0.7, "Dan": 0.7, "Gus": 0.1}
right = rng.random((len(chosen), len(skill))) < list(skill.values())
labels = np.where(right, truth[:, None], rng.integers(0, 10, right.shape))

clf = CrowdClassifier().fit(digits.images[chosen], labels)

votes = np.array([np.bincount(row, minlength=10).argmax() for row in labels])
print(f"consensus right: {(clf.consensus_['label'] == truth).mean():.2f}, by vote {(votes == truth).mean():.2f}")
print("annotators, worst first:")
annotators = clf.annotators_.assign(annotator=list(skill)).sort_values("accuracy")
print(annotators[["annotator", "accuracy", "low", "high"]].round(2).to_string(index=False))
new = np.setdiff1d(np.arange(400), chosen)[:200]
print(f"accuracy on 200 digits without labels: {clf.score(digits.images[new], digits.target[new]):.2f}")
out.mkdir(parents=True, exist_ok=True)
clf.save(out / "digits.safetensors")
print(f"saved: {out / 'digits.safetensors'}")
