"""How many there are of what, and how it is spelled: how the report of every command with labels begins."""

from __future__ import annotations

from typing import Any

from crowdshot.labels.annotations import Annotations
from crowdshot.labels.formats.labels import LabelsRead
from crowdshot.labels.spelling import near_twins

Report = dict[str, Any]  # plain JSON, what a command has to say


def spellings(read: LabelsRead) -> Report:
    """What may be written in several ways, and what was read as something else than it was written."""
    return {
        "near_twins": [twins._asdict() for twins in near_twins(read.annotations)],
        "respelled": [each._asdict() for each in read.respelled],
    }


def counts(ann: Annotations) -> Report:
    sizes = {"items": ann.n_items, "annotators": ann.n_annotators, "labels": ann.n_labels}
    return {**sizes, "classes": ann.classes.tolist()}
