"""The result of a command that ran in this process."""

from typing import NamedTuple


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


def on_one_line(text: str) -> str:
    """Return the text on one line: a message and its hint are printed on two."""
    return " ".join(text.split())
