"""Check crowdshot's service with a real Label Studio: users label, the service predicts, is killed, and loses nothing.

    python integration/live.py --server .venv-integration/bin/python

``make integration`` runs this after `label_studio.py`, whose server and users it uses. The service is connected through
Label Studio's API, as an administrator would do it. Both run on 127.0.0.1.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import pandas as pd
from label_studio import (
    CONFIG,
    StepError,
    ask,
    call,
    check,
    draw,
    free_port,
    main,
    multipart,
    say,
    serving,
    tasks_of,
    truth,
)

TWO = CONFIG.format(photo="photo").replace(
    "</View>", '<Choices name="mood" toName="photo"><Choice value="calm"/></Choices></View>'
)
PATIENCE = 120.0  # seconds


@contextmanager
def crowdshot_at(folder, token_file, port, *more):
    """Run the service, which appends its log to log.txt."""
    command = [sys.executable, "-m", "crowdshot", "serve", "--data", folder / "live", "--images", folder / "images"]
    command += ["--auth", token_file, "--port", port, *more]
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen(list(map(str, command)), stderr=log)
    process.address = f"http://127.0.0.1:{port}"
    try:
        wait_for("the service listens", lambda: process.poll() is not None or listens(process))
        if process.poll() is not None:
            raise StepError(f"the service did not come up: {(folder / 'log.txt').read_text()[-1000:]}")
        yield process
    finally:
        process.terminate()
        process.wait()


def listens(process):
    try:
        return asked(process, "", "/health")
    except OSError:
        return None


def asked(process, token, path):
    request = urllib.request.Request(process.address + path, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if path != "/" else text.decode()


def n_labels(process, token):
    return sum(person["n_labels"] for person in asked(process, token, "/v1/annotators")["annotators"])


def refused(step, answered, logged=None):
    """Check that Label Studio makes no connection, and that the log of the service has the reason."""
    check(step, answered[0], 400)
    if logged is not None:
        file, sentence = logged
        check("  and the log says why", sentence in file.read_text(), True)


def wait_for(step, condition):
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise StepError(f"{step}: it never came")
        time.sleep(0.2)
    say(step, "ok")
    return found


def connect(address, token, project, url, password):
    """Do what "Connect Model" in the settings of a project does; return (status, answer)."""
    body = {"project": project, "title": "crowdshot", "url": url, "auth_method": "BASIC_AUTH", "basic_auth_user": "ls",
            "basic_auth_pass": password, "is_interactive": False}  # fmt: skip
    status, answer = call(address, token, "/api/ml", body)
    return status, json.loads(answer)


def changed(address, token, path, body):
    data = json.dumps(body).encode()
    headers = {"Authorization": f"Token {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(address + path, data, headers, method="PATCH")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def label(address, token, task, said):
    result = {"from_name": "shape", "to_name": "photo", "type": "choices", "value": {"choices": [said]}}
    return ask(address, token, f"/api/tasks/{task}/annotations", {"result": [result], "lead_time": 1.0})["id"]


def removed(address, token, path):
    request = urllib.request.Request(address + path, headers={"Authorization": f"Token {token}"}, method="DELETE")
    urllib.request.urlopen(request, timeout=60).close()


def run(python, folder):
    tokens = {name: secrets.token_hex(20) for name in ("ann", "bob", "carl")}
    (folder / "server").mkdir()
    pictures = draw(folder / "images")
    secret, token_file = secrets.token_urlsafe(24), folder / "token.txt"
    token_file.write_text(secret)
    os.environ |= {"ML_BLOCK_LOCAL_IP": "false", "SSRF_PROTECTION_ENABLED": "false"}  # both are on loopback
    with serving(python, folder / "server", tokens) as (address, version):
        say("Label Studio on 127.0.0.1", version)
        together(address, tokens, pictures, folder, secret, token_file)


def together(address, tokens, pictures, folder, secret, token_file):
    token = tokens["ann"]
    project = ask(address, token, "/api/projects", {"title": "live", "label_config": CONFIG.format(photo="photo")})[
        "id"
    ]
    body, kind = multipart(pictures)
    ask(address, token, f"/api/projects/{project}/import", body, kind)
    tasks = sorted(tasks_of(address, token, project).values())
    port, log = free_port(), folder / "log.txt"
    with crowdshot_at(folder, token_file, port) as service:
        refused("a wrong token is refused", connect(address, token, project, service.address, "wrong"))
        status, answer = connect(address, token, project, service.address, secret)
        check("the backend is connected", (status, answer["state"]), (201, "CO"))
        other = ask(address, token, "/api/projects", {"title": "other", "label_config": CONFIG.format(photo="photo")})[
            "id"
        ]
        logged = (log, f"project is {other}, expected {project}")
        refused("another project is refused", connect(address, token, other, service.address, secret), logged)
        hook = {"url": f"{service.address}/webhook", "project": project, "send_payload": True,
                "send_for_all_actions": True, "headers": {"Authorization": f"Bearer {secret}"}}  # fmt: skip
        ask(address, token, "/api/webhooks/", hook)
        changed(
            address, token, f"/api/projects/{project}", {"sampling": "Uncertainty sampling", "maximum_annotations": 9}
        )

        first, who = labels_and_predictions(address, tokens, project, tasks, service, secret)
        removed(address, tokens["ann"], f"/api/annotations/{first}/")
        wait_for("a deleted annotation is not counted", lambda: n_labels(service, secret) == 23)
        os.kill(service.pid, signal.SIGKILL)
        service.wait()
        say("kill -9", "ok")
    label(address, tokens["ann"], tasks[9], truth(9))  # the service is down
    personal = ask(address, token, "/api/token/", {})["token"]
    (folder / "personal.txt").write_text(personal)
    options = ("--label-studio", address, "--token-file", folder / "personal.txt")
    with crowdshot_at(folder, token_file, port, *options) as service:
        people = {
            person["annotator"]: person["n_labels"] for person in asked(service, secret, "/v1/annotators")["annotators"]
        }
        check("nothing is lost", people[who["bob"]] + people[who["carl"]], 16)
        wait_for("labels made while the service was down are read", lambda: n_labels(service, secret) == 24)
        label(address, tokens["bob"], tasks[9], truth(9))
        wait_for("a label by the webhook again", lambda: n_labels(service, secret) == 25)
        (version,) = asked(service, secret, "/versions")["versions"]
        wait_for("Label Studio uses the newest version",
                 lambda: ask(address, token, f"/api/projects/{project}")["model_version"] == version)  # fmt: skip
        check("  and has its predictions", len(of_version(version, address, token, project)), len(tasks))
        found = asked(service, secret, "/v1/consensus")["consensus"]
    pushed(address, token, personal, project, found, folder)
    text = log.read_text()
    hidden = (secret, personal, *tokens.values(), "picture", truth(0), truth(1))
    check("the log has no token, label or file", [each for each in hidden if each in text], [])
    two_controls(address, token, folder, secret, token_file, port)


def labels_and_predictions(address, tokens, project, tasks, service, secret):
    """Label the tasks and check the predictions; return the first annotation and the users' ids."""
    token = tokens["ann"]
    first = label(address, tokens["ann"], tasks[0], truth(0))
    wait_for("a webhook with a token brings a label", lambda: asked(service, secret, "/health")["version"] > 0)
    for number in (1, 2, 3):
        label(address, tokens["ann"], tasks[number], truth(number))
    wait_for("all labels of one user are known", lambda: n_labels(service, secret) == 4)
    scores = {each["task"]: each["score"] for each in predictions(service, secret, address, token, project)}
    check("predictions of all tasks, with scores", len(set(scores.values())), len(tasks))
    served = ask(address, tokens["ann"], f"/api/projects/{project}/next")["id"]
    check("the next task is the one with the lowest score", served, min(tasks[4:], key=scores.get))

    for number, task in enumerate(tasks[:8]):
        for user in ("ann", "bob", "carl"):
            if number >= 4 or user != "ann":
                label(address, tokens[user], task, truth(number + (user == "carl" and number in (2, 5))))
    wait_for("all labels of three users are known", lambda: n_labels(service, secret) == 24)
    found = predictions(service, secret, address, token, project)
    right = {each["task"]: each["result"][0]["value"]["choices"][0] for each in found if each["result"]}
    check("predictions of a newer version, all right", right, {task: truth(n) for n, task in enumerate(tasks)})
    page = asked(service, secret, "/")
    who = {name: str(ask(address, tokens[name], "/api/current-user/whoami")["id"]) for name in tokens}
    check("the live page shows the annotators", all(f">{number}</bdi>" in page for number in who.values()), True)
    return first, who


