"""Compare all methods on LabelMe's photographs and real annotators, each with its default settings.

    python benchmarks/labelme_methods.py LabelMe.zip [--episodes 100] [--methods Ours PrSV …] [--out rows.csv]

Episodes are those of `labelme.py`: all eight classes with 1, 3 and 5 images of each, the real labels of their workers,
and 10 queries per class. All methods get the same episodes, with the encoder and settings that
`CrowdClassifier(method=…)` uses for photographs if the extra lite0 is installed. Prints, as a Markdown table, the
accuracy on queries ± its standard error over episodes, and the mean difference of Ours to each method. ``--out`` keeps
a row for each episode.
"""

import argparse
import csv

import numpy as np
import torch
from labelme import K, episodes, read

from crowdshot import Annotations, CrowdClassifier, load_encoder
from crowdshot.encoders.networks import Lite0

METHODS = ["Ours", "w/o PA", "PrSV", "PrDS", "PrDS w/ PA", "PrMV", "PrMV w/ PA", "LNL"]
METHODS += ["MaMV", "MaDS", "MCL", "MCNAL", "MLF", "LRMV", "LRDS"]
SHOTS = (1, 3, 5)


def behind_backbone(module, features):
    """Return a method's embeddings of photographs, from the features of the backbone that all methods share."""
    if isinstance(module, Lite0):
        return module.head(behind_backbone(module.body, features))
    return (features - module.mean) / module.std


def accuracies(clf, embeddings, truth, answers, shots, n_episodes):
    """Return the accuracy on the queries of each episode, (n_episodes,)."""
    found = []
    for support, query in episodes(truth, shots, n_episodes):
        clf.fit_embeddings(embeddings[support], Annotations.from_matrix(answers[support], classes=range(K)))
        log_proba = clf._model.log_proba((embeddings[query] - clf._shift) * clf._factor)
        found.append((log_proba.argmax(-1).numpy() == truth[query]).mean())
    return np.array(found)


def mean_and_error(values):
    return f"{values.mean():.3f} ± {values.std(ddof=1) / len(values) ** 0.5:.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--methods", nargs="+", default=METHODS, metavar="NAME")
    parser.add_argument("--out", metavar="FILE")
    arguments = parser.parse_args()
    images, truth, answers = read(arguments.path)
    features = load_encoder("lite0").embed(images)
    ours, rows = {}, []
    columns = [f"{shots} shot{'s' * (shots > 1)}{extra}" for shots in SHOTS for extra in ("", ", Ours ahead")]
    print(f"| | {' | '.join(columns)} |\n|{'---|' * (1 + len(columns))}")
    for name in dict.fromkeys(["Ours", *arguments.methods]):
        clf = CrowdClassifier(method=name, device="cpu")
        clf.encoder_ = clf._choose_encoder(images)
        with torch.no_grad():
            embeddings = behind_backbone(clf._learner().reader(clf.encoder_).module, features)
        cells = []
        for shots in SHOTS:
            right = accuracies(clf, embeddings, truth, answers, shots, arguments.episodes)
            ours.setdefault(shots, right)
            cells += [mean_and_error(right), mean_and_error(ours[shots] - right) if name != "Ours" else ""]
            rows += [(name, shots, episode, value) for episode, value in enumerate(right)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    if arguments.out:
        with open(arguments.out, "w", newline="") as file:
            csv.writer(file).writerows([("method", "shots", "episode", "accuracy"), *rows])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
