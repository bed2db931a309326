"""Compare the labeling search with the paper's EM and with perfect knowledge of annotators or labels.

    python benchmarks/beyond.py images_evaluation.zip [--episodes 100] [--out rows.csv]
    python benchmarks/beyond.py tiny-imagenet-100.zip --photos

The first command uses Omniglot's evaluation set: 659 characters of alphabets that the shipped encoders were not trained
on. The second uses the 20 test classes of Tiny-ImageNet-100 of the encoder ``photo``. Episodes are the paper's: 4
classes, 1, 3 and 5 images of each, 3, 5 and 7 annotators of its four crowds, and also a crowd of flippers and a crowd
of class-wise spammers. All methods get the same episodes. Prints the accuracy on queries, averaged over shots and
annotators, and calibration errors (ten bins over all queries of a cell, and over all labelled items for the consensus).
``--out`` keeps every cell.
"""

import argparse
import csv

import torch

from crowdshot import labelings, mixture, priors, simulate
from crowdshot.encoders.encoder_files import load_encoder
from crowdshot.methods import CrowdEpisodes
from crowdshot.model import prototypes
from crowdshot.training.encoder_scores import ANNOTATORS, EXAMPLES, QUERIES, SHOTS, WAYS, embedded
from crowdshot.training.episodes import draw
from crowdshot.training.recipe import Recipe
from crowdshot.training.sources import open_source
from crowdshot_paper.compared import prototypical
from crowdshot_paper.registry import CEILINGS, METHODS

CROWDS = {"the paper's crowds": simulate.PAPER_TARGETS, "flippers, class-wise": simulate.OTHER_TARGETS[1:3]}
CLEAN, NOISY = "clean", "noisy"  # encoders trained with clean labels, and with simulated annotators


def em(steps, posteriors):
    def classify(episodes):
        fit = mixture.fit(episodes.support, episodes.labels, WAYS, steps=steps, track=False, **posteriors)
        return fit.log_proba(episodes.query).exp(), fit.responsibilities

    return classify


def searched(**settings):
    def classify(episodes):
        fit = labelings.fit(episodes.support, episodes.labels, WAYS, **settings)
        return fit.log_proba(episodes.query).exp(), fit.responsibilities

    return classify


def with_queries(steps, **settings):
    """Run the labeling search, then a few EM steps in which queries are additional items without labels."""

    def classify(episodes):
        fit = labelings.fit(episodes.support, episodes.labels, WAYS, **settings)
        items, queries = ((x - fit.centre) / fit.unit for x in (episodes.support, episodes.query))
        p = fit.log_proba(episodes.query).exp()
        for _ in range(steps):
            weights = torch.cat([fit.responsibilities, p], 1)
            means = weights.mT @ torch.cat([items, queries], 1) / (fit.tau + weights.sum(1))[..., None]
            p = (fit.scale * (queries @ means.mT - 0.5 * means.square().sum(-1)[:, None])).softmax(-1)
        return p, fit.responsibilities

    return classify


def system(known, name, consensus=None):
    def classify(episodes):
        agreed = None if consensus is None else consensus(episodes.labels)
        return known[name].predict(episodes, torch.nn.Identity()), agreed

    return classify


def ways_to_learn(learned, trusted):
    """Return names, encoders and methods: episodes -> probabilities of queries, and of labelled items.

    ``learned`` are the priors of the noisy encoder's card, ``trusted`` those of the clean encoder's card.
    """
    return [
        ("soft votes (PrSV)", CLEAN, system(METHODS, "PrSV", lambda labels: prototypes.soft_vote(labels, WAYS))),
        (
            "Dawid–Skene (PrDS)",
            CLEAN,
            system(METHODS, "PrDS", lambda labels: prototypical.aggregated(labels, WAYS, METHODS["PrDS"].default)),
        ),
        ("the paper's EM, its constants, J = 2", NOISY, em(2, priors.PAPER)),
        ("EM with learned priors, J = 2", NOISY, em(2, priors.from_card(learned))),
        ("EM with learned priors, J = 5", NOISY, em(5, priors.from_card(learned))),
        ("EM with learned priors, J = 5", CLEAN, em(5, priors.from_card(learned))),
        ("labeling-search", NOISY, searched()),
        ("Labelings, one only (width 1)", CLEAN, searched(width=1)),
        ("Labelings, width 8", CLEAN, searched(width=8)),
        ("Labelings (width 32)", CLEAN, searched()),
        ("Labelings, scale and tau from the card", CLEAN, searched(**trusted)),
        ("Labelings, width 128", CLEAN, searched(width=128)),
        ("Labelings, scale 10", CLEAN, searched(scale=10.0)),
        ("Labelings, scale 40", CLEAN, searched(scale=40.0)),
        ("Labelings, tau 0.15", CLEAN, searched(tau=0.15)),
        ("Labelings, tau 1.5", CLEAN, searched(tau=1.5)),
        ("Labelings, queries as items without labels", CLEAN, with_queries(3)),
        ("true matrices known", CLEAN, system(CEILINGS, "True matrices")),
        ("true labels known", CLEAN, system(CEILINGS, "True labels")),
    ]


