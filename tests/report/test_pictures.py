"""Test images in the page."""

import base64
import io
import re
from pathlib import Path

import numpy as np
from PIL import Image

from crowdshot.report.page.item_map import sheet, side_of, thumbnails


def opened(uri: str) -> Image.Image:
    kind, data = re.fullmatch(r"data:image/(png|jpeg);base64,(.*)", uri).groups()
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert image.format.lower() == kind
    return image.convert("RGB")


def test_thumbnails_of_all_kinds(tmp_path: Path):
    red = Image.new("RGB", (400, 200), (250, 0, 0))
    red.save(tmp_path / "wide.jpg")
    sideways = red.getexif()
    sideways[0x0112] = 6
    red.save(tmp_path / "turned.jpg", exif=sideways)
    Image.new("RGBA", (20, 20), (0, 0, 250, 0)).save(tmp_path / "clear.png")
    Image.new("I;16", (20, 20), 65535).save(tmp_path / "deep.png")
    Image.new("1", (20, 20), 0).save(tmp_path / "bits.png")
    Image.new("L", (8, 8), 99).save(tmp_path / "tiny.png")
    (tmp_path / "gone.png").write_bytes(b"no image")
    names = ["wide.jpg", "turned.jpg", "clear.png", "deep.png", "bits.png", "tiny.png", "gone.png", "absent.png"]
    made = thumbnails({10 * i: tmp_path / name for i, name in enumerate(names)})
    assert list(made) == [0, 10, 20, 30, 40, 50]  # without the two unreadable files
    assert [(made[i].width, made[i].height) for i in (0, 10, 50)] == [(400, 200), (200, 400), (8, 8)]
    wide, turned, clear, deep, bits, tiny = (picture.uri for picture in made.values())
    assert opened(wide).size == (400, 200)
    assert opened(turned).size == (200, 400)
    assert opened(wide).getpixel((70, 30))[0] > 240
    assert opened(clear).getpixel((5, 5)) == opened(deep).getpixel((5, 5)) == (255, 255, 255)
    assert opened(bits).getpixel((5, 5)) == (0, 0, 0)
    assert opened(tiny).size == (8, 8)
    assert opened(tiny).getpixel((5, 5)) == (99, 99, 99)


def test_the_sheet_has_every_image_in_its_place(tmp_path: Path):
    colours = [(250, 0, 0), (0, 250, 0), (0, 0, 250), (250, 250, 0), (0, 0, 0)]
    for i, colour in enumerate(colours):
        Image.new("RGB", (30 + i, 40), colour).save(tmp_path / f"{i}.png")
    made = sheet([tmp_path / f"{i}.png" for i in range(5)])
    image = opened(made.uri)
    assert (made.columns, image.size) == (3, (3 * made.tile, 2 * made.tile))
    for i, colour in enumerate(colours):
        middle = (i % 3 * made.tile + made.tile // 2, i // 3 * made.tile + made.tile // 2)
        assert np.abs(np.subtract(image.getpixel(middle), colour)).max() < 12
    assert sheet([]).uri == ""


def test_more_images_are_smaller():
    assert [side_of(n) for n in (0, 2, 300, 900)] == [400, 400, 200, 144]  # 300 · 200² are twelve million pixels
