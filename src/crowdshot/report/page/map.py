"""A map of the items: where they lie in two dimensions, and what is to be said of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from crowdshot.labels.positions import Positions
from crowdshot.report.page.basis import Basis, Floats
from crowdshot.report.page.pictures import Sheet, sheet
from crowdshot.wording import clean, percent

MOST_POINTS = 10_000
MOST_TSNE = 2_000  # items; t-SNE takes three seconds for these, and PCA an instant for any number
FEWEST_TSNE = 16
WIDEST = 50  # dimensions that t-SNE is given
PERPLEXITY = 15
SPLIT = 2 / 3  # an item is disputed if no more than this part of its labels is the consensus
AGREED, DISPUTED, UNLABELLED = range(3)


class Map(NamedTuple):
    """Columns of equal length, one entry a point; ``marks`` are AGREED, DISPUTED or UNLABELLED."""

    how: str
    n_items: int
    rows: Positions  # which items
    xy: Floats  # (n, 2), each axis from 0 to 1
    labels: Positions
    marks: Positions
    confidence: Floats
    names: list[str]
    votes: list[list[tuple[int, int]]]
    sheet: Sheet


def draw_map(basis: Basis, paths: Sequence[Path]) -> Map:
    seed = basis.clf.seed
    rows = _few_enough(basis.labelled, seed)
    xy, how = place(basis.embeddings[rows].float().cpu().numpy(), seed)
    votes, agree = basis.votes[rows], basis.votes_for(basis.label)[rows]
    disputed = np.where(agree > SPLIT * votes.sum(1), AGREED, DISPUTED)
    return Map(
        how=how,
        n_items=len(basis.label),
        rows=rows,
        xy=xy,
        labels=basis.label[rows],
        marks=np.where(basis.labelled[rows], disputed, UNLABELLED),
        confidence=basis.confidence[rows],
        names=[clean(basis.name(i), 60) for i in rows],
        votes=[[(int(k), int(row[k])) for k in np.flatnonzero(row)] for row in votes],
        sheet=sheet([paths[i] for i in rows]) if paths else Sheet(),
    )


def _few_enough(labelled: NDArray[np.bool_], seed: int) -> Positions:
    """All items or, of very many, the labelled ones first and then a random part."""
    lots = np.random.default_rng(seed).permutation(len(labelled))
    return np.sort(np.lexsort((lots, ~labelled))[:MOST_POINTS])


def place(embeddings: NDArray[np.float32], seed: int = 0) -> tuple[Floats, str]:
    """(n, D) -> (n, 2), and how: t-SNE where that is quick, else the two directions in which items differ most."""
    n, d = embeddings.shape
    x = np.asarray(embeddings - embeddings.mean(0), dtype=np.float64)
    if min(n, d) < 2 or not x.any():
        return _to_unit(np.column_stack([x[:, 0], np.zeros(n)])), "there is one direction only in which they differ"
    pca = PCA(min(n, d, WIDEST), random_state=seed)
    main = pca.fit_transform(x)
    if FEWEST_TSNE <= n <= MOST_TSNE:
        return _to_unit(_tsne(main, seed)), "t-SNE: neighbours stay neighbours, larger distances mean little"
    held = percent(float(pca.explained_variance_ratio_[:2].sum()))
    return _to_unit(main[:, :2]), f"principal components, which hold {held} of what differs"


def _tsne(x: Floats, seed: int) -> Floats:
    """On one thread, because several are slower on a busy machine; 400 rounds are enough for a picture."""
    perplexity = min(PERPLEXITY, (len(x) - 1) / 3)
    with threadpool_limits(1):
        tsne = TSNE(perplexity=perplexity, init="pca", angle=0.8, max_iter=400, random_state=seed)
        return np.asarray(tsne.fit_transform(x.astype(np.float32)), dtype=np.float64)


def _to_unit(xy: Floats) -> Floats:
    low, high = xy.min(0), xy.max(0)
    return np.where(high > low, (xy - low) / np.where(high > low, high - low, 1), 0.5)
