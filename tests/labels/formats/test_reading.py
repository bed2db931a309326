"""Labels from plain tables: long and wide, recognised by content, under the names that came in."""

import json
import re

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdshot.errors import CrowdshotError
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import Columns
from crowdshot.labels.formats import FORMATS, read_labels

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
    labels = read("item,annotator,label\n007,01,01\n7,1,1.0\n")
    assert triples(labels) == [("007", "01", "01"), ("7", "1", "1")]  # but spreadsheets write a 1 as 1.0


@pytest.mark.parametrize(
    ("item", "annotator", "label"),
    [
        *[(name, "Annotator", "Etikett") for name in ("Bild", "Datei", "Objekt", "BILD", "Dateiname", "Bild-Nr.")],
        *[("Bild", "Bewerter", name) for name in ("Klasse", "Kategorie")],
        *[
            (name, "annotateur", "étiquette")
            for name in ("image", "élément", "fichier", "ÉLÉMENT", "E\u0301le\u0301ment")
        ],
        *[("image", "annotateur", name) for name in ("classe", "catégorie")],
        *[(name, "anotador", "etiqueta") for name in ("imagen", "elemento", "archivo")],
        *[("imagen", "Anotador", name) for name in ("clase", "categoría")],
        *[(name, "anotador", "rótulo") for name in ("imagem", "item", "arquivo")],
        *[("imagem", "anotador", name) for name in ("classe", "categoria")],
        *[(name, "アノテーター", "ラベル") for name in ("画像", "項目", "ファイル", "ﾌｧｲﾙ", "ファイル名")],
        ("画像ID", "作業者", "分類"),
        *[(name, "标注员", "标签") for name in ("图片", "图像", "文件", "项目", "图片名称")],
        ("图片", "标注者", "类别"),
        ("ｉｔｅｍ", "Ｗｏｒｋｅｒ ＩＤ", "Ｌａｂｅｌ"),
    ],
)
def test_headers_in_other_languages(read, item: str, annotator: str, label: str) -> None:
    labels = read(f"x,{label},{annotator},{item}\n?,cat,ann,1\n")
    assert triples(labels) == [("1", "ann", "cat")]
    assert labels.annotations.columns == (item, annotator, label)
    assert read(f"{item},Eva,João,Notiz\n1,cat,dog,\n2,dog,cat,x\n").annotations.annotators.tolist() == ["Eva", "João"]


def test_an_id_names_an_item_better_than_its_content(read) -> None:
    labels = read("text,Text-ID,worker,label\nhello there,17,ann,x\nbye,18,ann,y\n")
    assert triples(labels) == [("17", "ann", "x"), ("18", "ann", "y")]
    assert read("text,worker,label\nbye,ann,x\n").annotations.items.tolist() == ["bye"]
    assert read("image,image_id,worker,label\na.png,1,ann,x\n").annotations.items.tolist() == ["a.png"]


def test_columns_can_be_named(read) -> None:
    content = "a,b,c,worker\n1,cat,x,ann\n"
    assert triples(read(content, {"item": "a", "label": "b"})) == [("1", "ann", "cat")]
    assert triples(read("picture no,ann,bob\n1,x,y\n2,y,x\n", {"item": "picture no"})) == [
        ("1", "ann", "x"),
        ("1", "bob", "y"),
        ("2", "ann", "y"),
        ("2", "bob", "x"),
    ]


