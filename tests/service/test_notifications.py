"""Check that a fake Label Studio is notified of new versions; `make integration` uses a real one."""

import pytest

from crowdshot.errors import CrowdshotError
from crowdshot.service import label_studio_backend
from crowdshot.service.http_app import Settings
from crowdshot.service.label_studio_backend import Tool
from crowdshot.version import __version__
from fake_server import changes, fake_server
from polling import wait_until

from .conftest import after, say
from .test_label_studio import EXPORT, sent

TOKEN = "very-secret-0123456789"
ACTION, PROJECT = "POST /api/dm/actions", "PATCH /api/projects/1/"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(label_studio_backend, "EVERY", 0.0)


def test_label_studio_requests_predictions_of_the_newest_version(service):
    with fake_server({ACTION: {}, PROJECT: {}}) as (address, seen):
        with service([EXPORT], settings=Settings(tool=Tool(address, TOKEN))) as client:
            client.post("/setup", json=sent("/setup"))
            version = client.get("/health").json()["version"]
            say(client, ("a", "ann", "Cat"))
            number = after(client, version)
            wait_until(lambda: len(changes(seen)) == 2)
        assert changes(seen)[0][:2] == (ACTION, {"id": "retrieve_tasks_predictions", "project": "1"})
        assert changes(seen)[1] == (PROJECT, {}, {"model_version": f"crowdshot-{__version__}-{number}"})
        assert {headers["Authorization"] for *_, headers in seen} == {f"Token {TOKEN}"}


@pytest.mark.slow
def test_failures_are_logged_without_names_and_retried(service, caplog):
    with (
        fake_server({ACTION: (500, {"detail": "no task of Zebedee"})}) as (address, seen),
        service([EXPORT], settings=Settings(tool=Tool(address, TOKEN))) as client,
    ):
        client.post("/setup", json=sent("/setup"))
        for item in ("a", "b"):
            asked, version = len(seen), client.get("/health").json()["version"]
            say(client, (item, "ann", "Cat"))
            after(client, version)
            wait_until(lambda before=asked: len(seen) > before)
        wait_until(lambda: "could not be notified of the new version" in caplog.text)
    assert "failed with status 500" in caplog.text
    assert TOKEN not in caplog.text
    assert "Zebedee" not in caplog.text


def test_sources_of_the_token(tmp_path, monkeypatch):
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    assert Tool.with_token("http://127.0.0.1:8080", path).token == TOKEN
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", "another")
    assert Tool.with_token("http://127.0.0.1:8080", None).token == "another"
    assert Tool.with_token("http://127.0.0.1:8080", path).token == TOKEN
    monkeypatch.delenv("LABEL_STUDIO_API_KEY")
    with pytest.raises(CrowdshotError, match="no token") as error:
        Tool.with_token("http://127.0.0.1:8080", None)
    assert "LABEL_STUDIO_API_KEY" in error.value.where
    with pytest.raises(CrowdshotError) as error:
        Tool.with_token("127.0.0.1", path)
    assert error.value.argument == "url"
    with pytest.raises(CrowdshotError) as error:
        Tool.with_token("http://127.0.0.1:8080", tmp_path / "nowhere")
    assert (error.value.argument, error.value.where) == ("token_file", str(tmp_path / "nowhere"))
    path.write_text("two words")
    with pytest.raises(CrowdshotError, match="no token") as error:
        Tool.with_token("http://127.0.0.1:8080", path)
    assert (error.value.argument, error.value.where) == ("token_file", str(path))
