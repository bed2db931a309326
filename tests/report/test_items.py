"""Which items need a person, and what the page says of each."""

import numpy as np
import pytest

from crowdshot import CrowdClassifier
from crowdshot.classifier.diagnostics import Check
from crowdshot.report.page.basis import Basis
from crowdshot.report.page.facts import decisions
from crowdshot.report.page.review_items import Votes, describe_items, excerpt, explain, items_to_review, reliable

from .made import basis_of, coin, crowd, report_on


def test_who_needs_a_person_and_in_which_order():
    posterior = [
        [0.95, 0.05],  # accepted, as said
        [0.6, 0.4],  # open
        [0.5, 0.5],  # open, more uncertain
        [0.05, 0.95],  # accepted on what one of three said
        [0.7, 0.3],  # nobody labelled it
        [0.99, 0.01],  # nobody labelled it, but the classifier is sure
        [0.92, 0.08],  # a tie overrules nobody
    ]
    said = [[0, 0, 0], [0, 1, -1], [1, 0, 0], [0, 0, 1], [-1] * 3, [-1] * 3, [0, 1, -1]]
    basis = basis_of(posterior, said)
    items = describe_items(basis, items_to_review(basis), None)
    # labelled ones by uncertainty, the accepted ones below the highest threshold too, then the unlabelled
    assert [(item.row, item.kind()) for item in items] == [
        *((2, "open"), (1, "open"), (6, "accepted"), (0, "accepted"), (3, "overruled"), (4, "unlabelled")),
    ]
    assert [item.kind(0.65) for item in items if item.row in (1, 4)] == ["open", "accepted"]
    assert [item.kind(0.99) for item in items if item.row in (0, 3)] == ["open", "open"]
    found, _, _ = report_on(basis)
    assert found.of_kind() == {"open": 2, "overruled": 1, "unlabelled": 1}
    assert found.of_kind(0.96) == {"open": 5, "overruled": 0, "unlabelled": 1}


def test_an_item_whose_consensus_nobody_said_says_so():
    posterior = [[0.2, 0.2, 0.6], [0.01, 0.01, 0.98], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]]
    basis = basis_of(posterior, [[0, 1], [0, 0], [0, 1], [-1, -1]])
    assert basis.unchosen.tolist() == [True, True, False, False]  # of the last one nobody said anything
    assert {item.name: item.unchosen for item in describe_items(basis, items_to_review(basis), None)} == {
        **{"0": True, "1": True},
        **{"2": False, "3": False},
    }
    value = ["The features are informative.", "2 of 3 labelled items have a consensus label that no annotator chose."]
    _, page, _ = report_on(basis, feature_value=value)
    assert page.text.count("No annotator chose this class.") == 2
    assert page.text.index("Items to review") > page.text.index(" ".join(value)) > page.text.index("Overview")


@pytest.mark.parametrize(
    ("agreeing", "dissenting", "reliable_dissent", "predicted", "expected"),
    [
        ([1, 1, 0], 1, [], "cat", "3 of 4 annotators chose this class (2 reliable). The image model supports 'cat'."),
        (
            *([0, 0], 1, ["dog"], "dog"),
            "2 of 3 annotators chose this class (none reliable)."
            " One reliable annotator chose 'dog'; the image model supports 'dog'.",
        ),
        ([1, 1], 0, [], None, "All 2 annotators chose this class (all reliable)."),
        ([1], 0, [], None, "The only annotator chose this class (reliable)."),
        ([0], 2, [], "cat", "One of 3 annotators chose this class (not reliable). The image model supports 'cat'."),
        (
            *([], 2, ["dog", "dog"], "cat"),
            "No annotator chose this class. Two reliable annotators chose 'dog'; the image model supports 'cat'.",
        ),
        (
            *([], 10, ["dog", "owl"] * 5, None),
            "No annotator chose this class. 10 reliable annotators chose other classes.",
        ),
        ([], 0, [], "cat", "No annotator labelled this item: the label comes from the image model."),
        ([], 0, [], None, ""),
    ],
)
def test_the_reason_for_a_label(agreeing, dissenting, reliable_dissent, predicted, expected):
    votes = Votes([bool(x) for x in agreeing], dissenting, reliable_dissent)
    assert explain(votes, predicted, "image") == expected


