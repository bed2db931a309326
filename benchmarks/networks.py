"""Networks that learned without the crowds they are judged on: what the tables of docs/inference.md are measured with.

    python benchmarks/crowds.py --data ../shared/data --out runs/projects
    OMP_NUM_THREADS=1 python benchmarks/networks.py --projects runs/projects [--out results/reality/networks]

Five groups of crowds, relatives together, are left out in turn; each network is trained as the shipped one is, with
the seed 0. Writes fold-0.safetensors to fold-4.safetensors, folds.json (which file is for which crowd) and scores.csv:
each crowd by the network that never saw it, full and thinned to 1, 2, 3 and 5 labels an item, beside the vote. Half an
hour on one core.
"""

import argparse
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd

from crowdshot.episodes.worlds import World
from crowdshot.files.whole import write_file
from crowdshot.model.network_file import load_network, save_network
from crowdshot.training.inference import FLOOR, SETTLED, Scores, Settings, scores, train
from crowdshot.training.projects import Project, first_labels, leave_out, read_projects

GROUPS = [
    ["ZC_all", "ZC_in", "ZC_us", "isbook"],
    ["SP_amt", "sentence-polarity", "labelme", "bluebird"],
    ["fej2013", "fact_eval", "sentiment", "mozafari", "leaves"],
    ["product", "rte", "cifar10s", "cifar10h", "adult"],
    ["temp", "dog", "face", "wsd", "hitspam_cf"],
]
TWICE = "fact_eval"  # has the truth of fej2013 once more: never learned from
THINNED = (1, 2, 3, 5)


def vote(project: Project) -> Scores:
    """Shares of the votes, of which one is spread over the classes."""
    ann, known = project.annotations, project.truth >= 0
    counts = ann.vote_counts()[known]
    belief = (counts + 1 / ann.n_classes) / (counts.sum(axis=1, keepdims=True) + 1)
    truth = project.truth[known]
    top = belief >= belief.max(axis=1, keepdims=True) - 1e-9
    right = top[np.arange(len(truth)), truth] / top.sum(axis=1)
    confidence = belief.max(axis=1)
    settled = confidence >= SETTLED
    return Scores(
        len(truth),
        float(right.mean()),
        float(-np.log(belief[np.arange(len(truth)), truth].clip(FLOOR)).mean()),
        float(confidence.mean() - right.mean()),
        float(settled.mean()),
        float(right[settled].mean()) if settled.any() else None,
    )


def cases(project: Project) -> dict[int, Project]:
    """Labels an item, 0 for all of them -> the project so thinned."""
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


def one_fold(
    out: Path, settings: Settings, fold: tuple[int, tuple[list[Project], list[Project]]]
) -> list[dict[str, object]]:
    """Train without some projects, save the network, and score it on them."""
    number, (left_out, others) = fold
    file, began = out / f"fold-{number}.safetensors", time.monotonic()
    names = [project.name for project in left_out]
    others = [project for project in others if project.name != TWICE]
    network = train(others, World(), settings, checkpoint=file.with_suffix(".checkpoint"))
    assert network is not None
    card = {
        "learned_from": {"world": World().to_card(), "projects": [project.name for project in others]},
        "left_out": names,
        "settings": vars(settings),
    }
    save_network(file, network, card)
    file.with_suffix(".checkpoint").unlink()
    saved = load_network(file)
    rows: list[dict[str, object]] = []
    for project in left_out:
        for most, case in cases(project).items():
            for method, scored in (("learned", scores(saved, case.annotations, case.truth)), ("vote", vote(case))):
                rows.append({"crowd": project.name, "labels": most or "all", "method": method, **scored._asdict()})
    print(f"fold {number}: {', '.join(names)} left out, {time.monotonic() - began:.0f} s", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--projects", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results/reality/networks"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=Settings().iterations)
    parser.add_argument("--processes", type=int, default=1, help="folds at a time")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        projects = read_projects(args.projects)
    settings = Settings(args.iterations, args.seed)
    folds = list(enumerate(leave_out(projects, GROUPS)))
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        rows = [row for found in pool.map(partial(one_fold, args.out, settings), folds) for row in found]
    of_crowd = {project.name: f"fold-{number}.safetensors" for number, (left_out, _) in folds for project in left_out}
    (args.out / "folds.json").write_text(json.dumps(of_crowd, indent=1, sort_keys=True) + "\n")
    table = pd.DataFrame(rows)
    write_file(args.out / "scores.csv", table)
    show(table)


def show(table: pd.DataFrame) -> None:
    """Means over the crowds, and where the network is below the vote."""
    table = table[table["crowd"] != TWICE]
    full = table["labels"] == "all"
    print(table[full].pivot(index="crowd", columns="method", values=["accuracy", "log_loss"]).round(3).to_string())
    for name, part in (("full", table[full]), ("thinned", table[~full])):
        print(name, part[part["method"] == "vote"].shape[0], "cases")
        print(part.groupby("method")[["accuracy", "log_loss", "over", "settled", "right"]].mean().round(4).to_string())
    wide = table.assign(full=full).pivot(index=["crowd", "labels", "full"], columns="method", values="accuracy")
    behind = (wide["learned"] - wide["vote"]).reset_index(name="ahead")
    below = behind[behind["ahead"] < -0.01]
    print(f"more than 0.01 below the vote: {len(below)} of {len(behind)}, {int(below['full'].sum())} of them full")
    print(below.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
