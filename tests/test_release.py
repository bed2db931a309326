"""What is said of the release is so: bounds as constraints, CI by one script, and one wheel's tools."""

import importlib.util
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def oldest(extras):
    spec = importlib.util.spec_from_file_location("oldest", ROOT / "release" / "oldest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.oldest(extras)


def test_every_dependency_has_an_oldest_version():
    pins = dict(line.split("==") for line in oldest(["excel"]))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(pins) == len(project["dependencies"]) + 1, "one that has no lower bound cannot be tried"
    assert pins["numpy"] == "1.26"
    assert pins["openpyxl"] == "3.1"
    pinned = re.search(r"^torch==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pins["torch"] == pinned[1], "an older one is not to be had"


def test_ci_elsewhere_runs_what_ci_here_runs():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.findall(r"- run: (\S+)$", workflow, re.MULTILINE) == [".ci/run"]
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"- run: make (\S+)", workflow):
        assert f"\n{target}: " in makefile


def test_before_a_commit_runs_what_lint_runs():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    (lint,) = re.findall(r"^lint: .*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for command in re.findall(r"\$\(BIN\)/(\S+)", lint):
        assert f".venv/bin/{command}" in hooks
