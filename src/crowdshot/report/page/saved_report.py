"""Save what a report is computed from in its folder, and rebuild the page from it.

``run.json`` describes the run: its inputs, commands and notes. The labels and posteriors are in ``model.safetensors``
or, for labels alone, in ``labels.safetensors``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crowdshot.errors import CrowdshotError
from crowdshot.io.cards import Card, read_arrays, write_arrays
from crowdshot.io.cells import unique_ids
from crowdshot.io.json_text import parse_json, to_json
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import MIN_ACCURACY, check_min_accuracy, judge
from crowdshot.labels.columns import Columns
from crowdshot.labels.spelling import Twins
from crowdshot.labels.working_times import TEXTS
from crowdshot.report.page.basis import Basis, compare_gold
from crowdshot.report.page.facts import Run

RUN, LABELS, MODEL = "run.json", "labels.safetensors", "model.safetensors"
FORMAT = 1
KIND = "crowd"
RESULTS_FOLDER = "a folder that `crowdshot adapt` or `crowdshot aggregate --report` wrote"
TRIPLES, IDS = ("item", "annotator", "label"), ("items", "annotators", "classes")
TEXT, MAPPINGS = ("items_from", "command"), ("how", "commands")
LISTS = ("sources", "respelled", "left_out", "feature_value", "texts")


def check_results(folder: Path, *names: str) -> None:
    """Raise an error if ``folder`` has no results of a run, or lacks one of the files."""
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "does not exist"
        raise CrowdshotError(problem, where=folder, expected=RESULTS_FOLDER)
    for name in names:
        if not (folder / name).is_file():
            hint = None
            if name == RUN:
                hint = "Folders of crowdshot 0.2 and earlier have none: repeat the command that wrote the folder."
            raise CrowdshotError(f"has no {name}", where=folder, expected=RESULTS_FOLDER, hint=hint)


# ---- run.json ----


class Saved(NamedTuple):
    """The content of run.json: the run, the items whose true label is known, and the classes, maybe sets of labels."""

    run: Run
    known: list[str]
    classes: list[str]
    several: bool


def write_run(path: Path, run: Run, basis: Basis) -> None:
    ann = basis.annotations
    fields = {name: value for name, value in to_json(run).items() if name != "near_duplicates"}
    for name in ("working", "money", "costs", "prices"):
        if not fields[name]:
            del fields[name]
    if run.price == 1:
        del fields["price"]
    duplicates = [[each.of, list(each.names), list(each.counts)] for each in run.near_duplicates]
    content = {
        "format": FORMAT,
        "known": [str(name) for name in ann.items[basis.known]],
        "classes": [str(name) for name in ann.classes],
        "several": basis.several,
        "run": {**fields, "near_duplicates": duplicates},
    }
    text = json.dumps(content, indent=1)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def read_run(folder: Path) -> Saved:
    """Return the run of a results folder."""
    check_results(folder, RUN)
    path = folder / RUN
    content = parse_json(path.read_text("utf-8", errors="replace"), str(path))
    try:
        if content["format"] > FORMAT:
            hint = "Install a newer crowdshot to read it"
            raise CrowdshotError(f"has format {content['format']}", where=path, expected=f"{FORMAT} or less", hint=hint)
        known, classes = ([_text(name) for name in content[key]] for key in ("known", "classes"))
        return Saved(_run(content["run"]), known, classes, bool(content["several"]))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CrowdshotError(
            f"is damaged ({type(error).__name__}: {error})",
            where=path,
            hint="Repeat the command that wrote the folder.",
        ) from None


def _run(saved: Mapping[str, Any]) -> Run:
    fields: dict[str, Any] = {name: _text(saved[name]) for name in TEXT}
    fields |= {name: [_text(each) for each in saved[name]] for name in LISTS}
    fields |= {name: {_text(key): _text(value) for key, value in saved[name].items()} for name in MAPPINGS}
    fields["paths"] = [Path(_text(path)) for path in saved["paths"]]
    fields["near_duplicates"] = [
        Twins(_text(of), tuple(map(_text, names)), tuple(map(int, counts)))
        for of, names, counts in saved["near_duplicates"]
    ]
    min_accuracy = float(saved.get("min_accuracy", MIN_ACCURACY))
    check_min_accuracy(min_accuracy)
    working = {_text(name): _working(known) for name, known in saved.get("working", {}).items()}
    fields["money"] = [_text(each) for each in saved.get("money", ())]
    fields["costs"] = {_text(key): _text(value) for key, value in saved.get("costs", {}).items()}
    fields["price"] = float(saved.get("price", 1))
    fields["prices"] = [float(each) for each in saved.get("prices", ())]
    if not all(0 < each < float("inf") for each in fields["prices"]):
        raise ValueError("a cost is not a number above 0")
    return Run(**fields, ordered=bool(saved["ordered"]), min_accuracy=min_accuracy, working=working)


def _working(known: Mapping[str, Any]) -> dict[str, Any]:
    """Return when and how fast an annotator works, after a check of the types."""
    return {name: _text(value) if name in TEXTS else float(value) for name, value in known.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


# ---- labels.safetensors ----


def write_labels(path: Path, basis: Basis, without_gold: np.ndarray[Any, Any], known: np.ndarray[Any, Any]) -> None:
    """Write the labels and posteriors of a report on labels alone.

    ``known`` (N,) are the known classes, -1 for none, and ``without_gold`` (N, K) is the posterior without them.
    """
    ann = basis.annotations
    arrays = {name: getattr(ann, name) for name in TRIPLES}
    arrays |= {"posterior": basis.posterior, "known": known, "without_gold": without_gold[known >= 0]}
    if basis.history is not None:
        arrays["history"] = basis.history
    ids = {name: [str(each) for each in getattr(ann, name)] for name in IDS}
    write_arrays(path, arrays, {"kind": KIND, "columns": list(ann.columns), "several": basis.several, **ids})


def _read_labels(path: Path, min_accuracy: float) -> Basis:
    arrays, card = read_arrays(path, KIND)
    try:
        return _basis(arrays, card, min_accuracy)
    except CrowdshotError:
        raise
    except Exception as error:  # a card made by somebody else can make anything fail
        raise CrowdshotError(f"is damaged ({type(error).__name__}: {error})", where=path) from None


def _basis(arrays: Mapping[str, Any], card: Card, min_accuracy: float) -> Basis:
    ids = {name: unique_ids(card[name], name) for name in IDS}
    triples = {name: arrays[name].astype(np.int64) for name in TRIPLES}
    N, R, K = (len(ids[name]) for name in IDS)
    for (name, column), size in zip(triples.items(), (N, R, K), strict=True):
        if column.ndim != 1 or len(column) != len(triples["item"]) or (column < 0).any() or (column >= size).any():
            raise ValueError(f"{name} is not an array of positions below {size}")
    ann = Annotations(**triples, **ids, columns=Columns(*map(str, card["columns"])))
    posterior, known, history = arrays["posterior"], arrays["known"], arrays.get("history")
    without_gold = np.zeros((N, K))
    without_gold[known >= 0] = arrays["without_gold"]
    for name, array, shape in (("posterior", posterior, (N, K)), ("known", known, (N,)), ("history", history, (R, 2))):
        if array is not None and (array.shape != shape or not np.isfinite(array).all()):
            raise ValueError(f"{name} has shape {array.shape} or numbers that are not finite")
    return Basis(
        ann,
        posterior,
        judge(ann, posterior, history, min_accuracy),
        compare_gold(ann, known, without_gold),
        np.asarray(known >= 0),
        history,
        bool(card["several"]),
    )


def read_basis(folder: Path, run: Run) -> Basis:
    """Return the labels and results of a folder; a classifier is loaded with torch, labels alone are not."""
    basis = _saved_basis(folder, run)
    if run.prices and len(run.prices) != basis.annotations.n_annotators:
        raise CrowdshotError(
            f"has {len(run.prices)} costs",
            where=folder / RUN,
            found=len(run.prices),
            expected=f"{basis.annotations.n_annotators}, one for each annotator",
        )
    return basis


def _saved_basis(folder: Path, run: Run) -> Basis:
    if not run.thing:
        check_results(folder, LABELS)
        return _read_labels(folder / LABELS, run.min_accuracy)
    check_results(folder, MODEL)
    from crowdshot.classifier.crowd_classifier import CrowdClassifier

    clf = CrowdClassifier.load(folder / MODEL)
    if clf.embeddings_ is None:
        raise CrowdshotError(
            "has no embeddings: it was saved without labels, or has very many items",
            where=folder / MODEL,
            hint="Repeat `crowdshot adapt` to make the report.",
        )
    return Basis.of_classifier(clf, clf.embeddings_, run.min_accuracy)
