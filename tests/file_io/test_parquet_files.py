"""Check that decompression bombs are refused before they are unpacked, or read with little memory."""

import time
import zipfile
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from crowdshot.encoders.image_input import ImageInput
from crowdshot.errors import CrowdshotError
from crowdshot.io import image_decoding
from crowdshot.io.archive_limits import MOST_TIMES, MOST_UNPACKED, check_parts, check_unpacked
from crowdshot.io.feature_files import read_feature_file
from crowdshot.io.table_pieces import table_pieces
from crowdshot.io.tables import read_table
from crowdshot.labels.formats import read_labels
from crowdshot.training.source_files import find_items


def test_limits_of_unpacked_size():
    check_unpacked("a", 1, MOST_UNPACKED)
    check_unpacked("a", MOST_UNPACKED, MOST_TIMES * MOST_UNPACKED)
    message = r"^a unpacks to 512 MB or more, expected 512 MB at most for a file of 1\.0 MB\.$"
    with pytest.raises(CrowdshotError, match=message):
        check_unpacked("a", 2**20, MOST_UNPACKED + 1)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("read", [read_labels, lambda path: list(table_pieces(path))])
def test_one_cell_that_a_parquet_file_repeats(tmp_path, kind, read):
    """The header counts one cell, but 200,000 rows repeat it: 200 GB, which must not be unpacked."""
    words = pa.array(["x" * 1_000_000], kind)
    cells = pa.DictionaryArray.from_arrays(pa.array([0] * 200_000, pa.int32()), words)
    about = {"pandas": "{}"}  # without Arrow's own schema, which would show it
    table = pa.table({"item": cells, "annotator": cells, "label": cells}, metadata=about)
    pq.write_table(table, tmp_path / "bomb.parquet", store_schema=False)
    assert pq.read_metadata(tmp_path / "bomb.parquet").row_group(0).total_byte_size < 2**23
    with pytest.raises(CrowdshotError, match=r"bomb\.parquet unpacks to [\d,]+ MB or more, expected 512 MB at most"):
        read(tmp_path / "bomb.parquet")


def test_texts_of_every_type_are_read(tmp_path):
    cells = ["a", None, "b" * 100] * 5000
    table = pa.table({f"{kind}": pa.array(cells, kind) for kind in (pa.string(), pa.large_string())})
    table = table.append_column("bytes", pa.array([cell and cell.encode() for cell in cells], pa.binary()))
    pq.write_table(table, tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "a.parquet").frame, table.to_pandas())


def test_parquet_in_pieces_gives_the_same_table(tmp_path):
    rows = pd.DataFrame({"item": [f"{i}" for i in range(9000)], "label": pd.Categorical(np.arange(9000) % 7), "x": 0.5})
    rows.to_parquet(tmp_path / "a.parquet", row_group_size=5000)
    pd.testing.assert_frame_equal(read_table(tmp_path / "a.parquet").frame, pd.read_parquet(tmp_path / "a.parquet"))


@pytest.mark.parametrize(
    ("inside", "read"),
    [
        ("features.npy", read_feature_file),
        ("annotations.xml", read_labels),
        ("cat/1.png", lambda path: find_items(str(path), 16)),
    ],
)
def test_archives_are_limited_by_their_listed_sizes(tmp_path, monkeypatch, inside, read):
    """An archive lists the unpacked sizes of its parts."""
    monkeypatch.setattr("crowdshot.io.archive_limits.MOST_UNPACKED", 2**20)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(inside, bytes(2**21))
    with pytest.raises(CrowdshotError, match=r"bomb\.zip unpacks to 2 MB or more, expected 1 MB at most"):
        read(tmp_path / "bomb.zip")


def test_time_to_check_an_archive_of_many_parts():
    """Images are read in batches, so a large archive is checked hundreds of times."""
    parts = [zipfile.ZipInfo(f"n01930112/{i:016d}.webp") for i in range(20_000)]
    archive = SimpleNamespace(infolist=lambda: parts)
    began = time.process_time()
    check_parts("images.zip", archive, [part.filename for part in parts])
    assert time.process_time() - began < 0.5


def test_large_images_are_reduced_while_decoding(tmp_path, monkeypatch):
    monkeypatch.setattr(image_decoding, "LARGE", 30_000)
    monkeypatch.setattr(image_decoding, "SMALL", 5000)
    pixels = np.repeat(np.repeat(np.arange(100, dtype=np.uint8).reshape(10, 10), 20, 0), 20, 1)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    found, full = image_decoding.decode(tmp_path / "a.png", {})
    assert (found.shape, full) == (
        (1, 1, 67, 67),
        255.0,
    )  # 40,000 pixels, reduced by 3 in each direction
    (batch,) = ImageInput((10, 10), 1).batches([tmp_path / "a.png"], 1)
    np.testing.assert_allclose(batch[0, 0] * 255, np.arange(100).reshape(10, 10), atol=3.5)
