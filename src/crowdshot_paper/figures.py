"""Draw the paper's figures from stored rows, and its tables as plots. The paper's own numbers are drawn hollow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from sklearn.isotonic import isotonic_regression

from crowdshot.errors import CrowdshotError
from crowdshot.io.atomic import replacing
from crowdshot_paper import illustrations, paper_comparison, published
from crowdshot_paper.episode_cells import CROWDS, TARGET_CROWDS
from crowdshot_paper.experiments import Experiment, chosen
from crowdshot_paper.paper_comparison import column_name
from crowdshot_paper.paper_tables import BY_DATASET, by_steps
from crowdshot_paper.selection import (
    CELL,
    TOY,
    Reader,
    gather,
    how_to_run,
    in_order,
    is_there,
    is_toy,
    label,
    reader,
    select,
    summarise,
    system,
)
from crowdshot_paper.work import Place

# ---- style: readable in grey, names next to the lines ----

INK, SOFT, FAINT = "#1a1a1a", "#7a7a7a", "#dddddd"
DAGGER = "† not in the paper"
COLOURS = ("#0b4f8a", "#d1660b", "#3f8f3a", "#9a3b8f")  # of four classes; distinguishable in grey
MARKS = ("o", "s", "D", "P")
STYLES: Mapping[str, dict[str, Any]] = {
    "Ours": {"color": INK, "lw": 2.2, "marker": "o"},
    "PrSV": {"color": "#0b6fb0", "lw": 1.4, "marker": "D"},
    "PrMV": {"color": "#5fa4d8", "lw": 1.2, "marker": "s", "ls": "--"},
    "PrDS": {"color": "#0b6fb0", "lw": 1.2, "marker": "s", "ls": "-."},
    "w/o PA": {"color": "#c4570a", "lw": 1.4, "marker": "v", "ls": "--"},
    "MaDS": {"color": "#3f8f3a", "lw": 1.2, "marker": "^"},
    "MCL": {"color": "#9a3b8f", "lw": 1.2, "marker": "P", "ls": "--"},
    "CL": {"color": "#9a3b8f", "lw": 1.2, "marker": "X", "ls": ":"},
    "LRDS": {"color": SOFT, "lw": 1.2, "marker": "<", "ls": ":"},
}
OTHER: dict[str, Any] = {"color": SOFT, "lw": 1.2, "marker": "."}


class Course(NamedTuple):
    """A line of a plot: its points and their standard errors."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float]
    of_paper: bool = False


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and SVG; the same numbers give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}.png", folder / f"{name}.svg"]
    with mpl.rc_context({"svg.hashsalt": "crowdshot", "svg.fonttype": "none"}):
        for file in files:
            metadata = {"Software": None} if file.suffix == ".png" else {"Date": None}
            with replacing(file) as temporary:
                figure.savefig(temporary, format=file.suffix[1:], dpi=150, metadata=metadata)
    return files


