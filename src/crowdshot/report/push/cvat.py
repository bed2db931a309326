"""CVAT: a tag on each image of a task, or several; automatic tags that were there give way, others stay.

A tag has no place for a confidence: `threshold` decides what is worth showing.
"""

from __future__ import annotations

from typing import Any

from crowdshot.labels.choices import parts
from crowdshot.report.push.beliefs import Beliefs, Pushed, find, refuse_unknown
from crowdshot.report.push.remote import Remote

VARIABLE = "CVAT_ACCESS_TOKEN"
AUTOMATIC = "auto"
PAGE = 500


def connect(address: str, token: str) -> Remote:
    return Remote(address, {"Authorization": f"Bearer {token}"})


def push(remote: Remote, project: str, beliefs: Beliefs, question: str | None, name: str) -> Pushed:
    """``project``: a task's number. ``question`` says nothing here: a task has one list of labels."""
    labels = _labels(remote, project)
    several = any(label not in labels for label, _ in beliefs.values())
    refuse_unknown(beliefs, labels, several, f"task {project}")
    frames = remote.part(remote.ask("api", "tasks", project, "data", "meta"), "frames", list)
    found, lost = find(beliefs, [[remote.part(frame, "name", str)] for frame in frames])
    there = remote.part(remote.ask("api", "tasks", project, "annotations", ""), "tags", list)
    old = [tag for tag in there if tag.get("source") == AUTOMATIC and tag.get("frame") in found]
    new = [
        {"frame": frame, "label_id": labels[part], "group": 0, "source": AUTOMATIC, "attributes": []}
        for frame, (label, _) in found.items()
        for part in (parts(label) if several else [label])
    ]
    for action, tags in (("create", new), ("delete", old)):  # if it ends between, there are two, never none
        if tags:
            body = {"version": 0, "tags": tags, "shapes": [], "tracks": []}
            remote.ask("api", "tasks", project, "annotations", "", body=body, method="PATCH", action=action)
    return Pushed(len(found), lost, name)


def _labels(remote: Remote, task: str) -> dict[str, Any]:
    """{name: id}"""
    found: dict[str, Any] = {}
    page = 1
    while True:
        answer = remote.ask("api", "labels", task_id=task, page=page, page_size=PAGE)
        for label in remote.part(answer, "results", list):
            found[remote.part(label, "name", str)] = remote.part(label, "id", int)
        if not answer.get("next"):
            return found
        page += 1
