"""Where a dataset's files are, and what to say when they are not there."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from crowdshot.errors import CrowdshotError
from crowdshot.files.cells import Ids
from crowdshot.files.downloads import Download, fetch
from crowdshot.files.tables import Table, read_bytes
from crowdshot.labels.positions import Positions
from crowdshot.wording import listing, shown


@dataclass(frozen=True)
class Part:
    """Something that a dataset is read from: the first of ``names`` that lies in its folder.

    ``advice`` ends the sentence that says it is absent: where to get it.
    """

    names: tuple[str, ...]
    advice: str
    download: Download | None = None


def find_parts(dataset: str, parts: Sequence[Part], folder: Path, download: bool) -> list[Path]:
    """The path of each part, fetched first where it is absent, can be fetched and ``download`` says so."""
    return [_find(dataset, part, folder, download) for part in parts]


def _find(dataset: str, part: Part, folder: Path, download: bool) -> Path:
    for path in (folder / name for name in part.names):
        if path.suffix == ".zip" and path.is_file() and not zipfile.is_zipfile(path):
            raise CrowdshotError(f"{dataset}: {shown(path)} is damaged or no zip, expected one; {part.advice}.")
        if path.exists():
            return path
    if download and part.download is not None:
        return fetch(part.download, folder)
    names = " or ".join(part.names)
    found = "has none" if folder.is_dir() else "does not exist"
    offer = ", or pass download=True" if part.download else "; it cannot be downloaded for you" if download else ""
    raise CrowdshotError(f"{dataset}: {shown(folder)} {found}, expected {names} in it; {part.advice}{offer}.")


def member(path: Path, name: str) -> bytes:
    """The file of that name in a folder or zip, the topmost where there are several; a file is that file itself."""
    if path.is_dir():
        inside = sorted(path.rglob(name), key=lambda file: (len(file.parts), file))
        if inside:
            return read_bytes(inside[0])
    elif path.suffix == ".zip":
        try:
            with zipfile.ZipFile(path) as archive:
                names = [other for other in archive.namelist() if PurePosixPath(other).name == name]
                if names:
                    return archive.read(min(names, key=lambda other: (other.count("/"), other)))
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
            raise CrowdshotError(f"{shown(path)} is damaged or encrypted ({error}), expected a zip.") from None
    elif path.name == name:
        return read_bytes(path)
    raise CrowdshotError(f"{shown(path)} has no file {name}, expected one.")


def column(table: Table, name: str) -> Ids:
    """(n,) the cells of the column of that name, as text."""
    return table.text(_place(table, name))


def whole_numbers(table: Table, name: str) -> Positions:
    """(n,) the cells of the column of that name, as whole numbers."""
    at = _place(table, name)
    numbers = table.numbers(at)
    for row in (numbers % 1 != 0).nonzero()[0]:  # NaN, for a blank cell, is unequal to anything
        raise CrowdshotError(f"{table.place(row, at)} is {table.text(at)[row]!r}, expected a whole number.")
    return numbers.astype("int64")


def _place(table: Table, name: str) -> int:
    if name not in table.header:
        raise CrowdshotError(f"{table.name} has the columns {listing(table.header)}, expected {name!r} among them.")
    return table.header.index(name)
