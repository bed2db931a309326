"""`crowdshot next` as a stranger uses it: the list, what it is good for, and what is refused."""

import functools
import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from command_result import CommandResult
from crowdshot._cli import next
from crowdshot._cli.inputs import ItemFiles, LabelFiles
from crowdshot.errors import CrowdshotError
from crowdshot.labels import annotator_quality, asking
from crowdshot.labels.aggregation import AGGREGATORS, DEFAULT
from crowdshot.labels.formats import read_labels
from forked import crowdshot

LABELS = """image,worker,answer
1.png,ann,cat
1.png,bob,cat
2.png,ann,dog
2.png,bob,cat
3.png,ann,dog
3.png,bob,dog
3.png,cyd,dog
4.png,cyd,cat
"""
COLUMNS = ["image", "worker", "answer", "gain", "n_labels"]  # and not the current answers


@pytest.fixture
def call(call):
    """Run `crowdshot next` in this process."""
    return functools.partial(call, "next")


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.csv"
    path.write_text(LABELS)
    return path


@pytest.fixture
def features(tmp_path: Path) -> Path:
    """Cats on the left, dogs on the right, and 5.png, which nobody labelled, between them."""
    path = tmp_path / "features.csv"
    path.write_text("id,x,y\n1.png,-1,0\n2.png,1,0.1\n3.png,1,0\n4.png,-1,0.1\n5.png,0,0.05\n")
    return path


def export(tmp_path: Path) -> Path:
    """Label Studio's, with a task that nobody labelled."""

    def annotation(user: int, label: str) -> dict:
        result = {"from_name": "animal", "to_name": "photo", "type": "choices", "value": {"choices": [label]}}
        return {"completed_by": user, "was_cancelled": False, "result": [result]}

    said = {1: [(7, "cat"), (8, "cat"), (9, "cat")], 2: [(7, "dog"), (8, "cat")], 3: [(9, "dog"), (7, "dog")], 4: []}
    tasks = [
        {"id": i, "data": {"photo": f"/up/{i}.png", "city": "Łódź"}, "annotations": [annotation(*a) for a in answers]}
        for i, answers in said.items()
    ]
    path = tmp_path / "export.json"
    path.write_text(json.dumps(tasks))
    return path


# ---- the list ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_item_people_disagree_on_comes_first(labels: Path) -> None:
    done = crowdshot(labels.parent, "next", labels, "--budget", 3)
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1  # the columns that were used
    rows = [line.split(",") for line in done.stdout.splitlines()]
    assert rows[0] == COLUMNS
    assert rows[1][:2] == ["2.png", "cyd"]  # the only one who has not said what it is
    assert rows[1][2] == ""  # whoever is asked fills it in
    assert rows[1][4] == "2"
    assert len(rows) == 4
    before = {tuple(line.split(",")[:2]) for line in LABELS.splitlines()}
    assert not before & {tuple(row[:2]) for row in rows[1:]}


def test_the_table_is_what_the_library_says(labels: Path) -> None:
    result, table = next.ask(LabelFiles([labels]), 4)
    ann = read_labels([labels]).annotations
    posterior = AGGREGATORS[DEFAULT](ann, 100, None).probabilities
    found = asking.choose(
        posterior,
        asking.expected_confusion(ann, posterior),
        (ann.item, ann.annotator),
        4,
        most=asking.fair_share(4, ann.n_annotators),
        first=np.bincount(ann.annotator) + 1,
    )
    assert table["image"].tolist() == [ann.items[q.item] for q in found]
    assert table["worker"].tolist() == [ann.annotators[q.annotator] for q in found]
    assert table["gain"].tolist() == [q.gain for q in found]
    assert table["confidence"].tolist() == [posterior[q.item].max() for q in found]
    assert table["consensus"].tolist() == [ann.classes[posterior[q.item].argmax()] for q in found]
    asked = result.questions
    assert asked.n_questions == asked.cost == 4
    assert asked.uncertainty == pytest.approx(sum(1 - np.square(posterior).sum(1)))
    assert asked.gain == pytest.approx(table["gain"].sum())
    assert asked.errors_mended == asking.mended(posterior, annotator_quality.expected_confusion(ann, posterior), found)
    assert 0 <= asked.errors_mended <= sum(1 - posterior.max(1))


