"""Check the round trip with a real Label Studio: its exports into crowdshot, and crowdshot's predictions back.

    python integration/label_studio.py --server .venv-integration/bin/python

``make integration`` makes that environment and runs this script. The server runs on 127.0.0.1 at a free port, with its
SQLite database and files in a temporary folder, and makes no connections to other hosts (no analytics, version checks
or error reports). Each step prints a line; the exit code is 1 at the first step that fails.
"""

import argparse
import io
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from PIL import Image, ImageDraw

from crowdshot import __version__
from crowdshot.labels.formats import read_labels
from crowdshot.labels.formats.writers import WRITERS

ROUND, SQUARE = "disc", "carré, plein"  # a comma and an accent, for CSV
UNLABELLED = 9
CONFIG = """<View><Image name="{photo}" value="$image"/>
<Choices name="shape" toName="{photo}"><Choice value="disc"/><Choice value="carré, plein"/></Choices></View>"""
QUIET = {
    "COLLECT_ANALYTICS": "false",
    "LATEST_VERSION_CHECK": "false",
    "SENTRY_DSN": "",
    "FRONTEND_SENTRY_DSN": "",
    "FEATURE_FLAGS_OFFLINE": "true",
    "LABEL_STUDIO_DISABLE_SIGNUP_WITHOUT_LINK": "true",
}
USERS = """
import json, os
from organizations.models import Organization
from rest_framework.authtoken.models import Token
from users.models import User
organization = None
for name, key in json.loads(os.environ["CROWDSHOT_TOKENS"]).items():
    user = User.objects.create_user(email=f"{name}@example.com", password=key)
    if organization is None:
        organization = Organization.create_organization(
            created_by=user, title="crowdshot", legacy_api_tokens_enabled=True)
    else:
        organization.add_user(user)
    user.active_organization = organization
    user.save()
    Token.objects.filter(user=user).delete()
    Token.objects.create(user=user, key=key)
"""


class StepError(Exception):
    """A step did not do what it should."""


def say(step, seen):
    print(f"{step + ' ':.<50} {seen}", flush=True)


def check(step, found, expected):
    if found != expected:
        raise StepError(f"{step}: found {found!r}, expected {expected!r}")
    say(step, "ok")


# ---- the server ----


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serving(python, folder, tokens):
    """Run a Label Studio with these users, {name: token}; yield its address and version, and stop it in any case."""
    where = subprocess.check_output([python, "-c", "import label_studio; print(label_studio.__path__[0])"], text=True)
    manage = [python, str(Path(where.strip(), "manage.py"))]
    environment = {**os.environ, **QUIET, "LABEL_STUDIO_BASE_DATA_DIR": str(folder)}
    environment |= {"CROWDSHOT_TOKENS": json.dumps(tokens), "HOME": str(folder), "DJANGO_DB": "sqlite"}
    for arguments in (["migrate", "--no-color", "--verbosity", "0"], ["shell", "-c", USERS]):
        done = subprocess.run([*manage, *arguments], env=environment, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise StepError(f"manage.py {arguments[0]}: {(done.stdout + done.stderr)[-2000:]}")
    port, log = free_port(), folder / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*manage, "runserver", f"127.0.0.1:{port}", "--noreload"],
            env=environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        address = f"http://127.0.0.1:{port}"
        yield address, wait_until_up(server, address, log)
    finally:
        end(server)


def wait_until_up(server, address, log, seconds=180):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and server.poll() is None:
        try:
            return json.load(urllib.request.urlopen(f"{address}/api/version", timeout=10))["release"]
        except OSError:
            time.sleep(0.5)
    raise StepError(f"the server did not come up: {log.read_text(errors='replace')[-2000:]}")


def end(server):
    """Stop the process and its children, which share a process group."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, kind)
            server.wait(timeout=20)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def call(address, token, path, body=None, kind="application/json"):
    """Send a GET or, with a body, a POST request; return (status, bytes)."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": f"Token {token}", "Content-Type": kind}
    try:
        with urllib.request.urlopen(urllib.request.Request(address + path, data, headers), timeout=120) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def ask(address, token, path, body=None, kind="application/json"):
    status, answer = call(address, token, path, body, kind)
    if status >= 300:
        raise StepError(f"{path}: the server answers {status}, {answer[:1000].decode(errors='replace')}")
    return json.loads(answer)


def multipart(files):
    """Return (body, content type) with a field for each file."""
    edge = secrets.token_hex(16)
    body = io.BytesIO()
    for number, file in enumerate(files):
        head = f'--{edge}\r\nContent-Disposition: form-data; name="file{number}"; filename="{file.name}"\r\n'
        body.write(f"{head}Content-Type: image/png\r\n\r\n".encode() + file.read_bytes() + b"\r\n")
    body.write(f"--{edge}--\r\n".encode())
    return body.getvalue(), f"multipart/form-data; boundary={edge}"


