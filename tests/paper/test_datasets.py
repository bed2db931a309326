"""Test every loader on a small archive in the official layout, and on real data if CROWDSHOT_DATA is set."""

import io
import os
import re
import tarfile
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from crowdshot.encoders.image_input import ImageInput
from crowdshot.errors import CrowdshotError
from crowdshot.training.sources import open_source
from crowdshot_paper.datasets import DATASETS, cifar10h, load_dataset

INK = ImageInput((28, 28), 1, ink=True)
COLOUR = ImageInput((84, 84), 3, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
CIFAR = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def character(seed, size=28):
    """Return dark ink on a bright ground."""
    pixels = np.full((size, size), 255, np.uint8)
    top, left = np.random.default_rng(seed).integers(3, 15, 2)
    pixels[top : top + 6, left : left + 9] = 0
    return pixels


def photo(seed, size=84):
    """Return a uniform colour with a little noise."""
    rng = np.random.default_rng(seed)
    return np.clip(rng.integers(0, 256, 3) + rng.integers(-20, 20, (size, size, 3)), 0, 255).astype(np.uint8)


def encoded(pixels, suffix=".png"):
    data = io.BytesIO()
    if suffix == ".png":
        Image.fromarray(pixels).save(data, "PNG")
    else:
        Image.fromarray(pixels).save(data, "JPEG", quality=95)
    return data.getvalue()


def decoded(data):
    return torch.from_numpy(np.array(Image.open(io.BytesIO(data)))).movedim(-1, 0)


def write(folder, files, zipped=None):
    """Write files into a folder, or into a zip in it."""
    folder.mkdir(parents=True, exist_ok=True)
    if zipped:
        with zipfile.ZipFile(folder / zipped, "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        return
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())


def refused(name, root):
    """Return the error that reading a dataset raises."""
    with pytest.raises(CrowdshotError) as error:
        load_dataset(name, root)
    return error.value


# --- Omniglot and Tiny-ImageNet: a folder a class --------------------------------------------------------------------


CHARACTERS = ["Greek/character01", "Greek/character02", "Latin/character01"]
OMNIGLOT = {f"{name}/{i:04d}_{j:02d}": (i, j) for i, name in enumerate(CHARACTERS) for j in (1, 2)}


@pytest.mark.parametrize("part", ["background", "evaluation"])
@pytest.mark.parametrize("zipped", [True, False])
def test_omniglot(tmp_path, part, zipped):
    files = {f"images_{part}/{name}.png": encoded(character(10 * i + j)) for name, (i, j) in OMNIGLOT.items()}
    write(tmp_path / "omniglot", files, f"images_{part}.zip" if zipped else None)
    name = "omniglot" if part == "background" else "omniglot-evaluation"
    dataset = load_dataset(name, tmp_path)
    assert dataset.name == name
    assert dataset.input == INK
    assert dataset.pool.names == tuple(CHARACTERS)
    assert dataset.pool.counts.tolist() == [2, 2, 2]
    assert dataset.pool.crowd_labels is None
    assert dataset.pool.examples.dtype == torch.uint8
    for i in range(3):
        for j in (1, 2):
            assert (dataset.pool.examples[i, j - 1].numpy() == 255 - character(10 * i + j)).all(), "bright ink on black"
    assert part in dataset.note
    assert ("not use" in dataset.note) == (part == "evaluation")

    source = open_source(str(tmp_path / "omniglot" / (f"images_{part}.zip" if zipped else f"images_{part}")))
    assert source.pool.names == dataset.pool.names
    assert_close(source.pool.examples, dataset.pool.examples, rtol=0, atol=0)
    assert source.input == dataset.input


def test_omniglot_unpacked_into_a_folder_of_the_same_name(tmp_path):
    files = {
        f"images_background/images_background/{name}.png": encoded(character(i, 105))
        for name, (i, _) in OMNIGLOT.items()
    }
    write(tmp_path / "omniglot", files)
    assert load_dataset("omniglot", tmp_path).pool.names[0] == "Greek/character01"


def test_images_of_the_wrong_kind(tmp_path):
    write(tmp_path / "omniglot", {"a/1.png": encoded(photo(1)), "b/1.png": encoded(photo(2))}, "images_background.zip")
    error = refused("omniglot", tmp_path)
    assert (error.where, error.found) == (str(tmp_path / "omniglot"), "colour")
    assert error.expected == "characters of 28×28 grey pixels for omniglot"
    write(tmp_path / "miniimagenet", {"1.png": encoded(character(1)), "2.png": encoded(character(2))}, "images.zip")
    tables = {"train.csv": "1.png,n1\n", "val.csv": "2.png,n2\n", "test.csv": ""}
    write(tmp_path / "miniimagenet", {name: f"filename,label\n{rows}" for name, rows in tables.items()})
    error = refused("miniimagenet", tmp_path)
    assert (error.found, error.expected) == ("grey", "images of 84×84 colour pixels for miniimagenet")


# --- miniImageNet ----------------------------------------------------------------------------------------------------


MINI = {
    "train": [("a.jpg", "n1"), ("b.jpg", "n2"), ("c.jpg", "n1")],
    "val": [("d.jpg", "n0")],
    "test": [("e.jpg", "n3")],
}


def write_mini(root, tables=MINI, zipped=None, more=()):
    rows = [row for table in MINI.values() for row in table]
    files = {f"images/{name}": encoded(photo(i), ".jpg") for i, (name, _) in enumerate([*rows, *more])}
    folder = root / "miniimagenet"
    write(folder, files, zipped)
    write(
        folder,
        {f"{name}.csv": "filename,label\n" + "".join(f"{f},{c}\n" for f, c in table) for name, table in tables.items()},
    )
    return files


@pytest.mark.parametrize("zipped", [None, "images.zip"])
def test_miniimagenet_joins_its_three_tables(tmp_path, zipped):
    files = write_mini(tmp_path, zipped=zipped, more=[("unlisted.jpg", "")])
    dataset = load_dataset("miniimagenet", tmp_path)
    assert dataset.input == COLOUR
    assert dataset.pool.names == ("n0", "n1", "n2", "n3")
    assert dataset.pool.counts.tolist() == [1, 2, 1, 1]
    for name, at in (("a", (1, 0)), ("b", (2, 0)), ("c", (1, 1)), ("d", (0, 0)), ("e", (3, 0))):
        assert_close(dataset.pool.examples[at], decoded(files[f"images/{name}.jpg"]), rtol=0, atol=1)


def test_miniimagenet_with_rows_that_do_not_fit(tmp_path):
    write_mini(tmp_path, MINI | {"val": [("d.jpg", "n0"), ("lost.jpg", "n0"), ("gone.jpg", "n0")]})
    error = refused("miniimagenet", tmp_path)
    assert error.where.endswith("val.csv, row 3, column 'filename'")
    assert error.found == "lost.jpg"
    assert "2 of 3 are missing" in error.expected
    for twice in ({"val": [("a.jpg", "n0")]}, {"val": [("d.jpg", "n0"), ("d.jpg", "n1")]}):
        write_mini(tmp_path, MINI | twice)
        error = refused("miniimagenet", tmp_path)
        assert error.found == twice["val"][-1][0]
        assert "one row only" in error.expected
    write(tmp_path / "miniimagenet", {"val.csv": "file,label\nd.jpg,n0\n"})
    error = refused("miniimagenet", tmp_path)
    assert (error.where, list(error.found)) == (str(tmp_path / "miniimagenet" / "val.csv"), ["file", "label"])
    assert "no column 'filename'" in error.message


def test_miniimagenet_as_pickles_is_refused_with_advice(tmp_path):
    write(tmp_path / "miniimagenet", {"mini-imagenet-cache-train.pkl": b"cos\nsystem\n"})
    assert "are not read, because a pickle can run any program" in refused("miniimagenet", tmp_path).hint


# --- LabelMe ---------------------------------------------------------------------------------------------------------


LABELME = [  # file, class, its number, labels of four annotators; the third has none
    ("street_1.jpg", "street", 3, "3 -1 -1 5"),
    ("coast_1.jpg", "coast", 5, "-1 0 -1 5"),
    ("street_2.jpg", "street", 3, "-1 -1 -1 -1"),
    ("highway_1.jpg", "highway", 0, "0 3 -1 -1"),
]


def write_labelme(root, rows=LABELME, zipped=True, top="LabelMe/", **lists):
    files = {f"{top}train/{row[1]}/{row[0]}": encoded(photo(i), ".jpg") for i, row in enumerate(LABELME)}
    for part in ("valid", "test"):
        files |= {f"{top}{part}/street/street_{part}.jpg": encoded(photo(99), ".jpg")}
    lists = {
        "filenames_train.txt": [row[0] for row in rows],
        "labels_train_names.txt": [row[1] for row in rows],
        "labels_train.txt": [str(row[2]) for row in rows],
        "answers.txt": [row[3] for row in rows],
    } | {f"{name}.txt": lines for name, lines in lists.items()}
    files |= {f"{top}{name}": "\n".join(lines) + "\n" for name, lines in lists.items()}
    write(root / "labelme", files, "LabelMe.zip" if zipped else None)
    return files


@pytest.mark.parametrize(("zipped", "top"), [(True, "LabelMe/"), (False, "LabelMe/"), (False, "LabelMe/LabelMe/")])
def test_labelme(tmp_path, zipped, top):
    files = write_labelme(tmp_path, zipped=zipped, top=top)
    dataset = load_dataset("labelme", tmp_path)
    pool = dataset.pool
    assert dataset.input == COLOUR
    assert pool.names == ("coast", "highway", "street")
    assert pool.counts.tolist() == [1, 1, 2], "training images only"
    assert pool.crowd_labels.dtype == torch.int16
    assert pool.crowd_labels.tolist() == [
        [[-1, 1, 0], [-1, -1, -1]],  # of coast's one image: nothing, highway, coast; then padding
        [[1, 2, -1], [-1, -1, -1]],
        [[2, -1, 0], [-1, -1, -1]],
    ]
    assert_close(pool.examples[2, 1], decoded(files[f"{top}train/street/street_2.jpg"]), rtol=0, atol=1)
    assert dataset.note.startswith("LabelMe's 4 training images with 6 labels of 3 annotators, 50% right")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"rows": [*LABELME, ("coast_9.jpg", "coast", 5, "5 5 5 5")]},
            "filenames_train.txt lists: 'train/coast/coast_9.jpg'",
        ),
        ({"labels_train": ["3"]}, "filenames_train.txt 4, labels_train_names.txt 4, labels_train.txt 1, answers.txt 4"),
        (
            {"answers": ["3 3", "3 3", "3 8", "3 3"]},
            "answers.txt, row 3 has the label '8', expected one of '3', '5', '0'",
        ),
        ({"answers": ["3 3", "3 3", "3 3", "3"]}, "answers.txt, row 4 has 1 columns, expected 2"),
    ],
)
def test_labelme_that_does_not_fit_together(tmp_path, change, expected):
    write_labelme(tmp_path, **change)
    assert expected in str(refused("labelme", tmp_path))


