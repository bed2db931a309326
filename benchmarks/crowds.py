"""Load all real crowds with known truth; other benchmarks measure on them and learn from them.

    python benchmarks/crowds.py --data ../shared/data                        # prints their sizes
    python benchmarks/crowds.py --data ../shared/data --out runs/projects    # writes each as a project

A project is a folder with ``answers.csv`` (item, annotator, label) and ``truth.csv`` (item, truth; only items whose
truth is known). A method that learns from some crowds and is measured on another must not learn from the RELATIVES of
that crowd, which share items or annotators with it.
"""

import argparse
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot import Annotations

RELATIVES = (
    frozenset({"ZC_all", "ZC_in", "ZC_us"}),
    frozenset({"fact_eval", "fej2013"}),
    frozenset({"SP_amt", "sentence-polarity"}),
    frozenset({"sentiment", "mozafari"}),  # may share tweets
)
UNKNOWN, UNNAMED = -1, -2  # in place of a true class: unknown; not among the classes that were named


class Crowd(NamedTuple):
    """A crowd; ``truth`` has the true class of each item of ``annotations.items``, NaN if unknown."""

    annotations: Annotations
    truth: pd.Series

    def true_classes(self) -> NDArray[np.int64]:
        """Return (N,) positions in ``annotations.classes``, UNKNOWN, or UNNAMED for other classes."""
        found = pd.Index(self.annotations.classes).get_indexer(pd.Index(self.truth.to_numpy()))
        found[found < 0] = UNNAMED
        found[self.truth.isna().to_numpy()] = UNKNOWN
        return found


def relatives(name: str) -> frozenset[str]:
    """Return the crowds, including this one, that a method must not learn from if it is measured on this one."""
    return next((family for family in RELATIVES if name in family), frozenset({name}))


def thinned(annotations: Annotations, per_item: int, seed: int) -> Annotations:
    """Keep at most so many random labels per item, and only items, annotators and classes that still have labels."""
    shuffled = np.random.default_rng(seed).permutation(len(annotations))
    turn = pd.Series(annotations.item[shuffled]).groupby(annotations.item[shuffled]).cumcount().to_numpy()
    kept = np.zeros(len(annotations), dtype=bool)
    kept[shuffled[turn < per_item]] = True
    return Annotations.from_frame(annotations.keep(kept).to_frame(), items=annotations.items)


# ---- reading ----


def names(data: Path) -> list[str]:
    """Return the names of all crowds in the data folder; those with features or images come last."""
    alone = sorted(path.name.removesuffix(".answers.csv") for path in (data / "truth-inference").glob("*.answers.csv"))
    return [*alone, "sentence-polarity", "leaves", "labelme", "cifar10s", "cifar10h"]


def load(data: Path, name: str) -> Crowd:
    if name == "labelme":
        return _labelme(data / name / "LabelMe.zip")
    if name == "cifar10s":
        return _crowd(pd.read_csv(data / name / "annotations.csv"), pd.read_csv(data / name / "truth.csv"))
    if name == "cifar10h":
        table = pd.read_csv(data / name / "cifar10h-raw.zip")
        answers = table[["cifar10_test_test_idx", "annotator_id", "chosen_category"]]
        return _crowd(answers, table[["cifar10_test_test_idx", "true_category"]].drop_duplicates())
    start = f"{name}/" if (data / name).is_dir() else f"truth-inference/{name}."
    answers, truth = (pd.read_csv(data / f"{start}{table}.csv") for table in ("answers", "truth"))
    return _crowd(answers, truth.iloc[:, :2])


def load_all(data: Path) -> Iterator[tuple[str, Crowd]]:
    for name in names(data):
        yield name, load(data, name)


def _labelme(path: Path) -> Crowd:
    """Read LabelMe; an item is an image's position in the archive's list."""
    with zipfile.ZipFile(path) as archive:
        answers, truth = (
            np.loadtxt(io.BytesIO(archive.read(f"LabelMe/{name}.txt")), dtype=int)
            for name in ("answers", "labels_train")
        )
    item, annotator = np.nonzero(answers >= 0)
    said = pd.DataFrame({"item": item, "annotator": annotator, "label": answers[item, annotator]})
    return _crowd(said, pd.DataFrame({"item": np.arange(len(truth)), "truth": truth}))


def _crowd(answers: pd.DataFrame, truth: pd.DataFrame) -> Crowd:
    answers = answers.set_axis(["item", "annotator", "label"], axis=1)
    annotations = Annotations.from_frame(answers.drop_duplicates(["item", "annotator"], keep="last"))
    known = truth.set_axis(["item", "truth"], axis=1).set_index("item")["truth"]
    return Crowd(annotations, known.reindex(pd.Index(annotations.items, name="item")))


# ---- writing ----


def write(crowd: Crowd, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    known = crowd.truth.dropna()
    if pd.api.types.is_float_dtype(known):  # integers that became floats because some are missing
        known = known.astype(int)
    crowd.annotations.to_frame().to_csv(folder / "answers.csv", index=False)
    known.to_csv(folder / "truth.csv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    for name, crowd in load_all(options.data):
        print(f"{name:18} {crowd.truth.notna().sum():6,} truths  {crowd.annotations}")
        if options.out:
            write(crowd, options.out / name)


if __name__ == "__main__":
    main()
