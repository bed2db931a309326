"""Test methods of another package, with a real distribution in a separate process."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from crowdshot import CrowdClassifier
from crowdshot_paper.registry import BUILT_IN
from polling import TIMEOUT

pytestmark = pytest.mark.slow

PLUGIN = '''
"""Stars: everything is the class that most labels say.

Authors: Nobody
"""
import torch

from crowdshot_paper.registry import METHODS, Method, Needs

assert "LRDS" in METHODS  # the built-in ones are there while this is loaded
SAME = METHODS["LRDS"]


def run(episodes, encoder, candidates, seed):
    K, (B, Q) = episodes.n_classes, episodes.query.shape[:2]
    votes = torch.stack([(episodes.labels == k).sum((1, 2)) for k in range(K)], 1) + 0.0
    return [((votes + one["extra"]) / (votes + one["extra"]).sum(1, keepdim=True))[:, None].expand(B, Q, K)
            for one in candidates]


METHOD = Method("any name", "what most labels say", run, ({"extra": 1.0}, {"extra": 2.0}), {"extra": 1.0})
TAUGHT = Method("x", "the same", run, ({},), {"extra": 1.0, "shift": 3}, Needs("prototypical"), True)
SHIFTED = Method("x", "the same", run, ({"shift": -1.0}, {"shift": 0.5}), {"extra": 1.0, "shift": 0})
WORDS = Method("x", "the same", run, ({"kind": "rbf"},), {"extra": 1.0, "kind": "rbf"})
ODD = Method("x", "the same", run, ({},), {}, Needs("telepathy"))
NOT_ONE = "a text"


def nearest(episodes, encoder, candidates, seed):
    """Nearest class mean. It takes vectors only and never calls the encoder, as `on_embeddings` allows."""
    B, N, D = episodes.support.shape
    weights = torch.stack([(episodes.labels == k).sum(-1) for k in range(episodes.n_classes)], -1).float()
    means = weights.mT @ episodes.support / weights.sum(1)[..., None].clamp_min(1)
    return [(-torch.cdist(episodes.query, means)).softmax(-1) for _ in candidates]


NEAREST = Method("x", "nearest class mean", nearest, ({},), {}, Needs("prototypical"), True)
RAW = Method("x", "nearest class mean of items", nearest, ({},), {}, None, True)
'''
ENTRIES = {
    "Stars": "stars:METHOD",
    "Taught stars": "stars:TAUGHT",
}
BROKEN = {
    "Gone": "no_such_module:METHOD",
    "Text": "stars:NOT_ONE",
    "ours": "stars:METHOD",
    "paper": "stars:METHOD",
    "Odd": "stars:ODD",
    "Loud": "loud:METHOD",
    "Words": "stars:WORDS",
}


@pytest.fixture
def install(tmp_path):
    """Return a function that installs a distribution with entry points and returns a runner of Python with it."""
    site = tmp_path / "site"

    def install(entries):
        info = site / "stars-1.0.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stars\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join(["[crowdshot.methods]", *lines, ""]))
        (site / "stars.py").write_text(PLUGIN)
        (site / "loud.py").write_text("import sys\nsys.exit('I was imported')\n")

        def run(*words):
            path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
            env = {**os.environ, "PYTHONPATH": path, "CROWDSHOT_DEBUG": ""}
            command = [sys.executable, *map(str, words)]
            return subprocess.run(
                command, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=TIMEOUT, check=False
            )

        return run

    return install


def features(folder):
    """Write six items of two classes; "a" has more labels."""
    lines = ["item,f1,f2", *(f"{i},{i % 2}.0,{i}.5" for i in range(6))]
    (folder / "features.csv").write_text("\n".join(lines) + "\n")
    labels = ["item,annotator,label", *(f"{i},{who},{'b' if i == 5 else 'a'}" for i in range(6) for who in "xy")]
    (folder / "labels.csv").write_text("\n".join(labels) + "\n")


def test_a_method_is_listed_and_used_like_others(install, tmp_path):
    run = install(ENTRIES)
    features(tmp_path)
    listed = run("-m", "crowdshot", "methods", "--json")
    assert (listed.returncode, listed.stderr) == (0, "")
    found = {one["name"]: one for one in json.loads(listed.stdout)}
    assert list(found)[-2:] == ["Stars", "Taught stars"]
    assert set(found) == {*BUILT_IN, "Stars", "Taught stars"}
    assert found["Stars"]["candidates"] == {"extra": [1.0, 2.0]}
    assert found["Taught stars"]["encoders"] == ["glyphs-protonet", "photo-lite0-protonet", "photo-protonet"]
    assert "settings: extra=1, shift=3" in run("-m", "crowdshot", "methods", "taught STARS").stdout
    page = run("-m", "crowdshot", "methods", "stars").stdout
    assert page.startswith("Stars: what most labels say; encoder: none; settings: extra=1 (1 2)\n\nStars: everything")

    given = ("labels.csv", "--features", "features.csv", "--method", "stars", "--settings", "extra=2")
    done = run("-m", "crowdshot", "adapt", *given, "--out", "out", "--json")
    assert (done.returncode, json.loads(done.stdout)["method"]) == (0, "Stars"), done.stderr
    done = run("-m", "crowdshot", "predict", "out/model.safetensors", "--features", "features.csv", "--json")
    assert done.returncode == 0, done.stderr
    confidence = [row["confidence"] for row in json.loads(done.stdout)["predictions"]]
    assert confidence == pytest.approx([12 / 16] * 6)  # 10 of 12 labels are "a"; a pseudo-count of 2 per class
    with pytest.raises(ValueError, match=r"fitted by 'Stars', expected one of labeling-search, .*Install the package"):
        CrowdClassifier.load(tmp_path / "out" / "model.safetensors")  # it is not installed here


def test_a_method_takes_part_in_experiments_only_if_named(install):
    run = install(ENTRIES)
    places = ("--quick", "--dry-run", "--results", "results", "--work", "work")
    everything = run("-m", "crowdshot", "paper", "run", "main", *places)
    assert everything.returncode == 0, everything.stderr
    assert "Stars" not in everything.stdout
    named = run("-m", "crowdshot", "paper", "run", "main", "--dataset", "omniglot", "--methods", "Stars,LRMV", *places)
    assert named.stdout.splitlines()[0] == "main, omniglot: LRMV, Stars (2 of 2 pieces each)", named.stderr
    strange = run("-m", "crowdshot", "paper", "run", "main", "--methods", "Moons", *places)
    assert (strange.returncode, strange.stderr.count("\n")) == (2, 1)


def test_a_named_method_is_run_and_shown(install):
    run = install(ENTRIES)
    small = ("--dataset", "omniglot", "--methods", "Stars,LRMV", "--device", "cpu", "--quick", "--cells", "4x3")
    done = run("-m", "crowdshot", "paper", "run", "main", *small, "--results", "results", "--work", "work")
    assert done.returncode == 0, done.stderr
    shown = run("-m", "crowdshot", "paper", "tables", "main", "--results", "results", "--out", "tables")
    assert shown.returncode == 0, shown.stderr
    printed = run("-c", "print(open('tables/main/tables.md', encoding='utf-8').read())").stdout
    assert "Stars†" in printed
    assert "Stars: what most labels say." in printed


def test_methods_that_cannot_be_loaded_are_reported_and_left_out(install):
    run = install({**BROKEN, **ENTRIES})
    done = run("-m", "crowdshot", "methods")
    assert done.returncode == 0
    names = [line.partition(":")[0] for line in done.stdout.splitlines()]
    assert sorted(names) == sorted([*BUILT_IN, "Stars", "Taught stars"])
    start = "crowdshot: note: The method {!r} of stars cannot be used and is left out ("
    reasons = {
        "Gone": "ModuleNotFoundError: No module named 'no_such_module').",
        "Loud": "SystemExit: I was imported).",
        "Odd": "it needs the objective 'telepathy', expected one of lnl, maml, mixture, prototypical).",
        "Text": "stars:NOT_ONE is a str, expected a crowdshot.methods.Method).",
        "Words": "its setting kind is 'rbf', expected a number or a boolean).",
        "ours": "its name is already in use).",
        "paper": "its name is already in use).",
    }
    assert done.stderr.splitlines() == [start.format(name) + why for name, why in reasons.items()]


def test_built_in_methods_are_found_without_loading_others(install):
    run = install({"Loud": "loud:METHOD"})
    code = (
        "import sys\n"
        "from crowdshot import CrowdClassifier, METHODS\n"
        "from crowdshot.methods import find\n"
        "METHODS['LRMV'], find('lrmv'), 'LRMV' in METHODS\n"
        "CrowdClassifier('identity').fit([[0.0], [1.0]], [['a'], ['b']])\n"
        "assert 'loud' not in sys.modules"
    )
    done = run("-W", "error", "-c", code)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_package_may_be_imported_first(install):
    """The package imports the registry while it is imported itself."""
    run = install(ENTRIES)
    code = "import stars\nfrom crowdshot import METHODS\nassert METHODS['Stars'].run is stars.run\nprint(len(METHODS))"
    done = run("-W", "error", "-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{len(BUILT_IN) + 2}\n", "")


def test_a_classifier_accepts_the_method(install):
    run = install(ENTRIES)
    code = (
        "from crowdshot import CrowdClassifier\n"
        "clf = CrowdClassifier('identity', method='Stars').fit([[0.0], [1.0], [2.0]], [['a'], ['a'], ['b']])\n"
        "print(clf.learner_, clf.predict_proba([[5.0]]).round(6).tolist())"
    )
    done = run("-c", code)
    assert done.stdout == f"Stars {[np.round([3 / 5, 2 / 5], 6).tolist()]}\n", done.stderr


def test_candidates_of_the_method_are_valid_settings(install, tmp_path):
    """Numbers of built-in methods are positive; other methods may allow any number."""
    run = install({"Shifted": "stars:SHIFTED"})
    code = (
        "from crowdshot import CrowdClassifier\n"
        "for shift in (-1.0, 0, 0.5, -2.5):\n"
        "    clf = CrowdClassifier('identity', method='Shifted', settings={'shift': shift})\n"
        "    print(clf.fit([[0.0], [1.0]], [['a'], ['b']]).settings_['shift'])"
    )
    done = run("-c", code)
    assert done.stdout.split() == ["-1.0", "0.0", "0.5", "-2.5"], done.stderr
    features(tmp_path)
    given = ("labels.csv", "--features", "features.csv", "--method", "shifted", "--out", "out", "--settings")
    done = run("-m", "crowdshot", "adapt", *given, "shift=true")
    assert done.stderr.splitlines()[-1] == "crowdshot: --settings has True as shift of Shifted, expected a number."
    done = run("-m", "crowdshot", "adapt", *given, "shift=0")
    assert done.returncode == 0, done.stderr


CLASSIFIES = """
import sys
import numpy as np
import torch
from crowdshot import CrowdClassifier, METHODS
from crowdshot.methods import CrowdEpisodes

