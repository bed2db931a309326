"""What comes along when crowdshot is installed, and under which licence each part stands: docs/licences.md.

    python integration/licences.py > docs/licences.md

By the packages' own metadata, as they are installed here.
"""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
NOT_FOR_USERS = {"test", "docs", "bench"}
HEAD = """# Licences of what is installed

crowdshot itself stands under Apache-2.0. `python integration/licences.py` made this list from what the installed packages
say of themselves; it is no legal advice. "Needed by" names the extra that brings a package along; "always" is in every
installation. What is not installed where the list was made (the extras timm and open-clip) is not in it.

| package | version | licence | needed by |
|---|---|---|---|"""  # noqa: E501


def needed(lines: list[str]) -> dict[str, metadata.Distribution]:
    """All that is installed for these requirements, by name."""
    found: dict[str, metadata.Distribution] = {}
    seen: set[str] = set()
    todo = [(line, "") for line in lines]
    while todo:
        line, extra = todo.pop()
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        if f"{wanted.name} {wanted.extras}" in seen:
            continue
        seen.add(f"{wanted.name} {wanted.extras}")
        try:
            about = metadata.distribution(wanted.name)
        except metadata.PackageNotFoundError:
            continue
        found[canonicalize_name(wanted.name)] = about
        todo += [(line, extra) for line in about.requires or () for extra in (wanted.extras or {""})]
    return found


def licence(about: metadata.Distribution) -> str:
    """The expression, what the classifiers say, or the first line of the text."""
    fields = about.metadata
    classifiers = [line.split(" :: ")[-1] for line in fields.get_all("Classifier", []) if line.startswith("License ::")]
    text = (fields.get("License") or "").strip().splitlines()[:1]
    told = fields.get("License-Expression") or ", ".join(classifiers) or "".join(text)
    return re.sub(r"\s+", " ", told.replace("UNKNOWN", "")) or "not told"


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    parts = {"always": project["dependencies"]}
    parts |= {extra: lines for extra, lines in project["optional-dependencies"].items() if extra not in NOT_FOR_USERS}
    packages: dict[str, metadata.Distribution] = {}
    whose: dict[str, list[str]] = {}
    for part, lines in parts.items():
        for name, about in needed(lines).items():
            packages[name] = about
            if whose.get(name) != ["always"]:
                whose.setdefault(name, []).append(part)
    print(HEAD)
    for name in sorted(packages):
        print(f"| {name} | {packages[name].version} | {licence(packages[name])} | {', '.join(whose[name])} |")


if __name__ == "__main__":
    main()
