"""List every reader with valid files; readers use what they read as a command would."""

from __future__ import annotations

import json
import shutil
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot import (
    Annotations,
    CrowdClassifier,
    build_encoder,
    embedding_cache,
    load_encoder,
    read_labels,
    save_encoder,
)
from crowdshot._cli import questions
from crowdshot._cli.aggregate import run_aggregate
from crowdshot._cli.inputs import LabelFiles
from crowdshot._cli.judges import run_judges
from crowdshot._cli.labels_report import ReportFolder
from crowdshot._cli.slices import group_labels, run_slices
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.encoders.image_input import ImageInput
from crowdshot.io import table_pieces as streams
from crowdshot.io.embedding_store import remembered
from crowdshot.io.feature_files import features_of, read_feature_file
from crowdshot.io.json_text import to_json
from crowdshot.labels import gold_labels, preferences
from crowdshot.labels.annotator_quality import AnnotatorPriors
from crowdshot.labels.columns import Columns
from crowdshot.labels.formats.label_file import LabelsRead
from crowdshot.labels.formats.regions import read_regions
from crowdshot.labels.formats.writers import WRITERS, to_label_studio
from crowdshot.labels.label_costs import costs_of, count_money
from crowdshot.labels.object_matching import find_objects
from crowdshot.labels.spelling import new_names
from crowdshot.labels.text_files import read_text_items
from crowdshot.labels.working_times import working_table
from crowdshot.model.label_model import SHIPPED, load_network
from crowdshot.report import model_judging, question_overview, subgroup_page
from crowdshot.report.round_comparison import read_round
from crowdshot.service.journal import HEAD, NAME, Journal
from crowdshot.training import loop
from crowdshot.training.source_files import find_items
from crowdshot_paper.store import Store
from torture.sound_files import (
    VECTORS,
    arrays,
    as_file,
    asked,
    checkpoint,
    classifiers,
    dated_table,
    embeddings,
    experiment,
    grouped,
    journal,
    judged,
    long_table,
    picture,
    regions,
    saved,
    tables,
    tools,
    trainer,
    votes,
    zipped,
)

WHOLE = 50  # one of so many inputs


class Reader(NamedTuple):
    name: str
    files: dict[str, bytes]
    read: Callable[[Path], Any]
    beside: Mapping[str, bytes] = MappingProxyType({})  # files that are read too, but stay sound


def _read_labels(path: Path) -> None:
    """Read labels and write them in every format, as `aggregate` does."""
    labels = read_labels(path)
    ann = labels.annotations
    _ = labels.near_duplicates
    table = ann.to_frame().drop_duplicates(ann.columns.item).assign(confidence=0.5)
    json.dumps(to_label_studio(table, labels), allow_nan=False)
    for name in ("csv", "argilla", "cvat", "coco"):
        WRITERS[name](path.with_name("written"), table, labels)


def _read_gold(path: Path) -> None:
    gold = gold_labels.read(path, Columns())
    gold_labels.some_of(gold, np.array(["000.png", "001.png"], dtype=object), source=path)


def _read_features(path: Path) -> None:
    """Read a table of numbers, or one with several kinds of columns."""
    if not path.name.startswith("mixed"):
        assert np.isfinite(np.asarray(read_feature_file(path).features)).all()
    read_feature_file(path, None)
    read_feature_file(path, True)


def _read_source(path: Path) -> None:
    items = find_items(str(path), 16)
    list(items.load(range(len(items.ids))))


def _load_classifier(path: Path) -> None:
    clf = CrowdClassifier.load(path)
    assert np.isfinite(clf.label_proba_).all()
    assert clf.annotators_.shape[0] == clf.annotations_.n_annotators
    _ = clf.consensus_, clf.gold_, clf.confusion_
    if type(clf.encoder_.input) is FeatureInput:
        said = clf.predict_proba(np.zeros((2, len(clf._shift)), np.float32))
        assert np.isfinite(said).all()


def _read_picture(path: Path) -> None:
    list(ImageInput((8, 8), 3).batches([path], 1))


def _read_pieces(path: Path) -> None:
    """Read a table in pieces, as `predict` does."""
    if streams.can_be_cut(path):
        for piece in streams.table_pieces(path):
            features_of(piece.table, mixed=True, repeated=True)


def _open_journal(path: Path) -> None:
    """Open a copy of the journal: it must be refused, or hold exactly the labels that were written."""
    with tempfile.TemporaryDirectory() as folder:
        for name in (NAME, HEAD):
            shutil.copy(path.with_name(name), folder)
        kept = Journal(Path(folder))
        try:
            found = kept.state().labels, kept.history()[-1][2:], kept.fact("address"), kept.last()
        finally:
            kept.close()
    _journal_content.setdefault("sound", found)  # the first one is not damaged
    assert found == _journal_content["sound"], "labels are silently wrong"


_journal_content: dict[str, Any] = {}


