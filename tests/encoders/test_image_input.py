"""Check that every form of an image gives the same tensor, and that errors name unreadable images with a reason."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_digits

from crowdshot.encoders.image_input import BadImage, ImageInput, list_images, read_images
from crowdshot.errors import CrowdshotError
from crowdshot.io.image_decoding import decode

GREY = ImageInput((28, 28))
COLOUR = ImageInput((28, 28), channels=3)
INK = ImageInput((28, 28), ink=True)


def photo(height: int = 40, width: int = 56) -> np.ndarray:
    """Return a colour image without symmetry, uint8 (height, width, 3)."""
    return np.random.default_rng(7).integers(0, 256, (height, width, 3), dtype=np.uint8)


def by_pillow(grey: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize with Pillow's antialiased bilinear filter in floating point, as an oracle."""
    picture = Image.fromarray(grey.astype(np.float32))
    return np.asarray(picture.resize(size[::-1], Image.Resampling.BILINEAR)) / 255


# ---- the same picture in every form ---------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [GREY, COLOUR, INK, ImageInput((17, 90), 3, mean=(0.1, 0.2, 0.3), std=(1, 2, 4))])
def test_every_form_gives_the_same_tensor(tmp_path: Path, spec: ImageInput) -> None:
    pixels = photo()
    path = tmp_path / "photo.png"
    Image.fromarray(pixels).save(path)
    opaque = np.dstack([pixels, np.full(pixels.shape[:2], 255, np.uint8)])
    forms: dict[str, Any] = {
        "str": [str(path)],
        "Series of paths": pd.Series([str(path)], index=[9]),
        "object array of paths": np.array([path], dtype=object),
        "array of str": np.array([str(path)]),
        "dict": {"photo": path},
        "PIL": [Image.fromarray(pixels)],
        "PIL, opaque alpha": [Image.fromarray(opaque)],
        "list of arrays": [pixels],
        "list of tensors": [torch.tensor(pixels).permute(2, 0, 1)],
        "uint8 NHWC": pixels[None],
        "uint8 NHWC, alpha": opaque[None],
        "uint8 NCHW": pixels[None].transpose(0, 3, 1, 2),
        "float 0..1": pixels[None] / 255,
        "float32 0..255": pixels[None].astype(np.float32),
        "float16 0..1 is coarser": (pixels[None] / 255).astype(np.float16),
        "int64 0..255": pixels[None].astype(np.int64),
        "uint16": pixels[None].astype(np.uint16) * 257,
        "big-endian uint16": pixels[None].astype(">u2") * 257,
        "flipped view": np.ascontiguousarray(pixels[None, ::-1])[:, ::-1],
        "tensor uint8": torch.tensor(pixels).permute(2, 0, 1)[None],
        "tensor float": torch.tensor(pixels).permute(2, 0, 1)[None] / 255,
        "tensor NHWC": torch.tensor(pixels)[None],
        "generator": (p for p in [path]),
    }
    expected = read_images([path], spec)
    assert expected.shape == (1, spec.channels, *spec.size)
    assert expected.dtype == torch.float32
    assert expected.is_contiguous()
    for name, form in forms.items():
        tolerance = 1e-3 if "float16" in name else 2e-6
        torch.testing.assert_close(read_images(form, spec), expected, atol=tolerance, rtol=0, msg=name)


@given(
    st.tuples(st.integers(1, 60), st.integers(1, 60)),
    st.tuples(st.integers(2, 60), st.integers(2, 60)),
    st.integers(0, 9),
)
@settings(max_examples=40, deadline=None)
def test_resizing_is_pillows(shape: tuple[int, int], size: tuple[int, int], seed: int) -> None:
    grey = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    got = read_images([Image.fromarray(grey)], ImageInput(size))[0, 0]
    np.testing.assert_allclose(got, by_pillow(grey, size), atol=1e-5)