@pytest.mark.slow
def test_a_thousand_columns_long_and_wide(read) -> None:
    filler = ",".join(f"meta{i}" for i in range(997))
    values = ",".join("x" for _ in range(997))
    assert triples(read(f"{filler},item,annotator,label\n{values},1,ann,cat\n")) == [("1", "ann", "cat")]
    with pytest.warns(UserWarning, match="2 items and 999 annotators"):
        wide = read("item," + ",".join(f"ann{i}" for i in range(999)) + "\n1" + ",cat" * 999 + "\n2" + "," * 999 + "\n")
    assert (wide.annotations.n_annotators, wide.annotations.n_labels, wide.annotations.n_items) == (999, 999, 2)
    with pytest.raises(CrowdshotError, match=r"labels has no column for the item among 'c0', .* and 990 more") as told:
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
    with pytest.warns(UserWarning, match="labels: 1 label dropped"):
        labels = read("item,annotator,label\n1,ann,cat\n1,ann,dog\n")
    assert triples(labels) == [("1", "ann", "dog")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("item,annotator,label\n", "labels has a header but no rows"),
        ("item,annotator,label", "labels has a header but no rows"),
        ("item,ann,bob\n", "labels has no column for the annotator"),
        ("item,annotator,label\n1,ann,\n", "labels holds no label in its 1 rows of 'label', expected one"),
        ("item,annotator,label\n1,ann,cat\n\n,ann,cat\n", "labels, row 4, column 'item' is empty, expected the item"),
        ("item,annotator,label\n1,ann,cat\n2, ,cat\n", "labels, row 3, column 'annotator' is empty"),
        ("item,worker,user,label\n1,a,b,c\n", "2 columns that could be the annotator"),
        ("item,annotator,label,label\n1,a,b,c\n", "labels has more than one column 'label'"),
        ("ding,person,antwort\n1,a,b\n", "labels has no column for the item"),
        ("image,size,weight\n1,2,3\n4,5,6\n", "labels has no column for the annotator"),  # no label in common
        (
            '{"item": 1, "annotator": "a", "label": ["cat", "dog"]}',
            "row 1, column 'label' has 2 labels, 'cat', 'dog', expected",
        ),
    ],
)
def test_bad_tables(read, content: str, message: str) -> None:
    with pytest.raises(CrowdshotError, match=message):
        read(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("item,ann\n", "has a header but no rows"),
        ("item,ann,ann\n1,x,x\n", "more than one column 'ann'"),
        ("item,ann,\n1,x,x\n", "a column without a name"),
        ("item,ann\n1,x\n\n1,y\n", "labels, row 4, column 'item' is '1', as in row 2"),
        ("item,ann\n1,x\n,y\n", "labels, row 3, column 'item' is empty"),
        ("ding,ann\n1,x\n", "labels has no column for the item among 'ding', 'ann'"),
    ],
)
def test_bad_wide_tables(read, content: str, message: str) -> None:
    with pytest.raises(CrowdshotError, match=message):
        read(content, format_name="wide")


def test_a_format_can_be_forced_and_must_exist(read) -> None:
    with pytest.raises(CrowdshotError, match="no column for the annotator"):
        read(WIDE, format_name="long")
    with pytest.raises(CrowdshotError, match=r"format_name is 'xml', expected one of cvat, .*, wide, long"):
        read(WIDE, format_name="xml")


# ---- several files


@pytest.fixture
def read_many(tmp_path):
    def write_and_read(contents: dict[str, str], *args, **kwargs):
        for name, content in contents.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(content)
        return read_labels([tmp_path / name for name in contents], *args, **kwargs)

    return write_and_read


def test_parts_of_one_table(read_many) -> None:
    head, *rows = LONG.splitlines(keepends=True)
    labels = read_many({"1.csv": head + "".join(rows[:2]), "2.csv": head + "".join(rows[2:]) + "10.png,ann,\n"})
    assert triples(labels) == TRIPLES
    assert labels.annotations.columns == ("image", "worker", "answer")
    assert labels.annotations.classes.tolist() == ["cat", "dog"]
    assert labels.left_out == {"rows without a label": 1}
    wide = read_many({"1.csv": WIDE, "2.csv": "image,eve\n9.png,cat\n8.png,\n11.png,\n"}, format_name="wide")
    assert triples(wide) == sorted([*TRIPLES, ("9.png", "eve", "cat")])
    assert wide.annotations.items.tolist() == ["007.png", "8.png", "9.png", "11.png"]


