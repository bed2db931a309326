"""Measure accuracy with real annotators on LabelMe's photographs (Rodrigues & Pereira 2018).

    python benchmarks/labelme.py LabelMe.zip [--episodes 100] [--encoders photo-protonet photo-lite0-protonet lite0]

LabelMe has eight kinds of scenes, 59 workers and 2.5 labels per image. Episodes have all eight classes with 1, 3 and 5
images of each, the real labels of their workers, and 10 queries per class. Prints the accuracy on queries and of the
consensus of support items, for prototypes of soft votes and for CrowdClassifier in the same embedding. None of the
encoders was trained on LabelMe.
"""

import argparse
import io
import zipfile

import numpy as np
import torch
from PIL import Image

from crowdshot import aggregate
from crowdshot.classifier.crowd_classifier import CrowdClassifier
from crowdshot.labels.annotations import Annotations
from crowdshot.methods import CrowdEpisodes
from crowdshot_paper.registry import METHODS

K, QUERIES = 8, 10


def read(path):
    """Return images, true classes (N,) and labels (N, workers); -1 is a missing label."""
    with zipfile.ZipFile(path) as archive:

        def lines(name):
            return archive.read(f"LabelMe/{name}").decode().split("\n")

        names = [line.strip() for line in lines("filenames_train.txt") if line.strip()]
        truth = np.array([int(line) for line in lines("labels_train.txt") if line.strip()])
        answers = np.array([[int(x) for x in line.split()] for line in lines("answers.txt") if line.strip()])
        inside = {name.rsplit("/", 1)[-1]: name for name in archive.namelist() if "/train/" in name}
        images = [Image.open(io.BytesIO(archive.read(inside[name]))).convert("RGB") for name in names]
    return images, truth, answers


def episodes(truth, shots, n_episodes):
    random = np.random.default_rng(0)
    for _ in range(n_episodes):
        drawn = [random.permutation(np.flatnonzero(truth == k)) for k in range(K)]
        yield np.concatenate([d[:shots] for d in drawn]), np.concatenate([d[shots : shots + QUERIES] for d in drawn])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--encoders", nargs="+", default=["photo-protonet", "photo-lite0-protonet", "lite0"])
    arguments = parser.parse_args()
    images, truth, answers = read(arguments.path)
    print(f"{'accuracy ± standard error (consensus)':42s} {'1 shot':>24s} {'3 shots':>24s} {'5 shots':>24s}")
    for name in arguments.encoders:
        clf = CrowdClassifier(name)
        embeddings = clf.embed(images)
        rows = {f"{name}, prototypes of soft votes": [], f"{name}, CrowdClassifier": []}
        for shots in (1, 3, 5):
            scores = {row: [] for row in rows}
            for support, query in episodes(truth, shots, arguments.episodes):
                ann = Annotations.from_matrix(answers[support], classes=range(K))
                problem = (embeddings[support], ann.to_tensor(), embeddings[query])
                votes = METHODS["PrSV"].predict(CrowdEpisodes(*(x[None] for x in problem), K), torch.nn.Identity())[0]
                clf.fit_embeddings(embeddings[support], ann)
                found = (
                    (votes, aggregate.majority_vote(ann).labels),
                    (
                        clf._model.log_proba((embeddings[query] - clf._shift) * clf._factor),
                        clf.consensus_["label"].to_numpy(),
                    ),
                )
                for row, (scored, consensus) in zip(rows, found, strict=True):
                    right = (scored.argmax(-1).numpy() == truth[query]).mean()
                    scores[row].append((right, (consensus == truth[support]).mean()))
            for row, values in scores.items():
                mean, error = np.mean(values, 0), np.std(values, 0, ddof=1) / len(values) ** 0.5
                rows[row].append(f"{mean[0]:.3f} ± {error[0]:.3f} ({mean[1]:.3f})")
        for row, cells in rows.items():
            print(f"{row:42s} " + " ".join(f"{cell:>24s}" for cell in cells), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(2)
    main()
