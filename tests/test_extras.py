"""Without an optional package, one message says what to install; labels alone need none of them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from crowdshot import Annotations, CrowdshotError, extras
from crowdshot.extras import MissingPackageError
from polling import TIMEOUT

LABELS = "item,annotator,label\na,x,cat\na,y,cat\nb,x,dog\nb,y,cat\n"
BLOCK = """
import sys
class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, *rest):
        return None if name in GONE else self.finder.find_spec(name, *rest)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""
BASE = {"torch", "sklearn", "PIL", "matplotlib", "pooch", "requests", "onnxruntime", "tokenizers", "fastapi", "uvicorn"}
COMMANDS = """
import contextlib, io, json
from crowdshot._cli.main import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["crowdshot", *words]
    err, out = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(out):
            main()
        code = 0
    except SystemExit as end:
        code = end.code
    print(json.dumps([code or 0, err.getvalue()]))
"""


def without(gone, code, folder, *words):
    (folder / "labels.csv").write_text(LABELS)
    command = [sys.executable, "-c", f"GONE = {sorted(gone)!r}\n{BLOCK}{code}", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=TIMEOUT, check=False)


def test_the_error_is_an_import_error_with_the_command():
    error = extras.missing("onnx", "to_onnx", argument="path")
    assert isinstance(error, ImportError)
    assert isinstance(error, CrowdshotError)
    assert (error.found, error.argument) == ("onnx", "path")
    assert extras.install_command("onnx") in str(error)
    assert str(error).count(".") == 2


def test_without_a_known_kind_of_items_all_extras_are_named():
    hint = extras.missing("torch", "this").hint
    assert all(f"crowdshot[{extra}]" in hint for extra in extras.ITEMS)
    assert extras.missing("torch", "this", "texts").hint.count("crowdshot[") == 1


def test_only_packages_that_are_missing_are_explained():
    with pytest.raises(ModuleNotFoundError) as error, extras.missing_packages_explained("this"):
        import no_such_module  # noqa: F401
    assert not isinstance(error.value, MissingPackageError)
    with pytest.raises(ModuleNotFoundError) as error, extras.missing_packages_explained("this"):
        import torch.no_such_module  # noqa: F401
    assert not isinstance(error.value, MissingPackageError), "torch is installed; this is a bug"


def test_to_tensor_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPackageError) as error:
        Annotations.from_matrix(np.array([[0, 1]])).to_tensor()
    assert error.value.found == "torch"


@pytest.mark.slow
def test_commands_for_labels_alone_run_without_extras_and_others_say_what_to_install(tmp_path):
    works = [
        ["aggregate", "labels.csv"],
        ["aggregate", "labels.csv", "--report", "report"],
        ["next", "labels.csv"],
        ["methods"],
        ["encoders"],
        ["paper", "list"],
    ]
    refused = {
        "images": ["adapt", "labels.csv", "--images", ".", "--out", "r"],
        "texts": ["adapt", "labels.csv", "--texts", "labels.csv", "--out", "r"],
        "features": ["adapt", "labels.csv", "--features", "labels.csv", "--out", "r"],
        "serve": ["serve", "--labels", "labels.csv", "--data", "r"],
        "paper": ["paper", "run", "main"],
    }
    done = without(BASE, COMMANDS, tmp_path, json.dumps([*works, *refused.values(), ["demo", "--out", "r"]]))
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [code for code, _ in found[: len(works)]] == [0] * len(works)
    for extra, (code, err) in zip([*refused, "images"], found[len(works) :], strict=True):
        assert code == 2
        assert extras.install_command(extra) in err
        assert "Traceback" not in err
    assert not (tmp_path / "r").exists()


@pytest.mark.slow
@pytest.mark.parametrize("gone", [{"torch"}, {"sklearn"}, {"PIL"}, BASE], ids=["torch", "sklearn", "PIL", "all"])
def test_the_classifier_says_what_to_install(tmp_path, gone):
    code = """
import crowdshot
try:
    crowdshot.CrowdClassifier().fit([[0.0], [1.0]], [["cat"], ["dog"]])
except ImportError as error:
    print(error.found, error)
"""
    done = without(gone, code, tmp_path)
    assert done.stdout.split(" ")[0] in gone, done.stderr
    assert extras.install_command("images") in done.stdout


@pytest.mark.slow
def test_the_aggregator_needs_no_extra(tmp_path):
    code = """
from crowdshot import CrowdAggregator, read_labels
crowd = CrowdAggregator().fit(read_labels("labels.csv"))
crowd.report("report.html")
print(crowd.consensus_["item"].tolist(), crowd.annotators_["annotator"].tolist(), crowd.explain("a").label)
"""
    done = without(BASE, code, tmp_path)
    assert done.stdout == "['a', 'b'] ['x', 'y'] cat\n", done.stderr


@pytest.mark.parametrize(
    ("module", "extra", "items"),
    [
        ("crowdshot.encoders.text_input", "texts", ["a lovely film", "a boring film", "lovely", "boring"]),
        ("crowdshot.classifier.encoder_choice", "images", np.random.default_rng(0).random((4, 32, 32, 3))),
    ],
)
def test_items_without_their_extra_are_announced_once(module, extra, items, monkeypatch):
    from crowdshot import CrowdClassifier

    monkeypatch.setattr(f"{module}.is_installed", lambda: False)
    extras.announce.cache_clear()
    labels = [["a", "a"], ["b", "b"], ["a", "a"], ["b", "a"]]
    with pytest.warns(extras.CrowdshotWarning) as found:
        clf = CrowdClassifier().fit(items, labels).fit(items, labels)
    extras.announce.cache_clear()
    (warning,) = [each.message for each in found if each.message.argument == "encoder"]
    assert warning.found == extra
    assert extras.install_command(extra) in str(warning.hint)
    assert "instead of 0." in str(warning)  # the accuracy at stake
    assert clf.encoder_.name == ("texts" if extra == "texts" else "photo-protonet")


def test_numbers_of_announcements_are_those_of_the_readme():
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    for extra, (_, gain) in extras.GAINS.items():
        high, low = re.findall(r"0\.\d\d", gain)
        assert re.search(rf"`{extra}`.*{low} → {high}", readme)