def test_to_a_file_in_words_and_as_json(labels: Path, tmp_path: Path, call) -> None:
    done = call(labels, "--budget", 2, "--out", tmp_path / "questions.csv")
    assert (done.code, done.err) == (0, "")
    assert "4 items, 3 annotators, 8 labels, 2 classes: cat, dog\n2 questions about " in done.out
    assert "uncertainty, summed over all items: " in done.out
    table = pd.read_csv(tmp_path / "questions.csv")
    assert list(table) == COLUMNS
    answers = pd.read_csv(tmp_path / "questions-consensus.csv")
    assert list(answers) == ["image", "worker", "consensus", "confidence"]
    assert answers["image"].tolist() == table["image"].tolist()
    report = json.loads(call(labels, "--budget", 2, "--json").out)
    assert report["files"] == []
    assert [row["consensus"] for row in report["questions"]] == answers["consensus"].tolist()
    assert [row["confidence"] for row in report["questions"]] == pytest.approx(answers["confidence"].tolist(), abs=1e-5)
    taken = tmp_path / "taken-consensus.csv"
    taken.write_text(LABELS)
    refused = call(taken, "--out", tmp_path / "taken.csv")
    assert (refused.code, taken.read_text()) == (2, LABELS)
    assert [row["image"] for row in report["questions"]] == table["image"].tolist()


def test_cost_in_the_command_or_in_a_file(labels: Path, tmp_path: Path, call) -> None:
    dear = pd.read_csv(_written(call(labels, "--budget", 2, "--cost", "cyd=3"), tmp_path))
    assert "cyd" not in dear["worker"].tolist()
    assert dear["cost"].tolist() == [1.0, 1.0]
    prices = tmp_path / "prices.csv"
    prices.write_text("cost,worker\n3,cyd\n0.5,bob\n9,zoe\n")
    done = call(labels, "--budget", 2, "--cost", prices)
    assert done.err.splitlines()[0] == "crowdshot: note: left out: 1 cost of people who gave no label"
    assert "fewer questions than the budget of 2 allows: no annotator answers for the remaining 0.5\n" in done.err
    table = pd.read_csv(_written(done, tmp_path))
    assert set(table["worker"]) <= {"ann", "bob"}
    assert table["cost"].sum() <= 2
    assert table.loc[table["worker"] == "bob", "cost"].eq(0.5).all()


def _written(done: CommandResult, folder: Path) -> Path:
    assert done.code == 0, done.err
    (folder / "said.csv").write_text(done.out)
    return folder / "said.csv"


def test_nobody_gets_more_than_the_most(labels: Path) -> None:
    _, table = next.ask(LabelFiles([labels]), 9, most=1)
    assert sorted(table["worker"]) == ["ann", "bob", "cyd"]
    assert len(next.ask(LabelFiles([labels]), 9)[1]) == 4  # all that were not asked yet


def test_features_make_unlabelled_items_askable(labels: Path, features: Path) -> None:
    result, table = next.ask(LabelFiles([labels]), 3, ItemFiles(features=features))
    assert (result.counts.items, result.counts.labels) == (5, 8)
    assert table["image"][0] == "5.png"  # nobody labelled it, and it lies between the two
    assert table["n_labels"][0] == 0
    assert table["confidence"][0] == pytest.approx(0.5, abs=0.1)


def test_the_list_is_filled_in_and_given_back(labels: Path, tmp_path: Path, call) -> None:
    """What is believed is no answer: a row that nobody filled in counts for nothing."""
    file = tmp_path / "questions.csv"
    call(labels, "--budget", 3, "--out", file)
    before = read_labels(labels).annotations
    assert read_labels([labels, file]).annotations.n_labels == before.n_labels
    table = pd.read_csv(file, dtype=object)
    table.loc[1, "answer"] = "dog"
    table.to_csv(file, index=False)
    after = read_labels([labels, file]).annotations
    assert after.n_labels == before.n_labels + 1
    frame = after.to_frame()
    assert ((frame["image"] == table["image"][1]) & (frame["worker"] == table["worker"][1])).sum() == 1


