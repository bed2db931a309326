"""Test authentication, host and origin checks, and rate limits."""

import base64

import bcrypt
import pytest

from crowdshot.errors import CrowdshotError
from crowdshot.service.http_app import Settings
from crowdshot.service.security import Auth, Rate, is_loopback

from .conftest import say

TOKEN = "0123456789abcdef-token"


def basic(user, password):
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return path


def test_a_token_as_bearer_or_basic(service, crowd, token_file):
    with service([crowd[0]], settings=Settings(auth=Auth.read(token_file))) as client:
        assert client.get("/health").status_code == 200
        for path in ("/v1/consensus", "/metrics", "/openapi.json", "/v1/model", "/nothing", "/v1/events"):
            assert client.get(path).status_code == 401, path
        assert "Basic" in client.get("/v1/consensus").headers["www-authenticate"]
        bearer = {"authorization": f"Bearer {TOKEN}"}
        for right in (bearer, basic("anybody", TOKEN)):
            for _ in range(2):  # the second check uses the cache
                assert client.get("/v1/consensus", headers=right).status_code == 200
        for wrong in (f"Bearer {TOKEN}x", "Bearer", "Bearer ", "Basic %%%", f"Token {TOKEN}", "Basic Og=="):
            assert client.get("/v1/consensus", headers={"authorization": wrong}).status_code == 401, wrong
        assert client.get("/v1/consensus", headers=basic("anybody", "wrong")).status_code == 401
        assert say(client, ("a", "ann", "cat")).status_code == 401
        assert client.live.journal.last() == 0


def test_passwords_of_htpasswd(service, crowd, tmp_path):
    path = tmp_path / "users"
    hashed = bcrypt.hashpw(b"pass:word", bcrypt.gensalt(4)).decode()
    path.write_text(f"# people\nann:{hashed}\n")
    with service([crowd[0]], settings=Settings(auth=Auth.read(path))) as client:
        assert client.get("/v1/consensus", headers=basic("ann", "pass:word")).status_code == 200
        for user, password in (("bob", "pass:word"), ("ann", "wrong"), ("ann", ""), ("", "")):
            assert client.get("/v1/consensus", headers=basic(user, password)).status_code == 401
        assert client.get("/v1/consensus", headers={"authorization": "Bearer pass:word"}).status_code == 401


@pytest.mark.parametrize(
    "text", ["", "short", "ann:$apr1$x$y", "ann:plain", "one-token-0123456789\nanother-0123456789"]
)
def test_files_without_a_token_are_refused(tmp_path, text):
    path = tmp_path / "auth"
    path.write_text(text)
    with pytest.raises(CrowdshotError) as error:
        Auth.read(path)
    assert (error.value.argument, error.value.where) == ("auth", str(path))


def test_pages_of_other_origins_are_refused(service, crowd):
    with service([crowd[0]]) as client:
        assert client.get("/v1/consensus", headers={"host": "evil.example"}).status_code == 400
        assert client.get("/v1/consensus", headers={"host": "localhost:9090"}).status_code == 200
        assert client.get("/v1/consensus", headers={"host": "[::1]:9090"}).status_code == 200
        cross = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
        assert client.get("/v1/consensus", headers=cross).status_code == 403
        answer = client.get("/v1/consensus", headers={"origin": "https://evil.example"})
        assert not [name for name in answer.headers if name.startswith("access-control")]
        plain = {"content-type": "text/plain"}
        body = '{"labels": [{"item": "a", "annotator": "b", "label": "c"}]}'
        assert client.post("/v1/labels", content=body, headers=plain).status_code == 422  # an HTML form can send this


def test_every_response_has_a_content_security_policy(service, crowd):
    with service([crowd[0]]) as client:
        for path in ("/v1/consensus", "/nothing", "/health"):
            assert "default-src 'none'" in client.get(path).headers["content-security-policy"]


def test_addresses():
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.0.1", "example.org", "")))


def test_rate_limit_with_bursts(monkeypatch):
    now = 100.0
    monkeypatch.setattr("crowdshot.service.security.time.monotonic", lambda: now)
    rate = Rate(each_second=2, at_once=3)
    assert [rate.allows() for _ in range(4)] == [True, True, True, False]
    now = 100.5
    assert [rate.allows() for _ in range(2)] == [True, False]
