"""What the commands do, from files to files; each job returns what there is to say about it, as plain JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from crowdshot import aggregate as aggregation
from crowdshot import gold, summary
from crowdshot import simulate as simulation
from crowdshot.aggregate import Consensus
from crowdshot.annotations import Annotations
from crowdshot.atomic import replacing
from crowdshot.classifier import CrowdClassifier
from crowdshot.devices import choose_device
from crowdshot.encoders import load_encoder
from crowdshot.errors import CrowdshotError
from crowdshot.fitting import fit
from crowdshot.formats import read_labels
from crowdshot.images import list_images
from crowdshot.inputs import check_kind, check_width, find_readable, open_items
from crowdshot.judging import judge
from crowdshot.learners import AUTO
from crowdshot.progress import progress
from crowdshot.results import (
    SETTLED,
    check_columns,
    check_file,
    check_folder,
    check_table,
    csv_writers,
    prediction_table,
    records,
    with_probabilities,
    write_file,
    write_folder,
    write_results,
)

Report = dict[str, Any]

STEPS = 100  # of EM at most, where labels are all there is
AT_ONCE = 20_000_000  # cells of simulated labels


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
    from crowdshot.report import Run, command, describe, write_report

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
        **gold.compare(read.gold, consensus, clf.annotations_.columns),
        "left_out": fitted.left_out,
        "files": [str(file) for file in files],
    }


def predict(
    model: Path, images: Path | None, features: Path | None, out: Path | None = None, skip_bad: bool = False
) -> tuple[Report, pd.DataFrame]:
    """A fitted model and new items -> a table with item, label, confidence and each class's probability."""
    if out is not None:
        check_table(out, model, features)
    clf = CrowdClassifier.load(model)
    items = open_items(images, features)
    check_kind(clf.encoder_, items, f"{model}")
    check_width(items, getattr(clf, "n_features_in_", None), f"{model}")
    with progress("checking images") as tick:
        kept, unreadable = find_readable(items, skip_bad, tick)
    items = items.take(kept)
    with progress("embedding") as tick:
        probabilities = np.exp(clf.predict_log_proba(items.X, progress=tick))
    names = clf.annotations_.columns
    table = prediction_table(items.ids, clf, probabilities, names.item, names.label)
    if out is not None:
        write_file(out, table)
    report = {
        **_method(clf),
        "items": len(items),
        "classes": clf.classes_.tolist(),
        "settled": int((table["confidence"] >= SETTLED).sum()),
        "settled_at": SETTLED,
        "left_out": {"unreadable images": [image.name for image in unreadable]},
        "files": [] if out is None else [str(out)],
    }
    return report, table


def _vote(ann: Annotations, steps: int, gold: dict[str, str] | None) -> Consensus:
    if gold is not None:
        raise CrowdshotError("a vote cannot use gold labels, expected --method dawid-skene or one-coin with --gold.")
    return aggregation.majority_vote(ann)


# One number an annotator is what a few labels can support.
# Dawid-Skene is the textbook's: with few labels its many numbers are guesses, and c > 0 makes them worse, not better.
METHODS: dict[str, Callable[[Annotations, int, dict[str, str] | None], Consensus]] = {
    "one-coin": lambda ann, steps, gold: aggregation.one_coin(ann, steps, gold=gold),
    "dawid-skene": lambda ann, steps, gold: aggregation.dawid_skene(ann, steps, gold=gold),
    "majority": _vote,
    "soft": _vote,
}


def aggregate(
    labels: Sequence[Path],
    method: str = "one-coin",
    steps: int = STEPS,
    gold_file: Path | None = None,
    out: Path | None = None,
    columns: Mapping[str, str] | None = None,
    format_name: str | None = None,
    annotators: Path | None = None,
) -> tuple[Report, pd.DataFrame]:
    """Labels alone -> a table with each item's label, confidence, number of labels and agreement.

    All methods but the majority vote add each class's probability (after the soft vote: its share of the labels).
    ``annotators``: a file for a table of how good each of them is.
    """
    files = [file for file in (out, annotators) if file is not None]
    for file in files:
        check_table(file, *labels, gold_file)
    if len(files) == 2 and files[0].resolve() == files[1].resolve():
        raise CrowdshotError(f"--annotators is {annotators}, as --out is, expected another file.")
    read = read_labels(labels, columns, format_name)
    ann = read.annotations
    check_columns(ann.columns, ", ".join(map(str, labels)))
    known, unknown = None, 0
    if gold_file is not None:
        known, unknown = gold.read(gold_file, ann)
    elif METHODS[method] is not _vote:
        known, unknown = gold.usable(read.gold, ann)
    with progress("aggregating"):
        consensus = METHODS[method](ann, steps, known)
    table = consensus.to_frame(ann)
    if method != "majority":
        table = with_probabilities(table, ann.classes, consensus.probabilities)
    people = judge(ann, consensus.probabilities)
    with progress("writing"):
        for path, content in ((out, table), (annotators, people)):
            if path is not None:
                write_file(path, content)
    report = {
        "method": method,
        **_counts(ann),
        "settled": int((table["confidence"] >= SETTLED).sum()),
        "settled_at": SETTLED,
        "annotator_column": ann.columns.annotator,
        "annotator_table": records(people),
        "gold": len(known or ()),
        "gold_from": str(gold_file or "the labels' file"),
        "left_out": {**read.left_out, "gold labels of other items": unknown},
        "files": [str(file) for file in files],
    }
    return report, table


