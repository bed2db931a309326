"""Test the choice of questions while labels arrive, and how labels are written to disk."""

import asyncio
import socket
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.sparse import csr_array

from crowdshot._cli.serve import Listening, _bind
from crowdshot.errors import CrowdshotError
from crowdshot.labels import asking
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import AnnotatorPriors
from crowdshot.service import assignments
from crowdshot.service.assignments import Waiting
from crowdshot.service.journal import Answer, Journal
from crowdshot.service.live import Live
from crowdshot.service.snapshot import expected_answers

from .conftest import after, say


@pytest.fixture
def version(service, crowd):
    with service([crowd[0]], crowd[1]) as client:
        yield client.live.version


def by_bayes(version, said):
    """Update the version's posterior with each label in turn."""
    posterior = version.posterior.copy()
    for item, annotator, label in said:
        row, k = version.place[item], list(version.annotations.classes).index(label)
        posterior[row] *= version.confusion[version.person.get(annotator, -1)][:, k]
        posterior[row] /= posterior[row].sum()
    return posterior


def gains(version, waiting, annotator, n=1_000):
    return {row["item"]: row["gain"] for row in waiting.questions(version, annotator, n)}


def test_labels_since_the_version_count(version):
    said = [("i0", "zoe", "cat"), ("i0", "yan", "cat"), ("i1", "zoe", "dog"), ("i35", "ann", "cat")]
    waiting = Waiting()
    waiting.questions(version, "somebody", 1)  # so that the following labels are processed one by one
    waiting.asked.clear()
    for each in said:
        waiting.add([Answer(*each)])
    late = Waiting()
    late.add([Answer(*each) for each in said])
    np.testing.assert_allclose(waiting._posterior_now(version), by_bayes(version, said))
    np.testing.assert_array_equal(late._posterior_now(version), waiting._posterior_now(version))
    expected = asking.gains(by_bayes(version, said), version.confusion[-1, None])[:, 0]
    for item, gain in gains(version, waiting, "new").items():
        assert gain == pytest.approx(expected[version.place[item]])
    assert not {"i0", "i1"} & gains(version, late, "zoe").keys()  # Zoe labelled them


def test_changed_or_deleted_labels_leave_no_trace(version):
    waiting = Waiting()
    waiting.questions(version, "somebody", 1)
    waiting.add([Answer("i0", "zoe", "cat"), Answer("i0", "yan", "dog")])
    waiting.add([Answer("i0", "zoe", "dog")])
    np.testing.assert_allclose(
        waiting._posterior_now(version), by_bayes(version, [("i0", "zoe", "dog"), ("i0", "yan", "dog")])
    )
    waiting.add([Answer("i0", "zoe", None), Answer("i0", "yan", None), Answer("i1", "zoe", "never heard")])
    np.testing.assert_array_equal(waiting._posterior_now(version), version.posterior)


def test_open_questions_to_others_reduce_the_gain(version):
    """The expected gain averages over the possible answers of the other annotator, weighted by their probabilities."""
    waiting = Waiting()
    (asked,) = waiting.questions(version, "other", 1)
    row, new = version.place[asked["item"]], version.confusion[-1]
    expected = 0.0
    for k in range(version.annotations.n_classes):
        case = version.posterior[row] * new[:, k]
        expected += case.sum() * asking.gains(case[None] / case.sum(), new[None])[0, 0]
    assert gains(version, waiting, "third")[asked["item"]] == pytest.approx(expected)


@pytest.mark.slow
def test_many_classes_and_open_questions_are_fast(service):
    """Two hundred classes and five annotators with all questions would give millions of combinations of answers."""
    with service() as client:
        say(client, *((f"i{i}", f"p{i % 5}", f"class {i}") for i in range(200)))
        after(client, 0)
        version, waiting = client.live.version, Waiting()
        first = {who: gains(version, waiting, f"p{who}", 100) for who in range(5)}
        assert all(first.values())
        assert not set(first[0]) & {f"i{i}" for i in range(0, 200, 5)}  # p0 labelled these
        alone = gains(version, Waiting(), "new")
        shared = gains(version, waiting, "new")
        times = {item: sum(item in asked for asked in first.values()) for item in shared}
        for item, gain in shared.items():
            assert gain == pytest.approx(alone[item] / 2 ** times[item])


def test_annotators_who_labelled_everything_get_no_question(service):
    with service() as client:
        say(client, ("a", "ann", "cat"), ("b", "ann", "dog"), ("a", "bob", "cat"))
        after(client, 0)
        assert client.get("/v1/next?annotator=ann").json()["questions"] == []
        assert [row["item"] for row in client.get("/v1/next?annotator=bob").json()["questions"]] == ["b"]
        assert client.get("/v1/next?annotator=bob").json()["questions"] == []  # it is out


