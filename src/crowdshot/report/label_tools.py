"""What is believed, as suggestions in a label tool that runs: one module a tool. What is pushed twice is there once."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urlsplit
from xml.etree.ElementTree import ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import clean, listing, show
from crowdshot.io.cells import text
from crowdshot.io.tables import one_each, read_table
from crowdshot.labels.formats.question_choice import choose, is_picture
from crowdshot.labels.label_sets import parts
from crowdshot.labels.matching import file_finder
from crowdshot.report.round_comparison import CONSENSUS, numbers_of

# ---- posteriors ------------------------------------------------------------
#
# What is pushed: the label of each item and how probable it is; and to which of a tool's entries it belongs.


Suggestions = dict[str, tuple[str, float]]  # {item: (label, probability)}


class Pushed(NamedTuple):
    """How many items got their label, which the tool does not have, and the name that it was pushed under."""

    pushed: int
    lost: list[str]
    name: str


def read_suggestions(path: Path, threshold: float = 0.0) -> Suggestions:
    """A table that `aggregate` or `predict` wrote, or a folder that `adapt` did; without labels less probable."""
    if not 0 <= threshold <= 1:
        raise CrowdshotError(f"threshold is {threshold:g}, expected a probability, 0 to 1.")
    table = read_table(path / CONSENSUS if path.is_dir() else path)
    (confidence,) = numbers_of(table, "confidence", beside=2)
    rows = zip(one_each(table, 0), table.text(1), confidence, strict=True)
    found = {str(item): (str(label), float(sure)) for item, label, sure in rows if sure >= threshold}
    strange = next((item for item, (_, sure) in found.items() if not 0 <= sure <= 1), None)
    if strange is not None:
        raise CrowdshotError(
            f"{table.name} has the confidence {found[strange][1]:g} for {show(strange)}, expected 0 to 1."
        )
    return found


def refuse_unknown(posteriors: Suggestions, known: Collection[str], several: bool, where: str) -> None:
    """Before anything is sent. ``known``: the tool's labels, if it lists them."""
    for label, _ in posteriors.values():
        stranger = next((part for part in (parts(label) if several else [label]) if known and part not in known), None)
        if stranger is not None:
            raise CrowdshotError(f"{where} has no label {show(stranger)}, expected one of {listing(sorted(known))}.")


def find(
    posteriors: Suggestions, names: Sequence[Sequence[str | None]]
) -> tuple[dict[int, tuple[str, float]], list[str]]:
    """{place of an entry: its label}, by any of the entries' names or by the file that one means; and items not found.

    Of several entries that are called alike, as questions about one item are, each gets the label.
    """
    meant = file_finder([PurePosixPath(item) for item in posteriors])
    items = list(posteriors)
    found, used = {}, set()
    for place, given in enumerate(names):
        known = [name for name in given if name]
        item = next((name for name in known if name in posteriors), None)
        if item is None:
            files = (meant(name) for name in known if is_picture(name))
            item = next((items[file] for file in files if file >= 0), None)
        if item is not None:
            found[place] = posteriors[item]
            used.add(item)
    return found, [item for item in items if item not in used]


# ---- remote ------------------------------------------------------------
#
# A label tool's HTTP interface: JSON there and back, and what goes wrong as a sentence. No token is ever shown.


PATIENCE = 120.0  # seconds
T = TypeVar("T")


class Stay(urllib.request.HTTPRedirectHandler):
    """A token is not carried elsewhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Remote:
    """``headers`` go with every request."""

    def __init__(self, address: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise CrowdshotError(f"url is {clean(parts.hostname or address)}, expected one like http://127.0.0.1:8080.")
        self.address, self.headers = address.rstrip("/"), dict(headers)
        self._opener = urllib.request.build_opener(Stay)

    def ask(self, *path: str | int, body: Any = None, method: str | None = None, **query: str | int) -> Any:
        """The answer to a GET or, with a body, a POST; ``path``: its parts, which are quoted."""
        where = "/".join([self.address, *(quote(str(part), safe="") for part in path)])
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = {**self.headers, "Accept": "application/json", "Content-Type": "application/json"}
        url = f"{where}?{urlencode(query)}" if query else where
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with self._opener.open(request, timeout=PATIENCE) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise CrowdshotError(f"{where} has the answer {error.code}, {_hint(error)}.") from None
        except (OSError, ValueError) as error:
            raise CrowdshotError(f"{where} is not to be reached ({getattr(error, 'reason', error)}).") from None
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise CrowdshotError(f"{where} has an answer that is no JSON, expected the label tool's.") from None

    def part(self, answer: Any, name: str, kind: type[T]) -> T:
        value = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(value, kind):
            raise CrowdshotError(f"{self.address} has an answer without {name!r}, expected another label tool there.")
        return value


def _hint(error: urllib.error.HTTPError) -> str:
    if error.code in (401, 403):
        return "expected a token that is known and may do this"
    if error.code == 404:
        return "expected a project that is there"
    if 300 <= error.code < 400:
        return f"expected no redirection, so url= should lead to {clean(error.headers.get('Location') or '?')}"
    return f"expected 200 ({clean(error.read(300).decode(errors='replace'))})"


# ---- argilla ------------------------------------------------------------
#
# Argilla 2: a suggestion for each record, which takes the place of one that was there.


ARGILLA_VARIABLE = "ARGILLA_API_KEY"
ARGILLA_PAGE = 500  # records in a request
SEVERAL = "multi_label_selection"
KINDS = ("label_selection", SEVERAL, "rating")


def connect_argilla(address: str, token: str) -> Remote:
    return Remote(address, {"X-Argilla-Api-Key": token})


def push_argilla(remote: Remote, project: str, posteriors: Suggestions, question: str | None, name: str) -> Pushed:
    """``project``: a dataset's name."""
    dataset = _dataset(remote, project)
    asked, options, several = _question(remote, dataset, question)
    refuse_unknown(posteriors, options, several, f"question {asked['name']!r}")
    records = list(_records(remote, dataset))
    found, lost = find(posteriors, [_names(record) for record in records])
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
        answer = remote.ask("api", "v1", "datasets", dataset, "records", offset=offset, limit=ARGILLA_PAGE)
        records = remote.part(answer, "items", list)
        yield from records
        offset += len(records)
        if len(records) < ARGILLA_PAGE:
            return


