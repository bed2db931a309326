"""The map, and examples of classes."""

import itertools
import subprocess
import sys

import numpy as np
import pytest

from crowdshot.report.page.class_summaries import choose_examples
from crowdshot.report.page.item_map import AGREED, DISPUTED, LINE, UNLABELLED, Drawing, Map, Sheet, draw_map, place

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
    found = draw_map(basis, basis.embeddings, [])
    assert found.marks.tolist() == [AGREED, DISPUTED, AGREED, UNLABELLED, DISPUTED]
    assert found.votes[1] == [(0, 2), (1, 1)]
    assert found.sheet.uri == ""


def test_names_on_the_map_do_not_overlap():
    labels = np.repeat(np.arange(6), 5)
    found = Map("", 30, np.arange(30), np.full((30, 2), 0.5), labels, labels * 0, labels * 0.0, [""] * 30, [], Sheet())
    names = ["a", "class two", "c" * 60, "d", "e", "f"]
    drawn = Drawing(found, names).labels
    assert sorted(k for k, *_ in drawn) == [0, 1, 2, 3, 4, 5]
    heights = sorted(y for _, _, y, _ in drawn)
    assert min(np.diff(heights)) >= LINE  # all of them are where the others are, so each has a line of its own
    left = Drawing(found._replace(xy=np.zeros((30, 2))), names).labels
    assert {k: anchor for k, _, _, anchor in left} | {1: "start", 2: "start"} == {k: anchor for k, _, _, anchor in left}
    assert all(y >= LINE / 2 for _, _, y, _ in left)
    crowded = np.repeat(np.arange(16), 2)
    many = found._replace(rows=np.arange(32), xy=np.zeros((32, 2)), labels=crowded)
    assert Drawing(many, ["x"] * 16).labels == []


def test_pictures_on_the_map_do_not_overlap():
    xy = np.array([[0.5, 0.5], [0.51, 0.5], [0.9, 0.9], [0.0, 0.0]])
    rows, none = np.array([7, 8, 9, 3]), np.zeros(4, dtype=int)
    found = Map("", 4, rows, xy, none, none, none * 0.0, [""] * 4, [], Sheet())
    assert [row for row, *_ in Drawing(found, ["a"], [8, 7, 3, 99]).thumbnails] == [8, 3]
    ((_, x, y),) = Drawing(found, ["a"], [3]).thumbnails
    assert (x, y) == (19, 19)  # inside, to the last pixel


def test_two_dimensions():
    random = np.random.default_rng(0)
    few, many = random.normal(size=(60, 8)).astype(np.float32), random.normal(size=(2001, 3)).astype(np.float32)
    many[:, 0] *= 10
    for x, how in (
        (few, "t-SNE"),
        (many, "principal components, which explain 9"),
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


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e-44, 1e-38, 1e-25, 1e-12, 1.0, 1e18, 3e37])
def test_features_of_any_size_have_a_map(size):
    """In a process of its own, as t-SNE once ended the process."""
    code = (
        "import numpy as np\nfrom crowdshot.report.page.item_map import place\n"
        f"x = (np.random.default_rng(0).normal(size=(60, 5)) * {size}).astype(np.float32)\n"
        "xy, how = place(x)\nassert xy.shape == (60, 2) and np.isfinite(xy).all() and np.ptp(xy) == 1, xy\n"
        "xy, how = place(np.repeat(x[:3], 20, axis=0))\nassert np.isfinite(xy).all()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
