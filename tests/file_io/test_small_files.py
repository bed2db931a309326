"""Small files that would take gigabytes or minutes are refused, in a process with little memory."""

import io
import os
import resource
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from crowdshot import CrowdshotError, read_labels
from crowdshot.io.atomic import write_csv
from crowdshot.io.cells import excel_safe
from crowdshot.io.feature_files import read_feature_file
from crowdshot.io.parquet_files import NESTED_BYTES, declared_size
from crowdshot.io.tables import read_table
from crowdshot.io.workbooks import Workbook
from forked import crowdshot

MEMORY = 1_500 * 2**20  # bytes of address space


def refused(path, read="read_labels"):
    """Read the file in a process with limits, and return the error."""
    code = (
        f"from crowdshot import CrowdshotError, read_labels\nfrom crowdshot.io.feature_files import read_feature_file\n"
        f"try:\n    {read}({str(path)!r})\nexcept CrowdshotError as error:\n    print('refused', error)\n"
    )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"}

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))

    line = [sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, preexec_fn=limit, env=environment)
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.startswith("refused"), done.stdout[:300]
    return done.stdout


# ---- Parquet ------------------------------------------------------------------------------------------------------

ROWS = 8_000_000
COLUMNS = {
    "bool": lambda: pa.repeat(True, ROWS),
    "nothing": lambda: pa.nulls(ROWS),
    "struct": lambda: pa.StructArray.from_arrays([pa.repeat(1, ROWS)] * 2, ["a", "b"]),
    "list": lambda: pa.FixedSizeListArray.from_arrays(pa.repeat(1, ROWS), 1),
    "int": lambda: pa.repeat(1, ROWS),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", COLUMNS)
def test_parquet_that_repeats_a_value(tmp_path, kind):
    column, width = COLUMNS[kind](), 1 if kind in ("struct", "list") else 12
    table = pa.table({f"c{i}": column for i in range(width)})
    pq.write_table(table, tmp_path / "x.parquet", compression="zstd")
    assert (tmp_path / "x.parquet").stat().st_size < 600_000
    assert "unpacks to" in refused(tmp_path / "x.parquet")
    assert "unpacks to" in refused(tmp_path / "x.parquet", "read_feature_file")


@pytest.mark.slow
def test_a_long_list_in_parquet(tmp_path):
    table = pa.table({"item": ["a"], "label": pa.array([[1] * 8_000_000], pa.list_(pa.int64()))})
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(CrowdshotError, match="unpacks to"):
        read_table(tmp_path / "x.parquet")


@pytest.fixture(scope="module")
def long_list(tmp_path_factory):
    """Return a file of a kilobyte with a list of 30 million numbers."""
    path = tmp_path_factory.mktemp("lists") / "x.parquet"
    label = pa.ListArray.from_arrays(pa.array([0, 30_000_000], pa.int32()), pa.repeat(1, 30_000_000))
    table = pa.table({"item": ["a"], "annotator": ["b"], "label": label})
    pq.write_table(table, path, compression="zstd", compression_level=19)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("read", ["read_labels({})", "read_feature_file({})", "sources_of([Path({})])"])
def test_a_list_of_any_length_is_not_decoded_in_this_process(long_list, read):
    code = (
        "import re\nfrom pathlib import Path\nfrom crowdshot import CrowdshotError, read_labels\n"
        "from crowdshot.engine.label_sources import sources_of\n"
        "from crowdshot.io.feature_files import read_feature_file\n"
        f"try:\n    {read.format(repr(str(long_list)))}\nexcept CrowdshotError:\n"
        "    print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert int(done.stdout) < 500_000  # kB; 800 MB when it is decoded


def test_metadata_of_columns_are_not_used():
    """Damaged ones end the process in pyarrow."""
    schema = pa.schema([("a", pa.bool_()), ("b", pa.list_(pa.int64()))])
    assert declared_size(SimpleNamespace(num_rows=10), schema) == 10 * (16 + NESTED_BYTES)


def test_nested_parquet_of_label_tools_is_read(tmp_path):
    frame = pd.DataFrame({"item": ["a", "b"], "n": [{"x": 1}, {"x": 2}], "parts": [[1, 2], []], "ok": [True, None]})
    frame.to_parquet(tmp_path / "x.parquet")
    assert read_table(tmp_path / "x.parquet").frame["parts"].map(len).tolist() == [2, 0]


# ---- arrays -------------------------------------------------------------------------------------------------------


def header(text):
    text = text.encode("latin1")
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


HEADERS = {
    "no bytes": "{'descr': '<U0', 'fortran_order': False, 'shape': (2147483648, 2147483648), }\n",
    "one row": "{'descr': '<U0', 'fortran_order': False, 'shape': (2147483648, 1), }\n",
    "void": "{'descr': '|V0', 'fortran_order': False, 'shape': (2147483648, 2), }\n",
    "open": "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), \n",
    "token": "{'descr': '<f4', 'fortran_order': False, 'shape': (0777L, 2), }\n",
    "huge": "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999999, 2), }\n",
    "negative": "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -2), }\n",
    "deep": "{'descr': " + "(" * 5_000 + ")" * 5_000 + "}\n",
    "minus": "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "-" * 5_000 + "1, 2), }\n",
    "quote": "{'descr': '''\n",
}


