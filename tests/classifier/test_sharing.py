"""`save(path, labels=False)`: a file that predicts, without items, labels and annotators."""

import json

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from sklearn.datasets import load_digits, load_wine
from sklearn.preprocessing import StandardScaler

from crowdshot import CrowdClassifier, CrowdshotError
from forked import crowdshot

WINE = load_wine()
FEATURES = StandardScaler().fit_transform(WINE.data).astype(np.float32)
RANDOM = np.random.default_rng(0)
ROWS = RANDOM.permutation(len(FEATURES))[:90]
PEOPLE = ["Zenobia", "Yolanda", "Xaver", "Wilfried"]
ITEMS = [f"patient-{n:04}" for n in range(90)]
NAMES = np.array(["barbera", "barolo", "grignolino"], dtype=object)


def said(truth, names, random):
    right = random.random((len(truth), len(PEOPLE))) < 0.75
    labels = names[np.where(right, truth[:, None], random.integers(len(names), size=right.shape))]
    labels[random.random(labels.shape) < 0.2] = None
    return labels


LABELS = pd.DataFrame(said(WINE.target[ROWS], NAMES, RANDOM), columns=PEOPLE, index=ITEMS)
X = pd.DataFrame(FEATURES[ROWS], index=ITEMS)
DIGITS = load_digits()
IMAGES = RANDOM.permutation(len(DIGITS.images))[:40]
SAID_OF_IMAGES = said(DIGITS.target[IMAGES], np.array([f"digit {k}" for k in range(10)], dtype=object), RANDOM)


def leaks(content, rows):
    """Return the rows (n, D) of which four numbers in a row are in the file, in either precision."""
    found = []
    for row in np.asarray(rows):
        parts = [row[start : start + 4] for start in range(0, len(row) - 3, 4)]
        parts = [part for part in parts if np.unique(part).size == 4]
        found += [row for part in parts for kind in ("<f4", "<f8", "<f2") if part.astype(kind).tobytes() in content]
    return found


@pytest.mark.parametrize("settings", [{}, {"method": "ours"}, {"method": "paper"}], ids=str)
def test_the_bytes_have_nothing_of_items_and_annotators(settings, tmp_path):
    clf = CrowdClassifier("identity", **settings)
    clf.fit(X, LABELS, gold={ITEMS[0]: NAMES[0]}, priors={PEOPLE[0]: (40, 10)})
    full, shared = tmp_path / "full.safetensors", tmp_path / "shared.safetensors"
    clf.save(full)
    clf.save(shared, labels=False)
    embedded = clf.embeddings_.numpy()
    standard = (embedded - embedded.mean(0)) / embedded.std(0)
    for word in (*PEOPLE, *ITEMS[:5]):
        assert word.encode() in full.read_bytes()
        assert word.encode() not in shared.read_bytes()
    assert leaks(full.read_bytes(), embedded)
    assert not leaks(shared.read_bytes(), embedded)
    assert not leaks(shared.read_bytes(), standard)
    with safe_open(shared, "np") as file:
        assert not {90, 89} & {size for name in file.keys() for size in file.get_slice(name).get_shape()}  # noqa: SIM118
        card = json.loads(file.metadata()["crowdshot"])
    assert (card["items"], card["annotators"], card["classes"]) == ([], [], NAMES.tolist())


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"method": "labeling-search"}, {"method": "features"}], ids=str)
def test_images(settings, tmp_path):
    clf = CrowdClassifier(**settings).fit(
        DIGITS.images[IMAGES], SAID_OF_IMAGES, classes=[f"digit {k}" for k in range(11)]
    )
    clf.save(tmp_path / "shared.safetensors", labels=False)
    embedded = clf.embeddings_.numpy()
    assert not leaks((tmp_path / "shared.safetensors").read_bytes(), embedded)
    shared = CrowdClassifier.load(tmp_path / "shared.safetensors")
    new = np.setdiff1d(np.arange(400), IMAGES)
    p, q = clf.predict_proba(DIGITS.images[new]), shared.predict_proba(DIGITS.images[new])
    assert (p.argmax(1) == q.argmax(1)).mean() > 0.95
    assert np.abs(p - q).mean() < 0.01
    assert (q[:, 10] == 0).all()  # nobody named it


