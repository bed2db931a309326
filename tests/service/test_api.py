"""The HTTP interface, in one process."""

import base64
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from crowdshot import CrowdClassifier, aggregate
from crowdshot.labels.formats import read_labels
from crowdshot.service.http_app import Settings

from .conftest import after, say, wire


def test_without_any_label_there_is_nothing_to_say(service):
    with service() as client:
        assert client.get("/health").json() == {"status": "UP", "model_class": "crowdshot", "version": 0}
        for path in ("/v1/consensus", "/v1/annotators", "/v1/next?annotator=ann"):
            assert client.get(path).status_code == 503
        assert say(client, ("a", "ann", "cat"), ("b", "ann", "dog")).status_code == 201
        after(client, 0)
        assert client.get("/v1/consensus").status_code == 200


def test_labels_alone_are_believed_as_aggregate_does(service, crowd):
    labels, _ = crowd
    with service([labels]) as client:
        found = client.get("/v1/consensus").json()
        expected = aggregate.learned(read_labels(labels).annotations)
        assert [row["label"] for row in found["consensus"]] == expected.labels.tolist()
        confidence = [row["confidence"] for row in found["consensus"]]
        np.testing.assert_allclose(confidence, expected.probabilities.max(1), rtol=1e-12)
        assert len(client.get("/v1/consensus?limit=3").json()["consensus"]) == 3
        people = client.get("/v1/annotators").json()
        assert people["version"] == found["version"]
        assert [person["annotator"] for person in people["annotators"]] == ["ann", "bob", "cy"]
        for person in people["annotators"]:
            assert 0 <= person["low"] < person["accuracy"] < person["high"] <= 1
            assert person["n_labels"] == 30


def test_what_cannot_be_seen_around_a_name_is_no_part_of_it(service):
    with service() as client:
        say(client, ("a", "ann", "cat"), ("a\u200b", "\ufeffbob", "cat\u200b"), ("b", "ann", "dog"))
        assert say(client, ("c", "ann", "\u200b")).status_code == 422
        after(client, 0)
        found = client.get("/v1/consensus").json()["consensus"]
        assert {row["item"]: row["n_labels"] for row in found} == {"a": 2, "b": 1}
        assert [row["item"] for row in client.get("/v1/next?annotator=ann\u200b").json()["questions"]] == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*which is not in the files")
def test_new_names_are_for_labels_that_come_too(service, crowd, tmp_path):
    names = tmp_path / "names.csv"
    names.write_text("annotator,name\nZed,ann\n")
    given = {"rename": {"kitty": "cat"}, "names": names, "leave_out": ["gus"]}
    with service([crowd[0]], **given) as client:
        before = client.get("/health").json()["version"]
        say(client, ("new", "Zed", "kitty"), ("new", "gus", "dog"))
        after(client, before)
        new = client.get("/v1/consensus").json()["consensus"][-1]
        assert (new["item"], new["label"], new["n_labels"]) == ("new", "cat", 1)
        people = {row["annotator"]: row["n_labels"] for row in client.get("/v1/annotators").json()["annotators"]}
        assert people == {"ann": 31, "bob": 30, "cy": 30}
    with service([crowd[0]], **given) as client:  # they are in the journal now
        assert client.get("/v1/consensus").json()["consensus"][-1]["label"] == "cat"
    with service(data=tmp_path / "other", **given) as client:
        say(client, ("a", "bob", "dog"))  # none of them
        after(client, 0)


def test_a_label_changes_the_version_and_what_is_believed(service, crowd):
    labels, features = crowd
    with service([labels], features) as client:
        before = client.get("/v1/consensus").json()
        assert len(before["consensus"]) == 40  # those that nobody labelled too
        assert say(client, ("i30", "dee", "cat"), ("i0", "dee", "cat")).status_code == 201
        number = after(client, before["version"])
        now = {row["item"]: row for row in client.get("/v1/consensus").json()["consensus"]}
        assert now["i30"]["n_labels"] == 1
        assert now["i0"]["n_labels"] == 4
        people = {row["annotator"]: row for row in client.get("/v1/annotators").json()["annotators"]}
        assert people["dee"]["n_labels"] == 2
        assert client.get("/health").json()["version"] == number


def test_the_classifier_is_the_one_that_adapt_would_fit(service, crowd):
    labels, features = crowd
    with service([labels], features) as client:
        answer = client.post("/v1/predict", json={"features": [[1.0, 0.2], [-1.0, 0.0]]}).json()
        assert [row["label"] for row in answer["predictions"]] == ["cat", "dog"]
        assert sum(answer["predictions"][0]["probabilities"].values()) == pytest.approx(1)
        model = client.live.data / "downloaded.safetensors"
        model.write_bytes(client.get("/v1/model").content)
        again = CrowdClassifier.load(model).predict_proba(np.array([[1.0, 0.2]], dtype=np.float32))
        assert answer["predictions"][0]["confidence"] == pytest.approx(float(again.max()))


def test_next_asks_what_the_person_has_not_labelled_and_others_were_not_sent_to(service, crowd):
    labels, features = crowd
    with service([labels], features) as client:
        new = client.get("/v1/next?annotator=zoe&n=5").json()["questions"]
        assert all(set(row) == {"item", "gain", "n_labels"} for row in new)  # annotators do not see the answers
        told = client.get("/v1/next?annotator=eva&n=5&answers=true").json()["questions"]
        assert all(set(row) == {"item", "gain", "n_labels", "consensus", "confidence"} for row in told)
        assert len({row["item"] for row in new}) == 5
        gains = [row["gain"] for row in new]
        assert gains == sorted(gains, reverse=True)
        again = client.get("/v1/next?annotator=zoe&n=5").json()["questions"]
        assert not {row["item"] for row in new} & {row["item"] for row in again}
        mine = {f"i{i}" for i in range(30)}
        for _ in range(4):
            asked = client.get("/v1/next?annotator=ann&n=10").json()["questions"]
            assert not mine & {row["item"] for row in asked}


