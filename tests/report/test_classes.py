"""Test classes in the report: sizes, confusions and possible typos."""

import numpy as np

from crowdshot.report.page.annotator_summaries import summarise_annotators
from crowdshot.report.page.class_summaries import (
    choose_examples,
    confusion_of,
    describe_classes,
    find_odd,
    most_confused,
)
from crowdshot.report.page.page_writer import texts_at
from crowdshot.report.page.thresholds import STEPS

from .made import basis_of, report_on


def test_classes_without_items_are_summarised():
    truth = np.array([0] * 30 + [1] * 30)
    answers = np.column_stack([truth, truth, truth])
    answers[0, 0], answers[1, 1], answers[40, 2] = 2, 3, 3
    posterior = np.eye(6)[truth]
    basis = basis_of(posterior, answers, classes=["street", "coast", "Streeet", "tree", "highway", "coasts"])
    odd = find_odd(basis)
    assert [tuple(each) for each in odd] == [(2, 1, 0), (3, 2, -1), (4, 0, -1), (5, 0, -1)]
    found, page, _ = report_on(basis)
    assert [each.label for each in found.class_facts] == [0, 1]
    assert "Streeet (chosen once, similar to street), tree (chosen 2 times), highway (never chosen)" in page.text


def test_a_rare_class_may_be_a_typo_even_as_consensus():
    truth = np.array([0] * 30 + [1] * 29 + [2])
    basis = basis_of(np.eye(3)[truth], np.column_stack([truth, truth]), classes=["street", "coast", "stret"])
    assert [tuple(each) for each in find_odd(basis)] == [(2, 2, 0)]
    other = basis_of(np.eye(3)[truth], np.column_stack([truth, truth]), classes=["street", "coast", "volcano"])
    assert find_odd(other) == []


def test_most_confused_classes_by_hand():
    posterior = np.eye(3)[[0, 0, 0, 1, 1, 2]]
    basis = basis_of(posterior, [[0, 1], [1, 1], [0, 0], [1, 1], [1, 0], [2, -1]])
    crowd = confusion_of(list(summarise_annotators(basis)), 3)
    assert crowd.tolist() == [[3, 3, 0], [1, 3, 0], [0, 0, 1]]
    assert [tuple(each) for each in most_confused(crowd)] == [(0, 1, 3, 0.5), (1, 0, 1, 0.25)]


def test_sizes_and_accepted_items_at_each_threshold():
    posterior = [[0.95, 0.05], [0.6, 0.4], [0.2, 0.8], [0.9, 0.1]]
    basis = basis_of(posterior, [[0], [0], [1], [-1]])
    first, second = describe_classes(basis, None, choose_examples(basis))
    assert (first.labelled, first.unlabelled, first.size, second.size) == (2, 1, 3, 1)
    at = {step: first.accepted[STEPS.index(step)] for step in (0.5, 0.61, 0.9, 0.91, 0.96)}
    assert at == {0.5: 3, 0.61: 2, 0.9: 2, 0.91: 1, 0.96: 0}
    found, _, _ = report_on(basis)
    assert (texts_at(found)["class_0"], texts_at(found, 0.95)["class_0"], texts_at(found)["class_1"]) == ("2", "1", "0")
