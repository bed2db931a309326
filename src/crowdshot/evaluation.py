"""How good an encoder is on classes it never saw: accuracy by shots and annotators, for its card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from crowdshot import mixture, priors, simulate
from crowdshot.annotated import draw
from crowdshot.encoders import Encoder
from crowdshot.episodes import ClassPool
from crowdshot.network_input import input_of
from crowdshot.recipes import Recipe

SHOTS, ANNOTATORS, WAYS, QUERIES = (1, 3, 5), (3, 5, 7), 4, 10  # the paper's nine cells

#: A source's name -> what the paper reports for its method, and the figures by shots and annotators (its Table 1).
PAPER = {
    "omniglot": ("the paper, Omniglot", (0.692, 0.814, 0.855, 0.885, 0.938, 0.967, 0.930, 0.964, 0.982)),
    "tiny-imagenet-100": (
        "the paper, miniImageNet (other images)",
        (0.387, 0.436, 0.432, 0.534, 0.571, 0.621, 0.595, 0.628, 0.674),
    ),
}


@torch.no_grad()
def embedded(pool: ClassPool, encoder: Encoder) -> ClassPool:
    """The pool with every example replaced by its embedding, on the pool's device."""
    device = pool.examples.device
    prepare, module = input_of(encoder, device), encoder.module.to(device).eval()
    parts = [
        module(prepare(part[None])[0]).flatten(1).float() for part in torch.split(pool.examples.flatten(0, 1), 512)
    ]
    return replace(pool, examples=torch.cat(parts).reshape(*pool.examples.shape[:2], -1))


def accuracy_table(
    pool: ClassPool,
    settings: Mapping[str, Any],
    *,
    crowds: Sequence[Mapping[str, float]] = simulate.PAPER_TARGETS,
    episodes: int = 200,
    seed: int = 0,
    ways: int = WAYS,
) -> dict[str, float]:
    """Mean accuracy for every "shots × annotators", averaged over the crowds, on a pool of embeddings.

    ``settings`` are an encoder's priors and steps as its card has them. The same seed gives the same episodes and
    labels to every encoder.
    """
    beliefs = priors.from_card(dict(settings))
    table: dict[str, float] = {}
    for shots in SHOTS:
        for annotators in ANNOTATORS:
            scores: list[Tensor] = []
            for crowd in crowds:
                recipe = Recipe(
                    ways=(ways, ways),
                    shots=(shots, shots),
                    annotators=(annotators, annotators),
                    queries=QUERIES,
                    crowd=crowd,
                )
                generator = torch.Generator(pool.examples.device).manual_seed(seed)
                everyone = torch.ones(episodes, len(pool.names), dtype=torch.bool, device=pool.examples.device)
                batch = draw(pool, recipe, everyone, ~everyone[:, 0], generator)
                fit = mixture.fit(batch.support, batch.labels, ways, steps=settings["steps"], track=False, **beliefs)
                scores.append((fit.log_proba(batch.query).argmax(-1) == batch.query_truth).float().mean())
            table[_cell(shots, annotators)] = round(float(torch.stack(scores).mean()), 4)
    table["average"] = round(sum(table.values()) / len(table), 4)
    return table


def paper_scores(source: str) -> dict[str, dict[str, float]]:
    """The paper's figures beside an encoder's own, where it reports any for such a source."""
    if source not in PAPER:
        return {}
    title, figures = PAPER[source]
    cells = [_cell(shots, annotators) for shots in SHOTS for annotators in ANNOTATORS]
    return {title: {**dict(zip(cells, figures, strict=True)), "average": round(sum(figures) / len(figures), 4)}}


def _cell(shots: int, annotators: int) -> str:
    return f"{shots} shots, {annotators} annotators"