# ---- pictures and their labels ----


def draw(folder):
    """Draw ten pictures, discs and squares alternately, with file names that an upload changes."""
    folder.mkdir()
    for number in range(10):
        image = Image.new("RGB", (96, 96), (235, 235, 225))
        box = (14 + number, 12 + number, 66 + number, 64 + number)
        pen = ImageDraw.Draw(image)
        (pen.rectangle if number % 2 else pen.ellipse)(box, fill=(40 + 9 * number, 70, 120))
        image.save(folder / f"été, picture ({number}).png")
    return sorted(folder.iterdir())


def truth(number):
    return SQUARE if number % 2 else ROUND


def answers():
    """Yield (picture, user, label or None if cancelled): carl is wrong twice, ann skips one, nobody labels the last."""
    for number in range(10):
        if number == UNLABELLED:
            continue
        for user in ("ann", "bob", "carl"):
            wrong = user == "carl" and number in (2, 5)
            yield number, user, None if (number, user) == (4, "ann") else truth(number + wrong)


def new_project(address, token, photo):
    return ask(address, token, "/api/projects", {"title": "crowdshot", "label_config": CONFIG.format(photo=photo)})[
        "id"
    ]


def tasks_of(address, token, project):
    """Return {a task's picture: its id}."""
    fields = ask(address, token, f"/api/tasks?project={project}&fields=all&page_size=100")["tasks"]
    return {task["data"]["image"]: task["id"] for task in fields}


def annotate(address, tokens, task_of):
    for number, user, label in answers():
        result = {"from_name": "shape", "to_name": "photo", "type": "choices", "value": {"choices": [label]}}
        body = {"result": [result] if label else [], "was_cancelled": label is None, "lead_time": 1.5}
        ask(address, tokens[user], f"/api/tasks/{task_of[number]}/annotations", body)


