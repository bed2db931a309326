"""Test limits of the service: files, addresses, memory, and names in the log."""

import http.client
import json
import logging
import subprocess
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from crowdshot._cli.inputs import ItemFiles, LabelFiles
from crowdshot._cli.serve import open_sources
from crowdshot.errors import CrowdshotError
from crowdshot.service import image_fetching, security
from crowdshot.service.http_app import Settings, make_app
from crowdshot.service.image_fetching import check_hosts, fetch, is_allowed
from crowdshot.service.journal import Journal
from crowdshot.service.live import Live
from crowdshot.service.security import Auth
from fake_server import fake_server
from polling import wait_until

from .conftest import HERE, InProcess, after, say, wire
from .test_label_studio import predict
from .test_serve import COMMAND, get, serving

TOKEN = "0123456789abcdef-token"


# ---- tokens -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["", "0", TOKEN[:-1], TOKEN + "x", "x" * 10_000, TOKEN])
def test_tokens_are_compared_in_constant_time(monkeypatch, given):
    """Digests are compared with the standard library's function, so that not even lengths leak."""
    compared = []
    plain = security.hmac.compare_digest
    monkeypatch.setattr(security.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or plain(a, b))
    assert Auth(token=TOKEN)._check(f"Bearer {given}") is (given == TOKEN)
    assert [(len(a), len(b)) for a, b in compared] == [(32, 32)]


@pytest.mark.slow
def test_other_addresses_need_a_token_before_anything_listens(tmp_path):
    """The port is not bound, so a service that uses it is not disturbed."""
    with serving("--data", tmp_path / "one") as process:
        port = str(urlsplit(process.address).port)
        command = [*COMMAND, "--data", "two", "--host", "0.0.0.0", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 2
        assert "Use --auth" in done.stderr
        assert not (tmp_path / "two").exists()


# ---- sizes --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_hundred_megabytes_of_json_are_refused(tmp_path):
    with serving("--data", tmp_path / "live") as process:
        netloc, headers = urlsplit(process.address).netloc, {"content-type": "application/json"}
        for path in ("/v1/labels", "/v1/predict", "/predict", "/setup", "/webhook"):
            announced = http.client.HTTPConnection(netloc, timeout=60)
            announced.putrequest("POST", path)
            for name, value in {**headers, "content-length": str(100_000_000)}.items():
                announced.putheader(name, value)
            announced.endheaders()
            assert announced.getresponse().status == 413, path  # before the body is read
            announced.close()
        chunked = http.client.HTTPConnection(netloc, timeout=60)

        def without_end():
            yield b'{"labels": ['
            for _ in range(100):
                yield b" " * 1_000_000

        try:
            chunked.request("POST", "/v1/labels", without_end(), headers, encode_chunked=True)
            assert chunked.getresponse().status == 413
        except (BrokenPipeError, ConnectionResetError):
            pass  # the service closed the connection early
        finally:
            chunked.close()
        assert get(process, "/health")["status"] == "UP"


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"labels": [{"item": "a", "annotator": "b", "label": "c"}] * 10_001}),
        json.dumps({"labels": [{"item": "a" * 4_001, "annotator": "b", "label": "c"}]}),
        '{"labels": ' + "[" * 50_000 + "]" * 50_000 + "}",
        b"\x1f\x8b\x08\x00" + b"\0" * 1_000,  # a gzip is not unpacked
    ],
)
def test_oversized_requests_are_refused(service, body):
    with service() as client:
        assert 400 <= client.post("/v1/labels", **wire(body)).status_code < 500
        assert client.live.journal.last() == 0


def test_entity_expansion_in_a_labelling_interface_is_refused(service):
    laughs = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10 if i else "ha"}">' for i in range(10))
    with service() as client:
        body = {"project": "1.1", "schema": f"<!DOCTYPE x [{laughs}]><View>&a9;</View>"}
        assert client.post("/setup", json=body).status_code == 422


# ---- files and addresses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/v1/model/../../journal.sqlite",
                                  "/v1/model/%2e%2e%2fjournal.sqlite", "//etc/passwd", "/journal.sqlite"])  # fmt: skip
def test_no_other_file_is_served(service, crowd, path):
    with service([crowd[0]]) as client:
        assert client.get(path).status_code in (404, 503)


def images(folder):
    """Write eight bright and dark images and their labels."""
    folder.mkdir()
    rows = ["item,annotator,label"]
    random = np.random.default_rng(0)
    for number in range(8):
        shade = 200 if number % 2 else 40
        Image.fromarray((shade + random.integers(0, 30, (32, 32, 3))).astype(np.uint8)).save(folder / f"{number}.png")
        rows += [f"{number}.png,{who},{'bright' if number % 2 else 'dark'}" for who in ("ann", "bob")]
    labels = folder.parent / "labels.csv"
    labels.write_text("\n".join(rows))
    return labels


@pytest.fixture
def with_pictures(tmp_path):
    """Return a function that starts a service with a folder of images."""

    def start(**settings):
        labels = images(tmp_path / "photos") if not (tmp_path / "photos").exists() else tmp_path / "labels.csv"
        sources = open_sources(LabelFiles([labels]), ItemFiles(images=tmp_path / "photos"), None)
        worker = InProcess(sources, tmp_path / "data")
        live = Live(Journal(tmp_path / "data"), worker, tmp_path / "data")
        live.version = worker.fit()
        return TestClient(make_app(live, Settings(**settings)), base_url=HERE)

    return start


