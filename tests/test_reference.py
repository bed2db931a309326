"""Check that the generated reference has every public name and every command."""

import importlib.util
import re
from pathlib import Path

import pytest

import crowdshot

pytest.importorskip("mkdocs")  # the extra docs


@pytest.fixture(scope="module")
def reference():
    file = Path(__file__).parent.parent / "docs" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_listed(reference):
    found = re.findall(r"^::: [\w.]*\.(\w+)(?:\n    options: {heading: (\w+))?", reference.python_page(), re.MULTILINE)
    assert sorted(heading or name for name, heading in found) == sorted(crowdshot.__all__)


def test_every_command_is_listed_with_its_help(reference):
    page = reference.commands_page()
    for words in ("adapt", "aggregate", "paper compare", "paper list", "serve"):
        assert f"\n## {words}\n" in page
        assert f"Usage: crowdshot {words} [OPTIONS]" in page
    assert page.count("Usage: ") == page.count("\n## ")
