"""`CrowdClassifier(method=...)`: every way to learn behind one door, against hand-made or independent answers."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from crowdshot import CrowdClassifier, mixture
from crowdshot.classifier import compared_methods
from crowdshot.classifier import encoder_choice as choosing
from crowdshot.classifier.encoder_choice import default_encoder
from crowdshot.encoders.encoder_files import build_encoder
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.encoders.image_input import ImageInput, read_images
from crowdshot.encoders.shipped import shipped_encoders
from crowdshot.errors import CrowdshotError
from crowdshot.methods import CrowdEpisodes, encoder_names
from crowdshot_paper.registry import METHODS
from polling import TIMEOUT
from problems import em_by_loops

SETTINGS = {"RFMV": {"trees": 30}, "MCL": {"iterations": 200}, "CNAL": {"iterations": 80}}
CORNERS = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
NAMES = np.array(["fox", "hen", "owl"])
TRUTH = np.tile(np.arange(3), 4)


@pytest.fixture
def corners():
    """Four items at each of three corners; Ada is right, Bo too but for item 1, Cy says fox; 11 is unlabelled."""
    X = CORNERS[TRUTH] + 0.3 * np.random.default_rng(0).normal(size=(12, 2))
    labels = np.column_stack([TRUTH, TRUTH, np.zeros(12, dtype=int)])
    labels[1, 1] = 0
    labels[11] = -1
    return X, labels


@pytest.fixture(scope="module")
def pictures():
    """Eight pictures of two greys each, as drawings have, dark and bright; and a small network that reads them."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    images = 60 * random.integers(0, 2, (8, 20, 20)) + 150 * (np.arange(8) % 2)[:, None, None]
    encoder = build_encoder("conv4", {"width": 4}, ImageInput((28, 28)), {"recipe": {"step_size": 0.5}})
    return images.astype(np.uint8), np.arange(8)[:, None].repeat(3, 1) % 2, encoder


def scaled(X, like):
    """Centred, brought to a mean squared norm of one, and then of eight."""
    centred = like - like.mean(0)
    return (X - like.mean(0)) / np.sqrt((centred**2).sum(1).mean()) * np.sqrt(8)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ours", "LRDS", "RFMV", "PrSV", "MCL", "w/o PA", "CNAL", "LNL", "MaDS"])
def test_fit_predict_save_load(name, corners, tmp_path):
    X, labels = corners
    named = np.where(labels < 0, None, NAMES[labels])
    clf = CrowdClassifier(method=name, settings=SETTINGS.get(name)).fit(X, named)
    assert clf.predict(X[3:6] + 0.01).tolist() == NAMES.tolist()
    np.testing.assert_allclose(clf.predict_proba(X).sum(1), 1, rtol=1e-5)
    table, expected = clf.consensus_, NAMES[TRUTH]
    if name not in ("ours", "w/o PA"):
        expected[1] = "fox"  # by the labels alone, two against one; the mixture also looks at the item
    assert table["label"].tolist() == expected.tolist()  # the last one by the classifier
    assert table["n_labels"].tolist() == [3] * 11 + [0]
    assert clf.annotators_["accuracy"].idxmin() == 2
    assert clf.confusion_.shape == (3, 3, 3)
    assert clf.n_features_in_ == 2
    with pytest.raises(CrowdshotError, match="X has 3 features, but"):
        clf.predict(np.zeros((1, 3)))

    clf.save(tmp_path / "model.safetensors")
    again = CrowdClassifier.load(tmp_path / "model.safetensors")
    assert again.method == name
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    pd.testing.assert_frame_equal(again.consensus_, clf.consensus_)
    pd.testing.assert_frame_equal(again.annotators_, clf.annotators_)
    np.testing.assert_allclose(again.fit(X, named).predict_proba(X), clf.predict_proba(X), atol=1e-6)


# ---- each method does what it says --------------------------------------------------------------------------------


def test_regression_is_scikit_learns_on_scaled_features(corners):
    X, labels = corners
    labels = np.where(labels < 0, 0, labels)
    clf = CrowdClassifier(method="LRMV", settings={"C": 0.3}).fit(X, labels)
    vote = TRUTH.copy()
    vote[[1, 11]] = 0
    oracle = LogisticRegression(C=0.3, tol=1e-8, max_iter=1000).fit(scaled(X, X), vote)
    np.testing.assert_allclose(clf.predict_proba(X), oracle.predict_proba(scaled(X, X)), atol=1e-4)


