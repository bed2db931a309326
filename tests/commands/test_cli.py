"""The command line, as a stranger uses it: what it writes, what it says, and that nothing half-written stays."""

import csv
import errno
import html
import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from typer.testing import CliRunner

import crowdshot
import forked
from crowdshot._cli import main
from crowdshot.encoders.encoder_files import build_encoder, save_encoder
from crowdshot.encoders.image_input import ImageInput
from polling import TIMEOUT

PRIORS = {"tau": 1.0, "b": 100.0, "confusion": {"kind": "symmetric", "c": 1.0}, "steps": 2}
DIGITS = ("zero", "one", "two", "three")
FILES = ["annotators.csv", "confusion.csv", "consensus.csv", "feedback", "model.safetensors", "report.html", "run.json"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 labelled and 8 unlabelled digits as images and as features; five annotators of whom one guesses."""
    root = tmp_path_factory.mktemp("made")
    (root / "photos" / "more").mkdir(parents=True)
    X, y = load_digits(return_X_y=True)
    X, y = X[y < 4][:48], y[y < 4][:48]
    names = [f"more/{i:03d}.png" if i % 2 else f"{i:03d}.png" for i in range(48)]
    for name, pixels in zip(names, X, strict=True):
        Image.fromarray((pixels.reshape(8, 8) * 15).astype(np.uint8)).save(root / "photos" / name)
    random = np.random.default_rng(0)
    rows = [
        (names[i], f"ann{who}", DIGITS[y[i] if random.random() < skill else random.integers(4)])
        for i in range(40)
        for who, skill in enumerate((0.95, 0.85, 0.8, 0.8, 0.0))
    ]
    pd.DataFrame(rows, columns=["image", "worker", "answer"]).to_csv(root / "labels.csv", index=False)
    features = pd.DataFrame(X)
    features.insert(0, "image", names)
    features.to_csv(root / "features.csv", index=False)
    pd.DataFrame({"image": names, "truth": [DIGITS[k] for k in y]}).to_csv(root / "truth.csv", index=False)
    torch.manual_seed(0)
    encoder = build_encoder("conv4", {"width": 4}, ImageInput((28, 28), ink=True), {"priors": PRIORS})
    save_encoder(encoder, root / "tiny.safetensors")
    return root


@pytest.fixture(scope="module")
def models(made: Path) -> Path:
    """`made` with a model from features and one from images."""
    for out, given in (("by-features", "--features=features.csv"), ("by-images", "--images=photos")):
        encoder = ["--encoder", str(made / "tiny.safetensors")] if "images" in given else []
        option, _, name = given.partition("=")
        with pytest.raises(SystemExit) as stop:
            main.app(
                ["adapt", f"{made}/labels.csv", option, f"{made}/{name}", "--out", f"{made}/{out}", *encoder],
                prog_name="crowdshot",
            )
        assert not stop.value.code
    return made


def everything(folder: Path) -> list[str]:
    """But for the sheets of feedback, whose names are the annotators'."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.parent.name != "feedback")


# ---- adapt ------------------------------------------------------------------------------------------------------


def test_adapt_with_features(made: Path, tmp_path: Path, call) -> None:
    said = call("adapt", made / "labels.csv", "--features", made / "features.csv", "--out", tmp_path / "out")
    assert (said.code, said.err) == (0, "")
    assert everything(tmp_path) == ["out", *(f"out/{name}" for name in FILES)]
    assert said.out.startswith("40 items, 5 annotators, 200 labels, 4 classes: one, three, two, zero\n")
    assert "8 unlabelled items labelled by the classifier" in said.out
    helped = "The features are informative: they predict held-out labels with probability 0."
    assert helped in said.out
    assert helped in (tmp_path / "out" / "report.html").read_text("utf-8")
    assert said.out.index("ann4") < said.out.index("ann0")  # the guesser comes first
    assert str(tmp_path / "out" / "model.safetensors") in said.out
    consensus = pd.read_csv(tmp_path / "out" / "consensus.csv")
    truth = pd.read_csv(made / "truth.csv")
    assert list(consensus) == ["image", "answer", "confidence", "n_labels", "agreement"]
    assert consensus["image"].tolist() == truth["image"].tolist()
    assert consensus["n_labels"].tolist() == [5] * 40 + [0] * 8
    assert (consensus["answer"] == truth["truth"])[:40].mean() >= 0.95
    assert (consensus["answer"] == truth["truth"])[40:].mean() >= 0.75
    annotators = pd.read_csv(tmp_path / "out" / "annotators.csv").set_index("worker")
    assert annotators["accuracy"].idxmin() == "ann4"
    confusion = pd.read_csv(tmp_path / "out" / "confusion.csv")
    assert list(confusion) == ["worker", "true", "observed", "probability"]
    assert len(confusion) == 5 * 4 * 4
    np.testing.assert_allclose(confusion.groupby(["worker", "true"])["probability"].sum(), 1.0, atol=1e-5)


def test_a_lone_annotator_is_not_believed_in_silence(made: Path, tmp_path: Path, call) -> None:
    rows = pd.read_csv(made / "labels.csv")
    rows[rows["worker"] == rows["worker"][0]].to_csv(tmp_path / "one.csv", index=False)
    said = call("adapt", tmp_path / "one.csv", "--features", made / "features.csv", "--out", tmp_path / "out")
    assert said.code == 0
    assert ", 1 annotator, " in said.out
    assert "nobody can contradict a single annotator" in said.out
    assert "Nobody can contradict a single annotator" in (tmp_path / "out" / "report.html").read_text("utf-8")


@pytest.mark.slow
def test_adapt_with_images_as_json(made: Path, tmp_path: Path, call) -> None:
    given = ("--images", made / "photos", "--encoder", made / "tiny.safetensors", "--out", tmp_path / "out")
    said = call("adapt", made / "labels.csv", *given, "--json")
    assert (said.code, said.err) == (0, "")
    report = json.loads(said.out)
    assert (report["items"], report["annotators"], report["labels"], report["predicted"]) == (40, 5, 200, 8)
    assert report["classes"] == sorted(DIGITS)
    assert [statistic["name"] for statistic in report["agreement"]] == [
        *("Pairwise agreement", "Krippendorff's alpha", "Fleiss' kappa", "Gwet's AC1"),
    ]
    effect = report["feature_effect"]
    assert effect["kind"] == "images"
    assert 0 < effect["by_class_sizes"] < effect["held_out_probability"] < 1
    consensus = pd.read_csv(tmp_path / "out" / "consensus.csv").set_index("image")
    assert effect["changed"] == len(effect["changed_items"])
    assert effect["unchosen_items"] == consensus.index[consensus["agreement"] == 0].tolist()
    assert set(effect["unchosen_items"]) <= set(effect["changed_items"]) <= set(consensus.index)
    assert [row["worker"] for row in report["annotator_table"]] == [f"ann{i}" for i in range(5)]
    assert sorted(Path(file).name for file in report["files"]) == FILES
    assert pd.read_csv(tmp_path / "out" / "consensus.csv")["n_labels"].tolist().count(0) == 8


@pytest.mark.slow
def test_adapt_says_what_it_refuses_before_it_writes(made: Path, tmp_path: Path, call) -> None:
    labels, features, photos = made / "labels.csv", made / "features.csv", made / "photos"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.txt").write_text("keep")
    (tmp_path / "file").write_text("keep")
    (tmp_path / "wide.csv").write_text("image,confidence,x\n1,a,b\n")
    before = everything(tmp_path)
    tiny = ("--encoder", made / "tiny.safetensors")
    for arguments, message in [
        ((labels,), "Images, features and texts are all missing, expected one of the three."),
        (
            (labels, "--images", photos, "--features", features),
            "--images is given together with features, expected one",
        ),
        ((labels, "--images", tmp_path / "no", *tiny), "does not exist, expected a folder of images."),
        ((labels, "--images", tmp_path / "folder", *tiny), "holds no images"),
        ((labels, "--features", tmp_path / "no.csv"), "no.csv does not exist, expected a file."),
        ((labels, "--features", photos), "photos is a folder, expected a file."),
        ((tmp_path / "no.csv", "--features", features), "no.csv does not exist, expected a file."),
        ((photos, "--features", features), "photos is a folder, expected a file."),
        ((labels, "--features", features, "--encoder", "nonsense"), "--encoder is 'nonsense', expected a file or one"),
        ((labels, "--features", features, "--encoder", labels), "labels.csv is not a safetensors file"),
        ((labels, "--images", photos, "--encoder", "identity"), "holds images, expected feature vectors, which"),
        ((labels, "--features", features, *tiny), "holds features, expected characters of 28×28 grey pixels"),
        (
            (labels, "--features", features, "--columns", "who=x"),
            "--columns is 'who=x', expected",
        ),
        (
            (labels, "--features", features, "--columns", "item=nothing"),
            "labels.csv has no column 'nothing' for the item",
        ),
        ((labels, "--features", features, "--format", "xml"), "--format is 'xml', expected one of"),
        (
            (tmp_path / "wide.csv", "--features", features, "--columns", "annotator=x,label=confidence"),
            "The label column is called 'confidence'",
        ),
    ]:
        said = call("adapt", *arguments, "--out", tmp_path / "out")
        assert said.code == 2, arguments
        assert said.out == ""
        assert said.err.startswith("crowdshot: ")
        assert message in said.err
        assert said.err.count("\n") <= 2  # the message and its hint
    for out, message in [("folder", "is not empty"), ("file", "is a file"), ("file/out", "file is a file")]:
        said = call("adapt", labels, "--features", features, "--out", tmp_path / out)
        assert (said.code, said.out) == (2, "")
        assert message in said.err
    assert everything(tmp_path) == before


def test_overwrite_leaves_other_files_alone(made: Path, tmp_path: Path, call) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    given = (made / "labels.csv", "--features", made / "features.csv", "--out", tmp_path)
    assert call("adapt", *given).code == 2
    assert call("adapt", *given, "--overwrite").code == 0
    assert everything(tmp_path) == sorted([*FILES, "mine.txt"])


def test_labelled_items_without_an_image_or_features(made: Path, tmp_path: Path, call) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text((made / "labels.csv").read_text() + "ghost.png,ann0,one\nspook.png,ann0,two\n")
    before = everything(tmp_path)
    photos = ("--images", made / "photos", "--encoder", made / "tiny.safetensors")
    for given, what in ((("--features", made / "features.csv"), "features"), (photos, "image")):
        said = call("adapt", labels, *given, "--out", tmp_path / "out")
        assert said.code == 2
        assert (
            f"has no {what} for 2 of the 42 labelled items, first 'ghost.png' (it has '000.png', for instance"
            in said.err
        )
        assert "Use --skip-bad to leave them out." in said.err
        assert everything(tmp_path) == before
    said = call("adapt", labels, *photos, "--out", tmp_path / "out", "--skip-bad")
    assert said.code == 0
    assert said.err == "crowdshot: note: left out: 2 labelled items without an image (ghost.png, spook.png)\n"
    assert said.out.startswith("40 items, 5 annotators, 200 labels")
    labels.write_text("item,annotator,label\nx,a,1\ny,a,2\n")
    said = call("adapt", labels, *photos, "--out", tmp_path / "other", "--skip-bad")
    assert said.code == 2
    assert (
        "has no image for 2 of the 2 labelled items, first 'x' (it has '000.png', for instance), expected one for each."
        in said.err
    )


def test_an_annotator_of_whom_no_label_is_left(made: Path, tmp_path: Path, call) -> None:
    table = pd.read_csv(made / "labels.csv")
    table.loc[len(table)] = ["nowhere.png", "zoe", table["answer"][0]]
    table.to_csv(tmp_path / "labels.csv", index=False)
    features = ("--features", made / "features.csv", "--skip-bad")
    said = call("adapt", tmp_path / "labels.csv", *features, "--out", tmp_path / "out")
    assert said.code == 0
    assert re.search(r"^zoe +0 +– +0\.00–1\.00 +–$", said.out, re.MULTILINE)


def test_a_name_that_two_images_share(made: Path, tmp_path: Path, call) -> None:
    for folder in ("a", "b"):
        (tmp_path / "photos" / folder).mkdir(parents=True)
        Image.new("L", (8, 8)).save(tmp_path / "photos" / folder / "same.png")
    (tmp_path / "labels.csv").write_text("image,worker,answer\nsame.png,ann,cat\nb/same.png,ann,dog\n")
    said = call("adapt", tmp_path / "labels.csv", "--images", tmp_path / "photos", "--out", tmp_path / "out")
    assert said.code == 2
    assert "has 'a/same.png' and 'b/same.png' for 'same.png', expected one" in said.err


def test_two_ids_for_one_image(made: Path, tmp_path: Path, call) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text((made / "labels.csv").read_text() + "000,ann0,one\n")
    photos = ("--images", made / "photos", "--encoder", made / "tiny.safetensors")
    said = call("adapt", labels, *photos, "--out", tmp_path / "out")
    assert said.code == 2
    assert "has '000.png' for both '000.png' and '000', expected one" in said.err


@pytest.mark.slow
def test_unreadable_images(made: Path, tmp_path: Path, call) -> None:
    photos = tmp_path / "photos"
    (photos / "more").mkdir(parents=True)
    for path in (made / "photos").rglob("*.png"):
        (photos / path.relative_to(made / "photos")).write_bytes(path.read_bytes())
    (photos / "000.png").write_bytes(b"")
    whole = (photos / "more" / "001.png").read_bytes()
    (photos / "more" / "001.png").write_bytes(whole[: len(whole) // 2])
    (photos / "047.png").write_bytes(b"no image")  # nobody labelled it
    before = everything(tmp_path)
    arguments = ("adapt", made / "labels.csv", "--images", photos, "--encoder", made / "tiny.safetensors")
    said = call(*arguments, "--out", tmp_path / "out")
    assert said.code == 2
    assert "photos has 3 images of 49 that cannot be read (" in said.err
    assert "000.png is empty (0 bytes); 047.png is not an image that Pillow can read; more/001.png is" in said.err
    assert said.err.endswith("Use --skip-bad to leave them out.\n")
    assert everything(tmp_path) == before
    said = call(*arguments, "--out", tmp_path / "out", "--skip-bad", "--json")
    assert said.code == 0
    assert "note: left out: 3 unreadable images (000.png, 047.png, more/001.png)" in said.err
    report = json.loads(said.out)
    assert report["left_out"]["unreadable images"] == ["000.png", "047.png", "more/001.png"]
    assert (report["items"], report["labels"]) == (38, 190)
    said = call("predict", tmp_path / "out" / "model.safetensors", "--images", photos)
    assert said.code == 2
    assert "has 3 images of 49" in said.err
    said = call("predict", tmp_path / "out" / "model.safetensors", "--images", photos, "--skip-bad")
    assert (said.code, len(said.out.splitlines())) == (0, 1 + 46)
    only_bad = tmp_path / "bad"
    only_bad.mkdir()
    (only_bad / "x.png").write_bytes(b"no image")
    said = call("predict", tmp_path / "out" / "model.safetensors", "--images", only_bad, "--skip-bad")
    assert said.code == 2
    assert "has 1 images of 1" in said.err


def test_a_file_name_that_is_no_text(made: Path, tmp_path: Path, models: Path, call) -> None:
    name = os.fsencode(tmp_path) + b"/\xff.png"
    try:
        Path(os.fsdecode(name)).write_bytes((made / "photos" / "000.png").read_bytes())
    except OSError:
        pytest.skip("this file system takes only names that are text")
    said = call("predict", models / "by-images" / "model.safetensors", "--images", tmp_path)
    assert said.code == 0
    assert said.out.splitlines()[1].startswith("\\udcff.png,")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "labels.csv is empty"),
        (b"item,annotator,label\n", "labels.csv has a header but no rows"),
        ("item,annotator,label\n1,é,x\n".encode("latin-1"), "labels.csv, row 2 has the byte 0xe9, which is not UTF-8"),
        ("item,annotator,label\n1,a,x\n".encode("utf-16-le"), "labels.csv, row 1 has zero bytes"),
        (bytes(range(256)) * 4, "labels.csv holds binary data"),
        (b"item,annotator,label\n1,a\n", "labels.csv, row 2 has 2 cells, expected 3 as in the header."),
        (b"what,who,said\n1,a,x\n", "labels.csv has no column for the item"),
        (b"item,annotator,label\n1,a,x\n,b,y\n", "labels.csv, row 3, column 'item' is empty"),
        (",".join(f"c{i}" for i in range(200)).encode() + b"\n" + b"," * 199 + b"\n", "'c9' and 190 more"),
    ],
)
def test_bad_labels(made: Path, tmp_path: Path, call, content: bytes, message: str) -> None:
    (tmp_path / "labels.csv").write_bytes(content)
    for command in (
        ("adapt", tmp_path / "labels.csv", "--features", made / "features.csv", "--out", tmp_path / "out"),
        ("aggregate", tmp_path / "labels.csv", "--out", tmp_path / "out.csv"),
    ):
        said = call(*command)
        assert (said.code, said.out) == (2, "")
        assert message in said.err
        assert "columns={" not in said.err  # advice is about options, not Python
        assert len(said.err) < 600
        assert everything(tmp_path) == ["labels.csv"]


