"""What was said, in the order in which it came: rows are added and never changed, and what is acknowledged is on disk.

A label that somebody takes back is a row without a label. Versions of the model are noted beside, so that no number is
given twice and the page can show how far the work has come.
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
SOUND = (  # queries for what is wrong with a file that can be opened; "ok" is nothing
    "PRAGMA integrity_check(1)",
    "SELECT 'row ' || row || ' of labels' FROM labels WHERE typeof(at) != 'real' OR typeof(item) != 'text'"
    " OR typeof(annotator) != 'text' OR typeof(label) NOT IN ('text', 'null') OR typeof(source) != 'text' LIMIT 1",
    "SELECT 'row ' || number || ' of versions' FROM versions WHERE typeof(at) != 'real' OR typeof(labels) != 'integer'"
    " OR typeof(items) != 'integer' OR typeof(accepted) != 'integer' LIMIT 1",
    "SELECT 'row ' || name || ' of facts' FROM facts WHERE typeof(value) != 'text' LIMIT 1",
)


class Said(NamedTuple):
    """``label``: None where it is taken back. ``source``: which answer of a label tool it is, "" for none."""

    item: str
    annotator: str
    label: str | None
    source: str = ""


class State(NamedTuple):
    """All that counts at a row: labels, the last of each annotator and item, and pairs that have none any more."""

    row: int
    labels: list[Said]
    withdrawn: set[tuple[str, str]]


class Point(NamedTuple):
    """A version: when, by how many labels, and how many of the labelled items were accepted."""

    number: int
    at: float
    labels: int
    items: int
    accepted: int


class Journal:
    """Of one folder; threads may share it, and other processes may open it beside."""

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
            self._db.execute(
                "PRAGMA synchronous=FULL"
            )  # what is acknowledged outlives the machine, not the process alone
            self._db.executescript(TABLES)
            found = next((row[0] for query in SOUND for row in self._db.execute(query) if row[0] != "ok"), None)
        except (sqlite3.Error, UnicodeError) as error:  # of SQLite's own sentences, which quote what is damaged
            found = error
        if found is not None:
            self.close()  # or the next who opens it would wait
            raise self._refusal(found)

    def _refusal(self, reason: object) -> CrowdshotError:
        return CrowdshotError(f"{shown(self.path)} could not be opened as a journal ({reason}).")

    def append(self, said: Iterable[Said]) -> int:
        """-> the last row; when this returns, the rows are on disk."""
        now = time.time()
        rows = [(now, *each) for each in said]
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
        """Where one annotator gave an item several answers, the last that was not taken back counts."""
        with self._lock:
            rows = self._db.execute("SELECT row, item, annotator, label, source FROM labels ORDER BY row").fetchall()
        answers: dict[tuple[str, str], dict[str, str]] = {}
        for _, item, annotator, label, source in rows:
            of_pair = answers.setdefault((item, annotator), {})
            of_pair.pop(source, None)
            if label is not None:
                of_pair[source] = label
        labels = [
            Said(*pair, label, source) for pair, found in answers.items() for source, label in [*found.items()][-1:]
        ]
        return State(rows[-1][0] if rows else 0, labels, {pair for pair, found in answers.items() if not found})

    def by_start(self, start: str) -> list[Said]:
        """What each answer says now whose source begins so."""
        return self._answers("source >= ? AND source < ?", (start, start + "\U0010ffff"))

    def by_ending(self, ending: str) -> list[Said]:
        return self._answers("substr(source, ?) = ?", (-len(ending), ending))

    def _answers(self, which: str, given: tuple[str | int, ...]) -> list[Said]:
        query = f"SELECT item, annotator, label, source FROM labels WHERE {which} ORDER BY row"
        with self._lock:
            rows = self._db.execute(query, given).fetchall()
        return list({row[3]: Said(*row) for row in rows}.values())

    def note_version(self, labels: int, items: int, accepted: int) -> Point:
        now = time.time()
        with self._lock:
            query = "INSERT INTO versions (at, labels, items, accepted) VALUES (?, ?, ?, ?)"
            number = self._db.execute(query, (now, labels, items, accepted)).lastrowid
        return Point(number or 0, now, labels, items, accepted)

    def history(self, most: int = 500) -> list[Point]:
        """The newest versions, in their order."""
        with self._lock:
            query = "SELECT number, at, labels, items, accepted FROM versions ORDER BY number DESC LIMIT ?"
            rows = self._db.execute(query, (most,)).fetchall()
        return [Point(*row) for row in reversed(rows)]

    def lately(self, seconds: float) -> dict[str, int]:
        """How many labels came in so many seconds, by annotator."""
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
        """Closes it and takes away what was made for it: of a new one, into which nobody has said anything yet."""
        self.close()
        for path in self._made:
            try:
                path.unlink() if path == self.path else path.rmdir()
            except OSError:  # somebody else has put something there
                return