def test_prototypes_of_soft_votes_by_hand(corners):
    X, labels = corners
    clf = CrowdClassifier(method="PrSV").fit(X, labels)
    x, shares = scaled(X, X), np.stack([(labels == k).mean(1) for k in range(3)], 1)
    means = shares.T @ x / shares.sum(0)[:, None]
    scores = -0.5 * ((x[:, None] - means) ** 2).sum(-1)
    expected = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(clf.predict_proba(X), expected, atol=1e-5)


@pytest.mark.parametrize(("name", "steps"), [("LRDS", 4), ("PrSV", None)])
def test_consensus_is_dawid_skenes(corners, name, steps):
    X, labels = corners
    clf = CrowdClassifier(method=name, settings={"steps": steps} if steps else None).fit(X, labels)
    _, class_probs, confusion, posterior, _ = em_by_loops(np.zeros((12, 0)), labels, 3, steps or 2, 1.0, 100.0, 1.0)
    np.testing.assert_allclose(clf._model.responsibilities[:11], posterior[:11], atol=1e-5)
    np.testing.assert_allclose(clf._model.class_probs, class_probs, atol=1e-6)
    np.testing.assert_allclose(clf.confusion_, confusion, atol=1e-6)
    np.testing.assert_allclose(clf._model.responsibilities[11], clf.predict_proba(X[11:])[0], atol=1e-6)


@pytest.mark.slow
def test_items_that_nobody_labelled_do_not_count(corners):
    X, labels = corners
    for name in ("LRDS", "RFMV", "CL"):
        clf = CrowdClassifier(build_encoder("identity", {}, FeatureInput(), {"priors": True}), method=name)
        few = {"CL": {"iterations": 10}}.get(name)
        found = [clone(clf).set_params(settings=few).fit(X[:n], labels[:n]).predict_proba(X) for n in (11, 12)]
        np.testing.assert_allclose(*found, atol=1e-5)


def test_without_pa_is_the_mixture_with_the_papers_constants(pictures):
    images, labels, _ = pictures
    clf = CrowdClassifier(method="w/o PA").fit(images, labels)
    assert clf.encoder_.card["recipe"]["objective"] == "prototypical"
    direct = mixture.fit(clf.encoder_.embed(images), torch.tensor(labels), 2, steps=2, tau=1.0, b=100.0, c=1.0)
    np.testing.assert_allclose(clf._model.responsibilities, direct.responsibilities, atol=1e-6)
    more = CrowdClassifier(method="w/o PA", settings={"steps": 5, "tau": 0.5}).fit(images, labels)
    assert (more.settings_["steps"], more.settings_["tau"], more.settings_["b"], more.scale_) == (5, 0.5, 100.0, 1.0)


@pytest.mark.slow
def test_a_network_is_taught_and_goes_into_the_file(pictures, tmp_path):
    images, labels, encoder = pictures
    few = {"iterations": 5}
    clf = CrowdClassifier(encoder, method="MCL", settings=few).fit(images, labels)
    x = read_images(images, encoder.input)
    np.testing.assert_array_equal(clf.embed(images), x.flatten(1))
    direct = METHODS["MCL"].predict(
        CrowdEpisodes(x[None], torch.tensor(labels)[None], x[None], 2), encoder.module, **few
    )
    np.testing.assert_allclose(clf.predict_proba(images), direct[0], atol=1e-6)
    fixed = clone(clf).set_params(settings={**few, "frozen": True}).fit(images, labels)
    assert np.abs(fixed.predict_proba(images) - clf.predict_proba(images)).max() > 1e-3
    clf.save(tmp_path / "model.safetensors")
    again = CrowdClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(again.predict_proba(images), direct[0], atol=1e-6)


@pytest.mark.slow
def test_queries_come_in_pieces_unless_they_are_normalised_together(pictures, monkeypatch):
    images, labels, encoder = pictures
    monkeypatch.setattr(compared_methods, "AT_ONCE", 3 * 28 * 28 * 64)
    x, said = read_images(images, encoder.input)[None], torch.tensor(labels)[None]
    for name, pieces in (("PrSV", 3), ("MCL", 3), ("MaMV", 1)):
        calls = []
        inner = compared_methods.ComparedFit._probabilities
        monkeypatch.setattr(
            compared_methods.ComparedFit, "_probabilities", lambda a, q, f=inner, c=calls: c.append(len(q)) or f(a, q)
        )
        settings = {"iterations": 3} if name == "MCL" else {}
        clf = CrowdClassifier(encoder, method=name, settings=settings).fit(images, labels)
        found = clf.predict_proba(images)
        monkeypatch.setattr(compared_methods.ComparedFit, "_probabilities", inner)
        direct = METHODS[name].predict(CrowdEpisodes(x, said, x, 2), encoder.module, **clf.settings_)
        np.testing.assert_allclose(found, direct[0], atol=1e-5)
        assert (len(calls), sum(calls)) == (pieces, 8)
    assert clf.settings_ == {"step_size": 0.5, "gradient_steps": 3}  # the first as the encoder was trained


