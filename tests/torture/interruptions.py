"""Kill commands, or fill their disk, at any moment: results must be the complete old or the complete new ones.

    python -m torture.interruptions --tries 20

A command overwrites the results of an earlier run. Each try is a fork of this process, so that imports happen only
once. The child is killed at its n-th file operation (a file opened for writing, a rename, a link, a new folder …) or at
a random time. In other tries the n-th operation fails: the disk is full, really or simulated, or a file exceeds the
limit on file sizes. Afterwards the results must be old or new, without leftover files. Commands that can continue are
then run again, and must give the result of an undisturbed run.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd

from crowdshot.io.atomic import remove_leftovers
from pools import patterns
from torture.forks import (
    IN_MEMORY,
    Way,
    full,
    kill,
    obey_modes,
    of_size,
    random_moment,
    run,
    sabotage,
    small_files,
    start,
)

TRAINING = "--ways 2:3 --shots 1:2 --annotators 2:3 --queries 2 --validation-episodes 4 --width 4 --image-size 16"


class Command(NamedTuple):
    line: str
    out: str
    most_steps: int  # upper bound of its file operations
    goes_on: bool = False  # whether the same command continues after a kill
    beside: str = ""  # a second file
    begins_with: str = ""  # the data that it changes


COMMANDS = {
    "simulate": Command("simulate --items 30 --seed {seed} --out {out} --overwrite", "out", 12),
    "aggregate": Command("aggregate {data}/labels{seed}.csv --out {out}", "out.csv", 4),
    "adapt": Command("adapt {data}/labels{seed}.csv --features {data}/features.csv --out {out} --overwrite", "out", 40),
    "next": Command("next {data}/half{seed}.csv --budget 5 --out {out}", "out.csv", 4, beside="out-consensus.csv"),
    "predict": Command(
        "predict {data}/model{seed}.safetensors --features {data}/features.csv --out {out}", "out.csv", 4
    ),
    "embed": Command("embed {data}/photos{seed} --encoder glyphs --out {out}", "out.npz", 4),
    "report": Command("report {out}", "out", 6, begins_with="fitted0"),
    "audit": Command("audit {data}/fitted{seed} --sample 5 --out {out} --overwrite", "out.csv", 4),
    "compare": Command("compare {data}/fitted0 {data}/fitted{seed} --out {out}", "out.html", 4),
    "rank": Command("rank {data}/votes{seed}.csv --out {out}", "out.csv", 4),
    "judges": Command("judges {data}/labels{seed}.csv --models ann0 --out {out}", "out.csv", 4),
    "slices": Command("slices {data}/labels{seed}.csv --items {data}/kinds.csv --by kind --out {out}", "out.csv", 4),
    "questions": Command(
        "questions {data}/answers{seed}.csv --questions label,other --out {out} --overwrite", "out", 60
    ),
    "demo": Command("demo --seed {seed} --out {out}", "out", 80),
    "objects": Command("objects {data}/boxes{seed}.csv --out {out}", "out.csv", 4),
    "train-inference": Command(
        "train-inference --iterations 3 --seed {seed} --out {out}/network.safetensors", "out", 20, goes_on=True
    ),
    "train": Command(
        "train {data}/source.npz --seed {seed} --iterations 20 --validate-every 5 --device cpu --objective mixture"
        f" {TRAINING} --out {{out}}/encoder.safetensors",
        "out",
        30,
        goes_on=True,
    ),
    "paper run": Command(
        "paper run main --quick --device cpu --dataset omniglot --methods PrMV,LRMV --cells 4x3 --splits {seed}:{seed}"
        " --results {out}/results --work {out}/work",
        "out",
        40,
        goes_on=True,
    ),
}
MOST_TRIES = 5  # tries for one kill: a command may have ended before its last operation, or before the moment
Files = dict[str, bytes]


def make_data(folder: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 24)
    features = pd.DataFrame(rng.normal(size=(24, 4)) + truth[:, None])
    features.insert(0, "item", [f"{i:03}.png" for i in range(24)])
    features.to_csv(folder / "features.csv", index=False)
    pd.DataFrame({"item": features["item"], "kind": ["a", "b"] * 12}).to_csv(folder / "kinds.csv", index=False)
    images = patterns(n_classes=12)
    np.savez(folder / "source.npz", images=images.reshape(-1, 16, 16), labels=np.repeat(np.arange(12), images.shape[1]))
    for seed in (0, 1):
        wrong = rng.random((24, 3)) < 0.2
        said = np.where(wrong, rng.integers(0, 3, (24, 3)), truth[:, None])
        rows = [(f"{i:03}.png", f"ann{a}", ["cat", "dog", "owl"][said[i, a]]) for i in range(24) for a in range(3)]
        labels = pd.DataFrame(rows, columns=["item", "annotator", "label"])
        labels.to_csv(folder / f"labels{seed}.csv", index=False)
        labels.iloc[::2].to_csv(folder / f"half{seed}.csv", index=False)  # questions are left
        labels.assign(other=labels["label"].to_numpy()[::-1]).to_csv(folder / f"answers{seed}.csv", index=False)
        won = np.where(rng.random(24) < 0.7, "model_a", "model_b")
        votes = {"model_a": ["big", "small", "old"] * 8, "model_b": ["small", "old", "big"] * 8, "winner": won}
        pd.DataFrame({**votes, "judge": ["ann0", "ann1"] * 12}).to_csv(folder / f"votes{seed}.csv", index=False)
        low = rng.integers(0, 9, 24)
        boxes = {"image": [f"{i % 4}.png" for i in range(24)], "annotator": [f"ann{i // 8}" for i in range(24)]}
        corners = {"x1": low, "y1": low, "x2": low + 9, "y2": low + 9, "label": "cat"}
        pd.DataFrame({**boxes, **corners}).to_csv(folder / f"boxes{seed}.csv", index=False)
        (folder / f"photos{seed}").mkdir()
        for i in range(3):
            Image.fromarray(rng.integers(0, 255, (20, 20), dtype=np.uint8)).save(folder / f"photos{seed}" / f"{i}.png")
        fitted = folder / f"fitted{seed}"
        adapt = COMMANDS["adapt"].line.format(seed=seed, data=folder, out=fitted)
        assert run(adapt) == 0
        shutil.copy(fitted / "model.safetensors", folder / f"model{seed}.safetensors")


def contents(out: Path) -> Files:
    """Return the contents of all files, also hidden ones; of files that always differ, how they end or nothing."""
    paths = [out] if out.is_file() else sorted(path for path in out.rglob("*") if path.is_file())
    return {path.relative_to(out.parent).as_posix(): _lasting(path) for path in paths}


def _lasting(path: Path) -> bytes:
    if path.name in ("times.csv", "runs.jsonl", "encoder.history.csv"):
        return b""
    data = path.read_bytes()
    if path.suffix == ".html" and path.name != COMMANDS["compare"].out:  # which names no time
        return data.rstrip()[-7:]
    return data[8 + int.from_bytes(data[:8], "little") :] if path.suffix == ".safetensors" else data  # without the card


class Bench:
    """A folder in which a command overwrites old results again and again."""

    def __init__(self, command: str, folder: Path) -> None:
        self.name, self.command, self.folder = command, COMMANDS[command], folder
        self.data, self.out = folder / "data", folder / "here" / self.command.out
        self.data.mkdir()
        make_data(self.data)
        started = time.monotonic()
        self.new = self._fresh(1)
        self.seconds = time.monotonic() - started
        self.renewed = shutil.copytree(self.out.parent, folder / "renewed")
        self.old = self._fresh(0)
        if not self.command.goes_on:
            assert self._fresh(0) == self.old
            assert self.old != self.new or self.command.begins_with
        self.saved = folder / "saved"
        shutil.copytree(self.out.parent, self.saved)

    def line(self, seed: int) -> str:
        return self.command.line.format(seed=seed, data=self.data, out=self.out)

    def _fresh(self, seed: int) -> Files:
        shutil.rmtree(self.out.parent, ignore_errors=True)
        self.out.parent.mkdir()
        if self.command.goes_on:
            self.out.mkdir()
        if self.command.begins_with:
            shutil.copytree(self.data / self.command.begins_with, self.out)
        assert run(self.line(seed)) == 0, f"{self.name} fails undisturbed"
        return contents(self.out)

    def as_before(self) -> None:
        """Restore the old results; a command that can continue starts with none."""
        for path in self.out.parent.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if self.command.goes_on:
            self.out.mkdir()
        else:
            shutil.copytree(self.saved, self.out.parent, dirs_exist_ok=True)

    def attempt(self, way: Way, relief: Way = lambda: None) -> str:
        """Return how the try ended; raise AssertionError if results are neither old nor new.

        ``relief`` is called before the command is continued.
        """
        self.as_before()
        code = run(self.line(1), way)
        assert code in ENDS, f"{self.name} ended with {code}"
        if self.command.goes_on and code != 0:
            relief()
            assert run(self.line(1)) == 0, f"{self.name} does not go on"
            return f"{ENDS[code]}, then {self._found(said_well=True)}"
        self._remove_leftovers()
        return f"{ENDS[code]}, {self._found(said_well=code == 0)}"

    def _remove_leftovers(self) -> None:
        """Remove what killed commands left, as the next command does."""
        for name in filter(None, (self.command.out, self.command.beside)):
            remove_leftovers(self.out.with_name(name))

    def _found(self, said_well: bool) -> str:
        found = contents(self.out)
        assert found in (self.old, self.new), f"{self.name} left something between: {_differences(found, self.new)}"
        assert not said_well or found == self.new, f"{self.name} said that all is well"
        if self.command.beside:
            second = contents(self.out.with_name(self.command.beside))
            assert second in [contents(saved / self.command.beside) for saved in (self.saved, self.renewed)]
        rest = sorted(set(os.listdir(self.out.parent)) - {self.command.out, self.command.beside})
        assert not rest, f"{self.name} left {rest}"
        return "new" if found == self.new else "old"

    def two_at_once(self) -> str:
        """Run two commands at once: both finish, or one is refused; the results are those of one of them."""
        self.as_before()
        codes = sorted(wait() for wait in [start(self.line(1)), start(self.line(0 if not self.command.goes_on else 1))])
        assert codes in ([0, 0], [0, 2]), f"two of {self.name} ended with {codes}"
        self._remove_leftovers()
        return f"two at once, {self._found(said_well=False)}"


ENDS = {0: "done", 2: "refused", -signal.SIGKILL: "killed", -signal.SIGALRM: "killed"}


def _differences(found: Files, expected: Files) -> list[str]:
    return sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))


def torture(command: str, tries: int, seed: int) -> Counter[str]:
    """Kill a command ``tries`` times, stop it half as often in each other way, and return how often it ended how."""
    rng = random.Random(seed)
    ended: Counter[str] = Counter()
    others = max(1, tries // 2)
    # two problems of the demo suffice: its files are those of the first
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder, patch("crowdshot._cli.demo.PROBLEMS", 2):
        bench = Bench(command, Path(folder))
        steps = range(bench.command.most_steps)
        for number in range(MOST_TRIES * tries):
            in_time = number % 2
            moment = random_moment(rng.uniform(0, bench.seconds))
            ended[bench.attempt(moment if in_time else sabotage(rng.choice(steps), kill))] += 1
            if sum(times for how, times in ended.items() if how.startswith("killed")) == tries:
                break
        stopped = [sabotage(rng.choice(steps), full) for _ in range(others)]
        stopped += [small_files(rng.choice((0, 1, 100, 1000, 3000, 10_000))) for _ in range(others)]
        for way in stopped:
            ended[bench.attempt(way)] += 1
        for _ in range(others if os.geteuid() == 0 else 0):
            bench.as_before()
            with of_size(bench.out.parent, rng.choice((1, 4, 16, 64, 256))) as enlarge:
                ended[f"a full disk: {bench.attempt(lambda: None, enlarge)}"] += 1
        ended[_read_only(bench)] += 1
        for _ in range(others // 2):
            ended[bench.two_at_once()] += 1
    return ended


def _read_only(bench: Bench) -> str:
    """Run a command in a read-only folder."""
    bench.as_before()
    before = contents(bench.out)
    folders = [bench.out.parent, *(path for path in bench.out.parent.rglob("*") if path.is_dir())]

    def as_nobody() -> None:
        for folder in folders:
            folder.chmod(0o555)
        obey_modes()

    code = run(bench.line(1), as_nobody)
    for folder in folders:
        folder.chmod(0o755)
    assert code == 2, f"{bench.name} ended with {code} in a folder that may not be written to"
    assert contents(bench.out) == before
    return "refused where it may not write"


def report(name: str, attack: Callable[[], Counter[str]]) -> int:
    try:
        ended = attack()
        told = f"{sum(ended.values())} tries: " + "; ".join(f"{n} {how}" for how, n in sorted(ended.items()))
        wrong = 0
    except AssertionError as error:
        told, wrong = f"WRONG: {error}", 1
    print(f"{name:<10} {told}", flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills and full disks against the commands that write.")
    parser.add_argument("--tries", type=int, default=20, help="kills of each command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="commands whose name has this in it")
    given = parser.parse_args()
    wanted = [name for name in COMMANDS if given.only in name]
    return max((report(name, lambda name=name: torture(name, given.tries, given.seed)) for name in wanted), default=0)


if __name__ == "__main__":
    sys.exit(main())
