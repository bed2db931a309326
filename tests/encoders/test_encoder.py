"""Encoders: sizes and counts by hand, what they are fed, and files that are whole or refused."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import sparse
from torch import Tensor, nn

from crowdshot import CrowdClassifier
from crowdshot.encoders import shipped
from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.encoder_files import (
    build_encoder,
    encoder_from_state,
    encoder_state,
    load_encoder,
    save_encoder,
)
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.encoders.image_input import BadImage, ImageInput, read_images
from crowdshot.encoders.networks import ARCHITECTURES, MLP, Conv4, Identity, is_installed
from crowdshot.encoders.shipped import shipped_encoders, weights_file
from crowdshot.errors import CrowdshotError
from crowdshot.io.cards import FORMAT, read_safetensors, write_safetensors


def small_conv4(seed: int = 0) -> Encoder:
    """A narrow Conv4 with statistics of its own, so that a forgotten buffer would show."""
    torch.manual_seed(seed)
    encoder = build_encoder(
        "conv4",
        {"channels": 1, "width": 8},
        ImageInput((28, 28), ink=True, mean=(0.1,), std=(0.3,)),
        {"trained_on": "stripes", "command": "crowdshot train", "priors": {"tau": 1.0}, "scores": {"5x3": 0.9}},
    )
    encoder.module.train()
    with torch.no_grad():
        encoder.module(torch.rand(16, 1, 28, 28))
    return encoder


def characters(n: int = 5) -> np.ndarray:
    return np.random.default_rng(1).random((n, 20, 20))


def rewrite(path: Path, change: Any) -> None:
    """Save the file again after ``change(tensors, card)``, card as text or dict, past all of crowdshot's checks."""
    tensors, card = read_safetensors(path, "encoder")
    card = change(tensors, card) or card
    text = card if isinstance(card, str) else json.dumps(card)
    safetensors.torch.save_file(tensors, path, metadata={"crowdshot": text})


# ---- architectures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("channels", "side", "size"), [(1, 28, 64), (3, 84, 1600), (1, 105, 2304), (3, 16, 64)])
def test_conv4_embedding_sizes(channels: int, side: int, size: int) -> None:
    # 28 -> 14 -> 7 -> 3 -> 1;  84 -> 42 -> 21 -> 10 -> 5;  105 -> 52 -> 26 -> 13 -> 6
    encoder = build_encoder("conv4", {"channels": channels}, ImageInput((side, side), channels))
    assert encoder.n_features_out == size
    assert Conv4(channels)(torch.zeros(2, channels, side, side)).shape == (2, size)


@pytest.mark.parametrize(("channels", "count"), [(1, 111_936), (3, 113_088)])
def test_conv4_parameter_count(channels: int, count: int) -> None:
    first = channels * 64 * 9 + 64 + 2 * 64
    others = 64 * 64 * 9 + 64 + 2 * 64
    assert first + 3 * others == count
    assert sum(p.numel() for p in Conv4(channels).parameters()) == count


@pytest.mark.parametrize("n", [0, 1, 20])
def test_conv4_in_parts_is_conv4(n: int) -> None:
    """In evaluation a CPU takes a few images at a time; in training a batch is one, for its statistics."""
    torch.manual_seed(0)
    net, x = Conv4(3, width=4), torch.rand(n, 3, 84, 84)
    if n > 1:
        torch.testing.assert_close(net(x), net.blocks(x).flatten(1))
    net.eval()
    torch.testing.assert_close(net(x), net.blocks(x).flatten(1))
    assert net(x).shape == (n, 100)


