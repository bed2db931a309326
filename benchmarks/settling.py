"""What `crowdshot next --stop-at` foretells against what labels of real crowds did when they were given back.

    python benchmarks/settling.py --data ../shared/data

Of up to 1,000 items all labels but two (three) each are held back, by lot. Then labels are given back, one for each of
the most doubtful third of the items that are not settled, and the default judges again, until such labels run out. The
forecast is made at the start. Prints a Markdown table: the share that was settled at first and in the end, how many
labels that took, the share foretold for as many, and from WORST to BEST.
"""

import argparse
from pathlib import Path

import crowds
import numpy as np

from crowdshot import Annotations, aggregate
from crowdshot.labels import settling
from crowdshot.labels.belief import SETTLED, doubt

CROWDS = ("rte", "temp", "sentiment", "face", "dog", "SP_amt", "isbook", "bluebird", "cifar10s", "leaves")
FIRST = (2, 3)  # labels an item
ITEMS, ROUNDS = 1000, 12


def started(ann: Annotations, per_item: int, random: np.random.Generator) -> tuple[Annotations, np.ndarray]:
    """All labels of some items, in an order by lot, and which of them are there from the start."""
    chosen = random.permutation(ann.n_items)[:ITEMS]
    ann = ann.select_items(ann.items[chosen])
    order = random.permutation(len(ann))
    ann = Annotations(ann.item[order], ann.annotator[order], ann.label[order], ann.items, ann.annotators, ann.classes)
    turn = np.empty(len(ann), dtype=np.int64)
    by_item = np.argsort(ann.item, kind="stable")
    first = np.searchsorted(ann.item[by_item], ann.item[by_item])
    turn[by_item] = np.arange(len(ann)) - first
    return ann, turn < per_item


def given_back(ann: Annotations, there: np.ndarray) -> tuple[int, float]:
    """How many labels were given back, and the share that was settled then."""
    there = there.copy()
    bought = 0
    belief = aggregate.learned(ann.keep(there)).probabilities
    for _ in range(ROUNDS):
        open_ = np.flatnonzero(~there & (belief.max(1) < SETTLED)[ann.item])
        open_ = open_[np.unique(ann.item[open_], return_index=True)[1]]  # one an item
        if len(open_) < ann.n_items // 3:
            break
        there[open_[np.argsort(-doubt(belief[ann.item[open_]]))[: ann.n_items // 3]]] = True
        bought += ann.n_items // 3
        belief = aggregate.learned(ann.keep(there)).probabilities
    return bought, float((belief.max(1) >= SETTLED).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    head = ("", "labels an item", "settled", "labels given back", "settled then", "foretold", "between")
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    within = []
    for name in CROWDS:
        crowd = crowds.load(data, name)
        for per_item in FIRST:
            ann, there = started(crowd.annotations, per_item, np.random.default_rng(0))
            belief = aggregate.learned(ann.keep(there)).probabilities
            bought, real = given_back(ann, there)
            if not bought:
                continue
            place = round(bought / ann.n_items / settling.ROUND)
            courses = [
                settling.course(ann.keep(there), belief, counts)[place]
                for counts in (settling.WORST, settling.EXPECTED, settling.BEST)
            ]
            within.append(courses[0] - 0.02 <= real <= courses[2] + 0.02)
            print(
                f"| {name} | {per_item} | {(belief.max(1) >= SETTLED).mean():.2f} | {bought:,} | {real:.2f}"
                f" | {courses[1]:.2f} | {courses[0]:.2f}–{courses[2]:.2f} |",
                flush=True,
            )
    print(f"\nBetween, within 0.02: {sum(within)} of {len(within)}.")


if __name__ == "__main__":
    main()
