"""Measure how often the 90 % intervals of annotators' accuracy contain the true accuracy, on real crowds.

    python benchmarks/intervals.py --data ../shared/data

Each crowd is aggregated by the default, whose network saw no real crowd, in full and thinned to 1, 2, 3 and 5 labels
per item. The true accuracy of an annotator is that over all their labels of items with known truth, at least 20. Crowds
with fewer than three such annotators are left out, and so are hitspam_cf, adult and fact_eval, whose truth is known for
few items only. The width of intervals (`crowdshot.labels.annotator_quality`) was chosen on these crowds. Prints a table
of means over crowds, and the crowds with the lowest and highest coverage.
"""

import argparse
from pathlib import Path

import crowds
import numpy as np
import pandas as pd

from crowdshot import aggregate
from crowdshot.io.cells import positions
from crowdshot.labels.annotator_quality import judge

FEW_TRUTHS = ("hitspam_cf", "adult", "fact_eval")
ENOUGH = 20


def rows(data: Path) -> pd.DataFrame:
    found = []
    for name in sorted(set(crowds.names(data)) - set(FEW_TRUTHS)):
        crowd = crowds.load(data, name)
        ann = crowd.annotations
        truth = crowd.true_classes()[ann.item]
        known = truth != crowds.UNKNOWN
        n = np.bincount(ann.annotator[known], minlength=ann.n_annotators)
        true = np.bincount(ann.annotator[known], (truth == ann.label)[known], ann.n_annotators) / n.clip(1)
        for most in (None, 5, 3, 2, 1):
            some = ann if most is None else crowds.thinned(ann, most, 0)
            people = judge(some, aggregate.learned(some).probabilities)
            who = positions(ann.annotators, people[some.columns.annotator])
            use = (n[who] >= ENOUGH) & (people["n_labels"].to_numpy() > 0)
            if use.sum() < 3:
                continue
            inside = (people["low"] <= true[who]) & (true[who] <= people["high"])
            width, error = people["high"] - people["low"], people["accuracy"] - true[who]
            case = {"crowd": name, "labels per item": most or "all", "coverage": inside[use].mean()}
            found.append(case | {"width": width[use].mean(), "bias": error[use].mean()})
    return pd.DataFrame(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    table = rows(parser.parse_args().data)
    means = table.groupby("labels per item", sort=False)[["coverage", "width", "bias"]].mean()
    means.insert(0, "crowds", table.groupby("labels per item", sort=False).size())
    print(means.round(3).to_string())
    full = table[table["labels per item"] == "all"].set_index("crowd")["coverage"].sort_values().round(2)
    print(pd.concat([full.head(4), full.tail(2)]).to_string())


if __name__ == "__main__":
    main()