def test_predictions_are_nearly_the_same_and_all_else_is_refused(tmp_path):
    path, others = tmp_path / "shared.safetensors", np.setdiff1d(np.arange(len(FEATURES)), ROWS)
    for method, tolerance in (("auto", 0.05), ("ours", 1e-12)):
        clf = CrowdClassifier("identity", method=method).fit(X, LABELS)
        clf.save(path, labels=False)
        assert len(clf.consensus_) == 90  # the classifier itself keeps everything
        shared = CrowdClassifier.load(path)
        new = FEATURES[others]
        np.testing.assert_allclose(shared.predict_proba(new), clf.predict_proba(new), atol=tolerance)
        assert (shared.predict(new) == clf.predict(new)).mean() > 0.98
    shared.save(tmp_path / "again.safetensors")
    again = CrowdClassifier.load(tmp_path / "again.safetensors")
    np.testing.assert_array_equal(again.predict_proba(new), shared.predict_proba(new))
    for name in ("consensus_", "annotators_", "label_proba_", "confusion_", "gold_", "likely_wrong_", "outliers_"):
        with pytest.raises(CrowdshotError, match="without labels"):
            getattr(shared, name)
    with pytest.raises(CrowdshotError, match="without labels"):
        shared.explain(0)
    with pytest.raises(CrowdshotError, match="without labels"):
        shared.update({"new": {PEOPLE[0]: NAMES[0]}})
    assert len(shared.fit(X, LABELS).consensus_) == 90


def test_methods_that_keep_their_items_are_refused(tmp_path):
    clf = CrowdClassifier("identity", method="LRMV").fit(X, LABELS)
    with pytest.raises(CrowdshotError) as error:
        clf.save(tmp_path / "shared.safetensors", labels=False)
    assert error.value.argument == "labels"
    assert not list(tmp_path.iterdir())


def test_the_labels_that_annotators_would_give(tmp_path):
    clf = CrowdClassifier("identity").fit(X, LABELS)
    new = FEATURES[:7]
    found, p, confusion = clf.predict_annotator_proba(new), clf.predict_proba(new), clf.confusion_
    assert found.shape == (7, 4, 3)
    np.testing.assert_allclose(found.sum(2), 1)
    for n, r, label in ((0, 0, 0), (3, 2, 1), (6, 3, 2)):
        assert found[n, r, label] == pytest.approx(sum(p[n, k] * confusion[r, k, label] for k in range(3)))
    # held-out labels are better predicted from it than from p(class | item), which is what nobody errs
    others = np.setdiff1d(np.arange(len(FEATURES)), ROWS)
    labels = said(WINE.target[others], NAMES, np.random.default_rng(1))
    place = {name: k for k, name in enumerate(NAMES)}
    cells = [(n, r, place[label]) for (n, r), label in np.ndenumerate(labels) if label is not None]
    n, r, label = np.array(cells).T
    annotators = np.log(clf.predict_annotator_proba(FEATURES[others])[n, r, label]).mean()
    assert annotators > np.log(clf.predict_proba(FEATURES[others])[n, label]).mean() + 0.1


@pytest.mark.slow
def test_the_command_shares_too(tmp_path):
    long = LABELS.rename_axis("item").reset_index().melt("item", var_name="annotator", value_name="label").dropna()
    long.to_csv(tmp_path / "labels.csv", index=False)
    X.rename(columns=lambda k: f"x{k}").rename_axis("item").to_csv(tmp_path / "features.csv")
    done = crowdshot(tmp_path, "adapt", "labels.csv", "--features", "features.csv", "--out", "out", "--share")
    assert done.returncode == 0, done.stderr
    content = (tmp_path / "out" / "model.safetensors").read_bytes()
    assert not [word for word in (*PEOPLE, *ITEMS) if word.encode() in content]
    model = ["out/model.safetensors", "--features", "features.csv", "--out", "new.csv"]
    assert crowdshot(tmp_path, "predict", *model).returncode == 0
    found = pd.read_csv(tmp_path / "new.csv")
    consensus = pd.read_csv(tmp_path / "out" / "consensus.csv").set_index("item")["label"]
    assert (found["label"] == consensus.loc[found["item"]].to_numpy()).mean() > 0.9


def test_a_value_after_share_is_no_file_of_labels(tmp_path, call):
    (tmp_path / "labels.csv").write_text("item,annotator,label\na,x,cat\nb,x,dog\n")
    for value in ("shared", str(tmp_path)):
        done = call("adapt", tmp_path / "labels.csv", "--share", value, "--out", tmp_path / "out")
        assert done.code == 2
        assert "--share takes no value" in done.err
        assert "--out" in done.err
