"""Omniglot: Lake et al., Human-level concept learning through probabilistic program induction, 2015.

Characters of many alphabets, each drawn once by 20 people, black on white. They are read as 28×28 pixels, white on
black.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crowdshot.io.downloads import Download
from crowdshot.training.pools import ClassPool, pool_of
from crowdshot.training.source_files import find_items
from crowdshot_paper.datasets.dataset_files import INK, Loader, Part

ADDRESS = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python"


def read(paths: Sequence[Path]) -> ClassPool:
    """Read the drawings; the name of a class is alphabet/character."""
    return pool_of(find_items(str(paths[0]), INK.size[0]))


def _part(name: str, md5: str) -> Part:
    url = f"{ADDRESS}/{name}.zip"
    return Part((f"{name}.zip", name), f"get {url}", Download(url, f"md5:{md5}"))


BACKGROUND = Loader(
    folder="omniglot",
    parts=(_part("images_background", "68d2efa1b9178cc56df9314c21c6e718"),),
    input=INK,
    read=read,
    note=lambda pool: (
        f"Omniglot's background set, {len(pool.names)} characters with {pool.smallest} drawings each, as in the paper "
        "(964 with 20; its 50 alphabets include those of the evaluation set, the background set has 30)."
    ),
)

EVALUATION = Loader(
    folder="omniglot",
    parts=(_part("images_evaluation", "6b91aef0f799c5bb55b94e3f2daec811"),),
    input=INK,
    read=read,
    note=lambda pool: (
        f"Omniglot's evaluation set, {len(pool.names)} characters with {pool.smallest} drawings each, which the paper "
        "does not use."
    ),
)
