"""Text with a separator -> rows of cells."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError

SEPARATORS = ",;\t|"
SAMPLE = 64 * 1024  # characters in which the separator is looked for
LARGEST_BLOCK = 2**30  # bytes; pyarrow counts them in 32 bits


def parse_separated(text: str, name: str) -> tuple[pd.DataFrame, NDArray[np.int64], str]:
    """All rows, the header's too, where in the file they stand, and the separator.

    A row with too many or too few cells is an error.

    Excel may have put a row before them that tells the separator, ``sep=;``.
    """
    told = re.match(r"\"?sep=.\"?(\r?\n|$)", text)
    before = 1 if told else 0  # rows above the header
    text = text[told.end() :] if told else text
    if not text.strip():
        raise CrowdshotError(f"{name} has no rows, expected a table.")
    separator, width = sniff(text, name)
    blank: list[int] = []
    ragged: list[tuple[int, int]] = []

    def odd_row(row: Any) -> str:
        if row.text.strip():
            ragged.append((row.number + before, row.actual_columns))
        else:
            blank.append(row.number + before)
        return "skip"

    data = text.encode()
    names = [str(column) for column in range(width)]
    try:
        cells = pa.csv.read_csv(
            pa.BufferReader(data),
            pa.csv.ReadOptions(use_threads=False, column_names=names, block_size=min(len(data) + 1, LARGEST_BLOCK)),
            pa.csv.ParseOptions(
                delimiter=separator, newlines_in_values=True, ignore_empty_lines=False, invalid_row_handler=odd_row
            ),
            pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
    except pa.ArrowInvalid as error:
        raise CrowdshotError(f"{name} could not be read as a table ({error}).") from None
    if ragged:
        row, found = ragged[0]
        others = f" ({len(ragged)} rows are like that)" if len(ragged) > 1 else ""
        hint = ": is a quotation mark left open?" if found < width and '"' in text else "."
        raise CrowdshotError(f"{name}, row {row} has {found} cells, expected {width} as in the header{others}{hint}")
    rows = np.arange(1, 1 + cells.num_rows + len(blank)) + before
    return cells.to_pandas(), np.setdiff1d(rows, blank) if blank else rows, separator


def sniff(text: str, name: str) -> tuple[str, int]:
    """The separator, and how many columns it makes of the header.

    The one with which the rows that follow are as long as the header; of several, the one that makes most columns.
    """
    end = text.find("\n", SAMPLE)  # the header, which may be longer than that, is never cut short
    lines = list(io.StringIO(text if end < 0 else text[:end], newline=""))
    if not lines[0].strip():
        raise CrowdshotError(f"{name}, row 1 is blank, expected the names of the columns.")
    best = (False, 1, "")
    for separator in SEPARATORS:
        try:
            widths = [len(row) for row in csv.reader(lines[:50], delimiter=separator) if row]
        except csv.Error:
            continue
        if widths[0] > 1:
            best = max(best, (set(widths) == {widths[0]}, widths[0], separator), key=lambda found: found[:2])
    _, width, separator = best
    if width == 1:
        raise CrowdshotError(
            f"{name} has one column, {lines[0].strip()[:80]!r}, expected several, separated by commas, semicolons,"
            " tabs or bars."
        )
    return separator, width
