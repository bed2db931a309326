"""Check that numbers quoted in the documentation are those in results/, and that this check can fail."""

import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def loaded():
    spec = importlib.util.spec_from_file_location("quoted", ROOT / "docs" / "quoted.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_number_agrees_with_results():
    done = subprocess.run([sys.executable, ROOT / "docs" / "quoted.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("none of them not what results/ say.\n")


def test_a_wrong_number_is_found():
    wrong = loaded().wrong
    quote = "<!-- quoted\n{} beyond/omniglot-fair labeling-search 4x3\n-->"
    assert wrong("It has 0.777 there.\n" + quote.format("0.777")) == []
    assert wrong("It has 0.778 there.\n" + quote.format("0.778")) == [
        "quotes 0.778, results/beyond/omniglot-fair has 0.777 for labeling-search 4x3"
    ]
    assert wrong("It has nothing.\n" + quote.format("0.777")) == [
        "lists 0.777 of results/beyond/omniglot-fair as quoted, but does not have it"
    ]
    assert "has – for Nobody" in wrong("0.5\n<!-- quoted\n0.5 main/omniglot-fair Nobody\n-->")[0]


def test_generated_parts_are_replaced_without_missing_results():
    module = loaded()
    page = "before\n<!-- numbers: beyond -->\nold | 0.123\n<!-- end -->\nafter\n"
    new = module.written(page)
    assert "0.123" not in new
    assert "| Omniglot |" in new
    assert new == module.written(new)
    assert (
        module._table(["", "a", "b"], {"x": ["1", "–"], "y": ["–", "–"]})
        == "|  | a |\n| --- | --- |\n| x | 1 |\n| y | – |\n"
    )
