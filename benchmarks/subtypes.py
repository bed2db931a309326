"""Measure the correction for annotators who err together (`crowdshot.model.subtypes`), on real and simulated crowds.

    OMP_NUM_THREADS=1 python benchmarks/subtypes.py --data ../shared/data [--batches 40]

Real crowds: for each family of related crowds (`crowds.RELATIVES`), the weight of the correction is the one with the
best mean log-loss on all other families; the table has the left-out crowds on which the correction applies. Simulated
crowds: those of the world on which the label model was trained, and those in which misleading items mislead only some
annotators (``resistant_crowds``). `PEOPLE` are groups of annotators of whom the first two err together on some items of
class 0. Writes real.csv, simulated.csv and together.csv to results/subtypes.
"""

import argparse
from pathlib import Path
from unittest.mock import patch

import crowds
import numpy as np
import pandas as pd
import torch
from measures import score
from rows import markdown

from crowdshot import Annotations
from crowdshot.io.atomic import write_file
from crowdshot.labels.gold_labels import crowd_of
from crowdshot.model import subtypes
from crowdshot.model.label_model import shipped_network
from crowdshot.model.label_model_parts import Rounds
from crowdshot.model.posteriors import believe
from crowdshot.training.simulated_crowds import World, draw

WEIGHTS = (0.0, 0.3, 0.5, 0.7, 1.0)
WORLDS = {"trained on": World(), "some annotators are resistant": World(resistant_crowds=1.0)}
PEOPLE = ((0.95, 0.95, 0.95, 0.8, 0.8), (0.95, 0.9, 0.95, 0.75, 0.75, 0.7), (0.9, 0.9, 0.97, 0.8, 0.8, 0.8))  # accuracy
ITEMS = ((450, 150), (900, 250), (900, 200))  # items of class 0, and of these on which two annotators err together
FEWEST_LABELS = 400  # smaller simulated crowds hardly ever give evidence for subtypes
LABELS = 8_000  # in a batch


def compare(annotations: Annotations, truth: np.ndarray, weights: tuple[float, ...]) -> list[dict[str, float]]:
    """Return a row for each weight; the posteriors without the correction if it does not apply."""
    crowd = crowd_of(annotations)
    rounds = Rounds(crowd.sizes, shipped_network())
    model = subtypes.corrected(rounds, len(annotations))
    state, plain = believe(rounds, crowd.parts) if model is rounds else crowd.run(model)
    evidence = -np.inf if model is rounds else model.evidence(state)
    known, rows = truth != crowds.UNKNOWN, []
    for weight in weights:
        found = plain
        if model is not rounds:
            with patch.object(subtypes, "WEIGHT", weight):
                found = model.believe(crowd.parts[0], state)
        measured = score(found[known], truth[known])
        rows.append({"evidence": evidence, "weight": weight, **measured})
    return rows


def real(data: Path) -> pd.DataFrame:
    rows = []
    for name, crowd in crowds.load_all(data):
        for row in compare(crowd.annotations, crowd.true_classes(), WEIGHTS):
            rows.append({"crowd": name, "family": min(crowds.relatives(name)), **row})
    return pd.DataFrame(rows)


def left_out(table: pd.DataFrame) -> pd.DataFrame:
    """Return the crowds on which the correction applies, with the weight that is best on all other families."""
    rows = []
    loss = table.pivot(index="crowd", columns="weight", values="log_loss")
    right = table.pivot(index="crowd", columns="weight", values="accuracy")
    first = table.drop_duplicates("crowd").set_index("crowd")
    for name, crowd in first[first["evidence"] > subtypes.EVIDENCE].iterrows():
        chosen = loss[first["family"].reindex(loss.index) != crowd["family"]].mean().idxmin()
        found = {"crowd": name, "evidence": crowd["evidence"], "weight chosen elsewhere": chosen}
        found |= {"right before": right.loc[name, 0.0], "right": right.loc[name, chosen]}
        rows.append(found | {"log-loss before": loss.loc[name, 0.0], "log-loss": loss.loc[name, chosen]})
    return pd.DataFrame(rows)


def simulated(batches: int) -> pd.DataFrame:
    rows = []
    for world, of_world in WORLDS.items():
        for seed in range(batches):
            found = draw(of_world, LABELS, torch.Generator().manual_seed(seed))
            for crowd in range(found.n_crowds):
                mine = (found.crowd_of_item[found.item] == crowd).numpy()
                if mine.sum() < FEWEST_LABELS:
                    continue
                names = ("item", "annotator", "label")
                answers = pd.DataFrame({name: getattr(found, name).numpy()[mine] for name in names})
                annotations = Annotations.from_frame(answers)
                truth = crowds.Crowd(annotations, pd.Series(found.truth.numpy()[annotations.items])).true_classes()
                before, after = compare(annotations, truth, (0.0, subtypes.WEIGHT))
                row = {"world": world, "seed": seed, "crowd": crowd, "evidence": after["evidence"]}
                row |= {"right before": before["accuracy"], "right": after["accuracy"]}
                rows.append(row | {"log-loss before": before["log_loss"], "log-loss": after["log_loss"]})
    return pd.DataFrame(rows)


def of_worlds(table: pd.DataFrame) -> pd.DataFrame:
    applies = table[table["evidence"] > subtypes.EVIDENCE]
    shown = applies.groupby("world")[["right before", "right", "log-loss before", "log-loss"]].mean()
    gain = (applies["right"] - applies["right before"]).groupby(applies["world"])
    shown["gain"], shown["± standard error"] = gain.mean(), gain.sem()
    shown.insert(0, "corrected", applies.groupby("world").size())
    shown.insert(0, "crowds", table.groupby("world").size())
    return shown.reset_index()


def together(seeds: int = 2) -> pd.DataFrame:
    """Return a row for each group of annotators, number of items and seed; class 1 has a third of class 0's items."""
    rows = []
    for people, right in enumerate(PEOPLE):
        for items, shared in ITEMS:
            for seed in range(seeds):
                random = np.random.default_rng(seed)
                truth = np.repeat([0, 1], [items, items // 3])
                labels = np.where(random.random((len(truth), len(right))) < right, truth[:, None], 1 - truth[:, None])
                labels[:shared, :2] = random.random((shared, 2)) < 0.95
                before, after = compare(Annotations.from_matrix(labels), truth, (0.0, subtypes.WEIGHT))
                row = {"people": people, "items": len(truth), "shared mistakes": shared, "seed": seed}
                rows.append(row | {"right before": before["accuracy"], "right": after["accuracy"]})
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("results/subtypes"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    on_real = real(options.data)
    write_file(options.out / "real.csv", on_real)
    print(markdown(left_out(on_real)), flush=True)
    groups = together()
    write_file(options.out / "together.csv", groups)
    print(markdown(groups.groupby(["people", "items", "shared mistakes"]).mean().drop(columns="seed").reset_index()))
    on_simulated = simulated(options.batches)
    write_file(options.out / "simulated.csv", on_simulated)
    print(markdown(of_worlds(on_simulated)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
