"""Test the store: rows are restored unchanged, pieces are atomic, and no rows are lost or duplicated."""

import json
import multiprocessing
import os
import re
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crowdshot.errors import CrowdshotError
from crowdshot_paper import store as stores
from crowdshot_paper.store import COLUMNS, TIMES, Piece, Store, read_rows
from polling import TIMEOUT

TARGET_CROWDS = ["E0.1 H0.8 S0.1", "E0.1 H0.7 S0.2", "E0.1 H0.6 S0.3", "E0.1 H0.5 S0.4"]
PIECE = Piece("main", "omniglot", 0, 4, 3, "PrMV")


def some_rows(n_episodes=3, crowd="H1", role="test", candidate="steps=1", seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "mixture": crowd,
            "candidate": candidate,
            "role": role,
            "episode": np.arange(n_episodes),
            "accuracy": rng.integers(0, 41, n_episodes) / 40,
            "ece": rng.integers(0, 10_001, n_episodes) / 10_000,
        }
    )


def filled(root, n=4):
    """Return a store with n pieces."""
    store = Store(root, "main", "omniglot")
    for split in range(n):
        store.add(PIECE._replace(split=split), some_rows(seed=split), {"seconds": 0.5, "what": "test"})
    return store


def same(a, b):
    pd.testing.assert_frame_equal(a, b, check_dtype=False)


# ---- round trips ----------------------------------------------------------------------------------------------------

