"""Check that files and folders are complete or absent, whenever a process dies."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crowdshot.errors import CrowdshotError
from crowdshot.io import atomic
from crowdshot.io.atomic import SET_ASIDE, check_folder, replacing, sweep, temporary_name, write_folder
from polling import TIMEOUT

OLD, NEW = {"a.csv": "old a", "b.csv": "old b"}, {"a.csv": "new a", "b.csv": "new b"}


def writers(content):
    return {name: lambda path, text=text: path.write_text(text) for name, text in content.items()}


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(params=["exchanged", "renamed twice", "moved one by one"])
def way(request, monkeypatch, tmp_path):
    if request.param != "exchanged":
        monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    if request.param == "moved one by one":
        (tmp_path / "out").mkdir()
        monkeypatch.chdir(tmp_path / "out")
    return request.param


def test_new_files_and_files_of_the_user(way, tmp_path):
    out = tmp_path / "out"
    write_folder(out, writers(OLD), overwrite=True)
    (out / "notes").mkdir()
    (out / "notes" / "mine.txt").write_text("mine")
    (out / "link").symlink_to("a.csv")
    out.chmod(0o750)
    write_folder(out, {**writers(NEW), "pages": lambda path: path.mkdir()}, overwrite=True)
    assert files(out) == {**NEW, "notes/mine.txt": "mine", "link": "new a"}
    assert (out / "link").is_symlink()
    assert out.stat().st_mode & 0o777 == 0o750
    assert os.listdir(tmp_path) == ["out"]


def test_a_failure_keeps_the_old_content(way, tmp_path):
    out = tmp_path / "out"
    write_folder(out, writers(OLD), overwrite=True)

    def fail(path):
        raise OSError(28, "No space left on device")

    with pytest.raises(CrowdshotError, match=r"out could not be written \(No space left on device\)"):
        write_folder(out, {**writers(NEW), "c.csv": fail}, overwrite=True)
    assert files(out) == OLD
    assert os.listdir(tmp_path) == ["out"]


# Replaces a folder and kills itself at the n-th file system operation.
DIES = """
import os, shutil, signal, sys
from pathlib import Path
from crowdshot.io import atomic
from crowdshot.io.atomic import write_folder
last, exchanged = int(sys.argv[2]), sys.argv[3] == "True"
def counted(step):
    def wrapped(*args, **kwargs):
        global last
        last -= 1
        if last < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(*args, **kwargs)
    return wrapped
for name in ("rename", "replace", "link", "mkdir", "unlink", "rmdir"):
    setattr(os, name, counted(getattr(os, name)))
atomic._exchange = counted(atomic._exchange) if exchanged else lambda one, other: False
files = {name: lambda path, name=name: path.write_text(f"new {name[0]}") for name in ("a.csv", "b.csv")}
write_folder(Path(sys.argv[1]), files, overwrite=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("exchanged", [True, False])
def test_a_kill_at_any_step_leaves_old_or_new_content(tmp_path, exchanged):
    seen = set()
    for step in range(30):
        out = tmp_path / str(step) / "out"
        out.mkdir(parents=True)
        for name, text in {**OLD, "mine.txt": "mine"}.items():
            (out / name).write_text(text)
        done = subprocess.run([sys.executable, "-c", DIES, out, str(step), str(exchanged)], timeout=TIMEOUT)
        assert done.returncode in (0, -signal.SIGKILL)
        check_folder(out, overwrite=True)  # as the next run does first
        found = files(out)
        assert found in ({**OLD, "mine.txt": "mine"}, {**NEW, "mine.txt": "mine"})
        seen.add(found["a.csv"])
        assert os.listdir(out.parent) == ["out"]
        if done.returncode == 0:
            break
    assert done.returncode == 0
    assert seen == {"old a", "new a"}


def test_files_of_running_processes_stay(tmp_path):
    mine = temporary_name(tmp_path / "out")
    mine.mkdir()
    other = tmp_path / mine.name.replace(f"-{os.getpid()}-", "-1-")  # process 1 always exists
    other.mkdir()
    check_folder(tmp_path / "out", overwrite=False)
    assert mine.is_dir()
    assert other.is_dir()


def test_old_content_is_restored_only_if_nothing_replaced_it(tmp_path):
    dead = str(_dead_process())
    for name, content in (("one", {}), ("two", NEW)):
        aside = Path(str(temporary_name(tmp_path / name, SET_ASIDE)).replace(f"-{os.getpid()}-", f"-{dead}-"))
        for folder, held in ((aside, OLD), (tmp_path / name, content)):
            for file, text in held.items():
                folder.mkdir(exist_ok=True)
                (folder / file).write_text(text)
        check_folder(tmp_path / name, overwrite=True)
    assert files(tmp_path / "one") == OLD
    assert files(tmp_path / "two") == NEW
    assert sorted(os.listdir(tmp_path)) == ["one", "two"]


def test_leftovers_of_a_dead_process_for_a_file_are_removed(tmp_path):
    rest = str(temporary_name(tmp_path / "a.csv")).replace(f"-{os.getpid()}-", f"-{_dead_process()}-")
    Path(rest).write_text("half")
    with replacing(tmp_path / "a.csv") as temporary:
        temporary.write_text("whole")
    assert files(tmp_path) == {"a.csv": "whole"}


def test_leftovers_of_dead_processes_for_any_file_are_removed(tmp_path):
    for name in ("a.csv", "b.json"):
        living = temporary_name(tmp_path / name)
        for rest in (living, Path(str(living).replace(f"-{os.getpid()}-", f"-{_dead_process()}-"))):
            rest.write_text("half")
    (tmp_path / ".c.tmp").write_text("mine")
    sweep(tmp_path)
    left = sorted(os.listdir(tmp_path))
    assert len(left) == 3
    assert all(f"-{os.getpid()}-" in name or name == ".c.tmp" for name in left)


def _dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(TIMEOUT)
    return process.pid
