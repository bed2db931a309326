"""`crowdshot rank` as a subprocess: tables, output files and bad input."""

import json
from pathlib import Path

import pandas as pd
import pytest

from forked import crowdshot

pytestmark = pytest.mark.slow

ROWS = [
    ("gpt", "alpaca", "model_a", "ann"),
    ("alpaca", "gpt", "model_b", "bob"),
    ("alpaca", "gpt", "model_a", "bob"),
    ("gpt", "vicuna", "tie", "ann"),
    ("vicuna", "gpt", "model_b", "ann"),
    ("vicuna", "alpaca", "model_a", "bob"),
    ("vicuna", "alpaca", "tie (bothbad)", "bob"),
]
TABLE = pd.DataFrame(ROWS * 10, columns=["model_a", "model_b", "winner", "judge"])


@pytest.mark.parametrize("kind", ["csv", "jsonl", "json", "parquet", "xlsx"])
def test_every_kind_of_table_gives_the_same_ranking(tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"votes.{kind}"
    if kind == "csv":
        TABLE.to_csv(file, index=False)
    elif kind in ("json", "jsonl"):
        TABLE.to_json(file, orient="records", lines=kind == "jsonl")
    elif kind == "parquet":
        TABLE.to_parquet(file)
    else:
        TABLE.to_excel(file, index=False)
    done = crowdshot(tmp_path, "rank", file.name, "--out", "ranking.csv", "--annotators-out", "people.csv", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["columns"] == {"first": "model_a", "second": "model_b", "winner": "winner", "annotator": "judge"}
    ranking = pd.read_csv(tmp_path / "ranking.csv")
    assert ranking[["item", "wins", "ties", "losses"]].to_numpy().tolist() == [
        ["gpt", 30, 10, 10],
        ["vicuna", 10, 20, 10],
        ["alpaca", 10, 10, 30],
    ]
    assert [row["item"] for row in found["ranking"]] == list(ranking["item"])
    assert set(pd.read_csv(tmp_path / "people.csv")["annotator"]) == {"ann", "bob"}
    assert found["files"] == ["ranking.csv", "people.csv"]


def test_the_ranking_is_printed_without_out(tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "votes.csv", index=False)
    done = crowdshot(tmp_path, "rank", "votes.csv")
    assert done.stdout.splitlines()[0].startswith("rank,rank_low,rank_high,item,score")
    assert len(done.stdout.splitlines()) == 4


@pytest.mark.parametrize(
    ("content", "words", "keyword"),
    [
        ("model_a,model_b,winner\nx,y,z\n", [], "row 2"),
        ("model_a,model_b,winner\nx,x,x\n", [], "--skip-bad"),
        ("model_a,model_b,winner\nx,y,\n", [], "no comparison"),
        ("item,annotator,label\nx,y,z\n", [], "--columns"),
        ("item_a,item_b,winner\n2,1,1\n", [], "--winner-is name"),
        ("model_a,model_b,winner\nx,y,x\n", ["--columns", "item=model_a"], "--columns"),
        ("model_a,model_b,winner\nx,y,x\n", ["--annotators-out", "ranking.csv"], "--annotators-out"),
        ("model_a,model_b,winner\nx,y,x\n", ["--annotators-out", "votes.csv"], "input file"),
        ("", [], "empty"),
    ],
)
def test_bad_input_is_one_message_and_no_file(tmp_path: Path, content: str, words: list[str], keyword: str) -> None:
    (tmp_path / "votes.csv").write_text(content)
    done = crowdshot(tmp_path, "rank", "votes.csv", "--out", "ranking.csv", *words)
    assert done.returncode == 2
    assert keyword in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["votes.csv"]


def test_bad_rows_can_be_left_out(tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "votes.csv", index=False)
    with open(tmp_path / "votes.csv", "a") as file:
        file.write("gpt,gpt,tie,ann\ngpt,,tie,ann\n")
    done = crowdshot(tmp_path, "rank", "votes.csv", "--skip-bad", "--json")
    assert done.returncode == 0, done.stderr
    assert sum(json.loads(done.stdout)["left_out"].values()) == 2
