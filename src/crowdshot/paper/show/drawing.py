"""How figures look: readable in grey, names beside the lines, nothing that does not speak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from sklearn.isotonic import isotonic_regression

from crowdshot.files.whole import replacing
from crowdshot.paper.show.comparison import column_name

INK, SOFT, FAINT = "#1a1a1a", "#7a7a7a", "#dddddd"
DAGGER = "† not in the paper"
COLOURS = ("#0b4f8a", "#d1660b", "#3f8f3a", "#9a3b8f")  # of four classes; their greys differ as well
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
    """One line: where its points are, and their standard errors."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float]
    of_paper: bool = False


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """As PNG and SVG, the same bytes whenever the numbers are the same."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}.png", folder / f"{name}.svg"]
    with mpl.rc_context({"svg.hashsalt": "crowdshot", "svg.fonttype": "none"}):
        for file in files:
            metadata = {"Software": None} if file.suffix == ".png" else {"Date": None}
            with replacing(file) as temporary:
                figure.savefig(temporary, format=file.suffix[1:], dpi=150, metadata=metadata)
    return files


def panels(n: int, width: float, height: float, **kinds: Any) -> tuple[Figure, list[Axes]]:
    """A row of them, without frames."""
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
    """Each with its name beside its last point; the paper's hollow and dashed."""
    for course in courses:
        style = {**OTHER, **styles.get(course.name, {})}
        if course.of_paper:
            style |= {"ls": (0, (4, 3)), "lw": 1.0, "mfc": "white"}
        ax.errorbar(course.x, course.y, yerr=course.error, ms=5, capsize=0, elinewidth=1, **style)
    ax.set_xticks(list(ticks), list(ticks.values()))
    _name_ends(ax, courses, styles)


def _name_ends(ax: Axes, courses: Sequence[Course], styles: Mapping[str, dict[str, Any]]) -> None:
    """Names right of the lines' ends, moved apart where they would meet."""
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
    """Heights in the same order, ``gap`` apart at least, nearest to the wished ones (ascending) by least squares."""
    steps = gap * np.arange(len(wished))
    return np.asarray(isotonic_regression(wished - steps) + steps)


def draw_dots(ax: Axes, table: pd.DataFrame) -> None:
    """A line for each method: accuracy with its standard error, the fair one as a tick, the paper's as a hollow dot."""
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
        name.set_fontweight("bold" if name.get_text() in ("Ours", "Labelings") else "normal")
    ax.set_ylim(len(table) - 0.4, -0.6)


def warn(figure: Figure, sentence: str) -> None:
    """Above everything, where nobody overlooks it."""
    figure.suptitle(sentence, color="#b3261e", fontsize=9, fontweight="bold")


def explain_dagger(figure: Figure) -> None:
    figure.supxlabel(DAGGER, fontsize=7, color=SOFT, x=0.995, ha="right")


def legend_below(figure: Figure, ax: Axes, columns: int = 4) -> None:
    handles, names = ax.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
