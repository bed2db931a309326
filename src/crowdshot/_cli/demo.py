"""``crowdshot demo``: compare four methods on handwritten digits with seven simulated annotators.

The digits come from scikit-learn. The encoder never saw a digit: it was meta-trained on drawn characters without digits
and similar characters. Three images of each class are labelled, and 500 others are classified. The table is the mean
over many such problems with different images and annotators. The files show the first problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdshot._cli.console import note
from crowdshot._cli.options import Seed, output_option
from crowdshot.extras import is_installed, missing
from crowdshot.progress import progress

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from crowdshot.classifier.crowd_classifier import CrowdClassifier
    from crowdshot.labels.annotations import Annotations


def confusion_matrices(
    path: Path, rows: Sequence[tuple[str, NDArray[Any]]], titles: Sequence[str], classes: Sequence[Any]
) -> None:
    """Plot confusion matrices to a PNG: a column per annotator, and a row per set of matrices (R, K, K).

    In each plot, rows are true classes and columns are labels. Darker is more probable.
    """
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

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
        ax.set_xlabel("label", fontsize=7)
    assert image is not None
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.01, ticks=np.linspace(0, 1, 3))
    bar.ax.tick_params(labelsize=6, length=2)
    bar.outline.set_edgecolor("0.7")  # type: ignore[operator]
    FigureCanvasAgg(figure).print_png(str(path))  # type: ignore[no-untyped-call]


KINDS = ("expert", "hammer", "hammer", "hammer", "hammer", "hammer", "spammer")
NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus")
SHOTS, UNSEEN, PROBLEMS, CLASSES = 3, 500, 20, 10

Scores = tuple[float, float]  # accuracy of the consensus, accuracy on unseen items


@dataclass(frozen=True)
class Problem:
    """Labelled images, unseen images, confusion matrices of the annotators (R, K, K) and their labels."""

    support: NDArray[np.int64]
    query: NDArray[np.int64]
    confusion: NDArray[np.float64]
    annotations: Annotations


def run(out: Path, seed: int = 0) -> str:
    """Solve all problems, write the files of the first one to ``out``, and return the text to print."""
    import numpy as np
    from sklearn.datasets import load_digits

    from crowdshot.classifier.crowd_classifier import CrowdClassifier

    digits = load_digits()
    images, truth = digits.images / 16, digits.target.astype(np.int64)
    ours = CrowdClassifier(random_state=seed)
    with progress("embedding 1,797 images") as tick:
        embeddings = ours.embed(images, progress=tick)
    scores: dict[str, list[Scores]] = {}
    first: tuple[Problem, CrowdClassifier] | None = None
    with progress(f"solving {PROBLEMS} problems with four methods") as tick:
        for number in range(PROBLEMS):
            problem = draw_problem(truth, seed + number)
            clf = CrowdClassifier(ours.encoder_, random_state=seed)
            for name, score in solve(problem, digits.data, truth, embeddings, clf).items():
                scores.setdefault(name, []).append(score)
            first = first or (problem, clf)
            tick(number + 1, PROBLEMS)
    assert first is not None
    files = write_files(out, *first, images, truth)
    return describe(scores, *first, files)


def draw_problem(truth: NDArray[np.int64], seed: int, shots: int = SHOTS, labels_per_item: int = len(KINDS)) -> Problem:
    """Draw ``shots`` images of each class, and ``labels_per_item`` random annotators for each image."""
    import numpy as np
    import torch

    from crowdshot.labels.annotations import Annotations
    from crowdshot.training import default_settings, simulated_annotators

    random, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    order = random.permutation(len(truth))
    support = np.concatenate([order[truth[order] == k][:shots] for k in range(CLASSES)])
    query = np.setdiff1d(order, support, assume_unique=True)[:UNSEEN]
    kinds = torch.tensor([default_settings.KINDS.index(kind) for kind in KINDS])
    confusion = simulated_annotators.draw_confusion(kinds, CLASSES, generator)
    labels = simulated_annotators.draw_labels(torch.from_numpy(truth[support]), confusion, None, generator).numpy()
    labels[random.random(labels.shape).argsort(1) >= labels_per_item] = -1
    items = [f"{i:04d}.png" for i in support]
    annotations = Annotations.from_matrix(labels, items=items, annotators=NAMES, classes=range(CLASSES))
    return Problem(support, query, confusion.double().numpy(), annotations)


def solve(
    problem: Problem,
    pixels: NDArray[np.float64],
    truth: NDArray[np.int64],
    embeddings: torch.Tensor,
    clf: CrowdClassifier,
) -> dict[str, Scores]:
    """Return each method's accuracy of the consensus on labelled images, and of the classifier on unseen ones."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    from crowdshot.labels import aggregation
    from crowdshot.model import mixture

    support, query, ann = problem.support, problem.query, problem.annotations
    scores: dict[str, Scores] = {}
    for name, consensus in (
        ("majority vote + logistic regression", aggregation.majority_vote(ann)),
        ("Dawid–Skene + logistic regression", aggregation.dawid_skene(ann)),
    ):
        labels = consensus.labels.astype(np.int64)
        regression = LogisticRegression(max_iter=1000).fit(pixels[support] / 16, labels)
        right = (regression.predict(pixels[query] / 16) == truth[query]).mean()
        scores[name] = (float((labels == truth[support]).mean()), float(right))

    prototypes = mixture.fit(embeddings[support], ann.to_tensor(), CLASSES, steps=1, tau=0.0, b=1e6)
    vote = aggregation.majority_vote(ann).labels.astype(np.int64)
    right = (prototypes.log_proba(embeddings[query]).argmax(-1).numpy() == truth[query]).mean()
    scores["prototypical network, soft votes"] = (float((vote == truth[support]).mean()), float(right))

    clf.fit_embeddings(embeddings[support], ann, items=ann.items)
    consensus_right = (clf.consensus_["label"].to_numpy() == truth[support]).mean()
    right = (clf.predict_proba_embeddings(embeddings[query]).argmax(1) == truth[query]).mean()
    scores["crowdshot"] = (float(consensus_right), float(right))
    return scores


