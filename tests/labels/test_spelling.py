"""Names that people write in several ways."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdshot import Annotations, CrowdshotError, read_labels
from crowdshot.errors import CrowdshotWarning
from crowdshot.io.cells import fold
from crowdshot.labels.spelling import (
    Respelled,
    Twins,
    alike,
    is_typo,
    merging,
    misspellings,
    near_duplicates,
    parts,
    spelling_of,
)

LABELS = {
    "1": {"ann": "cat", "bob": "Cat"},
    "2": {"ann": "cat", "bob": "CAT"},
    "3": {"Ann": "dog", "bob": "Cat"},
    "4": {"ann": "cat", "bob": "hot dog"},
    "5": {"ann": "１", "bob": "hot  dog"},
    "6": {"ann": "1"},
}


def test_near_duplicates_are_sorted_by_frequency():
    assert near_duplicates(Annotations.from_dict(LABELS)) == [
        Twins("labels", ("1", "１"), (1, 1)),
        Twins("labels", ("cat", "Cat", "CAT"), (3, 2, 1)),
        Twins("labels", ("hot  dog", "hot dog"), (1, 1)),
        Twins("annotators", ("ann", "Ann"), (5, 1)),
    ]
    assert str(near_duplicates(Annotations.from_dict(LABELS))[1]) == "the labels 'cat', 'Cat' and 'CAT'"


def test_different_names_are_no_near_duplicates():
    labels = {"1": {"ann": "cat", "bob": "car"}, "2": {"ann": "10", "bob": "100"}, "3": {"ann": "1.5", "bob": "1"}}
    assert near_duplicates(Annotations.from_dict(labels)) == []
    numbers = Annotations.from_matrix([[0, 1], [1, 0]])
    assert near_duplicates(numbers) == []


@pytest.mark.parametrize(
    ("one", "two"),
    [("Cat", " cat "), ("7", "7.0"), ("-1", "-1.00"), ("Straße", "STRASSE"), ("e\u0301", "\u00c9"), ("ｃａｔ", "cat")],
)
def test_names_with_the_same_fold(one, two):
    assert fold(one) == fold(two)


# ---- renaming -------------------------------------------------------------------------------------------------------


def test_renaming_comes_first_then_the_most_frequent_spelling_stays():
    called = spelling_of(
        {"cat": 3, "Cat": 2, "CAT": 1, "Katze": 2, "x": 9}, {" Katze ": "Cat", "x": ""}, merge_case=True
    )
    assert [called(word) for word in ("cat", "CAT", " Katze", "x", "cAt", "dog")] == [
        "Cat",
        "Cat",
        "Cat",
        "",
        "Cat",
        "dog",
    ]
    alone = spelling_of({"cat": 3, "Cat": 2, "Katze": 2}, {"Katze": "Cat"})
    assert [alone(word) for word in ("cat", "Cat", "Katze", "CAT")] == ["cat", "Cat", "Cat", "CAT"]


def test_names_are_swapped_and_not_renamed_twice():
    called = spelling_of({"0": 1, "1": 1}, {"0": "1", "1": "0"})
    assert (called("0"), called("1")) == ("1", "0")


def test_a_whole_number_is_written_as_one():
    called = spelling_of({"1.0": 2, "1": 1, "1.5": 1}, {"1.0": "one"})
    assert [called(word) for word in ("1", "1.00", "2.", "1.5")] == ["one", "one", "2", "1.5"]


LONG = "item,who,label\n1,7,cat\n1,8,Cat\n2,7,dog\n2,9,dgo\n3,9,cat\n3,8,?\n"


@pytest.fixture
def files(tmp_path):
    def write(**contents):
        for name, content in contents.items():
            (tmp_path / f"{name}.csv").write_text(content)
        return tmp_path

    return write


@pytest.mark.filterwarnings("ignore:.*labelled the same item more than once:UserWarning")
def test_labels_and_annotators_by_what_they_are_called(files):
    root = files(
        labels=LONG, rename="old,new\ndgo,dog\n?,\nunknown,x\n", names="annotator,name\n7,Ann\n8,Bob\n9,Ann\n99,Eve\n"
    )
    read = read_labels(root / "labels.csv", rename=root / "rename.csv", merge_case=True, names=root / "names.csv")
    ann = read.annotations
    assert ann.classes.tolist() == ["cat", "dog"]
    assert ann.annotators.tolist() == ["Ann", "Bob"]
    assert list(ann.to_frame().itertuples(index=False, name=None)) == [
        ("1", "Ann", "cat"),
        ("1", "Bob", "cat"),
        ("2", "Ann", "dog"),  # 7 and 9 are one annotator
        ("3", "Ann", "cat"),
    ]
    assert read.respelled == [
        Respelled("labels", "", {"?": 1}),
        Respelled("labels", "cat", {"cat": 2, "Cat": 1}),
        Respelled("labels", "dog", {"dgo": 1, "dog": 1}),
        Respelled("annotators", "Ann", {"7": 2, "9": 2}),
        Respelled("annotators", "Bob", {"8": 2}),
    ]
    assert [read.spelling(word) for word in ("CAT", "dgo", "owl")] == ["cat", "dog", "owl"]


def test_respelled_names_are_reported(files):
    read = read_labels(files(labels=LONG) / "labels.csv", rename={"dgo": "dog", "?": ""}, merge_case=True)
    assert list(map(str, read.respelled)) == [
        "the label '?' (1) is read as no label",
        "the labels 'cat' (2) and 'Cat' (1) are read as 'cat'",
        "the labels 'dgo' (1) and 'dog' (1) are read as 'dog'",
    ]


def test_true_labels_of_the_same_table_are_spelled_likewise(files):
    root = files(labels="item,ann,bob,truth\n1,cat,cat,CAT\n2,dog,dog,dgo\n3,cat,dog,\n")
    taken = pytest.warns(UserWarning, match="read as the true labels")
    with taken, pytest.warns(UserWarning, match=r"gold label 'dgo'. Use rename=\{'dgo': 'dog'\}"):
        read = read_labels(root / "labels.csv", rename=None, merge_case=True)
    assert read.gold == {"1": "cat", "2": "dgo"}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"rename": {"Dog": "x"}}, r"rename names 'Dog', which is not there, expected some of '\?', 'Cat', 'cat'"),
        ({"names": {"1": "x"}}, "names names '1', which is not there, expected some of '7', '8', '9'"),
        ({"rename": "new,what\nx,y\n"}, "has the header 'new', 'what', expected 'old' and 'new'"),
        ({"rename": "dgo,dog\nCat,cat\n"}, "has the header 'dgo', 'dog', expected 'old' and 'new'"),  # it has none
        ({"rename": "old,new\ndgo,a\ndgo,b\n"}, "row 3, column 'old' is 'dgo', as in row 2"),
        ({"names": "name\n7\n"}, "has one column, 'name', expected several"),
        ({"rename": {"cat": "", "Cat": "", "dog": "", "dgo": "", "?": ""}}, "holds no label"),
    ],
)
def test_invalid_renames(files, given, sentence):
    root = files(labels=LONG)
    for argument, value in given.items():
        if isinstance(value, str):
            files(given=value)
            given = {argument: root / "given.csv"}
    with pytest.raises(CrowdshotError, match=sentence):
        read_labels(root / "labels.csv", **given)


def test_a_table_of_other_peoples_names_is_refused_and_one_of_other_misspellings_is_not(tmp_path):
    (tmp_path / "labels.csv").write_text("item,annotator,label\n1,7,cat\n1,8,dog\n")
    (tmp_path / "names.csv").write_text("annotator,name\nAnna,Ann\n")
    (tmp_path / "renames.csv").write_text("old,new\ndgo,dog\n")
    told = r"names.csv names 'Anna', which is not there, expected some of '7', '8'\."
    with pytest.raises(CrowdshotError, match=told):
        read_labels(tmp_path / "labels.csv", names=tmp_path / "names.csv")
    assert read_labels(tmp_path / "labels.csv", rename=tmp_path / "renames.csv").annotations.n_labels == 2


def test_unknown_old_names_are_reported_or_allowed():
    told = r"rename names 'kitty', which is not in the files\. Labels that arrive later may have it\."
    with pytest.warns(UserWarning, match=told):
        called = spelling_of({"cat": 1}, {"kitty": "cat"}, strangers="tell")
    assert called("kitty") == "cat"
    assert spelling_of({}, {"kitty": "cat"}, strangers="allow")("kitty") == "cat"


UNSEEN = ["\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\xa0\u200b "]


@pytest.mark.parametrize("unseen", UNSEEN)
def test_invisible_characters_around_names_are_removed(files, unseen):
    """In each of the three columns, in the header and in new names; a cell of nothing else is blank."""
    u = unseen
    long = f"item,annotator{u},label\n1,ann,cat\n2,ann,cat\n{u}1{u},bob{u},{u}cat{u}\n2,bob,{u}\n"
    root = files(long=long, wide=f"item,ann,{u}bob{u}\n1,cat,cat{u}\n2,cat,{u}\n")
    for name in ("long.csv", "wide.csv"):
        ann = read_labels(root / name).annotations
        assert (*ann.items, *ann.annotators, *ann.classes) == ("1", "2", "ann", "bob", "cat")
        assert ann.n_labels == 3
    assert spelling_of({f"cat{unseen}": 1}, {f"{unseen}cat": f"dog{unseen}"})("cat") == "dog"
    assert parts(f"cat{unseen};{unseen}dog") == ["cat", "dog"]


def test_joiners_inside_a_word_or_an_emoji_stay(files):
    family, persian = "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    read = read_labels(files(labels=f"item,annotator,label\n1,ann,{family}\n2,ann,{persian}\n") / "labels.csv")
    assert set(read.annotations.classes) == {family, persian}


# ---- near-duplicates beyond case -----------------------------------------------------------------------------------


def groups(of, *names, emails=None):
    return [set(each.names) for each in alike(of, dict.fromkeys(names, 1), emails)]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("insidecity", "inside city"),
        ("inside_city", "Inside-City"),
        ("T-shirt", "tshirt"),
        ("class 1", "Class_1"),
        ("no", "No."),
        ("O'Brien", "o’brien"),
        ("non-toxic", "nontoxic"),
    ],
)
def test_labels_that_differ_in_spaces_and_marks_are_suggested(one, two):
    assert groups("labels", one, two, "street") == [{one, two}]


@pytest.mark.parametrize(
    "names",
    [
        ("class 1", "class 11", "class 1 1"),
        ("+1", "-1", "1"),
        ("score -1", "score 1"),
        ("v-1", "v+1", "v1"),
        ("C", "C++", "C#"),
        ("1.5", "15", "1-5", "1 5"),
        ("A-B", "AB", "A B"),
        ("v1.2", "v12"),
        ("cat?", "cat"),
        ("bär", "bar"),
        ("A+", "A-", "A"),
    ],
)
def test_different_labels_are_not_suggested(names):
    assert groups("labels", *names) == []


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("aisha.b", "Aisha B."),
        ("aisha.b@x.org", "Aisha B"),
        ("aisha.b@x.org", "Aisha.B+work@x.org"),
        ("Doe, Jane", "jane doe"),
        ("José", "jose"),
        ("w-17", "W17"),
    ],
)
def test_annotators_who_are_probably_one_are_suggested(one, two):
    assert groups("annotators", one, two, "gus") == [{one, two}]


@pytest.mark.parametrize(
    "names", [("ann@x.org", "ann@y.org"), ("w1", "w11"), ("2-1", "21"), ("annotator 1", "annotator 2"), ("か", "が")]
)
def test_different_annotators_are_not_suggested(names):
    assert groups("annotators", *names) == []


def test_people_with_the_same_address_are_suggested_unless_it_is_everybodys():
    assert groups("annotators", "Aisha", "AB", "gus", emails={"Aisha": "a@x.org", "AB": "A@x.org"}) == [{"Aisha", "AB"}]
    assert groups("annotators", "Aisha", "gus", emails=dict.fromkeys(["Aisha", "gus"], "lead@x.org")) == []
    assert groups("annotators", *"abcdef", emails=dict.fromkeys("abcde", "lead@x.org")) == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("aAbB1 -._+é", min_size=1, max_size=6), unique=True, max_size=8), st.randoms())
def test_groups_do_not_depend_on_the_order_and_do_not_overlap(names, random):
    for of in ("labels", "annotators"):
        found = groups(of, *names)
        shuffled = names.copy()
        random.shuffle(shuffled)
        assert sorted(map(sorted, groups(of, *shuffled))) == sorted(map(sorted, found))
        assert sum(map(len, found)) == len(set().union(*found))


def test_the_suggestion_is_ready_to_use(tmp_path):
    rows = ["1,aisha.b,inside city,a@x.org", "2,Aisha B.,insidecity,a@x.org", "1,gus,inside city,g@x.org"]
    (tmp_path / "labels.csv").write_text("item,annotator,label,Email\n" + "\n".join(rows))
    with pytest.warns(CrowdshotWarning) as told:
        read = read_labels(tmp_path / "labels.csv")
    assert [each.message.hint.arguments for each in told] == [
        {"rename": {"insidecity": "inside city"}},
        {"names": {"Aisha B.": "aisha.b"}},
    ]
    assert merging(read.near_duplicates) == told[0].message.hint.arguments | told[1].message.hint.arguments
    again = read_labels(tmp_path / "labels.csv", **merging(read.near_duplicates))
    assert again.annotations.classes.tolist() == ["inside city"]
    assert again.annotations.annotators.tolist() == ["aisha.b", "gus"]
    assert not again.near_duplicates


def test_where_only_case_differs_merge_case_is_enough():
    assert merging(near_duplicates(Annotations.from_dict(LABELS)))["merge_case"] is True


@pytest.mark.parametrize(
    ("rare", "n", "found"),
    [
        ("dgo", 1, ["dgo"]),
        ("DGO", 1, ["DGO"]),
        ("girafe", 3, ["girafe"]),
        ("girafee", 1, ["girafee"]),
        ("cot", 1, []),  # a short word with another letter may be a class
        ("girafe", 4, []),
        ("goose", 1, []),
        ("giraffe 2", 1, []),
    ],
)
def test_misspelled_classes(rare, n, found):
    words = ["dog"] * 30 + ["cat"] * 30 + ["giraffe"] * 30 + [rare] * n
    ann = Annotations.from_dict({str(i): {"x": word} for i, word in enumerate(words)})
    assert [each.name for each in misspellings(ann)] == found


@given(st.text("abc1", max_size=6), st.text("abc1", max_size=6))
def test_a_typo_is_one_edit(name, like):
    """Compared with all words that are one edit away."""
    letters = "abc"
    edits = {name[:i] + c + name[i:] for i in range(len(name) + 1) for c in letters}
    edits |= {name[:i] + name[i + 1 :] for i in range(len(name)) if name[i] != "1"}
    edits |= {name[:i] + c + name[i + 1 :] for i in range(len(name)) for c in letters if name[i] != "1"}
    swaps = {name[:i] + name[i + 1] + name[i] + name[i + 2 :] for i in range(len(name) - 1)}
    longer = max(len(name), len(like))
    expected = name != like and ((like in edits and longer >= 4) or (like in swaps and longer >= 3))
    assert is_typo(name, like) == is_typo(like, name) == expected
