"""Measure the accuracy of an encoder on unseen classes, by shots and annotators, for its card."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from crowdshot.encoders.encoder import Encoder
from crowdshot.methods import METHODS, CrowdEpisodes
from crowdshot.model import labeling_search, mixture, priors
from crowdshot.training import default_settings
from crowdshot.training.episodes import Batch, EpisodeShape, draw
from crowdshot.training.pools import ClassPool, input_of

Classify = Callable[[Batch, int], Tensor]
"""Called with (episodes, number of classes); returns (log-)probabilities of the query items."""

SHOTS, ANNOTATORS, WAYS, QUERIES = (1, 3, 5), (3, 5, 7), 4, 10  # the paper's nine cells
EXAMPLES = max(SHOTS) + QUERIES  # that a class must have to be used


@torch.no_grad()
def embedded(pool: ClassPool, encoder: Encoder) -> ClassPool:
    """Return the pool with every example replaced by its embedding."""
    device = pool.examples.device
    prepare, module = input_of(encoder, device), encoder.module.to(device).eval()
    parts = [
        module(prepare(part[None])[0]).flatten(1).float() for part in torch.split(pool.examples.flatten(0, 1), 512)
    ]
    return replace(pool, examples=torch.cat(parts).reshape(*pool.examples.shape[:2], -1))


BINS = 10  # of the calibration error
METHOD_OF = {"lnl": "LNL", "maml": "MaMV"}  # objective -> the method to test with; the mixture for all others


def unseen_scores(encoder: Encoder, pool: ClassPool) -> dict[str, float]:
    """Return the accuracy on a pool of unseen classes, with the classifier for which the encoder was trained."""
    recipe = encoder.card["recipe"]
    if recipe["objective"] not in METHOD_OF:
        return score_table(embedded(pool, encoder), by_mixture(encoder.card["priors"]))
    method, prepare = METHODS[METHOD_OF[recipe["objective"]]], input_of(encoder, pool.examples.device)
    shared = {name: recipe[name] for name in method.default if name in recipe}

    def classify(batch: Batch, ways: int) -> Tensor:
        return method.predict(CrowdEpisodes.of(batch, ways, prepare), encoder.module, **shared)

    return score_table(pool, classify)


def best_labelings(pool: ClassPool, episodes: int = 40) -> dict[str, float]:
    """Return the labeling search's scale and tau with the highest likelihood of queries, on a pool of embeddings."""

    def log_likelihood(candidate: Mapping[str, Any]) -> float:
        classify, crowds = by_labelings({**candidate, "width": 16}), [default_settings.PAPER_SOURCE]
        return score_table(pool, classify, of_truth, crowds=crowds, episodes=episodes)["average"]

    best = max(METHODS["labeling-search"].candidates, key=log_likelihood)
    return dict(best)


def by_mixture(settings: Mapping[str, Any]) -> Classify:
    """Classify embeddings by the mixture, with the priors and steps of an encoder's card."""
    current = priors.from_card(dict(settings))

    def classify(batch: Batch, ways: int) -> Tensor:
        fit = mixture.fit(batch.support, batch.labels, ways, steps=settings["steps"], track=False, **current)
        return fit.log_proba(batch.query)

    return classify


def by_labelings(settings: Mapping[str, Any]) -> Classify:
    """Classify embeddings by the labeling search, with the settings of `labeling_search.fit`."""

    def classify(batch: Batch, ways: int) -> Tensor:
        return labeling_search.fit(batch.support, batch.labels, ways, **settings).log_proba(batch.query)

    return classify


def right(log_proba: Tensor, truth: Tensor) -> Tensor:
    """Return (B, Q) 1 where the likeliest class is the true one, else 0."""
    return (log_proba.argmax(-1) == truth).float()


def of_truth(log_proba: Tensor, truth: Tensor) -> Tensor:
    """Return (B, Q) log-probabilities of the true classes."""
    return log_proba.gather(-1, truth[..., None])[..., 0]


