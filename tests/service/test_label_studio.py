"""Test requests of Label Studio, recorded from a real server (fixtures/label_studio)."""

import json

import pytest

from crowdshot.errors import CrowdshotError
from crowdshot.labels.formats import read_labels
from crowdshot.report.label_tools import Control, read_config
from crowdshot.service.http_app import Settings
from crowdshot.version import __version__
from polling import wait_until

from .conftest import FIXTURES, after, payloads

SCHEMA = payloads()[1]["body"]["schema"]
EXPORT = FIXTURES / "export.json"
TWO = SCHEMA.replace("</View>", '<Choices name="mood" toName="image"><Choice value="calm"/></Choices></View>')


def sent(path, action=None):
    bodies = [each["body"] for each in payloads() if each["path"] == path]
    return next(body for body in bodies if action is None or body["action"] == action)


def tasks(*numbers):
    """Return the tasks of the server's export in the form that `/predict` gets."""
    found = json.loads(EXPORT.read_text())
    return [task for task in found if not numbers or task["id"] in numbers]


def predict(client, some, project="1.1794706283"):
    return client.post("/predict", json={"tasks": some, "project": project, "label_config": SCHEMA, "params": {}})


def labels_of(client):
    return {(said.item, said.annotator): said.label for said in client.live.journal.state().labels}


def test_recorded_requests_are_understood(service):
    with service([EXPORT]) as client:
        version = client.get("/health").json()["version"]
        assert client.post("/setup", json=sent("/setup")).json() == {
            "model_version": f"crowdshot-{__version__}-{version}"
        }
        event = sent("/webhook", "ANNOTATION_CREATED")
        assert client.post("/webhook", json=event).status_code == 202
        wait_until(lambda: labels_of(client))
        assert labels_of(client) == {(event["task"]["data"]["image"], "1"): "Cat"}
        number = after(client, version)
        assert client.get("/versions").json() == {"versions": [f"crowdshot-{__version__}-{number}"]}
        assert client.post("/webhook", json=sent("/webhook", "START_TRAINING")).status_code == 202


def test_tokens_are_not_stored(service, tmp_path):
    with service() as client:
        client.post("/setup", json=sent("/setup") | {"access_token": "very-secret"})
    assert all(b"very-secret" not in file.read_bytes() for file in (tmp_path / "data").iterdir())


def test_labels_are_read_from_tasks_and_each_task_gets_a_result(service):
    with service() as client:
        empty = predict(client, tasks()).json()
        assert [row["result"] for row in empty["results"]] == [[]] * len(tasks())  # no labels yet
        number = after(client, 0)
        truly = read_labels(EXPORT).annotations.to_frame().itertuples(index=False, name=None)
        assert labels_of(client) == {(item, who): label for item, who, label in truly}
        answer = predict(client, tasks()).json()
        assert answer["model_version"] == f"crowdshot-{__version__}-{number}"
        assert len(answer["results"]) == len(tasks())
        consensus = {row["item"]: row for row in client.get("/v1/consensus").json()["consensus"]}
        for task, found in zip(tasks(), answer["results"], strict=True):
            assert found["model_version"] == answer["model_version"]
            known = consensus.get(task["data"]["image"])
            if known is None:
                assert found["result"] == []
                continue
            (result,) = found["result"]
            assert (result["from_name"], result["to_name"], result["type"]) == ("choice", "image", "choices")
            assert result["value"] == {"choices": [known["label"]]}
            assert found["score"] == pytest.approx(known["confidence"])
        rows = client.live.journal.last()
        predict(client, tasks())
        assert client.live.journal.last() == rows  # no new labels


