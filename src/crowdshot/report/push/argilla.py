"""Argilla 2: a suggestion for each record, which takes the place of one that was there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crowdshot.errors import CrowdshotError
from crowdshot.files.cells import text
from crowdshot.labels.choices import parts
from crowdshot.labels.formats.questions import choose
from crowdshot.report.push.beliefs import Beliefs, Pushed, find, refuse_unknown
from crowdshot.report.push.remote import Remote
from crowdshot.wording import clean, show

VARIABLE = "ARGILLA_API_KEY"
PAGE = 500  # records in a request
SEVERAL = "multi_label_selection"
KINDS = ("label_selection", SEVERAL, "rating")


def connect(address: str, token: str) -> Remote:
    return Remote(address, {"X-Argilla-Api-Key": token})


def push(remote: Remote, project: str, beliefs: Beliefs, question: str | None, name: str) -> Pushed:
    """``project``: a dataset's name."""
    dataset = _dataset(remote, project)
    asked, options, several = _question(remote, dataset, question)
    refuse_unknown(beliefs, options, several, f"question {asked['name']!r}")
    records = list(_records(remote, dataset))
    found, lost = find(beliefs, [_names(record) for record in records])
    for place, (label, sure) in found.items():
        values = [options[part] for part in (parts(label) if several else [label])]
        said = {"value": values, "score": [sure] * len(values)} if several else {"value": values[0], "score": sure}
        body = {"question_id": asked["id"], "type": "model", **said, "agent": name}
        record = remote.part(records[place], "id", str)
        remote.ask("api", "v1", "records", record, "suggestions", body=body, method="PUT")
    return Pushed(len(found), lost, name)


def _dataset(remote: Remote, name: str) -> str:
    found = remote.part(remote.ask("api", "v1", "me", "datasets", name=name), "items", list)
    if len(found) != 1:
        raise CrowdshotError(f"{remote.address} has {len(found)} datasets named {show(clean(name))}, expected one.")
    return remote.part(found[0], "id", str)


def _question(remote: Remote, dataset: str, name: str | None) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """The question, its options as labels name them, and whether an answer may name several."""
    found = remote.part(remote.ask("api", "v1", "datasets", dataset, "questions"), "items", list)
    known = {each["name"]: each for each in found if remote.part(each, "settings", dict).get("type") in KINDS}
    named = {} if name is None else {"label": name}
    chosen = known[choose("label", named, list(known), "the dataset", "questions with options")]
    settings = chosen["settings"]
    options = {text(each.get("value")) or "": each.get("value") for each in remote.part(settings, "options", list)}
    return chosen, options, settings["type"] == SEVERAL


def _records(remote: Remote, dataset: str) -> Iterator[Any]:
    offset = 0
    while True:
        answer = remote.ask("api", "v1", "datasets", dataset, "records", offset=offset, limit=PAGE)
        records = remote.part(answer, "items", list)
        yield from records
        offset += len(records)
        if len(records) < PAGE:
            return


def _names(record: dict[str, Any]) -> list[str | None]:
    """Its own id, the server's, and what it shows."""
    fields = record.get("fields")
    return [*map(text, (record.get("external_id"), record.get("id"))), *map(text, dict(fields or {}).values())]
