"""Short stress tests with fixed seeds; `make torture` runs the long ones."""

import os
import subprocess
import sys
from functools import cache

import pytest

from torture.fuzz import fuzz
from torture.random_problems import CHECKS, run
from torture.readers import readers

NAMES = (  # of `readers`, whose files take seconds to make
    "labels, long",
    "labels, wide",
    "labels of tools",
    "regions",
    "gold",
    "features",
    "texts",
    "new names",
    "history",
    "rounds",
    "pieces",
    "training data",
    "pictures",
    "classifiers",
    "encoders",
    "checkpoints",
    "journal",
    "kept embeddings",
    "experiments",
    "inference",
    "comparisons",
    "models judged",
    "groups",
    "questions",
    "label times",
    "costs",
    "known labels",
)


@cache
def readers_by_name():
    return {reader.name: reader for reader in readers()}


@pytest.mark.slow
def test_every_reader_is_named():
    assert tuple(readers_by_name()) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_damaged_files_are_read_or_refused_in_a_sentence(name):
    found = fuzz(readers_by_name()[name], inputs=40, seed=1)
    assert not found.crashes, found.crashes[0].told
    assert found.refused > 0 or name == "kept embeddings"  # where damage is no error


@pytest.mark.slow
@pytest.mark.parametrize("kind", CHECKS)
def test_random_problems(kind):
    tried, wrong = run(kind, 20, seed=1)
    assert tried == 20
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "interruptions --tries 1 --only aggregate",
        "interruptions --tries 1 --only adapt",
        "interruptions --tries 1 --only train",
        "serving --tries 1",
        "requests --requests 200",
        "size --labels 1000 --only next",
    ],
)
def test_commands(line):
    """In a process of its own, as it forks."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    module, *words = line.split()
    done = subprocess.run([sys.executable, "-m", f"torture.{module}", *words], capture_output=True, env=environment)
    assert done.returncode == 0, done.stdout.decode()
