"""Reports on labels alone: written, read in a browser, rebuilt and compared."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forked import crowdshot

pytestmark = pytest.mark.slow
RESULTS = {
    "consensus.csv",
    "annotators.csv",
    "confusion.csv",
    "report.html",
    "feedback",
    "run.json",
    "labels.safetensors",
}
PEOPLE = {"Anna": 0.9, "Bernd": 0.8, "Cleo ": 0.75, "dora": 0.6}


def write_labels(path: Path, n_items: int = 40, seed: int = 0) -> None:
    """A messy table: German names, semicolons, spaces, empty cells, spellings, a note, and a date."""
    random = np.random.default_rng(seed)
    rows = []
    for n in range(n_items):
        truth = ("Hund", "Katze", "Maus")[n % 3]
        for who, skill in PEOPLE.items():
            said = truth if random.random() < skill else ("Katze", "Maus", "Hund")[n % 3]
            said = "" if random.random() < 0.05 else said.upper() if random.random() < 0.1 else f" {said}"
            rows.append((f"Bild {n:02d}.png", who, said, "unscharf" if n == 3 else "", f"{1 + n % 28}.03.2026"))
    pd.DataFrame(rows, columns=["Bild", "Person", "Klasse", "Notiz", "Datum"]).to_csv(path, sep=";", index=False)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("desk")
    write_labels(folder / "labels.csv")
    pd.DataFrame({"Bild": ["Bild 00.png", "Bild 01.png"], "truth": ["Hund", "Katze"]}).to_csv(
        folder / "gold.csv", index=False
    )
    done = crowdshot(folder, "aggregate", "labels.csv", "--merge-case", "--gold", "gold.csv", "--report", "results")
    assert done.returncode == 0, done.stderr
    (folder / "printed.txt").write_text(done.stdout)
    return folder


def test_the_folder_has_the_tables_of_aggregate_and_a_page(desk: Path) -> None:
    assert {path.name for path in (desk / "results").iterdir()} == RESULTS
    done = crowdshot(desk, "aggregate", "labels.csv", "--merge-case", "--gold", "gold.csv", "--out", "alone.csv")
    assert done.returncode == 0, done.stderr
    assert (desk / "alone.csv").read_bytes() == (desk / "results" / "consensus.csv").read_bytes()
    sheets = sorted(path.name for path in (desk / "results" / "feedback").iterdir())
    assert sheets == ["anna.html", "bernd.html", "cleo.html", "dora.html"]
    printed = (desk / "printed.txt").read_text()
    assert "report.html" in printed
    assert "do next" in printed


def test_the_page_works_in_a_browser_without_pictures_map_or_classifier(desk: Path, browser: Any) -> None:
    page, heard = browser.new_page(), []
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("console", lambda message: heard.append(message.text))
    page.goto((desk / "results" / "report.html").as_uri())
    page.fill("#enough", "99")
    consensus = pd.read_csv(desk / "results" / "consensus.csv")
    accepted = int((consensus["confidence"] >= 0.99).sum())
    assert page.inner_text(".tile .figure").split()[0] == str(accepted)
    assert page.locator("#map").count() == 0
    text = page.inner_text("body").lower()
    assert "classifier" not in text
    assert "agreement" in text
    assert heard == []
    page.close()


def test_a_folder_is_rebuilt_with_the_same_bytes(desk: Path) -> None:
    folder = desk / "results"
    before = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    (folder / "report.html").unlink()
    done = crowdshot(desk, "report", "results", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"] == ["results/report.html", "results/feedback"]
    assert {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()} == before


def test_two_rounds_of_labels_alone_are_compared(desk: Path) -> None:
    done = crowdshot(desk, "aggregate", "labels.csv", "--merge-case", "--method", "majority", "--report", "vote")
    assert done.returncode == 0, done.stderr
    done = crowdshot(desk, "compare", "vote", "results", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["items"] == {"before": 40, "after": 40}


def test_answers_with_several_labels(tmp_path: Path) -> None:
    rows = [(f"i{n}", who, "cat;dog" if (n + k) % 3 else "cat") for n in range(12) for k, who in enumerate("abc")]
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(tmp_path / "labels.csv", index=False)
    pd.DataFrame({"item": ["i0"], "truth": ["dog"]}).to_csv(tmp_path / "gold.csv", index=False)
    done = crowdshot(tmp_path, "aggregate", "labels.csv", "--multi-label", "--gold", "gold.csv", "--report", "out")
    assert done.returncode == 0, done.stderr
    before = (tmp_path / "out" / "report.html").read_bytes()
    assert crowdshot(tmp_path, "report", "out").returncode == 0
    assert (tmp_path / "out" / "report.html").read_bytes() == before


def test_a_report_of_adapt_is_rebuilt(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    truth = np.arange(30) % 2
    rows = [(f"i{n}", who, "ab"[truth[n] ^ (random.random() < 0.2)]) for n in range(30) for who in ("x", "y", "z")]
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(tmp_path / "labels.csv", index=False)
    features = pd.DataFrame(truth[:, None] + random.normal(size=(30, 2)), columns=["u", "v"])
    features.insert(0, "item", [f"i{n}" for n in range(30)])
    features.to_csv(tmp_path / "features.csv", index=False)
    done = crowdshot(tmp_path, "adapt", "labels.csv", "--features", "features.csv", "--out", "out")
    assert done.returncode == 0, done.stderr
    before = (tmp_path / "out" / "report.html").read_bytes()
    done = crowdshot(tmp_path, "report", "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "report.html").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "keyword"),
    [
        (["aggregate", "labels.csv", "--report", "results"], "--overwrite"),
        (["aggregate", "labels.csv", "--engine", "local", "--out", "parts", "--report", "new"], "--report"),
        (["report", "missing"], "does not exist"),
        (["report", "labels.csv"], "is a file"),
        (["report", "."], "run.json"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(desk: Path, words: list[str], keyword: str) -> None:
    before = sorted(path.name for path in desk.iterdir())
    done = crowdshot(desk, *words)
    assert done.returncode == 2
    assert keyword in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in desk.iterdir()) == before


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("run.json", b"{"),
        ("run.json", b'{"format": 9}'),
        ("run.json", b'{"format": 1, "known": [], "run": {"items_from": 3}}'),
        ("labels.safetensors", b"not safetensors"),
    ],
)
def test_a_damaged_folder_is_refused(desk: Path, tmp_path: Path, file: str, content: bytes) -> None:
    for name in ("run.json", "labels.safetensors"):
        (tmp_path / name).write_bytes((desk / "results" / name).read_bytes())
    (tmp_path / file).write_bytes(content)
    done = crowdshot(tmp_path, "report", ".")
    assert done.returncode == 2
    assert file in done.stderr
    assert not (tmp_path / "report.html").exists()
