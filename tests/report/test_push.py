"""Test suggestions in label tools, with fake servers that follow the tools' documented APIs; `make integration`
pushes to a real Label Studio."""

import json
import subprocess
import sys

import pytest

from crowdshot._cli.push import run_push
from crowdshot.errors import CrowdshotError
from crowdshot.report.label_tools import find, read_suggestions
from crowdshot.version import __version__
from fake_server import changes, fake_server

TOKEN = "very-secret-0123456789"
SCHEMA = (
    '<View><Image name="img" value="$image"/><Choices name="kind" toName="img">'
    '<Choice value="cat"/><Choice value="dog"/></Choices></View>'
)


@pytest.fixture
def table(tmp_path, monkeypatch):
    for name in ("LABEL_STUDIO_API_KEY", "ARGILLA_API_KEY", "CVAT_ACCESS_TOKEN"):
        monkeypatch.setenv(name, TOKEN)
    path = tmp_path / "consensus.csv"
    path.write_text("item,label,confidence,n_labels\na.png,cat,0.9,3\nb.png,dog,0.6,2\nc.png,dog,0.2,1\n")
    return path


def label_studio(**more):
    tasks = [{"id": 7, "data": {"image": "/data/upload/1/0123abcd-b.png"}}, {"id": 8, "data": {"image": "a.png"}},
             {"id": 9, "data": {"image": "z.png"}}]  # fmt: skip
    return {
        "GET /api/projects/3/": {"label_config": SCHEMA},
        "GET /api/tasks": lambda query, _: {"tasks": tasks if query["page"] == "1" else [], "total": 3},
        "GET /api/projects/3/model-versions/": {},
        "POST /api/projects/3/import/predictions": {"created": 2},
        "PATCH /api/projects/3/": {},
        **more,
    }


def test_label_studio_gets_predictions_and_their_version(table):
    with fake_server(label_studio()) as (address, seen):
        found = run_push(table, "label-studio", address, "3", threshold=0.5)
    name = found.name
    assert name.startswith(f"crowdshot-{__version__}-")
    assert found == (2, [], name)
    result = {"from_name": "kind", "to_name": "img", "type": "choices"}

    def prediction(task, label, score):
        one = {**result, "value": {"choices": [label]}, "score": score}
        return {"task": task, "model_version": name, "result": [one], "score": score}

    assert changes(seen) == [
        ("POST /api/projects/3/import/predictions", {}, [prediction(7, "dog", 0.6), prediction(8, "cat", 0.9)]),
        ("PATCH /api/projects/3/", {}, {"model_version": name}),
    ]
    assert {headers["Authorization"] for *_, headers in seen} == {f"Token {TOKEN}"}


def test_a_second_push_replaces_the_first(table):
    with fake_server(label_studio()) as (address, _):
        name = run_push(table, "label-studio", address, "3").name
    there = {"GET /api/projects/3/model-versions/": {name: 2}, "DELETE /api/projects/3/model-versions/": {}}
    with fake_server(label_studio(**there)) as (address, seen):
        assert run_push(table, "label-studio", address, "3").lost == ["c.png"]
    assert changes(seen)[0] == ("DELETE /api/projects/3/model-versions/", {}, {"model_version": name})
    table.write_text(table.read_text().replace("0.9", "0.8"))
    with fake_server(label_studio(**there)) as (address, seen):
        assert run_push(table, "label-studio", address, "3").name != name
    assert not [what for what, *_ in seen if what.startswith("DELETE")]


def test_a_personal_access_token_is_exchanged(table, monkeypatch):
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", "aaa.bbb.ccc")
    answers = label_studio(**{"POST /api/token/refresh/": {"access": "short-lived"}})
    with fake_server(answers) as (address, seen):
        run_push(table, "label-studio", address, "3")
    assert seen[0][2] == {"refresh": "aaa.bbb.ccc"}
    assert {headers["Authorization"] for *_, headers in seen[1:]} == {"Bearer short-lived"}


