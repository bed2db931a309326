"""What is accepted at which threshold, what the classifier may label by itself, and what to do next."""

import numpy as np
import pytest

from crowdshot import CrowdClassifier
from crowdshot.classifier.diagnostics import Check
from crowdshot.formatting import percent
from crowdshot.labels.consensus import Share
from crowdshot.labels.spelling import near_duplicates
from crowdshot.report.page.basis import Basis
from crowdshot.report.page.next_steps import _shares, steps
from crowdshot.report.page.page_writer import texts_at, texts_for_script
from crowdshot.report.page.thresholds import STEPS, Level, at, automatic, count_levels, listed, verdict

from .made import basis_of, coin, crowd, fitted_crowd, report_on

BELIEF = [[0.95, 0.05], [0.9, 0.1], [0.6, 0.4], [0.03, 0.97], [0.7, 0.3], [0.99, 0.01]]
SAID = [[0, 0, 0], [0, 1, -1], [1, 0, 0], [0, 0, 1], [-1] * 3, [-1] * 3]  # the last two unlabelled, 3 overruled


def test_what_is_settled_at_every_threshold():
    check = Check(np.arange(4), np.eye(2)[[0, 0, 0, 1]], np.array([[0.8, 0.2], [0.9, 0.1], [0.3, 0.7], [0.05, 0.95]]))
    levels = count_levels(basis_of(BELIEF, SAID), check)
    assert [level.confidence for level in levels] == list(STEPS)
    found = {step: tuple(at(levels, step))[1:4] for step in (0.5, 0.6, 0.61, 0.9, 0.91, 0.97, 0.98, 0.99)}
    assert found == {  # labelled, unlabelled, overruled
        0.5: (4, 2, 1),
        0.6: (4, 2, 1),  # at least so probable
        0.61: (3, 2, 1),
        0.9: (3, 1, 1),
        0.91: (2, 1, 1),
        0.97: (1, 1, 1),
        0.98: (0, 1, 0),
        0.99: (0, 1, 0),
    }
    assert at(levels, 0.5).check == Share.of_all(np.array([True, True, False, True]))
    assert at(levels, 0.8).check == Share.of_all(np.array([True, True, True]))
    assert at(levels, 0.96).check is None
    assert [level.confidence for level in listed(levels)] == [0.5, 0.7, 0.8, 0.9, 0.95, 0.99]


def level(confidence, unlabelled, hits, of):
    return Level(confidence, 0, unlabelled, 0, Share.of_all(np.arange(of) < hits))


def test_what_the_classifier_may_label_by_itself():
    levels = [
        level(0.5, 1000, 180, 200),
        level(0.7, 700, 120, 125),
        level(0.75, 600, 100, 100),
        level(0.9, 412, 80, 80),
    ]
    # the lower ends are 0.86, 0.92, 0.98 and 0.976; thresholds that are not listed are not tried
    assert automatic(levels, 0.8, 1000, 200) == (0.5, 1000, 1000)
    assert automatic(levels, 0.9, 1000, 200) == (0.7, 700, 1000)
    assert automatic(levels, 0.95, 1000, 200) == (0.9, 412, 1000)
    assert automatic(levels, 0.99, 1000, 200) is None
    assert verdict(automatic(levels, 0.95, 1000, 200), 0.95, 1000) == (
        "may label automatically: 412 of 1,000 unlabelled items, those with a confidence of 90\u00a0% or more, which is"
        " right at least 95\u00a0% of the time"
    )
    assert verdict(None, 0.95, 1000) == ("not accurate enough to label automatically (lower bound below 95\u00a0%)")
    none_unlabelled = automatic(levels, 0.95, 0, 200)
    assert none_unlabelled == (0.9, 80, 200)
    assert verdict(none_unlabelled, 0.95, 0) == (
        "may label automatically: about 40\u00a0% of new items, those with a confidence of 90\u00a0% or more, which is"
        " right at least 95\u00a0% of the time"
    )


@pytest.mark.slow
def test_a_classifier_that_knows_and_one_that_does_not():
    found, page, _ = report_on(fitted_crowd([coin(0.95, 2)] * 3, 200, spread=0.3))
    assert found.automatic().confidence == 0.5
    allowed = "nearly all new items, those with a confidence of 50 % or more, which is right at least 90 % of the time"
    assert page.text.count(allowed) == 2  # in the tile and in the next step
    noise = np.random.default_rng(5).normal(size=(200, 6)).astype(np.float32)
    said, _ = crowd([coin(0.9, 2)] * 5, 200)
    said[150:] = -1
    clf = CrowdClassifier("identity").fit(noise, said)
    found, page, _ = report_on(Basis.of_classifier(clf, clf.embed(noise)))
    assert found.automatic() is None
    assert "not accurate enough to label automatically (lower bound below 90 %)" in page.text
    assert "predict" not in [step.key for step in steps(found)]


def test_what_to_do_next_follows_the_threshold():
    found, page, _ = report_on(
        basis_of(BELIEF, SAID), commands={"gold": "crowdshot adapt l --gold c.csv", "ask": "crowdshot next l"}
    )
    look, ask = steps(found)[:2]
    assert look.text.startswith("Review these 3 items yourself: ")  # one open, one overruled, one unlabelled
    assert look.command == "crowdshot adapt l --gold c.csv"
    assert ask.text == "Find another annotator for this one item: all annotators have labelled it already."
    assert look.text in page.text
    assert look.command in page.text
    look, ask = steps(found, 0.95)[:2]
    assert look.text.startswith("Review these 4 items yourself: ")
    assert ask.text.startswith(
        "Ask 1 question, one for each item that is not accepted. All annotators have labelled 1 more item already: find"
        " another annotator. "
    )
    assert "until 95\u00a0% of the items are accepted" in ask.text
    assert ask.command == "crowdshot next l --budget 1"
    assert [step.key for step in steps(found, 0.5)] == ["look", "check"]  # the overruled one, and the audit


