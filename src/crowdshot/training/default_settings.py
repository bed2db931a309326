"""Hold default training settings and the paper's crowds as plain data; importing this does not import torch."""

from __future__ import annotations

from typing import NamedTuple


class EpisodeDefaults(NamedTuple):
    """Defaults for the size of episodes and the learning rate."""

    ways: int  # classes per episode
    queries: int  # query items per class
    cool_down: float  # the last share of the iterations, in which the learning rate falls to zero


NARROW = EpisodeDefaults(4, 10, 0.0)  # the paper's
WIDE = EpisodeDefaults(16, 5, 0.3)  # more classes and a falling rate train a more accurate encoder (docs/beyond.md)

KINDS = ("expert", "hammer", "spammer", "flipper", "classwise")
ACCURACY = {"expert": (0.8, 1.0), "hammer": (0.5, 0.8), "flipper": (0.5, 0.8)}
"""Bounds of an annotator's accuracy q, which is uniform on (low, high]."""

PAPER_SOURCE = {"expert": 0.1, "hammer": 0.7, "spammer": 0.2}
"""Shares of the kinds of simulated annotators in the paper's meta-training."""
PAPER_TARGETS = (
    {"expert": 0.1, "hammer": 0.8, "spammer": 0.1},
    {"expert": 0.1, "hammer": 0.7, "spammer": 0.2},
    {"expert": 0.1, "hammer": 0.6, "spammer": 0.3},
    {"expert": 0.1, "hammer": 0.5, "spammer": 0.4},
)
"""The four crowds over which the paper's main tables average."""
OTHER_TARGETS = (
    {"hammer": 1.0},
    {"flipper": 1.0},
    {"classwise": 1.0},
    {"hammer": 1 / 3, "flipper": 1 / 3, "classwise": 1 / 3},
)
"""The four crowds of "Experiments with Other Annotator's Types"."""
