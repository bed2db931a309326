"""Make valid files of every kind, as input for mutations."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from crowdshot import CrowdClassifier, build_encoder, embedding_cache
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.io.embedding_store import KEY_SIZE, remembered
from crowdshot.service.journal import HEAD, NAME, Answer, Journal
from crowdshot.training import loop
from crowdshot.training.distributed import Processes
from crowdshot.training.trainer import Trainer
from crowdshot_paper.store import COLUMNS, Piece, Store
from label_exports import (
    ARGILLA,
    BOXES,
    COCO,
    DOCCANO,
    DOCCANO_INTENTS,
    DOCCANO_OLD,
    JUDGES,
    LABELBOX,
    LANGFUSE,
    PHOENIX,
    POTATO,
    POTATO_STATE,
    SPANS,
    STUDIO_REGIONS,
    TOLOKA,
    ZOONIVERSE,
    answer,
    batch,
    image,
    job,
    lines,
)
from pools import feature_pool, make_job, mlp

FIXTURES = Path(__file__).parents[1] / "fixtures"


def long_table() -> pd.DataFrame:
    said = ["cat cat dog", "cat dog dog", "dog dog dog", "owl cat owl", "cat cat cat"]
    rows = [(f"{i:03}.png", f"ann{a}", label) for i, row in enumerate(said) for a, label in enumerate(row.split())]
    return pd.DataFrame(rows, columns=["item", "annotator", "label"])


def as_file(table: pd.DataFrame, ending: str) -> bytes:
    if ending == "csv":
        return table.to_csv(index=False).encode()
    if ending == "jsonl":
        return table.to_json(orient="records", lines=True).encode()
    if ending == "json":
        return table.to_json(orient="records").encode()
    held = io.BytesIO()
    table.to_parquet(held) if ending == "parquet" else table.to_excel(held, index=False)
    return held.getvalue()


def tables(table: pd.DataFrame, stem: str, *endings: str) -> dict[str, bytes]:
    return {f"{stem}.{ending}": as_file(table, ending) for ending in endings}


def zipped(parts: dict[str, bytes | str]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return held.getvalue()


def arrays(packed: bool = True, **arrays: Any) -> bytes:
    held = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(held, **arrays)
    return held.getvalue()


def picture(ending: str = "png", mode: str = "RGB", seed: int = 0) -> bytes:
    held = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(held, ending)
    return held.getvalue()


def saved(save: Callable[[Path], None]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder) / "saved.safetensors")
        return (Path(folder) / "saved.safetensors").read_bytes()


@cache
def classifiers() -> dict[str, bytes]:
    x = np.random.default_rng(0).normal(size=(5, 3)) + np.array([0, 0, 3, 0, 0])[:, None]
    texts = ["a cat sat", "the cat ran", "dogs bark loud", "one cat more", "some cats"]
    table = pd.DataFrame({"size": [1.0, 2, 9, 1, 1.5], "colour": ["red", "red", "blue", "red", "blue"]})
    labels = [["cat", "cat", None], ["cat", "dog", "cat"], ["dog", "dog", "dog"], ["cat", None, "dog"], ["dog"] * 3]
    wanted: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "learned": ("identity", x, {}),
        "ours": ("identity", x, {"method": "ours", "settings": {"covariance": "full"}}),
        "labelings": ("identity", x, {"method": "labeling-search"}),
        "both": ("identity", x, {"method": "combined"}),
        "lrds": ("identity", x, {"method": "lrds"}),
        "texts": ("texts", texts, {}),
        "table": ("table", table, {}),
        "mlp": (build_encoder("mlp", {"n_features": 3, "hidden": [4], "n_out": 3}, FeatureInput(3)), x, {}),
    }
    return {
        f"{name}.safetensors": saved(
            CrowdClassifier(encoder, **options).fit(items, labels, gold={0: "cat"}, priors={1: (5, 1)}).save
        )
        for name, (encoder, items, options) in wanted.items()
    } | {
        f"{name}.safetensors": (FIXTURES / f"{name}.safetensors").read_bytes() for name in ("ours-0.1.0", "lrds-0.1.0")
    }


def tools() -> dict[str, bytes]:
    """Return exports of labelling tools."""
    cvat = job(image("1.png", "cat") + image("2.png", "dog") + image("3.png"), "ann")
    studio = {
        f"studio-{path.name}": path.read_bytes() for path in sorted((FIXTURES / "label_studio").glob("export*.*"))
    }
    prodigy = [answer("1.png", "a", accept=["x"]), answer("2.png", "b", "reject", accept=[])]
    return {
        **studio,
        "argilla.json": json.dumps(ARGILLA).encode(),
        "argilla.parquet": as_file(pd.DataFrame(ARGILLA), "parquet"),
        "prodigy.jsonl": lines(prodigy).encode(),
        "judges.jsonl": lines(JUDGES).encode(),
        "toloka.tsv": TOLOKA.encode(),
        "mturk.csv": batch(("H1", "A1", "W1", "Approved", "", "1.png", "cat", "", "")).encode(),
        "cvat.xml": cvat.encode(),
        "cvat.zip": zipped({"annotations.xml": cvat}),
        "potato.jsonl": lines(POTATO).encode(),
        "potato_state.json": json.dumps(POTATO_STATE).encode(),
        "doccano.jsonl": lines(DOCCANO).encode(),
        "doccano_cats.jsonl": lines(DOCCANO_INTENTS).encode(),
        "doccano_old.jsonl": lines(DOCCANO_OLD).encode(),
        "doccano.zip": zipped({"ann.jsonl": lines(DOCCANO)}),
        "zooniverse.csv": ZOONIVERSE.encode(),
        "labelbox.jsonl": lines(LABELBOX).encode(),
        "langfuse.jsonl": lines(LANGFUSE).encode(),
        "phoenix.json": json.dumps({"data": PHOENIX}).encode(),
    }


def regions() -> dict[str, bytes]:
    """Return files of boxes and spans."""
    files = {"boxes.csv": BOXES.encode(), "spans.jsonl": lines(SPANS).encode()}
    return files | {"studio.json": json.dumps(STUDIO_REGIONS).encode(), "coco.json": json.dumps(COCO).encode()}


def votes() -> pd.DataFrame:
    """Return pairwise preferences."""
    rows = [("gpt", "alpaca", "model_a", "ann"), ("alpaca", "gpt", "model_a", "bob"), ("gpt", "vicuna", "tie", "ann")]
    return pd.DataFrame(
        [*rows, ("vicuna", "alpaca", "model_b", "bob")] * 2, columns=["model_a", "model_b", "winner", "judge"]
    )


def dated_table() -> pd.DataFrame:
    """Return labels with dates of which one is open, durations, a language and a question."""
    table = long_table()
    n = len(table)
    minutes = pd.Series(pd.date_range("2026-03-01 09:00", periods=n, freq="7h"))
    return table.assign(
        created_at=minutes.dt.strftime("%d/%m/%Y %H:%M"),
        duration=[3.5 + i % 4 for i in range(n)],
        language=["en" if i % 2 else "de" for i in range(n)],
    )


def judged() -> dict[str, bytes]:
    """Return a log of two models, labels of three people, known labels and costs."""
    table = long_table()
    items = sorted(set(table["item"]))
    log = [
        {"model": model, "item": item, "verdict": "cat" if (i + shift) % 3 else "dog"}
        for shift, model in enumerate(("big", "small"))
        for i, item in enumerate(items)
    ]
    known = pd.DataFrame({"item": items[:3], "truth": ["cat", "dog", "dog"]})
    costs = pd.DataFrame({"annotator": ["ann0", "big", "others"], "cost": [0.5, 0.01, 0.3]})
    return {
        "verdicts.jsonl": lines(log).encode(),
        "people.csv": as_file(table, "csv"),
        "known.csv": as_file(known, "csv"),
        "costs.csv": as_file(costs, "csv"),
    }


def grouped() -> dict[str, bytes]:
    """Return labels with a language, and tables of items and people."""
    table = dated_table().drop(columns=["created_at", "duration"])
    items = pd.DataFrame({"item": sorted(set(table["item"])), "length": ["long", "short", "long", "short", "long"]})
    people = pd.DataFrame({"annotator": ["ann0", "ann1", "ann2"], "country": ["NL", "PL", "NL"]})
    return {
        "labels.csv": as_file(table, "csv"),
        "items.csv": as_file(items, "csv"),
        "people.csv": as_file(people, "csv"),
    }


def asked() -> dict[str, bytes]:
    """Return answers to two questions as a long and a wide table, and as an export."""
    table = long_table().rename(columns={"label": "animal"}).assign(size=["big", "small", "big"] * 5)
    long = table.melt(["item", "annotator"], var_name="question", value_name="answer")
    records = [
        {
            "id": item,
            "fields": {"text": f"text of {item}"},
            "responses": {
                name: [{"value": row[name], "user_id": row["annotator"]} for row in group.to_dict("records")]
                for name in ("animal", "size")
            },
        }
        for item, group in table.groupby("item")
    ]
    return {
        "long.csv": as_file(long, "csv"),
        "long.jsonl": as_file(long, "jsonl"),
        "wide.csv": as_file(table, "csv"),
        "argilla.json": json.dumps(records).encode(),
    }


def journal() -> dict[str, bytes]:
    """Return the journal of a service, with changed and withdrawn answers."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Journal(Path(folder))
        kept.append([Answer(f"{i}.png", f"ann{i % 3}", "cat" if i % 2 else "dog", f"s{i}") for i in range(30)])
        kept.append([Answer("1.png", "ann1", None, "s1"), Answer("2.png", "ann2", "owl")])
        kept.note_version(29, 30, 7)
        kept.note("address", "http://127.0.0.1")
        kept.close()
        return {name: (Path(folder) / name).read_bytes() for name in (NAME, HEAD)}