def test_bad_features(made: Path, tmp_path: Path, call) -> None:
    path = tmp_path / "features.csv"
    for content, message in [
        ("image,x\na,1\na,2\n", "features.csv, row 3, column 'image' is 'a', as in row 2"),
        ("image,x\na,nan\n", "features.csv, row 2, column 'x' is empty or NaN"),
        ("image,x,y\na,1,dark\n", "features.csv, row 2, column 'y' is 'dark', expected a number"),
    ]:
        path.write_text(content)
        vectors = ("--features", path, "--encoder", "identity")
        said = call("adapt", made / "labels.csv", *vectors, "--out", tmp_path / "out")
        assert (said.code, said.out) == (2, "")
        assert message in said.err
        assert everything(tmp_path) == ["features.csv"]


def test_a_full_disk_leaves_nothing(
    made: Path, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.replace", full)
    monkeypatch.setattr("os.rename", full)
    features = ("--features", made / "features.csv")
    for command in (
        ("adapt", made / "labels.csv", *features, "--out", tmp_path / "out"),
        ("predict", models / "by-features" / "model.safetensors", *features, "--out", tmp_path / "out.csv"),
        ("aggregate", made / "labels.csv", "--out", tmp_path / "out.csv"),
        ("simulate", "--out", tmp_path / "out"),
    ):
        said = call(*command)
        assert (said.code, said.out) == (2, "")
        assert "could not be written (No space left on device)." in said.err
        assert everything(tmp_path) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EACCES, errno.EROFS])
