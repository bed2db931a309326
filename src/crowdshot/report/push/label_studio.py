"""Label Studio: a prediction for each task, under one version, by which the project then goes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from xml.etree.ElementTree import ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from crowdshot.errors import CrowdshotError
from crowdshot.files.cells import text
from crowdshot.labels.choices import parts
from crowdshot.labels.formats.questions import choose
from crowdshot.report.push.beliefs import Beliefs, Pushed, find, refuse_unknown
from crowdshot.report.push.remote import Remote

VARIABLE = "LABEL_STUDIO_API_KEY"
PAGE = 500  # tasks in a request


class Control(NamedTuple):
    """The tag that is answered, the one that it is about, and which field of a task's data holds that."""

    from_name: str
    to_name: str
    key: str


def connect(address: str, token: str) -> Remote:
    """``token``: a personal access token, which is exchanged for one of a few minutes, or a legacy one."""
    if re.fullmatch(r"[\w-]+\.[\w-]+\.[\w-]+", token) is None:
        return Remote(address, {"Authorization": f"Token {token}"})
    remote = Remote(address, {})
    access = remote.part(remote.ask("api", "token", "refresh", "", body={"refresh": token}), "access", str)
    remote.headers["Authorization"] = f"Bearer {access}"
    return remote


def push(remote: Remote, project: str, beliefs: Beliefs, question: str | None, name: str) -> Pushed:
    schema = remote.part(remote.ask("api", "projects", project, ""), "label_config", str)
    control, choices, several = read_config(schema, question)
    refuse_unknown(beliefs, choices, several, f"project {project}")
    tasks = list(_tasks(remote, project))
    data = [remote.part(task, "data", dict) for task in tasks]
    found, lost = find(beliefs, [[text(row.get("next_item")), text(row.get(control.key))] for row in data])
    predictions = [
        {"task": tasks[place]["id"], "model_version": name, **prediction(control, said, sure, several)}
        for place, (said, sure) in found.items()
    ]
    versions = remote.ask("api", "projects", project, "model-versions", "")
    if isinstance(versions, dict) and name in versions:  # pushed before, or the beginning of it
        remote.ask("api", "projects", project, "model-versions", "", body={"model_version": name}, method="DELETE")
    for start in range(0, len(predictions), PAGE):
        remote.ask("api", "projects", project, "import", "predictions", body=predictions[start : start + PAGE])
    if predictions:
        go_by(remote, project, name)
    return Pushed(len(found), lost, name)


def prediction(control: Control, label: str, score: float, several: bool) -> dict[str, Any]:
    value = {"choices": parts(label) if several else [label]}
    result = {"from_name": control.from_name, "to_name": control.to_name, "type": "choices", "value": value}
    return {"result": [result | {"score": score}], "score": score}


def retrieve(remote: Remote, project: str) -> None:
    """Label Studio asks its backend for predictions of all tasks that have none of its version yet."""
    body = {"selectedItems": {"all": True, "excluded": []}}
    remote.ask("api", "dm", "actions", body=body, id="retrieve_tasks_predictions", project=project)


def go_by(remote: Remote, project: str, version: str) -> None:
    """Its uncertainty sampling knows predictions of the project's version alone, which is a name and never follows."""
    remote.ask("api", "projects", project, "", body={"model_version": version}, method="PATCH")


def _tasks(remote: Remote, project: str) -> Iterator[Any]:
    page, seen = 1, 0
    while True:
        answer = remote.ask("api", "tasks", project=project, page=page, page_size=PAGE)
        tasks = remote.part(answer, "tasks", list)
        yield from tasks
        page, seen = page + 1, seen + len(tasks)
        if not tasks or seen >= remote.part(answer, "total", int):
            return


def read_config(schema: str, tag: str | None = None) -> tuple[Control, list[str], bool]:
    """A project's labelling interface, as XML -> what is answered, with what (nothing if tasks say), if by several."""
    try:
        root = fromstring(schema)
    except (ParseError, DefusedXmlException, ValueError) as error:
        raise CrowdshotError(f"schema is not XML that can be read ({error}), expected a labelling interface.") from None
    tags = {each.get("name") or "": each for each in root.iter() if each.tag == "Choices" and each.get("name")}
    named = {} if tag is None else {"label": tag}
    name = choose("label", named, list(tags), "the labelling interface", "Choices tags")
    to_name = tags[name].get("toName") or ""
    about = next((each for each in root.iter() if each.get("name") == to_name and each is not tags[name]), None)
    value = "" if about is None else about.get("value") or about.get("valueList") or ""
    if not value.startswith("$"):
        raise CrowdshotError(f"the tag {to_name!r} has the value {value!r}, expected a field of the data, like $image.")
    choices = [] if tags[name].get("value") else [each.get("value") or "" for each in tags[name].iter("Choice")]
    return Control(name, to_name, value[1:]), choices, tags[name].get("choice") == "multiple"
