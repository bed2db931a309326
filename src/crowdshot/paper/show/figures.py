"""The paper's figures from stored rows, and its tables as pictures; the paper's own values are hollow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from crowdshot.errors import CrowdshotError
from crowdshot.paper.plan import published
from crowdshot.paper.plan.cells import CROWDS, TARGET_CROWDS
from crowdshot.paper.plan.experiments import Experiment, chosen
from crowdshot.paper.run.work import Place
from crowdshot.paper.show import comparison, drawing, illustrations
from crowdshot.paper.show.drawing import COLOURS, INK, MARKS, SOFT, Course
from crowdshot.paper.show.gathering import TOY, gather, how_to_run, is_there, is_toy, label
from crowdshot.paper.show.selection import CELL, Reader, in_order, reader, select, summarise, system
from crowdshot.paper.show.tables import BY_DATASET, by_steps

IN_SPAMMERS = ("Ours", "PrSV", "PrDS", "w/o PA", "MCL", "MaDS", "CL", "LRDS")
"""Lines that can be told apart; the tables have all methods."""


def make(name: str, place: Place, out: Path | None = None) -> list[str]:
    """Draw an experiment's figure, or all; a sentence for each experiment says where, or why there is none."""
    read, told = reader(place.results), []
    for experiment in chosen(name):
        try:
            figure = draw(experiment, read, place)
        except CrowdshotError as error:
            if experiment.name not in ("embedding", "confusion"):
                raise
            told.append(f"{experiment.name}: not drawn: {error}")
            continue
        if figure is None:
            there = experiment.name == "cost" and is_there(experiment, read)
            why = "no figure, see `crowdshot paper tables cost`." if there else how_to_run(experiment)
            told.append(f"{experiment.name}: {why}")
            continue
        if is_toy(experiment, experiment.datasets, place.results):
            drawing.warn(figure, TOY.partition(" (")[0])
        files = drawing.save(figure, (out or place.results) / experiment.name, experiment.name)
        told.append(f"{experiment.name}: {files[0]} and {files[1].name}.")
    return told


def draw(experiment: Experiment, read: Reader, place: Place) -> Figure | None:
    """None where there is nothing to draw."""
    if experiment.name == "embedding":
        return embedding(illustrations.make("embedding", place, read))
    if experiment.name == "confusion":
        return confusion(illustrations.make("confusion", place, read))
    if experiment.name == "cost" or not is_there(experiment, read):
        return None
    every = {dataset: gather(experiment, dataset, read) for dataset in experiment.datasets}
    rows = {dataset: part for dataset, part in every.items() if len(part)}  # a panel for each that was run
    kinds: dict[str, Callable[[Experiment, dict[str, pd.DataFrame]], Figure]] = {
        "spammers": spammers,
        "em-steps": em_steps,
        "large-support": large,
        "large-annotators": large,
    }
    return kinds.get(experiment.name, averages)(experiment, rows)


def averages(experiment: Experiment, rows: dict[str, pd.DataFrame]) -> Figure:
    """Each method's average over cells beside the paper's, a panel for each dataset."""
    tables = {dataset: average_table(experiment, dataset, part) for dataset, part in rows.items()}
    least = 2.7 if len(rows) == 1 else 1.9  # below a single panel the legend has four lines
    figure, axes = drawing.panels(len(rows), 3.4, max(least, 0.75 + 0.24 * max(map(len, tables.values()))))
    for ax, (dataset, table) in zip(axes, tables.items(), strict=True):
        ax.set_title(label(dataset), fontsize=9, loc="left")
        drawing.draw_dots(ax, table)
        ax.set_xlabel("accuracy, average over cells", fontsize=8)
    drawing.legend_below(figure, axes[0], columns={1: 1, 2: 2}.get(len(rows), 4))
    return figure


