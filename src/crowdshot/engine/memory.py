"""How much memory there is for whom: of a bound for all processes together, imports included."""

from __future__ import annotations

import re
from typing import NamedTuple

from crowdshot.errors import CrowdshotError
from crowdshot.model.parts import Sizes

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
PROCESS = 260_000_000  # bytes of a process that has read nothing yet
LEAST = 250_000_000  # bytes that a process should have for its work
ROW = 190  # bytes of a row while it is read and sent to its bucket
LABEL = 170  # bytes of a label while its bucket is sorted
MOST_ROWS, MOST_LABELS, FEWEST = 1_000_000, 8_000_000, 20_000  # beyond which more at a time is no faster
WORTH_A_PART = 100_000  # labels


class Share(NamedTuple):
    """``workers``: processes; 1 means this one alone. Rows and labels that each takes at a time."""

    workers: int
    chunk_rows: int
    part_labels: int

    def parts(self, rows: int) -> int:
        """As many as fit memory, and enough for all workers where there is work for them."""
        return max(1, -(-rows // self.part_labels), min(2 * self.workers, rows // WORTH_A_PART))


def as_bytes(text: str) -> int:
    """ "4GB" -> 4,000,000,000"""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", text.lower())
    if found is None or float(found[1]) <= 0:
        raise CrowdshotError(f"memory is {text!r}, expected a size, like 4GB.")
    return int(float(found[1]) * UNITS[found[2]])


def shares_of(memory: int, cores: int) -> Share:
    workers = max((n for n in range(2, cores + 1) if memory >= (n + 1) * PROCESS + n * LEAST), default=1)
    others = 0 if workers == 1 else workers
    own = (memory - (others + 1) * PROCESS) // workers
    if own < FEWEST * ROW:
        raise CrowdshotError(f"memory is {shown(memory)}, expected {shown(PROCESS + FEWEST * ROW)} or more.")
    return Share(workers, min(MOST_ROWS, own // ROW), min(MOST_LABELS, own // LABEL))


def tables_fit(sizes: Sizes, method: str, memory: int, workers: int) -> None:
    """Each process has a table of the annotators, adds up another, and gets a third from the step before."""
    if sizes.sparse or method in ("majority", "soft"):
        return
    table = sizes.annotators * sizes.classes**2 * 8
    needed = (workers + (workers > 1)) * PROCESS + table * (3 * workers + 3 * (workers > 1))
    if needed > memory:
        what = f"{sizes.annotators:,} annotators and {sizes.classes} classes with {workers} processes"
        raise CrowdshotError(f"memory is {shown(memory)}, expected {shown(needed)} or more for {what}.")


def shown(size: int) -> str:
    """4,000,000,000 -> "4GB"; rounded up, as it is asked for."""
    unit = next(unit for unit in ("g", "m", "k", "") if size >= UNITS[unit] or not unit)
    tenths = -(-size * 10 // UNITS[unit]) / 10
    return f"{tenths:g}{unit.upper()}B"