def test_answers_are_never_overwritten(labels: Path, tmp_path: Path, call) -> None:
    file = tmp_path / "questions.csv"
    call(labels, "--budget", 3, "--out", file)
    assert call(labels, "--budget", 2, "--out", file).code == 0  # nobody has answered yet
    table = pd.read_csv(file, dtype=object)
    table.loc[1, "answer"] = "dog"
    table.to_csv(file, index=False)
    (tmp_path / "questions-2.csv").touch()
    before = file.read_bytes()
    refused = call(labels, "--budget", 3, "--out", file)
    assert refused.code == 2
    assert "questions.csv has 1 answer" in refused.err
    assert "questions-3.csv" in refused.err
    assert file.read_bytes() == before


# ---- Label Studio -----------------------------------------------------------------------------------------------


def test_tasks_for_label_studio(tmp_path: Path, call) -> None:
    out = tmp_path / "questions.json"
    done = call(export(tmp_path), "--budget", 4, "--out", out)
    assert (done.code, done.err) == (0, "")
    tasks = json.loads(out.read_text("utf-8"))
    first = {task["data"]["photo"] for task in tasks[:2]}
    assert first == {"/up/2.png", "/up/4.png"}  # people disagree on one, nobody labelled the other
    for task in tasks:
        assert list(task) == ["data"]  # no id, which an import would make anew; no prediction, which would lead people
        assert list(task["data"]) == ["photo", "city", "next_item", "next_annotator", "next_gain"]
        assert task["data"]["city"] == "Łódź"
        assert task["data"]["next_annotator"] in {"7", "8", "9"}
    assert [task["data"]["next_gain"] for task in tasks] == sorted(
        (task["data"]["next_gain"] for task in tasks), reverse=True
    )


def test_tasks_for_label_studio_from_any_table(labels: Path, tmp_path: Path) -> None:
    next.ask(LabelFiles([labels]), 1, out=tmp_path / "questions.json")
    (task,) = json.loads((tmp_path / "questions.json").read_text())
    assert task["data"]["image"] == "2.png"
    assert task["data"]["next_annotator"] == "cyd"


def test_what_label_studio_exports_of_them_can_be_read_again(tmp_path: Path) -> None:
    """The two fields more are data; labels and items are found as before."""
    next.ask(LabelFiles([export(tmp_path)]), 2, most=2, out=tmp_path / "questions.json")
    tasks = json.loads((tmp_path / "questions.json").read_text())
    result = [{"from_name": "animal", "to_name": "photo", "type": "choices", "value": {"choices": ["cat"]}}]
    for number, task in enumerate(tasks):
        task |= {"id": number, "annotations": [{"completed_by": 9, "result": result}]}
    (tmp_path / "answers.json").write_text(json.dumps(tasks))
    both = read_labels([tmp_path / "export.json", tmp_path / "answers.json"])
    assert both.annotations.n_labels == 9
    assert both.annotations.columns.item == "photo"
    old = read_labels(tmp_path / "export.json")
    assert both.project == old.project  # predictions are for the project that asked, a task an item
    assert both.annotations.n_items == old.annotations.n_items + 1  # one of the questions was about a new item


def answered(questions: Path, choice: str) -> list[dict]:
    """As Label Studio's JSON has it, by somebody new, under ids of its own."""
    result = [{"from_name": "mood", "to_name": "text", "type": "choices", "value": {"choices": [choice]}}]
    tasks = json.loads(questions.read_text("utf-8"))
    return [
        {"id": 500 + number, "data": task["data"], "annotations": [{"completed_by": 77, "result": result}]}
        for number, task in enumerate(tasks)
    ]


@pytest.mark.parametrize("data", [{"text": "Satz {}"}, {"text": "Satz {}", "lang": "de"}], ids=["text", "id"])
def test_answers_come_back_to_their_items_whatever_these_go_by(tmp_path: Path, data: dict[str, str]) -> None:
    """An item goes by its text, or by the id of its task, which in another project is another."""

    def task(number: int, labels: dict[int, str]) -> dict:
        choices = {
            who: [{"from_name": "mood", "to_name": "text", "type": "choices", "value": {"choices": [label]}}]
            for who, label in labels.items()
        }
        said = [{"completed_by": who, "result": result} for who, result in choices.items()]
        return {"id": number, "data": {k: v.format(number) for k, v in data.items()}, "annotations": said}

    tasks = [task(1, {7: "good", 8: "good"}), task(2, {7: "bad", 8: "bad"}), task(3, {7: "good", 8: "bad"})]
    (tmp_path / "old.json").write_text(json.dumps(tasks))
    before = read_labels(tmp_path / "old.json").annotations
    _, table = next.ask(LabelFiles([tmp_path / "old.json"]), 2, out=tmp_path / "questions.json")
    asked = table[before.columns.item].tolist()
    answers = answered(tmp_path / "questions.json", "bad")
    (tmp_path / "new.json").write_text(json.dumps(answers))
    after = read_labels([tmp_path / "old.json", tmp_path / "new.json"]).annotations
    assert after.items.tolist() == before.items.tolist()
    frame = after.to_frame()
    assert frame.loc[frame["annotator"] == "77", before.columns.item].tolist() == asked