def test_conv4_is_what_the_paper_says() -> None:
    torch.manual_seed(0)
    net = Conv4(1, width=4)
    with torch.no_grad():
        for p in net.parameters():
            p += 0.3 * torch.randn_like(p)  # no scale of exactly 1, no shift of exactly 0
        net(torch.rand(9, 1, 28, 28))  # running statistics of its own
    net.eval()
    x = torch.rand(2, 1, 28, 28)
    state = iter(net.state_dict().values())
    expected = x
    for _ in range(4):
        weight, bias, gamma, beta, mean, variance, _count = (next(state) for _ in range(7))
        padded = nn.functional.pad(expected, (1, 1, 1, 1))
        patches = padded.unfold(2, 3, 1).unfold(3, 3, 1)  # (n, in, H, W, 3, 3)
        z = torch.einsum("nihwab,oiab->nohw", patches, weight) + bias[:, None, None]
        z = (z - mean[:, None, None]) / (variance + 1e-5).sqrt()[:, None, None] * gamma[:, None, None]
        z = (z + beta[:, None, None]).clamp(min=0)
        side = z.shape[-1] // 2 * 2
        expected = z[..., :side, :side].unfold(2, 2, 2).unfold(3, 2, 2).amax((-1, -2))
    torch.testing.assert_close(net(x), expected.flatten(1), atol=1e-5, rtol=1e-4)


def test_mlp() -> None:
    net = MLP(3, hidden=(5, 4), n_out=2)
    assert sum(p.numel() for p in net.parameters()) == (3 * 5 + 5) + (5 * 4 + 4) + (4 * 2 + 2)
    w1, b1, w2, b2, w3, b3 = net.parameters()
    x = torch.randn(6, 3)
    hidden = ((x @ w1.T + b1).relu() @ w2.T + b2).relu()
    torch.testing.assert_close(net(x), hidden @ w3.T + b3)
    linear = MLP(3, hidden=(), n_out=2)
    assert (linear(x) < 0).any()  # no ReLU at the end
    assert [tuple(p.shape) for p in linear.parameters()] == [(2, 3), (2,)]


def test_build_encoder_errors() -> None:
    with pytest.raises(CrowdshotError, match="architecture is 'resnet', expected one of conv4, mlp, identity"):
        build_encoder("resnet")
    with pytest.raises(CrowdshotError, match="mlp") as error:
        build_encoder("mlp", {"depth": 3})
    assert (error.value.argument, error.value.found) == ("arguments", {"depth": 3})


# ---- embed ----------------------------------------------------------------------------------------------------


def test_embed_is_the_network_on_the_images_in_evaluation_mode() -> None:
    encoder = small_conv4()
    assert isinstance(encoder.input, ImageInput)
    got = encoder.embed(characters())
    expected = copy.deepcopy(encoder.module).eval()(read_images(characters(), encoder.input))
    torch.testing.assert_close(got, expected.detach())
    assert got.dtype == torch.float32
    assert got.shape == (5, 8) == (5, encoder.n_features_out)
    assert not got.requires_grad


def test_embed_leaves_the_network_as_it_was() -> None:
    encoder = small_conv4()
    first = encoder.module.get_submodule("blocks.0")
    first.eval()  # a frozen part inside a network in training
    before = {name: tensor.clone() for name, tensor in encoder.module.state_dict().items()}
    flags = [part.training for part in encoder.module.modules()]
    assert len(set(flags)) == 2
    encoder.embed(characters())
    assert [part.training for part in encoder.module.modules()] == flags
    assert torch.is_grad_enabled()
    for name, tensor in encoder.module.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    with pytest.raises(CrowdshotError):
        encoder.embed(np.full((2, 5, 5), np.nan))
    assert [part.training for part in encoder.module.modules()] == flags


