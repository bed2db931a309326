"""`crowdshot questions`: long and wide tables and exports, the overview, and bad input."""

import csv
import errno
import html
import json
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from crowdshot import CrowdshotError
from crowdshot._cli.inputs import LabelFiles
from crowdshot._cli.questions import run_questions
from crowdshot.report.question_overview import AskedQuestion, OnQuestion, over_questions
from forked import crowdshot

pytestmark = pytest.mark.slow

COLOURS, SHAPES = ["red", "blue"], ["round", "square", "flat"]


@pytest.fixture(scope="module")
def answers() -> pd.DataFrame:
    """Answers of four people to two questions about 60 items; p2 guesses shapes."""
    rng = np.random.default_rng(0)
    colour, shape = rng.integers(2, size=60), rng.integers(3, size=60)
    rows = []
    for n in range(60):
        for who, (right_colour, right_shape) in enumerate([(0.9, 0.9), (0.9, 0.9), (0.9, 0.33), (0.85, 0.9)]):
            a = colour[n] if rng.random() < right_colour else 1 - colour[n]
            b = shape[n] if rng.random() < right_shape else rng.integers(3)
            rows.append((f"i{n}", f"p{who}", COLOURS[a], SHAPES[b]))
    return pd.DataFrame(rows, columns=["item", "annotator", "colour", "shape"])