def calibration_error(probabilities, truth, bins=10):
    confidence, label = probabilities.flatten(0, 1).max(-1)
    gap = (label == truth.flatten()).double() - confidence
    where = (confidence * bins).long().clamp(max=bins - 1)
    return float(torch.zeros(bins, dtype=torch.float64).scatter_add_(0, where, gap).abs().sum() / len(gap))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images")
    parser.add_argument("--photos", action="store_true")
    parser.add_argument("--episodes", type=int, default=100, help="of each shots, annotators and crowd")
    parser.add_argument("--out", metavar="FILE")
    arguments = parser.parse_args()
    data = open_source(arguments.images, at_least=EXAMPLES)
    pool, name = data.pool, "omniglot"
    if arguments.photos:
        name = "photo"
        card = load_encoder(name).card
        most, left = card["recipe"]["ways"][1], card["source"]
        pool = pool.take(data.split(most, card["recipe"]["seed"], left["validated_on"], left["tested_on"])[2])
    encoders = {CLEAN: load_encoder(f"{name}-protonet"), NOISY: load_encoder(name)}
    pools = {kind: embedded(pool, encoder) for kind, encoder in encoders.items()}
    ways = ways_to_learn(encoders[NOISY].card["priors"], encoders[CLEAN].card["labelings"])
    rows = []
    for crowd_name, crowds in CROWDS.items():
        for shots in SHOTS:
            for annotators in ANNOTATORS:
                parts = {name: [] for name in pools}
                for number, crowd in enumerate(crowds):
                    recipe = Recipe((WAYS,) * 2, (shots,) * 2, (annotators,) * 2, queries=QUERIES, crowd=crowd)
                    everyone = torch.ones(arguments.episodes, len(pool.names), dtype=torch.bool)
                    for name, some in pools.items():
                        generator = torch.Generator().manual_seed(number)
                        parts[name].append(draw(some, recipe, everyone, ~everyone[:, 0], generator))
                for way, encoder, classify in ways:
                    found = [classify(CrowdEpisodes.of(batch, WAYS)) for batch in parts[encoder]]
                    truth, labelled = (
                        torch.cat([getattr(batch, name) for batch in parts[encoder]])
                        for name in ("query_truth", "support_truth")
                    )
                    p = torch.cat([queries.double() for queries, _ in found])
                    right = float((p.argmax(-1) == truth).double().mean())
                    agreed = float("nan")
                    if found[0][1] is not None:
                        agreed = calibration_error(torch.cat([items.double() for _, items in found]), labelled)
                    rows.append(
                        (crowd_name, encoder, way, shots, annotators, right, calibration_error(p, truth), agreed)
                    )
    if arguments.out:
        with open(arguments.out, "w", newline="") as file:
            writer = csv.writer(file)
            measured = ("accuracy", "calibration_error", "calibration_error_of_consensus")
            writer.writerow(["crowd", "encoder", "way", "shots", "annotators", *measured])
            writer.writerows((*row[:5], *(f"{number:.4f}" for number in row[5:])) for row in rows)

    def mean(column, **wanted):
        keys = ("crowd", "encoder", "way")
        values = [r[column] for r in rows if all(r[keys.index(k)] == v for k, v in wanted.items())]
        return sum(values) / len(values)

    heads = [head for name in CROWDS for head in (name, "calibration error", "of consensus")]
    print(f"| | encoder | {' | '.join(heads)} |\n|{'---|' * (2 + len(heads))}")
    for way, encoder, _ in ways:
        cells = [f"{mean(i, crowd=c, encoder=encoder, way=way):.3f}" for c in CROWDS for i in (5, 6, 7)]
        cells = ["–" if cell == "nan" else cell for cell in cells]  # with perfect knowledge there is no consensus
        print(f"| {way} | {encoder} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
