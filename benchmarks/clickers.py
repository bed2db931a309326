"""Measure how often annotators who guess are flagged, and others who do not.

    python benchmarks/clickers.py --data ../shared/data --out results/clickers    # measures; minutes
    python benchmarks/clickers.py --out results/clickers --tables                 # only the tables of these rows

Simulated crowds: a tenth of the annotators choose classes at random, another tenth always choose the same class; the
accuracy of the others is uniform between 0.6 and 0.95. Real crowds with known truth (`intervals.py`): the share of an
annotator's informed labels is estimated from the truth, with a 90 % interval. An annotator guesses if the upper limit
is below 0.1, and is honest if the lower limit is above 0.25; others are in between. The flags counted are "one class
only" and "spammer-like"; annotators with fewer than 10 labels cannot have one.

`USEFUL`, `NEAR_CHANCE` and the power of `crowdshot.labels.annotator_flags` were chosen on half of these seeds and on
twelve of the real crowds.
"""

import argparse
from pathlib import Path

import crowds
import numpy as np
import pandas as pd
from intervals import FEW_TRUTHS
from rows import markdown

from crowdshot import Annotations, aggregate
from crowdshot.labels.annotator_flags import FEWEST_SHARED, SHARES, judge_each

SIMULATED = (  # classes, annotators, items, labels per item
    *((2, 10, 100, 5), (2, 20, 300, 5), (2, 60, 1000, 5), (2, 20, 300, 3)),
    *((4, 10, 100, 5), (4, 20, 300, 3), (8, 20, 300, 3), (8, 60, 1000, 5)),
)
REPEATS, ITEMS = 10, 300
GUESSES, USES, ENOUGH = 0.1, 0.25, 20


def flagged(ann: Annotations) -> np.ndarray:
    judged = judge_each(ann, aggregate.learned(ann).probabilities, [str(name) for name in ann.classes])
    return np.array([one is not None and one.flag is not None and one.flag.says_nothing for one in judged])


def simulated(K: int, R: int, N: int, per_item: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    truth, accuracy = random.integers(K, size=N), random.uniform(0.6, 0.95, R)
    kind = np.array(["random"] * (R // 10) + ["one class"] * (R // 10) + ["honest"] * (R - 2 * (R // 10)))
    right = random.random((N, R)) < np.where(kind == "random", 1 / K, accuracy)
    labels = np.where(right, truth[:, None], (truth[:, None] + random.integers(1, K, (N, R))) % K)
    labels[:, kind == "one class"] = random.integers(K, size=R // 10)
    labels[random.random((N, R)).argsort(1).argsort(1) >= per_item] = -1
    ann = Annotations.from_matrix(labels, classes=range(K))
    case = {"crowd": f"simulated: {K} classes, {R} annotators, {N} items, {per_item} labels per item"}
    useful = (accuracy - 1 / K) / (1 - 1 / K) > USES
    kind[(kind == "honest") & ~useful] = "between"
    return pd.DataFrame(case | {"kind": kind, "labels": (labels >= 0).sum(0), "flagged": flagged(ann)})


def real(name: str, data: Path) -> list[pd.DataFrame]:
    crowd = crowds.load(data, name)
    ann, truth = crowd.annotations, crowd.true_classes()
    kinds = pd.Series([kind_of(ann, truth, annotator) for annotator in range(ann.n_annotators)], index=ann.annotators)
    cases = {"all labels": ann, "3 labels per item": crowds.thinned(ann, 3, 0)}
    if ann.n_items > 1.5 * ITEMS:
        chosen = np.random.default_rng(0).permutation(ann.n_items)[:ITEMS]
        cases["300 items"] = Annotations.from_frame(ann.keep(np.isin(ann.item, chosen)).to_frame(), classes=ann.classes)
    return [
        pd.DataFrame(
            {
                "crowd": name,
                "case": case,
                "kind": kinds.reindex(some.annotators).to_numpy(),
                "labels": np.bincount(some.annotator, minlength=some.n_annotators),
                "flagged": flagged(some),
            }
        )
        for case, some in cases.items()
    ]


def kind_of(ann: Annotations, truth: np.ndarray, annotator: int) -> str:
    """Return "random", "honest" or "between", judged by the truth, or "unknown" with few labels."""
    rows = np.flatnonzero((ann.annotator == annotator) & (truth[ann.item] >= 0))
    if len(rows) < ENOUGH:
        return "unknown"
    own = np.bincount(ann.label[rows], minlength=ann.n_classes) / len(rows)
    right = truth[ann.item[rows]] == ann.label[rows]
    log_likelihood = np.log(SHARES[:, None] * right + (1 - SHARES[:, None]) * own[ann.label[rows]] + 1e-12).sum(1)
    weight = np.exp(log_likelihood - log_likelihood.max()).cumsum()
    low, high = SHARES[np.searchsorted(weight / weight[-1], (0.05, 0.95))]
    return "random" if high < GUESSES else "honest" if low > USES else "between"


def measure(data: Path) -> pd.DataFrame:
    found = [simulated(*size, seed).assign(case="simulated") for size in SIMULATED for seed in range(REPEATS)]
    for name in sorted(set(crowds.names(data)) - {*FEW_TRUTHS, "cifar10h"}):
        found += real(name, data)
        print(name, flush=True)
    rows = pd.concat(found)
    rows = rows[(rows["labels"] >= FEWEST_SHARED) & (rows["kind"] != "unknown")]
    rows["labels"] = pd.cut(rows["labels"], [0, 29, 99, 299, np.inf], labels=["10–29", "30–99", "100–299", "300+"])
    counts = rows.groupby(["case", "crowd", "kind", "labels"], observed=True)["flagged"].agg(["size", "sum"])
    return counts.set_axis(["annotators", "flagged"], axis=1).reset_index()


def tables(rows: pd.DataFrame) -> str:
    def counted(by: list[str]) -> str:
        sums = rows.groupby([*by, "kind"], sort=False)[["annotators", "flagged"]].sum()
        text = sums["flagged"].astype(str) + " of " + sums["annotators"].astype(str)
        return markdown(text.unstack("kind").fillna("").reset_index())

    return f"By number of labels:\n\n{counted(['case', 'labels'])}\n\nBy crowd:\n\n{counted(['case', 'crowd'])}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    path = options.out / "flags.csv"
    if not options.tables:
        options.out.mkdir(parents=True, exist_ok=True)
        measure(options.data).to_csv(path, index=False)
    text = tables(pd.read_csv(path))
    (options.out / "flags.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
