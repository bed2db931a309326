"""``crowdshot predict``: a fitted model and new items -> their labels."""

from __future__ import annotations

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
from crowdshot.files.whole import check_table, write_file
from crowdshot.labels.belief import SETTLED
from crowdshot.labels.matching import named_like
from crowdshot.progress import progress
from crowdshot.report.tables import prediction_table


def predict(model: Path, given: ItemFiles, out: Path | None = None) -> tuple[Report, pd.DataFrame]:
    """A fitted model and new items -> a table with item, label, confidence and each class's probability."""
    if out is not None:
        check_table(out, model, given.features, given.texts)
    clf = CrowdClassifier.load(model)
    items = given.open(isinstance(clf.encoder_.input, TableInput))
    check_kind(clf.encoder_, items, f"{model}")
    check_width(items, getattr(clf, "n_features_in_", None), f"{model}")
    with embedding_cache(), progress(f"checking {items.kind}") as tick:
        kept, unreadable = find_readable(items, given.skip_bad, tick)
    items = items.take(kept)
    with embedding_cache(), progress("embedding") as tick:
        probabilities = np.exp(clf.predict_log_proba(items.X, progress=tick))
    ann = clf.annotations_
    labelled = ann.items[np.unique(ann.item)]
    ids = named_like(labelled, [Path(name) for name in items.ids]) if items.are_files else items.ids
    table = prediction_table(ids, clf.classes_, probabilities, ann.columns.item, ann.columns.label)
    if out is not None:
        write_file(out, table)
    report = {
        **method_of(clf),
        "items": len(items),
        "classes": clf.classes_.tolist(),
        "settled": int((table["confidence"] >= SETTLED).sum()),
        "settled_at": SETTLED,
        "left_out": {f"unreadable {items.kind}": [image.name for image in unreadable]},
        "files": [] if out is None else [str(out)],
    }
    return report, table
