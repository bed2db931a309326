"""How templates are filled in: everything is escaped, and a name that is not there is an error."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from crowdshot import wording
from crowdshot.report.page.inline import Inline

HERE = Path(__file__).parent


@cache
def _environment(folder: Path) -> Environment:
    environment = Environment(loader=FileSystemLoader([folder, HERE]), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {name: getattr(wording, name) for name in ("percent", "probability", "clean", "ending")}
    environment.globals |= {name: getattr(wording, name) for name in ("spread", "times", "plural")}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    return environment


def fill(template: str, folder: Path = HERE, scripts: Sequence[Inline] = (), **given: Any) -> str:
    """``folder``: where the template is; what it includes may be of this room. ``scripts``: what runs, at its end."""
    today = f"{date.today():%d %B %Y}".lstrip("0")
    return _environment(folder).get_template(template).render(date=today, scripts=scripts, **given)
