"""Push consensus labels as suggestions to a running label tool: Argilla, CVAT or Label Studio.

Pushing is idempotent: the suggestions of the previous push are replaced.
"""

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
from crowdshot.labels.matching import file_finder
from crowdshot.labels.spelling import parts
from crowdshot.report.round_comparison import CONSENSUS, numbers_of

Suggestions = dict[str, tuple[str, float]]  # {item: (label, probability)}


class Pushed(NamedTuple):
    """The number of labelled items, the items that the tool does not have, and the name of the suggestions."""

    pushed: int
    lost: list[str]
    name: str


def read_suggestions(path: Path, threshold: float = 0.0) -> Suggestions:
    """Read the labels of a table that ``aggregate`` or ``predict`` wrote, or of a folder that ``adapt`` wrote.

    Parameters
    ----------
    path : Path
        The table or the folder.
    threshold : float
        Labels with a lower probability are left out.

    Returns
    -------
    dict
        {item: (label, probability)}.

    Raises
    ------
    CrowdshotError
        If the threshold or a confidence is not a probability, or a column is missing.
    """
    if not 0 <= threshold <= 1:
        raise CrowdshotError(
            f"is {threshold:g}", argument="threshold", found=threshold, expected="a probability from 0 to 1"
        )
    table = read_table(path / CONSENSUS if path.is_dir() else path)
    (confidence,) = numbers_of(table, "confidence", beside=2)
    rows = zip(one_each(table, 0), table.text(1), confidence, strict=True)
    suggestions = {str(item): (str(label), float(p)) for item, label, p in rows if p >= threshold}
    invalid = next((item for item, (_, p) in suggestions.items() if not 0 <= p <= 1), None)
    if invalid is not None:
        raise CrowdshotError(
            f"has the confidence {suggestions[invalid][1]:g} for item {show(invalid)}",
            where=table.name,
            found=suggestions[invalid][1],
            expected="a probability from 0 to 1",
        )
    return suggestions


def refuse_unknown(suggestions: Suggestions, known: Collection[str], several: bool, where: str) -> None:
    """Raise an error if the tool lists its labels and one of the suggestions is not among them."""
    if not known:
        return
    for label, _ in suggestions.values():
        unknown = next((part for part in (parts(label) if several else [label]) if part not in known), None)
        if unknown is not None:
            raise CrowdshotError(
                f"has no label {show(unknown)}", where=where, found=unknown, expected=f"one of {listing(sorted(known))}"
            )


def find(
    suggestions: Suggestions, names: Sequence[Sequence[str | None]]
) -> tuple[dict[int, tuple[str, float]], list[str]]:
    """Match suggestions with the entries of a tool.

    Parameters
    ----------
    suggestions : dict
        {item: (label, probability)}.
    names : sequence
        The names of each entry. An entry matches by any name, or by the file that a name refers to.

    Returns
    -------
    found : dict
        {position of an entry: (label, probability)}. Several entries about an item all get its label.
    missing : list of str
        The items without an entry.
    """
    file_named = file_finder([PurePosixPath(item) for item in suggestions])
    items = list(suggestions)
    found, used = {}, set()
    for place, entry_names in enumerate(names):
        known = [name for name in entry_names if name]
        item = next((name for name in known if name in suggestions), None)
        if item is None:
            files = (file_named(name) for name in known if is_picture(name))
            item = next((items[file] for file in files if file >= 0), None)
        if item is not None:
            found[place] = suggestions[item]
            used.add(item)
    return found, [item for item in items if item not in used]


# ---- HTTP ----

