"""Measure the accuracy of the shipped encoders on the classes that were held out for testing when they were trained.

    python benchmarks/shipped.py --omniglot images_background.zip --photo tiny-imagenet-100.zip \
        --photo-lite0 tiny-imagenet-100-lite0.npz

``glyphs`` needs no data; sources without a file are left out. Prints the accuracy in the paper's nine cells (shots and
annotators). Episodes have four classes and 10 queries per class; each of the paper's four crowds has 200 episodes, the
same for all encoders of a source. An encoder is used with the paper's mixture and the priors of its card, and its
``-protonet`` variant with soft votes and with the labeling search.
"""

import argparse
from dataclasses import replace

import torch

from crowdshot.encoders.encoder_files import load_encoder
from crowdshot.encoders.shipped import PROTOTYPICAL_SUFFIX
from crowdshot.training import encoder_scores
from crowdshot.training.sources import open_source


def embedded(pool, encoder):
    """Embed the pool; if items are features of a backbone, apply its head."""
    if encoder.architecture != "lite0":
        return encoder_scores.embedded(pool, encoder)
    body, head = encoder.module.body, encoder.module.head
    with torch.no_grad():
        return replace(pool, examples=head((pool.examples.float() - body.mean) / body.std))


def rows(name, path):
    """Yield (title, scores by shots and annotators) of an encoder and its ``-protonet`` variant."""
    source = open_source(path, at_least=encoder_scores.EXAMPLES)
    twin = f"{name}{PROTOTYPICAL_SUFFIX}"
    for encoder_name, ways in ((name, ["the mixture"]), (twin, ["soft votes", "labeling-search"])):
        encoder = load_encoder(encoder_name)
        recipe, about = encoder.card["recipe"], encoder.card["source"]
        tested_on = source.split(recipe["ways"][1], recipe["seed"], about["validated_on"], about["tested_on"])[2]
        pool = embedded(source.pool.take(tested_on), encoder)
        for way in ways:
            if way == "labeling-search":
                classify = encoder_scores.by_labelings(encoder.card["labelings"])
            else:  # with the priors of a prototypical network this equals soft votes
                classify = encoder_scores.by_mixture(encoder.card["priors"])
            yield f"`{encoder_name}`, {way}", encoder_scores.score_table(pool, classify)


def short(cell):
    return cell.replace(" shots", "").replace(" annotators", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("omniglot", "photo", "photo-lite0")
    for name in names:
        parser.add_argument(f"--{name}", metavar="FILE")
    given = vars(parser.parse_args())
    sources = {"glyphs": "glyphs"} | {name: given[name.replace("-", "_")] for name in names}
    found = dict(row for name, path in sources.items() if path for row in rows(name, path))
    cells = list(next(iter(found.values())))
    print(f"| | {' | '.join(map(short, cells))} |\n|{'---|' * (1 + len(cells))}")
    for title, scores in found.items():
        print(f"| {title} | {' | '.join(f'{scores[cell]:.3f}' for cell in cells)} |")


if __name__ == "__main__":
    main()
