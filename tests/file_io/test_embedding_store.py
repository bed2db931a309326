"""Test the embedding cache: only new embeddings are computed, also after an interrupted run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from crowdshot import CrowdClassifier, build_encoder, embedding_cache, save_encoder
from crowdshot.encoders import text_input
from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.image_input import ImageInput
from crowdshot.encoders.items import find_readable, open_items
from crowdshot.io import embedding_store
from crowdshot.io.embedding_store import content_key, remembered
from polling import TIMEOUT


class Made:
    """Compute vectors that contain their position, and record which were requested."""

    def __init__(self, fail_after=None):
        self.asked, self.fail_after = [], fail_after

    def __call__(self, places):
        for place in places:
            if len(self.asked) == self.fail_after:
                raise RuntimeError("killed")
            self.asked.append(place)
            yield np.full((1, 3), place, np.float32)


def vectors(maker, keys, make):
    out = np.full((len(keys), 3), -1, np.float32)
    for places, rows in remembered(maker, keys, make):
        out[places] = rows
    return out[:, 0].tolist()


KEYS = [bytes([i]) * 16 for i in range(6)]


def test_only_new_vectors_are_computed(tmp_path):
    with embedding_cache(tmp_path):
        first, again, more, other = Made(), Made(), Made(), Made()
        assert vectors("a", KEYS[:4], first) == [0, 1, 2, 3]
        assert vectors("a", KEYS[:4], again) == [0, 1, 2, 3]
        assert vectors("a", KEYS[::-1], more) == [0, 1, 3, 2, 1, 0]  # the first two are new
        assert vectors("b", KEYS[:1], other) == [0]
    assert (first.asked, again.asked, more.asked, other.asked) == ([0, 1, 2, 3], [], [0, 1], [0])


def test_vectors_computed_before_a_failure_are_kept(tmp_path):
    with embedding_cache(tmp_path):
        with pytest.raises(RuntimeError, match="killed"):
            vectors("a", KEYS, Made(fail_after=4))
        rest = Made()
        assert vectors("a", KEYS, rest) == [0, 1, 2, 3, 4, 5]
    assert rest.asked == [4, 5]


def test_without_a_cache_or_keys_everything_is_computed(tmp_path):
    twice = Made()
    assert vectors("a", KEYS, twice) == vectors("a", KEYS, twice)
    assert len(twice.asked) == 12
    with embedding_cache(tmp_path):
        nameless = Made()
        vectors("a", [None, None], nameless)
        vectors("a", [None, None], nameless)
        assert (nameless.asked, list(tmp_path.iterdir())) == ([0, 1, 0, 1], [])
        vectors(None, KEYS, Made())
        assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_ignored(tmp_path):
    with embedding_cache(tmp_path):
        vectors("a", KEYS[:2], Made())
        (file,) = (tmp_path / "a").iterdir()
        whole = file.read_bytes()
        for content in (whole[:-5], b"", b"nonsense", whole[:20]):
            file.write_bytes(content)
            made = Made()
            assert vectors("a", KEYS[:2], made) == [0, 1]
            assert made.asked == [0, 1]
            for other in set((tmp_path / "a").iterdir()) - {file}:
                other.unlink()
        np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
        assert vectors("a", KEYS[:2], Made()) == [0, 1]  # nothing is unpickled


def test_a_damaged_vector_is_computed_again(tmp_path):
    """Change every byte of keys, vectors and checksums; each change must be detected."""
    with embedding_cache(tmp_path):
        vectors("a", KEYS[:2], Made())
        (file,) = (tmp_path / "a").iterdir()
        whole = file.read_bytes()
        for place in range(len(whole) - 2 * (16 + 12 + 4), len(whole)):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            embedding_store._heads_in.cache_clear()  # as another process would see it
            for other in set((tmp_path / "a").iterdir()) - {file}:
                other.unlink()
            made = Made()
            out = vectors("a", KEYS[:2], made)
            assert len(made.asked) == 1
            assert out in ([0, 1], [0, 0])  # positions are those among the new vectors


def test_a_damaged_header_is_noticed(tmp_path):
    """The same bytes would be other numbers."""
    with embedding_cache(tmp_path):
        vectors("a", KEYS[:2], Made())
        (file,) = (tmp_path / "a").iterdir()
        whole = file.read_bytes()
        assert whole.count(b"'<f4'") == 1
        for other in (b"'>f4'", b"'<i4'"):
            file.write_bytes(whole.replace(b"'<f4'", other))
            made = Made()
            assert vectors("a", KEYS[:2], made) == [0, 1]
            assert made.asked == [0, 1]
            for rest in set((tmp_path / "a").iterdir()) - {file}:
                rest.unlink()


def test_an_unwritable_folder_disables_the_cache(tmp_path):
    (tmp_path / "file").write_text("")
    with embedding_cache(tmp_path / "file"):
        assert vectors("a", KEYS[:2], Made()) == [0, 1]


def test_location_of_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CROWDSHOT_CACHE", str(tmp_path / "mine"))
    with embedding_cache() as folder:
        assert folder == tmp_path / "mine"
    monkeypatch.setenv("CROWDSHOT_CACHE", "")
    with embedding_cache() as folder:
        assert folder is None
    monkeypatch.delenv("CROWDSHOT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with embedding_cache() as folder:
        assert folder == tmp_path / "crowdshot" / "embeddings"


# ---- encoders -------------------------------------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    (folder / "a").mkdir(parents=True)
    for i in range(12):
        Image.new("L", (9, 9), 20 * i).save(folder / "a" / f"{i:02d}.png")
    return folder


@pytest.fixture
def conv():
    torch.manual_seed(0)
    return build_encoder("conv4", {"width": 4}, ImageInput((28, 28)))


def counted(monkeypatch, encoder):
    """Count the images that reach the network."""
    seen = []
    real = encoder.module.forward
    monkeypatch.setattr(encoder.module, "forward", lambda x: seen.append(len(x)) or real(x))
    return seen


def test_only_images_with_new_content_are_embedded(photos, conv, tmp_path, monkeypatch):
    paths = sorted((photos / "a").iterdir())
    expected = conv.embed(paths)
    seen = counted(monkeypatch, conv)
    with embedding_cache(tmp_path / "cache"):
        torch.testing.assert_close(conv.embed(paths[:8]), expected[:8])
        torch.testing.assert_close(conv.embed(paths), expected)
        assert sum(seen) == 12
        paths[0].rename(photos / "other name.png")  # the same bytes
        Image.new("L", (9, 9), 255).save(paths[1])  # others under the same name
        renamed = [photos / "other name.png", *paths[1:]]
        changed = conv.embed(renamed)
        assert sum(seen) == 13
        torch.testing.assert_close(changed[0], expected[0])
        assert not torch.equal(changed[1], expected[1])
        with torch.no_grad():
            conv.module.blocks[0][0].bias += 0.5
        conv.embed(renamed)  # another network
        assert sum(seen) == 25
    assert conv.embed([Image.open(path) for path in renamed]).shape == expected.shape


def test_arrays_and_custom_modules_are_not_cached(conv, tmp_path):
    with embedding_cache(tmp_path):
        conv.embed(np.zeros((3, 9, 9)))
        Encoder.wrap(nn.Flatten()).embed(np.zeros((3, 4)))
        CrowdClassifier(lambda x: [[len(t)] for t in x]).fit(["a", "bbb"], [["p"], ["q"]])
    assert list(tmp_path.iterdir()) == []


def test_progress_includes_cached_images(photos, conv, tmp_path):
    paths = sorted((photos / "a").iterdir())
    with embedding_cache(tmp_path / "cache"):
        conv.embed(paths[:8])
        reported = []
        conv.embed(paths, batch_size=2, progress=lambda done, total: reported.append((done, total)))
    assert reported == [(8, 12), (10, 12), (12, 12)]


def test_sentences_are_kept(tmp_path, monkeypatch):
    texts = ["one", "two", "three"]
    expected = text_input.embed(texts)
    asked = []
    real = text_input._computed
    monkeypatch.setattr(text_input, "_computed", lambda new: asked.extend(new) or real(new))
    with embedding_cache(tmp_path):
        text_input.embed(texts[:2])
        np.testing.assert_array_equal(text_input.embed(texts), expected)
    assert asked == texts


def test_readable_images_are_not_decoded_again(photos, tmp_path, monkeypatch):
    (photos / "bad.png").write_bytes(b"no image")
    decoded = []
    from crowdshot.encoders import items as module

    real = module.decode
    monkeypatch.setattr(module, "decode", lambda path, scales: decoded.append(path) or real(path, scales))
    with embedding_cache(tmp_path / "cache"):
        for n_decoded in (13, 14):  # only the unreadable one, for its error message
            kept, bad = find_readable(open_items(photos, None), True, lambda done, total: None)
            assert (len(kept), [image.name for image in bad]) == (12, ["bad.png"])
            assert len(decoded) == n_decoded


SLOW = """
import sys, time, torch
from pathlib import Path
from crowdshot.encoders import encoder
from crowdshot.io import embedding_store
embedding_store.EVERY = 0
real = encoder.Encoder._forward
def slowly(self, x):
    Path(sys.argv[2]).open("a").write(f"{len(x)}\\n")
    if len(sys.argv) > 3 and sum(map(int, Path(sys.argv[2]).read_text().split())) > 8:
        time.sleep(600)
    return real(self, x)
