"""Files that are complete or not there at all."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import platform
import re
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2s
from pathlib import Path
from typing import IO

import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import digits
from crowdshot.io.formulas import guarded

# ---- leftovers ------------------------------------------------------------
#
# What is on its way to its place has a name that tells who writes it, so that what dead processes left can go.
#
# And processes that were started for one that died end with it.


HERE = blake2s(platform.node().encode(), digest_size=4).hexdigest()  # of processes elsewhere nothing is known
UNFINISHED, SET_ASIDE = "tmp", "old"  # endings: what is being written; the old folder until the new one is in its place


def passing_name(target: Path, ending: str = UNFINISHED) -> Path:
    """A hidden name beside the target that nobody else takes."""
    return target.with_name(f".{target.name}.{HERE}-{os.getpid()}-{secrets.token_hex(4)}.{ending}")


def mend(target: Path) -> None:
    """Take away what dead processes left beside the target; if one died between two renames, put the old back."""
    form = re.compile(rf"\.{re.escape(target.name)}\.{HERE}-(\d+)-[0-9a-f]{{8}}\.({UNFINISHED}|{SET_ASIDE})")
    with suppress(OSError):  # it is no harm where it stays
        for name in os.listdir(target.parent):
            found = form.fullmatch(name)
            if found is None or _is_alive(int(found[1])):
                continue
            rest = target.with_name(name)
            if found[2] == SET_ASIDE and not target.exists():
                rest.rename(target)
            elif rest.is_dir():
                shutil.rmtree(rest, ignore_errors=True)
            else:
                rest.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """`mend` all that dead processes left in a folder, whatever it was to be."""
    form = re.compile(rf"\.(.+)\.{HERE}-\d+-[0-9a-f]{{8}}\.({UNFINISHED}|{SET_ASIDE})")
    with suppress(OSError):
        for found in filter(None, map(form.fullmatch, os.listdir(folder))):
            mend(folder / found[1])


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # where the signal 0 is none that only asks
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def end_with_parent() -> None:
    """In a process that waits for work: end when who gives it is killed, and not wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# ---- exchange ------------------------------------------------------------
#
# Two folders change names in one step, or one takes the other's place in two.


AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux


def take_place(new: Path, target: Path) -> Path | None:
    """``new`` becomes ``target``; where the folder is then that was there before, None if there was none.

    One step where the system can; else there is a moment without any, which `leftovers.mend` mends if it was the last.
    """
    try:
        os.rename(new, target)  # takes the place of nothing, or of an empty folder
        return None
    except OSError:
        if not target.is_dir():
            raise
    if _exchange(new, target):
        return new
    old = passing_name(target, SET_ASIDE)
    os.rename(target, old)
    try:
        os.rename(new, target)
    except OSError:
        os.rename(old, target)
        raise
    return old


def _exchange(one: Path, other: Path) -> bool:
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):  # another system, or an old one
        return False
    done = renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)
    return bool(done == 0)


# ---- whole ------------------------------------------------------------


INSIDE = "results"  # what is written into a folder that may not be replaced is called so meanwhile
OPEN_FILES = ("/dev/std", "/dev/fd/", "/proc/")  # names of what the process has open, be it a file


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """A name to write to, which becomes ``out`` when the block is done; of a failure nothing stays.

    What ``out`` links to is replaced, and keeps its permissions; a pipe or a device is written to as it is.
    """
    try:
        target = out.resolve() if out.is_symlink() else out
    except RuntimeError as error:  # links in a circle
        raise CrowdshotError(f"{out} could not be written ({error}).") from None
    temporary = passing_name(target)
    mend(target)
    try:
        if (out.exists() and not out.is_file()) or str(out.absolute()).startswith(OPEN_FILES):
            yield out
            return
        yield temporary
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except OSError as error:
        raise CrowdshotError(f"{out} could not be written ({error.strerror or error}).") from error
    finally:
        with suppress(OSError):  # it is gone when all went well
            temporary.unlink()


Writers = Mapping[str, Callable[[Path], None]]
"""File name -> what writes it, given the path."""

# ---- tables -----------------------------------------------------------------------------------------------------
TABLES = ("", ".csv", ".txt")  # endings of files that hold CSV


def write_csv(table: pd.DataFrame, target: Path | IO[str], header: bool = True) -> None:
    """For people: UTF-8, six digits, formulas made harmless if that was asked for."""
    write_exactly(guarded(table), target, header)


def write_exactly(table: pd.DataFrame, target: Path | IO[str], header: bool = True) -> None:
    """The same for programs, whose cells are never changed."""
    table.to_csv(target, index=False, header=header, float_format=digits, lineterminator="\n")


@contextmanager
def written(out: Path) -> Iterator[IO[str]]:
    """A file to write text to, bit by bit; complete or not there at all."""
    with replacing(out) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        yield file


def csv_writers(tables: Mapping[str, pd.DataFrame]) -> Writers:
    return {f"{name}.csv": lambda path, table=table: write_csv(table, path) for name, table in tables.items()}  # type: ignore[misc]