def test_large_pictures_are_within_one_grey_level() -> None:
    pixels = photo(1100, 1000)
    assert pixels.shape[0] * pixels.shape[1] > 2**20
    got = read_images(pixels[None], COLOUR)[0]
    for channel in range(3):
        np.testing.assert_allclose(got[channel], by_pillow(pixels[..., channel], (28, 28)), atol=1 / 255)


def test_batches_of_several_do_not_mix() -> None:
    many = np.random.default_rng(0).random((300, 9, 11))
    together = read_images(many, INK)
    torch.testing.assert_close(together, torch.cat([read_images(one[None], INK) for one in many]))
    torch.testing.assert_close(together, read_images(list(many), INK))


def test_pictures_of_different_sizes_keep_their_order(tmp_path: Path) -> None:
    sides = [5, 64, 3, 200, 28, 31, 7, 90] * 5
    for i, side in enumerate(sides):
        Image.new("L", (side, side + 1), color=i).save(tmp_path / f"{i}.png")
    got = read_images([tmp_path / f"{i}.png" for i in range(len(sides))], GREY)
    torch.testing.assert_close(got[:, 0, 3, 3], torch.arange(len(sides)) / 255)


# ---- values by hand -------------------------------------------------------------------------------------------


def test_grey_and_colour_by_hand() -> None:
    red = np.zeros((1, 2, 2, 3), np.uint8)
    red[..., 0] = 255
    one = ImageInput((2, 2), 1)
    assert read_images(red, one).unique().tolist() == pytest.approx([0.299])
    half = np.full((1, 2, 2), 0.5)
    normalised = read_images(half, ImageInput((2, 2), 3, mean=(0.5, 0.25, 0.0), std=(1.0, 0.5, 0.25)))
    assert normalised[0, :, 0, 0].tolist() == pytest.approx([0.0, 0.5, 2.0])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([0, 0.5]), 0.5),
        (np.array([0, 1.0]), 1.0),
        (np.array([0, 1.01]), 1.0),  # overshoot of an earlier resizing: clipped
        (np.array([-0.01, 0.5]), 0.5),
        (np.array([0.0, 8]), 8 / 16),
        (np.array([0.0, 16]), 1.0),
        (np.array([0.0, 17]), 17 / 255),
        (np.array([0, 204]), 0.8),
        (np.array([0.0, 255]), 1.0),
        (np.array([0, 32768]), 32768 / 65535),
        (np.array([False, True]), 1.0),
        (np.array([0, 204], np.uint8), 0.8),
        (np.array([0, 32768], np.uint16), 32768 / 65535),
    ],
)
@pytest.mark.parametrize("form", ["array", "list", "tensor"])
def test_the_rule_for_numbers(values: np.ndarray, expected: float, form: str) -> None:
    images: Any = values.reshape(1, 1, 2)
    if form == "list":
        images = [images[0], images[0]]
    if form == "tensor":
        images = torch.tensor(images)[None]
    got = read_images(images, ImageInput((2, 2)))[0, 0, 0]
    assert got.tolist() == pytest.approx([0.0, expected])


def test_scikit_learn_digits_come_out_right() -> None:
    digits = load_digits()
    got = read_images(digits.images, INK)
    assert got.shape == (1797, 1, 28, 28)
    np.testing.assert_allclose(got[5, 0], by_pillow(digits.images[5] * 255 / 16, (28, 28)), atol=1e-6)
    alone = read_images(digits.images[5:6], INK)  # the scale does not depend on the other images
    torch.testing.assert_close(alone[0], got[5])


def test_arrays_in_one_list_share_their_scale() -> None:
    dark, bright = np.full((2, 2), 8.0), np.full((2, 2), 255.0)
    got = read_images([dark, bright], ImageInput((2, 2)))
    assert got[:, 0, 0, 0].tolist() == pytest.approx([8 / 255, 1.0])


@pytest.mark.parametrize("as_list", [False, True])
def test_nearly_black_integers_cause_a_warning(as_list: bool) -> None:
    digits: Any = load_digits().images[:2].astype(np.uint8)
    with pytest.warns(UserWarning, match="uint8 with values up to 16 of 255"):
        read_images(list(digits) if as_list else digits, INK)


