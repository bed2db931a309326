"""Which sheets of a workbook hold labels."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from crowdshot.errors import CrowdshotError
from crowdshot.labels.formats.labels import LabelFile
from crowdshot.labels.wide import is_called_otherwise
from crowdshot.wording import listing


def with_labels(file: LabelFile, fits: Callable[[LabelFile], bool]) -> list[LabelFile]:
    """The file, or of a workbook with several sheets the one that fits; several are refused.

    Where none fits, but would if it were one annotator's, each sheet is the annotator's that it is called after; those
    that are called as no annotator's column is (gold, final, consensus) are left out.
    """
    if len(file.sheets) < 2:
        return [file]
    sound = [sheet for sheet, table in file.sheets.items() if not isinstance(table, CrowdshotError)]
    alone = [sheet for sheet in sound if fits(file.at(sheet))]
    if len(alone) == 1:
        others = listing(sheet for sheet in file.sheets if sheet not in alone)
        told = f"{file.name}: labels are read from the sheet {alone[0]!r}, and nothing from {others}."
        warnings.warn(told, UserWarning, stacklevel=3)
        return [file.at(alone[0])]
    own = [sheet for sheet in sound if fits(file.at(sheet, annotator=sheet))]
    if not alone and len(own) > 1:
        people = [sheet for sheet in own if not is_called_otherwise(sheet)] or own
        left_out = [sheet for sheet in own if sheet not in people]
        rest = f", and nothing is read from {listing(left_out)}" if left_out else ""
        told = f"{file.name}: each of the sheets {listing(people)} is taken for one annotator's{rest}."
        warnings.warn(told, UserWarning, stacklevel=3)
        return [file.at(sheet, annotator=sheet) for sheet in people]
    damaged = next((table for table in file.sheets.values() if isinstance(table, CrowdshotError)), None)
    if damaged is not None and not alone:
        raise damaged
    number = f"{len(alone)} sheets that could hold the labels" if alone else f"{len(file.sheets)} sheets"
    raise CrowdshotError(f"{file.name} has {number}, {listing(alone or file.sheets)}, expected one; sheet= says which.")
