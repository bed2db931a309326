"""Check that every benchmark can be imported."""

import importlib.util
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_benchmark_is_importable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    specification = importlib.util.spec_from_file_location(f"benchmark_{path.stem}", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, specification.name, module)
    try:
        specification.loader.exec_module(module)
    except ModuleNotFoundError as missing:
        if str(missing.name).split(".")[0] in ("cleanlab",):  # the extra `bench`
            pytest.skip(f"{missing.name} is not installed")
        raise
