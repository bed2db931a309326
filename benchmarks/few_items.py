"""Measure aggregation of few items: random items of each real crowd, with all their labels.

    python benchmarks/few_items.py --data ../shared/data [--draws 8]

Draws 15, 30 and 60 items with known truth from each crowd, and compares the default with other methods on labels only.
Prints means over crowds, and crowds where the default is more than 0.01 below the vote. Writes means per crowd to
results/few-items/crowds.csv. Nothing was chosen on these draws; the crowds were in view (docs/research/real-crowds.md).
"""

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path

import crowds
import numpy as np
import pandas as pd
from measures import score
from rivals_labels import OURS, RIVALS, VOTE, ours
from rows import markdown

from crowdshot import Annotations

SIZES = (15, 30, 60)
METHODS = (VOTE, "vote, one pseudo-vote", "one-coin", "Dawid–Skene, prior 3 / 0.5", "EBCC", "BWA", OURS)
KEPT = ["accuracy", "log_loss", "over", "accepted", "accepted_right"]
SLACK = 0.01


def draws(crowd: crowds.Crowd, n: int, number: int) -> Iterator[crowds.Crowd]:
    """Yield random parts of a crowd with ``n`` items of known truth, or with all of them."""
    known = np.flatnonzero(crowd.true_classes() != crowds.UNKNOWN)
    for seed in range(number):
        rows = np.sort(np.random.default_rng([seed, n]).permutation(known)[:n])
        ids = [crowd.annotations.items[row] for row in rows]
        part = Annotations.from_frame(crowd.annotations.select_items(ids).to_frame(), items=ids)
        if part.n_classes > 1:
            yield crowds.Crowd(part, crowd.truth.iloc[rows])


def measure(data: Path, number: int) -> pd.DataFrame:
    rows = []
    for name, crowd in crowds.load_all(data):
        for n in SIZES:
            for seed, part in enumerate(draws(crowd, n, number)):
                truth = part.true_classes()
                for method in METHODS:
                    found = score((RIVALS | {OURS: ours})[method](part.annotations), truth)
                    right = np.nan_to_num(found.pop("settled_right")) * found["accepted"]
                    rows.append({"crowd": name, "items": n, "seed": seed, "method": method, **found, "hits": right})
    return pd.DataFrame(rows)


def per_crowd(rows: pd.DataFrame) -> pd.DataFrame:
    found = rows.groupby(["crowd", "items", "method"], sort=False).mean(numeric_only=True)
    found["accepted_right"] = found["hits"] / found["accepted"]
    return found[KEPT].reset_index()


def averages(rows: pd.DataFrame) -> pd.DataFrame:
    found = rows.groupby(["items", "method"], sort=False).mean(numeric_only=True)
    found["accepted_right"] = found["hits"] / found["accepted"]
    right = rows.groupby(["crowd", "items", "method"])["accuracy"].mean().unstack()
    below = right.sub(right[VOTE], axis=0) < -SLACK
    found["below the vote"] = below.groupby("items").sum().stack().reindex(found.index)
    return found[[*KEPT, "below the vote"]].reset_index()


def below_the_vote(rows: pd.DataFrame) -> pd.DataFrame:
    draws = rows.pivot_table(index=["crowd", "items", "seed"], columns="method", values="accuracy")
    ahead = (draws[OURS] - draws[VOTE]).groupby(["crowd", "items"]).agg(["mean", "sem"])
    return ahead[ahead["mean"] < -SLACK].reset_index()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("results/few-items/crowds.csv"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = measure(options.data, options.draws)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    per_crowd(rows).round(4).to_csv(options.out, index=False)
    print(markdown(averages(rows)))
    print(markdown(below_the_vote(rows)))


if __name__ == "__main__":
    main()
