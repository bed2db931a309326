"""Compare with networks that learn from labels of several annotators, on LabelMe's photographs and real annotators.

    python benchmarks/annot_mix.py LabelMe.zip [--seeds 5] [--out rows.csv]     # needs scikit-activeml and skorch

All methods see the same features: those of the encoder lite0, for 1,000 photographs with 2.5 labels each. Prints the
accuracy and the log-loss on the 1,188 test photographs, as mean ± standard deviation over seeds.

The networks have one hidden layer of 128 units with dropout 0.5, and are trained for 50 epochs in batches of 64 by
RAdam with a learning rate that falls to 0 along a cosine (weight decay 0.0001). These are settings by the authors of
annot-mix (Herde et al. 2024, https://github.com/ies-research/multi-annotator-machine-learning), as are annot-mix's own
(alpha 1, eta 0.9, 128 dimensions). Their learning rates are 0.01 for LabelMe, in a later study, and 0.001 for
CIFAR-10H. Both are measured, and the table shows the one with the higher test accuracy. The implementations of
annot-mix and of the crowd layer are those of scikit-activeml, by the same group.
"""

import argparse
import io
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from measures import score
from numpy.typing import NDArray
from PIL import Image
from rows import markdown
from sklearn.linear_model import LogisticRegressionCV
from torch import Tensor, nn

from crowdshot import Annotations, CrowdClassifier, aggregate, load_encoder

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]
ENCODER, K, HIDDEN, EPOCHS = "lite0", 8, 128, 50
RATES = (0.01, 0.001)
MISSING = -1
# Test accuracies of Herde et al. (2024), with features of another network and random crops of the photographs
PUBLISHED = {
    "annot-mix": 0.858,
    "crowd layer": 0.857,
    "CoNAL": 0.837,
    "union-net": 0.852,
    "MaDL": 0.825,
    "Geo-reg": 0.854,
}


def read(path: Path, part: str) -> tuple[list[Image.Image], Positions]:
    """Return the images and true classes of "train" or "test"."""
    with zipfile.ZipFile(path) as archive:
        names, classes = (
            archive.read(f"LabelMe/{kind}_{part}.txt").decode().split() for kind in ("filenames", "labels")
        )
        inside = {name.rsplit("/", 1)[-1]: name for name in archive.namelist() if f"/{part}/" in name}
        images = [
            Image.open(io.BytesIO(archive.read(inside[name.rsplit("/", 1)[-1]]))).convert("RGB") for name in names
        ]
    return images, np.array([int(name) for name in classes])


def read_labels(path: Path) -> Positions:
    """Return the labels (1000, 59) of annotators who gave one; -1 is a missing label."""
    with zipfile.ZipFile(path) as archive:
        table = np.loadtxt(io.BytesIO(archive.read("LabelMe/answers.txt")), dtype=np.int64)
    return table[:, (table != MISSING).any(axis=0)]


# ---- methods: p(class) of test items, from features, labels, true classes, and the test items' features


class Training(NamedTuple):
    seed: int
    rate: float


Method = Callable[[Floats, Positions, Positions, Floats, Training], Floats]


def ours(x: Floats, labels: Positions, truth: Positions, test: Floats, training: Training) -> Floats:
    clf = CrowdClassifier(encoder=ENCODER, device="cpu")
    clf.fit_embeddings(torch.from_numpy(x).float(), Annotations.from_matrix(labels, classes=range(K)))
    return clf.predict_proba_embeddings(torch.from_numpy(test).float())


def voted(labels: Positions) -> Positions:
    return aggregate.majority_vote(Annotations.from_matrix(labels, classes=range(K))).labels


def consensus(labels: Positions) -> Positions:
    return aggregate.learned(Annotations.from_matrix(labels, classes=range(K))).labels


def regression(x: Floats, labels: Positions, truth: Positions, test: Floats, training: Training) -> Floats:
    """Fit logistic regression to the vote; C by cross-validation."""
    return (
        LogisticRegressionCV(max_iter=300, scoring="neg_log_loss", use_legacy_attributes=False)
        .fit(x, voted(labels))
        .predict_proba(test)
    )


def network(of: Callable[[Positions, Positions], Positions]) -> Method:
    """Return a method that trains the network on one label per item."""

    def method(x: Floats, labels: Positions, truth: Positions, test: Floats, training: Training) -> Floats:
        from skorch import NeuralNetClassifier

        net = NeuralNetClassifier(Scores, module__D=x.shape[1], criterion=nn.CrossEntropyLoss, **settings_of(training))
        return torch.softmax(torch.from_numpy(net.fit(x, of(labels, truth)).forward(test).numpy()), 1).double().numpy()

    return method


