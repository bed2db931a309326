"""Find the right labels of photographs that two or three of 59 real annotators have labelled.

With LabelMe's files (docs/datasets.md) in a folder: `python examples/photographs.py out/ data/`. Without them the
script uses coloured patches and simulated annotators, so that it runs anywhere; the results are then meaningless.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from crowdshot import CrowdClassifier, CrowdshotError
from crowdshot.labels import aggregation
from crowdshot.labels.annotations import Annotations
from crowdshot_paper.datasets import load_dataset

out = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
rng = np.random.default_rng(0)


def labelme(folder):
    """Return ten pictures (N, 84, 84, 3) of each of eight scenes, labels (N, annotators), truth (N,)."""
    pool = load_dataset("labelme", folder).pool
    pictures = pool.examples[:, :10].flatten(0, 1).permute(0, 2, 3, 1).numpy()
    labels = pool.crowd_labels[:, :10].flatten(0, 1).numpy()
    return pictures, labels[:, (labels >= 0).any(0)], np.repeat(np.arange(len(pool.names)), 10)


def simulated():
    """Return coloured patches of four classes, and labels of eight people, three for each patch."""
    truth = np.repeat(np.arange(4), 10)
    colours = np.array([[200, 60, 60], [60, 180, 60], [60, 60, 200], [190, 170, 50]])
    pictures = colours[truth][:, None, None] + rng.normal(0, 60, (40, 84, 84, 3)) + rng.normal(0, 40, (40, 1, 1, 3))
    labels = np.full((40, 8), -1)
    for row, true in zip(labels, truth, strict=True):
        for person in rng.permutation(8)[:3]:
            row[person] = true if rng.random() < 0.4 + 0.07 * person else rng.integers(4)
    return pictures.clip(0, 255).astype(np.uint8), labels, truth


try:
    pictures, labels, truth = labelme(sys.argv[2] if len(sys.argv) > 2 else "data")
    print("LabelMe: real photographs, real annotators")
except CrowdshotError as absent:
    print(f"{absent}\nSimulated data are used instead; the results are meaningless.")
    pictures, labels, truth = simulated()

is_label = labels >= 0
print(
    f"{len(truth)} pictures, {is_label.any(0).sum()} annotators, {is_label.sum() / len(truth):.1f} labels per picture"
)
clf = CrowdClassifier().fit(pictures, labels)
alone = aggregation.majority_vote(Annotations.from_matrix(labels))
vote, with_pictures = (alone.labels == truth).mean(), (clf.consensus_["label"] == truth).mean()
print(f"right by vote {vote:.3f}, with the pictures {with_pictures:.3f}")
uncertain = clf.consensus_.nsmallest(3, "confidence")[["item", "label", "confidence"]]
print("check these yourself:")
print(uncertain.round(2).to_string(index=False))
out.mkdir(parents=True, exist_ok=True)
clf.consensus_.to_csv(out / "consensus.csv", index=False)
