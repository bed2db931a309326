"""Test feature files: ids as written, finite float32 values, and clear errors."""

import io
import zipfile

import numpy as np
import pandas as pd
import pytest

from crowdshot.errors import CrowdshotError
from crowdshot.io.feature_files import features_of, read_feature_file
from crowdshot.io.table_pieces import table_pieces
from sheets import workbook

X = np.array([[0.5, -1.0], [2.0, 3.25]], dtype=np.float32)
FRAME = pd.DataFrame({"image": ["007", "8.png"], "f0": X[:, 0], "f1": X[:, 1]})


def write(path, content) -> None:
    if isinstance(content, dict):
        np.savez(path, **content)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize(
    "save",
    [
        lambda path: FRAME.to_csv(path, index=False),
        lambda path: FRAME.to_csv(path, index=False, sep="\t"),
        lambda path: FRAME.set_axis(["", 0, 1], axis=1).to_csv(path, index=False),
        lambda path: FRAME.to_csv(path, index=False, encoding="utf-8-sig"),
        lambda path: FRAME.to_parquet(path),
        lambda path: FRAME.set_index("image").to_parquet(path),
        lambda path: FRAME.to_json(path, orient="records", lines=True),
        lambda path: np.savez(path.open("wb"), ids=np.array(["007", "8.png"]), features=X),
        lambda path: np.savez_compressed(path.open("wb"), ids=np.array([b"007", b"8.png"]), features=X.astype(float)),
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_same_features_in_many_files(tmp_path, save) -> None:
    save(tmp_path / "file")  # the content decides, not the name
    read = read_feature_file(tmp_path / "file")
    assert read.ids.tolist() == ["007", "8.png"]
    assert np.asarray(read.features).dtype == np.float32
    np.testing.assert_array_equal(read.features, X)


def test_columns_have_names_if_these_are_unique(tmp_path) -> None:
    (tmp_path / "f.csv").write_text("id,x,y\na,1,2\n")
    assert list(read_feature_file(tmp_path / "f.csv").features.columns) == ["x", "y"]
    (tmp_path / "f.csv").write_text("id,x,x\na,1,2\n")
    assert isinstance(read_feature_file(tmp_path / "f.csv").features, np.ndarray)


def test_wanted_columns_are_read_by_name_and_others_ignored(tmp_path) -> None:
    (tmp_path / "f.csv").write_text("id,y,colour,x,z,z\na,2,red,1,0,0\n")
    read = read_feature_file(tmp_path / "f.csv", wanted=["x", "y"])
    assert list(read.features.columns) == ["x", "y"]
    assert read.features.to_numpy().tolist() == [[1, 2]]
    with pytest.raises(CrowdshotError, match=r"f\.csv has no column 'id', expected one, as in fit\."):
        read_feature_file(tmp_path / "f.csv", wanted=["x", "id"])
    with pytest.raises(CrowdshotError, match=r"f\.csv has more than one column 'z', expected one, as in fit\."):
        read_feature_file(tmp_path / "f.csv", wanted=["z"])


def test_whole_numbers_as_ids_match_labels_read_as_text(tmp_path) -> None:
    np.savez(tmp_path / "f.npz", ids=np.array([7, 8]), features=X)
    FRAME.assign(image=[7, 8]).to_parquet(tmp_path / "f.parquet")
    assert read_feature_file(tmp_path / "f.npz").ids.tolist() == ["7", "8"]
    assert read_feature_file(tmp_path / "f.parquet").ids.tolist() == ["7", "8"]


IDS = np.array(["a", "b"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,x\na,1\na,2\nb,2\nb,3\n", r"f.npz, row 3, column 'id' is 'a', as in row 2 \(2 ids are repeated\)"),
        ("id,x\n,1\n", "f.npz, row 2, column 'id' is empty"),
        ("id,x,y\na,1,2\nb,1,NaN\n", "f.npz, row 3, column 'y' is empty or NaN, expected a finite number"),
        ("id,x,y\na,1,2\nb,1,\n", "f.npz, row 3, column 'y' is empty or NaN"),
        ("id,x,y\na,1,2\nb,inf,3\n", "f.npz, row 3, column 'x' is inf"),
        ("id,x,y\na,1,2\nb,1e300,3\n", r"f.npz, row 3, column 'x' is 1e\+300"),
        ("id,x,colour\na,1,red\n", "f.npz, row 2, column 'colour' is 'red', expected a number"),
        ("id,x\na,1,2\n", "f.npz, row 2 has 3 cells, expected 2"),
        ("a,0.5,0.25\nb,1,2\n", r"f.npz, row 1 holds numbers \(0.5, 0.25, …\), expected the names"),
        ("id,x\n", "f.npz has a header but no rows"),
        ('{"id": 1}', "f.npz has 1 column"),
        ("", "f.npz is empty"),
        (b"PK\x03\x04garbage", "f.npz is damaged or of another kind"),
        ({"names": IDS, "features": X}, "f.npz has no array 'ids' among names, features"),
        ({"ids": IDS, "X": X}, "f.npz has no array 'features'"),
        (
            {"ids": IDS[:1], "features": X},
            r"f.npz has ids of shape \(1,\) and features of shape \(2, 2\), expected \(N,\) and \(N, D\)",
        ),
        ({"ids": IDS, "features": X[:, 0]}, r"features of shape \(2,\)"),
        ({"ids": IDS[:0], "features": X[:0]}, r"features of shape \(0, 2\), expected one item"),
        ({"ids": IDS[[0, 0]], "features": X}, "column 'ids' is 'a', as in row 1"),
        ({"ids": IDS, "features": X * [np.nan, 1]}, "f.npz, item 'a', feature 0 is nan"),
        ({"ids": IDS, "features": X.astype(str)}, "features of type <U"),
        ({"ids": np.array([0.5, 1.5]), "features": X}, "ids of type float64"),
        ({"ids": np.array(["a", None]), "features": X}, "f.npz holds pickled objects"),
    ],
)
def test_bad_files(tmp_path, content, message: str) -> None:
    write(tmp_path / "f.npz", content)
    with pytest.raises(CrowdshotError, match=message):
        read_feature_file(tmp_path / "f.npz")


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_decimal_commas(tmp_path, separator: str) -> None:
    rows = ["id;x;y", "a;106,33;1.234.567,5", "b;-0,5;-1,234", "c;7;,5", "d;+1,5e3;0,0"]
    (tmp_path / "f.csv").write_text("\n".join(rows).replace(";", separator))
    read = read_feature_file(tmp_path / "f.csv", mixed=None)
    expected = np.array([[106.33, 1234567.5], [-0.5, -1.234], [7, 0.5], [1500, 0]], dtype=np.float32)
    np.testing.assert_array_equal(read.features, expected)


@pytest.mark.parametrize("odd", ["1.5", "1.234", "1,2,3", "1.23,5", "many", "5,"])
def test_invalid_numbers_with_decimal_commas(tmp_path, odd: str) -> None:
    (tmp_path / "f.csv").write_text(f"id;x\na;0,5\nb;1,5\nc;{odd}\n")
    with pytest.raises(CrowdshotError, match=rf"f\.csv, row 4, column 'x' is '{odd}', expected a number"):
        read_feature_file(tmp_path / "f.csv", mixed=None)


def test_a_separating_comma_is_not_a_decimal_comma(tmp_path) -> None:
    (tmp_path / "f.csv").write_text('id,x\na,"0,5"\nb,"1,5"\n')
    assert read_feature_file(tmp_path / "f.csv", mixed=None).features["x"].tolist() == ["0,5", "1,5"]


def test_decimal_commas_in_pieces(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("crowdshot.io.table_pieces.SIZE", 10)
    (tmp_path / "f.csv").write_text("id;x\na;0,5\nb;1,5\nc;2\nd;2,5\n")
    pieces = [features_of(piece.table, False).features for piece in table_pieces(tmp_path / "f.csv")]
    assert len(pieces) > 1
    assert np.concatenate(pieces).tolist() == [[0.5], [1.5], [2], [2.5]]


def test_a_truncated_npz_is_refused(tmp_path) -> None:
    np.savez(tmp_path / "f.npz", ids=IDS, features=X)
    whole = (tmp_path / "f.npz").read_bytes()
    for size in range(4, len(whole) - 1, 37):
        (tmp_path / "f.npz").write_bytes(whole[:size])
        with pytest.raises(CrowdshotError, match=r"f.npz is damaged"):
            read_feature_file(tmp_path / "f.npz")


def write_arrays(path, way: int) -> None:
    with zipfile.ZipFile(path, "w", way) as archive:
        for name, array in [("ids", np.array(["a", "b"])), ("features", X)]:
            held = io.BytesIO()
            np.save(held, array)
            archive.writestr(f"{name}.npy", held.getvalue())


@pytest.mark.parametrize("way", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_arrays_compressed_in_usual_ways(tmp_path, way) -> None:
    write_arrays(tmp_path / "f.npz", way)
    np.testing.assert_array_equal(read_feature_file(tmp_path / "f.npz").features, X)


def test_arrays_compressed_with_lzma_are_refused(tmp_path) -> None:
    """A header of 5 bytes can ask for a dictionary of 4 GB, which the decompressor allocates."""
    write_arrays(tmp_path / "f.npz", zipfile.ZIP_LZMA)
    with pytest.raises(CrowdshotError) as caught:
        read_feature_file(tmp_path / "f.npz")
    assert caught.value.found == "LZMA"


def test_a_workbook_of_features(tmp_path):
    (tmp_path / "f.xlsx").write_bytes(workbook(one=[["id", "x", "y"], ["007", 1, 2.5], ["8", 0.0, -1]]))
    file = read_feature_file(tmp_path / "f.xlsx")
    assert file.ids.tolist() == ["007", "8"]
    np.testing.assert_array_equal(file.features, [[1, 2.5], [0, -1]])


def test_rows_of_a_plain_array_are_numbered(tmp_path):
    np.save(tmp_path / "f.npy", X)
    found = read_feature_file(tmp_path / "f.npy")
    assert found.ids.tolist() == ["0", "1"]
    assert found.features.dtype == np.float32
    np.testing.assert_allclose(found.features, X)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.arange(3.0), r"f.npy has an array of shape \(3,\), expected \(N, D\), a row for each item"),
        (np.empty((0, 4)), r"f.npy has an array of shape \(0, 4\)"),
        (X * [1, np.inf], "f.npy, item '0', feature 1 is -inf, expected a finite number"),
        (np.array([["a"]]), "f.npy has features of type <U1, expected numbers"),
        (np.array([[{}]]), r"f.npy is damaged or holds objects \("),
        (b"\x93NUMPY\x01\x00", r"f.npy is damaged or holds objects \("),
    ],
)
def test_arrays_without_features_are_refused(tmp_path, array, message):
    if isinstance(array, bytes):
        (tmp_path / "f.npy").write_bytes(array)
    else:
        np.save(tmp_path / "f.npy", array, allow_pickle=True)
    with pytest.raises(CrowdshotError, match=message):
        read_feature_file(tmp_path / "f.npy")
