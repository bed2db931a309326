"""Classes in order: near misses are likelier than far ones, to the classifier as to labels alone."""

import numpy as np
import pandas as pd

from crowdshot import Annotations, CrowdClassifier, aggregate
from crowdshot.commands import fit_from_files
from crowdshot.commands.given import ItemFiles, LabelFiles

CLASSES = ["low", "medium", "high"]
random = np.random.default_rng(0)
truth = random.integers(3, size=60)
far = np.where(random.random((60, 4)) < 0.6, 0, random.choice([-1, 1], (60, 4)))  # by how much they miss
LABELS = np.array(CLASSES, dtype=object)[(truth[:, None] + far).clip(0, 2)]
X = truth[:, None] + random.normal(size=(60, 3))


def fit(**options):
    return CrowdClassifier("identity").fit(X, LABELS, classes=CLASSES, **options)


def test_labels_count_as_they_do_alone():
    said = Annotations.from_matrix(LABELS, classes=CLASSES)
    for ordered in (False, True):
        by_labels = aggregate.learned(said, ordered=ordered).probabilities
        np.testing.assert_allclose(fit(ordered=ordered).fit_.alone, by_labels, atol=1e-9)
    assert np.abs(fit(ordered=True).belief_ - fit().belief_).max() > 0.01  # else this would show nothing


def test_it_is_kept_in_the_file_and_by_updates(tmp_path):
    clf = fit(ordered=True)
    clf.save(tmp_path / "clf.safetensors")
    loaded = CrowdClassifier.load(tmp_path / "clf.safetensors")
    more = {0: {0: "high", 1: "high"}}
    np.testing.assert_allclose(loaded.update(more).belief_, clf.update(more).belief_, atol=1e-6)
    assert loaded.known_.ordered


def test_adapt_takes_it_from_its_option(tmp_path):
    rows = [(f"i{i}", f"a{r}", LABELS[i, r]) for i in range(60) for r in range(4)]
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(tmp_path / "labels.csv", index=False)
    table = pd.DataFrame(X, columns=["x", "y", "z"])
    table.insert(0, "item", [f"i{i}" for i in range(60)])
    table.to_csv(tmp_path / "features.csv", index=False)
    labels = LabelFiles((tmp_path / "labels.csv",), ordered=tuple(CLASSES))
    fitted = fit_from_files.fit(labels, ItemFiles(features=tmp_path / "features.csv"))
    np.testing.assert_allclose(fitted.clf.belief_, fit(ordered=True).belief_, atol=1e-5)