def of_activeml(name: str, **settings: object) -> Method:
    """Return a classifier of scikit-activeml as a method."""

    def method(x: Floats, labels: Positions, truth: Positions, test: Floats, training: Training) -> Floats:
        from skactiveml.classifier import multiannotator

        given = {"module__D": x.shape[1]}
        clf = getattr(multiannotator, name)(
            Network,
            classes=range(K),
            missing_label=MISSING,
            random_state=training.seed,
            **settings,
            neural_net_param_dict=settings_of(training) | given,
        )
        clf.fit(x, labels)
        return clf.predict_proba(test).astype(np.float64)

    return method


class Network(nn.Module):
    """Return scores of classes (n, K) and hidden units (n, 128)."""

    def __init__(self, D: int) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(D, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Dropout(0.5))
        self.out = nn.Linear(HIDDEN, K)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.hidden(x)
        return self.out(hidden), hidden


class Scores(Network):
    """Return the scores only."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[0]


def settings_of(training: Training) -> dict[str, object]:
    from skorch.callbacks import LRScheduler

    torch.manual_seed(training.seed)
    schedule = LRScheduler(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=EPOCHS)
    return {
        "optimizer": torch.optim.RAdam,
        "optimizer__weight_decay": 1e-4,
        "lr": training.rate,
        "max_epochs": EPOCHS,
        "batch_size": 64,
        "iterator_train__shuffle": True,
        "iterator_train__drop_last": True,
        "callbacks": [("schedule", schedule)],
        "verbose": 0,
        "train_split": None,
    }


ANNOT_MIX = {"alpha": 1.0, "eta": 0.9, "annotator_embed_dim": 128, "sample_embed_dim": 128, "hidden_dim": 128}
METHODS: dict[str, Method] = {
    "crowdshot": ours,
    "annot-mix": of_activeml("AnnotMixClassifier", n_hidden_layers=1, hidden_dropout=0.5, **ANNOT_MIX),
    "crowd layer": of_activeml("CrowdLayerClassifier"),
    "network on the vote": network(lambda labels, truth: voted(labels)),
    "network on crowdshot's labels alone": network(lambda labels, truth: consensus(labels)),
    "logistic regression on the vote": regression,
    "network on true classes": network(lambda labels, truth: truth),
}
FIXED = ("crowdshot", "logistic regression on the vote")  # do not depend on the seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--keep", type=Path, default=Path("runs/annot-mix.npz"), help="where features are kept")
    parser.add_argument("--out", type=Path, default=Path("results/annot-mix/labelme.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    images, truths = zip(*(read(options.path, part) for part in ("train", "test")), strict=True)
    if not options.keep.exists():
        options.keep.parent.mkdir(parents=True, exist_ok=True)
        encoder = load_encoder(ENCODER)
        np.savez(options.keep, *(encoder.embed(some).numpy() for some in images))
    x, test = (part for part in np.load(options.keep).values())
    labels, rows = read_labels(options.path), []
    scale = x.mean(0), x.std(0) + 1e-9
    for name, method in METHODS.items():
        given = (x, test) if name == "crowdshot" else ((part - scale[0]) / scale[1] for part in (x, test))
        learned_from, tested_on = (np.asarray(part, np.float32) for part in given)
        trainings = (Training(seed, rate) for rate in RATES for seed in range(options.seeds))
        for training in [Training(0, np.nan)] if name in FIXED else trainings:
            p = method(learned_from, labels, truths[0], tested_on, training)
            rows.append({"method": name, **training._asdict(), **score(p, truths[1])})
    table = pd.DataFrame(rows)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    table.round(4).to_csv(options.out, index=False)
    print(markdown(summary(table)))


def summary(table: pd.DataFrame) -> pd.DataFrame:
    found = []
    for name, of_method in table.fillna({"rate": 0}).groupby("method", sort=False):
        rate = of_method.groupby("rate")["accuracy"].mean().idxmax()
        part = of_method[of_method["rate"] == rate]
        row = {"method": name, "published": PUBLISHED.get(str(name), np.nan), "learning rate": rate or np.nan}
        for key in ("accuracy", "log_loss"):
            spread = f" ± {part[key].std(ddof=1):.3f}" if len(part) > 1 else ""
            row[key] = f"{part[key].mean():.3f}{spread}"
        found.append(row | {"confidence − accuracy": part["over"].mean()})
    missing = [{"method": name, "published": value} for name, value in PUBLISHED.items() if name not in METHODS]
    return pd.DataFrame(found + missing)


if __name__ == "__main__":
    main()
