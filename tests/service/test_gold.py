"""Questions with known answers in the service: how many, to whom, never twice, and never to be recognised."""

import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from starlette.testclient import TestClient

from crowdshot.errors import CrowdshotError
from crowdshot.labels.gold_questions import GoldRule
from crowdshot.service.live import GOLD_ASKED

from .conftest import after, say

RULE = GoldRule(0.3, 0.6, 5)
TRUTH = {f"i{i}": "cat" if i % 2 else "dog" for i in range(120)}
GOLD = [f"i{i}" for i in range(3, 120, 4)]  # all cats: thirty items


@pytest.fixture
def files(tmp_path):
    """Labels of 100 of 120 items by ann and bob, who are right in 85 %, and known answers to thirty items."""
    random, rows = np.random.default_rng(0), []
    for item, truth in list(TRUTH.items())[:100]:
        for who in ("ann", "bob") if item not in GOLD else ():
            wrong = random.random() < 0.15
            rows.append((item, who, truth if not wrong else "dog" if truth == "cat" else "cat"))
    labels, gold = tmp_path / "labels.csv", tmp_path / "known.csv"
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(labels, index=False)
    pd.DataFrame({"item": GOLD, "truth": [TRUTH[item] for item in GOLD]}).to_csv(gold, index=False)
    return labels, gold


def start(service, files, rule=RULE, **more):
    return service([files[0]], gold=files[1], rule=rule, **more)


def asked(client, who, n=1):
    answer = client.get("/v1/next", params={"annotator": who, "n": n})
    assert answer.status_code == 200, answer.text
    return [question["item"] for question in answer.json()["questions"]]


def test_a_share_of_the_questions_is_gold_and_none_comes_twice(service, files):
    with start(service, files) as client:
        client.live.random = np.random.default_rng(1)
        items = [item for _ in range(40) for item in asked(client, "cy")]
        gold = [item for item in items if item in GOLD]
        assert 4 <= len(gold) <= 20  # 12 are expected
        assert len(set(gold)) == len(gold)
        used = Counter(gold + [item for who in ("dan", "eve") for item in asked(client, who, 60) if item in GOLD])
        numbers = [used[item] for item in GOLD]
        assert max(numbers) - min(numbers) <= 1  # in turn


@pytest.mark.slow
def test_gold_is_not_repeated_after_a_restart_or_under_another_spelling(service, files, tmp_path):
    data, first = tmp_path / "data", []
    with start(service, files, data=data) as client:
        while len(first) < 25:
            first += [item for item in asked(client, "cy", 10) if item in GOLD]
            client.live.waiting.asked.clear()
        assert json.loads(client.live.journal.fact(GOLD_ASKED + "cy")) == first
    with start(service, files, data=data) as client:
        later = []
        for _ in range(20):
            later += [item for item in asked(client, "cy", 10) if item in GOLD]
            client.live.waiting.asked.clear()
        assert sorted(first + later) == sorted(GOLD)  # each once, then no more
        assert set(asked(client, "cy", 10)) & set(GOLD) == set()


@pytest.mark.slow
def test_everything_that_can_be_read_is_the_same_for_gold_items(service, files):
    """A gold item and a similar other item differ nowhere but in their names."""
    with start(service, files) as client:
        number = client.get("/health").json()["version"]
        pairs = [("i3", "i105"), ("i7", "i109")]  # gold, and not; both without labels so far
        say(client, *[(item, who, "cat") for pair in pairs for item in pair for who in ("ann", "bob")])
        after(client, number)
        for answers in (False, True):
            found = client.get("/v1/next", params={"annotator": "cy", "n": 60, "answers": answers}).json()["questions"]
            assert any(question["item"] in GOLD for question in found)
            fields = {"item", "consensus", "confidence"} if answers else {"item"}
            assert all(set(question) == fields for question in found)
        consensus = {row.pop("item"): row for row in client.get("/v1/consensus").json()["consensus"]}
        for gold, other in pairs:
            assert consensus[gold]["label"] == consensus[other]["label"] == "cat"
            assert consensus[gold]["confidence"] == pytest.approx(consensus[other]["confidence"], abs=0.02)
            assert consensus[gold]["confidence"] < 1
        assert set(consensus) & set(GOLD) == {"i3", "i7"}  # the other gold items have no label
        texts = [client.get(path).text for path in ("/", "/v1/annotators", "/v1/review", "/metrics", "/openapi.json")]
        hidden = set(GOLD) - {"i3", "i7"}
        assert not any(f'"{item}"' in text or f">{item}<" in text for text in texts for item in hidden)


