"""How labels are read is said by the same options in every command that takes labels."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from command_result import on_one_line
from crowdshot import read_labels
from crowdshot.labels.aggregation import learned

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
    assert (report["classes"], report["near_duplicates"]) == (["cat", "dog"], [])
    assert [each["name"] for each in report["respelled"]] == ["cat", "dog", "", "Ann", "Bob", "Cyd"]
    assert report["respelled"][0] == {"of": "labels", "name": "cat", "counts": {"cat": 2, "Cat": 1}}
    assert "the labels 'cat' (2) and 'Cat' (1) are read as 'cat'." in said.err


@pytest.mark.parametrize("command", ["aggregate", "next", "adapt"])
def test_near_twins_are_told_with_the_option_that_merges_them(folder: Path, call, command: str) -> None:
    said = call(*commands(folder)[command], "--json")
    twins = [{"of": "labels", "names": ["cat", "Cat"], "counts": [2, 1]}]
    assert json.loads(said.out)["near_duplicates"] == twins
    assert "labels 'cat' and 'Cat' are read as two different labels. Use --merge-case" in on_one_line(said.err)


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
        (["--ordered", "cat"], "--ordered is ['cat'], expected two or more different classes."),
        (["--ordered", "cat,cat"], "--ordered is 'cat,cat', expected different names, like low,medium,high."),
        (
            ["--ordered", "cat,dog"],
            "has the label 'Cat', expected one of 'cat', 'dog'. Use --merge-case to read it as 'cat'.",
        ),
        (["--ordered", "cat,Cat,dgo,unsure"], "has the label 'dog', expected one of 'cat', 'Cat', 'dgo', 'unsure'."),
        (["--ordered", "cat,dog", "--multi-label"], "--ordered cannot be combined with several labels per answer"),
        (["--sheet", "one"], "--sheet is 'one', but "),
        (["--columns", "annotator=who,annotator=label"], "which has 'annotator' more than once, expected it once."),
    ],
)
@pytest.mark.parametrize("command", ["aggregate", "next", "adapt"])
def test_options_that_are_wrong_write_nothing(folder: Path, call, command: str, given, sentence: str) -> None:
    there = sorted(folder.iterdir())
    said = call(*commands(folder)[command], *given)
    assert said.code == 2
    assert sentence in on_one_line(said.err)
    assert len([line for line in said.err.splitlines() if "  Also: " not in line]) <= 2  # the message and its hint
    assert sorted(folder.iterdir()) == there


# ---- numbers, several labels, ordered ones --------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["aggregate", "next", pytest.param("adapt", marks=pytest.mark.slow)])
def test_many_numbers_are_classes_only_if_somebody_says_so(folder: Path, call, command: str) -> None:
    rows = [f"{n % 3 + 1},{n},{n}" for n in range(51)]
    (folder / "labels.csv").write_text("item,who,label\n" + "\n".join(rows) + "\n")
    said = call(*commands(folder)[command])
    assert said.code == 2
    assert (
        "has 51 different numbers as labels: '0', '1', '2' and 48 more, expected 50 at most. Use --categories"
        in on_one_line(said.err)
    )
    assert call(*commands(folder)[command], "--categories").code == 0
    (folder / "labels.csv").write_text("item,who,label\n" + "\n".join(rows[:50]) + "\n")
    assert call("aggregate", folder / "labels.csv").code == 0
    words = [f"{n % 3 + 1},{n},w{n}" for n in range(60)]
    (folder / "labels.csv").write_text("item,who,label\n" + "\n".join(words) + "\n")
    assert call("aggregate", folder / "labels.csv").code == 0


SETS = "item,ann,bob,cyd\n1,cat;dog,cat|dog,cat\n2,dog,dog,\n3,cat,cat,dog;owl\n"


@pytest.mark.parametrize("command", ["aggregate", "next", "adapt"])
def test_answers_that_name_several_labels(folder: Path, call, command: str) -> None:
    (folder / "labels.csv").write_text(SETS)
    said = call(*commands(folder)[command])
    assert said.code == 2
    assert "the label 'cat;dog', and a part of it is a label too" in said.err
    assert "Use --multi-label if it names several labels, or --categories if it is one." in on_one_line(said.err)
    assert not (folder / "out").exists()
    said = call(*commands(folder)[command], "--multi-label", "--json")
    assert said.code == 0
    if command == "next":
        assert {row["consensus"] for row in json.loads(said.out)["questions"]} <= {"cat", "dog", "cat;dog", "dog;owl"}
        return
    if command == "aggregate":
        consensus = pd.DataFrame(json.loads(said.out)["consensus"])
        assert json.loads(said.out)["classes"] == ["cat", "dog", "owl"]
    else:
        consensus = pd.read_csv(folder / "out" / "consensus.csv")
    assert consensus["item"].astype(str).tolist() == ["1", "2", "3"]
    assert consensus["label"].tolist() == ["cat;dog", "dog", "cat"]
    assert [name for name in consensus if name.startswith("p_")] == ["p_cat", "p_dog", "p_owl"]
    assert (consensus[["p_cat", "p_dog"]].iloc[0] > 0.5).all()
    assert consensus["p_owl"].max() < 0.5


def test_sets_are_learned_a_label_at_a_time_and_predicted_so(folder: Path, call) -> None:
    (folder / "labels.csv").write_text(SETS)
    refused = call(*commands(folder)["adapt"], "--multi-label", "--method", "LRDS")
    assert refused.code == 2
    assert refused.err == (
        "crowdshot: --method is 'LRDS', which does not support several labels per answer, expected 'auto' or"
        " 'features'.\n"
    )
    assert not (folder / "out").exists()
    assert call(*commands(folder)["adapt"], "--multi-label").code == 0
    features = folder / "features.csv"
    out = folder / "predictions.csv"
    assert call("predict", folder / "out" / "model.safetensors", "--features", features, "--out", out).code == 0
    predicted = pd.read_csv(out)
    assert [name for name in predicted if name.startswith("p_")] == ["p_cat", "p_dog", "p_owl"]
    assert set(predicted["label"]) <= {"cat", "dog", "cat;dog", "dog;owl"}


RATINGS = "item,ann,bob,cyd\n1,low,low,medium\n2,high,high,medium\n3,medium,medium,medium\n"


@pytest.mark.parametrize("command", ["aggregate", "next", "adapt"])
def test_ordered_classes(folder: Path, call, command: str) -> None:
    (folder / "labels.csv").write_text(RATINGS)
    order = ["low", "medium", "high", "extreme"]
    said = call(*commands(folder)[command], "--ordered", ",".join(order), "--json")
    assert (said.code, json.loads(said.out)["classes"]) == (0, order)
    if command == "aggregate":
        consensus = pd.DataFrame(json.loads(said.out)["consensus"])
        p = consensus[[f"p_{name}" for name in order]].to_numpy()
        assert consensus["expected_rank"].tolist() == pytest.approx((p @ [1, 2, 3, 4]).tolist())
        read = read_labels(folder / "labels.csv", ordered=order).annotations
        assert p.ravel().tolist() == pytest.approx(learned(read, ordered=True).probabilities.ravel().tolist())
        assert abs(p - learned(read).probabilities).max() > 0.01
    elif command == "adapt":
        consensus = pd.read_csv(folder / "out" / "consensus.csv")
        assert consensus["label"].tolist() == ["low", "high", "medium"]
        one, two, three = consensus["expected_rank"]
        assert 1 < one < three < two < 4


def test_true_labels_beyond_the_order_are_refused(folder: Path, call) -> None:
    (folder / "labels.csv").write_text(RATINGS)
    (folder / "known.csv").write_text("item,truth\n1,lowest\n")
    said = call("aggregate", folder / "labels.csv", "--ordered", "low,medium,high", "--gold", folder / "known.csv")
    assert said.code == 2
    assert "known.csv has the label 'lowest', expected one of 'low', 'medium', 'high'." in said.err


@pytest.mark.parametrize("command", ["aggregate", "next", "adapt"])
def test_an_annotator_is_left_out(folder: Path, call, command: str) -> None:
    said = call(*commands(folder)[command], "--leave-out", "9", "--json")
    assert (said.code, json.loads(said.out)["left_out"]["labels of annotators not wanted"]) == (0, 2)
    assert call(*commands(folder)[command], "--leave-out", "Cyd").code == 2


def test_an_engine_leaves_nobody_out(folder: Path, call) -> None:
    said = call("aggregate", folder / "labels.csv", "--leave-out", "9", "--engine", "local", "--out", folder / "parts")
    assert said.code == 2
    assert said.err.startswith("crowdshot: --leave-out is not supported with an engine.\n  Remove ")


def test_half_a_crowd_with_one_voice_is_told(tmp_path: Path, call) -> None:
    random = np.random.default_rng(0)
    said = [np.where(random.random(100) < 0.6, np.arange(100) % 4, random.integers(4, size=100)) for _ in range(6)]
    voices = [said[0]] * 3 + said[1:]
    rows = [f"i{i},{who},c{says[i]}" for who, says in zip("abcdefgh", voices, strict=True) for i in range(100)]
    (tmp_path / "labels.csv").write_text("item,annotator,label\n" + "\n".join(rows) + "\n")
    told = call("aggregate", tmp_path / "labels.csv", "--out", tmp_path / "consensus.csv")
    assert told.code == 0
    pairs = "'a' and 'b', 'a' and 'c', 'b' and 'c'"
    message = f"{pairs}; they are counted as independent annotators."
    assert f"{message}\n  Use --names FILE to merge them if they are the same person.\n" in told.err
