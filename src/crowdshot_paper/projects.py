"""Finished projects, whose truth is known, as something to learn the inference from: read, left out, drawn from.

A project is seen a draw at a time: some of its items, sometimes some of its annotators, and at most so many labels an
item; so that a few dozen projects are thousands of crowds.
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
from crowdshot.labels import gold_labels
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.formats import read_labels
from crowdshot.labels.indexing import Positions
from crowdshot.training.simulated_crowds import Crowds

ITEMS = (20, 500)  # with known truth in a draw, evenly in the logarithm
UNKNOWN = 3  # times as many whose truth is not known, where these are most
SOME_ANNOTATORS = 0.4  # how often a draw leaves annotators out, and how many then stay
SHARE_OF_ANNOTATORS = (0.2, 1.0)
FEWEST_LABELS = 15  # in a draw


@dataclass(frozen=True)
class Project:
    """A crowd's labels and what the items really are."""

    name: str
    annotations: Annotations
    truth: Positions  # (N,) position of the class, -1 where it is not known


def read_projects(folder: Path) -> list[Project]:
    """A folder of folders, each a project: answers.csv (item, annotator, label) and truth.csv (item, truth).

    Any table will do that `crowdshot aggregate` reads; what is neither a folder nor visible is passed over.
    """
    if not folder.is_dir():
        raise CrowdshotError(f"{folder} is no folder, expected one with a folder for each project.")
    places = sorted(place for place in folder.iterdir() if place.is_dir() and not place.name.startswith("."))
    if not places:
        raise CrowdshotError(f"{folder} has no folder in it, expected one for each project.")
    return [_read(place) for place in places]


def _read(folder: Path) -> Project:
    answers, truth = (_file(folder, stem) for stem in ("answers", "truth"))
    annotations = read_labels(answers).annotations
    if annotations.n_classes < 2:
        raise CrowdshotError(
            f"{answers} has {plural(annotations.n_classes, 'class')}, expected two or more to learn from."
        )
    gold, _ = gold_labels.some_of(gold_labels.read(truth, annotations.columns), annotations.items, source=truth)
    return Project(folder.name, *gold_labels.hold(annotations, gold))


def _file(folder: Path, stem: str) -> Path:
    found = sorted(path for path in folder.iterdir() if path.stem == stem and path.is_file())
    if len(found) != 1:
        names = listing([path.name for path in found]) or f"no {stem}.csv"
        raise CrowdshotError(f"{folder} has {names}, expected one file called {stem}, like {stem}.csv.")
    return found[0]


def leave_out(
    projects: Sequence[Project], relatives: Iterable[Iterable[str]] = ()
) -> list[tuple[list[Project], list[Project]]]:
    """(left out, learned from): each project once among those left out, always with its relatives.

    ``relatives``: groups of names, of projects that share items, annotators or a source. All others stand alone.
    """
    names = [project.name for project in projects]
    groups = [list(group) for group in relatives]
    named = [name for group in groups for name in group]
    for name in named:
        if name not in names:
            raise CrowdshotError(f"relatives has {name!r}, expected names of projects, {listing(names)}.")
        if named.count(name) > 1:
            raise CrowdshotError(f"relatives has {name!r} more than once, expected each project in one group.")
    groups += [[name] for name in names if name not in named]
    return [
        ([p for p in projects if p.name in group], [p for p in projects if p.name not in group]) for group in groups
    ]


def draw(project: Project, randomness: np.random.Generator) -> Positions:
    """Which labels of the project a draw has: their positions, in any order."""
    ann = project.annotations
    known = np.flatnonzero(project.truth >= 0)
    low, high = map(math.log, ITEMS)
    n = int(min(len(known), math.exp(randomness.uniform(low, high))))
    items = randomness.choice(known, n, replace=False)
    if len(known) < ann.n_items / 2:
        more = randomness.choice(ann.n_items, min(ann.n_items, UNKNOWN * n), replace=False)
        items = np.concatenate([items, more])
    kept = _among(items, ann.n_items)[ann.item]
    if randomness.random() < SOME_ANNOTATORS:
        count = max(2, int(ann.n_annotators * randomness.uniform(*SHARE_OF_ANNOTATORS)))
        people = randomness.choice(ann.n_annotators, min(count, ann.n_annotators), replace=False)
        kept &= _among(people, ann.n_annotators)[ann.annotator]
    labels = randomness.permutation(np.flatnonzero(kept))
    usual = len(labels) / max(1, len(np.unique(ann.item[labels])))
    most = max(1, round(math.exp(randomness.uniform(0, math.log(usual * 1.5 + 1)))))
    return labels[first_labels(ann.item[labels], most)]


def first_labels(item: Positions, most: int) -> NDArray[np.bool_]:
    """Which labels are among the first ``most`` of their item."""
    rank: NDArray[np.int64] = pd.Series(item).groupby(item).cumcount().to_numpy()
    return rank < most


def _among(chosen: Positions, n: int) -> NDArray[np.bool_]:
    mask = np.zeros(n, dtype=bool)
    mask[chosen] = True
    return mask


def side_by_side(parts: Sequence[tuple[Project, Positions]], device: torch.device | str = "cpu") -> Crowds:
    """Draws of projects with as many classes, as one batch; items and annotators without a label are left behind."""
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