def test_several_choices_are_split(table):
    table.write_text("item,label,confidence\na.png,cat;dog,0.9\n")
    several = {"GET /api/projects/3/": {"label_config": SCHEMA.replace("toName", 'choice="multiple" toName')}}
    with fake_server(label_studio(**several)) as (address, seen):
        run_push(table, "label-studio", address, "3")
    assert changes(seen)[0][2][0]["result"][0]["value"] == {"choices": ["cat", "dog"]}


def argilla():
    records = [
        {"id": "r1", "external_id": "a.png", "fields": {}},
        {"id": "r2", "fields": {"image": "https://x/b.png?key=1"}},
    ]
    options = [{"value": "cat", "text": "Cat"}, {"value": "dog", "text": "Dog"}]
    question = {"id": "q1", "name": "kind", "settings": {"type": "label_selection", "options": options}}
    other = {"id": "q2", "name": "why", "settings": {"type": "text"}}
    return {
        "GET /api/v1/me/datasets": lambda query, _: {"items": [{"id": "d1", "name": query["name"]}]},
        "GET /api/v1/datasets/d1/questions": {"items": [question, other]},
        "GET /api/v1/datasets/d1/records": {"items": records, "total": 2},
        "PUT /api/v1/records/r1/suggestions": {},
        "PUT /api/v1/records/r2/suggestions": {},
    }


def test_argilla_gets_suggestions(table):
    with fake_server(argilla()) as (address, seen):
        found = run_push(table, "argilla", address, "my animals")
    assert (found.pushed, found.lost) == (2, ["c.png"])
    said = {"question_id": "q1", "type": "model", "agent": found.name}
    assert changes(seen) == [
        ("PUT /api/v1/records/r1/suggestions", {}, {**said, "value": "cat", "score": 0.9}),
        ("PUT /api/v1/records/r2/suggestions", {}, {**said, "value": "dog", "score": 0.6}),
    ]
    assert seen[0][1] == {"name": "my animals"}
    assert {headers["X-Argilla-Api-Key"] for *_, headers in seen} == {TOKEN}


def test_argilla_ratings_are_numbers(table):
    table.write_text("item,label,confidence\na.png,2,0.9\n")
    answers = argilla()
    answers["GET /api/v1/datasets/d1/questions"]["items"][0]["settings"] = {
        "type": "rating",
        "options": [{"value": 1}, {"value": 2}],
    }
    with fake_server(answers) as (address, seen):
        run_push(table, "argilla", address, "animals")
    assert changes(seen)[0][2]["value"] == 2


def test_argilla_gets_a_score_for_each_of_several_labels(table):
    """Argilla refuses a single score for several labels."""
    table.write_text("item,label,confidence\na.png,cat;dog,0.9\n")
    answers = argilla()
    answers["GET /api/v1/datasets/d1/questions"]["items"][0]["settings"]["type"] = "multi_label_selection"
    with fake_server(answers) as (address, seen):
        run_push(table, "argilla", address, "animals")
    assert changes(seen)[0][2]["value"] == ["cat", "dog"]
    assert changes(seen)[0][2]["score"] == [0.9, 0.9]


def test_cvat_gets_tags_and_keeps_those_of_people(table):
    old = {"id": 1, "frame": 0, "label_id": 4, "source": "auto", "attributes": [], "group": 0}
    pages = {"1": {"results": [{"id": 4, "name": "cat"}], "next": "…"}, "2": {"results": [{"id": 5, "name": "dog"}]}}
    answers = {
        "GET /api/labels": lambda query, _: pages[query["page"]],
        "GET /api/tasks/3/data/meta": {"frames": [{"name": "photos/b.png"}, {"name": "z.png"}, {"name": "a.png"}]},
        "GET /api/tasks/3/annotations/": {
            "tags": [old, {**old, "id": 2, "source": "manual"}, {**old, "id": 3, "frame": 1}]
        },
        "PATCH /api/tasks/3/annotations/": {},
    }
    with fake_server(answers) as (address, seen):
        assert run_push(table, "cvat", address, "3", threshold=0.5).pushed == 2

    def tag(frame, label):
        return {"frame": frame, "label_id": label, "group": 0, "source": "auto", "attributes": []}

    rest = {"version": 0, "shapes": [], "tracks": []}
    assert changes(seen) == [
        ("PATCH /api/tasks/3/annotations/", {"action": "create"}, {"tags": [tag(0, 5), tag(2, 4)], **rest}),
        ("PATCH /api/tasks/3/annotations/", {"action": "delete"}, {"tags": [old], **rest}),
    ]
    assert {headers["Authorization"] for *_, headers in seen} == {f"Bearer {TOKEN}"}