# ---- encoders ------------------------------------------------------------------------------------------------------


def test_what_needs_no_encoder_sees_pixels_or_what_an_encoder_makes_of_them(pictures, monkeypatch):
    images, labels, encoder = pictures
    for chosen, shape in ((None, (1, 28, 28)), (encoder, (4,)), ("glyphs", (64,))):
        clf = CrowdClassifier(chosen or "auto", method="LRMV").fit(images, labels)
        assert clf._model.support.shape == (8, *shape)
        assert clf.predict(images).tolist() == labels[:, 0].tolist()
    grey = CrowdClassifier(method="LRMV")._choose_encoder(images)
    assert (grey.input.size, grey.input.channels) == ((28, 28), 1)
    for installed, size in ((False, (84, 84)), (True, (224, 224))):
        monkeypatch.setattr("crowdshot.classifier.encoder_choice.is_installed", lambda there=installed: there)
        monkeypatch.setattr("crowdshot.classifier.encoder_choice.announce", lambda extra: None)
        colour = CrowdClassifier(method="RFDS")._choose_encoder(np.zeros((2, 9, 9, 3)))
        assert (colour.input.size, colour.input.channels) == (size, 3)
    assert colour.architecture == "lite0-features"


def test_a_shipped_encoder_is_the_default(pictures, monkeypatch):
    images, _, _ = pictures
    assert CrowdClassifier(method="MCL")._choose_encoder(images).card["trained_on"].endswith("glyphs")
    assert CrowdClassifier(method="LNL")._choose_encoder(np.zeros((2, 5))).architecture == "identity"
    monkeypatch.setattr(choosing, "shipped_encoders", list)
    with pytest.raises(CrowdshotError) as error:
        CrowdClassifier(method="MaDS").fit(images, np.zeros((8, 2)))
    assert (error.value.argument, error.value.found) == ("encoder", "glyphs-maml")
    assert "MaDS needs an encoder meta-trained with clean labels (maml)" in error.value.message
    assert "`crowdshot train --objective maml --clean`" in error.value.hint
    monkeypatch.setattr("crowdshot.classifier.encoder_choice.is_installed", lambda: False)
    monkeypatch.setattr("crowdshot.classifier.encoder_choice.announce", lambda extra: None)
    with pytest.raises(CrowdshotError) as error:
        CrowdClassifier(method="LNL")._choose_encoder(np.zeros((2, 9, 9, 3)))
    assert (error.value.argument, error.value.found) == ("encoder", "photo-lnl")
    assert "LNL needs an encoder meta-trained with simulated annotators (lnl)" in error.value.message
    assert "pip install 'crowdshot[images]'" in error.value.hint
    assert "`crowdshot train --objective lnl`" in error.value.hint


@pytest.mark.parametrize("installed", [False, True])
def test_a_rival_gets_the_same_base_as_ours(monkeypatch, installed):
    """One rule says which base suits X; the suffix is all in which methods differ."""
    monkeypatch.setattr("crowdshot.classifier.encoder_choice.is_installed", lambda: installed)
    monkeypatch.setattr("crowdshot.classifier.encoder_choice.announce", lambda extra: None)
    monkeypatch.setattr(choosing, "load_encoder", lambda name: name)
    shipped = [name for one in METHODS.values() if one.needs for name in encoder_names(one.needs)]
    monkeypatch.setattr(choosing, "shipped_encoders", lambda: shipped)
    photos, drawings, features = np.zeros((2, 9, 9, 3)), np.zeros((2, 9, 9)), np.zeros((2, 5))
    base = "photo-lite0" if installed else "photo"
    suffixes = {"w/o PA": "-protonet", "MCL": "-protonet", "MCL w/ PA": "-protonet-pa", "LNL": "-lnl"}
    suffixes |= {"Ours": "", "MaDS": "-maml", "MaMV w/ PA": "-maml-pa"}
    for name, suffix in suffixes.items():
        chosen = [choosing.shipped_encoder(METHODS[name], X) for X in (photos, drawings, features)]
        assert chosen == [base + suffix, "glyphs" + suffix, "identity"]
        assert default_encoder(photos) + suffix == chosen[0]


