"""Fill HTML templates, with their styles and scripts inside the page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from crowdshot import formatting
from crowdshot.labels.working_times import course_points, describe_trends, describe_working

HERE = Path(__file__).parent
STYLES = [HERE / "style" / f"{name}.css" for name in ("base", "page")]


class Inline(NamedTuple):
    """A style or script inside a page, and its hash for the page's content security policy."""

    text: Markup
    hash: str


def inline(*files: Path) -> Inline:
    text = "".join(file.read_text("utf-8") for file in files)
    digest = hashlib.sha256(text.encode()).digest()
    return Inline(Markup(text), f"sha256-{base64.b64encode(digest).decode()}")


@cache
def _environment(folder: Path) -> Environment:
    environment = Environment(loader=FileSystemLoader([folder, HERE]), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {name: getattr(formatting, name) for name in ("percent", "probability", "clean", "ending")}
    sentences = {"describe_working": describe_working, "describe_trends": describe_trends}
    environment.globals |= {**sentences, "course_points": course_points}
    environment.globals |= {name: getattr(formatting, name) for name in ("spread", "times", "plural", "whole_counts")}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    return environment


def fill(template: str, folder: Path = HERE, scripts: Sequence[Inline] = (), **values: Any) -> str:
    """Render a template with autoescaping; an undefined name is an error.

    Parameters
    ----------
    template : str
        File name of the template.
    folder : Path
        Where the template is; it may include templates of the report as well.
    scripts : sequence of Inline
        Scripts at the end of the page.
    **values
        The values of the template's names.
    """
    today = f"{date.today():%d %B %Y}".lstrip("0")
    return _environment(folder).get_template(template).render(date=today, scripts=scripts, **values)