PATIENCE = 120.0  # seconds
T = TypeVar("T")


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuse redirections, which would send the token to another address."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Remote:
    """The HTTP interface of a label tool: JSON requests, JSON answers, and errors that never contain the token.

    Parameters
    ----------
    address : str
        The tool's URL.
    headers : mapping
        Headers of every request.
    """

    def __init__(self, address: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            shown = clean(parts.hostname or address)  # without a password that the address may contain
            raise CrowdshotError(
                f"is {shown}", argument="url", found=shown, expected="an address such as http://127.0.0.1:8080"
            )
        self.address, self.headers = address.rstrip("/"), dict(headers)
        self._opener = urllib.request.build_opener(NoRedirect)

    def ask(self, *path: str | int, body: Any = None, method: str | None = None, **query: str | int) -> Any:
        """Return the JSON answer to a GET request or, with a body, to a POST request.

        Parameters
        ----------
        *path : str or int
            The parts of the path, which are quoted.
        body : Any
            The JSON body.
        method : str, optional
            Another HTTP method.
        **query : str or int
            Query parameters.
        """
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
                raise _refusal(where, error) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise CrowdshotError(
                f"Could not connect ({reason})", where=where, hint="Check the address, and that the server is running."
            ) from None
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise CrowdshotError("The answer is not JSON", where=where, expected="a label tool's answer") from None

    def part(self, answer: Any, name: str, kind: type[T]) -> T:
        value = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(value, kind):
            raise CrowdshotError(
                f"An answer has no {name!r}",
                where=self.address,
                hint="Check that this is the address of the label tool.",
            )
        return value


def _refusal(where: str, error: urllib.error.HTTPError) -> CrowdshotError:
    """Return the error for an answer with an HTTP status other than 200."""
    if error.code in (401, 403):
        hint = "Check the token and its permissions."
    elif error.code == 404:
        hint = "Check that the project exists."
    elif 300 <= error.code < 400:
        hint = f"The server redirects to {clean(error.headers.get('Location') or '?')}: use that address as the URL."
    else:
        hint = f"The server answered: {clean(error.read(300).decode(errors='replace'))}"
    return CrowdshotError(f"The request failed with status {error.code}", where=where, found=error.code, hint=hint)


# ---- Argilla 2 ----

ARGILLA_VARIABLE = "ARGILLA_API_KEY"
ARGILLA_PAGE = 500  # records in a request
SEVERAL = "multi_label_selection"
KINDS = ("label_selection", SEVERAL, "rating")


def connect_argilla(address: str, token: str) -> Remote:
    return Remote(address, {"X-Argilla-Api-Key": token})


def push_argilla(remote: Remote, project: str, suggestions: Suggestions, question: str | None, name: str) -> Pushed:
    """Write a suggestion for each record of the dataset ``project``; it replaces an earlier one."""
    dataset = _dataset(remote, project)
    asked, options, several = _question(remote, dataset, question)
    refuse_unknown(suggestions, options, several, f"question {asked['name']!r}")
    records = list(_records(remote, dataset))
    found, lost = find(suggestions, [_names(record) for record in records])
    for place, (label, score) in found.items():
        values = [options[part] for part in (parts(label) if several else [label])]
        value = {"value": values, "score": [score] * len(values)} if several else {"value": values[0], "score": score}
        body = {"question_id": asked["id"], "type": "model", **value, "agent": name}
        record = remote.part(records[place], "id", str)
        remote.ask("api", "v1", "records", record, "suggestions", body=body, method="PUT")
    return Pushed(len(found), lost, name)


def _dataset(remote: Remote, name: str) -> str:
    found = remote.part(remote.ask("api", "v1", "me", "datasets", name=name), "items", list)
    if len(found) != 1:
        raise CrowdshotError(
            f"has {len(found) or 'no'} datasets named {show(clean(name))}",
            where=remote.address,
            found=len(found),
            expected="one",
        )
    return remote.part(found[0], "id", str)


def _question(remote: Remote, dataset: str, name: str | None) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """Return the question, its options by label, and whether an answer may have several labels."""
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
    """Return the names of a record: its own id, the server's id and its fields."""
    fields = record.get("fields")
    return [*map(text, (record.get("external_id"), record.get("id"))), *map(text, dict(fields or {}).values())]


# ---- CVAT ----

CVAT_VARIABLE = "CVAT_ACCESS_TOKEN"
AUTOMATIC = "auto"
CVAT_PAGE = 500


def connect_cvat(address: str, token: str) -> Remote:
    return Remote(address, {"Authorization": f"Bearer {token}"})


def push_cvat(remote: Remote, project: str, suggestions: Suggestions, question: str | None, name: str) -> Pushed:
    """Tag the images of task number ``project`` and replace its automatic tags; tags by people stay.

    A tag has no confidence. ``question`` is not used, because a task has a single list of labels.
    """
    labels = _labels(remote, project)
    several = any(label not in labels for label, _ in suggestions.values())
    refuse_unknown(suggestions, labels, several, f"task {project}")
    frames = remote.part(remote.ask("api", "tasks", project, "data", "meta"), "frames", list)
    found, lost = find(suggestions, [[remote.part(frame, "name", str)] for frame in frames])
    tags = remote.part(remote.ask("api", "tasks", project, "annotations", ""), "tags", list)
    old = [tag for tag in tags if tag.get("source") == AUTOMATIC and tag.get("frame") in found]
    new = [
        {"frame": frame, "label_id": labels[part], "group": 0, "source": AUTOMATIC, "attributes": []}
        for frame, (label, _) in found.items()
        for part in (parts(label) if several else [label])
    ]
    for action, changed in (("create", new), ("delete", old)):  # created first: an interruption leaves two, not none
        if changed:
            body = {"version": 0, "tags": changed, "shapes": [], "tracks": []}
            remote.ask("api", "tasks", project, "annotations", "", body=body, method="PATCH", action=action)
    return Pushed(len(found), lost, name)


def _labels(remote: Remote, task: str) -> dict[str, Any]:
    """Return {name: id}."""
    found: dict[str, Any] = {}
    page = 1
    while True:
        answer = remote.ask("api", "labels", task_id=task, page=page, page_size=CVAT_PAGE)
        for label in remote.part(answer, "results", list):
            found[remote.part(label, "name", str)] = remote.part(label, "id", int)
        if not answer.get("next"):
            return found
        page += 1


# ---- Label Studio ----

LABEL_STUDIO_VARIABLE = "LABEL_STUDIO_API_KEY"
LABEL_STUDIO_PAGE = 500  # tasks in a request


class Control(NamedTuple):
    """The Choices tag, the tag that it is about, and the field of the task data that this shows."""

    from_name: str
    to_name: str
    key: str


def connect_label_studio(address: str, token: str) -> Remote:
    """Connect with a legacy token, or with a personal access token, which is exchanged for a short-lived one."""
    if re.fullmatch(r"[\w-]+\.[\w-]+\.[\w-]+", token) is None:
        return Remote(address, {"Authorization": f"Token {token}"})
    remote = Remote(address, {})
    access = remote.part(remote.ask("api", "token", "refresh", "", body={"refresh": token}), "access", str)
    remote.headers["Authorization"] = f"Bearer {access}"
    return remote


def push_label_studio(
    remote: Remote, project: str, suggestions: Suggestions, question: str | None, name: str
) -> Pushed:
    """Import a prediction for each task under the model version ``name``, and show this version in the project."""
    schema = remote.part(remote.ask("api", "projects", project, ""), "label_config", str)
    control, choices, several = read_config(schema, question)
    refuse_unknown(suggestions, choices, several, f"project {project}")
    tasks = list(_tasks(remote, project))
    data = [remote.part(task, "data", dict) for task in tasks]
    found, lost = find(suggestions, [[text(row.get("next_item")), text(row.get(control.key))] for row in data])
    predictions = [
        {"task": tasks[place]["id"], "model_version": name, **prediction(control, label, score, several)}
        for place, (label, score) in found.items()
    ]
    versions = remote.ask("api", "projects", project, "model-versions", "")
    if isinstance(versions, dict) and name in versions:  # a previous push, complete or not
        remote.ask("api", "projects", project, "model-versions", "", body={"model_version": name}, method="DELETE")
    for start in range(0, len(predictions), LABEL_STUDIO_PAGE):
        remote.ask(
            "api", "projects", project, "import", "predictions", body=predictions[start : start + LABEL_STUDIO_PAGE]
        )
    if predictions:
        show_version(remote, project, name)
    return Pushed(len(found), lost, name)


def prediction(control: Control, label: str, score: float, several: bool) -> dict[str, Any]:
    value = {"choices": parts(label) if several else [label]}
    result = {"from_name": control.from_name, "to_name": control.to_name, "type": "choices", "value": value}
    return {"result": [result | {"score": score}], "score": score}


def retrieve(remote: Remote, project: str) -> None:
    """Make Label Studio request the predictions of all tasks that have none of the backend's version."""
    body = {"selectedItems": {"all": True, "excluded": []}}
    remote.ask("api", "dm", "actions", body=body, id="retrieve_tasks_predictions", project=project)


def show_version(remote: Remote, project: str, version: str) -> None:
    """Set the project's model version: uncertainty sampling uses its predictions only, and it never updates itself."""
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
    """Read a project's labelling interface.

    Parameters
    ----------
    schema : str
        The interface as XML.
    tag : str, optional
        The name of the Choices tag, if there are several.

    Returns
    -------
    control : Control
        The Choices tag and the data that it is about.
    choices : list of str
        The labels; empty if the tasks define them.
    several : bool
        Whether an answer may have several labels.
    """
    try:
        root = fromstring(schema)
    except (ParseError, DefusedXmlException, ValueError) as error:
        raise CrowdshotError(
            f"is not valid XML ({error})", argument="schema", expected="the XML of a labelling interface"
        ) from None
    tags = {each.get("name") or "": each for each in root.iter() if each.tag == "Choices" and each.get("name")}
    named = {} if tag is None else {"label": tag}
    name = choose("label", named, list(tags), "the labelling interface", "Choices tags")
    to_name = tags[name].get("toName") or ""
    about = next((each for each in root.iter() if each.get("name") == to_name and each is not tags[name]), None)
    value = "" if about is None else about.get("value") or about.get("valueList") or ""
    if not value.startswith("$"):
        raise CrowdshotError(
            f"has the value {value!r}",
            where=f"tag {to_name!r} of the labelling interface",
            found=value,
            expected="a field of the data, such as $image",
        )
    choices = [] if tags[name].get("value") else [each.get("value") or "" for each in tags[name].iter("Choice")]
    return Control(name, to_name, value[1:]), choices, tags[name].get("choice") == "multiple"


# ---- tools ----


class Tool(NamedTuple):
    """A label tool that accepts suggestions.

    ``variable`` names the environment variable that holds the token. ``push`` takes the connection, the project, the
    suggestions, the question to answer (needed if the tool has several) and a name for the suggestions.
    """

    variable: str
    connect: Callable[[str, str], Remote]
    push: Callable[[Remote, str, Suggestions, str | None, str], Pushed]


TOOLS = {
    "argilla": Tool(ARGILLA_VARIABLE, connect_argilla, push_argilla),
    "cvat": Tool(CVAT_VARIABLE, connect_cvat, push_cvat),
    "label-studio": Tool(LABEL_STUDIO_VARIABLE, connect_label_studio, push_label_studio),
}
