"""Damage to a journal's files is found, wherever it is: nothing is silently wrong, and intact rows can be salvaged."""

import random
import shutil
import sqlite3
from contextlib import suppress

import pytest

from crowdshot import CrowdshotError
from crowdshot.service.journal import HEAD, NAME, Answer, Journal, salvage

ANSWERS = [Answer(f"{i:03}.png", f"ann{i % 3}", "cat" if i % 2 else "dog", f"s{i}") for i in range(120)]
OLD = """
CREATE TABLE labels (row INTEGER PRIMARY KEY, at REAL NOT NULL, item TEXT NOT NULL, annotator TEXT NOT NULL, label TEXT,
    source TEXT NOT NULL);
CREATE INDEX by_source ON labels (source);
CREATE TABLE versions (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, labels INTEGER NOT NULL,
    items INTEGER NOT NULL, accepted INTEGER NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


@pytest.fixture
def folder(tmp_path):
    """A journal as a killed service leaves it: the newest labels are in the write-ahead log."""
    live, left = tmp_path / "live", tmp_path / "left"
    journal = Journal(live)
    journal.append(ANSWERS[:60])
    journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    journal.append(ANSWERS[60:])
    journal.note("project", "7")
    journal.note_version(120, 120, 40)
    shutil.copytree(live, left)
    journal.close()
    return left


def labels(folder):
    journal = Journal(folder)
    try:
        return journal.state().labels
    finally:
        journal.close()


def test_what_a_killed_service_left_is_read(folder):
    assert labels(folder) == ANSWERS


@pytest.mark.slow
@pytest.mark.parametrize("name", [NAME, f"{NAME}-wal", HEAD])
def test_flipped_bits_are_found_or_change_nothing(folder, tmp_path, name):
    whole = (folder / name).read_bytes()
    rng = random.Random(name)
    for _ in range(30):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
        (copy / name).write_bytes(damaged)
        with suppress(CrowdshotError):
            assert labels(copy) == ANSWERS
        shutil.rmtree(copy)


@pytest.mark.parametrize("name", [NAME, f"{NAME}-wal", HEAD])
@pytest.mark.parametrize("rest", [0, 0.5])
def test_cut_files_are_found(folder, name, rest):
    if rest == 0 and name == NAME:
        (folder / f"{NAME}-wal").unlink()  # it has a copy of some pages
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: int(rest * len(data))])
    if name == HEAD and rest:
        assert labels(folder) == ANSWERS  # it has two copies
    else:
        with pytest.raises(CrowdshotError, match="salvage"):
            labels(folder)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE labels SET label = 'cow' WHERE row = 7",
        "UPDATE labels SET row = 1000 WHERE row = 7",
        "DELETE FROM labels WHERE row = 7",
        "DELETE FROM labels WHERE row = 120",
        "UPDATE labels SET checksum = NULL WHERE row = 7",
        "UPDATE facts SET value = '8'",
        "UPDATE versions SET accepted = 41",
    ],
)
def test_changed_rows_are_found_and_the_others_salvaged(folder, change):
    with sqlite3.connect(folder / NAME) as db:
        db.execute(change)
    db.close()
    with pytest.raises(CrowdshotError, match="salvage"):
        labels(folder)
    kept, lost, aside = salvage(folder)
    gone = next((int(number) for number in ("120", "7") if f"row = {number}" in change), None)
    assert (kept, lost) == ((120, 0) if gone is None else (119, 1))
    assert labels(folder) == [each for row, each in enumerate(ANSWERS, 1) if row != gone]
    assert (aside / NAME).exists()


def test_a_damaged_page_costs_its_own_rows(folder):
    journal = Journal(folder)
    journal.append([Answer(f"more {i}", "ann", "x" * 200) for i in range(400)])
    journal.close()
    data = bytearray((folder / NAME).read_bytes())
    at = data.index(b"more 200ann")
    data[at : at + 500] = bytes(500)
    (folder / NAME).write_bytes(data)
    with pytest.raises(CrowdshotError, match="salvage"):
        labels(folder)
    kept, lost, _ = salvage(folder)
    assert kept + lost == 520
    assert 0 < lost < 60
    assert set(ANSWERS) <= set(labels(folder))


def test_a_journal_of_an_earlier_version_gets_checksums(tmp_path):
    db = sqlite3.connect(tmp_path / NAME)
    db.executescript(OLD)
    db.executemany("INSERT INTO labels (at, item, annotator, label, source) VALUES (1.5, ?, ?, ?, ?)", ANSWERS)
    db.execute("DELETE FROM labels WHERE row = 5")
    db.execute("INSERT INTO facts VALUES ('project', '7')")
    db.execute("INSERT INTO versions (at, labels, items, accepted) VALUES (2.5, 120, 120, 3)")
    db.commit()
    db.close()
    for _ in range(2):
        journal = Journal(tmp_path)
        assert journal.state().labels == ANSWERS[:4] + ANSWERS[5:]
        assert journal.fact("project") == "7"
        assert [point.accepted for point in journal.history()] == [3]
        journal.close()
    with sqlite3.connect(tmp_path / NAME) as db:
        db.execute("UPDATE labels SET label = 'cow' WHERE row = 7")
    db.close()
    with pytest.raises(CrowdshotError, match="row 7 of labels"):
        Journal(tmp_path)


def test_nothing_to_salvage(tmp_path):
    with pytest.raises(CrowdshotError, match="no journal"):
        salvage(tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("word", ["\ud800", "a\0b"], ids=["surrogate", "null character"])
def test_text_that_cannot_be_stored_is_refused_before_anything_is_written(tmp_path, word):
    journal = Journal(tmp_path)
    for answer in (Answer(word, "a", "b"), Answer("a", word, "b"), Answer("a", "b", word), Answer("a", "b", "c", word)):
        with pytest.raises(CrowdshotError, match="character"):
            journal.append([Answer("x", "y", "z"), answer])
    with pytest.raises(CrowdshotError, match="character"):
        journal.note("project", word)
    assert journal.last() == 0
    journal.close()
