"""``crowdshot predict``: a fitted model and new items -> their labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd

from crowdshot.classifier.classifier import CrowdClassifier
from crowdshot.commands.counts import Report
from crowdshot.commands.fit_from_files import method_of
from crowdshot.commands.given import ItemFiles
from crowdshot.encoders.items import check_kind, check_width, find_readable
from crowdshot.encoders.tables import TableInput
from crowdshot.files.embedding_store import embedding_cache
from crowdshot.files.whole import check_table, write_csv, written
from crowdshot.labels.belief import SETTLED
from crowdshot.labels.matching import named_like
from crowdshot.progress import progress
from crowdshot.report.tables import prediction_table


def predict(model: Path, given: ItemFiles, out: Path | None = None) -> tuple[Report, pd.DataFrame | None]:
    """A fitted model and new items -> a table with item, label, confidence and each class's probability.

    The table goes to ``out`` as it comes, piece by piece, so that a file of any length fits; it is returned where there
    is no ``out``.
    """
    if out is not None:
        check_table(out, model, given.features, given.texts)
    clf = CrowdClassifier.load(model)
    counts = {"items": 0, "settled": 0}
    left_out: dict[str, list[str]] = {}
    tables: list[pd.DataFrame] = []
    with ExitStack() as stack:
        file = None if out is None else stack.enter_context(written(out))
        for table, kind, unreadable in _tables(clf, model, given):
            counts["items"] += len(table)
            counts["settled"] += int((table["confidence"] >= SETTLED).sum())
            left_out.setdefault(f"unreadable {kind}", []).extend(unreadable)
            if file is None:
                tables.append(table)
            else:
                write_csv(table, file, header=counts["items"] == len(table))
    report = {
        **method_of(clf),
        **counts,
        "classes": clf.classes_.tolist(),
        "settled_at": SETTLED,
        "left_out": left_out,
        "files": [] if out is None else [str(out)],
    }
    return report, pd.concat(tables, ignore_index=True) if out is None else None


def _tables(clf: CrowdClassifier, model: Path, given: ItemFiles) -> Iterator[tuple[pd.DataFrame, str, list[str]]]:
    """Predictions piece by piece, what the items are, and those that could not be read."""
    ann = clf.annotations_
    labelled = ann.items[np.unique(ann.item)]
    with embedding_cache(), progress("predicting") as far:
        for items, done, total in given.pieces(isinstance(clf.encoder_.input, TableInput)):
            check_kind(clf.encoder_, items, f"{model}")
            check_width(items, getattr(clf, "n_features_in_", None), f"{model}")
            whole = done == total == 1  # images, which are told one by one
            kept, unreadable = find_readable(items, given.skip_bad, far if whole else _ignore)
            items = items.take(kept)
            log_proba = clf.predict_log_proba(items.X, progress=far if whole else None)
            if not whole:
                far(done, total)
            ids = named_like(labelled, [Path(name) for name in items.ids]) if items.are_files else items.ids
            table = prediction_table(ids, clf.classes_, np.exp(log_proba), ann.columns.item, ann.columns.label)
            yield table, items.kind, [image.name for image in unreadable]


def _ignore(done: int, total: int) -> None:
    pass
