"""Train networks of the learned aggregation in several ways and score them on real crowds that none of them saw.

    python benchmarks/crowds.py --data ../shared/data --out runs/projects
    OMP_NUM_THREADS=1 python benchmarks/networks.py --projects runs/projects [--processes 2]

Each of `VARIANTS` changes one thing in the default training: the seed, the size, or an ingredient of the simulated
crowds that is left out. "projects" also learns from real crowds, five times, each time without the crowds on which it
is scored and their relatives. Writes scores.csv to results/inference: each crowd in full and thinned to 1, 2, 3 and 5
labels per item, with majority vote for comparison. A training takes about three minutes on one core.
"""

import argparse
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from rows import commit, markdown

from crowdshot.io.atomic import write_file
from crowdshot.model.label_model import shipped_network
from crowdshot.training.simulated_crowds import INGREDIENTS, World
from crowdshot_paper.label_model_training import (
    ACCEPTED,
    FLOOR,
    HIDDEN,
    ROUNDS,
    USUAL,
    Scores,
    Settings,
    scores,
    train,
    untrained,
)
from crowdshot_paper.projects import Project, first_labels, leave_out, read_projects

GROUPS = [
    ["ZC_all", "ZC_in", "ZC_us", "isbook"],
    ["SP_amt", "sentence-polarity", "labelme", "bluebird"],
    ["fej2013", "fact_eval", "sentiment", "mozafari", "leaves"],
    ["product", "rte", "cifar10s", "cifar10h", "adult"],
    ["temp", "dog", "face", "wsd", "hitspam_cf"],
]
TWICE = "fact_eval"  # has the same truth as fej2013: not counted
THINNED = (1, 2, 3, 5)
SHARED = (
    "shared-bias",
    "look-alikes",
    "hard-items",
    "misleading-items",
    "copies",
)  # ingredients that make mistakes dependent


@dataclass(frozen=True)
class Variant:
    """A way to train.

    ``without`` are ingredients that simulated crowds lack. ``fold`` is the group of real crowds left out of training,
    or None for training without real crowds.
    """

    name: str
    without: tuple[str, ...] = ()
    settings: Settings = USUAL
    rounds: int = ROUNDS
    hidden: int = HIDDEN
    fold: int | None = None

    def world(self) -> World:
        world = World()
        for ingredient in self.without:
            world = world.without(ingredient)
        return world


VARIANTS = [
    *(Variant(f"seed {seed}", settings=Settings(seed=seed)) for seed in range(4)),
    *(Variant(f"{rounds} rounds", rounds=rounds) for rounds in (1, 2, 4)),
    *(Variant(f"{hidden} hidden", hidden=hidden) for hidden in (4, 32)),
    Variant("a quarter as long", settings=Settings(iterations=125)),
    *(Variant(f"no {name}", without=(name,)) for name in INGREDIENTS if name not in ("gold", "history", "told-order")),
    Variant("independent mistakes", without=SHARED),
    *(Variant("projects", fold=fold) for fold in range(len(GROUPS))),
]


def vote(project: Project) -> Scores:
    """Return the shares of votes, with one pseudo-vote divided among the classes."""
    ann, known = project.annotations, project.truth >= 0
    counts = ann.vote_counts()[known]
    posterior = (counts + 1 / ann.n_classes) / (counts.sum(axis=1, keepdims=True) + 1)
    truth = project.truth[known]
    top = posterior >= posterior.max(axis=1, keepdims=True) - 1e-9
    right = top[np.arange(len(truth)), truth] / top.sum(axis=1)
    confidence = posterior.max(axis=1)
    accepted = confidence >= ACCEPTED
    return Scores(
        len(truth),
        float(right.mean()),
        float(-np.log(posterior[np.arange(len(truth)), truth].clip(FLOOR)).mean()),
        float(confidence.mean() - right.mean()),
        float(accepted.mean()),
        float(right[accepted].mean()) if accepted.any() else None,
    )


def shipped(project: Project) -> Scores:
    return scores(shipped_network(), project.annotations, project.truth)


