"""The result of a command that ran in this process."""

from typing import NamedTuple


class Said(NamedTuple):
    code: int
    out: str
    err: str


def joined(text: str) -> str:
    """Return the text on one line: a message and its hint stand on two."""
    return " ".join(text.split())
