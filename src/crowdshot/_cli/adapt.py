"""``crowdshot adapt``: fit a classifier to labels and items, and write a folder of results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from crowdshot._cli.console import print_result
from crowdshot._cli.option_values import OTHERS, as_settings
from crowdshot._cli.options import (
    METHODS_OF_AGGREGATE,
    MIN_ACCURACY,
    AllowOutside,
    AsJson,
    Copies,
    Cost,
    EncoderName,
    Engine,
    EngineName,
    ExportFolder,
    Features,
    Folder,
    FromText,
    Images,
    Labels,
    MinAccuracy,
    Overwrite,
    Processes,
    ReadingOptions,
    Texts,
    Threshold,
    flat,
    method_option,
    output_option,
)
from crowdshot.errors import CrowdshotError, Use
from crowdshot.formatting import command, in_a_terminal
from crowdshot.progress import progress

if TYPE_CHECKING:
    from crowdshot._cli.fitting import FittedFromFiles
    from crowdshot._cli.inputs import ItemFiles, LabelFiles, Output
    from crowdshot.classifier.crowd_classifier import CrowdClassifier
    from crowdshot.labels.label_costs import Money
    from crowdshot.report.export import Export
    from crowdshot.report.page import facts
    from crowdshot.report.page.basis import Basis
    from crowdshot.report.summary import FeatureEffect, NewItems, Result

# Placeholders in the suggested `predict` command.
NEW_ITEMS = {"images": "new-images", "features": "new-features.csv", "texts": "new-texts.csv"}


def run_adapt(
    labels: LabelFiles,
    item_files: ItemFiles,
    output: Output,
    method: str = "auto",
    settings: Mapping[str, Any] | None = None,
    export: Export | None = None,
    anonymous: bool = False,
    share: bool = False,
    min_accuracy: float = MIN_ACCURACY,
    cost: Mapping[str, float] | Path | None = None,
) -> Result:
    """Write consensus, annotators, confusion matrices, a classifier and a report to a folder.

    Parameters
    ----------
    labels : LabelFiles
        The labels.
    item_files : ItemFiles
        The items.
    output : Output
        The folder.
    method : str
        The name of the method.
    settings : mapping, optional
        The settings of the method.
    export : Export, optional
        The folder and format of exported confident items.
    anonymous : bool
        Whether to replace the names of annotators by numbers, in the order of the labels, in all output.
    share : bool
        Whether to write the classifier without labels, names and ids.
    min_accuracy : float
        The accuracy that an annotator should have.
    cost : mapping or Path, optional
        The cost of a label of each annotator; see `crowdshot.labels.label_costs`.
    """
    with progress("loading libraries"):
        from crowdshot._cli.fitting import fit
        from crowdshot.classifier.diagnostics import feature_value
        from crowdshot.io.atomic import check_folder
        from crowdshot.labels.annotator_quality import check_min_accuracy
        from crowdshot.methods import current_name
        from crowdshot.report.page import facts
        from crowdshot.report.page.basis import Basis
        from crowdshot.report.summary import FeatureEffect

    check_min_accuracy(min_accuracy)
    if anonymous and cost is not None and (isinstance(cost, Path) or set(cost) != {OTHERS}):
        message = "cannot name annotators together with anonymous"
        raise CrowdshotError(message, argument="cost", expected="one number for all of them")
    method = current_name(method)  # so that recommended commands have the current name
    check_folder(output.out, output.overwrite)
    if export is not None:
        export.check(item_files.images, output.out)
        check_folder(export.folder, output.overwrite)
    fitted = fit(labels, item_files, method, settings, anonymous)
    clf, items = fitted.clf, fitted.items
    with progress("comparing with the labels alone"):
        effect = FeatureEffect.of(clf, feature_value(clf, fitted.embeddings), items.kind)
    options: dict[str, Any] = {
        "method": method,
        "settings": settings,
        "anonymous": anonymous,
        "share": share,
        "out": output.out,
        "overwrite": True,
    }
    if min_accuracy != MIN_ACCURACY:
        options["min-accuracy"] = min_accuracy
    if export is not None:
        options |= {"export": export.folder, "threshold": export.threshold, "copies": export.copies}
    if cost is not None:
        options["cost"] = cost
    run = _describe_run(labels, item_files, fitted, options, effect)
    with progress("preparing the report"):
        basis = Basis.of_classifier(clf, fitted.embeddings, min_accuracy)
        money = None if cost is None else _money(basis, cost)
        run = run if money is None else _with_money(run, money)
        found = facts.gather_facts(basis, run)
    with progress("writing files"):
        files = _write(fitted, found, basis, output, export, share, money)
    return replace(_result(labels, fitted, found, effect, export, files), money=money)


def _money(basis: Basis, cost: Mapping[str, float] | Path) -> Money:
    from crowdshot.labels.label_costs import costs_of, count_money

    ann = basis.annotations
    return count_money(ann, basis.posterior, basis.people["accuracy"].to_numpy(), costs_of(cost, ann))


def _with_money(run: facts.Run, money: Money) -> facts.Run:
    from crowdshot.labels.label_costs import describe_costs, describe_money

    sentences, prices = describe_money(money), money.annotators["cost"].tolist()
    return replace(run, money=sentences, costs=describe_costs(money), price=money.cost_per_label, prices=prices)


def _write(
    fitted: FittedFromFiles,
    found: facts.Facts,
    basis: Basis,
    output: Output,
    export: Export | None,
    share: bool,
    money: Money | None,
) -> list[Path]:
    from crowdshot.report.export import write_export
    from crowdshot.report.page.page_writer import write_page, write_sheets
    from crowdshot.report.page.saved_report import write_run
    from crowdshot.report.result_tables import of_each_label, write_results

    clf, items, read = fitted.clf, fitted.items, fitted.labels
    pages = {"report.html": partial(write_page, found=found), "feedback": partial(write_sheets, found=found)}
    pages["run.json"] = partial(write_run, run=found.run, basis=basis)
    files = write_results(
        clf, output.out, output.overwrite, read, pages, share, found.run.min_accuracy, fitted.working, money
    )
    if export is not None:
        soft = of_each_label(clf.classes_, clf.label_proba_, read.several)
        files += write_export(
            export, clf.consensus_, clf.annotations_, read, items.paths, items.texts, output.overwrite, soft
        )
    return files


def _describe_run(
    labels: LabelFiles,
    item_files: ItemFiles,
    fitted: FittedFromFiles,
    options: Mapping[str, Any],
    effect: FeatureEffect,
) -> facts.Run:
    """Return what the page shows about the run: files, commands and notes.

    ``options``: those of this run besides the labels and items.
    """
    from crowdshot._cli.inputs import merging_options
    from crowdshot.labels.working_times import working_records
    from crowdshot.report import summary
    from crowdshot.report.page.facts import Run, describe

    clf, items, read = fitted.clf, fitted.items, fitted.labels
    shown_labels = labels.without_names() if options["anonymous"] else labels
    hide_files = options["anonymous"] and len(labels.paths) > 1
    inputs: dict[str, Any] = {**item_files.options(), **shown_labels.options()}
    again = {**inputs, **options}
    new_items = {items.kind: NEW_ITEMS[items.kind]}
    return Run(
        sources=[f"{len(labels.paths)} files"] if hide_files else [str(path) for path in labels.paths],
        items_from=items.source,
        paths=items.paths,
        texts=items.texts,
        how=describe(clf, item_files.encoder),
        command=command("adapt", shown_labels.paths, again),
        commands={
            "gold": command("adapt", shown_labels.paths, again | {"gold": "corrections.csv"}),
            "merge": command("adapt", shown_labels.paths, again | merging_options(read)),
            "audit": command("audit", [options["out"]], {}),
            "ask": command("next", shown_labels.paths, inputs | {"cost": options.get("cost"), "out": "questions.csv"}),
            "predict": command(
                "predict", [options["out"] / "model.safetensors"], new_items | {"out": "predictions.csv"}
            ),
        },
        respelled=[str(each) for each in read.respelled],
        near_duplicates=read.near_duplicates,
        ordered=read.ordered,
        min_accuracy=options.get("min-accuracy", MIN_ACCURACY),
        left_out=summary.left_out(fitted.left_out),
        working=working_records(fitted.working),
        feature_value=summary.describe_feature_effect(effect, _n_labelled(clf)),
    )


def _result(
    labels: LabelFiles,
    fitted: FittedFromFiles,
    found: facts.Facts,
    effect: FeatureEffect,
    export: Export | None,
    files: list[Path],
) -> Result:
    from crowdshot._cli.fitting import method_of
    from crowdshot.labels.consensus import THRESHOLD
    from crowdshot.report import summary
    from crowdshot.report.page.next_steps import steps

    clf, consensus = fitted.clf, fitted.clf.consensus_
    labelled = consensus["n_labels"] > 0
    is_accepted = consensus["confidence"] >= THRESHOLD
    n_accepted, n_predicted = int((is_accepted & labelled).sum()), int((~labelled).sum())
    do_next = [summary.Recommendation(in_a_terminal(step.text), step.command) for step in steps(found)]
    return summary.Result(
        method=method_of(clf),
        counts=replace(summary.count(clf.annotations_), items=_n_labelled(clf)),
        accepted=summary.Accepted(n_accepted, THRESHOLD, n_predicted, int((is_accepted & ~labelled).sum())),
        review=summary.Review(found.of_kind(), _on_new_items(found), do_next, effect),
        agreement=summary.agreement_of(found.agreement, found.kappa_warning, found.pairs),
        annotators=summary.AnnotatorTable(
            clf.annotations_.columns.annotator,
            summary.records(clf.judge_annotators(found.run.min_accuracy)),
            found.run.min_accuracy,
        ),
        gold=summary.check_gold(clf.gold_, labels.gold_from),
        names=summary.note_spellings(fitted.labels),
        exported=None if export is None else summary.count_exported(export, consensus),
        left_out=fitted.left_out,
        sources=fitted.labels.sources,
        files=files,
    )


def _n_labelled(clf: CrowdClassifier) -> int:
    import numpy as np

    return len(np.unique(clf.annotations_.item))


def _on_new_items(found: facts.Facts) -> NewItems:
    """Return how often the classifier agrees with the consensus of held-out items, and the verdict on that."""
    from crowdshot.report.summary import NewItems

    share, low, high = (found.check.share, found.check.low, found.check.high) if found.check else (None, None, None)
    return NewItems(share, low, high, found.verdict())


# "\b" keeps the line breaks
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
    allow_outside: AllowOutside = False,
    method: Annotated[
        str, method_option(metavar="NAME", help="The learning method; see `crowdshot methods`.")
    ] = "auto",
    settings: Annotated[
        Mapping[str, Any] | None,
        FromText(as_settings),
        method_option(
            metavar="NAME=VALUE,…", help="Settings of the method (default: those listed by `crowdshot methods`)."
        ),
    ] = None,
    processes: Processes = 1,
    engine: EngineName = Engine.LOCAL,
    export: ExportFolder = None,
    threshold: Threshold = 0.9,
    copies: Copies = False,
    anonymous: Annotated[
        bool, output_option("--anonymous", help="Replace the names of annotators by numbers in all output.")
    ] = False,
    share: Annotated[
        bool,
        output_option(
            "--share",
            help="Write model.safetensors without labels, names of annotators, and ids and embeddings of items.",
        ),
    ] = False,
    min_accuracy: MinAccuracy = MIN_ACCURACY,
    cost: Cost = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Fit a classifier to items and noisy labels.

    Give the items as --images, --features or --texts. Items without labels are labelled by the classifier.

    \b
    The command writes all of these files, or none:
      report.html         a page to read in a browser
      consensus.csv       the label of each item, with its probability
      annotators.csv      the accuracy of each annotator
      confusion.csv       which classes each annotator confuses
      model.safetensors   the classifier, for `crowdshot predict`
      feedback/           a page for each annotator
      run.json            how the results were made, for `crowdshot report`
      predictions.json    the labels for Label Studio, if LABELS are its export
    """
    from crowdshot._cli.inputs import ItemFiles, Output
    from crowdshot.report.export import Export

    if share and len(labels) > 1 and not all(path.is_file() for path in labels):
        name = next(path for path in labels if not path.is_file())
        message = f"takes no value, so {name} is read as a file of labels, which it is not"
        use = Use("to name the folder to write", out=str(name))
        raise CrowdshotError(message, argument="share", found=str(name), hint=use)
    if method.lower() in METHODS_OF_AGGREGATE:
        hint = f"`crowdshot aggregate LABELS --method {method.lower()} --out consensus.csv` uses labels alone"
        message = f"is {method!r}, which does not use items"
        expected = "a method listed by `crowdshot methods`"
        raise CrowdshotError(message, argument="method", found=method, expected=expected, hint=hint)
    items = ItemFiles(
        images, features, encoder, reading.skip_bad, texts, processes, engine.value, reading.sheet, allow_outside
    )
    exported = None if export is None else Export(export, threshold, copies)
    output = Output(out, overwrite)
    result = run_adapt(
        reading.of(labels), items, output, method, settings or {}, exported, anonymous, share, min_accuracy, cost
    )
    print_result(result, as_json)