def check_folder(out: Path, overwrite: bool) -> None:
    """To be called before the work: may results go into this folder?"""
    for place in (out.absolute(), out.absolute() / INSIDE):
        mend(place)
    try:
        if out.is_dir():
            if not overwrite and any(out.iterdir()):
                raise CrowdshotError(
                    f"{out} is not empty, expected a new or empty folder; overwrite=True writes into it."
                )
            writable = out
        else:
            if out.exists() or out.is_symlink():
                raise CrowdshotError(f"{out} is a file, expected a folder to write to.")
            writable = next(parent for parent in out.absolute().parents if parent.exists())
    except OSError as error:
        raise CrowdshotError(f"{out} could not be written to ({error.strerror or error}).") from None
    if not writable.is_dir() or not os.access(writable, os.W_OK | os.X_OK):
        found = "may not be written to" if writable.is_dir() else "is a file"
        raise CrowdshotError(f"{out} is below {writable}, which {found}, expected a folder that may be written to.")


def write_folder(out: Path, writers: Writers, overwrite: bool = False) -> list[Path]:
    """Write every file into a hidden folder beside ``out``, which then takes its place; of a failure nothing stays.

    Other files in ``out`` are carried over. Where it is a disk of its own, someone's working directory, or may not be
    replaced, files are moved into it one by one; a kill between two moves leaves new beside old there, and only there.
    """
    check_folder(out, overwrite)
    target = out.resolve()
    made = [folder for folder in (target, *target.parents) if not folder.exists()]
    whole = _may_be_replaced(target)
    temporary = passing_name(target) if whole else passing_name(target / INSIDE)
    complete = False
    try:
        (target.parent if whole else target).mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        for name, write in writers.items():
            write(temporary / name)
        if whole:
            _put_in_place(temporary, target, writers)
        else:
            for name in writers:
                _move(temporary / name, target / name)
        complete = True
    except OSError as error:
        raise CrowdshotError(f"{out} could not be written ({error.strerror or error}).") from error
    except CrowdshotError as error:  # which names a file that is about to go
        raise CrowdshotError(str(error).replace(str(temporary), str(out))) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if not complete:
            for folder in made:
                with suppress(OSError):  # not empty: someone else uses it
                    folder.rmdir()
    return [out / name for name in writers]


def _may_be_replaced(target: Path) -> bool:
    above = next(folder for folder in target.parents if folder.exists())
    here = Path.cwd()
    return os.access(above, os.W_OK | os.X_OK) and not target.is_mount() and target not in (here, *here.parents)


def _put_in_place(new: Path, target: Path, names: Collection[str]) -> None:
    if target.is_dir():
        _carry_over(target, new, names)
        shutil.copystat(target, new)
    old = take_place(new, target)
    if old is not None:
        for path in old.iterdir():  # what came while others were carried over
            if path.name not in names and not (target / path.name).exists():
                os.rename(path, target / path.name)
        shutil.rmtree(old, ignore_errors=True)


def _carry_over(target: Path, new: Path, names: Collection[str]) -> None:
    """What is not among ``names``, by links, so that the old folder is complete for as long as it is there."""

    def link(source: str, to: str) -> None:
        try:
            os.link(source, to, follow_symlinks=False)
        except OSError:  # not every disk has links
            shutil.copy2(source, to, follow_symlinks=False)

    for path in target.iterdir():
        if path.name in names:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, new / path.name, symlinks=True, copy_function=link)
        else:
            link(str(path), str(new / path.name))


def _move(source: Path, target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target)
    os.replace(source, target)


def check_table(out: Path, *inputs: Path | None, endings: Collection[str] = TABLES) -> None:
    """As `check_file`, for a file that will hold CSV."""
    check_file(out, *inputs)
    if not out.exists() and not os.access(out.absolute().parent, os.W_OK | os.X_OK):
        raise CrowdshotError(
            f"{out} is in the folder {out.parent}, which may not be written to, expected one that may."
        )
    if out.suffix.lower() not in endings:
        raise CrowdshotError(f"{out} is to hold CSV, expected a name that ends in .csv, which spreadsheets open too.")


def check_file(out: Path, *inputs: Path | None) -> None:
    """To be called before the work: may this file be written, and is it none of the inputs?"""
    try:
        is_folder = out.is_dir()
    except OSError as error:  # a name too long for the system
        raise CrowdshotError(f"{out} could not be written ({error.strerror}).") from None
    if is_folder:
        raise CrowdshotError(f"{out} is a folder, expected the name of a file to write.")
    if not out.absolute().parent.is_dir():
        raise CrowdshotError(f"{out} is in the folder {out.parent}, which does not exist, expected one that does.")
    for source in inputs:
        if source is not None and out.exists() and source.exists() and out.samefile(source):
            raise CrowdshotError(f"{out} is what is read, expected another file to write to.")


def write_file(out: Path, table: pd.DataFrame) -> None:
    """A table as a CSV file, complete or not at all."""
    with replacing(out) as temporary:
        write_csv(table, temporary)


# ---- safety ---------------------------------------------------------------------------------------------------------


def check_writable(file: Path) -> None:
    """Before hours of work: can this file be written? By trying, because only that tells."""
    check_file(file)
    try:
        with tempfile.TemporaryFile(dir=file.absolute().parent):
            pass
    except OSError as error:
        raise CrowdshotError(
            f"{file} could not be written to the folder {file.absolute().parent} ({error.strerror or error})."
        ) from None


# ---- placing ------------------------------------------------------------
#
# Files and folders that are there whole or not at all, though whoever writes them may be killed.


def put(target: Path, write: Callable[[Path], object], beside: Path | None = None) -> None:
    """``write`` is given another name, which then becomes the target's; ``beside``: the folder in which that is."""
    passing = (beside or target.parent) / f"{target.name}.{os.getpid()}-{secrets.token_hex(4)}"
    write(passing)
    os.replace(passing, target)