@pytest.fixture
def folder(tmp_path: Path, answers: pd.DataFrame) -> Path:
    answers.to_csv(tmp_path / "wide.csv", index=False)
    long = answers.melt(["item", "annotator"], var_name="question", value_name="answer")
    long.to_csv(tmp_path / "long.csv", index=False)
    long.rename(columns={"question": "code"}).assign(code=lambda t: t["code"] + " 1").to_csv(
        tmp_path / "coded.csv", index=False
    )
    records = []
    for item, group in answers.groupby("item", sort=False):
        responses = {
            name: [{"value": value, "user_id": who} for who, value in zip(group["annotator"], group[name], strict=True)]
            for name in ("colour", "shape")
        }
        records.append({"id": item, "fields": {"text": f"the text of {item}"}, "responses": responses})
    (tmp_path / "argilla.json").write_text(json.dumps(records))
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["long.csv"],
        ["long.csv", "--questions", "colour,shape"],
        ["wide.csv", "--questions", "colour,shape"],
        ["argilla.json", "--columns", "item=id"],
        ["long.csv", "--by", "question"],
    ],
    ids=" ".join,
)
def test_all_forms_give_the_same_results(folder: Path, words: list[str]) -> None:
    done = crowdshot(folder, "questions", *words, "--out", "results", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [each["question"] for each in found["questions"]] == ["colour", "shape"]
    colour, shape = found["questions"]
    assert (colour["items"], colour["labels"], colour["annotators"]) == (60, 240, 4)
    assert sorted(shape["classes"]) == sorted(SHAPES)
    assert found["annotators"][0]["annotator"] == "p2"
    assert found["annotators"][0]["weak"] == ["shape"]
    alone = crowdshot(folder, "aggregate", "wide.csv", "--columns", "label=shape", "--json")
    expected = json.loads(alone.stdout)
    consensus = pd.read_csv(folder / "results" / "shape" / "consensus.csv")
    assert consensus.iloc[:, 1].tolist() == [row["shape"] for row in expected["consensus"]]
    assert consensus["confidence"].tolist() == pytest.approx([row["confidence"] for row in expected["consensus"]])
    assert shape["accepted"] == expected["accepted"]
    assert shape["agreement"] == pytest.approx(expected["agreement"][0]["value"])


def choices(name: str, value: str) -> dict[str, object]:
    return {"from_name": name, "to_name": "text", "type": "choices", "value": {"choices": [value]}}


@pytest.mark.parametrize(
    ("kind", "prefix"), [("label-studio.json", ""), ("mturk.csv", "Answer."), ("toloka.tsv", "OUTPUT:")]
)
def test_exports_of_label_tools(folder: Path, answers: pd.DataFrame, kind: str, prefix: str) -> None:
    names = ("colour", "shape")
    if kind == "mturk.csv":
        columns = {"item": "Input.image", "annotator": "WorkerId", **{name: f"Answer.{name}" for name in names}}
        answers.rename(columns=columns).assign(HITId=answers["item"]).to_csv(folder / kind, index=False)
    elif kind == "toloka.tsv":
        columns = {"item": "INPUT:image", "annotator": "ASSIGNMENT:worker_id"}
        columns |= {name: f"OUTPUT:{name}" for name in names}
        answers.rename(columns=columns).to_csv(folder / kind, index=False, sep="\t")
    else:
        tasks = [
            {
                "id": number,
                "data": {"text": item},
                "annotations": [
                    {
                        "id": row.Index,
                        "completed_by": row.annotator,
                        "result": [choices(q, getattr(row, q)) for q in names],
                    }
                    for row in group.itertuples()
                ],
            }
            for number, (item, group) in enumerate(answers.groupby("item", sort=False))
        ]
        (folder / kind).write_text(json.dumps(tasks))
    done = crowdshot(folder, "questions", kind, "--out", "results", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [each["question"] for each in found["questions"]] == [f"{prefix}{name}" for name in names]
    assert [each["labels"] for each in found["questions"]] == [240, 240]
    assert found["annotators"][0]["annotator"] == "p2"


def test_a_question_column_with_another_name(folder: Path) -> None:
    done = crowdshot(folder, "questions", "coded.csv", "--by", "code", "--out", "results", "--json")
    assert done.returncode == 0, done.stderr
    assert [each["folder"] for each in json.loads(done.stdout)["questions"]] == ["colour 1", "shape 1"]
    run = json.loads((folder / "results" / "colour 1" / "run.json").read_text())
    assert "--batch 'code=colour 1'" in run["run"]["command"]  # repeats this question alone


def test_gold_has_a_column_for_each_question(folder: Path, answers: pd.DataFrame) -> None:
    """The items of gold and the classes are those of each question, whether or not a column names the question."""
    first = answers.drop_duplicates("item").head(12)
    first[["item", "colour", "shape"]].to_csv(folder / "gold.csv", index=False)
    first.set_axis(["item", "annotator", "colour 1", "shape 1"], axis=1).drop(columns="annotator").to_csv(
        folder / "coded-gold.csv", index=False
    )
    for words in (
        ["wide.csv", "--questions", "colour,shape", "--gold", "gold.csv"],
        ["long.csv", "--gold", "gold.csv"],
        ["argilla.json", "--gold", "gold.csv"],
        ["long.csv", "--by", "question", "--gold", "gold.csv"],
        ["coded.csv", "--by", "code", "--gold", "coded-gold.csv"],
    ):
        done = crowdshot(folder, "questions", *words, "--out", "results", "--overwrite", "--json")
        assert done.returncode == 0, done.stderr
        for each in json.loads(done.stdout)["questions"]:
            known = json.loads((folder / "results" / each["folder"] / "run.json").read_text())["known"]
            assert sorted(known) == sorted(first["item"])
            with open(folder / "results" / each["folder"] / "consensus.csv", newline="") as file:
                found = {item: label for item, label, *_ in list(csv.reader(file))[1:]}
            name = each["question"].removesuffix(" 1")
            assert [found[item] for item in first["item"]] == first[name].tolist()
            page = (folder / "results" / each["folder"] / "report.html").read_text("utf-8")
            commands = set(map(html.unescape, re.findall("crowdshot aggregate [^<]*(?=</code>)", page)))
            assert any("--gold" in command for command in commands)
            (folder / "corrections.csv").write_text(f"item,truth\ni0,{first[name].iloc[0]}\n")
            for command in commands:
                again = crowdshot(folder, *shlex.split(command)[1:])
                assert again.returncode == 0, (command, again.stderr)


def test_the_message_names_the_columns(folder: Path) -> None:
    (folder / "one.csv").write_text("item,annotator,label,remark\n1,ann,cat,\n1,bob,cat,x\n2,ann,dog,\n")
    done = crowdshot(folder, "questions", "one.csv", "--out", "results")
    assert done.returncode == 2
    assert "'item', 'annotator', 'label', 'remark'" in done.stderr
    assert "--questions" in done.stderr
    assert "--by COLUMN" in done.stderr


def test_the_overview_links_to_the_reports(folder: Path, browser) -> None:
    done = crowdshot(folder, "questions", "long.csv", "--out", "results")
    assert done.returncode == 0, done.stderr
    assert "weak on shape" in done.stdout
    page = browser.new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text))
    page.goto((folder / "results" / "index.html").as_uri())
    assert page.locator("#people tbody tr").count() == 4
    assert page.locator(".weak").count() == 1
    page.get_by_role("link", name="shape").click()
    assert page.locator("h1").inner_text() == "60 items labelled by 4 annotators"
    page.close()
    assert errors == []
    with open(folder / "results" / "annotators.csv", newline="") as file:
        rows = {row["annotator"]: row for row in csv.DictReader(file)}
    p2 = rows["p2"]
    assert p2["n_labels"] == "120"
    each = [float(p2[f"accuracy on {name}"]) for name in ("colour", "shape")]
    assert float(p2["accuracy"]) == pytest.approx(np.mean(each), abs=1e-5)  # 60 labels on each