def _find_embeddings(path: Path) -> None:
    """Read a damaged cache, which is not an error, but must return the right embeddings."""
    home = path.parent / "maker"
    home.mkdir(exist_ok=True)
    (home / path.name).write_bytes(path.read_bytes())
    with embedding_cache(path.parent):
        keys = list(VECTORS)
        for places, rows in remembered("maker", keys, lambda new: iter([np.stack([VECTORS[keys[i]] for i in new])])):
            for place, row in zip(places, rows, strict=True):
                assert (row == VECTORS[keys[place]]).all()
    for file in home.iterdir():
        file.unlink()


def _read_experiment(path: Path) -> None:
    """Read the files from the places where `Store` expects them."""
    store = Store(path.parent, "main", "omniglot")
    store.pending.mkdir(parents=True, exist_ok=True)
    for file in path.parent.iterdir():
        if file.is_file():
            pending = file.suffix == ".json" or file.name.startswith("split")
            (store.pending if pending else store.folder).joinpath(file.name).write_bytes(file.read_bytes())
    _ = store.times(), store.runs()
    if path.suffix == ".parquet":
        _ = store.rows()
    if _is_chosen(path):
        _ = store.done()


def _read_round(path: Path) -> None:
    read_round(path.parent)


def _rank(path: Path) -> None:
    found = preferences.fit(path, skip_bad=path.name.startswith("loose"))
    assert np.isfinite(found.ranking_[["score", "low", "high"]].to_numpy()).all()
    json.dumps(to_json(found), allow_nan=False)


def _is_chosen(path: Path) -> bool:
    """Return whether to run the whole command with this file: for every fiftieth, because reports take long."""
    return zlib.crc32(path.read_bytes()) % WHOLE == 0


def _joined(labels: LabelFiles) -> LabelsRead:
    """Read labels as a command does, but without looking for options that help where they are refused."""
    return labels.joined(labels.parts())


def _judge(path: Path) -> None:
    """Judge the models of a log, whichever of its four files is damaged."""
    folder = path.parent
    labels = LabelFiles(paths=[folder / "verdicts.jsonl", folder / "people.csv"], gold=folder / "known.csv")
    if not _is_chosen(path):
        costs_of(folder / "costs.csv", _joined(labels).annotations)
        return
    found = run_judges(labels, cost=folder / "costs.csv")
    model_judging.render_models(found)
    json.dumps(to_json(found), allow_nan=False)


def _slice(path: Path) -> None:
    folder = path.parent
    by = ("language", "length", "country")
    labels, items, people = LabelFiles(paths=[folder / "labels.csv"]), folder / "items.csv", folder / "people.csv"
    if not _is_chosen(path):
        read = _joined(labels)
        column = {"items.csv": "length", "people.csv": "country"}.get(path.name, "language")
        group_labels(labels, read.annotations, column, items, people)
        return
    found, _ = run_slices(labels, by, items, people)
    subgroup_page.render_slices(found)
    json.dumps(to_json(found), allow_nan=False)


def _ask(path: Path) -> None:
    columns = {"item": "id"} if path.suffix == ".json" else None
    names = ("animal", "size") if path.name.startswith("wide") else ()
    labels = LabelFiles(paths=[path], columns=columns)
    if not _is_chosen(path):
        for question in questions._parts(labels, names, None).values():
            _joined(question)
        return
    with tempfile.TemporaryDirectory() as folder:
        found = questions.run_questions(labels, Path(folder) / "out", names)
        question_overview.describe_questions(found)
        json.dumps(to_json(found), allow_nan=False)


def _report_times(path: Path) -> None:
    """Report how annotators work, from the times of labels."""
    labels = LabelFiles(paths=[path])
    if not _is_chosen(path):
        read = _joined(labels)
        ann = read.annotations
        working_table(read, ann, _uniform(ann))
        return
    with tempfile.TemporaryDirectory() as folder:
        result, _ = run_aggregate(labels, report=ReportFolder(Path(folder) / "out"))
        json.dumps(to_json(result), allow_nan=False)


def _count_costs(path: Path) -> None:
    """Read costs of annotators, and count the money that is spent."""
    ann = _people(path).annotations
    costs = costs_of(path, ann)
    if not _is_chosen(path):
        count_money(ann, _uniform(ann), np.full(ann.n_annotators, 0.8), costs)
        return
    result, _ = run_aggregate(LabelFiles(paths=[path.parent / "people.csv"]), cost=path)
    json.dumps(to_json(result), allow_nan=False)


def _aggregate_with_gold(path: Path) -> None:
    """Read known labels of some items, and aggregate labels with them."""
    ann = _people(path).annotations
    gold = gold_labels.read(path, ann.columns)
    if not _is_chosen(path):
        gold_labels.some_of(gold, ann.items, source=path)
        gold_labels.hold(gold_labels.join(ann, gold), gold)
        return
    result, _ = run_aggregate(LabelFiles(paths=[path.parent / "people.csv"], gold=path))
    json.dumps(to_json(result), allow_nan=False)


