"""A service in the test's own process: the same application, with a fit in place of the process that fits."""

import json
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from starlette.testclient import TestClient

from crowdshot._cli.inputs import ItemFiles, LabelFiles
from crowdshot._cli.serve import open_sources
from crowdshot.service.http_app import Settings, make_app
from crowdshot.service.journal import Journal
from crowdshot.service.live import Live, first_version, make_version
from polling import wait_until

FIXTURES = Path(__file__).parents[1] / "fixtures" / "label_studio"
HERE = "http://127.0.0.1"


class InProcess:
    def __init__(self, sources, data):
        self.sources, self.data = sources, data
        self.journal = Journal(data)

    def fit(self, until=None):
        return make_version(self.sources, self.journal, self.data, until)


@pytest.fixture
def service(tmp_path):
    """A function that starts one; what it gives answers requests."""

    @contextmanager
    def start(labels=(), features: Path | None = None, settings=None, data=None, rule=None, **reading):
        files = LabelFiles(list(labels), **reading)
        data = data or tmp_path / "data"
        worker = InProcess(open_sources(files, ItemFiles(features=features), None, rule=rule), data)
        live = Live(Journal(data), worker, data, gold_share=rule.share if rule else 0.0)
        live.version = first_version(worker, live.journal)
        with TestClient(make_app(live, settings or Settings()), base_url=HERE) as client:
            client.live = live
            yield client

    return start


@pytest.fixture
def crowd(tmp_path):
    """Forty items in two heaps, which three people label: two are right, the third says the first class always."""
    rows, points = [], []
    for i in range(40):
        truth = "cat" if i % 2 else "dog"
        points.append((f"i{i}", 1.0 if i % 2 else -1.0, (i % 5) / 10))
        if i < 30:
            rows += [(f"i{i}", who, truth) for who in ("ann", "bob")] + [(f"i{i}", "cy", "cat")]
    labels, features = tmp_path / "labels.csv", tmp_path / "features.csv"
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(labels, index=False)
    pd.DataFrame(points, columns=["item", "x", "y"]).to_csv(features, index=False)
    return labels, features


def say(client, *labels):
    rows = [dict(zip(("item", "annotator", "label"), row, strict=True)) for row in labels]
    return client.post("/v1/labels", json={"labels": rows})


def after(client, version):
    """Returns when a newer version has been swapped in."""
    wait_until(lambda: client.get("/health").json()["version"] > version)
    return client.get("/health").json()["version"]


def wire(text):
    """A body that a JSON library would not write."""
    return {
        "content": text if isinstance(text, bytes) else text.encode(),
        "headers": {"content-type": "application/json"},
    }


def payloads():
    """What a real Label Studio sent."""
    lines = (FIXTURES / "ml_backend_requests.jsonl").read_text()
    return [json.loads(line) for line in lines.splitlines()]
