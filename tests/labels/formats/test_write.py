"""Test written files: Label Studio predictions, tables, and the formats of crowd-kit and cleanlab."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from crowdshot import __version__, aggregate
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import digits
from crowdshot.labels.formats import read_labels
from crowdshot.labels.formats.writers import WRITERS, to_argilla, to_coco, to_label_studio

EXPORTS = Path(__file__).parents[2] / "fixtures" / "label_studio"
HOST = "http://127.0.0.1:8099/static/images/"


def consensus(labels) -> pd.DataFrame:
    return aggregate.majority_vote(labels.annotations).to_frame(labels.annotations)


def table(labels, *rows) -> pd.DataFrame:
    columns = labels.annotations.columns
    return pd.DataFrame(rows, columns=[columns.item, columns.label, "confidence"])


def test_predictions_for_the_project_they_came_from() -> None:
    labels = read_labels(EXPORTS / "export.json")
    tasks = to_label_studio(consensus(labels), labels, model_version="v1")
    assert tasks[1] == {
        "id": 2,
        "data": {"image": f"{HOST}b.png", "item": "img_002"},
        "predictions": [
            {
                "model_version": "v1",
                "score": 1.0,
                "result": [
                    {"from_name": "choice", "to_name": "image", "type": "choices", "value": {"choices": ["Fox"]}}
                ],
            }
        ],
    }
    assert [task["id"] for task in tasks] == [1, 2, 3, 4, 5]
    assert tasks[0]["predictions"][0]["score"] == 0.5
    by_id = to_label_studio(consensus(labels), labels, by_id=True)
    assert by_id[1] == {"task": 2, **tasks[1]["predictions"][0], "model_version": f"crowdshot-{__version__}"}


def test_predictions_have_the_format_of_a_real_server() -> None:
    """Compare keys and types with predictions that a real server exported."""
    real = json.loads((EXPORTS / "export_snapshot.json").read_text())[0]["predictions"][0]
    labels = read_labels(EXPORTS / "export.csv")
    ours = to_label_studio(consensus(labels), labels)[0]["predictions"][0]
    assert set(ours) <= set(real)
    assert {key: type(value) for key, value in ours.items()} == {key: type(real[key]) for key in ours}
    theirs = {key: value for key, value in real["result"][0].items() if key != "score"}
    assert {**ours["result"][0], "value": {"choices": ["Cat"]}} == theirs


def test_unlabelled_tasks_get_the_prediction_for_their_image() -> None:
    """The classifier uses an image's file name, and the task has its address."""
    labels = read_labels(EXPORTS / "export.csv")
    rows = table(labels, (f"{HOST}a.png", "Cat", 0.75), ("d.png", "Fox", 0.5), ("not in the project.png", "Cat", 1.0))
    tasks = to_label_studio(rows, labels)
    assert [(task["id"], task["data"]["item"], task["predictions"][0]["score"]) for task in tasks] == [
        (1, "img_001", 0.75),
        (4, "img_004", 0.5),
    ]
    assert tasks[1]["predictions"][0]["result"][0]["value"] == {"choices": ["Fox"]}


def test_a_matched_name_is_not_used_for_another_task(tmp_path) -> None:
    def task(number, image, *annotations):
        return {"id": number, "data": {"image": image}, "annotations": list(annotations)}

    result = {"from_name": "c", "to_name": "i", "type": "choices", "value": {"choices": ["x"]}}
    answer = {"completed_by": 1, "result": [result]}
    (tmp_path / "l.json").write_text(json.dumps([task(1, "a/1.png", answer), task(2, "b/1.png")]))
    labels = read_labels(tmp_path / "l.json")
    tasks = to_label_studio(table(labels, ("a/1.png", "x", 1.0)), labels)
    assert [task["id"] for task in tasks] == [1]


def test_predictions_without_a_project(tmp_path) -> None:
    (tmp_path / "l.csv").write_text("photo,who,animal\n1.png,ann,cat\n1.png,bob,cat\n2.png,ann,dog\n")
    labels = read_labels(tmp_path / "l.csv", ("photo", "who", "animal"))
    rows = table(labels, ("1.png", "cat", 0.9), ("2.png", "dog", np.nan))
    (task,) = to_label_studio(rows, labels)
    assert task["data"] == {"image": "1.png"}
    assert task["predictions"][0]["result"][0]["from_name"] == "label"
    assert task["predictions"][0]["result"][0]["to_name"] == "image"
    with pytest.raises(CrowdshotError, match=r"item '1\.png' has no task id"):
        to_label_studio(rows, labels, by_id=True)
    with pytest.raises(CrowdshotError, match="the consensus has no column 'confidence'"):
        to_label_studio(rows.drop(columns="confidence"), labels)