def _uniform(ann: Annotations) -> NDArray[np.float64]:
    return np.full((ann.n_items, ann.n_classes), 1 / ann.n_classes)


def _people(path: Path) -> LabelsRead:
    """Return the sound labels next to a damaged file, which are read once."""
    if "people" not in _sound_labels:
        _sound_labels["people"] = read_labels(path.with_name("people.csv"))
    return _sound_labels["people"]


_sound_labels: dict[str, LabelsRead] = {}
IDS = np.array(["a", "b", "c", "d"])


def readers() -> list[Reader]:
    """Return every reader with valid files."""
    return [*_table_readers(), *_file_readers(), *_command_readers()]


def _features() -> dict[str, Any]:
    return {"ids": IDS, "features": np.eye(4, 3, dtype=np.float32)}


def _table_readers() -> list[Reader]:
    """Return readers of tables."""
    long = long_table()
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
    every = ("csv", "jsonl", "parquet", "xlsx")
    return [
        Reader("labels, long", tables(long, "long", *every, "json"), _read_labels),
        Reader("labels, wide", tables(wide, "wide", *every), _read_labels),
        Reader("labels of tools", tools(), _read_labels),
        Reader("regions", regions(), lambda path: find_objects(read_regions([path]))),
        Reader("gold", tables(gold, "gold", *every), _read_gold),
        Reader(
            "features",
            {
                **tables(numbers, "numbers", *every),
                **tables(mixed, "mixed", *every),
                "packed.npz": arrays(**_features()),
                "plain.npz": arrays(False, **_features()),
            },
            _read_features,
        ),
        Reader("texts", tables(texts, "texts", *every, "json"), read_text_items),
        Reader("new names", tables(names, "names", *every), lambda p: new_names(p, "rename", ("old", "new"), ["cat"])),
        Reader("history", tables(history, "history", *every), AnnotatorPriors.read),
        Reader(
            "rounds",
            {"consensus.csv": as_file(consensus, "csv"), "annotators.csv": as_file(people, "csv")},
            _read_round,
        ),
        Reader("pieces", {**tables(numbers, "numbers", *every), **tables(mixed, "mixed", *every)}, _read_pieces),
    ]


def _file_readers() -> list[Reader]:
    """Return readers of images, archives and saved models."""
    images = np.random.default_rng(1).integers(0, 255, (4, 9, 9), dtype=np.uint8)
    packed = {f"{cls}/{i}.png": picture(seed=i) for cls in ("cat", "dog") for i in range(2)}
    return [
        Reader(
            "training data",
            {
                "images.zip": zipped(packed),
                "images.npz": arrays(images=images, labels=IDS),
                "features.npz": arrays(**_features()),
            },
            _read_source,
        ),
        Reader(
            "pictures",
            {f"a.{kind}": picture(kind) for kind in ("png", "jpeg", "gif", "webp", "bmp", "tiff")}
            | {"palette.png": picture("png", "P"), "grey.png": picture("png", "LA")},
            _read_picture,
        ),
        Reader("classifiers", classifiers(), _load_classifier),
        Reader(
            "encoders",
            {
                "mlp.safetensors": saved(
                    lambda path: save_encoder(build_encoder("mlp", {"n_features": 3}, FeatureInput(3)), path)
                )
            },
            load_encoder,
        ),
        Reader("checkpoints", checkpoint(), lambda path: loop.load_checkpoint(path, trainer())),
        Reader("journal", journal(), _open_journal),
        Reader("kept embeddings", embeddings(), _find_embeddings),
        Reader("experiments", experiment(), _read_experiment),
        Reader("inference", {"inference.safetensors": SHIPPED.read_bytes()}, load_network),
    ]


def _command_readers() -> list[Reader]:
    """Return commands that combine several files, or read a kind of their own."""
    people = {"people.csv": as_file(long_table(), "csv")}
    costs = pd.DataFrame({"annotator": ["ann0", "ann1", "others"], "cost": [0.5, 0.25, 1]})
    gold = pd.DataFrame({"item": ["000.png", "001.png", "003.png"], "truth": ["cat", "dog", "owl"]})
    every = ("csv", "jsonl", "parquet", "xlsx")
    return [
        Reader(
            "comparisons", tables(votes(), "votes", *every, "json") | tables(votes(), "loose", "csv", "jsonl"), _rank
        ),
        Reader("models judged", judged(), _judge),
        Reader("groups", grouped(), _slice),
        Reader("questions", asked(), _ask),
        Reader("label times", tables(dated_table(), "dated", *every), _report_times),
        Reader("costs", tables(costs, "costs", *every), _count_costs, people),
        Reader("known labels", tables(gold, "gold", *every), _aggregate_with_gold, people),
    ]
