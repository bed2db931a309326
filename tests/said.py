"""The result of a command that ran in this process."""

from typing import NamedTuple


class Said(NamedTuple):
    code: int
    out: str
    err: str
