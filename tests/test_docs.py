"""What the documentation shows is run: Python blocks and console lines that start with a dollar sign, in order."""

import re
import shlex
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
    for block, line in re.findall(r"```python\n(.*?)```|^\$ crowdshot ([^\n]*)$", text, re.DOTALL | re.MULTILINE):
        if block:
            exec(compile(block, str(page), "exec"), names)
            continue
        command = [sys.executable, "-m", "crowdshot", *shlex.split(line)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS)
        assert done.returncode == 0, (line, done.stderr)
