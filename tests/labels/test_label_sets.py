"""Test answers that name several labels: their recognition and their yes/no questions."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from crowdshot import Annotations, CrowdshotError, aggregate, read_labels
from crowdshot.labels.label_sets import aggregate_sets
from crowdshot.labels.spelling import parts

LONG = "item,annotator,label\n1,ann,cat;dog\n1,bob,dog|cat\n2,ann,dog\n2,bob,Dog; cat\n3,ann,owl\n"


@pytest.fixture
def read(tmp_path):
    def write_and_read(content, name="labels.csv", **given):
        (tmp_path / name).write_text(content)
        return read_labels(tmp_path / name, **given)

    return write_and_read


def triples(labels):
    return list(labels.annotations.to_frame().itertuples(index=False, name=None))


def test_parts_of_a_label():
    assert parts(" cat ; dog|cat;; ") == ["cat", "dog"]
    assert parts("cat, dog") == ["cat, dog"]


@pytest.mark.parametrize(
    "labels", [("cat;dog", "cat"), ("cat|dog", "dog|owl"), ("cat; dog", "CAT"), ("cat;", "cat"), ("a;b;c", "x", "c")]
)
def test_labels_whose_parts_recur_name_several(read, labels):
    rows = "".join(f"{n},ann,{label}\n" for n, label in enumerate(labels))
    with pytest.raises(
        CrowdshotError, match=r"labels.csv has the label '.*', .* Use multi_label=True .*categories=True"
    ):
        read("item,annotator,label\n" + rows)
    assert read("item,annotator,label\n" + rows, categories=True).annotations.n_classes == len(labels)


def test_labels_whose_parts_do_not_recur_are_names(read):
    labels = read("item,annotator,label\n1,ann,salt;pepper\n2,ann,oil|vinegar\n3,ann,water\n")
    assert labels.annotations.classes.tolist() == ["oil|vinegar", "salt;pepper", "water"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_sets_are_spelled_one_way(read):
    labels = read(LONG, multi_label=True, merge_case=True, rename={"owl": "bird"})
    assert triples(labels) == [
        ("1", "ann", "cat;dog"),
        ("1", "bob", "cat;dog"),
        ("2", "ann", "dog"),
        ("2", "bob", "cat;dog"),
        ("3", "ann", "bird"),
    ]
    assert labels.names.tolist() == ["bird", "cat", "dog"]
    assert [(each.name, each.counts) for each in labels.respelled] == [
        ("dog", {"dog": 3, "Dog": 1}),
        ("bird", {"owl": 1}),
    ]
    assert labels.near_duplicates == []
    assert [twins.names for twins in read(LONG, multi_label=True).near_duplicates] == [("dog", "Dog")]


def test_commas_separate_labels_if_there_is_no_other_separator(read):
    table = 'item,annotator,label\n1,ann,"cat, dog"\n2,ann,dog\n'
    assert read(table, multi_label=True).names.tolist() == ["cat", "dog"]
    assert read(table).annotations.classes.tolist() == ["cat, dog", "dog"]  # it may be a name: "dog, small"
    with pytest.warns(UserWarning, match=r"The label 'cat, dog' is read as one label\..*multi_label=True"):
        assert read(table + "3,ann,cat\n").annotations.n_classes == 3
    assert read(table + "3,ann,a;b\n", multi_label=True).names.tolist() == ["a", "b", "cat, dog", "dog"]


def test_sets_of_a_wide_table_make_annotators_too(read):
    labels = read("image,ann,bob,Datum\n1,cat;dog,dog,1.3.\n2,owl,cat,2.3.\n3,dog;owl,cat;owl,3.3.\n", multi_label=True)
    assert labels.annotations.annotators.tolist() == ["ann", "bob"]
    assert labels.names.tolist() == ["cat", "dog", "owl"]


RECORDS = [
    {"item": "1", "annotator": "ann", "label": ["dog", "cat"]},
    {"item": "1", "annotator": "bob", "label": ["cat"]},
    {"item": "2", "annotator": "ann", "label": []},
    {"item": "2", "annotator": "bob", "label": "dog"},
]
SETS = [("1", "ann", "cat;dog"), ("1", "bob", "cat"), ("2", "bob", "dog")]


def test_lists_in_several_formats(read, tmp_path):
    pd.DataFrame([RECORDS[0], RECORDS[1], RECORDS[3] | {"label": ["dog"]}]).to_parquet(tmp_path / "l.parquet")
    written = pd.DataFrame(RECORDS).to_csv(index=False)
    assert "\"['dog', 'cat']\"" in written
    as_json = pd.DataFrame([*({**r, "label": json.dumps(r["label"])} for r in RECORDS[:3]), RECORDS[3]]).to_csv(
        index=False
    )
    for labels in (
        read(json.dumps(RECORDS), "l.json", multi_label=True),
        read("\n".join(map(json.dumps, RECORDS)), "l.jsonl", multi_label=True),
        read(written, multi_label=True),
        read(as_json, multi_label=True),
        read_labels(tmp_path / "l.parquet", multi_label=True),
    ):
        assert triples(labels) == SETS
    for content in (json.dumps(RECORDS), written):
        with pytest.raises(CrowdshotError, match=r"column 'label' has 2 labels, 'dog', 'cat', .*multi_label=True"):
            read(content)


def test_choices_of_label_studio(read):
    def annotation(user, *chosen):
        result = {"from_name": "a", "to_name": "p", "type": "choices", "value": {"choices": list(chosen)}}
        return {"completed_by": user, "result": [result]}

    tasks = [{"id": 1, "data": {"p": "1"}, "annotations": [annotation(7, "dog", "cat"), annotation(8, "cat")]}]
    assert triples(read(json.dumps(tasks), "e.json", multi_label=True)) == [("1", "7", "cat;dog"), ("1", "8", "cat")]
    with pytest.raises(CrowdshotError, match=r"task 1, annotation 1 has 2 labels, .*multi_label=True"):
        read(json.dumps(tasks), "e.json")


# ---- aggregation ----------------------------------------------------------------------------------------------------

SAID = {
    "1": {"ann": "cat;dog", "bob": "cat;dog", "cyd": "cat"},
    "2": {"ann": "dog", "bob": "cat", "cyd": "owl"},
    "3": {"ann": "owl", "bob": "owl", "cyd": "cat;owl"},
}


def test_votes_by_hand():
    """Each label of item 2 has probability 1/3, so the likeliest non-empty set is the first label."""
    ann, consensus, yes = aggregate_sets(
        Annotations.from_dict(SAID), lambda question, _: aggregate.majority_vote(question)
    )
    np.testing.assert_allclose(yes, [[1, 2 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [1 / 3, 0, 1]])
    table = consensus.to_frame(ann)
    assert table["label"].tolist() == ["cat;dog", "cat", "owl"]
    np.testing.assert_allclose(table["confidence"], [2 / 3, (1 / 3) * (2 / 3) ** 2, 2 / 3])
    np.testing.assert_allclose(table["agreement"], [2 / 3, 1 / 3, 2 / 3])


def test_each_label_is_a_separate_question():
    ann = Annotations.from_dict(SAID)
    _, _, yes = aggregate_sets(ann, lambda question, truth: aggregate.learned(question, gold=truth))
    for k, name in enumerate(("cat", "dog", "owl")):
        said = np.array([name in parts(label) for label in ann.classes])
        alone = replace(ann, label=said[ann.label].astype(np.int64), classes=np.array(["no", "yes"], dtype=object))
        np.testing.assert_allclose(yes[:, k], aggregate.learned(alone).probabilities[:, 1])


def test_a_set_that_no_annotator_chose_may_be_likeliest():
    said = {"1": {"ann": "cat;dog", "bob": "dog;owl", "cyd": "owl;cat"}, "2": {"ann": "cat"}}
    ann, consensus, _ = aggregate_sets(
        Annotations.from_dict(said), lambda question, _: aggregate.majority_vote(question)
    )
    assert consensus.labels.tolist() == ["cat;dog;owl", "cat"]
    assert ann.classes[-1] == "cat;dog;owl"
    np.testing.assert_allclose(consensus.probabilities.max(1), [(2 / 3) ** 3, 1.0])


def test_known_truth_answers_every_question():
    _, consensus, yes = aggregate_sets(
        Annotations.from_dict(SAID), lambda question, truth: aggregate.one_coin(question, gold=truth), {"2": "cat;owl"}
    )
    assert consensus.labels[1] == "cat;owl"
    assert yes[1].tolist() == [1.0, 0.0, 1.0]
    assert consensus.probabilities[1].max() == 1.0
