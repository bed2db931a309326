"""Files by patterns and folders, for who has more of them than a line holds."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from crowdshot.errors import CrowdshotError
from crowdshot.wording import listing

TABLES = (".parquet", ".csv", ".tsv", ".txt")  # what is read of a folder


def expand(patterns: Sequence[Path]) -> list[Path]:
    """Files, the tables in folders, and what matches patterns: of each those sorted by name."""
    out: list[Path] = []
    for given in patterns:
        if given.is_dir():
            found = sorted(file for file in given.iterdir() if file.suffix.lower() in TABLES)
            if not found:
                raise CrowdshotError(f"{given} has no file of labels, expected some that end in {listing(TABLES)}.")
        elif given.exists() or not glob.has_magic(str(given)):
            found = [given]
        else:
            found = [Path(name) for name in sorted(glob.glob(str(given), recursive=True)) if Path(name).is_file()]
            if not found:
                raise CrowdshotError(f"{given} matches no file, expected some of labels.")
        out += found
    return out