def test_a_temporary_file_that_cannot_be_written(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call, number: int
) -> None:
    """Such as where the size of files is limited, or in a read-only folder."""

    def full(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("crowdshot._cli.aggregate.run_aggregate", full)
    said = call("aggregate", made / "labels.csv", "--out", tmp_path / "out.csv")
    assert said.code == 2
    assert os.strerror(number) in said.err


def test_columns_named_and_labels_given_twice(made: Path, tmp_path: Path, call) -> None:
    text = (made / "labels.csv").read_text().splitlines()
    odd = tmp_path / "odd.csv"
    odd.write_text("\n".join(["w,h,o", *text[1:], text[1], text[2].rsplit(",", 1)[0] + ","]))
    out = tmp_path / "out"
    given = (odd, "--features", made / "features.csv", "--out", out, "--columns", "item=w,annotator=h,label=o")
    said = call("adapt", *given)
    assert said.code == 0
    assert f"crowdshot: note: {odd}: 1 label dropped because an annotator labelled the same item" in said.err
    assert "crowdshot: note: left out: 1 row without a label" in said.err
    assert (out / "consensus.csv").read_text().startswith("w,o,confidence")
    assert (out / "annotators.csv").read_text().startswith("h,n_labels,")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def command_in(report: Path) -> list[str]:
    """What the report says would repeat it, as a shell would take it."""
    found = re.search(r"<pre tabindex=\"0\"><code>crowdshot (.*?)</code></pre>", report.read_text("utf-8"))
    return shlex.split(html.unescape(found[1]))


@pytest.mark.slow
def test_the_report_repeats_itself(made: Path, tmp_path: Path, call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)
    odd = tmp_path / "what they said.csv"
    odd.write_text((made / "labels.csv").read_text().replace("worker", "who is it", 1))
    given = ("--columns", "annotator=who is it", "--images", "photos", "--encoder", "tiny.safetensors", "--skip-bad")
    assert call("adapt", odd, *given, "--settings", "steps=1", "--out", tmp_path / "out").code == 0
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "data:image/png;base64," in page
    before = contents(tmp_path / "out")
    assert call(*command_in(tmp_path / "out" / "report.html")).code == 0
    assert contents(tmp_path / "out") == before


@pytest.mark.slow
def test_a_report_on_features_and_on_another_method(made: Path, tmp_path: Path, call) -> None:
    given = ("adapt", made / "labels.csv", "--features", made / "features.csv", "--out")
    said = call(*given, tmp_path / "ours")
    page = (tmp_path / "ours" / "report.html").read_text("utf-8")
    verdict = re.search(
        r"\nclassifier on new items: \d+\u00a0% correct \(90 % interval \d+–\d+\u00a0%\), (.*)\n", said.out
    )[1]
    assert verdict.startswith(("may label automatically", "not accurate enough to label automatically"))
    assert f'<span data-at="verdict">{verdict}</span>' in page
    number, kinds = re.search(r"\n(\d+) items? needs? review: (.*)\n", said.out).groups()
    assert f'<span data-at="person">{number}</span>' in page
    assert f'<span data-at="person_kinds">{kinds}</span>' in page
    named = re.findall(r"^(ann\d) ", said.out, re.MULTILINE)
    assert re.findall(r'data-name="(.*?)"', page) == named  # the same people in the same order
    assert sorted(named) == [f"ann{i}" for i in range(5)]
    steps = re.findall(r"^  \d\. (.*)$", said.out, re.MULTILINE)
    assert 2 <= len(steps) <= 5
    on_page = [html.unescape(text) for text in re.findall(r'<span data-at="\w+_text">(.+?)</span>', page)]
    assert [re.sub("[\u2068\u2069]", "", text) for text in on_page] == steps
    assert "<image" not in page
    assert call(*given, tmp_path / "rival", "--method", "MCL", "--settings", "iterations=2").code == 0
    page = (tmp_path / "rival" / "report.html").read_text("utf-8")
    assert "MCL takes too long to fit 10 times" in page
    assert "from Dawid–Skene on the labels alone" in page


def test_methods_under_their_old_names(made: Path, tmp_path: Path, call) -> None:
    said = call(
        "adapt",
        made / "labels.csv",
        "--features",
        made / "features.csv",
        "--method",
        "Learned",
        "--out",
        tmp_path / "r",
    )
    assert said.code == 0
    assert said.err.count("renamed") == 1
    assert "--method features " in said.out  # the recommended command has the present name


@pytest.mark.slow
def test_for_sharing_nobody_is_named(made: Path, tmp_path: Path, call) -> None:
    given = ("--features", made / "features.csv", "--out", tmp_path / "out")
    assert call("adapt", made / "labels.csv", *given).code == 0
    named = pd.read_csv(tmp_path / "out" / "annotators.csv")
    said = call("adapt", made / "labels.csv", *given, "--anonymous", "--overwrite")
    assert said.code == 0
    everywhere = {**contents(tmp_path / "out"), "the terminal": (said.out + said.err).encode()}
    assert not [place for place, text in everywhere.items() if re.search(rb"ann[0-4]", text)]
    numbered = pd.read_csv(tmp_path / "out" / "annotators.csv")
    assert sorted(numbered["worker"]) == [f"annotator {number}" for number in range(1, 6)]
    pd.testing.assert_frame_equal(numbered.drop(columns="worker"), named.drop(columns="worker"))
    assert {path.name for path in (tmp_path / "out" / "feedback").iterdir()} == {
        f"annotator-{number}.html" for number in range(1, 6)
    }
    assert "--anonymous" in command_in(tmp_path / "out" / "report.html")


PEOPLE = ("Marta", "Gustav", "Xenia", "Yorick", "Zenobia")


@pytest.mark.slow
def test_for_sharing_nobody_is_named_by_options_or_columns(made: Path, tmp_path: Path, call) -> None:
    """People are columns of the table; one of them is left out, another is not among those that are named."""
    long = pd.read_csv(made / "labels.csv")
    wide = long.pivot(index="image", columns="worker", values="answer").set_axis(PEOPLE, axis=1)
    wide.to_csv(tmp_path / "labels.csv")
    named = ("--annotator-columns", ",".join(PEOPLE[:4]), "--leave-out", "Yorick")
    page = nobody_named(call, made, tmp_path, tmp_path / "labels.csv", *named)
    assert " --annotator-columns NAMES " in page
    assert " --leave-out NAMES " in page
    assert "1 column of no annotator" in page


@pytest.mark.slow
def test_for_sharing_files_that_are_called_by_people_are_counted(made: Path, tmp_path: Path, call) -> None:
    for (_, said), name in zip(pd.read_csv(made / "labels.csv").groupby("worker"), PEOPLE, strict=True):
        said.drop(columns="worker").to_csv(tmp_path / f"{name}.csv", index=False)
    page = nobody_named(call, made, tmp_path, *(tmp_path / f"{name}.csv" for name in PEOPLE))
    assert "crowdshot adapt FILES --features" in page
    assert "<bdi>5 files</bdi>" in page


def nobody_named(call, made: Path, folder: Path, *given: object) -> str:
    """The report, after a look at everything that is written and told."""
    out, clean = folder / "out", folder / "clean"
    given = ("adapt", *given, "--features", made / "features.csv", "--out", out, "--export", clean, "--anonymous")
    said = call(*given)
    assert said.code == 0, said.err
    as_json = call(*given, "--overwrite", "--json")
    told = {"the terminal": said.out.encode(), "as JSON": as_json.out.encode()}
    everywhere = {**contents(out), **contents(clean), **told}
    assert {"report.html", "model.safetensors", "crowdkit.csv", "feedback/annotator-1.html"} < set(everywhere)
    assert not [place for place, text in everywhere.items() if any(name.encode() in text for name in PEOPLE)]
    return everywhere["report.html"].decode()


# ---- label tools ------------------------------------------------------------------------------------------------


def test_label_studio_and_back(made: Path, tmp_path: Path, call) -> None:
    """Uploaded images have a prefix, one task is cancelled, one nobody labelled: it gets a prediction all the same."""
    rows = pd.read_csv(made / "labels.csv").groupby("image", sort=False)
    tasks = []
    for number, (image, said) in enumerate(rows):
        annotations = [
            {
                "completed_by": int(who[-1]),
                "was_cancelled": False,
                "result": [{"from_name": "digit", "to_name": "scan", "type": "choices", "value": {"choices": [label]}}],
            }
            for who, label in zip(said["worker"], said["answer"], strict=True)
        ]
        upload = f"/data/upload/1/{number:08x}-{Path(image).name}"
        tasks.append({"id": 100 + number, "data": {"scan": upload}, "annotations": annotations})
    tasks[0]["annotations"][0]["was_cancelled"] = True
    tasks.append({"id": 999, "data": {"scan": "/data/upload/1/ffffffff-046.png"}, "annotations": []})
    parts = [tmp_path / "part1.json", tmp_path / "part2.json"]
    for part, some in zip(parts, (tasks[:20], tasks[20:]), strict=True):
        part.write_text(json.dumps(some))
    photos = ("--images", made / "photos", "--encoder", made / "tiny.safetensors")
    said = call("adapt", *parts, *photos, "--out", tmp_path / "out")
    assert said.code == 0
    assert "note: left out: 1 cancelled annotation" in said.err
    assert everything(tmp_path / "out") == sorted([*FILES, "predictions.json"])
    assert "the consensus, for import into Label Studio" in said.out
    assert "Left out: 1 cancelled annotation." in (tmp_path / "out" / "report.html").read_text("utf-8")
    consensus = pd.read_csv(tmp_path / "out" / "consensus.csv").set_index("scan")
    predictions = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert [task["id"] for task in predictions] == [*range(100, 140), 999]
    for task in predictions[:40]:
        (prediction,) = task["predictions"]
        (result,) = prediction["result"]
        assert (result["from_name"], result["to_name"]) == ("digit", "scan")
        assert result["value"]["choices"] == [consensus.loc[task["data"]["scan"], "digit"]]
        assert prediction["score"] == pytest.approx(consensus.loc[task["data"]["scan"], "confidence"], rel=1e-5)
    assert predictions[40]["predictions"][0]["result"][0]["value"]["choices"] == [consensus.loc["046.png", "digit"]]


def test_several_files_are_one_crowd(made: Path, tmp_path: Path, call) -> None:
    whole = pd.read_csv(made / "labels.csv")
    for who, rows in whole.groupby("worker"):
        rows.to_csv(tmp_path / f"{who}.csv", index=False)
    parts = sorted(tmp_path.glob("*.csv"))
    alone, joined = call("aggregate", made / "labels.csv", "--json"), call("aggregate", *parts, "--json")
    assert joined.code == 0
    by_image = [sorted(json.loads(x.out)["consensus"], key=lambda row: row["image"]) for x in (alone, joined)]
    for one, other in zip(*by_image, strict=True):
        assert one == {
            name: pytest.approx(value, abs=1e-9) if isinstance(value, float) else value for name, value in other.items()
        }
    said = call("aggregate", *parts, "--out", parts[2])
    assert (said.code, said.out) == (2, "")
    assert "is an input file" in said.err
    said = call("aggregate", parts[0], made / "photos")
    assert (said.code, said.out) == (2, "")
    said = call("adapt", *parts, "--features", made / "features.csv", "--out", tmp_path / "out")
    assert said.out.startswith("40 items, 5 annotators, 200 labels")


TOLOKA = """INPUT:image\tOUTPUT:result\tGOLDEN:result\tASSIGNMENT:worker_id\tASSIGNMENT:status
000.png\tone\tzero\tann0\tAPPROVED
000.png\tone\tzero\tann1\tAPPROVED
more/001.png\tone\t\tann0\tAPPROVED
more/001.png\tone\t\tann1\tAPPROVED
002.png\ttwo\tnine\tann1\tAPPROVED
004.png\tzero\t\tann1\tAPPROVED
more/003.png\ttwo\tone\tann1\tREJECTED
"""


@pytest.mark.slow
def test_answers_that_the_export_says_are_true(made: Path, tmp_path: Path, call) -> None:
    export = tmp_path / "pool.tsv"
    export.write_text(TOLOKA)
    said = call("aggregate", export, "--out", tmp_path / "c.csv")
    assert said.code == 0
    assert "3 true labels from the labels' file held fixed" in said.out
    assert re.search(r"\nwithout them, [01] of 2 items with labels would be correct: ", said.out)  # nobody said nine
    found = pd.read_csv(tmp_path / "c.csv").set_index("INPUT:image")
    for item, label in {"000.png": "zero", "002.png": "nine", "more/003.png": "one"}.items():  # the last was rejected
        assert found.loc[item, ["OUTPUT:result", "confidence"]].tolist() == [label, 1]
    said = call("aggregate", export, "--method", "majority")  # a vote cannot use them, and need not
    assert said.code == 0
    assert said.out.splitlines()[1].startswith("000.png,one,1,")
    said = call("adapt", export, "--features", made / "features.csv", "--out", tmp_path / "out")
    assert said.code == 0
    found = re.search(r"\nwithout them, ([0-2]) of 2 items with labels would be correct: ", said.out)
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert f"Of 2 labelled items with a known true label, <strong>{found[1]}</strong> would be correct" in page


# ---- predict ----------------------------------------------------------------------------------------------------


def test_predict_with_features(models: Path, tmp_path: Path, call) -> None:
    given = ("predict", models / "by-features" / "model.safetensors", "--features", models / "features.csv")
    said = call(*given)
    assert (said.code, said.err) == (0, "")
    rows = list(csv.DictReader(said.out.splitlines()))
    assert list(rows[0]) == ["image", "answer", "confidence", "p_one", "p_three", "p_two", "p_zero"]
    assert len(rows) == 48
    for row in rows:
        probabilities = {name: float(row[f"p_{name}"]) for name in DIGITS}
        assert sum(probabilities.values()) == pytest.approx(1, abs=1e-4)
        assert max(probabilities, key=probabilities.__getitem__) == row["answer"]
        assert float(row["confidence"]) == probabilities[row["answer"]]
    report = json.loads(call(*given, "--json").out)
    assert [row["answer"] for row in report["predictions"]] == [row["answer"] for row in rows]
    said = call(*given, "--out", tmp_path / "p.csv", "--json")
    assert "predictions" not in json.loads(said.out)
    assert len(pd.read_csv(tmp_path / "p.csv")) == 48
    assert everything(tmp_path) == ["p.csv"]


@pytest.mark.slow
def test_predict_in_pieces_writes_the_same(models: Path, tmp_path: Path, call, monkeypatch) -> None:
    features = pd.read_csv(models / "features.csv", dtype={"image": str})
    features.to_parquet(tmp_path / "features.parquet", index=False)
    model = models / "by-features" / "model.safetensors"
    given = {"csv": models / "features.csv", "parquet": tmp_path / "features.parquet"}
    assert call("predict", model, "--features", given["csv"], "--out", tmp_path / "whole.csv").code == 0
    monkeypatch.setattr("crowdshot.io.table_pieces.SIZE", 1_000)
    monkeypatch.setattr("crowdshot.io.table_pieces.ROWS", 7)
    for kind, file in given.items():
        said = call("predict", model, "--features", file, "--out", tmp_path / f"{kind}.csv", "--json")
        assert said.code == 0
        assert (json.loads(said.out)["items"], "predictions" in json.loads(said.out)) == (len(features), False)
        assert (tmp_path / f"{kind}.csv").read_text() == (tmp_path / "whole.csv").read_text()
    broken = given["csv"].read_text() + "last,1\n"
    (tmp_path / "broken.csv").write_text(broken)
    said = call("predict", model, "--features", tmp_path / "broken.csv", "--out", tmp_path / "new.csv")
    assert f"broken.csv, row {len(features) + 2} has 2 cells" in said.err
    assert not (tmp_path / "new.csv").exists()  # nothing half-written, though pieces before were fine
    assert not list(tmp_path.glob(".*"))


def test_predict_refuses_what_does_not_fit(models: Path, tmp_path: Path, call) -> None:
    features, photos = ("--features", models / "features.csv"), ("--images", models / "photos")
    assert str(models / "by-features" / "model.safetensors") in call("predict", models / "by-features", *features).err
    narrow = tmp_path / "narrow.csv"
    narrow.write_text("image,x,y\na,1,2\n")
    by_features, by_images = (models / name / "model.safetensors" for name in ("by-features", "by-images"))
    for arguments, message in [
        ((by_images, *features), "holds features, expected characters of 28×28 grey pixels"),
        ((by_features, *photos), "holds images, expected feature vectors, which"),
        ((by_features, "--features", narrow), "narrow.csv has no column '0', expected one, as in fit."),
        ((by_features,), "Images, features and texts are all missing, expected one of the three."),
        ((models / "labels.csv", *features), "labels.csv is not a safetensors file"),
        ((models / "tiny.safetensors", *features), "tiny.safetensors holds an encoder, expected a classifier."),
        ((models / "no", *features), "no does not exist"),
        ((models, *features), "is a folder"),
    ]:
        said = call("predict", *arguments, "--out", tmp_path / "out.csv")
        assert (said.code, said.out) == (2, ""), arguments
        assert message in said.err
    said = call("predict", by_features, "--features", narrow, "--out", narrow)
    assert "narrow.csv is an input file and would be overwritten." in said.err
    said = call("predict", by_features, *features, "--out", tmp_path / "no" / "p.csv")
    assert "no, which does not exist" in said.err
    assert everything(tmp_path) == ["narrow.csv"]


# ---- aggregate, simulate, encoders ------------------------------------------------------------------------------


def test_aggregate(made: Path, tmp_path: Path, call) -> None:
    rows = "i,annotator,label\n1,a,x\n1,b,x\n1,c,y\n2,a,y\n2,b,y\n2,c,y\n3,a,x\n3,b,y\n"
    (tmp_path / "labels.csv").write_text(rows)
    arguments = ("aggregate", tmp_path / "labels.csv", "--columns", "item=i")
    said = call(*arguments, "--method", "majority")
    assert said.code == 0
    assert said.err.endswith("labels.csv (long): item = 'i', annotator = 'annotator', label = 'label'\n")
    assert said.out == "i,label,confidence,n_labels,agreement\n1,x,0.666667,3,0.666667\n2,y,1,3,1\n3,x,0.5,2,0.5\n"
    said = call(*arguments, "--method", "soft")
    assert said.out.splitlines()[1] == "1,x,0.666667,3,0.666667,0.666667,0.333333"
    truth = pd.read_csv(made / "truth.csv").set_index("image")["truth"][:40]
    for method in ("dawid-skene", "one-coin"):
        said = call("aggregate", made / "labels.csv", "--method", method, "--json")
        report = json.loads(said.out)
        assert (report["method"], report["items"], report["labels"]) == (method, 40, 200)
        found = {row["image"]: row["answer"] for row in report["consensus"]}
        assert np.mean([found[image] == label for image, label in truth.items()]) >= 0.9
    said = call("aggregate", made / "labels.csv", "--out", tmp_path / "c.csv")
    assert said.out.startswith("40 items, 5 annotators, 200 labels, 4 classes")
    assert len(pd.read_csv(tmp_path / "c.csv")) == 40
    assert everything(tmp_path) == ["c.csv", "labels.csv"]


def test_aggregate_tells_of_annotators_too(made: Path, tmp_path: Path, call) -> None:
    """As `adapt` does, where there are no images: the least accurate first."""
    labels = tmp_path / "labels.csv"
    rows = [f"{i},{who},{said}" for i in range(20) for who, said in (("ann", i % 2), ("bob", i % 2), ("cyd", 0))]
    labels.write_text("item,who,label\n" + "\n".join(rows) + "\n")
    said = call("aggregate", labels, "--out", tmp_path / "c.csv", "--annotators", tmp_path / "people.csv")
    assert said.code == 0
    lines = [line.split() for line in said.out.splitlines() if line.startswith(("ann ", "bob ", "cyd "))]
    assert [line[0] for line in lines] == ["cyd", "ann", "bob"]
    people = pd.read_csv(tmp_path / "people.csv").set_index("who")
    assert list(people) == ["n_labels", "accuracy", "low", "high", "most_confused", "right", "wrong", "p_below"]
    # right in 10 of 20, and twenty labels are few: between that and what the crowd is worth
    assert 0.5 < people["accuracy"]["cyd"] < 0.65
    assert people["low"]["cyd"] < 0.5 < people["high"]["cyd"]
    assert people["most_confused"]["cyd"].startswith("1 → 0")
    assert (people["accuracy"][["ann", "bob"]] > 0.8).all()
    alone = call("aggregate", labels, "--annotators", tmp_path / "people.csv")
    assert alone.out == call("aggregate", labels).out, "the consensus still goes to stdout"
    told = json.loads(call("aggregate", labels, "--json").out)["annotator_table"]
    assert [row["who"] for row in told] == ["ann", "bob", "cyd"]
    said = call("aggregate", labels, "--out", tmp_path / "c.csv", "--annotators", tmp_path / "c.csv")
    assert said.code == 2
    assert "--annotators-out is" in said.err


def test_aggregate_with_gold(made: Path, tmp_path: Path, call) -> None:
    gold = tmp_path / "gold.csv"
    gold.write_text("image,truth\n000.png,nine\nelsewhere.png,one\n002.png,\n")
    said = call("aggregate", made / "labels.csv", "--gold", gold)
    assert said.code == 0
    assert said.err == (
        f"crowdshot: note: {gold}: No annotator used the gold label 'nine'.\n  "
        "Check the spelling if that is unexpected.\n"
        f"crowdshot: note: {gold}: Nobody labelled 1 item with gold: 'elsewhere.png'.\n  "
        "Check that their names are written as in the labels.\n"
        f"crowdshot: note: {made / 'labels.csv'} (long): item = 'image', annotator = 'worker', label = 'answer'\n"
    )
    lines = said.out.splitlines()
    assert lines[0] == "image,answer,confidence,n_labels,agreement,p_nine,p_one,p_three,p_two,p_zero"
    assert lines[1] == "000.png,nine,1,5,0,1,0,0,0,0"  # a class that nobody named
    assert lines[-1] == "elsewhere.png,one,1,0,,0,1,0,0,0"  # an item that nobody labelled
    said = call("aggregate", made / "labels.csv", "--gold", gold, "--method", "majority")
    assert said.code == 2
    assert "A majority vote cannot use gold labels, expected a method among 'learned'" in said.err
    gold.write_text("image,truth\n0.png,three\n")
    said = call("aggregate", made / "labels.csv", "--gold", gold)
    assert said.code == 2
    assert "gold.csv has no true label of a labelled item; its first item is '0.png'" in said.err
    gold.write_text("image,seen,truth\n000.png,one,three\n")  # the truth is not what stands first
    said = call("aggregate", made / "labels.csv", "--gold", gold, "--json")
    first = json.loads(said.out)["consensus"][0]
    assert (first["image"], first["answer"], first["confidence"]) == ("000.png", "three", 1)
    gold.write_text("image,seen,said\n000.png,one,three\n")
    said = call("aggregate", made / "labels.csv", "--gold", gold)
    assert said.code == 2
    assert "gold.csv has 2 columns beside the item: 'seen', 'said', expected one that is called truth." in said.err
    said = call("aggregate", made / "labels.csv", "--gold", gold, "--out", gold)
    assert said.code == 2
    assert "gold.csv is an input file" in said.err
    said = call("aggregate", made / "labels.csv", "--out", tmp_path / "consensus.xlsx")
    assert said.code == 2
    assert "consensus.xlsx is not a name for a CSV file, expected a name that ends in .csv" in said.err


def test_adapt_with_gold(made: Path, tmp_path: Path, call) -> None:
    truth = pd.read_csv(made / "truth.csv")
    gold = tmp_path / "gold.csv"
    few = truth.iloc[[0, 1, 2, 3, 44]].assign(image=lambda t: [f"photos/{name}" for name in t["image"]])
    few.loc[44, "truth"] = "nine"
    pd.concat([few, pd.DataFrame({"image": ["other.png"], "truth": ["one"]})]).to_csv(gold, index=False)
    given = ("adapt", made / "labels.csv", "--images", made / "photos", "--encoder", made / "tiny.safetensors")
    said = call(*given, "--gold", gold, "--out", tmp_path / "out", "--json")
    assert said.code == 0
    assert said.err == (
        f"crowdshot: note: {gold}: No annotator used the gold label 'nine'.\n  "
        "Check the spelling if that is unexpected.\n"
        "crowdshot: note: left out: 1 gold label of other items\n"
    )
    report = json.loads(said.out)
    assert (report["gold"], report["gold_labelled"], report["gold_from"]) == (5, 4, str(gold))
    assert 0 < report["gold_low"] < report["gold_right"] / 4
    assert report["shared_mistakes"] is False
    assert report["classes"] == ["nine", "one", "three", "two", "zero"]
    consensus = pd.read_csv(tmp_path / "out" / "consensus.csv")
    assert consensus["image"][:40].tolist() == truth["image"][:40].tolist()  # in the order of the labels
    known = consensus.set_index("image").loc[truth["image"][few.index]]
    assert known["answer"].tolist() == few["truth"].tolist()
    assert known["confidence"].tolist() == [1] * 5
    again = crowdshot.CrowdClassifier.load(tmp_path / "out" / "model.safetensors")
    assert again.gold_["image"].tolist() == known.index.tolist()
    assert f"--gold {gold}" in html.unescape((tmp_path / "out" / "report.html").read_text("utf-8"))

    gold.write_text("image,truth\nother.png,three\n")
    said = call(*given, "--gold", gold, "--out", tmp_path / "none")
    assert said.code == 2
    assert "gold.csv has no true label of a labelled item; its first item is 'other.png'" in said.err
    gold.write_text("image,truth\n000.png,\n")
    said = call(*given, "--gold", gold, "--out", tmp_path / "none")
    assert (said.code, (tmp_path / "none").exists()) == (2, False)
    assert "gold.csv has no true label, expected some of the labelled items" in said.err


@pytest.mark.slow
def test_adapt_exports_a_clean_dataset(made: Path, tmp_path: Path, call) -> None:
    given = ("adapt", made / "labels.csv", "--images", made / "photos", "--encoder", made / "tiny.safetensors")
    said = call(*given, "--out", tmp_path / "out", "--export", tmp_path / "clean", "--threshold", 0.7)
    assert (said.code, said.err) == (0, "")
    clean = pd.read_csv(tmp_path / "clean" / "clean.csv")
    consensus = pd.read_csv(tmp_path / "out" / "consensus.csv")
    pd.testing.assert_frame_equal(clean, consensus[consensus["confidence"] >= 0.7].reset_index(drop=True))
    assert f"{len(clean)} items with probability 70 % or more exported to {tmp_path / 'clean'}\n" in said.out
    found = [path for path in (tmp_path / "clean" / "images").rglob("*.png") if path.is_file()]
    assert len(found) == len(clean) > 20
    by_name = dict(zip(clean["image"].map(lambda name: Path(name).name), clean["answer"], strict=True))
    assert all(by_name[path.name] == path.parent.name for path in found)
    said = call(*given, "--out", tmp_path / "two", "--export", made / "photos" / "clean")
    assert (said.code, said.out) == (2, "")
    assert "--export is" in said.err
    said = call(*given, "--out", tmp_path / "two", "--export", tmp_path / "clean")
    assert (said.code, said.out) == (2, "")
    assert "clean is not empty, expected a new or empty folder.\n  Use --overwrite to write into it anyway." in said.err
    said = call(*given, "--out", tmp_path / "two", "--export", tmp_path / "three", "--threshold", 90)
    assert "--threshold is 90, expected a probability from 0 to 1." in said.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clean", "out"]


def test_what_features_and_labels_alone_export(made: Path, tmp_path: Path, call) -> None:
    given = (made / "labels.csv", "--threshold", 0.5, "--export")
    said = call(
        "adapt", *given, tmp_path / "a", "--features", made / "features.csv", "--out", tmp_path / "out", "--json"
    )
    assert said.code == 0
    report = json.loads(said.out)
    assert (report["exported_at"], report["exported_to"]) == (0.5, str(tmp_path / "a"))
    said = call("aggregate", *given, tmp_path / "b", "--out", tmp_path / "c.csv")
    assert said.code == 0
    for folder, number in (
        ("a", report["exported"]),
        ("b", (pd.read_csv(tmp_path / "c.csv")["confidence"] >= 0.5).sum()),
    ):
        assert not (tmp_path / folder / "images").exists()
        assert len(pd.read_csv(tmp_path / folder / "clean.csv")) == number > 0
        coco = json.loads((tmp_path / folder / "coco.json").read_text())
        assert len(coco["annotations"]) == number


@pytest.mark.slow
def test_records_of_annotators_travel(made: Path, tmp_path: Path, call) -> None:
    """A first project's table of annotators is the second's history, and so on."""
    people = tmp_path / "people.csv"
    said = call("aggregate", made / "labels.csv", "--out", tmp_path / "a.csv", "--annotators", people)
    assert said.code == 0
    first = pd.read_csv(people).set_index("worker")
    np.testing.assert_allclose(first["right"] + first["wrong"], 40, atol=1e-3)
    assert first["right"].idxmin() == "ann4"
    rows = pd.read_csv(made / "labels.csv")
    rows[rows["worker"] != "ann3"].to_csv(tmp_path / "second.csv", index=False)
    given = (tmp_path / "second.csv", "--history", people)
    said = call("aggregate", *given, "--out", tmp_path / "b.csv", "--annotators", tmp_path / "more.csv", "--json")
    assert said.code == 0
    second = pd.read_csv(tmp_path / "more.csv").set_index("worker")
    np.testing.assert_allclose((second["right"] + second["wrong"])[["ann0", "ann4"]], 80, atol=1e-3)
    assert second.loc["ann3", ["n_labels", "right", "wrong"]].tolist() == [0, *first.loc["ann3", ["right", "wrong"]]]
    assert (second["high"] - second["low"])["ann0"] < (first["high"] - first["low"])["ann0"]
    assert [row["worker"] for row in json.loads(said.out)["annotator_table"]] == ["ann0", "ann1", "ann2", "ann4"]

    said = call("adapt", *given, "--features", made / "features.csv", "--out", tmp_path / "out")
    assert said.code == 0
    third = pd.read_csv(tmp_path / "out" / "annotators.csv").set_index("worker")
    np.testing.assert_allclose((third["right"] + third["wrong"])[["ann0", "ann4"]], 80, atol=1e-3)
    assert "ann3" in third.index
    assert call("next", *given, "--budget", 3).code == 0

    said = call("aggregate", *given, "--method", "one-coin")
    assert (said.code, said.out) == (2, "")
    assert "--history cannot be used with method 'one-coin', expected method 'learned'." in said.err
    (tmp_path / "wrong.csv").write_text("worker,accuracy\nann0,0.9\n")
    said = call("aggregate", made / "labels.csv", "--history", tmp_path / "wrong.csv", "--out", tmp_path / "no.csv")
    assert (said.code, (tmp_path / "no.csv").exists()) == (2, False)
    assert (
        "wrong.csv has the columns 'worker', 'accuracy', expected columns for the annotator, right and wrong."
        in said.err
    )
    said = call("aggregate", made / "labels.csv", "--history", people, "--annotators", people)
    assert "people.csv is an input file" in said.err


def test_history_decides_where_nothing_else_can(tmp_path: Path, call) -> None:
    """Two people contradict each other everywhere."""
    rows = [(i, who, (i + (who == "bob")) % 2) for i in range(20) for who in ("ann", "bob")]
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(tmp_path / "labels.csv", index=False)
    for good, bad in (("ann", "bob"), ("bob", "ann")):
        (tmp_path / "people.csv").write_text(f"annotator,right,wrong\n{good},50,2\n{bad},20,30\n")
        said = call("aggregate", tmp_path / "labels.csv", "--history", tmp_path / "people.csv", "--json")
        labels = [int(row["label"]) for row in json.loads(said.out)["consensus"]]
        assert labels == [(i + (good == "bob")) % 2 for i in range(20)]


@pytest.mark.slow
def test_two_rounds_are_compared(made: Path, tmp_path: Path) -> None:
    """As processes: a first round of few labels, a second of all, and the page about both."""
    run = partial(forked.crowdshot, tmp_path)

    labels = pd.read_csv(made / "labels.csv")
    labels[::2].to_csv(tmp_path / "first.csv", index=False)
    for file, out in ((tmp_path / "first.csv", "one"), (made / "labels.csv", "two")):
        assert run("adapt", file, "--features", made / "features.csv", "--out", out).returncode == 0
    done = run("compare", "one", "two", "--json", "--out", "page.html")  # the name of --page in 0.2
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    one, two = (pd.read_csv(tmp_path / name / "consensus.csv", index_col=0) for name in ("one", "two"))
    assert report["accepted"] == {"before": (one["confidence"] >= 0.9).sum(), "after": (two["confidence"] >= 0.9).sum()}
    other = one["answer"] != two["answer"].reindex(one.index)
    assert {row["item"] for row in report["changed"]} == set(one.index[other])
    assert {row["annotator"] for row in report["annotators"]} == {f"ann{i}" for i in range(5)}
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "Two rounds compared" in page
    done = run("compare", "one", "two", "--page", "page.csv")
    assert done.returncode == 2
    assert done.stderr == "crowdshot: --page is page.csv, expected a name that ends in .html.\n"
    done = run("compare", "one", "three", "--out", "other.html")
    assert done.returncode == 2
    assert done.stderr.startswith("crowdshot: three does not exist")
    assert not (tmp_path / "other.html").exists()


@pytest.mark.slow
def test_a_million_labels(tmp_path: Path, call) -> None:
    random = np.random.default_rng(0)
    items, annotators = np.repeat(np.arange(200_000), 5), random.integers(0, 5_000, 1_000_000)
    truth = items % 3
    label = np.where(random.random(len(items)) < 0.7, truth, random.integers(0, 3, len(items)))
    frame = pd.DataFrame({"item": items, "annotator": annotators, "label": label})
    frame.drop_duplicates(["item", "annotator"]).to_csv(tmp_path / "labels.csv", index=False)
    said = call("aggregate", tmp_path / "labels.csv", "--steps", 10, "--out", tmp_path / "out.csv", "--json")
    assert said.code == 0
    assert json.loads(said.out)["items"] == 200_000
    found = pd.read_csv(tmp_path / "out.csv")
    assert (found["label"] == found["item"] % 3).mean() > 0.93


def test_a_crowd_of_the_world_that_the_inference_learns_from(tmp_path: Path, call) -> None:
    arguments = ("simulate", "--items", 300, "--classes", 3, "--annotators", 12, "--labels-per-item", 4, "--seed", 1)
    said = call(*arguments, "--crowd", "world", "--without", "uneven-labels", "--out", tmp_path / "a")
    assert (said.code, said.err) == (0, "")
    labels, truth, annotators = (
        pd.read_csv(tmp_path / "a" / f"{name}.csv") for name in ("labels", "truth", "annotators")
    )
    assert labels.groupby("item").size().tolist() == [4] * 300
    assert not labels.duplicated(["item", "annotator"]).any()
    right = labels.merge(truth).eval("label == truth").groupby(labels["annotator"]).mean()
    told = annotators.set_index("annotator")["accuracy"][right.index]
    assert told.tolist() == pytest.approx(right.tolist(), abs=1e-6)
    assert len(truth) == 300
    for more, message in [
        (("--crowd", "world", "--without", "salt"), "ingredient is 'salt', expected one of skills, biases"),
        (("--without", "copies"), "--without is copies, but only the crowd 'world' has ingredients."),
    ]:
        said = call(*arguments, *more, "--out", tmp_path / "b")
        assert said.code == 2
        assert message in said.err
        assert not (tmp_path / "b").exists()


def test_simulate_and_what_it_can_be_used_for(tmp_path: Path, call) -> None:
    arguments = ("simulate", "--items", 12, "--classes", 3, "--annotators", 10, "--labels-per-item", 4)
    said = call(*arguments, "--mixture", "expert=0.5,spammer=0.5", "--seed", 3, "--out", tmp_path / "a")
    assert (said.code, said.err) == (0, "")
    assert everything(tmp_path / "a") == ["annotators.csv", "labels.csv", "truth.csv"]
    labels, truth, annotators = (
        pd.read_csv(tmp_path / "a" / f"{name}.csv") for name in ("labels", "truth", "annotators")
    )
    assert labels.groupby("item").size().tolist() == [4] * 12
    assert not labels.duplicated(["item", "annotator"]).any()
    assert truth["truth"].value_counts().tolist() == [4, 4, 4]
    assert annotators["annotator"].tolist()[:2] == ["annotator-01", "annotator-02"]
    assert set(annotators["kind"]) == {"expert", "spammer"}
    assert (annotators["accuracy"] > 0.8).tolist() == (annotators["kind"] == "expert").tolist()
    right = labels.merge(truth).eval("label == truth").groupby(labels["annotator"]).mean()
    kinds = annotators.set_index("annotator")["kind"][right.index]
    assert right[kinds == "expert"].mean() > 0.7 > right[kinds == "spammer"].mean()

    call(*arguments, "--crowd", "expert=0.5,spammer=0.5", "--seed", 3, "--out", tmp_path / "b")
    assert (tmp_path / "a" / "labels.csv").read_text() == (tmp_path / "b" / "labels.csv").read_text()
    assert call("aggregate", tmp_path / "a" / "labels.csv", "--gold", tmp_path / "a" / "truth.csv").code == 0
    for crowd, message in [
        ("expert", "--crowd is 'expert', expected expert=…,hammer=…,spammer=…,flipper=…,classwise=…, or some"),
        ("expert=much", "--crowd is 'expert=much', expected kinds and numbers"),
        ("wizard=1", "--crowd is 'wizard=1', expected expert=…"),
        ("expert=0.5", "--crowd has probabilities that sum to 0.5"),
    ]:
        said = call(*arguments, "--crowd", crowd, "--out", tmp_path / "c")
        assert said.code == 2
        assert message in said.err
    assert "--labels-per-item is 4, expected 1 to 3" in call(*arguments, "--annotators", 3, "--out", tmp_path / "c").err
    assert everything(tmp_path)[0] == "a"
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
def test_another_method_from_the_shell_and_back(made: Path, tmp_path: Path) -> None:
    run = partial(forked.crowdshot, made)
    out = tmp_path / "out"
    chosen = ("--method", "lrds", "--settings", "C=0.5, steps=3")
    done = run("adapt", "labels.csv", "--images", "photos", *chosen, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "crowdshot:" not in done.stderr
    assert done.stdout.splitlines()[1] == "LRDS: logistic regression on the raw items, labels by Dawid–Skene"
    assert "8 unlabelled items labelled by the classifier" in done.stdout
    model = crowdshot.CrowdClassifier.load(out / "model.safetensors")
    assert model.settings_ == {"C": 0.5, "steps": 3, "hard": False}
    consensus = pd.read_csv(out / "consensus.csv").merge(pd.read_csv(made / "truth.csv"), on="image")
    right = (consensus["answer"] == consensus["truth"]).groupby(consensus["n_labels"]).mean()
    assert right[5] >= 0.95
    assert right[0] >= 0.75
    done = run("predict", str(out / "model.safetensors"), "--images", "photos", "--json")
    report = json.loads(done.stdout)
    assert (report["method"], report["items"]) == ("LRDS", 48)
    files = [made / "photos" / row["image"] for row in report["predictions"]]
    assert [row["answer"] for row in report["predictions"]] == model.predict(files).tolist()


def test_what_another_method_refuses(made: Path, tmp_path: Path, call) -> None:
    given = ("adapt", made / "labels.csv", "--features", made / "features.csv", "--out", tmp_path / "out")
    for arguments, message in [
        (
            ("--method", "SVM"),
            "method is 'SVM', expected one of auto, paper, labeling-search, features, combined, Ours",
        ),
        (("--method", "LRDS", "--settings", "C"), "--settings is 'C', expected names and numbers, like C=0.1,steps=3."),
        (("--method", "LRDS", "--settings", "C=x"), "--settings is 'C=x', expected names and numbers"),
        (("--method", "LRDS", "--settings", "trees=2"), "--settings has 'trees', expected some of steps, C"),
        (("--method", "MCL", "--settings", "frozen=2"), "--settings has 2 as frozen of MCL, expected true or false"),
        (("--settings", "steps=0"), "steps is 0, expected a whole number, 1 or more"),
    ]:
        said = call(*given, *arguments)
        assert (said.code, said.out) == (2, "")
        assert message in said.err
        assert said.err.count("\n") <= 2  # the message and its hint
    assert everything(tmp_path) == []
    said = call(*given, "--method", "MCL", "--settings", "iterations=5,frozen=true", "--json")
    assert (said.code, json.loads(said.out)["method"]) == (0, "MCL")


def test_methods_lists_what_adapt_takes(call) -> None:
    from crowdshot_paper.registry import METHODS

    said = call("methods")
    assert (said.code, said.err) == (0, "")
    assert [line.partition(":")[0] for line in said.out.splitlines()] == list(METHODS)
    assert (
        "RFMV: a random forest on the raw items, labels by majority vote; encoder: none; settings: trees=200"
        " (10 50 100 200)\n" in said.out
    )
    found = {one["name"]: one for one in json.loads(call("methods", "--json").out)}
    assert found["MCL"]["encoders"] == ["glyphs-protonet", "photo-lite0-protonet", "photo-protonet"]
    assert all("photo-lite0" in str(one["encoders"]) for one in found.values() if one["needs"])
    assert found["MCL"]["default"] == {"iterations": 300, "frozen": False}
    assert found["MCL"]["candidates"] == {"iterations": [10, 100, 300]}
    assert found["LRDS"]["needs"] is None
    page = call("methods", "mcl")
    assert page.out.startswith("MCL: the crowd layer on a meta-learned encoder; ")
    assert "Title: Deep Learning from Crowds\n" in page.out
    assert json.loads(call("methods", "w/o PA", "--json").out)["name"] == "w/o PA"
    assert call("methods", "SVM").code == 2
    assert call("methods", "paper").out.startswith("Ours: ")  # other names that `--method` takes
    assert call("methods", "auto").out.startswith("combined: ")


def test_encoders_lists_what_can_be_named(call) -> None:
    said = call("encoders")
    assert said.code == 0
    names = [line.partition(": ")[0] for line in said.out.splitlines()]
    assert names[0] == "identity"
    lines = json.loads(call("encoders", "--json").out)
    assert list(lines) == names
    assert lines["photo-lite0-protonet"].endswith(
        " as a prototypical network; the default for colour images (needs the extra images)"
    )
    assert ", trained on 764 of 964 classes of omniglot.zip " in lines["omniglot"]  # the others validated and tested it
    assert lines["photo-lite0-maml-pa"].endswith(" by MAML, with simulated annotators (needs the extra images)")


# ---- the shell --------------------------------------------------------------------------------------------------


def test_every_command_has_help_with_examples(call) -> None:
    top = call("--help")
    assert top.code == 0
    for command in ("adapt", "predict", "aggregate", "simulate", "embed", "methods"):
        assert command in top.out
        said = call(command, "--help")
        assert said.code == 0
        assert f"  crowdshot {command} " in said.out.partition("Examples:")[2]
    assert call("nonsense").code == 2
    assert call("adapt").code == 2
    assert call("aggregate", "x", "--steps", "0").code == 2


NO_MEMORY = (MemoryError("no 74 GiB"), RuntimeError("DefaultCPUAllocator: not enough memory"))
MORE = "Use a machine with more memory, or fewer annotators or classes"


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "crowdshot: interrupted.\n"),
        (
            FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"),
            2,
            "crowdshot: no folder for temporary files can be written to. Is the disk full?\n",
        ),
        (
            RuntimeError("odd\nmore"),
            1,
            "crowdshot: this is a bug in crowdshot (RuntimeError: odd).\n"
            "  Set CROWDSHOT_DEBUG=1 to see the traceback.\n",
        ),
        *((error, 2, f"crowdshot: not enough memory ({error}).\n  {MORE}.\n") for error in NO_MEMORY),
    ],
)
def test_unexpected_errors_have_no_traceback(
    monkeypatch: pytest.MonkeyPatch, call, raised: BaseException, code: int, message: str
) -> None:
    def fail(*_: object) -> None:
        raise raised

    monkeypatch.delenv("CROWDSHOT_DEBUG", raising=False)
    monkeypatch.setattr("crowdshot._cli.aggregate.run_aggregate", fail)
    assert call("aggregate", "labels.csv") == (code, "", message)
    if isinstance(raised, Exception):
        monkeypatch.setenv("CROWDSHOT_DEBUG", "1")
        with pytest.raises(type(raised)):
            call("aggregate", "labels.csv")


