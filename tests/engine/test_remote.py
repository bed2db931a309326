"""Test labels in an object store, with a folder in place of Arrow's file system."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow import fs

from crowdshot._cli.aggregate import aggregate_parts
from crowdshot._cli.inputs import LabelFiles
from crowdshot.engine import label_sources
from crowdshot.errors import CrowdshotError

from .test_engine import cut, parts, rows, same, write


class Store:
    """A fake for Arrow's `FileSystem`; its buckets are folders."""

    def __init__(self, folder):
        self.folder, self.asked = folder, []

    def from_uri(self, uri):
        self.asked.append(uri)
        return fs.SubTreeFileSystem(str(self.folder), fs.LocalFileSystem()), uri.partition("//")[2]


@pytest.fixture
def store(tmp_path, monkeypatch):
    found = Store(tmp_path)
    real = {name: getattr(fs, name) for name in ("LocalFileSystem", "FileSelector")}
    monkeypatch.setattr(label_sources, "fs", SimpleNamespace(FileSystem=found, **real))
    label_sources._connect.cache_clear()
    yield found
    label_sources._connect.cache_clear()


@pytest.mark.filterwarnings("ignore:.*labels? dropped")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_labels_in_a_store_are_read(tmp_path, monkeypatch, store, kind):
    (here,) = write(tmp_path / "bucket", rows(), kind)
    cut(monkeypatch, 37, 50)
    aggregate_parts(LabelFiles([here]), "dawid-skene", 3, tmp_path / "here")
    aggregate_parts(LabelFiles([Path(f"s3://bucket/*.{kind}")]), "dawid-skene", 3, tmp_path / "there")
    assert store.asked == ["s3://bucket"]
    here = parts(tmp_path / "here")
    same(parts(tmp_path / "there"), here.assign(item=here["item"].astype(str)))
    _, finished_before = aggregate_parts(
        LabelFiles([Path(f"s3://bucket/*.{kind}")]), "dawid-skene", 3, tmp_path / "there"
    )
    assert finished_before


def test_missing_files_of_a_store_are_reported(tmp_path, store):
    write(tmp_path / "bucket", rows(), "csv")
    with pytest.raises(CrowdshotError, match=r"^s3:/bucket/\*\.parquet matches no file, expected label files\.$"):
        aggregate_parts(LabelFiles([Path("s3://bucket/*.parquet")]), "soft", 1, tmp_path / "out")
    with pytest.raises(CrowdshotError, match=r"none\.csv does not exist\.$"):
        aggregate_parts(LabelFiles([Path("s3://bucket/none.csv")]), "soft", 1, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("*.parquet", r"^s3:/bucket/\*\.parquet could not be listed \(no route\)"),
        ("a.parquet", r"^s3:/bucket/a\.parquet could not be read \(no route\)"),
    ],
)
def test_an_unreachable_store_is_reported(tmp_path, monkeypatch, store, name, sentence):
    def refuse(uri):
        raise OSError("no route\nto host")

    monkeypatch.setattr(store, "from_uri", refuse)
    with pytest.raises(CrowdshotError, match=sentence):
        aggregate_parts(LabelFiles([Path(f"s3://bucket/{name}")]), "soft", 1, tmp_path / "out")
    assert not (tmp_path / "out").exists()