def test_a_person_over_questions_by_hand() -> None:
    people = {"ann": OnQuestion(30, 0.9, 0.8, 1.0, 0.01), "bob": OnQuestion(10, 0.5, 0.3, 0.7, 0.95)}
    more = {"ann": OnQuestion(10, 0.5, 0.3, 0.7, 0.95), "cyd": OnQuestion(5, 0.4, 0.2, 0.6, 0.99)}
    first = AskedQuestion("a", "a", 30, 40, 2, ["x", "y"], 20, 0.8, 0.5, people)
    second = AskedQuestion("b", "b", 10, 15, 2, ["x", "y"], 5, None, None, more)
    found = over_questions([first, second])
    assert [each.annotator for each in found] == ["cyd", "bob", "ann"]
    cyd, bob, ann = found
    assert ann.accuracy == pytest.approx((30 * 0.9 + 10 * 0.5) / 40)
    assert (ann.low, ann.high) == pytest.approx(((30 * 0.8 + 10 * 0.3) / 40, (30 * 1.0 + 10 * 0.7) / 40))
    assert (ann.labels, ann.weak) == (40, ["b"])
    assert bob.weak == ["a"]
    assert cyd.weak == []  # five labels are too few


def test_warnings_name_their_question(folder: Path, answers: pd.DataFrame) -> None:
    pd.concat([answers, answers.head(3)]).to_csv(folder / "wide.csv", index=False)
    done = crowdshot(folder, "questions", "wide.csv", "--questions", "colour,shape", "--out", "results")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert [line for line in lines if "about the question" in line] == [
        f"crowdshot: note: about the question {name!r}:" for name in ("colour", "shape")
    ]
    assert sum("more than once" in line for line in lines) == 2


def test_known_labels_need_a_column_for_each_question(folder: Path, answers: pd.DataFrame) -> None:
    words = ["questions", "wide.csv", "--questions", "colour,shape", "--out", "results", "--gold", "known.csv"]
    (folder / "known.csv").write_text("item,truth\ni0,red\n")
    done = crowdshot(folder, *words)
    assert done.returncode == 2
    assert "known.csv" in done.stderr
    (folder / "known.csv").write_text("item,colour,shape\ni0,red,round\n")
    assert crowdshot(folder, *words).returncode == 0


@pytest.mark.parametrize(
    ("words", "keyword"),
    [
        (["wide.csv"], "--questions"),
        (["wide.csv", "--questions", "colour"], "aggregate"),
        (["wide.csv", "--questions", "colour,size"], "size"),
        (["long.csv", "--questions", "colour,size"], "size"),
        (["long.csv", "--by", "aspect"], "--by"),
        (["coded.csv", "--by", "code", "--questions", "colour"], "--questions"),
        (["wide.csv", "--columns", "label=colour"], "--columns"),
        (["missing.csv"], "missing.csv"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_bad_input_is_one_message_and_no_file(folder: Path, words: list[str], keyword: str) -> None:
    before = sorted(path.name for path in folder.iterdir())
    done = crowdshot(folder, "questions", *words, "--out", "results")
    assert done.returncode == 2
    assert keyword in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert sorted(path.name for path in folder.iterdir()) == before


def test_everybody_gives_the_same_answer_to_a_question(folder: Path, answers: pd.DataFrame) -> None:
    answers.assign(shape="round").to_csv(folder / "wide.csv", index=False)
    done = crowdshot(folder, "questions", "wide.csv", "--questions", "colour,shape", "--out", "results", "--json")
    assert done.returncode == 0, done.stderr
    colour, shape = json.loads(done.stdout)["questions"]
    assert shape["classes"] == ["round"]
    assert colour["accepted"] > 0


def test_a_folder_with_files_is_kept(folder: Path) -> None:
    (folder / "results").mkdir()
    (folder / "results" / "notes.txt").write_text("mine")
    done = crowdshot(folder, "questions", "long.csv", "--out", "results")
    assert done.returncode == 2
    assert "--overwrite" in done.stderr
    assert [path.name for path in (folder / "results").iterdir()] == ["notes.txt"]


def test_a_folder_is_the_old_or_the_new_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure after the first question changes nothing; otherwise other files in the folders are kept."""
    labels, out = LabelFiles(paths=[folder / "wide.csv"]), folder / "results"
    run_questions(labels, out, ["colour", "shape"])
    (out / "shape" / "notes.txt").write_text("mine")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    answers = pd.read_csv(folder / "wide.csv")
    answers.iloc[:40].to_csv(folder / "wide.csv", index=False)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("crowdshot.report.question_overview.annotator_rows", full)
        with pytest.raises(CrowdshotError):
            run_questions(labels, out, ["colour", "shape"], overwrite=True)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    result = run_questions(labels, out, ["colour", "shape"], overwrite=True)
    after = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert after.keys() == before.keys()
    assert set(result.files) <= {*after, out / "colour" / "feedback", out / "shape" / "feedback"}
    assert after[out / "shape" / "consensus.csv"] != before[out / "shape" / "consensus.csv"]
    assert after[out / "shape" / "notes.txt"] == b"mine"