VECTORS = {bytes([i]) * KEY_SIZE: np.full(3, i, np.float32) for i in range(8)}


def embeddings() -> dict[str, bytes]:
    """Return a file of `crowdshot.io.embedding_store` with these vectors."""
    with tempfile.TemporaryDirectory() as folder, embedding_cache(folder):
        list(remembered("maker", list(VECTORS), lambda places: iter([np.stack(list(VECTORS.values()))])))
        (file,) = (Path(folder) / "maker").iterdir()
        return {"kept.npy": file.read_bytes()}


def experiment() -> dict[str, bytes]:
    """Return the files of a store of rows, finished and pending."""
    rows = pd.DataFrame({"mixture": "H1", "candidate": "steps=1", "role": "test", "episode": [0, 1], "accuracy": 0.5})
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder), "main", "omniglot")
        for split in (0, 1):
            piece = Piece("main", "omniglot", split, 4, 3, "PrMV")
            store.add(piece, rows.assign(ece=0.1).reindex(columns=[c for c in COLUMNS if c not in Piece._fields]), {})
            store.note_training(f"encoder{split}", [{"seconds": 1.5, "encoder": "a"}])
            if split == 0:
                store.compact()
        store.note_run({"command": "paper run"})
        return {path.name: path.read_bytes() for path in sorted(store.folder.rglob("*")) if path.is_file()}


def trainer() -> Trainer:
    return Trainer([make_job(mlp())], feature_pool(), "float32", Processes())


def checkpoint() -> dict[str, bytes]:
    run = trainer()
    for _ in range(2):
        run.step()
    return {"run.safetensors": saved(lambda path: loop.save_checkpoint(path, run))}
