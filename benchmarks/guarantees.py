"""Measure prediction sets and prediction-powered estimates on real crowds with known truth.

    python benchmarks/guarantees.py --data ../shared/data [--checked 50] [--draws 200] [--out results/guarantees]

Random samples of the items with known truth are checked; the others show how often the sets and intervals of
`crowdshot.guarantees` contain the truth. The consensus is that of `aggregate.learned` on the whole crowd. Columns, as
means over the draws:

    right              accuracy of the consensus
    sets cover, size   share of the unchecked items whose set has the true class, and mean number of classes in a set
    accuracy inside    share of the 90 % intervals that contain the accuracy
    width, by sample   mean width of these intervals, and of those by the checked items alone (lambda = 0)
    shares inside      the same for class shares
"""

import argparse
import warnings
from pathlib import Path

import crowds
import numpy as np
import pandas as pd
from rows import markdown

from crowdshot import aggregate
from crowdshot.labels.guarantees import conformal_sets, powered_shares
from crowdshot.model.posteriors import dense

LEVEL = 0.9


def measure(p: np.ndarray, truth: np.ndarray, n: int, random: np.random.Generator) -> dict[str, float]:
    N, K = p.shape
    rows = random.choice(N, n, replace=False)
    others = np.setdiff1d(np.arange(N), rows)
    sets = conformal_sets(p[others], p[rows], truth[rows], LEVEL)
    right = (p.argmax(1) == truth).astype(float)
    found = powered_shares(p.max(1)[:, None], right[rows, None], rows, level=LEVEL)[0]
    sampled = powered_shares(np.full((N, 1), 0.5), right[rows, None], rows, level=LEVEL)[0]
    of_classes = powered_shares(p, np.eye(K)[truth[rows]], rows, level=LEVEL)
    shares = np.bincount(truth, minlength=K) / N
    return {
        "right": right.mean(),
        "sets cover": sets[np.arange(len(others)), truth[others]].mean(),
        "size": sets.sum(1).mean(),
        "accuracy inside": found.low <= right.mean() <= found.high,
        "width": found.high - found.low,
        "by sample": sampled.high - sampled.low,
        "shares inside": np.mean([one.low <= share <= one.high for one, share in zip(of_classes, shares, strict=True)]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--checked", type=int, default=50)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("results/guarantees"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = []
    for name, crowd in crowds.load_all(options.data):
        truth = crowd.true_classes()
        known = np.flatnonzero(truth >= 0)
        if name == "fact_eval" or len(known) < 2 * options.checked:  # fact_eval has the truth of fej2013
            continue
        p, random = dense(aggregate.learned(crowd.annotations).probabilities[known]), np.random.default_rng(0)
        draws = pd.DataFrame([measure(p, truth[known], options.checked, random) for _ in range(options.draws)])
        found.append({"crowd": name, "items": len(known), "classes": p.shape[1], **draws.mean().to_dict()})
        print(name, flush=True)
    table = pd.DataFrame(found)
    means = {"crowd": f"mean of {len(table)}", "items": "", "classes": "", **table.iloc[:, 3:].mean().to_dict()}
    options.out.mkdir(parents=True, exist_ok=True)
    table.round(4).to_csv(options.out / f"real-{options.checked}.csv", index=False)
    print(markdown(pd.concat([table, pd.DataFrame([means])])))


if __name__ == "__main__":
    main()
