"""Write files and folders atomically: after a failure or a kill the target is the old version or the new one.

Files are written under a temporary name beside the target and then renamed. The temporary name contains the machine
and the process id, so that a later run can remove the leftovers of dead processes.
"""

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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2s
from itertools import chain
from pathlib import Path
from typing import IO

import pandas as pd

from crowdshot.errors import CrowdshotError, Use
from crowdshot.formatting import digits
from crowdshot.io.cells import guarded
from crowdshot.progress import counted

MACHINE = blake2s(platform.node().encode(), digest_size=4).hexdigest()  # process ids of other machines mean nothing
UNFINISHED, SET_ASIDE = "tmp", "old"  # endings: a file being written; the old folder while the new one replaces it
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # constants of Linux
RESULTS = "results"  # base of the temporary name inside a folder that cannot be replaced itself
OPEN_FILES = ("/dev/std", "/dev/fd/", "/proc/")  # names of files that the process has open
TABLES = ("", ".csv", ".txt")  # endings of CSV files
PAGES = (".html", ".htm")

Writers = Mapping[str, Callable[[Path], None]]
"""File name -> function that writes the file to the path that it gets."""

# ---- Temporary names and leftovers ----------------------------------------------------------------------------------


def temporary_name(target: Path, ending: str = UNFINISHED) -> Path:
    """Return a unique hidden name beside the target."""
    return target.with_name(f".{target.name}.{MACHINE}-{os.getpid()}-{secrets.token_hex(4)}.{ending}")


def remove_leftovers(target: Path) -> None:
    """Remove what dead processes left beside the target.

    If a process died between the two renames that replace a folder, the old folder is put back.
    """
    form = re.compile(rf"\.{re.escape(target.name)}\.{MACHINE}-(\d+)-[0-9a-f]{{8}}\.({UNFINISHED}|{SET_ASIDE})")
    with suppress(OSError):  # a leftover does no harm
        for name in os.listdir(target.parent):
            found = form.fullmatch(name)
            if found is None or _is_alive(int(found[1])):
                continue
            leftover = target.with_name(name)
            if found[2] == SET_ASIDE and not target.exists():
                leftover.rename(target)
            elif leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove all leftovers of dead processes in a folder, whatever their targets."""
    form = re.compile(rf"\.(.+)\.{MACHINE}-\d+-[0-9a-f]{{8}}\.({UNFINISHED}|{SET_ASIDE})")
    with suppress(OSError):
        for found in filter(None, map(form.fullmatch, os.listdir(folder))):
            remove_leftovers(folder / found[1])


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # on other systems signal 0 may end the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def end_with_parent() -> None:
    """End this worker process as soon as its parent process dies."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# ---- Single files ---------------------------------------------------------------------------------------------------


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """Yield a temporary path that becomes ``out`` at the end of the block; after an error nothing is left.

    If ``out`` is a link, the file that it points to is replaced and keeps its permissions. Pipes and devices are
    written to directly.
    """
    try:
        target = out.resolve() if out.is_symlink() else out
    except RuntimeError as error:  # a circle of links
        raise _not_written(out, str(error)) from None
    temporary = temporary_name(target)
    remove_leftovers(target)
    try:
        if (out.exists() and not out.is_file()) or str(out.absolute()).startswith(OPEN_FILES):
            yield out
            return
        yield temporary
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except OSError as error:
        raise _not_written(out, error) from error
    finally:
        with suppress(OSError):  # after a success it does not exist
            temporary.unlink()


@contextmanager
def written(out: Path) -> Iterator[IO[str]]:
    """Open a text file that appears at ``out`` only if the block succeeds."""
    with replacing(out) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        yield file


def put(target: Path, write: Callable[[Path], object], beside: Path | None = None) -> None:
    """Call ``write`` with a temporary path and rename the result to ``target``.

    Parameters
    ----------
    target : Path
    write : callable
        Writes a file or a folder to the path that it gets.
    beside : Path, optional
        Folder of the temporary path; by default that of the target.
    """
    temporary = (beside or target.parent) / f"{target.name}.{os.getpid()}-{secrets.token_hex(4)}"
    write(temporary)
    os.replace(temporary, target)


def write_csv(table: pd.DataFrame, target: Path | IO[str], header: bool = True) -> None:
    """Write a CSV table for people: six significant digits, and formulas escaped if ``excel_safe`` is active."""
    write_exactly(guarded(table), target, header)


def write_exactly(table: pd.DataFrame, target: Path | IO[str], header: bool = True) -> None:
    """Write a CSV table for programs: six significant digits, text cells unchanged."""
    table.to_csv(target, index=False, header=header, float_format=digits, lineterminator=line_end(table))