@pytest.mark.parametrize("separator", [",", "\t"])
def test_questions_fields_are_never_the_label(tmp_path: Path, separator: str) -> None:
    """In CSV no column says that it is a tag's; with answers that all differ, the label looks like an id."""
    header = "annotation_id,annotator,created_at,id,image,label,lead_time,next_annotator,next_gain,next_item,updated_at"
    when = "2026-03-04T16:05:00Z"
    rows = [
        f"48,1,{when},32,up/1030.png,1,2.5,Ada,0.27,1030.png,{when}",
        f"49,1,{when},33,up/1792.png,9,2.5,Ada,0.25,1792.png,{when}",
    ]
    file = tmp_path / "answers.csv"
    file.write_text("\n".join([header, *rows]).replace(",", separator) + "\n")
    frame = read_labels(file).annotations.to_frame()
    assert list(frame.itertuples(index=False, name=None)) == [("1030.png", "1", "1"), ("1792.png", "1", "9")]
    assert read_labels(file).project.tasks[0].data == {"image": "up/1030.png"}
    assert read_labels(file, {"item": "image"}).annotations.items.tolist() == ["up/1030.png", "up/1792.png"]


def test_the_loop_from_a_plain_table_is_closed(labels: Path, tmp_path: Path, call) -> None:
    """Questions from a table are answered in Label Studio, and its export stands beside the table."""
    next.ask(LabelFiles([labels]), 1, out=tmp_path / "questions.json")
    (tmp_path / "answers.json").write_text(json.dumps(answered(tmp_path / "questions.json", "cat")))
    before, after = read_labels(labels).annotations, read_labels([labels, tmp_path / "answers.json"])
    assert after.annotations.items.tolist() == before.items.tolist()
    assert after.annotations.n_labels == before.n_labels + 1
    assert after.annotations.columns == before.columns
    assert after.project is None


@pytest.mark.parametrize(
    "nothing",
    [
        "[]",
        '[{"id": 1, "data": {"image": "2.png", "next_item": "2.png"}, "annotations": []}]',
        "annotation_id,annotator,id,image,lead_time\n",
        "annotation_id,annotator,id,image,lead_time,next_gain\n,,7,2.png,,0.2\n",
    ],
)
def test_questions_that_nobody_has_answered_yet_do_no_harm(labels: Path, tmp_path: Path, call, nothing: str) -> None:
    (tmp_path / "unanswered.txt").write_text(nothing)
    done = call(labels, tmp_path / "unanswered.txt", "--budget", 1)
    assert done.code == 0
    assert done.out.splitlines()[1].startswith("2.png,cyd")
    assert read_labels([labels, tmp_path / "unanswered.txt"]).left_out["files without a label"] == 1
    with pytest.raises(CrowdshotError, match=r"unanswered\.txt holds"):
        read_labels(tmp_path / "unanswered.txt")


# ---- bad input --------------------------------------------------------------------------------------------------


