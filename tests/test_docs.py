"""Run the examples of the documentation in order: Python blocks, and console lines that start with a dollar sign."""

import re
import shlex
from pathlib import Path

import pytest

from forked import crowdshot

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    names: dict = {}
    for block, line in re.findall(r"```python\n(.*?)```|^\$ crowdshot ([^\n]*)$", text, re.DOTALL | re.MULTILINE):
        if block:
            exec(compile(block, str(page), "exec"), names)
            continue
        done = crowdshot(tmp_path, *shlex.split(line))
        assert done.returncode == 0, (line, done.stderr)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub generates from headings."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_to_headings_are_valid(page):
    for file, anchor in re.findall(r"\]\(([\w./-]*\.md|)#([^)\s]+)\)", page.read_text()):
        assert anchor in anchors(page.parent / file if file else page), (file, anchor)