def score_table(
    pool: ClassPool,
    classify: Classify,
    measure: Callable[[Tensor, Tensor], Tensor] = right,
    *,
    crowds: Sequence[Mapping[str, float]] = default_settings.PAPER_TARGETS,
    episodes: int = 200,
    seed: int = 0,
    ways: int = WAYS,
) -> dict[str, float]:
    """Return the mean accuracy, or another measure, for every "shots × annotators", averaged over the crowds.

    With the same seed, all encoders get the same episodes and labels.
    """
    table: dict[str, float] = {}
    for shots in SHOTS:
        for annotators in ANNOTATORS:
            scores: list[Tensor] = []
            for crowd in crowds:
                recipe = EpisodeShape(
                    ways=(ways, ways),
                    shots=(shots, shots),
                    annotators=(annotators, annotators),
                    queries=QUERIES,
                    crowd=crowd,
                )
                generator = torch.Generator(pool.examples.device).manual_seed(seed)
                everyone = torch.ones(episodes, len(pool.names), dtype=torch.bool, device=pool.examples.device)
                batch = draw(pool, recipe, everyone, ~everyone[:, 0], generator)
                scores.append(measure(classify(batch, ways), batch.query_truth).mean())
            table[cell_name(shots, annotators)] = round(float(torch.stack(scores).mean()), 4)
    table["average"] = round(sum(table.values()) / len(table), 4)
    return table


def calibration_error(probabilities: Tensor, truth: Tensor) -> Tensor:
    """Return the expected calibration error of each episode, (B,), with ten bins of confidence."""
    confidence, label = probabilities.max(-1)
    bins = (confidence * BINS).long().clamp(0, BINS - 1)
    gap = (label == truth).to(confidence.dtype) - confidence
    total = torch.zeros(len(gap), BINS, dtype=gap.dtype, device=gap.device).scatter_add_(1, bins, gap)
    return total.abs().sum(-1) / gap.shape[-1]


def cell_name(shots: int, annotators: int) -> str:
    return f"{shots} shots, {annotators} annotators"


# ---- cards of trained encoders ----


def best_of(trained: Sequence[Encoder]) -> Encoder:
    """Return the encoder with the best validation accuracy; its card lists all candidates."""
    best = max(
        trained, key=lambda encoder: encoder.card["scores"]["validation_accuracy"] or 0.0
    )  # None: training diverged
    if len(trained) > 1:
        names = ("steps", "b")
        best.card["chosen_from"] = [
            {**{k: e.card["recipe"][k] for k in names}, "validation_accuracy": e.card["scores"]["validation_accuracy"]}
            for e in trained
        ]
    return best


def add_scores(
    trained: Sequence[Encoder], pool: ClassPool, validated_on: Sequence[int], tested_on: Sequence[int]
) -> None:
    """Add the best settings of the labeling search and the scores on test classes to the cards."""
    if len(validated_on) >= WAYS and pool.smallest >= EXAMPLES:
        for encoder in trained:
            if encoder.card["recipe"]["objective"] == "prototypical":
                validation = embedded(pool.take(validated_on), encoder)
                encoder.card["labelings"] = best_labelings(validation)
    if tested_on:
        add_test_scores(trained, pool.take(tested_on))


def add_test_scores(trained: Sequence[Encoder], pool: ClassPool) -> None:
    """Add the accuracy on test classes to the cards; all encoders see the same episodes and labels."""
    for encoder in trained:
        card = encoder.card
        card["scores"]["test"] = unseen_scores(encoder, pool)
        if "labelings" in card:  # also score the default method
            classify = by_labelings(card["labelings"])
            card["scores"]["test by Labelings"] = score_table(embedded(pool, encoder), classify)
    for encoder in trained[1:]:
        trained[0].card["scores"]["test of a prototypical network with soft votes"] = encoder.card["scores"]["test"]
