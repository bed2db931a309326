"""Results on disk: a row for each episode, safe to interrupt, never measured twice.

    results/<experiment>/<dataset>/rows.parquet     what is finished
                                  /pending/…        what a run has finished since, one file for each piece of work
                                  /times.csv        seconds of each piece of work, and of each meta-training
                                  /runs.jsonl       command, seed, versions and device of every run that added rows

Pieces are written under a temporary name and renamed, so that any number of processes can share a store and one that is
killed leaves no half piece. `compact` moves finished pieces into `rows.parquet`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from crowdshot.atomic import replacing
from crowdshot.errors import CrowdshotError

KEYS = ["experiment", "dataset", "split", "n_support", "n_annotators", "mixture", "method", "candidate", "role"]
COLUMNS = [*KEYS, "episode", "accuracy", "ece"]
SMALL = {"split": "int8", "n_support": "int16", "n_annotators": "int16", "episode": "int16"}


class Piece(NamedTuple):
    """What is done at a time and stored as one: a method on all crowds of one (support, annotators) of one split."""

    experiment: str
    dataset: str
    split: int
    n_support: int
    n_annotators: int
    method: str


class Store:
    """The rows of one experiment on one dataset."""

    def __init__(self, root: Path, experiment: str, dataset: str) -> None:
        self.experiment, self.dataset = experiment, dataset
        self.folder = root / experiment / dataset
        self.pending = self.folder / "pending"

    def add(self, piece: Piece, rows: pd.DataFrame, seconds: Mapping[str, Any]) -> None:
        """All of a piece or nothing. ``seconds`` and whatever else is told of its making travel in the file."""
        self.pending.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pandas(_tidy(rows.assign(**piece._asdict())), preserve_index=False)
        table = table.replace_schema_metadata({"made": json.dumps({**piece._asdict(), **seconds})})
        with replacing(self.pending / f"{_slug(piece)}.parquet") as temporary:
            pq.write_table(table, temporary, compression="zstd")

    def done(self) -> set[Piece]:
        """The pieces that need not be run again."""
        rows = self.rows()
        found = rows[list(Piece._fields)].drop_duplicates()
        return {Piece(*row) for row in found.astype(object).itertuples(index=False)}

    def rows(self) -> pd.DataFrame:
        """All rows, `COLUMNS`."""
        parts = [_read(file) for file in self._files()]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)

    def times(self) -> pd.DataFrame:
        """A row for each piece (``what`` is "test") and each meta-trained encoder ("meta-training")."""
        file = self.folder / "times.csv"
        kept = [pd.read_csv(file)] if file.exists() else []
        found = [*kept, *self._pending_times()]
        columns = [*Piece._fields, "what", "seconds", "episodes", "candidates", "device", "encoder", "best"]
        return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=columns)

    def note_training(self, name: str, encoders: Sequence[Mapping[str, Any]]) -> None:
        """Seconds of meta-training encoders, kept beside the pieces that use them."""
        self.pending.mkdir(parents=True, exist_ok=True)
        known = {"experiment": self.experiment, "dataset": self.dataset, "what": "meta-training"}
        with replacing(self.pending / f"{name}.json") as temporary:
            temporary.write_text(json.dumps([{**known, **encoder} for encoder in encoders]))

    def note_run(self, about: Mapping[str, Any]) -> None:
        """One line in runs.jsonl: how rows came about."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "runs.jsonl").open("a") as file:
            file.write(json.dumps({"when": time.strftime("%Y-%m-%d %H:%M", time.gmtime()), **about}) + "\n")

    def compact(self) -> None:
        """Pieces into rows.parquet. Killed in between, some pieces are in both, which `_whole` puts right."""
        if not self.pending.exists():
            return
        times, files = self.times(), sorted(self.pending.iterdir())
        rows = _whole(self.rows())
        if len(rows):
            with replacing(self.folder / "rows.parquet") as temporary:
                table = pa.Table.from_pandas(_tidy(rows), preserve_index=False)
                pq.write_table(table, temporary, compression="zstd", compression_level=15)
        with replacing(self.folder / "times.csv") as temporary:
            times.drop_duplicates().to_csv(temporary, index=False)
        for file in files:
            file.unlink(missing_ok=True)
        if not any(self.pending.iterdir()):
            self.pending.rmdir()

    def _files(self) -> Iterable[Path]:
        whole = self.folder / "rows.parquet"
        return [*([whole] if whole.exists() else []), *sorted(self.pending.glob("*.parquet"))]

    def _pending_times(self) -> list[pd.DataFrame]:
        made = [json.loads(pq.read_schema(file).metadata[b"made"]) for file in sorted(self.pending.glob("*.parquet"))]
        made += [row for file in sorted(self.pending.glob("*.json")) for row in json.loads(file.read_text())]
        return [pd.DataFrame(made)] if made else []


def read_rows(root: Path, experiment: str, dataset: str) -> pd.DataFrame:
    """The rows of one experiment on one dataset, each once; none where it was not run."""
    return _whole(Store(root, experiment, dataset).rows())


def _read(file: Path) -> pd.DataFrame:
    try:
        frame = pd.read_parquet(file)
    except (OSError, pa.ArrowException) as error:
        raise CrowdshotError(f"{file} is not a readable Parquet file ({str(error).splitlines()[0]}).") from None
    missing = [column for column in COLUMNS if column not in frame]
    if missing:
        raise CrowdshotError(f"{file} has no column {missing[0]!r}, expected {', '.join(COLUMNS)}.")
    for column in frame.select_dtypes("category"):
        frame[column] = frame[column].astype(object)
    return frame[COLUMNS]


def _whole(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows.drop_duplicates([*KEYS, "episode"], keep="last")
    return rows.sort_values([*KEYS, "episode"], ignore_index=True)


def _tidy(rows: pd.DataFrame) -> pd.DataFrame:
    """Small: words once, whole numbers short, four decimals."""
    words = {name: "category" for name in KEYS if name not in SMALL}
    rows = rows[COLUMNS].astype({**SMALL, **words})
    return rows.assign(accuracy=rows["accuracy"].astype("float32"), ece=rows["ece"].astype("float32").round(4))


def _slug(piece: Piece) -> str:
    method = piece.method.replace("/", "").replace(" ", "-")
    return f"split{piece.split}-{piece.n_support}-{piece.n_annotators}-{method}"
