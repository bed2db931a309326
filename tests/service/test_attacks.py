"""Attacks that once got through: one request must not stop the others, and no label is lost."""

import asyncio
import http.client
import io
import json
import socket
import sqlite3
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import bcrypt
import pytest
from PIL import Image

from crowdshot.errors import CrowdshotError
from crowdshot.service import image_fetching, prediction, security
from crowdshot.service.http_app import Settings
from crowdshot.service.image_fetching import check_hosts, fetch
from crowdshot.service.journal import Answer, Journal
from crowdshot.service.live import Live, NotWrittenError
from crowdshot.service.prediction import Picture, batches
from crowdshot.service.security import Auth

from .conftest import after, say, wire
from .test_label_studio import SCHEMA, sent, tasks
from .test_security import TOKEN, basic
from .test_serve import COMMAND, get, post, serving

BAD = ["\ud800", "a\0b"]


def in_thread(coroutine):
    """Run a coroutine in a thread of its own: the browser of other tests keeps an event loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


# ---- text that cannot be stored -----------------------------------------------------------------------------------


def event(item="1.png", annotator=1, choice="Cat"):
    body = json.loads(json.dumps(sent("/webhook", "ANNOTATION_CREATED")))
    body["task"]["data"] = dict.fromkeys(body["task"]["data"], item)
    body["annotation"]["completed_by"] = annotator
    body["annotation"]["result"][0]["value"]["choices"] = [choice]
    return body


@pytest.mark.parametrize("word", BAD, ids=["surrogate", "null character"])
def test_invalid_text_is_refused_on_every_route(service, word):
    task = tasks()[0]
    task["data"] = dict.fromkeys(task["data"], f"x{word}")
    project = {"project": "1.1", "label_config": SCHEMA}
    with service() as client:
        for path, body in (
            ("/v1/labels", {"labels": [{"item": word + "x", "annotator": "a", "label": "b"}]}),
            ("/predict", {"tasks": [task], **project}),
            ("/predict", {"tasks": [{**tasks()[0], "id": f"5{word}"}], **project}),
            ("/setup", {"project": f"1{word}", "schema": SCHEMA}),
            ("/webhook", event(item=f"x{word}")),
            ("/webhook", event(annotator={"email": f"x{word}"})),
            ("/webhook", event(choice=f"x{word}")),
        ):
            answer = client.post(path, **wire(json.dumps(body)))
            assert answer.status_code == 422, (path, answer.text)
        assert client.live.journal.last() == 0
        assert say(client, ("a", "ann", "cat")).status_code == 201


class Failing:
    """A journal whose writes fail in any way."""

    def __init__(self, *errors):
        self.errors = list(errors)

    def append(self, answers):
        error = self.errors.pop(0)
        if error is not None:
            raise error
        return 1


@pytest.mark.parametrize("error", [ValueError(), sqlite3.OperationalError(), OSError(), RuntimeError(), MemoryError()])
def test_every_write_is_answered(tmp_path, error):
    async def writes():
        live = Live(Failing(error, None), None, tmp_path)
        answers = [[Answer(f"i{number}", "a", "b")] for number in range(50)]
        found = await asyncio.wait_for(
            asyncio.gather(*(live.add(each) for each in answers), return_exceptions=True), timeout=60
        )
        assert {type(each) for each in found} <= {NotWrittenError, type(None)}
        assert NotWrittenError in map(type, found)
        await live.add(answers[0])

    in_thread(writes())


def test_a_failure_after_the_write_is_no_failure_of_the_write(tmp_path, monkeypatch):
    async def writes():
        live = Live(Failing(None, None), None, tmp_path)
        monkeypatch.setattr(live.waiting, "add", lambda answers: 1 / 0)
        await asyncio.wait_for(live.add([Answer("i", "a", "b")]), timeout=60)

    in_thread(writes())


# ---- what a fit would refuse --------------------------------------------------------------------------------------


def test_more_classes_than_a_fit_takes_are_refused_at_once(service):
    with service() as client:
        rows = [(f"i{number}", f"a{number}", f"class {number}") for number in range(1_200)]
        assert say(client, *rows).status_code == 422
        assert say(client, *rows[:100]).status_code == 201
        after(client, 0)
        assert say(client, *rows[100:]).status_code == 422
        assert client.live.counts["failed_fits"] == 0


@pytest.mark.slow
def test_they_are_counted_over_several_requests(service):
    with service() as client:
        codes = []
        for start in range(0, 2_000, 100):
            codes.append(
                say(client, *((f"i{i}", f"a{i}", f"class {i}") for i in range(start, start + 100))).status_code
            )
        assert codes[0] == 201
        assert codes[-1] == 422
        after(client, 0)
        assert client.live.counts["failed_fits"] == 0


@pytest.mark.slow
def test_many_annotators_and_many_classes(service):
    with service() as client:
        assert say(client, *((f"i{i}", "ann", f"class {i}") for i in range(500))).status_code == 201
        assert say(client, *(("i0", f"person {i}", "class 0") for i in range(1_000))).status_code == 422
        after(client, 0)


def test_a_service_starts_with_its_last_version_if_newer_labels_cannot_be_fitted(service, tmp_path, caplog):
    data = tmp_path / "data"
    with service(data=data) as client:
        say(client, ("a", "ann", "cat"), ("b", "ann", "dog"))
        after(client, 0)
    journal = Journal(data)
    journal.append([Answer(f"i{number}", f"a{number}", f"class {number}") for number in range(1_200)])
    journal.close()
    with service(data=data) as client:
        assert {row["item"] for row in client.get("/v1/consensus").json()["consensus"]} == {"a", "b"}
        assert say(client, ("a", "bob", "cat")).status_code == 201
        assert "row 2" in caplog.text
    with pytest.raises(CrowdshotError, match="nowhere"), service([tmp_path / "nowhere.csv"], data=data):
        pass


# ---- the webhook --------------------------------------------------------------------------------------------------


def test_a_webhook_is_answered_when_its_label_is_on_disk(service, monkeypatch):
    with service() as client:
        for number in range(5):
            body = event(item=f"{number}.png")
            body["annotation"]["id"] = body["annotation"]["id"] + number
            assert client.post("/webhook", json=body).status_code == 202
            assert client.live.journal.last() == number + 1
        monkeypatch.setattr(client.live.journal, "append", Failing(OSError(28, "full")).append)
        assert client.post("/webhook", json=event(item="x.png")).status_code == 503


# ---- images -------------------------------------------------------------------------------------------------------


def blank(side):
    buffer = io.BytesIO()
    Image.new("L", (side, side)).save(buffer, "PNG")
    return buffer.getvalue()


def test_pictures_are_decoded_a_few_at_a_time(monkeypatch):
    data = blank(1_500)
    pictures = [Picture(data, "images") for _ in range(40)]
    sizes = [sum(image.width * image.height for image in batch) for batch in batches(pictures)]
    assert sum(sizes) == 40 * 1_500**2
    assert max(sizes) <= prediction.AT_ONCE
    assert [len(batch) for batch in batches([Picture(blank(4_000), "images")] * 2)] == [1, 1]
    with pytest.raises(CrowdshotError, match="pixels together"):
        next(batches([Picture(blank(7_000), "images")] * 5))


@contextmanager
def dripping(data, pause=0.05):
    """A server that sends a byte at a time."""
    door = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve():
        while not ended.is_set():
            try:
                connection, _ = door.accept()
            except OSError:
                return
            threading.Thread(target=drip, args=(connection,), daemon=True).start()

    def drip(connection):
        with connection:
            for byte in data * 1_000:
                if ended.wait(pause):
                    return
                try:
                    connection.sendall(bytes([byte]))
                except OSError:
                    return

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{door.getsockname()[1]}"
    finally:
        ended.set()
        door.close()


@pytest.mark.slow
@pytest.mark.parametrize("data", [b"HTTP/1.0 200 OK\r\nX: ", b"HTTP/1.0 200 OK\r\n\r\n"])
def test_a_slow_host_has_a_deadline(monkeypatch, data):
    monkeypatch.setattr(image_fetching, "IN_ALL", 1.0)
    with dripping(data) as host:
        assert fetch([f"http://{host}/{i}.png" for i in range(20)], check_hosts([host])) == [None] * 20


# ---- passwords and connections ------------------------------------------------------------------------------------


@pytest.fixture
def users(tmp_path):
    path = tmp_path / "users"
    path.write_text("ann:" + bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode())
    return path


def test_wrong_passwords_are_limited_and_right_tokens_are_not(service, users, tmp_path):
    with service(settings=Settings(auth=Auth.read(users))) as client:
        assert client.get("/metrics", headers=basic("ann", "right")).status_code == 200
        codes = [client.get("/metrics", headers=basic("ann", f"wrong {i}")).status_code for i in range(60)]
        assert set(codes) == {401, 429}
        assert codes[-1] == 429
        assert client.get("/metrics", headers=basic("ann", "right")).status_code == 200  # it is remembered
        assert client.get("/metrics").status_code == 401
    (tmp_path / "token").write_text(TOKEN)
    with service(settings=Settings(auth=Auth.read(tmp_path / "token"))) as client:
        codes = [client.get("/metrics", headers={"authorization": f"Bearer {i}"}).status_code for i in range(60)]
        assert codes[-1] == 429
        assert client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_few_passwords_wait_and_one_is_checked_at_a_time(users, monkeypatch):
    running, most = 0, 0

    def slow(self, user, password):
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.01)
        running -= 1
        return False

    monkeypatch.setattr(Auth, "_is_user", slow)

    async def many():
        auth = Auth.read(users)
        return await asyncio.gather(
            *(auth.allows(basic("ann", f"{i}")["authorization"], f"10.0.0.{i}") for i in range(50))
        )

    found = in_thread(many())
    assert most == 1
    assert found.count(False) == security.MOST_CHECKS
    assert found.count(None) == 50 - security.MOST_CHECKS


@pytest.mark.slow
def test_half_open_requests_end(tmp_path, monkeypatch):
    """In this process, so that the limits can be lowered."""
    import uvicorn

    from crowdshot.service.http_app import make_app
    from crowdshot.service.security import limited_protocol

    monkeypatch.setattr(security, "HEADER_SECONDS", 1.0)
    monkeypatch.setattr(security, "BODY_SECONDS", 1.0)
    monkeypatch.setattr(security, "MOST_CONNECTIONS", 20)
    live = Live(Journal(tmp_path), None, tmp_path)
    door = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(make_app(live, Settings()), http=limited_protocol(), log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
    thread.start()
    address = door.getsockname()[:2]
    try:
        opened = [socket.create_connection(address, timeout=60) for _ in range(60)]
        for each in opened:
            with suppress(OSError):
                each.sendall(b"POST /v1/labels HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        for each in opened:
            assert ended(each)
        halves = socket.create_connection(address, timeout=60)
        halves.sendall(b"POST /v1/labels HTTP/1.1\r\nHost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n{")
        assert b"408" in halves.recv(1_000)
        halves.close()
        asked = http.client.HTTPConnection(*address, timeout=60)
        for _ in range(3):
            asked.request("GET", "/health")
            assert asked.getresponse().read()
        time.sleep(1.5)  # an open connection between requests is none that sends no header
        asked.request("GET", "/health")
        assert asked.getresponse().status == 200
        asked.close()
    finally:
        server.should_exit = True
        thread.join()
        live.journal.close()


def ended(connection):
    try:
        return connection.recv(1_000) == b""
    except OSError:
        return True
    finally:
        connection.close()


@pytest.mark.slow
def test_two_services_for_a_port(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    pair = [
        subprocess.Popen([*COMMAND, "--data", str(tmp_path / name), "--port", port], stderr=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    try:
        while all(process.poll() is None for process in pair):
            time.sleep(0.05)
        (loser,) = (process for process in pair if process.poll() is not None)
        told = loser.communicate()[1]
        assert loser.returncode == 2
        assert "--port" in told
        assert "Traceback" not in told
    finally:
        for process in pair:
            process.terminate()
            process.wait()
            process.stderr.close()


@pytest.mark.slow
def test_a_damaged_journal_is_salvaged(tmp_path):
    with serving("--data", tmp_path / "live") as process:
        for i in range(3):
            post(process, "/v1/labels", {"labels": [{"item": f"i{i}", "annotator": "ann", "label": "cat"}]})
    with sqlite3.connect(tmp_path / "live" / "journal.sqlite") as db:
        db.execute("UPDATE labels SET label = 'cow' WHERE row = 2")
    db.close()
    command = [*COMMAND, "--data", str(tmp_path / "live"), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "row 2 of labels" in done.stderr
    assert "--salvage" in done.stderr
    with serving("--data", tmp_path / "live", "--salvage") as process:
        assert len(get(process, "/v1/consensus")["consensus"]) == 2
    with serving("--data", tmp_path / "live") as process:
        assert len(get(process, "/v1/consensus")["consensus"]) == 2


@pytest.mark.slow
def test_the_start_has_no_python_warnings(crowd, tmp_path):
    command = [*COMMAND, "--labels", str(crowd[0]), "--features", str(crowd[1]), "--data", str(tmp_path), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    told = []
    for line in process.stderr:
        told.append(line)
        if "listening at" in line:
            break
    process.terminate()
    told += process.communicate()[1].splitlines()
    assert "Warning" not in "".join(told)
