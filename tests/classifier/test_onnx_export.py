"""A classifier in another runtime: the same probabilities to 1e-5."""

import json
import sys

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

from crowdshot import CrowdClassifier, CrowdshotError, build_encoder
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.encoders.image_input import ImageInput, read_images
from crowdshot.extras import MissingPackageError


def run(path, items):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    return session.run(["probabilities"], {given.name: np.asarray(items, dtype=np.float32)})[0]


def facts(path):
    return {entry.key: entry.value for entry in onnx.load(path).metadata_props}


def vectors(n=80, K=3, D=6, seed=0):
    random = np.random.default_rng(seed)
    kind = np.arange(n) % K
    X = (np.eye(K, D)[kind] * 2 + random.normal(size=(n, D))).astype(np.float32)
    labels = np.where(random.random((n, 4)) < 0.75, kind[:, None], random.integers(K, size=(n, 4)))
    return X, labels


@pytest.mark.parametrize("method", ["auto", "ours", "paper", "labeling-search", "features"])
@pytest.mark.parametrize("n", [12, 300])
def test_features_by_every_way_of_our_own(tmp_path, method, n):
    X, labels = vectors(n)
    clf = CrowdClassifier("identity", method=method).fit(X, labels)
    clf.to_onnx(tmp_path / "model.onnx")
    new = vectors(50, seed=1)[0] * 3
    found = run(tmp_path / "model.onnx", new)
    np.testing.assert_allclose(found, clf.predict_proba(new), atol=1e-5)
    np.testing.assert_allclose(run(tmp_path / "model.onnx", new[:1]), found[:1], atol=1e-6)  # any number of items
    told = facts(tmp_path / "model.onnx")
    assert json.loads(told["classes"]) == [0, 1, 2]
    assert (told["learner"], json.loads(told["input"])["kind"]) == (clf.learner_, "features")


@pytest.mark.parametrize("covariance", ["isotropic", "diagonal", "full"])
def test_covariances(tmp_path, covariance):
    X, labels = vectors()
    clf = CrowdClassifier("identity", method="ours", settings={"covariance": covariance}).fit(X, labels)
    clf.to_onnx(tmp_path / "model.onnx")
    np.testing.assert_allclose(run(tmp_path / "model.onnx", X), clf.predict_proba(X), atol=1e-5)


def test_classes_that_nobody_named_and_one_that_was_named_once(tmp_path):
    X, labels = vectors(40)
    clf = CrowdClassifier("identity").fit(X, labels, classes=[0, 1, 2, 3])
    clf.to_onnx(tmp_path / "model.onnx")
    found = run(tmp_path / "model.onnx", X)
    np.testing.assert_allclose(found, clf.predict_proba(X), atol=1e-5)
    assert not found[:, 3].any()


@pytest.mark.slow
@pytest.mark.parametrize("shots", [3, 60], ids=["few", "many"])
def test_images_through_a_shipped_network(tmp_path, shots):
    digits = load_digits()
    rows = np.concatenate([np.flatnonzero(digits.target == k)[:shots] for k in (1, 4, 7, 8)])
    random = np.random.default_rng(0)
    labels = np.where(
        random.random((len(rows), 4)) < 0.8, digits.target[rows, None], random.choice([1, 4, 7, 8], (len(rows), 4))
    )
    if shots == 3:
        labels[-1, -1] = 9  # a slip of the pen, perhaps
    clf = CrowdClassifier().fit(digits.images[rows], labels)
    assert clf.learner_ == {3: "combined", 60: "features"}[shots]
    clf.to_onnx(tmp_path / "model.onnx")
    images = digits.images[:70]
    fed = ImageInput.from_dict(json.loads(facts(tmp_path / "model.onnx")["input"]))
    found = run(tmp_path / "model.onnx", read_images(images, fed).numpy())
    np.testing.assert_allclose(found, clf.predict_proba(images), atol=1e-5)


def test_a_network_with_standardised_features(tmp_path):
    torch.manual_seed(0)
    fed = FeatureInput(6, (0.5,) * 6, (2.0,) * 6)
    encoder = build_encoder("mlp", {"n_features": 6, "hidden": [5], "n_out": 4}, fed)
    X, labels = vectors()
    clf = CrowdClassifier(encoder).fit(X, labels)
    clf.to_onnx(tmp_path / "model.onnx")
    np.testing.assert_allclose(run(tmp_path / "model.onnx", X), clf.predict_proba(X), atol=1e-5)


@pytest.mark.slow
def test_lite0(tmp_path):
    pytest.importorskip("efficientnet_lite_pytorch", reason="the extra lite0 is not installed")
    random = np.random.default_rng(0)
    images = random.integers(0, 255, (8, 20, 20, 3), dtype=np.uint8)
    images[:4, ..., 0] = 250
    clf = CrowdClassifier("lite0-fast").fit(images, [["red", "red"]] * 4 + [["not", "not"]] * 4)
    clf.to_onnx(tmp_path / "model.onnx")
    fed = ImageInput.from_dict(json.loads(facts(tmp_path / "model.onnx")["input"]))
    found = run(tmp_path / "model.onnx", read_images(images, fed).numpy())
    np.testing.assert_allclose(found, clf.predict_proba(images), atol=1e-5)


def test_of_texts_and_tables_the_embeddings_go_in(tmp_path):
    texts = [f"{'good' if i % 2 else 'bad'} film number {i}" for i in range(20)]
    frame = pd.DataFrame({"age": np.arange(20.0), "town": ["York", "Bath"] * 10})
    for X in (texts, frame):
        clf = CrowdClassifier().fit(X, [["n", "n"], ["p", "p"]] * 10)
        clf.to_onnx(tmp_path / "model.onnx")
        assert json.loads(facts(tmp_path / "model.onnx")["input"]) == {"kind": "embeddings"}
        found = run(tmp_path / "model.onnx", clf.encoder_.embed(X).numpy())
        np.testing.assert_allclose(found, clf.predict_proba(X), atol=1e-5)


def test_what_cannot_be_written(tmp_path, monkeypatch):
    X, labels = vectors()
    clf = CrowdClassifier("identity", method="LRDS").fit(X, labels)
    with pytest.raises(CrowdshotError, match="The method LRDS cannot be exported to ONNX, expected combined"):
        clf.to_onnx(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
    for name in [name for name in sys.modules if name.startswith("crowdshot.classifier.onnx")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackageError) as error:
        clf.to_onnx(tmp_path / "model.onnx")
    assert (error.value.found, list(tmp_path.iterdir())) == ("onnx", [])


def test_sets_of_labels(tmp_path):
    X, labels = vectors(40)
    words = np.array(["cat", "dog", "cat;dog;owl"])[labels]
    clf = CrowdClassifier("identity", method="features", settings={"several": True}).fit(X, words)
    clf.to_onnx(tmp_path / "model.onnx")
    new = vectors(50, seed=1)[0] * 3
    np.testing.assert_allclose(run(tmp_path / "model.onnx", new), clf.predict_proba(new), atol=1e-5)