words = st.sampled_from(["Ours", "w/o PA", "PrMV w/ PA", "PrMV", "LRDS"])
crowds = st.sampled_from([*TARGET_CROWDS, "real", "H0.33 F0.33 C0.33"])
keys = st.tuples(words, st.integers(0, 4), st.sampled_from([4, 12, 160]), st.sampled_from([0, 3, 30]))
values = st.tuples(
    crowds,
    st.sampled_from(["", "steps=1", "steps=10, b=0.1"]),
    st.sampled_from(["validation", "test"]),
    st.integers(0, 49),
    st.integers(0, 100),
    st.integers(0, 10_000),
)


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(
    pieces=st.dictionaries(keys, st.lists(values, min_size=1, max_size=4, unique_by=lambda v: v[:4]), max_size=5),
    compacted=st.integers(0, 5),
)
def test_rows_are_restored_as_written(tmp_path_factory, pieces, compacted):
    root = tmp_path_factory.mktemp("store")
    store = Store(root, "main", "omniglot")
    expected = []
    for number, ((method, split, n_support, n_annotators), rows) in enumerate(pieces.items()):
        piece = Piece("main", "omniglot", split, n_support, n_annotators, method)
        names = ["mixture", "candidate", "role", "episode", "accuracy", "ece"]
        frame = pd.DataFrame([(*row[:4], row[4] / 100, row[5] // 10 / 1_000) for row in rows], columns=names)
        store.add(piece, frame, {"seconds": 1.0})
        expected += [
            ("main", "omniglot", split, n_support, n_annotators, crowd, method, candidate, role, episode, *measured)
            for crowd, candidate, role, episode, *measured in frame.itertuples(index=False)
        ]
        if number == compacted:
            store.compact()
    found = read_rows(root, "main", "omniglot")
    assert list(found.columns) == COLUMNS
    assert [row[:-2] for row in found.itertuples(index=False, name=None)] == sorted(row[:-2] for row in expected)
    measured = [row[-2:] for row in sorted(expected)]
    np.testing.assert_allclose(found[["accuracy", "ece"]].astype(float).to_numpy().tolist(), measured or [], atol=1e-6)
    assert set(store.done()) == {Piece("main", "omniglot", k[1], k[2], k[3], k[0]) for k in pieces}
    store.compact()
    same(read_rows(root, "main", "omniglot"), found)


def test_an_empty_store(tmp_path):
    store = Store(tmp_path, "main", "omniglot")
    assert list(store.rows().columns) == COLUMNS
    assert list(store.times().columns) == TIMES
    assert (len(store.rows()), len(store.times()), store.done(), store.runs()) == (0, 0, {}, [])
    store.compact()
    assert list(tmp_path.iterdir()) == [], "looking makes nothing"


def test_large_numbers_are_restored(tmp_path):
    store = Store(tmp_path, "main", "omniglot")
    piece = PIECE._replace(split=300, n_support=70_000)
    store.add(piece, some_rows().assign(episode=[0, 1, 40_000]), {})
    assert set(store.done()) == {piece}
    assert store.rows()["episode"].tolist() == [0, 1, 40_000]


@pytest.mark.parametrize("missing", [False, True])
def test_compact_rows_are_those_that_were_added(tmp_path, missing):
    errors = [0.0, 0.12345, float("nan") if missing else 1.0]
    store = Store(tmp_path, "main", "omniglot")
    store.add(PIECE, some_rows().assign(ece=errors, accuracy=[0.0125, 0.025, 1.0]), {})
    before = store.rows()
    store.compact()
    pd.testing.assert_frame_equal(store.rows(), before)
    assert before["ece"].tolist()[:2] == pytest.approx([0.0, 0.123])


@pytest.mark.slow
def test_rows_are_small(tmp_path):
    """Write 100,000 rows as in the paper: 5 splits, 4 sizes, 20 candidates, 5 × 50 episodes."""
    store = Store(tmp_path, "main", "omniglot")
    rng = np.random.default_rng(0)
    groups = [("validation", "E0.1 H0.7 S0.2"), *(("test", crowd) for crowd in TARGET_CROWDS)]
    for split in range(5):
        for n_support, n_annotators in ((4, 3), (4, 5), (12, 3), (12, 7)):
            rows = pd.concat(
                [some_rows(50, crowd, role, f"steps={c}") for c in range(20) for role, crowd in groups],
                ignore_index=True,
            )
            rows["accuracy"] = rng.binomial(40, 0.8, len(rows)) / 40
            rows["ece"] = rng.beta(2, 10, len(rows))
            store.add(Piece("main", "omniglot", split, n_support, n_annotators, "Ours"), rows, {"seconds": 1.0})
    store.compact()
    assert len(store.rows()) == 100_000
    assert (store.folder / "rows.parquet").stat().st_size / 100_000 < 4


# ---- atomic writes --------------------------------------------------------------------------------------------------


def test_a_piece_is_written_atomically(tmp_path, monkeypatch):
    store = filled(tmp_path, 1)

    def dies_halfway(table, path, **_):
        Path(path).write_bytes(b"PAR1 half")
        raise KeyboardInterrupt

    monkeypatch.setattr(pq, "write_table", dies_halfway)
    with pytest.raises(KeyboardInterrupt):
        store.add(PIECE._replace(split=1), some_rows(), {})
    assert set(store.done()) == {PIECE}
    assert len(list(store.pending.iterdir())) == 1, "and no rest"


def test_incomplete_files_are_not_read(tmp_path):
    store = filled(tmp_path, 1)
    rest = store.pending / ".split1-4-3-PrMV.parquet.00000000.tmp"
    rest.write_bytes(b"PAR1 half")
    assert set(store.done()) == {PIECE}
    store.compact()
    assert rest.exists(), "somebody may be writing it now"
    os.utime(rest, (time.time() - 2 * stores.ABANDONED,) * 2)
    store.compact()
    assert not rest.exists(), "nobody is writing it any more"
    assert set(store.done()) == {PIECE}


def test_two_pieces_have_two_files(tmp_path):
    store = Store(tmp_path, "main", "omniglot")
    methods = ["PrMV", "PrMV w/ PA", "w/o PA", "Ours"]
    for method in methods:
        store.add(PIECE._replace(method=method), some_rows(), {})
        assert store.has(PIECE._replace(method=method), set(some_rows()["candidate"]))
    assert {piece.method for piece in store.done()} == set(methods)
    assert not store.has(PIECE._replace(split=1), set(some_rows()["candidate"]))


def test_candidates_of_a_piece_may_be_added_separately(tmp_path):
    store = Store(tmp_path, "main", "omniglot")
    for steps in (1, 2, 3):
        rows = some_rows(candidate=f"steps={steps}")
        assert not store.has(PIECE, set(rows["candidate"]))
        store.add(PIECE, rows, {"what": "test", "seconds": float(steps), "candidates": 1})
        assert store.has(PIECE, set(rows["candidate"]))
        if steps == 2:
            store.compact()
        assert store.done() == {PIECE: {f"steps={one}" for one in range(1, steps + 1)}}
    store.compact()
    assert len(store.rows()) == 3 * len(some_rows())
    assert sorted(store.times()["seconds"]) == [1.0, 2.0, 3.0], "what each took"


def test_a_piece_added_twice_counts_once(tmp_path):
    store = filled(tmp_path, 2)
    before = store.rows()
    store.compact()
    filled(tmp_path, 2)
    same(store.rows(), before)
    store.compact()
    same(store.rows(), before)


@pytest.mark.parametrize("point", ["before times.csv", "before unlinking", "in unlinking"])
def test_compaction_may_be_killed_anywhere(tmp_path, monkeypatch, point):
    store = filled(tmp_path)
    store.note_training("a stack", [{"encoder": "split0-maml", "split": 0, "seconds": 2.0, "candidates": 1}])
    before, times = store.rows(), store.times()
    order = ["what", "split"]
    unlinked = 0

    def killed(self, *args, **kwargs):
        nonlocal unlinked
        unlinked += 1
        if point == "in unlinking" and unlinked < 3:
            return os.unlink(self)
        raise KeyboardInterrupt

    where = (pd.DataFrame, "to_csv") if point == "before times.csv" else (Path, "unlink")
    with monkeypatch.context() as patched:
        patched.setattr(*where, killed)
        with pytest.raises(KeyboardInterrupt):
            store.compact()
    assert (store.folder / "rows.parquet").exists()
    assert any(store.pending.glob("*.parquet")), "the case that was to be tested"
    for _ in range(2):
        same(store.rows(), before)
        same(
            store.times().sort_values(order, ignore_index=True),
            times.sort_values(order, ignore_index=True),
        )
        assert len(store.done()) == 4
        store.compact()
    assert not any(store.pending.glob("*.*"))


# ---- several processes ----------------------------------------------------------------------------------------------


def _add_many(root, first, n):
    store = Store(root, "main", "omniglot")
    for split in range(first, first + n):
        store.add(PIECE._replace(split=split), some_rows(seed=split), {"seconds": 0.5, "what": "test"})
        store.note_training(f"stack {split}", [{"encoder": f"split{split}", "split": split, "seconds": 1.0}])
        if split % 5 == 4:
            store.compact()
        store.done()


@pytest.mark.slow
def test_concurrent_adding_and_compacting_lose_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=_add_many, args=(tmp_path, first, 10)) for first in (0, 10)]
    for process in both:
        process.start()
    for process in both:
        process.join(TIMEOUT)
    assert [process.exitcode for process in both] == [0, 0]
    expected = filled(tmp_path / "alone", 20).rows()
    store = Store(tmp_path, "main", "omniglot")
    same(store.rows(), expected)
    store.compact()
    same(store.rows(), expected)
    assert store.times()["what"].value_counts().to_dict() == {"test": 20, "meta-training": 20}


@pytest.mark.slow
def test_two_compactions_do_not_overlap(tmp_path, monkeypatch):
    """Otherwise the slower one would overwrite rows.parquet without the pieces that the faster one moved there."""
    store, late = filled(tmp_path), PIECE._replace(split=9)
    has_read, other_is_done = threading.Event(), threading.Event()
    times = Store.times

    def slowly(self):
        if not has_read.is_set():
            has_read.set()
            other_is_done.wait(0.5)
        return times(self)

    monkeypatch.setattr(Store, "times", slowly)
    slower = threading.Thread(target=store.compact)
    slower.start()
    assert has_read.wait(TIMEOUT)
    store.add(late, some_rows(), {})
    Store(tmp_path, "main", "omniglot").compact()
    other_is_done.set()
    slower.join()
    assert late in store.done()
    assert len(store.done()) == 5


def test_reading_during_a_compaction_misses_no_piece(tmp_path, monkeypatch):
    store = filled(tmp_path)
    expected = store.rows()
    read, first = stores._read, []

    def slow(file):
        if not first:  # another process compacts after the files were listed and before they are read
            first.append(file)
            Store(tmp_path, "main", "omniglot").compact()
        return read(file)

    monkeypatch.setattr(stores, "_read", slow)
    same(store.rows(), expected)


def test_a_piece_added_during_a_compaction_stays(tmp_path, monkeypatch):
    store, late = filled(tmp_path), PIECE._replace(split=9)
    times = Store.times

    def meanwhile(self):
        found = times(self)
        self.add(late, some_rows(), {"seconds": 0.5, "what": "test"})
        (self.pending / ".split8.parquet.00000000.tmp").write_bytes(b"")
        return found

    monkeypatch.setattr(Store, "times", meanwhile)
    store.compact()
    monkeypatch.undo()
    assert store.has(late, set(some_rows()["candidate"]))
    assert late in store.done()
    assert len(store.times()) == 5
    assert (store.pending / ".split8.parquet.00000000.tmp").exists(), "another process is writing it"


# ---- times and runs -------------------------------------------------------------------------------------------------


def test_times_are_stored(tmp_path):
    store = filled(tmp_path, 2)
    store.note_training(
        "a stack", [{"encoder": f"split0-J{j}", "split": 0, "seconds": 2.5, "best": 0.9} for j in (1, 2)]
    )
    for _ in range(2):
        times = store.times()
        assert list(times.columns) == TIMES
        trained, tested = (times[times["what"] == what] for what in ("meta-training", "test"))
        assert sorted(trained["encoder"]) == ["split0-J1", "split0-J2"]
        assert trained["seconds"].tolist() == [2.5, 2.5]
        assert tested["seconds"].tolist() == [0.5, 0.5]
        assert sorted(tested["split"]) == [0, 1]
        assert set(times["experiment"]) == {"main"}
        store.compact()


def test_runs_are_recorded(tmp_path):
    store = Store(tmp_path, "main", "omniglot")
    store.note_run({"command": "crowdshot paper run main", "splits": [0]})
    store.note_run({"command": "again", "splits": [1]})
    assert [run["command"] for run in store.runs()] == ["crowdshot paper run main", "again"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", run["when"]) for run in store.runs())


# ---- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b"", b"not parquet at all", None])
@pytest.mark.parametrize("whole", [True, False])
def test_a_damaged_file_is_named(tmp_path, damage, whole):
    store = filled(tmp_path, 1)
    if whole:
        store.compact()
    file = store.folder / "rows.parquet" if whole else next(store.pending.glob("*.parquet"))
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2] if damage is None else damage)
    for look in (store.rows, store.done, *([] if whole else [store.compact, store.times])):
        with pytest.raises(CrowdshotError, match=re.escape(str(file))) as caught:
            look()
        assert "\n" not in str(caught.value)
    assert file.exists(), "nothing is thrown away"


