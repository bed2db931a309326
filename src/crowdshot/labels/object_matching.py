"""Match the boxes or spans of several annotators into objects, and aggregate each object's class and place.

Regions of an item are merged step by step: always the two groups with the highest mean overlap (intersection over
union), down to a threshold. A group has one region at most of each annotator. Each group is an object. Its box or span
is the coordinate-wise median; its class is aggregated like the label of an item. Its presence is the share of those who
looked at the item who marked it: models of annotators were not better on simulated boxes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.labels.aggregation import learned
from crowdshot.labels.agreement import krippendorff_alpha
from crowdshot.labels.annotations import Annotations

Floats = NDArray[np.float64]
OVERLAP = 0.5  # least mean intersection over union of the regions of an object
MOST_REGIONS = 2000  # on an item
CORNERS = {4: ("x", "y", "width", "height"), 2: ("start", "end")}  # number of coordinates -> columns of the result


class Region(NamedTuple):
    """A box ``(left, top, right, bottom)`` or a span ``(start, end)`` with its label.

    A region without coordinates says that the annotator looked at the item and marked nothing.
    """

    item: str
    annotator: str
    label: str
    corners: tuple[float, ...]


@dataclass(frozen=True)
class ObjectsFound:
    """Objects of all items.

    Attributes
    ----------
    objects : DataFrame
        A row for each object: item, object (its number), label, confidence, presence (the share of the annotators who
        looked at the item who marked it), marked_by and seen_by (their numbers), overlap (mean intersection over union
        of its regions with the merged one, None if one annotator marked it), and the coordinates.
    annotators : DataFrame
        A row for each annotator: regions, confirmed (share of their regions that belong to an object with a presence of
        0.5 or more), found (share of these objects on their items that they marked), and overlap.
    agreement : float or None
        Mean over pairs of annotators of the share of their regions on common items that match (F1).
    class_alpha : float or None
        Krippendorff's alpha of the classes of objects that several annotators marked.
    items : int
        The number of items.
    """

    objects: pd.DataFrame
    annotators: pd.DataFrame
    agreement: float | None
    class_alpha: float | None
    items: int


def overlaps(corners: Floats) -> Floats:
    """Return the intersection over union (n, n) of boxes (n, 4) or spans (n, 2).

    >>> overlaps(np.array([[0.0, 4.0], [2.0, 4.0], [8.0, 9.0]]))[0].tolist()
    [1.0, 0.5, 0.0]
    """
    half = corners.shape[1] // 2
    low, high = corners[:, :half], corners[:, half:]
    size = (high - low).prod(1)
    inner = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
    common = inner.clip(0).prod(2)
    union = size[:, None] + size - common
    shares: Floats = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return shares


def match_regions(corners: Floats, annotators: Sequence[str], overlap: float = OVERLAP) -> list[list[int]]:
    """Return groups of rows that are the same object, each with one region at most of an annotator.

    Parameters
    ----------
    corners : (n, 4) or (n, 2) array
        The regions of one item.
    annotators : sequence of str
        The annotator of each region.
    overlap : float
        The least mean intersection over union between two groups that are merged.

    Examples
    --------
    >>> boxes = np.array([[0, 0, 4, 4], [9, 9, 12, 12], [0, 1, 4, 4]], dtype=float)
    >>> match_regions(boxes, ["ann", "ann", "bob"])
    [[0, 2], [1]]
    """
    from scipy.sparse.csgraph import connected_components

    similar = overlaps(corners)
    order = sorted(range(len(corners)), key=lambda row: (*corners[row].tolist(), annotators[row]))
    n_parts, part = connected_components(similar >= overlap, directed=False)  # groups never join regions of two parts
    parts: list[list[int]] = [[] for _ in range(n_parts)]
    for row in order:
        parts[part[row]].append(row)
    return sorted(group for rows in parts for group in _match_part(similar, rows, annotators, overlap))


def _match_part(similar: Floats, rows: list[int], annotators: Sequence[str], overlap: float) -> list[list[int]]:
    groups: dict[int, list[int]] = {number: [row] for number, row in enumerate(rows)}
    pairs: dict[tuple[int, int], float] = {}

    def compare(one: int, other: int) -> None:
        if {annotators[row] for row in groups[one]} & {annotators[row] for row in groups[other]}:
            return
        mean = float(similar[np.ix_(groups[one], groups[other])].mean())
        if mean >= overlap and mean > 0:
            pairs[min(one, other), max(one, other)] = mean

    for one, other in combinations(groups, 2):
        compare(one, other)
    while pairs:
        one, other = min(pairs, key=lambda pair: (-round(pairs[pair], 12), pair))
        groups[one] += groups.pop(other)
        touched = {each for pair in pairs if one in pair or other in pair for each in pair} - {one, other}
        for pair in [pair for pair in pairs if one in pair or other in pair]:
            del pairs[pair]
        for each in touched:
            compare(one, each)
    return [sorted(group) for group in groups.values()]


def find_objects(regions: Iterable[Region], overlap: float = OVERLAP) -> ObjectsFound:
    """Match regions into objects, and aggregate their classes and places.

    Parameters
    ----------
    regions : iterable of Region
        All boxes, or all spans.
    overlap : float
        The least mean intersection over union, above 0 and at most 1.

    Returns
    -------
    ObjectsFound

    Examples
    --------
    >>> low = {"ann": 50, "bob": 54, "cyd": 52}
    >>> marked = [Region("1.png", who, "cat", (10, 10, 50, bottom)) for who, bottom in low.items()]
    >>> find_objects(marked).objects[["label", "marked_by", "x", "height"]].values.tolist()
    [['cat', 3, 10.0, 42.0]]
    """
    if not 0 < overlap <= 1:
        raise CrowdshotError(
            f"is {overlap:g}", argument="overlap", found=overlap, expected="a number above 0, at most 1"
        )
    seen: dict[str, dict[str, None]] = {}
    marked: dict[str, list[Region]] = {}
    for region in regions:
        seen.setdefault(region.item, {})[region.annotator] = None
        if region.corners:
            marked.setdefault(region.item, []).append(region)
    sizes = {len(region.corners) for each in marked.values() for region in each}
    if len(sizes) != 1:
        found = "boxes and spans" if sizes else "no region"
        raise CrowdshotError(f"have {found}", argument="regions", found=found, expected="boxes, or spans")
    groups: list[tuple[str, list[Region]]] = []
    for item, on_item in marked.items():
        if len(on_item) > MOST_REGIONS:
            raise CrowdshotError(f"has {len(on_item):,} regions", where=item, expected=f"{MOST_REGIONS:,} at most")
        corners = np.array([region.corners for region in on_item], dtype=float)
        rows = match_regions(corners, [region.annotator for region in on_item], overlap)
        groups += [(item, [on_item[row] for row in group]) for group in rows]
    classes = _aggregate(groups)
    presence = np.array([len(rows) / len(seen[item]) for item, rows in groups])
    objects, overlap_of = _object_table(groups, seen, classes, presence)
    table = _annotator_table(groups, seen, presence, overlap_of)
    alpha = krippendorff_alpha(classes.annotations).value if classes.annotations.n_labels > len(groups) else None
    return ObjectsFound(objects, table, _pair_agreement(groups, seen), alpha, len(seen))


class _Classes(NamedTuple):
    annotations: Annotations
    labels: list[str]
    confidence: Floats


def _aggregate(groups: Sequence[tuple[str, list[Region]]]) -> _Classes:
    """Return the class of each object."""
    given = [(number, region.annotator, region.label) for number, (_, rows) in enumerate(groups) for region in rows]
    frame = pd.DataFrame(given, columns=["item", "annotator", "label"])
    ann = Annotations.from_frame(frame, items=list(range(len(groups))))
    consensus = learned(ann).to_frame()
    return _Classes(ann, consensus["label"].tolist(), consensus["confidence"].to_numpy())


def _object_table(
    groups: Sequence[tuple[str, list[Region]]],
    seen: dict[str, dict[str, None]],
    classes: _Classes,
    presence: Floats,
) -> tuple[pd.DataFrame, list[list[float]]]:
    """Return a row for each object, and the overlap of each of its regions with the merged region."""
    rows, overlap_of = [], []
    number_of: Counter[str] = Counter()
    for number, (item, regions) in enumerate(groups):
        corners = np.array([region.corners for region in regions], dtype=float)
        merged = np.median(corners, axis=0)
        overlap_of.append(overlaps(np.vstack([merged, corners]))[0, 1:].tolist())
        half = len(merged) // 2
        place = [*merged[:half], *(merged[half:] - merged[:half])] if half == 2 else merged
        number_of[item] += 1
        rows.append(
            {
                "item": item,
                "object": number_of[item],
                "label": classes.labels[number],
                "confidence": float(classes.confidence[number]),
                "presence": float(presence[number]),
                "marked_by": len(regions),
                "seen_by": len(seen[item]),
                "overlap": float(np.mean(overlap_of[-1])) if len(regions) > 1 else None,
                **dict(zip(CORNERS[2 * half], map(float, place), strict=True)),
            }
        )
    return pd.DataFrame(rows), overlap_of


def _annotator_table(
    groups: Sequence[tuple[str, list[Region]]],
    seen: dict[str, dict[str, None]],
    presence: Floats,
    overlap_of: Sequence[Sequence[float]],
) -> pd.DataFrame:
    rows = []
    real = presence >= 0.5
    for who in sorted({name for names in seen.values() for name in names}):
        mine = [
            (number, overlap_of[number][place])
            for number, (_, regions) in enumerate(groups)
            for place, region in enumerate(regions)
            if region.annotator == who
        ]
        confirmed = sum(real[number] for number, _ in mine)
        there = sum(real[number] for number, (item, _) in enumerate(groups) if who in seen[item])
        shared = [value for number, value in mine if len(groups[number][1]) > 1]
        rows.append(
            {
                "annotator": who,
                "items": sum(who in names for names in seen.values()),
                "regions": len(mine),
                "confirmed": confirmed / len(mine) if mine else None,
                "found": confirmed / there if there else None,
                "overlap": float(np.mean(shared)) if shared else None,
            }
        )
    return pd.DataFrame(rows)


def _pair_agreement(groups: Sequence[tuple[str, list[Region]]], seen: dict[str, dict[str, None]]) -> float | None:
    """Return the mean F1 of pairs of annotators; None if nobody shares an item with a region."""
    both: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    for item, regions in groups:
        here = {region.annotator for region in regions}
        for pair in combinations(sorted(seen[item]), 2):
            number = len(here & set(pair))
            total[pair] += number
            both[pair] += 2 * (number == 2)
    scores = [both[pair] / total[pair] for pair in total if total[pair]]
    return float(np.mean(scores)) if scores else None