@pytest.mark.parametrize("batch_size", [1, 2, 5, 100])
def test_embed_does_not_depend_on_the_batch_size(batch_size: int) -> None:
    encoder = small_conv4()
    steps: list[tuple[int, int]] = []
    got = encoder.embed(characters(), batch_size=batch_size, progress=lambda *step: steps.append(step))
    torch.testing.assert_close(got, encoder.embed(characters()))
    assert steps[-1] == (5, 5)
    assert len(steps) == -(-5 // batch_size)


def test_the_scale_of_an_array_is_that_of_all_its_batches() -> None:
    pictures = np.zeros((2, 20, 20))
    pictures[0, 5:9] = 0.9
    pictures[1, 5:9] = 200.0  # so the first is nearly black, whatever the batch
    encoder = small_conv4()
    torch.testing.assert_close(encoder.embed(pictures, batch_size=1), encoder.embed(pictures, batch_size=2))


def test_bad_images_are_collected_over_batches(tmp_path: Path) -> None:
    encoder = small_conv4()
    for i, picture in enumerate(characters()):
        Image.fromarray((picture * 255).astype(np.uint8)).save(tmp_path / f"{i}.png")
    paths = [tmp_path / name for name in ("0.png", "x.png", "1.png", "2.png", "y.png", "3.png")]
    bad: list[BadImage] = []
    got = encoder.embed(paths, batch_size=2, bad=bad)
    assert [b.index for b in bad] == [1, 4]
    torch.testing.assert_close(got, encoder.embed([p for p in paths if p.exists()]))
    with pytest.raises(CrowdshotError, match=r"x\.png does not exist \(and 1 more of the 6 cannot be read\)"):
        encoder.embed(paths, batch_size=2)
    assert encoder.embed([tmp_path / "x.png"], bad=[]).shape == (0, 8)


@pytest.mark.parametrize(
    "form",
    [
        lambda x: x,
        lambda x: x.astype(np.float32),
        lambda x: torch.tensor(x, requires_grad=True),
        lambda x: torch.tensor(x).bfloat16().double(),
        lambda x: x.tolist(),
        lambda x: pd.DataFrame(x).assign(**{"0": x[:, 0]}).iloc[:, :3],
        lambda x: pd.DataFrame(x).astype({1: object}),
        lambda x: sparse.csr_matrix(x),
    ],
)
def test_identity_takes_feature_vectors_in_every_form(form: Any) -> None:
    x = np.array([[1.0, 2.0, 3.0], [-4.0, 0.5, 0.0]])
    encoder = load_encoder("identity")
    got = encoder.embed(form(x))
    assert got.tolist() == x.tolist()
    assert got.dtype == torch.float32
    assert encoder.n_features_out is None
    assert isinstance(encoder.module, Identity)


def test_feature_input_standardises() -> None:
    encoder = build_encoder("identity", {}, FeatureInput(2, mean=(1.0, 2.0), std=(2.0, 4.0)))
    assert encoder.embed(np.array([[3.0, -2.0]])).tolist() == [[1.0, -1.0]]
    assert encoder.n_features_out == 2


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((4, 9)), r"X is an array of shape \(4, 9\), expected feature vectors of 8 numbers"),
        (torch.zeros(4, 7), r"X is a tensor of shape \(4, 7\), expected feature vectors of 8 numbers"),
        (np.zeros(8), r"X is an array of shape \(8,\), expected feature vectors of 8 numbers"),
        (np.zeros((4, 28, 28)), r"X is an array of shape \(4, 28, 28\), expected feature vectors"),
        (torch.zeros(4, 3, 28, 28), r"X is a tensor of shape \(4, 3, 28, 28\), expected feature vectors"),
        (["a.png", "b.png"], r"X is a list of 2 str, expected feature vectors"),
        ([Path("a.png")], r"X is a list of 1 PosixPath, expected feature vectors"),
        ([Image.new("L", (8, 8))], r"X is a list of 1 Image, expected feature vectors"),
        (pd.DataFrame({"a": ["x"]}), r"X is an array of shape \(1, 1\), expected feature vectors"),
        (np.array([[0.0] * 8, [0.0] * 7 + [np.nan]]), r"X has NaN, infinite or huge values, first in row 1"),
        (np.array([[1e300] * 8]), r"X has NaN, infinite or huge values, first in row 0"),
        (5.0, r"X is a float, expected feature vectors of 8 numbers"),
        (None, r"X is a NoneType, expected feature vectors of 8 numbers"),
        (np.zeros((0, 8)), r"X is empty \(an array of shape \(0, 8\)\)"),
    ],
)
def test_made_for_features_but_got(X: Any, message: str) -> None:
    with pytest.raises(CrowdshotError, match=message):
        build_encoder("mlp", {"n_features": 8}, FeatureInput(8)).embed(X)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (
            np.zeros((4, 784)),
            r"X is an array of shape \(4, 784\), expected characters of 28×28 grey pixels.*reshape",
        ),
        (pd.DataFrame(np.zeros((4, 784))), r"X is an array of shape \(4, 784\), expected characters"),
        (np.zeros((4, 28, 28, 2)), r"without an axis of 1, 3 or 4 channels"),
        ([], "X is empty"),
        ("a.png", "images is one str"),
        (Image.new("L", (3, 3)), "images is one Image"),
        (5, "images is a int"),
    ],
)
def test_made_for_images_but_got(X: Any, message: str) -> None:
    with pytest.raises(CrowdshotError, match=message):
        small_conv4().embed(X)


