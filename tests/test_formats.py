"""Labels from plain tables: long and wide, recognised by content, under the names that came in."""

import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdshot.errors import CrowdshotError
from crowdshot.formats import FORMATS, read_labels

LONG = "image,worker,answer\n007.png,ann,cat\n007.png,bob,dog\n8.png,ann,cat\n9.png,ann,dog\n9.png,bob,dog\n"
WIDE = "image,ann,bob\n007.png,cat,dog\n8.png,cat,\n9.png,dog,dog\n"
TRIPLES = [
    ("007.png", "ann", "cat"),
    ("007.png", "bob", "dog"),
    ("8.png", "ann", "cat"),
    ("9.png", "ann", "dog"),
    ("9.png", "bob", "dog"),
]


@pytest.fixture
def read(tmp_path):
    def write_and_read(content: str | bytes, *args, **kwargs):
        path = tmp_path / "labels"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_labels(path, *args, **kwargs)

    return write_and_read


def triples(labels) -> list[tuple[str, str, str]]:
    return sorted(labels.annotations.to_frame().itertuples(index=False, name=None))


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (LONG, ("image", "worker", "answer")),
        (LONG.replace(",", "\t"), ("image", "worker", "answer")),
        (WIDE, ("image", "annotator", "label")),
        (WIDE.replace("image", ""), ("item", "annotator", "label")),
        (WIDE.replace("cat,\n", "cat,NaN\n"), ("image", "annotator", "label")),
        (WIDE.replace("cat,\n", "cat,-1\n"), ("image", "annotator", "label")),
        (
            "\n".join(json.dumps(dict(zip(("item", "user", "label"), row, strict=True))) for row in TRIPLES),
            ("item", "user", "label"),
        ),
    ],
)
def test_the_same_labels_in_many_shapes(read, content: str, names: tuple[str, ...]) -> None:
    labels = read(content)
    assert triples(labels) == TRIPLES
    assert tuple(labels.annotations.columns) == names
    assert labels.annotations.classes.tolist() == ["cat", "dog"]
    assert labels.left_out == {}


def test_parquet(tmp_path) -> None:
    pd.DataFrame({"item": [7, 8], "annotator": ["a", "a"], "label": [1.0, 0.0]}).to_parquet(tmp_path / "l.parquet")
    assert triples(read_labels(tmp_path / "l.parquet")) == [("7", "a", "1"), ("8", "a", "0")]


def test_ids_that_look_like_numbers_stay_as_written(read) -> None:
    labels = read("item,annotator,label\n007,01,1\n7,1,1.0\n")
    assert triples(labels) == [("007", "01", "1"), ("7", "1", "1.0")]


def test_columns_can_be_named(read) -> None:
    content = "a,b,c,worker\n1,cat,x,ann\n"
    assert triples(read(content, {"item": "a", "label": "b"})) == [("1", "ann", "cat")]
    assert triples(read("picture no,ann,bob\n1,x,y\n2,y,x\n", {"item": "picture no"})) == [
        ("1", "ann", "x"),
        ("1", "bob", "y"),
        ("2", "ann", "y"),
        ("2", "bob", "x"),
    ]


def test_a_thousand_columns_long_and_wide(read) -> None:
    filler = ",".join(f"meta{i}" for i in range(997))
    values = ",".join("x" for _ in range(997))
    assert triples(read(f"{filler},item,annotator,label\n{values},1,ann,cat\n")) == [("1", "ann", "cat")]
    wide = read("item," + ",".join(f"ann{i}" for i in range(999)) + "\n1" + ",cat" * 999 + "\n2" + "," * 999 + "\n")
    assert (wide.annotations.n_annotators, wide.annotations.n_labels, wide.annotations.n_items) == (999, 999, 2)
    with pytest.raises(CrowdshotError, match=r"labels has no column for the item: found 'c0', .* and 990 more") as told:
        read(",".join(f"c{i}" for i in range(1000)) + "\n" + ",".join("1" * 1000) + "\n")
    assert len(str(told.value)) < 500


def test_rows_without_a_label_are_left_out_and_counted(read) -> None:
    labels = read("item,annotator,label\n1,ann,cat\n2,ann,\n3,,\n\n4,bob,dog\n")
    assert triples(labels) == [("1", "ann", "cat"), ("4", "bob", "dog")]
    assert labels.left_out == {"rows without a label": 2}


def test_items_nobody_labelled_stay_in_a_wide_table(read) -> None:
    labels = read("item,ann,bob\n1,x,x\n2,,\n")
    assert labels.annotations.items.tolist() == ["1", "2"]


def test_a_label_given_twice_is_told(read) -> None:
    with pytest.warns(UserWarning, match="labels: 1 labels dropped"):
        labels = read("item,annotator,label\n1,ann,cat\n1,ann,dog\n")
    assert triples(labels) == [("1", "ann", "dog")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("item,annotator,label\n", "labels has a header but no rows"),
        ("item,annotator,label", "labels has a header but no rows"),
        ("item,ann,bob\n", "labels has no column for the annotator"),
        ("item,annotator,label\n1,ann,\n", "labels holds no label: column 'label' is empty in all 1 rows"),
        ("item,annotator,label\n1,ann,cat\n\n,ann,cat\n", "labels, row 4, column 'item' is empty, expected the item"),
        ("item,annotator,label\n1,ann,cat\n2, ,cat\n", "labels, row 3, column 'annotator' is empty"),
        ("item,worker,user,label\n1,a,b,c\n", "2 columns that could be the annotator"),
        ("item,annotator,label,label\n1,a,b,c\n", "labels has more than one column 'label'"),
        ("bild,person,antwort\n1,a,b\n", "labels has no column for the item"),
        ("image,size,weight\n1,2,3\n4,5,6\n", "labels has no column for the annotator"),  # no label in common
        ('{"item": 1, "annotator": "a", "label": ["cat", "dog"]}', "row 1, column 'label' holds a list"),
    ],
)
def test_bad_tables(read, content: str, message: str) -> None:
    with pytest.raises(CrowdshotError, match=message):
        read(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("item,ann\n", "has a header but no rows"),
        ("item,ann,ann\n1,x,y\n", "more than one column 'ann'"),
        ("item,ann,\n1,x,y\n", "a column without a name"),
        ("item,ann\n1,x\n\n1,y\n", "labels, row 4, column 'item' is '1', which row 2 has too"),
        ("item,ann\n1,x\n,y\n", "labels, row 3, column 'item' is empty"),
        ("bild,ann\n1,x\n", "labels has no column for the item: found 'bild', 'ann'"),
    ],
)
def test_bad_wide_tables(read, content: str, message: str) -> None:
    with pytest.raises(CrowdshotError, match=message):
        read(content, format_name="wide")


def test_a_format_can_be_forced_and_must_exist(read) -> None:
    with pytest.raises(CrowdshotError, match="no column for the annotator"):
        read(WIDE, format_name="long")
    with pytest.raises(CrowdshotError, match="format is 'xml', expected one of wide, long"):
        read(WIDE, format_name="xml")


@pytest.mark.parametrize("name", [None, *FORMATS])
@given(data=st.binary(max_size=60) | st.text('item,annotator,label\n"{}:0', max_size=80).map(str.encode))
def test_readers_raise_nothing_but_our_error(tmp_path_factory, name: str | None, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz"
    path.write_bytes(b"item,annotator,label\n" + data)
    told = ""
    try:
        assert read_labels(path, format_name=name).annotations.n_labels > 0
    except (CrowdshotError, UserWarning) as error:  # a label given twice warns, which is an error in these tests
        told = str(error)
    assert not told or "fuzz" in told
