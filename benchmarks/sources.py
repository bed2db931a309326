"""Load items as feature vectors with their true classes, and labels of real people, for `reality.py`."""

import io
import zipfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import crowds
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn import datasets

from crowdshot.encoders.encoder_files import load_encoder
from crowdshot.io.atomic import replacing

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]
Read = Callable[[str], Image.Image]


class Source(NamedTuple):
    """Items; ``answers`` is a table with item (a row of features), annotator, label, or None for simulated annotators.

    Items from ``n_labelled`` on have no labels and are only used as unseen items.
    """

    features: Floats
    truth: Positions
    answers: pd.DataFrame | None = None
    n_labelled: int | None = None


@cache
def load(name: str, data: Path, keep: Path) -> Source:
    if name in MADE:
        return made(*MADE[name])
    if name in SCIKIT_LEARN:
        bunch = SCIKIT_LEARN[name]()
        return Source(bunch.data.astype(float), bunch.target.astype(np.int64))
    if name == "leaves":
        table = pd.read_csv(data / "leaves" / "features.csv").set_index("item")
        return _with_crowd(crowds.load(data, name), lambda items: table.loc[items].to_numpy())
    return _pictures(name, data, keep) if name.split(":")[0] in PICTURES else _images(name, data, keep)


def _with_crowd(crowd: crowds.Crowd, features_of: Callable[[Sequence[object]], Floats]) -> Source:
    said = crowd.annotations
    answers = pd.DataFrame({"item": said.item, "annotator": said.annotator, "label": said.label})
    return Source(features_of(said.items), crowd.true_classes(), answers)


# ---- made, and scikit-learn's ----

SCIKIT_LEARN = {"digits": datasets.load_digits, "wine": datasets.load_wine, "cancer": datasets.load_breast_cancer}
MADE = {"made": (20, 512, 7.0), "made50": (50, 128, 5.0)}  # classes, features, distance of class means from the centre
MADE_ITEMS, FACTORS, FACTORS_SHARE = 80, 10, 0.2


def made(K: int, D: int, far: float) -> Source:
    """Draw Gaussian classes with common factors, which are uninformative."""
    random = np.random.default_rng(K)
    truth = np.arange(K).repeat(MADE_ITEMS)
    means = random.normal(size=(K, D)) * far / np.sqrt(D)
    factors = random.normal(size=(len(truth), FACTORS)) @ random.normal(size=(FACTORS, D))
    noise = random.normal(size=(len(truth), D)) + factors * np.sqrt(FACTORS_SHARE / FACTORS)
    return Source(means[truth] + noise, truth)


# ---- images ----


def _images(name: str, data: Path, keep: Path) -> Source:
    """Embed the images of a crowd with an encoder, ``name`` "crowd:encoder", and cache the result."""
    crowd_name, encoder = name.split(":")
    crowd = crowds.load(data, crowd_name)
    with zipfile.ZipFile(data / crowd_name / ARCHIVES[crowd_name]) as archive:
        paths = PATHS[crowd_name](archive, crowd)
        features = _kept(keep / f"{crowd_name}-{encoder}.npz", lambda: _embed(_opened(archive, paths), encoder))
    source = _with_crowd(crowd, lambda items: features)
    if crowd_name != "labelme":
        return source
    others = [LABELME_CLASSES.index(path.split("/")[-2]) for path in paths[len(source.truth) :]]
    return source._replace(truth=np.concatenate([source.truth, others]), n_labelled=len(source.truth))


def _kept(path: Path, make: Callable[[], Floats]) -> Floats:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, features=make())
    return np.load(path)["features"].astype(float)


def _opened(archive: zipfile.ZipFile, paths: Sequence[str]) -> list[Image.Image]:
    return [Image.open(io.BytesIO(archive.read(path))) for path in paths]


def _embed(images: Sequence[Image.Image], encoder: str) -> Floats:
    """Embed images; encoders of characters get grey images."""
    mode = "L" if encoder.startswith("glyphs") else "RGB"
    return load_encoder(encoder).embed([image.convert(mode) for image in images]).numpy()


def _pictures(name: str, data: Path, keep: Path) -> Source:
    """Load images for simulated annotators; ``name`` as for `_images`."""
    source, encoder = name.split(":")
    images, truth = PICTURES[source](data)
    return Source(_kept(keep / f"{source}-{encoder}.npz", lambda: _embed(images, encoder)), truth)


def _digits(data: Path) -> tuple[list[Image.Image], Positions]:
    bunch = datasets.load_digits()
    return [Image.fromarray((x * 15.9).astype(np.uint8)) for x in bunch.images], bunch.target.astype(np.int64)