@pytest.mark.parametrize(
    ("names", "annotators"),
    [
        (("ann.csv", "bob.csv"), ("ann", "bob")),
        (("ann/labels.csv", "bob/labels.csv"), ("ann", "bob")),
        (("x.v1.csv", "x.v2.csv"), ("x.v1", "x.v2")),
    ],
)
def test_a_file_for_each_annotator(read_many, names, annotators) -> None:
    labels = read_many({names[0]: "image,label\n1.png,cat\n", names[1]: "image,label\n1.png,dog\n2.png,cat\n"})
    ann, bob = annotators
    assert triples(labels) == [("1.png", ann, "cat"), ("1.png", bob, "dog"), ("2.png", bob, "cat")]


def test_names_that_do_not_tell_files_apart_take_their_folders(read_many) -> None:
    table = "image,label\n1.png,cat\n"
    labels = read_many({"a/x.csv": table, "b/x.csv": table, "b/y.csv": table})
    assert [name[-3:] for name in labels.annotations.annotators] == ["a/x", "b/x", "b/y"]


def test_annotators_of_a_table_are_not_overruled_by_its_name(read_many) -> None:
    labels = read_many({"1.csv": "image,who,label\n1,ann,x\n", "2.csv": "image,who,label\n1,bob,y\n"})
    assert triples(labels) == [("1", "ann", "x"), ("1", "bob", "y")]
    with pytest.raises(CrowdshotError, match="2 columns that could be the annotator"):
        read_many({"1.csv": "image,worker,user,label\n1,a,b,x\n", "2.csv": "image,label\n1,x\n"})
    with pytest.raises(CrowdshotError, match="no column 'rater' for the annotator"):
        read_many({"1.csv": "image,label\n1,x\n", "2.csv": "image,label\n1,x\n"}, {"annotator": "rater"})


def test_names_that_may_be_meant_for_one_are_told(read) -> None:
    content = "item,annotator,label\n1,Ana,Cat\n2,ANA,cat\n3,bob,DOG\n4,bob,Dog\n5,bob,10.0\n6,bob,10\n7,bob,dog\n"
    with pytest.warns(UserWarning, match="are read as two") as told:
        read(content)
    assert [str(one.message).partition(": ")[2] for one in told] == [
        "The labels 'Cat' and 'cat' are read as two different labels (and 1 more group like it)."
        " Use merge_case=True to merge them.",
        "The annotators 'Ana' and 'ANA' are read as two different annotators. Use names={'ANA': 'Ana'} to merge them.",
    ]


def test_items_that_only_look_the_same_are_told(read) -> None:
    with pytest.warns(
        UserWarning, match=r"The items 'e\\u0301t\.png' and '\\xe9t\.png' are read as two different items\. If they"
    ) as told:
        read("item,annotator,label\ne\u0301t.png,ann,x\n\u00e9t.png,bob,x\nIMG.png,ann,y\nimg.png,bob,y\n")
    assert len(told) == 1


def test_items_that_may_be_one_picture_are_told(read_many) -> None:
    tables = {
        f"{sig}.csv": "image,worker,label\n" + "".join(f"https://x/img_{i}.png?sig={sig},{sig},x\n" for i in range(3))
        for sig in ("ann", "bob")
    }
    with pytest.warns(UserWarning, match="are read as two") as told:
        read_many(tables)
    assert [str(one.message).partition(": ")[2] for one in told] == [
        "The items 'https://x/img_0.png?sig=ann' and 'https://x/img_0.png?sig=bob' are read as two different items"
        " (and 2 more groups like it). Use file_names=True if they are the same files."
    ]


def test_a_wide_and_a_long_table_are_one_crowd(read_many) -> None:
    labels = read_many({"1.csv": "image,ann,bob\na.png,x,y\nb.png,y,\n", "2.csv": "image,worker,label\nb.png,cyd,x\n"})
    assert triples(labels) == [
        ("a.png", "ann", "x"),
        ("a.png", "bob", "y"),
        ("b.png", "ann", "y"),
        ("b.png", "cyd", "x"),
    ]


