"""Compute the data of the paper's figures of single episodes: embeddings and estimated confusion matrices.

Both use test classes of split 0 of Omniglot: four classes with three support items each, and the five annotators of the
paper's figure. The data are stored as small CSV files, from which figures are drawn without any encoder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from torch import Tensor

from crowdshot.classifier import episode_methods
from crowdshot.classifier.episode_methods import embed
from crowdshot.errors import CrowdshotError
from crowdshot.io.atomic import replacing
from crowdshot.methods import METHODS, Candidate
from crowdshot.model import mixture
from crowdshot.training import episodes, simulated_annotators
from crowdshot.training.pools import input_of
from crowdshot_paper import work
from crowdshot_paper.draws import split_classes
from crowdshot_paper.encoder_plan import Wanted
from crowdshot_paper.episode_cells import QUERIES, TARGETS
from crowdshot_paper.experiments import EXPERIMENTS, candidate_name
from crowdshot_paper.selection import Reader
from crowdshot_paper.store import Piece
from crowdshot_paper.work import read_encoder

DATASET, SPLIT = "omniglot", 0
WAYS, SHOTS = 4, 3
ANNOTATORS = (("expert", 0.88), ("spammer", 0.25), ("hammer", 0.64), ("hammer", 0.79), ("spammer", 0.25))
"""Kind and accuracy of the annotators in the paper's figure, where hammers are called normal."""
SIZE = (WAYS * SHOTS, len(ANNOTATORS))
EPISODES = 200  # for averages; the first episode is shown
PERPLEXITY = 12.0  # of t-SNE


class Drawn(NamedTuple):
    """B episodes with the labels of the five annotators."""

    items: episodes.Episodes
    labels: Tensor  # (B, N, R)
    confusion: Tensor  # (R, K, K), the true matrices


def make(experiment: str, place: work.Place, read: Reader) -> pd.DataFrame:
    """Return the data of a figure, stored or newly computed from encoders."""
    file = stored(place.results, experiment)
    if not file.exists():
        table = {"embedding": embedding, "confusion": confusion}[experiment](place, read)
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as temporary:
            table.to_csv(temporary, index=False, float_format="%.4f")
    return pd.read_csv(file)


def stored(results: Path, experiment: str) -> Path:
    return results / experiment / DATASET / f"{experiment}.csv"


def embedding(place: work.Place, read: Reader) -> pd.DataFrame:
    """Return an episode in two dimensions: panel, x, y, label, role (query, support, prototype), accuracy."""
    encoders = {name: _best_encoder(name, place, read) for name in ("Ours", "w/o PA")}
    drawn = _draw(place)
    first = episodes.Episodes(*(part[:1] for part in drawn.items))
    pixels = torch.cat([first.query, first.support], 1).flatten(2)[0].numpy() / 255
    parts = [_projected("Original", pixels, first, np.nan)]
    for name, found in encoders.items():
        support, query, fit = _fitted(name, found, drawn, 1, place.work)
        right = float((fit.log_proba(query).argmax(-1) == first.query_truth).float().mean())
        parts.append(_projected(name, torch.cat([query, support, fit.means], 1)[0].numpy(), first, right))
    return pd.concat(parts, ignore_index=True)


def confusion(place: work.Place, read: Reader) -> pd.DataFrame:
    """Return true and estimated matrices: what, annotator, kind, accuracy, true, observed, probability.

    "truth through the prior" is the average estimate under the paper's Dirichlet prior if three items of each class
    had known truth: (n q + c) / (n + K c). Estimates from few labels shrink to the uniform distribution at least as
    much.
    """
    found = _best_encoder("Ours", place, read)
    drawn = _draw(place)
    _, _, fit = _fitted("Ours", found, drawn, EPISODES, place.work)
    c = METHODS["Ours"].default["c"]
    matrices = {
        "truth": drawn.confusion,
        "truth through the prior": (SHOTS * drawn.confusion + c) / (SHOTS + WAYS * c),
        f"mean of {EPISODES} estimates": fit.confusion.mean(0),
        "one episode's estimate": fit.confusion[0],
    }
    places = np.indices(drawn.confusion.shape).reshape(3, -1)
    kinds, accuracies = zip(*ANNOTATORS, strict=True)
    columns = {
        "annotator": places[0] + 1,
        "kind": np.array(kinds)[places[0]],
        "accuracy": np.array(accuracies)[places[0]],
        "true": places[1] + 1,
        "observed": places[2] + 1,
    }
    parts = [
        pd.DataFrame({"what": what, **columns, "probability": matrix.flatten()}) for what, matrix in matrices.items()
    ]
    return pd.concat(parts, ignore_index=True)