@pytest.mark.slow
def test_images_are_read_only_from_the_folder_and_allowed_hosts(with_pictures, tmp_path, monkeypatch):
    outside = tmp_path / "secret.png"
    Image.new("RGB", (32, 32), (215, 215, 215)).save(outside)

    def tasks(*named):
        return [{"id": number, "data": {"image": name}} for number, name in enumerate(named)]

    with fake_server({"GET /far.png": outside.read_bytes()}) as (address, seen):
        far = f"{address}/far.png"
        others = [str(outside), f"file://{outside}", "../secret.png", "..%2fsecret.png", far, "http://[", "data:,"]
        with with_pictures() as client:
            found = predict(client, tasks("1.png", *others)).json()["results"]
            assert found[0]["result"][0]["value"] == {"choices": ["bright"]}
            assert [each["result"] for each in found[1:]] == [[]] * len(others)
        assert seen == []
        with with_pictures(picture_hosts=check_hosts([urlsplit(address).netloc])) as client:
            found = predict(client, tasks(*others)).json()["results"]
            values = [each["result"][0]["value"]["choices"] if each["result"] else [] for each in found]
            assert values == [["bright"] if name == far else [] for name in others]
            assert found[others.index(far)]["score"] > 0.5
            assert len({each["model_version"] for each in found}) == 1
        assert [what for what, *_ in seen] == ["GET /far.png"]


def test_fetched_images_have_limits(tmp_path, monkeypatch):
    import base64

    from .test_api import bomb, picture

    answers = {
        "GET /fine.png": base64.b64decode(picture()),
        "GET /bomb.png": base64.b64decode(bomb()),
        "GET /none.png": b"not a picture",
        "GET /moved.png": (302, {"Location": "/fine.png"}),
    }
    with fake_server(answers) as (address, seen):
        hosts = check_hosts([urlsplit(address).netloc])
        names = ["fine", "bomb", "none", "moved", "missing"]
        found = fetch([f"{address}/{name}.png" for name in names], hosts)
        assert [each is not None for each in found] == [True, False, False, False, False]
        monkeypatch.setattr(image_fetching, "MOST_BYTES", 10)
        assert fetch([f"{address}/fine.png"], hosts) == [None]
        monkeypatch.setattr(image_fetching, "MOST", 2)
        asked = len(seen)
        assert fetch([f"{address}/fine.png"] * 5, hosts) == [None] * 5
        assert len(seen) == asked + 2


def test_which_hosts_are_allowed():
    hosts = check_hosts(["Images.example.org", "127.0.0.1:80"])
    assert is_allowed("https://images.example.org/a.png", hosts)
    assert is_allowed("http://127.0.0.1:80/a.png", hosts)
    for address in (
        "http://images.example.org.evil.example/a",
        "http://evil.example/images.example.org",
        "http://images.example.org@evil.example/",
        "http://images.example.org:81/",
        "http://127.0.0.1/",
        "ftp://images.example.org/",
        "file://images.example.org/etc/passwd",
        "images.example.org",
        "",
    ):
        assert not is_allowed(address, hosts), address
    for host in ("", "http://x", "a/b", "me@x"):
        with pytest.raises(CrowdshotError, match="allow_host"):
            check_hosts([host])


# ---- the log ------------------------------------------------------------------------------------------------------

NAMES = ("Zebedee", "item-47", "label-of-47", TOKEN)


@pytest.mark.slow
@pytest.mark.parametrize("told", [False, True])
def test_the_log_has_names_only_on_request(tmp_path, told):
    log = tmp_path / "log.txt"
    token = tmp_path / "token"
    token.write_text(TOKEN)
    command = [*COMMAND, "--data", "live", "--port", "0", "--auth", str(token), *(["--log-labels"] if told else [])]
    with log.open("w") as file:
        process = subprocess.Popen(command, stderr=file, cwd=tmp_path)
    try:
        wait_until(lambda: "listening at" in log.read_text())
        netloc = urlsplit(log.read_text().split("listening at ")[1].split()[0]).netloc
        right = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        row = {"item": "item-47", "annotator": "Zebedee", "label": "label-of-47"}
        for path, body, headers in (
            ("/v1/labels", {"labels": [row]}, right),
            ("/v1/labels", {"labels": [row | {"label": ""}]}, right),
            ("/v1/labels", {"labels": [row]}, right | {"authorization": f"Bearer {TOKEN}Zebedee"}),
            ("/predict", {"tasks": [{"id": 1, "data": row, "annotations": [row]}]}, right),
            ("/v1/next?annotator=Zebedee", None, right),
            ("/setup", {"project": "1.1", "schema": "<View/>", "access_token": TOKEN}, right),
            ("/Zebedee/item-47", None, right),
        ):
            asked = http.client.HTTPConnection(netloc, timeout=60)
            asked.request("GET" if body is None else "POST", path, body and json.dumps(body), headers)
            assert asked.getresponse().read() is not None
            asked.close()
    finally:
        process.terminate()
        process.wait()
    found = [name for name in NAMES if name in log.read_text()]
    assert found == (["Zebedee", "item-47", "label-of-47"] if told else [])


@pytest.mark.slow
def test_failures_of_a_fit_are_logged_without_names(service, crowd, caplog, monkeypatch):
    with service([crowd[0]]) as client:
        version = client.get("/health").json()["version"]

        def fails():
            raise CrowdshotError("the item Zebedee has nothing, expected something.")

        fits, client.live.worker.fit = client.live.worker.fit, fails
        with caplog.at_level(logging.INFO):
            say(client, ("Zebedee", "ann", "cat"))
            wait_until(lambda: "the fit failed" in caplog.text)
        assert "Zebedee" not in caplog.text
        assert client.get("/v1/consensus").json()["version"] == version  # the last version stays
        client.live.worker.fit = fits
        say(client, ("another", "ann", "cat"))
        after(client, version)
        assert "Zebedee" in {row["item"] for row in client.get("/v1/consensus").json()["consensus"]}
