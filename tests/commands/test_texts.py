"""Test texts on the command line as a new user would use them."""

import json

import pandas as pd
import pytest

from forked import crowdshot as call

GOOD = ["a lovely film", "great and warm", "I love the acting", "a warm and lovely story", "lovely music"]
BAD = ["boring and long", "I hate this awful plot", "awful, truly boring", "a boring mess", "boring music"]
NEW = ["such a lovely evening", "an awful and boring evening"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Write ten reviews labelled by three annotators, one of whom errs twice, and two unlabelled reviews."""
    root = tmp_path_factory.mktemp("texts")
    texts = pd.DataFrame({"item": [f"r{i}" for i in range(12)], "text": [*GOOD, *BAD, *NEW]})
    texts.to_csv(root / "reviews.csv", index=False)
    texts.to_parquet(root / "reviews.parquet")
    (root / "folder").mkdir()
    for item, text in texts.itertuples(index=False):
        (root / "folder" / f"{item}.txt").write_text(text)
    truth = ["good"] * 5 + ["bad"] * 5
    said = [
        (f"r{i}", who, {"good": "bad", "bad": "good"}[word] if who == "cyd" and i in (1, 7) else word)
        for i, word in enumerate(truth)
        for who in ("ann", "bob", "cyd")
    ]
    pd.DataFrame(said, columns=["item", "worker", "label"]).to_csv(root / "labels.csv", index=False)
    by_text = [(texts.text[int(item[1:])], who, word) for item, who, word in said]
    pd.DataFrame(by_text, columns=["text", "worker", "label"]).to_csv(root / "by_text.csv", index=False)
    tasks = [
        {
            "id": i,
            "data": {"text": text},
            "annotations": [
                {
                    "id": 10 * i + k,
                    "completed_by": who,
                    "result": [
                        {"type": "choices", "from_name": "tone", "to_name": "text", "value": {"choices": [word]}}
                    ],
                }
                for k, (item, who, word) in enumerate(said)
                if item == f"r{i}"
            ],
        }
        for i, text in enumerate(texts.text)
    ]
    (root / "export.json").write_text(json.dumps(tasks))
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    ("labels", "texts"),
    [
        ("labels.csv", "reviews.csv"),
        ("labels.csv", "folder"),
        ("by_text.csv", "reviews.csv"),
        ("export.json", "export.json"),
    ],
)
def test_adapt_and_predict(made, tmp_path, labels, texts):
    done = call(made, "adapt", labels, "--texts", texts, "--out", tmp_path / "results")
    assert done.returncode == 0, done.stderr
    assert "texts are represented by a sentence network (MiniLM, best for English)" in done.stdout
    assert (
        "texts are informative" in done.stdout
        or "texts are not informative" in done.stdout
        or "texts are informative" in done.stdout.lower()
    )
    consensus = pd.read_csv(tmp_path / "results" / "consensus.csv", dtype=str)
    assert consensus["label" if "label" in consensus else "tone"].tolist()[:10] == ["good"] * 5 + ["bad"] * 5
    if len(consensus) > 10:  # unlabelled
        assert consensus.iloc[10:, 1].tolist() == ["good", "bad"]
    page = (tmp_path / "results" / "report.html").read_text()
    assert "texts are represented by a sentence network" in page
    told = call(made, "predict", tmp_path / "results" / "model.safetensors", "--texts", "reviews.csv", "--json")
    assert told.returncode == 0, told.stderr
    predictions = json.loads(told.stdout)["predictions"]
    assert [next(v for k, v in row.items() if k in ("label", "tone")) for row in predictions] == [
        *["good"] * 5,
        *["bad"] * 5,
        "good",
        "bad",
    ]


@pytest.mark.slow
def test_next_shows_texts(made, tmp_path):
    done = call(made, "next", "labels.csv", "--texts", "reviews.csv", "--budget", "3")
    assert done.returncode == 0, done.stderr
    header, first = done.stdout.splitlines()[:2]
    assert header.startswith("item,text,worker,label,gain")
    assert any(text in first for text in [*GOOD, *BAD, *NEW])
    assert call(made, "next", "labels.csv", "--texts", "reviews.csv", "--out", tmp_path / "q.json").returncode == 0
    tasks = json.loads((tmp_path / "q.json").read_text())
    assert all(task["data"]["text"] in [*GOOD, *BAD, *NEW] and task["data"]["next_item"] for task in tasks)
    assert call(made, "next", "by_text.csv", "--texts", "by_text.csv").stdout.startswith("text,worker,label,gain")


@pytest.mark.slow
def test_invalid_texts_are_refused_and_unknown_items_left_out(made, tmp_path):
    (tmp_path / "some.csv").write_text("item,text\nr0,\n" + "".join(f"r{i},{t}\n" for i, t in enumerate(GOOD[1:], 1)))
    for words, told in [
        (("--texts", "reviews.csv", "--images", "folder"), "--texts cannot be combined with images"),
        (("--texts", "reviews.csv", "--encoder", "glyphs"), "reviews.csv holds texts, expected characters of 28×28"),
        (("--texts", tmp_path / "some.csv"), "has no text for 5 of the 10 labelled items, first 'r5'"),
        (("--texts", "none.csv"), "none.csv does not exist, expected a file."),
    ]:
        done = call(made, "adapt", "labels.csv", *words, "--out", tmp_path / "out")
        assert (done.returncode, done.stdout) == (2, ""), words
        assert told in done.stderr
        assert not (tmp_path / "out").exists()
    (tmp_path / "with_blank.csv").write_text((made / "reviews.csv").read_text().replace("such a lovely evening", ""))
    blank = ("adapt", "labels.csv", "--texts", tmp_path / "with_blank.csv", "--out", tmp_path / "out")
    done = call(made, *blank)
    assert "with_blank.csv has 1 texts of 12 that cannot be read (r10 is an empty text" in done.stderr
    done = call(made, *blank, "--skip-bad")
    assert done.returncode == 0, done.stderr
    assert "left out: 1 unreadable text (r10)" in done.stderr
    assert len(pd.read_csv(tmp_path / "out" / "consensus.csv")) == 11
