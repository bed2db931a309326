"""Measure how much a cell of the paper's table varies when its episodes are drawn again.

    python benchmarks/redraw.py data --draws 20 [--cell 4,5] [--out draws.csv]

This uses Omniglot's five splits with the encoders in results/encoders. As in the paper's table there are 50 episodes
for each of four crowds and five splits; they are drawn first as `crowdshot paper run main` draws them, then again. The
standard error of a cell assumes 1,000 independent episodes, but those of a split share 100 test classes and an encoder.
"""

import argparse
import csv
import statistics
from dataclasses import replace
from pathlib import Path

import torch

from crowdshot.encoders.encoder_files import build_encoder, load_encoder
from crowdshot.methods import CrowdEpisodes
from crowdshot.training.encoder_scores import embedded
from crowdshot.training.pools import input_of
from crowdshot_paper.datasets import load_dataset
from crowdshot_paper.draws import draw_episodes, split_classes
from crowdshot_paper.encoder_plan import wanted
from crowdshot_paper.episode_cells import TARGET_CROWDS, TARGETS, Cell
from crowdshot_paper.registry import METHODS
from crowdshot_paper.work import together

SPLITS, EPISODES = 5, 50
SYSTEMS = {"Ours": {"steps": 2, "b": 100.0}, "LRMV": {"C": 1.0}, "PrMV": {}, "PrSV": {}}


def plain(dataset):
    """Return an untrained encoder, of which only the conversion of pixels is used."""
    return build_encoder("conv4", {"channels": dataset.input.channels}, dataset.input)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder with omniglot/")
    parser.add_argument("--work", type=Path, default=Path("results"), help="where encoders/ is")
    parser.add_argument("--cell", default="4,5", help="support items, annotators")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--out", metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    n_support, n_annotators = map(int, options.cell.split(","))
    cells = [Cell(n_support, n_annotators, crowd) for crowd in TARGET_CROWDS]
    target, dataset = TARGETS["omniglot"], load_dataset("omniglot", options.data)
    means = {name: [0.0] * (options.draws + 1) for name in SYSTEMS}
    for split in range(SPLITS):
        _, _, test = split_classes(target, len(dataset.pool.names), split)
        for name, settings in SYSTEMS.items():
            method = METHODS[name]
            one = wanted(method, settings, target, cells[0], split)
            pool, prepare = dataset.pool, input_of(plain(dataset), torch.device("cpu"))
            if one is not None:
                pool, prepare = embedded(dataset.pool, load_encoder(one.file(options.work))), torch.Tensor.float
            seen = replace(dataset, pool=pool)
            for number in range(options.draws + 1):
                role = "test" if number == 0 else f"test, draw {number}"
                batch = together([draw_episodes(seen, test, cell, EPISODES, split, role) for cell in cells])
                found = method.predict(CrowdEpisodes.of(batch, 4, prepare), torch.nn.Identity(), **settings)
                means[name][number] += float((found.argmax(-1) == batch.query_truth).float().mean()) / SPLITS
    if options.out:
        with open(options.out, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["n_support", "n_annotators", "method", "draw", "accuracy"])
            writer.writerows(
                (n_support, n_annotators, name, i, f"{mean:.4f}")
                for name in means
                for i, mean in enumerate(means[name])
            )
    print(f"({n_support}, {n_annotators}), 1,000 episodes a draw; draw 0 is the table's")
    for name, (first, *others) in means.items():
        middle, spread = statistics.mean(others), statistics.stdev(others)
        reach = f"{min(others):.3f} to {max(others):.3f}"
        print(f"{name}: draw 0 {first:.3f}; {len(others)} others {middle:.3f} ± {spread:.3f} ({reach})")


if __name__ == "__main__":
    main()