@pytest.mark.slow
def test_who_is_asked_is_who_next_asks():
    said, _ = crowd([coin(0.8, 3)] * 4, 60, per_item=2)
    clf = CrowdClassifier("identity").fit(np.random.default_rng(0).normal(size=(60, 3)), said)
    basis = Basis.of_classifier(clf, clf.embed(np.random.default_rng(0).normal(size=(60, 3))))
    found, page, _ = report_on(basis, commands={"ask": "crowdshot next labels.csv"})
    ann, n_open = basis.annotations, found.of_kind()["open"]
    assert n_open > 4
    from crowdshot.labels import asking  # as the command does it

    confusion, most = asking.expected_confusion(ann, basis.posterior), asking.fair_share(n_open, 4)
    questions = asking.choose(basis.posterior, confusion, (ann.item, ann.annotator), n_open, most=most)
    counts = np.bincount([question.annotator for question in questions], minlength=4)
    assert dict(found.asked.people) == {f"annotator \u2068{who}\u2069": n for who, n in enumerate(counts.tolist()) if n}
    assert f"crowdshot next labels.csv --budget {n_open}" in page.text


@pytest.mark.slow
def test_known_items_are_not_audited():
    found, _, _ = report_on(
        fitted_crowd([coin(0.95, 2)] * 3, 30, gold={0: 0, 1: 0, 2: 0}), commands={"audit": "audit r"}
    )
    step, number = steps(found)[-1], found.accepted().labelled
    assert number > 3
    assert step.command == f"audit r --sample {number - 3}"
    found, _, _ = report_on(fitted_crowd([coin(0.6, 2)] * 2, 6, gold={0: 0, 1: 0}), commands={"audit": "audit r"})
    assert found.accepted().labelled == 2
    assert not steps(found)[-1].command
    assert "known" in steps(found)[-1].text


def test_near_twins_come_first():
    people = ["Bob", "bob ", "Eve"]
    basis = basis_of(BELIEF, SAID, annotators=people, classes=["cat", "Cat"])
    twins = near_duplicates(basis.annotations)
    found, _, _ = report_on(basis, commands={"merge": "crowdshot adapt l.csv --merge-case"}, near_duplicates=twins)
    step, *rest = steps(found)
    assert step.text == (
        "Merge \u2068cat and Cat\u2069 if they mean the same. \u2068Bob and bob \u2069 may be the same annotator."
        " If so, merge the names with a table passed to --names."
    )
    assert step.command == "crowdshot adapt l.csv --merge-case"
    assert [step.key for step in rest] == ["look", "ask", "check"]
    found, page, _ = report_on(basis, respelled=["the label 'x' is read as 'y'"], near_duplicates=twins[1:])
    assert steps(found)[0].text.startswith("\u2068Bob and bob \u2069 may be")
    assert not steps(found)[0].command
    assert "The label 'x' is read as 'y'." in page.text


@pytest.mark.slow
def test_talk_to_people_below_the_minimum_without_a_flag():
    basis = fitted_crowd([coin(0.95, 4)] * 5 + [coin(0.5, 4)], 150, seed=3)
    found, _, _ = report_on(basis)
    weak = next(person for person in found.people if person.name == "5")
    assert weak.flag is None
    assert weak.high < 0.7
    talk = next(step for step in steps(found) if step.key == "talk")
    assert talk.text == f"Talk to annotator \u20685\u2069 ({percent(weak.accuracy)} correct)."
    found, _, _ = report_on(basis, min_accuracy=0.3)
    assert "talk" not in [step.key for step in steps(found)]


@pytest.mark.parametrize(
    ("people", "words"),
    [
        ([("Ann", 3)], "3 for Ann"),
        ([("Ann", 3), ("Bob", 2)], "3 for Ann and 2 for Bob"),
        (
            [("Ann", 1200), ("Bob", 2), ("Cy", 1), ("Di", 1), ("Ed", 1)],
            "1,200 for Ann, 2 for Bob, 1 for Cy and 2 for 2 others",
        ),
    ],
)
def test_who_gets_how_many_questions(people, words):
    assert _shares(people) == words


def test_what_the_script_swaps_is_what_the_page_says():
    found, _, _ = report_on(basis_of(BELIEF, SAID))
    made = texts_for_script(found)
    assert made["steps"] == STEPS
    for step, places in zip(made["steps"], made["levels"], strict=True):
        assert dict(zip(made["names"], (made["texts"][place] for place in places), strict=True)) == texts_at(
            found, step
        )
    assert len(set(made["texts"])) == len(made["texts"])
    now, high = texts_at(found), texts_at(found, 0.99)
    assert (now["accepted"], now["person"], now["person_kinds"]) == (
        *("3", "3"),
        "1 not accepted, 1 accepted against the majority, 1 unlabelled and not accepted",
    )
    assert (high["accepted"], high["accepted_bar"], high["n_open"], high["n_unlabelled"]) == ("0", "0.0", "4", "1")
    assert texts_at(found, 0.5)["person_kinds"] == "1 accepted against the majority"
