"""``crowdshot judges``: find out whether a model may replace a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from crowdshot._cli.console import note, print_json, print_lines
from crowdshot._cli.option_values import as_names
from crowdshot._cli.options import (
    AsJson,
    Cost,
    FromText,
    Labels,
    Page,
    ReadingOptions,
    flat,
    method_option,
    output_option,
)
from crowdshot.errors import CrowdshotError, Use
from crowdshot.progress import progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from crowdshot._cli.inputs import LabelFiles
    from crowdshot.labels.formats.label_file import LabelsRead
    from crowdshot.report.model_judging import JudgedModels

# "\b" keeps the line breaks
EXAMPLES = """\b
Examples:
  crowdshot judges verdicts.jsonl people.csv
  crowdshot judges labels.csv --models 'gpt-*,llama-70b' --people expert --page judges.html
  crowdshot judges labels.csv --models gpt --cost gpt=0.002,others=0.1 --promise 0.95
"""


class People(StrEnum):
    EXPERT = "expert"
    SKILLED = "skilled"
    CROWD = "crowd"


def run_judges(
    labels: LabelFiles,
    models: Sequence[str] = (),
    people: str = "crowd",
    promise: float = 0.9,
    cost: Mapping[str, float] | Path | None = None,
) -> JudgedModels:
    """Judge the annotators that are models by the labels of the others; see `crowdshot.report.model_judging`."""
    from crowdshot.labels import gold_labels
    from crowdshot.labels.alternative_test import EPSILON
    from crowdshot.labels.label_costs import costs_of
    from crowdshot.report.model_judging import judge_all

    if not 0 < promise < 1:
        raise CrowdshotError(f"is {promise:g}", argument="promise", found=promise, expected="a share, such as 0.95")
    if labels.multi_label:
        raise CrowdshotError("is not supported by this command", argument="multi_label")
    labels = labels.expanded()
    read = labels.read()
    ann, known = gold_labels.hold(gold_labels.join(read.annotations, read.gold), read.gold)
    is_model = find_models(labels, read, models)
    prices = None if cost is None else costs_of(cost, ann)
    with progress("judging models"):
        return judge_all(read, ann, known >= 0, is_model, people, EPSILON[people], promise, prices)


def find_models(labels: LabelFiles, read: LabelsRead, models: Sequence[str]) -> NDArray[np.bool_]:
    """Return which annotators (R,) are models: those that are named, or else those of logs of judges."""
    import numpy as np

    ann = read.annotations
    names = [str(name) for name in ann.annotators]
    wanted = _named(models, names) if models else _of_logs(labels, read)
    mask = np.array([name in wanted for name in names], dtype=bool)
    counts = np.bincount(ann.annotator, minlength=len(names))
    if not counts[mask].sum():
        raise CrowdshotError(
            "is missing, and no file is a log of judges",
            argument="models",
            found=names[:10],
            expected="the annotators that are models",
            hint=Use("if it is a model", models=names[:1]),
        )
    if not counts[~mask].sum():
        message = "leaves no person: all annotators are models"
        raise CrowdshotError(message, argument="models", found=names[:10], expected="labels of people too")
    return mask


def _named(models: Sequence[str], names: Sequence[str]) -> set[str]:
    """Return the annotators with these names, in which * and ? are wildcards."""
    from fnmatch import fnmatchcase

    from crowdshot.formatting import listing, show

    found: set[str] = set()
    for model in models:
        pattern = model.replace("[", "[[]")  # brackets are no wildcards
        matches = {name for name in names if name == model or fnmatchcase(name, pattern)}
        if not matches:
            message = f"names {show(model)}, who gave no label"
            expected = f"some of {listing(names)}"
            raise CrowdshotError(message, argument="models", found=model, expected=expected, among=names)
        found |= matches
    return found


def _of_logs(labels: LabelFiles, read: LabelsRead) -> set[str]:
    """Return the annotators of files in the format "judges"."""
    logs = [Path(source.file) for source in read.sources if source.format == "judges"]
    paths = [path for path in labels.paths if path in logs]
    if not paths:
        return set()
    parts = replace(labels, paths=paths).parts()
    return {read.people.get(str(name), str(name)) for part in parts for name in part.annotations.annotators}


@flat
def judges(
    labels: Labels,
    models: Annotated[
        Sequence[str],
        FromText(partial(as_names, "models", like="gpt-4o,llama-70b")),
        method_option(
            "--models",
            metavar="NAME,…",
            help="The annotators that are models; * is any text (default: the annotators of logs of judges).",
        ),
    ] = (),
    people: Annotated[
        People,
        method_option(
            "--people",
            help="Who the people are. The more they cost, the more a person may be better than the model: by 0.2 for"
            " experts, 0.15 for skilled people, 0.1 for crowd workers.",
        ),
    ] = People.CROWD,
    promise: Annotated[
        float,
        method_option(
            "--promise",
            metavar="P",
            help="The accuracy that models' labels should have, if models label first and people what is uncertain.",
        ),
    ] = 0.9,
    cost: Cost = None,
    out: Annotated[
        Path | None, output_option("--out", metavar="FILE.csv", help="Also write a row for each model.")
    ] = None,
    page: Page = None,
    as_json: AsJson = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Find out whether a model may replace a person.

    Compares models with people who labelled the same items: agreement, accuracy for each class, the alternative
    annotator test, families of models that err together, and what it saves to label with models first.
    """
    import pandas as pd

    from crowdshot.io.atomic import check_outputs, write_files
    from crowdshot.report import model_judging, summary

    label_files = reading.of(labels)
    inputs = [*label_files.inputs, *([cost] if isinstance(cost, Path) else [])]
    files = check_outputs({"out": out}, *inputs, page=page)
    found = run_judges(label_files, models, people.value, promise, cost)
    html = "" if page is None else model_judging.render_models(found)
    write_files([(out, pd.DataFrame(model_judging.table_of(found))), (page, html)])
    for line in summary.left_out(found.left_out):
        note(f"left out: {line}")
    if as_json:
        print_json(replace(found, files=files))
    else:
        print_lines(model_judging.describe_models(found), *files)
