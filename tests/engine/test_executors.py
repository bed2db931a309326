"""Test the engine with executors of a Spark session on this machine."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crowdshot._cli.aggregate import aggregate_parts
from crowdshot._cli.inputs import LabelFiles
from crowdshot.errors import CrowdshotError

from .test_engine import cut, dying, parts, rows, same, write

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Spark's own
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
]


@pytest.fixture(scope="module")
def session():
    sql = pytest.importorskip("pyspark.sql")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, [*sys.path, Path(__file__).parents[1]]))  # for its workers
    builder = sql.SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    yield builder.config("spark.log.level", "OFF").getOrCreate()
    sql.SparkSession.getActiveSession().stop()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.mark.filterwarnings("ignore:.*labels? dropped")
@pytest.mark.parametrize("method", ["learned", "dawid-skene"])
def test_executors_give_the_results_of_the_local_engine(session, tmp_path, monkeypatch, method):
    labels = LabelFiles(write(tmp_path / "in", rows(), "parquet"))
    cut(monkeypatch, 37, 50)
    aggregate_parts(labels, method, 3, tmp_path / "local")
    cut(monkeypatch, 37, 50, workers=2)
    report, _ = aggregate_parts(labels, method, 3, tmp_path / "spark", engine="spark")
    assert report.method.engine == "spark"
    local = parts(tmp_path / "local")
    same(parts(tmp_path / "spark"), local.assign(item=local["item"].astype(str)))
    assert not (tmp_path / "spark" / "_work").exists()


def refusing(task):
    raise CrowdshotError(f"task is {task}, expected another.")


def test_a_killed_worker_does_not_change_results(session, tmp_path):
    from crowdshot.engine.workers import Executors

    executors = Executors(2, tmp_path)
    assert dict(executors.each(dying, range(5), str(tmp_path))) == {n: n + 10 for n in range(5)}
    assert (tmp_path / "mark-1").exists()
    with pytest.raises(CrowdshotError, match=r"^task is 0, expected another\.$"):
        list(executors.each(refusing, [0]))
    assert list(executors.each(refusing, [])) == []
    executors.close()  # an existing session stays open
    assert session.range(3).count() == 3


def test_the_command_starts_its_own_session(tmp_path):
    pytest.importorskip("pyspark")
    (pattern,) = write(tmp_path / "in", rows().drop_duplicates(["item", "annotator"]))
    words = ["aggregate", str(pattern), "--engine", "spark", "--out", str(tmp_path / "out"), "--method", "soft"]
    done = subprocess.run([sys.executable, "-m", "crowdshot", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(parts(tmp_path / "out")) == 60