@pytest.mark.parametrize(
    "arguments", [{"n_features": 0}, {"n_features": 2**31}, {"mean": (1.0,)}, {"n_features": 1, "std": (0.0,)}]
)
def test_feature_input_refuses_nonsense(arguments: dict[str, Any]) -> None:
    with pytest.raises(CrowdshotError, match=r"(n_features|mean|std) (is|has) .*, expected "):
        FeatureInput(**arguments)


# ---- somebody else's network ----------------------------------------------------------------------------------


def test_wrap_takes_arrays_as_they_are_and_flattens() -> None:
    net = nn.Conv2d(3, 2, 3)
    x = np.random.default_rng(0).normal(size=(4, 3, 5, 6))  # negative pixels: no rule of ours touches them
    got = Encoder.wrap(net).embed(x, batch_size=3)
    torch.testing.assert_close(got, net(torch.tensor(x).float()).flatten(1).detach())
    assert got.shape == (4, 2 * 3 * 4)
    assert Encoder.wrap(net).n_features_out is None
    for nothing in (5.0, np.array(5.0), ["a.png"], [Image.new("L", (3, 3))]):
        with pytest.raises(CrowdshotError, match=r"X is an? .*, expected an array or tensor of numbers"):
            Encoder.wrap(net).embed(nothing)
    assert Encoder.wrap(net, ImageInput((5, 6), 3)).n_features_out == 24


class Returns(nn.Module):
    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Tensor) -> Any:
        return self.make(x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: x.sum(1), r"returns a tensor of shape \(3,\) for 3 items, expected \(3, D\)"),
        (lambda x: x[:1], r"returns a tensor of shape \(1, 2\) for 3 items, expected \(3, D\)"),
        (lambda x: {"out": x}, "returns a dict"),
        (lambda x: x / 0, "NaN or infinite values, first for item 0"),
    ],
)
def test_networks_that_return_something_else(make: Any, message: str) -> None:
    with pytest.raises(CrowdshotError, match=message):
        Encoder.wrap(Returns(make)).embed(np.ones((3, 2)))


def test_a_wrapped_network_cannot_be_saved_unless_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CrowdshotError, match="encoder is a wrapped Linear, expected a network that can be saved"):
        save_encoder(Encoder.wrap(nn.Linear(2, 3)), tmp_path / "a.safetensors")
    assert not list(tmp_path.iterdir())
    monkeypatch.setitem(ARCHITECTURES, "linear", nn.Linear)
    encoder = build_encoder("linear", {"in_features": 2, "out_features": 3}, FeatureInput(2))
    save_encoder(encoder, tmp_path / "a.safetensors")
    x = np.ones((1, 2))
    assert torch.equal(load_encoder(tmp_path / "a.safetensors").embed(x), encoder.embed(x))


class NoSketch(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2)
        self.rates = [rate.item() for rate in torch.linspace(0, 1, 3)]  # impossible without memory


def test_networks_that_cannot_be_built_without_memory_load_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ARCHITECTURES, "no-sketch", NoSketch)
    encoder = build_encoder("no-sketch")
    again = encoder_from_state(*encoder_state(encoder))
    assert torch.equal(again.module.get_parameter("weight"), encoder.module.get_parameter("weight"))


# ---- files ----------------------------------------------------------------------------------------------------