def _omniglot(data: Path, K: int) -> tuple[list[Image.Image], Positions]:
    """Load K characters of alphabets that no shipped encoder was trained on, with twenty images each."""
    with zipfile.ZipFile(data / "omniglot" / "images_evaluation.zip") as archive:
        paths = sorted(path for path in archive.namelist() if path.endswith(".png"))
        characters = sorted({path.rsplit("/", 1)[0] for path in paths})
        chosen = [characters[i] for i in np.linspace(0, len(characters) - 1, K).round().astype(int)]
        kept = [path for path in paths if path.rsplit("/", 1)[0] in set(chosen)]
        truth = np.array([chosen.index(path.rsplit("/", 1)[0]) for path in kept])
        return [image.convert("L") for image in _opened(archive, kept)], truth


def _tiny(data: Path, each: int = 40) -> tuple[list[Image.Image], Positions]:
    """Load the classes of Tiny-ImageNet-100 on which ``photo-lite0-protonet`` was neither trained nor validated."""
    source = load_encoder("photo-lite0-protonet").card
    with zipfile.ZipFile(data / "tiny-imagenet-100" / "images.zip") as archive:
        paths = sorted(path for path in archive.namelist() if path.endswith(".JPEG"))
        names = sorted({path.split("/")[0] for path in paths})
        order = torch.randperm(len(names), generator=torch.Generator().manual_seed(source["recipe"]["seed"])).tolist()
        first, many = source["source"]["validated_on"], source["source"]["tested_on"]
        left = [names[i] for i in sorted(order[first : first + many])]
        kept = [path for name in left for path in [one for one in paths if one.startswith(name)][:each]]
        return _opened(archive, kept), np.arange(many).repeat(each)


def _textures(data: Path, each: int = 120) -> tuple[list[Image.Image], Positions]:
    """Draw eight kinds of grey textures: thin and broad stripes, checks, dots, rings, noise of three grain sizes."""
    random = np.random.default_rng(0)
    truth = np.arange(8).repeat(each)
    return [Image.fromarray(_texture(k, random)) for k in truth], truth


def _texture(kind: int, random: np.random.Generator, size: int = 64) -> NDArray[np.uint8]:
    y, x = np.mgrid[:size, :size] / size
    turn, shift = random.uniform(0, np.pi), random.uniform(0, 2 * np.pi, 2)
    along, across = x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)
    near, far = (2 * np.pi * random.uniform(*bounds) for bounds in ((9, 13), (3, 5)))
    waves = np.sin(far * along + shift[0]), np.sin(far * across + shift[1])
    if kind == 0:
        value = np.sin(near * along + shift[0])
    elif kind == 1:
        value = waves[0]
    elif kind == 2:
        value = np.sign(waves[0] * waves[1])
    elif kind == 3:
        value = 2.0 * (waves[0] + waves[1] > 1.2) - 1
    elif kind == 4:
        value = np.sin(near * np.hypot(x - random.uniform(0, 1), y - random.uniform(0, 1)))
    else:
        grain = (2, 4, 8)[kind - 5]
        coarse = random.normal(size=(size // grain, size // grain))
        value = np.kron(coarse, np.ones((grain, grain))) / 2
    value = value * random.uniform(0.5, 1) + random.normal(size=value.shape) * 0.3
    return ((value.clip(-1.5, 1.5) + 1.5) * 85).astype(np.uint8)


PICTURES = {
    "digits": _digits,
    "omniglot10": partial(_omniglot, K=10),
    "omniglot50": partial(_omniglot, K=50),
    "textures": _textures,
    "tiny20": _tiny,
}


def _labelme_paths(archive: zipfile.ZipFile, crowd: crowds.Crowd) -> list[str]:
    """Return the paths of labelled images, in the order of the crowd's items, then of the validation images."""
    listed = archive.read("LabelMe/filenames_train.txt").decode().split()
    inside = {path.split("/")[-1]: path for path in archive.namelist() if "/train/" in path}
    valid = sorted(path for path in archive.namelist() if "/valid/" in path and path.endswith(".jpg"))
    return [inside[listed[item]] for item in crowd.annotations.items] + valid


def _cifar10s_paths(archive: zipfile.ZipFile, crowd: crowds.Crowd) -> list[str]:
    return list(crowd.annotations.items)


def _cifar10h_paths(archive: zipfile.ZipFile, crowd: crowds.Crowd) -> list[str]:
    return [f"{truth}/{item:05}.png" for item, truth in crowd.truth.items()]


LABELME_CLASSES = ("highway", "insidecity", "tallbuilding", "street", "forest", "coast", "mountain", "opencountry")
ARCHIVES = {"labelme": "LabelMe.zip", "cifar10s": "images.zip", "cifar10h": "images.zip"}
PATHS = {"labelme": _labelme_paths, "cifar10s": _cifar10s_paths, "cifar10h": _cifar10h_paths}