def test_warnings_are_notes(monkeypatch: pytest.MonkeyPatch, call) -> None:
    def warn(*_: object) -> dict[str, str]:
        warnings.warn_explicit("first\n line", UserWarning, "x.py", 1, module="crowdshot.x")
        warnings.warn_explicit("someone else's", UserWarning, "y.py", 1, module="torch")
        return {}

    monkeypatch.setattr("crowdshot._cli.catalogue.describe_encoders", warn)
    assert call("encoders", "--json") == (0, "{}\n", "crowdshot: note: first line\n")


@pytest.mark.slow
def test_from_a_shell(made: Path, tmp_path: Path) -> None:
    """What only a real process shows: entry point, exit codes, streams, a reader that leaves, a poor terminal."""

    def run(*arguments: str, encoding: str = "utf-8") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "crowdshot", *arguments]
        env = {**os.environ, "CROWDSHOT_DEBUG": "", "PYTHONIOENCODING": encoding}
        return subprocess.run(
            command, capture_output=True, encoding=encoding, cwd=made, env=env, timeout=TIMEOUT, check=False
        )

    version = run("--version")
    assert (version.returncode, version.stdout) == (0, f"crowdshot {crowdshot.__version__}\n")
    out = str(tmp_path / "out")
    done = run("adapt", "labels.csv", "--features", "features.csv", "--out", out, encoding="latin-1")
    assert done.returncode == 0, done.stderr
    assert "crowdshot:" not in done.stderr
    assert "most confused (true \\u2192 chosen)" in done.stdout
    refused = run("adapt", "labels.csv")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "Traceback" not in refused.stderr
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "crowdshot", "aggregate", "labels.csv"]
    left = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, cwd=made, timeout=TIMEOUT, check=False)
    os.close(writing)
    assert left.returncode == 0
    assert b"Error" not in left.stderr
    assert left.stderr.count(b"\n") == 1  # the note on columns