# ---- ink ------------------------------------------------------------------------------------------------------


def test_ink_is_bright_for_dark_and_bright_strokes() -> None:
    stroke = np.zeros((1, 28, 28))
    stroke[:, 10:18, 4:24] = 1.0
    torch.testing.assert_close(read_images(stroke, INK), torch.tensor(stroke).float()[:, None])
    torch.testing.assert_close(read_images(1 - stroke, INK), torch.tensor(stroke).float()[:, None])
    torch.testing.assert_close(read_images(1 - stroke, GREY), 1 - torch.tensor(stroke).float()[:, None])


def test_ink_is_found_by_the_border_of_each_image() -> None:
    page = np.ones((5, 5))
    page[1:4, 1:4] = 0.0  # mostly dark inside, but the border is bright
    board = 1 - page
    got = read_images(np.stack([page, board]), ImageInput((5, 5), ink=True))
    torch.testing.assert_close(got[0], got[1])
    assert got[0, 0, 2, 2] == 1
    blank = read_images(np.ones((1, 5, 5)), ImageInput((5, 5), ink=True))
    assert blank.max() == 0  # an empty page has no ink


# ---- kinds of file --------------------------------------------------------------------------------------------


def test_transparency_lies_on_white(tmp_path: Path) -> None:
    pixels = np.zeros((2, 2, 4), np.uint8)
    pixels[0, 0] = (0, 0, 0, 255)
    pixels[0, 1] = (0, 0, 0, 51)  # a fifth of black
    Image.fromarray(pixels).save(tmp_path / "alpha.png")
    expected = [[0.0, 0.8], [1.0, 1.0]]
    for form in ([tmp_path / "alpha.png"], [Image.fromarray(pixels)], pixels[None], pixels[None] / 255):
        assert read_images(form, ImageInput((2, 2)))[0, 0].tolist() == pytest.approx(np.array(expected))
    for mode in ("LA", "La", "RGBa"):
        image = Image.fromarray(pixels).convert("LA" if mode == "La" else "RGBA").convert(mode)
        assert read_images([image], ImageInput((2, 2)))[0, 0].tolist() == pytest.approx(np.array(expected)), mode


def test_palettes_with_and_without_transparency(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[0, 1, 2]], np.uint8)).convert("P")
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    image.putdata([0, 1, 2])
    image.save(tmp_path / "plain.png")
    image.save(tmp_path / "holes.png", transparency=1)
    image.save(tmp_path / "bytes.png", transparency=b"\xff\x00\xff")
    spec = ImageInput((2, 3))
    assert read_images([tmp_path / "plain.png"], spec)[0, 0, 0].tolist() == pytest.approx([0.299, 0.587, 0.114])
    for name in ("holes.png", "bytes.png"):
        assert read_images([tmp_path / name], spec)[0, 0, 0].tolist() == pytest.approx([0.299, 1.0, 0.114])


def test_one_bit_and_grey_with_a_transparent_level(tmp_path: Path) -> None:
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "bit.png")
    assert read_images([tmp_path / "bit.png"], ImageInput((2, 2)))[0, 0, 0].tolist() == [1.0, 0.0]
    Image.fromarray(np.array([[0, 51]], np.uint8)).save(tmp_path / "grey.png", transparency=0)
    assert read_images([tmp_path / "grey.png"], ImageInput((2, 2)))[0, 0, 0].tolist() == pytest.approx([1.0, 0.2])


def test_sixteen_bits(tmp_path: Path) -> None:
    deep = np.array([[0, 13107, 65535]], np.uint16)
    for name in ("deep.png", "deep.tif"):
        Image.fromarray(deep).save(tmp_path / name)
        got = read_images([tmp_path / name], ImageInput((2, 3)))
        assert got[0, 0, 0].tolist() == pytest.approx([0, 0.2, 1]), name
    as_int = Image.fromarray(deep.astype(np.int32))
    assert as_int.mode == "I"
    assert read_images([as_int], ImageInput((2, 3)))[0, 0, 0].tolist() == pytest.approx([0, 0.2, 1])
    as_float = Image.fromarray(np.array([[0, 0.25]], np.float32))
    assert read_images([as_float], ImageInput((2, 2)))[0, 0, 0].tolist() == pytest.approx([0, 0.25])


