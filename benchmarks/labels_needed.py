"""Compare the forecast of how many items more labels would make acceptable with real labels.

    python benchmarks/labels_needed.py --data ../shared/data

Of up to 1,000 items, all but three (five, eight) random labels each are hidden. Each round reveals one label for the
most uncertain third of the items that are not accepted, and runs the default again, up to six times or until such
labels run out. The forecast of the report and of `next --stop-at` is made at the start. Prints a Markdown table: the
accepted share at the start and at the end, the number of labels, the forecast for as many labels, and its range from
WORST to BEST; then the error of the forecast over all rounds. The constants of `crowdshot.labels.labels_needed` were
chosen on `CHOSEN_ON`.
"""

import argparse
from pathlib import Path

import crowds
import numpy as np

from crowdshot import Annotations, aggregate
from crowdshot.labels import labels_needed
from crowdshot.labels.consensus import THRESHOLD, uncertainty

CHOSEN_ON = ("rte", "temp", "sentiment", "face", "dog", "bluebird", "cifar10s", "leaves")
OTHERS = ("ZC_all", "ZC_us", "ZC_in", "mozafari", "sentence-polarity")
FIRST = (3, 5, 8)  # labels per item
ITEMS, ROUNDS, PART = 1000, 6, 1 / 3
NEARLY = 0.02


def started(ann: Annotations, per_item: int, random: np.random.Generator) -> tuple[Annotations, np.ndarray]:
    """Return all labels of some items in random order, and a mask of those that are known at the start."""
    chosen = random.permutation(ann.n_items)[:ITEMS]
    ann = ann.select_items(ann.items[chosen])
    order = random.permutation(len(ann))
    ann = Annotations(ann.item[order], ann.annotator[order], ann.label[order], ann.items, ann.annotators, ann.classes)
    turn = np.empty(len(ann), dtype=np.int64)
    by_item = np.argsort(ann.item, kind="stable")
    first = np.searchsorted(ann.item[by_item], ann.item[by_item])
    turn[by_item] = np.arange(len(ann)) - first
    return ann, turn < per_item


def reveal(ann: Annotations, there: np.ndarray) -> list[tuple[int, float]]:
    """Return, after each round, the number of revealed labels and the accepted share."""
    there, at_a_time, course = there.copy(), round(PART * ann.n_items), []
    posterior = aggregate.learned(ann.keep(there)).probabilities
    for number in range(1, ROUNDS + 1):
        open_ = np.flatnonzero(~there & (posterior.max(1) < THRESHOLD)[ann.item])
        open_ = open_[np.unique(ann.item[open_], return_index=True)[1]]  # one per item
        if len(open_) < at_a_time:
            break
        there[open_[np.argsort(-uncertainty(posterior[ann.item[open_]]), kind="stable")[:at_a_time]]] = True
        posterior = aggregate.learned(ann.keep(there)).probabilities
        course.append((number * at_a_time, float((posterior.max(1) >= THRESHOLD).mean())))
    return course


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    head = ("", "labels per item", "accepted", "more labels", "accepted then", "forecast", "range")
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    off: dict[str, list[tuple[float, bool]]] = {}
    for name in (*CHOSEN_ON, *OTHERS):
        crowd = crowds.load(data, name)
        for per_item in FIRST:
            ann, there = started(crowd.annotations, per_item, np.random.default_rng(0))
            course = reveal(ann, there)
            if len(course) < 2:
                continue
            posterior = aggregate.learned(ann.keep(there)).probabilities
            kinds = (labels_needed.WORST, labels_needed.EXPECTED, labels_needed.BEST)
            start = labels_needed.begin(ann.keep(there), posterior)
            forecasts = [labels_needed.course(start, counts) for counts in kinds]
            for bought, real in course:
                worst, expected, best = (one[round(bought / ann.n_items / labels_needed.ROUND)] for one in forecasts)
                within = worst - NEARLY <= real <= best + NEARLY
                off.setdefault("chosen on" if name in CHOSEN_ON else "others", []).append((expected - real, within))
            print(
                f"| {name} | {per_item} | {(posterior.max(1) >= THRESHOLD).mean():.2f} | {bought:,} | {real:.2f}"
                f" | {expected:.2f} | {worst:.2f}–{best:.2f} |",
                flush=True,
            )
    for which, points in off.items():
        error, within = np.array([error for error, _ in points]), np.array([within for _, within in points])
        print(
            f"\n{which}: mean absolute error {np.abs(error).mean():.3f} (mean error {error.mean():+.3f});"
            f" at most {NEARLY} outside the range after {within.sum()} of {len(points)} rounds."
        )


if __name__ == "__main__":
    main()
