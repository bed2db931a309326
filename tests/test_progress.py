"""Progress: silent when quick, one line in place on a terminal, printed lines elsewhere."""

import io
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from crowdshot import progress as module
from crowdshot.progress import Line, Stage, counted, line_hidden, progress
from polling import TIMEOUT, wait_until

COMMAND = """
import time, typer
from crowdshot import progress
from crowdshot._cli.console import handle_errors, note
progress.PATIENCE = progress.REFRESH = progress.EVERY = 0.02
shown, text = [], progress.Stage.text
progress.Stage.text = lambda stage: shown.append(text(stage)) or shown[-1]

def wait() -> None:
    end = len(shown) + 2  # the first of two was printed
    while len(shown) < end:
        time.sleep(0.01)

def command() -> None:
    with progress.progress("embedding") as tick:
        tick(3, 7)
        wait()
        note("a note")
        wait()
    with progress.progress("fitting"):
        wait()
    print("done", flush=True)

app = typer.Typer()
app.command()(handle_errors(command))
app()
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.02)
    monkeypatch.setattr(module, "REFRESH", 0.02)
    monkeypatch.setattr(module, "EVERY", 0.02)


def test_quick_work_prints_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", TIMEOUT)
    with progress("embedding") as tick:
        for done in range(1000):
            tick(done + 1, 1000)
    assert capsys.readouterr() == ("", "")


def test_remaining_time_is_estimated_from_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    stage = Stage("embedding", io.StringIO())
    now[0] = 12.0
    assert stage.text() == "embedding, 12 s"
    stage.tick(0, 20)
    assert stage.text() == "embedding 0/20, 12 s"
    now[0] = 600.0
    stage.tick(10, 20)
    assert stage.text() == "embedding 10/20, about 10 min left"  # ten took ten minutes
    now[0] = 900.0
    assert stage.text() == "embedding 10/20, about 5 min left"
    now[0] = 9000.0
    assert stage.text() == "embedding 10/20, about 1 s left"
    stage.tick(20, 20)
    assert stage.text() == "embedding 20/20, 2 h"


@pytest.mark.parametrize(("seconds", "spoken"), [(11, "11 s"), (119, "119 s"), (121, "2 min"), (7300, "2 h")])
def test_time_is_in_whole_units(seconds: float, spoken: str) -> None:
    assert module._spoken(seconds) == spoken


@pytest.mark.usefixtures("impatient")
def test_lines_without_a_terminal() -> None:
    stream = io.StringIO()
    with progress("fitting", stream) as tick:
        wait_until(lambda: "fitting, 0 s\n" in stream.getvalue())
        tick(3, 7)
        wait_until(lambda: "fitting 3/7, about 1 s left\n" in stream.getvalue())
    assert "\r" not in stream.getvalue()


@pytest.mark.usefixtures("impatient")
def test_a_loop_counts_in_the_stage_around_it() -> None:
    stream = Terminal()
    with progress("checking", stream):
        for step in counted(["a", "b", "c"]):
            if step == "c":
                wait_until(lambda: "checking 2/3, about 1 s left" in stream.getvalue())
    assert list(counted([1, 2])) == [1, 2], "without a stage"


@pytest.mark.usefixtures("impatient")
def test_the_innermost_stage_is_shown() -> None:
    stream = Terminal()
    with progress("writing", stream):
        wait_until(lambda: "writing" in stream.getvalue())
        with progress("drawing", stream):
            wait_until(lambda: stream.getvalue().count("drawing") >= 3)
            before, _, after = stream.getvalue().partition("\rdrawing")
            assert before.endswith(" \r"), "the outer stage is erased"
            assert "writing" not in after
        wait_until(lambda: stream.getvalue().rpartition("drawing")[2].count("writing"))


def test_a_line_is_cut_at_the_width_of_the_terminal_and_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((10, 24)))
    stream = Terminal()
    line = Line(stream)
    line.rewrite("twelve words")
    line.rewrite("two")
    line.erase()
    line.erase()
    assert stream.getvalue() == "\rtwelve wo\rtwo      \r   \r"


@pytest.mark.usefixtures("impatient")
def test_a_line_is_hidden_while_something_else_is_printed() -> None:
    stream = Terminal()
    with progress("embedding", stream):
        wait_until(stream.getvalue)
        with line_hidden():
            assert stream.getvalue().endswith(" \r")


@pytest.mark.usefixtures("impatient")
def test_an_error_inside_passes_through() -> None:
    with pytest.raises(ZeroDivisionError), progress("embedding"):
        1 / 0  # noqa: B018
    assert not module._stages


def test_a_command_prints_its_stages_as_lines() -> None:
    command = [sys.executable, "-c", COMMAND]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True)
    assert done.stdout == "done\n"
    *_, counted, note, fitting = dict.fromkeys(done.stderr.splitlines())
    assert (counted, note) == ("embedding 3/7, about 1 s left", "crowdshot: note: a note")
    assert fitting.startswith("fitting, ")


@pytest.mark.skipif(sys.platform == "win32", reason="has no pseudo-terminals")
def test_a_command_rewrites_one_line_of_a_terminal() -> None:
    import pty

    reading, writing = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, stderr=writing)
    os.close(writing)
    shown = b""
    while True:
        try:
            part = os.read(reading, 4096)
        except OSError:  # Linux reports the closed terminal in this way
            part = b""
        if not part:
            break
        shown += part
    os.close(reading)
    assert process.communicate(timeout=TIMEOUT)[0] == b"done\n"
    text = shown.decode()
    assert "\rembedding 3/7, about 1 s left" in text
    assert "\rfitting, " in text
    assert text.count("\n") == 1, "only the note stays"
    assert " \rcrowdshot: note: a note\r\n" in text
    assert text.endswith(" \r"), "the last stage is erased"
