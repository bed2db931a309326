"""The demo, one problem of it: what it says is what its files hold."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from crowdshot._cli import demo
from crowdshot.classifier.crowd_classifier import CrowdClassifier

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "demo"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "PROBLEMS", 2)
        text = demo.run(out, seed=3)
        assert demo.run(out, seed=3) == text  # again, over its own files
    return text, out


def test_the_table_has_every_way_and_crowdshot_is_not_the_worst(told):
    text, _ = told
    rows = {line[:36].strip(): line.split()[-3:] for line in text.splitlines() if "±" in line}
    assert list(rows) == [
        "majority vote + logistic regression",
        "Dawid–Skene + logistic regression",
        "prototypical network, soft votes",
        "crowdshot",
    ]
    unseen = {name: float(parts[0]) for name, parts in rows.items()}
    assert unseen["crowdshot"] > unseen["majority vote + logistic regression"]


def test_files_belong_together(told):
    _, out = told
    names = {path.name for path in out.iterdir()}
    assert names == {
        "labels.csv", "truth.csv", "consensus.csv", "annotators.csv", "confusion.csv",
        "model.safetensors", "confusion.png", "images",
    }  # fmt: skip
    truth = pd.read_csv(out / "truth.csv", index_col="item")["truth"]
    consensus = pd.read_csv(out / "consensus.csv", index_col="item")["label"]
    assert (consensus[truth.index] == truth).mean() > 0.8
    labels = pd.read_csv(out / "labels.csv")
    assert len(labels) == 30 * 7
    annotators = pd.read_csv(out / "annotators.csv", index_col="annotator")
    assert annotators["accuracy"].idxmin() == "Gus"  # the spammer
    assert len(list((out / "images").iterdir())) == 50
    with Image.open(out / "confusion.png") as picture:
        assert picture.size[0] > 1000

    clf = CrowdClassifier.load(out / "model.safetensors")
    digits = load_digits()
    first = out / "images" / truth.index[0]
    with Image.open(first) as picture:
        np.testing.assert_allclose(np.asarray(picture), 255 / 16 * digits.images[int(first.stem)], atol=1)
    paths = [out / "images" / name for name in truth.index]
    assert (clf.predict(paths) == truth.to_numpy()).mean() > 0.8


def test_without_matplotlib_only_the_picture_is_missing(told, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "PROBLEMS", 2)
    monkeypatch.setattr(demo, "is_installed", lambda package: package != "matplotlib")
    assert demo.run(tmp_path / "demo", seed=3) == told[0].replace(str(told[1]), str(tmp_path / "demo"))
    assert {path.name for path in told[1].iterdir()} - {path.name for path in (tmp_path / "demo").iterdir()} == {
        "confusion.png"
    }
    assert "pip install 'crowdshot[plots]'" in capsys.readouterr().err
