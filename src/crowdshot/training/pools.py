"""Class pools -> episodes, sampled where the data lives.

A pool holds many classes with some examples each; an episode is a few of those classes, a few examples of
each as support and others as query. Drawing is a handful of tensor operations on the pool's device that never
wait for it, so that it can be part of a captured CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.image_input import ImageInput
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first, listing, show
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.indexing import Positions, positions
from crowdshot.labels.matching import rows_of
from crowdshot.progress import progress
from crowdshot.training.source_files import SourceItems


@dataclass(frozen=True, eq=False)
class ClassPool:
    """Examples by class.

    ``examples`` is (C, M, *shape); of class c the first ``counts[c]`` are real, the rest is padding,
    never drawn. ``names`` has one name for each class. ``crowd_labels`` (C, M, A) int, if any: what each of A real
    annotators said about an example, as a place in ``names``, -1 = nothing.

    >>> import torch
    >>> from crowdshot import ClassPool
    >>> pool = ClassPool.from_arrays(torch.eye(6), ["cat", "cat", "dog", "dog", "dog", "owl"])
    >>> pool.names, pool.counts.tolist()
    (('cat', 'dog', 'owl'), [2, 3, 1])
    """

    examples: Tensor
    counts: Tensor
    names: tuple[str, ...]
    crowd_labels: Tensor | None = None
    smallest: int = field(init=False)
    """Examples in the smallest class, known here so that sampling need not ask the device."""

    def __post_init__(self) -> None:
        n_classes = len(self.names)
        if self.examples.ndim < 2 or len(self.examples) != n_classes:
            found = tuple(self.examples.shape)
            raise CrowdshotError(f"examples is of shape {found}, expected ({n_classes}, M, ...) for {n_classes} names.")
        if self.counts.shape != (n_classes,):
            raise CrowdshotError(f"counts is of shape {tuple(self.counts.shape)}, expected ({n_classes},) as names.")
        if n_classes == 0:
            raise CrowdshotError("names is empty, expected one class at least.")
        low, high = int(self.counts.min()), int(self.counts.max())
        if low < 1 or high > self.examples.shape[1]:
            raise CrowdshotError(
                f"counts has {low if low < 1 else high} in it, expected 1 to {self.examples.shape[1]}, as many as a "
                "class has room for."
            )
        said = self.crowd_labels
        if said is not None and (said.ndim != 3 or said.shape[:2] != self.examples.shape[:2]):
            raise CrowdshotError(
                f"crowd_labels is of shape {tuple(said.shape)}, expected {tuple(self.examples.shape[:2])} and the "
                "number of annotators."
            )
        object.__setattr__(self, "smallest", low)

    @classmethod
    def from_lists(cls, examples: Mapping[str, Any]) -> ClassPool:
        """From each class's examples, name -> array or list of arrays (n, *shape); n may differ."""
        arrays = {name: torch.as_tensor(np.asarray(values)) for name, values in examples.items()}
        if not arrays:
            raise CrowdshotError("examples is empty, expected one class at least.")
        first_name, first = next(iter(arrays.items()))
        for name, array in arrays.items():
            if array.shape[1:] != first.shape[1:] or array.dtype != first.dtype:
                raise CrowdshotError(
                    f"class {name!r} has examples of shape {tuple(array.shape[1:])} and type {array.dtype}, "
                    f"expected {tuple(first.shape[1:])} and {first.dtype} as in class {first_name!r}."
                )
            if len(array) == 0:
                raise CrowdshotError(f"class {name!r} has no examples, expected one at least.")
        counts = torch.tensor([len(array) for array in arrays.values()])
        padded = first.new_zeros(len(arrays), int(counts.max()), *first.shape[1:])
        for row, array in zip(padded, arrays.values(), strict=True):
            row[: len(array)] = array
        return cls(padded, counts, tuple(arrays))

    @classmethod
    def from_arrays(cls, examples: Any, classes: Sequence[Any] | np.ndarray[Any, Any]) -> ClassPool:
        """From examples (n, *shape) and the class of each; classes come in sorted order."""
        examples, classes = np.asarray(examples), np.asarray(classes)
        if classes.shape != examples.shape[:1]:
            raise CrowdshotError(
                f"classes is of shape {classes.shape}, expected ({len(examples)},), the class of each example."
            )
        return cls.from_lists({str(name): examples[classes == name] for name in np.unique(classes)})

    def split(self, sizes: Sequence[int], seed: int) -> tuple[ClassPool, ...]:
        """Disjoint pools of so many classes each, chosen at random; classes left over belong to none."""
        if min(sizes, default=1) < 1 or sum(sizes) > len(self.names):
            raise CrowdshotError(
                f"sizes is {list(sizes)}, expected positive numbers that sum to {len(self.names)} at most, as many as "
                "there are classes."
            )
        order = torch.randperm(len(self.names), generator=torch.Generator().manual_seed(seed)).tolist()
        ends = np.cumsum(sizes).tolist()
        return tuple(self.take(order[end - size : end]) for size, end in zip(sizes, ends, strict=True))

    def take(self, classes: Sequence[int]) -> ClassPool:
        """The pool of these classes, in this order."""
        index = torch.tensor(classes, device=self.examples.device)
        labels = self.crowd_labels
        if labels is not None:  # which name classes by their place, and places change
            place = torch.full((len(self.names) + 1,), -1, dtype=labels.dtype, device=index.device)
            place[index] = torch.arange(len(index), dtype=labels.dtype, device=index.device)
            labels = place[labels[index].long()]  # -1 takes the last, which is -1
        return ClassPool(self.examples[index], self.counts[index], tuple(self.names[i] for i in classes), labels)

    def all_examples(self) -> Tensor:
        """(n, *shape), class by class, without padding."""
        return self.examples[torch.arange(self.examples.shape[1]) < self.counts[:, None]]

    def to(self, device: torch.device | str) -> ClassPool:
        labels = None if self.crowd_labels is None else self.crowd_labels.to(device)
        return replace(self, examples=self.examples.to(device), counts=self.counts.to(device), crowd_labels=labels)


