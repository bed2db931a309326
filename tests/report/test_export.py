"""Test `--export`: a dataset of confident items for other tools, written only to its folder."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from crowdshot import Annotations, CrowdshotError, read_labels
from crowdshot.labels.formats.label_file import LabelsRead
from crowdshot.report.export import Export, write_export

FILES = ["argilla.json", "clean.csv", "cleanlab.csv", "coco.json", "crowdkit.csv", "cvat.xml", "label-studio.json"]
EVIL = ["../../up", "CON", "a/b", "a_b", "Cat", "cat", "metadata.csv", ".", ""]


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    """Write five images, two with the same name."""
    paths = [tmp_path / "photos" / name for name in ("1.png", "2.png", "more/1.png", "3.png", "4.png")]
    for i, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8 + i, 9), (i, 0, 0)).save(path)
    return paths


def crowd(photos: list[Path], classes=("cat", "dog")) -> tuple[pd.DataFrame, Annotations]:
    """Return three cats and a dog with confidence 0.9 or more, and an unlabelled dog with 0.6."""
    items = [path.relative_to(photos[0].parent).as_posix() for path in photos]
    cat, dog = classes
    ann = Annotations.from_matrix(
        [[cat, cat], [cat, None], [cat, dog], [dog, dog], [None, None]], items=items, annotators=["ann", "bob"]
    )
    table = pd.DataFrame(
        {"item": items, "label": [cat, cat, cat, dog, dog], "confidence": [0.99, 0.9, 0.95, 0.97, 0.6]}
    )
    return table, ann


def test_all_files_contain_the_confident_items(photos, tmp_path):
    table, ann = crowd(photos)
    files = write_export(Export(tmp_path / "out"), table, ann, LabelsRead(ann), photos)
    assert sorted(path.name for path in files) == [*FILES[:6], "images", FILES[6]]
    clean = pd.read_csv(tmp_path / "out" / "clean.csv")
    pd.testing.assert_frame_equal(clean, table[:4])
    coco = json.loads((tmp_path / "out" / "coco.json").read_text("utf-8"))
    assert coco["categories"] == [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    assert coco["images"][1] == {"id": 2, "file_name": "cat/2.png", "item": "2.png", "width": 9, "height": 9}
    assert coco["annotations"][3] == {"id": 4, "image_id": 4, "category_id": 2, "score": 0.97}
    assert len(coco["images"]) == len(coco["annotations"]) == 4
    for image in coco["images"]:
        with Image.open(tmp_path / "out" / "images" / image["file_name"]) as found:
            assert found.size == (image["width"], image["height"])
    metadata = pd.read_csv(tmp_path / "out" / "images" / "metadata.csv")
    assert metadata["file_name"].tolist() == ["cat/1.png", "cat/2.png", "cat/1 (2).png", "dog/3.png"]
    assert metadata["label"].tolist() == ["cat", "cat", "cat", "dog"]
    labels = pd.read_csv(tmp_path / "out" / "crowdkit.csv")
    assert list(labels) == ["task", "worker", "label"]
    assert len(labels) == 7
    cleanlab = pd.read_csv(tmp_path / "out" / "cleanlab.csv", index_col=0)
    np.testing.assert_array_equal(cleanlab, [[0, 0], [0, np.nan], [0, 1], [1, 1]])
    tasks = json.loads((tmp_path / "out" / "label-studio.json").read_text("utf-8"))
    assert [task["predictions"][0]["score"] for task in tasks] == [0.99, 0.9, 0.95, 0.97]
    records = json.loads((tmp_path / "out" / "argilla.json").read_text("utf-8"))
    assert records[3]["fields"] == {"item": "3.png"}
    assert records[3]["suggestions"]["label"]["value"] == "dog"
    assert records[3]["suggestions"]["label"]["score"] == 0.97
    back = read_labels(tmp_path / "out" / "cvat.xml").annotations
    assert back.to_frame().iloc[:, [0, 2]].to_numpy().tolist() == table.iloc[:4, :2].to_numpy().tolist()


def test_other_packages_read_the_files(photos, tmp_path):
    from crowdkit.aggregation import MajorityVote

    table, ann = crowd(photos)
    write_export(Export(tmp_path / "out"), table, ann, LabelsRead(ann), photos)
    votes = MajorityVote().fit_predict(pd.read_csv(tmp_path / "out" / "crowdkit.csv"))
    assert votes["2.png"] == "cat"
    again = Annotations.from_cleanlab(pd.read_csv(tmp_path / "out" / "cleanlab.csv", index_col=0))
    assert again.n_labels == 7


@pytest.mark.parametrize("copies", [False, True])
def test_links_lead_to_the_images_and_copies_are_the_images(photos, tmp_path, copies):
    table, ann = crowd(photos)
    write_export(Export(tmp_path / "out", copies=copies), table, ann, LabelsRead(ann), photos)
    found = tmp_path / "out" / "images" / "dog" / "3.png"
    assert found.is_symlink() is not copies
    assert found.read_bytes() == photos[3].read_bytes()
    if not copies:
        assert not os.path.isabs(os.readlink(found))  # relative, so that images and export can be moved together
        tmp_path.rename(tmp_path.with_name("moved"))
        assert (tmp_path.with_name("moved") / "out" / "images" / "dog" / "3.png").exists()
        tmp_path.with_name("moved").rename(tmp_path)


def test_only_an_earlier_export_is_replaced(photos, tmp_path):
    table, ann = crowd(photos)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    write_export(Export(tmp_path / "out", 0.5), table, ann, LabelsRead(ann), photos, overwrite=True)
    assert (tmp_path / "out" / "images" / "dog" / "4.png").exists()
    write_export(Export(tmp_path / "out", 0.9), table, ann, LabelsRead(ann), photos, overwrite=True)
    assert not (tmp_path / "out" / "images" / "dog" / "4.png").exists()
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"
    with pytest.raises(CrowdshotError, match="is not empty, expected a new or empty folder"):
        write_export(Export(tmp_path / "out"), table, ann, LabelsRead(ann), photos)


@pytest.mark.parametrize("evil", EVIL[:-1])
def test_class_names_cannot_leave_the_folder(photos, tmp_path, evil):
    table, ann = crowd(photos, (evil, "dog"))
    before = sorted(tmp_path.rglob("*"))
    write_export(Export(tmp_path / "a" / "out"), table, ann, LabelsRead(ann), photos)
    new = set(tmp_path.rglob("*")) - set(before) - {tmp_path / "a"}
    assert all((tmp_path / "a" / "out") in [path, *path.parents] for path in new)
    with (tmp_path / "a" / "out" / "images" / "metadata.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == [evil, evil, evil, "dog"]
    for row in rows:
        assert (tmp_path / "a" / "out" / "images" / row["file_name"]).is_file()


def test_classes_that_differ_in_case_have_separate_folders(photos, tmp_path):
    table, ann = crowd(photos, ("Cat", "cat"))
    write_export(Export(tmp_path / "out"), table, ann, LabelsRead(ann), photos)
    folders = sorted(path.name for path in (tmp_path / "out" / "images").iterdir())
    assert folders == ["Cat", "cat (2)", "metadata.csv"]


def test_sets_of_labels_have_no_separate_folders(photos, tmp_path):
    table, ann = crowd(photos, ("cat;outdoor", "dog"))
    write_export(Export(tmp_path / "out"), table, ann, LabelsRead(ann, several=True), photos)
    folder = tmp_path / "out" / "images"
    assert sorted(path.name for path in folder.iterdir()) == ["1 (2).png", "1.png", "2.png", "3.png", "metadata.csv"]
    metadata = pd.read_csv(folder / "metadata.csv")
    assert metadata["label"].tolist() == ["cat;outdoor"] * 3 + ["dog"]
    coco = json.loads((tmp_path / "out" / "coco.json").read_text("utf-8"))
    assert [image["file_name"] for image in coco["images"]] == metadata["file_name"].tolist()
    assert len(coco["annotations"]) == 7


def test_an_export_without_confident_items_warns(photos, tmp_path):
    table, ann = crowd(photos)
    with pytest.warns(UserWarning, match=r"No item has a probability of 1 or more \(the highest is 0.99\)"):
        write_export(Export(tmp_path / "out", 1.0), table, ann, LabelsRead(ann), photos)
    assert (tmp_path / "out" / "clean.csv").read_text() == "item,label,confidence\n"
    assert json.loads((tmp_path / "out" / "coco.json").read_text())["images"] == []


@pytest.mark.parametrize("where", ["photos", "photos/out", "."])
def test_the_export_must_not_overlap_the_input(photos, tmp_path, where):
    with pytest.raises(CrowdshotError, match="overlaps") as error:
        Export(tmp_path / where).check(tmp_path / "photos")
    assert (error.value.argument, error.value.found) == ("export", str(tmp_path / where))


def test_other_images_are_not_overwritten(photos, tmp_path):
    (tmp_path / "out" / "images").mkdir(parents=True)
    with pytest.raises(CrowdshotError, match="not exported by crowdshot") as error:
        Export(tmp_path / "out").check()
    assert error.value.where == str(tmp_path / "out" / "images")
    with pytest.raises(CrowdshotError, match="probability") as error:
        Export(tmp_path / "out", 90).check()
    assert (error.value.argument, error.value.found) == ("threshold", 90)


def test_texts_are_exported_with_their_labels(photos, tmp_path):
    table, ann = crowd(photos)
    texts = ["a", "b", "c, d", "e", "f"]
    write_export(Export(tmp_path / "out"), table, ann, LabelsRead(ann), texts=texts)
    assert pd.read_csv(tmp_path / "out" / "clean.csv")["text"].tolist() == texts[:4]
    assert not (tmp_path / "out" / "images").exists()


# ---- soft labels ----


SOFT = ["classes.json", "soft-labels.csv", "soft-labels.jsonl", "soft-labels.parquet"]


def test_soft_labels_of_all_items(photos, tmp_path):
    table, ann = crowd(photos)
    p = np.array([[0.99, 0.01], [0.9, 0.1], [0.95, 0.05], [0.03, 0.97], [0.4, 0.6]])
    texts = ["a", "b", "c", "d", "e"]
    out = tmp_path / "out"
    files = write_export(Export(out), table, ann, LabelsRead(ann), texts=texts, soft=(ann.classes, p))
    assert {path.name for path in files} == {*FILES, *SOFT}
    assert json.loads((out / "classes.json").read_text()) == ["cat", "dog"]
    rows = [json.loads(line) for line in (out / "soft-labels.jsonl").read_text().splitlines()]
    assert rows[2] == {
        **{"item": "1.png", "text": "c", "label": 0},
        **{"probabilities": [0.95, 0.05], "shares": [0.5, 0.5], "n_labels": 2},
    } | {"item": "more/1.png"}
    assert rows[4]["shares"] is None
    assert (rows[4]["label"], rows[4]["n_labels"]) == (1, 0)
    frame = pd.read_parquet(out / "soft-labels.parquet")
    np.testing.assert_array_equal(np.stack(frame["probabilities"]), p)
    assert frame["shares"].isna().tolist() == [False] * 4 + [True]
    frame = pd.read_csv(out / "soft-labels.csv")
    assert list(frame) == ["item", "text", "label", "n_labels", "p_cat", "p_dog", "share_cat", "share_dog"]
    np.testing.assert_array_equal(frame["share_cat"], [1, 1, 0.5, 0, np.nan])
    np.testing.assert_array_equal(frame["p_dog"], p[:, 1])


def test_soft_labels_of_sets(tmp_path):
    rows = {"1": {"ann": "a;b", "bob": "a"}, "2": {"ann": "b", "bob": "b"}}
    ann = Annotations.from_dict(rows)
    read = LabelsRead(ann, several=True)
    table = pd.DataFrame({"item": ["1", "2"], "label": ["a", "b"], "confidence": [0.9, 0.9]})
    soft = (np.array(["a", "b"], dtype=object), np.array([[0.9, 0.6], [0.1, 1.0]]))
    write_export(Export(tmp_path / "out"), table, ann, read, soft=soft)
    frame = pd.read_json(tmp_path / "out" / "soft-labels.jsonl", lines=True)
    assert list(frame) == ["item", "probabilities", "shares", "n_labels"]
    assert frame["shares"].tolist() == [[1.0, 0.5], [0.0, 1.0]]


def test_no_soft_labels_of_very_many_classes(tmp_path):
    ann = Annotations.from_dict({str(n): {"ann": f"c{n}"} for n in range(101)})
    table = pd.DataFrame({"item": ann.items, "label": ann.classes, "confidence": 1.0})
    files = write_export(Export(tmp_path / "out"), table, ann, LabelsRead(ann), soft=(ann.classes, np.eye(101)))
    assert not {path.name for path in files} & set(SOFT)