def test_what_is_refused_leaves_nothing_behind(labels: Path, features: Path, tmp_path: Path, call) -> None:
    (tmp_path / "one.csv").write_text("image,worker,answer\n1,ann,cat\n2,bob,cat\n")
    (tmp_path / "clash.csv").write_text("gain,worker,answer\n1,ann,cat\n2,bob,dog\n")
    (tmp_path / "bad-cost.csv").write_text("worker,cost\nann,1\nbob,-2\n")
    (tmp_path / "words.csv").write_text("worker,cost\nann,much\n")
    (tmp_path / "thin.jsonl").write_text('{"worker": "ann"}\n')
    (tmp_path / "names.csv").write_text("cost,remark\n1,good\n")
    before = sorted(tmp_path.iterdir())
    for arguments, message in [
        ((labels, "--budget", "0"), "budget is 0, expected a number above 0."),
        ((labels, "--budget", "nan"), "budget is nan, expected a number above 0."),
        ((labels, "--cost", "zoe=1"), "--cost names 'zoe', who gave no label, expected some of 'ann', 'bob', 'cyd'."),
        ((labels, "--cost", "ann=free"), "--cost is 'ann=free', expected a file, or annotators and numbers above 0"),
        ((labels, "--cost", "ann=0"), "--cost is 'ann=0', expected a file, or annotators and numbers above 0"),
        ((labels, "--cost", "no.csv"), "no.csv does not exist, expected a file."),
        ((labels, "--cost", tmp_path / "bad-cost.csv"), "bad-cost.csv, row 3, column 'cost' is -2, expected a number"),
        ((labels, "--cost", tmp_path / "words.csv"), "words.csv, row 2, column 'cost' is 'much', expected a number."),
        ((labels, "--cost", tmp_path / "thin.jsonl"), "thin.jsonl has 1 column, expected the annotator and the cost"),
        ((labels, "--cost", tmp_path / "names.csv"), "names.csv has 'cost' first and no annotator, expected the anno"),
        (
            (labels, "--images", tmp_path, "--features", features),
            "--images is given together with features, expected one of the two.",
        ),
        (
            (labels, "--encoder", "glyphs"),
            "--encoder is given without items, expected images, features or texts with it.",
        ),
        ((tmp_path / "one.csv",), "labels has only the class 'cat', expected two classes or more"),
        (
            (tmp_path / "clash.csv", "--columns", "item=gain"),
            "The item column is called 'gain'",
        ),
        ((tmp_path / "no.csv",), "no.csv does not exist, expected a file."),
    ]:
        done = call(*arguments, "--out", tmp_path / "questions.csv")
        assert (done.code, done.out) == (2, ""), arguments
        assert done.err.startswith("crowdshot: ")
        assert message in done.err
        assert done.err.count("\n") <= 2  # the message and its hint
    done = call(labels, "--out", labels)
    assert done.code == 2
    assert "is an input file and would be overwritten." in done.err
    assert sorted(tmp_path.iterdir()) == before
    assert labels.read_text() == LABELS


def test_nothing_worth_asking_is_said(tmp_path: Path, call) -> None:
    """Everybody has said all that they can."""
    path = tmp_path / "full.csv"
    path.write_text("item,annotator,label\n1,ann,cat\n1,bob,dog\n2,ann,dog\n2,bob,dog\n")
    done = call(path, "--out", tmp_path / "questions.csv")
    assert done.code == 0
    assert "no questions: every annotator has labelled every item" in done.out
    path.write_text("item,annotator,label\n1,ann,cat\n1,bob,dog\n2,ann,dog\n")
    done = call(path, "--budget", "0.5", "--out", tmp_path / "questions.csv")
    assert "no questions: no answer is expected to change" in done.out
    assert (tmp_path / "questions.csv").read_text() == "item,annotator,label,gain,n_labels\n"


# ---- gold -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_features", [False, True])
def test_what_is_known_is_not_asked(labels: Path, features: Path, tmp_path: Path, with_features: bool, call) -> None:
    given = [labels, "--budget", 20, "--most", 20, *(["--features", features] if with_features else [])]
    before = pd.read_csv(io.StringIO(call(*given).out))
    assert "2.png" in set(before["image"])
    gold = tmp_path / "gold.csv"
    gold.write_text("image,truth\n2.png,owl\n")
    said = call(*given, "--gold", gold, "--json")
    assert said.code == 0
    report = json.loads(said.out)
    assert report["classes"] == ["cat", "dog", "owl"]
    assert report["questions"]
    assert "2.png" not in {question["image"] for question in report["questions"]}
    gold.write_text("image,truth\n9.png,owl\n")
    said = call(*given, "--gold", gold)
    assert said.code == 2
    assert "gold.csv has no true label of a labelled item; its first item is '9.png'" in said.err


# ---- who can be asked, and when it is enough ----------------------------------------------------------------------


