"""Measure how often `crowdshot judges` finds a family of models, and how often it reports one that is none.

    python benchmarks/judge_families.py DATA [--draws 12]

In each draw, three to five random people of a real crowd of DATA/truth-inference are taken for models, and the others
are the people. No two of them are known to be related, so every family counts as false. Then two of them are replaced
by copies of a third that repeat 90 % of its labels: the three are a family.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from crowdshot.labels import aggregation
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.judge_families import find_families
from crowdshot.labels.judge_quality import answers_of, take_annotators

CROWDS = (
    *("bluebird", "temp", "sentiment", "product", "dog", "face", "rte"),
    *("ZC_in", "ZC_us", "SP_amt", "mozafari"),
)
MOST, FEWEST_LABELS = 5, 80
COPIED = 0.9


def copy_of(answers, K, random):
    """Return labels that repeat most of another model's labels."""
    other = np.where(random.random(len(answers)) < COPIED, answers, random.integers(K, size=len(answers)))
    return np.where(answers >= 0, other, -1)


def draw(ann, able, seed):
    """Return whether a false family, the true family exactly, and any two of its members were found, and the pairs."""
    random = np.random.default_rng(seed)
    chosen = random.choice(able, min(MOST, max(3, len(able) // 2)), replace=False).tolist()
    people = take_annotators(ann, [r for r in range(ann.n_annotators) if r not in chosen])
    models = take_annotators(ann, chosen)
    posterior = aggregation.learned(people).probabilities
    answers = [answers_of(models, model) for model in range(len(chosen))]
    alone = find_families(models, answers, people, posterior)
    copies = [copy_of(answers[0], ann.n_classes, random) for _ in range(2)]
    found = find_families(models, [answers[0], *copies, *answers[3:]], people, posterior)
    family = {str(name) for name in models.annotators[:3]}
    sets = [set(each) for each in found.families]
    flagged = sum(pair.errs_together for pair in alone.pairs)
    return (
        bool(alone.families),
        sets == [family],
        any(len(each & family) > 1 for each in sets),
        flagged,
        len(alone.pairs),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--draws", type=int, default=12)
    options = parser.parse_args()
    rows = []
    for name in CROWDS:
        table = pd.read_csv(options.data / "truth-inference" / f"{name}.answers.csv")
        ann = Annotations.from_frame(table.set_axis(["item", "annotator", "label"], axis=1))
        able = np.flatnonzero(np.bincount(ann.annotator) >= FEWEST_LABELS)
        found = np.array([draw(ann, able, seed) for seed in range(options.draws)], dtype=float)
        rows.append([name, *found[:, :3].mean(0).round(2), *found[:, 3:].sum(0).astype(int)])
        print(*rows[-1], flush=True)
    columns = ["crowd", "false family", "exact", "any two", "flagged pairs", "pairs"]
    table = pd.DataFrame(rows, columns=columns)
    print(table.to_string(index=False))
    print(table.iloc[:, 1:4].mean().round(3).to_string(), table.iloc[:, 4:].sum().to_string(), sep="\n")


if __name__ == "__main__":
    main()