@pytest.mark.parametrize("kind", HEADERS)
@pytest.mark.parametrize("packed", [False, True])
def test_headers_of_arrays(tmp_path, kind, packed):
    data = header(HEADERS[kind]) + bytes(16)
    path = tmp_path / ("x.npz" if packed else "x.npy")
    path.write_bytes(data)
    if packed:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("ids.npy", data)
            archive.writestr("features.npy", data)
    with pytest.raises(CrowdshotError):
        read_feature_file(path)


# ---- workbooks and other archives ---------------------------------------------------------------------------------


def workbook():
    held = io.BytesIO()
    pd.DataFrame({"item": ["a", "b"], "annotator": ["x", "x"], "label": ["c", "d"]}).to_excel(held, index=False)
    return held.getvalue()


def changed(data, change):
    """Return an archive with members changed by ``change(name, content)``, which may return another name."""
    held = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(*change(name, old.read(name)))
    return held.getvalue()


def many_styles(name, content):
    at = content.find(b"<cellXfs")
    end = content.find(b">", at) + 1
    return (name, content[:end] + b"<xf/>" * 2_000_000 + content[end:]) if name == "xl/styles.xml" else (name, content)


def renamed_strings(name, content):
    """Turn a member into shared strings under another name, with many more of them."""
    return ("xl/strings.bin", b"<sst>" + b"<si/>" * 2_000_000 + b"</sst>") if "theme" in name else (name, content)


@pytest.mark.parametrize("change", [many_styles, renamed_strings])
def test_workbooks_with_millions_of_elements(tmp_path, change):
    path = tmp_path / "x.xlsx"
    path.write_bytes(changed(workbook(), change))
    assert path.stat().st_size < 300_000
    with pytest.raises(CrowdshotError, match="XML elements"):
        Workbook(path.read_bytes(), "x.xlsx")


