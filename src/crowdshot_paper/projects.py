"""Read finished projects, whose truth is known, and draw training crowds for the label model from them.

A draw has some of the project's items, sometimes only some of its annotators, and a limited number of labels per item.
A few dozen projects therefore give thousands of different crowds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing, plural
from crowdshot.io.cells import Positions
from crowdshot.labels import gold_labels
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.formats import read_labels
from crowdshot.training.simulated_crowds import Crowds

ITEMS = (20, 500)  # the number of items with known truth in a draw, log-uniform
UNKNOWN = 3  # items of unknown truth per item of known truth, if the truth is known for less than half of the items
SOME_ANNOTATORS = 0.4  # the probability that a draw leaves annotators out
SHARE_OF_ANNOTATORS = (0.2, 1.0)  # the share of annotators that such a draw keeps, uniform
FEWEST_LABELS = 15  # smaller draws are not used


@dataclass(frozen=True)
class Project:
    """The labels of a project and the true classes of its items."""

    name: str
    annotations: Annotations
    truth: Positions  # (N,) position of the true class, -1 if unknown


def read_projects(folder: Path) -> list[Project]:
    """Read a folder with a folder per project.

    A project has answers.csv (item, annotator, label) and truth.csv (item, truth), or other tables that `crowdshot
    aggregate` reads. Files and hidden folders next to the projects are ignored.
    """
    if not folder.is_dir():
        message, expected = f"is {folder}, which is not a folder", "a folder with a folder per project"
        raise CrowdshotError(message, argument="projects", found=folder, expected=expected)
    places = sorted(place for place in folder.iterdir() if place.is_dir() and not place.name.startswith("."))
    if not places:
        message, expected = f"is {folder}, which contains no folder", "a folder per project in it"
        raise CrowdshotError(message, argument="projects", found=folder, expected=expected)
    return [_read(place) for place in places]


def _read(folder: Path) -> Project:
    answers, truth = (_file(folder, stem) for stem in ("answers", "truth"))
    annotations = read_labels(answers).annotations
    if annotations.n_classes < 2:
        message = f"has {plural(annotations.n_classes, 'class')}"
        raise CrowdshotError(message, where=answers, found=annotations.n_classes, expected="two or more")
    gold, _ = gold_labels.some_of(gold_labels.read(truth, annotations.columns), annotations.items, source=truth)
    return Project(folder.name, *gold_labels.hold(annotations, gold))


def _file(folder: Path, stem: str) -> Path:
    found = sorted(path for path in folder.iterdir() if path.stem == stem and path.is_file())
    if len(found) != 1:
        names = [path.name for path in found]
        message, expected = f"has {listing(names) or f'no {stem}.csv'}", f"one file named {stem}, such as {stem}.csv"
        raise CrowdshotError(message, where=folder, found=names, expected=expected)
    return found[0]


def leave_out(
    projects: Sequence[Project], relatives: Iterable[Iterable[str]] = ()
) -> list[tuple[list[Project], list[Project]]]:
    """Return the folds of cross-validation over projects, as (left out, used for training).

    ``relatives`` are groups of names of projects that share items, annotators or a source; they are left out together.
    Every other project is a group of its own.
    """
    names = [project.name for project in projects]
    groups = [list(group) for group in relatives]
    named = [name for group in groups for name in group]
    for name in named:
        if name not in names:
            message, expected = f"has {name!r}", f"names of projects, {listing(names)}"
            raise CrowdshotError(message, argument="relatives", found=name, expected=expected)
        if named.count(name) > 1:
            message, expected = f"has {name!r} more than once", "each project in one group"
            raise CrowdshotError(message, argument="relatives", found=name, expected=expected)
    groups += [[name] for name in names if name not in named]
    return [
        ([p for p in projects if p.name in group], [p for p in projects if p.name not in group]) for group in groups
    ]


def draw(project: Project, randomness: np.random.Generator) -> Positions:
    """Draw labels of the project; return their positions, in random order."""
    ann = project.annotations
    known = np.flatnonzero(project.truth >= 0)
    low, high = map(math.log, ITEMS)
    n = int(min(len(known), math.exp(randomness.uniform(low, high))))
    items = randomness.choice(known, n, replace=False)
    if len(known) < ann.n_items / 2:
        more = randomness.choice(ann.n_items, min(ann.n_items, UNKNOWN * n), replace=False)
        items = np.concatenate([items, more])
    kept = _mask(items, ann.n_items)[ann.item]
    if randomness.random() < SOME_ANNOTATORS:
        count = max(2, int(ann.n_annotators * randomness.uniform(*SHARE_OF_ANNOTATORS)))
        people = randomness.choice(ann.n_annotators, min(count, ann.n_annotators), replace=False)
        kept &= _mask(people, ann.n_annotators)[ann.annotator]
    labels = randomness.permutation(np.flatnonzero(kept))
    usual = len(labels) / max(1, len(np.unique(ann.item[labels])))
    most = max(1, round(math.exp(randomness.uniform(0, math.log(usual * 1.5 + 1)))))
    return labels[first_labels(ann.item[labels], most)]


def first_labels(item: Positions, most: int) -> NDArray[np.bool_]:
    """Return which labels are among the first ``most`` labels of their item."""
    rank: NDArray[np.int64] = pd.Series(item).groupby(item).cumcount().to_numpy()
    return rank < most


def _mask(chosen: Positions, n: int) -> NDArray[np.bool_]:
    mask = np.zeros(n, dtype=bool)
    mask[chosen] = True
    return mask


def side_by_side(parts: Sequence[tuple[Project, Positions]], device: torch.device | str = "cpu") -> Crowds:
    """Combine draws of projects with the same number of classes in a batch, without unlabelled items and annotators."""
    columns: dict[str, list[Positions]] = {
        name: [] for name in ("item", "annotator", "label", "truth", "crowd_of_item", "crowd_of_annotator")
    }
    N = R = 0
    for crowd, (project, labels) in enumerate(parts):
        ann = project.annotations
        items, item = np.unique(ann.item[labels], return_inverse=True)
        people, annotator = np.unique(ann.annotator[labels], return_inverse=True)
        columns["item"].append(item + N)
        columns["annotator"].append(annotator + R)
        columns["label"].append(ann.label[labels])
        columns["truth"].append(project.truth[items])
        columns["crowd_of_item"].append(np.full(len(items), crowd))
        columns["crowd_of_annotator"].append(np.full(len(people), crowd))
        N, R = N + len(items), R + len(people)
    joined = {name: torch.from_numpy(np.concatenate(values)).to(device) for name, values in columns.items()}
    return Crowds(**joined, n_classes=parts[0][0].annotations.n_classes, n_crowds=len(parts))
