"""Hold many classes with some examples each (`ClassPool`), from which episodes are drawn.

An episode has a few of the classes, with some examples of each as support and others as queries. Episodes are drawn
with tensor operations on the pool's device that never wait for it, so that they can be part of a captured CUDA graph
(`crowdshot.training.episodes`).
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
from crowdshot.io.cells import Positions, positions
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.matching import rows_of
from crowdshot.progress import progress
from crowdshot.training.source_files import SourceItems


@dataclass(frozen=True, eq=False)
class ClassPool:
    """Examples by class.

    Parameters
    ----------
    examples : Tensor
        (C, M, *shape). The first ``counts[c]`` examples of class c are used; the rest is padding.
    counts : Tensor
        (C,) int, the number of examples of each class.
    names : tuple of str
        The names of the classes.
    crowd_labels : Tensor, optional
        (C, M, A) int, labels of A real annotators as indices of ``names``; -1 is a missing label.

    Examples
    --------
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
    """Examples in the smallest class; stored so that sampling does not wait for the device."""

    def __post_init__(self) -> None:
        n_classes = len(self.names)
        if self.examples.ndim < 2 or len(self.examples) != n_classes:
            found = tuple(self.examples.shape)
            raise _wrong_shape("examples", found, f"({n_classes}, M, ...) for {n_classes} names")
        if self.counts.shape != (n_classes,):
            raise _wrong_shape("counts", tuple(self.counts.shape), f"({n_classes},) as names")
        if n_classes == 0:
            raise CrowdshotError("is empty", argument="names", expected="at least one class")
        low, high = int(self.counts.min()), int(self.counts.max())
        if low < 1 or high > self.examples.shape[1]:
            wrong = low if low < 1 else high
            raise CrowdshotError(
                f"has the value {wrong}",
                argument="counts",
                found=wrong,
                expected=f"1 to {self.examples.shape[1]}, the second dimension of examples",
            )
        labels = self.crowd_labels
        if labels is not None and (labels.ndim != 3 or labels.shape[:2] != self.examples.shape[:2]):
            C, M = self.examples.shape[:2]
            raise _wrong_shape("crowd_labels", tuple(labels.shape), f"({C}, {M}, A) for A annotators")
        object.__setattr__(self, "smallest", low)

    @classmethod
    def from_lists(cls, examples: Mapping[str, Any]) -> ClassPool:
        """Make a pool from {name: array or list of arrays (n, *shape)}; n may differ between classes."""
        arrays = {name: torch.as_tensor(np.asarray(values)) for name, values in examples.items()}
        if not arrays:
            raise CrowdshotError("is empty", argument="examples", expected="at least one class")
        first_name, first = next(iter(arrays.items()))
        for name, array in arrays.items():
            if array.shape[1:] != first.shape[1:] or array.dtype != first.dtype:
                shape = tuple(array.shape[1:])
                raise CrowdshotError(
                    f"Class {name!r} has examples of shape {shape} and type {array.dtype}",
                    argument="examples",
                    found=(shape, str(array.dtype)),
                    expected=f"{tuple(first.shape[1:])} and {first.dtype} as in class {first_name!r}",
                )
            if len(array) == 0:
                raise CrowdshotError(f"Class {name!r} has no examples", argument="examples", found=name)
        counts = torch.tensor([len(array) for array in arrays.values()])
        padded = first.new_zeros(len(arrays), int(counts.max()), *first.shape[1:])
        for row, array in zip(padded, arrays.values(), strict=True):
            row[: len(array)] = array
        return cls(padded, counts, tuple(arrays))

    @classmethod
    def from_arrays(cls, examples: Any, classes: Sequence[Any] | np.ndarray[Any, Any]) -> ClassPool:
        """Make a pool from examples (n, *shape) and the class of each; classes are sorted."""
        examples, classes = np.asarray(examples), np.asarray(classes)
        if classes.shape != examples.shape[:1]:
            raise _wrong_shape("classes", classes.shape, f"({len(examples)},), the class of each example")
        return cls.from_lists({str(name): examples[classes == name] for name in np.unique(classes)})

    def split(self, sizes: Sequence[int], seed: int) -> tuple[ClassPool, ...]:
        """Divide the classes at random into pools of the given numbers of classes; the rest is left out."""
        if min(sizes, default=1) < 1 or sum(sizes) > len(self.names):
            raise CrowdshotError(
                f"is {list(sizes)}",
                argument="sizes",
                found=list(sizes),
                expected=f"positive numbers with a sum of at most {len(self.names)}, the number of classes",
            )
        order = torch.randperm(len(self.names), generator=torch.Generator().manual_seed(seed)).tolist()
        ends = np.cumsum(sizes).tolist()
        return tuple(self.take(order[end - size : end]) for size, end in zip(sizes, ends, strict=True))

    def take(self, classes: Sequence[int]) -> ClassPool:
        """Return the pool of these classes, in this order."""
        index = torch.tensor(classes, device=self.examples.device)
        labels = self.crowd_labels
        if labels is not None:  # labels are indices of classes, which change
            place = torch.full((len(self.names) + 1,), -1, dtype=labels.dtype, device=index.device)
            place[index] = torch.arange(len(index), dtype=labels.dtype, device=index.device)
            labels = place[labels[index].long()]  # index -1 selects the last element, which is -1
        return ClassPool(self.examples[index], self.counts[index], tuple(self.names[i] for i in classes), labels)

    def all_examples(self) -> Tensor:
        """Return all examples (n, *shape), class by class, without padding."""
        return self.examples[torch.arange(self.examples.shape[1]) < self.counts[:, None]]

    def to(self, device: torch.device | str) -> ClassPool:
        labels = None if self.crowd_labels is None else self.crowd_labels.to(device)
        return replace(self, examples=self.examples.to(device), counts=self.counts.to(device), crowd_labels=labels)


