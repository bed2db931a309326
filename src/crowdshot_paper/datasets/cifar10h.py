"""CIFAR-10H: Peterson et al., Human uncertainty makes classification more robust, 2019.

Each of 2,571 annotators labelled 200 of CIFAR-10's test images, nearly always correctly. The paper keeps the 25
annotators of lowest accuracy, as Chu & Wang (2021) do. Accuracy is computed over all answers in the file except
attention checks. Ties are broken by the number of answers (0 of 15 is worse than 0 of 7), then by the annotator's
number. In the complete file everyone has 200 answers. In a part of it annotators have fewer, and the 25 differ from the
paper's.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from crowdshot.encoders.image_input import ImageInput, image_batches
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import shown
from crowdshot.io.downloads import Download
from crowdshot.io.tables import parse_table
from crowdshot.labels.annotations import Annotations
from crowdshot.training.pools import ClassPool, answers_of, count_labels, paths_of, pool_of
from crowdshot.training.source_files import AT_ONCE, SourceItems, find_items
from crowdshot_paper.datasets.dataset_files import COLOUR, Loader, Part, column, member, whole_numbers

# ---- CIFAR-10's test images: Krizhevsky, Learning multiple layers of features from tiny images, 2009 ----
#
# Two crowds labelled them (`cifar10h`, `cifar10s`). The images are read from the official binary version or from image
# files. The ID of an image is its position in the test set, as five digits. The pickled version is not read, because a
# pickle can run any program.

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
N_IMAGES = 10_000
BATCH = "test_batch.bin"
FOLDER = "cifar-10-batches-bin"
RECORD = 1 + 3 * 32 * 32  # bytes: the class, then the red, green and blue pixels
CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"

IMAGES = Part(
    ("images.zip", "images", "cifar-10-binary.tar.gz", FOLDER),
    f"get {CIFAR10_URL}",
    Download(CIFAR10_URL, "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
)


def find_test_images(path: Path) -> SourceItems:
    """Read the images at one of ``IMAGES.names``, and their classes unless they are image files without folders."""
    if path.name == FOLDER:
        return _from_batch(path / BATCH, _read(path / BATCH))
    if path.name.endswith(".tar.gz"):
        return _from_batch(path, _unpack(path))
    return find_items(str(path), COLOUR.size[0])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CrowdshotError(f"could not be read ({error.strerror})", where=shown(path)) from None


def _unpack(path: Path) -> bytes:
    """Read the file of the test images from the archive, without unpacking it to disk."""
    try:
        with tarfile.open(path) as archive:
            file = archive.extractfile(f"{FOLDER}/{BATCH}")
            return b"" if file is None else file.read()
    except (tarfile.TarError, KeyError, EOFError, OSError, zlib.error) as error:
        expected = "the archive cifar-10-binary.tar.gz"
        message = f"is damaged or not CIFAR-10 ({error})"
        raise CrowdshotError(message, where=shown(path), expected=expected) from None


def _from_batch(path: Path, data: bytes) -> SourceItems:
    if not data or len(data) % RECORD:
        message, expected = f"has {len(data):,} bytes", f"a multiple of {RECORD:,}, the bytes of an image"
        raise CrowdshotError(message, where=f"{shown(path)}: {BATCH}", found=len(data), expected=expected)
    records = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, RECORD)
    pixels = records[:, 1:].view(-1, 3, 32, 32)
    if records[:, 0].max() >= len(CLASSES):
        found = int(records[:, 0].max())
        raise CrowdshotError(f"has class {found}", where=f"{shown(path)}: {BATCH}", found=found, expected="0 to 9")

    def load(wanted: Sequence[int]) -> Iterator[Tensor]:
        for batch in image_batches(pixels[np.asarray(wanted)], ImageInput(COLOUR.size, 3), AT_ONCE):
            yield (batch * 255).round().to(torch.uint8)

    ids = [PurePosixPath(f"{i:05d}.png") for i in range(len(records))]
    return SourceItems(ids, [CLASSES[i] for i in records[:, 0].tolist()], COLOUR, load)


# ---- the labels of CIFAR-10H ----

N_ANNOTATORS = 25
FILE = "cifar10h-raw.csv"
URL = "https://github.com/jcpeterson/cifar-10h/raw/master/data/cifar10h-raw.zip"


def read(paths: Sequence[Path]) -> ClassPool:
    """Read all images, and the labels of the 25 annotators of lowest accuracy, the lowest first.

    Images without a label of these annotators have labels of -1. Answers for images that are missing count for the
    accuracy of annotators only.
    """
    labels, images = paths
    table = read_answers(labels)
    items = find_test_images(images)
    if items.classes is None:
        raise CrowdshotError("has no folders", where=shown(images), expected="one folder per class")
    class_of = {file.stem: name for file, name in zip(paths_of(items), items.classes, strict=True)}
    chosen = least_accurate(table, N_ANNOTATORS)
    known = table[table["annotator"].isin(chosen) & table["item"].isin(list(class_of))]
    if len(known) == 0:
        message = f"has no label by its {len(chosen)} annotators of lowest accuracy for any image in {shown(images)}"
        raise CrowdshotError(message, where=shown(labels))
    wrong = known["truth"] != known["item"].map(class_of)
    if wrong.any():
        item, truth = known.loc[wrong.idxmax(), ["item", "truth"]]
        message, expected = f"has class {truth} for image {item}", f"{class_of[item]} as in {shown(images)}"
        raise CrowdshotError(message, where=shown(labels), found=truth, expected=expected)
    annotations = Annotations.from_frame(known, annotators=chosen, duplicates="first", source=shown(labels))
    return pool_of(items, answers_of(annotations, items, shown(labels)))


def read_answers(path: Path) -> pd.DataFrame:
    """Return item (five digits), annotator (a number), truth and label (names), without attention checks."""
    table = parse_table(member(path, FILE), shown(path))
    item = whole_numbers(table, "cifar10_test_test_idx")
    answers = pd.DataFrame(
        {
            "item": [f"{i:05d}" for i in item],
            "annotator": whole_numbers(table, "annotator_id"),
            "truth": column(table, "true_category"),
            "label": column(table, "chosen_category"),
        }
    )
    return answers[item >= 0]  # attention checks have a large negative number


def least_accurate(answers: pd.DataFrame, n: int) -> list[int]:
    """Return the n annotators of lowest accuracy, the lowest first."""
    right = (answers["truth"] == answers["label"]).groupby(answers["annotator"]).agg(["mean", "size"])
    order = np.lexsort((right.index, -right["size"], right["mean"]))
    return [int(annotator) for annotator in right.index[order[:n]]]


def note(pool: ClassPool) -> str:
    n_labels, n_right = count_labels(pool)
    n_images = int(pool.counts.sum())
    assert pool.crowd_labels is not None
    n_annotators = pool.crowd_labels.shape[2]
    crowd = f"{n_labels:,} labels ({n_right / n_labels:.0%} right) of the {n_annotators} annotators of lowest accuracy"
    if n_images >= N_IMAGES:
        return f"CIFAR-10H, {n_images:,} images resized to 84×84, with {crowd}, as in the paper."
    n_labelled = int((pool.crowd_labels >= 0).any(2).sum())
    return (
        f"A part of CIFAR-10H, {n_images:,} of its {N_IMAGES:,} images resized to 84×84, with {crowd}, who "
        f"labelled {n_labelled} images, {n_labels / n_annotators:.1f} each (200 each in the paper)."
    )


LOADER = Loader(
    folder="cifar10h",
    parts=(
        Part(
            (FILE, "cifar10h-raw.zip", "cifar10h-raw"),
            f"get {URL}",
            Download(URL, "sha256:4b0283f9b2ae72a616eeb4a2a38474cc2a238eb041bfb8df5ead3a8a47f35aa3"),
        ),
        IMAGES,
    ),
    input=COLOUR,
    read=read,
    note=note,
)