@pytest.mark.slow
@settings(max_examples=40)
@given(place=st.floats(0, 1), flip=st.integers(1, 255))
def test_a_changed_byte_is_detected_or_harmless(tmp_path_factory, place, flip):
    store = filled(tmp_path_factory.mktemp("flipped"), 1)
    file = next(store.pending.glob("*.parquet"))
    whole = {look: size_or_refusal(look) for look in (store.rows, store.done, store.times)}
    data = bytearray(file.read_bytes())
    data[int(place * (len(data) - 1))] ^= flip
    file.write_bytes(data)
    for look, before in whole.items():
        found = size_or_refusal(look)
        assert found == before or str(file) in str(found)


def size_or_refusal(look):
    try:
        return len(look())
    except CrowdshotError as error:  # and nothing else
        return str(error)


def test_another_parquet_file_is_refused(tmp_path):
    store = filled(tmp_path, 1)
    file = store.folder / "rows.parquet"
    store.rows().drop(columns="ece").to_parquet(file)
    with pytest.raises(
        CrowdshotError, match=re.escape(f"{file} has no column 'ece', expected the columns experiment, dataset")
    ):
        store.rows()


@pytest.mark.parametrize("values", [{"method": [{"a": 1}] * 3}, {"split": 0.5}, {"accuracy": "high"}])
def test_columns_of_another_type_are_refused(tmp_path, values):
    store = filled(tmp_path, 1)
    file = store.folder / "rows.parquet"
    store.rows().assign(**values).to_parquet(file)
    with pytest.raises(CrowdshotError, match=re.escape(f"{file} has a column {next(iter(values))!r} of ")):
        store.rows()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("times.csv", '"a\n1,2,3\n'),
        ("pending/a.json", "[{"),
        ("pending/a.json", "[[7]]"),
        ("pending/a.json", '[{"what": []}]'),
        ("pending/a.json", r'[{"what": "\ud800"}]'),
        ("runs.jsonl", "{"),
    ],
)
def test_damaged_notes_are_refused(tmp_path, name, text):
    store = filled(tmp_path, 1)
    (store.folder / name).write_text(text)
    with pytest.raises(CrowdshotError, match=re.escape(str(store.folder / name))):
        store.runs() if name == "runs.jsonl" else store.times()


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "main").write_text("a file")
    with pytest.raises(CrowdshotError, match="could not be created"):
        filled(tmp_path, 1)


def test_a_folder_may_be_named_like_a_column(tmp_path):
    root = tmp_path / "split=7"
    store = filled(root, 2)
    store.compact()
    assert sorted(store.rows()["split"].unique()) == [0, 1]


def test_metadata_of_a_piece_is_in_its_file(tmp_path):
    store = filled(tmp_path, 1)
    made = json.loads(pq.read_schema(next(store.pending.glob("*.parquet"))).metadata[b"made"])
    assert made == {**PIECE._asdict(), "seconds": 0.5, "what": "test"}
