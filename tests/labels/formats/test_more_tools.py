"""Read the exports of Potato, doccano, Zooniverse, Labelbox, Langfuse and Phoenix, and check the values."""

import io
import json
import zipfile

import numpy as np
import pandas as pd
import pytest

from crowdshot.errors import CrowdshotError
from crowdshot.labels.formats import read_labels
from forked import crowdshot
from label_exports import (
    CIRCLE,
    DOCCANO,
    DOCCANO_INTENTS,
    DOCCANO_OLD,
    LABELBOX,
    LANGFUSE,
    NOTE,
    PHOENIX,
    POTATO,
    POTATO_STATE,
    ZOONIVERSE,
    box_label,
    classified,
    labelbox,
    lines,
    potato,
    radio,
    score,
    span_note,
    zooniverse,
)


@pytest.fixture
def read(tmp_path):
    def write_and_read(content, *args, name="labels", **kwargs):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        if not isinstance(content, bytes):
            content = (content if isinstance(content, str) else lines(content)).encode()
        path.write_bytes(content)
        return read_labels(path, *args, **kwargs)

    return write_and_read


def triples(labels) -> list[tuple[str, str, str]]:
    return sorted(labels.annotations.to_frame().itertuples(index=False, name=None))


def refused(read, content, **options) -> CrowdshotError:
    with pytest.raises(CrowdshotError) as error:
        read(content, **options)
    return error.value


# ---- Potato -----------------------------------------------------------------------------------------------------


def test_potato(read) -> None:
    labels = read(POTATO, name="annotation_output/ann/annotated_instances.jsonl")
    assert triples(labels) == [("item_1", "ann", "happy"), ("item_2", "ann", "sad")]
    assert labels.left_out == {"records without an answer": 1}
    assert labels.annotations.columns == ("id", "annotator", "tone")
    assert labels.times.durations.tolist() == [65, 3600]
    assert labels.sources[0].format == "potato"


def test_potato_text_box_is_read_if_it_is_chosen(read) -> None:
    assert triples(read(POTATO, {"label": "why"}, name="ann.jsonl")) == [
        ("item_1", "ann", "It is fine."),
        ("item_3", "ann", "No idea."),
    ]


def test_potato_folders_are_annotators(tmp_path) -> None:
    for who in ("ann", "bob"):
        (tmp_path / who).mkdir()
        (tmp_path / who / "annotated_instances.jsonl").write_text(lines(POTATO))
    labels = read_labels([tmp_path / who / "annotated_instances.jsonl" for who in ("ann", "bob")])
    assert labels.annotations.annotators.tolist() == ["ann", "bob"]


def test_potato_user_state(read) -> None:
    for content in (json.dumps(POTATO_STATE), json.dumps([POTATO_STATE]), json.dumps(POTATO_STATE, indent=1)):
        labels = read(content, name="x/user_state.json")
        assert triples(labels) == [("item_1", "bob", "happy"), ("item_2", "bob", "sad")]
        np.testing.assert_array_equal(labels.times.durations, [2.5, np.nan])


def test_potato_scales_checkboxes_and_questions(read) -> None:
    records = [
        potato(1, rating={"scale_4": "4"}, topics={"art": "true", "law": True, "war": False}),
        potato(2, rating={"scale_0": "0"}, topics={"labels": {"law": True}}),
    ]
    error = refused(read, records)
    assert (error.found, error.expected) == (["rating", "topics"], "one")
    assert triples(read(records, {"label": "rating"})) == [("item_1", "labels", "4"), ("item_2", "labels", "0")]
    topics = read(records, {"label": "topics"}, multi_label=True)
    assert triples(topics) == [("item_1", "labels", "art;law"), ("item_2", "labels", "law")]
    assert refused(read, records, columns={"label": "topics"}).found == ["art", "law"]


@pytest.mark.parametrize(
    ("record", "found"),
    [
        (potato(1, spans={"tone:happy:0:4": "true"}), "spans"),
        (potato(1, why={"text_box": "Because."}), "text boxes"),
    ],
)
def test_potato_without_options_is_refused(read, record, found) -> None:
    assert refused(read, [record]).found == found


def test_potato_refused(read) -> None:
    error = refused(read, [{**potato(1, tone={"sad": "true"}), "id": None}])
    assert (error.where.endswith("labels, row 1"), error.message) == (True, "has no 'id' for its label 'sad'")
    assert "row 1, 'tone'" in refused(read, [potato(1, tone=["sad"])]).where
    assert "'label_annotations'" in refused(read, [{**potato(1), "label_annotations": "sad"}]).where


# ---- doccano ----------------------------------------------------------------------------------------------------


def test_doccano(read) -> None:
    for content in (DOCCANO, json.dumps(DOCCANO)):
        labels = read(content, name="ann.jsonl")
        assert triples(labels) == [("11", "ann", "good"), ("12", "ann", "bad")]
        assert labels.left_out == {"records without an answer": 1}
    assert triples(read(DOCCANO, {"item": "text"}, name="ann.jsonl"))[0] == ("Bad film.", "ann", "bad")
    assert triples(read(DOCCANO_INTENTS, name="ann.jsonl")) == [("1", "ann", "flight"), ("2", "ann", "weather")]
    assert triples(read(DOCCANO_OLD)) == [("1", "1", "3"), ("1", "2", "4"), ("2", "1", "4")]


