"""Recognise names of the same item: paths, addresses, uploads and other spellings.

Label tools add folders, hosts, queries and prefixes to the name of a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from urllib.parse import unquote

import numpy as np
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from crowdshot.io.cells import Ids, fold
from crowdshot.io.file_names import PICTURES

PREFIX = re.compile(r"^[0-9a-f]{8}-(?=.)")  # prefix of files uploaded to Label Studio
UPLOADS = re.compile(r"(^|/)upload/\d+$")  # their folder, one per project
SUFFIX = re.compile(r"[^/][.][A-Za-z][A-Za-z0-9]{0,4}$")  # at the end of a file's name
ADDED = re.compile(
    r"[?#%\\]|(^|/)[0-9a-f]{8}-|[.][A-Za-z]*[A-Z][A-Za-z]*$"
)  # signs of a query, an escape, an upload prefix or an upper-case suffix
LEADING_ZEROS = re.compile(r"^0+(?=\d+$)")
MOST_COMPARED = 50_000  # items of several files, the first of each: files that write names differently do so throughout
MOST_FOLDERS = (
    8  # folders before a name in one file that another file omits; limits the work for texts with many slashes
)


def plainer(name: str) -> Iterator[PurePosixPath]:
    """Yield the path unchanged, as a URL without its query, and without Label Studio's upload prefix.

    ``/data/local-files/?d=photos/my%20cat.jpg`` and ``https://host/my%20cat.jpg?key=…`` both mean ``my cat.jpg``, and
    so does ``/data/upload/3/3f2a1b9c-my cat.jpg``.
    """
    yield PurePosixPath(name.replace("\\", "/"))
    path = PurePosixPath(address(name))
    yield path
    yield path.with_name(PREFIX.sub("", path.name)) if path.name else path


def address(name: str) -> str:
    """Return a URL's path without its query, or the path in the query's parameter d."""
    path = name.rpartition("?d=")[2].partition("?")[0].partition("#")[0]
    return unquote(path).replace("\\", "/")


def same_files(names: Iterable[str]) -> list[list[str]]:
    """Return groups of names that may mean the same picture.

    They differ only in what `plainer` removes and in the case of the suffix. Names in different folders, bare numbers,
    and items that differ only in the query are not grouped.
    """
    names = list(names)
    if not any(map(ADDED.search, names)):
        return []
    file, meant = pd.factorize(np.array([_file_meant(name) for name in names], dtype=object))
    shared = (np.bincount(file) > 1) & (meant != "")
    groups: dict[int, list[str]] = {}
    for place in np.flatnonzero(shared[file]).tolist():
        groups.setdefault(file[place], []).append(names[place])
    return [group for group in groups.values() if len(group) <= max(2, len(meant))]


def named_otherwise(files: Sequence[Ids]) -> list[list[str]]:
    """Return groups of items that may be the same, from label files that share no items.

    Files that are connected by a third file do not count as such. Examples are ``IMG_1.jpg`` in one file, ``img_1.jpg``
    in another and ``photos/IMG_1.jpg`` in a third, or 1 and 1.0, or 007 and 7, as a spreadsheet saves it, or a path in
    one file and an address in another.
    """
    item, names = pd.factorize(np.concatenate(files))
    file = np.repeat(np.arange(len(files)), [len(items) for items in files])
    n = len(names) + len(files)
    links = coo_array((np.ones(len(item)), (item, len(names) + file)), shape=(n, n))
    n_components, component = connected_components(links, directed=False)
    if n_components == 1:
        return []
    rank = pd.Series(component[: len(names)]).groupby(component[: len(names)]).cumcount()  # within the component
    called: dict[int, str] = {}
    by_tail: dict[str, list[int]] = {}  # items by the last parts of their paths
    for place in np.flatnonzero(rank < max(1, MOST_COMPARED // n_components)).tolist():
        called[place] = LEADING_ZEROS.sub("", fold(str(names[place]).replace("\\", "/")))
        parts = called[place].rsplit("/", MOST_FOLDERS)
        for start in range(len(parts)):
            by_tail.setdefault("/".join(parts[start:]), []).append(place)
    groups = [by_tail[path] for path in dict.fromkeys(called.values())]
    by_file: dict[str, list[int]] = {}
    for place in called:
        by_file.setdefault(fold(file_name(str(names[place]))), []).append(place)
    for group in by_file.values():
        if len({_host(str(names[place])) for place in group}) > 1:  # the folders of one host or disk differ on purpose
            groups = [each for each in groups if not set(group).issuperset(each)] + [group]
    return [
        [str(names[place]) for place in group] for group in groups if len({component[place] for place in group}) > 1
    ]


def file_name(item: str) -> str:
    """Return the name of the file that an item's path or address ends with; other items are returned unchanged.

    >>> file_name("https://example.org/a/7.png?size=2"), file_name("/data/upload/3/3f2a1b9c-7.png"), file_name("3/4")
    ('7.png', '7.png', '3/4')
    """
    folder, _, file = address(item).rpartition("/")
    if not SUFFIX.search(file):
        return item
    return PREFIX.sub("", file) if UPLOADS.search(folder) else file


def _host(item: str) -> str:
    """Return where an item's file is: a host, Label Studio's uploads or local files, or "" for a path."""
    if UPLOADS.search(address(item).rpartition("/")[0]):
        return "upload"
    return "local-files" if "?d=" in item else item.partition("://")[2].partition("/")[0]


def _file_meant(name: str) -> str:
    """Return a key that is equal for names of the same picture, or of the same file at a URL; "" for other names."""
    folder, _, file = address(name).rpartition("/")
    uploaded = PREFIX.match(file) is not None and not file[:8].isdigit()  # eight digits are a date: 20260304-cat.png
    stem, _, ending = (file[9:] if uploaded else file).rpartition(".")
    is_file = bool(stem) and (f".{ending.lower()}" in PICTURES or "://" in name[:10])
    if not is_file or stem.isdigit():
        return ""
    return f"{'' if uploaded and UPLOADS.search(folder) else folder}/{stem}.{ending.lower()}"