@pytest.mark.parametrize("name", WRITERS)
def test_every_writer(tmp_path, name: str) -> None:
    labels = read_labels(EXPORTS / "export_min.json")
    path = tmp_path / "out"
    WRITERS[name](path, consensus(labels), labels)
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    if name == "csv":
        assert path.read_text().splitlines()[:2] == [
            "image,choice,confidence,n_labels,agreement",
            f"{HOST}a.png,Cat,0.5,2,0.5",
        ]
    elif name == "parquet":
        pd.testing.assert_frame_equal(pd.read_parquet(path), consensus(labels), check_dtype=False)
    elif name == "label-studio":
        assert json.loads(path.read_text()) == to_label_studio(consensus(labels), labels)
    elif name == "label-studio-by-id":
        assert [prediction["task"] for prediction in json.loads(path.read_text())] == [1, 2, 3]
    elif name == "crowdkit":
        assert path.read_text().splitlines()[:2] == ["task,worker,label", f"{HOST}a.png,2,Cat"]
    elif name == "coco":
        found = json.loads(path.read_text())
        assert [category["name"] for category in found["categories"]] == ["Cat", "Dog", "Fox"]
        assert found["annotations"][0] == {"id": 1, "image_id": 1, "category_id": 1, "score": 0.5}
        assert found["images"][0] == {"id": 1, "file_name": f"{HOST}a.png", "item": f"{HOST}a.png"}
    elif name == "argilla":
        suggestion = json.loads(path.read_text())[0]["suggestions"]["choice"]
        assert (suggestion["value"], suggestion["score"]) == ("Cat", 0.5)
    elif name == "cvat":
        back = read_labels(path).annotations.to_frame()
        assert back["label"].tolist() == consensus(labels)["choice"].tolist()
    else:
        back = pd.read_csv(path, index_col=0)
        assert back.to_numpy()[:2].tolist() == [[1, 0], [2, 2]]  # Cat, Dog, Fox; annotators in the file's order
        assert back.columns.tolist() == ["3", "2"]


def test_files_that_cannot_be_written(tmp_path) -> None:
    labels = read_labels(EXPORTS / "export_min.json")
    with pytest.raises(CrowdshotError, match="could not be written"):
        WRITERS["csv"](tmp_path / "no" / "out.csv", consensus(labels), labels)
    odd = consensus(labels).astype({"choice": object})
    odd.loc[0, "choice"] = 1
    with pytest.raises(CrowdshotError, match=r"out\.parquet could not be written as Parquet"):
        WRITERS["parquet"](tmp_path / "out.parquet", odd, labels)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0.5, "0.5"),
        (1 / 3, "0.333333"),
        (1.2345e-5, "0.000012"),
        (3.7e-41, "0"),
        (-2e-9, "0"),
        (-5e-5, "-0.00005"),
        (0.0, "0"),
        (1234.5678, "1234.57"),
    ],
)
def test_numbers_in_tables_are_plain(number, written):
    assert digits(number) == written


def test_a_set_of_labels_is_several_choices(tmp_path) -> None:
    (tmp_path / "labels.csv").write_text("item,ann,bob\n1,cat;dog,cat;dog\n2,cat,cat\n")
    labels = read_labels(tmp_path / "labels.csv", multi_label=True)
    table = pd.DataFrame({"item": ["1", "2"], "label": ["cat;dog", "cat"], "confidence": [0.9, 0.8]})
    results = [task["predictions"][0]["result"][0]["value"]["choices"] for task in to_label_studio(table, labels)]
    assert results == [["cat", "dog"], ["cat"]]
    coco = to_coco(table, labels)
    assert coco["categories"] == [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    assert [tuple(each.values()) for each in coco["annotations"]] == [(1, 1, 1, 0.9), (2, 1, 2, 0.9), (3, 2, 1, 0.8)]
    suggested = [record["suggestions"]["label"] for record in to_argilla(table, labels)]
    assert [each["value"] for each in suggested] == results
    assert [each["score"] for each in suggested] == [[0.9, 0.9], [0.8]]  # Argilla refuses one for several values
    WRITERS["cvat"](tmp_path / "tags.xml", table, labels)
    back = read_labels(tmp_path / "tags.xml", multi_label=True).annotations
    assert back.to_frame()["label"].tolist() == ["cat;dog", "cat"]
