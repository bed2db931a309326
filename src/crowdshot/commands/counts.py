"""How many there are of what: how the report of every command with labels begins."""

from __future__ import annotations

from typing import Any

from crowdshot.labels.annotations import Annotations

Report = dict[str, Any]  # plain JSON, what a command has to say


def counts(ann: Annotations) -> Report:
    sizes = {"items": ann.n_items, "annotators": ann.n_annotators, "labels": ann.n_labels}
    return {**sizes, "classes": ann.classes.tolist()}
