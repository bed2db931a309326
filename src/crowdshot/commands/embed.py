"""``crowdshot embed``: images -> feature vectors, once."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import numpy as np

from crowdshot.commands.counts import Report
from crowdshot.encoders.devices import choose_device
from crowdshot.encoders.images import list_images
from crowdshot.encoders.saved import load_encoder
from crowdshot.errors import CrowdshotError
from crowdshot.files.whole import check_file, replacing
from crowdshot.progress import progress


def embed(images: Path, encoder: str, out: Path, device: str = "auto") -> Report:
    """A folder of images -> an .npz with ids, features and labels (the folder each image lies in)."""
    check_file(out)
    if out.suffix.lower() not in ("", ".npz"):
        raise CrowdshotError(f"{out} is to hold arrays of NumPy, expected a name that ends in .npz.")
    network = load_encoder(encoder)
    files = list_images(images)
    with progress("embedding") as tick:
        features = network.embed(files, device=choose_device(device), progress=tick).cpu().numpy()
    ids = np.array(list(files))
    labels = np.array([PurePosixPath(name).parent.as_posix() for name in files])
    with replacing(out) as temporary, temporary.open("wb") as file:
        np.savez(file, ids=ids, features=features, labels=labels)
    return {"items": len(ids), "features": features.shape[1], "classes": len(set(labels)), "files": [str(out)]}
