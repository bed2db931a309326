"""Print the oldest versions that pyproject.toml allows, as constraints for pip: `python release/oldest.py features`.

This includes the dependencies of the package and of the given extras. torch keeps its version in constraints.txt: older
builds for CPUs are not available everywhere, and others need gigabytes.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BOUND = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?\s*(?:>=|==)\s*([0-9][^\s,;]*)")
OWN = re.compile(r"^crowdshot\[([^\]]*)\]$")  # an extra that includes others


def requirements(extras: list[str], optional: dict[str, list[str]]) -> list[str]:
    """Return the requirements of extras, and of the extras that they include."""
    found: list[str] = []
    for line in (line for name in extras for line in optional[name]):
        own = OWN.match(line)
        found += requirements(own[1].split(","), optional) if own else [line]
    return found


def oldest(extras: list[str]) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*project["dependencies"], *requirements(extras, project["optional-dependencies"])]
    bounds = [BOUND.match(requirement) for requirement in wanted]
    pins = {found[1]: found[2] for found in bounds if found}
    pinned = dict(re.findall(r"^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE))
    return [f"{name}=={pinned[name] if name == 'torch' else version}" for name, version in pins.items()]


if __name__ == "__main__":
    print("\n".join(oldest(sys.argv[1:])))
