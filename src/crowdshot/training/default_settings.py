"""What meta-training is like where nobody says otherwise: plain data, which is told without torch."""

from __future__ import annotations

from typing import NamedTuple


class Usual(NamedTuple):
    """What episodes and the learning rate are like, where nobody says otherwise."""

    ways: int
    queries: int
    cool_down: float


NARROW = Usual(4, 10, 0.0)  # the paper's
WIDE = Usual(16, 5, 0.3)  # many classes at a time, and a rate that falls, make a sharper encoder (docs/beyond.md)
