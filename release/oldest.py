"""Print the oldest versions that pyproject.toml allows, as constraints for pip: `python release/oldest.py excel`.

This includes the dependencies of the package and of the given extras. With `--names` first, only names are printed.
torch keeps its version in constraints.txt: older builds for CPUs are not available everywhere, and others need
gigabytes.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BOUND = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?\s*(?:>=|==)\s*([0-9][^\s,;]*)")


def oldest(extras: list[str]) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*project["dependencies"], *(one for name in extras for one in project["optional-dependencies"][name])]
    bounds = [BOUND.match(requirement) for requirement in wanted]
    pins = {found[1]: found[2] for found in bounds if found}
    pinned = dict(re.findall(r"^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE))
    return [f"{name}=={pinned[name] if name == 'torch' else version}" for name, version in pins.items()]


if __name__ == "__main__":
    only_names = sys.argv[1:2] == ["--names"]
    lines = oldest(sys.argv[2:] if only_names else sys.argv[1:])
    print("\n".join(line.partition("==")[0] for line in lines) if only_names else "\n".join(lines))