def test_doccano_archive(read) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("ann.jsonl", lines(DOCCANO))
        archive.writestr("bob.jsonl", lines(DOCCANO[:1]))
        archive.writestr("carol.jsonl", "")
    labels = read(held.getvalue(), name="export.zip")
    assert triples(labels) == [("11", "ann", "good"), ("11", "bob", "good"), ("12", "ann", "bad")]


def test_doccano_images_and_several_labels(read) -> None:
    records = [
        {"id": 1, "filename": "a.png", "label": ["cat", "dog"]},
        {"id": 2, "filename": "b.png", "label": ["cat"]},
    ]
    assert triples(read(records, multi_label=True)) == [("a.png", "labels", "cat;dog"), ("b.png", "labels", "cat")]
    assert refused(read, records).found == ["cat", "dog"]


def test_doccano_with_annotators_is_a_table(read) -> None:
    records = [{"id": 1, "text": "x", "username": who, "label": ["good"]} for who in ("ann", "bob")]
    labels = read(records)
    assert (triples(labels), labels.sources[0].format) == ([("x", "ann", "good"), ("x", "bob", "good")], "long")
    labels = read(records, format_name="doccano")
    assert (triples(labels), labels.sources[0].format) == ([("1", "ann", "good"), ("1", "bob", "good")], "doccano")


@pytest.mark.parametrize(
    "record",
    [
        {"id": 1, "text": "Fly to Rome", "label": [[7, 11, "CITY"]]},
        {"id": 1, "text": "Fly", "annotations": [{"label": 1, "start_offset": 0, "end_offset": 3, "user": 1}]},
    ],
)
def test_doccano_spans_are_refused(read, record) -> None:
    error = refused(read, [record])
    assert (error.found, error.where.endswith("row 1")) == ("spans", True)
    assert "crowdshot objects" in error.hint


# ---- Zooniverse -------------------------------------------------------------------------------------------------


def test_zooniverse(read) -> None:
    labels = read(ZOONIVERSE)
    assert triples(labels) == [("51", "ann", "Yes"), ("51", "not-logged-in-c19", "No")]
    assert labels.left_out == {"drawings": 1, "records without an answer": 1}
    assert labels.annotations.columns == ("subject_ids", "user_name", "T0")
    assert labels.times.durations.tolist() == [16.5, 20.5]
    assert labels.times.seconds[1] - labels.times.seconds[0] == 4


def test_zooniverse_tasks(read) -> None:
    two = zooniverse(
        classified("ann", 51, ("T0", "Yes"), ("T1", ["Palm", "Fern"])), classified("bob", 51, ("T0", "No"))
    )
    error = refused(read, two)
    assert (error.found, error.expected) == (["T0", "T1"], "one")
    assert "What about T1?" in error.message
    for name in ("T1", "What about T1?"):
        assert triples(read(two, {"label": name}, multi_label=True)) == [("51", "ann", "Fern;Palm")]
    assert refused(read, two, columns={"label": "T2"}).argument is None
    flows = zooniverse(classified("a", 1, ("T0", "x")), classified("b", 1, ("T0", "y"), workflow="9"))
    assert refused(read, flows).found == ["3130 T0", "9 T0"]
    assert triples(read(flows, {"label": "9 T0"})) == [("1", "b", "y")]
    assert triples(read(flows, batch={"workflow_id": "3130"})) == [("1", "a", "x")]


@pytest.mark.parametrize(
    ("value", "label"),
    [
        ([{"choice": "LION", "answers": {"HOWMANY": "1"}, "filters": {}}], "LION"),
        ([{"value": "ab12", "option": True, "label": "Kenya"}], "Kenya"),
        ([{"task": "T1", "value": "Yes"}], "Yes"),
        (3, "3"),
    ],
)
def test_zooniverse_answers(read, value, label) -> None:
    assert triples(read(zooniverse(classified("ann", 1, ("T0", value))))) == [("1", "ann", label)]


def test_zooniverse_refused(read) -> None:
    assert "drawings" in refused(read, zooniverse(classified("ann", 51, ("T0", CIRCLE)))).message
    damaged = ZOONIVERSE.replace('[{""task"": ""T0""', '[{""task"": ')
    assert "column 'annotations'" in refused(read, damaged).where
    assert refused(read, ZOONIVERSE.replace('"51"', '""')).message == "has no 'subject_ids' for its label 'Yes'"


# ---- Labelbox ---------------------------------------------------------------------------------------------------


def test_labelbox(read) -> None:
    labels = read(LABELBOX)
    assert triples(labels) == [
        ("1.png", "ann@x.org", "Cat"),
        ("1.png", "bob@x.org", "Dog"),
        ("2.png", "ann@x.org", "Cat"),
    ]
    assert labels.left_out == {"skipped labels": 1, "tasks nobody labelled": 1}
    assert labels.annotations.columns == ("global_key", "created_by", "Animal")
    assert labels.times.durations.tolist() == [12, 12, 12]
    assert np.isfinite(labels.times.seconds).all()
    assert triples(read(LABELBOX, {"item": "id", "label": "Note"})) == [("row-1.png", "ann@x.org", "It is dark.")]


