"""``crowdshot embed``: images -> feature vectors, once."""

from __future__ import annotations

import json
import tempfile
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

from crowdshot._cli.console import note
from crowdshot._cli.options import AsJson, Engine, EngineName, Processes
from crowdshot.errors import CrowdshotError
from crowdshot.progress import progress

if TYPE_CHECKING:
    from crowdshot._cli.inputs import Report


def run_embed(
    images: Path,
    encoder: str,
    out: Path,
    device: str = "auto",
    precision: str = "float32",
    skip_bad: bool = False,
    processes: int = 1,
    engine: str = "local",
) -> Report:
    """A folder of images -> an .npz with ids, features and labels (the folder each image lies in).

    What was embedded before, also by a run that was killed, is found again (`embedding_cache`). Features go to a file
    as they come, so that images may be as many as there are. ``processes``, ``engine``: as `ItemFiles` has them.
    """
    import numpy as np

    from crowdshot._cli.inputs import ItemFiles
    from crowdshot.encoders.encoder_files import load_encoder
    from crowdshot.encoders.image_input import list_images
    from crowdshot.encoders.items import find_readable
    from crowdshot.encoders.networks import choose_device
    from crowdshot.io.atomic import check_file, replacing
    from crowdshot.io.embedding_store import embedding_cache

    check_file(out)
    if out.suffix.lower() not in ("", ".npz"):
        raise CrowdshotError(f"{out} is to hold arrays of NumPy, expected a name that ends in .npz.")
    network = load_encoder(encoder)
    given = ItemFiles(images, skip_bad=skip_bad, processes=processes, engine=engine)
    if network.input is None or network.input.kind != "images":
        list_images(images)  # what is wrong with the folder comes first
        raise CrowdshotError(f"encoder is {encoder!r}, which takes no images, expected one that does.")
    given.embed_ahead(given.open().paths, network, precision)
    ids: list[str] = []
    bad: list[str] = []
    with embedding_cache(), progress("embedding") as far, tempfile.TemporaryFile(dir=out.absolute().parent) as raw:
        width = 0
        for items, done, total in given.pieces(mixed=False):
            kept, unreadable = find_readable(items, skip_bad, lambda done, total: None, some=done == total)
            bad += [image.name for image in unreadable]
            items, before = items.take(kept), done - len(items)
            ids += items.ids.tolist()
            if len(items):
                features = network.embed(
                    items.X,
                    device=choose_device(device),
                    progress=lambda n, _, before=before, total=total: far(before + n, total),  # type: ignore[misc]
                    precision=precision,
                )
                width = features.shape[1]
                raw.write(features.cpu().numpy().astype(np.float32).tobytes())
        raw.flush()
        vectors = np.memmap(raw, np.float32, "r", shape=(len(ids), width))
        labels = np.array([PurePosixPath(name).parent.as_posix() for name in ids])
        with replacing(out) as temporary, temporary.open("wb") as file:
            np.savez(file, ids=np.array(ids), features=vectors, labels=labels)
    return {
        "items": len(ids),
        "features": width,
        "classes": len(set(labels)),
        "left_out": {"unreadable images": bad} if bad else {},
        "files": [str(out)],
    }


EXAMPLES = """\b
Examples:
  crowdshot embed photos/ --encoder lite0 --out features.npz
  crowdshot train features.npz --hidden none --embedding 192 --out head.safetensors
"""


class EmbeddingPrecision(StrEnum):
    FLOAT32 = "float32"
    FLOAT16 = "float16"


def embed(
    images: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of class/image files.")],
    encoder: Annotated[str, typer.Option(metavar="NAME|FILE", help="What makes features of the images.")],
    out: Annotated[Path, typer.Option(metavar="FILE.npz", help="Where ids, features and labels go.")],
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda")] = "auto",
    precision: Annotated[
        EmbeddingPrecision,
        typer.Option(help="float16: mixed precision, on a GPU, which is faster and nearly the same."),
    ] = EmbeddingPrecision.FLOAT32,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out images that cannot be read.")] = False,
    processes: Processes = 1,
    engine: EngineName = Engine.LOCAL,
    as_json: AsJson = False,
) -> None:
    """Turn images into feature vectors once, to train on or to adapt with.

    What was embedded before is found again, also what a run left that was killed.
    """
    from crowdshot.report.summary import left_out

    report = run_embed(images, encoder, out, device, precision.value, skip_bad, processes, engine.value)
    for line in left_out(report["left_out"]):
        note(f"left out: {line}")
    told = f"{report['items']:,} images of {report['classes']:,} classes, {report['features']:,} features each: {out}"
    typer.echo(json.dumps(report) if as_json else told)
