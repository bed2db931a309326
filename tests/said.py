"""What a command that was run in this process said."""

from typing import NamedTuple


class Said(NamedTuple):
    code: int
    out: str
    err: str
