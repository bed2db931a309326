"""What users import: every name has an example that runs, and types that their checker sees."""

import doctest
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import crowdshot
import crowdshot.metrics
import crowdshot.model_selection
import crowdshot.plots

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


PUBLIC = re.compile(rf"crowdshot\.(__version__|{'|'.join(crowdshot.__all__)})(\.|$)")  # and what these have
ROOMS = (crowdshot, crowdshot.metrics, crowdshot.model_selection, crowdshot.plots)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def docstring_of(room: ModuleType, name: str) -> str:
    """A name's own, or of a table that its module has."""
    thing = getattr(room, name)
    own = isinstance(thing, ModuleType) or hasattr(thing, "__qualname__")
    return (thing if own else sys.modules[f"crowdshot.{crowdshot._NAMES[name]}"]).__doc__ or ""


@pytest.mark.parametrize(
    ("room", "name"),
    [(room, name) for room in ROOMS for name in room.__all__],
)
def test_every_public_name_has_an_example_that_runs(room, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = doctest.DocTestParser().get_doctest(docstring_of(room, name), {}, name, None, 0)
    lines = example.examples
    assert any(name in line.source and "import" not in line.source for line in lines), f"{name} is not used"
    assert any(line.want for line in lines), "nothing is shown"
    said: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(example, out=said.append)
    assert not said, "".join(said)


def test_types_are_complete_for_users():
    """As a type checker counts them, types of other packages aside: scikit-learn has none, torch not all."""
    pytest.importorskip("basedpyright", reason="basedpyright is not installed")
    command = [sys.executable, "-m", "basedpyright", "--verifytypes", "crowdshot", "--ignoreexternal", "--outputjson"]
    here = os.environ | {
        "PYTHONPATH": str(ROOT / "src"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),  # where it looks for packages
    }
    done = subprocess.run(command, capture_output=True, text=True, env=here, cwd=ROOT)
    symbols = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    public = [each for each in symbols if each["isExported"] and PUBLIC.match(each["name"])]
    assert {"crowdshot.CrowdClassifier", "crowdshot.metrics"} <= {each["name"] for each in public}
    unknown = [each["name"] for each in public if not each["isTypeKnown"] or each["isTypeAmbiguous"]]
    assert not unknown
    assert len([each for each in symbols if each["isTypeKnown"]]) >= 0.95 * len(symbols)


def test_everything_that_the_documentation_imports_exists():
    found = []
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.py")]:
        for module, names in re.findall(r"^ *from (crowdshot[\w.]*) import ([\w, ]+)", page.read_text(), re.M):
            names = [name.split(" as ")[0].strip() for name in names.split(",") if name.strip()]
            found += [(module, name) for name in names]
    assert len(found) > 20
    for module, name in found:
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(f"{module}.{name}")