def two_controls(address, token, folder, secret, token_file, port):
    """Check that a project with two label controls needs a choice of one."""
    two = folder / "two"
    two.mkdir()
    (two / "images").symlink_to(folder / "images")
    both = ask(address, token, "/api/projects", {"title": "two", "label_config": TWO})["id"]
    with crowdshot_at(two, token_file, port) as service:
        message = "has 2 Choices tags, 'shape', 'mood', expected one"
        refused("two label controls are refused", connect(address, token, both, service.address, secret),
                (two / "log.txt", message))  # fmt: skip
    with crowdshot_at(two, token_file, port, "--columns", "label=shape") as service:
        check(
            "  and accepted, if one is named", connect(address, token, both, service.address, secret)[1]["state"], "CO"
        )


def retrieve_predictions(address, token, project):
    """Run the Data Manager's action of this name."""
    path = f"/api/dm/actions?id=retrieve_tasks_predictions&project={project}"
    return call(address, token, path, {"selectedItems": {"all": True, "excluded": []}})[0]


def predictions(service, secret, address, token, project):
    """Return the predictions of the newest version, and select it for the project and its uncertainty sampling."""
    (version,) = asked(service, secret, "/versions")["versions"]
    check("predictions are asked for", retrieve_predictions(address, token, project), 200)
    changed(address, token, f"/api/projects/{project}", {"model_version": version})
    return of_version(version, address, token, project)


def of_version(version, address, token, project):
    found = ask(address, token, f"/api/predictions?project={project}")
    return [each for each in found if each["model_version"] == version]


def pushed(address, token, personal, project, consensus, folder):
    """Run `crowdshot push` twice and check that the predictions are there once."""
    table = folder / "consensus.csv"
    pd.DataFrame(consensus).to_csv(table, index=False)
    command = [
        sys.executable,
        "-m",
        "crowdshot",
        "push",
        table,
        "--to",
        "label-studio",
        "--url",
        address,
        "--project",
        project,
    ]
    environment = {**os.environ, "LABEL_STUDIO_API_KEY": personal}
    for _ in range(2):
        done = subprocess.run([*map(str, command), "--json"], env=environment, capture_output=True, text=True)
        check("push", (done.returncode, done.stderr), (0, ""))
    name = json.loads(done.stdout)["name"]
    check("  its predictions are there once", len(of_version(name, address, token, project)), len(consensus))
    check("  and the project uses them", ask(address, token, f"/api/projects/{project}")["model_version"], name)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also ends the servers
    sys.exit(main(run, __doc__, "Label Studio and crowdshot work together."))
