"""Recognise image files by their names, expand patterns, list folders, and make names that are safe on every system."""

from __future__ import annotations

import glob
import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any, Literal

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import clean, listing, show, shown

# A file with one of these endings that Pillow cannot read is reported, not skipped.
# fmt: off
IMAGE_SUFFIXES = frozenset({
    ".avif", ".bmp", ".gif", ".heic", ".jfif", ".jpe", ".jpeg", ".jpg",
    ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp",
})
# fmt: on
PICTURES = (*sorted(IMAGE_SUFFIXES), ".svg")  # formats that label tools show, including one that Pillow cannot read
ENDINGS = tuple(IMAGE_SUFFIXES)
LONGEST_ENDING = max(map(len, ENDINGS))
LONGEST_PATH = 1_000  # characters
EXPORTS = (".json", ".jsonl", ".ndjson", ".xml", ".xlsx", ".zip")  # endings of files that are read one by one
TABLES = (".parquet", ".csv", ".tsv", ".txt")  # endings of the files that are read from a folder of tables
LONGEST = 120  # bytes of a safe name, which leaves room for a number and an ending
FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')  # characters that some system forbids in names
# Names of devices on Windows, whatever their ending.
DEVICES = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])(\..*)?", re.IGNORECASE)


def strings_in(X: Any) -> Literal["texts", "paths"] | None:
    """Return whether a list, Series or array of strings holds texts or paths of images; None for other input.

    Strings are paths if all end like image files, and texts if none does. A mixture counts as texts if the strings with
    an image ending do not name existing files ("see cat.png") and the others have several words. Any other mixture is
    an error, and so is a missing value among strings.
    """
    items = _listed(X)
    strings = [isinstance(item, str | os.PathLike) for item in items]
    if not any(strings):
        return None
    if not all(strings):
        odd = strings.index(False)
        if not _missing(items[odd]):
            return None  # an image object or an array among paths
        raise CrowdshotError(
            f"is {show(items[odd])}", where=f"X, item {odd}", found=items[odd], expected="text or the path of an image"
        )
    paths = [not isinstance(item, str) or item[-LONGEST_ENDING:].lower().endswith(ENDINGS) for item in items]
    if all(paths):
        return "paths"
    if any(paths) and not _prose(items, paths):
        one, other = (clean(items[paths.index(ends)], 60) for ends in (True, False))
        raise CrowdshotError(
            f"mixes the image path {one!r} with the text {other!r}",
            argument="X",
            found=[one, other],
            expected="either paths of images or texts",
        )
    if _is_file(items[0]):
        raise CrowdshotError(
            f"has the file {items[0]!r}, which is not an image",
            argument="X",
            found=items[0],
            expected="texts or paths of images",
            hint="To use the text in a file, read the file first",
        )
    return "texts"


def _prose(items: Sequence[Any], paths: Sequence[bool]) -> bool:
    """Return whether strings are sentences although some end like image files."""
    return all(
        isinstance(item, str) and (not _is_file(item) if path else len(item.split()) > 1)
        for item, path in zip(items, paths, strict=True)
    )


def _is_file(text: str) -> bool:
    return len(text) <= LONGEST_PATH and "\0" not in text and os.path.isfile(text)


def _listed(X: Any) -> Sequence[Any]:
    if isinstance(X, list | tuple):
        return X
    if getattr(X, "ndim", 0) == 1 and hasattr(X, "tolist") and not hasattr(X, "requires_grad"):
        return list(X.tolist())  # an array or a Series
    return ()


def _missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value)


def _of_exports(folder: Path) -> str | None:
    """Return how to name the exports of a label tool in a folder or in its folders, None if there are none."""
    for level in ("*", "*/*"):
        endings = sorted({file.suffix for file in folder.glob(level) if file.suffix.lower() in EXPORTS})
        if endings:
            return f"Use {folder}/{level}{endings[0]} to read the exports in it"
    return None


def expand(patterns: Sequence[Path]) -> list[Path]:
    """Replace folders by the tables in them and patterns by the files that match, each sorted by name."""
    out: list[Path] = []
    for pattern in patterns:
        if pattern.is_dir():
            found = sorted(file for file in pattern.iterdir() if file.suffix.lower() in TABLES)
            if not found:
                raise CrowdshotError(
                    "has no file of labels",
                    where=pattern,
                    expected=f"files that end in {listing(TABLES)}",
                    hint=_of_exports(pattern),
                )
        elif pattern.exists() or not glob.has_magic(str(pattern)):
            found = [pattern]
        else:
            found = [Path(name) for name in sorted(glob.glob(str(pattern), recursive=True)) if Path(name).is_file()]
            if not found:
                raise CrowdshotError("matches no file", where=pattern, expected="files of labels")
        out += found
    return out


def list_files(folder: str | os.PathLike[str], endings: Collection[str], what: str) -> dict[str, Path]:
    """Return all files below a folder that have one of the endings, sorted.

    Hidden files and folders are skipped; links to folders are not followed.

    Parameters
    ----------
    folder : path-like
    endings : collection of str
        Lower-case endings with the dot.
    what : str
        Name of these files in messages, such as "images".

    Returns
    -------
    dict
        Relative path with forward slashes -> path.
    """
    root = Path(folder)
    if not root.is_dir():
        problem = "is a file" if root.exists() else "does not exist"
        raise CrowdshotError(problem, where=shown(root), expected=f"a folder of {what}")

    def stop(error: OSError) -> None:
        raise CrowdshotError(f"could not be listed ({error.strerror})", where=shown(error.filename)) from error

    paths: dict[str, Path] = {}
    for here, folders, files in os.walk(root, onerror=stop):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(here, name)
            if not name.startswith(".") and path.suffix.lower() in endings:
                paths[path.relative_to(root).as_posix()] = path
    if not paths:
        raise CrowdshotError(
            f"holds no {what}", where=shown(root), expected=f"files that end in {' '.join(sorted(endings))}"
        )
    return dict(sorted(paths.items()))


def safe_name(name: object) -> str:
    """Return a file name that is valid on every system, stays in its folder and is not hidden.

    >>> safe_name("../etc/passwd"), safe_name("NUL"), safe_name("cat. "), safe_name("")
    ('_.._etc_passwd', '_NUL', 'cat', '_')
    """
    text = unicodedata.normalize("NFC", str(name).encode("utf-8", "replace").decode("utf-8"))
    text = FORBIDDEN.sub("_", text)
    text = "".join(c if c.isprintable() else "_" for c in text)  # such as marks that change the writing direction
    text = text.encode()[:LONGEST].decode("utf-8", "ignore").strip(" ").rstrip(". ")
    return f"_{text}" if not text or text.startswith((".", "__")) or DEVICES.fullmatch(text) else text


def safe_names(names: Iterable[object], taken: Iterable[str] = ()) -> list[str]:
    """Return a safe name for each name; numbers keep them distinct, also on systems that ignore case.

    >>> safe_names(["Cat", "cat", "a/b", "a_b"])
    ['Cat', 'cat (2)', 'a_b', 'a_b (2)']
    """
    used = {name.casefold() for name in taken}
    out = []
    for name in names:
        path = PurePath(safe_name(name))
        number, found = 1, path.name
        while found.casefold() in used:
            number += 1
            found = f"{path.stem} ({number}){path.suffix}"
        used.add(found.casefold())
        out.append(found)
    return out
