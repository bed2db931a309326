"""Labels that are numbers, and more likely measurements than names of classes."""

from __future__ import annotations

import re
from collections.abc import Collection

from crowdshot.errors import CrowdshotError
from crowdshot.wording import listing

MOST = 50  # whole numbers that may be classes
REMEDY = "categories=True takes them for names of classes, measurements are not read"


def refuse_fractions(labels: Collection[str], source: str) -> None:
    """3.5 or, in many a country, 3,5, where most labels are numbers."""
    numbers = [label for label in map(str, labels) if re.fullmatch(r"[-+]?(\d+([.,]\d*)?|[.,]\d+)", label)]
    found = [label for label in numbers if re.search(r"[.,]\d*[1-9]", label)]
    if found and 2 * len(numbers) > len(labels):
        raise CrowdshotError(
            f"{source} has numbers with a decimal part as labels, {listing(found, 3)}, expected classes; {REMEDY}."
        )


def refuse_many(labels: Collection[str], source: str) -> None:
    if len(labels) > MOST and all(re.fullmatch(r"[-+]?\d+", str(label)) for label in labels):
        raise CrowdshotError(
            f"{source} has {len(labels)} different numbers as labels, {listing(labels, 3)}, expected {MOST} at most;"
            f" {REMEDY}."
        )
