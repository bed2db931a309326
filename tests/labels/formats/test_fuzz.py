"""Check that readers read any file or raise one error that names the file and the reason."""

import copy
import io
import json
import zipfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdshot.errors import CrowdshotError
from crowdshot.labels.formats import FORMATS, read_labels
from label_exports import (
    ARGILLA,
    DOCCANO,
    DOCCANO_INTENTS,
    DOCCANO_OLD,
    JUDGES,
    LABELBOX,
    LANGFUSE,
    PHOENIX,
    POTATO,
    POTATO_STATE,
    TOLOKA,
    ZOONIVERSE,
    answer,
    batch,
    image,
    job,
    lines,
)

EXPORTS = Path(__file__).parents[2] / "fixtures" / "label_studio"
PRODIGY = [
    answer("1.png", "a", accept=["x"]),
    answer("1.png", "b", "reject", accept=[]),
    answer("2.png", "b", accept=["y"]),
]
YES_NO = [answer("1.png", "a", label="SPAM", meta={"file": "1"}), answer("1.png", "b", "reject", label="SPAM")]
MTURK = batch(
    ("H1", "A1", "W1", "Approved", "", "1.png", "cat", "[{~a~:{~x~:true,~y~:false}}]", "", ""),
    ("H1", "A2", "W2", "Rejected", "", "1.png", "dog", "[{~a~:{~x~:true,~y~:false}}]", "", ""),
    answers=("Answer.animal", "Answer.taskAnswers"),
)
CVAT = job(image("1.png", "cat") + image("2.png", "dog") + image("3.png"), "ann")


def parquet() -> bytes:
    held = io.BytesIO()
    pd.DataFrame(ARGILLA).to_parquet(held)
    return held.getvalue()


def packed(parts: dict[str, str]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return held.getvalue()


FILES: dict[str, bytes] = {
    "studio.json": (EXPORTS / "export.json").read_bytes(),
    "studio_min.json": (EXPORTS / "export_min.json").read_bytes(),
    "studio.csv": (EXPORTS / "export.csv").read_bytes(),
    "argilla.json": json.dumps(ARGILLA).encode(),
    "argilla.parquet": parquet(),
    "prodigy.jsonl": lines(PRODIGY).encode(),
    "yes_no.jsonl": lines(YES_NO).encode(),
    "judges.jsonl": lines(JUDGES).encode(),
    "toloka.tsv": TOLOKA.encode(),
    "mturk.csv": MTURK.encode(),
    "cvat.xml": CVAT.encode(),
    "cvat.zip": packed({"annotations.xml": CVAT}),
    "potato.jsonl": lines(POTATO).encode(),
    "potato_state.jsonl": json.dumps(POTATO_STATE).encode(),
    "doccano.jsonl": lines(DOCCANO).encode(),
    "doccano_cats.jsonl": lines(DOCCANO_INTENTS).encode(),
    "doccano_old.jsonl": lines(DOCCANO_OLD).encode(),
    "doccano.zip": packed({"ann.jsonl": lines(DOCCANO)}),
    "zooniverse.csv": ZOONIVERSE.encode(),
    "labelbox.jsonl": lines(LABELBOX).encode(),
    "langfuse.jsonl": lines(LANGFUSE).encode(),
    "phoenix.jsonl": json.dumps({"data": PHOENIX}).encode(),
}
RECORDS = {
    name: json.loads(data) if data.startswith(b"[") else [json.loads(line) for line in data.splitlines()]
    for name, data in FILES.items()
    if name.endswith(("json", "jsonl"))
}


def check(folder, data: bytes, **options) -> bool:
    """Return whether the file was read. Repeated labels warn, and warnings are errors in these tests."""
    path, message = folder / "fuzz", ""
    path.write_bytes(data)
    try:
        assert read_labels(path, **options).annotations.n_labels > 0
    except (CrowdshotError, UserWarning) as error:
        message = str(error)
    assert not message or "fuzz" in message
    assert "\n" not in message
    return not message


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("name", FILES)
def test_whole_files_are_read(folder, name: str) -> None:
    """Check the undamaged files, on which the tests below depend."""
    label = {"mturk.csv": {"label": "animal"}}.get(name)
    assert check(folder, FILES[name], columns=label)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
def test_cut_short(folder, name: str, data) -> None:
    whole = FILES[name]
    check(folder, whole[: data.draw(st.integers(1, len(whole) - 1))])


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
def test_bytes_overwritten(folder, name: str, data) -> None:
    whole = FILES[name]
    start = data.draw(st.integers(0, len(whole)))
    length = data.draw(st.integers(0, 40))
    new = data.draw(st.binary(max_size=20) | st.text('"{}[],:<>/&;\t\n\r\\0', max_size=20).map(str.encode))
    check(folder, whole[:start] + new + whole[start + length :])


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1", "cp037"])
def test_other_encodings(folder, name: str, encoding: str) -> None:
    text = FILES[name].decode("latin-1").replace("cat", "Kätzchen").replace("Cat", "Kätzchen")
    check(folder, text.encode(encoding))


DEEP: list = []
for _ in range(400):
    DEEP = [DEEP]
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 2**70, 10**400, 1e308, float("inf"), float("nan"), 7.0, 0.5]),
    st.sampled_from(
        ["", " ", "\0", "\ud800", "nan", "[", "{}", '["a", "b"]', "a|b", "data:image/png;base64,AA", "x" * 5000]
    ),
    st.text(max_size=5),
    st.just(DEEP),
    st.recursive(
        st.integers() | st.text(max_size=3),
        lambda x: st.lists(x) | st.dictionaries(st.text(max_size=3), x),
        max_leaves=4,
    ),
)