def line_end(table: pd.DataFrame) -> str:
    """Return the characters that end the lines of a CSV file.

    The CSV writer quotes a carriage return only if it is one of them. Unquoted, it would begin a new row.
    """
    texts = (column for _, column in table.items() if column.dtype.kind not in "biufc")
    cells = chain(table.columns, *texts)
    return "\r\n" if any("\r" in cell for cell in cells if isinstance(cell, str)) else "\n"


def write_file(out: Path, table: pd.DataFrame) -> None:
    """Write a table to a CSV file atomically."""
    with replacing(out) as temporary:
        write_csv(table, temporary)


def write_files(contents: Iterable[tuple[Path | None, pd.DataFrame | str]]) -> None:
    """Write tables to CSV files and texts to pages: all files or none. Contents without a file are skipped."""
    with ExitStack() as stack:
        for out, content in contents:
            if out is None:
                continue
            temporary = stack.enter_context(replacing(out))
            if isinstance(content, str):
                temporary.write_text(content, encoding="utf-8", newline="\n")
            else:
                write_csv(content, temporary)


def csv_writers(tables: Mapping[str, pd.DataFrame]) -> Writers:
    """Return a writer of ``<name>.csv`` for each table, for `write_folder`."""
    return {f"{name}.csv": lambda path, table=table: write_csv(table, path) for name, table in tables.items()}  # type: ignore[misc]


# ---- Checks before the work starts ----------------------------------------------------------------------------------


def check_file(out: Path, *inputs: Path | None) -> None:
    """Refuse an output file that is a folder, lies in no folder, or is one of the input files."""
    try:
        is_folder = out.is_dir()
    except OSError as error:  # a name too long for the system
        raise _not_written(out, error) from None
    if is_folder:
        raise CrowdshotError("is a folder", where=out, expected="the name of a file to write")
    if not out.absolute().parent.is_dir():
        raise CrowdshotError(
            f"is in the folder {out.parent}, which does not exist", where=out, expected="one that does"
        )
    for source in inputs:
        if source is not None and out.exists() and source.exists() and out.samefile(source):
            raise CrowdshotError("is an input file and would be overwritten", where=out, hint="Choose another name")


def check_table(out: Path, *inputs: Path | None, endings: Collection[str] = TABLES) -> None:
    """Check an output file as `check_file` does, and that its ending fits CSV."""
    check_file(out, *inputs)
    if not out.exists() and not os.access(out.absolute().parent, os.W_OK | os.X_OK):
        raise CrowdshotError(f"cannot be created: no permission to write to the folder {out.parent}", where=out)
    if out.suffix.lower() not in endings:
        raise CrowdshotError(
            "is not a name for a CSV file",
            where=out,
            found=out.suffix,
            expected="a name that ends in .csv, which spreadsheets open too",
        )


def check_page(out: Path, *inputs: Path | None, argument: str = "page") -> None:
    """Check an output file as `check_file` does, and that it has the name of an HTML file."""
    check_file(out, *inputs)
    if out.suffix.lower() not in PAGES:
        raise CrowdshotError(f"is {out}", argument=argument, found=out, expected="a name that ends in .html")


def check_outputs(tables: Mapping[str, Path | None], *inputs: Path | None, page: Path | None = None) -> list[Path]:
    """Check the tables and the page that a command writes, and that all tables have files of their own.

    The keys of ``tables`` are the arguments. Return the files that are not None, in this order, the page last.
    """
    files: list[Path] = []
    for argument, out in tables.items():
        if out is not None:
            check_table(out, *inputs)
            if out.resolve() in [file.resolve() for file in files]:
                message = f"is {out}, which is also the file of another table"
                raise CrowdshotError(message, argument=argument, found=out, expected="another file")
            files.append(out)
    if page is None:
        return files
    check_page(page, *inputs)
    return [*files, page]


def check_writable(file: Path) -> None:
    """Refuse a file whose folder cannot be written to.

    The function creates a temporary file there, because permissions alone do not tell (quotas, read-only disks).
    """
    check_file(file)
    try:
        with tempfile.TemporaryFile(dir=file.absolute().parent):
            pass
    except OSError as error:
        reason = error.strerror or error
        raise CrowdshotError(
            f"could not be written to the folder {file.absolute().parent} ({reason})", where=file
        ) from None


