"""``crowdshot compare``: two rounds of one project, as ``adapt`` wrote them, side by side."""

from __future__ import annotations

from pathlib import Path

from crowdshot.errors import CrowdshotError
from crowdshot.files.whole import check_file, replacing
from crowdshot.report.compare import Comparison
from crowdshot.report.compare import compare as compare_rounds
from crowdshot.report.compare_page import render


def compare(before: Path, after: Path, out: Path | None = None) -> Comparison:
    """Two folders -> what changed; and a page that shows it."""
    if out is not None:
        check_file(out)
        if out.suffix.lower() not in (".html", ".htm"):
            raise CrowdshotError(f"{out} is to hold a page, expected a name that ends in .html.")
    found = compare_rounds(before, after)
    if out is not None:
        with replacing(out) as temporary:
            temporary.write_text(render(found), encoding="utf-8", newline="\n")
    return found