def test_round_trip(tmp_path: Path) -> None:
    encoder = small_conv4()
    path = tmp_path / "stripes.safetensors"
    save_encoder(encoder, path)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    again = load_encoder(path)
    assert torch.equal(torch.get_rng_state(), before)  # loading draws nothing
    assert torch.equal(again.embed(characters()), encoder.embed(characters()))
    assert (again.architecture, again.arguments) == ("conv4", {"channels": 1, "width": 8})
    assert again.input == encoder.input
    assert again.card.pop("made_with").keys() == {"crowdshot", "torch", "python"}
    assert again.card == encoder.card
    assert list(tmp_path.iterdir()) == [path]
    save_encoder(again, tmp_path / "twice.safetensors")
    assert (tmp_path / "twice.safetensors").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "encoder",
    [
        build_encoder("mlp", {"n_features": 3, "hidden": [4], "n_out": 2}, FeatureInput(3, (0, 1, 2), (1, 2, 3))),
        build_encoder("identity", {}, FeatureInput()),
        build_encoder("identity"),
    ],
)
def test_round_trip_of_features(tmp_path: Path, encoder: Encoder) -> None:
    save_encoder(encoder, str(tmp_path / "a.safetensors"))
    again = load_encoder(str(tmp_path / "a.safetensors"))
    x = np.arange(6.0).reshape(2, 3)
    assert torch.equal(again.embed(x), encoder.embed(x))
    assert again.input == encoder.input


def test_anyone_can_read_the_card(tmp_path: Path) -> None:
    path = tmp_path / "full.safetensors"
    save_encoder(build_encoder("conv4", {}, ImageInput((28, 28))), path)
    assert 440_000 < path.stat().st_size < 470_000
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    card = json.loads(header["__metadata__"]["crowdshot"])
    assert (card["format"], card["kind"], card["architecture"]) == (1, "encoder", "conv4")
    assert card["input"]["size"] == [28, 28]


def test_state_under_a_prefix_inside_another_file(tmp_path: Path) -> None:
    encoder = small_conv4()
    tensors, card = encoder_state(encoder)
    own = {f"encoder.{name}": tensor for name, tensor in tensors.items()}
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {**own, "means": torch.eye(3)}, {"kind": "classifier", "encoder": card})
    stored, model = read_safetensors(path, "classifier")
    assert torch.equal(stored["means"], torch.eye(3))
    inner = {name.removeprefix("encoder."): t for name, t in stored.items() if name.startswith("encoder.")}
    again = encoder_from_state(inner, model["encoder"])
    assert torch.equal(again.embed(characters()), encoder.embed(characters()))
    with pytest.raises(CrowdshotError, match=r"model\.safetensors holds a classifier, expected an encoder"):
        load_encoder(path)
    with pytest.raises(CrowdshotError, match=r"is of kind 'classifier', expected 'encoder'"):
        encoder_from_state(inner, {**model["encoder"], "kind": "classifier"})


def test_views_and_shared_memory_can_be_written(tmp_path: Path) -> None:
    base = torch.arange(6.0).reshape(2, 3)
    write_safetensors(
        tmp_path / "a", {"t": base.T, "row": base[0], "same": base[0], "bf": base.bfloat16()}, {"kind": "x"}
    )
    tensors, _ = read_safetensors(tmp_path / "a", "x")
    assert torch.equal(tensors["t"], base.T)
    assert torch.equal(tensors["same"], base[0])
    assert tensors["bf"].dtype == torch.bfloat16


def test_loaded_tensors_do_not_hang_on_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"x": torch.ones(1000)}, {"kind": "x"})
    tensors, _ = read_safetensors(path, "x")
    path.write_bytes(b"")  # in place: what was only mapped would be gone
    assert tensors["x"].sum() == 1000
    tensors["x"] += 1


def test_shipped_encoders_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "WEIGHTS", tmp_path)
    monkeypatch.setattr(shipped, "entry_points", lambda group: [])
    assert shipped_encoders() == []
    save_encoder(small_conv4(1), tmp_path / "stripes.safetensors")
    save_encoder(small_conv4(2), tmp_path / "dots.safetensors")
    assert shipped_encoders() == ["dots", "stripes"]
    assert torch.equal(load_encoder("stripes").embed(characters()), small_conv4(1).embed(characters()))
    with pytest.raises(
        CrowdshotError, match="'photos', expected a file or one of identity, lite0, lite0-fast, dots, stripes"
    ):
        load_encoder("photos")
    with pytest.raises(CrowdshotError, match=r"photos\.safetensors does not exist, expected an encoder file"):
        load_encoder("photos.safetensors")