Answers = NDArray[np.int16]
"""(N, A): what each of A annotators said of each of N items, as a place among the sorted classes; -1 = nothing."""


def pool_of(items: SourceItems, answers: Answers | None = None) -> ClassPool:
    """The pool of all items that have a class ("" is none), classes sorted and items in their order."""
    names = class_names(items)
    place_of = {name: place for place, name in enumerate(names)}
    place = np.array([place_of.get(name, -1) for name in items.classes or ()])
    order = np.argsort(place, kind="stable")[(place < 0).sum() :]  # by class, those of none left out
    counts = np.bincount(place[order], minlength=len(names))
    largest = int(counts.max(initial=0))
    nth = np.arange(len(order)) - np.repeat(counts.cumsum() - counts, counts)  # of its class's examples
    slot = torch.from_numpy(place[order] * largest + nth)
    examples = torch.empty(0)
    done = 0
    with progress("reading") as tick:
        for batch in items.load(order.tolist()):
            if done == 0:
                examples = batch.new_zeros(len(names) * largest, *batch.shape[1:])
            examples[slot[done : done + len(batch)]] = batch
            done += len(batch)
            tick(done, len(order))
    crowd = None
    if answers is not None:
        crowd = torch.full((len(names) * largest, answers.shape[1]), -1, dtype=torch.int16)
        crowd[slot] = torch.from_numpy(answers[order])
        crowd = crowd.view(len(names), largest, -1)
    examples = examples.view(len(names), largest, *examples.shape[1:])
    return ClassPool(examples, torch.from_numpy(counts), tuple(names), crowd)


def class_names(items: SourceItems) -> list[str]:
    return sorted({name for name in items.classes or () if name})


def paths_of(items: SourceItems) -> list[PurePosixPath]:
    """Items that are image files, by where each lies in its folder or zip."""
    return [PurePosixPath(str(name)) for name in items.ids]


def answers_of(annotations: Annotations, items: SourceItems, source: str) -> Answers:
    """Labels, which name items by file and classes by name, beside the items."""
    matched, _ = rows_of(annotations, np.array(paths_of(items), dtype=object), f"what {source} labels", "image")
    names = class_names(items)
    place = positions(np.array(names, dtype=object), annotations.classes)
    if (place < 0).any():
        stranger = show(annotations.classes[first(place < 0)])
        raise CrowdshotError(f"{source} has the label {stranger}, expected one of {listing(names)}.")
    return as_answers(matched, place)


def as_answers(matched: Annotations, place: Positions) -> Answers:
    """Labels of a pool's items; ``place`` (K,) is where the annotations' classes stand among the pool's, or -1."""
    answers = np.full((matched.n_items, matched.n_annotators), -1, dtype=np.int16)
    answers[matched.item, matched.annotator] = place[matched.label]
    return answers


def count_labels(pool: ClassPool) -> tuple[int, int]:
    """How many labels there are, and how many of them are right."""
    assert pool.crowd_labels is not None
    right = pool.crowd_labels == torch.arange(len(pool.names))[:, None, None]
    return int((pool.crowd_labels >= 0).sum()), int(right.sum())


# ---- network input ------------------------------------------------------------
#
# From a pool's entries, bytes or features, to what an encoder's network takes, on the device where they are.


def input_of(encoder: Encoder, device: torch.device) -> Callable[[Tensor], Tensor]:
    """What brings pool entries (G, n, ...) into the form a network takes.

    Bytes ([C,] H, W) become standardised floats (C, H, W); feature vectors stay as they are.
    """
    spec = encoder.input
    if not isinstance(spec, ImageInput):
        return Tensor.float
    mean, std = (torch.tensor(x, device=device)[:, None, None] for x in (spec.mean, spec.std))

    def standardise(stored: Tensor) -> Tensor:
        pixels = stored[:, :, None] if stored.ndim == 4 else stored
        return (pixels.float() / 255 - mean) / std

    return standardise
