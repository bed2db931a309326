"""The shape of the episodes that are drawn: how many classes, items and annotators, and who these are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from crowdshot.episodes import simulate
from crowdshot.episodes.augmentation import AUGMENTATIONS
from crowdshot.errors import CrowdshotError

Range = tuple[int, int]  # from, to, both included


@dataclass(frozen=True)
class EpisodeShape:
    """Ranges are drawn anew for every episode; the defaults are the paper's, with a range of shots and annotators.

    ``crowd``: how probable each kind of simulated annotator is. ``augment`` "photo" flips and shifts the items of
    training episodes (`crowdshot.episodes.augmentation`). Where the pool carries real annotators' labels, these are
    used, and ``annotators``, ``labels_per_item`` and ``crowd`` are not.
    """

    ways: Range = (4, 4)
    shots: Range = (1, 5)
    annotators: Range = (3, 7)
    labels_per_item: Range | None = None  # None: everyone labels everything
    queries: int = 10
    crowd: Mapping[str, float] = field(default_factory=lambda: dict(simulate.PAPER_SOURCE))
    augment: str = "none"

    def __post_init__(self) -> None:
        for name in ("ways", "shots", "annotators", "labels_per_item"):
            value = getattr(self, name)
            if value is None:
                continue
            low, high = value
            least = 2 if name == "ways" else 1
            if not least <= low <= high:
                raise CrowdshotError(f"{name} is {low}:{high}, expected a range from {least} upwards, such as 3:7.")
            object.__setattr__(self, name, (int(low), int(high)))
        if self.labels_per_item is not None and self.labels_per_item[1] > self.annotators[1]:
            raise CrowdshotError(
                f"labels_per_item is up to {self.labels_per_item[1]}, expected at most the "
                f"{self.annotators[1]} annotators."
            )
        if self.augment not in AUGMENTATIONS:
            raise CrowdshotError(f"augment is {self.augment!r}, expected one of {', '.join(AUGMENTATIONS)}.")
        if self.queries < 1:
            raise CrowdshotError(f"queries is {self.queries}, expected 1 or more.")


def as_range(text: str, name: str) -> Range:
    """ "3:7" -> (3, 7), "4" -> (4, 4); ``name`` is for the message."""
    low, colon, high = text.partition(":")
    try:
        return int(low), int(high if colon else low)
    except ValueError:
        raise CrowdshotError(f"{name} is {text!r}, expected a number or a range, such as 5 or 3:7.") from None
