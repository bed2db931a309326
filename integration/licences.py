"""Write docs/licences.md: the packages that an installation of crowdshot includes, and their licences.

    python integration/licences.py > docs/licences.md

The licences are those in the metadata of the packages that are installed here.
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

crowdshot itself is licensed under Apache-2.0. `python integration/licences.py` made this list from the metadata of the
installed packages; it is not legal advice. "Needed by" names the extra that includes a package; "always" means every
installation. The extras for items and encoders include `features`, and `paper` includes `images` and `plots`. Packages
that were not installed when the list was made (the extras timm and open-clip) are missing.

| package | version | licence | needed by |
|---|---|---|---|"""


def needed(lines: list[str]) -> dict[str, metadata.Distribution]:
    """Return all installed packages that these requirements need, by name."""
    found: dict[str, metadata.Distribution] = {}
    seen: set[str] = set()
    todo = [(line, "") for line in lines]
    while todo:
        line, extra = todo.pop()
        wanted = Requirement(line)
        if wanted.name == "crowdshot":  # listed with the extra itself
            continue
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
    """Return the licence expression, the classifiers, or the first line of the licence text."""
    fields = about.metadata
    classifiers = [line.split(" :: ")[-1] for line in fields.get_all("Classifier", []) if line.startswith("License ::")]
    text = (fields.get("License") or "").strip().splitlines()[:1]
    found = fields.get("License-Expression") or ", ".join(classifiers) or "".join(text)
    return re.sub(r"\s+", " ", found.replace("UNKNOWN", "")) or "unknown"


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
