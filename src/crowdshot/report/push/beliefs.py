"""What is pushed: the label of each item and how probable it is; and to which of a tool's entries it belongs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from crowdshot.errors import CrowdshotError
from crowdshot.files.tables import one_each, read_table
from crowdshot.labels.choices import parts
from crowdshot.labels.formats.questions import is_picture
from crowdshot.labels.matching import file_finder
from crowdshot.report.compare import CONSENSUS, numbers_of
from crowdshot.wording import listing, show

Beliefs = dict[str, tuple[str, float]]  # {item: (label, probability)}


class Pushed(NamedTuple):
    """How many items got their label, which the tool does not have, and the name that it was pushed under."""

    pushed: int
    lost: list[str]
    name: str


def read_beliefs(path: Path, threshold: float = 0.0) -> Beliefs:
    """A table that `aggregate` or `predict` wrote, or a folder that `adapt` did; without labels less probable."""
    if not 0 <= threshold <= 1:
        raise CrowdshotError(f"threshold is {threshold:g}, expected a probability, 0 to 1.")
    table = read_table(path / CONSENSUS if path.is_dir() else path)
    (confidence,) = numbers_of(table, "confidence", beside=2)
    rows = zip(one_each(table, 0), table.text(1), confidence, strict=True)
    found = {str(item): (str(label), float(sure)) for item, label, sure in rows if sure >= threshold}
    strange = next((item for item, (_, sure) in found.items() if not 0 <= sure <= 1), None)
    if strange is not None:
        raise CrowdshotError(
            f"{table.name} has the confidence {found[strange][1]:g} for {show(strange)}, expected 0 to 1."
        )
    return found


def refuse_unknown(beliefs: Beliefs, known: Collection[str], several: bool, where: str) -> None:
    """Before anything is sent. ``known``: the tool's labels, if it lists them."""
    for label, _ in beliefs.values():
        stranger = next((part for part in (parts(label) if several else [label]) if known and part not in known), None)
        if stranger is not None:
            raise CrowdshotError(f"{where} has no label {show(stranger)}, expected one of {listing(sorted(known))}.")


def find(beliefs: Beliefs, names: Sequence[Sequence[str | None]]) -> tuple[dict[int, tuple[str, float]], list[str]]:
    """{place of an entry: its label}, by any of the entries' names or by the file that one means; and items not found.

    Of several entries that are called alike, as questions about one item are, each gets the label.
    """
    meant = file_finder([PurePosixPath(item) for item in beliefs])
    items = list(beliefs)
    found, used = {}, set()
    for place, given in enumerate(names):
        known = [name for name in given if name]
        item = next((name for name in known if name in beliefs), None)
        if item is None:
            files = (meant(name) for name in known if is_picture(name))
            item = next((items[file] for file in files if file >= 0), None)
        if item is not None:
            found[place] = beliefs[item]
            used.add(item)
    return found, [item for item in items if item not in used]
