"""``crowdshot predict``: label new items with a fitted classifier."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdshot._cli.console import print_result
from crowdshot._cli.options import (
    AllowOutside,
    AsJson,
    Engine,
    EngineName,
    ExcelSafe,
    Features,
    File,
    Images,
    Processes,
    Texts,
    input_option,
)
from crowdshot.progress import progress

if TYPE_CHECKING:
    import pandas as pd

    from crowdshot._cli.inputs import ItemFiles
    from crowdshot.classifier.crowd_classifier import CrowdClassifier
    from crowdshot.report.summary import Result


def run_predict(
    model: Path, item_files: ItemFiles, out: Path | None = None, allow_outside: bool = False
) -> tuple[Result, pd.DataFrame | None]:
    """Predict the label, confidence and class probabilities of new items.

    Parameters
    ----------
    model : Path
        The classifier that `crowdshot adapt` wrote.
    item_files : ItemFiles
        The items.
    out : Path, optional
        The file for the table. It is written in pieces, so the number of items is not limited by memory.
    allow_outside : bool
        Whether the classifier may use a network of another library.

    Returns
    -------
    result : Result
        The result of the command.
    table : DataFrame or None
        The predictions, if there is no ``out``.
    """
    import pandas as pd

    with progress("loading libraries"):
        from crowdshot._cli.fitting import method_of
        from crowdshot.classifier.crowd_classifier import CrowdClassifier
    from crowdshot.io.atomic import check_table, write_csv, written
    from crowdshot.labels.consensus import THRESHOLD
    from crowdshot.report.summary import Accepted, CrowdCounts, Result

    if out is not None:
        check_table(out, model, item_files.features, item_files.texts)
    with progress("loading the classifier"):
        clf = CrowdClassifier.load(model, allow_outside)
    n_items = n_accepted = 0
    left_out: dict[str, list[str]] = {}
    tables: list[pd.DataFrame] = []
    has_header = False
    with ExitStack() as stack:
        file = None if out is None else stack.enter_context(written(out))
        for table, kind, unreadable in _tables(clf, model, item_files):
            n_items += len(table)
            n_accepted += int((table["confidence"] >= THRESHOLD).sum())
            left_out.setdefault(f"unreadable {kind}", []).extend(unreadable)
            if file is None:
                tables.append(table)
            else:
                write_csv(table, file, header=not has_header)
                has_header = True
    result = Result(
        method=method_of(clf),
        counts=CrowdCounts(n_items, classes=clf.classes_.tolist()),
        accepted=Accepted(n_accepted, THRESHOLD),
        left_out=left_out,
        files=[] if out is None else [out],
    )
    return result, pd.concat(tables, ignore_index=True) if out is None else None


def _tables(clf: CrowdClassifier, model: Path, item_files: ItemFiles) -> Iterator[tuple[pd.DataFrame, str, list[str]]]:
    """Yield predictions in pieces, the kind of items, and the unreadable items."""
    import numpy as np

    from crowdshot.classifier.feature_learners import SEVERAL
    from crowdshot.encoders.items import check_kind, check_width, find_readable
    from crowdshot.encoders.table_input import TableInput
    from crowdshot.io.embedding_store import embedding_cache
    from crowdshot.report.result_tables import prediction_table

    ann = clf.annotations_
    labelled, several = ann.items[np.unique(ann.item)], bool(clf.settings_.get(SEVERAL))
    table = clf.encoder_.input if isinstance(clf.encoder_.input, TableInput) else None
    wanted = table.columns if table else getattr(clf, "feature_names_in_", None)
    width = None if table else getattr(clf, "n_features_in_", None)
    first = True
    if item_files.images is not None:
        item_files.embed_ahead(item_files.open().paths, clf._reader)
    with embedding_cache(), progress("predicting") as report_progress:
        for items, done, total in item_files.pieces(table is not None, labelled, wanted):
            check_kind(clf.encoder_, items, f"{model}")
            check_width(items, width, f"{model}")
            counts_items = items.kind == "images"  # other kinds count bytes or rows

            def tick(n: int, _: int, before: int = done - len(items), total: int = total) -> None:
                report_progress(before + n, total)

            kept, unreadable = find_readable(items, item_files.skip_bad, _ignore, some=first and done == total)
            items, first = items.take(kept), False
            p = np.empty((0, len(clf.classes_)))
            if len(items):
                p = np.exp(clf.predict_log_proba(items.X, progress=tick if counts_items else None))
            report_progress(done, total)
            ids = items.ids if items.called is None else items.called
            table = prediction_table(ids, clf.classes_, p, ann.columns.item, ann.columns.label, several)
            yield table, items.kind, [image.name for image in unreadable]


def _ignore(done: int, total: int) -> None:
    pass


# "\b" keeps the line breaks
EXAMPLES = """\b
Examples:
  crowdshot predict results/model.safetensors --images new-photos
  crowdshot predict results/model.safetensors --features new.csv --out predictions.csv
"""


def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The classifier that `crowdshot adapt` wrote: model.safetensors.")
    ],
    images: Images = None,
    features: Features = None,
    texts: Texts = None,
    out: File = None,
    skip_bad: Annotated[bool, input_option("--skip-bad", help="Leave out unreadable items.")] = False,
    processes: Processes = 1,
    engine: EngineName = Engine.LOCAL,
    allow_outside: AllowOutside = False,
    excel_safe: ExcelSafe = False,
    as_json: AsJson = False,
) -> None:
    """Label new items with a fitted classifier.

    The result is a table with the label, its probability and the probability of each class for each item.
    """
    from crowdshot._cli.inputs import ItemFiles

    items = ItemFiles(images, features, None, skip_bad, texts, processes, engine.value)
    result, table = run_predict(model, items, out, allow_outside)
    print_result(result, as_json, table, "predictions")
