"""Test how users' files become class pools: preprocessing, classes and errors."""

import io
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from crowdshot import Annotations
from crowdshot.encoders.encoder_files import build_encoder
from crowdshot.encoders.feature_input import read_features
from crowdshot.encoders.image_input import ImageInput, read_images
from crowdshot.errors import CrowdshotError
from crowdshot.training.pools import input_of
from crowdshot.training.sources import open_source

RNG = np.random.default_rng(0)


def picture(colour=False, size=(40, 33)):
    pixels = RNG.integers(0, 256, (*size, 3) if colour else size, np.uint8)
    return Image.fromarray(pixels)


def character(size=(40, 33)):
    """Return dark ink on a bright ground."""
    pixels = np.full(size, 255, np.uint8)
    top, left = RNG.integers(5, 20, 2)
    pixels[top : top + 9, left : left + 9] = 0
    return Image.fromarray(pixels).convert("1")


def write_folder(root, names, make=character, suffix=".png"):
    for name in names:
        path = root / f"{name}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        make().save(path)
    return root


def write_zip(path, names, make=character, suffix=".png"):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            data = io.BytesIO()
            make().save(data, "PNG" if suffix == ".png" else "JPEG")
            archive.writestr(f"{name}{suffix}", data.getvalue())
        archive.writestr("__MACOSX/a/x.png", b"rubbish")
        archive.writestr("readme.txt", "hello")
    return path


CLASSES = {"Greek/alpha": 3, "Greek/beta": 4, "Latin/a": 3}
NAMES = [f"{name}/{i}" for name, n in CLASSES.items() for i in range(n)]


# --- folders and zips ------------------------------------------------------------------------------------------------


def test_a_folder_of_characters(tmp_path):
    source = open_source(str(write_folder(tmp_path / "chars", NAMES)))
    assert source.pool.names == tuple(CLASSES)
    assert source.pool.counts.tolist() == [3, 4, 3]
    assert source.pool.examples.shape == (3, 4, 28, 28)
    assert source.pool.examples.dtype == torch.uint8
    assert source.input == ImageInput((28, 28), 1, ink=True)
    assert source.description == {
        "name": "chars",
        "classes": 3,
        "examples": 10,
        "items": "characters of 28×28 grey pixels",
        "terms": None,
    }
    assert source.pool.examples[0, 0].float().mean() < 60, "bright ink on a dark ground"


def test_a_zip_with_one_folder_around_the_classes(tmp_path):
    path = write_zip(tmp_path / "set.zip", [f"images_background/{name}" for name in NAMES])
    source = open_source(str(path), image_size=20)
    assert source.pool.names == tuple(CLASSES)
    assert source.input.size == (20, 20)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["set.zip"], "nothing is unpacked"


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("zipped", [False, True])
def test_training_uses_the_preprocessing_of_the_encoder(tmp_path, colour, zipped):
    """Compare to half a grey level, because the pool stores integers."""
    make = (lambda: picture(colour=True)) if colour else character
    root = write_folder(tmp_path / "set", NAMES, make)
    if zipped:
        with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
            for name in NAMES:
                archive.write(root / f"{name}.png", f"{name}.png")
    source = open_source(str(tmp_path / "set.zip" if zipped else root), image_size=24)
    assert source.input.channels == (3 if colour else 1)
    assert source.input.ink != colour
    encoder = build_encoder("conv4", {"channels": source.input.channels, "width": 4}, source.input)
    trained_on = input_of(encoder, torch.device("cpu"))(source.pool.examples)  # (C, M, channels, 24, 24)
    for c, (name, count) in enumerate(CLASSES.items()):
        fed = read_images([root / f"{name}/{i}.png" for i in range(count)], source.input)
        std = torch.tensor(source.input.std)[:, None, None]
        assert_close(trained_on[c, :count] * std, fed * std, atol=0.51 / 255, rtol=0)
        if colour:
            assert fed.std() > 0.2, "so that a blank picture would not do"


def test_photos_are_photos_even_if_some_are_grey(tmp_path):
    root = write_folder(tmp_path, ["a/1", "a/2", "b/1"], picture, ".jpg")
    write_folder(tmp_path, ["b/2"], lambda: picture(colour=True), ".jpg")
    source = open_source(str(root))
    assert source.pool.examples.shape == (2, 2, 3, 84, 84)
    assert source.input.mean == (0.485, 0.456, 0.406)


