"""A journal that is damaged is refused before anything is built on it."""

import sqlite3

import pytest

from crowdshot import CrowdshotError
from crowdshot.io.cells import stay_excel_safe
from crowdshot.service.journal import NAME, Answer, Journal


@pytest.fixture
def journal(tmp_path):
    kept = Journal(tmp_path)
    kept.append([Answer(f"{i}.png", "ann", "cat" * 50) for i in range(400)])
    kept.note_version(1, 1, 1)
    kept.close()
    return tmp_path / NAME


def refused(path, match):
    for _ in range(2):  # nor is anything left open that the next would wait for
        with pytest.raises(CrowdshotError, match=rf"could not be opened as a journal \({match}.*\)\.") as caught:
            Journal(path.parent)
        assert caught.value.where.endswith(NAME)


def test_pages_that_hold_something_else(journal):
    data = journal.read_bytes()
    journal.write_bytes(data[: len(data) // 2] + bytes(4096) + data[len(data) // 2 + 4096 :])
    refused(journal, r"(database disk image is malformed|\*\*\* in database main|.*[Tt]ree|.*page)")


def test_no_database(journal):
    journal.write_bytes(b"item,annotator,label\n" * 1000)
    refused(journal, "file is not a database")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE labels SET label = x'ff00' WHERE row = 7", "row 7 of labels"),
        ("UPDATE labels SET at = 'noon' WHERE row = 8", "row 8 of labels"),
        ("UPDATE versions SET accepted = 'all'", "row 1 of versions"),
        ("DROP TABLE versions; CREATE TABLE versions (number INTEGER)", "no such column"),
    ],
)
def test_rows_of_another_kind(journal, change, told):
    with sqlite3.connect(journal) as db:
        db.executescript(change)
    db.close()
    refused(journal, told)


def test_text_with_invalid_bytes_is_refused(journal):
    with sqlite3.connect(journal) as db:
        db.execute("UPDATE labels SET label = CAST(x'63ff' AS TEXT) WHERE row = 400")
    db.close()
    refused(journal, "row 400 of labels")


def test_a_withdrawal_is_no_recent_label(tmp_path):
    kept = Journal(tmp_path)
    kept.append([Answer("1.png", "ann", "cat"), Answer("2.png", "ann", "dog"), Answer("1.png", "bob", "cat")])
    kept.append([Answer("1.png", "ann", None), Answer("1.png", "bob", None), Answer("1.png", "cyd", None)])
    assert kept.recent(60) == {"ann": 2, "bob": 1}
    assert kept.recent(-60) == {}
    kept.close()


def test_the_process_that_fits_reads_labels_as_was_asked(service, tmp_path):
    (tmp_path / "labels.csv").write_text("item,annotator,label\n'=A,ann,'-1\n'=A,bob,'-1\nB,ann,0\n")
    with service([tmp_path / "labels.csv"], excel_safe=True) as client:
        assert client.live.version.annotations.items.tolist() == ["=A", "B"]
    stay_excel_safe(False)