def test_fewer_questions_than_asked_for_and_why(labels: Path, tmp_path: Path, call) -> None:
    """LABELS leave four pairs open: 1 and 2 of cyd, 4 of ann and bob."""
    said = call(labels, "--budget", 9, "--json")
    report = json.loads(said.out)
    assert (report["n_questions"], report["fewer"], report["unasked"]) == (4, "nobody", 4)
    assert report["nobody_left"] == report["not_accepted"]
    said = call(labels, "--budget", 9)
    why = "fewer questions than the budget of 9 allows: every available annotator will then have labelled every item"
    assert said.err.startswith(f"crowdshot: note: {why}\n")
    assert "already labelled by every annotator: find another annotator\n" in said.err
    said = call(labels, "--budget", 3, "--max-per-annotator", 1, "--annotators-available", "cyd")
    assert len(said.out.splitlines()) == 2
    assert "every available annotator has 1 question, the limit" in said.err
    said = call(labels, "--budget", 9, "--out", tmp_path / "questions.csv")
    assert "\nfewer questions than the budget of 9 allows: " in said.out
    assert said.err == ""
    said = call(labels, "--budget", 2)
    assert said.err.endswith("(long): item = 'image', annotator = 'worker', label = 'answer'\n")
    assert "fewer questions than" not in said.err
    assert json.loads(call(labels, "--budget", 2, "--json").out)["fewer"] is None


def test_only_who_is_there_is_asked(labels: Path, tmp_path: Path, call) -> None:
    said = call(labels, "--budget", 9, "--annotators-available", "cyd")
    assert {line.split(",")[1] for line in said.out.splitlines()[1:]} == {"cyd"}
    people = tmp_path / "people.csv"
    people.write_text("city,worker\nRome,cyd\nOslo,dan\n")
    said = call(labels, "--budget", 9, "--annotators-available", people, "--json")
    report = json.loads(said.out)
    assert "'dan' gave no label yet and count as new annotators; known are 'ann', 'bob', 'cyd'." in said.err
    asked = [(question["image"], question["worker"]) for question in report["questions"]]
    assert {who for _, who in asked} == {"cyd", "dan"}
    assert {image for image, who in asked if who == "dan"} == {"1.png", "2.png", "3.png", "4.png"}
    assert report["unasked"] == 6
    assert report["nobody_left"] == report["not_accepted"]  # after these


def test_how_many_labels_would_settle_a_share(tmp_path: Path, call) -> None:
    simulated = ("simulate", "--items", 60, "--classes", 3, "--annotators", 8, "--labels-per-item", 4, "--seed", 1)
    simulated += ("--crowd", "expert=0.5,hammer=0.5", "--out", tmp_path / "c")
    assert call.func(*simulated).code == 0
    labels = tmp_path / "c" / "labels.csv"
    report = json.loads(call(labels, "--stop-at", 0.8, "--json").out)
    found = report["stop_at"]
    assert found["share"] == 0.8
    assert 0 < found["at_best"] < found["labels"]
    assert found["at_worst"] is None or found["at_worst"] > found["labels"]
    more = json.loads(call(labels, "--stop-at", 0.95, "--json").out)["stop_at"]
    assert more["labels"] is None or more["labels"] > found["labels"]
    said = call(labels, "--stop-at", 0.8).err
    assert re.search(
        rf"about {found['labels']:,} more labels are needed until 80\s% of the items are accepted"
        rf" \({found['at_best']:,} at best",
        said,
    )


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--stop-at", "95", "--stop-at is 95, expected a share of the items, above 0 and at most 1."),
        ("--stop-at", "0", "--stop-at is 0, expected a share of the items, above 0 and at most 1."),
        ("--annotators-available", "ann,,bob", "--annotators-available is 'ann,,bob', expected a file, or different"),
        ("--annotators-available", "ann,ann", "--annotators-available is 'ann,ann', expected a file, or different"),
    ],
)
def test_what_is_wrong_with_who_and_when_is_told(labels: Path, tmp_path: Path, option, value, message, call) -> None:
    said = call(labels, option, value, "--out", tmp_path / "questions.csv")
    assert (said.code, said.out) == (2, "")
    assert message in said.err
    assert not (tmp_path / "questions.csv").exists()


