"""Keep all labels in an append-only SQLite journal.

Labels are on disk before they are acknowledged, and rows are never changed. A withdrawn label is a row without a label.
The journal also records the versions of the model: their numbers stay unique and the live page can show the progress.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import shown

NAME = "journal.sqlite"
TABLES = """
CREATE TABLE IF NOT EXISTS labels (
    row INTEGER PRIMARY KEY, at REAL NOT NULL, item TEXT NOT NULL, annotator TEXT NOT NULL, label TEXT,
    source TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_source ON labels (source);
CREATE TABLE IF NOT EXISTS versions (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, labels INTEGER NOT NULL, items INTEGER NOT NULL,
    accepted INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
INTEGRITY_CHECKS = (  # queries that return the first damaged row; "ok" means none
    "PRAGMA integrity_check(1)",
    "SELECT 'row ' || row || ' of labels' FROM labels WHERE typeof(at) != 'real' OR typeof(item) != 'text'"
    " OR typeof(annotator) != 'text' OR typeof(label) NOT IN ('text', 'null') OR typeof(source) != 'text' LIMIT 1",
    "SELECT 'row ' || number || ' of versions' FROM versions WHERE typeof(at) != 'real' OR typeof(labels) != 'integer'"
    " OR typeof(items) != 'integer' OR typeof(accepted) != 'integer' LIMIT 1",
    "SELECT 'row ' || name || ' of facts' FROM facts WHERE typeof(value) != 'text' LIMIT 1",
)


class Answer(NamedTuple):
    """A label; None if it was withdrawn. ``source`` identifies the answer in a label tool, "" if there is none."""

    item: str
    annotator: str
    label: str | None
    source: str = ""


class State(NamedTuple):
    """The valid labels up to a row, one per annotator and item, and the (item, annotator) pairs without one."""

    row: int
    labels: list[Answer]
    withdrawn: set[tuple[str, str]]


class Point(NamedTuple):
    """A version: its time, and its numbers of labels, labelled items and accepted items."""

    number: int
    at: float
    labels: int
    items: int
    accepted: int


class Journal:
    """The journal of a folder. Threads may share it, and other processes may open it at the same time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._made = [path for path in (self.path, folder, *folder.parents) if not path.exists()]
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, timeout=30, check_same_thread=False, isolation_level=None)
        except (sqlite3.Error, OSError) as error:
            raise self._refusal(error) from None
        try:
            self._db.text_factory = lambda data: data.decode(errors="replace")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")  # acknowledged labels survive a power failure
            self._db.executescript(TABLES)
            found = next(
                (row[0] for query in INTEGRITY_CHECKS for row in self._db.execute(query) if row[0] != "ok"), None
            )
        except (sqlite3.Error, UnicodeError) as error:  # UnicodeError: SQLite's messages quote damaged text
            found = error
        if found is not None:
            self.close()  # an open connection would block the next one
            raise self._refusal(found)

    def _refusal(self, reason: object) -> CrowdshotError:
        return CrowdshotError(f"could not be opened as a journal ({reason})", where=shown(self.path))

    def append(self, answers: Iterable[Answer]) -> int:
        """Write labels to disk and return the number of the last row."""
        now = time.time()
        rows = [(now, *each) for each in answers]
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT INTO labels (at, item, annotator, label, source) VALUES (?, ?, ?, ?, ?)", rows)
            return self._last()

    def last(self) -> int:
        with self._lock:
            return self._last()

    def _last(self) -> int:
        row: int = self._db.execute("SELECT coalesce(max(row), 0) FROM labels").fetchone()[0]
        return row

    def state(self) -> State:
        """Return the valid labels; of several answers, the last one that was not withdrawn counts."""
        with self._lock:
            rows = self._db.execute("SELECT row, item, annotator, label, source FROM labels ORDER BY row").fetchall()
        answers: dict[tuple[str, str], dict[str, str]] = {}
        for _, item, annotator, label, source in rows:
            by_source = answers.setdefault((item, annotator), {})
            by_source.pop(source, None)
            if label is not None:
                by_source[source] = label
        labels = [
            Answer(*pair, label, source) for pair, found in answers.items() for source, label in [*found.items()][-1:]
        ]
        return State(rows[-1][0] if rows else 0, labels, {pair for pair, found in answers.items() if not found})

    def by_start(self, start: str) -> list[Answer]:
        """Return the current state of each answer whose source starts with ``start``."""
        return self._answers("source >= ? AND source < ?", (start, start + "\U0010ffff"))

    def by_ending(self, ending: str) -> list[Answer]:
        """Return the current state of each answer whose source ends with ``ending``."""
        return self._answers("substr(source, ?) = ?", (-len(ending), ending))

    def _answers(self, condition: str, values: tuple[str | int, ...]) -> list[Answer]:
        query = f"SELECT item, annotator, label, source FROM labels WHERE {condition} ORDER BY row"
        with self._lock:
            rows = self._db.execute(query, values).fetchall()
        return list({row[3]: Answer(*row) for row in rows}.values())

    def note_version(self, labels: int, items: int, accepted: int) -> Point:
        now = time.time()
        with self._lock:
            query = "INSERT INTO versions (at, labels, items, accepted) VALUES (?, ?, ?, ?)"
            number = self._db.execute(query, (now, labels, items, accepted)).lastrowid
        return Point(number or 0, now, labels, items, accepted)

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
        with self._lock:
            self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def close(self) -> None:
        self._db.close()

    def discard(self) -> None:
        """Close a new journal without labels, and remove the files and folders that were created for it."""
        self.close()
        for path in self._made:
            try:
                path.unlink() if path == self.path else path.rmdir()
            except OSError:  # not empty: another program has written files
                return
