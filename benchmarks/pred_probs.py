"""Measure what another classifier's predictions add to labels: photographs with two labels each and a regression.

    python benchmarks/pred_probs.py --data ../shared/data --work /tmp/pred_probs

The data are LabelMe and CIFAR-10S with at most two labels per photograph, drawn three times. Predictions are those of
logistic regression on `lite0` features, trained on the vote for the other four fifths of the photographs. CROWDLAB gets
the same predictions. Prints the accuracy; ± is the standard error of the difference to labels only. ``--work`` keeps
embeddings.
"""

import argparse
from pathlib import Path

import crowds
import numpy as np
import pandas as pd
import regression
import sources
from rivals_features import crowdlab, one_hot

from crowdshot import Annotations, CrowdClassifier, aggregate

LABELS, DRAWS = 2, 3


def posteriors(X, ann):
    """Return {method: (N, K)}."""
    ready = regression.prepare(X, X[:1])
    voted = one_hot(aggregate.soft_vote(ann).argmax(1), ann.n_classes)
    said = np.exp(regression.cross_validate(ready.items, voted)[1])
    return {
        "labels alone": aggregate.learned(ann).probabilities,
        "with its word": aggregate.learned(ann, pred_probs=said).probabilities,
        "CROWDLAB, the same word": crowdlab(ready, ann).consensus,
        "with the features": CrowdClassifier("identity").fit(X, ann).label_proba_,
        "with both": CrowdClassifier("identity").fit(X, ann, pred_probs=said).label_proba_,
        "the word alone": said,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    given = parser.parse_args()
    for name in ("labelme:lite0", "cifar10s:lite0"):
        source = sources.load(name, given.data, given.work)
        n = len(source.truth) if source.n_labelled is None else source.n_labelled
        everything = Annotations.from_frame(source.answers, items=range(n))
        rows = []
        for draw in range(DRAWS):
            ann = crowds.thinned(everything, LABELS, draw)
            found = posteriors(source.features[:n], ann)
            rows.append({way: (ann.classes[p.argmax(1)] == source.truth[:n]).mean() for way, p in found.items()})
        table = pd.DataFrame(rows)
        apart = table.sub(table["labels alone"], axis=0).sem()
        print(f"{name}: {n:,} photographs")
        print(pd.DataFrame({"right": table.mean(), "±": apart}).round(3).to_string(), flush=True)


if __name__ == "__main__":
    main()
