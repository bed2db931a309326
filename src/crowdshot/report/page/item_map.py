"""Draw a map of the items, and embed small pictures in the page.

The map shows the embeddings in two dimensions. It has one SVG path for each class and mark, so that ten thousand points
need only a few elements. Pictures are one for each item shown in detail, and a sprite sheet for the map.
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdshot.formatting import clean, percent, probability
from crowdshot.io.cells import Positions
from crowdshot.labels.consensus import Floats
from crowdshot.progress import progress
from crowdshot.report.page.basis import Basis

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

DETAIL = 12_000_000  # pixels of all detailed pictures together, about three megabytes
SMALL, LARGE = 144, 400  # least and most pixels of a detailed picture's side
TINY = 32  # images up to this size are stored without loss
SHEET = 16_000_000  # most pixels of the sheet, a few megabytes
LEAST, MOST = 16, 96  # least and most pixels of a tile's side


class Sheet(NamedTuple):
    """Square tiles in rows, the i-th in column i % columns; ``uri`` is "" if there are no images."""

    uri: str = ""
    tile: int = 0
    columns: int = 1


class Picture(NamedTuple):
    """An image in the page as a data URI, and its size."""

    uri: str
    width: int
    height: int


def thumbnails(paths: Mapping[int, Path], side: int | None = None) -> dict[int, Picture]:
    """Return pictures by item; images that can no longer be read are left out.

    ``side`` is the most pixels of a side. By default it is smaller if there are many pictures.
    """
    side = side or side_of(len(paths))
    images = zip(paths, _read(list(paths.values()), side), strict=True)
    return {item: Picture(_as_uri(image), *image.size) for item, image in images if image}


def side_of(pictures: int) -> int:
    """Return the side of each picture in pixels, so that all together stay below `DETAIL`."""
    return int(np.clip((DETAIL / max(pictures, 1)) ** 0.5, SMALL, LARGE))


def sheet(paths: Sequence[Path]) -> Sheet:
    """Return all images as one sprite sheet, which a browser decodes once."""
    if not paths:
        return Sheet()
    from PIL import Image

    tile = int(np.clip((SHEET / len(paths)) ** 0.5, LEAST, MOST))
    columns = int(np.ceil(len(paths) ** 0.5))
    canvas = Image.new("RGB", (columns * tile, -(-len(paths) // columns) * tile), (128, 128, 128))
    for i, image in enumerate(_read(paths, tile)):
        if image:
            if max(image.size) < tile:  # enlarge tiny images without smoothing
                image = image.resize(
                    [side * tile // max(image.size) or 1 for side in image.size], Image.Resampling.NEAREST
                )
            x, y = (i % columns) * tile, (i // columns) * tile
            canvas.paste(image, (x + (tile - image.width) // 2, y + (tile - image.height) // 2))
    return Sheet(_uri("jpeg", canvas, quality=60), tile, columns)


def _read(paths: Sequence[Path], side: int) -> list[Image.Image | None]:
    from crowdshot.io.image_decoding import quiet_pillow

    images: list[Image.Image | None] = []
    with quiet_pillow(), ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool, progress("drawing images") as tick:
        for image in pool.map(lambda path: _small(path, side), paths):
            images.append(image)
            tick(len(images), len(paths))
    return images


def _small(path: Path, side: int) -> Image.Image | None:
    """Return the upright image in RGB or grey, at most ``side`` pixels wide and high; None if it cannot be read."""
    from PIL import Image

    from crowdshot.io.image_decoding import one_large, upright

    try:
        with Image.open(path) as image:
            image.draft(None, (2 * side, 2 * side))  # decodes JPEG at a reduced size
            with one_large(image):
                image.load()
                picture = upright(image) if image.mode in ("L", "RGB") else _decoded(image)
    except Exception:  # the file has changed since it was first read, or its metadata are damaged
        return None
    picture.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=3)
    return picture


def _decoded(image: Image.Image) -> Image.Image:
    """Decode palettes, transparency and 16-bit images as the encoder does; transparency becomes white."""
    from PIL import Image

    from crowdshot.io.image_decoding import decode

    pixels, full = decode(image, {})
    values = (pixels[0].float() * (255 / full)).round().clamp(0, 255).byte().permute(1, 2, 0).numpy()
    picture = Image.fromarray(values.squeeze(-1) if values.shape[-1] == 1 else values)
    if picture.mode != "RGBA":
        return picture
    white = Image.new("RGB", picture.size, (255, 255, 255))
    white.paste(picture, mask=picture)
    return white


def _as_uri(image: Image.Image) -> str:
    return _uri("png", image) if max(image.size) <= TINY else _uri("jpeg", image, quality=78)


def _uri(kind: str, image: Image.Image, **options: int) -> str:
    buffer = io.BytesIO()
    image.save(buffer, kind, optimize=True, **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


# ---- the map ----

MOST_POINTS = 10_000
MOST_TSNE = 2_000  # items: t-SNE takes about three seconds for these; more items are shown by PCA
FEWEST_TSNE = 16
WIDEST = 50  # dimensions before t-SNE, by PCA
PERPLEXITY = 15
SMALLEST = 1e-6  # embeddings below are rescaled, because t-SNE crashes on tiny numbers
SPLIT = 2 / 3  # an item is disputed if at most this share of its labels agrees with the consensus
AGREED, DISPUTED, UNLABELLED = range(3)


class Map(NamedTuple):
    """The points of the map as columns of equal length; ``marks`` are AGREED, DISPUTED or UNLABELLED."""

    how: str
    n_items: int
    rows: Positions  # positions of the items
    xy: Floats  # (n, 2), each axis from 0 to 1
    labels: Positions
    marks: Positions
    confidence: Floats
    names: list[str]
    votes: list[list[tuple[int, int]]]
    sheet: Sheet


def draw_map(basis: Basis, embeddings: Tensor, paths: Sequence[Path], seed: int = 0) -> Map:
    rows = _few_enough(basis.labelled, seed)
    xy, how = place(embeddings[rows].float().cpu().numpy(), seed)
    votes, agree = basis.votes[rows], basis.votes_for(basis.label)[rows]
    disputed = np.where(agree > SPLIT * votes.sum(1), AGREED, DISPUTED)
    return Map(
        how=how,
        n_items=len(basis.label),
        rows=rows,
        xy=xy,
        labels=basis.label[rows],
        marks=np.where(basis.labelled[rows], disputed, UNLABELLED),
        confidence=basis.confidence[rows],
        names=[clean(basis.name(i), 60) for i in rows],
        votes=[[(int(k), int(row[k])) for k in np.flatnonzero(row)] for row in votes],
        sheet=sheet([paths[i] for i in rows]) if paths else Sheet(),
    )


def _few_enough(labelled: NDArray[np.bool_], seed: int) -> Positions:
    """Return all items or, if there are too many, the labelled ones first and then a random sample."""
    order = np.random.default_rng(seed).permutation(len(labelled))
    return np.sort(np.lexsort((order, ~labelled))[:MOST_POINTS])


def place(embeddings: NDArray[np.float32], seed: int = 0) -> tuple[Floats, str]:
    """Project embeddings (n, D) to (n, 2) by t-SNE if it is fast enough, else by PCA; also describe the method."""
    n, d = embeddings.shape
    x = np.asarray(embeddings, dtype=np.float64)
    x -= x.mean(0)
    largest = float(np.abs(x).max(initial=0))
    if min(n, d) < 2 or not largest > 0:
        return _to_unit(np.column_stack([x[:, 0], np.zeros(n)])), "the embeddings differ in one direction only"
    from sklearn.decomposition import PCA

    if not SMALLEST < largest < 1 / SMALLEST:  # t-SNE computes squares in float32
        x /= largest
    pca = PCA(min(n, d, WIDEST), random_state=seed)
    main = pca.fit_transform(x)
    if FEWEST_TSNE <= n <= MOST_TSNE and len(np.unique(main.astype(np.float32), axis=0)) >= FEWEST_TSNE:
        return _to_unit(_tsne(main, seed)), "t-SNE: neighbours stay neighbours; large distances mean little"
    explained = percent(float(pca.explained_variance_ratio_[:2].sum()))
    return _to_unit(main[:, :2]), f"two principal components, which explain {explained} of the variance"


def _tsne(x: Floats, seed: int) -> Floats:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    perplexity = min(PERPLEXITY, (len(x) - 1) / 3)
    with threadpool_limits(1):  # several threads are slower on a busy machine
        # 400 iterations are enough for a picture
        tsne = TSNE(perplexity=perplexity, init="pca", angle=0.8, max_iter=400, random_state=seed)
        return np.asarray(tsne.fit_transform(x.astype(np.float32)), dtype=np.float64)


def _to_unit(xy: Floats) -> Floats:
    low, high = xy.min(0), xy.max(0)
    return np.where(high > low, (xy - low) / np.where(high > low, high - low, 1), 0.5)


# ---- drawing ----

WIDTH, HEIGHT, MARGIN = 720, 460, 16
SIZES = (400, 2_500)  # numbers of points above which marks become smaller
MOST_LABELS = 15  # classes named on the map itself
LONGEST = 18  # letters of such a name
LETTER, WIDE, LINE = 13.5, 24.5, 36  # widths of most letters and of wide ones, and height of a line on a phone
WIDE_LETTERS = frozenset("WMmw@%")
MOST_THUMBNAILS, THUMBNAIL = 60, 38  # pictures on the map itself, and their size

Paths = list[tuple[int, list[tuple[int, str]]]]


class Drawing:
    """A `Map` for the template; positions are in units of the view box."""

    width, height, longest, side = WIDTH, HEIGHT, LONGEST, THUMBNAIL

    def __init__(self, found: Map, classes: list[str], pictured: Sequence[int] = ()) -> None:
        """``pictured`` are the items with pictures, the most typical first."""
        self.map, self.classes, self.pictured = found, classes, pictured
        self.xy = MARGIN + found.xy * (WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN)
        self.size = sum(len(self.xy) > most for most in SIZES)

    @property
    def paths(self) -> Paths:
        """The marks of each class: (class, [(mark, path), ...])."""
        return [(k, list(self._marks(k))) for k in np.unique(self.map.labels).tolist()]

    def _marks(self, k: int) -> Iterator[tuple[int, str]]:
        r = (4, 3, 2)[self.size]
        shapes = (
            "M{0:.1f} {1:.1f}h0",
            f"M{{2:.1f}} {{3:.1f}}l{2 * r} {2 * r}m{-2 * r} 0l{2 * r} {-2 * r}",
            f"M{{2:.1f}} {{1:.1f}}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0",
        )
        for mark, shape in enumerate(shapes):
            rows = np.flatnonzero((self.map.labels == k) & (self.map.marks == mark))
            if len(rows):
                yield mark, "".join(shape.format(x, y, x - r, y - r) for x, y in self.xy[rows])

    @property
    def thumbnails(self) -> list[tuple[int, float, float]]:
        """Pictures that do not overlap, the most typical first: (item, x, y) with the centre."""
        place = {int(row): self.xy[i] for i, row in enumerate(self.map.rows)}
        chosen: list[tuple[int, float, float]] = []
        for row in self.pictured:
            if row not in place or len(chosen) == MOST_THUMBNAILS:
                continue
            x, y = (
                float(np.clip(p, THUMBNAIL / 2, most - THUMBNAIL / 2))
                for p, most in zip(place[row], (WIDTH, HEIGHT), strict=True)
            )
            if all(max(abs(x - a), abs(y - b)) > THUMBNAIL * 1.1 for _, a, b in chosen):
                chosen.append((row, round(x, 1), round(y, 1)))
        return chosen

    @property
    def labels(self) -> list[tuple[int, float, float, str]]:
        """Class names that do not overlap: (class, x, y, text anchor), as near as possible to the median item.

        The largest classes are placed first, and a name without room is left out. If there are many classes, none is
        named.
        """
        found, sizes = np.unique(self.map.labels, return_counts=True)
        if len(found) > MOST_LABELS:
            return []
        placed: list[Box] = []
        out: list[tuple[int, float, float, str]] = []
        for k in found[np.argsort(-sizes, kind="stable")].tolist():
            x, y = np.median(self.xy[self.map.labels == k], axis=0)
            half = sum(WIDE if letter in WIDE_LETTERS else LETTER for letter in self.classes[k][:LONGEST]) / 2
            for down in sorted(range(-6, 7), key=abs):
                anchor, at = _anchor(float(x), half), float(y) + down * LINE
                left = {"start": x, "middle": x - half, "end": x - 2 * half}[anchor]
                box = Box(left, at - LINE / 2, left + 2 * half, at + LINE / 2)
                if box.top >= 0 and box.bottom <= HEIGHT and not any(box.meets(other) for other in placed):
                    placed.append(box)
                    out.append((k, round(float(x)), round(at), anchor))
                    break
        return out

    @property
    def data(self) -> dict[str, Any]:
        """Data for the script: columns of equal length, one entry per point."""
        return {
            "width": WIDTH,
            "height": HEIGHT,
            "tile": self.map.sheet.tile,
            "columns": self.map.sheet.columns,
            "classes": [name[:40] for name in self.classes],
            "x": [round(float(x), 1) for x in self.xy[:, 0]],
            "y": [round(float(y), 1) for y in self.xy[:, 1]],
            "label": self.map.labels.tolist(),
            "confidence": [probability(p) for p in self.map.confidence],
            "name": self.map.names,
            "votes": self.map.votes,
        }


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        apart = self.right <= other.left or other.right <= self.left
        return not (apart or self.bottom <= other.top or other.bottom <= self.top)


def _anchor(x: float, half: float) -> str:
    """Return the text anchor that keeps a name inside the map."""
    return "start" if x < half else "end" if x > WIDTH - half else "middle"
