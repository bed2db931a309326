"""Measure whether a head trained on some classes of a domain helps with other classes of it, in five domains.

    python benchmarks/heads.py --data ../shared/data --work /tmp/heads

The classes of each domain are divided three times at random. A linear head on a frozen backbone is trained on one part
as `crowdshot train` does, and tested on episodes of four other classes: one, three or five items per class, five
simulated annotators (the paper's mixture for training), 60 episodes, the same for all. Prints the accuracy on queries,
and the time of training. Backbones are `lite0` and, for drawings, the shipped network of characters. ``--work`` keeps
images and embeddings.
"""

import argparse
import time
import zipfile
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd
import torch
from PIL import Image
from sklearn.datasets import load_digits

from crowdshot import METHODS, ClassPool, Job, embedding_cache, load_encoder, train
from crowdshot.encoders.encoder_files import START, fresh_encoder, start_principal
from crowdshot.methods import CrowdEpisodes
from crowdshot.training import encoder_scores, simulated_annotators
from crowdshot.training.episodes import EpisodeShape, draw
from crowdshot.training.pools import pool_of
from crowdshot.training.recipe import Recipe
from crowdshot.training.source_files import find_items

MOST, SPLITS, EPISODES, WAYS, ANNOTATORS = 60, 3, 60, 4, 5
DRAWN = ("Omniglot", "digits")
OWN = {
    "drawn": "glyphs-protonet",
    "photographs": "photo-lite0-protonet",
}  # the encoder that `auto` chooses for such images


@torch.no_grad()
def start_as(module, spec, shipped):
    """Initialise a single linear layer with the head of a shipped encoder on the same backbone.

    The two heads may standardise the features of the backbone differently; the new weights account for it.
    """
    (layer,) = (part for part in module.layers if isinstance(part, torch.nn.Linear))
    body, head = shipped.module.body, shipped.module.head
    mean, std = torch.tensor(spec.mean), torch.tensor(spec.std)
    layer.weight.copy_(head.weight * (std / body.std))
    layer.bias.copy_(head.bias + head.weight @ ((mean - body.mean) / body.std))


def from_zip(file, class_of):
    """Return {class: [(name, bytes)]} of a zip's images."""
    found = {}
    with zipfile.ZipFile(file) as archive:
        for name in sorted(archive.namelist()):
            if name.lower().endswith((".png", ".jpg", ".jpeg")) and (kind := class_of(PurePosixPath(name))) is not None:
                found.setdefault(kind, []).append((PurePosixPath(name).name, archive.read(name)))
    return found


def domains(data):
    """Return {domain: (images by class, number of training classes)}."""
    yield "LabelMe", from_zip(data / "labelme" / "LabelMe.zip", lambda path: path.parent.name), 4
    truth = pd.read_csv(data / "cifar10s" / "truth.csv", dtype=str).set_index("task")
    yield "CIFAR-10S", from_zip(data / "cifar10s" / "images.zip", lambda path: truth["label"].get(path.name)), 5
    characters = from_zip(data / "omniglot" / "images_background.zip", lambda path: "-".join(path.parts[-3:-1]))
    some = np.random.default_rng(0).permutation(sorted(characters))[:80]
    yield "Omniglot", {kind: characters[kind] for kind in some}, 50
    yield "Tiny-ImageNet", from_zip(data / "tiny-imagenet-100" / "images.zip", lambda path: path.parent.name), 80
    digits = load_digits()
    drawn = {}
    for place, (pixels, kind) in enumerate(zip(digits.images, digits.target, strict=True)):
        drawn.setdefault(str(kind), []).append((f"{place}.png", (pixels * 15).astype(np.uint8)))
    yield "digits", drawn, 5


def extracted(folder, images):
    """Write images to files, so that embeddings can be cached by content."""
    paths, classes = [], []
    for kind, found in sorted(images.items()):
        chosen = np.random.default_rng(0).permutation(len(found))[:MOST]
        for name, content in (found[i] for i in sorted(chosen)):
            file = folder / kind.replace("/", "-") / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                if isinstance(content, bytes):
                    file.write_bytes(content)
                else:
                    Image.fromarray(content).save(file)
            paths.append(file)
            classes.append(kind)
    return paths, np.array(classes)


def features_as_source(work, features, classes):
    """Return the pool that `crowdshot train features.npz` uses."""
    np.savez(work / "features.npz", features=features, labels=classes)
    items = find_items(str(work / "features.npz"), None)
    return pool_of(items), items.input


