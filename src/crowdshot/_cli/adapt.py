"""``crowdshot adapt``: labels and items -> a folder of results, and what there is to say about it, as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdshot._cli.console import flat, print_result
from crowdshot._cli.options import (
    AsJson,
    Copies,
    EncoderName,
    Engine,
    EngineName,
    ExportFolder,
    Features,
    Folder,
    Images,
    Labels,
    Overwrite,
    Processes,
    ReadingOptions,
    SkipBad,
    Texts,
    Threshold,
    as_settings,
)
from crowdshot.formatting import command, in_a_terminal
from crowdshot.progress import progress

if TYPE_CHECKING:
    from crowdshot._cli.inputs import ItemFiles, LabelFiles, Output, Report
    from crowdshot.classifier.crowd_classifier import CrowdClassifier
    from crowdshot.classifier.diagnostics import FeatureValue
    from crowdshot.report.export import Export
    from crowdshot.report.page import facts


NEW = {"images": "new-images", "features": "new-features.csv", "texts": "new-texts.csv"}  # in the command that predicts


def run_adapt(
    labels: LabelFiles,
    given: ItemFiles,
    output: Output,
    method: str = "auto",
    settings: Mapping[str, Any] | None = None,
    export: Export | None = None,
    anonymous: bool = False,
) -> Report:
    """Labels and items -> consensus, annotators, confusion matrices, a classifier and a report, in a folder.

    ``anonymous``: annotators are called by numbers, in the order of the labels, in all that is written and told.
    """
    import numpy as np

    from crowdshot._cli.fitting import fit, method_of
    from crowdshot._cli.inputs import counts, export_facts, gold_facts, spellings
    from crowdshot.classifier.diagnostics import feature_value
    from crowdshot.io.atomic import check_folder
    from crowdshot.labels.confidence import THRESHOLD
    from crowdshot.report import summary
    from crowdshot.report.export import write_export
    from crowdshot.report.page import facts
    from crowdshot.report.page.facts import Run, describe
    from crowdshot.report.page.next_steps import steps
    from crowdshot.report.page.page_writer import write_page, write_sheets
    from crowdshot.report.result_tables import records, write_results

    check_folder(output.out, output.overwrite)
    if export is not None:
        export.check(given.images, output.out)
        check_folder(export.folder, output.overwrite)
    fitted = fit(labels, given, method, settings, anonymous)
    clf, items, read = fitted.clf, fitted.items, fitted.labels
    typed = labels.without_names() if anonymous else labels
    several = anonymous and len(labels.paths) > 1
    options: Report = {**given.options(), **typed.options()}
    again = options | {"method": method, "settings": settings, "anonymous": anonymous}
    again |= {"out": output.out, "overwrite": True}
    if export is not None:
        again |= {"export": export.folder, "threshold": export.threshold, "copies": export.copies}
    new = {items.kind: NEW[items.kind]}
    looks = _looks(clf, feature_value(clf, fitted.embeddings), items.kind)
    n_labelled = len(np.unique(clf.annotations_.item))
    run = Run(
        sources=[f"{len(labels.paths)} files"] if several else [str(path) for path in labels.paths],
        items_from=items.source,
        paths=items.paths,
        texts=items.texts,
        how=describe(clf, given.encoder),
        command=command("adapt", typed.paths, again),
        commands={
            "gold": command("adapt", typed.paths, again | {"gold": "corrections.csv"}),
            "merge": command("adapt", typed.paths, again | {"merge-case": True}),
            "ask": command("next", typed.paths, options | {"out": "questions.csv"}),
            "predict": command("predict", [output.out / "model.safetensors"], new | {"out": "predictions.csv"}),
        },
        respelled=[str(each) for each in read.respelled],
        near_duplicates=read.near_duplicates,
        ordered=read.ordered,
        left_out=summary.left_out(fitted.left_out),
        feature_value=summary.describe_feature_value(looks, n_labelled),
    )
    with progress("writing the results and a report"):
        found = facts.gather(clf, fitted.embeddings, run)
        pages = {"report.html": partial(write_page, found=found), "feedback": partial(write_sheets, found=found)}
        files = write_results(clf, output.out, output.overwrite, read, pages)
    consensus = clf.consensus_
    if export is not None:
        with progress("exporting"):
            files += write_export(export, consensus, clf.annotations_, read, items.paths, items.texts, output.overwrite)
    labelled = consensus["n_labels"] > 0
    accepted = consensus["confidence"] >= THRESHOLD
    return {
        **method_of(clf),
        **counts(clf.annotations_),
        "items": n_labelled,
        "accepted": int((accepted & labelled).sum()),
        "accepted_at": THRESHOLD,
        "predicted": int((~labelled).sum()),
        "predicted_accepted": int((accepted & ~labelled).sum()),
        "need_a_person": found.of_kind(),
        "classifier": _on_new_items(found),
        "do_next": [{"text": in_a_terminal(step.text), "command": step.command} for step in steps(found)],
        "agreement": [statistic._asdict() for statistic in found.agreement],
        "looks": looks,
        "annotator_column": clf.annotations_.columns.annotator,
        "annotator_table": records(clf.annotators_),
        **gold_facts(clf.gold_, labels.gold_from),
        **spellings(read),
        **({} if export is None else export_facts(export, consensus)),
        "left_out": fitted.left_out,
        "files": [str(file) for file in files],
    }


def _on_new_items(found: facts.Facts) -> Report:
    """How often the classifier agrees with the consensus of items whose labels were hidden, and what that allows."""
    share, low, high = (found.check.share, found.check.low, found.check.high) if found.check else (None, None, None)
    return {"share": share, "low": low, "high": high, "verdict": found.verdict()}


def _looks(clf: CrowdClassifier, worth: FeatureValue, what: str) -> Report:
    """As plain JSON, items by name."""
    names = clf.annotations_.items
    return {
        "of": what,
        "foretold": worth.foretold,
        "by_class_sizes": worth.by_class_sizes,
        "helped": worth.helped,
        "differ": len(worth.differ),
        "differ_items": [str(name) for name in names[worth.differ]],
        "unsaid": len(worth.unsaid),
        "unsaid_items": [str(name) for name in names[worth.unsaid]],
    }


# ---- adapt ------------------------------------------------------------
#
# ``crowdshot adapt`` on the command line; `app` adds it.


# "\b" keeps the lines that follow as they are
EXAMPLES = """\b
Examples:
  crowdshot adapt labels.csv --images photos --out results
  crowdshot adapt export.tsv --columns item=url,annotator=who,label=animal --images photos --out results
  crowdshot adapt ann.xml bob.xml --format cvat --images photos --out results
  crowdshot adapt labels.csv --features embeddings.npz --out results --json
  crowdshot adapt labels.csv --images photos --out results --export clean --threshold 0.95 --copies
  crowdshot adapt labels.csv --images photos --method LRDS --settings C=0.1,steps=3 --out results