def test_what_nobody_labelled_comes_first_where_all_say_the_same(service):
    with service() as client:
        say(client, ("a", "ann", "cat"), ("a", "bob", "cat"), ("b", "bob", "cat"))
        after(client, 0)
        asked = client.get("/v1/next?annotator=cy&n=2").json()["questions"]
        assert [row["item"] for row in asked] == ["b", "a"]


def test_what_was_acknowledged_is_there_after_a_new_start(service, crowd):
    labels, _ = crowd
    with service([labels]) as client:
        number = client.get("/health").json()["version"]
        say(client, ("new", "ann", "cat"))
    with service([labels]) as client:
        assert client.get("/health").json()["version"] > number  # a number is never given twice
        assert "new" in {row["item"] for row in client.get("/v1/consensus").json()["consensus"]}


def test_metrics_have_no_names(service, crowd):
    with service([crowd[0]]) as client:
        text = client.get("/metrics").text
        assert "crowdshot_labels 90" in text
        assert "crowdshot_labelled_items 30" in text
        assert "ann" not in text.replace("annotators", "").replace("Annotators", "")


def test_read_only_takes_nothing(service, crowd):
    with service([crowd[0]], settings=Settings(read_only=True)) as client:
        assert say(client, ("a", "ann", "cat")).status_code == 403
        assert client.get("/v1/consensus").status_code == 200


def test_ordered_classes_take_no_others(service, tmp_path):
    with service(settings=Settings(ordered=frozenset(["low", "high"])), ordered=["low", "high"]) as client:
        refused = say(client, ("a", "ann", "medium"))
        assert refused.status_code == 422
        assert "'medium', expected one of 'high', 'low'" in refused.json()["detail"]
        assert say(client, ("a", "ann", "low")).status_code == 201


# ---- what nobody should send --------------------------------------------------------------------------------------


def picture(image=None):
    out = io.BytesIO()
    (image or Image.new("RGB", (8, 8))).save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


def bomb():
    """A few bytes that claim to be a picture of 30,000 × 30,000 pixels."""
    head = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 1_000_000)), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks)
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


@pytest.mark.parametrize(
    "body",
    [
        '{"features": [[NaN, 1]]}',
        '{"features": [[Infinity, 1]]}',
        '{"features": [[1e300, 1]]}',
        '{"features": [[1]]}',
        '{"features": [[1, 2], [1]]}',
        '{"features": []}',
        '{"texts": ["a"], "features": [[1, 2]]}',
        '{"texts": ["a"]}',
        '{"images": ["%%%"]}',
        "{}",
        "[]",
        '{"features": [["a", "b"]]}',
        '{"features": ' + "[" * 100_000,
    ],
)
def test_bad_predictions_are_refused(service, crowd, body):
    with service([crowd[0]], crowd[1]) as client:
        answer = client.post("/v1/predict", **wire(body))
        assert 400 <= answer.status_code < 500, answer.text


@pytest.mark.parametrize(
    "body",
    [
        '{"labels": [{"item": NaN, "annotator": "ann", "label": "cat"}]}',
        '{"labels": [{"item": "", "annotator": "ann", "label": "cat"}]}',
        '{"labels": [{"item": "a", "annotator": "  ", "label": "cat"}]}',
        '{"labels": [{"item": "a", "annotator": "\\ud800", "label": "cat"}]}',
        '{"labels": [{"item": "a", "annotator": "b\\u0000", "label": "cat"}]}',
        '{"labels": [{"item": "a", "annotator": "ann", "label": null}]}',
        '{"labels": [{"item": "a", "annotator": "ann"}]}',
        '{"labels": []}',
        '{"labels": {}}',
        "",
        b"\xff\xfe",
    ],
)
def test_bad_labels_are_refused_and_nothing_is_kept(service, body):
    with service() as client:
        answer = client.post("/v1/labels", **wire(body))
        assert 400 <= answer.status_code < 500, answer.text
        assert isinstance(answer.json()["detail"], str)
        assert client.live.journal.last() == 0


def test_a_body_without_end_is_refused(service):
    with service(settings=Settings(most_bytes=1_000)) as client:
        long = '{"labels": [{"item": "' + "a" * 2_000 + '", "annotator": "ann", "label": "cat"}]}'
        assert client.post("/v1/labels", **wire(long)).status_code == 413
        parts = (long[i : i + 100].encode() for i in range(0, len(long), 100))  # without a length
        assert client.post("/v1/labels", content=parts, headers={"content-type": "application/json"}).status_code == 413


def test_predictions_are_not_for_ever(service, crowd):
    with service([crowd[0]], crowd[1]) as client:
        body = {"features": [[1.0, 0.0]]}
        answers = [client.post("/v1/predict", json=body).status_code for _ in range(100)]
        assert set(answers) == {200, 429}


def test_pictures_that_are_too_large_or_none():
    from crowdshot.errors import CrowdshotError
    from crowdshot.service.prediction import Picture

    with pytest.raises(CrowdshotError, match="too many pixels"):
        Picture(base64.b64decode(bomb()), "images, item 1")
    with pytest.raises(CrowdshotError, match="not a readable image"):
        Picture(b"GIF89a nothing", "images, item 1")
    assert Picture(base64.b64decode(picture()), "images, item 1").decode().size == (8, 8)