def test_questions_use_the_merged_names_of_annotators(service, tmp_path):
    """Zed is another name of Ann, who has labelled a and b, so only c is left."""
    labels, names = tmp_path / "labels.csv", tmp_path / "names.csv"
    labels.write_text("item,annotator,label\na,Ann,cat\na,Bob,cat\nb,Ann,dog\nb,Bob,dog\nc,Bob,cat\n")
    names.write_text("annotator,name\nZed,Ann\nAnn,Ann\nBob,\n")
    with service([labels], names=names) as client:
        version = client.live.version
        client.live.waiting.add(client.live._by_name([Answer("c", "Zed", "cat")]))  # before the next version
        assert gains(version, client.live.waiting, "Ann") == {}
        client.live.waiting.reset([])
        say(client, ("n1", "Zed", "cat"), ("n2", "Zed", "dog"), ("n3", "Ann", "dog"))
        after(client, version.number)
        assert list(gains(client.live.version, client.live.waiting, "Zed")) == ["c"]
        assert gains(client.live.version, client.live.waiting, "Ann") == {}  # it is out
        assert "active: 3 labels in 10 minutes" in client.get("/").text


def test_only_uncertain_items_of_very_many_are_considered(version, monkeypatch):
    whole = gains(version, Waiting(), "new", 5)
    monkeypatch.setattr(assignments, "MOST_WORK", 0)
    monkeypatch.setattr(assignments, "LEAST", 10)
    few = gains(version, Waiting(), "new", 5)
    uncertain = sorted(range(40), key=lambda row: version.confidence[row])[:10]
    assert set(few) <= {str(version.annotations.items[row]) for row in uncertain}
    assert len(few) == len(whole) == 5


def test_a_history_counts_before_the_first_label(service, crowd, tmp_path):
    history = tmp_path / "history.csv"
    history.write_text("annotator,right,wrong\npro,99,1\nguesser,50,50\nann,5,0\n")
    with service([crowd[0]], history=history) as client:
        version = client.live.version
        gain = {who: gains(version, Waiting(), who) for who in ("pro", "guesser", "nobody knows")}
        item = max(gain["pro"], key=gain["pro"].get)
        assert gain["pro"][item] > gain["nobody knows"][item] > gain["guesser"].get(item, 0.0)
        people = client.get("/v1/annotators").json()["annotators"]
        assert [person["annotator"] for person in people] == ["ann", "bob", "cy"]  # those with labels


def test_simultaneous_labels_are_written_together(tmp_path):
    journal, sizes = Journal(tmp_path), []
    plain = journal.append
    journal.append = lambda batch: sizes.append(len(batch)) or plain(batch)

    async def come():
        live = Live(journal, None, tmp_path)
        await asyncio.gather(*(live.add([Answer(f"i{i}", "ann", "cat")]) for i in range(50)))
        return live

    with ThreadPoolExecutor(1) as thread:  # this thread may already run the event loop of the browser
        live = thread.submit(asyncio.run, come()).result()
    assert sum(sizes) == 50
    assert len(sizes) < 50
    assert {answer.item for answer in journal.state().labels} == {f"i{i}" for i in range(50)}
    assert live.counts["labels"] == 50
    journal.close()


def test_labels_that_could_not_be_written_are_not_acknowledged(service, monkeypatch):
    with service() as client:
        plain = client.live.journal.append

        def full(batch):
            raise sqlite3.OperationalError("database or disk is full")

        client.live.journal.append = full
        assert say(client, ("a", "ann", "cat")).status_code == 503
        client.live.journal.append = plain
        assert say(client, ("b", "ann", "cat")).status_code == 201
        assert [answer.item for answer in client.live.journal.state().labels] == ["b"]
        assert client.live.counts["labels"] == 1


def test_responses_are_sent_without_delay():
    """Without an explicit protocol, asyncio would keep Nagle's algorithm: 40 ms per response."""
    door = _bind(Listening(port=0))
    assert door.proto == socket.IPPROTO_TCP
    door.close()


def test_too_many_classes_and_annotators_are_refused():
    ann = Annotations.from_dict({"one": {"ann": "x"}, "two": {"bob": "y"}})
    with pytest.raises(CrowdshotError, match="2 annotators and 2 classes, too many") as error:
        expected_answers(ann, csr_array(np.eye(2)), AnnotatorPriors({}))
    assert error.value.argument == "labels"


def test_labels_have_the_times_at_which_they_arrived(service, crowd):
    with service([crowd[0]]) as client:
        before = client.get("/v1/annotators").json()
        assert not any(person["working"] for person in before["annotators"])
        say(client, ("i35", "ann", "cat"), ("i0", "bob", "cat"))
        after(client, before["version"])
        people = {person["annotator"]: person for person in client.get("/v1/annotators").json()["annotators"]}
        assert [name for name, person in people.items() if "last_active" in person["working"]] == ["ann", "bob"]
        assert people["bob"]["n_labels"] == 30  # the new label replaces that of the file
        assert "Last active" in client.get("/").text