def test_a_workbook_with_a_large_member_of_any_name(tmp_path, monkeypatch):
    monkeypatch.setattr("crowdshot.io.workbooks.MOST_BYTES", 2**20)
    data = changed(workbook(), lambda name, content: (name, content))
    held = io.BytesIO(data)
    with zipfile.ZipFile(held, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/other.bin", bytes(2**22))
    with pytest.raises(CrowdshotError, match="unpacks to"):
        Workbook(held.getvalue(), "x.xlsx")


@pytest.mark.slow
def test_a_workbook_that_takes_hours_is_refused_in_time(tmp_path, monkeypatch):
    """openpyxl searches the name of a print area in quadratic time."""
    area = b'<definedNames><definedName name="_xlnm.Print_Area" localSheetId="0">%s</definedName></definedNames>'

    def change(name, content):
        content = content.replace(b"<definedNames/>", b"").replace(b"<definedNames />", b"")
        return name, content.replace(b"</sheets>", b"</sheets>" + area % (b"a" * 2_000_000))

    path = tmp_path / "x.xlsx"
    path.write_bytes(changed(workbook(), change))
    assert path.stat().st_size < 20_000
    monkeypatch.setattr("crowdshot.io.workbooks.SECONDS", 2)
    with pytest.raises(CrowdshotError, match="within 2 seconds") as error:
        read_labels(path)
    assert error.value.where == str(path)


def test_an_archive_of_cvat_with_millions_of_images(tmp_path):
    text = "<annotations>" + '<image name="a"/>' * 1_500_000 + "</annotations>"
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("annotations.xml", text)
    with pytest.raises(CrowdshotError, match="XML elements"):
        read_labels(tmp_path / "x.zip")


# ---- what is written ----------------------------------------------------------------------------------------------

NAMES = ["a\r=1+1,ann,cat", "plain", "a\r\nb", 'q"\r"', "\r"]


def test_carriage_returns_make_no_rows(tmp_path):
    table = pd.DataFrame({"item": NAMES, "n": range(5), "label": ["cat\rdog"] * 5})
    write_csv(table, tmp_path / "x.csv")
    assert pd.read_csv(tmp_path / "x.csv")["n"].tolist() == list(range(5))
    assert pd.read_csv(tmp_path / "x.csv", keep_default_na=False)["item"].tolist() == NAMES
    write_csv(table[["n"]].rename(columns={"n": "a\rb"}), tmp_path / "y.csv")
    assert list(pd.read_csv(tmp_path / "y.csv")) == ["a\rb"]
    write_csv(table[["n"]], tmp_path / "z.csv")
    assert b"\r" not in (tmp_path / "z.csv").read_bytes()


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠"])
def test_formulas_of_any_width_are_escaped_everywhere(tmp_path, start):
    from crowdshot.labels.formats.writers import WRITERS

    name = f"{start}cmd|x"
    (tmp_path / "labels.jsonl").write_text(
        "".join(f'{{"item": "i{i}", "annotator": {w!r}, "label": "c"}}\n' for i in range(3) for w in ("ann", "bob"))
        .replace("'", '"')
    )  # fmt: skip
    read = read_labels(tmp_path / "labels.jsonl")
    ann = read.annotations
    ann.items[0] = name
    ann.annotators[0] = name
    table = ann.to_frame().drop_duplicates("item").assign(confidence=0.5)
    with excel_safe():
        for kind in ("csv", "crowdkit", "cleanlab"):
            WRITERS[kind](tmp_path / kind, table, type(read)(ann))
            found = pd.read_csv(tmp_path / kind, keep_default_na=False)
            cells = [str(cell) for cell in [*found.columns, *found.to_numpy().ravel()]]
            assert f"'{name}" in cells, (kind, cells)
            assert not any(cell.startswith(start) for cell in cells)


# ---- wide tables --------------------------------------------------------------------------------------------------


def test_the_header_of_a_table_is_made_once(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    table = read_table(tmp_path / "x.csv")
    assert table.header is table.header


@pytest.mark.slow
def test_records_with_other_keys_each_are_refused(tmp_path):
    lines = "".join(f'{{"item": "i{i}", "annotator": "a", "label": "c", "k{i}": 1}}\n' for i in range(30_000))
    (tmp_path / "x.jsonl").write_text(lines)
    with pytest.raises(CrowdshotError, match="fields"):
        read_table(tmp_path / "x.jsonl")


@pytest.mark.slow
def test_many_columns_of_features(tmp_path):
    names = [f"f{i}" for i in range(3_000)]
    frame = pd.DataFrame(np.arange(6_000).reshape(2, -1), columns=names)
    frame.insert(0, "item", ["a", "b"])
    frame.to_csv(tmp_path / "x.csv", index=False)
    assert (
        read_feature_file(tmp_path / "x.csv").features.to_numpy().tolist() == np.arange(6_000).reshape(2, -1).tolist()
    )


# ---- large images -------------------------------------------------------------------------------------------------

SIDE = 7_000  # pixels
MEGABYTES = 1_200


PEAK = """
import resource, subprocess, sys
code = subprocess.call([sys.executable, "-m", "crowdshot", *sys.argv[1:]], stdout=subprocess.DEVNULL)
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""  # in a small process, as a child's peak memory is at least its parent's


def large_image(mode):
    ramp = (np.arange(SIDE)[:, None] + np.arange(SIDE)) % 250
    if mode == "I;16":
        return Image.fromarray((ramp * 256).astype(np.uint16))
    grey = Image.fromarray(ramp.astype(np.uint8))
    return grey.convert("P") if mode == "P" else Image.merge(mode, [grey] * len(mode))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["RGBA", "I;16", "P"])
def test_adapt_with_a_large_image_among_others(tmp_path, mode):
    photos = tmp_path / "photos"
    photos.mkdir()
    for i in range(6):
        Image.new("RGB", (32, 32), (20 * i, 0, 0)).save(photos / f"{i}.png")
    large_image(mode).save(photos / "0.png", compress_level=1, **({"transparency": 3} if mode == "P" else {}))
    rows = "".join(f"{i}.png,{who},{'ab'[i % 2]}\n" for i in range(6) for who in "xyz")
    (tmp_path / "labels.csv").write_text("item,annotator,label\n" + rows)
    line = ["adapt", tmp_path / "labels.csv", "--images", photos, "--out", tmp_path / "out"]
    output = subprocess.run(
        [sys.executable, "-c", PEAK, *map(str, line)], stdout=subprocess.PIPE, check=True, text=True
    )
    code, kilobytes = map(int, output.stdout.split())
    assert code == 0
    assert kilobytes / 1024 < MEGABYTES


@pytest.mark.slow
def test_errors_about_very_wide_tables_are_short(tmp_path):
    """The advice on columns, which compares them, is left out."""
    n = 70_000
    file = tmp_path / "wide.csv"
    cells = ",".join("x" * n)
    file.write_text(",".join(f"column {i}" for i in range(n)) + f"\n{cells}\n{cells}\n{cells}\n")
    done = crowdshot(tmp_path, "aggregate", file.name)
    assert done.returncode == 2
    assert len(done.stderr) < 1000
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("depth", [300, 5_000])
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_deeply_nested_feature(tmp_path, ending, depth):
    labels = [f"{item},{annotator},{'xy'[item % 2]}" for item in range(6) for annotator in ("ann", "bob")]
    (tmp_path / "labels.csv").write_text("\n".join(["item,annotator,label", *labels]))
    sizes = ["1", "2", "3", "4", "5", "[" * depth + "1" + "]" * depth]
    rows = [f"{item},{size}" for item, size in enumerate(sizes)]
    records = [f'{{"item": {item}, "size": {size}}}' for item, size in enumerate(sizes)]
    content = "\n".join(["item,size", *rows] if ending == "csv" else records)
    (tmp_path / f"features.{ending}").write_text(content)
    done = crowdshot(tmp_path, "adapt", "labels.csv", "--features", f"features.{ending}", "--out", "out")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 1500
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--columns", "item=it\rem"], ["--method", "so\rft"], ["--batch", "a\rb=c"]])
def test_a_carriage_return_in_an_option(tmp_path, words):
    (tmp_path / "labels.csv").write_text("item,annotator,label\na,ann,x\nb,ann,y\na,bob,x\n")
    done = crowdshot(tmp_path, "aggregate", "labels.csv", *words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "\r" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["labels.csv"]


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e18, 1e28, 1e36])
def test_a_column_of_huge_features(tmp_path, size):
    random = np.random.default_rng(0)
    truth = np.arange(30) % 2
    pd.DataFrame(
        {"item": np.arange(30), "f1": 3 * truth + random.random(30), "f2": size * random.normal(size=30)}
    ).to_csv(tmp_path / "features.csv", index=False)
    rows = [f"{i},{who},{'cat' if truth[i] else 'dog'}\n" for i in range(30) for who in "abc"]
    (tmp_path / "labels.csv").write_text("item,annotator,label\n" + "".join(rows))
    done = crowdshot(tmp_path, "adapt", "labels.csv", "--features", "features.csv", "--out", "out")
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 2), done.stderr
    if done.returncode == 0:
        found = pd.read_csv(tmp_path / "out" / "consensus.csv")
        assert found["confidence"].between(0, 1).all()
        assert (found["label"] == np.where(found["item"] % 2 == 1, "cat", "dog")).all()
    else:
        assert not (tmp_path / "out").exists()