def _draw(place: work.Place) -> Drawn:
    """Draw the same episodes in every run, from classes that no encoder of the split was trained on."""
    dataset = work.read_dataset(DATASET, place)
    pool, target = dataset.pool, work.fitted(TARGETS[DATASET], dataset, place)
    allowed = torch.zeros(EPISODES, len(pool.names), dtype=torch.bool)
    allowed[:, split_classes(target, len(pool.names), SPLIT)[2]] = True
    generator = torch.Generator().manual_seed(SPLIT)
    items = episodes.sample(pool, EPISODES, WAYS, SHOTS, QUERIES, generator, allowed)
    right = torch.tensor([accuracy for _, accuracy in ANNOTATORS])[:, None, None]
    matrices = torch.where(torch.eye(WAYS, dtype=torch.bool), right, (1 - right) / (WAYS - 1))
    return Drawn(items, simulated_annotators.draw_labels(items.support_truth, matrices, generator=generator), matrices)


def _best_encoder(name: str, place: work.Place, read: Reader) -> tuple[Candidate, Wanted]:
    """Return the best candidate on validation whose encoder exists, or the default if there is no validation."""
    sizes = [cell.size for cell in place.protocol.cells(EXPERIMENTS["main"], DATASET)]
    size = SIZE if SIZE in sizes else sizes[-1]
    needed = work.needed(Piece("main", DATASET, SPLIT, *size, name), place)
    rows = read("main", DATASET)
    here = rows[(rows["n_support"] == size[0]) & (rows["n_annotators"] == size[1]) & (rows["method"] == name)]
    validated = here[here["role"] == "validation"].astype({"accuracy": float})
    score = dict(validated.groupby("candidate", observed=True)["accuracy"].mean())
    usual = candidate_name({key: METHODS[name].default[key] for key in needed[0][0]})

    def rank(pair: tuple[Candidate, Wanted | None]) -> tuple[float, bool]:
        candidate = candidate_name(pair[0])
        return score.get(candidate, -1.0), candidate == usual

    in_order = sorted(needed, key=rank, reverse=True)
    for candidate, one in in_order:
        if one is not None and one.file(place.work).exists():
            return candidate, one
    best = in_order[0][1]
    assert best is not None
    hint = f"Run `crowdshot paper run main --dataset {DATASET} --methods 'Ours,w/o PA'` to train it"
    message = "does not exist"
    raise CrowdshotError(message, where=best.file(place.work), expected=f"the encoder of {name}", hint=hint)


def _fitted(
    name: str, found: tuple[Candidate, Wanted], drawn: Drawn, n: int, work: Path
) -> tuple[Tensor, Tensor, mixture.Fit]:
    """Return embeddings of support and query items of the first ``n`` episodes, and the mixture fitted to them."""
    candidate, one = found
    encoder = read_encoder(one, work)
    prepare = input_of(encoder, torch.device("cpu"))
    support, query = (embed(encoder.module, prepare(part[:n])) for part in (drawn.items.support, drawn.items.query))
    values = {**METHODS[name].default, **candidate}
    constants = {constant: values[constant] for constant in episode_methods.CONSTANTS}
    return support, query, mixture.fit(support, drawn.labels[:n], WAYS, track=False, **constants)


def _projected(panel: str, points: NDArray[Any], first: episodes.Episodes, accuracy: float) -> pd.DataFrame:
    """Compute a joint t-SNE of queries, support items and prototypes (if there are any)."""
    labels = [first.query_truth[0], first.support_truth[0], torch.arange(WAYS)]
    roles = ["query"] * len(labels[0]) + ["support"] * len(labels[1]) + ["prototype"] * WAYS
    flat = TSNE(perplexity=PERPLEXITY, init="pca", random_state=SPLIT).fit_transform(points)
    n = len(flat)
    columns = {"label": torch.cat(labels).numpy()[:n] + 1, "role": roles[:n], "accuracy": accuracy}
    return pd.DataFrame({"panel": panel, "x": flat[:, 0], "y": flat[:, 1], **columns})
