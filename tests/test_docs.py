"""What the documentation shows is run: Python blocks in order, and console lines that start with a dollar sign."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import HANGS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, str(page), "exec"), names)
    for line in re.findall(r"^\$ crowdshot (.*)$", text, re.MULTILINE):
        command = [sys.executable, "-m", "crowdshot", *line.split()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS)
        assert done.returncode == 0, (line, done.stderr)
