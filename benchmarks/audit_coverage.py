"""Draw audits of real crowds, and count how often the interval covers the accuracy of the accepted labels.

Every accepted item with a known truth is the population. Each audit checks 50 of them. "gap" is the absolute difference
between mean confidence and accuracy of the accepted items that were not checked, before and after the correction, in
the first tenth of the audits. Nothing was tuned on these crowds.

    python benchmarks/audit_coverage.py --data FOLDER [--crowds face,dog] [--draws 200] [--sample 50]

FOLDER has <name>.answers.csv (item, worker, label) and <name>.truth.csv (item, truth).
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from crowdshot import Annotations
from crowdshot.labels import aggregation
from crowdshot.labels.auditing import correct, draw, estimate

FEWEST = 60  # accepted items with a known truth


def audit(name: str, folder: Path, draws: int, size: int) -> dict[str, object] | None:
    answers = pd.read_csv(folder / f"{name}.answers.csv", dtype=str)
    truth = dict(pd.read_csv(folder / f"{name}.truth.csv", dtype=str).itertuples(index=False, name=None))
    ann = Annotations.from_frame(answers, columns={"item": "item", "annotator": "worker", "label": "label"})
    table = aggregation.learned(ann).to_frame()
    table = table[(table["confidence"] >= 0.9) & table.iloc[:, 0].isin(truth.keys())]
    if len(table) < FEWEST:
        return None
    items, labels, confidence = table.iloc[:, 0].tolist(), table.iloc[:, 1].tolist(), table["confidence"].to_numpy()
    right = np.array([truth[item] == label for item, label in zip(items, labels, strict=True)])
    rows, gaps = [], []
    for seed in range(draws):
        sample = draw(items, labels, confidence, size, seed=seed)
        counts = [
            (stratum.items, stratum.drawn, int(right[sample.rows[sample.stratum == place]].sum()))
            for place, stratum in enumerate(sample.strata)
        ]
        accuracy, low, high = estimate(*map(list, zip(*counts, strict=True)))
        rows.append((accuracy - right.mean(), low <= right.mean(), high >= right.mean(), high - low))
        if seed < max(1, draws // 10):
            rest = np.setdiff1d(np.arange(len(items)), sample.rows)
            band = correct(confidence[rest], confidence[sample.rows], right[sample.rows])
            actual = right[rest].mean()
            gaps.append((abs(confidence[rest].mean() - actual), abs(band.middle.mean() - actual)))
    bias, lower, upper, width = np.mean(rows, axis=0)
    before, after = np.mean(gaps, axis=0)
    return {
        "crowd": name,
        "accepted": len(items),
        "confidence": confidence.mean(),
        "right": right.mean(),
        "bias": bias,
        "lower holds": lower,
        "upper holds": upper,
        "width": width,
        "gap before": before,
        "gap after": after,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--crowds", type=lambda text: text.split(","))
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--sample", type=int, default=50)
    args = parser.parse_args()
    names = args.crowds or sorted(path.name.removesuffix(".truth.csv") for path in args.data.glob("*.truth.csv"))
    rows = [row for row in (audit(name, args.data, args.draws, args.sample) for name in names) if row is not None]
    table = pd.DataFrame(rows)
    print(table.round(3).to_string(index=False))
    print(table.drop(columns="crowd").mean().round(3).to_string())


if __name__ == "__main__":
    main()
