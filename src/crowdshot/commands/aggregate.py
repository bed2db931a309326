"""``crowdshot aggregate``: labels alone -> consensus, and how good each annotator is."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from crowdshot.commands.counts import Report, counts, export_facts, gold_facts, spellings
from crowdshot.commands.given import LabelFiles
from crowdshot.errors import CrowdshotError
from crowdshot.files.whole import check_folder, check_table, write_file
from crowdshot.labels import copying, known_truth
from crowdshot.labels.aggregate import DEFAULT, STEPS, VOTES
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotators import judge
from crowdshot.labels.belief import SETTLED
from crowdshot.labels.believed import believe
from crowdshot.model.parts import Belief
from crowdshot.progress import progress
from crowdshot.report.export import Export, write_export
from crowdshot.report.likeliest import likeliest_table
from crowdshot.report.tables import check_columns, expected_rank, records, with_others, with_probabilities

MOST_COMPARED = 5_000_000  # items × classes, beyond which nobody waits to be told who copies


def aggregate(
    labels: LabelFiles,
    method: str = DEFAULT,
    steps: int = STEPS,
    out: Path | None = None,
    annotators: Path | None = None,
    export: Export | None = None,
    top: int = 0,
    network: Path | None = None,
) -> tuple[Report, pd.DataFrame]:
    """Labels alone -> a table with each item's label, confidence, number of labels and agreement.

    All methods but the majority vote add each class's probability (after the soft vote: its share of the labels).
    ``annotators``: a file for a table of how good each of them is. ``export``: see `crowdshot.report.export`. ``top``:
    so many of each item's likeliest classes in a long table beside ``out``. ``network``: of `train-inference`.
    """
    if top and out is None:
        raise CrowdshotError(f"top is {top}, expected out= too, beside which its table goes.")
    likeliest = None if not top or out is None else out.with_name(f"{out.stem}.likeliest{out.suffix}")
    labels = labels.expanded()
    files = [file for file in (out, annotators, likeliest) if file is not None]
    for file in files:
        check_table(file, *labels.inputs)
    if out is not None and annotators is not None and out.resolve() == annotators.resolve():
        raise CrowdshotError(f"annotators is {annotators}, which is out= too, expected another file.")
    if export is not None:
        export.check()
        check_folder(export.folder, overwrite=False)
    read = labels.read()
    ann = read.annotations
    check_columns(ann.columns, str(labels))
    gold = {} if method in VOTES and labels.gold is None else read.gold
    known_truth.some_of(gold, ann.items, source=labels.gold)
    known_truth.tell_unlabelled(list(gold), ann.items, labels.gold_from)
    ann, known = known_truth.hold(known_truth.join(ann, gold), gold)
    with progress("aggregating"):
        believed = believe(read, ann, method, steps, gold or None, network)
        without = believe(read, ann, method, steps, None, network) if gold else believed
    ann, consensus = believed.annotations, believed.consensus
    table = consensus.to_frame(ann)
    if read.ordered:
        table["expected_rank"] = expected_rank(consensus.probabilities)
    if method != "majority" or read.several:
        table = with_probabilities(table, believed.names, believed.probabilities)
    people = judge(ann, consensus.probabilities, read.history.of(ann.annotators))
    if not read.several:
        _tell_copies(ann, consensus.probabilities)
    with progress("writing"):
        long = likeliest_table(ann, consensus.probabilities, top)
        for path, content in ((out, table), (annotators, with_others(people, read.history)), (likeliest, long)):
            if path is not None:
                write_file(path, content)
        if export is not None:
            files += write_export(export, table, ann, read)
    report = {
        "method": method,
        **counts(ann),
        "classes": believed.names.tolist(),
        "settled": int((table["confidence"] >= SETTLED).sum()),
        "settled_at": SETTLED,
        "annotator_column": ann.columns.annotator,
        "annotator_table": records(people),
        **gold_facts(
            known_truth.compare(without.annotations, known, without.consensus.probabilities[known >= 0]),
            labels.gold_from,
        ),
        **spellings(read),
        **({} if export is None else export_facts(export, table)),
        "left_out": read.left_out,
        "files": [str(file) for file in files],
    }
    return report, table


def _tell_copies(ann: Annotations, belief: Belief) -> None:
    """Where these can be compared."""
    if not isinstance(belief, np.ndarray) or belief.size > MOST_COMPARED or ann.n_classes < 2:
        return
    told = copying.in_words(ann, copying.compare_pairs(ann, belief))
    if told:
        hint = "their one voice counts as several, unless names= makes one of them"
        warnings.warn(f"{told}; {hint}.", UserWarning, stacklevel=2)