encoder.Encoder._forward = slowly
embed = encoder.Encoder.embed
encoder.Encoder.embed = lambda self, X, **kw: embed(self, X, batch_size=2, **kw)
from crowdshot._cli.embed import embed as command
folder = Path(sys.argv[1])
command(folder / "photos", str(folder / "conv.safetensors"), folder / "out.npz", "cpu")
"""


@pytest.mark.slow
def test_embed_continues_after_a_kill(photos, conv, tmp_path):
    save_encoder(conv, tmp_path / "conv.safetensors")
    expected = conv.embed(sorted((photos / "a").iterdir())).numpy()
    log = tmp_path / "seen"
    environment = {**os.environ, "CROWDSHOT_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", SLOW, str(tmp_path), str(log)]
    with subprocess.Popen([*command, "stop"], env=environment) as first:
        began = time.monotonic()
        while not log.exists() or sum(map(int, log.read_text().split())) < 9:  # a blank one first, when it is loaded
            assert first.poll() is None
            assert time.monotonic() - began < TIMEOUT
            time.sleep(0.05)
        first.send_signal(signal.SIGKILL)
    assert not (tmp_path / "out.npz").exists()
    log.unlink()
    subprocess.run(command, env=environment, check=True, timeout=TIMEOUT)
    assert log.read_text().split() == ["1", "2", "2", "2"]  # six were embedded before the kill
    with np.load(tmp_path / "out.npz") as out:
        np.testing.assert_allclose(out["features"], expected, atol=1e-6)
    assert content_key(Path("nowhere")) is None
    assert embedding_store.is_active() is False
