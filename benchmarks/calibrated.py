"""Measure confidence before and after calibration by a checked sample, in the scenarios of `reality.py` B or C, or on
film reviews ("texts").

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
from collections.abc import Iterator
from pathlib import Path

import crowds
import numpy as np
import pandas as pd
import reality_features
import reality_images
import sources
import torch
from any_item import COMPONENTS
from measures import BINS, score
from reality_features import CALIBRATED, CONSENSUS, UNSEEN
from rows import markdown
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from threadpoolctl import threadpool_limits

from crowdshot import CrowdClassifier
from crowdshot.labels.guarantees import temperature, tempered

CHECKED = (30, 50, 100)
SHOWN = 50  # checked items of the reliability diagram
TEXTS, DRAWS = (50, 200, 1_000), 3  # film reviews with labels, and draws of each number
Posteriors = dict[str, tuple[np.ndarray, np.ndarray]]  # consensus and new items: posteriors and true classes
LEAST = 0.5  # weight of a point in it; a draw has weight 1


def problems(options: argparse.Namespace) -> Iterator[tuple[dict, Posteriors]]:
    if options.part == "texts":
        yield from film_reviews(options.data)
        return
    scenarios = (reality_features if options.part == "B" else reality_images).scenarios()
    for scenario in {each.name: each for each in scenarios}.values():
        if scenario.source.split(":")[0] in options.leave_out:
            continue
        for seed in range(options.seeds):
            problem = reality_features.draw(scenario, sources.load(scenario.source, options.data, options.keep), seed)
            truth = {CONSENSUS: problem.truth, UNSEEN: problem.unseen_truth}
            about = {"scenario": scenario.name, "group": scenario.group, "seed": seed}
            yield about, {of: (p, truth[of]) for of, p in fitted(scenario, problem, options.part).items()}


def film_reviews(data: Path) -> Iterator[tuple[dict, Posteriors]]:
    """Fit to some of the film reviews, as components of TF-IDF, as in any_item.py."""
    texts, told = (
        pd.read_csv(data / "sentence-polarity" / f"{name}.csv").set_index("item") for name in ("texts", "truth")
    )
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2).fit_transform(texts["text"])
    found = TruncatedSVD(COMPONENTS, random_state=0).fit_transform(words)
    x = pd.DataFrame(found, index=texts.index)
    crowd, test = crowds.load(data, "sentence-polarity"), told.index[told["split"] == "test"]
    for size in TEXTS:
        for seed in range(DRAWS):
            chosen = np.sort(np.random.default_rng(seed).permutation(crowd.annotations.n_items)[:size])
            ann = crowd.annotations.select_items(crowd.annotations.items[chosen])
            clf = CrowdClassifier(encoder="identity").fit(x.loc[ann.items].to_numpy(), ann.to_frame(), items=ann.items)
            place = pd.Index(clf.classes_)
            truth = [place.get_indexer(told.loc[items, "truth"]) for items in (clf.annotations_.items, test)]
            posteriors = clf.label_proba_, clf.predict_proba(x.loc[test].to_numpy())
            about = {"scenario": f"{size:,} film reviews", "group": f"{size:,} film reviews", "seed": seed}
            yield about, dict(zip((CONSENSUS, UNSEEN), zip(posteriors, truth, strict=True), strict=True))


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
    parser.add_argument("part", choices=("B", "C", "texts"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="SOURCE")
    parser.add_argument("--keep", type=Path, default=Path("runs/reality"), help="where features are kept")
    parser.add_argument("--out", type=Path, default=Path("results/calibrated"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows, bins = [], []
    for about, posteriors in problems(options):
        for of, (p, truth) in posteriors.items():
            of_draw = measure(p, truth, {**about, "of": of})
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