def panels(n: int, width: float, height: float, **kinds: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure with a row of n axes without frames."""
    figure = Figure(figsize=(width * n, height), layout=ConstrainedLayoutEngine(wspace=0.06))
    axes = list(figure.subplots(1, n, squeeze=False, **kinds)[0])
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(SOFT)
        ax.tick_params(labelsize=8, color=SOFT, labelcolor=INK)
    return figure, axes


def draw_lines(
    ax: Axes, courses: Sequence[Course], ticks: Mapping[float, str], styles: Mapping[str, dict[str, Any]] = STYLES
) -> None:
    """Draw lines with their names next to the last point; those of the paper are hollow and dashed."""
    for course in courses:
        style = {**OTHER, **styles.get(course.name, {})}
        if course.of_paper:
            style |= {"ls": (0, (4, 3)), "lw": 1.0, "mfc": "white"}
        ax.errorbar(course.x, course.y, yerr=course.error, ms=5, capsize=0, elinewidth=1, **style)
    ax.set_xticks(list(ticks), list(ticks.values()))
    _name_ends(ax, courses, styles)


def _name_ends(ax: Axes, courses: Sequence[Course], styles: Mapping[str, dict[str, Any]]) -> None:
    """Write names to the right of the lines' ends, without overlaps."""
    low, high = ax.get_ylim()
    gap = 0.055 * (high - low)
    ordered = sorted(courses, key=lambda course: course.y[-1])
    wished = np.array([course.y[-1] for course in ordered], dtype=float)
    placed = spaced(wished, gap)
    right = max(course.x[-1] for course in courses)
    left = min(course.x[0] for course in courses)
    for course, y in zip(ordered, placed, strict=True):
        style = {**OTHER, **styles.get(course.name, {})}
        name = f"{course.name}, paper" if course.of_paper else column_name(course.name)
        weight = "bold" if style["lw"] > 2 and not course.of_paper else "normal"  # ours
        at = course.x[-1] + 0.035 * max(right - left, 0.1)
        ax.annotate(name, (at, y), fontsize=8, color=style["color"], weight=weight, va="center", annotation_clip=False)
    ax.set_ylim(min(low, *placed), max(high, *placed))


def spaced(wished: np.ndarray[Any, np.dtype[np.float64]], gap: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return heights at least ``gap`` apart that are closest to the wished ones (ascending) in least squares."""
    steps = gap * np.arange(len(wished))
    return np.asarray(isotonic_regression(wished - steps) + steps)


def draw_dots(ax: Axes, table: pd.DataFrame) -> None:
    """Draw a row per method: accuracy with its standard error, fair accuracy as a tick, the paper's as a hollow dot."""
    places = np.arange(len(table))
    ax.hlines(places, 0, 1, color=FAINT, lw=0.8, zorder=0, transform=ax.get_yaxis_transform())
    if table["paper"].notna().any():
        ax.plot(table["paper"], places, "o", mfc="white", mec=SOFT, ms=8, label="the paper")
    ax.errorbar(table["accuracy"], places, xerr=2 * table["stderr"], fmt="o", color=INK, ms=4.5, elinewidth=1.3)
    ax.plot(table["accuracy"], places, "o", color=INK, ms=4.5, label="this run (± two standard errors)")
    ax.plot(
        table["fair"], places, "|", color="#c4570a", ms=11, mew=1.8, label="this run, settings chosen on validation"
    )
    if table["name"].str.contains("†").any():
        ax.plot([], [], " ", label=DAGGER)
    ax.set_yticks(places, table["name"])
    ax.locator_params(axis="x", nbins=6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    for name in ax.get_yticklabels():
        name.set_fontweight("bold" if name.get_text() in ("Ours", "labeling-search") else "normal")
    ax.set_ylim(len(table) - 0.4, -0.6)


def warn(figure: Figure, sentence: str) -> None:
    """Write a warning above the figure."""
    figure.suptitle(sentence, color="#b3261e", fontsize=9, fontweight="bold")


def explain_dagger(figure: Figure) -> None:
    figure.supxlabel(DAGGER, fontsize=7, color=SOFT, x=0.995, ha="right")


def legend_below(figure: Figure, ax: Axes, columns: int = 4) -> None:
    handles, names = ax.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)


# ---- figures of the experiments ----


IN_SPAMMERS = ("Ours", "PrSV", "PrDS", "w/o PA", "MCL", "MaDS", "CL", "LRDS")
"""Methods whose lines are distinguishable in the figure; the tables have all methods."""


def make(name: str, place: Place, out: Path | None = None) -> list[str]:
    """Draw the figures of experiments; return a sentence per experiment with the place, or why there is none."""
    read, sentences = reader(place.results), []
    for experiment in chosen(name):
        try:
            figure = draw(experiment, read, place)
        except CrowdshotError as error:
            if experiment.name not in ("embedding", "confusion"):
                raise
            sentences.append(f"{experiment.name}: not drawn: {error}")
            continue
        if figure is None:
            has_tables = experiment.name == "cost" and is_there(experiment, read)
            reason = "no figure, see `crowdshot paper tables cost`." if has_tables else how_to_run(experiment)
            sentences.append(f"{experiment.name}: {reason}")
            continue
        if is_toy(experiment, experiment.datasets, place.results):
            warn(figure, TOY.partition(" (")[0])
        files = save(figure, (out or place.results) / experiment.name, experiment.name)
        sentences.append(f"{experiment.name}: {files[0]} and {files[1].name}.")
    return sentences


def draw(experiment: Experiment, read: Reader, place: Place) -> Figure | None:
    """Return the figure of an experiment, or None if there is nothing to draw."""
    if experiment.name == "embedding":
        return embedding(illustrations.make("embedding", place, read))
    if experiment.name == "confusion":
        return confusion(illustrations.make("confusion", place, read))
    if experiment.name == "cost" or not is_there(experiment, read):
        return None
    every = {dataset: gather(experiment, dataset, read) for dataset in experiment.datasets}
    rows = {dataset: part for dataset, part in every.items() if len(part)}  # a panel per dataset with rows
    kinds: dict[str, Callable[[Experiment, dict[str, pd.DataFrame]], Figure]] = {
        "spammers": spammers,
        "em-steps": em_steps,
        "large-support": large,
        "large-annotators": large,
    }
    return kinds.get(experiment.name, averages)(experiment, rows)


def averages(experiment: Experiment, rows: dict[str, pd.DataFrame]) -> Figure:
    """Draw each method's average over cells and the paper's, in a panel per dataset."""
    tables = {dataset: average_table(experiment, dataset, part) for dataset, part in rows.items()}
    least = 2.7 if len(rows) == 1 else 1.9  # below a single panel the legend has four lines
    figure, axes = panels(len(rows), 3.4, max(least, 0.75 + 0.24 * max(map(len, tables.values()))))
    for ax, (dataset, table) in zip(axes, tables.items(), strict=True):
        ax.set_title(label(dataset), fontsize=9, loc="left")
        draw_dots(ax, table)
        ax.set_xlabel("accuracy, average over cells", fontsize=8)
    legend_below(figure, axes[0], columns={1: 1, 2: 2}.get(len(rows), 4))
    return figure


def average_table(experiment: Experiment, dataset: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Return method, name, accuracy, stderr, fair and paper of methods that were run on all cells or are published."""
    mine = summarise(select(rows, False), []).set_index("method")
    fair = summarise(select(rows, True), []).set_index("method")["accuracy"]
    if experiment.name in BY_DATASET:
        paper = published.figures(experiment.name, dataset).set_index("method")["accuracy"]
    else:
        sizes = [(int(n), int(r)) for n, r in rows[CELL].drop_duplicates().itertuples(index=False)]
        both = paper_comparison.by_cell(experiment, dataset, summarise(select(rows, False), CELL), sizes)
        paper = both[both["n_support"].isna()].set_index("method")["paper"] if len(both) else pd.Series(dtype=float)
    labels = in_order([*mine.index, *paper.index])
    numbers = {"accuracy": mine["accuracy"], "stderr": mine["stderr"], "fair": fair, "paper": paper}
    table = pd.DataFrame({name: column.reindex(labels).astype(float) for name, column in numbers.items()})
    return (
        table.rename_axis("method").reset_index().assign(name=[paper_comparison.column_name(name) for name in labels])
    )


def spammers(experiment: Experiment, rows: dict[str, pd.DataFrame]) -> Figure:
    """Draw accuracy against the share of spammers."""
    figure, axes = panels(len(rows), 4.2, 3.4)
    shares = {crowd: CROWDS[crowd]["spammer"] for crowd in TARGET_CROWDS}
    for ax, (dataset, part) in zip(axes, rows.items(), strict=True):
        ax.set_title(label(dataset), fontsize=9, loc="left")
        ax.set_xlabel("share of spammers in the crowd", fontsize=8)
        summary = summarise(select(part, False), ["mixture"])
        summary = summary.assign(x=summary["mixture"].map(shares)).dropna(subset="x")
        draw_lines(ax, _courses(summary, IN_SPAMMERS), {share: f"{share:.1f}" for share in shares.values()})
    explain_dagger(figure)
    axes[0].set_ylabel("accuracy", fontsize=8)
    return figure


def em_steps(experiment: Experiment, rows: dict[str, pd.DataFrame]) -> Figure:
    """Draw accuracy against the number of EM steps J, with equal distances between its values."""
    figure, axes = panels(len(rows), 3.3, 3.0)
    for ax, (dataset, part) in zip(axes, rows.items(), strict=True):
        ax.set_title(label(dataset), fontsize=9, loc="left")
        ax.set_xlabel("EM steps J", fontsize=8)
        summary = by_steps(part)
        steps = sorted(set(summary["J"]))
        summary = summary.assign(x=summary["J"].map(steps.index))
        draw_lines(ax, _courses(summary, ("Ours", "w/o PA")), {i: str(j) for i, j in enumerate(steps)})
    axes[0].set_ylabel("accuracy", fontsize=8)
    return figure


def large(experiment: Experiment, rows: dict[str, pd.DataFrame]) -> Figure:
    """Draw accuracy against the number of support items or annotators, with the paper's line of Ours."""
    axis = CELL[0] if experiment.name == "large-support" else CELL[1]
    figure, axes = panels(len(rows), 4.0, 3.2)
    for ax, (dataset, part) in zip(axes, rows.items(), strict=True):
        ax.set_title(label(dataset), fontsize=9, loc="left")
        ax.set_xlabel("support items" if axis == CELL[0] else "annotators", fontsize=8)
        summary = summarise(select(part, False), CELL)
        courses = _courses(summary.assign(x=summary[axis].astype(float)), experiment.methods)
        paper = published.figures(experiment.name, dataset).sort_values(axis)
        if len(paper):
            no_error = [0.0] * len(paper)
            courses.append(Course("Ours", list(paper[axis]), list(paper["accuracy"]), no_error, of_paper=True))
        draw_lines(ax, courses, {x: f"{x:g}" for course in courses for x in course.x})
    explain_dagger(figure)
    axes[0].set_ylabel("accuracy", fontsize=8)
    return figure


def embedding(points: pd.DataFrame) -> Figure:
    """Draw support items dark, queries light, and prototypes as triangles with the number of their class."""
    figure, axes = panels(3, 3.1, 3.3)
    for ax, (panel, part) in zip(axes, points.groupby("panel", sort=False), strict=True):
        accuracy = part["accuracy"].iloc[0]
        subtitle = "pixels" if np.isnan(accuracy) else f"query accuracy {accuracy:.3f}"
        ax.set_title(f"{panel} ({subtitle})", fontsize=9, loc="left")
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
    legend_below(figure, axes[0])
    return figure


def confusion(table: pd.DataFrame) -> Figure:
    """Draw a column of matrices per annotator: rows are true classes, columns are labels, darker is more probable."""
    kinds = list(table["what"].unique())
    annotators = table[["annotator", "kind", "accuracy"]].drop_duplicates()
    figure = Figure(figsize=(1.5 * len(annotators) + 0.6, 1.56 * len(kinds) + 0.5), layout="constrained")
    axes = figure.subplots(len(kinds), len(annotators), squeeze=False)
    for line, what in zip(axes, kinds, strict=True):
        for ax, annotator in zip(line, annotators.itertuples(), strict=True):
            part = table[(table["what"] == what) & (table["annotator"] == annotator.annotator)]
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
                kind, accuracy = annotator.kind, annotator.accuracy
                ax.set_title(kind if kind == "spammer" else f"{kind} ({accuracy:.2f})", fontsize=9)
        line[0].set_ylabel(f"{what}\ntrue class", fontsize=8)
    for ax in axes[-1]:
        ax.set_xlabel("label", fontsize=8)
    return figure


def _courses(summary: pd.DataFrame, methods: tuple[str, ...]) -> list[Course]:
    """Return the lines of those methods that are in the summary, which has a column ``x``."""
    found = []
    for name in methods:
        part = summary[summary["method"].map(system) == name].sort_values("x")
        if len(part):
            errors = part["stderr"].astype(float).fillna(0.0)
            found.append(Course(name, list(part["x"]), list(part["accuracy"]), list(errors)))
    return found