ALWAYS = {"vote": vote, "shipped": shipped}


def cases(project: Project) -> dict[int, Project]:
    """Return {labels per item, 0 for all: thinned project}."""
    ann = project.annotations
    each = ann.n_labels / ann.n_items
    found = {0: project}
    for most in THINNED:
        if most < 0.7 * each:
            order = np.random.default_rng(0).permutation(ann.n_labels)
            kept = np.zeros(ann.n_labels, dtype=bool)
            kept[order[first_labels(ann.item[order], most)]] = True
            found[most] = Project(project.name, ann.keep(kept), project.truth)
    return found


def score_all(name: str, judge, projects: list[Project]) -> list[dict[str, object]]:
    return [
        {"variant": name, "crowd": project.name, "labels": str(most or "all"), **judge(case)._asdict()}
        for project in projects
        for most, case in cases(project).items()
    ]


def run(folder: Path, variant: Variant) -> list[dict[str, object]]:
    torch.set_num_threads(1)
    began, projects = time.monotonic(), read_quietly(folder)
    judged, learned_from = projects, []
    if variant.fold is not None:
        judged, learned_from = leave_out(projects, GROUPS)[variant.fold]
    start = untrained(variant.settings.seed, variant.rounds, variant.hidden)
    learned_from = [project for project in learned_from if project.name != TWICE]
    learned = train(learned_from, variant.world(), variant.settings, initial=start)
    assert learned is not None
    network: dict[str, NDArray[np.float64]] = {name: value.astype(np.float64) for name, value in learned.items()}
    print(f"{variant.name}: {time.monotonic() - began:.0f} s", flush=True)
    return score_all(variant.name, lambda case: scores(network, case.annotations, case.truth), judged)


def read_quietly(folder: Path) -> list[Project]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read_projects(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--projects", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results/inference"))
    parser.add_argument("--iterations", type=int, help="of each training, to try the script")
    parser.add_argument("--only", help="names of variants to run anew, with commas; the others' rows stay")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    chosen = args.only.split(",") if args.only else list(dict.fromkeys(each.name for each in VARIANTS))
    variants = [each for each in VARIANTS if each.name in chosen]
    if args.iterations:
        variants = [replace(v, settings=replace(v.settings, iterations=args.iterations)) for v in variants]
    file = args.out / "scores.csv"
    kept = pd.read_csv(file, dtype={"labels": str}) if file.exists() else pd.DataFrame(columns=["variant"])
    kept = kept[~kept["variant"].isin([*chosen, *ALWAYS])]
    rows = [row for name, judge in ALWAYS.items() for row in score_all(name, judge, read_quietly(args.projects))]
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        for found in chain([[]], pool.map(partial(run, args.projects), variants)):
            rows += found
            table = pd.concat([pd.DataFrame(rows).assign(commit=commit()), kept], ignore_index=True)
            write_file(file, table)
    (args.out / "variants.md").write_text(summary(table))
    print(summary(table))


def summary(table: pd.DataFrame) -> str:
    """Return a line per variant: means over full and over thinned crowds, and the number of cases below the vote."""
    table = table[table["crowd"] != TWICE]
    key = ["crowd", "labels"]
    by_vote = table[table["variant"] == "vote"].set_index(key)["accuracy"]
    lines = []
    for name, part in table.groupby("variant", sort=False):
        full, thinned = part[part["labels"] == "all"], part[part["labels"] != "all"]
        behind = int((part.set_index(key)["accuracy"] - by_vote < -0.01).sum())
        numbers = [each[column].mean() for each in (full, thinned) for column in ("accuracy", "log_loss")]
        accepted = f"{full['accepted'].mean():.2f} → {full['right'].mean():.3f}"
        lines.append([name, *(f"{number:.3f}" for number in numbers), accepted, f"{behind} of {len(part)}"])
    head = ["", "full: right", "log-loss", "thinned: right", "log-loss", "accepted → right", "below the vote"]
    return markdown(pd.DataFrame(lines, columns=head)) + "\n"


if __name__ == "__main__":
    main()
