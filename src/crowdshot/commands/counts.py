"""How many there are of what, how it is spelled and what is known of it: what reports of commands have in common."""

from __future__ import annotations

from typing import Any

import pandas as pd

from crowdshot.labels import known_truth
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.formats.labels import LabelsRead
from crowdshot.report.export import Export

Report = dict[str, Any]  # plain JSON, what a command has to say


def spellings(read: LabelsRead) -> Report:
    """What may be written in several ways, and what was read as something else than it was written."""
    return {
        "near_twins": [twins._asdict() for twins in read.near_twins],
        "respelled": [each._asdict() for each in read.respelled],
    }


def counts(ann: Annotations) -> Report:
    sizes = {"items": ann.n_items, "annotators": ann.n_annotators, "labels": ann.n_labels}
    return {**sizes, "classes": ann.classes.tolist()}


def export_facts(export: Export, consensus: pd.DataFrame) -> Report:
    exported = int((consensus["confidence"] >= export.threshold).sum())
    return {"exported": exported, "exported_at": export.threshold, "exported_to": str(export.folder)}


def gold_facts(compared: pd.DataFrame, source: str) -> Report:
    """How many true labels are known, and how often labels and items alone would be right; see `known_truth.compare`.

    ``gold_right`` of ``gold_labelled``, the items that somebody labelled; from ``gold_low`` to ``gold_high`` with 90 %
    probability. ``gold_claimed``: how often they would be right by their confidence.
    """
    found = known_truth.agreement(compared)
    facts: Report = {"gold": len(compared), "gold_from": source}
    if found.right is not None:
        facts |= {"gold_right": found.right.hits, "gold_labelled": found.right.of}
        facts |= {"gold_low": found.right.low, "gold_high": found.right.high}
        facts |= {"gold_claimed": found.confidence, "shared_mistakes": found.shared_mistakes}
    return facts
