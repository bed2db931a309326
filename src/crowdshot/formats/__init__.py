"""Files of labels -> `Annotations`. One tool a file, one registry.

To add a format: write a module with a ``FORMAT`` (see `crowdshot.formats.labels`) and list it here. The first format
that recognises a file reads it, so those that look for more come first.
"""

from __future__ import annotations

import os

from crowdshot.columns import GivenColumns
from crowdshot.errors import CrowdshotError
from crowdshot.formats import table
from crowdshot.formats.labels import Format, LabelFile, Labels

__all__ = ["FORMATS", "Format", "LabelFile", "Labels", "read_labels"]

FORMATS: dict[str, Format] = {
    "wide": table.WIDE,
    "long": table.LONG,  # last: it takes any table, and says what is missing in it
}


def read_labels(path: str | os.PathLike[str], columns: GivenColumns = None, format_name: str | None = None) -> Labels:
    """Labels from a file whose format is recognised by its content, or named.

    ``columns`` says which columns hold the item, the annotator and the label where their names do not.
    """
    if format_name is not None and format_name not in FORMATS:
        raise CrowdshotError(f"format is {format_name!r}, expected one of {', '.join(FORMATS)}.")
    file = LabelFile(path)
    names = [format_name] if format_name else list(FORMATS)
    chosen = next(FORMATS[name] for name in names if format_name or FORMATS[name].recognises(file, columns))
    return chosen.read(file, columns)
