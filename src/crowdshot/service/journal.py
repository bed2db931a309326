"""Keep all labels in an append-only SQLite journal.

Labels are on disk before they are acknowledged, and rows are never changed. A withdrawn label is a row without a label.
The journal also records the versions of the model: their numbers stay unique and the live page can show the progress.

SQLite does not notice flipped bits in text, and drops the newest rows if its write-ahead log is damaged. So each row
has a checksum, which covers the number of the previous row, and the file `HEAD` records the last acknowledged row. A
journal in which something is missing or changed is refused; `salvage` keeps its intact rows.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from crowdshot.errors import CrowdshotError, Use
from crowdshot.formatting import shown

NAME = "journal.sqlite"
HEAD = "journal.head"
TABLES = """
CREATE TABLE IF NOT EXISTS labels (
    row INTEGER PRIMARY KEY, at REAL NOT NULL, item TEXT NOT NULL, annotator TEXT NOT NULL, label TEXT,
    source TEXT NOT NULL, checksum INTEGER
);
CREATE INDEX IF NOT EXISTS by_source ON labels (source);
CREATE TABLE IF NOT EXISTS versions (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, labels INTEGER NOT NULL, items INTEGER NOT NULL,
    accepted INTEGER NOT NULL, checksum INTEGER
);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER);
CREATE TABLE IF NOT EXISTS decisions (
    kind TEXT NOT NULL, name TEXT NOT NULL, becomes TEXT, checksum INTEGER, PRIMARY KEY (kind, name)
);
"""
COLUMNS = {  # that a checksum covers; the first one names the row
    "labels": "row, at, item, annotator, label, source",
    "versions": "number, at, labels, items, accepted",
    "facts": "name, value",
    "decisions": "name, kind, becomes",
}
INTEGRITY_CHECKS = (  # queries that return the first damaged row; "ok" means none
    "PRAGMA integrity_check(1)",
    "SELECT 'row ' || row || ' of labels' FROM labels WHERE typeof(at) != 'real' OR typeof(item) != 'text'"
    " OR typeof(annotator) != 'text' OR typeof(label) NOT IN ('text', 'null') OR typeof(source) != 'text' LIMIT 1",
    "SELECT 'row ' || number || ' of versions' FROM versions WHERE typeof(at) != 'real' OR typeof(labels) != 'integer'"
    " OR typeof(items) != 'integer' OR typeof(accepted) != 'integer' LIMIT 1",
    "SELECT 'row ' || name || ' of facts' FROM facts WHERE typeof(value) != 'text' LIMIT 1",
)
Values = TypeVar("Values", bound=tuple[Any, ...])
SALVAGE = Use("to keep the intact rows and start with them", salvage=True)


class Answer(NamedTuple):
    """A label; None if it was withdrawn. ``source`` identifies the answer in a label tool, "" if there is none."""

    item: str
    annotator: str
    label: str | None
    source: str = ""


class State(NamedTuple):
    """The valid labels up to a row, one per annotator and item, and the (item, annotator) pairs without one.

    ``at`` has the times of the labels, in seconds since 1970.
    """

    row: int
    labels: list[Answer]
    withdrawn: set[tuple[str, str]]
    at: list[float]


class Point(NamedTuple):
    """A version: its time, and its numbers of labels, labelled items and accepted items."""

    number: int
    at: float
    labels: int
    items: int
    accepted: int


class Decision(NamedTuple):
    """What the lead decided about an unknown class or item: ``becomes`` is its name, or None if it is discarded."""

    kind: str
    name: str
    becomes: str | None


class Journal:
    """The journal of a folder. Threads may share it, and other processes may open it at the same time.

    ``check`` reads all rows and raises an error if something was changed or is missing.
    """

    def __init__(self, folder: Path, check: bool = True) -> None:
        self.path = folder / NAME
        self._made = [path for path in (self.path, folder / HEAD, folder, *folder.parents) if not path.exists()]
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, timeout=30, check_same_thread=False, isolation_level=None)
        except (sqlite3.Error, OSError) as error:
            raise self._refusal(error) from None
        self._head = Head(folder / HEAD)
        try:
            self._db.text_factory = lambda data: data.decode(errors="replace")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")  # acknowledged labels survive a power failure
            self._db.executescript(TABLES)
            found: object = self._damage() if check else None
        except (sqlite3.Error, UnicodeError, OSError) as error:  # UnicodeError: SQLite's messages quote damaged text
            found = error
        if found is not None:
            self.close()  # an open connection would block the next one
            raise self._refusal(found)

    def _refusal(self, reason: object) -> CrowdshotError:
        hint = SALVAGE if self.path.exists() else None
        return CrowdshotError(f"could not be opened as a journal ({reason})", where=shown(self.path), hint=hint)

    def _damage(self) -> str | None:
        """Return what is damaged; add checksums to a journal of version 0.2 or earlier, which has none."""
        found = next((row[0] for query in INTEGRITY_CHECKS for row in self._db.execute(query) if row[0] != "ok"), None)
        if found is not None:
            return str(found)
        head, tables = self._head.read(), self._tables_without_checksums()
        if tables:
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                for table in tables:
                    self._add_checksums(table)
                if head is None:
                    self._head.write(self._last())
        elif head is None:
            if self._last():
                return f"{HEAD} is missing or damaged"
            self._head.write(0)
        for table in COLUMNS:
            for _, place, _ in (row for row in checked(self._rows(table), table) if not row[2]):
                return f"{place} does not match its checksum"
        if (head or 0) > self._last():
            return f"the labels after row {self._last()} are missing, up to row {head}"
        return None

    def _tables_without_checksums(self) -> list[str]:
        return [
            table
            for table in COLUMNS
            if "checksum" not in (row[1] for row in self._db.execute(f"PRAGMA table_info({table})"))
        ]

    def _rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        return self._db.execute(f"SELECT {COLUMNS[table]}, checksum FROM {table} ORDER BY 1")

    def _add_checksums(self, table: str) -> None:
        self._db.execute(f"ALTER TABLE {table} ADD COLUMN checksum INTEGER")
        previous: Any = 0
        name = COLUMNS[table].partition(",")[0]
        for row in self._db.execute(f"SELECT {COLUMNS[table]} FROM {table} ORDER BY 1").fetchall():
            found = checksum(previous if table == "labels" else 0, row)
            self._db.execute(f"UPDATE {table} SET checksum = ? WHERE {name} = ?", (found, row[0]))
            previous = row[0]

    def append(self, answers: Iterable[Answer]) -> int:
        """Write labels to disk and return the number of the last row."""
        now = time.time()
        return self._append([(now, *plain(each)) for each in answers])

    def _append(self, rows: Sequence[tuple[Any, ...]]) -> int:
        query = f"INSERT INTO labels ({COLUMNS['labels']}, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)"
        with self._lock:
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                last = self._last()
                numbered = [(number, *row) for number, row in enumerate(rows, last + 1)]
                self._db.executemany(query, [(*row, checksum(row[0] - 1, row)) for row in numbered])
            self._head.write(last + len(numbered))
            return last + len(numbered)

    def last(self) -> int:
        with self._lock:
            return self._last()

    def _last(self) -> int:
        row: int = self._db.execute("SELECT coalesce(max(row), 0) FROM labels").fetchone()[0]
        return row

    def state(self, until: int | None = None) -> State:
        """Return the valid labels up to a row; of several answers, the last one that was not withdrawn counts."""
        query = "SELECT row, item, annotator, label, source, at FROM labels WHERE row <= ? ORDER BY row"
        with self._lock:
            rows = self._db.execute(query, (2**62 if until is None else until,)).fetchall()
        answers: dict[tuple[str, str], dict[str, tuple[str, float]]] = {}
        for _, item, annotator, label, source, at in rows:
            by_source = answers.setdefault((item, annotator), {})
            by_source.pop(source, None)
            if label is not None:
                by_source[source] = label, at
        valid = [(pair, *[*found.items()][-1]) for pair, found in answers.items() if found]
        labels = [Answer(*pair, label, source) for pair, source, (label, _) in valid]
        withdrawn = {pair for pair, found in answers.items() if not found}
        return State(rows[-1][0] if rows else 0, labels, withdrawn, [at for _, _, (_, at) in valid])

    def by_start(self, start: str) -> list[Answer]:
        """Return the current state of each answer whose source starts with ``start``."""
        return self._answers("source >= ? AND source < ?", (start, start + "\U0010ffff"))

    def by_ending(self, ending: str) -> list[Answer]:
        """Return the current state of each answer whose source ends with ``ending``."""
        return self._answers("substr(source, ?) = ?", (-len(ending), ending))

    def tasks(self) -> dict[str, str]:
        """Return the number of the task of each item in a label tool."""
        query = "SELECT DISTINCT item, source FROM labels WHERE source LIKE '%/task %/%'"
        with self._lock:
            rows = self._db.execute(query).fetchall()
        return {item: source.partition("/task ")[2].partition("/")[0] for item, source in rows}

    def _answers(self, condition: str, values: tuple[str | int, ...]) -> list[Answer]:
        query = f"SELECT item, annotator, label, source FROM labels WHERE {condition} ORDER BY row"
        with self._lock:
            rows = self._db.execute(query, plain(values)).fetchall()
        return list({row[3]: Answer(*row) for row in rows}.values())

    def note_version(self, labels: int, items: int, accepted: int) -> Point:
        values = time.time(), labels, items, accepted
        query = f"INSERT INTO versions ({COLUMNS['versions']}, checksum) VALUES (?, ?, ?, ?, ?, ?)"
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            ((number,),) = self._db.execute("SELECT coalesce(max(number), 0) + 1 FROM versions")
            self._db.execute(query, (number, *values, checksum(0, (number, *values))))
        return Point(number, *values)

    def history(self, most: int = 500) -> list[Point]:
        """Return the newest versions, the oldest of them first."""
        with self._lock:
            query = "SELECT number, at, labels, items, accepted FROM versions ORDER BY number DESC LIMIT ?"
            rows = self._db.execute(query, (most,)).fetchall()
        return [Point(*row) for row in reversed(rows)]

    def recent(self, seconds: float) -> dict[str, int]:
        """Return the number of labels of the last ``seconds`` by annotator; withdrawals do not count."""
        query = "SELECT annotator, count(*) FROM labels WHERE at > ? AND label IS NOT NULL GROUP BY annotator"
        with self._lock:
            return dict(self._db.execute(query, (time.time() - seconds,)).fetchall())

    def fact(self, name: str) -> str | None:
        with self._lock:
            row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def note(self, name: str, value: str) -> None:
        values = plain((name, value))
        with self._lock:
            self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", (*values, checksum(0, values)))

    def decide(self, decisions: Iterable[Decision]) -> None:
        """Record what the lead decided about unknown classes and items; a later decision replaces an earlier one."""
        rows = [(*plain(each), checksum(0, (each.name, each.kind, each.becomes))) for each in decisions]
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO decisions VALUES (?, ?, ?, ?)", rows)

    def decisions(self) -> list[Decision]:
        with self._lock:
            rows = self._db.execute("SELECT kind, name, becomes FROM decisions ORDER BY kind, name").fetchall()
        return [Decision(*row) for row in rows]

    def close(self) -> None:
        self._db.close()
        self._head.close()

    def discard(self) -> None:
        """Close a new journal without labels, and remove the files and folders that were created for it."""
        self.close()
        for path in self._made:
            try:
                path.unlink() if path.name in (NAME, HEAD) else path.rmdir()
            except OSError:  # not empty: another program has written files
                return


class Head:
    """The file with the number of the last acknowledged row.

    It has two lines, which are overwritten in turn, so that one of them is valid if a write was interrupted.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._file, self._line = path, -1, 0

    def read(self) -> int | None:
        """Return the number of the row; None if there is no valid line."""
        try:
            lines = self.path.read_bytes().decode("ascii", "replace").splitlines()
        except FileNotFoundError:
            return None
        rows = [int(line[:20]) if line[:20].isdecimal() and line == head_line(int(line[:20])) else -1 for line in lines]
        if max(rows[:2], default=-1) < 0:
            return None
        self._line = 1 - rows.index(max(rows[:2]))
        return max(rows[:2])

    def write(self, row: int) -> None:
        if self._file < 0:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            if not os.fstat(self._file).st_size:
                os.write(self._file, f"{head_line(row)}\n".encode() * 2)
        line = f"{head_line(row)}\n".encode()
        os.lseek(self._file, self._line * len(line), os.SEEK_SET)
        os.write(self._file, line)
        os.fsync(self._file)
        self._line = 1 - self._line

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def head_line(row: int) -> str:
    return f"{row:020} {checksum(0, (row,)) % 2**64:016x}"


