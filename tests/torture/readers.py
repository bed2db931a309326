"""Every reader, with sound files for it to begin with. What it reads is used as a command would use it."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from PIL import Image

from crowdshot import CrowdClassifier, build_encoder, load_encoder, read_labels, save_encoder
from crowdshot.encoders.features import FeatureInput
from crowdshot.encoders.images import ImageInput
from crowdshot.encoders.source_items import find_items
from crowdshot.files.features import read_feature_file
from crowdshot.labels import known_truth
from crowdshot.labels.annotator_priors import AnnotatorPriors
from crowdshot.labels.columns import Columns
from crowdshot.labels.formats.write import WRITERS, to_label_studio
from crowdshot.labels.spelling import new_names
from crowdshot.labels.texts import read_text_items
from crowdshot.model.network_file import SHIPPED, load_network
from crowdshot.report.compare import read_round
from label_exports import ARGILLA, JUDGES, TOLOKA, answer, batch, image, job, lines

FIXTURES = Path(__file__).parents[1] / "fixtures"


class Reader(NamedTuple):
    name: str
    files: dict[str, bytes]
    read: Callable[[Path], Any]


# ---- sound files --------------------------------------------------------------------------------------------------


def _long() -> pd.DataFrame:
    said = ["cat cat dog", "cat dog dog", "dog dog dog", "owl cat owl", "cat cat cat"]
    rows = [(f"{i:03}.png", f"ann{a}", label) for i, row in enumerate(said) for a, label in enumerate(row.split())]
    return pd.DataFrame(rows, columns=["item", "annotator", "label"])


def _as(table: pd.DataFrame, ending: str) -> bytes:
    if ending == "csv":
        return table.to_csv(index=False).encode()
    if ending == "jsonl":
        return table.to_json(orient="records", lines=True).encode()
    if ending == "json":
        return table.to_json(orient="records").encode()
    held = io.BytesIO()
    table.to_parquet(held) if ending == "parquet" else table.to_excel(held, index=False)
    return held.getvalue()


def _tables(table: pd.DataFrame, stem: str, *endings: str) -> dict[str, bytes]:
    return {f"{stem}.{ending}": _as(table, ending) for ending in endings}


def _zip(parts: dict[str, bytes | str]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return held.getvalue()


def _npz(packed: bool = True, **arrays: Any) -> bytes:
    held = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(held, **arrays)
    return held.getvalue()


def _picture(ending: str = "png", mode: str = "RGB", seed: int = 0) -> bytes:
    held = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(held, ending)
    return held.getvalue()


def _saved(save: Callable[[Path], None]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder) / "saved.safetensors")
        return (Path(folder) / "saved.safetensors").read_bytes()


@cache
def _classifiers() -> dict[str, bytes]:
    x = np.random.default_rng(0).normal(size=(5, 3)) + np.array([0, 0, 3, 0, 0])[:, None]
    texts = ["a cat sat", "the cat ran", "dogs bark loud", "one cat more", "some cats"]
    table = pd.DataFrame({"size": [1.0, 2, 9, 1, 1.5], "colour": ["red", "red", "blue", "red", "blue"]})
    labels = [["cat", "cat", None], ["cat", "dog", "cat"], ["dog", "dog", "dog"], ["cat", None, "dog"], ["dog"] * 3]
    wanted: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "learned": ("identity", x, {}),
        "ours": ("identity", x, {"method": "ours", "covariance": "full"}),
        "labelings": ("identity", x, {"method": "labelings"}),
        "both": ("identity", x, {"method": "both"}),
        "lrds": ("identity", x, {"method": "lrds"}),
        "texts": ("texts", texts, {}),
        "table": ("table", table, {}),
        "mlp": (build_encoder("mlp", {"n_features": 3, "hidden": [4], "n_out": 3}, FeatureInput(3)), x, {}),
    }
    return {
        f"{name}.safetensors": _saved(
            CrowdClassifier(encoder, **options).fit(items, labels, gold={0: "cat"}, priors={1: (5, 1)}).save
        )
        for name, (encoder, items, options) in wanted.items()
    } | {
        f"{name}.safetensors": (FIXTURES / f"{name}.safetensors").read_bytes() for name in ("ours-0.1.0", "lrds-0.1.0")
    }


# ---- readers ------------------------------------------------------------------------------------------------------


def _read_labels(path: Path) -> None:
    """As `aggregate` does: what was read is written in every format too."""
    labels = read_labels(path)
    ann = labels.annotations
    _ = labels.near_twins
    table = ann.to_frame().drop_duplicates(ann.columns.item).assign(confidence=0.5)
    json.dumps(to_label_studio(table, labels), allow_nan=False)
    for name in ("csv", "argilla", "cvat", "coco"):
        WRITERS[name](path.with_name("written"), table, labels)


def _read_gold(path: Path) -> None:
    gold = known_truth.read(path, Columns())
    known_truth.some_of(gold, np.array(["000.png", "001.png"], dtype=object), source=path)


def _read_features(path: Path) -> None:
    """As a table of numbers, or else of several kinds."""
    if not path.name.startswith("mixed"):
        assert np.isfinite(read_feature_file(path).features).all()
    read_feature_file(path, None)
    read_feature_file(path, True)


def _read_source(path: Path) -> None:
    items = find_items(str(path), 16)
    list(items.load(range(len(items.ids))))


def _load_classifier(path: Path) -> None:
    clf = CrowdClassifier.load(path)
    assert np.isfinite(clf.belief_).all()
    assert clf.annotators_.shape[0] == clf.annotations_.n_annotators
    _ = clf.consensus_, clf.gold_, clf.confusion_
    if type(clf.encoder_.input) is FeatureInput:
        said = clf.predict_proba(np.zeros((2, len(clf.shift_)), np.float32))
        assert np.isfinite(said).all()


def _read_picture(path: Path) -> None:
    list(ImageInput((8, 8), 3).batches([path], 1))


def _read_round(path: Path) -> None:
    read_round(path.parent)


def readers() -> list[Reader]:
    long = _long()
    wide = long.pivot(index="item", columns="annotator", values="label").reset_index()
    gold = pd.DataFrame({"item": ["000.png", "001.png", "002.png"], "truth": ["cat", "dog", "dog"]})
    numbers = pd.DataFrame({"item": ["a", "b", "c"], "f1": [0.5, 1, 2], "f2": [1, 2, 3.25]})
    mixed = numbers.assign(colour=["red", None, "blue"])
    texts = pd.DataFrame({"item": ["a", "b"], "text": ["one cat", "two dogs"]})
    names = pd.DataFrame({"old": ["cat", "dog"], "new": ["Cat", ""]})
    history = pd.DataFrame({"annotator": ["ann0", "ann1"], "right": [12, 3.5], "wrong": [1, 0]})
    consensus = pd.DataFrame(
        {
            "item": ["a", "b"],
            "label": ["cat", "dog"],
            "confidence": [0.9, 0.5],
            "n_labels": [3, 2],
            "agreement": [1, 0.5],
        }
    )
    people = pd.DataFrame(
        {"annotator": ["x"], "n_labels": [5], "accuracy": [0.8], "low": [0.5], "high": [0.9], "most_confused": [""]}
    )
    ids, images = np.array(["a", "b", "c", "d"]), np.random.default_rng(1).integers(0, 255, (4, 9, 9), dtype=np.uint8)
    features = {"ids": ids, "features": np.eye(4, 3, dtype=np.float32)}
    cvat = job(image("1.png", "cat") + image("2.png", "dog") + image("3.png"), "ann")
    studio = {
        f"studio-{path.name}": path.read_bytes() for path in sorted((FIXTURES / "label_studio").glob("export*.*"))
    }
    prodigy = [answer("1.png", "a", accept=["x"]), answer("2.png", "b", "reject", accept=[])]
    mturk = batch(("H1", "A1", "W1", "Approved", "", "1.png", "cat", "", ""))
    every = ("csv", "jsonl", "parquet", "xlsx")
    tools = {
        **studio,
        "argilla.json": json.dumps(ARGILLA).encode(),
        "argilla.parquet": _as(pd.DataFrame(ARGILLA), "parquet"),
        "prodigy.jsonl": lines(prodigy).encode(),
        "judges.jsonl": lines(JUDGES).encode(),
        "toloka.tsv": TOLOKA.encode(),
        "mturk.csv": mturk.encode(),
        "cvat.xml": cvat.encode(),
        "cvat.zip": _zip({"annotations.xml": cvat}),
    }
    packed = {f"{cls}/{i}.png": _picture(seed=i) for cls in ("cat", "dog") for i in range(2)}
    return [
        Reader("labels, long", _tables(long, "long", *every, "json"), _read_labels),
        Reader("labels, wide", _tables(wide, "wide", *every), _read_labels),
        Reader("labels of tools", tools, _read_labels),
        Reader("gold", _tables(gold, "gold", *every), _read_gold),
        Reader(
            "features",
            {
                **_tables(numbers, "numbers", *every),
                **_tables(mixed, "mixed", *every),
                "packed.npz": _npz(**features),
                "plain.npz": _npz(False, **features),
            },
            _read_features,
        ),
        Reader("texts", _tables(texts, "texts", *every, "json"), read_text_items),
        Reader("new names", _tables(names, "names", *every), lambda p: new_names(p, "rename", ("old", "new"), ["cat"])),
        Reader("history", _tables(history, "history", *every), AnnotatorPriors.read),
        Reader("rounds", {"consensus.csv": _as(consensus, "csv"), "annotators.csv": _as(people, "csv")}, _read_round),
        Reader(
            "training data",
            {
                "images.zip": _zip(packed),
                "images.npz": _npz(images=images, labels=ids),
                "features.npz": _npz(**features),
            },
            _read_source,
        ),
        Reader(
            "pictures",
            {f"a.{kind}": _picture(kind) for kind in ("png", "jpeg", "gif", "webp", "bmp", "tiff")}
            | {"palette.png": _picture("png", "P"), "grey.png": _picture("png", "LA")},
            _read_picture,
        ),
        Reader("classifiers", _classifiers(), _load_classifier),
        Reader(
            "encoders",
            {
                "mlp.safetensors": _saved(
                    lambda path: save_encoder(build_encoder("mlp", {"n_features": 3}, FeatureInput(3)), path)
                )
            },
            load_encoder,
        ),
        Reader("inference", {"inference.safetensors": SHIPPED.read_bytes()}, load_network),
    ]
