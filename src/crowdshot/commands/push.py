"""``crowdshot push``: labels and their confidence -> suggestions in a label tool that runs."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from crowdshot.errors import CrowdshotError
from crowdshot.files.tables import read_bytes
from crowdshot.report.compare import CONSENSUS
from crowdshot.report.push import TOOLS
from crowdshot.report.push.beliefs import read_beliefs
from crowdshot.version import __version__
from crowdshot.wording import listing


def push(
    path: Path, tool: str, url: str, project: str, question: str | None = None, threshold: float = 0.0
) -> dict[str, Any]:
    """``path``: a table or a folder; ``question``: which tag or question of the tool's, where it has several."""
    if tool not in TOOLS:
        raise CrowdshotError(f"to is {tool!r}, expected one of {listing(TOOLS)}.")
    chosen = TOOLS[tool]
    token = os.environ.get(chosen.VARIABLE, "").strip()
    if not token or not token.isascii():
        raise CrowdshotError(f"the environment has no token in {chosen.VARIABLE}, expected one of {tool}'s.")
    beliefs = read_beliefs(path, threshold)
    if not beliefs:
        raise CrowdshotError(f"{path} holds no label of a probability of {threshold:g} or more, expected one.")
    found = chosen.push(chosen.connect(url, token), project, beliefs, question, _name(path))
    if not found.pushed:
        raise CrowdshotError(
            f"project {project} has none of the {len(found.lost):,} items, first {found.lost[0]!r}, expected some."
        )
    return found._asdict()


def _name(path: Path) -> str:
    """The same for the same table, so that what is pushed twice is there once."""
    data = read_bytes(path / CONSENSUS if path.is_dir() else path)
    return f"crowdshot-{__version__}-{hashlib.sha256(data).hexdigest()[:8]}"
