"""Open a source of training data as a class pool (`open_source`).

    glyphs                     drawn characters (`crowdshot.training.glyphs`); no download
    a folder or zip            class/image files at any depth: an image's folder is its class
    an .npz file               images (N, H, W[, C]) or features (N, D), with labels (N,)
    a table of features        classes are the annotators' consensus

Labels of real annotators may be passed with a source. They replace simulated labels, and if the source has no classes,
their consensus defines the classes.
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
from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.formatting import listing
from crowdshot.io.cells import Positions
from crowdshot.labels import aggregation
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.matching import rows_of
from crowdshot.training.pools import Answers, ClassPool, as_answers, pool_of
from crowdshot.training.source_files import CHARACTERS, SourceItems, find_items

HELD_OUT = 0.15  # share of the classes for validation
FEWEST = 2  # validation classes, at least
ENOUGH = 10  # classes of a validation episode, at most, however many a training episode has
GLYPH_EXAMPLES = 20
TURNS = (0, 1, 2, 3)  # quarter turns of rotated classes


@dataclass(frozen=True, eq=False)
class TrainingData:
    """A pool, the input specification of an encoder for it, and a description for the encoder's card.

    Class i of the first ``n_upright``, rotated by t quarter turns, is class i + t · n_upright.
    """

    pool: ClassPool
    input: ImageInput | FeatureInput
    n_upright: int
    description: dict[str, Any] = field(default_factory=dict)

    def most_labelings(self, validation: int | None = None, test: int = 0) -> int:
        """Return the largest number of classes that a training episode can have."""
        return self.n_upright - (FEWEST if validation is None else validation) - test

    def split(
        self, ways: int, seed: int, validation: int | None = None, test: int = 0
    ) -> tuple[list[int], list[int], list[int]]:
        """Divide the classes at random into training, validation and test classes.

        Rotated classes are used for training only. By default about one class in seven is for validation, or as many
        as an episode needs, if there are enough.
        """
        n = self.n_upright
        name, most = self.description.get("name", "the source"), n - ways - test
        if not FEWEST <= (most if validation is None else validation) <= most:
            n_validation = FEWEST if validation is None else validation
            most_ways = n - n_validation - test
            raise CrowdshotError(
                f"has {n} usable classes",
                where=name,
                found=n,
                expected=f"at least {ways} for training, {n_validation} for validation and {test} for testing",
                hint=Use("for episodes with fewer classes", ways=most_ways) if most_ways >= 2 else None,
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
    """Open a source of training data.

    Parameters
    ----------
    source : str
        "glyphs" or a path.
    image_size : int, optional
        Height and width in pixels. The default is 28 for grey images, which are treated as characters, and 84 for
        colour images.
    at_least : int
        Examples that a class must have to be used.
    rotate_classes : bool
        Whether every class rotated by 90, 180 and 270 degrees is another class.
    annotations : Annotations, optional
        Labels of real annotators.
    terms : str, optional
        The licence of the data, for the encoder's card.
    """
    if source == "glyphs":
        if annotations is not None:
            raise CrowdshotError("cannot be used with glyphs, which are drawn at random", argument="annotations")
        from crowdshot.training.glyphs import glyph_pool  # imports matplotlib, which is slow

        size = image_size or CHARACTERS
        pool = glyph_pool(n_examples=max(GLYPH_EXAMPLES, at_least), size=size)
        found = TrainingData(pool, ImageInput((size, size), 1, ink=True), len(pool.names))
        terms = terms or "drawn from the fonts that come with matplotlib"
    else:
        found = _from_items(source, find_items(source, image_size), annotations, at_least)
    pool = _rotated(found.pool) if rotate_classes else found.pool
    description = {
        "name": PurePosixPath(Path(source).as_posix()).name,
        "classes": len(pool.names),
        "examples": int(pool.counts.sum()),
        "items": found.input.describe(),
        "terms": terms,
        **found.description,
    }
    return replace(found, pool=pool, description=description)


def _rotated(pool: ClassPool) -> ClassPool:
    if pool.examples.ndim < 4:
        raise CrowdshotError(
            "is True, but the source has feature vectors", argument="rotate_classes", found=True, expected="images"
        )
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
                "has no classes",
                where=source,
                expected="a folder for each class, an array 'labels', or labels of annotators",
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
    """Return the sorted names of classes with at least so many examples; "" is no class."""
    found, counts = np.unique(np.array([name for name in classes if name], dtype=object), return_counts=True)
    small = counts < at_least
    if small.all():
        largest = int(counts.max(initial=0))
        raise CrowdshotError(
            f"has {len(found)} classes, of which the largest has {largest} examples",
            where=source,
            found=largest,
            expected=f"at least {at_least} examples, the number of shots and queries together",
        )
    if small.any():
        warnings.warn(
            CrowdshotWarning(
                f"{small.sum()} of {len(found)} classes left out, because they have fewer than {at_least} examples",
                where=source,
                found=[str(name) for name in found[small][:10]],
                hint=f"An episode needs {at_least} examples per class, for shots and queries together",
            ),
            stacklevel=2,
        )
    return [str(name) for name in found[~small]]


# ---- labels of real annotators ----


def _match(annotations: Annotations, items: SourceItems, source: str) -> Annotations:
    """Return the labels with the source's items, by position."""
    ids = np.array(items.ids, dtype=object)
    named = replace(annotations, items=np.array([str(name) for name in annotations.items], dtype=object))
    matched, missing = rows_of(named, ids, source, lost="leave out")
    if missing:
        warnings.warn(
            CrowdshotWarning(
                f"Labels of {len(missing)} of {annotations.n_items} items left out: the items are not in {source}",
                argument="annotations",
                found=[str(item) for item in missing[:10]],
            ),
            stacklevel=2,
        )
    return replace(matched, items=np.arange(len(items)))


def _answers(matched: Annotations, items: SourceItems, names: list[str], source: str) -> Answers:
    """Return labels as indices of the classes in use. A label may be a class's path or its last folder."""
    class_of = _class_indices([str(name) for name in matched.classes], names)
    label = class_of[matched.label]
    if (label < 0).all():
        raise CrowdshotError(
            f"has the labels {listing(matched.classes, 3)}",
            argument="annotations",
            found=[str(name) for name in matched.classes[:10]],
            expected=f"classes of {source}, such as {listing(names, 3)}",
        )
    of_a_class = np.array([bool(name) for name in items.classes or ()])
    n_used = int(((label >= 0) & of_a_class[matched.item]).sum())
    if n_used < len(label):
        warnings.warn(
            CrowdshotWarning(
                f"{len(label) - n_used} of {len(label)} labels left out, because the label, or the class of its item, "
                f"is not a class in use of {source}",
                argument="annotations",
            ),
            stacklevel=2,
        )
    return as_answers(matched, class_of)


def _class_indices(labels: list[str], names: list[str]) -> Positions:
    """Return each label's index in ``names``, or -1 if it is unknown or names a last folder of several classes."""
    place: dict[str, int] = {}
    for i, name in enumerate(names):
        last = name.rpartition("/")[2]
        place[last] = -1 if last in place else i
    place |= {name: i for i, name in enumerate(names)}
    return np.array([place.get(label, -1) for label in labels])
