"""Styles and scripts that stand in a page itself, as it loads nothing."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

HERE = Path(__file__).parent
STYLES = [HERE / "style" / f"{name}.css" for name in ("base", "page")]


class Inline(NamedTuple):
    """Text inside the page, and its hash, by which the page's security policy knows it."""

    text: Markup
    hash: str


def inline(*files: Path) -> Inline:
    text = "".join(file.read_text("utf-8") for file in files)
    digest = hashlib.sha256(text.encode()).digest()
    return Inline(Markup(text), f"sha256-{base64.b64encode(digest).decode()}")