"""


@flat
def adapt(
    labels: Labels,
    out: Folder,
    images: Images = None,
    features: Features = None,
    texts: Texts = None,
    encoder: EncoderName = None,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="Another way to learn: see `crowdshot methods`.")
    ] = "auto",
    settings: Annotated[
        str | None, typer.Option(metavar="NAME=VALUE,…", help="The method's own; else its defaults.")
    ] = None,
    skip_bad: SkipBad = False,
    processes: Processes = 1,
    engine: EngineName = Engine.LOCAL,
    export: ExportFolder = None,
    threshold: Threshold = 0.9,
    copies: Copies = False,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Call annotators by numbers in all that is written, for sharing.")
    ] = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    *,
    reading: ReadingOptions,
) -> None:
    """From items and a crowd's labels to consensus, annotators and a classifier.

    Writes report.html, a page to read in a browser, feedback/, a page for each annotator, and consensus.csv,
    annotators.csv, confusion.csv and model.safetensors (and predictions.json where the labels are Label Studio's), all
    of them or none. Items without a label are fine: they get one from the classifier.
    """
    from crowdshot._cli.inputs import ItemFiles, Output
    from crowdshot.report.export import Export

    items = ItemFiles(images, features, encoder, skip_bad, texts, processes, engine.value)
    exported = None if export is None else Export(export, threshold, copies)
    output = Output(out, overwrite)
    report = run_adapt(reading.of(labels), items, output, method, as_settings(settings), exported, anonymous)
    print_result(report, as_json)