def average_table(experiment: Experiment, dataset: str, rows: pd.DataFrame) -> pd.DataFrame:
    """method, name, accuracy, stderr, fair, paper: of each method that was run on all cells, and of the paper's."""
    mine = summarise(select(rows, False), []).set_index("method")
    fair = summarise(select(rows, True), []).set_index("method")["accuracy"]
    if experiment.name in BY_DATASET:
        paper = published.figures(experiment.name, dataset).set_index("method")["accuracy"]
    else:
        sizes = [(int(n), int(r)) for n, r in rows[CELL].drop_duplicates().itertuples(index=False)]
        both = comparison.by_cell(experiment, dataset, summarise(select(rows, False), CELL), sizes)
        paper = both[both["n_support"].isna()].set_index("method")["paper"] if len(both) else pd.Series(dtype=float)
    labels = in_order([*mine.index, *paper.index])
    numbers = {"accuracy": mine["accuracy"], "stderr": mine["stderr"], "fair": fair, "paper": paper}
    table = pd.DataFrame({name: column.reindex(labels).astype(float) for name, column in numbers.items()})
    return table.rename_axis("method").reset_index().assign(name=[comparison.column_name(name) for name in labels])


def spammers(experiment: Experiment, rows: dict[str, pd.DataFrame]) -> Figure:
    """Accuracy against the share of spammers."""
    figure, axes = drawing.panels(len(rows), 4.2, 3.4)
    shares = {crowd: CROWDS[crowd]["spammer"] for crowd in TARGET_CROWDS}
    for ax, (dataset, part) in zip(axes, rows.items(), strict=True):
        ax.set_title(label(dataset), fontsize=9, loc="left")
        ax.set_xlabel("share of spammers in the crowd", fontsize=8)
        summary = summarise(select(part, False), ["mixture"])
        summary = summary.assign(x=summary["mixture"].map(shares)).dropna(subset="x")
        drawing.draw_lines(ax, _courses(summary, IN_SPAMMERS), {share: f"{share:.1f}" for share in shares.values()})
    drawing.explain_dagger(figure)
    axes[0].set_ylabel("accuracy", fontsize=8)
    return figure


def em_steps(experiment: Experiment, rows: dict[str, pd.DataFrame]) -> Figure:
    """Accuracy against J, whose values stand at equal distances."""
    figure, axes = drawing.panels(len(rows), 3.3, 3.0)
    for ax, (dataset, part) in zip(axes, rows.items(), strict=True):
        ax.set_title(label(dataset), fontsize=9, loc="left")
        ax.set_xlabel("EM steps J", fontsize=8)
        summary = by_steps(part)
        steps = sorted(set(summary["J"]))
        summary = summary.assign(x=summary["J"].map(steps.index))
        drawing.draw_lines(ax, _courses(summary, ("Ours", "w/o PA")), {i: str(j) for i, j in enumerate(steps)})
    axes[0].set_ylabel("accuracy", fontsize=8)
    return figure


def large(experiment: Experiment, rows: dict[str, pd.DataFrame]) -> Figure:
    """Accuracy against support items, or annotators, with the paper's course of Ours."""
    axis = CELL[0] if experiment.name == "large-support" else CELL[1]
    figure, axes = drawing.panels(len(rows), 4.0, 3.2)
    for ax, (dataset, part) in zip(axes, rows.items(), strict=True):
        ax.set_title(label(dataset), fontsize=9, loc="left")
        ax.set_xlabel("support items" if axis == CELL[0] else "annotators", fontsize=8)
        summary = summarise(select(part, False), CELL)
        courses = _courses(summary.assign(x=summary[axis].astype(float)), experiment.methods)
        paper = published.figures(experiment.name, dataset).sort_values(axis)
        if len(paper):
            nothing = [0.0] * len(paper)
            courses.append(Course("Ours", list(paper[axis]), list(paper["accuracy"]), nothing, of_paper=True))
        drawing.draw_lines(ax, courses, {x: f"{x:g}" for course in courses for x in course.x})
    drawing.explain_dagger(figure)
    axes[0].set_ylabel("accuracy", fontsize=8)
    return figure


