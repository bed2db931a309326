"""Labels of unknown classes and items are held until the lead decides."""

import pytest

from crowdshot.service.http_app import Settings

from .conftest import after, say
from .test_label_studio import predict, tasks


def held(client):
    return {(each["kind"], each["name"]): each for each in client.get("/v1/review").json()["held"]}


def decide(client, kind, name, becomes):
    return client.post("/v1/review", json={"decisions": [{"kind": kind, "name": name, "becomes": becomes}]})


def consensus(client):
    return {row["item"]: row for row in client.get("/v1/consensus").json()["consensus"]}


@pytest.fixture
def unsure(service, crowd):
    """A service with a misspelt class and an item that is not there."""
    with service([crowd[0]], crowd[1]) as client:
        say(client, ("i0", "dee", "C at"), ("i1", "eve", "C at"), ("NOPE", "dee", "cat"), ("i2", "dee", "cat"))
        client.number = after(client, 1)
        yield client


def test_unknown_classes_and_items_are_held(unsure):
    assert unsure.live.version.annotations.classes.tolist() == ["cat", "dog"]
    assert "NOPE" not in consensus(unsure)
    found = held(unsure)
    assert found["class", "C at"] == {
        "kind": "class", "name": "C at", "n_labels": 2, "annotators": ["dee", "eve"], "like": "cat"
    }  # fmt: skip
    assert found["item", "NOPE"]["n_labels"] == 1
    assert len(found) == 2
    page = unsure.get("/").text
    assert "C at" in page
    assert "NOPE" in page
    assert unsure.live.journal.last() == 4  # they are on disk


@pytest.mark.parametrize(("becomes", "classes"), [("cat", ["cat", "dog"]), ("C at", ["C at", "cat", "dog"])])
def test_a_class_becomes_a_known_or_a_new_one(unsure, becomes, classes):
    assert decide(unsure, "class", "C at", becomes).status_code == 201
    after(unsure, unsure.number)
    assert sorted(unsure.live.version.annotations.classes) == classes
    assert ("class", "C at") not in held(unsure)
    assert consensus(unsure)["i0"]["n_labels"] == 4


@pytest.mark.slow
def test_labels_are_discarded_and_taken_back(unsure):
    assert decide(unsure, "class", "C at", None).status_code == 201
    number = after(unsure, unsure.number)
    assert ("class", "C at") not in held(unsure)
    assert consensus(unsure)["i0"]["n_labels"] == 3
    assert decide(unsure, "class", "C at", "dog").status_code == 201
    after(unsure, number)
    assert consensus(unsure)["i0"]["n_labels"] == 4


@pytest.mark.slow
def test_an_item_becomes_another_or_is_added(unsure):
    assert decide(unsure, "item", "NOPE", "i39").status_code == 201
    number = after(unsure, unsure.number)
    assert consensus(unsure)["i39"]["n_labels"] == 1
    assert decide(unsure, "item", "NOPE", "NOPE").status_code == 201
    after(unsure, number)
    assert consensus(unsure)["NOPE"]["n_labels"] == 1


@pytest.mark.parametrize(
    ("kind", "name", "becomes"),
    [("class", "never used", "cat"), ("item", "never used", None), ("class", "cat", None), ("item", "C at", "i39")],
)
def test_decisions_about_names_that_are_not_held(unsure, kind, name, becomes):
    assert decide(unsure, kind, name, becomes).status_code == 422
    assert not unsure.live.journal.decisions()


@pytest.mark.parametrize(
    ("kind", "becomes"), [("class", "owl"), ("item", "elsewhere"), ("annotator", "cat"), ("class", ""), ("item", "\0")]
)
def test_impossible_decisions(unsure, kind, becomes):
    assert decide(unsure, kind, "C at", becomes).status_code == 422
    assert not unsure.live.journal.decisions()


@pytest.mark.slow
def test_the_labelling_interface_lists_classes(service):
    with service() as client:
        predict(client, tasks())
        number = after(client, 0)
        say(client, ("a.png", "dee", "Cta"), ("b.png", "dee", "Cat"))
        after(client, number)
        assert held(client)["class", "Cta"]["like"] == "Cat"
        assert "Cta" not in client.live.version.annotations.classes


@pytest.mark.slow
def test_without_known_classes_nothing_is_held(service):
    with service() as client:
        say(client, ("a", "ann", "cat"), ("b", "ann", "dog"))
        number = after(client, 0)
        say(client, ("c", "ann", "owl"))
        after(client, number)
        assert held(client) == {}
        assert client.live.version.annotations.n_classes == 3


def test_merged_spellings_are_known(service, crowd):
    with service([crowd[0]], crowd[1], merge_case=True) as client:
        say(client, ("i0", "dee", "CAT"))
        after(client, 1)
        assert held(client) == {}
        assert consensus(client)["i0"]["n_labels"] == 4


def test_sets_of_known_classes_are_known(service, tmp_path):
    rows = [f"{i},{who},{'cat;dog' if i % 2 else 'owl'}" for i in range(12) for who in ("ann", "bob")]
    (tmp_path / "labels.csv").write_text("\n".join(["item,annotator,label", *rows]))
    with service([tmp_path / "labels.csv"], multi_label=True) as client:
        say(client, ("1", "cyd", "owl; cat"), ("2", "cyd", "owl;cow"))
        after(client, 1)
        assert list(held(client)) == [("class", "owl;cow")]


def test_nobody_decides_in_a_read_only_service(service, crowd):
    with service([crowd[0]], settings=Settings(read_only=True)) as client:
        assert decide(client, "class", "x", "x").status_code == 403
