"""Store the results of experiments on disk, one row per episode.

    results/<experiment>/<dataset>/rows.parquet     finished pieces of work
                                  /pending/…        pieces finished since then, one file each
                                  /times.csv        seconds of each piece of work and of each meta-training
                                  /runs.jsonl       command, splits, versions and devices of every run that added rows

Pieces are written to a temporary file, which is then renamed. Several processes can share a store, and a killed process
leaves no incomplete piece. `compact` moves finished pieces to `rows.parquet`, one process at a time.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from crowdshot.errors import CrowdshotError
from crowdshot.io.atomic import replacing, sweep
from crowdshot.io.json_text import parse_json_lines
from crowdshot.methods import current_name

T = TypeVar("T")

KEYS = ["experiment", "dataset", "split", "n_support", "n_annotators", "mixture", "method", "candidate", "role"]
COLUMNS = [*KEYS, "episode", "accuracy", "ece"]
INTEGERS = ["split", "n_support", "n_annotators", "episode"]
ABANDONED = 3600.0  # seconds after which a temporary file is regarded as abandoned


class Piece(NamedTuple):
    """A unit of work, stored at once: a method on all crowds of one (support, annotators) in one split."""

    experiment: str
    dataset: str
    split: int
    n_support: int
    n_annotators: int
    method: str


TIMES = [*Piece._fields, "what", "seconds", "episodes", "candidates", "device", "encoder", "best", "precision"]
TIMES_KEY = [*Piece._fields, "what", "encoder", "seconds"]  # rows of times with equal values are duplicates


class Store:
    """The rows of one experiment on one dataset."""

    def __init__(self, root: Path, experiment: str, dataset: str) -> None:
        self.experiment, self.dataset = experiment, dataset
        self.folder = root / experiment / dataset
        self.pending = self.folder / "pending"

    def add(self, piece: Piece, rows: pd.DataFrame, seconds: Mapping[str, Any]) -> None:
        """Add the rows of a piece; ``seconds`` has its time and other metadata, which are stored in the file."""
        self._make(self.pending)
        table = pa.Table.from_pandas(_tidy(rows.assign(**piece._asdict())), preserve_index=False, nthreads=1)
        table = table.replace_schema_metadata({"made": json.dumps({**piece._asdict(), **seconds})})
        with replacing(self._file(piece, rows["candidate"])) as temporary:
            pq.write_table(table, temporary, compression="zstd")

    def has(self, piece: Piece, candidates: Iterable[str]) -> bool:
        """Return whether these candidates were added since the last `compact`; this is a cheap check."""
        return self._file(piece, candidates).exists()

    def done(self) -> dict[Piece, set[str]]:
        """Return the finished pieces and, for each, its finished candidates."""
        found = defaultdict(set)
        for part in self._parts():
            for *piece, name in part[[*Piece._fields, "candidate"]].drop_duplicates().astype(object).to_numpy():
                found[Piece(*piece)].add(name)
        return dict(found)

    def rows(self) -> pd.DataFrame:
        """Return all rows with columns `COLUMNS`, sorted and without duplicates."""
        parts = self._parts()
        if not parts:
            return pd.DataFrame(columns=COLUMNS)
        rows = pd.concat(parts, ignore_index=True).drop_duplicates([*KEYS, "episode"])
        return rows.sort_values([*KEYS, "episode"], ignore_index=True)

    def _parts(self) -> list[pd.DataFrame]:
        # pieces first: those that another process compacts meanwhile are then in rows.parquet
        return [*_existing(_read, self._pieces()), *_existing(_read, [self.folder / "rows.parquet"])]

    def note_training(self, name: str, encoders: Sequence[Mapping[str, Any]]) -> None:
        """Store the seconds of meta-training, next to the pieces that use the encoders."""
        self._make(self.pending)
        known = {"experiment": self.experiment, "dataset": self.dataset, "what": "meta-training"}
        with replacing(self.pending / f"{name}.json") as temporary:
            temporary.write_text(json.dumps([{**known, **encoder} for encoder in encoders]))

    def times(self) -> pd.DataFrame:
        """Return the times of pieces (``what`` is "test") and of encoders ("meta-training"), with columns `TIMES`."""
        made = _existing(_read_making, self._pieces())
        made += [row for rows in _existing(_read_json, sorted(self.pending.glob("*.json"))) for row in rows]
        kept = _existing(_read_csv, [self.folder / "times.csv"])
        found = [part for part in (pd.DataFrame(made), *kept) if len(part)]
        if not found:
            return pd.DataFrame(columns=TIMES)
        times = pd.concat([part.reindex(columns=TIMES) for part in found], ignore_index=True)
        return times.drop_duplicates(TIMES_KEY, ignore_index=True)

    def note_run(self, about: Mapping[str, Any]) -> None:
        """Append a line to runs.jsonl."""
        self._make(self.folder)
        line = json.dumps({"when": time.strftime("%Y-%m-%d %H:%M", time.gmtime()), **about}) + "\n"
        file = self.folder / "runs.jsonl"
        try:
            with file.open("a") as opened:
                opened.write(line)
        except OSError as error:
            raise CrowdshotError(f"could not be written ({error.strerror or error})", where=file) from None

    def runs(self) -> list[dict[str, Any]]:
        """Return the runs that `note_run` has stored, oldest first."""
        found = _existing(_read_lines, [self.folder / "runs.jsonl"])
        return found[0] if found else []

    def compact(self) -> None:
        """Move pieces to rows.parquet.

        If the process is killed meanwhile, some pieces are in both places; `rows` and `times` drop the duplicates.
        """
        if not self.pending.exists():
            return
        with _locked(self.folder):
            files = [file for file in sorted(self.pending.iterdir()) if file.suffix in (".parquet", ".json")]
            if files:
                self._keep(self.rows(), self.times())
            for file in files:
                file.unlink(missing_ok=True)
            for place in (self.folder, self.pending):
                sweep(place)
            for rest in (*self.folder.glob(".*.tmp"), *self.pending.glob(".*.tmp")):  # of processes on other machines
                with suppress(OSError):  # the other process may have removed it
                    if time.time() - rest.stat().st_mtime > ABANDONED:
                        rest.unlink()

    def _keep(self, rows: pd.DataFrame, times: pd.DataFrame) -> None:
        if len(rows):
            with replacing(self.folder / "rows.parquet") as temporary:
                packed = _with_thousandths(_tidy(rows))
                table = pa.Table.from_pandas(packed, preserve_index=False, nthreads=1)
                pq.write_table(table, temporary, compression="zstd", compression_level=15, **_encoding(packed))
        if len(times):
            with replacing(self.folder / "times.csv") as temporary:
                times.to_csv(temporary, index=False)

    def _make(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CrowdshotError(
                f"could not be created ({error.strerror or error})", where=f"The folder {folder}"
            ) from None

    def _file(self, piece: Piece, candidates: Iterable[str]) -> Path:
        method = piece.method.replace("/", "").replace(" ", "-")
        which = zlib.crc32("\n".join(sorted(set(candidates))).encode())
        name = f"split{piece.split}-{piece.n_support}-{piece.n_annotators}-{method}-{which:08x}.parquet"
        return self.pending / name

    def _pieces(self) -> list[Path]:
        return sorted(self.pending.glob("*.parquet"))


def read_rows(root: Path, experiment: str, dataset: str) -> pd.DataFrame:
    """Return the rows of an experiment on a dataset, without duplicates; an empty table if it was not run."""
    return Store(root, experiment, dataset).rows()


# ---- reading and writing files ----


def _existing(read: Callable[[Path], T], files: Iterable[Path]) -> list[T]:
    """Read the files, except those that do not exist (any more)."""
    found = []
    for file in files:
        try:
            found.append(read(file))
        except FileNotFoundError:
            continue
        except CrowdshotError:
            raise
        except Exception as error:  # damaged metadata of pandas may raise any exception
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            message, expected = f"is damaged or of another type ({reason})", "a file written by crowdshot"
            raise CrowdshotError(message, where=file, expected=expected) from None
    return found


def _read(file: Path) -> pd.DataFrame:
    # from memory and without threads: Arrow's threads sometimes abort a process at its end
    table = pq.ParquetFile(pa.BufferReader(file.read_bytes())).read(use_threads=False)
    frame = table.to_pandas(use_threads=False)
    missing = [column for column in COLUMNS if column not in frame]
    if missing:
        message = f"has no column {missing[0]!r}"
        raise CrowdshotError(message, where=file, found=missing[0], expected=f"the columns {', '.join(COLUMNS)}")
    for column in COLUMNS:
        kind = table.schema.field(column).type
        if not _suits(column, kind):
            message = f"has a column {column!r} of type {kind}"
            raise CrowdshotError(message, where=file, found=str(kind), expected="a file written by crowdshot")
    if pd.api.types.is_integer_dtype(frame["ece"]):
        frame["ece"] = frame["ece"].astype("float32") / np.float32(THOUSAND)
    for column in frame.select_dtypes("category"):
        frame[column] = frame[column].astype(object)
    frame["method"] = frame["method"].map(_current_names(frame["method"].unique()))
    return frame[COLUMNS]


def _current_names(names: Iterable[str]) -> dict[str, str]:
    """Return the current names of methods, and of variants such as "Labelings narrow", by their stored names."""
    words = {name: name.split(" ", 1) for name in names}
    return {name: " ".join([current_name(first, warn=False), *rest]) for name, (first, *rest) in words.items()}


def _suits(column: str, kind: pa.DataType) -> bool:
    if column in INTEGERS:
        return bool(pa.types.is_integer(kind))
    if column not in KEYS:
        return bool(pa.types.is_floating(kind) or (column == "ece" and pa.types.is_uint16(kind)))
    words = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(words) or pa.types.is_large_string(words))


def _read_making(file: Path) -> dict[str, Any]:
    return _made(json.loads(pq.read_schema(pa.BufferReader(file.read_bytes())).metadata[b"made"]))


def _read_json(file: Path) -> list[dict[str, Any]]:
    return [_made(row) for row in json.loads(file.read_text())]


def _made(row: Any) -> dict[str, Any]:
    found = dict(row)
    hash(tuple(map(found.get, TIMES_KEY)))  # raises TypeError for damaged values
    json.dumps(found, ensure_ascii=False).encode()  # raises UnicodeError for damaged text
    return found


def _read_lines(file: Path) -> list[dict[str, Any]]:
    return [record for _, record in parse_json_lines(file.read_text(), str(file))]


def _read_csv(file: Path) -> pd.DataFrame:
    return pd.read_csv(file)


def _tidy(rows: pd.DataFrame) -> pd.DataFrame:
    """Compress rows: categories for text, float32, and three decimals of the calibration error, which is noisier."""
    words = {name: "category" for name in KEYS if name not in INTEGERS}
    rows = rows[COLUMNS].astype({**dict.fromkeys(INTEGERS, "int32"), **words})
    return rows.assign(accuracy=rows["accuracy"].astype("float32"), ece=rows["ece"].astype("float32").round(3))


THOUSAND = 1000


def _with_thousandths(rows: pd.DataFrame) -> pd.DataFrame:
    """Store calibration errors as integers of thousandths, which take less space; not if one is missing."""
    whole = np.rint(rows["ece"].astype("float64") * THOUSAND)
    return rows.assign(ece=whole.astype("uint16")) if whole.between(0, THOUSAND).all() else rows


def _encoding(rows: pd.DataFrame) -> dict[str, Any]:
    if rows["ece"].dtype != "uint16":
        return {}
    return {
        "use_dictionary": [column for column in COLUMNS if column != "ece"],
        "column_encoding": {"ece": "BYTE_STREAM_SPLIT"},
    }


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes; the lock of a killed process is released. Windows has no such locks."""
    try:
        import fcntl  # which Windows does not have
    except ImportError:
        yield
        return
    place = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)
