"""Progress: silent when quick, lines in logs, a bar on terminals."""

import io
import sys
import time

import pytest

from crowdshot import progress as module
from crowdshot.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.02)
    monkeypatch.setattr(module, "EVERY", 0.05)


def test_quick_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("embedding") as tick:
        for done in range(1000):
            tick(done + 1, 1000)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("impatient")
def test_slow_work_tells_lines_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("embedding") as tick:
        for done in range(20):
            time.sleep(0.01)
            tick(done + 1, 20)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[-1] == "embedding 20/20"
    assert 2 <= len(lines) <= 8
    assert all(line.startswith("embedding ") and line.endswith("/20") for line in lines)


@pytest.mark.usefixtures("impatient")
def test_work_without_ticks_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("fitting"):
        time.sleep(0.1)
    assert capsys.readouterr().err == "fitting …\n"


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
        time.sleep(0.05 / 0)
