"""Compare the simulated crowds, on which the label model is trained, with real crowds.

It draws the figure of docs/research/inference.md.

    python benchmarks/crowds.py --data ../shared/data --out runs/projects
    python benchmarks/world.py --projects runs/projects [--batches 60] [--out results/world]

Writes crowds.csv (a row per real crowd), quantiles.csv (of both) and world.png and world.svg with the distribution of
simulated crowds and the position of each real one. The statistics of a crowd are, for items with known truth where the
truth is needed:

    right             share of correct labels
    vote right        accuracy of the majority vote; ties count in part
    agreement         share of equal pairs among the labels of an item
    skills            standard deviation of annotators' accuracies, corrected for sampling noise
    shared mistakes   probability that two wrong labels of an item are equal, times the number of classes minus one; 1
                      is chance. Crowds with two classes are left out, because there is only one wrong label
    labels an item, labels an annotator, items, annotators, smallest class (its share, times the number of classes)
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from crowdshot.io.atomic import write_file
from crowdshot.training.simulated_crowds import World, draw
from crowdshot_paper.figures import FAINT, INK, SOFT, save
from crowdshot_paper.projects import Project, read_projects, side_by_side

BLUE = "#0b6fb0"
SHOWN = {  # statistic -> whether its axis is logarithmic
    "right": False,
    "vote right": False,
    "agreement": False,
    "skills": False,
    "shared mistakes": False,
    "smallest class": False,
    "labels an item": True,
    "labels an annotator": True,
    "items": True,
    "annotators": True,
}
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
LEAST = 20  # labels that an annotator needs to count, and pairs of mistakes that a crowd needs


def statistics(item, annotator, label, truth, K: int) -> dict[str, float]:
    """Return the statistics of one crowd; indices start at 0 without gaps, ``truth`` is -1 if unknown."""
    N, R, L = len(truth), int(annotator.max()) + 1, len(item)
    votes = np.zeros((N, K))
    np.add.at(votes, (item, label), 1)
    n = votes.sum(1)
    known = truth >= 0
    told = known[item]
    is_right = (label == truth[item])[told]
    top = votes[known] == votes[known].max(1, keepdims=True)
    several = n > 1
    pairs = (votes * (votes - 1)).sum(1)[several] / (n * (n - 1))[several]
    each = np.bincount(annotator[told], minlength=R)
    share = np.bincount(annotator[told], is_right, minlength=R)[each >= LEAST] / each[each >= LEAST]
    luck = share * (1 - share) / each[each >= LEAST]
    wrong = votes[known].copy()
    wrong[np.arange(known.sum()), truth[known]] = 0
    mistakes = (wrong.sum(1) * (wrong.sum(1) - 1)).sum()
    return {
        "classes": K,
        "right": is_right.mean(),
        "vote right": (top[np.arange(known.sum()), truth[known]] / top.sum(1)).mean(),
        "agreement": pairs.mean() if several.any() else np.nan,
        "skills": np.sqrt(max(0.0, share.var() - luck.mean())) if len(share) > 2 else np.nan,
        "shared mistakes": (wrong * (wrong - 1)).sum() / mistakes * (K - 1) if K > 2 and mistakes > LEAST else np.nan,
        "smallest class": np.bincount(truth[known], minlength=K).min() / known.sum() * K,
        "labels an item": L / N,
        "labels an annotator": L / len(np.unique(annotator)),
        "items": N,
        "annotators": len(np.unique(annotator)),
    }


def simulated(batches: int, labels: int) -> pd.DataFrame:
    rows = []
    for seed in range(batches):
        crowds = draw(World(), labels, torch.Generator().manual_seed(seed))
        item, annotator, label, truth, of_item, of_annotator = (
            tensor.numpy()
            for tensor in (
                crowds.item,
                crowds.annotator,
                crowds.label,
                crowds.truth,
                crowds.crowd_of_item,
                crowds.crowd_of_annotator,
            )
        )
        for crowd in range(crowds.n_crowds):
            mine = of_item[item] == crowd
            first_item, first_annotator = (int(np.argmax(of == crowd)) for of in (of_item, of_annotator))
            triples = item[mine] - first_item, annotator[mine] - first_annotator, label[mine]
            rows.append(statistics(*triples, truth[of_item == crowd], crowds.n_classes))
    return pd.DataFrame(rows)


def real(projects: list[Project]) -> pd.DataFrame:
    rows = {}
    for project in projects:
        crowds = side_by_side([(project, np.arange(project.annotations.n_labels))])
        values = (crowds.item, crowds.annotator, crowds.label, crowds.truth)
        rows[project.name] = statistics(*(value.numpy() for value in values), crowds.n_classes)
    return pd.DataFrame(rows).T.rename_axis("crowd").reset_index()


def draw_figure(world: pd.DataFrame, crowds: pd.DataFrame, out: Path) -> None:
    """Draw histograms of simulated crowds, with a mark below for each real one."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(11, 4.6), layout=ConstrainedLayoutEngine(wspace=0.05, hspace=0.08))
    axes = figure.subplots(2, 5).ravel()
    for ax, (name, in_logarithm) in zip(axes, SHOWN.items(), strict=True):
        ours, theirs = world[name].dropna(), crowds[name].dropna().astype(float)
        low, high = (float(f(ours.quantile(q), f(theirs))) for f, q in ((min, 0.005), (max, 0.995)))
        bins = np.geomspace(low, high, 25) if in_logarithm else np.linspace(low, high, 25)
        ax.hist(ours.clip(low, high), bins=bins, weights=np.full(len(ours), 1 / len(ours)), color=FAINT)
        top = ax.get_ylim()[1]
        ax.plot(theirs, np.full(len(theirs), -0.08 * top), "|", color=BLUE, ms=9, mew=1.3, clip_on=False)
        for values, colour, height in ((ours, SOFT, top), (theirs, BLUE, top)):
            ax.plot([values.median()] * 2, [0, height], color=colour, lw=1.2)
        if in_logarithm:
            ax.set_xscale("log")
            ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        ax.set_ylim(-0.16 * top, top)
        ax.set_yticks([])
        ax.set_title(name, fontsize=9.5, color=INK, loc="left")
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.spines["bottom"].set_color(SOFT)
        ax.tick_params(labelsize=8, color=SOFT, labelcolor=INK, which="both")
        ax.minorticks_off()
    figure.suptitle(
        f"Grey: {len(world):,} simulated crowds.  Blue: {len(crowds)} real ones, a mark each.  Lines: medians.",
        fontsize=10,
        color=INK,
        x=0.01,
        ha="left",
    )
    save(figure, out, "world")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--projects", type=Path, required=True)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--labels", type=int, default=8_000)
    parser.add_argument("--out", type=Path, default=Path("results/world"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        crowds = real(read_projects(args.projects))
    world = simulated(args.batches, args.labels)
    rows = []
    for name in SHOWN:
        quantiles = {
            (kind, q): table[name].quantile(q)
            for kind, table in (("world", world), ("real", crowds))
            for q in QUANTILES
        }
        within = crowds[name].dropna().between(world[name].quantile(0.01), world[name].quantile(0.99))
        outside = ", ".join(crowds["crowd"][within[~within].index])
        rows.append({"statistic": name, **{f"{kind} {q}": v for (kind, q), v in quantiles.items()}, "outside": outside})
    table = pd.DataFrame(rows)
    write_file(args.out / "crowds.csv", crowds)
    write_file(args.out / "quantiles.csv", table)
    draw_figure(world, crowds, args.out)
    print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
