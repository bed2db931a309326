"""A classifier's file: what it says of who fitted it, and that old files are read."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nan, tensor, zeros

from crowdshot import CrowdClassifier, CrowdshotError

FIXTURES = Path(__file__).parent.parent / "fixtures"
X = np.array([[0.0, 0.1], [0.2, 0.0], [5.0, 5.1], [5.2, 4.9], [0.1, 0.3], [4.9, 5.0]])
LABELS = [
    ["cat", "cat", "dog"],
    ["cat", None, "cat"],
    ["dog", "dog", "cat"],
    ["dog", "dog", None],
    ["cat", "cat", "cat"],
    [None, "dog", "dog"],
]
QUERIES = [[0.1, 0.2], [4.8, 5.0], [2.4, 2.6]]

# What 0.1.0 said after it had fitted these six items and saved the file: p(cat) of the queries, the first annotator's
# confusion matrix, and the confidence in the first two items. Its card names a method and no learner.
OLD = {
    "ours-0.1.0": (  # CrowdClassifier(encoder="identity"): features from elsewhere are for the mixture
        "Ours",
        [0.9999926144607714, 1.1155118730753657e-05, 0.5815738278196693],
        [[0.9145298600196838, 0.08547013998031616], [0.09259267896413803, 0.9074073433876038]],
        [0.9999999172038981, 0.9999996812083669],
    ),
    "labelings-0.1.0": (  # method="labeling-search"
        "labeling-search",
        [0.999782014239839, 0.0002179857601609063, 0.6864386972443824],
        [[0.852032482624054, 0.14796748757362366], [0.15628549456596375, 0.8437145352363586]],
        [0.9997820142332569, 0.9997820142187082],
    ),
    "auto-labelings-0.1.0": (  # settings={"scale": 2.0}, and the method left to itself
        "labeling-search",
        [0.9384530782911359, 0.06738504457369611, 0.5194876668165953],
        [[0.8472120761871338, 0.15278783440589905], [0.16155661642551422, 0.838443398475647]],
        [0.9849695939204932, 0.9864034497620218],
    ),
    "lrds-0.1.0": (  # method="LRDS", settings={"C": 0.5}
        "LRDS",
        [0.7602598166319251, 0.25448036855767603, 0.5129293281854854],
        [[0.7135347127914429, 0.28646522760391235], [0.37383195757865906, 0.6261679530143738]],
        [0.7764052980066924, 0.6916580590111596],
    ),
}


# The same of 0.2.0, whose learners had other names: 24 items in three classes, labelled by four annotators.
OLD_0_2 = {
    "labelings-0.2.0": ("labeling-search", [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]),
    "learned-0.2.0": ("features", [0.984578, 0.006793, 0.008629], [0.978526, 0.005689, 0.015785]),
    "both-0.2.0": ("combined", [1.0, 0.0, 0.0], [9.99996e-01, 1e-6, 3e-6]),
}
FIRST_0_2 = [[3.126, -0.132, 0.64]]  # the first of its items


def card_of(path):
    with safe_open(path, framework="pt") as opened:
        return json.loads(opened.metadata()["crowdshot"])


def rewrite(path, **changes):
    """The same file, but for entries of its card; None takes one out. As one of 0.1.0 it has no checksum."""
    changes["sha256"] = None
    card = {name: value for name, value in {**card_of(path), **changes}.items() if value is not None}
    save_file(load_file(path), path, metadata={"crowdshot": json.dumps(card)})


@pytest.mark.parametrize("name", OLD)
def test_files_of_0_1_0_load_and_say_what_they_said(name, tmp_path):
    learner, cat, confusion, confidence = OLD[name]
    path = FIXTURES / f"{name}.safetensors"
    assert "learner" not in card_of(path)
    old = CrowdClassifier.load(path)
    assert old._missing == -1
    old.save(tmp_path / "again.safetensors")
    assert card_of(tmp_path / "again.safetensors")["learner"] == learner
    for clf in (old, CrowdClassifier.load(tmp_path / "again.safetensors")):
        assert clf.learner_ == learner
        np.testing.assert_allclose(clf.predict_proba(QUERIES)[:, 0], cat, rtol=1e-4)
        np.testing.assert_allclose(clf.confusion_[0], confusion, rtol=1e-4)
        np.testing.assert_allclose(clf.consensus_["confidence"][:2], confidence, rtol=1e-6)
        assert clf.consensus_["label"].tolist() == ["cat", "cat", "dog", "dog", "cat", "dog"]


@pytest.mark.parametrize("name", OLD_0_2)
def test_files_of_0_2_0_load_under_the_present_names(name, tmp_path):
    learner, predicted, consensus = OLD_0_2[name]
    old = CrowdClassifier.load(FIXTURES / f"{name}.safetensors")
    old.save(tmp_path / "again.safetensors")
    for clf in (old, CrowdClassifier.load(tmp_path / "again.safetensors")):
        assert (clf.learner_, clf.method) == (learner, learner)
        np.testing.assert_allclose(clf.predict_proba(FIRST_0_2)[0], predicted, atol=2e-6)
        np.testing.assert_allclose(clf.label_proba_[0], consensus, atol=2e-6)


def test_names_of_0_2_0_warn():
    with pytest.warns(FutureWarning, match="combined"):
        clf = CrowdClassifier("identity", method="Both").fit(X, LABELS)
    with pytest.warns(FutureWarning, match="label_proba_"):
        assert np.array_equal(clf.belief_, clf.label_proba_)


@pytest.mark.parametrize(
    ("settings", "learner"),
    [
        ({}, "features"),
        ({"method": "ours"}, "Ours"),
        ({"method": "paper"}, "Ours"),
        ({"method": "LABELING-SEARCH"}, "labeling-search"),
        ({"settings": {"scale": 2.0}}, "labeling-search"),
        ({"method": "w/o pa"}, "w/o PA"),
        ({"method": "lrmv"}, "LRMV"),
    ],
)
def test_the_learner_says_who_it_is(settings, learner, tmp_path):
    path = tmp_path / "model.safetensors"
    clf = CrowdClassifier("identity", **settings).fit(X, LABELS)
    clf.save(path)
    assert (clf.learner_, card_of(path)["learner"]) == (learner, learner)
    again = CrowdClassifier.load(path)
    assert again.learner_ == learner
    assert type(again._model) is type(clf._model)
    np.testing.assert_allclose(again.predict_proba(QUERIES), clf.predict_proba(QUERIES), atol=1e-6)
    same = again._learner_again()
    assert same.name == learner
    np.testing.assert_allclose(
        same.learn(clf.embed(X), clf.annotations_, clf.encoder_, clf._known).fit.confusion,
        clf._model.confusion,
        atol=1e-6,
    )


def test_the_card_is_believed_and_nothing_is_guessed(tmp_path):
    """Whatever the method is called: a later "auto" may choose otherwise than the one that fitted."""
    path = tmp_path / "model.safetensors"
    clf = CrowdClassifier("identity", method="labeling-search").fit(X, LABELS)
    clf.save(path)
    rewrite(path, method="auto", settings={**clf.settings_, "covariance": "identity"})
    with pytest.raises(CrowdshotError, match=r"settings has 'covariance', expected .* for labeling-search"):
        CrowdClassifier.load(path)
    rewrite(path, method="paper", settings=clf.settings_)
    assert CrowdClassifier.load(path).learner_ == "labeling-search"


def test_a_learner_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    CrowdClassifier("identity").fit(X, LABELS).save(path)
    rewrite(path, learner="Votes of stars")
    with pytest.raises(
        CrowdshotError, match=r"fitted by 'Votes of stars', expected one of labeling-search, features, .*Install"
    ):
        CrowdClassifier.load(path)
    rewrite(path, learner=7)
    with pytest.raises(CrowdshotError, match=r"model\.safetensors"):
        CrowdClassifier.load(path)


@pytest.mark.parametrize("method", ["ours", "labeling-search", "LRDS"])
def test_belief_is_of_all_items_and_sums_to_one(method):
    labels = [*LABELS, [None] * 3]  # the last one lies among the cats, and nobody labelled it
    clf = CrowdClassifier("identity", method=method).fit([*X, [0.1, 0.1]], labels, classes=["dog", "emu", "cat"])
    posterior = clf.label_proba_
    assert (posterior.shape, posterior.dtype) == ((7, 3), np.float64)
    np.testing.assert_allclose(posterior.sum(1), 1, atol=1e-12)
    assert clf.classes_[posterior.argmax(1)].tolist() == ["cat", "cat", "dog", "dog", "cat", "dog", "cat"]
    assert (posterior[:, 1] == 0).all(), "nobody said emu"
    np.testing.assert_array_equal(posterior.max(1), clf.consensus_["confidence"])


def test_probabilities_of_kept_embeddings():
    clf = CrowdClassifier("identity").fit(X, LABELS)
    expected = clf.predict_proba(QUERIES)
    np.testing.assert_allclose(clf.predict_proba_embeddings(clf.embed(QUERIES)), expected, atol=1e-12)


# ---- damage -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The bytes of a classifier's file."""
    path = tmp_path_factory.mktemp("saved") / "model.safetensors"
    CrowdClassifier("identity").fit(X, LABELS, gold={0: "cat"}, priors={1: (8, 2)}).save(path)
    return path.read_bytes()


