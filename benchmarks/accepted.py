"""Measure the accuracy of accepted items with real annotators, with images and with labels only.

    python benchmarks/accepted.py DATA

DATA has the folders ``cifar10s`` and ``labelme`` (docs/datasets.md). With images the consensus is that of
`CrowdClassifier`, with the default for photographs if the extra lite0 is installed, as `crowdshot adapt` writes it;
without, that of `crowdshot aggregate`. Accepted items have a probability of 0.9 or more. The log-loss is that of the
event "the consensus is correct". Prints a Markdown table.
"""

import argparse
import io
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
from labelme import read
from PIL import Image

from crowdshot import Annotations, CrowdClassifier, aggregate
from crowdshot.labels.consensus import THRESHOLD

HEAD = ("", "items", "accepted", "of these right", "right in all", "log-loss")


def cifar10s(folder):
    truth = pd.read_csv(folder / "truth.csv")
    said = pd.read_csv(folder / "annotations.csv")
    with zipfile.ZipFile(folder / "images.zip") as archive:
        names = {Path(name).name: name for name in archive.namelist()}
        images = [Image.open(io.BytesIO(archive.read(names[task]))).convert("RGB") for task in truth["task"]]
    place = truth.reset_index().set_index("task")["index"]
    table = pd.DataFrame({"item": said["task"].map(place), "annotator": said["worker"], "label": said["label"]})
    return images, truth["label"].to_numpy(), table.dropna()


def labelme(folder):
    images, truth, answers = read(folder / "LabelMe.zip")
    item, annotator = np.nonzero(answers >= 0)
    table = pd.DataFrame({"item": item, "annotator": annotator, "label": answers[item, annotator]})
    return images, truth, table


def row(name, consensus, truth):
    right, confidence = consensus["label"].to_numpy() == truth, consensus["confidence"].to_numpy()
    accepted = confidence >= THRESHOLD
    loss = -np.log(np.where(right, confidence, 1 - confidence).clip(1e-9)).mean()
    shares = f"{right[accepted].mean():.3f} | {right.mean():.3f} | {loss:.3f}"
    print(f"| {name} | {len(truth):,} | {accepted.sum():,} | {shares} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for name, (images, truth, table) in (
        ("CIFAR-10S", cifar10s(data / "cifar10s")),
        ("LabelMe", labelme(data / "labelme")),
    ):
        clf = CrowdClassifier(device="cpu")
        embeddings = clf.embed(images)
        for n in (200, 300, len(truth)):
            labels = Annotations.from_frame(table[table["item"] < n], items=range(n))
            row(f"{name}, images too", clf.fit_embeddings(embeddings[:n], labels, items=range(n)).consensus_, truth[:n])
            row(f"{name}, labels alone", aggregate.learned(labels).to_frame(labels), truth[:n])


if __name__ == "__main__":
    main()
