"""Read the exports of Potato, doccano, Zooniverse, Labelbox, Langfuse and Phoenix, and check the values."""

import json

import numpy as np
import pytest

from crowdshot.errors import CrowdshotError
from crowdshot.labels.formats import read_labels
from label_exports import POTATO, POTATO_STATE, lines, potato


@pytest.fixture
def read(tmp_path):
    def write_and_read(content, *args, name="labels", **kwargs):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(content if isinstance(content, str) else lines(content))
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