def test_labelbox_questions(read) -> None:
    parts = {"name": "Parts", "checklist_answers": [{"name": "Tail"}, {"name": "Ear"}]}
    records = [labelbox("1.png", box_label("ann", radio("Animal", "Cat", radio("Breed", "Tabby")), parts))]
    assert refused(read, records).found == ["Animal", "Breed", "Parts"]
    assert triples(read(records, {"label": "Breed"})) == [("1.png", "ann", "Tabby")]
    assert triples(read(records, {"label": "Parts"}, multi_label=True)) == [("1.png", "ann", "Ear;Tail")]


def test_labelbox_refused(read) -> None:
    box = {"name": "Cat", "bounding_box": {"left": 1, "top": 2, "width": 3, "height": 4}}
    assert refused(read, [labelbox("1.png", box_label("ann", objects=[box]))]).found == "objects"
    assert refused(read, [labelbox("1.png", box_label(None, radio("Animal", "Cat")))]).expected == "label_details"
    assert "row 1" in refused(read, [{**labelbox("1.png"), "projects": [3]}]).where
    assert "no label" in refused(read, [labelbox("1.png", box_label("ann"))]).message
    assert refused(read, [labelbox("1.png", box_label("ann", NOTE))]).where.endswith("labels")


# ---- Langfuse and Phoenix ---------------------------------------------------------------------------------------


def test_langfuse(read) -> None:
    frame = pd.DataFrame(LANGFUSE)
    for content in (LANGFUSE, json.dumps({"data": LANGFUSE, "meta": {"page": 1}}, indent=1), frame.to_csv(index=False)):
        labels = read(content)
        assert triples(labels) == [("t1", "ann", "kind"), ("t1", "bob", "rude"), ("t2", "EVAL", "kind")]
        assert labels.sources[0].format == "langfuse"
        assert np.isfinite(labels.times.seconds).all()


def test_langfuse_observations_numbers_and_questions(read) -> None:
    records = [score("t1", "stars", 4, "ann", observationId="o1"), score("t1", "stars", 5, "ann", observationId="o2")]
    assert triples(read(records)) == [("o1", "ann", "4"), ("o2", "ann", "5")]
    two = [*records, score("t1", "tone", "kind", "ann")]
    assert refused(read, two).found == ["stars", "tone"]
    assert triples(read(two, {"label": "tone"})) == [("t1", "ann", "kind")]


def test_phoenix(read) -> None:
    flat = pd.json_normalize(PHOENIX).rename(columns={"name": "annotation_name"})
    for content in (PHOENIX, json.dumps({"data": PHOENIX, "next_cursor": None}), flat.to_csv(index=False)):
        labels = read(content)
        assert triples(labels) == [
            ("67f6", "LLM", "incorrect"),
            ("67f6", "ann", "correct"),
            ("67f7", "judge-2", "correct"),
        ]
        assert labels.sources[0].format == "phoenix"


def test_phoenix_scores_and_missing_answers(read) -> None:
    scored = span_note("a", "correctness", None, "ann") | {"result": {"label": None, "score": 1.0}}
    empty = span_note("b", "correctness", None, "ann") | {"result": None}
    labels = read([scored, empty])
    assert (triples(labels), labels.left_out) == ([("a", "ann", "1")], {"records without an answer": 1})
    assert refused(read, [empty]).where.endswith("labels")


# ---- the command line ----

TWO_QUESTIONS = {
    "potato.jsonl": lines([potato(n, tone={"sad": "true"}, size={"big": "true"}) for n in (1, 2)]),
    "zooniverse.csv": zooniverse(classified("ann", 51, ("tone", "sad"), ("size", "big"))),
    "labelbox.ndjson": lines([labelbox("1.png", box_label("ann", radio("tone", "sad"), radio("size", "big")))]),
    "langfuse.jsonl": lines([score("t1", "tone", "sad", "ann"), score("t1", "size", "big", "ann")]),
    "phoenix.jsonl": lines([span_note("s", "tone", "sad", "ann"), span_note("s", "size", "big", "ann")]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TWO_QUESTIONS)
def test_several_questions_on_the_command_line(tmp_path, name) -> None:
    (tmp_path / name).write_text(TWO_QUESTIONS[name])
    done = crowdshot(tmp_path, "aggregate", name, "--out", "consensus.csv")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 2)
    assert all(word in done.stderr for word in (name, "tone", "size", "--columns label="))
    assert not (tmp_path / "consensus.csv").exists()
    done = crowdshot(tmp_path, "aggregate", name, "--out", "consensus.csv", "--columns", "label=size")
    assert done.returncode == 0, done.stderr
    assert "big" in (tmp_path / "consensus.csv").read_text()
    done = crowdshot(tmp_path, "questions", name, "--out", "results")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results" / "size" / "consensus.csv").exists()