Answers = NDArray[np.int16]
"""(N, A) labels of A annotators for N items, as indices of the sorted classes; -1 is a missing label."""


def _wrong_shape(argument: str, found: tuple[int, ...], expected: str) -> CrowdshotError:
    return CrowdshotError(f"has the shape {found}", argument=argument, found=found, expected=expected)


def pool_of(items: SourceItems, answers: Answers | None = None) -> ClassPool:
    """Read all items that have a class ("" is no class) into a pool with sorted classes."""
    names = class_names(items)
    place_of = {name: place for place, name in enumerate(names)}
    place = np.array([place_of.get(name, -1) for name in items.classes or ()])
    order = np.argsort(place, kind="stable")[(place < 0).sum() :]  # by class, without items that have none
    counts = np.bincount(place[order], minlength=len(names))
    largest = int(counts.max(initial=0))
    nth = np.arange(len(order)) - np.repeat(counts.cumsum() - counts, counts)  # index among the examples of its class
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
    """Return the items' paths in their folder or zip."""
    return [PurePosixPath(str(name)) for name in items.ids]


def answers_of(annotations: Annotations, items: SourceItems, source: str) -> Answers:
    """Match labels to the items of a pool, by file name and class name."""
    matched, _ = rows_of(annotations, np.array(paths_of(items), dtype=object), f"what {source} labels", "image")
    names = class_names(items)
    place = positions(np.array(names, dtype=object), annotations.classes)
    if (place < 0).any():
        unknown = annotations.classes[first(place < 0)]
        raise CrowdshotError(
            f"has the label {show(unknown)}", where=source, found=unknown, expected=f"one of {listing(names)}"
        )
    return as_answers(matched, place)


def as_answers(matched: Annotations, place: Positions) -> Answers:
    """Return labels as an array; ``place`` (K,) maps the annotations' classes to the pool's, or to -1."""
    answers = np.full((matched.n_items, matched.n_annotators), -1, dtype=np.int16)
    answers[matched.item, matched.annotator] = place[matched.label]
    return answers


def count_labels(pool: ClassPool) -> tuple[int, int]:
    """Return the number of labels, and the number of correct ones."""
    assert pool.crowd_labels is not None
    right = pool.crowd_labels == torch.arange(len(pool.names))[:, None, None]
    return int((pool.crowd_labels >= 0).sum()), int(right.sum())


def input_of(encoder: Encoder, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return a function that converts pool entries (G, n, ...) to the network's input, on their device.

    Images as bytes ([C,] H, W) become standardised floats (C, H, W); feature vectors are not changed.
    """
    spec = encoder.input
    if not isinstance(spec, ImageInput):
        return Tensor.float
    mean, std = (torch.tensor(x, device=device)[:, None, None] for x in (spec.mean, spec.std))

    def standardise(stored: Tensor) -> Tensor:
        pixels = stored[:, :, None] if stored.ndim == 4 else stored
        return (pixels.float() / 255 - mean) / std

    return standardise
