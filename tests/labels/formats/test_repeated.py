"""Somebody who labelled an item more than once counts once: with the newest label, where the table says when."""

import json
import warnings

import numpy as np
import pytest

from crowdshot import CrowdshotError, read_labels

HEADER = "item,annotator,label,{}\n"


def read(tmp_path, when, *rows, **options):
    (tmp_path / "labels.csv").write_text(HEADER.format(when) + "".join(f"{row}\n" for row in rows))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ann = read_labels(tmp_path / "labels.csv", **options).annotations
    assert any("labelled the same item more than once" in str(each.message) for each in told)
    said = {(str(ann.items[i]), str(ann.annotators[r])): str(ann.classes[k]) for i, r, k in _labels(ann)}
    return ann, said, [str(each.message) for each in told]


def _labels(ann):
    return zip(ann.item, ann.annotator, ann.label, strict=True)


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        ("2024-03-02 10:00", "2024-03-01 10:00"),
        ("2024-03-02T00:30:00+02:00", "2024-03-01T22:00:00Z"),  # half past ten at night, in Greenwich
        ("1709373600", "999999999"),  # numbers, not text
    ],
)
def test_of_a_newest_first_export_the_newest_label_counts(tmp_path, newer, older):
    rows = [f"2,bob,dog,{newer}", f"1,ann,cat,{newer}", f"1,ann,dog,{older}", f"1,bob,dog,{older}"]
    ann, said, told = read(tmp_path, "Created At", *rows)
    assert said == {("2", "bob"): "dog", ("1", "ann"): "cat", ("1", "bob"): "dog"}
    assert ann.items.tolist() == ["2", "1"]  # as they came
    assert told[0].endswith(
        "1 label dropped because an annotator labelled the same item more than once; the newest by 'Created At' counts."
    )


@pytest.mark.parametrize(
    "cells",
    [
        ("2024-03-02", ""),
        ("2024-03-02", "5"),
        ("12.5", "3"),
        ("2024-03-02", "soon"),
        ("9:05", "9:01"),
        ("0:05:00", "0:00:07"),
    ],
)
def test_where_times_may_be_mistaken_the_last_in_the_file_counts(tmp_path, cells):
    rows = [f"1,ann,cat,{cells[0]}", f"1,ann,dog,{cells[1]}", "2,bob,cat,"]
    _, said, notes = read(tmp_path, "created_at", *rows)
    assert said["1", "ann"] == "dog"
    assert any(note.endswith("the last one in its order counts.") for note in notes)
    unreadable = [note for note in notes if "looks like times" in note]
    assert bool(unreadable) == (cells[1] not in ("", "9:01", "0:00:07"))


def test_of_equal_times_the_later_row_counts_and_of_several_times_the_last_change(tmp_path):
    (tmp_path / "labels.csv").write_text(
        "item,annotator,label,created_at,updated_at\n"
        "1,ann,cat,2024-03-09,2024-03-01\n1,ann,dog,2024-03-01,2024-03-02\n"
        "2,ann,cat,2024-03-01,2024-03-02\n2,ann,dog,2024-03-01,2024-03-02\n"
    )
    with pytest.warns(UserWarning, match="the newest by 'updated_at' counts"):
        ann = read_labels(tmp_path / "labels.csv").annotations
    assert [str(ann.classes[k]) for k in ann.label[np.argsort(ann.item)]] == ["dog", "dog"]


# ---- labels that are repeated only once files are joined or people renamed ------------------------------------------


def told_of(*paths, **options):
    """What everybody said, and the notes on it."""
    with pytest.warns(UserWarning, match="more than once") as told:
        ann = read_labels(paths, **options).annotations
    said = {(str(ann.items[i]), str(ann.annotators[r])): str(ann.classes[k]) for i, r, k in _labels(ann)}
    return said, [str(each.message).split("; ")[-1] for each in told]


def table(tmp_path, name, *rows, when="created_at"):
    (tmp_path / name).write_text(HEADER.format(when) + "".join(f"{row}\n" for row in rows))
    return tmp_path / name


