"""Test the glyph pool: its characters, and the variation of its examples."""

import unicodedata

import numpy as np
import pytest
import torch
from scipy import ndimage

from crowdshot.errors import CrowdshotError
from crowdshot.training import glyphs
from crowdshot.training.glyphs import characters, glyph_pool

pytestmark = pytest.mark.slow

DIGITS = "0123456789"


@pytest.fixture(scope="module")
def pool():
    return glyph_pool(n_classes=150, n_examples=8, seed=0)


def test_thousands_of_classes_and_no_duplicates():
    alphabet = characters(DIGITS)
    assert len(alphabet) >= 2000
    assert len(set(alphabet)) == len(alphabet)


def test_no_digits_and_no_numerals():
    for char in characters(DIGITS):
        assert unicodedata.numeric(char, None) is None, char
        assert not set(unicodedata.normalize("NFKD", char)) & set(DIGITS), char
    for char in "0٣³③⑶⒊１𝟏½Ⅳ♳":
        assert char not in characters(DIGITS)


def test_no_characters_similar_to_digits():
    assert not set("OoОоΟlЗƻƼ◯") & set(characters(DIGITS))


def test_excluded_characters_of_the_caller():
    alphabet = characters("AB")
    assert "A" not in alphabet
    assert not set("BÀΑАВ𝔸") & set(alphabet), "accented, Greek, Cyrillic and double-struck ones go too"
    assert {"C", "7"} <= set(alphabet)
    assert {"A", "B", "7"} <= set(characters(""))


def test_one_class_for_similar_characters():
    for alike in ("AΑА", "PРΡ", "XХΧ𝖷", "CСϹ", "HНΗ𝐇", "∆Δ", "Ss"):
        assert len(set(alike) & set(characters(DIGITS))) <= 1, alike


def test_only_characters_made_of_lines():
    for char in ".,:'·•■●★⠿ \u0301\u00a0\u200b\ufffd":
        assert char not in characters(DIGITS), repr(char)
    assert {"A", "R", "Ж", "Ψ", "ش", "ᓀ", "∫", "&"} <= set(characters(DIGITS))


def test_shape_type_and_names(pool):
    assert pool.examples.shape == (150, 8, 28, 28)
    assert pool.examples.dtype == torch.uint8
    assert pool.counts.tolist() == [8] * 150
    assert set(pool.names) <= set(characters(DIGITS))
    assert len(set(pool.names)) == 150
    assert glyph_pool(n_classes=2, n_examples=3, size=40).examples.shape == (2, 3, 40, 40)
    assert glyph_pool(n_classes=1, n_examples=1, size=14).examples.shape == (1, 1, 14, 14)


def test_bright_ink_on_black(pool):
    values = pool.examples.float()
    assert (values.amax((2, 3)) > 100).all(), "an example has no ink"
    assert values.median() == 0
    share = (values / 255).mean((2, 3))
    assert share.max() < 0.7
    assert 0.05 < share.mean() < 0.25


def test_lines_are_often_thin(pool):
    thin = [(image > 127).sum() / max(1, _skeleton_length(image > 127)) for image in pool.examples[:, 0].numpy()]
    assert np.quantile(thin, 0.25) < 2.2  # about one and a half pixels, with anti-aliased edges
    assert np.quantile(thin, 0.9) > 2.5


def _skeleton_length(ink):
    """Count pixels on the ridge of the distance transform, a rough estimate of the length of lines."""
    distance = ndimage.distance_transform_cdt(ink)
    return (ink & (distance == ndimage.maximum_filter(distance, 3))).sum()


def test_the_seed_determines_the_pool():
    a, b, c = (glyph_pool(n_classes=20, n_examples=2, seed=seed) for seed in (3, 3, 4))
    assert a.names == b.names
    assert torch.equal(a.examples, b.examples)
    assert a.names != c.names
    assert not torch.equal(a.examples, c.examples)


def test_examples_of_a_class_differ_but_resemble_each_other(pool):
    # blurred, because thin lines of two examples rarely overlap
    images = ndimage.gaussian_filter(pool.examples.float().numpy(), (0, 0, 2, 2))
    flat = torch.nn.functional.normalize(torch.from_numpy(images).flatten(2), dim=2)  # (150, 8, 784)
    same = torch.einsum("cid,cjd->cij", flat, flat)
    different = torch.einsum("cid,kid->ick", flat, flat)
    pairs = ~torch.eye(8, dtype=torch.bool)
    assert (same[:, pairs] < 0.9999).all(), "two examples are the same picture"
    within = same[:, pairs].mean(1)
    between = different[:, ~torch.eye(150, dtype=torch.bool)].mean()
    assert (within > between).float().mean() > 0.9
    # the nearest class mean of the other examples is the right one much more often than by chance (1/150)
    means = flat[:, 1:].mean(1)
    assert ((flat[:, 0] @ means.T).argmax(1) == torch.arange(150)).float().mean() > 0.05


def test_fonts_vary_a_class():
    fields, first, n_masters = glyphs._masters(["A", "ᓀ"])
    assert n_masters[0] > 5
    assert n_masters[1] >= 1
    assert first.tolist() == [0, n_masters[0]]
    assert len(fields) == n_masters.sum()
    assert not torch.equal(fields[0], fields[1])


def test_thinning_leaves_connected_lines_one_pixel_wide():
    bitmaps = np.zeros((3, glyphs.SIDE, glyphs.SIDE), bool)
    bitmaps[0, 20:27, 10:45] = True  # a bar
    bitmaps[1, 10:46, 10:46] = True
    bitmaps[1, 17:39, 17:39] = False  # a frame
    bitmaps[2, 10:46, 24:31] = True
    bitmaps[2, 24:31, 10:46] = True  # a cross
    thinned = glyphs.thin(bitmaps)
    for before, after in zip(bitmaps, thinned, strict=True):
        assert not (after & ~before).any()
        assert ndimage.label(after, np.ones((3, 3)))[1] == 1
        windows = after[:-1, :-1] & after[1:, :-1] & after[:-1, 1:] & after[1:, 1:]
        assert windows.sum() == 0, "two by two pixels of ink are left"
    assert (thinned[0].sum(0) <= 1).all()
    assert 25 <= thinned[0].sum() <= 35
    assert ndimage.label(~thinned[1])[1] == 2, "the frame's hole is gone"


def test_distances_are_exact_up_to_the_maximum():
    rng = np.random.default_rng(0)
    skeletons = rng.random((4, glyphs.SIDE, glyphs.SIDE)) < 0.01
    for squared, skeleton in zip(glyphs.squared_distances(skeletons), skeletons, strict=True):
        exact = np.round(ndimage.distance_transform_edt(~skeleton) ** 2)
        np.testing.assert_array_equal(squared, np.minimum(exact, glyphs.FARTHEST**2))


def test_bad_arguments_are_refused():
    with pytest.raises(CrowdshotError, match=r"n_classes is 0, expected 1 to \d{4}"):
        glyph_pool(n_classes=0)
    with pytest.raises(CrowdshotError, match=r"n_classes is 99999, expected 1 to \d{4}"):
        glyph_pool(n_classes=99_999)
    with pytest.raises(CrowdshotError, match="size is 13, expected 14 or more"):
        glyph_pool(size=13)
    with pytest.raises(CrowdshotError, match="n_examples is 0, expected 1 or more"):
        glyph_pool(n_examples=0)