def test_classes_that_are_too_small_are_left_out(tmp_path):
    root = write_folder(tmp_path, NAMES)
    with pytest.warns(UserWarning, match="2 of 3 classes left out, because they have fewer than 4 examples"):
        assert open_source(str(root), at_least=4).pool.names == ("Greek/beta",)
    with pytest.raises(CrowdshotError, match="has 3 classes, of which the largest has 4 examples, expected at least 5"):
        open_source(str(root), at_least=5)


def test_invalid_sources_are_refused(tmp_path):
    def refused(source, sentence, **arguments):
        with pytest.raises(CrowdshotError, match=sentence):
            open_source(str(source), **arguments)

    refused(tmp_path / "nowhere", "nowhere does not exist, expected 'glyphs', a folder or zip")
    refused(tmp_path, "holds no images")
    (tmp_path / "flat").mkdir()
    write_folder(tmp_path / "flat", ["x", "y"])
    refused(tmp_path / "flat", "has no classes, expected")
    write_folder(tmp_path / "flat", ["a/z"])
    refused(tmp_path / "flat", "2 of 3 images are not in a folder")
    (tmp_path / "flat" / "a" / "z.png").write_bytes(b"rubbish")
    refused(tmp_path / "flat", "z.png is not an image")
    with zipfile.ZipFile(tmp_path / "empty.zip", "w") as archive:
        archive.writestr("readme.txt", "")
    refused(tmp_path / "empty.zip", "empty.zip has no images")
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("a/x.png", "rubbish")
    refused(tmp_path / "bad.zip", "a/x.png in the zip is damaged or has an unknown format")
    good = write_zip(tmp_path / "good.zip", NAMES).read_bytes()
    damaged = bytearray(good)
    damaged[60:90] = b"\0" * 30
    (tmp_path / "damaged.zip").write_bytes(damaged)
    refused(tmp_path / "damaged.zip", "damaged.zip is damaged or encrypted|in the zip is damaged")


# --- arrays and tables -----------------------------------------------------------------------------------------------


def test_an_npz_of_images(tmp_path):
    images = RNG.integers(0, 256, (6, 10, 10), np.uint8)
    np.savez(tmp_path / "x.npz", images=images, labels=[2, 1, 2, 1, 2, 2])
    source = open_source(str(tmp_path / "x.npz"), image_size=10)
    assert source.pool.names == ("1", "2")
    expected = read_images(images, source.input)
    found = source.pool.examples[1, :4, None] / 255
    assert_close(found, expected[[0, 2, 4, 5]], atol=0.51 / 255, rtol=0)


def test_an_npz_of_colour_images_in_floats(tmp_path):
    np.savez(tmp_path / "x.npz", images=RNG.random((4, 9, 8, 3)), labels=np.array(["b", "a", "b", "a"]))
    source = open_source(str(tmp_path / "x.npz"))
    assert source.pool.examples.shape == (2, 2, 3, 84, 84)
    assert source.pool.names == ("a", "b")