def head(pool, fed, learned_from, seed, shipped=None, rate=1e-5):
    """Train a head as `crowdshot train` does, from principal components or a shipped head.

    Returns (encoder, settings, seconds).
    """
    n = len(learned_from)
    validated = max(2, min(10, round(0.15 * n)))
    ways = max(2, min(16, n - validated))
    order = np.random.default_rng(seed).permutation(learned_from).tolist()
    recipe = Recipe(
        ways=(ways, ways), queries=5, cool_down=0.3, objective="prototypical", pseudo_annotation=False,
        iterations=1_000, validate_every=250, validation_episodes=100, learning_rate=rate, seed=seed,
    )  # fmt: skip
    encoder = fresh_encoder(fed, "mlp", 64, (), min(192, fed.n_features), seed)
    if shipped is None:
        start_principal(encoder.module, pool.take(order[validated:]).all_examples().float(), START["prototypical"])
    else:
        start_as(encoder.module, fed, shipped)
    began = time.monotonic()
    (trained,) = train([Job(encoder, sorted(order[validated:]), sorted(order[:validated]), recipe)], pool)
    settings = {} if shipped is None else shipped.card["labelings"]
    if validated >= encoder_scores.WAYS:
        settings = encoder_scores.best_labelings(encoder_scores.embedded(pool.take(sorted(order[:validated])), trained))
    return trained, settings, time.monotonic() - began


def right(pool, predict):
    """Return the accuracy on queries, by shots."""
    found = []
    for shots in encoder_scores.SHOTS:
        shape = EpisodeShape(
            (WAYS, WAYS), (shots, shots), (ANNOTATORS, ANNOTATORS), queries=10, crowd=simulated_annotators.PAPER_SOURCE
        )
        everyone = torch.ones(EPISODES, len(pool.names), dtype=torch.bool)
        batch = draw(pool, shape, everyone, ~everyone[:, 0], torch.Generator().manual_seed(0))
        found.append(float((predict(batch).argmax(-1) == batch.query_truth).float().mean()))
    return found


def by_learned(batch):
    return METHODS["features"].predict(CrowdEpisodes.of(batch, WAYS), torch.nn.Identity())


def by_labelings(settings):
    return lambda batch: encoder_scores.by_labelings(settings)(batch, WAYS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for domain, images, n_learned in domains(given.data):
        paths, classes = extracted(given.work / domain, images)
        drawn = domain in DRAWN
        own = load_encoder(OWN["drawn" if drawn else "photographs"])
        with embedding_cache(given.work / "cache"):
            shipped = own.embed(paths).numpy()
            backbones = {"lite0": load_encoder("lite0").embed(paths).numpy()}
        if drawn:
            backbones["glyphs-protonet"] = shipped
        names = np.unique(classes)
        for split in range(SPLITS):
            order = np.random.default_rng(split).permutation(len(names))
            learned_from, tested = sorted(order[:n_learned].tolist()), sorted(order[n_learned:].tolist())

            def add(way, scores, seconds=float("nan"), domain=domain, split=split):
                rows.append(
                    {"domain": domain, "way": way, "split": split, "s": seconds} | dict(zip("135", scores, strict=True))
                )

            plain = ClassPool.from_arrays(torch.from_numpy(shipped), classes)
            add("shipped, Labelings", right(plain.take(tested), by_labelings(own.card["labelings"])))
            for name, features in backbones.items():
                pool, fed = features_as_source(given.work, features, classes)
                add(f"{name} as it is, Learned", right(pool.take(tested), by_learned))
                trained, settings, seconds = head(pool, fed, learned_from, split)
                made = encoder_scores.embedded(pool.take(tested), trained)
                add(f"{name}, head, Labelings", right(made, by_labelings(settings)), seconds)
                for rate in (1e-5, 1e-4) if not drawn else ():
                    trained, settings, seconds = head(pool, fed, learned_from, split, own, rate)
                    made = encoder_scores.embedded(pool.take(tested), trained)
                    add(
                        f"{name}, shipped head taught further at {rate:g}", right(made, by_labelings(settings)), seconds
                    )
        table = pd.DataFrame([row for row in rows if row["domain"] == domain])
        print(f"{domain}: {len(names)} classes, {n_learned} learned from", flush=True)
        summary = table.groupby("way", sort=False)[["1", "3", "5", "s"]].agg(["mean", "sem"]).round(3)
        print(summary.to_string(), flush=True)


if __name__ == "__main__":
    main()