def test_cmyk_and_friends() -> None:
    image = Image.new("RGB", (4, 4), (255, 0, 0))
    for mode in ("CMYK", "YCbCr", "HSV"):
        got = read_images([image.convert(mode)], ImageInput((4, 4), 3))[0, :, 0, 0]
        assert got.tolist() == pytest.approx([1, 0, 0], abs=2 / 255), mode


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path: Path, orientation: int) -> None:
    upright = np.array([[0, 51, 102], [153, 204, 255]], np.uint8)
    # How the camera stored it, so that the viewer's operation for each EXIF value gives `upright` back.
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.T,
        6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].T,
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / "turned.png", exif=exif)
    got = read_images([tmp_path / "turned.png"], ImageInput((2, 3)))[0, 0]
    np.testing.assert_allclose(got, upright / 255, atol=1e-6)


@pytest.mark.parametrize("orientation", [1, 3, 6])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "CMYK", "I;16"])
def test_large_images_are_reduced_in_bands(mode: str, orientation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = photo(90, 61)
    grey = Image.fromarray(values[..., 0])
    image = {
        "I;16": Image.fromarray(values[..., 0].astype(np.uint16) * 257),
        "P": grey.convert("P"),
        "RGBA": Image.merge("RGBA", [grey] * 3 + [Image.new("L", grey.size, 255)]),
    }.get(mode) or Image.fromarray(values).convert(mode)
    image.getexif()[0x0112] = orientation
    monkeypatch.setattr("crowdshot.io.image_decoding.LARGE", 1000)
    monkeypatch.setattr("crowdshot.io.image_decoding.SMALL", 700)  # reduced by 3, in bands of 9 rows
    pixels, full = decode(image, {})
    expected = image.convert("F").point(lambda x: x / 257) if mode == "I;16" else image
    if mode == "P":
        expected = image.convert("RGBA")
    elif mode == "CMYK":
        expected = image.convert("RGB")
    reduced = np.atleast_3d(np.asarray(expected.reduce(3), dtype=float))
    turned = {1: reduced, 3: reduced[::-1, ::-1], 6: np.rot90(reduced, -1)}[orientation]
    np.testing.assert_allclose(pixels[0].float() * (255 / full), np.moveaxis(turned, -1, 0), atol=1)


def test_broken_exif_does_not_hide_the_picture(tmp_path: Path) -> None:
    Image.new("L", (8, 8), 51).save(tmp_path / "odd.jpg", exif=b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\xff\xff\x01")
    got = read_images([tmp_path / "odd.jpg"], ImageInput((8, 8)))
    assert got.unique().tolist() == pytest.approx([0.2])


def test_the_first_frame_of_an_animation_is_read(tmp_path: Path) -> None:
    frames = [Image.new("L", (4, 4), level) for level in (51, 102, 255)]
    for name in ("move.gif", "move.png", "move.tif"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
        got = read_images([tmp_path / name], ImageInput((4, 4)))
        assert got.unique().tolist() == pytest.approx([0.2], abs=1e-6), name


# ---- unreadable images ----------------------------------------------------------------------------------------


def make_bad(folder: Path) -> dict[Path, str]:
    """Write every kind of bad file; return the expected reason for each."""
    pixels = photo(64, 64)
    Image.fromarray(pixels).save(folder / "good.png")
    Image.fromarray(pixels).save(folder / "good.jpg")
    (folder / "zero.png").touch()
    (folder / "text.png").write_text("label,item\n")
    (folder / "folder.png").mkdir()
    for name in ("png", "jpg"):
        whole = (folder / f"good.{name}").read_bytes()
        (folder / f"half.{name}").write_bytes(whole[: len(whole) // 2])
    damaged = bytearray((folder / "good.png").read_bytes())
    damaged[41:43] = b"\x00" * 2  # the header of the compressed pixels
    (folder / "damaged.png").write_bytes(damaged)
    os.mkfifo(folder / "pipe.png")
    return {
        folder / "zero.png": "is empty (0 bytes)",
        folder / "text.png": "is not an image that Pillow can read",
        folder / "folder.png": "is a folder, not an image",
        folder / "half.png": "is truncated or damaged",
        folder / "half.jpg": "is truncated or damaged",
        folder / "damaged.png": "is truncated or damaged",
        folder / "pipe.png": "is not a regular file",
        folder / "none.png": "does not exist",
    }


def test_each_bad_file_is_named_with_its_reason(tmp_path: Path) -> None:
    for path, reason in make_bad(tmp_path).items():
        with pytest.raises(CrowdshotError) as error:
            read_images([tmp_path / "good.png", path], GREY)
        assert str(error.value).startswith(f"{path} {reason}"), path
        assert "\n" not in str(error.value)


def test_all_bad_files_are_counted_or_collected(tmp_path: Path) -> None:
    reasons = make_bad(tmp_path)
    paths = [tmp_path / "good.png", *reasons, tmp_path / "good.jpg"]
    with pytest.raises(
        CrowdshotError, match=r"zero.png is empty \(0 bytes\) \(and 7 more of the 10 cannot be read\)\."
    ):
        read_images(paths, GREY)
    bad: list[BadImage] = []
    got = read_images(paths, GREY, bad)
    torch.testing.assert_close(got, read_images([paths[0], paths[-1]], GREY))
    assert [b.index for b in bad] == list(range(1, 9))
    assert [b.name for b in bad] == [str(path) for path in reasons]
    assert all(b.reason.startswith(reason) for b, reason in zip(bad, reasons.values(), strict=True))
    nothing = read_images(list(reasons), GREY, [])
    assert nothing.shape == (0, 1, 28, 28)


def test_a_dict_gives_the_names(tmp_path: Path) -> None:
    with pytest.raises(CrowdshotError, match=r"^letters/a\.png does not exist\.$"):
        read_images({"letters/a.png": tmp_path / "a.png"}, GREY)


@given(st.integers(0, 10_000), st.integers(0, 255), st.sampled_from(["png", "jpg", "gif", "bmp", "tif", "webp"]))
@settings(max_examples=60, deadline=None)
def test_damaged_bytes_raise_no_other_error(place: int, byte: int, suffix: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"a.{suffix}")
        Image.fromarray(photo(16, 16)).save(path)
        content = bytearray(path.read_bytes())
        content[place % len(content)] = byte
        path.write_bytes(content if byte % 2 else content[: place % len(content)])
        bad: list[BadImage] = []
        got = read_images([path], GREY, bad)
        assert len(got) + len(bad) == 1
        assert torch.isfinite(got).all()


def test_large_images_cause_no_warning_and_bombs_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(photo(20, 20)).save(tmp_path / "big.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300)  # 400 pixels: Pillow warns
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert len(read_images([tmp_path / "big.png"], GREY)) == 1
    assert not seen
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # more than twice: Pillow refuses
    with pytest.raises(CrowdshotError, match=r"big.png is too large \(Image size \(400 pixels\)"):
        read_images([tmp_path / "big.png"], GREY)


def test_a_closed_pil_image_is_refused(tmp_path: Path) -> None:
    Image.fromarray(photo()).save(tmp_path / "a.png")
    image = Image.open(tmp_path / "a.png")
    image.close()
    with pytest.raises(CrowdshotError, match=r"images\[0\] cannot be read"):
        read_images([image], GREY)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ("a.png", r"images is one str, expected a list\. Pass \[image\]"),
        (Path("a.png"), r"Pass \[image\]"),
        (Image.new("L", (3, 3)), r"images is one Image, expected a list"),
        (
            np.zeros((28, 28)),
            r"images has shape \(28, 28\), expected \(N, .*\[None\] if it is one image, .*flattened",
        ),
        (np.zeros((28, 28, 3)), r"images has shape \(28, 28, 3\), expected .*; pass images\[None\] if it is one image"),
        (torch.zeros(3, 28, 28), r"images has shape \(3, 28, 28\), expected \(N, C, height, width\); pass"),
        (np.zeros((5, 28, 28, 2)), r"without an axis of 1, 3 or 4 channels"),
        (np.zeros((1, 1, 28, 28, 3)), r"expected \(N, height, width\)"),
        (np.zeros((2, 0, 5)), r"holds no pixels"),
        (np.full((2, 5, 5), np.nan), r"images has NaN or infinite values"),
        (np.full((2, 5, 5), -1.0), r"values from -1 to -1, expected pixels in 0..1"),
        (np.array([[[-1.0, 1.0]] * 2]), r"values from -1 to 1, .*normalises them itself"),
        (np.full((2, 5, 5), 1e6), r"values from 1e\+06"),
        (np.full((2, 5, 5), 1j), r"values of type complex128"),
        ([np.zeros((5, 5)), np.zeros(5)], r"images\[1\] has shape \(5,\), expected \(height, width"),
        ([np.zeros((5, 5)), np.full((5, 5), np.inf)], r"images\[1\] has NaN or infinite"),
        ([np.full((5, 5), -3.0)], r"images has values from -3"),
        ([None], r"images\[0\] is a NoneType, expected a path"),
        ([[0, 1]], r"images\[0\] is a list"),
        (5, r"images is a int, expected a list of paths"),
    ],
)
def test_other_input_than_a_list_of_images_is_refused(images: Any, message: str) -> None:
    with pytest.raises(CrowdshotError, match=message):
        read_images(images, GREY)


def test_no_images_give_an_empty_tensor() -> None:
    assert read_images([], GREY).shape == (0, 1, 28, 28)
    assert read_images(np.zeros((0, 5, 5)), COLOUR).shape == (0, 3, 28, 28)


# ---- folders --------------------------------------------------------------------------------------------------


def test_list_images(tmp_path: Path) -> None:
    for name in ("b.png", "a/z.JPG", "a/b/c.tif", ".hidden.png", ".git/x.png", "a/._y.png", "notes.txt", "é ü.webp"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = list_images(tmp_path)
    assert list(found) == ["a/b/c.tif", "a/z.JPG", "b.png", "é ü.webp"]
    assert all(path == tmp_path / name for name, path in found.items())
    assert list(list_images(str(tmp_path / "a"))) == ["b/c.tif", "z.JPG"]


def test_list_images_errors(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(CrowdshotError, match=r"holds no images, expected files that end in \.avif"):
        list_images(tmp_path)
    with pytest.raises(CrowdshotError, match=r"notes\.txt is a file, expected a folder"):
        list_images(tmp_path / "notes.txt")
    with pytest.raises(CrowdshotError, match=r"nowhere does not exist, expected a folder"):
        list_images(tmp_path / "nowhere")


def test_names_that_are_not_text_can_be_printed(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png")
    with pytest.raises(CrowdshotError, match="does not exist") as error:
        read_images([path], GREY)
    str(error.value).encode("utf-8")


# ---- the specification ----------------------------------------------------------------------------------------


def test_image_input_survives_json() -> None:
    for spec in (GREY, COLOUR, ImageInput((84, 60), 3, True, (0.1, 0.2, 0.3), (1.0, 2.0, 3.0))):
        assert ImageInput.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert GREY.mean == (0.0,)
    assert COLOUR.std == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    "arguments",
    [
        {"size": (28, 28), "channels": 2},
        {"size": (28,)},
        {"size": (1, 28)},
        {"size": (28.5, 28)},
        {"size": (28, 100_000)},
        {"size": (28, 28), "mean": (0.5, 0.5)},
        {"size": (28, 28), "std": (0.0,)},
        {"size": (28, 28), "mean": (float("nan"),)},
    ],
)
def test_invalid_image_input_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(CrowdshotError, match=r"(channels|size|mean|std) is .*, expected "):
        ImageInput(**arguments)