def test_every_shipped_encoder_loads() -> None:
    for name in shipped_encoders():
        if "lite0" not in name or is_installed():
            assert load_encoder(name).n_features_out


def test_what_ships_is_told_without_anyones_folders() -> None:
    for name in shipped_encoders():
        _, card = read_safetensors(weights_file(name), "encoder")
        assert card["command"].startswith("crowdshot train ")
        assert f"{name}.safetensors" in card["command"]
        assert not re.search(r"(?<!\w)(/|~/|[A-Z]:\\)\w", json.dumps(card)), name


# ---- files that are not -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "whole.safetensors"
    save_encoder(small_conv4(), path)
    return path


@given(st.floats(0, 1, exclude_max=True))
@settings(max_examples=30, deadline=None)
def test_truncated_anywhere(whole: Path, part: float) -> None:
    content = whole.read_bytes()
    refuse_cut(whole, int(part * len(content)))


@pytest.mark.parametrize("left", [0, 1, 7, 8, 9, 10, 100, 1000, -1, -4, -1000])
def test_truncated_at_the_edges(whole: Path, left: int) -> None:
    refuse_cut(whole, left % whole.stat().st_size)


def refuse_cut(whole: Path, left: int) -> None:
    path = whole.with_name("cut.safetensors")
    path.write_bytes(whole.read_bytes()[:left])
    expected = "is truncated or damaged" if left > 8 else "is not a safetensors file"
    with pytest.raises(CrowdshotError) as error:
        load_encoder(path)
    assert str(error.value).startswith(f"{path} {expected} (")
    assert str(error.value).endswith("), expected an encoder saved by crowdshot.")
    assert "\n" not in str(error.value)


def test_longer_than_it_says(whole: Path) -> None:
    path = whole.with_name("long.safetensors")
    path.write_bytes(whole.read_bytes() + b"more")
    with pytest.raises(CrowdshotError, match="is truncated or damaged"):
        load_encoder(path)


class Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    by_pickle, by_torch = tmp_path / "pickle.safetensors", tmp_path / "torch.safetensors"
    by_pickle.write_bytes(pickle.dumps(Trap(sprung)))
    torch.save({"weight": Trap(sprung)}, by_torch)
    for path in (by_pickle, by_torch):
        with pytest.raises(CrowdshotError, match="is not a safetensors file"):
            load_encoder(path)
        assert not sprung.exists()
    pickle.loads(by_pickle.read_bytes())
    assert sprung.exists()  # the trap works, it was never stepped on