def _names(record: dict[str, Any]) -> list[str | None]:
    """Its own id, the server's, and what it shows."""
    fields = record.get("fields")
    return [*map(text, (record.get("external_id"), record.get("id"))), *map(text, dict(fields or {}).values())]


# ---- cvat ------------------------------------------------------------
#
# CVAT: a tag on each image of a task, or several; automatic tags that were there give way, others stay.
#
# A tag has no place for a confidence: `threshold` decides what is worth showing.


CVAT_VARIABLE = "CVAT_ACCESS_TOKEN"
AUTOMATIC = "auto"
CVAT_PAGE = 500


def connect_cvat(address: str, token: str) -> Remote:
    return Remote(address, {"Authorization": f"Bearer {token}"})


def push_cvat(remote: Remote, project: str, posteriors: Suggestions, question: str | None, name: str) -> Pushed:
    """``project``: a task's number. ``question`` says nothing here: a task has one list of labels."""
    labels = _labels(remote, project)
    several = any(label not in labels for label, _ in posteriors.values())
    refuse_unknown(posteriors, labels, several, f"task {project}")
    frames = remote.part(remote.ask("api", "tasks", project, "data", "meta"), "frames", list)
    found, lost = find(posteriors, [[remote.part(frame, "name", str)] for frame in frames])
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
        answer = remote.ask("api", "labels", task_id=task, page=page, page_size=CVAT_PAGE)
        for label in remote.part(answer, "results", list):
            found[remote.part(label, "name", str)] = remote.part(label, "id", int)
        if not answer.get("next"):
            return found
        page += 1


# ---- label studio ------------------------------------------------------------
#
# Label Studio: a prediction for each task, under one version, by which the project then goes.


LABEL_STUDIO_VARIABLE = "LABEL_STUDIO_API_KEY"
LABEL_STUDIO_PAGE = 500  # tasks in a request


class Control(NamedTuple):
    """The tag that is answered, the one that it is about, and which field of a task's data holds that."""

    from_name: str
    to_name: str
    key: str


def connect_label_studio(address: str, token: str) -> Remote:
    """``token``: a personal access token, which is exchanged for one of a few minutes, or a legacy one."""
    if re.fullmatch(r"[\w-]+\.[\w-]+\.[\w-]+", token) is None:
        return Remote(address, {"Authorization": f"Token {token}"})
    remote = Remote(address, {})
    access = remote.part(remote.ask("api", "token", "refresh", "", body={"refresh": token}), "access", str)
    remote.headers["Authorization"] = f"Bearer {access}"
    return remote


def push_label_studio(remote: Remote, project: str, posteriors: Suggestions, question: str | None, name: str) -> Pushed:
    schema = remote.part(remote.ask("api", "projects", project, ""), "label_config", str)
    control, choices, several = read_config(schema, question)
    refuse_unknown(posteriors, choices, several, f"project {project}")
    tasks = list(_tasks(remote, project))
    data = [remote.part(task, "data", dict) for task in tasks]
    found, lost = find(posteriors, [[text(row.get("next_item")), text(row.get(control.key))] for row in data])
    predictions = [
        {"task": tasks[place]["id"], "model_version": name, **prediction(control, said, sure, several)}
        for place, (said, sure) in found.items()
    ]
    versions = remote.ask("api", "projects", project, "model-versions", "")
    if isinstance(versions, dict) and name in versions:  # pushed before, or the beginning of it
        remote.ask("api", "projects", project, "model-versions", "", body={"model_version": name}, method="DELETE")
    for start in range(0, len(predictions), LABEL_STUDIO_PAGE):
        remote.ask(
            "api", "projects", project, "import", "predictions", body=predictions[start : start + LABEL_STUDIO_PAGE]
        )
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
        answer = remote.ask("api", "tasks", project=project, page=page, page_size=LABEL_STUDIO_PAGE)
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


# ---- push ------------------------------------------------------------


class Tool(NamedTuple):
    """A label tool that suggestions can be pushed to.

    ``variable`` names the environment variable that holds the token. ``push`` takes the connection, the project, the
    suggestions, the question to answer (needed if the tool has several) and a name that marks the suggestions.
    """

    variable: str
    connect: Callable[[str, str], Remote]
    push: Callable[[Remote, str, Suggestions, str | None, str], Pushed]


TOOLS = {
    "argilla": Tool(ARGILLA_VARIABLE, connect_argilla, push_argilla),
    "cvat": Tool(CVAT_VARIABLE, connect_cvat, push_cvat),
    "label-studio": Tool(LABEL_STUDIO_VARIABLE, connect_label_studio, push_label_studio),
}
