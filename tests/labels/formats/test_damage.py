"""Check that damaged files raise CrowdshotError; `torture.fuzz` found most of these cases."""

import io
import json
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crowdshot.errors import CrowdshotError
from crowdshot.io.feature_files import read_feature_file
from crowdshot.io.table_pieces import table_pieces
from crowdshot.labels import gold_labels
from crowdshot.labels.columns import Columns
from crowdshot.labels.formats import read_labels
from crowdshot.labels.spelling import new_names
from crowdshot.training.source_files import find_items


def npz(**arrays):
    held = io.BytesIO()
    np.savez_compressed(held, **arrays)
    return held.getvalue()


def parquet(about=None, **columns):
    held = io.BytesIO()
    metadata = None if about is None else {"pandas": json.dumps(about)}
    pq.write_table(pa.table(columns, metadata=metadata), held, compression="none", write_statistics=False)
    return held.getvalue()


FEATURES = npz(ids=np.array(["a", "b"]), features=np.random.default_rng(0).random((2, 60)))
LABELS = {"item": ["a", "b"], "annotator": ["x", "x"], "label": ["c", "d"]}
RANGE = {"kind": "range", "start": 0, "stop": 2, "step": 1}
NOTES = {
    "columns": [
        {"name": name, "field_name": name, "pandas_type": "unicode", "numpy_type": "object", "metadata": None}
        for name in LABELS
    ],
    "column_indexes": [],
    "pandas_version": "3.0",
}


def packed(way):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", way) as archive:
        archive.writestr("annotations.xml", "<annotations>" + "<image name='a'><tag label='b'/></image>" * 200)
    data = bytearray(held.getvalue())
    data[len(data) // 2 - 30 : len(data) // 2] = bytes(30)
    return bytes(data)


def with_part(name, content):
    held = io.BytesIO(npz(ids=np.array(["a", "b"])))
    with zipfile.ZipFile(held, "a") as archive:
        archive.writestr(name, content)
    return held.getvalue()


@pytest.mark.parametrize("place", range(450, len(FEATURES) - 250, 61))
def test_compressed_arrays(tmp_path, place):
    (tmp_path / "f.npz").write_bytes(FEATURES[:place] + b"\x5a\xa5\xff" + FEATURES[place + 3 :])
    with pytest.raises(CrowdshotError, match=r"f\.npz"):
        read_feature_file(tmp_path / "f.npz")


@pytest.mark.parametrize("data", [with_part("features", b"7"), with_part("features.npy", b"7")])
def test_archive_members_that_are_not_arrays(tmp_path, data):
    (tmp_path / "f.npz").write_bytes(data)
    for read in (read_feature_file, lambda path: find_items(str(path), 16)):
        with pytest.raises(CrowdshotError, match=r"f\.npz is damaged or of another kind"):
            read(tmp_path / "f.npz")


def test_text_with_invalid_characters(tmp_path):
    ids = np.array(["a", "b"])
    ids.view(np.uint32)[1] = 2**31 - 1
    (tmp_path / "f.npz").write_bytes(npz(ids=ids, features=np.eye(2)))
    with pytest.raises(CrowdshotError, match=r"f\.npz .*invalid characters"):
        read_feature_file(tmp_path / "f.npz")


@pytest.mark.parametrize(
    "about",
    [
        {"index_columns": [], "columns": [{"name": "item"}]},
        {"index_columns": [], "columns": [[]]},
        {"index_columns": 7, "columns": []},
        {"index_columns": [{"kind": []}], "columns": []},
        [],
        {**NOTES, "index_columns": [{**RANGE, "name": "\ud800"}]},
        {**NOTES, "index_columns": [{**RANGE, "name": "item"}] * 2},
    ],
)
@pytest.mark.parametrize("read", [read_labels, lambda path: list(table_pieces(path))])
def test_parquet_with_odd_notes_of_pandas(tmp_path, about, read):
    (tmp_path / "l.parquet").write_bytes(parquet(about, **LABELS))
    with pytest.raises(CrowdshotError, match=r"l\.parquet is damaged"):
        read(tmp_path / "l.parquet")


def test_parquet_with_invalid_text(tmp_path):
    (tmp_path / "l.parquet").write_bytes(
        parquet(**LABELS | {"label": ["y" * 30, "q"]}).replace(b"y" * 20, b"\xff" * 20)
    )
    with pytest.raises(CrowdshotError, match=r"l\.parquet is damaged"):
        read_labels(tmp_path / "l.parquet")


@pytest.mark.parametrize("way", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damaged_cvat_archives(tmp_path, way):
    (tmp_path / "c.zip").write_bytes(packed(way))
    with pytest.raises(CrowdshotError, match=r"c\.zip"):
        read_labels(tmp_path / "c.zip")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", '[{}, {"deep": NaN}]'])
def test_a_task_with_a_number_that_json_cannot_represent(tmp_path, number):
    """The file must be refused when it is read, not when predictions are written."""
    result = {"type": "choices", "from_name": "a", "to_name": "image", "value": {"choices": ["cat"]}}
    task = {"id": 1, "data": {"image": "1.png", "size": 0}, "annotations": [{"completed_by": 1, "result": [result]}]}
    (tmp_path / "s.json").write_text(json.dumps([task]).replace('"size": 0', f'"size": {number}'))
    with pytest.raises(
        CrowdshotError, match=r"s\.json, task 1 has NaN or an infinite number as its id or in its data, expected"
    ):
        read_labels(tmp_path / "s.json")


@pytest.mark.parametrize(
    ("number", "message"), [('{"old": NaN}', "an id with parts"), ("NaN", "as its id"), ("[1]", "id")]
)
def test_a_task_needs_a_number_or_text_as_its_id(tmp_path, number, message):
    """Predictions are written with the id."""
    row = {"image": "1.png", "id": 5, "choice": "cat", "annotator": 3, "annotation_id": 2, "lead_time": 2.0}
    (tmp_path / "s.json").write_text(json.dumps([row]).replace('"id": 5', f'"id": {number}'))
    with pytest.raises(CrowdshotError, match=message) as caught:
        read_labels(tmp_path / "s.json")
    assert "record 1" in str(caught.value.where)


@pytest.mark.parametrize("text", ["item,truth\n", "item,truth\n,\n", "item,truth\na,\n"])
def test_gold_without_a_label(tmp_path, text):
    path = tmp_path / "gold.csv"
    path.write_text(text)
    with pytest.raises(CrowdshotError, match=r"gold\.csv has no true label, expected some of the labelled items"):
        gold_labels.some_of(gold_labels.read(path, Columns()), np.array(["a"], dtype=object), source=path)


def test_new_names_need_two_columns(tmp_path):
    (tmp_path / "n.jsonl").write_text('{"old": "cat"}\n')
    with pytest.raises(CrowdshotError, match=r"n\.jsonl has the header 'old', expected 'old' and 'new'\."):
        new_names(tmp_path / "n.jsonl", "rename", ("old", "new"), ["cat"])


@pytest.mark.parametrize("text", ["{}\n{}", "[{}, {}]"])
def test_records_without_a_field(tmp_path, text):
    (tmp_path / "l.json").write_text(text)
    for read in (read_labels, lambda path: gold_labels.read(path, Columns())):
        with pytest.raises(CrowdshotError, match=r"l\.json (has no column|is a JSON array)"):
            read(tmp_path / "l.json")