def test_help_answers_without_loading_torch() -> None:
    code = (
        "import sys, crowdshot._cli.main\n"
        "heavy = {'torch', 'pandas', 'numpy', 'sklearn', 'scipy', 'PIL', 'matplotlib', 'rich'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert (done.returncode, done.stderr) == (0, ""), "these slow down --help"


def test_embed_writes_what_train_and_adapt_read(tmp_path):
    for name in ("cats/1.png", "cats/2.png", "dogs/1.png"):
        (tmp_path / "pictures" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (12, 12), 40).save(tmp_path / "pictures" / name)
    out = tmp_path / "features.npz"
    result = CliRunner().invoke(
        main.app, ["embed", str(tmp_path / "pictures"), "--encoder", "glyphs", "--out", str(out)]
    )
    assert result.exit_code == 0, result.output
    assert "3 images of 2 classes, 64 features each" in result.output
    with np.load(out, allow_pickle=False) as file:
        assert file["ids"].tolist() == ["cats/1.png", "cats/2.png", "dogs/1.png"]
        assert file["labels"].tolist() == ["cats", "cats", "dogs"]
        assert file["features"].shape == (3, 64)
    (tmp_path / "pictures" / "dogs" / "2.png").write_bytes(b"no picture")
    out.unlink()
    result = CliRunner().invoke(
        main.app, ["embed", str(tmp_path / "pictures"), "--encoder", "glyphs", "--out", str(out)]
    )
    assert result.exit_code == 2
    assert not out.exists()


def test_agreement_as_json(tmp_path: Path, call) -> None:
    rows = [f"{i},{who},{'ja' if (i + (who == 'b')) % 20 else 'nein'}" for i in range(40) for who in "abc"]
    (tmp_path / "labels.csv").write_text("\n".join(["item,annotator,label", *rows]))
    found = json.loads(call("aggregate", tmp_path / "labels.csv", "--json").out)
    names = [each["name"] for each in found["agreement"]]
    assert names == ["Pairwise agreement", "Krippendorff's alpha", "Fleiss' kappa", "Gwet's AC1"]
    assert "95 %" in found["agreement_warning"].replace("\u00a0", " ")
    pairs = {(row["one"], row["other"]): row for row in found["agreement_pairs"]}
    assert pairs["a", "c"]["kappa"] == 1
    assert pairs["a", "b"]["agreement"] == 0.9
    assert pairs["a", "b"]["kappa"] == pytest.approx((0.9 - (0.95**2 + 0.05**2)) / (1 - 0.95**2 - 0.05**2))
    ordered = json.loads(call("aggregate", tmp_path / "labels.csv", "--ordered", "nein,ja", "--json").out)
    assert ordered["agreement"][3]["name"].startswith("Gwet's AC2")
