"""``crowdshot embed``: images -> feature vectors, once."""

from __future__ import annotations

import tempfile
from pathlib import Path, PurePosixPath

import numpy as np

from crowdshot.commands.counts import Report
from crowdshot.commands.given import ItemFiles
from crowdshot.encoders.devices import choose_device
from crowdshot.encoders.images import list_images
from crowdshot.encoders.items import find_readable
from crowdshot.encoders.saved import load_encoder
from crowdshot.errors import CrowdshotError
from crowdshot.files.embedding_store import embedding_cache
from crowdshot.files.whole import check_file, replacing
from crowdshot.progress import progress


def embed(
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
