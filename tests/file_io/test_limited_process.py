"""A process with limits ends in one error, whatever the function does."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from crowdshot import CrowdshotError
from crowdshot.io import limited_process
from crowdshot.io.limited_process import LimitedProcess


def behave(facts, arrays):
    """Do in the process what the request asks for."""
    kind = facts["kind"]
    if kind == "loop":
        while True:
            pass
    if kind == "memory":
        return {"n": len(bytes(2**34))}, []
    if kind == "exit":
        os._exit(3)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "error":
        raise ValueError("of another library\nsecond line")
    if kind == "refuse":
        raise CrowdshotError("is 1", argument="sheet", found=object, expected="2", hint="Use 2.", among=["2"])
    print("a library prints this")
    return {"sum": sum(float(array.sum()) for array in arrays)}, [array + array.dtype.type(1) for array in arrays]


@pytest.fixture
def started(monkeypatch):
    """Start processes that find this module."""
    code = limited_process.START.replace("from crowdshot", f"import {__name__} as m; from crowdshot", 1).replace(
        "import serve;",
        "import serve; import crowdshot.io; crowdshot.io.behave = m; sys.modules['crowdshot.io.behave'] = m;",
    )
    monkeypatch.setattr(limited_process, "START", code)
    found = []

    def start(*limits):
        found.append(LimitedProcess("io.behave:behave", "x.bin", *limits))
        return found[-1]

    yield start
    for process in found:
        process.close()


def test_answers_with_arrays(started):
    process = started()
    values = [np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((0, 4), np.int64), np.array(7, np.uint8)]
    for _ in range(2):
        answer, found = process.ask(30, {"kind": "add"}, values)
        assert answer == {"sum": 22.0}
        for array, value in zip(found, values, strict=True):
            assert (array.dtype, array.shape) == (value.dtype, value.shape)
            np.testing.assert_array_equal(array, value + value.dtype.type(1))


@pytest.mark.parametrize(
    ("kind", "keyword"),
    [
        pytest.param("loop", "within 1 seconds", marks=pytest.mark.slow),
        ("exit", "exit status 3"),
        ("kill", f"exit status -{int(signal.SIGSEGV)}"),
    ],
)
def test_a_process_that_ends_or_does_not(started, kind, keyword):
    process = started()
    process.ask(30, {"kind": "add"})
    with pytest.raises(CrowdshotError, match=keyword) as error:
        process.ask(1, {"kind": kind})
    assert error.value.where == "x.bin"
    assert process.process.poll() is not None


@pytest.mark.slow
def test_computing_time_is_limited(started):
    process = started(0, 1)
    with pytest.raises(CrowdshotError, match="within 1 seconds"):
        process.ask(100, {"kind": "loop"})


def test_errors_of_the_function(started):
    process = started(2**32)
    with pytest.raises(CrowdshotError, match="of another library") as error:
        process.ask(30, {"kind": "error"})
    assert error.value.where == "x.bin"
    with pytest.raises(CrowdshotError, match=r"4\.0 GB"):
        process.ask(30, {"kind": "memory"})
    with pytest.raises(CrowdshotError) as error:
        process.ask(30, {"kind": "refuse"})
    fields = error.value
    assert (fields.argument, fields.expected, fields.hint, fields.among) == ("sheet", "2", "Use 2.", ("2",))


@pytest.mark.parametrize("message", [b"", b"\xff" * 8, b"\x02" + bytes(7) + b"{}", b"\x03" + bytes(7) + b"[1]"])
def test_an_answer_that_is_none(started, message):
    """A process that a file has taken over may answer anything."""
    process = started()
    process.process.kill()
    process.process.wait()
    reading, writing = os.pipe()
    os.write(writing, message)
    os.close(writing)
    process.process.stdout.close()
    process.process.stdout = os.fdopen(reading, "rb")
    process.process.stdin.close()
    process.process.stdin = open(os.devnull, "wb")  # noqa: SIM115
    with pytest.raises(CrowdshotError, match="ended the process"):
        process.ask(30, {"kind": "add"})


@pytest.mark.slow
def test_a_process_ends_with_its_parent():
    code = (
        "import sys; from crowdshot.io.limited_process import LimitedProcess\n"
        "process = LimitedProcess('io.workbooks:sheets_in_process', 'x')\n"
        "print(process.process.pid, flush=True); sys.stdin.read()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and os.path.exists(f"/proc/{child}/status"):
        with open(f"/proc/{child}/status") as status:
            if "zombie" in status.read():
                break
        time.sleep(0.1)
    else:
        assert not os.path.exists(f"/proc/{child}/status")