def places(value, path=()):
    """Yield every path into nested lists and dicts."""
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in pairs:
        yield from places(part, (*path, key))


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDS)
@given(data=st.data())
def test_values_of_other_types(folder, name: str, data) -> None:
    """Replace values, and remove, add or rename keys, at any place."""
    held = [copy.deepcopy(RECORDS[name])]
    paths = list(places(held))[1:]
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(paths))
        target = held
        try:
            for key in way:
                target = target[key]
            if data.draw(st.booleans()) or target is held:
                target[last] = data.draw(ODD)
            elif isinstance(target, dict):
                value = target.pop(last)
                target[data.draw(st.text(max_size=4))] = value
            else:
                del target[last]
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change removed this place
    records = held[0]
    as_lines = name.endswith("jsonl") and isinstance(records, list)
    text = "\n".join(map(json.dumps, records)) if as_lines else json.dumps(records)
    check(folder, text.encode())
    check(folder, text.encode(), columns={"label": data.draw(st.sampled_from(["choice", "animal", "SPAM", "x"]))})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["studio.csv", "toloka.tsv", "mturk.csv", "zooniverse.csv"])
@given(data=st.data())
def test_cells_of_other_types(folder, name: str, data) -> None:
    separator = "\t" if name.endswith("tsv") else ","
    rows = [line.split(separator) for line in FILES[name].decode().splitlines() if line.strip()]
    for _ in range(data.draw(st.integers(1, 4))):
        row = data.draw(st.sampled_from(rows))
        odd = data.draw(
            st.sampled_from(['"[""a""]"', '"{}"', '"[{}]"', '""', "NaN", "1e999", "true"])
            | st.text('ab"|{}[]:', max_size=6)
        )
        row[data.draw(st.integers(0, len(row) - 1))] = odd
    text = "\n".join(separator.join(row) for row in rows)
    check(folder, text.encode())
    check(folder, text.encode(), columns={"label": "animal", "item": "image"})


# fmt: off
XML = [
    "<annotations>", "</annotations>", "<image name='1'>", "<image>", "</image>", "<tag label='a'/>", "<tag/>",
    "<meta>", "</meta>", "<assignee>", "</assignee>", "<username>", "</username>", "<track/>", "<box/>", "<!DOCTYPE a>",
    "<!ENTITY b 'c'>", "&b;", "&#0;", "<![CDATA[x]]>", "<!-- -->", "text", "<?pi?>",
]
# fmt: on


@given(parts=st.lists(st.sampled_from(XML), max_size=12))
def test_xml_with_other_content(folder, parts: list[str]) -> None:
    check(folder, f"<?xml version='1.0'?><annotations>{''.join(parts)}</annotations>".encode())


STARTS = [
    b"",
    b"item,annotator,label\n",
    b"[",
    b'{"answer": "accept", ',
    b"<?xml version='1.0'?>",
    b"PK\x03\x04",
    b"PAR1",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=100)
@given(
    start=st.sampled_from(STARTS),
    data=st.binary(min_size=1, max_size=60) | st.text('item,annotator,label\n"{}[]<>:0', min_size=1).map(str.encode),
)
def test_any_format_on_any_bytes(folder, name: str, start: bytes, data: bytes) -> None:
    check(folder, start + data, format_name=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("of", FILES)
def test_any_format_on_files_of_other_formats(folder, name: str, of: str) -> None:
    check(folder, FILES[of], format_name=name)