def test_files_that_do_not_belong_together(read_many, tmp_path) -> None:
    with pytest.raises(CrowdshotError, match="paths is empty, expected one file"):
        read_labels([])
    with pytest.warns(UserWarning, match=r"1\.csv and 1 more: 5 labels dropped"):
        assert triples(read_many({"1.csv": LONG, "2.csv": LONG})) == TRIPLES


# ---- other dresses, other labels


def test_a_json_array_is_a_table_too(read) -> None:
    records = [dict(zip(("item", "user", "label"), row, strict=True)) for row in TRIPLES]
    for content in (json.dumps(records), json.dumps(records).encode("utf-16")):
        assert triples(read(content)) == TRIPLES
    assert triples(read(json.dumps([*records[:1], records[1] | {"label": ["dog"]}, *records[2:]]))) == TRIPLES
    with pytest.raises(CrowdshotError, match="labels, row 2, column 'label' holds a dict, expected one label per item"):
        read(json.dumps([*records[:1], records[1] | {"label": [{"x": 1}]}]))


def test_measurements_are_refused(read) -> None:
    def table(labels) -> str:
        return "item,annotator,label\n" + "".join(f"{i},a,{label}\n" for i, label in enumerate(labels))

    sentence = r"labels has numbers with decimals as labels: '2.5', '3.5', expected classes. Use categories=True"
    for labels in (["2.5", "3.0", "3.5"], ["2.5", "3.5", "n/a"]):
        with pytest.raises(CrowdshotError, match=sentence):
            read(table(labels))
    with pytest.raises(CrowdshotError, match=r"'-,5', '3,50', expected classes"):
        read(table(labels).replace(",2.5", ',"3,50"').replace(",3.5", ',"-,5"'))
    assert read(table(["2.5", "3.0", "3.5"]), categories=True).annotations.classes.tolist() == ["2.5", "3", "3.5"]
    assert read(table(range(100))).annotations.n_classes == 100
    assert read(table(["cat", "dog", "owl", "2.5"])).annotations.n_classes == 4  # a stray one among words


@pytest.mark.slow
def test_crowdkit_and_cleanlab_take_and_give(read) -> None:
    """crowd-kit's own aggregator reads what goes out, and what goes out comes back."""
    from crowdkit.aggregation import MajorityVote

    ann = read(LONG).annotations
    vote = MajorityVote().fit_predict(ann.to_crowdkit())
    assert vote["8.png"] == "cat"
    assert vote["9.png"] == "dog"
    assert Annotations.from_crowdkit(ann.to_crowdkit()).to_matrix().tolist() == ann.to_matrix().tolist()
    matrix = ann.to_cleanlab()
    assert matrix.loc["8.png"].isna().tolist() == [False, True]
    assert Annotations.from_cleanlab(matrix).to_matrix().tolist() == ann.to_matrix().tolist()


@pytest.mark.slow
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


# ---- columns that are no annotator's, rows that are no labels -------------------------------------------------------


def test_a_wide_table_may_know_the_truth_and_have_notes(read) -> None:
    with pytest.warns(UserWarning, match="'True Label' is read as the true labels"):
        labels = read("item,ann,bob,True Label,Notes,width\n1,cat,cat,cat,,10\n2,dog,cat,,blurry,10\n")
    assert triples(labels) == [("1", "ann", "cat"), ("1", "bob", "cat"), ("2", "ann", "dog"), ("2", "bob", "cat")]
    assert labels.gold == {"1": "cat"}
    assert labels.left_out == {"columns of no annotator": ["Notes", "width"]}


OTHER_NAMES = "item,worker,label,pic,coded_by,verdict_2\n1,ann,cat,p,ada,dog\n2,bob,dog,q,ben,cat\n"


