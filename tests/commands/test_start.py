"""What needs only labels or names loads neither torch nor scikit-learn; the classifier is imported without torch."""

import json
import re
import subprocess
import sys

import pytest

from polling import TIMEOUT

LABELS = "item,annotator,label\na,x,cat\na,y,cat\nb,x,dog\nb,y,cat\n"
COMMANDS = [
    ["--help"],
    ["--version"],
    ["aggregate", "--help"],
    ["aggregate", "labels.csv"],
    ["aggregate", "labels.csv", "--json", "--method", "dawid-skene"],
    ["aggregate", "labels.csv", "--report", "results"],
    ["report", "results"],
    ["compare", "results", "results"],
    ["next", "labels.csv"],
    ["methods"],
    ["methods", "--json"],
    ["methods", "MCL"],
    ["encoders"],
    ["encoders", "--json"],
    ["paper", "list"],
    ["paper", "--help"],
    ["train", "--help"],
]
RUN = """
import json, sys
from crowdshot._cli.main import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["crowdshot", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (words, end.code)
    heavy = {"torch", "sklearn"} & set(sys.modules)
    assert not heavy, (words, heavy)
    print("-- end --")
"""
READ = """
import sys
from crowdshot import Annotations, CrowdAggregator, aggregate, asking, read_labels
ann = read_labels(["labels.csv"]).annotations
assert aggregate.one_coin(ann).labels[0] == "cat"
assert isinstance(ann, Annotations)
assert len(CrowdAggregator().fit(ann).annotators_) == 2
heavy = {"torch", "sklearn"} & set(sys.modules)
sys.exit(", ".join(sorted(heavy)) or 0)
"""

IMPORT = """
import sys
from crowdshot import CrowdClassifier
CrowdClassifier(method="features", random_state=1).get_params()
heavy = {"torch", "triton", "safetensors.torch", "matplotlib", "PIL", "jinja2"}
heavy |= {f"sklearn.{name}" for name in ("neighbors", "metrics", "preprocessing", "linear_model", "decomposition")}
sys.exit(", ".join(sorted(heavy & set(sys.modules))) or 0)
"""


def run(code, folder, *words):
    (folder / "labels.csv").write_text(LABELS)
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=TIMEOUT, check=False)


@pytest.mark.slow
def test_commands_that_need_no_items_load_no_torch(tmp_path):
    """In one process: what one command does not load, the ones before it did not load either."""
    done = run(RUN, tmp_path, json.dumps(COMMANDS))
    progress_or_note = re.compile(r"crowdshot: note: |.* \d+ s( left)?$")
    heavy = [line for line in done.stderr.splitlines() if not progress_or_note.match(line)]
    assert (done.returncode, heavy) == (0, []), "these slow it down"
    outputs = done.stdout.split("-- end --\n")
    assert len(outputs) == len(COMMANDS) + 1
    assert all(outputs[:-1])


@pytest.mark.slow
def test_labels_are_read_and_aggregated_without_torch(tmp_path):
    done = run(READ, tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), "these slow it down"


@pytest.mark.slow
def test_the_classifier_is_imported_without_torch(tmp_path):
    done = run(IMPORT, tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), "these slow down the import"
