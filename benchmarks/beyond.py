"""How far the search for labelings goes beyond the paper's EM, and how far it is from perfect knowledge.

    python benchmarks/beyond.py images_evaluation.zip [--episodes 100] [--out rows.csv]
    python benchmarks/beyond.py tiny-imagenet-100.zip --photos

The first takes Omniglot's evaluation set, 659 characters of alphabets that the shipped encoders have not seen; the
second the 20 classes of Tiny-ImageNet-100 that were left for a test when ``photo`` was trained. Episodes are the
paper's: 4 classes, 1, 3 and 5 images of each, 3, 5 and 7 annotators of its four crowds, and besides a crowd of flippers
and one of class-wise spammers. All ways meet the same episodes. Prints the share of queries classified right, averaged
over shots and annotators, and the calibration error (ten bins over all queries of a cell); ``--out`` keeps every cell.
"""

import argparse
import csv

import torch

from crowdshot import labelings, mixture, priors, simulate
from crowdshot.annotated import draw
from crowdshot.encoders import load_encoder
from crowdshot.evaluation import ANNOTATORS, EXAMPLES, QUERIES, SHOTS, WAYS, embedded
from crowdshot.methods import METHODS, CrowdEpisodes
from crowdshot.methods.ceilings import CEILINGS
from crowdshot.recipes import Recipe
from crowdshot.sources import open_source

CROWDS = {"the paper's crowds": simulate.PAPER_TARGETS, "flippers, class-wise": simulate.OTHER_TARGETS[1:3]}
CLEAN, NOISY = "clean", "noisy"  # encoders that met clean labels, and pretend annotators


def em(steps, beliefs):
    def classify(episodes):
        fit = mixture.fit(episodes.support, episodes.labels, WAYS, steps=steps, track=False, **beliefs)
        return fit.log_proba(episodes.query).exp()

    return classify


def searched(**settings):
    return lambda e: labelings.fit(e.support, e.labels, WAYS, **settings).log_proba(e.query).exp()


def system(known, name):
    return lambda e: known[name].predict(e, torch.nn.Identity())


def ways_to_learn(learned, trusted):
    """What they are called, the encoder, and the way; ``learned`` priors, and ``trusted`` as the clean card says."""
    return [
        ("soft votes (PrSV)", CLEAN, system(METHODS, "PrSV")),
        ("Dawid–Skene (PrDS)", CLEAN, system(METHODS, "PrDS")),
        ("the paper's EM, its constants, J = 2", NOISY, em(2, priors.PAPER)),
        ("EM with learned priors, J = 2", NOISY, em(2, priors.from_card(learned))),
        ("EM with learned priors, J = 5", NOISY, em(5, priors.from_card(learned))),
        ("EM with learned priors, J = 5", CLEAN, em(5, priors.from_card(learned))),
        ("Labelings", NOISY, searched()),
        ("Labelings, one only (width 1)", CLEAN, searched(width=1)),
        ("Labelings, width 8", CLEAN, searched(width=8)),
        ("Labelings (width 32)", CLEAN, searched()),
        ("Labelings, scale and tau from the card", CLEAN, searched(**trusted)),
        ("Labelings, width 128", CLEAN, searched(width=128)),
        ("Labelings, scale 10", CLEAN, searched(scale=10.0)),
        ("Labelings, scale 40", CLEAN, searched(scale=40.0)),
        ("Labelings, tau 0.15", CLEAN, searched(tau=0.15)),
        ("Labelings, tau 1.5", CLEAN, searched(tau=1.5)),
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
                    found = [classify(CrowdEpisodes.of(batch, WAYS)).double() for batch in parts[encoder]]
                    truth = torch.cat([batch.query_truth for batch in parts[encoder]])
                    p = torch.cat(found)
                    right = float((p.argmax(-1) == truth).double().mean())
                    rows.append((crowd_name, encoder, way, shots, annotators, right, calibration_error(p, truth)))
    if arguments.out:
        with open(arguments.out, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["crowd", "encoder", "way", "shots", "annotators", "accuracy", "calibration_error"])
            writer.writerows((*row[:5], f"{row[5]:.4f}", f"{row[6]:.4f}") for row in rows)

    def mean(column, **wanted):
        keys = ("crowd", "encoder", "way")
        values = [r[column] for r in rows if all(r[keys.index(k)] == v for k, v in wanted.items())]
        return sum(values) / len(values)

    heads = [f"{name}{extra}" for name in CROWDS for extra in ("", ", calibration error")]
    print(f"| | encoder | {' | '.join(heads)} |\n|{'---|' * (2 + len(heads))}")
    for way, encoder, _ in ways:
        cells = [f"{mean(i, crowd=c, encoder=encoder, way=way):.3f}" for c in CROWDS for i in (5, 6)]
        print(f"| {way} | {encoder} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