def test_an_npz_of_features_is_standardised_as_by_the_encoder(tmp_path):
    features = RNG.normal(5, 3, (8, 4)).astype(np.float32)
    features[:, 2] = 7.0  # constant
    np.savez(tmp_path / "x.npz", features=features, labels=["a", "b"] * 4)
    source = open_source(str(tmp_path / "x.npz"))
    found = source.pool.examples
    assert_close(found[0], read_features(features[::2], source.input), atol=0, rtol=0)
    everything = found.flatten(0, 1).double()
    assert_close(everything.mean(0), torch.zeros(4).double(), atol=1e-6, rtol=0)
    variance = torch.tensor(features).double().var(0, correction=0)  # one factor for all features
    assert_close(everything.var(0, correction=0), variance / variance.mean(), atol=1e-5, rtol=0)
    assert source.description["items"] == "feature vectors of 4 numbers"
    with pytest.raises(CrowdshotError, match="rotate_classes is True, but the source has feature vectors"):
        open_source(str(tmp_path / "x.npz"), rotate_classes=True)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"pictures": np.zeros(3)}, "x.npz has none of the arrays .*, expected either 'images' or 'features'"),
        (
            {"features": np.zeros((3, 2)), "images": np.zeros((3, 2, 2))},
            "has the arrays 'images', 'features', expected either",
        ),
        ({"features": np.zeros((3, 2)), "labels": [1, 2]}, r"labels of type int64 and shape \(2,\)"),
        ({"features": np.zeros((3, 2)), "labels": [0.5, 1, 2]}, "labels of type float64"),
        ({"features": np.zeros((3, 2, 2)), "labels": [1, 2, 3]}, r"features of shape \(3, 2, 2\), expected \(N, D\)"),
        ({"features": np.zeros((3, 2))}, "has no classes, expected"),
        ({"features": np.full((2, 2), np.nan), "labels": [1, 2]}, "NaN"),
        ({"images": np.zeros((0, 4, 4)), "labels": np.zeros(0, int)}, "expected at least one image"),
    ],
)
def test_an_invalid_npz_is_refused(tmp_path, arrays, sentence):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(CrowdshotError, match=sentence):
        open_source(str(tmp_path / "x.npz"))