def test_labelme_without_answers(tmp_path):
    write_labelme(tmp_path, zipped=False)
    (tmp_path / "labelme" / "LabelMe" / "answers.txt").unlink()
    error = refused("labelme", tmp_path)
    assert (error.where, error.message) == (str(tmp_path / "labelme" / "LabelMe"), "has no file answers.txt")


# --- CIFAR-10's two crowds -------------------------------------------------------------------------------------------


TRUTH = {0: "cat", 1: "ship", 2: "ship", 3: "airplane", 4: "frog"}
RAW = (
    "annotator_id,trial_index,is_attn_check,true_category,chosen_category,true_label,chosen_label,cifar10_test_test_idx"
)


def raw_answers(answers):
    """Write answers (annotator, image, label) as the official table, with a failed attention check per annotator."""
    rows = [
        f"{who},0,0,{TRUTH[image]},{label},{CIFAR.index(TRUTH[image])},{CIFAR.index(label)},{image}"
        for who, image, label in answers
    ]
    checks = [f"{who},9,1,cat,dog,3,5,-99999" for who in sorted({answer[0] for answer in answers})]
    return "\n".join([RAW, *rows, *checks]) + "\n"


def cifar_pixels(i):
    return photo(i, 32)


def batch():
    """Return the official binary file: for each image its class, then the red, green and blue pixels."""
    planes = {i: np.moveaxis(cifar_pixels(i), -1, 0).tobytes() for i in TRUTH}
    return b"".join(bytes([CIFAR.index(TRUTH[i])]) + planes[i] for i in TRUTH)


