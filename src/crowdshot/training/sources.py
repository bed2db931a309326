"""Where meta-training's classes come from: `open_source` makes a class pool of whatever a user has.

    glyphs                     drawn characters (`crowdshot.training.glyphs`), nothing to download
    a folder, a zip            of class/image files at any depth: the class is the folder an image lies in
    an .npz                    images (N, H, W[, C]) or features (N, D), with labels (N,)
    a table of features        its classes are what annotators agree on

Labels of real annotators may come with it. They then stand in for the simulated ones; and where a source does not say
what its items are, its classes are the annotators' consensus.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.encoders.image_input import ImageInput
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing
from crowdshot.labels import aggregation
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.indexing import Positions
from crowdshot.labels.matching import rows_of
from crowdshot.training.pools import Answers, ClassPool, as_answers, pool_of
from crowdshot.training.source_files import CHARACTERS, SourceItems, find_items

HELD_OUT = 0.15  # of the classes, for validation
FEWEST = 2  # classes to validate on
ENOUGH = 10  # that an episode of validation needs, however many classes one of training has
GLYPH_EXAMPLES = 20
TURNS = (0, 1, 2, 3)  # quarter turns


@dataclass(frozen=True, eq=False)
class TrainingData:
    """A pool, what an encoder for it is fed, and what a card says of it.

    Class i of the first ``n_upright``, turned t times, is class i + t · n_upright.
    """

    pool: ClassPool
    input: ImageInput | FeatureInput
    n_upright: int
    description: dict[str, Any] = field(default_factory=dict)

    def most_labelings(self, validation: int | None = None, test: int = 0) -> int:
        """Of an episode to learn from."""
        return self.n_upright - (FEWEST if validation is None else validation) - test

    def split(
        self, ways: int, seed: int, validation: int | None = None, test: int = 0
    ) -> tuple[list[int], list[int], list[int]]:
        """Classes to learn from, to validate on and to test on, chosen by the seed; turned ones are only learned from.

        Without a number, validation takes about one class in seven, and enough for an episode if there are so many.
        """
        n = self.n_upright
        name, most = self.description.get("name", "the source"), n - ways - test
        if not FEWEST <= (most if validation is None else validation) <= most:
            raise CrowdshotError(
                f"{name} has {n} classes that can be used, expected enough for {ways} or more to learn from, "
                f"{validation or FEWEST} to validate on and {test} to test on; a smaller ways= needs fewer."
            )
        held_out = min(max(min(ways, ENOUGH), round(HELD_OUT * n)), most) if validation is None else validation
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()
        kept = sorted(order[held_out + test :])
        turned = [i + start for start in range(0, len(self.pool.names), n) for i in kept]
        return turned, sorted(order[:held_out]), sorted(order[held_out : held_out + test])


def open_source(
    source: str,
    *,
    image_size: int | None = None,
    at_least: int = 1,
    rotate_classes: bool = False,
    annotations: Annotations | None = None,
    terms: str | None = None,
) -> TrainingData:
    """The pool of a source, by its name or path.

    ``image_size``: pixels a side; else 28 for grey images, which are taken for characters, and 84 for colour. Classes
    with fewer than ``at_least`` examples are left out. ``rotate_classes``: every class turned by 90, 180 and 270
    degrees is a class of its own.
    """
    if source == "glyphs":
        if annotations is not None:
            raise CrowdshotError("annotations is given with glyphs, expected None, as these are drawn anew.")
        from crowdshot.training.glyphs import glyph_pool  # brings matplotlib, which takes its time

        size = image_size or CHARACTERS
        pool = glyph_pool(n_examples=max(GLYPH_EXAMPLES, at_least), size=size)
        found = TrainingData(pool, ImageInput((size, size), 1, ink=True), len(pool.names))
        terms = terms or "drawn from the fonts that come with matplotlib"
    else:
        found = _from_items(source, find_items(source, image_size), annotations, at_least)
    pool = _turned(found.pool) if rotate_classes else found.pool
    description = {
        "name": PurePosixPath(Path(source).as_posix()).name,
        "classes": len(pool.names),
        "examples": int(pool.counts.sum()),
        "items": found.input.describe(),
        "terms": terms,
        **found.description,
    }
    return replace(found, pool=pool, description=description)


def _turned(pool: ClassPool) -> ClassPool:
    if pool.examples.ndim < 4:
        raise CrowdshotError("rotate_classes is True, expected False, as the source holds feature vectors.")
    n = len(pool.names)
    examples = torch.cat([torch.rot90(pool.examples, turn, (-2, -1)) for turn in TURNS])
    names = tuple(f"{name}, {90 * turn}°" if turn else name for turn in TURNS for name in pool.names)
    crowd = pool.crowd_labels
    if crowd is not None:
        crowd = torch.cat([torch.where(crowd >= 0, crowd + turn * n, -1) for turn in TURNS])
    return ClassPool(examples, pool.counts.repeat(len(TURNS)), names, crowd)


def _from_items(source: str, items: SourceItems, annotations: Annotations | None, at_least: int) -> TrainingData:
    classes, extra = items.classes, {}
    matched = None if annotations is None else _match(annotations, items, source)
    if classes is None:
        if matched is None:
            raise CrowdshotError(
                f"{source} has no classes for its items, expected a folder for each class, an array called labels, "
                "or annotations."
            )
        consensus = aggregation.one_coin(matched)
        labelled = np.bincount(matched.item, minlength=len(items)) > 0
        classes = [str(name) if known else "" for name, known in zip(consensus.labels, labelled, strict=True)]
        extra["truth"] = "the annotators' consensus, by one-coin"
    names = _large_enough(classes, at_least, source)
    kept = set(names)
    items = replace(items, classes=[name if name in kept else "" for name in classes])
    answers = None
    if matched is not None:
        answers = _answers(matched, items, names, source)
        extra["annotators"] = f"{matched.n_annotators}, real"
    return TrainingData(pool_of(items, answers), items.input, len(names), extra)


def _large_enough(classes: list[str], at_least: int, source: str) -> list[str]:
    """The names of classes with so many examples, sorted; "" is no class."""
    found, counts = np.unique(np.array([name for name in classes if name], dtype=object), return_counts=True)
    small = counts < at_least
    if small.all():
        raise CrowdshotError(
            f"{source} has {len(found)} classes, the largest of {counts.max(initial=0)} examples, expected {at_least} "
            "at least, as many as shots and queries together."
        )
    if small.any():
        warnings.warn(
            f"{source}: {small.sum()} of {len(found)} classes left out, because they have fewer than {at_least} "
            "examples, which shots and queries together need.",
            UserWarning,
            stacklevel=2,
        )
    return [str(name) for name in found[~small]]


# ---- labels of real annotators ------------------------------------------------------------------------------------


def _match(annotations: Annotations, items: SourceItems, source: str) -> Annotations:
    """The same labels, but their items are the source's, by position."""
    ids = np.array(items.ids, dtype=object)
    named = replace(annotations, items=np.array([str(name) for name in annotations.items], dtype=object))
    matched, missing = rows_of(named, ids, source, lost="leave out")
    if missing:
        warnings.warn(
            f"annotations: {len(missing)} of the {annotations.n_items} labelled items are not in {source}; their labels"
            " are left out.",
            UserWarning,
            stacklevel=2,
        )
    return replace(matched, items=np.arange(len(items)))


