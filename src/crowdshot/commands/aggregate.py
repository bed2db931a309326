"""``crowdshot aggregate``: labels alone -> consensus, and how good each annotator is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from crowdshot.commands.adapt import Report, _counts
from crowdshot.errors import CrowdshotError
from crowdshot.files.whole import (
    check_table,
    write_file,
)
from crowdshot.labels import aggregate as aggregation
from crowdshot.labels import known_truth
from crowdshot.labels.aggregate import Consensus
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotators import judge
from crowdshot.labels.belief import SETTLED
from crowdshot.labels.formats import read_labels
from crowdshot.progress import progress
from crowdshot.report.tables import check_columns, records, with_probabilities

STEPS = 100  # of EM at most, where labels are all there is


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
        known, unknown = known_truth.read(gold_file, ann)
    elif METHODS[method] is not _vote:
        known, unknown = known_truth.usable(read.gold, ann)
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
