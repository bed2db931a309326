"""The map, and examples of classes."""

import itertools

import numpy as np

from crowdshot.report.page.classes import choose_examples
from crowdshot.report.page.map import AGREED, DISPUTED, UNLABELLED, draw_map, place

from .made import basis_of


def test_examples_near_the_centre_and_at_the_border():
    x = np.array([[0, 0], [0.1, 0], [-0.1, 0], [2, 0], [10, 0], [10.1, 0], [9.9, 0], [7, 0]], dtype=np.float32)
    label = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    (central, border), (other, other_border) = choose_examples(basis_of(np.eye(2)[label], label[:, None], embeddings=x))
    assert border[0] == 3  # the one that reaches out to the other class
    assert other_border[0] == 7
    assert set(central) | set(border) == {0, 1, 2, 3}
    assert set(other) | set(other_border) == {4, 5, 6, 7}


def test_marks_on_the_map():
    said = [[0, 0, 0, 0], [0, 0, 1, -1], [0, 0, 0, 1], [-1] * 4, [1, 1, -1, -1]]
    basis = basis_of(np.eye(2)[[0, 0, 0, 1, 0]], said)
    found = draw_map(basis, [])
    assert found.marks.tolist() == [AGREED, DISPUTED, AGREED, UNLABELLED, DISPUTED]
    assert found.votes[1] == [(0, 2), (1, 1)]
    assert found.sheet.uri == ""


def test_two_dimensions():
    random = np.random.default_rng(0)
    few, many = random.normal(size=(60, 8)).astype(np.float32), random.normal(size=(2001, 3)).astype(np.float32)
    many[:, 0] *= 10
    for x, how in (
        (few, "t-SNE"),
        (many, "principal components, which hold 9"),
        (few[:8], "principal"),
        (few[:, :1], "one"),
    ):
        xy, said = place(x)
        assert how in said
        assert xy.shape == (len(x), 2)
        assert xy.min() == 0
        assert xy.max() == 1
        np.testing.assert_array_equal(xy, place(x)[0])
    xy, _ = place(many)
    assert abs(np.corrcoef(xy[:, 0], many[:, 0])[0, 1]) > 0.999
    assert place(np.ones((3, 4), dtype=np.float32))[0].tolist() == [[0.5, 0.5]] * 3
    groups = np.repeat(50 * np.eye(3, 8), 20, axis=0).astype(np.float32) + few
    xy, _ = place(groups)
    inside = max(np.ptp(xy[i : i + 20], axis=0).max() for i in (0, 20, 40))
    centres = [xy[i : i + 20].mean(0) for i in (0, 20, 40)]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(centres, 2)) > 0.5 > inside
