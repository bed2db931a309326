"""Two runs in one folder, and damaged files of an interrupted run: each ends in one sentence."""

from types import SimpleNamespace

import pytest

from crowdshot.engine import run
from crowdshot.engine.run import BUCKETS, alone, run_job
from crowdshot.errors import CrowdshotError


@pytest.fixture
def job(tmp_path):
    (tmp_path / "_work").mkdir()
    return SimpleNamespace(out=tmp_path, work=tmp_path / "_work")


def test_the_second_run_in_a_folder_is_refused(job):
    pytest.importorskip("fcntl", reason="no locks on this system")
    with alone(job), pytest.raises(CrowdshotError, match="in use"), alone(job):
        pass
    with alone(job):  # the lock ends with the run
        pass


def test_a_folder_that_another_run_has_just_removed(job):
    pytest.importorskip("fcntl", reason="no locks on this system")
    job.work.rmdir()
    with pytest.raises(CrowdshotError, match="in use"), alone(job):
        pass


@pytest.mark.parametrize("error", [ValueError("bad magic"), KeyError("label"), EOFError(), AssertionError()])
def test_damaged_files_are_told_only_if_a_run_was_interrupted(job, monkeypatch, error):
    def fails(*_):
        raise error

    monkeypatch.setattr(run, "_run_job", fails)
    with pytest.raises(type(error)):  # a defect, not damage
        run_job(job, None, None)
    (job.work / BUCKETS).touch()
    with pytest.raises(CrowdshotError, match="interrupted") as caught:
        run_job(job, None, None)
    assert caught.value.where == str(job.out)