def crowdshot(*arguments):
    command = [sys.executable, "-m", "crowdshot", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise StepError(f"{' '.join(command[2:])}: {(done.stdout + done.stderr)[-2000:]}")


def predictions_of(address, token, project):
    """Return the server's predictions, {task: (label, score, model version)}."""
    found = ask(address, token, f"/api/predictions?project={project}")
    return {p["task"]: (p["result"][0]["value"]["choices"], round(p["score"], 6), p["model_version"]) for p in found}


def expected_of(sent):
    """Return the predictions that were sent, by picture."""
    return {
        task["data"]["image"]: (p["result"][0]["value"]["choices"], round(p["score"], 6), p["model_version"])
        for task in sent
        for p in task["predictions"]
    }


# ---- the check ----


def run(python, folder):
    tokens = {name: secrets.token_hex(20) for name in ("ann", "bob", "carl")}
    server_folder = folder / "server"
    server_folder.mkdir()
    pictures = draw(folder / "images")
    with serving(python, server_folder, tokens) as (address, version):
        say("Label Studio on 127.0.0.1", version)
        round_trip(address, tokens, pictures, folder)
    say("the server has ended", "ok")


def round_trip(address, tokens, pictures, folder):
    token = tokens["ann"]
    who = {name: ask(address, tokens[name], "/api/current-user/whoami")["id"] for name in tokens}
    check("three users, each with a token", len(set(who.values())), 3)

    project = new_project(address, token, "photo")
    body, kind = multipart(pictures)
    ask(address, token, f"/api/projects/{project}/import", body, kind)
    task_of_image = tasks_of(address, token, project)
    say("pictures uploaded as tasks", f"{len(task_of_image)}, such as {min(task_of_image)}")
    task_of = dict(enumerate(sorted(task_of_image.values())))  # the order of the upload
    annotate(address, tokens, task_of)
    given = list(answers())
    say("annotations by three users", f"{len(given)}, {sum(label is None for *_, label in given)} of them cancelled")

    exports = {"JSON": "export.json", "JSON_MIN": "export_min.json", "CSV": "export.csv", "TSV": "export.tsv"}
    sent = {}
    for kind, name in exports.items():
        export(address, token, project, kind, folder / name)
        labels = read_labels(folder / name)
        ids = {task.id: task.item for task in labels.project.tasks}
        found_labels = triples(labels)
        expected_labels = {(ids[task_of[number]], str(who[user]), label) for number, user, label in given if label}
        check("  every label and its annotator are read", found_labels, expected_labels)
        out = folder / f"out_{kind}"
        crowdshot("adapt", folder / name, "--images", folder / "images", "--out", out)
        sent[kind] = json.loads((out / "predictions.json").read_text())
        images = {number: ids[task_of[number]] for number in task_of}
        found = {image: choice[0] for image, (choice, *_) in expected_of(sent[kind]).items()}
        check("  crowdshot adapt: all ten labels are right", found, {images[n]: truth(n) for n in images})

    for kind, photo in (("JSON", "photo"), ("JSON_MIN", "image"), ("CSV", "image")):
        fresh = new_project(address, token, photo)
        ask(address, token, f"/api/projects/{fresh}/import", sent[kind])
        at = {task: image for image, task in tasks_of(address, token, fresh).items()}
        found = {at[task]: seen for task, seen in predictions_of(address, token, fresh).items()}
        check(f"predictions.json of {kind} in a new project", found, expected_of(sent[kind]))

    created = by_id(address, token, project, folder, exports["CSV"], "CSV")
    check("predictions by id of CSV, Image tag unlike data", created, 0)  # CSV does not have the tag's name
    created = by_id(address, token, project, folder, exports["JSON"], "JSON", to_name="image")
    check("predictions by id of JSON, to_name changed alike", created, 0)  # so it is the name, and nothing else
    created = by_id(address, token, project, folder, exports["JSON"], "JSON")
    check("predictions by id of JSON, all are taken", created, len(task_of))
    expected = {task_of_image[image]: seen for image, seen in expected_of(sent["JSON"]).items()}
    check("  and are there, in the first project", predictions_of(address, token, project), expected)
    check("  they name this version", {seen[2] for seen in expected.values()}, {f"crowdshot-{__version__}"})
    (label,), score, model = expected[task_of[UNLABELLED]]
    say("  for example, for the picture without labels", f"{label}, score {score}, {model}")
    questions_and_answers(address, tokens, who, exports, folder)


def questions_and_answers(address, tokens, who, exports, folder):
    """Import the questions of `crowdshot next`, answer them, and read the answers together with the old labels."""
    old, token = folder / exports["JSON"], tokens["ann"]
    crowdshot("next", old, "--budget", 4, "--out", folder / "questions.json")
    tasks = json.loads((folder / "questions.json").read_text())
    fresh = new_project(address, token, "photo")
    ask(address, token, f"/api/projects/{fresh}/import", tasks)
    before = triples(read_labels(old))
    for kind, name in exports.items():
        export(address, token, fresh, kind, folder / f"unanswered_{name}")
        check(
            f"questions, export {kind} unanswered", triples(read_labels([old, folder / f"unanswered_{name}"])), before
        )
    found = ask(address, token, f"/api/tasks?project={fresh}&fields=all&page_size=100")["tasks"]
    check(
        "questions are tasks, the most useful first", [task["data"] for task in found], [task["data"] for task in tasks]
    )
    name_of, answered = {str(number): name for name, number in who.items()}, set()
    for number, task in enumerate(found):
        addressee, label = task["data"]["next_annotator"], truth(number)
        result = {"from_name": "shape", "to_name": "photo", "type": "choices", "value": {"choices": [label]}}
        body = {"result": [result], "lead_time": 1.5}
        ask(address, tokens[name_of[addressee]], f"/api/tasks/{task['id']}/annotations", body)
        answered.add((task["data"]["next_item"], addressee, label))
    for kind, name in exports.items():
        export(address, token, fresh, kind, folder / f"answers_{name}")
        check(f"answers, export {kind}", triples(read_labels(folder / f"answers_{name}")), answered)
    joined = read_labels([old, folder / "answers_export.json"])
    items = {item for item, *_ in before | answered}
    check("answers beside the old labels: no new item", set(joined.annotations.items), items)
    check("  and predictions for the first project", joined.project, read_labels(old).project)


def export(address, token, project, kind, file):
    status, data = call(address, token, f"/api/projects/{project}/export?exportType={kind}&download_all_tasks=true")
    check(f"export {kind}", status, 200)
    file.write_bytes(data)


def triples(labels):
    """Return {(item, annotator, label)}."""
    return set(labels.annotations.to_frame().itertuples(index=False, name=None))


def by_id(address, token, project, folder, export, kind, to_name=None):
    """Send the consensus as predictions for the project's tasks; return how many the server created.

    ``to_name`` replaces the names of the image tags.
    """
    file = folder / f"by_id_{kind}.json"
    consensus = pd.read_csv(folder / f"out_{kind}" / "consensus.csv")
    WRITERS["label-studio-by-id"](file, consensus, read_labels(folder / export))
    predictions = json.loads(file.read_text())
    for prediction in predictions:
        prediction["result"][0]["to_name"] = to_name or prediction["result"][0]["to_name"]
    return ask(address, token, f"/api/projects/{project}/import/predictions", predictions)["created"]


def main(run, about, success):
    """Run the steps with a server in a temporary folder; print ``success`` if all of them passed."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--server", required=True, help="the Python of an environment that has label-studio")
    python = os.path.abspath(parser.parse_args().server)
    with tempfile.TemporaryDirectory() as folder:
        try:
            run(python, Path(folder))
        except StepError as failure:
            print(f"FAILED: {failure}", file=sys.stderr)
            return 1
    print(success)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also ends the server
    sys.exit(main(run, __doc__, "Label Studio's exports are read and its predictions imported."))
