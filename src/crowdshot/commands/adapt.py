"""What the commands do, from files to files; each job returns what there is to say about it, as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from crowdshot.classifier.classifier import CrowdClassifier
from crowdshot.classifier.learners import AUTO
from crowdshot.commands.fit_from_files import fit
from crowdshot.files.whole import (
    check_folder,
)
from crowdshot.labels import known_truth
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.belief import SETTLED
from crowdshot.progress import progress
from crowdshot.report import summary
from crowdshot.report.folder import write_results
from crowdshot.report.tables import records

Report = dict[str, Any]


def adapt(
    labels: Sequence[Path],
    images: Path | None,
    features: Path | None,
    out: Path,
    encoder: str | None = None,
    columns: Mapping[str, str] | None = None,
    format_name: str | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
    method: str = AUTO,
    settings: Mapping[str, Any] | None = None,
) -> Report:
    """Labels and items -> consensus, annotators, confusion matrices, a classifier and a report, in a folder."""
    from crowdshot.report.page.how_made import Run, describe
    from crowdshot.report.page.writing import write_report
    from crowdshot.wording import command

    check_folder(out, overwrite)
    fitted = fit(labels, images, features, encoder, columns, format_name, skip_bad, method, settings)
    clf, items, read = fitted.clf, fitted.items, fitted.labels
    options: Report = {"images": images, "features": features, "out": out, "encoder": encoder, "columns": columns}
    options |= {"format": format_name, "method": method, "settings": settings, "skip-bad": skip_bad, "overwrite": True}
    run = Run(
        sources=[str(path) for path in labels],
        items_from=items.source,
        paths=items.X if isinstance(items.X, list) else [],
        how=describe(clf, encoder),
        command=command(labels, options),
        left_out=summary.left_out(fitted.left_out),
        gold=read.gold,
    )
    with progress("writing the results and a report"):
        report = partial(write_report, clf=clf, embeddings=fitted.embeddings, run=run)
        files = write_results(clf, out, overwrite, read, report)

    consensus = clf.consensus_
    labelled = consensus["n_labels"] > 0
    settled = consensus["confidence"] >= SETTLED
    return {
        **_method(clf),
        **_counts(clf.annotations_),
        "items": int(labelled.sum()),
        "settled": int((settled & labelled).sum()),
        "settled_at": SETTLED,
        "predicted": int((~labelled).sum()),
        "predicted_settled": int((settled & ~labelled).sum()),
        "annotator_column": clf.annotations_.columns.annotator,
        "annotator_table": records(clf.annotators_),
        **known_truth.compare(read.gold, consensus, clf.annotations_.columns),
        "left_out": fitted.left_out,
        "files": [str(file) for file in files],
    }


def _method(clf: CrowdClassifier) -> Report:
    """Which one, and in a few words what it does."""
    from crowdshot.classifier.compared import find

    method = find(clf.learner_again().name)
    return {"method": method.name, "method_summary": method.summary}


def _counts(ann: Annotations) -> Report:
    sizes = {"items": ann.n_items, "annotators": ann.n_annotators, "labels": ann.n_labels}
    return {**sizes, "classes": ann.classes.tolist()}
