"""What is said of the release is so: bounds as constraints, CI by one script, and one wheel's tools."""

import hashlib
import importlib.util
import re
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

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


def test_actions_of_ci_are_pinned_by_digest():
    workflows = list((ROOT / ".github" / "workflows").glob("*.yml"))
    used = [name for file in workflows for name in re.findall(r"uses: (\S+)", file.read_text())]
    assert used
    assert [name for name in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name)] == []


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


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_is_complete_and_has_checksums():
    """Every dependency of a locked package is locked, and those of crowdshot with its usual extras."""
    lines = [line for line in (ROOT / "requirements-lock.txt").read_text().splitlines() if not line.startswith("#")]
    found = [re.fullmatch(r"([\w.-]+)==(\S+) --hash=sha256:[0-9a-f]{64}", line) for line in lines]
    assert all(found)
    locked = {normal(match[1]): match[2] for match in found}
    assert len(locked) == len(lines)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras_in = ("features", "images", "texts", "serve", "plots", "test")
    needed = [Requirement(line) for line in project["project"]["dependencies"]]
    for extra in extras_in:
        needed += [Requirement(line) for line in project["project"]["optional-dependencies"].get(extra, [])]
    needed += [Requirement(line) for line in project["build-system"]["requires"]]
    for name in locked:
        try:
            needed += [Requirement(line) for line in metadata.requires(name) or []]
        except metadata.PackageNotFoundError:  # what builds crowdshot need not be installed
            continue
    needed = [
        one for one in needed if one.name != "crowdshot" and (not one.marker or one.marker.evaluate({"extra": ""}))
    ]
    assert {normal(one.name) for one in needed} <= set(locked)
    assert not [one for one in needed if not one.specifier.contains(locked[normal(one.name)], prereleases=True)]
    pinned = re.findall(r"^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    for name, version in pinned:
        assert locked.get(normal(name), version).split("+")[0] == version


def test_shipped_weights_have_the_published_checksums():
    published = dict(line.split()[::-1] for line in (ROOT / "release" / "weights.sha256").read_text().splitlines())
    shipped = [*(ROOT / "src").glob("*/**/weights/*.safetensors"), *(ROOT / "src").glob("*/**/weights/*.txt")]
    assert {path.relative_to(ROOT).as_posix() for path in shipped} == set(published)
    for path, checksum in published.items():
        assert hashlib.sha256((ROOT / path).read_bytes()).hexdigest() == checksum, path
