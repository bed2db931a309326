"""Compare ways to say whether an object is there, on simulated boxes of several annotators.

Each project has 60 items with one to five objects, and annotators who find 60 to 97 % of them, draw boxes a few pixels
off, and add boxes around nothing. A matched object is judged to be there if half of those who looked marked it, or by
an aggregator of the answers "present" and "absent". Printed: the share of matched objects that is judged right.

    python benchmarks/object_presence.py
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from crowdshot import Annotations, aggregate
from crowdshot.labels.object_matching import Region, match_regions

PEOPLE = (3, 4, 5, 8)
SEEDS = 10
ITEMS, APART, GHOSTS = 60, 150, 1000  # items; pixels between objects, and where boxes around nothing begin
AGGREGATORS: dict[str, Callable[..., aggregate.Consensus]] = {
    "learned": aggregate.learned,
    "one-coin": aggregate.one_coin,
    "dawid-skene": aggregate.dawid_skene,
}


def project(rng: np.random.Generator, people: int, equal: bool) -> list[Region]:
    """Return the boxes of a project; those that begin at GHOSTS or later are around nothing."""
    finds = rng.uniform(0.6, 0.97, people)
    extra = np.full(people, 0.4) if equal else rng.uniform(0, 1.5, people)
    found = []
    for item in range(ITEMS):
        n_objects = int(rng.integers(1, 6))
        for who in range(people):
            found.append(Region(str(item), f"a{who}", "", ()))
            places = [APART * k for k in range(n_objects) if rng.random() < finds[who]]
            places += (GHOSTS + APART * rng.integers(0, 6, rng.poisson(extra[who]))).tolist()
            for place in places:
                x, y, width, height = np.array([place, 0, 100, 80]) + rng.normal(0, 6, 4)
                found.append(Region(str(item), f"a{who}", "thing", (x, y, x + width, y + height)))
    return found


def judged_right(regions: list[Region]) -> dict[str, float]:
    """Return for each way the share of matched objects that is judged right."""
    seen = sorted({region.annotator for region in regions})
    rows, real = [], []
    for item in sorted({region.item for region in regions}):
        boxes = [region for region in regions if region.item == item and region.corners]
        groups = match_regions(np.array([box.corners for box in boxes]), [box.annotator for box in boxes])
        for group in groups:
            marked = {boxes[row].annotator for row in group}
            rows += [(len(real), who, "present" if who in marked else "absent") for who in seen]
            real.append(boxes[group[0]].corners[0] < GHOSTS - APART / 2)
    table = pd.DataFrame(rows, columns=["item", "annotator", "label"])
    ann = Annotations.from_frame(table, items=list(range(len(real))), classes=["absent", "present"])
    share = (table["label"] == "present").groupby(table["item"]).mean().to_numpy()
    judged = {"share": share >= 0.5}
    judged |= {name: np.asarray(fit(ann).probabilities)[:, 1] >= 0.5 for name, fit in AGGREGATORS.items()}
    return {name: float((answer == np.array(real)).mean()) for name, answer in judged.items()}


def main() -> None:
    rows = [
        {"people": people, "equal": equal, **judged_right(project(np.random.default_rng(seed), people, equal))}
        for people in PEOPLE
        for equal in (True, False)
        for seed in range(SEEDS)
    ]
    table = pd.DataFrame(rows)
    print(table.groupby(["people", "equal"]).mean().round(3).to_string())
    print(table.drop(columns=["people", "equal"]).mean().round(3).to_string())


if __name__ == "__main__":
    main()
