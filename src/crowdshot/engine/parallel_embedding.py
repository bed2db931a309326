"""Embed images in several processes, or on a Ray cluster, and store the embeddings in the embedding cache.

The caller then reads them from the cache. Embeddings that were computed before a process was killed are kept.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.items import Items, find_readable
from crowdshot.engine.workers import environment, workers_of
from crowdshot.errors import CrowdshotError, Use
from crowdshot.formatting import first_line
from crowdshot.io.embedding_store import VARIABLE, embedding_cache
from crowdshot.progress import progress

TASK = 500  # images per task


def embed_ahead(
    images: Sequence[Path], encoder: Encoder, n: int, engine: str = "local", precision: str = "float32"
) -> None:
    """Embed images with ``n`` workers of one core each; unreadable images are skipped and left to the caller."""
    with embedding_cache() as folder:
        if folder is None:
            raise CrowdshotError(
                f"is {n}, but the embedding cache is switched off",
                argument="processes",
                found=n,
                hint=f"Set the environment variable {VARIABLE} to a folder",
            )
    tasks = [list(images[start : start + TASK]) for start in range(0, len(images), TASK)]
    encoder.module.to("cpu")
    with environment(), tempfile.TemporaryDirectory() as exchange, progress("embedding in processes") as tick:
        workers = workers_of(engine, n, Path(exchange))
        try:
            for done, _ in enumerate(workers.each(embed_some, tasks, encoder, folder.absolute(), precision), 1):
                tick(min(done * TASK, len(images)), len(images))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            reason = first_line(error) or type(error).__name__
            raise CrowdshotError(
                f"cannot be sent to other processes ({reason})",
                argument="encoder",
                hint=Use("to embed in this process", processes=1),
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
