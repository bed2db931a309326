"""`clf.report` writes the page that `adapt` writes."""

import json
import re

import numpy as np
import pytest

from crowdshot import CrowdAggregator, CrowdClassifier, CrowdshotError
from forked import crowdshot

N, R = 40, 4


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    truth = np.arange(N) % 3
    X = rng.normal(size=(N, 5)) + 3 * np.eye(5)[truth]
    labels = np.where(rng.random((N, R)) < 0.75, truth[:, None], rng.integers(3, size=(N, R)))
    names = np.array(["cat", "dog", "owl"], dtype=object)[labels]
    names[35:] = None
    return X, names


@pytest.fixture(scope="module")
def clf(data):
    return CrowdClassifier(encoder="identity").fit(*data)


def numbers_of(page):
    """The texts that depend on the threshold, at every threshold, without commands."""
    (found,) = re.findall(r'id="threshold-texts">(.*?)</script>', page)
    texts = json.loads(found.replace("consensus.csv", "consensus_"))  # which Python has instead
    return [
        {name: texts["texts"][at] for name, at in zip(texts["names"], level, strict=True) if "command" not in name}
        for level in texts["levels"]
    ]


@pytest.mark.slow
def test_the_page_has_the_numbers_of_adapt(data, clf, tmp_path):
    X, names = data
    rows = [f"{i},{r},{names[i, r]}" for i in range(N) for r in range(R) if names[i, r] is not None]
    (tmp_path / "labels.csv").write_text("\n".join(["item,annotator,label", *rows]))
    np.savez(tmp_path / "X.npz", ids=np.arange(N).astype(str), features=X)
    done = crowdshot(tmp_path, "adapt", "labels.csv", "--features", "X.npz", "--out", "out")
    assert done.returncode == 0, done.stderr
    clf.report(tmp_path / "report.html")
    ours, theirs = (numbers_of((tmp_path / name).read_text()) for name in ("report.html", "out/report.html"))
    assert ours == theirs
    assert "CrowdClassifier(" in (tmp_path / "report.html").read_text()


def test_texts_are_shown(clf, tmp_path):
    texts = [f"the text of item {i} <b>" for i in range(N)]
    clf.report(tmp_path / "report.html", texts)
    page = (tmp_path / "report.html").read_text()
    shown = set(re.findall(r"the text of item (\d+) &lt;b&gt;", page))
    assert shown
    assert "<b>" not in page.replace("</b>", "")


@pytest.mark.parametrize("X", [[f"text {i}" for i in range(N - 1)], np.zeros((N, 2))])
def test_other_items_are_refused(clf, tmp_path, X):
    with pytest.raises(CrowdshotError) as error:
        clf.report(tmp_path / "report.html", X)
    assert error.value.argument == "X"
    assert not list(tmp_path.iterdir())


def test_a_loaded_classifier_needs_its_items(clf, tmp_path):
    clf.save(tmp_path / "clf.safetensors")
    loaded = CrowdClassifier.load(tmp_path / "clf.safetensors")
    loaded.report(tmp_path / "report.html")
    clf.report(tmp_path / "before.html")
    assert numbers_of((tmp_path / "report.html").read_text()) == numbers_of((tmp_path / "before.html").read_text())
    loaded.embeddings_ = None  # as in a file without items
    with pytest.raises(CrowdshotError):
        loaded.report(tmp_path / "other.html")
    assert not (tmp_path / "other.html").exists()


def test_a_folder_that_does_not_exist(clf, tmp_path):
    with pytest.raises(CrowdshotError):
        clf.report(tmp_path / "missing" / "report.html")
    assert not list(tmp_path.iterdir())


def test_labels_alone(tmp_path):
    crowd = CrowdAggregator().fit([["a", "a"], ["b", "b"]])
    crowd.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "2 items labelled by 2 annotators" in page
    assert "Classifier accuracy" not in page


def test_items_of_labels_alone_are_refused(tmp_path):
    crowd = CrowdAggregator().fit([["a", "a"], ["b", "b"]])
    with pytest.raises(CrowdshotError) as error:
        crowd.report(tmp_path / "report.html", ["one text", "another text"])
    assert error.value.argument == "X"
    assert not list(tmp_path.iterdir())
