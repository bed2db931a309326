"""Measure confidence before and after calibration by a checked sample, in the scenarios of `reality.py` B or C.

    python benchmarks/calibrated.py B --data ../shared/data [--seeds 2] [--leave-out cifar10h]

In each draw, n random new items are checked and give the temperature (`guarantees.temperature`) of the others; n random
labelled items do so for the consensus. Draws with fewer than 2 n items are left out. "before" is measured on the same
items. The prior of the temperature was set at 0.5 before it was measured; 1 gives nearly the same.

Writes a row per draw (B.parquet) and the sums behind the reliability diagram (B-bins.csv), and prints

    within 0.05        share of scenarios whose mean confidence is within 0.05 of the accuracy
    least accepted     accuracy of items of confidence 0.9 or more, in the family of scenarios where it is lowest
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import reality_features
import reality_images
import sources
import torch
from measures import BINS, score
from reality_features import CALIBRATED, CONSENSUS, UNSEEN
from rows import markdown
from threadpoolctl import threadpool_limits

from crowdshot import CrowdClassifier
from crowdshot.labels.guarantees import temperature, tempered

CHECKED = (30, 50, 100)
SHOWN = 50  # checked items of the reliability diagram
LEAST = 0.5  # weight of a point in it; a draw has weight 1


def fitted(scenario, problem, part: str) -> dict[str, np.ndarray]:
    """Return the posteriors of labelled items and of new items."""
    if part == "B":
        clf = CrowdClassifier(encoder="identity").fit(problem.items, problem.annotations)
        unseen = clf.predict_proba(problem.unseen) if len(problem.unseen) else None
    else:
        items, new = (torch.from_numpy(x).float() for x in (problem.items, problem.unseen))
        clf = CrowdClassifier(encoder=scenario.source.split(":")[1], device="cpu")
        clf.fit_embeddings(items, problem.annotations)
        unseen = clf.predict_proba_embeddings(new) if len(new) else None
    return {CONSENSUS: clf.label_proba_, **({} if unseen is None else {UNSEEN: unseen})}


def measure(p: np.ndarray, truth: np.ndarray, about: dict) -> tuple[list[dict], list[dict]]:
    random, rows, bins = np.random.default_rng(about["seed"]), [], []
    order = random.permutation(len(p))
    for n in CHECKED:
        if len(p) < 2 * n:
            continue
        checked, rest = order[:n], order[n:]
        T = temperature(p[checked], truth[checked])
        for when, q in (("before", p[rest]), ("after", tempered(p[rest], T))):
            found = {name: value for name, value in score(q, truth[rest]).items() if name != "calibration"}
            rows.append({**about, "checked": n, "when": when, "temperature": T, "items": len(rest), **found})
            if n == SHOWN:
                confidence, right = q.max(1), q.argmax(1) == truth[rest]
                place = np.minimum((confidence * BINS).astype(int), BINS - 1)
                share = 1 / len(rest)
                for name in np.unique(place):
                    some = place == name
                    sums = {"confidence": confidence[some].sum() * share, "right": right[some].sum() * share}
                    bins.append({**about, "when": when, "bin": name, "weight": some.sum() * share, **sums})
    return rows, bins


def summary(table: pd.DataFrame) -> pd.DataFrame:
    found = []
    for (of, n, when), part in table.groupby(["of", "checked", "when"], sort=False):
        scenes = part.groupby("scenario")[["over", "log_loss", "accuracy"]].mean()
        accepted = part.assign(hits=part["settled_right"].fillna(0) * part["accepted"]).groupby("group")
        families = accepted["hits"].sum() / accepted["accepted"].sum()
        found.append(
            {
                "of": of,
                "checked": n,
                "when": when,
                "scenarios": len(scenes),
                f"within {CALIBRATED}": (scenes["over"].abs() <= CALIBRATED).mean(),
                "too high": int((scenes["over"] > CALIBRATED).sum()),
                "too low": int((scenes["over"] < -CALIBRATED).sum()),
                "log-loss": scenes["log_loss"].mean(),
                "accepted": part["accepted"].mean(),
                "accepted right": (part["settled_right"].fillna(0) * part["accepted"]).sum() / part["accepted"].sum(),
                "least accepted right": f"{families.min():.3f} {families.idxmin()}",
            }
        )
    return pd.DataFrame(found)


def figure(bins: pd.DataFrame, path: Path) -> None:
    """Draw the reliability diagram: mean accuracy by confidence; every draw has the same weight."""
    from crowdshot_paper.figures import FAINT, INK, SOFT, panels, save

    drawn, axes = panels(2, 4, 3.6)
    for axis, of, title in zip(axes, (UNSEEN, CONSENSUS), ("New items", "Consensus"), strict=True):
        axis.plot([0, 1], [0, 1], color=FAINT, linewidth=1)
        for when, colour in (("before", SOFT), ("after", "#0b6fb0")):
            part = bins[(bins["of"] == of) & (bins["when"] == when)]
            sums = part.groupby("bin")[["weight", "confidence", "right"]].sum()
            x, y = sums["confidence"] / sums["weight"], sums["right"] / sums["weight"]
            label = "as fitted" if when == "before" else f"after checking {SHOWN} items"
            axis.plot(x, y, marker="o", markersize=4, color=colour, label=label)
        axis.set(xlabel="mean confidence", ylabel="share right", xlim=(0, 1), ylim=(0, 1))
        axis.set_title(title, color=INK, fontsize=10)
        axis.legend(frameon=False, loc="upper left", fontsize=8)
    save(drawn, path.parent, path.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("B", "C"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="SOURCE")
    parser.add_argument("--keep", type=Path, default=Path("runs/reality"), help="where features are kept")
    parser.add_argument("--out", type=Path, default=Path("results/calibrated"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    scenarios = (reality_features if options.part == "B" else reality_images).scenarios()
    rows, bins = [], []
    for scenario in {each.name: each for each in scenarios}.values():
        if scenario.source.split(":")[0] in options.leave_out:
            continue
        for seed in range(options.seeds):
            problem = reality_features.draw(scenario, sources.load(scenario.source, options.data, options.keep), seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = fitted(scenario, problem, options.part)
            for of, p in found.items():
                truth = problem.truth if of == CONSENSUS else problem.unseen_truth
                about = {"scenario": scenario.name, "group": scenario.group, "seed": seed, "of": of}
                of_draw = measure(p, truth, about)
                rows, bins = rows + of_draw[0], bins + of_draw[1]
    table, of_bins = pd.DataFrame(rows), pd.DataFrame(bins)
    options.out.mkdir(parents=True, exist_ok=True)
    table.round(4).to_parquet(options.out / f"{options.part}.parquet", index=False)
    sums = of_bins.groupby(["of", "when", "bin"])[["weight", "confidence", "right"]].sum().reset_index()
    sums = sums[sums["weight"] >= LEAST]
    sums.round(4).to_csv(options.out / f"{options.part}-bins.csv", index=False)
    figure(sums, options.out / f"{options.part}-reliability")
    print(markdown(summary(table)))


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
