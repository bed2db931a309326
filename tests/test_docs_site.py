"""Test the documentation site: it builds without warnings, has no broken links, and loads nothing from the network."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from polling import TIMEOUT

pytest.importorskip("material", reason="mkdocs-material is not installed (make docs, or pip install -e '.[docs]')")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
USED = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=\"?([^\" >]+)")
POINTED_AT = re.compile(r"<a\b[^>]*?\bhref=\"?([^\" >]+)")


def build(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=TIMEOUT)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "site"
    done = build(ROOT, out)
    assert done.returncode == 0, done.stderr
    return out


def targets(pattern: re.Pattern[str], site: Path) -> set[tuple[Path, str]]:
    """Return pairs (page, target); 404.html is left out, because its links start at the root of a server."""
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    return {(page, name) for page in pages for name in pattern.findall(page.read_text())}


def test_every_page_is_there(site: Path) -> None:
    docs = ROOT / "docs"
    expected = {page.relative_to(docs).with_suffix(".html").as_posix() for page in docs.rglob("*.md")}
    assert {"index.html", "compare.html", "labels.html", "research/inference.html"} <= expected
    built = {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    assert expected <= built
    linked = {page.with_suffix(".html").name for page in ROOT.glob("*.md")}  # pages outside docs/ are included
    assert "CONTRIBUTING.html" in built
    assert {name for name in built - expected if "/" not in name} <= linked | {"404.html"}


def test_files_used_by_pages_are_in_the_site(site: Path) -> None:
    used = targets(USED, site)
    shown = {name for page, name in used if page.name == "inference.html"}
    assert "../results/world/world.png" in shown  # from outside docs/
    for page, name in used:
        assert (page.parent / unquote(name.split("?")[0])).is_file(), (page, name)


def test_the_python_reference_has_inherited_methods_and_lists_of_parameters(site: Path) -> None:
    page = (site / "reference" / "python.html").read_text()
    for name in ("fit", "predict", "predict_proba", "explain", "report"):
        assert f'.CrowdClassifier.{name}"' in page
    assert "CrowdClassifier.belief_" not in page
    assert '--parameters"' not in page  # a heading above text that is not read as a list


def test_links_are_valid(site: Path) -> None:
    here = {(page, name) for page, name in targets(POINTED_AT, site) if not re.match(r"https?:|#|mailto:", name)}
    names = {name for page, name in here if page.name == "reproduction.html"}
    assert {"results/main/tables.html", "results/index.html"} <= names
    for page, name in here:
        assert (page.parent / unquote(name.partition("#")[0])).is_file(), (page, name)


def test_style_sheets_load_nothing(site: Path) -> None:
    sheets = list(site.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text()), sheet


def test_broken_links_stop_the_build(tmp_path: Path) -> None:
    heavy = shutil.ignore_patterns("*.parquet", "*.jsonl", "*.safetensors", "__pycache__")
    for name in ("docs", "examples", "release", "results", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=heavy)
    for file in (ROOT / "mkdocs.yml", *ROOT.glob("*.md")):
        shutil.copy(file, tmp_path / file.name)
    broken = ["nowhere.md", "../results/nowhere.md", "../results/main", "labels.md#nowhere"]
    with (tmp_path / "docs" / "index.md").open("a") as page:
        page.writelines(f"\n[broken]({link})\n" for link in broken)
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    warned = [line for line in done.stderr.splitlines() if line.startswith("WARNING -  Doc file 'index.md'")]
    assert len(warned) == len(broken)
    for link in broken:
        assert any(f"'{link}'" in line for line in warned), warned
