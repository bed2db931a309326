"""Test the engine with actors of a Ray cluster on this machine."""

import os
import sys
from pathlib import Path

import pytest

from crowdshot._cli.aggregate import aggregate_parts
from crowdshot._cli.inputs import LabelFiles

from .test_engine import cut, dying, parts, rows, same, write

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray's own


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray")
    here = os.pathsep.join(map(str, [*sys.path, Path(__file__).parents[1]]))  # where actors find functions of the tests
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": here}})
    yield ray
    ray.shutdown()


@pytest.mark.parametrize("method", ["learned", "dawid-skene"])
def test_two_actors_give_the_results_of_the_local_engine(cluster, tmp_path, monkeypatch, method):
    labels = LabelFiles(write(tmp_path / "in", rows(), "parquet"))
    cut(monkeypatch, 37, 50)
    aggregate_parts(labels, method, 4, tmp_path / "local")
    cut(monkeypatch, 37, 50, workers=2)
    report, _ = aggregate_parts(labels, method, 4, tmp_path / "ray", engine="ray")
    assert report.method.engine == "ray"
    local = parts(tmp_path / "local")
    same(parts(tmp_path / "ray"), local.assign(item=local["item"].astype(str)))


def failing(task):
    raise ValueError(f"task {task}")


def test_a_killed_actor_does_not_change_results(cluster, tmp_path):
    from crowdshot.engine.workers import Actors

    actors = Actors(2)
    try:
        assert dict(actors.each(dying, range(5), str(tmp_path))) == {n: n + 10 for n in range(5)}
        with pytest.raises(ValueError, match="task 0"):
            list(actors.each(failing, [0]))
    finally:
        actors.close()
    assert (tmp_path / "mark-1").exists()