@pytest.mark.parametrize(
    ("table", "columns", "expected"),
    [
        # beside each named column stands one with the usual name
        (
            OTHER_NAMES,
            {"item": "pic", "annotator": "coded_by", "label": "verdict_2"},
            [("p", "ada", "dog"), ("q", "ben", "cat")],
        ),
        (OTHER_NAMES, ("pic", "coded_by", "verdict_2"), [("p", "ada", "dog"), ("q", "ben", "cat")]),
        (OTHER_NAMES, {"label": "verdict_2"}, [("1", "ann", "dog"), ("2", "bob", "cat")]),
        (OTHER_NAMES, {"annotator": "coded_by"}, [("1", "ada", "cat"), ("2", "ben", "dog")]),
        (OTHER_NAMES, {"item": "pic", "annotator": "coded_by"}, [("p", "ada", "cat"), ("q", "ben", "dog")]),
        # the named column has the usual name of another role, which then needs another column
        (
            "item,picture,label\nann,1,cat\nbob,2,dog\n",
            {"annotator": "item"},
            [("1", "ann", "cat"), ("2", "bob", "dog")],
        ),
        (
            "item,worker,class,label\n1,u,cat,ann\n2,v,dog,bob\n",
            {"annotator": "label"},
            [("1", "ann", "cat"), ("2", "bob", "dog")],
        ),
    ],
)
@pytest.mark.parametrize("format_name", [None, "long"])
def test_named_columns_are_not_matched_by_name_again(read, table, columns, expected, format_name) -> None:
    annotations = read(table, columns, format_name).annotations
    assert list(annotations.to_frame().itertuples(index=False, name=None)) == expected
    named = columns if isinstance(columns, dict) else dict(zip(Columns._fields, columns, strict=True))
    assert {role: getattr(annotations.columns, role) for role in named} == named


def test_a_wide_table_without_annotators(read) -> None:
    with pytest.raises(CrowdshotError, match="has 2 columns of true labels, 'truth', 'gold', expected one at most"):
        read("item,truth,gold\n1,cat,cat\n2,dog,cat\n", format_name="wide")
    with pytest.raises(CrowdshotError, match="no columns that are clearly annotators among 'notes', 'source'"):
        read("item,notes,source\n1,cat,cat\n2,dog,cat\n", format_name="wide")
    with pytest.raises(CrowdshotError, match="no column for the annotator") as error:
        read("item,notes,source\n1,cat,cat\n2,dog,cat\n")
    assert set(error.value.hint.arguments) == {"annotator_columns"}


def test_what_else_a_sheet_has_is_left_out_and_named(read) -> None:
    header = "#,Image,Ann,Email Address,Datum,BOB,cyd,Batch,Difficulty,Free text,Zahl der Wörter,Final label,Dana,,"
    rows = [
        "1,a.png,cat,x@y.org,2024-03-01,CAT ,dog,1,easy,a cat,12,cat,,,",
        "2,b.png,dog,x@y.org,2024-03-02,dog,dog,1,hard,cat,13,dog,,,",
        "3,c.png,Cat,z@y.org,2024-03-02,cat,cat,2,easy,blurry,12,cat,,,",
        "4,d.png,dog,z@y.org,2024-03-03,cat,dog,2,easy,who knows,99,dog,,,",
        "5,e.png,owl,z@y.org,2024-03-04,cat,,2,easy,,7,dog,,,",
        "6,f.png,dog,z@y.org,2024-03-05,cat,dog,2,easy,too dark,8,dog,,,",
        "Total,Total,6,,,6,5,,,,,,,,",
    ]
    with pytest.warns(UserWarning, match="are read as"):
        labels = read("\n".join([header, *rows]))
    assert labels.annotations.annotators.tolist() == ["Ann", "BOB", "cyd", "Dana"]  # Dana has not begun
    assert labels.annotations.classes.tolist() == ["CAT", "Cat", "cat", "dog", "owl"]
    assert labels.annotations.n_items == 6
    strays = ["#", "Email Address", "Datum", "Batch", "Difficulty", "Free text", "Zahl der Wörter", "Final label"]
    assert labels.left_out == {"columns of no annotator": strays, "rows of totals": ["Total"]}