rng = np.random.default_rng(0)
shape = {"images": (28, 28), "features": (6,)}[sys.argv[1]]
items = rng.random((12, *shape))
items[::2] += 1
items = items if sys.argv[1] == "features" else (items * 100).astype("uint8")
labels = np.array([["a", "b"][i % 2] for i in range(12)])[:, None].repeat(3, 1)
clf = CrowdClassifier(encoder=sys.argv[2], method=sys.argv[3]).fit(items[:8], labels[:8])
before = clf.predict_proba(items[8:])
clf.save("clf.safetensors")
after = CrowdClassifier.load("clf.safetensors").predict_proba(items[8:])
assert np.allclose(before, after), (before, after)
if sys.argv[1] == "images":
    embedded = torch.as_tensor(clf.encoder_.embed(items)).float()
    votes = torch.tensor([[i % 2] * 3 for i in range(8)])
    episode = CrowdEpisodes(embedded[None, :8], votes[None], embedded[None, 8:], 2)
    alone = METHODS[sys.argv[3]].predict(episode, torch.nn.Identity())[0]
    assert np.allclose(before, alone, atol=1e-5), (before, alone)
print(clf.predict(items[8:]).tolist())
"""


@pytest.mark.parametrize(
    ("kind", "encoder", "method"),
    [
        ("images", "glyphs-protonet", "Nearest"),
        ("images", "auto", "Nearest"),
        ("features", "identity", "Nearest"),
        ("features", "identity", "Raw"),
    ],
)
def test_a_method_on_embeddings_is_fitted_saved_and_loaded(install, kind, encoder, method):
    run = install({"Nearest": "stars:NEAREST", "Raw": "stars:RAW"})
    done = run("-c", CLASSIFIES, kind, encoder, method)
    assert (done.returncode, done.stdout) == (0, "['a', 'b', 'a', 'b']\n"), done.stderr


def test_a_method_on_embeddings_works_in_commands(install, tmp_path):
    """`adapt` writes a file that `predict` reads, for images and for features."""
    run = install({"Nearest": "stars:NEAREST"})
    (tmp_path / "images").mkdir()
    lines = ["item,annotator,label"]
    for i in range(8):
        pixels = np.full((28, 28), 255, dtype="uint8")
        pixels[4:24, (6 if i % 2 else 16) : (10 if i % 2 else 20)] = 10 * i
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i}.png")
        lines += [f"{i}.png,{who},{'ab'[i % 2]}" for who in "xyz"]
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    done = run("-m", "crowdshot", "adapt", "labels.csv", "--images", "images", "--method", "nearest", "--out", "out")
    assert done.returncode == 0, done.stderr
    done = run("-m", "crowdshot", "predict", "out/model.safetensors", "--images", "images", "--json")
    assert done.returncode == 0, done.stderr
    assert [row["label"] for row in json.loads(done.stdout)["predictions"]] == ["a", "b"] * 4
