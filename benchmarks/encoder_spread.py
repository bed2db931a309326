"""Measure how compact unseen classes are for narrow and wide encoders, and how accurate one, three or five items are.

    python benchmarks/encoder_spread.py DATA [--datasets labelme cifar10s] [--splits 5] [--episodes 200]

DATA holds the datasets; encoders are those of ``results/``. Queries of an episode are classified by the nearest class
mean, with true labels and with soft votes. *Spread* is the mean squared distance between two items of a class divided
by that between two class means; it shows how well a single item represents its class. *Dimensions* is the participation
ratio of the queries' covariance.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import pandas as pd
import torch
from rows import markdown
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from crowdshot.model import prototypes
from crowdshot_paper import work
from crowdshot_paper.draws import draw_episodes, split_classes
from crowdshot_paper.episode_cells import REAL, TARGETS
from crowdshot_paper.experiments import EXPERIMENTS, PAPER
from crowdshot_paper.store import Piece

ENCODERS = {"narrow": "PrSV", "wide": "PrSV wide"}


def right(support: Tensor, weights: Tensor, query: Tensor, truth: Tensor) -> float:
    """Return the share of queries (B, Q, D) nearest to their class mean, from items (B, N, D) and weights (B, N, K)."""
    total = weights.sum(1)
    means = weights.mT @ support / total[..., None].clamp_min(1e-9)
    far = torch.cdist(query, means).masked_fill((total == 0)[:, None], torch.inf)
    return (far.argmin(-1) == truth).float().mean().item()


def spread_and_dimensions(query: Tensor, truth: Tensor) -> tuple[float, float]:
    """Return the spread and dimensions of the queries (Q, D) and (Q,) of one episode."""
    means = torch.stack([query[truth == k].mean(0) for k in truth.unique()])
    within = 2 * (query - means[truth]).square().sum(-1).mean()
    energy = torch.linalg.svdvals(query - query.mean(0)).square()
    dimensions = energy.sum().square() / energy.square().sum()
    return (within / torch.pdist(means).square().mean()).item(), dimensions.item()


def measured(piece: Piece, place: work.Place, n: int) -> dict[str, float]:
    cell, target = work.cells_of(piece, place)[0], TARGETS[piece.dataset]
    _, encoder = work.needed(piece, place)[0]
    classes = None
    if cell.crowd != REAL:
        _, _, classes = split_classes(target, sum(target.classes), piece.split)
    seen = work._view(piece.dataset, encoder, None if classes is None else tuple(classes), place, "cpu")
    batch = draw_episodes(seen, classes, cell, n, piece.split, "test")
    asked = batch.query, batch.query_truth
    spreads = [spread_and_dimensions(*one) for one in zip(*asked, strict=True)]
    spread, dimensions = torch.tensor(spreads).mean(0).tolist()
    true, soft = F.one_hot(batch.support_truth, cell.ways).float(), prototypes.soft_vote(batch.labels, cell.ways)
    found = {"true labels": right(batch.support, true, *asked), "soft votes": right(batch.support, soft, *asked)}
    return {**found, "spread": spread, "dimensions": dimensions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--datasets", nargs="+", default=["tiny-imagenet-100", "labelme", "cifar10s"])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=200)
    given = parser.parse_args()
    torch.set_num_threads(1)
    results = Path(__file__).parent.parent / "results"
    place = work.Place(results, results, given.data, PAPER)
    table = defaultdict(list)
    for dataset in given.datasets:
        sizes = [cell.size for cell in PAPER.cells(EXPERIMENTS["beyond"], dataset)]
        fewest = min(annotators for _, annotators in sizes)
        for split in range(given.splits):
            for name, method in ENCODERS.items():
                for size in dict.fromkeys(size for size in sizes if size[1] == fewest):
                    found = measured(Piece("beyond", dataset, split, *size, method), place, given.episodes)
                    ways = PAPER.cells(EXPERIMENTS["beyond"], dataset)[0].ways
                    table[dataset, size[0] // ways, name].append(found)
    rows = [
        {"dataset": dataset, "items a class": items, "encoder": name, **pd.DataFrame(found).mean()}
        for (dataset, items, name), found in sorted(table.items())
    ]
    print(markdown(pd.DataFrame(rows)))


if __name__ == "__main__":
    main()