def test_the_classifier_to_download_has_no_known_answers(service, files, tmp_path):
    points = tmp_path / "features.csv"
    random = np.random.default_rng(2)
    rows = [(item, (truth == "cat") + 0.8 * random.normal(), random.normal()) for item, truth in TRUTH.items()]
    pd.DataFrame(rows, columns=["item", "x", "y"]).to_csv(points, index=False)
    with start(service, files, features=points) as client:
        model = client.get("/v1/model").content
        assert b"i3" not in model
        consensus = {row["item"]: row["confidence"] for row in client.get("/v1/consensus").json()["consensus"]}
        assert set(consensus) == set(TRUTH)
        assert max(consensus[item] for item in GOLD) < 1


@pytest.mark.slow
def test_who_fails_is_paused_and_gets_a_sentence(service, files):
    with start(service, files) as client:
        number = client.get("/health").json()["version"]
        say(client, *[(item, "bot", "dog") for item in GOLD[:4]], ("i1", "bot", "dog"))
        number = after(client, number)
        assert client.get("/v1/next", params={"annotator": "bot"}).status_code == 200  # four tests are too few
        say(client, ("i1", "zoe", "cat"), (GOLD[4], "bot", "dog"), *[(item, "ann", "cat") for item in GOLD[:5]])
        after(client, number)
        refused = client.get("/v1/next", params={"annotator": "bot"})
        assert refused.status_code == 403
        assert "ask the project lead" in refused.json()["detail"]
        assert client.get("/v1/next", params={"annotator": "ann"}).status_code == 200
        assert say(client, ("i2", "bot", "dog")).status_code == 201  # an answer that was under way is kept
        people = {row["annotator"]: row for row in client.get("/v1/annotators").json()["annotators"]}
        results = {
            name: (row["gold"]["tests"], row["gold"]["passed"], row["gold"]["status"]) for name, row in people.items()
        }
        assert results == {
            "ann": (5, 5, "tested"),
            "bob": (0, 0, "not tested"),
            "bot": (5, 0, "paused"),
            "zoe": (0, 0, "not tested"),
        }
        assert people["ann"]["gold"]["low"] > 0.6
        page = client.get("/").text
        assert "⚑ paused" in page
        assert "0 of 5 known answers right" in page
        assert page.count("Not tested with a known answer yet.") == 2


@pytest.mark.slow
def test_known_answers_count_in_the_accuracies(service, files):
    with start(service, files) as client, start(service, files, rule=None, data=files[0].parent / "other") as other:
        for each in (client, other):
            number = each.get("/health").json()["version"]
            say(each, *[(item, "bot", "dog") for item in GOLD])
            after(each, number)
        accuracy = [
            next(row for row in each.get("/v1/annotators").json()["annotators"] if row["annotator"] == "bot")[
                "accuracy"
            ]
            for each in (client, other)
        ]
        assert accuracy[0] == pytest.approx(accuracy[1], abs=1e-9)
        assert accuracy[0] < 0.35


def test_without_a_share_nothing_changes(service, files):
    with start(service, files, rule=None) as client:
        assert isinstance(client, TestClient)
        found = client.get("/v1/next", params={"annotator": "cy", "n": 60}).json()["questions"]
        assert not any(question["item"] in GOLD for question in found)
        assert all({"gain", "n_labels"} <= set(question) for question in found)
        assert "gold" not in client.get("/v1/annotators").json()["annotators"][0]


def test_known_items_are_asked_about_from_the_first_labels_on(service, files):
    with service([], gold=files[1], rule=GoldRule(0.5, 0.5, 2)) as client:
        assert client.get("/v1/next", params={"annotator": "cy"}).status_code == 503
        say(client, *[(f"i{i}", who, TRUTH[f"i{i}"]) for i in range(0, 12, 2) for who in ("ann", "bob")])
        after(client, 0)
        items = [item for _ in range(5) for item in asked(client, "cy", 6)]
        assert set(items) & set(GOLD)
        assert set(client.get("/v1/consensus").json()["consensus"][0]) >= {"item", "label"}
        assert not {row["item"] for row in client.get("/v1/consensus").json()["consensus"]} & set(GOLD)


@pytest.mark.parametrize(
    ("rule", "argument"),
    [(GoldRule(0.7), "gold_share"), (GoldRule(0.1), "gold_share"), (GoldRule(0, 2), "pause_below")],
)
def test_what_is_wrong_is_refused_before_the_service_starts(service, files, rule, argument):
    with pytest.raises(CrowdshotError) as raised, service([files[0]], rule=rule):
        pass
    assert raised.value.argument == argument