def test_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(CrowdshotError, match=r"is a folder, expected an encoder file"):
        load_encoder(tmp_path)
    with pytest.raises(CrowdshotError, match=r"none does not exist, expected an encoder file"):
        load_encoder(tmp_path / "none")
    (tmp_path / "labels.csv").write_text("item,annotator,label\n1,2,3\n")
    with pytest.raises(CrowdshotError, match=r"labels\.csv is not a safetensors file"):
        load_encoder(tmp_path / "labels.csv")


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}])
def test_safetensors_without_a_card(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    safetensors.torch.save_file({"x": torch.zeros(2)}, tmp_path / "a", metadata=metadata)
    with pytest.raises(CrowdshotError, match="is a safetensors file without a crowdshot card"):
        load_encoder(tmp_path / "a")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, c: "{not json", "has a damaged crowdshot card"),
        (lambda t, c: "[1]", "has a damaged crowdshot card"),
        (lambda t, c: "null", "has a damaged crowdshot card"),
        (lambda t, c: c.pop("kind") and None, "has a damaged crowdshot card"),
        (lambda t, c: c.update(format=FORMAT + 1), r"has format 2, expected 1 or less"),
        (lambda t, c: c.update(kind="classifier"), "holds a classifier, expected an encoder"),
        (lambda t, c: c.update(architecture="resnet"), "architecture is 'resnet', expected one of"),
        (lambda t, c: c.update(architecture=["conv4"]), r"architecture is ..'conv4'..*expected one of"),
        (
            lambda t, c: c.update(arguments={"depth": 9}),
            "arguments is {'depth': 9}, expected arguments with which conv4 can",
        ),
        (lambda t, c: c.update(arguments=7), "has a damaged card"),
        (lambda t, c: c.pop("input") and None, "has a damaged card"),
        (lambda t, c: c.update(input={"kind": "sound"}), "has a damaged card"),
        (lambda t, c: c.update(input=5), "has a damaged card"),
        (lambda t, c: c["input"].update(colour=1), "has a damaged card"),
        (lambda t, c: c["input"].update(size="28"), "size is '28', expected"),
        (
            lambda t, c: c["input"].update(channels=3, mean=[], std=[]),
            "a network that does not fit its own input",
        ),
        (lambda t, c: c["input"].update(size=[8, 8]), "a network that does not fit its own input"),
        (
            lambda t, c: c.update(arguments={"width": 16}),
            r"0\.weight has shape \(8, 1, 3, 3\), expected \(16, 1, 3",
        ),
        (
            lambda t, c: c.update(arguments={"width": 10**7}),
            r"has shape \(8, 1, 3, 3\), expected \(10000000, 1, 3",
        ),
        (lambda t, c: t.pop("blocks.1.0.bias") is None, r"Tensor blocks\.1\.0\.bias is missing \(1 in"),
        (lambda t, c: t.update(extra=torch.zeros(1)), r"Tensor extra is unexpected \(1 in all\)"),
    ],
)
def test_cards_that_do_not_hold(whole: Path, change: Any, message: str) -> None:
    path = whole.with_name("changed.safetensors")
    path.write_bytes(whole.read_bytes())
    rewrite(path, change)
    with pytest.raises(CrowdshotError, match=message) as error:
        load_encoder(path)
    assert str(error.value).startswith(str(path))


# ---- all or nothing -------------------------------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.safetensors"
    save_encoder(small_conv4(1), path)
    old = path.read_bytes()

    def full_disk(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:100])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full_disk)
        with pytest.raises(CrowdshotError, match=r"could not be written \(No space left"):
            save_encoder(small_conv4(2), path)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            save_encoder(small_conv4(2), path)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]

    save_encoder(small_conv4(2), path)
    assert path.read_bytes() != old
    assert list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(CrowdshotError, match="is a folder, expected the name of a file to write"):
        save_encoder(small_conv4(), tmp_path)
    with pytest.raises(CrowdshotError, match=r"in the folder .*nowhere, which does not exist"):
        save_encoder(small_conv4(), tmp_path / "nowhere" / "a.safetensors")
    if os.path.isdir("/proc/self"):  # a folder in which nobody, not even root, may create files
        with pytest.raises(CrowdshotError, match=r"/proc/self/a\.safetensors could not be written"):
            save_encoder(small_conv4(), "/proc/self/a.safetensors")


@pytest.mark.parametrize("value", [float("nan"), np.float32(1.0), {1, 2}, Path("x")])
def test_cards_must_be_json(tmp_path: Path, value: Any) -> None:
    encoder = small_conv4()
    encoder.card["scores"] = {"accuracy": value}
    with pytest.raises(CrowdshotError, match="has a card that is not plain JSON"):
        save_encoder(encoder, tmp_path / "a.safetensors")
    assert not list(tmp_path.iterdir())


def test_encoders_have_names(tmp_path):
    assert load_encoder("identity").name == "identity"
    assert load_encoder("glyphs-protonet").name == "glyphs-protonet"
    assert Encoder.wrap(torch.nn.Flatten()).name == "Flatten"
    save_encoder(build_encoder("mlp", {"n_features": 3}, FeatureInput(3)), tmp_path / "mine.safetensors")
    assert load_encoder(tmp_path / "mine.safetensors").name == "mlp"
    clf = CrowdClassifier("glyphs").fit(np.random.default_rng(0).random((4, 28, 28)), [["a"], ["b"], ["a"], ["b"]])
    clf.save(tmp_path / "clf.safetensors")
    assert CrowdClassifier.load(tmp_path / "clf.safetensors").encoder_.name == clf.encoder_.name == "glyphs"