def test_questions_about_a_thousand_classes(tmp_path: Path, call) -> None:
    """For which a table of a hundred annotators by classes by classes would take 800 MB, and is made by nobody."""
    random = np.random.default_rng(0)
    item = np.repeat(np.arange(1_000), 4)
    truth = random.permutation(1_000)[item]
    label = np.where(random.random(4_000) < 0.7, truth, random.integers(1_000, size=4_000))
    who = (item * 7 + np.tile(np.arange(4), 1_000) * 31) % 100
    table = pd.DataFrame({"item": item, "annotator": who, "label": pd.Series(label).map("c{}".format)})
    table.to_csv(tmp_path / "labels.csv", index=False)
    asked = call(tmp_path / "labels.csv", "--budget", 30, "--out", tmp_path / "questions.csv", "--json")
    report, questions = json.loads(asked.out), pd.read_csv(tmp_path / "questions.csv")
    assert asked.code == 0
    assert report["n_questions"] == len(questions) == 30
    assert (len(report["classes"]), report["uncertainty"] > report["gain"] > 0) == (len(table["label"].unique()), True)
    split = table.groupby("item")["label"].nunique()
    assert (split[questions["item"]] == 4).all()  # of which nobody agrees with another
    said = call(tmp_path / "labels.csv", "--stop-at", 0.9)
    assert (said.code, said.out) == (2, "")
    assert "--stop-at is not supported for 1,000 classes and 100 annotators" in said.err


def test_who_does_not_look_is_not_asked_unless_named(tmp_path: Path, call) -> None:
    random = np.random.default_rng(0)
    truth = np.arange(40) % 2
    rows = [f"i{i},{who},{truth[i] if random.random() < 0.9 else 1 - truth[i]}" for i in range(40) for who in "abc"]
    rows += [f"i{i},gus,1" for i in range(30)]
    (tmp_path / "labels.csv").write_text("item,annotator,label\n" + "\n".join(rows[:150]) + "\n")
    said = call(tmp_path / "labels.csv", "--budget", "8", "--json")
    asked = {question["annotator"] for question in json.loads(said.out)["questions"]}
    assert said.code == 0
    assert "gus" not in asked
    expected = "not asked, because their labels hardly depend on the items: 'gus' (one class only).\n"
    assert f"crowdshot: note: {expected}  Use --annotators-available NAME to ask them anyway.\n" in said.err
    said = call(tmp_path / "labels.csv", "--budget", "8", "--json", "--annotators-available", "gus")
    assert {question["annotator"] for question in json.loads(said.out)["questions"]} <= {"gus"}
    assert "not asked" not in said.err


def test_who_copies_is_not_asked_what_their_source_has_said(tmp_path: Path, call) -> None:
    random = np.random.default_rng(0)
    said = {
        who: np.where(random.random(120) < 0.7, np.arange(120) % 4, random.integers(4, size=120)) for who in "abcde"
    }
    rows = [f"i{i:03},{who},{says[i]}" for who, says in said.items() for i in range(120) if who != "e" or i < 90]
    rows += [f"i{i:03},copier,{said['e'][i]}" for i in range(60)]  # of the 90 that e labelled
    (tmp_path / "labels.csv").write_text("item,annotator,label\n" + "\n".join(rows) + "\n")
    told = call(tmp_path / "labels.csv", "--budget", 40, "--most", 40, "--json", "--annotators-available", "copier,e")
    assert told.code == 0
    asked = {(question["item"], question["annotator"]) for question in json.loads(told.out)["questions"]}
    assert {annotator for _, annotator in asked} == {"copier", "e"}
    assert all(item >= "i090" for item, _ in asked)
    note = " ".join(told.err.split())
    assert re.search(r"crowdshot: note: .*'e' and 'copier'\. An item that one of them has labelled is not given", note)


def test_a_list_of_people_that_is_not_there_is_no_person(tmp_path: Path, call) -> None:
    (tmp_path / "labels.csv").write_text("item,annotator,label\n1,a,cat\n1,b,dog\n2,a,dog\n")
    said = call(tmp_path / "labels.csv", "--annotators-available", tmp_path / "people.csv")
    assert (said.code, said.err) == (2, f"crowdshot: {tmp_path / 'people.csv'} does not exist, expected a file.\n")


def test_lists_longer_than_a_file_name(labels: Path, call) -> None:
    many = [f"a-rather-long-name-of-an-annotator-{n}" for n in range(150)]
    pairs = ",".join(f"{name}=2" for name in many)
    done = call(labels, "--names", pairs, "--rename", "cat=tom", "--budget", 1)
    assert done.code == 2
    assert many[0] in done.err  # there is no such annotator
    done = call(labels, "--annotators-available", ",".join([*many, "ann"]), "--budget", 1)
    assert done.code == 0, done.err
