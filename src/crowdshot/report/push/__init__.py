"""What is believed, as suggestions in a label tool that runs: one module a tool. What is pushed twice is there once."""

from typing import Protocol

from crowdshot.report.push import argilla, cvat, label_studio
from crowdshot.report.push.beliefs import Beliefs, Pushed
from crowdshot.report.push.remote import Remote


class Tool(Protocol):
    """What such a module has. ``VARIABLE``: of the environment, in which the token is.

    ``question``: which of the tool's is answered, where there are several; ``name``: what the suggestions are told
    apart by.
    """

    VARIABLE: str

    def connect(self, address: str, token: str) -> Remote: ...

    def push(self, remote: Remote, project: str, beliefs: Beliefs, question: str | None, name: str) -> Pushed: ...


TOOLS: dict[str, Tool] = {"argilla": argilla, "cvat": cvat, "label-studio": label_studio}
