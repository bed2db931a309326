"""Folders of images of any number: looked at in pieces, with the same result."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from crowdshot import CrowdClassifier, CrowdshotError
from crowdshot._cli import inputs
from crowdshot._cli.embed import run_embed
from crowdshot._cli.inputs import ItemFiles
from crowdshot._cli.predict import run_predict
from crowdshot.encoders.encoder import Encoder
from crowdshot.engine import parallel_embedding


@pytest.fixture
def photos(tmp_path):
    """Eleven images in two folders, two of which cannot be read."""
    random = np.random.default_rng(0)
    for number in range(11):
        folder = tmp_path / "photos" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 120, (9, 9)) + 120 * (number % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number:02d}.png")
    for bad in ("a/04.png", "b/05.png"):
        (tmp_path / "photos" / bad).write_bytes(b"no image")
    return tmp_path / "photos"


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setenv("CROWDSHOT_CACHE", "")
    random = np.random.default_rng(1)
    X = (random.integers(0, 120, (20, 9, 9)) + 120 * (np.arange(20) % 2)[:, None, None]).astype(np.uint8)
    labels = [[k, k, 1 - k] if n % 5 == 0 else [k] * 3 for n, k in enumerate(np.arange(20) % 2)]
    clf = CrowdClassifier(encoder="glyphs").fit(X, np.array(labels))
    clf.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_pieces_give_the_same(photos, model, tmp_path, monkeypatch):
    whole, expected = run_predict(model, ItemFiles(photos, skip_bad=True))
    monkeypatch.setattr(inputs, "AT_ONCE", 3)
    told, found = run_predict(model, ItemFiles(photos, skip_bad=True))
    pd.testing.assert_frame_equal(found, expected)
    assert told == whole
    assert told.counts.items == 9
    assert len(told.left_out["unreadable images"]) == 2
    run_predict(model, ItemFiles(photos, skip_bad=True), tmp_path / "out.csv")
    written = pd.read_csv(tmp_path / "out.csv", dtype={0: str})
    assert written.iloc[:, 0].tolist() == expected.iloc[:, 0].tolist()


def test_a_piece_without_a_readable_image_is_passed_over(photos, model, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "AT_ONCE", 1)
    told, _ = run_predict(model, ItemFiles(photos, skip_bad=True), tmp_path / "out.csv")
    assert told.counts.items == 9
    assert len(pd.read_csv(tmp_path / "out.csv")) == 9


def test_a_bad_image_is_an_error_unless_it_is_skipped(photos, model, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "AT_ONCE", 3)
    with pytest.raises(CrowdshotError, match=r"that cannot be read \(.*04.png .*\)\. Use skip_bad=True"):
        run_predict(model, ItemFiles(photos), tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_embeddings_of_pieces_are_those_of_the_whole(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("CROWDSHOT_CACHE", "")
    with pytest.raises(CrowdshotError, match=r"cannot be read \(.*leave them out"):
        run_embed(photos, "glyphs", tmp_path / "all.npz", device="cpu")
    run_embed(photos, "glyphs", tmp_path / "all.npz", device="cpu", skip_bad=True)
    monkeypatch.setattr(inputs, "AT_ONCE", 2)
    told = run_embed(photos, "glyphs", tmp_path / "pieces.npz", device="cpu", skip_bad=True)
    assert (told.items, told.classes) == (9, 2)
    assert sorted(told.left_out["unreadable images"]) == ["a/04.png", "b/05.png"]
    whole, pieces = np.load(tmp_path / "all.npz"), np.load(tmp_path / "pieces.npz")
    assert pieces["ids"].tolist() == whole["ids"].tolist()
    assert pieces["ids"][0] == "a/00.png"
    assert pieces["labels"].tolist() == whole["labels"].tolist()
    np.testing.assert_allclose(pieces["features"], whole["features"], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "ray"])
def test_several_processes_find_the_same(photos, model, tmp_path, monkeypatch, engine):
    """They leave it in the cache: whoever asks then reads no network's output but theirs."""
    if engine == "ray":
        pytest.importorskip("ray")
    monkeypatch.setattr(parallel_embedding, "TASK", 4)
    expected = run_predict(model, ItemFiles(photos, skip_bad=True))[1]
    monkeypatch.setenv("CROWDSHOT_CACHE", str(tmp_path / "cache"))
    several = ItemFiles(photos, skip_bad=True, processes=2, engine=engine)
    network = CrowdClassifier.load(model)._reader
    several.embed_ahead(several.open().paths, network)
    kept = sorted(tmp_path.glob("cache/glyphs*/*.npy")) or sorted(tmp_path.glob("cache/conv4*/*.npy"))
    assert sum(len(np.load(file)) for file in kept) == 9
    monkeypatch.setattr(Encoder, "_computed", None)  # nothing is computed any more
    told, found = run_predict(model, ItemFiles(photos, skip_bad=True))
    pd.testing.assert_frame_equal(found, expected, atol=1e-5)
    assert len(told.left_out["unreadable images"]) == 2


def test_several_processes_need_a_place_for_what_they_make(photos, model):
    with pytest.raises(CrowdshotError, match=r"^processes is 2, but the embedding cache is switched off"):
        run_predict(model, ItemFiles(photos, skip_bad=True, processes=2))


def test_rows_of_an_array_are_predicted_in_pieces(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    X = np.concatenate([random.normal(-2, 1, (20, 3)), random.normal(2, 1, (20, 3))]).astype(np.float32)
    CrowdClassifier("identity").fit(X, np.repeat([[0, 0], [1, 1]], 20, axis=0)).save(tmp_path / "model.safetensors")
    new = random.normal(size=(50, 3)).astype(np.float32)
    np.save(tmp_path / "new.npy", new)
    np.savez(tmp_path / "new.npz", ids=np.arange(50), features=new)
    whole = run_predict(tmp_path / "model.safetensors", ItemFiles(features=tmp_path / "new.npz"))[1]
    monkeypatch.setattr(inputs, "AT_ONCE", 7)
    told, found = run_predict(tmp_path / "model.safetensors", ItemFiles(features=tmp_path / "new.npy"))
    assert told.counts.items == 50
    pd.testing.assert_frame_equal(found, whole)
    assert found.iloc[:, 0].tolist() == [str(row) for row in range(50)]
