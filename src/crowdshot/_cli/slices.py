"""``crowdshot slices``: accuracy, agreement and label distributions by a property of items or people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from crowdshot._cli.console import print_json, print_lines
from crowdshot._cli.option_values import as_names
from crowdshot._cli.options import AsJson, FromText, Labels, Page, ReadingOptions, flat, input_option, output_option
from crowdshot.errors import CrowdshotError
from crowdshot.progress import progress

if TYPE_CHECKING:
    import pandas as pd

    from crowdshot._cli.inputs import LabelFiles
    from crowdshot.io.cells import Positions
    from crowdshot.labels.annotations import Annotations
    from crowdshot.report.subgroup_page import Slices

# "\b" keeps the line breaks
EXAMPLES = """\b
Examples:
  crowdshot slices labels.csv --by language
  crowdshot slices labels.csv --people people.csv --by country,age --page slices.html
  crowdshot slices labels.csv --items texts.csv --by source --out slices.csv
"""


def run_slices(
    labels: LabelFiles, by: Sequence[str], items: Path | None = None, people: Path | None = None
) -> tuple[Slices, pd.DataFrame]:
    """Compare groups by each column.

    Return them, and the label distribution of each item by each group of the last column.
    """
    import numpy as np

    from crowdshot.labels import gold_labels
    from crowdshot.labels.aggregation import aggregate_labels
    from crowdshot.labels.subgroups import compare_groups, label_distributions, without_empty
    from crowdshot.report.subgroup_page import Slices

    if labels.multi_label:
        raise CrowdshotError("is not supported by this command", argument="multi_label")
    labels = labels.expanded()
    read = labels.read()
    ann, _ = gold_labels.hold(gold_labels.join(read.annotations, read.gold), read.gold)
    grouped = [(column, *group_labels(labels, ann, column, items, people)) for column in by]
    with progress("aggregating"):
        posterior = aggregate_labels(read, ann, gold=read.gold or None).consensus.probabilities
    if not isinstance(posterior, np.ndarray):
        raise CrowdshotError(f"has {ann.n_classes:,} classes", argument="labels", expected="fewer")
    with progress("comparing groups"):
        found = [
            without_empty(compare_groups(ann, posterior, column, values, group, read.ordered))
            for column, values, group in grouped
        ]
        _, values, group = grouped[-1]
        return Slices(found), label_distributions(ann, values, group)


def group_labels(
    labels: LabelFiles, ann: Annotations, column: str, items: Path | None, people: Path | None
) -> tuple[list[str], Positions]:
    """Return the values of a column, and the position of each label's value (L,), -1 for none.

    The column is one of the tables of items and people, or else of the label files.
    """
    import numpy as np

    from crowdshot.labels.subgroups import groups_of_ids

    for path, role, ids, rows in (
        (items, ann.columns.item, ann.items, ann.item),
        (people, ann.columns.annotator, ann.annotators, ann.annotator),
    ):
        found = None if path is None else _column(path, role, column)
        if path is not None and found is not None:
            values, group = groups_of_ids([str(name) for name in ids], found)
            if not values:
                message = "has none of the ids in the labels"
                raise CrowdshotError(message, where=path, found=next(iter(found), None), expected=f"ids like {ids[0]}")
            return values, group[rows]
    values, of_pair = _in_labels(labels, column)
    place = {value: position for position, value in enumerate(values)}
    names, annotators = ann.items.astype(str), ann.annotators.astype(str)
    labelled = ann.classes.astype(str)[ann.label].tolist()
    pairs = zip(names[ann.item].tolist(), annotators[ann.annotator].tolist(), strict=True)
    kept = [_value_of(of_pair.get(pair, {}), label) for pair, label in zip(pairs, labelled, strict=True)]
    return values, np.array([place.get(value, -1) for value in kept], dtype=np.int64)


def _value_of(labels: Mapping[str, str], kept: str) -> str:
    """Return the value with the label that counts, if an annotator labelled an item for several; "" if undecided."""
    values = list(labels) if len(labels) == 1 else [value for value, label in labels.items() if label == kept]
    return values[0] if len(values) == 1 else ""


def _column(path: Path, role: str, column: str) -> dict[str, str] | None:
    """Return {id: value} of a table, or None; the ids are in the first column, or in that called like ``role``."""
    from crowdshot.io.tables import one_each, read_table

    table = read_table(path)
    if column not in table.header:
        return None
    ids = one_each(table, table.header.index(role) if role in table.header else 0)
    return dict(zip(map(str, ids), map(str, table.text(table.header.index(column))), strict=True))


def _in_labels(labels: LabelFiles, column: str) -> tuple[list[str], dict[tuple[str, str], dict[str, str]]]:
    """Return the values of a column of the label files, and ``{(item, annotator): {value: label}}``."""
    from crowdshot.labels.subgroups import MOST_GROUPS

    try:
        values = labels.values(column)
        if not 2 <= len(values) <= MOST_GROUPS:
            return values, {}  # compare_groups explains it
        of_pair: dict[tuple[str, str], dict[str, str]] = {}
        for value in values:
            for item, annotator, label in _labels_with(labels, column, value):
                of_pair.setdefault((item, annotator), {})[value] = label
    except CrowdshotError as error:
        if error.argument != "batch":
            raise
        hint = "Columns of other tables are read with items and people."
        raise CrowdshotError(
            error.message, argument="by", where=error.where, found=column, expected=error.expected, hint=hint
        ) from None
    return values, of_pair


def _labels_with(labels: LabelFiles, column: str, value: str) -> list[tuple[str, str, str]]:
    """Return the items, annotators and classes of the labels with a value."""
    chosen = replace(labels, batch={**(labels.batch or {}), column: value}, gold=None, history=None)
    ann = chosen.joined(chosen.parts(), "allow").annotations
    items, annotators, classes = (ids.astype(str) for ids in (ann.items, ann.annotators, ann.classes))
    taken = items[ann.item], annotators[ann.annotator], classes[ann.label]
    return list(zip(*(ids.tolist() for ids in taken), strict=True))


@flat
def slices(
    labels: Labels,
    by: Annotated[
        Sequence[str],
        FromText(partial(as_names, "by", like="language,country")),
        input_option(
            "--by",
            metavar="COLUMN,…",
            help="The property of items or people: a column of LABELS, of --items or of --people.",
        ),
    ] = (),
    items: Annotated[
        Path | None, input_option("--items", metavar="FILE", help="A table with a row for each item.")
    ] = None,
    people: Annotated[
        Path | None, input_option("--people", metavar="FILE", help="A table with a row for each annotator.")
    ] = None,
    out: Annotated[
        Path | None, output_option("--out", metavar="FILE.csv", help="Also write a row for each group.")
    ] = None,
    distributions: Annotated[
        Path | None,
        output_option(
            "--distributions",
            metavar="FILE.csv",
            help="Also write the shares of the classes for each item and group of the last column.",
        ),
    ] = None,
    page: Page = None,
    as_json: AsJson = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Compare accuracy and agreement of groups.

    Groups are the values of a column, such as the language of items or the country of people. Groups of people are also
    compared by how they label the same items: do they differ by more than chance?
    """
    import pandas as pd

    from crowdshot.io.atomic import check_outputs, write_files
    from crowdshot.report import subgroup_page

    if not by:
        raise CrowdshotError("is missing", argument="by", expected="a column, such as language")
    label_files = reading.of(labels)
    tables = {"out": out, "distributions": distributions}
    files = check_outputs(tables, *label_files.inputs, items, people, page=page)
    found, shares = run_slices(label_files, by, items, people)
    html = "" if page is None else subgroup_page.render_slices(found)
    write_files([(out, pd.DataFrame(subgroup_page.slice_rows(found))), (distributions, shares), (page, html)])
    if as_json:
        print_json(replace(found, files=files))
    else:
        print_lines(subgroup_page.describe_slices(found), *files)