def test_nothing_is_unpickled(tmp_path):
    np.savez(tmp_path / "x.npz", features=np.zeros((2, 2)), labels=np.array([{}, []], dtype=object))
    with pytest.raises(CrowdshotError, match=r"x.npz holds pickled objects"):
        open_source(str(tmp_path / "x.npz"))
    (tmp_path / "y.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:100])
    with pytest.raises(CrowdshotError, match=r"y.npz is damaged or of another kind"):
        open_source(str(tmp_path / "y.npz"))


# --- glyphs, rotated classes, splits ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_glyphs(monkeypatch):
    from crowdshot.training import glyphs

    whole = glyphs.glyph_pool
    monkeypatch.setattr(glyphs, "glyph_pool", lambda **given: whole(n_classes=6, **given))
    source = open_source("glyphs", at_least=25)
    assert source.pool.examples.shape == (6, 25, 28, 28)
    assert source.input == ImageInput((28, 28), 1, ink=True)
    assert source.description["name"] == "glyphs"
    with pytest.raises(CrowdshotError, match="annotations cannot be used with glyphs"):
        open_source("glyphs", annotations=Annotations.from_matrix([[1]]))


def test_rotated_classes(tmp_path):
    root = str(write_folder(tmp_path, NAMES))
    plain, rotated = open_source(root), open_source(root, rotate_classes=True)
    assert len(rotated.pool.names) == len(set(rotated.pool.names)) == 12
    for turns in range(4):
        for c in range(3):
            expected = np.rot90(plain.pool.examples[c, 1].numpy(), turns)
            np.testing.assert_array_equal(rotated.pool.examples[c + 3 * turns, 1].numpy(), expected)
    assert rotated.pool.counts.tolist() == [3, 4, 3] * 4
    assert rotated.description["classes"] == 12
    train, validation, test = rotated.split(1, 0)
    assert test == []
    (held_out,) = validation
    assert held_out < 3
    assert train == [c + 3 * turns for turns in range(4) for c in range(3) if c != held_out]


def test_splits_are_disjoint_reproducible_and_large_enough(tmp_path):
    np.savez(tmp_path / "x.npz", features=np.eye(100), labels=np.arange(100) % 50)
    source = open_source(str(tmp_path / "x.npz"))
    parts = source.split(4, 0, test=5)
    assert sorted(c for part in parts for c in part) == list(range(50))
    assert [len(part) for part in parts] == [37, 8, 5]  # 15 % of 50, rounded to even
    assert source.split(4, 0, test=5) == parts
    assert source.split(4, 1, test=5) != parts
    assert [len(part) for part in source.split(9, 0)] == [41, 9, 0]
    assert [len(part) for part in source.split(25, 0)] == [40, 10, 0]  # at most ten for validation
    assert [len(part) for part in source.split(4, 0, validation=10)] == [40, 10, 0]
    assert [len(part) for part in source.split(45, 0)] == [45, 5, 0]  # validation has smaller episodes
    assert (source.most_labelings(), source.most_labelings(10, 5)) == (48, 35)
    assert [len(part) for part in source.split(48, 0)] == [48, 2, 0]
    assert [len(part) for part in source.split(20, 0, validation=2, test=11)] == [37, 2, 11]
    for arguments in (
        {"ways": 49},
        {"ways": 20, "test": 29},
        {"ways": 5, "validation": 1},
        {"ways": 5, "validation": 46},
    ):
        with pytest.raises(CrowdshotError, match=r"x.npz has 50 usable classes, expected at least"):
            source.split(seed=0, **arguments)


# --- labels of real annotators ---------------------------------------------------------------------------------------


def labels_of(rows):
    return Annotations.from_frame(pd.DataFrame(rows, columns=["item", "annotator", "label"]))


def test_labels_of_files_by_name(tmp_path):
    root = write_folder(tmp_path, ["x/a/1", "x/a/2", "x/b/3", "x/b/4", "x/b/5"])
    annotations = labels_of(
        [("1.png", "ann", "a"), ("2", "ann", "b"), ("b/3.png", "bob", "b"), ("5", "bob", "a"), ("5", "ann", "c")]
    )
    with pytest.warns(UserWarning, match="1 of 5 labels left out"):
        source = open_source(str(root), annotations=annotations)
    assert source.pool.names == ("a", "b")
    assert source.pool.crowd_labels.tolist() == [
        [[0, -1], [1, -1], [-1, -1]],
        [[-1, 1], [-1, -1], [-1, 0]],
    ]
    assert source.description["annotators"] == "2, real"
    turned = open_source(str(root), annotations=labels_of([("1", "ann", "a")]), rotate_classes=True)
    assert turned.pool.crowd_labels[::2, 0, 0].tolist() == [0, 2, 4, 6]

    with pytest.raises(CrowdshotError, match=r"has no item for 1 of the 1 labelled items, first 'zebra'"):
        open_source(str(root), annotations=labels_of([("zebra", "ann", "a")]))
    with pytest.raises(CrowdshotError, match=r"has the labels 'q', expected classes of .*, such as 'a', 'b'"):
        open_source(str(root), annotations=labels_of([("1", "ann", "q")]))
    with pytest.warns(UserWarning, match="Labels of 1 of 2 items left out"):
        open_source(str(root), annotations=labels_of([("1", "ann", "a"), ("zebra", "ann", "a")]))


@pytest.mark.parametrize("kind", ["npz", "csv", "images"])
def test_without_other_classes_the_consensus_is_the_class(tmp_path, kind):
    """Two of three annotators differ from the others in one label each, and item 5 has no labels."""
    if kind == "npz":
        np.savez(tmp_path / "x.npz", features=np.arange(12.0).reshape(6, 2), ids=[f"i{i}" for i in range(6)])
        source = tmp_path / "x.npz"
    elif kind == "csv":
        frame = pd.DataFrame({"id": [f"i{i}" for i in range(6)], "f0": range(6), "f1": range(6)})
        source = tmp_path / "x.csv"
        frame.to_csv(source, index=False)
    else:
        source = write_folder(tmp_path / "flat", [f"i{i}" for i in range(6)])
    truth = ["cat", "cat", "dog", "dog", "dog"]
    answers = {"ann": list(truth), "bob": list(truth), "cem": list(truth)}
    answers["bob"][0], answers["cem"][3] = "dog", "cat"
    rows = [(f"i{i}", who, label) for who, labels in answers.items() for i, label in enumerate(labels)]
    found = open_source(str(source), annotations=labels_of(rows))
    assert found.pool.names == ("cat", "dog")
    assert found.pool.counts.tolist() == [2, 3]
    assert found.pool.crowd_labels[0].tolist() == [[0, 1, 0], [0, 0, 0], [-1, -1, -1]]
    assert found.pool.crowd_labels[1].tolist() == [[1, 1, 1], [1, 1, 0], [1, 1, 1]]
    assert found.description["truth"] == "the annotators' consensus, by one-coin"
    if kind == "npz":
        assert_close(found.pool.examples[1], read_features(np.arange(12.0).reshape(6, 2)[2:5], found.input))