def test_labels_unknown_to_the_tool_are_refused_before_sending(table):
    table.write_text("item,label,confidence\na.png,cat,0.9\nb.png,fox,0.9\n")
    with fake_server(label_studio()) as (address, seen), pytest.raises(CrowdshotError) as error:
        run_push(table, "label-studio", address, "3")
    assert (error.value.where, error.value.found) == ("project 3", "fox")
    assert changes(seen) == []


@pytest.mark.parametrize("answers", [
    {"GET /api/projects/3/": (401, {})},
    {"GET /api/projects/3/": (404, {})},
    {"GET /api/projects/3/": (500, {})},
    {"GET /api/projects/3/": []},
    {"GET /api/projects/3/": {"label_config": 3}},
    {"GET /api/tasks": {"tasks": [{"id": 1}], "total": 1}},
    {"GET /api/tasks": {"tasks": [], "total": 0}},
])  # fmt: skip
def test_unexpected_responses_are_reported(table, answers):
    with fake_server(label_studio(**answers)) as (address, _), pytest.raises(CrowdshotError) as error:
        run_push(table, "label-studio", address, "3")
    assert TOKEN not in str(error.value)


def test_a_token_is_not_sent_to_a_redirect(table):
    with fake_server({"GET /api/projects/3/": {"label_config": SCHEMA}}) as (elsewhere, seen):
        moved = {"GET /api/projects/3/": (302, {"Location": f"{elsewhere}/api/projects/3/"})}
        with fake_server(moved) as (address, _), pytest.raises(CrowdshotError, match="redirects"):
            run_push(table, "label-studio", address, "3")
        assert seen == []


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:8080", "file:///etc/passwd", "http://me:secret@x", "http://"])
def test_addresses(table, url):
    with pytest.raises(CrowdshotError, match="expected an address") as error:
        run_push(table, "label-studio", url, "3")
    assert error.value.argument == "url"
    assert "secret" not in f"{error.value} {error.value.found}"


def test_a_project_name_is_escaped_in_the_path(table):
    with fake_server(label_studio()) as (address, seen), pytest.raises(CrowdshotError):
        run_push(table, "label-studio", address, "../users/1")
    assert seen[0][0] == "GET /api/projects/..%2Fusers%2F1/"


def test_items_are_matched_with_entries():
    posteriors = {"a.png": ("x", 1.0), "good": ("y", 0.5), "none": ("z", 0.1)}
    names = [[None, "https://host/a.png?key=1"], ["good", None], ["good"], ["other/good"], [None]]
    assert find(posteriors, names) == ({0: ("x", 1.0), 1: ("y", 0.5), 2: ("y", 0.5)}, ["none"])


def test_a_folder_or_a_table(tmp_path, table):
    assert read_suggestions(tmp_path) == read_suggestions(table)
    table.write_text("item,label,confidence\na,cat,1.5\n")
    with pytest.raises(CrowdshotError, match="confidence") as error:
        read_suggestions(table)
    assert error.value.found == 1.5


@pytest.mark.slow
def test_on_the_command_line(table, monkeypatch):
    command = [sys.executable, "-m", "crowdshot", "push", str(table), "--to", "label-studio", "--project", "3"]
    with fake_server(label_studio()) as (address, _):
        done = subprocess.run([*command, "--url", address, "--json"], capture_output=True, text=True)
    assert json.loads(done.stdout)["pushed"] == 2
    assert done.stderr == "crowdshot: note: 1 item not found in the project, first 'c.png'.\n"
    monkeypatch.delenv("LABEL_STUDIO_API_KEY")
    done = subprocess.run([*command, "--url", address], capture_output=True, text=True)
    assert done.returncode == 2
    assert "LABEL_STUDIO_API_KEY is not set" in done.stderr