def test_what_methods_need_has_a_name_and_is_shipped_for_drawings_and_photographs():
    needs = [one.needs for one in METHODS.values() if one.needs]
    names = {name for one in needs for name in encoder_names(one) if not name.startswith("photo-") or "lite0" in name}
    assert names - {"photo"} <= set(shipped_encoders())


def test_any_module_will_do(corners):
    X, labels = corners
    torch.manual_seed(0)
    module = torch.nn.Linear(2, 6)
    for name in ("MCL", "PrDS"):
        clf = CrowdClassifier(module, method=name).fit(X, labels)
        assert clf.predict(CORNERS).tolist() == [0, 1, 2]
        assert clf._model.support.shape == (11, 6)


# ---- conventions ---------------------------------------------------------------------------------------------------


def test_parameters_and_seeds(corners):
    X, labels = corners
    clf = CrowdClassifier(method="CL", settings={"iterations": 20})
    assert clone(clf).get_params() == clf.get_params()
    one, same, other = (clone(clf).set_params(random_state=s).fit(X, labels).predict_proba(X) for s in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 1e-4
    ours = [
        CrowdClassifier(method="Ours", settings={"steps": 4, "b": 3.0}).fit(X, labels),
        CrowdClassifier(settings={"steps": 4, "b": 3.0}).fit(X, labels),
    ]
    np.testing.assert_array_equal(*(each.predict_proba(X) for each in ours))
    assert clf.fit(X, labels).scale_ is None
    assert clf.settings_ == {"iterations": 20}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "SVM"}, "method is 'SVM', expected one of auto, paper, labeling-search, features, combined, Ours"),
        ({"method": None}, "method is None, expected one of auto, paper, "),
        ({"method": "PrSV", "settings": {"covariance": "full"}}, "settings has 'covariance', expected none for PrSV"),
        ({"method": "LRDS", "settings": {"D": 1}}, "settings has 'D', expected some of steps, C"),
        ({"method": "PrSV", "settings": {"C": 1}}, "settings has 'C', expected none for PrSV"),
        ({"method": "LRDS", "settings": {"C": 0.0}}, "settings has 0.0 as C of LRDS, expected a positive number"),
        ({"method": "RFMV", "settings": {"trees": 2.5}}, "settings has 2.5 as trees of RFMV, expected a whole"),
        ({"method": "MCL", "settings": {"frozen": 1}}, "settings has 1 as frozen of MCL, expected true or false"),
        ({"method": "LRDS", "settings": "C=1"}, "settings is 'C=1', expected a mapping"),
        ({"settings": {"C": 1.0}}, "settings has 'C', expected some of scale, tau, width"),
        (
            {"method": "ours", "settings": {"C": 1}},
            "settings has 'C', expected some of steps, tau",
        ),
        ({"settings": {"steps": 1.5}}, "steps is 1.5, expected a whole number, 1 or more"),
        ({"settings": {"tau": -1.0}}, "settings has -1.0 as tau of labeling-search, expected a positive number"),
        ({"settings": {"width": 1.5}}, "settings has 1.5 as width of labeling-search, expected a whole number"),
        ({"method": "ours", "settings": {"tau": -1.0}}, "tau is -1.0, expected a number, 0 or more"),
    ],
)
def test_bad_settings_get_one_clear_sentence(corners, arguments, message):
    with pytest.raises(CrowdshotError) as error:
        CrowdClassifier(**arguments).fit(*corners)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_crowd_too_large_for_a_dense_method_is_told(corners, monkeypatch):
    monkeypatch.setattr(compared_methods, "MOST_CELLS", 98)  # 11 items, 3 annotators, 3 classes: 99
    with pytest.raises(CrowdshotError, match=r"labels has 99 items × annotators × classes, expected .* for LRDS"):
        CrowdClassifier(method="LRDS").fit(*corners)


@pytest.mark.slow
def test_ours_does_not_wait_for_the_others():
    code = (
        "import sys, numpy as np\n"
        "from crowdshot import CrowdClassifier\n"
        "CrowdClassifier().fit(np.eye(2), [[0, 0], [1, 1]])\n"
        "sys.exit('crowdshot_paper.compared.forest' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=TIMEOUT, check=False).returncode == 0