def test_deleted_labels_are_removed(service):
    with service() as client:
        predict(client, tasks())
        after(client, 0)
        before = labels_of(client)
        task = next(task for task in tasks() if len([a for a in task["annotations"] if not a["was_cancelled"]]) > 1)
        gone = next(each for each in task["annotations"] if not each["was_cancelled"])
        pair = (task["data"]["image"], str(gone["completed_by"]))
        event = {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": gone["id"]}], "project": {"id": 1}}
        assert client.post("/webhook", json=event).status_code == 202
        wait_until(lambda: pair not in labels_of(client))
        assert labels_of(client) == {key: label for key, label in before.items() if key != pair}
        rest = task | {"annotations": []}  # without a webhook, the task shows the deletion
        predict(client, [rest])
        assert not [item for item, _ in labels_of(client) if item == task["data"]["image"]]


def test_a_changed_or_cancelled_label(service):
    with service() as client:
        event = sent("/webhook", "ANNOTATION_CREATED")
        client.post("/webhook", json=event)
        wait_until(lambda: labels_of(client))
        event = json.loads(json.dumps(event)) | {"action": "ANNOTATION_UPDATED"}
        event["annotation"]["result"][0]["value"] = {"choices": ["Dog"]}
        client.post("/webhook", json=event)
        wait_until(lambda: set(labels_of(client).values()) == {"Dog"})
        event["annotation"]["was_cancelled"] = True
        client.post("/webhook", json=event)
        wait_until(lambda: not labels_of(client))


@pytest.mark.slow
def test_a_label_of_the_file_can_be_deleted(service):
    with service([EXPORT]) as client:
        version = client.get("/health").json()["version"]
        n_labels = read_labels(EXPORT).annotations.n_labels
        predict(client, tasks())
        number = after(client, version)
        gone = next(each for task in tasks() for each in task["annotations"] if not each["was_cancelled"])
        event = {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": gone["id"]}], "project": {"id": 1}}
        assert client.post("/webhook", json=event).status_code == 202
        after(client, number)
        people = client.get("/v1/annotators").json()["annotators"]
        assert sum(person["n_labels"] for person in people) == n_labels - 1


def test_another_project_is_refused(service):
    with service() as client:
        assert client.post("/setup", json=sent("/setup")).status_code == 200
        refused = predict(client, tasks(), project="2.123")
        assert refused.status_code == 422
        assert "project is 2, but this service has the labels of project 1" in refused.json()["detail"]
        assert not labels_of(client)


def test_two_label_controls(service):
    with service() as client:
        refused = client.post("/setup", json={"project": "1.1", "schema": TWO})
        assert refused.status_code == 422
        assert "has 2 Choices tags, 'choice', 'mood', expected one" in refused.json()["detail"]
    with service(settings=Settings(label_tag="choice")) as client:
        assert client.post("/setup", json={"project": "1.1", "schema": TWO}).status_code == 200
        event = sent("/webhook", "ANNOTATION_CREATED")
        event["annotation"]["result"].append({"from_name": "mood", "type": "choices", "value": {"choices": ["calm"]}})
        event["project"]["label_config"] = TWO
        client.post("/webhook", json=event)
        wait_until(lambda: labels_of(client))
        assert set(labels_of(client).values()) == {"Cat"}


def test_read_only_predicts_and_stores_nothing(service):
    with service([EXPORT], settings=Settings(read_only=True)) as client:
        assert len(predict(client, tasks()).json()["results"]) == len(tasks())
        assert client.live.journal.last() == 0


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"tasks": 3},
        {"tasks": [{"id": 1}], "label_config": "<View/>"},
        {"tasks": [], "label_config": "<View>"},
        {"tasks": [], "label_config": '<!DOCTYPE x [<!ENTITY a "b">]><View>&a;</View>'},
    ],
)
def test_invalid_requests_are_refused(service, body):
    with service() as client:
        assert client.post("/predict", json=body).status_code == 422


@pytest.mark.parametrize(
    "annotation",
    [
        {},
        {"id": "x", "completed_by": [], "result": 7},
        {"id": 1, "completed_by": 1, "result": [3, {"from_name": "choice", "value": {"choices": [{}]}}]},
        {"id": 1, "completed_by": 1, "result": [{"from_name": "choice", "value": {"choices": ["Cat", "Dog"]}}]},
    ],
)
def test_annotations_without_a_label_are_ignored(service, annotation):
    with service() as client:
        task = {"id": 1, "data": {"image": "a.png"}, "annotations": [annotation]}
        assert predict(client, [task]).status_code == 200
        assert not labels_of(client)


def test_the_labelling_interface():
    assert read_config(SCHEMA) == (Control("choice", "image", "image"), ["Cat", "Dog", "Fox"], False)
    text = '<View><Text name="t" value="$review"/><Choices name="c" toName="t"/></View>'
    assert read_config(text) == (Control("c", "t", "review"), [], False)
    with pytest.raises(CrowdshotError, match="no Choices tags"):
        read_config("<View/>")
    with pytest.raises(CrowdshotError, match="expected a field"):
        read_config('<View><Choices name="c" toName="t"/></View>')
