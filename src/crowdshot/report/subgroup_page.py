"""Show groups of items or people that `crowdshot slices` compared: text for the terminal, rows and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdshot.formatting import align_columns, clean, counted, listing, percent, spread
from crowdshot.labels.agreement import Statistic
from crowdshot.labels.consensus import THRESHOLD
from crowdshot.labels.subgroups import SMALL, Group, Subgroups
from crowdshot.report.page.templates import STYLES, fill, inline

HERE = Path(__file__).parent
MOST_CLASSES = 8  # in a table of shares; --json has all
THINGS = {"items": "item", "people": "annotator", "labels": "label"}


@dataclass(frozen=True)
class Slices:
    """The groups by each column, and the files that were written."""

    slices: Sequence[Subgroups]
    files: Sequence[Path] = ()


def slice_notes(found: Subgroups) -> list[str]:
    """Return what to bear in mind when reading the table of groups."""
    small = [each.name for each in found.groups if each.small]
    lines = []
    if small:
        lines.append(f"Fewer than {SMALL} labels, so the numbers say little: {listing(small)}.")
    if found.unknown:
        lines.append(f"{counted(found.unknown, 'labels')} without a value of {found.by!r} left out.")
    if found.of == "labels":
        lines.append(f"{found.by!r} differs between labels of the same item and of the same annotator.")
    seen = found.perspectives
    if seen is not None:
        lines.append(
            f"The groups label the same {counted(seen.items, 'items')} differently (p = {_p(seen.p)}): there may be"
            " more than one truth. Look at the label distributions, not only at the consensus."
            if seen.differ
            else f"No evidence that the groups label the same {counted(seen.items, 'items')} differently"
            f" (p = {_p(seen.p)})."
        )
    elif found.of == "people":
        lines.append("No item has labels of two groups, so their views cannot be compared.")
    return lines


def _p(p: float) -> str:
    return f"{p:.3f}".rstrip("0").rstrip(".")


def describe_slices(result: Slices) -> str:
    """Return the groups for the terminal."""
    parts = []
    for found in result.slices:
        head = (found.by, "items", "people", "labels", "right", "90 %", "agreement", "90 %", "accepted", "")
        rows = [
            (
                clean(each.name, 40),
                f"{each.items:,}",
                f"{each.people:,}",
                f"{each.right.labels:,}",
                percent(each.right.share),
                spread(each.right.low, each.right.high),
                *_statistic(each.agreement),
                percent(each.accepted),
                "small" if each.small else "",
            )
            for each in found.groups
        ]
        parts.append(align_columns([head, *rows]))
        if found.perspectives is not None:
            parts.append("\n" + align_columns(_share_rows(found)))
        parts += ["", *slice_notes(found), ""]
    return "\n".join(parts).rstrip("\n")


def _statistic(found: Statistic) -> tuple[str, str]:
    if found.value is None or found.low is None or found.high is None:
        return "", ""
    return percent(found.value), spread(found.low, found.high)


def class_names(found: Subgroups) -> list[str]:
    """Return the classes of the table of shares; groups that share no item with others have no shares."""
    return [each.name for each in max((group.shares for group in found.groups), key=len)[:MOST_CLASSES]]


def _share_rows(found: Subgroups) -> list[tuple[str, ...]]:
    names = class_names(found)
    head = (f"labels by {found.by}", *(clean(name, 20) for name in names), "")
    none = [""] * len(names)
    shares = [[percent(each.share) for each in group.shares[: len(names)]] or none for group in found.groups]
    return [head, *((clean(g.name, 40), *row, "") for g, row in zip(found.groups, shares, strict=True))]


def slice_rows(result: Slices) -> list[dict[str, Any]]:
    """Return a row for each group, for a file."""
    return [_row(found, group) for found in result.slices for group in found.groups]


def _row(found: Subgroups, group: Group) -> dict[str, Any]:
    return {
        "by": found.by,
        "of": found.of,
        "group": group.name,
        "items": group.items,
        "people": group.people,
        "n_labels": group.right.labels,
        "accuracy": group.right.share,
        "low": group.right.low,
        "high": group.right.high,
        "agreement": group.agreement.value,
        "agreement_low": group.agreement.low,
        "agreement_high": group.agreement.high,
        "alpha": group.alpha.value,
        "accepted": group.accepted,
        "small": group.small,
        **{f"share of {each.name}": each.share for each in group.shares},
    }


def render_slices(result: Slices) -> str:
    """Return the groups as an HTML page without network access or scripts."""
    return fill(
        "subgroup_page.html",
        HERE,
        slices=result.slices,
        notes=slice_notes,
        things=THINGS,
        class_names=class_names,
        most_classes=MOST_CLASSES,
        small=SMALL,
        threshold=THRESHOLD,
        style=inline(*STYLES, HERE / "subgroup_page.css"),
    )