def test_one_flipped_bit_of_a_tensor_is_seen(saved, tmp_path):
    path = tmp_path / "model.safetensors"
    start = 8 + int.from_bytes(saved[:8], "little")
    for place in range(start, len(saved), 97):
        path.write_bytes(saved[:place] + bytes([saved[place] ^ 1]) + saved[place + 1 :])
        with pytest.raises(
            CrowdshotError, match=r"model\.safetensors is damaged \(its checksum differs\), expected a cl"
        ):
            CrowdClassifier.load(path)


@pytest.mark.parametrize(("old", "new"), [(b"features", b"fextures"), (b'\\"cat\\"', b'\\"bat\\"'), (b"gold", b"gild")])
def test_one_changed_byte_of_the_header_or_the_card_is_seen(saved, tmp_path, old, new):
    path = tmp_path / "model.safetensors"
    assert old in saved
    path.write_bytes(saved.replace(old, new, 1))
    with pytest.raises(CrowdshotError, match=r"model\.safetensors is damaged"):
        CrowdClassifier.load(path)


def test_the_same_classifier_is_the_same_file(saved, tmp_path):
    path = tmp_path / "model.safetensors"
    CrowdClassifier("identity").fit(X, LABELS, gold={0: "cat"}, priors={1: (8, 2)}).save(path)
    assert path.read_bytes() == saved