def test_an_item_says_what_decided_it():
    """Four people who agree on ten items are reliable, a fifth who says anything else is not."""
    said = np.array([[n % 2] * 4 + [1 - n % 2] for n in range(10)])
    said[0, :2] = 1
    posterior = np.where(np.arange(2) == (np.arange(10) % 2)[:, None], 0.97, 0.03)
    basis = basis_of(posterior, said)
    assert reliable(basis).tolist() == [True, True, True, True, False]
    check = Check(np.array([0]), np.array([[0.97, 0.03]]), np.array([[0.2, 0.8]]))
    (item,) = describe_items(basis, [0], check)
    assert item.reason == (
        "2 of 5 annotators chose this class (all reliable)."
        " Two reliable annotators chose '\u20681\u2069'; the image model supports '\u20681\u2069'."
    )


def test_where_not_all_can_be_shown_those_that_nobody_said_are():
    sure = np.linspace(0.5, 0.89, 80)
    said = np.zeros((80, 1), dtype=int)
    said[79] = 1
    assert items_to_review(basis_of(np.column_stack([sure, 1 - sure]), said)) == [*range(59), 79]


def test_an_item_in_detail_says_who_said_what():
    said = np.array([[0] * 7 + [1, -1], [2] + [-1] * 8])
    basis = basis_of([[0.6, 0.397, 0.003], [0.2, 0.2, 0.6]], said, annotators=[*"abcdefg", "Zoë", "idle"])
    check = Check(np.array([0, 1]), np.eye(3)[[0, 2]], np.array([[0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]))
    first, second = describe_items(basis, [0, 1], check)
    # 0.003 is not worth a line, unless somebody said it
    assert [tuple(guess) for guess in first.guesses] == [(0, 0.6, [*"abcdef"], 1), (1, 0.397, ["Zoë"], 0)]
    assert (first.predicted.label, first.predicted.probability) == (1, 0.8)
    assert [(guess.label, guess.names) for guess in second.guesses] == [(2, ["a"]), (0, []), (1, [])]
    assert describe_items(basis, [1], None)[0].predicted is None
    said[0, 8] = 2
    odd = basis_of([[0.6, 0.397, 0.003], [0.2, 0.2, 0.6]], said)
    assert [(guess.label, guess.names) for guess in describe_items(odd, [0], None)[0].guesses][2] == (2, ["8"])


def test_of_many_items_the_most_doubtful_are_shown():
    sure = np.linspace(0.5, 0.89, 80)
    basis = basis_of(np.column_stack([sure, 1 - sure]), np.zeros((80, 1), dtype=int))
    assert items_to_review(basis) == list(range(60))
    _, page, _ = report_on(basis)
    assert "Not accepted: the page shows the 60 most uncertain of 80 items; consensus.csv has all." in page.text


def test_what_somebody_told_is_overruled_by_nobody():
    said, truth = crowd([coin(0.9, 2)] * 3, 40)
    x = np.eye(2)[truth] + 0.3 * np.random.default_rng(0).normal(size=(40, 2))
    gold = {3: int(1 - truth[3])}
    clf = CrowdClassifier("identity").fit(x, said, gold=gold)
    basis = Basis.of_classifier(clf, clf.embed(x))
    assert basis.label[3] == gold[3]
    assert 3 not in items_to_review(basis)
    assert decisions(basis, [5, 3]).known == [["3", str(gold[3])]]


def test_what_the_script_knows_of_items():
    posterior = [[0.6, 0.4], [0.2, 0.8], [0.9, 0.1]]
    basis = basis_of(posterior, [[0], [1], [0]], classes=["a\x00b", " c"])
    found = decisions(basis, [1, 0])
    assert (found.items, found.labels) == (["1", "0"], [1, 0])
    assert found.classes == ["a\x00b", " c"]  # as written
    again = basis_of(posterior[::-1], [[0], [0], [1]])
    assert decisions(again, []).store == found.store  # the same items, in another order
    assert decisions(basis_of(posterior[:2], [[0], [1]]), []).store != found.store


def test_a_text_is_cut_and_keeps_its_lines():
    assert excerpt("one\ntwo\x00") == "one\ntwo\ufffd"
    assert excerpt("y" * 2000) == "y" * 2000
    assert excerpt("y" * 2001) == "y" * 2000 + "…"
