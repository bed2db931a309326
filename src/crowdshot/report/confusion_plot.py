"""Pictures of what was found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray


def confusion_matrices(
    path: Path, rows: Sequence[tuple[str, NDArray[Any]]], titles: Sequence[str], classes: Sequence[Any]
) -> None:
    """One small picture for each annotator, a row of them for each set of matrices (R, K, K), as a PNG.

    Down: the true class; across: what the annotator said. Darker is more probable.
    """
    n_annotators, K = len(titles), len(classes)
    figure = Figure(figsize=(1.55 * n_annotators + 0.9, 1.75 * len(rows) + 0.55), dpi=150, layout="constrained")
    axes = figure.subplots(len(rows), n_annotators, squeeze=False)
    image = None
    for r, (name, matrices) in enumerate(rows):
        for i, ax in enumerate(axes[r]):
            image = ax.imshow(matrices[i], vmin=0, vmax=1, cmap="Blues")
            ax.set_xticks(range(K), [str(c) for c in classes] if K <= 10 else [""] * K, fontsize=6)
            ax.set_yticks(range(K), [str(c) for c in classes] if K <= 10 and i == 0 else [""] * K, fontsize=6)
            ax.tick_params(length=0, pad=2)
            for spine in ax.spines.values():
                spine.set_color("0.7")
            if r == 0:
                ax.set_title(titles[i], fontsize=8)
        axes[r, 0].set_ylabel(f"{name}\ntrue class", fontsize=8)
    for ax in axes[-1]:
        ax.set_xlabel("what they said", fontsize=7)
    assert image is not None
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.01, ticks=np.linspace(0, 1, 3))
    bar.ax.tick_params(labelsize=6, length=2)
    bar.outline.set_edgecolor("0.7")  # type: ignore[operator]
    FigureCanvasAgg(figure).print_png(str(path))  # type: ignore[no-untyped-call]
