"""Plot the results of fitted estimators with matplotlib (extra ``plots``).

Every function takes a fitted `CrowdClassifier` or `CrowdAggregator`, draws on ``ax`` or a new figure of suitable size,
and returns the Axes.

Examples
--------
>>> from crowdshot import CrowdAggregator, plots
>>> crowd = CrowdAggregator().fit([["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]])
>>> type(plots.plot_annotators(crowd)).__name__
'Axes'
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.sparse import coo_array

from crowdshot.errors import CrowdshotError
from crowdshot.extras import missing_packages_explained
from crowdshot.formatting import clean, show
from crowdshot.io.cells import positions
from crowdshot.labels import gold_labels
from crowdshot.labels.consensus import INTERVAL, THRESHOLD, Floats, Share, interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_annotators", "plot_calibration", "plot_confusion", "plot_map"]

LONGEST = 22  # characters of a name
KEPT = 4  # characters of the common beginning of long names
MOST_NAMES = 40  # annotators with names; more would not be legible
MOST_NUMBERS = 12  # classes of a matrix with numbers in its cells
MOST_CLASSES = 1_000  # of a matrix
MOST_TICKS = 45  # classes of a matrix with names on its axes
BINS = 10  # of confidence
BLUE, GREY, QUIET = "#2456b8", "#c9c9c1", "#5d6167"
COLOURS = ("#3f74ad", "#d9720a", "#2b8f61", "#c93f52", "#7d57bd", "#8d5f28", "#c957a0", "#66717d", "#8a8400", "#1292a6")


def plot_confusion(fitted: Any, annotator: Any = None, *, ax: Axes | None = None) -> Axes:
    """Plot the confusion matrix of an annotator, or of all labels together.

    Parameters
    ----------
    fitted : CrowdClassifier or CrowdAggregator
    annotator : object, optional
        The annotator's id. By default, the matrix has the expected shares of all labels.
    ax : Axes, optional

    Returns
    -------
    Axes
        Rows are true classes and sum to 1; columns are labels. Classes without labels are grey.

    Examples
    --------
    >>> from crowdshot import CrowdAggregator
    >>> from crowdshot.plots import plot_confusion
    >>> crowd = CrowdAggregator().fit([["cat", "cat", "dog"], ["cat", "cat", "cat"], ["dog", "dog", "cat"]])
    >>> plot_confusion(crowd, 2).get_ylabel()
    'true class'
    """
    if annotator is None:
        matrix, title = _of_all(fitted), f"all {fitted.annotations_.n_annotators:,} annotators"
    else:
        row = int(positions(fitted.annotations_.annotators, np.array([annotator], dtype=object))[0])
        if row < 0:
            raise CrowdshotError(
                f"is {show(annotator)}", argument="annotator", found=annotator, expected="an annotator of the fit"
            )
        matrix, title = fitted.confusion_[row], _name(annotator, 2 * LONGEST)
    K = len(matrix)
    side = float(np.clip(1.8 + 0.36 * K, 3.0, 9.0))
    ax = _axes(ax, (side + 0.9, side))
    ax.set_facecolor(GREY)
    image = ax.imshow(matrix, vmin=0, vmax=1, cmap="Blues")
    if K <= MOST_NUMBERS:
        for true, observed in np.ndindex(K, K):
            value = float(matrix[true, observed])
            if np.isfinite(value) and round(value, 2) > 0:
                text = f"{value:.2f}".removeprefix("0")
                ax.text(observed, true, text, ha="center", va="center", color="w" if value > 0.6 else "k", fontsize=8)
    names = _names(fitted.classes_) if K <= MOST_TICKS else []
    size = 9 if K <= MOST_NUMBERS else 7
    turned = sum(map(len, names)) > 5 * K and K > 2
    ax.set_xticks(range(len(names)), names, fontsize=size, rotation=90 if turned else 0)
    ax.set_yticks(range(len(names)), names, fontsize=size)
    ax.tick_params(length=0)
    ax.set(xlabel="label", ylabel="true class")
    ax.set_title(title, fontsize=10)
    beside = ax.inset_axes((1.04, 0.1, 0.04, 0.8))
    bar = ax.figure.colorbar(image, cax=beside, ticks=[0, 0.5, 1])
    bar.outline.set_visible(False)
    for spine in ax.spines.values():
        spine.set_color(GREY)
    return ax


def _of_all(fitted: Any) -> Floats:
    """Return the expected shares of the labels of each true class, (K, K); NaN for classes without labels."""
    ann = fitted.annotations_
    if ann.n_classes > MOST_CLASSES:
        raise CrowdshotError(
            f"has {ann.n_classes:,} classes",
            argument="fitted",
            found=ann.n_classes,
            expected=f"{MOST_CLASSES:,} or fewer",
        )
    votes = coo_array((np.ones(ann.n_labels), (ann.label, ann.item)), (ann.n_classes, ann.n_items)).tocsr()
    found = votes @ fitted.label_proba_  # (observed, true)
    counts = (found if isinstance(found, np.ndarray) else found.toarray()).T
    total = counts.sum(1, keepdims=True)
    out: Floats = np.divide(counts, total, out=np.full_like(counts, np.nan), where=total > 0)
    return out


def plot_annotators(fitted: Any, *, ax: Axes | None = None) -> Axes:
    """Plot the accuracy of every annotator with its 90 % interval, the most accurate on top.

    Parameters
    ----------
    fitted : CrowdClassifier or CrowdAggregator
    ax : Axes, optional

    Returns
    -------
    Axes
        The dashed line is the mean accuracy of a label. Up to 40 annotators have names.

    Examples
    --------
    >>> from crowdshot import CrowdAggregator
    >>> from crowdshot.plots import plot_annotators
    >>> crowd = CrowdAggregator().fit([["cat", "cat", "dog"], ["cat", "cat", "cat"], ["dog", "dog", "cat"]])
    >>> plot_annotators(crowd).get_xlabel()
    'accuracy, with 90% interval'
    """
    people = fitted.annotators_
    people = people[people["n_labels"] > 0].sort_values("accuracy", kind="stable", ignore_index=True)
    n = len(people)
    named = n <= MOST_NAMES
    ax = _axes(ax, (6.4, float(np.clip(0.9 + 0.24 * n, 2.0, 10.5)) if named else 6.0))
    place = np.arange(n)
    thick = 3.0 if named else max(0.5, min(2.0, 250 / n))
    ax.hlines(place, people["low"], people["high"], color=BLUE, alpha=0.35, linewidth=thick)
    ax.plot(people["accuracy"], place, "o", color=BLUE, markersize=5 if named else 2.5, linestyle="none")
    mean = float((people["accuracy"] * people["n_labels"]).sum() / people["n_labels"].sum())
    ax.axvline(mean, color=QUIET, linestyle="--", linewidth=1, zorder=0)
    if named:
        ax.set_yticks(place, _names(people.iloc[:, 0]), fontsize=9)
    else:
        ax.set_yticks([])
        ax.set_ylabel(f"{n:,} annotators")
    ax.set_ylim(-0.8, n - 0.2)
    ax.set_xlim(min(0.5, float(people["low"].min()) - 0.02), 1.01)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(f"accuracy, with {INTERVAL:.0%} interval")
    ax.grid(axis="x", color=GREY, alpha=0.5, linewidth=0.6)
    ax.set_axisbelow(True)
    _without_frame(ax)
    return ax


def plot_calibration(fitted: Any, truth: Any = None, *, ax: Axes | None = None) -> Axes:
    """Plot how often the consensus is right against its confidence.

    Parameters
    ----------
    fitted : CrowdClassifier, CrowdAggregator or DataFrame
        An estimator, or a table of `crowdshot.metrics.calibration_curve`, which needs no known classes.
    truth : dict, Series, DataFrame or array, optional
        Known classes in the form of ``gold`` in `CrowdClassifier.fit`, which the fit did not know. By default, the gold
        classes of the fit are compared with a consensus without them (``gold_``).
    ax : Axes, optional

    Returns
    -------
    Axes
        A point for each tenth of confidence, with its 90 % interval and the number of items. Points below the diagonal
        mean that confidence is too high.

    Examples
    --------
    >>> from crowdshot import CrowdAggregator
    >>> from crowdshot.plots import plot_calibration
    >>> crowd = CrowdAggregator().fit([["cat", "cat", "dog"], ["cat", "cat", "cat"], ["dog", "dog", "cat"]])
    >>> plot_calibration(crowd, {0: "cat", 2: "dog"}).get_xlabel()
    'confidence'
    """
    table = fitted if isinstance(fitted, pd.DataFrame) else _against_truth(fitted, truth)
    right = table["accuracy"] * table["items"]
    low, high = interval(right + 0.5, table["items"] - right + 0.5)
    ax = _axes(ax, (4.6, 4.6))
    ax.plot([0, 1], [0, 1], color=QUIET, linestyle="--", linewidth=1)
    ax.vlines(table["confidence"], low, high, color=BLUE, alpha=0.35, linewidth=3)
    ax.plot(table["confidence"], table["accuracy"], "o", color=BLUE, markersize=5)
    least = float(min(table["confidence"].min(), np.min(low)))
    least = max(-0.06, np.floor(10 * (least - 0.04)) / 10)  # with room for the number below the interval
    ax.set(xlim=(least, 1.02), ylim=(least, 1.02), aspect="equal")
    for x, y, n in zip(table["confidence"], low, table["items"], strict=True):
        below = (0, -3)  # points
        ax.annotate(f"{n:,}", (x, y), below, textcoords="offset points", ha="center", va="top", fontsize=7, color=QUIET)
    ax.set(xlabel="confidence", ylabel="share of right labels")
    ax.grid(color=GREY, alpha=0.5, linewidth=0.6)
    ax.set_axisbelow(True)
    _without_frame(ax)
    return ax


def _against_truth(fitted: Any, truth: Any) -> pd.DataFrame:
    """Return mean confidence, accuracy and number of items of known class in bins of confidence."""
    if truth is None:
        compared = fitted.gold_
        is_right = (compared.iloc[:, 1] == compared["consensus"]).to_numpy()
        confidence = compared["confidence"].to_numpy()
    else:
        ann = fitted.annotations_
        known = gold_labels.as_mapping(truth, ann)
        rows = positions(ann.items, np.fromiter(known, dtype=object, count=len(known)))
        found = fitted.consensus_.iloc[rows[rows >= 0]]
        true = np.array([known[item] for item in found.iloc[:, 0]], dtype=object)
        is_right, confidence = np.asarray(found.iloc[:, 1].to_numpy() == true), found["confidence"].to_numpy()
    if not len(is_right):
        raise CrowdshotError(
            "is missing",
            argument="truth",
            expected="known classes, or a fit with gold",
            hint="crowdshot.metrics.calibration_curve gives a table that needs none.",
        )
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    shares = {place: Share.of_all(is_right[bins == place]) for place in np.unique(bins).tolist()}
    return pd.DataFrame(
        [(confidence[bins == place].mean(), found.share, found.of) for place, found in shares.items() if found],
        columns=["confidence", "accuracy", "items"],
    )


def plot_map(fitted: Any, *, ax: Axes | None = None) -> Axes:
    """Plot the items of a classifier by similarity, coloured by consensus class.

    Parameters
    ----------
    fitted : CrowdClassifier
        A classifier that has its items; one loaded from a file has none.
    ax : Axes, optional

    Returns
    -------
    Axes
        The map of the report: t-SNE of the embeddings, or principal components of many items. The ten largest classes
        have colours. Filled items are accepted, hollow ones are not, and crosses have no labels.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdshot import CrowdClassifier
    >>> from crowdshot.plots import plot_map
    >>> X = np.array([[0.0, 1.0], [0.2, 0.9], [5.0, 0.0], [5.1, 0.1]])
    >>> clf = CrowdClassifier().fit(X, [["a", "a"], ["a", "b"], ["b", "b"], ["b", "b"]])
    >>> [text.get_text() for text in plot_map(clf).get_legend().get_texts()][:2]
    ['a', 'b']
    """
    from crowdshot.report.page.item_map import MOST_POINTS, place

    embeddings = getattr(fitted, "embeddings_", None)
    if embeddings is None:
        raise CrowdshotError(
            f"is a {type(fitted).__name__} without items", argument="fitted", expected="a CrowdClassifier after fit"
        )
    labelled = np.bincount(fitted.annotations_.item, minlength=len(embeddings)) > 0
    order = np.random.default_rng(fitted._seed).permutation(len(labelled))
    rows = np.sort(np.lexsort((order, ~labelled))[:MOST_POINTS])
    xy, how = place(embeddings[rows].float().cpu().numpy(), fitted._seed)
    posterior = fitted.label_proba_[rows]
    label, accepted, labelled = posterior.argmax(1), posterior.max(1) >= THRESHOLD, labelled[rows]
    classes, sizes = np.unique(label, return_counts=True)
    largest = np.sort(classes[np.argsort(-sizes, kind="stable")][: len(COLOURS)])

    names = _names(fitted.classes_[largest])
    groups = [(np.isin(label, largest, invert=True), GREY, f"{len(classes) - len(largest)} other classes")]
    groups += [(label == k, COLOURS[i], names[i]) for i, k in enumerate(largest.tolist())]

    ax = _axes(ax, (6.8, 5.0))
    area = float(np.clip(6_000 / len(rows), 5, 36))
    kinds = {  # by their markers
        "accepted": ("o", labelled & accepted),
        "not accepted": ("$○$", labelled & ~accepted),
        "without labels": ("x", ~labelled),
    }
    for chosen, colour, _ in groups:
        for marker, kind in kinds.values():
            x, y = xy[chosen & kind].T
            ax.scatter(x, y, s=area, color=colour, marker=marker, linewidth=1)
    for chosen, colour, name in (*groups[1:], groups[0]):
        if chosen.any():
            ax.scatter([], [], s=30, color=colour, label=name)
    for name, (marker, kind) in kinds.items():
        if kind.any():
            ax.scatter([], [], s=30, color="k", marker=marker, linewidth=1, label=name)
    ax.invert_yaxis()  # as in the report
    ax.set(xticks=[], yticks=[], xlabel=how.partition(":")[0])
    ax.xaxis.label.set(color=QUIET, fontsize=8)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9, handletextpad=0.2)
    for spine in ax.spines.values():
        spine.set_color(GREY)
    return ax


# ---- helpers ----


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    if ax is not None:
        return ax
    with missing_packages_explained("Plotting"):
        from matplotlib import pyplot
    return pyplot.subplots(figsize=size, layout="constrained")[1]


def _names(values: Iterable[Any]) -> list[str]:
    """Return short names; if their beginnings are equal, they begin where they differ."""
    names = [str(value) for value in values]
    start = next((at for at, letters in enumerate(zip(*names, strict=False)) if len(set(letters)) > 1), 0)
    if len(names) > 1 and start > KEPT and max(map(len, names)) > LONGEST:
        names = [f"…{name[start - KEPT :]}" for name in names]
    return [_name(name) for name in names]


def _name(value: Any, longest: int = LONGEST) -> str:
    """Return a name that matplotlib draws as it is, without mathematics."""
    return clean(value, longest).replace("$", r"\$")


def _without_frame(ax: Axes) -> None:
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
