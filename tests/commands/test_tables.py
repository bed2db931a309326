"""Mixed tables on the command line."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest

from crowdshot._cli.fitting import fit
from crowdshot._cli.inputs import ItemFiles, LabelFiles
from crowdshot._cli.predict import run_predict
from crowdshot.errors import CrowdshotError
from forked import crowdshot as call


@pytest.mark.slow
def test_adapt_and_predict(tmp_path):
    random = np.random.default_rng(0)
    kind = np.arange(40) % 2
    frame = pd.DataFrame(
        {
            "id": [f"p{i}" for i in range(40)],
            "age": random.normal(30 + 30 * kind, 3).round(1),
            "town": np.where(kind, "York", "Bath"),
            "name": [f"Person {i}" for i in range(40)],
        }
    )
    frame.loc[[3, 8], ["age", "town"]] = None
    frame.to_csv(tmp_path / "people.csv", index=False)
    triples = [(f"p{i}", who, "old" if kind[i] else "young") for i in range(36) for who in "abc"]
    pd.DataFrame(triples, columns=["id", "worker", "label"]).to_csv(tmp_path / "labels.csv", index=False)
    done = call(tmp_path, "adapt", "labels.csv", "--features", "people.csv", "--out", "results")
    assert done.returncode == 0, done.stderr
    assert "hardly ever recur, which are left out: 'name'" in done.stderr
    assert "a table with 1 column of numbers and 1 of categories; left out: name" in done.stdout
    # only numbers in these rows, but the model still reads them as a table
    frame.iloc[:4, [0, 1]].assign(town="York").to_csv(tmp_path / "new.csv", index=False)
    predicted = call(tmp_path, "predict", "results/model.safetensors", "--features", "new.csv", "--json")
    assert predicted.returncode == 0, predicted.stderr
    assert [row["id"] for row in json.loads(predicted.stdout)["predictions"]] == ["p0", "p1", "p2", "p3"]
    frame[["id", "age"]].to_csv(tmp_path / "less.csv", index=False)
    predicted = call(tmp_path, "predict", "results/model.safetensors", "--features", "less.csv")
    assert (predicted.returncode, predicted.stdout) == (2, "")
    assert "less.csv has no column 'town', expected one, as in fit." in predicted.stderr


def labelled(folder):
    """Write three annotators' labels of p0 to p39, "young" and "old" in turn."""
    triples = [(f"p{i}", who, "old" if i % 2 else "young") for i in range(40) for who in "abc"]
    pd.DataFrame(triples, columns=["id", "worker", "label"]).to_csv(folder / "labels.csv", index=False)
    return LabelFiles([folder / "labels.csv"])


def test_numeric_columns_are_matched_by_name(tmp_path):
    """One column separates the classes; mixing up the columns would swap the predictions."""
    random = np.random.default_rng(0)
    kind = np.arange(40) % 2
    frame = pd.DataFrame({"id": [f"p{i}" for i in range(40)], "one": 4.0 * kind, "two": 4.0 - 4 * kind})
    frame[["one", "two"]] += random.normal(size=(40, 2))
    frame.to_csv(tmp_path / "f.csv", index=False)
    clf = fit(labelled(tmp_path), ItemFiles(features=tmp_path / "f.csv")).clf
    assert clf.feature_names_in_.tolist() == ["one", "two"]
    clf.save(tmp_path / "model.safetensors")
    expected = run_predict(tmp_path / "model.safetensors", ItemFiles(features=tmp_path / "f.csv"))[1]
    assert (expected["label"] == np.where(kind, "old", "young")).all()

    turned = frame.assign(more="a word")[["id", "more", "two", "one"]]
    for name, save in (("turned.csv", turned.to_csv), ("turned.parquet", turned.to_parquet)):
        save(tmp_path / name, index=False)
        found = run_predict(tmp_path / "model.safetensors", ItemFiles(features=tmp_path / name))[1]
        pd.testing.assert_frame_equal(found, expected)
    np.save(tmp_path / "f.npy", frame[["one", "two"]].to_numpy())  # without names, columns are matched by position
    found = run_predict(tmp_path / "model.safetensors", ItemFiles(features=tmp_path / "f.npy"))[1]
    assert found["label"].tolist() == expected["label"].tolist()
    frame.rename(columns={"two": "three"}).to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(CrowdshotError, match=r"other\.csv has no column 'two', expected one, as in fit\."):
        run_predict(tmp_path / "model.safetensors", ItemFiles(features=tmp_path / "other.csv"))


def test_left_out_columns_are_reported_once(tmp_path):
    frame = pd.DataFrame({"id": [f"p{i}" for i in range(40)], "town": ["Bath", "York"] * 20, "same": "x"})
    frame.to_csv(tmp_path / "f.csv", index=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(labelled(tmp_path), ItemFiles(features=tmp_path / "f.csv"))
    assert [str(note.message) for note in caught] == [
        "X has columns whose cells are constant or hardly ever recur, which are left out: 'same'."
    ]


def test_without_names_columns_are_matched_by_position(tmp_path):
    random, kind = np.random.default_rng(0), np.arange(40) % 2
    X = random.normal(size=(40, 2)) + 4 * kind[:, None] * [1, -1]
    np.savez(tmp_path / "f.npz", ids=np.array([f"p{i}" for i in range(40)]), features=X)
    fit(labelled(tmp_path), ItemFiles(features=tmp_path / "f.npz")).clf.save(tmp_path / "model.safetensors")
    pd.DataFrame(X, columns=["one", "two"], index=range(40)).to_csv(tmp_path / "f.csv")
    found = run_predict(tmp_path / "model.safetensors", ItemFiles(features=tmp_path / "f.csv"))[1]
    assert found["label"].tolist() == np.where(kind, "old", "young").tolist()
    pd.DataFrame(X[:, :1], columns=["one"], index=range(40)).to_csv(tmp_path / "f.csv")
    with pytest.raises(CrowdshotError, match=r"f\.csv has 1 features per item, expected 2"):
        run_predict(tmp_path / "model.safetensors", ItemFiles(features=tmp_path / "f.csv"))
