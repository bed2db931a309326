"""Check that the README is short and that its numbers are those that its commands print."""

import re
from pathlib import Path

import pytest

from crowdshot.version import __version__
from forked import crowdshot

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def test_it_is_short_and_links_are_valid():
    assert len(README.splitlines()) < 120
    for link in re.findall(r"\]\(([^)#]+)", README):
        assert (ROOT / link).exists(), link


def test_the_version_is_the_same_everywhere():
    assert re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1] == __version__
    newest = re.search(r"^## \[(\d\S+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest[1] == __version__


@pytest.mark.slow
def test_the_demo_prints_what_the_readme_shows(tmp_path):
    shown = re.search(r"^20 problems: .*?(?=^```)", README, re.DOTALL | re.MULTILINE)[0]
    done = crowdshot(tmp_path, "demo")
    assert done.returncode == 0, done.stderr
    for line in filter(None, shown.splitlines()):
        assert line in done.stdout
