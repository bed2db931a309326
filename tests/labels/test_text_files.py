"""Test reading texts from tables, exports and folders."""

import json

import pandas as pd
import pytest

from crowdshot import CrowdshotError
from crowdshot.labels.text_files import read_text_items

TWO = {"r1": "a lovely film, truly", "r2": "boring"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'item,text\nr1,"a lovely film, truly"\nr2,boring\n'),
        ("a.tsv", "Review\tID\na lovely film, truly\tr1\nboring\tr2\n"),
        ("a.jsonl", '{"id": "r1", "text": "a lovely film, truly"}\n{"id": "r2", "text": "boring"}\n'),
        (
            "a.json",
            json.dumps([{"document_id": "r1", "sentence": TWO["r1"]}, {"document_id": "r2", "sentence": "boring"}]),
        ),
        (
            "labels.csv",
            'who,item,text,label\nx,r1,"a lovely film, truly",1\ny,r1,"a lovely film, truly",0\nx,r2,boring,0\n',
        ),
        (
            "label-studio.json",
            json.dumps([{"id": k, "data": {"text": text}, "annotations": []} for k, text in TWO.items()]),
        ),
    ],
)
def test_id_and_text_are_found(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    found = read_text_items(tmp_path / name)
    assert dict(zip(found.ids, found.texts, strict=True)) == TWO


def test_parquet_and_a_folder(tmp_path):
    pd.DataFrame({"item": list(TWO), "text": list(TWO.values())}).to_parquet(tmp_path / "a.parquet")
    (tmp_path / "texts" / "more").mkdir(parents=True)
    (tmp_path / "texts" / "r1.txt").write_text(TWO["r1"] + "\n")
    (tmp_path / "texts" / "more" / "r2.TXT").write_text("boring", encoding="utf-16")
    (tmp_path / "texts" / "empty.txt").write_text("")
    table, folder = read_text_items(tmp_path / "a.parquet"), read_text_items(tmp_path / "texts")
    assert (table.ids.tolist(), table.texts, table.are_files) == (list(TWO), list(TWO.values()), False)
    assert folder.ids.tolist() == ["empty.txt", "more/r2.TXT", "r1.txt"]
    assert (folder.texts, folder.are_files) == (["", "boring", TWO["r1"]], True)


def test_without_an_id_the_text_is_the_id(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n{"text": "one"}\n')
    assert read_text_items(tmp_path / "a.jsonl").ids.tolist() == ["one", "two"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("item,words\nr1,good\n", "a.csv has no column for the text among 'item', 'words', expected one called text"),
        ("item,review,tweet\nr1,a,b\n", "a.csv has 2 columns that could be the text, 'review', 'tweet', expected one."),
        ("item,text\n,good\n", "a.csv, row 2, column 'item' is empty, expected an id."),
        ("item,text\n", "a.csv has a header but no rows, expected a row for each text."),
        ("item,text\nr1,good\nr1,bad\n", "a.csv, row 3, column 'text' is another text for 'r1' than in an earlier row"),
    ],
)
def test_invalid_files_are_refused(tmp_path, content, told, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(CrowdshotError) as error:
        read_text_items("a.csv")
    assert told in str(error.value)


def test_a_folder_without_texts(tmp_path):
    with pytest.raises(CrowdshotError, match=r"holds no texts, expected files that end in \.txt"):
        read_text_items(tmp_path)
