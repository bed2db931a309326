"""Progress: silent when quick, lines in logs, a bar on terminals."""

import io
import sys
import time
from types import SimpleNamespace

import pytest

from crowdshot import progress as module
from crowdshot.progress import progress
from waiting import HANGS, until


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.02)
    monkeypatch.setattr(module, "EVERY", 0.05)


def test_quick_work_says_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", HANGS)
    with progress("embedding") as tick:
        for done in range(1000):
            tick(done + 1, 1000)
    assert capsys.readouterr() == ("", "")


def test_slow_work_tells_lines_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(module, "PATIENCE", HANGS)
    monkeypatch.setattr(module, "EVERY", HANGS / 2)
    with progress("embedding") as tick:
        for done in range(20):
            now[0] += HANGS / 10
            tick(done + 1, 20)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "embedding 10/20, about 10 min left",  # ten took ten minutes
        "embedding 15/20, about 5 min left",
        "embedding 20/20",
    ]


@pytest.mark.parametrize(("seconds", "spoken"), [(11, "11 s"), (119, "119 s"), (121, "2 min"), (7300, "2 h")])
def test_time_is_told_in_whole_units(seconds: float, spoken: str) -> None:
    assert module._spoken(seconds) == spoken


@pytest.mark.usefixtures("impatient")
def test_work_without_ticks_is_named_once() -> None:
    stream = io.StringIO()
    with progress("fitting", stream):
        until(stream.getvalue)
    assert stream.getvalue() == "fitting …\n"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("has_rich", [True, False])
def test_on_a_terminal_a_bar_where_rich_is_there(monkeypatch: pytest.MonkeyPatch, has_rich: bool) -> None:
    if has_rich:
        pytest.importorskip("rich")
    else:
        monkeypatch.setitem(sys.modules, "rich", None)
    terminal = Terminal()
    with progress("embedding", terminal) as tick:
        time.sleep(0.15)
        tick(3, 7)
    assert "embedding" in terminal.getvalue()
    assert "3/7" in terminal.getvalue()
    assert ("\x1b" in terminal.getvalue()) == has_rich


@pytest.mark.usefixtures("impatient")
def test_an_error_inside_passes_through() -> None:
    with pytest.raises(ZeroDivisionError), progress("embedding"):
        1 / 0  # noqa: B018
