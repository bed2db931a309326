"""What is said of the release is so: bounds as constraints, CI by one script, and one wheel's tools."""

import importlib.util
import re
import tomllib
from pathlib import Path

from crowdshot import extras

ROOT = Path(__file__).parent.parent


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "release" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def oldest(extras):
    return script("oldest").oldest(extras)


def test_every_dependency_has_an_oldest_version():
    pins = dict(line.split("==") for line in oldest(["images"]))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(pins) == len(project["dependencies"]) + 3 + 2, "one that has no lower bound cannot be tried"
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


def test_an_extra_that_a_message_names_exists_and_has_the_package():
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {"sklearn": "scikit-learn", "PIL": "pillow"}
    for package, about in extras.PACKAGES.items():
        for extra in extras.ITEMS if about.extra is None else [about.extra]:
            wanted = [re.split("[><= ]", line)[0] for line in script("oldest").requirements([extra], optional)]
            assert names.get(package, package.replace("_", "-")) in wanted
    base = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert not any(line.startswith(("torch", "scikit-learn", "pillow", "matplotlib")) for line in base)


def test_all_has_every_extra_for_users():
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (everything,) = optional["all"]
    assert {"images", "texts", "features", "serve", "ray", "spark", "onnx", "hf"} <= set(everything[10:-1].split(","))
    for old, new in {"lite0": "images", "text": "texts"}.items():
        assert optional[old] == [f"crowdshot[{new}]"]
    assert optional["excel"] == []