def write_files(
    out: Path, problem: Problem, clf: CrowdClassifier, images: NDArray[np.float64], truth: NDArray[np.int64]
) -> list[Path]:
    """Write the labels, results, classifier and confusion matrices of a problem, and images to try commands on."""
    import numpy as np
    import pandas as pd
    from PIL import Image

    from crowdshot.io.atomic import csv_writers, write_folder
    from crowdshot.report.result_tables import confusion_table

    ann = problem.annotations
    tables = {
        "labels": ann.to_frame(),
        "truth": pd.DataFrame({"item": ann.items, "truth": truth[problem.support]}),
        "consensus": clf.consensus_,
        "annotators": clf.annotators_,
        "confusion": confusion_table(clf.annotations_, clf.confusion_),
    }
    titles = [f"{name}\n{kind}" for name, kind in zip(NAMES, KINDS, strict=True)]
    rows = [("drawn", problem.confusion), ("estimated", clf.confusion_)]

    def save_images(folder: Path) -> None:
        folder.mkdir()
        for index in (*problem.support, *problem.query[:20]):
            grey = Image.fromarray((255 * images[index]).round().astype(np.uint8))
            grey.save(folder / f"{index:04d}.png")

    writers: dict[str, Callable[[Path], None]] = {"model.safetensors": clf.save, "images": save_images}
    if is_installed("matplotlib"):
        writers["confusion.png"] = lambda path: confusion_matrices(path, rows, titles, range(CLASSES))
    else:
        note(f"confusion.png is left out. {missing('matplotlib', 'It')}")
    return write_folder(out, {**csv_writers(tables), **writers}, overwrite=True)


def describe(scores: dict[str, list[Scores]], problem: Problem, clf: CrowdClassifier, files: list[Path]) -> str:
    import numpy as np

    from crowdshot.formatting import align_columns

    head = ("", "consensus right", f"{UNSEEN} unseen images right", "")
    lines = [head]
    for name, values in scores.items():
        mean, error = np.mean(values, 0), np.std(values, 0, ddof=1) / len(values) ** 0.5
        lines.append((name, f"{mean[0]:.3f} ± {error[0]:.3f}", f"{mean[1]:.3f} ± {error[1]:.3f}", ""))
    true = problem.confusion.diagonal(axis1=1, axis2=2).mean(1)
    people: list[tuple[Any, ...]] = [("annotator", "kind", "true accuracy", "estimated", "90 % interval", "")]
    for row, kind, accuracy in zip(clf.annotators_.itertuples(index=False), KINDS, true, strict=True):
        people.append((row[0], kind, f"{accuracy:.2f}", f"{row.accuracy:.2f}", f"{row.low:.2f}–{row.high:.2f}", ""))
    folder = files[0].parent
    return "\n".join(
        [
            f"{PROBLEMS} problems: {CLASSES} handwritten digits, {SHOTS} images of each, labelled by {len(NAMES)} "
            "simulated annotators, one of them a spammer",
            "",
            align_columns(lines),
            "",
            "The annotators of the first problem:",
            align_columns(people),
            "",
            f"Its files are in {folder}/. Try:",
            f"  crowdshot adapt {folder}/labels.csv --images {folder}/images --out {folder}/again",
        ]
    )


def demo(
    out: Annotated[Path, output_option(metavar="DIR", help="The folder to write.")] = Path("demo"), seed: Seed = 0
) -> None:
    """Label handwritten digits from seven simulated annotators."""
    typer.echo(run(out, seed))
