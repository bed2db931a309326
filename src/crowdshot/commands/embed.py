"""``crowdshot embed``: images -> feature vectors, once."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import numpy as np

from crowdshot.commands.counts import Report
from crowdshot.encoders.devices import choose_device
from crowdshot.encoders.images import list_images
from crowdshot.encoders.saved import load_encoder
from crowdshot.errors import CrowdshotError
from crowdshot.files.embedding_store import embedding_cache
from crowdshot.files.whole import check_file, replacing
from crowdshot.progress import progress


def embed(images: Path, encoder: str, out: Path, device: str = "auto", precision: str = "float32") -> Report:
    """A folder of images -> an .npz with ids, features and labels (the folder each image lies in).

    What was embedded before, also by a run that was killed, is found again (`embedding_cache`).
    """
    check_file(out)
    if out.suffix.lower() not in ("", ".npz"):
        raise CrowdshotError(f"{out} is to hold arrays of NumPy, expected a name that ends in .npz.")
    network = load_encoder(encoder)
    files = list_images(images)
    if network.input is None or network.input.kind != "images":
        raise CrowdshotError(f"encoder is {encoder!r}, which takes no images, expected one that does.")
    with embedding_cache(), progress("embedding") as tick:
        features = network.embed(files, device=choose_device(device), progress=tick, precision=precision).cpu().numpy()
    ids = np.array(list(files))
    labels = np.array([PurePosixPath(name).parent.as_posix() for name in files])
    with replacing(out) as temporary, temporary.open("wb") as file:
        np.savez(file, ids=ids, features=features, labels=labels)
    return {"items": len(ids), "features": features.shape[1], "classes": len(set(labels)), "files": [str(out)]}
