"""Measure how often changes of accuracy are reported where there are none, and how often real ones are found.

    python benchmarks/trends.py --out results/trends            # measures; minutes
    python benchmarks/trends.py --out results/trends --tables   # only the table of these rows

Simulated crowds of ten annotators with accuracies between 0.65 and 0.95, in sessions of 40 labels, with durations. In
"steady" crowds, accuracies are constant: all that is reported is false. In the others, one annotator of accuracy 0.9
falls to 0.65 after half of the labels ("step") or evenly ("gradual"), falls to 0.65 during each session ("tires"), or
answers a fifth of the items in two seconds at random ("hurries"). "growing" is steady, but the second half of the
items has twice as many labels each, so that later labels are compared with a more certain consensus.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from rows import markdown

from crowdshot import Annotations, aggregate
from crowdshot.labels.accuracy_trends import accuracy_trends
from crowdshot.labels.label_times import Times
from crowdshot.labels.working_times import CHANGE, EARLY, FAST, LATE

CASES = ("steady", "growing", "step", "gradual", "tires", "hurries")
R, SESSION, PACE = 10, 40, 45.0
GOOD, POOR = 0.9, 0.65
FOUND = {
    "fell": lambda table: table[CHANGE].fillna("").str.startswith("fell"),
    "rose": lambda table: table[CHANGE].fillna("").str.startswith("rose"),
    "tires": lambda table: table[LATE] < table[EARLY],
    "wakes": lambda table: table[LATE] > table[EARLY],
    "fast": lambda table: table[FAST].notna(),
}


def simulated(case: str, K: int, labels_each: int, per_item: int, seed: int) -> tuple[Annotations, Times]:
    """Return the labels of a crowd and their times; only the first annotator changes."""
    random = np.random.default_rng([seed, labels_each, per_item, K, CASES.index(case)])
    n_items = labels_each * R // per_item
    wanted = np.full(n_items, per_item)
    if case == "growing":
        wanted[: n_items // 2], wanted[n_items // 2 :] = per_item - 1, per_item + 1
    chosen = random.random((n_items, R)).argsort(1).argsort(1) < wanted[:, None]
    truth, accuracy = random.integers(K, size=n_items), random.uniform(0.65, 0.95, R)
    frames = []
    for who in range(R):
        item = np.flatnonzero(chosen[:, who])
        n, at = len(item), np.arange(chosen[:, who].sum())
        took = random.lognormal(np.log(PACE), 0.4, n)
        p = np.full(n, accuracy[who])
        if who == 0 and case not in ("steady", "growing"):
            p[:] = GOOD
            if case == "step":
                p[n // 2 :] = POOR
            elif case == "gradual":
                p = np.linspace(GOOD, POOR, n)
            elif case == "tires":
                p = GOOD - (GOOD - POOR) * (at % SESSION) / (SESSION - 1)
            else:
                hurried = random.random(n) < 0.2
                took[hurried], p[hurried] = random.uniform(1, 2, hurried.sum()), 1 / K
        wrong = (truth[item] + random.integers(1, K, n)) % K
        label = np.where(random.random(n) < p, truth[item], wrong)
        seconds = 1.77e9 + took.cumsum() + 86_400 * (at // SESSION)
        frames.append(pd.DataFrame({"item": item, "annotator": who, "label": label, "at": seconds, "took": took}))
    table = pd.concat(frames)
    ann = Annotations.from_frame(table, items=range(n_items), annotators=range(R))
    return ann, Times(table["at"].to_numpy(), durations=table["took"].to_numpy())


def measure(case: str, K: int, labels_each: int, per_item: int, seed: int) -> dict[str, object]:
    ann, times = simulated(case, K, labels_each, per_item, seed)
    table = accuracy_trends(ann, aggregate.learned(ann).probabilities, times)
    row: dict[str, object] = {"case": case, "classes": K, "labels_each": labels_each, "per_item": per_item}
    row["seed"] = seed
    for name, test in FOUND.items():
        found = test(table).to_numpy(dtype=bool)
        row |= {f"{name}_first": int(found[0]), f"{name}_others": int(found[1:].sum())}
    return row


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the share of crowds in which each finding was reported, of the first annotator and of any other."""
    groups = rows.groupby(["case", "classes", "labels_each", "per_item"], sort=False)
    out = groups.size().rename("crowds").to_frame()
    for name in FOUND:
        out[f"{name}, first"] = groups[f"{name}_first"].mean()
        out[f"{name}, others"] = groups[f"{name}_others"].apply(lambda some: (some > 0).mean())
    return out.round(3).reset_index()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/trends"))
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--tables", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if not args.tables:
        sizes = ((2, 60, 3), (2, 300, 3), (4, 150, 3), (4, 150, 5))
        rows = [measure(case, *size, seed) for case in CASES for size in sizes for seed in range(args.seeds)]
        pd.DataFrame(rows).to_csv(args.out / "rows.csv", index=False)
    table = summarise(pd.read_csv(args.out / "rows.csv"))
    (args.out / "trends.md").write_text(markdown(table) + "\n")
    print(markdown(table))


if __name__ == "__main__":
    main()