def simulate(
    out: Path,
    n_items: int,
    n_classes: int,
    n_annotators: int,
    mixture: Mapping[str, float],
    labels_per_item: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
) -> Report:
    """A pretend crowd -> labels.csv, truth.csv and annotators.csv; classes are of (nearly) equal size."""
    check_folder(out, overwrite)
    generator = torch.Generator().manual_seed(seed)
    crowd = simulation.draw_annotators(n_annotators, n_classes, mixture, generator=generator)
    truth = (torch.arange(n_items) % n_classes)[torch.randperm(n_items, generator=generator)]
    said = partial(
        simulation.draw_labels, confusion=crowd.confusion, labels_per_item=labels_per_item, generator=generator
    )
    block = max(1, AT_ONCE // (n_annotators * n_classes))
    triples: list[NDArray[np.int64]] = []
    with progress("drawing labels") as tick:
        for start in range(0, n_items, block):
            triples.append(_triples(said(truth[start : start + block]).numpy(), start))
            tick(start + len(truth[start : start + block]), n_items)
    item, annotator, label = np.concatenate(triples, axis=1)
    names = [
        np.array([f"{word}-{i + 1:0{len(str(size))}d}" for i in range(size)], dtype=object)
        for word, size in (("item", n_items), ("annotator", n_annotators), ("class", n_classes))
    ]
    kinds = [simulation.KINDS[kind] for kind in crowd.kind.tolist()]
    accuracy = crowd.confusion.diagonal(dim1=-2, dim2=-1).mean(-1).numpy()
    tables = {
        "labels": pd.DataFrame({"item": names[0][item], "annotator": names[1][annotator], "label": names[2][label]}),
        "truth": pd.DataFrame({"item": names[0], "truth": names[2][truth.numpy()]}),
        "annotators": pd.DataFrame({"annotator": names[1], "kind": kinds, "accuracy": accuracy}),
    }
    files = write_folder(out, csv_writers(tables), overwrite)
    counts = {"items": n_items, "annotators": n_annotators, "labels": len(label), "classes": names[2].tolist()}
    return {**counts, "left_out": {}, "files": [str(file) for file in files]}


def _triples(labels: NDArray[np.int64], first_item: int) -> NDArray[np.int64]:
    """(n, R) labels -> (3, L) items, annotators, labels."""
    item, annotator = np.nonzero(labels >= 0)
    return np.stack([item + first_item, annotator, labels[item, annotator]])


def embed(images: Path, encoder: str, out: Path, device: str = "auto") -> Report:
    """A folder of images -> an .npz with ids, features and labels (the folder each image lies in)."""
    check_file(out)
    if out.suffix.lower() not in ("", ".npz"):
        raise CrowdshotError(f"{out} would hold arrays of NumPy, expected a name that ends in .npz.")
    network = load_encoder(encoder)
    files = list_images(images)
    with progress("embedding") as tick:
        features = network.embed(files, device=choose_device(device), progress=tick).cpu().numpy()
    ids = np.array(list(files))
    labels = np.array([PurePosixPath(name).parent.as_posix() for name in files])
    with replacing(out) as temporary, temporary.open("wb") as file:
        np.savez(file, ids=ids, features=features, labels=labels)
    return {"items": len(ids), "features": features.shape[1], "classes": len(set(labels)), "files": [str(out)]}


def _method(clf: CrowdClassifier) -> Report:
    """Which one, and in a few words what it does."""
    from crowdshot.methods.adapted import find

    method = find(clf.learner_again().name)
    return {"method": method.name, "method_summary": method.summary}


def _counts(ann: Annotations) -> Report:
    sizes = {"items": ann.n_items, "annotators": ann.n_annotators, "labels": ann.n_labels}
    return {**sizes, "classes": ann.classes.tolist()}
