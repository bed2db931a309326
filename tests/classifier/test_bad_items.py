"""Test the error messages for items, labels and encoders that cannot be used."""

import numpy as np
import pandas as pd
import pytest

from crowdshot import CrowdClassifier, CrowdshotError
from crowdshot.classifier.predictor import AT_ONCE

TEXTS = ["a lovely film", "great and warm", "boring and long", "a boring mess"]
LABELS = [["good", "good"], ["good", "bad"], ["bad", "bad"], ["bad", "bad"]]
VECTORS = np.array([[0.0, 1], [0, 2], [5, 5], [6, 5]])


def fit(X, labels=LABELS, encoder="auto"):
    return CrowdClassifier(encoder).fit(X, labels)


@pytest.mark.parametrize(
    ("do", "told"),
    {
        "a text where a path is expected": (
            lambda: fit(TEXTS, encoder="glyphs"),
            "images has 'a lovely film', which is not a file, expected paths of images. Use encoder='auto' to"
            " select an encoder of texts.",
        ),
        "a long text where a path is expected": (
            lambda: fit(np.zeros((4, 9, 9)), encoder="glyphs").predict(["a long story. " * 400]),
            "images has 'a long story. a long story. a long story. a long story. a l…', which is not a file, expected"
            " paths of images. Use encoder='auto' to select an encoder of texts.",
        ),
        "lists as labels": (
            lambda: fit(VECTORS, [[["good", "bad"], "bad"], *LABELS[1:]]),
            "labels has a list as a label, expected names or numbers.",
        ),
        "float ratings": (
            lambda: fit(VECTORS, [[3.5, 4.0], [1.0, 2.5], [1.0, 1.0], [2.0, 2.0]]),
            "labels contains 2.5 (Unknown label type: continuous), expected names or whole numbers. Use classes=[2.5]"
            " to list fractions that are classes.",
        ),
        "a text that is NaN": (
            lambda: fit([TEXTS[0], float("nan"), *TEXTS[2:]]),
            "X, item 1 is nan, expected text or the path of an image.",
        ),
        "a new text that is NaN": (
            lambda: fit(TEXTS).predict(["warm", float("nan")]),
            "X has an unreadable text: item 1 is a float, expected a text.",
        ),
        "a text of 10 MB": (
            lambda: fit([*TEXTS[:3], "boring " * 1_500_000]),
            "X has an unreadable text: item 3 has 10,500,000 characters, expected 1,000,000 or less.",
        ),
        "an encoder that returns NaN": (
            lambda: fit(TEXTS, encoder=lambda batch: [[len(text), float("nan")] for text in batch]),
            "encoder returns NaN or infinite values, first for item 0, expected finite numbers. Check its weights.",
        ),
        "an encoder that returns too many": (
            lambda: fit(TEXTS, encoder=lambda batch: np.zeros((len(batch) + 1, 2))),
            "encoder has a network that returns a tensor of shape (5, 2) for 4 items, expected (4, D).",
        ),
        "an encoder that returns a number an item": (
            lambda: fit(TEXTS, encoder=lambda batch: [len(text) for text in batch]),
            "encoder has a network that returns a tensor of shape (4,) for 4 items, expected (4, D).",
        ),
        "an encoder that returns nothing": (
            lambda: fit(TEXTS, encoder=lambda batch: None),
            "encoder has a network that returns a NoneType for 4 items, expected (4, D).",
        ),
        "a generator of nothing": (
            lambda: fit(VECTORS).predict_proba(iter([])),
            "X is empty (a list), expected one item at least.",
        ),
    }.values(),
)
def test_unusable_input_is_refused(do, told):
    with pytest.raises(CrowdshotError) as caught:
        do()
    assert str(caught.value) == told


# ---- streams ------------------------------------------------------------------------------------------------------


def test_a_generator_is_read_in_batches():
    drawn, most = 0, 0

    def items():
        nonlocal drawn
        for number in range(3 * AT_ONCE + 5):
            drawn += 1
            yield TEXTS[number % 4]

    seen = 0

    def lengths(batch):
        nonlocal seen, most
        most = max(most, drawn - seen)
        seen += len(batch)
        return [[len(text), text.count("o")] for text in batch]

    clf = fit(TEXTS, encoder=lengths)
    drawn = seen = most = 0
    found = clf.predict_proba(items())
    assert most == AT_ONCE
    np.testing.assert_allclose(found, clf.predict_proba([TEXTS[i % 4] for i in range(3 * AT_ONCE + 5)]), atol=1e-12)


def test_a_table_in_chunks_equals_the_whole_table(tmp_path):
    table = pd.DataFrame({"age": np.arange(40.0), "town": ["York", "Bath"] * 20})
    clf = fit(table, [["a", "a"], ["b", "b"]] * 20)
    table.to_csv(tmp_path / "long.csv", index=False)
    with pd.read_csv(tmp_path / "long.csv", chunksize=7) as pieces:
        np.testing.assert_allclose(clf.predict_proba(pieces), clf.predict_proba(table), atol=1e-12)


def test_a_missing_item_of_a_generator_is_reported_with_its_position():
    with pytest.raises(CrowdshotError, match="item 0 is None, expected a text"):
        fit(TEXTS).predict(iter([None, "warm"]))
