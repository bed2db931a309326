"""``crowdshot objects``: match the boxes or spans of several annotators into objects."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdshot._cli.console import print_tables
from crowdshot._cli.option_values import as_pairs
from crowdshot._cli.options import AnnotatorsOut, AsJson, ExcelSafe, File, FromText, Sheet, flat, reading_option
from crowdshot.progress import progress

if TYPE_CHECKING:
    from crowdshot.labels.object_matching import ObjectsFound

COLUMNS = ("item", "annotator", "label", "x", "y", "width", "height", "xmin", "ymin", "xmax", "ymax", "start", "end")

# "\b" keeps the line breaks
EXAMPLES = """\b
Examples:
  crowdshot objects boxes.csv --out objects.csv
  crowdshot objects export.json --out objects.csv --annotators-out people.csv
  crowdshot objects ann.xml bob.xml --out objects.csv
  crowdshot objects ann.jsonl bob.jsonl --overlap 0.3 --out spans.csv
"""


@flat
def objects(
    regions: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES",
            help="Boxes or spans: a table with a row for each, or exports of Label Studio, CVAT, doccano or COCO.",
        ),
    ],
    overlap: Annotated[
        float, reading_option("--overlap", help="Least mean intersection over union of the regions of an object.")
    ] = 0.5,
    columns: Annotated[
        Mapping[str, str] | None,
        FromText(partial(as_pairs, "columns", keys=COLUMNS)),
        reading_option(
            "--columns", metavar="item=…,x=…", help="The names of the columns, if crowdshot does not recognise them."
        ),
    ] = None,
    sheet: Sheet = None,
    out: File = None,
    annotators_out: AnnotatorsOut = None,
    excel_safe: ExcelSafe = False,
    as_json: AsJson = False,
) -> None:
    """Match boxes or spans of several annotators into objects.

    Regions that overlap are the same object, with one region at most of each annotator. Each object gets a class, the
    median box or span, and the share of people who marked it.
    """
    from crowdshot.io.atomic import check_outputs, write_files
    from crowdshot.labels.formats.regions import read_regions
    from crowdshot.labels.object_matching import find_objects

    files = check_outputs({"out": out, "annotators_out": annotators_out}, *regions)
    with progress("matching"):
        found = find_objects(read_regions(regions, columns, sheet), overlap)
    write_files([(out, found.objects), (annotators_out, found.annotators)])
    facts = {"items": found.items, "agreement": found.agreement, "class_alpha": found.class_alpha}
    tables = {"objects": found.objects, "annotators": found.annotators}
    print_tables(facts, tables, files, as_json, None if out is None else _describe(found))


def _describe(found: ObjectsFound) -> str:
    from crowdshot.formatting import align_columns, clean, percent, plural

    there = int((found.objects["presence"] >= 0.5).sum())
    n_objects, people = len(found.objects), found.annotators
    total = f"{plural(n_objects, 'object')} on {plural(found.items, 'item')}"
    lines = [f"{total}, {there:,} marked by half of the people or more"]
    if found.agreement is not None:
        lines.append(f"agreement of two annotators on what is there (F1): {percent(found.agreement)}")
    if found.class_alpha is not None:
        lines.append(f"agreement on the class (Krippendorff's alpha): {found.class_alpha:.2f}")
    rows: list[tuple[str, ...]] = [("annotator", "items", "regions", "confirmed", "found", "overlap", "")]
    for row in people.head(20).itertuples():
        shares = [
            percent(value) if value == value and value is not None else "" for value in (row.confirmed, row.found)
        ]
        overlap = f"{row.overlap:.2f}" if row.overlap == row.overlap and row.overlap is not None else ""
        rows.append((clean(row.annotator, 40), f"{row.items:,}", f"{row.regions:,}", *shares, overlap, ""))
    more = [f"… and {len(people) - 20:,} more"] if len(people) > 20 else []
    return "\n".join([*lines, "", align_columns(rows), *more, ""])
