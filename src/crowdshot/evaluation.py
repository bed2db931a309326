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
from crowdshot.recipes import Recipe
from crowdshot.trainer import input_of

SHOTS, ANNOTATORS, WAYS, QUERIES = (1, 3, 5), (3, 5, 7), 4, 10  # the paper's nine cells


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
            table[f"{shots} shots, {annotators} annotators"] = round(float(torch.stack(scores).mean()), 4)
    table["average"] = round(sum(table.values()) / len(table), 4)
    return table
