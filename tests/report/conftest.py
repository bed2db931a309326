"""Fixtures that open a report with hostile names in a browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crowdshot import CrowdClassifier
from crowdshot.labels.annotations import Annotations
from crowdshot.report.page import facts
from crowdshot.report.page.facts import Run
from crowdshot.report.page.page_writer import write_page
from polling import TIMEOUT

from .hostile import CLASSES, COLOURS, HACK, PEOPLE


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a report on 90 items with images, 50 of them labelled, and hostile names everywhere."""
    folder = tmp_path_factory.mktemp("report")
    random = np.random.default_rng(0)
    truth = np.arange(90) % 4
    names = [
        (f"{i}<svg onload={HACK}>.png", f"{'long' * 250}-{i}.png", f"צילום-{i}.png", f"plain-{i}.png")[i % 4]
        for i in range(90)
    ]
    paths = []
    for i, k in enumerate(truth):
        paths.append(folder / f"{i}.png")
        noise = COLOURS[k] + 25 * random.normal(size=(50, 80 if i % 2 else 40, 3))
        Image.fromarray(noise.clip(0, 255).astype(np.uint8)).save(paths[-1])
    answers = np.full((90, len(PEOPLE)), None, dtype=object)
    for i in range(50):
        for who in range(len(PEOPLE)):
            if random.random() < 0.7 or who == len(PEOPLE) - 1:
                right = random.random() < (0.8 if who < len(PEOPLE) - 1 else 0)
                answers[i, who] = CLASSES[truth[i] if right else random.integers(4)]
    labels = Annotations.from_matrix(answers, items=names, annotators=PEOPLE)
    embeddings = (np.eye(4)[truth] + 0.8 * random.normal(size=(90, 4))).astype(np.float32)
    clf = CrowdClassifier("identity")
    vectors = clf.embed(embeddings)
    clf.fit_embeddings(vectors, labels, items=labels.items)
    path = folder / "report.html"
    how = {"Method": f"<script>{HACK}</script>", "Long": "word" * 200}
    commands = {name: f"crowdshot {name} {'y' * 600} <script>" for name in ("gold", "merge", "ask", "predict")}
    run = Run(["l.csv"], "x" * 500, paths, how, commands["ask"], commands)
    write_page(path, facts.gather(clf, vectors, run))
    return path


@pytest.fixture
def open_page(browser: Any, report: Path) -> Iterator[Any]:
    """Return a function that opens the report; ``page.heard`` has messages, errors, dialogs and requests."""
    contexts = []

    def opener(file: Path = report, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1100, "height": 800}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * TIMEOUT)
        page.heard = []
        page.on("console", lambda message: page.heard.append(message.text))
        page.on("pageerror", lambda error: page.heard.append(str(error)))
        page.on("dialog", lambda dialog: page.heard.append(dialog.message))
        known = ("data:", "blob:", file.as_uri())
        page.on("request", lambda request: None if request.url.startswith(known) else page.heard.append(request.url))
        page.goto(file.as_uri())
        return page

    yield opener
    for context in contexts:
        context.close()
