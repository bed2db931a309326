"""Tiny-ImageNet-100: 100 classes of Tiny-ImageNet, a stand-in where miniImageNet is not to be had.

miniImageNet has 100 classes with 600 images of 84×84 pixels; this has fewer images, of 64×64 pixels brought to 84×84,
and not the same classes. Results on it are results on it, never on miniImageNet.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crowdshot.training.pools import ClassPool, pool_of
from crowdshot.training.source_files import find_items
from crowdshot_paper.datasets.dataset_files import COLOUR, Loader, Part


def read(paths: Sequence[Path]) -> ClassPool:
    """Classes are called by their WordNet id, as the folders are."""
    return pool_of(find_items(str(paths[0]), COLOUR.size[0]))


LOADER = Loader(
    folder="tiny-imagenet-100",
    parts=(
        Part(
            ("images.zip", "images"),
            "choose 100 classes of Tiny-ImageNet (http://cs231n.stanford.edu/tiny-imagenet-200.zip, under ImageNet's "
            "terms) and put their images there as images/<class>/<file>.JPEG",
        ),
    ),
    input=COLOUR,
    read=read,
    note=lambda pool: (
        f"{len(pool.names)} classes of Tiny-ImageNet with {pool.smallest} images each, 64×64 brought to 84×84: a "
        "stand-in for the paper's miniImageNet (100 classes with 600 images each), whose results it cannot give."
    ),
)
