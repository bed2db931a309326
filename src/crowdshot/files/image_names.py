"""How the names of image files end."""

from __future__ import annotations

# Listed here means looked at: a file of these kinds that Pillow cannot read is reported, not passed over.
# fmt: off
IMAGE_SUFFIXES = frozenset({
    ".avif", ".bmp", ".gif", ".heic", ".jfif", ".jpe", ".jpeg", ".jpg",
    ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp",
})
# fmt: on
PICTURES = (*sorted(IMAGE_SUFFIXES), ".svg")  # what label tools show, whether Pillow can read it or not