EXTRA = [
    *(
        "Email Address",
        "Email",
        "E-Mail",
        "Datum",
        "Date",
        "Batch",
        "#",
        "No.",
        "Nr.",
        "Timestamp",
        "Notes",
        "Comments",
    ),
    *("created_at", "updatedAt", "Duration (s)", "Status", "Reviewed", "Priority", "URL", "Time spent", "Row", "Total"),
    *("Kommentar", "Bemerkungen", "Dificultad", "Fecha", "Observações", "Durée", "備考", "日付", "备注", "Confidence"),
]


@pytest.mark.parametrize("name", EXTRA)
def test_columns_that_are_called_after_something_else_are_no_annotators(read, name: str) -> None:
    """Whatever stands in them, labels too."""
    labels = read(f"image,ann,{name},bob\n1,yes,yes,yes\n2,no,,no\n3,yes,no,no\n")
    assert labels.annotations.annotators.tolist() == ["ann", "bob"]
    assert labels.left_out == {"columns of no annotator": [name]}


STRAYS = st.sampled_from(
    [
        ("Comment", lambda n: ["cat", "", "is it?", "dog"][n % 4]),
        ("E-mail", lambda n: f"lead{n % 2}@example.org"),
        ("camera", lambda n: ["A", "B"][n % 2]),
        ("free", lambda n: f"text {n}"),
        ("Batch", lambda n: str(n // 3)),
    ]
)


@given(
    st.lists(st.tuples(*[st.sampled_from(["cat", "dog", "CAT", ""])] * 3), min_size=4, max_size=9),
    st.lists(STRAYS, max_size=3, unique_by=lambda stray: stray[0]),
    st.permutations(range(6)),
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_other_columns_and_their_order_change_nothing(tmp_path_factory, said, strays, order) -> None:
    said = [("cat", "Cat", "cat"), ("dog", "dog", "cat"), *said]
    names = ["ann", "bob", "cyd", *(name for name, _ in strays)]
    order = [place for place in order if place < len(names)]
    rows = [[*row, *(fill(n) for _, fill in strays)] for n, row in enumerate(said)]
    table = [["image", *(names[place] for place in order)]]
    table += [[f"{n}.png", *(row[place] for place in order)] for n, row in enumerate(rows)]
    path = tmp_path_factory.mktemp("wide") / "labels.csv"
    path.write_text("\n".join(map(",".join, table)))
    labels = read_labels(path)
    expected = [
        (f"{n}.png", who, label) for n, row in enumerate(said) for who, label in zip(names, row[:3], strict=False)
    ]
    assert triples(labels) == sorted(triple for triple in expected if triple[2])
    assert sorted(labels.left_out.get("columns of no annotator", [])) == sorted(name for name, _ in strays)


def test_annotator_columns_decide(read) -> None:
    table = "image,Notes,ann,bob,weird\n1,cat,cat,cat,z\n2,dog,dog,cat,z\n"
    labels = read(table, annotator_columns=["Notes", "weird"])
    assert labels.annotations.annotators.tolist() == ["Notes", "weird"]
    assert labels.left_out == {"columns of no annotator": ["ann", "bob"]}
    named = read("photo no,ann,x\n1,a,b\n2,b,c\n", {"item": "photo no"}, annotator_columns=["x"])
    assert triples(named) == [("1", "x", "b"), ("2", "x", "c")]
    with pytest.raises(
        CrowdshotError, match=r"annotator_columns names 'eve', expected some of the columns of .*'Notes'"
    ):
        read(table, annotator_columns=["ann", "eve"])


def test_two_kinds_of_columns_are_not_told_apart_by_guessing(read) -> None:
    table = "image,ann,bob,seen,sent\n1,cat,cat,yes,no\n2,dog,cat,no,yes\n"
    with pytest.raises(
        CrowdshotError, match="no columns that are clearly annotators among 'ann', 'bob', 'seen', 'sent'"
    ):
        read(table, format_name="wide")
    with pytest.raises(CrowdshotError, match="no column for the annotator") as error:
        read(table)
    assert set(error.value.hint.arguments) == {"annotator_columns"}
    third = table.replace("bob", "bob,cyd").replace("cat,yes", "cat,cat,yes").replace("cat,no", "cat,dog,no")
    assert read(third).annotations.annotators.tolist() == ["ann", "bob", "cyd"]


@pytest.mark.parametrize(
    "table", ["item,email,ann,bob\n1,x@y.z,a,a\n2,x@y.z,b,a\n", "item,Reviewer,ann,bob\n1,Eve,a,a\n2,Eve,b,a\n"]
)
def test_a_column_about_people_does_not_make_a_long_table(read, table: str) -> None:
    assert read(table).annotations.annotators.tolist() == ["ann", "bob"]


def test_a_long_table_may_have_columns_in_common(read) -> None:
    labels = read("item,annotator,label,checked,sent\n1,ann,cat,yes,yes\n1,bob,dog,no,yes\n")
    assert triples(labels) == [("1", "ann", "cat"), ("1", "bob", "dog")]
    numbers = read("item,who,label\n1,1,1\n1,2,1\n2,1,2\n2,2,1\n")
    assert triples(numbers) == [("1", "1", "1"), ("1", "2", "1"), ("2", "1", "2"), ("2", "2", "1")]


def test_rows_of_totals_are_left_out_at_the_end_alone(read) -> None:
    labels = read("image,ann,bob\ntotal,cat,cat\n2,dog,cat\nSum,2,2\nAverage:,1,1\n")
    assert labels.annotations.items.tolist() == ["total", "2"]
    assert labels.left_out == {"rows of totals": ["Sum", "Average:"]}
    long = read("image,annotator,label\n1,ann,cat\n2,bob,dog\nTotal,,2\n")
    assert (long.annotations.items.tolist(), long.left_out) == (["1", "2"], {"rows of totals": ["Total"]})


# ---- -1 -------------------------------------------------------------------------------------------------------------


def _as_long(content: str) -> str:
    """The same labels in a table with a row for each."""
    header, *rows = [line.split(",") for line in content.split()]
    long = [f"{row[0]},{who},{cell}" for row in rows for who, cell in zip(header[1:], row[1:], strict=True)]
    return "\n".join(["image,annotator,label", *long])


@pytest.mark.parametrize(
    ("cells", "classes", "told"),
    [
        (["-1,0", "0,1", "1,-1"], ["-1", "0", "1"], True),
        (["-1.0,0.0", ",1.0", "1.0,-1.0"], ["-1", "0", "1"], True),
        (["-1,1", "1,1", "1,-1"], ["-1", "1"], False),
        (["-2,-1", "-1,0", "2,-2"], ["-2", "-1", "0", "2"], False),
    ],
)
@pytest.mark.parametrize("long", [False, True])
def test_minus_one_is_a_label_among_numbers_like_it(read, cells, classes, told: bool, long: bool) -> None:
    content = "image,ann,bob\n" + "".join(f"{n},{row}\n" for n, row in enumerate(cells))
    content = _as_long(content) if long else content
    if told:
        with pytest.warns(UserWarning, match="read as a label. Use rename={'-1': ''}"):
            labels = read(content)
    else:
        labels = read(content)
    assert labels.annotations.classes.tolist() == classes
    assert labels.left_out == ({"rows without a label": 1} if long and cells[1] == ",1.0" else {})


@pytest.mark.parametrize("classes", [("cat", "dog"), ("0", "1", "2")])
def test_minus_one_is_missing_beside_others_and_told(read, classes) -> None:
    rows = "".join(f"{n},{name},{name}\n" for n, name in enumerate(classes))
    content = f"image,ann,bob\n{rows}x,{classes[0]},-1\ny,-1.0,-1\n"
    labels, long = read(content), read(_as_long(content))
    assert labels.annotations.classes.tolist() == long.annotations.classes.tolist() == list(classes)
    assert labels.left_out == {"cells with -1, taken for no label": 3}
    assert long.left_out == {"rows with -1, taken for no label": 3}
    assert triples(labels) == triples(long)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_minus_one_can_be_said_to_be_none(read) -> None:
    labels = read("image,ann,bob\n1,-1,0\n2,0,1\n3,1,-1\n", rename={"-1": ""})
    assert labels.annotations.classes.tolist() == ["0", "1"]


def test_a_header_in_the_middle_is_no_label(read) -> None:
    """Files put together by `cat`."""
    part = "item,annotator,label\n1,ann,cat\n2,bob,dog\n"
    with pytest.warns(UserWarning, match=r"labels: Row 4 repeats the header and is left out\."):
        labels = read(part + part.replace("ann,", "cyd,").replace("bob,", "dan,"))
    assert triples(labels) == [("1", "ann", "cat"), ("1", "cyd", "cat"), ("2", "bob", "dog"), ("2", "dan", "dog")]
    with pytest.warns(UserWarning, match=r"Row 3 repeats the header \(and 1 more\)"):
        read("item,annotator,label\n1,ann,cat\nitem,annotator,label\n2,bob,dog\nitem,annotator,label\n")


def test_rows_are_counted_as_in_the_file_where_one_is_left_out(read) -> None:
    with (
        pytest.warns(UserWarning, match="Row 3 repeats the header"),
        pytest.raises(CrowdshotError, match="row 5, column 'item' is empty"),
    ):
        read("item,annotator,label\n1,ann,cat\nitem,annotator,label\n\n,bob,dog\n")


@pytest.mark.parametrize(
    "word",
    [
        *("NA", "n/a", "NULL", "None", "na", "none", "Skip", "skipped", "UNSURE", "not sure", "idk", "Unclear", "?"),
        *("don't know", "Don\u2019t know", "dont know", "Can't tell", "No answer"),
    ],
)
def test_what_people_and_other_programs_write_for_nothing_is_told(read, word) -> None:
    told = f"The label {word!r} is read as a class. Use rename={{{word!r}: ''}}"
    with pytest.warns(UserWarning, match=re.escape(told)):
        labels = read(f"item,annotator,label\n1,ann,{word}\n2,ann,cat\n")
    assert triples(labels) == [("1", "ann", word), ("2", "ann", "cat")]


@pytest.mark.parametrize("word", ["none of these", "sure", "--"])
def test_none_of_these_is_a_class(read, word) -> None:
    labels = read(f"item,annotator,label\n1,ann,{word}\n2,ann,cat\n")
    assert triples(labels) == [("1", "ann", word), ("2", "ann", "cat")]


def test_headers_of_joined_files_with_marks_and_spaces(read) -> None:
    with pytest.warns(UserWarning, match=r"Row 3 repeats the header \(and 1 more\)"):
        labels = read("\ufeffitem, who, label\n1,ann,cat\n\ufeffitem, who, label\n2,bob,dog\n item ,who,label\n")
    assert triples(labels) == [("1", "ann", "cat"), ("2", "bob", "dog")]


def test_files_that_disagree_about_the_truth(read_many) -> None:
    with (
        pytest.warns(UserWarning, match="'gold' is read as the true labels"),
        pytest.raises(CrowdshotError, match="has the true labels 'x' and 'y' for 'a', expected one"),
    ):
        read_many({"1.csv": "item,ann,bob,gold\na,x,x,x\nb,y,x,\n", "2.csv": "item,cyd,dan,gold\na,x,x,y\nb,y,x,\n"})