MANY_LAYERS = {"n_features": 2, "hidden": [1] * 10**5}
DEEP = '{"format": 1, "kind": "classifier", "x": ' + "[" * 100_000 + "]" * 100_000 + "}"


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors, card: tensors.update({"labels.annotator": tensors["labels.annotator"].long() + 2**28}),
        lambda tensors, card: tensors.update({"labels.item": tensors["labels.item"][:3]}),
        lambda tensors, card: tensors.update({"labels.label": -1 - tensors["labels.label"]}),
        lambda tensors, card: tensors.update({"labels.item": tensors["labels.item"].double()}),
        lambda tensors, card: tensors.update(factor=tensor(nan)),
        lambda tensors, card: tensors.update(factor=zeros(2)),
        lambda tensors, card: tensors.update(shift=zeros(3)),
        lambda tensors, card: tensors.update(gold=tensors["gold"] + 5),
        lambda tensors, card: tensors.update(history=zeros(2, 2)),
        lambda tensors, card: tensors.update(embeddings=zeros(5, 2)),
        lambda tensors, card: card.update(classes=["cat"]),
        lambda tensors, card: card.update(classes=["cat", "dog", "emu"], items=card["items"][:2]),
        lambda tensors, card: card.update(items=[10**400, *card["items"][1:]]),
        lambda tensors, card: card.update(items=7),
        lambda tensors, card: card.update(format=10**400),
        lambda tensors, card: card.update(encoder=[]),
        lambda tensors, card: card["encoder"].update(architecture="mlp", arguments=MANY_LAYERS),
        lambda tensors, card: card["encoder"].update(arguments={"x" * 10**5: "\n"}),
        lambda tensors, card: "[1, 2]",
        lambda tensors, card: '{"format": 1e400, "kind": "classifier"}',
        lambda tensors, card: DEEP,
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_each_other_are_refused_without_a_checksum_too(saved, tmp_path, change):
    path = tmp_path / "model.safetensors"
    path.write_bytes(saved)
    tensors, card = load_file(path), card_of(path)
    del card["sha256"]
    changed = change(tensors, card)
    save_file(tensors, path, metadata={"crowdshot": changed if isinstance(changed, str) else json.dumps(card)})
    with pytest.raises(CrowdshotError) as told:
        CrowdClassifier.load(path)
    sentence = str(told.value)
    assert "model.safetensors" in sentence
    assert len(sentence) < 5000
    assert "\n" not in sentence


def test_beliefs_that_sum_to_nothing_are_refused(tmp_path):
    """As those of a labeling among classes that there are not."""
    path = tmp_path / "model.safetensors"
    CrowdClassifier("identity", method="labeling-search").fit(X, LABELS).save(path)
    tensors, card = load_file(path), card_of(path)
    del card["sha256"]
    tensors["fit.believed"] *= 0
    save_file(tensors, path, metadata={"crowdshot": json.dumps(card)})
    with pytest.raises(CrowdshotError, match=r"damaged or incomplete \(ValueError: label_proba has values"):
        CrowdClassifier.load(path)
