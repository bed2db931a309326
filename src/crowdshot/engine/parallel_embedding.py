"""Images embedded ahead, by several processes or a Ray cluster, into the cache of embeddings, where whoever asks next
finds them: one that is killed has kept what it did."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.items import Items, find_readable
from crowdshot.engine.workers import environment, workers_of
from crowdshot.errors import CrowdshotError
from crowdshot.io.embedding_store import VARIABLE, embedding_cache
from crowdshot.progress import progress

TASK = 500  # images


def embed_ahead(
    images: Sequence[Path], encoder: Encoder, n: int, engine: str = "local", precision: str = "float32"
) -> None:
    """By ``n`` processes of one core each, or as many actors of a cluster; what cannot be read is left to others."""
    with embedding_cache() as folder:
        if folder is None:
            raise CrowdshotError(f"processes is {n}, but {VARIABLE} is empty, expected a folder for what they make.")
    tasks = [list(images[start : start + TASK]) for start in range(0, len(images), TASK)]
    encoder.module.to("cpu")
    with environment(), tempfile.TemporaryDirectory() as given, progress("embedding in processes") as tick:
        workers = workers_of(engine, n, Path(given))
        try:
            for done, _ in enumerate(workers.each(embed_some, tasks, encoder, folder.absolute(), precision), 1):
                tick(min(done * TASK, len(images)), len(images))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise CrowdshotError(
                f"encoder cannot be sent to other processes ({reason}), expected one that can; processes=1 needs none."
            ) from None
        finally:
            workers.close()


def embed_some(images: list[Path], encoder: Encoder, folder: Path, precision: str) -> None:
    ids = np.array([path.name for path in images], dtype=object)
    items = Items("images", "", ids, images, are_files=True)
    with embedding_cache(folder):
        readable, _ = find_readable(items, skip=True, tick=lambda done, total: None, some=False)
        if len(readable):
            encoder.embed(items.take(readable).X, precision=precision)