def _answers(matched: Annotations, items: SourceItems, names: list[str], source: str) -> Answers:
    """Labels as places among the classes used, ``names``. A label may be a class's path or its last folder."""
    class_of = _class_places([str(name) for name in matched.classes], names)
    label = class_of[matched.label]
    if (label < 0).all():
        raise CrowdshotError(
            f"annotations has the labels {listing(matched.classes, 3)}, expected some of the classes of {source}, "
            f"{listing(names, 3)}."
        )
    of_a_class = np.array([bool(name) for name in items.classes or ()])
    n_used = int(((label >= 0) & of_a_class[matched.item]).sum())
    if n_used < len(label):
        warnings.warn(
            f"annotations: {len(label) - n_used} of {len(label)} labels left out, because they name no class that "
            f"is used of {source}, or an item of none.",
            UserWarning,
            stacklevel=2,
        )
    return as_answers(matched, class_of)


def _class_places(labels: list[str], names: list[str]) -> Positions:
    """Where in ``names`` each label stands, -1 where nowhere; a last folder that two classes share means neither."""
    place: dict[str, int] = {}
    for i, name in enumerate(names):
        last = name.rpartition("/")[2]
        place[last] = -1 if last in place else i
    place |= {name: i for i, name in enumerate(names)}
    return np.array([place.get(label, -1) for label in labels])