def write_cifar_images(folder, kind, by_class=True):
    names = {i: f"{name}/{i:05d}.png" if by_class else f"{i:05d}.png" for i, name in TRUTH.items()}
    files = {names[i]: encoded(cifar_pixels(i)) for i in TRUTH}
    if kind == "zip":
        write(folder, files, "images.zip")
    elif kind == "folder":
        write(folder / "images", files)
    elif kind == "unpacked":
        write(folder, {"cifar-10-batches-bin/test_batch.bin": batch()})
    else:
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
            for name, data in (("data_batch_1.bin", b"other"), ("test_batch.bin", batch())):
                info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))


CROWD = [(7, 0, "cat"), (7, 1, "ship"), (8, 0, "frog"), (8, 1, "ship"), (8, 2, "cat"), (9, 2, "airplane")]


@pytest.mark.parametrize("kind", ["zip", "folder", "binary", "unpacked"])
def test_cifar10h(tmp_path, kind):
    folder = tmp_path / "cifar10h"
    write(folder, {"cifar10h-raw.csv": raw_answers(CROWD)})
    write_cifar_images(folder, kind)
    dataset = load_dataset("cifar10h", tmp_path)
    pool = dataset.pool
    assert dataset.input == COLOUR
    assert pool.names == ("airplane", "cat", "frog", "ship")
    assert pool.counts.tolist() == [1, 1, 1, 2]
    # annotators by accuracy: 9 (none of one), 8 (one of three), 7 (two of two)
    wanted = [[[-1, -1, -1], [-1, -1, -1]]] * 4
    wanted[1] = [[-1, 2, 1], [-1, -1, -1]]
    wanted[3] = [[-1, 3, 3], [0, 1, -1]]
    assert pool.crowd_labels.shape == (4, 2, 3)
    assert pool.crowd_labels.tolist() == wanted
    resized = np.array(Image.fromarray(cifar_pixels(2)).resize((84, 84), Image.Resampling.BILINEAR))
    difference = pool.examples[3, 1].int() - torch.from_numpy(resized).movedim(-1, 0).int()
    assert difference.abs().max() <= 1


