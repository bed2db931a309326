"""Test parallel work: each job runs once, and failures are reported."""

import os
import re
import sys

import pytest

from crowdshot.errors import CrowdshotError
from crowdshot_paper import parallel
from polling import wait_until


def test_devices():
    assert parallel.devices("cpu*2,cpu") == ["cpu", "cpu", "cpu"]
    assert parallel.devices(" cpu , cpu*1") == ["cpu", "cpu"]
    assert len(parallel.devices("auto")) == 1
    for text in ("cpu*", "cpu*x", "cpu*0", "cpu*²", "cpu*-1"):
        with pytest.raises(CrowdshotError, match=re.escape(f"device is {text!r}, expected devices like cuda")):
            parallel.devices(text)
    with pytest.raises(CrowdshotError, match="expected auto, cpu or cuda"):
        parallel.devices("cpu,tpu")


def _note_who(folder, number, device):
    """Wait until another process works too."""
    (folder / f"{number}-{device}-{os.getpid()}").touch()
    wait_until(lambda: len({file.name.split("-")[2] for file in folder.iterdir()}) == 2)


def _fail(number, device):
    if number == 1:
        raise CrowdshotError("row 3 of labels.csv is bad.")


def _die(number, device):
    os._exit(9)


@pytest.mark.slow
def test_several_processes_share_the_work_and_report_failures(tmp_path):
    ticks = []
    parallel.run_all(_note_who, [(tmp_path, i) for i in range(5)], ["cpu", "cpu"], lambda *x: ticks.append(x))
    names = [file.name.split("-") for file in tmp_path.iterdir()]
    assert sorted(name[0] for name in names) == list("01234"), "each once"
    assert len({name[2] for name in names}) == 2
    assert str(os.getpid()) not in {name[2] for name in names}
    assert ticks == [(i, 5) for i in range(1, 6)]
    with pytest.raises(CrowdshotError, match=r"^row 3 of labels\.csv is bad\.$"):
        parallel.run_all(_fail, [(1,)], ["cpu", "cpu"], lambda *x: None)
    with pytest.raises(CrowdshotError, match=r"^One of the 2 processes was killed, possibly because memory ran out"):
        parallel.run_all(_die, [(0,)], ["cpu", "cpu"], lambda *x: None)


def test_no_work_starts_no_process(monkeypatch):
    ticks, started = [], []
    monkeypatch.setattr(parallel, "ProcessPoolExecutor", lambda *x, **y: started.append(x))
    parallel.run_all(_die, [], ["cpu", "cpu"], lambda *x: ticks.append(x))
    assert (started, ticks) == ([], [])


def test_a_missing_ray_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(CrowdshotError, match=re.escape("pip install 'crowdshot[ray]'")):
        parallel.run_all_on_ray(_fail, [], ["cpu"], lambda *x: None)
