"""Test that docs/deprecation.md lists every old name, and that each one warns and names the version that removes it."""

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import crowdshot
from crowdshot import CrowdClassifier
from crowdshot.classifier.fit_results import OldNames
from crowdshot.classifier.learner_contract import ARGUMENTS
from crowdshot.methods import RENAMED, current_name

ROOT = Path(__file__).parents[1]
WARNING = "will be removed in version 0.4"
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PROPERTIES = [name for name, value in vars(OldNames).items() if isinstance(value, property)]


def old_names() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield each old name in Python, and a function that uses it."""
    clf = CrowdClassifier(encoder="identity").fit([[0.0], [0.1], [5.0], [5.1]], [["a"], ["a"], ["b"], ["b"]])
    for name in crowdshot._MOVED:
        yield name, lambda name=name: getattr(crowdshot, name)
    for name in PROPERTIES:
        yield name, lambda name=name: getattr(clf, name, None)  # `reader_` is None of vectors
    for name in ARGUMENTS:
        yield name, lambda name=name: CrowdClassifier(**{name: None})
    for name in RENAMED:
        yield name.capitalize(), lambda name=name: current_name(name)


def old_extras() -> set[str]:
    """Return the extras that are kept for their names: they only include another one, or nothing."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    others = [name for name in extras if name not in ("test", "all")]
    return {n for n in others if not extras[n] or (len(extras[n]) == 1 and extras[n][0].startswith("crowdshot["))}


def listed() -> set[str]:
    """Return the names in the middle column of the first table of the page."""
    page = (ROOT / "docs" / "deprecation.md").read_text("utf-8")
    table = page.partition("until 0.4.")[2].partition("Keys of")[0]
    rows = re.findall(r"^\| .+ \| (.+) \| .+ \|$", table, re.MULTILINE)
    return {name for row in rows for name in re.findall("`(.+?)`", row)}


def test_every_old_name_warns_with_the_version_that_removes_it() -> None:
    for name, use in old_names():
        with pytest.warns(FutureWarning, match=WARNING):
            use()
        assert name in listed()


def test_the_page_lists_the_old_names_and_no_others() -> None:
    assert listed() == {name for name, _ in old_names()} | old_extras()


def test_no_other_module_warns_of_old_names() -> None:
    """Extend `old_names` before you add a module here."""
    found = {f.relative_to(ROOT / "src").as_posix() for f in SOURCES if "FutureWarning," in f.read_text("utf-8")}
    found -= {"crowdshot/_cli/console.py"}  # it prints them
    assert found == {"crowdshot/__init__.py", "crowdshot/classifier/fit_results.py", "crowdshot/methods.py"}


def test_all_comments_name_the_same_version() -> None:
    files = [*SOURCES, ROOT / "pyproject.toml", ROOT / "docs" / "deprecation.md", ROOT / "CHANGELOG.md"]
    removed = re.compile(r"(?:until|removed in version) (\d+\.\d+)\b")
    assert {version for f in files for version in removed.findall(f.read_text("utf-8"))} == {"0.4"}
