"""How the names of image files end, and whether strings are such names or texts."""

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

# Listed here means looked at: a file of these kinds that Pillow cannot read is reported, not passed over.
# fmt: off
IMAGE_SUFFIXES = frozenset({
    ".avif", ".bmp", ".gif", ".heic", ".jfif", ".jpe", ".jpeg", ".jpg",
    ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp",
})
# fmt: on
PICTURES = (*sorted(IMAGE_SUFFIXES), ".svg")  # what label tools show, whether Pillow can read it or not
ENDINGS = tuple(IMAGE_SUFFIXES)
LONGEST_ENDING = max(map(len, ENDINGS))
LONGEST_PATH = 1_000  # characters


def strings_in(X: Any) -> Literal["texts", "paths"] | None:
    """What a list, Series or array of strings holds; None for anything else.

    Strings that all end as image files do are paths, and if none does they are texts. A mixture is texts where those
    that end otherwise have several words, and no file is called as the others are ("see cat.png"); else it is an error,
    and so is a missing one among them.
    """
    items = _listed(X)
    strings = [isinstance(item, str | os.PathLike) for item in items]
    if not any(strings):
        return None
    if not all(strings):
        odd = strings.index(False)
        if not _missing(items[odd]):
            return None  # a picture or an array beside paths
        raise CrowdshotError(f"X, item {odd} is {show(items[odd])}, expected text or the path of an image.")
    paths = [not isinstance(item, str) or item[-LONGEST_ENDING:].lower().endswith(ENDINGS) for item in items]
    if all(paths):
        return "paths"
    if any(paths) and not _prose(items, paths):
        one, other = (clean(items[paths.index(ends)], 60) for ends in (True, False))
        raise CrowdshotError(
            f"X has {one!r}, which ends as an image file does, and {other!r}, which does not, expected either paths of"
            " images or texts."
        )
    if _is_file(items[0]):
        raise CrowdshotError(
            f"X has {items[0]!r}, which is a file but no image, expected texts or paths of images; read the file first."
        )
    return "texts"


def _prose(items: Sequence[Any], paths: Sequence[bool]) -> bool:
    """Whether strings, of which some end as image files do, are sentences all the same."""
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


# ---- patterns ------------------------------------------------------------
#
# Files by patterns and folders, for who has more of them than a line holds.


TABLES = (".parquet", ".csv", ".tsv", ".txt")  # what is read of a folder


def expand(patterns: Sequence[Path]) -> list[Path]:
    """Files, the tables in folders, and what matches patterns: of each those sorted by name."""
    out: list[Path] = []
    for given in patterns:
        if given.is_dir():
            found = sorted(file for file in given.iterdir() if file.suffix.lower() in TABLES)
            if not found:
                raise CrowdshotError(f"{given} has no file of labels, expected some that end in {listing(TABLES)}.")
        elif given.exists() or not glob.has_magic(str(given)):
            found = [given]
        else:
            found = [Path(name) for name in sorted(glob.glob(str(given), recursive=True)) if Path(name).is_file()]
            if not found:
                raise CrowdshotError(f"{given} matches no file, expected some of labels.")
        out += found
    return out


# ---- folders ------------------------------------------------------------
#
# What lies below a folder.


def list_files(folder: str | os.PathLike[str], endings: Collection[str], what: str) -> dict[str, Path]:
    """All files below ``folder`` that end so: path relative to it, with forward slashes -> path; sorted.

    Hidden files and folders are passed over, links to folders are not followed. ``what``: as messages call them.
    """
    root = Path(folder)
    if not root.is_dir():
        found = "is a file" if root.exists() else "does not exist"
        raise CrowdshotError(f"{shown(root)} {found}, expected a folder of {what}.")

    def stop(error: OSError) -> None:
        raise CrowdshotError(f"{shown(error.filename)} could not be listed ({error.strerror}).") from error

    paths: dict[str, Path] = {}
    for here, folders, files in os.walk(root, onerror=stop):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(here, name)
            if not name.startswith(".") and path.suffix.lower() in endings:
                paths[path.relative_to(root).as_posix()] = path
    if not paths:
        raise CrowdshotError(f"{shown(root)} holds no {what}, expected some of {' '.join(sorted(endings))}.")
    return dict(sorted(paths.items()))


# ---- safe names ------------------------------------------------------------
#
# Names for files and folders, made of names that may be anything.


LONGEST = 120  # bytes, which leaves room for a number and an ending
# what no name may hold on some system; and names that mean a device on Windows, whatever their ending
FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')
DEVICES = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])(\..*)?", re.IGNORECASE)


def safe_name(name: object) -> str:
    """One that every system takes, that leads out of no folder, and that no tool takes for hidden.

    >>> safe_name("../etc/passwd"), safe_name("NUL"), safe_name("cat. "), safe_name("")
    ('_.._etc_passwd', '_NUL', 'cat', '_')
    """
    text = unicodedata.normalize("NFC", str(name).encode("utf-8", "replace").decode("utf-8"))
    text = FORBIDDEN.sub("_", text)
    text = "".join(c if c.isprintable() else "_" for c in text)  # marks that turn the text around, for instance
    text = text.encode()[:LONGEST].decode("utf-8", "ignore").strip(" ").rstrip(". ")
    return f"_{text}" if not text or text.startswith((".", "__")) or DEVICES.fullmatch(text) else text


def safe_names(names: Iterable[object], taken: Iterable[str] = ()) -> list[str]:
    """One for each, all different even where case does not count; a number tells those apart that would be the same.

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