def test_official_archives_equal_image_files(tmp_path):
    for kind in ("zip", "binary"):
        folder = tmp_path / kind / "cifar10h"
        write_cifar_images(folder, kind)
        write(folder, {"cifar10h-raw.csv": raw_answers(CROWD)}, None if kind == "zip" else "cifar10h-raw.zip")
    files, official = (load_dataset("cifar10h", tmp_path / kind) for kind in ("zip", "binary"))
    assert files.pool.names == official.pool.names
    assert files.note == official.note
    for name in ("examples", "counts", "crowd_labels"):
        assert_close(getattr(files.pool, name), getattr(official.pool, name), rtol=0, atol=0)


def test_the_25_of_lowest_accuracy():
    """Compare with exact fractions: order by accuracy, then by more answers, then by the smaller number."""
    rng = np.random.default_rng(0)
    answers = [
        {"annotator": who, "truth": "cat", "label": "cat" if rng.random() < 0.7 else "dog"}
        for who in rng.permutation(80)
        for _ in range(rng.integers(1, 6))
    ]
    n, right = Counter(), Counter()
    for answer in answers:
        n[answer["annotator"]] += 1
        right[answer["annotator"]] += answer["label"] == "cat"
    order = sorted(n, key=lambda who: (right[who] * 3600 // n[who], -n[who], who))
    assert cifar10h.least_accurate(pd.DataFrame(answers), 25) == order[:25]
    assert len({right[who] * 3600 // n[who] for who in order[:25]}) < 25, "there are ties to break"


def test_attention_checks_are_not_answers(tmp_path):
    write(tmp_path, {"cifar10h-raw.csv": raw_answers(CROWD)})
    answers = cifar10h.read_answers(tmp_path / "cifar10h-raw.csv")
    assert answers[["annotator", "item", "label"]].values.tolist() == [[a, f"{i:05d}", c] for a, i, c in CROWD]


def test_only_the_least_accurate_are_kept_and_all_images_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10h, "N_ANNOTATORS", 1)
    folder = tmp_path / "cifar10h"
    write(folder, {"cifar10h-raw.csv": raw_answers(CROWD)})
    write_cifar_images(folder, "zip")
    dataset = load_dataset("cifar10h", tmp_path)
    assert dataset.pool.counts.sum() == 5
    assert dataset.pool.crowd_labels.shape == (4, 2, 1)
    assert (dataset.pool.crowd_labels >= 0).nonzero().tolist() == [[3, 1, 0]], "the one label of annotator 9"


def test_answers_about_missing_images_count_for_accuracy_only(tmp_path):
    folder = tmp_path / "cifar10h"
    more = raw_answers(CROWD) + "".join(f"7,0,0,dog,cat,5,3,{i}\n" for i in range(500, 510))
    write(folder, {"cifar10h-raw.csv": more})
    write_cifar_images(folder, "zip")
    dataset = load_dataset("cifar10h", tmp_path)
    assert dataset.pool.crowd_labels[1, 0].tolist() == [-1, 1, 2], "annotator 7, now two of twelve, comes before 8"
    assert "A part of CIFAR-10H, 5 of its 10,000 images" in dataset.note


def test_cifar10h_that_does_not_fit_together(tmp_path):
    folder = tmp_path / "cifar10h"
    write_cifar_images(folder, "zip")
    write(folder, {"cifar10h-raw.csv": raw_answers(CROWD).replace("7,0,0,cat,cat,3,3,0", "7,0,0,dog,cat,5,3,0")})
    error = refused("cifar10h", tmp_path)
    assert error.found == "dog"
    assert "image 00000" in error.message
    assert error.expected.startswith("cat as in ")
    write(folder, {"cifar10h-raw.csv": raw_answers([*CROWD, (9, 0, "dog")])})
    sentence = str(refused("cifar10h", tmp_path))
    assert "has the label 'dog', expected one of 'airplane', 'cat', 'frog', 'ship'" in sentence
    write(folder, {"cifar10h-raw.csv": raw_answers(CROWD).replace(",2\n", ",two\n")})
    assert "column 'cifar10_test_test_idx' is 'two', expected a number" in str(refused("cifar10h", tmp_path))
    write(folder, {"cifar10h-raw.csv": raw_answers(CROWD).replace(",2\n", ",\n")})
    error = refused("cifar10h", tmp_path)
    assert error.where.endswith("row 6, column 'cifar10_test_test_idx'")
    assert (error.found, error.expected) == ("", "a whole number")
    write(folder, {"cifar10h-raw.csv": "a,b\n1,2\n"})
    error = refused("cifar10h", tmp_path)
    assert list(error.found) == ["a", "b"]
    assert "'cifar10_test_test_idx'" in error.message
    write(folder, {"cifar10h-raw.csv": RAW + "\n1,0,0,cat,cat,3,3,77\n"})
    assert "has no label by its 1 annotators of lowest accuracy" in refused("cifar10h", tmp_path).message


@pytest.mark.parametrize("data", [b"", b"x" * 3072, b"\x0a" * 3073])
def test_a_damaged_batch(tmp_path, data):
    write(tmp_path / "cifar10h", {"cifar10h-raw.csv": raw_answers(CROWD), "cifar-10-batches-bin/test_batch.bin": data})
    error = refused("cifar10h", tmp_path)
    assert error.where.endswith("test_batch.bin")
    assert error.found in (len(data), 10)


def test_a_damaged_archive(tmp_path):
    folder = tmp_path / "cifar10h"
    write(folder, {"cifar10h-raw.csv": raw_answers(CROWD), "cifar-10-binary.tar.gz": b"no archive"})
    error = refused("cifar10h", tmp_path)
    assert "damaged" in error.message
    assert error.where == str(folder / "cifar-10-binary.tar.gz")
    write(folder, {"images.zip": b"no zip"})
    error = refused("cifar10h", tmp_path)
    assert (error.where, error.message) == (str(folder / "images.zip"), "is damaged or not a zip file")
    assert error.hint.startswith("Get https://")


S_TRUTH = {0: "cat", 2: "ship", 4: "frog"}


def write_cifar10s(
    root, kind, labels=(("00000.png", "w1", "cat"), ("00002.png", "w2", "frog"), ("00000.png", "w2", "ship"))
):
    folder = root / "cifar10s"
    write_cifar_images(folder, kind, by_class=False)
    rows = {
        "annotations.csv": ["task,worker,label", *(",".join(row) for row in labels)],
        "truth.csv": ["task,label", *(f"{i:05d}.png,{name}" for i, name in S_TRUTH.items())],
    }
    write(folder, {name: "\n".join(lines) + "\n" for name, lines in rows.items()})
    return folder


@pytest.mark.parametrize("kind", ["zip", "folder", "binary"])
def test_cifar10s(tmp_path, kind):
    write_cifar10s(tmp_path, kind)
    dataset = load_dataset("cifar10s", tmp_path)
    assert dataset.input == COLOUR
    assert dataset.pool.names == ("cat", "frog", "ship")
    assert dataset.pool.counts.tolist() == [1, 1, 1], "what truth.csv lists"
    assert dataset.pool.crowd_labels.tolist() == [[[0, 2]], [[-1, -1]], [[-1, 1]]]
    assert "3 labels of 2 annotators, 33% right; the paper does not use it" in dataset.note


def test_cifar10s_that_does_not_fit_together(tmp_path):
    write_cifar10s(tmp_path, "zip", [("00000.png", "w1", "cow")])
    sentence = str(refused("cifar10s", tmp_path))
    assert "annotations.csv has the label 'cow', expected one of 'cat', 'frog', 'ship'" in sentence
    folder = write_cifar10s(tmp_path, "zip", [("00009.png", "w1", "cat")])
    assert "has no image for 1 of the 1 labelled items, first '00009.png'" in str(refused("cifar10s", tmp_path))
    write(folder, {"truth.csv": "task,label\n00000.png,cat\n00008.png,cat\n"})
    error = refused("cifar10s", tmp_path)
    assert error.where.endswith("truth.csv, row 3, column 'task'")
    assert error.found == "00008.png"


# --- cached images ---------------------------------------------------------------------------------------------------


def write_small(root, seed=0):
    files = {f"n{c}/{i}.png": encoded(character(100 * seed + 10 * c + i)) for c in (1, 2) for i in range(2)}
    write(root / "omniglot", files, "images_background.zip")


def spied(monkeypatch, name, **changes):
    """Count how often a dataset is decoded."""
    calls = []
    loader = DATASETS[name]

    def read(paths):
        calls.append(paths)
        return loader.read(paths)

    monkeypatch.setitem(DATASETS, name, replace(loader, read=read, **changes))
    return calls


def same(a, b):
    assert (a.name, a.input, a.note, a.pool.names) == (b.name, b.input, b.note, b.pool.names)
    assert_close((a.pool.examples, a.pool.counts), (b.pool.examples, b.pool.counts), rtol=0, atol=0)
    assert (a.pool.crowd_labels is None) == (b.pool.crowd_labels is None)
    if a.pool.crowd_labels is not None:
        assert_close(a.pool.crowd_labels, b.pool.crowd_labels, rtol=0, atol=0)


def test_images_are_decoded_once(tmp_path, monkeypatch):
    write_small(tmp_path)
    write_labelme(tmp_path)
    for name in ("omniglot", "labelme"):
        calls = spied(monkeypatch, name)
        first, second = load_dataset(name, tmp_path), load_dataset(name, tmp_path)
        assert len(calls) == 1
        same(first, second)
        assert [p.name for p in (tmp_path / name).glob(".*")] == [f".crowdshot-{name}.npz"]


def test_a_changed_archive_is_decoded_again(tmp_path, monkeypatch):
    calls = spied(monkeypatch, "omniglot")
    write_small(tmp_path)
    before = load_dataset("omniglot", tmp_path)
    write_small(tmp_path, seed=1)
    after = load_dataset("omniglot", tmp_path)
    assert len(calls) == 2
    assert (before.pool.examples != after.pool.examples).any()
    path = tmp_path / "omniglot" / "images_background.zip"
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    load_dataset("omniglot", tmp_path)
    assert len(calls) == 3, "the time alone has changed"
    spied(monkeypatch, "omniglot", version=2)
    load_dataset("omniglot", tmp_path)
    assert len(calls) == 4, "the loader has changed"


def test_a_changed_folder_is_decoded_again(tmp_path, monkeypatch):
    calls = spied(monkeypatch, "miniimagenet")
    write_mini(tmp_path)
    load_dataset("miniimagenet", tmp_path)
    load_dataset("miniimagenet", tmp_path)
    assert len(calls) == 1
    write(tmp_path / "miniimagenet", {"images/a.jpg": encoded(photo(77), ".jpg")})
    load_dataset("miniimagenet", tmp_path)
    assert len(calls) == 2
    write(tmp_path / "miniimagenet", {"val.csv": "filename,label\nd.jpg,n9\n"})
    assert "n9" in load_dataset("miniimagenet", tmp_path).pool.names


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: b"rubbish", lambda data: data[: len(data) // 2]])
def test_a_damaged_copy_is_replaced(tmp_path, monkeypatch, damage):
    write_small(tmp_path)
    first = load_dataset("omniglot", tmp_path)
    kept = tmp_path / "omniglot" / ".crowdshot-omniglot.npz"
    whole = kept.read_bytes()
    kept.write_bytes(damage(whole))
    calls = spied(monkeypatch, "omniglot")
    same(first, load_dataset("omniglot", tmp_path))
    assert len(calls) == 1
    same(first, load_dataset("omniglot", tmp_path))
    assert len(calls) == 1, "and kept again"


def test_nothing_is_written_to_a_read_only_folder(tmp_path):
    write_small(tmp_path)
    folder = tmp_path / "omniglot"
    folder.chmod(0o555)
    try:
        load_dataset("omniglot", tmp_path)
        assert [p.name for p in folder.iterdir()] == ["images_background.zip"], "even by a user who may write anywhere"
    finally:
        folder.chmod(0o755)


def test_decoded_images_of_a_read_only_folder_are_cached_elsewhere(tmp_path, monkeypatch):
    write_small(tmp_path)
    calls, cache = spied(monkeypatch, "omniglot"), tmp_path / "work" / "datasets"
    (tmp_path / "omniglot").chmod(0o555)
    try:
        same(load_dataset("omniglot", tmp_path, cache=cache), load_dataset("omniglot", tmp_path, cache=cache))
    finally:
        (tmp_path / "omniglot").chmod(0o755)
    assert len(calls) == 1
    assert [p.name for p in cache.iterdir()] == [".crowdshot-omniglot.npz"]
    assert [p.name for p in (tmp_path / "omniglot").iterdir()] == ["images_background.zip"]


def test_a_writable_folder_keeps_its_own_images(tmp_path):
    write_small(tmp_path)
    load_dataset("omniglot", tmp_path, cache=tmp_path / "cache")
    assert (tmp_path / "omniglot" / ".crowdshot-omniglot.npz").exists()
    assert not (tmp_path / "cache").exists()


def test_images_are_read_if_they_cannot_be_cached(tmp_path, monkeypatch):
    write_small(tmp_path)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    assert load_dataset("omniglot", tmp_path).pool.counts.tolist() == [2, 2]
    assert [p.name for p in (tmp_path / "omniglot").iterdir()] == ["images_background.zip"]


# --- missing data ----------------------------------------------------------------------------------------------------


def test_an_unknown_name():
    with pytest.raises(CrowdshotError) as error:
        load_dataset("omniglott", ".")
    assert (error.value.argument, error.value.found) == ("name", "omniglott")
    assert "'omniglot', " in error.value.expected


@pytest.mark.parametrize("name", DATASETS)
def test_missing_data_are_reported_with_instructions(tmp_path, name):
    folder = tmp_path / DATASETS[name].folder
    absent = refused(name, tmp_path)
    folder.mkdir()
    empty = refused(name, tmp_path)
    for error in (absent, empty):
        assert error.where == str(folder)
        assert DATASETS[name].parts[0].names[0] in error.expected
        assert re.search("https?://", str(error))
    assert absent.message == "does not exist"
    assert empty.message.startswith("has no file of ")


# --- real data -------------------------------------------------------------------------------------------------------


@pytest.fixture
def real(request, tmp_path):
    """Link the real files of the dataset in the test's name into a new folder, so that they stay unchanged."""
    name = request.function.__name__.removeprefix("test_real_").partition("_evaluation")[0].replace("_", "-")
    source = Path(os.environ.get("CROWDSHOT_DATA", "")) / name
    if "CROWDSHOT_DATA" not in os.environ or not source.is_dir():
        pytest.skip(f"CROWDSHOT_DATA does not name a folder that has {name}")
    (tmp_path / name).mkdir()
    for file in source.iterdir():
        (tmp_path / name / file.name).symlink_to(file)
    return tmp_path


def test_real_omniglot(real):
    pool = load_dataset("omniglot", real).pool
    assert pool.examples.shape == (964, 20, 28, 28)
    assert (pool.counts == 20).all()
    assert len({name.partition("/")[0] for name in pool.names}) == 30
    ink = (pool.examples > 127).float().mean((0, 1))
    assert ink[10:18, 10:18].mean() > 3 * ink[:2].mean(), "bright ink, in the middle"


def test_real_omniglot_evaluation(real):
    dataset = load_dataset("omniglot-evaluation", real)
    assert dataset.pool.examples.shape == (659, 20, 28, 28)
    source = open_source(str(real / "omniglot" / "images_evaluation.zip"))
    assert source.pool.names == dataset.pool.names
    assert torch.equal(source.pool.examples, dataset.pool.examples)


def test_real_labelme(real):
    pool = load_dataset("labelme", real).pool
    scenes = ("coast", "forest", "highway", "insidecity", "mountain", "opencountry", "street", "tallbuilding")
    assert pool.names == scenes
    assert pool.counts.tolist() == [134, 138, 89, 116, 128, 154, 110, 131]
    assert pool.crowd_labels.shape == (8, 154, 59)
    labelled = pool.crowd_labels >= 0
    right = pool.crowd_labels == torch.arange(8)[:, None, None]
    assert labelled.sum() == 2547
    assert right.sum() == 1886, "74 %"
    assert (labelled & ~(torch.arange(154) < pool.counts[:, None])[..., None]).sum() == 0, "padding has no labels"
    accuracy = right.sum((0, 1)) / labelled.sum((0, 1))
    assert round(float(accuracy.mean()), 3) == 0.692, "the mean accuracy of an annotator that the paper gives"


def test_real_cifar10h(real):
    dataset = load_dataset("cifar10h", real)
    pool = dataset.pool
    assert pool.names == tuple(CIFAR)
    assert pool.counts.tolist() == [59, 54, 49, 37, 51, 51, 49, 48, 49, 53]
    assert pool.crowd_labels.shape == (10, 59, 25)
    assert (pool.crowd_labels >= 0).sum() == 213
    assert (pool.crowd_labels >= 0).any(2).sum(1).tolist() == [22, 16, 18, 13, 17, 19, 23, 18, 20, 14]
    assert "A part of CIFAR-10H" in dataset.note
    answers = cifar10h.read_answers(real / "cifar10h" / "cifar10h-raw.csv")
    assert len(answers) == 25752
    assert answers["annotator"].nunique() == 2571
    assert round((answers["truth"] == answers["label"]).mean(), 3) == 0.949
    right = {
        who: (t == n).mean() for who, t, n in ((w, g["truth"], g["label"]) for w, g in answers.groupby("annotator"))
    }
    chosen = cifar10h.least_accurate(answers, 25)
    assert max(right[who] for who in chosen) <= min(right[who] for who in set(right) - set(chosen))


def test_real_cifar10s(real):
    pool = load_dataset("cifar10s", real).pool
    assert pool.names == tuple(CIFAR)
    assert pool.counts.sum() == 1000
    assert pool.crowd_labels.shape[2] == 248
    assert ((pool.crowd_labels >= 0).sum((0, 1)) == 25).all()
