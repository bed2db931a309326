"""Match boxes and spans of several annotators, and aggregate the objects."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdshot.errors import CrowdshotError
from crowdshot.labels.object_matching import Region, find_objects, match_regions, overlaps


def box(item, who, label, x, y, width=10, height=10):
    return Region(item, who, label, (x, y, x + width, y + height))


def test_overlap_of_boxes_and_spans():
    boxes = np.array([[0, 0, 4, 4], [2, 2, 6, 6], [4, 0, 8, 4], [0, 0, 4, 4]], dtype=float)
    found = overlaps(boxes)
    np.testing.assert_allclose(found[0], [1, 4 / 28, 0, 1])
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(overlaps(np.array([[0.0, 10], [5, 20]])), [[1, 0.25], [0.25, 1]])


def test_an_object_has_one_region_of_an_annotator():
    spans = np.array([[0.0, 10], [0, 10], [0, 10]])
    assert match_regions(spans, ["ann", "ann", "bob"]) == [[0, 2], [1]]
    assert match_regions(spans, ["ann", "bob", "cyd"]) == [[0, 1, 2]]


def test_the_closest_are_matched_first():
    """bob's span overlaps both of ann's, but the second one more."""
    spans = np.array([[0.0, 10], [2, 12], [3, 12]])
    assert match_regions(spans, ["ann", "ann", "bob"]) == [[0], [1, 2]]


def test_the_mean_overlap_of_groups_counts():
    """A chain: neighbours overlap by 2/3, the ends by 3/7; the mean of the third with both is 0.55."""
    spans = np.array([[0.0, 10], [2, 12], [4, 14]])
    assert overlaps(spans)[0].tolist() == [1, 8 / 12, 6 / 14]
    assert match_regions(spans, ["ann", "bob", "cyd"], 0.5) == [[0, 1, 2]]
    assert match_regions(spans, ["ann", "bob", "cyd"], 0.6) == [[0, 1], [2]]


@given(
    spans=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20), st.sampled_from("abc")), min_size=1, max_size=9),
    seed=st.integers(0, 99),
)
def test_groups_are_valid_and_do_not_depend_on_the_order(spans, seed):
    corners = np.array([[start, start + length] for start, length, _ in spans], dtype=float)
    people = [who for *_, who in spans]
    groups = match_regions(corners, people)
    assert sorted(itertools.chain(*groups)) == list(range(len(spans)))
    similar = overlaps(corners)
    for group in groups:
        assert len({people[row] for row in group}) == len(group)
        assert len(group) == 1 or similar[np.ix_(group, group)].max() >= 0.5
    order = np.random.default_rng(seed).permutation(len(spans))
    again = match_regions(corners[order], [people[row] for row in order])

    def named(groups, rows):
        return sorted(sorted((*corners[rows[row]].tolist(), people[rows[row]]) for row in group) for group in groups)

    assert named(again, order.tolist()) == named(groups, range(len(spans)))


def test_objects_by_hand():
    regions = [
        *(box("1", "ann", "cat", 0, 0), box("1", "bob", "cat", 1, 0), box("1", "cyd", "dog", 1, 1)),
        *(box("1", "cyd", "cat", 50, 50), Region("2", "ann", "", ()), box("2", "bob", "dog", 0, 0)),
    ]
    found = find_objects(regions)
    table = found.objects
    assert table[["item", "object", "marked_by", "seen_by"]].values.tolist() == [
        ["1", 1, 3, 3],
        ["1", 2, 1, 3],
        ["2", 1, 1, 2],
    ]
    assert table["label"].tolist() == ["cat", "cat", "dog"]
    assert table[["x", "y", "width", "height"]].iloc[0].tolist() == [1, 0, 10, 10]
    assert table["presence"].tolist() == [1, 1 / 3, 1 / 2]
    assert table["overlap"].isna().tolist() == [False, True, True]
    # pairs: ann-bob 2 of 3 regions, ann-cyd 2 of 3, bob-cyd 2 of 3
    assert found.agreement == pytest.approx(2 / 3)
    people = found.annotators.set_index("annotator")
    assert people["items"].tolist() == [2, 2, 1]
    assert people["regions"].tolist() == [1, 2, 2]
    assert people["confirmed"].tolist() == [1, 1, 0.5]
    assert people["found"].tolist() == [0.5, 1, 1]


@pytest.mark.parametrize(
    ("regions", "found"),
    [
        ([], "no region"),
        ([Region("1", "ann", "", ())], "no region"),
        ([box("1", "ann", "cat", 0, 0), Region("1", "bob", "cat", (0, 4))], "boxes and spans"),
    ],
)
def test_refused(regions, found):
    with pytest.raises(CrowdshotError) as error:
        find_objects(regions)
    assert error.value.found == found


@pytest.mark.parametrize("overlap", [0, -1, 1.5, float("nan")])
def test_refused_overlaps(overlap):
    with pytest.raises(CrowdshotError) as error:
        find_objects([box("1", "ann", "cat", 0, 0)], overlap)
    assert error.value.argument == "overlap"


def test_one_annotator_has_no_agreement():
    found = find_objects([box("1", "ann", "cat", 0, 0), box("2", "ann", "dog", 0, 0)])
    assert (found.agreement, found.class_alpha, len(found.objects)) == (None, None, 2)