@pytest.mark.parametrize("newer", ["2026-05-02 10:00", "1777716000", "1777716000000"])
@pytest.mark.parametrize("newest_first", [True, False])
def test_of_several_files_the_newest_label_counts_in_whatever_order(tmp_path, newest_first, newer):
    old = table(tmp_path, "week2.csv", "1,ann,cat,2026-03-02 10:00", "1,bob,cat,2026-03-02 10:00", "2,ann,cat,")
    new = table(tmp_path, "week10.csv", f"1,ann,dog,{newer}", "3,ann,owl,")
    said, told = told_of(*((new, old) if newest_first else (old, new)))
    assert said == {("1", "ann"): "dog", ("1", "bob"): "cat", ("2", "ann"): "cat", ("3", "ann"): "owl"}
    assert told == ["the newest by 'created_at' counts."]


def test_where_one_of_several_files_tells_no_times_the_last_file_counts(tmp_path):
    new = table(tmp_path, "new.csv", "1,ann,dog,2026-05-02", "2,ann,dog,2026-05-02")
    bare = table(tmp_path, "bare.csv", "1,ann,cat,", when="remark")
    old = table(tmp_path, "old.csv", "2,ann,cat,2026-03-02")
    said, told = told_of(new, bare, old)
    assert said == {("1", "ann"): "cat", ("2", "ann"): "dog"}
    assert told == ["the newest by 'created_at' counts.", "the last one in its order counts."]


def test_of_two_spellings_of_an_annotator_the_newest_label_counts(tmp_path):
    rows = ("1,Ann,dog,2026-05-02", "1,ann,cat,2026-03-02", "1,gus,cat,2026-03-02", "2,ann,owl,2026-03-02")
    file = table(tmp_path, "labels.csv", "3,gus,cat,2026-06-02", *rows, "2,ann,dog,2026-02-02")
    said, told = told_of(file, names={"ann": "Ann"}, leave_out=["gus"])
    assert said == {("1", "Ann"): "dog", ("2", "Ann"): "owl"}
    assert told == ["the newest by 'created_at' counts."] * 2


def test_of_several_exports_of_label_studio_the_one_updated_last_counts(tmp_path):
    def export(name, label, when):
        result = {"from_name": "c", "to_name": "i", "type": "choices", "value": {"choices": [label]}}
        annotation = {"completed_by": 1, "updated_at": when, "result": [result]}
        tasks = [{"id": 1, "data": {"image": "1.png"}, "annotations": [annotation]}]
        (tmp_path / name).write_text(json.dumps(tasks))
        return tmp_path / name

    new, old = (
        export("new.json", "dog", "2026-05-02T10:00:00.5Z"),
        export("old.json", "cat", "2026-03-02T10:00:00.123456Z"),
    )
    assert told_of(new, old) == ({("1.png", "1"): "dog"}, ["the newest by 'updated_at' counts."])


# ---- annotators who are left out ------------------------------------------------------------------------------------

LABELS = "item,annotator,label\n1,ann,cat\n1,gus,owl\n2,gus,dog\n3,bob,dog\n"


def test_who_is_left_out_said_nothing_and_their_items_stay(tmp_path):
    (tmp_path / "labels.csv").write_text(LABELS)
    found = read_labels(tmp_path / "labels.csv", leave_out=["gus"])
    ann = found.annotations
    assert (ann.items.tolist(), ann.annotators.tolist()) == (["1", "2", "3"], ["ann", "bob"])
    assert sorted(zip(ann.item, ann.annotator, strict=True)) == [(0, 0), (2, 1)]
    assert found.left_out == {"labels of annotators not wanted": 2}


def test_by_the_name_in_the_file_or_the_one_that_is_given(tmp_path):
    (tmp_path / "labels.csv").write_text(LABELS)
    names = {"gus": "Gustav", "bob": "Bob"}
    for name in ("gus", "Gustav"):
        ann = read_labels(tmp_path / "labels.csv", names=names, leave_out=[name]).annotations
        assert ann.annotators.tolist() == ["ann", "Bob"]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["eva"], "leave_out names 'eva', which is not there, expected some of 'ann', 'gus', 'bob'."),
        (["ann", "bob", "gus"], "leave_out names all annotators of .*labels.csv"),
    ],
)
def test_a_stranger_and_everybody_are_refused(tmp_path, names, told):
    (tmp_path / "labels.csv").write_text(LABELS)
    with pytest.raises(CrowdshotError, match=told):
        read_labels(tmp_path / "labels.csv", leave_out=names)
