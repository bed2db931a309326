"""``crowdshot embed``: turn images into feature vectors."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

from crowdshot._cli.console import note, print_json
from crowdshot._cli.options import (
    AllowOutside,
    AsJson,
    Engine,
    EngineName,
    Processes,
    computing_option,
    input_option,
    method_option,
    output_option,
)
from crowdshot.errors import CrowdshotError
from crowdshot.progress import progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from crowdshot._cli.inputs import ItemFiles
    from crowdshot.encoders.encoder import Encoder


@dataclass(frozen=True)
class Embedded:
    """The numbers of images, features and classes (folders), what was left out, and the written file."""

    items: int
    features: int
    classes: int
    left_out: dict[str, list[str]]
    files: list[Path]


def run_embed(
    images: Path,
    encoder: str,
    out: Path,
    device: str = "auto",
    precision: str = "float32",
    skip_bad: bool = False,
    processes: int = 1,
    engine: str = "local",
    allow_outside: bool = False,
) -> Embedded:
    """Embed a folder of images and write ids, features and labels (the folder of each image) to an .npz file.

    Embeddings of earlier runs, including interrupted ones, are reused (`embedding_cache`). Features are written as they
    are computed, so the number of images is not limited by memory. ``processes`` and ``engine``: see `ItemFiles`.
    """
    import numpy as np

    from crowdshot._cli.inputs import ItemFiles
    from crowdshot.io.atomic import check_file, replacing

    check_file(out)
    if out.suffix.lower() not in ("", ".npz"):
        raise CrowdshotError(f"is {out}", argument="out", found=out, expected="a name that ends in .npz")
    with progress("loading the encoder"):
        network = _load_image_encoder(encoder, images, allow_outside)
    item_files = ItemFiles(images, skip_bad=skip_bad, processes=processes, engine=engine)
    item_files.embed_ahead(item_files.open().paths, network, precision)
    ids: list[str] = []
    unreadable: list[str] = []
    with tempfile.TemporaryFile(dir=out.absolute().parent) as raw:
        width = 0
        for names, features, bad in _pieces(item_files, network, device, precision):
            ids += names
            unreadable += bad
            if features is not None:
                width = features.shape[1]
                raw.write(features.tobytes())
        raw.flush()
        vectors = np.memmap(raw, np.float32, "r", shape=(len(ids), width))
        labels = np.array([PurePosixPath(name).parent.as_posix() for name in ids])
        with replacing(out) as temporary, temporary.open("wb") as file:
            np.savez(file, ids=np.array(ids), features=vectors, labels=labels)
    return Embedded(
        items=len(ids),
        features=width,
        classes=len(set(labels)),
        left_out={"unreadable images": unreadable} if unreadable else {},
        files=[out],
    )


def _load_image_encoder(name: str, images: Path, allow_outside: bool) -> Encoder:
    from crowdshot.encoders.encoder_files import load_encoder
    from crowdshot.encoders.image_input import list_images

    network = load_encoder(name, allow_outside)
    if network.input is None or network.input.kind != "images":
        list_images(images)  # report problems with the folder first
        message = f"is {name!r}, which does not take images"
        raise CrowdshotError(message, argument="encoder", found=name, expected="an encoder of images")
    return network


def _pieces(
    item_files: ItemFiles, network: Encoder, device: str, precision: str
) -> Iterator[tuple[list[str], NDArray[np.float32] | None, list[str]]]:
    """Yield the ids and features of the readable images, and the names of the unreadable ones."""
    import numpy as np

    from crowdshot.encoders.items import find_readable
    from crowdshot.encoders.networks import choose_device
    from crowdshot.io.embedding_store import embedding_cache

    with embedding_cache(), progress("embedding") as report_progress:
        for items, done, total in item_files.pieces(mixed=False):
            kept, bad = find_readable(items, item_files.skip_bad, lambda done, total: None, some=done == total)
            items, before = items.take(kept), done - len(items)
            features = None
            if len(items):
                embeddings = network.embed(
                    items.X,
                    device=choose_device(device),
                    progress=lambda n, _, before=before, total=total: report_progress(before + n, total),  # type: ignore[misc]
                    precision=precision,
                )
                features = embeddings.cpu().numpy().astype(np.float32)
            yield items.ids.tolist(), features, [image.name for image in bad]


EXAMPLES = """\b
Examples:
  crowdshot embed photos/ --encoder lite0 --out features.npz
  crowdshot train features.npz --hidden none --embedding 192 --out head.safetensors
"""


class EmbeddingPrecision(StrEnum):
    FLOAT32 = "float32"
    FLOAT16 = "float16"


def embed(
    images: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with one folder of images per class.")],
    encoder: Annotated[str, method_option(metavar="NAME|FILE", help="The encoder; see `crowdshot encoders`.")],
    out: Annotated[Path, output_option(metavar="FILE.npz", help="The file for ids, features and labels.")],
    device: Annotated[str, computing_option(metavar="auto|cpu|cuda", help="The device that embeds images.")] = "auto",
    precision: Annotated[
        EmbeddingPrecision,
        computing_option(help="float16: mixed precision on a GPU. It is faster, and features are nearly the same."),
    ] = EmbeddingPrecision.FLOAT32,
    skip_bad: Annotated[bool, input_option("--skip-bad", help="Leave out unreadable images.")] = False,
    allow_outside: AllowOutside = False,
    processes: Processes = 1,
    engine: EngineName = Engine.LOCAL,
    as_json: AsJson = False,
) -> None:
    """Turn images into feature vectors.

    The file can be given to `crowdshot train` and to `crowdshot adapt --features`. Embeddings of earlier runs are
    reused, including those of interrupted runs.
    """
    from crowdshot.report.summary import left_out

    result = run_embed(images, encoder, out, device, precision.value, skip_bad, processes, engine.value, allow_outside)
    for line in left_out(result.left_out):
        note(f"left out: {line}")
    if as_json:
        print_json(result)
    else:
        typer.echo(f"{result.items:,} images of {result.classes:,} classes, {result.features:,} features each: {out}")