def check_folder(out: Path, overwrite: bool) -> None:
    """Refuse an output folder that cannot be written to, or that is not empty unless ``overwrite`` is true."""
    for place in (out.absolute(), out.absolute() / RESULTS):
        remove_leftovers(place)
    try:
        if out.is_dir():
            if not overwrite and any(out.iterdir()):
                raise CrowdshotError(
                    "is not empty",
                    where=out,
                    expected="a new or empty folder",
                    hint=Use("to write into it anyway", overwrite=True),
                )
            writable = out
        else:
            if out.exists() or out.is_symlink():
                raise CrowdshotError("is a file", where=out, expected="a folder to write to")
            writable = next(parent for parent in out.absolute().parents if parent.exists())
    except OSError as error:
        raise CrowdshotError(f"could not be written to ({error.strerror or error})", where=out) from None
    if not writable.is_dir():
        raise CrowdshotError(f"cannot be created: {writable} is a file", where=out)
    if not os.access(writable, os.W_OK | os.X_OK):
        raise CrowdshotError(f"cannot be written: no permission to write to {writable}", where=out)


# ---- Folders --------------------------------------------------------------------------------------------------------


def write_folder(out: Path, writers: Writers, overwrite: bool = False) -> list[Path]:
    """Write files into a hidden folder beside ``out``, which then replaces ``out``; after an error nothing is left.

    Other files in ``out`` are kept. The folder itself cannot be replaced if it is a mount point, a parent of the
    working directory, or in a read-only folder. Then the files are moved into it one by one, and a kill between two
    moves leaves new files beside old ones.

    Parameters
    ----------
    out : Path
    writers : mapping
        File name -> function that writes the file.
    overwrite : bool
        Whether ``out`` may already contain files.

    Returns
    -------
    list of Path
        The files written.
    """
    check_folder(out, overwrite)
    target = out.resolve()
    created = [folder for folder in (target, *target.parents) if not folder.exists()]
    replaceable = _is_replaceable(target)
    temporary = temporary_name(target) if replaceable else temporary_name(target / RESULTS)
    complete = False
    try:
        (target.parent if replaceable else target).mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        for name, write in counted(list(writers.items())):
            write(temporary / name)
        if replaceable:
            _replace_folder(temporary, target, writers)
        else:
            for name in writers:
                _move(temporary / name, target / name)
        complete = True
    except OSError as error:
        raise _not_written(out, error) from error
    except CrowdshotError as error:
        error.message = error.message.replace(str(temporary), str(out))
        error.where = error.where and error.where.replace(str(temporary), str(out))
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if not complete:
            for folder in created:
                with suppress(OSError):  # not empty: another process uses it
                    folder.rmdir()
    return [out / name for name in writers]


def _is_replaceable(target: Path) -> bool:
    above = next(folder for folder in target.parents if folder.exists())
    here = Path.cwd()
    return os.access(above, os.W_OK | os.X_OK) and not target.is_mount() and target not in (here, *here.parents)


def _replace_folder(new: Path, target: Path, names: Collection[str]) -> None:
    if target.is_dir():
        link_other_files(target, new, names)
        shutil.copystat(target, new)
    old = rename_over(new, target)
    if old is not None:
        for path in old.iterdir():  # files that other processes added meanwhile
            if path.name not in names and not (target / path.name).exists():
                os.rename(path, target / path.name)
        shutil.rmtree(old, ignore_errors=True)


def link_other_files(target: Path, new: Path, names: Collection[str]) -> None:
    """Hard-link all files of ``target`` except ``names`` into ``new``; the old folder stays complete until the end."""

    def link(source: str, to: str) -> None:
        try:
            os.link(source, to, follow_symlinks=False)
        except OSError:  # some file systems have no hard links
            shutil.copy2(source, to, follow_symlinks=False)

    for path in target.iterdir():
        if path.name in names:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, new / path.name, symlinks=True, copy_function=link)
        else:
            link(str(path), str(new / path.name))


def rename_over(new: Path, target: Path) -> Path | None:
    """Rename folder ``new`` to ``target`` and return the new path of the old folder, None if there was none.

    This is one atomic step if the system can exchange two names. Otherwise ``target`` is missing for a moment; if the
    process dies then, `remove_leftovers` restores the old folder.
    """
    try:
        os.rename(new, target)  # succeeds if the target does not exist or is an empty folder
        return None
    except OSError:
        if not target.is_dir():
            raise
    if _exchange(new, target):
        return new
    old = temporary_name(target, SET_ASIDE)
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
    except (OSError, AttributeError, TypeError):  # not Linux, or an old kernel
        return False
    done = renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)
    return bool(done == 0)


def _move(source: Path, target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target)
    os.replace(source, target)


def _not_written(out: Path, reason: OSError | str) -> CrowdshotError:
    reason = reason if isinstance(reason, str) else reason.strerror or str(reason)
    return CrowdshotError(f"could not be written ({reason})", where=out)
