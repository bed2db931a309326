"""Every example runs as a user would run it, and says what it is for."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from polling import TIMEOUT

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parent.parent / "examples"
SAYS = {  # a line that must be printed, and what it must hold
    "digits.py": r"consensus right: (?P<here>\S+), by vote (?P<vote>\S+)",
    "photographs.py": r"right by vote (?P<vote>\S+), with the pictures (?P<here>\S+)",
    "texts.py": r"open .*report.html in a browser",
    "judges.py": r"right by vote: (?P<vote>\S+)\n(.*\n)*right: (?P<here>[\d.]+): the family",
    "python_first.py": r"consensus right: (?P<here>\S+), by vote (?P<vote>\S+)",
    "own_encoder.py": r"labels right: (?P<vote>\S+)\nconsensus right: (?P<here>\S+)",
}


def test_every_example_is_tested_and_listed():
    assert {file.name for file in EXAMPLES.glob("*.py")} == set(SAYS)
    assert set(re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text())) == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs(name, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error::FutureWarning", EXAMPLES / name, tmp_path / "out"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=TIMEOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(SAYS[name], done.stdout)
    assert found, done.stdout
    assert list((tmp_path / "out").iterdir())
    if "vote" in found.groupdict():  # what it shows is that it is no worse than without
        assert float(found["here"].strip(",")) >= float(found["vote"].strip(","))
