"""What users import: every name has an example that runs, and types that their checker sees."""

import doctest
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
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


MODULES = [found.name for found in pkgutil.walk_packages(crowdshot.__path__, "crowdshot.") if "_gpu" not in found.name]


def test_every_example_in_a_docstring_runs(tmp_path, monkeypatch):
    """Those of methods and of private functions too, with the names of their module."""
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    found = 0
    for name in MODULES:
        if name.endswith("__main__"):
            continue
        for example in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name)):
            found += len(example.examples)
            doctest.DocTestRunner(optionflags=FLAGS).run(example, out=said.append)
    assert found > 300
    assert not said, "".join(said)


@pytest.mark.parametrize("estimator", [crowdshot.CrowdClassifier, crowdshot.CrowdAggregator])
def test_documented_attributes_exist(estimator):
    X = pd.DataFrame({"width": [0.0, 0.1, 5.0, 5.1], "height": [1.0, 2.0, 1.0, 2.0]})
    labels = [["a", "a"], ["a", "b"], ["b", "b"], ["b", None]]
    fitted = estimator().fit(labels) if estimator is crowdshot.CrowdAggregator else estimator().fit(X, labels)
    section = estimator.__doc__.split("Attributes\n")[1].split("Examples\n")[0]
    documented = re.findall(r"^    (\w+_) : ", section, re.M)
    assert len(documented) > 8
    assert [name for name in documented if not hasattr(fitted, name)] == []
    columns = estimator.__doc__.split("annotators_ : DataFrame\n")[1].split("confusion_")[0]
    assert [name for name in fitted.annotators_.columns if name not in columns] == []


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
