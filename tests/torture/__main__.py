"""Run all stress tests, two at a time, on two cores in a few hours; `--share 0.01` runs a hundredth of each.

python -m torture --out torture-results [--only fuzz]
"""

from __future__ import annotations

import argparse
import math
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from torture.interruptions import COMMANDS
from torture.random_problems import CHECKS
from torture.readers import readers


def attacks(share: float, keep: Path, seconds: float = math.inf) -> dict[str, list[str]]:
    """Name -> module and arguments; ``seconds`` is the limit for each reader."""

    def part(n: int) -> str:
        return str(max(1, round(n * share)))

    return {
        **{
            f"fuzz {reader.name}": [
                *("fuzz", "--inputs", part(100_000), "--only", reader.name),
                *("--keep", str(keep), "--seconds", str(seconds)),
            ]
            for reader in readers()
        },
        **{f"problems {name}": ["random_problems", "--problems", part(100_000), "--only", name] for name in CHECKS},
        **{f"interrupt {name}": ["interruptions", "--tries", part(20), "--only", name] for name in COMMANDS},
        "interrupt serve": ["serving", "--tries", part(20)],
        "requests": ["requests", "--requests", part(24_000)],
        "known attacks": ["known"],
        "size": ["size", "--labels", str(max(1000, round(1e6 * share)))],
    }


def run(name: str, words: list[str], out: Path) -> int:
    file = out / f"{re.sub(r'[^a-z]+', '-', name.lower())}.txt"
    with file.open("w") as told:
        line = [sys.executable, "-m", f"torture.{words[0]}", *words[1:]]
        code = subprocess.run(line, stdout=told, stderr=subprocess.STDOUT).returncode
    print(f"{'held ' if code == 0 else 'WRONG'} {name}: {file}", flush=True)
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description="All attacks on crowdshot. See docs/research/reliability.md.")
    parser.add_argument("--out", type=Path, default=Path("torture-results"), help="a folder for what each one tells")
    parser.add_argument("--share", type=float, default=1.0, help="of the whole campaign")
    parser.add_argument("--only", default="", help="attacks whose name has this in it")
    parser.add_argument("--seconds", type=float, default=math.inf, help="for each reader of damaged files")
    parser.add_argument("--at-once", type=int, default=2)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    every = attacks(given.share, given.out / "crashers", given.seconds)
    chosen = [(name, words) for name, words in every.items() if given.only in name]
    with ThreadPoolExecutor(given.at_once) as pool:
        codes = list(pool.map(lambda attack: run(*attack, given.out), chosen))
    print(f"{len(codes)} attacks, {sum(code != 0 for code in codes)} of them got through.")
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
