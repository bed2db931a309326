"""What every reader of labels is given, and what it gives back."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from crowdshot.annotations import Annotations
from crowdshot.columns import GivenColumns
from crowdshot.tables import Table, parse_table, read_bytes


class LabelFile:
    """A file of labels, read once; each view of it is made when a format first asks for it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = os.fspath(path)
        self.data = read_bytes(path)

    @cached_property
    def table(self) -> Table:
        return parse_table(self.data, self.name)


@dataclass(frozen=True)
class Labels:
    """The labels of a file, and how many entries were left out for which reason."""

    annotations: Annotations
    left_out: dict[str, int] = field(default_factory=dict)


class Format(NamedTuple):
    """``recognises`` may look at anything but must not raise because the file is another tool's."""

    recognises: Callable[[LabelFile, GivenColumns], bool]
    read: Callable[[LabelFile, GivenColumns], Labels]
