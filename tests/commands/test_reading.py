"""How labels are read is said by the same options in every command that takes labels."""

import json
from pathlib import Path

import pandas as pd
import pytest

LABELS = "item,who,label\n1,7,cat\n1,8,Cat\n2,7,dog\n2,9,dgo\n3,9,cat\n3,8,unsure\n"
FEATURES = "item,x,y\n1,0,0\n2,5,5\n3,0,0.1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "labels.csv").write_text(LABELS)
    (tmp_path / "features.csv").write_text(FEATURES)
    (tmp_path / "names.csv").write_text("annotator,name\n7,Ann\n8,Bob\n9,Cyd\n")
    return tmp_path


def commands(folder: Path) -> dict[str, list[object]]:
    labels, features = folder / "labels.csv", folder / "features.csv"
    return {
        "aggregate": ["aggregate", labels],
        "next": ["next", labels],
        "adapt": ["adapt", labels, "--features", features, "--out", folder / "out"],
    }


@pytest.mark.parametrize("command", ["aggregate", "next", "adapt"])
def test_labels_by_what_they_are_called(folder: Path, call, command: str) -> None:
    given = ["--rename", "dgo=dog,unsure=", "--merge-case", "--names", folder / "names.csv"]
    said = call(*commands(folder)[command], *given, "--json")
    report = json.loads(said.out)
    assert said.code == 0
    assert (report["classes"], report["near_twins"]) == (["cat", "dog"], [])
    assert [each["name"] for each in report["respelled"]] == ["cat", "dog", "", "Ann", "Bob", "Cyd"]
    assert report["respelled"][0] == {"of": "labels", "name": "cat", "counts": {"cat": 2, "Cat": 1}}
    assert "the labels 'cat' (2) and 'Cat' (1) are read as 'cat'." in said.err


@pytest.mark.parametrize("command", ["aggregate", "next", "adapt"])
def test_near_twins_are_told_with_the_option_that_merges_them(folder: Path, call, command: str) -> None:
    said = call(*commands(folder)[command], "--json")
    twins = [{"of": "labels", "names": ["cat", "Cat"], "counts": [2, 1]}]
    assert json.loads(said.out)["near_twins"] == twins
    assert "the labels 'cat' and 'Cat' are taken for two; --merge-case merges them." in said.err


def test_true_labels_are_spelled_as_the_labels_are(folder: Path, call) -> None:
    (folder / "known.csv").write_text("item,truth\n1,CAT\n2,dgo\n")
    gold = ["--gold", folder / "known.csv", "--rename", "dgo=dog", "--merge-case", "--out", folder / "consensus.csv"]
    assert call("aggregate", folder / "labels.csv", *gold).code == 0
    consensus = pd.read_csv(folder / "consensus.csv")
    assert consensus["label"].tolist()[:2] == ["cat", "dog"]
    assert consensus["confidence"].tolist()[:2] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--rename", "Dgo=dog"], "--rename names 'Dgo', which is not there, expected some of"),
        (["--rename", "=dog"], "--rename is '=dog', expected a file, or old and new names, like Catt=cat,unsure=."),
        (["--rename", "dgo=dog,dgo=cat"], "which has 'dgo' more than once, expected it once."),
        (["--rename", "no.csv"], "no.csv does not exist, expected a file."),
        (["--names", "no.csv"], "no.csv does not exist, expected a file."),
        (
            ["--annotator-columns", "ann,ann"],
            "--annotator-columns is 'ann,ann', expected different names, like ann,bob.",
        ),
        (["--annotator-columns", "who,eve"], "--annotator-columns names 'eve', expected some of the columns of"),
        (["--sheet", "one"], "--sheet is 'one', expected none, as "),
        (["--columns", "annotator=who,annotator=label"], "which has 'annotator' more than once, expected it once."),
    ],
)
@pytest.mark.parametrize("command", ["aggregate", "next", "adapt"])
def test_options_that_are_wrong_write_nothing(folder: Path, call, command: str, given, sentence: str) -> None:
    there = sorted(folder.iterdir())
    said = call(*commands(folder)[command], *given)
    assert said.code == 2
    assert sentence in said.err
    assert len(said.err.splitlines()) == 1
    assert sorted(folder.iterdir()) == there