def embedding(points: pd.DataFrame) -> Figure:
    """Support dark, queries light, prototypes as triangles that carry their class's number."""
    figure, axes = drawing.panels(3, 3.1, 3.3)
    for ax, (panel, part) in zip(axes, points.groupby("panel", sort=False), strict=True):
        accuracy = part["accuracy"].iloc[0]
        told = "pixels" if np.isnan(accuracy) else f"query accuracy {accuracy:.3f}"
        ax.set_title(f"{panel} ({told})", fontsize=9, loc="left")
        ax.set_xticks([])
        ax.set_yticks([])
        ax.spines[:].set_visible(False)
        for (role, number), some in part.groupby(["role", "label"]):
            colour, mark = COLOURS[number - 1], MARKS[number - 1]
            if role == "query":
                ax.scatter(some["x"], some["y"], s=26, color=colour, alpha=0.35, marker=mark, lw=0)
            elif role == "support":
                ax.scatter(some["x"], some["y"], s=38, color=colour, marker=mark, ec=INK, lw=0.8, zorder=2)
            else:
                ax.scatter(some["x"], some["y"], s=170, color=colour, marker="^", ec="white", lw=1.2, zorder=3)
                at = (float(some["x"].iloc[0]), float(some["y"].iloc[0]))
                ax.annotate(
                    str(number), at, (0, -2), textcoords="offset points", ha="center", va="center", fontsize=7,
                    color="white", weight="bold", zorder=4,
                )  # fmt: skip
    for role, style in {
        "query": {"s": 26, "color": SOFT, "alpha": 0.45, "lw": 0},
        "support": {"s": 38, "color": SOFT, "ec": INK, "lw": 0.8},
        "prototype": {"s": 120, "color": SOFT, "marker": "^", "ec": "white"},
    }.items():
        axes[0].scatter([], [], label=role, **style)  # type: ignore[arg-type]
    drawing.legend_below(figure, axes[0])
    return figure


def confusion(table: pd.DataFrame) -> Figure:
    """A column for each annotator; true class down, what they say across. Darker is more probable."""
    kinds = list(table["what"].unique())
    annotators = table[["annotator", "kind", "accuracy"]].drop_duplicates()
    figure = Figure(figsize=(1.5 * len(annotators) + 0.6, 1.56 * len(kinds) + 0.5), layout="constrained")
    axes = figure.subplots(len(kinds), len(annotators), squeeze=False)
    for line, what in zip(axes, kinds, strict=True):
        for ax, who in zip(line, annotators.itertuples(), strict=True):
            part = table[(table["what"] == what) & (table["annotator"] == who.annotator)]
            matrix = part.pivot(index="true", columns="observed", values="probability").to_numpy()
            ax.imshow(matrix, vmin=0, vmax=1, cmap="Greys")
            for (i, j), value in np.ndenumerate(matrix):
                colour = "white" if value > 0.5 else INK
                ax.text(j, i, f"{value:.2f}".lstrip("0"), ha="center", va="center", fontsize=6.5, color=colour)
            numbers = range(1, len(matrix) + 1)
            ax.set_xticks(range(len(matrix)), map(str, numbers) if ax in axes[-1] else [""] * len(matrix), fontsize=7)
            ax.set_yticks(range(len(matrix)), map(str, numbers) if ax is line[0] else [""] * len(matrix), fontsize=7)
            ax.tick_params(length=0)
            ax.spines[:].set_color(SOFT)
            if ax in axes[0]:
                told = who.kind if who.kind == "spammer" else f"{who.kind} ({who.accuracy:.2f})"
                ax.set_title(told, fontsize=9)
        line[0].set_ylabel(f"{what}\ntrue class", fontsize=8)
    for ax in axes[-1]:
        ax.set_xlabel("what they say", fontsize=8)
    return figure


def _courses(summary: pd.DataFrame, methods: tuple[str, ...]) -> list[Course]:
    """Lines of those methods that are there; ``summary`` has their ``x``."""
    found = []
    for name in methods:
        part = summary[summary["method"].map(system) == name].sort_values("x")
        if len(part):
            errors = part["stderr"].astype(float).fillna(0.0)
            found.append(Course(name, list(part["x"]), list(part["accuracy"]), list(errors)))
    return found