def checksum(previous: int, values: Sequence[Any]) -> int:
    """Return the checksum of a row, a signed 64-bit number; ``previous`` is the number of the row before it."""
    text = json.dumps([previous, *values])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def checked(rows: Iterable[tuple[Any, ...]], table: str) -> Iterator[tuple[tuple[Any, ...], str, bool]]:
    """Yield the values of each row, its place, and whether it matches its checksum."""
    previous = 0
    for *values, found in rows:
        valid = found == checksum(previous, values)
        yield tuple(values), f"row {values[0]} of {table}", valid
        previous = values[0] if table == "labels" else 0


def plain(values: Values) -> Values:
    """Return the values; raise an error if a text has a character that cannot be stored."""
    for text in values:
        if isinstance(text, str) and not storable(text):
            raise CrowdshotError(
                f"The text {text[:40]!r} has an unpaired surrogate or a null character", expected="valid characters"
            )
    return values


def storable(text: str) -> bool:
    """Return whether a text has neither null characters nor unpaired surrogates, which UTF-8 cannot represent."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def salvage(folder: Path) -> tuple[int, int, Path]:
    """Move a damaged journal aside and write its intact rows to a new one.

    Returns
    -------
    kept, lost : int
        The numbers of labels.
    aside : Path
        The folder that has the damaged files.
    """
    files = [path for path in (folder / name for name in (NAME, f"{NAME}-wal", f"{NAME}-shm", HEAD)) if path.exists()]
    if not files:
        raise CrowdshotError("has no journal", where=shown(folder))
    number = next(i for i in range(1, 10**6) if not (folder / f"damaged-{i}").exists())
    aside = folder / f"damaged-{number}"
    aside.mkdir()
    for path in files:
        path.rename(aside / path.name)
    found = {table: list(_intact(aside / NAME, table)) for table in COLUMNS}
    head = Head(aside / HEAD).read() or 0
    journal = Journal(folder)
    journal._append([row[1:] for row in found["labels"]])
    with journal._db:
        for table in ("versions", "facts", "decisions"):
            marks = ", ".join("?" * (1 + len(COLUMNS[table].split(","))))
            query = f"INSERT INTO {table} ({COLUMNS[table]}, checksum) VALUES ({marks})"
            journal._db.executemany(query, [(*row, checksum(0, row)) for row in found[table]])
    journal.close()
    last = max([head, *(row[0] for row in found["labels"])])
    return len(found["labels"]), last - len(found["labels"]), aside


def _intact(path: Path, table: str) -> Iterator[tuple[Any, ...]]:
    """Yield the intact rows of a table; rows are read one by one, because a damaged page ends a longer query."""
    db = sqlite3.connect(path)
    db.text_factory = lambda data: data.decode(errors="replace")
    name = COLUMNS[table].partition(",")[0]
    previous = 0
    try:
        for key in _keys(db, table, name, path.with_name(HEAD)):
            row = _fetched(db, f"SELECT {COLUMNS[table]}, checksum FROM {table} WHERE {name} = ?", key)
            before = {key - 1, previous} if table == "labels" else {0}
            if row is not None and any(row[-1] == checksum(each, row[:-1]) for each in before):
                yield row[:-1]
                previous = key
    finally:
        db.close()


def _keys(db: sqlite3.Connection, table: str, name: str, head: Path) -> Iterable[Any]:
    """Return the keys of the rows that may exist."""
    last = _fetched(db, f"SELECT max({name}) FROM {table}")
    if table in ("labels", "versions"):
        number = last[0] if last and isinstance(last[0], int) else 0
        known = Head(head).read() or 0
        return range(1, max(known, min(number, known + 10**6)) + 1)
    try:
        return [row[0] for row in db.execute(f"SELECT {name} FROM {table}")]
    except sqlite3.Error:
        return []


def _fetched(db: sqlite3.Connection, query: str, *values: Any) -> tuple[Any, ...] | None:
    try:
        row: tuple[Any, ...] | None = db.execute(query, values).fetchone()
    except (sqlite3.Error, UnicodeError, OverflowError):
        return None
    return row
