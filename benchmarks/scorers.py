"""Compare estimates of a classifier's accuracy from a crowd's labels with the true accuracy, on real crowds.

    python benchmarks/scorers.py --data ../shared/data

Simulated classifiers are wrong for 0, 10, 25 or 40 % of the items. Prints the mean absolute error over crowds of three
estimates: agreement with the consensus, agreement weighted by the consensus's probabilities, and
`crowdshot.metrics.consensus_accuracy`, which corrects for errors of the consensus.
"""

import argparse
from pathlib import Path

import crowds
import numpy as np
import pandas as pd

from crowdshot import aggregate, metrics

CROWDS = (
    *("bluebird", "temp", "sentiment", "ZC_in", "ZC_us", "dog", "face", "rte", "wsd", "SP_amt", "isbook", "mozafari"),
    *("leaves", "sentence-polarity", "labelme", "cifar10s"),
)
ERRORS = (0.0, 0.1, 0.25, 0.4)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    rows = []
    for name in CROWDS:
        crowd = crowds.load(data, name)
        truth, K = crowd.true_classes(), crowd.annotations.n_classes
        known = np.flatnonzero(truth >= 0)
        ann = crowd.annotations.select_items(crowd.annotations.items[known])
        truth, posterior = truth[known], aggregate.learned(ann).probabilities
        for errs in ERRORS:
            random = np.random.default_rng(0)
            wrong = (truth + random.integers(1, K, len(truth))) % K
            predicted = np.where(random.random(len(truth)) < errs, wrong, truth)
            right = (predicted == truth).mean()
            estimates = {
                "agreement with the consensus": (posterior.argmax(1) == predicted).mean(),
                "weighted by its probabilities": posterior[np.arange(len(truth)), predicted].mean(),
                "consensus_accuracy": metrics.consensus_accuracy(ann.classes[predicted], ann),
            }
            rows += [
                {"crowd": name, "error rate": errs, "estimate": name_, "error": value - right}
                for name_, value in estimates.items()
            ]
    table = pd.DataFrame(rows)
    table["distance"] = table["error"].abs()
    wide = table.pivot_table(index="estimate", columns="error rate", values="distance", margins=True, sort=False)
    print(wide.round(3).to_string())
    print(table.groupby("estimate", sort=False)["error"].mean().round(3).to_string())
    worst = table[table["estimate"] == "consensus_accuracy"].groupby("crowd")["distance"].mean().nlargest(4)
    print(f"largest errors: {', '.join(f'{name} {value:.2f}' for name, value in worst.items())}")


if __name__ == "__main__":
    main()
