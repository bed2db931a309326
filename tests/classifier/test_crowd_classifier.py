"""CrowdClassifier as its users meet it: conventions, forms of input, tables, saving."""

from typing import get_args

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, ParameterGrid
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from crowdshot import METHODS, Annotations, CrowdAggregator, CrowdClassifier, labelings, mixture, simulate
from crowdshot.classifier import feature_learners
from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.encoder_files import build_encoder, save_encoder
from crowdshot.encoders.image_input import ImageInput
from crowdshot.errors import CrowdshotError
from crowdshot.methods import MethodName
from crowdshot.model.priors import Diagonal
from crowdshot.model_selection import CrowdKFold

PAPER_CARD = {"tau": 1.0, "b": 100.0, "confusion": {"kind": "symmetric", "c": 1.0}, "steps": 3}


@pytest.fixture(scope="module")
def clouds():
    """Three clouds on a plane, five annotators (the last one guesses), strings for classes."""
    random = np.random.default_rng(0)
    truth = np.repeat(np.arange(3), 8)
    X = np.array([[0, 0], [4, 0], [0, 4]])[truth] + random.normal(0, 0.7, (24, 2))
    confusion = torch.eye(3).expand(5, 3, 3) * 0.85 + 0.05
    confusion[-1] = 1 / 3
    labels = simulate.draw_labels(torch.tensor(truth), confusion, None, torch.Generator().manual_seed(0)).numpy()
    names = np.array(["fox", "hen", "owl"])
    return X, names[labels], names[truth]


@pytest.fixture(scope="module")
def small_encoder():
    torch.manual_seed(0)
    return build_encoder("conv4", {"width": 8}, ImageInput((28, 28), ink=True), {"priors": PAPER_CARD})


def test_consensus_classifier_and_annotators(clouds):
    X, labels, truth = clouds
    clf = CrowdClassifier("identity").fit(X, labels)
    assert clf.classes_.tolist() == ["fox", "hen", "owl"]
    assert (clf.consensus_["label"] == truth).all()
    assert clf.predict([[0.1, 0.1], [4.2, 0.3], [-0.4, 3.8]]).tolist() == ["fox", "hen", "owl"]
    assert clf.score(X, truth) == 1.0
    np.testing.assert_allclose(clf.predict_proba(X).sum(1), 1)
    assert clf.confusion_.shape == (5, 3, 3)
    np.testing.assert_allclose(clf.confusion_.sum(-1), 1, rtol=1e-6)

    assert list(clf.consensus_) == ["item", "label", "confidence", "n_labels", "agreement"]
    share = (labels == truth[:, None]).mean(1)
    np.testing.assert_allclose(clf.consensus_["agreement"], share)
    assert (clf.consensus_["n_labels"] == 5).all()

    table = clf.annotators_
    columns = ["annotator", "n_labels", "accuracy", "low", "high", "most_confused", "right", "wrong", "p_below"]
    assert list(table) == columns
    assert table["accuracy"].idxmin() == 4
    right = (labels == truth[:, None]).sum(0)
    crowd = (right.sum() + 4 * 0.7) / (labels.size + 4)
    n = len(labels)
    np.testing.assert_allclose(table["accuracy"], (right + 7.3 * crowd) / (n + 7.3), atol=0.07)  # not certain
    assert ((table["low"] < table["accuracy"]) & (table["accuracy"] < table["high"])).all()


def test_intervals_by_hand():
    """Of four certain labels three are right; the crowd is right in 15 of 16.

    With 4 labels of accuracy 0.7 the crowd's mean is 17.8 / 20 = 0.89. It counts as 7.3 labels: Beta(3 + 6.497,
    1 + 0.803) with mean 9.497 / 11.3 = 0.840.
    """
    from scipy.stats import beta

    X = np.array([[0.0], [0.0], [9.0], [9.0]])
    sure = [[0, 0, 0, 0], [0, 0, 0, 1], [1, 1, 1, 1], [1, 1, 1, 1]]
    row = CrowdClassifier("identity", method="ours", settings={"scale": 100.0}).fit(X, sure).annotators_.iloc[3]
    assert row["accuracy"] == pytest.approx(0.8404, abs=1e-3)
    assert row["low"] == pytest.approx(beta(9.497, 1.803).ppf(0.05), abs=5e-3)
    assert row["high"] == pytest.approx(beta(9.497, 1.803).ppf(0.95), abs=5e-3)
    assert row["p_below"] == pytest.approx(beta(9.497, 1.803).cdf(0.7), abs=5e-3)
    assert row["most_confused"] == "0 → 1 (once)"


@pytest.mark.slow
def test_intervals_hold_the_truth_nine_times_in_ten():
    """Sixty crowds of five on digits; binomial error of the share is about 0.02."""
    digits = load_digits()
    random, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    inside = []
    for trial in range(60):
        order = random.permutation(len(digits.target))
        chosen = np.concatenate([order[digits.target[order] == k][:6] for k in range(10)])
        crowd = simulate.draw_annotators(5, 10, simulate.PAPER_SOURCE, (), generator)
        labels = simulate.draw_labels(torch.tensor(digits.target[chosen]), crowd.confusion, None, generator)
        table = CrowdClassifier("identity", random_state=trial).fit(digits.data[chosen], labels.numpy()).annotators_
        true = crowd.confusion.diagonal(dim1=-2, dim2=-1).mean(-1).numpy()
        inside += list((table["low"] <= true) & (true <= table["high"]))
    assert 0.83 <= np.mean(inside) <= 0.97


def test_every_form_of_labels_says_the_same(clouds):
    X, labels, _ = clouds
    long = pd.DataFrame(
        [(f"i{n}", f"r{r}", labels[n, r]) for n in range(24) for r in range(5)], columns=["task", "worker", "label"]
    ).sample(frac=1, random_state=0)
    ids = [f"i{n}" for n in range(24)]
    nested = {f"i{n}": {f"r{r}": labels[n, r] for r in range(5)} for n in range(24)}
    expected = CrowdClassifier("identity").fit(X, labels)
    for form in (long, Annotations.from_frame(long), nested):
        clf = CrowdClassifier("identity").fit(X, form, items=ids)
        assert (clf.predict(X) == expected.predict(X)).all()
        assert clf.consensus_.iloc[:, 1].tolist() == expected.consensus_["label"].tolist()
    by_index = CrowdClassifier("identity").fit(pd.DataFrame(X, index=ids), long)
    assert list(by_index.consensus_)[:2] == ["task", "label"]
    assert by_index.annotators_.columns[0] == "worker"


def test_items_without_a_label_are_predicted_and_do_no_harm(clouds):
    X, labels, _ = clouds
    more = np.vstack([X, [[4.1, 0.2], [0.1, 4.4]]])
    padded = np.vstack([labels.astype(object), np.full((2, 5), None)])
    table = CrowdClassifier("identity", method="ours", settings={"scale": 8.0}).fit(more, padded).consensus_
    assert table["label"].tolist()[-2:] == ["hen", "owl"]
    assert table["n_labels"].tolist()[-2:] == [0, 0]
    assert table["agreement"].isna().tolist()[-2:] == [True, True]


def test_of_an_annotator_who_said_nothing_nothing_is_known(clouds):
    X, labels, _ = clouds
    silent = np.column_stack([labels.astype(object), [None] * 24])
    row = CrowdClassifier("identity").fit(X, silent).annotators_.iloc[5]
    assert np.isnan(row["accuracy"])
    assert (row["n_labels"], row["low"], row["high"], row["most_confused"]) == (0, 0.0, 1.0, "")


def test_scikit_learn_conventions(clouds):
    X, labels, truth = clouds
    clf = CrowdClassifier("identity", settings={"steps": 4, "c": (3.0, 0.5)})
    assert clone(clf).get_params() == clf.get_params()
    with pytest.raises(NotFittedError):
        clf.predict(X)
    with pytest.raises(NotFittedError):
        _ = clf.consensus_
    assert clf.fit(X, labels) is clf
    assert clf.n_features_in_ == 2
    assert clf.settings_["c"] == Diagonal(3.0, 0.5)
    pipeline = make_pipeline(StandardScaler(), CrowdClassifier("identity")).fit(X, labels)
    assert pipeline.score(X, truth) == 1.0
    scores = [
        clone(clf).set_params(**p).fit(X, labels).score(X, truth)
        for p in ParameterGrid({"settings": [{"steps": 1}, {"steps": 5}]})
    ]
    assert min(scores) > 0.9
    with pytest.raises(CrowdshotError, match="X has 3 features, but"):
        clf.predict(np.zeros((1, 3)))


def test_columns_keep_their_names(clouds, tmp_path):
    X, labels, truth = clouds
    table = pd.DataFrame(X, columns=["height", "width"])
    clf = CrowdClassifier("identity").fit(table, labels)
    assert clf.feature_names_in_.tolist() == ["height", "width"]
    clf.save(tmp_path / "named.safetensors")
    for known in (clf, CrowdClassifier.load(tmp_path / "named.safetensors")):
        assert known.score(table, truth) == known.score(X, truth) == 1.0
        with pytest.raises(CrowdshotError, match="X has 'width' as column 1, expected 'height' as in fit"):
            known.predict(table[["width", "height"]])
        with pytest.raises(CrowdshotError, match="X has 1 features, but"):
            known.predict(table[["width"]])
    assert not hasattr(clf.fit(X, labels), "feature_names_in_")
    assert not hasattr(CrowdClassifier("identity").fit(pd.DataFrame(X), labels), "feature_names_in_")


@pytest.mark.parametrize(
    "settings", [{}, {"method": "labeling-search"}, {"method": "PrSV"}, {"settings": {"covariance": "full"}}]
)
def test_a_class_that_nobody_named_changes_nothing_and_is_never_predicted(clouds, tmp_path, settings):
    """Beside the same fit without it; one in the midst of the others would draw items to itself."""
    X, labels, _ = clouds
    plain = CrowdClassifier("identity", **settings).fit(X, labels)
    clf = CrowdClassifier("identity", **settings).fit(X, labels, classes=["ape", "fox", "hen", "elk", "owl"])
    clf.save(tmp_path / "wide.safetensors")
    everywhere = np.random.default_rng(1).uniform(-3, 7, (50, 2))
    named = [1, 2, 4]
    for wide in (clf, CrowdClassifier.load(tmp_path / "wide.safetensors")):
        assert wide.classes_.tolist() == ["ape", "fox", "hen", "elk", "owl"]
        found = wide.predict_proba(everywhere)
        np.testing.assert_allclose(found[:, named], plain.predict_proba(everywhere), atol=1e-6)
        assert (found[:, [0, 3]] == 0).all()
        np.testing.assert_allclose(wide.confusion_[np.ix_(range(5), named, named)], plain.confusion_, atol=1e-6)
        np.testing.assert_allclose(wide.confusion_.sum(-1), 1, rtol=1e-6)
        pd.testing.assert_frame_equal(wide.consensus_, plain.consensus_)
        pd.testing.assert_frame_equal(wide.annotators_, plain.annotators_)


def test_settings_reach_the_model(clouds, small_encoder):
    X, labels, _ = clouds
    codes = np.searchsorted(["fox", "hen", "owl"], labels)
    given = {"steps": 4, "tau": 0.3, "b": 2.0, "c": 0.7, "scale": 5.0, "covariance": "diagonal"}
    clf = CrowdClassifier("identity", settings=given).fit(X, labels)
    x = torch.tensor(X, dtype=torch.float32)
    x = x - x.mean(0)
    x = x / x.square().sum(-1).mean().sqrt()
    direct = mixture.fit(x, torch.tensor(codes), 3, **given)
    np.testing.assert_allclose(clf._model.responsibilities, direct.responsibilities, atol=1e-5)
    # a trained encoder brings its own: three steps, the paper's constants, and no standardisation
    images = np.random.default_rng(0).random((24, 28, 28))
    trained = CrowdClassifier(small_encoder, method="ours").fit(images, labels)
    assert (trained.settings_["steps"], trained.scale_) == (3, 1.0)
    direct = mixture.fit(small_encoder.embed(images), torch.tensor(codes), 3, steps=3)
    np.testing.assert_allclose(trained._model.responsibilities, direct.responsibilities, atol=1e-5)


def test_embeddings_that_were_kept_serve_another_classifier(clouds, small_encoder):
    _, labels, _ = clouds
    images = np.random.default_rng(0).random((24, 28, 28))
    whole = CrowdClassifier(small_encoder).fit(images, labels)
    kept = CrowdClassifier(small_encoder).embed(images)
    again = CrowdClassifier(small_encoder).fit_embeddings(kept, labels)
    np.testing.assert_array_equal(again.predict_proba(images), whole.predict_proba(images))


def test_any_module_is_an_encoder_and_images_come_in_every_form(clouds, small_encoder, tmp_path):
    _, labels, _ = clouds
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 7))
    assert CrowdClassifier(module, method="ours").fit(clouds[0], labels)._model.means.shape == (3, 7)
    assert CrowdClassifier(module).fit(clouds[0], labels).score(clouds[0], clouds[2]) > 0.9
    arrays = np.random.default_rng(0).integers(0, 255, (24, 28, 28), dtype=np.uint8)
    paths = [tmp_path / f"{n}.png" for n in range(24)]
    pictures = [Image.fromarray(a) for a in arrays]
    for picture, path in zip(pictures, paths, strict=True):
        picture.save(path)
    save_encoder(small_encoder, tmp_path / "small.safetensors")
    expected = CrowdClassifier(small_encoder).fit(arrays, labels).predict_proba(arrays)
    for form in (paths, [str(p) for p in paths], pictures):
        clf = CrowdClassifier(tmp_path / "small.safetensors").fit(form, labels)
        np.testing.assert_allclose(clf.predict_proba(form), expected, atol=1e-5)
    table = pd.DataFrame([(f"{n}.png", r, labels[n, r]) for n in range(24) for r in range(5)])
    table.columns = ["image", "annotator", "label"]
    by_name = CrowdClassifier(small_encoder).fit(paths, table.sample(frac=1, random_state=1))
    np.testing.assert_allclose(by_name.predict_proba(arrays), expected, atol=1e-5)


def test_saved_and_loaded_it_is_the_same(clouds, small_encoder, tmp_path):
    X, labels, _ = clouds
    images = np.random.default_rng(0).random((24, 28, 28))
    for encoder, items, covariance in (("identity", X, "full"), (small_encoder, images, "identity")):
        clf = CrowdClassifier(encoder, settings={"covariance": covariance}).fit(items, labels)
        clf.save(tmp_path / "model.safetensors")
        again = CrowdClassifier.load(tmp_path / "model.safetensors")
        np.testing.assert_array_equal(again.predict_proba(items), clf.predict_proba(items))
        pd.testing.assert_frame_equal(again.consensus_, clf.consensus_)
        pd.testing.assert_frame_equal(again.annotators_, clf.annotators_)
        refitted = again.fit(items, labels)
        np.testing.assert_allclose(refitted.predict_proba(items), clf.predict_proba(items), atol=1e-6)
    with pytest.raises(CrowdshotError, match=r"encoder is a wrapped Linear, expected a network that can be saved"):
        CrowdClassifier(torch.nn.Linear(2, 3)).fit(X, labels).save(tmp_path / "other.safetensors")
    save_encoder(small_encoder, tmp_path / "encoder.safetensors")
    with pytest.raises(CrowdshotError, match="holds an encoder, expected a classifier"):
        CrowdClassifier.load(tmp_path / "encoder.safetensors")


def test_a_large_sparse_crowd_gives_what_the_dense_path_gives(clouds, monkeypatch):
    X, labels, _ = clouds
    dense = CrowdClassifier("identity").fit(X, labels)
    monkeypatch.setattr("crowdshot.classifier.mixture_learners.MOST_DENSE", 0)
    sparse = CrowdClassifier("identity").fit(X, labels)
    np.testing.assert_allclose(sparse.predict_proba(X), dense.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(sparse.confusion_, dense.confusion_, atol=1e-5)


@pytest.mark.parametrize("method", ["auto", "paper", "PrDS", "LRDS"])
def test_probabilities_are_what_metrics_of_scikit_learn_take(method):
    """Rows sum to one in double precision, and nothing is above it."""
    digits, random = load_digits(), np.random.default_rng(3)
    four = random.choice(10, 4, replace=False)
    items = np.concatenate([random.choice(np.flatnonzero(digits.target == k), 3, replace=False) for k in four])
    labels = np.where(random.random((12, 4)) < 0.7, digits.target[items, None], random.choice(four, (12, 4)))
    others = np.flatnonzero(np.isin(digits.target, four))
    clf = CrowdClassifier(method=method).fit(digits.images[items], labels)
    found = clf.predict_proba(digits.images[others])
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-14)
    assert found.max() <= 1
    assert 0 < log_loss(digits.target[others], found) < 3
    assert clf.consensus_["confidence"].max() <= 1


def test_one_class_is_refused_though_more_are_listed(clouds):
    """An empty class lies in the midst of all items; there is nothing to tell it from the only one that was named."""
    X, labels, _ = clouds
    with pytest.raises(CrowdshotError, match="labels has 'fox' alone"):
        CrowdClassifier("identity").fit(X, np.full_like(labels, "fox"), classes=["fox", "hen"])


def test_seeds_of_numpy_and_what_is_no_seed(clouds, tmp_path):
    X, labels, _ = clouds
    clf = CrowdClassifier("identity", random_state=np.int64(3)).fit(X, labels)
    np.testing.assert_array_equal(
        clf.predict_proba(X), CrowdClassifier("identity", random_state=3).fit(X, labels).predict_proba(X)
    )
    clf.save(tmp_path / "clf.safetensors")
    assert CrowdClassifier.load(tmp_path / "clf.safetensors").random_state == 3
    for strange in (-1, 1.5, "seed"):
        with pytest.raises(CrowdshotError, match=r"random_state is .*, expected .* a whole number"):
            CrowdClassifier("identity", random_state=strange).fit(X, labels)


@pytest.mark.parametrize("kind", [np.random.RandomState, np.random.default_rng])
def test_random_states_are_drawn_from(clouds, tmp_path, kind):
    X, labels, _ = clouds
    one, two = (CrowdClassifier("identity", method="RFMV", random_state=kind(5)).fit(X, labels) for _ in range(2))
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
    one.save(tmp_path / "clf.safetensors")
    again = CrowdClassifier.load(tmp_path / "clf.safetensors")
    np.testing.assert_array_equal(again.predict_proba(X), one.predict_proba(X))
    np.testing.assert_array_equal(one.predict_proba(X), one.predict_proba(X))
    np.testing.assert_array_equal(one.update({0: {0: labels[0, 0]}}).predict_proba(X), two.predict_proba(X))


def test_no_random_state_draws_another_seed_for_each_fit(clouds):
    X, labels, _ = clouds
    np.random.seed(0)
    clf = CrowdClassifier("identity", method="RFMV", random_state=None)
    one, two = (clf.fit(X, labels).predict_proba(X) for _ in range(2))
    assert (one != two).any()


def test_arguments_of_the_mixture_moved_to_settings(clouds):
    X, labels, _ = clouds
    with pytest.warns(FutureWarning, match="settings"):
        old = CrowdClassifier("identity", scale=8.0, steps=None)
    assert (old.method, old.settings) == ("ours", {"scale": 8.0})
    new = CrowdClassifier("identity", method="ours", settings={"scale": 8.0}).fit(X, labels)
    np.testing.assert_array_equal(old.fit(X, labels).predict_proba(X), new.predict_proba(X))
    with pytest.warns(FutureWarning, match="settings"):
        old = CrowdClassifier("identity").set_params(steps=3, random_state=1)
    assert (old.method, old.settings, old.random_state) == ("ours", {"steps": 3}, 1)
    with pytest.warns(FutureWarning, match="leave out"):
        assert CrowdClassifier("identity", covariance="identity").method == "auto"  # the default of 0.2
    with pytest.warns(FutureWarning, match="labeling-search"):
        CrowdClassifier("identity", method="labeling-search", scale=8.0)
    with pytest.raises(TypeError, match="stepps"):
        CrowdClassifier("identity", stepps=3)
    for name in ("fit_", "shift_", "factor_", "reader_", "belief_"):
        with pytest.warns(FutureWarning, match=name):
            getattr(new, name)


def test_every_method_is_in_the_type():
    known = set(get_args(MethodName))
    assert {name.lower() for name in known} == {
        "auto",
        "paper",
        *(name.lower() for name in METHODS if METHODS.is_built_in(name)),
    }


@pytest.mark.parametrize("number", [torch.tensor(torch.nan), torch.tensor(-1.0), torch.ones(2), Diagonal])
def test_what_looks_like_a_setting_of_the_mixture_and_is_none(clouds, number):
    X, labels, _ = clouds
    with pytest.raises(CrowdshotError, match=r"c is .*, expected a number, 0 or more, a pair"):
        CrowdClassifier("identity", settings={"c": number}).fit(X, labels)


def test_settings_may_be_tensors(clouds, tmp_path):
    X, labels, _ = clouds
    clf = CrowdClassifier("identity", settings={"c": torch.tensor(2.0), "tau": torch.tensor(0.5)}).fit(X, labels)
    plain = CrowdClassifier("identity", settings={"c": 2.0, "tau": 0.5}).fit(X, labels)
    np.testing.assert_allclose(clf.predict_proba(X), plain.predict_proba(X), atol=1e-6)
    clf.save(tmp_path / "clf.safetensors")
    assert CrowdClassifier.load(tmp_path / "clf.safetensors").settings_["tau"] == 0.5


@pytest.mark.parametrize(
    "strange", [{"tau": "x"}, {"c": "one-coin"}, {"c": (-1.0, 1.0)}, {"c": (np.nan, 1.0)}, {"b": (1, 2)}]
)
def test_settings_of_the_mixture_that_are_no_numbers(clouds, strange):
    X, labels, _ = clouds
    (name,) = strange
    with pytest.raises(CrowdshotError, match=rf"{name} is .*, expected a number, 0 or more"):
        CrowdClassifier("identity", method="ours", settings=strange).fit(X, labels)


def test_repeats_with_the_seed(clouds):
    X, labels, _ = clouds
    one, two = (CrowdClassifier("identity", random_state=3).fit(X, labels).predict_proba(X) for _ in range(2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("settings", "X", "labels", "message"),
    [
        ({"encoder": "nonesuch"}, np.zeros((2, 2)), [[0], [1]], "encoder is 'nonesuch', expected a file or one of"),
        (
            {"encoder": "identity"},
            np.zeros((2, 2)),
            [["a"], ["a"]],
            "labels has 'a' alone",
        ),
        ({"encoder": "identity"}, np.zeros((3, 2)), [[0], [1]], "labels has 2 rows, expected 3"),
        (
            {"encoder": "identity", "device": "abacus"},
            np.zeros((2, 2)),
            [[0], [1]],
            "device is 'abacus', expected auto, cpu or cuda",
        ),
        ({"encoder": "identity"}, np.full((2, 2), np.nan), [[0], [1]], "X has NaN"),
        (
            {"encoder": "identity"},
            np.zeros((2, 2)),
            pd.DataFrame({"wer": ["x", "y"], "was": ["p", "q"]}),
            "no column for the item among 'wer', 'was', expected one called item",
        ),
        (
            {"encoder": "identity"},
            np.zeros((2, 2)),
            pd.DataFrame({"wer": ["x", "y"], "was": ["p", "q"]}),
            "or use Annotations.from_matrix(table) if each column has the labels of an annotator.",
        ),
    ],
)
def test_bad_input_gets_one_clear_sentence(settings, X, labels, message):
    with pytest.raises(CrowdshotError) as error:
        CrowdClassifier(**settings).fit(X, labels)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_wrapping_keeps_what_is_given(small_encoder):
    assert isinstance(Encoder.wrap(torch.nn.Identity()), Encoder)
    assert small_encoder.n_features_out == 8


# ---- the default --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawings():
    """Thirty small images of three kinds, and what five people said of them."""
    random = np.random.default_rng(0)
    truth = np.repeat(np.arange(3), 10)
    images = random.random((30, 28, 28)) * 0.2
    for image, kind in zip(images, truth, strict=True):
        image[8 * kind + 2 : 8 * kind + 8, 4:24] += 0.8
    said = np.where(random.random((30, 5)) < 0.7, truth[:, None], random.integers(0, 3, (30, 5)))
    return images, said, truth


def test_few_images_are_learned_by_both_on_the_clean_encoder(drawings, tmp_path):
    images, said, truth = drawings
    clf = CrowdClassifier().fit(images, said)
    assert clf.learner_ == "combined"
    assert clf.encoder_.card["recipe"]["objective"] == "prototypical"
    trusted = clf.encoder_.card["labelings"]
    assert clf.settings_ == {**trusted, "width": labelings.WIDTH}
    sizes = clf._model.search.sizes
    np.testing.assert_allclose(sizes, clf._model.looks.size, atol=1e-6)
    direct = labelings.fit(clf.embed(images), torch.tensor(said), 3, sizes=sizes, **trusted)
    np.testing.assert_allclose(
        clf._model.search.log_proba(clf.embed(images)), direct.log_proba(clf.embed(images)), atol=1e-5
    )
    assert (clf.consensus_["label"] == truth).mean() > 0.9
    clf.save(tmp_path / "model.safetensors")
    again = CrowdClassifier.load(tmp_path / "model.safetensors")
    assert again.learner_ == "combined"
    np.testing.assert_allclose(again.predict_proba(images), clf.predict_proba(images), atol=1e-6)
    pd.testing.assert_frame_equal(again.consensus_, clf.consensus_)
    pd.testing.assert_frame_equal(again.annotators_, clf.annotators_)
    assert again._learner_again() == clf._learner_again()


def test_items_without_labels_change_nothing_and_are_predicted(drawings):
    images, said, _ = drawings
    some = CrowdClassifier().fit(images[::2], said[::2])
    padded = said.copy()
    padded[1::2] = -1
    everything = CrowdClassifier().fit(images, padded)
    np.testing.assert_allclose(everything.predict_proba(images), some.predict_proba(images), atol=1e-5)
    np.testing.assert_allclose(
        everything.consensus_["confidence"][1::2], some.predict_proba(images[1::2]).max(1), atol=1e-5
    )


def test_what_the_default_is(drawings, clouds, monkeypatch):
    images, said, _ = drawings
    assert CrowdClassifier("identity").fit(clouds[0], clouds[1]).learner_ == "features"  # features from elsewhere
    given = CrowdClassifier(settings={"steps": 4}).fit(images, said)  # a setting that the mixture alone has
    assert given.settings_["steps"] == 4
    assert given.encoder_.card["recipe"]["objective"] == "mixture"
    monkeypatch.setattr(feature_learners, "FEW", 20)
    many = CrowdClassifier().fit(images, said)
    assert many.learner_ == "features"
    assert isinstance(CrowdClassifier(method="labeling-search").fit(images, said)._model, labelings.Posterior)
    told = CrowdClassifier(settings={"tau": 2.0}).fit(images, said)  # a setting of labelings: never passed over
    assert isinstance(told._model, labelings.Posterior)
    assert told.settings_["tau"] == 2.0


def test_the_papers_method_is_to_be_had_exactly(drawings):
    images, said, _ = drawings
    clf = CrowdClassifier(method="paper").fit(images, said)
    direct = mixture.fit(clf.embed(images), torch.tensor(said), 3, steps=2, tau=1.0, b=100.0, c=1.0)
    np.testing.assert_allclose(clf._model.responsibilities, direct.responsibilities, atol=1e-6)
    np.testing.assert_allclose(clf.confusion_, direct.confusion, atol=1e-6)
    assert clf._learner_again().name == "Ours"


def test_a_search_of_thousands_is_refused(clouds):
    X, labels = np.zeros((2_001, 2)), np.zeros((2_001, 1), dtype=int)
    labels[::2] = 1
    with pytest.raises(CrowdshotError, match="labels has 2,001 labelled items, expected 2,000 or fewer"):
        CrowdClassifier("identity", method="labeling-search").fit(X, labels)


@pytest.mark.parametrize("method", ["auto", "ours", "labeling-search", "lrds"])
def test_items_without_measure_are_refused_and_not_called_the_first_class(method):
    """At 1e38 every probability was NaN, and the first class was said."""
    X, labels = np.array([[0.0, 1], [5, 5], [0, 2], [6, 5]]), [["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]]
    clf = CrowdClassifier("identity", method=method).fit(X, labels)
    for huge in (1e38, -1e38, 1e300):
        with pytest.raises(CrowdshotError, match=r"huge values, first in row 1, expected finite numbers"):
            clf.predict_proba([[0.0, 0], [huge, 0]])
        with pytest.raises(CrowdshotError, match="huge values"):
            clf.fit([*X[:3], [huge, 0]], labels)
    for far in (1e6, 1e33, -1e33):
        said = clf.predict_proba([[far, 0], [0, far]])
        np.testing.assert_allclose(said.sum(1), 1)


def test_tables_that_no_memory_holds_are_refused_before_the_work():
    """20,000 annotators of 200 classes: 800 million cells."""
    who = np.arange(20_000)
    ann = Annotations(who % 50, who, who % 200, np.arange(50), who, np.arange(200))
    with pytest.raises(CrowdshotError, match="more than 200,000,000 cells") as error:
        CrowdClassifier("identity").fit(np.eye(50), ann)
    assert (error.value.argument, error.value.found) == ("labels", (50, 20_000, 200))


# ---- what callers naturally write ----


def test_a_single_setting_can_be_set():
    for estimator in (CrowdClassifier("identity", method="ours", settings={"tau": 2.0}), CrowdAggregator("one-coin")):
        before = estimator.settings
        assert estimator.set_params(settings__steps=3) is estimator
        assert estimator.settings == {**(before or {}), "steps": 3}
        assert before in (None, {"tau": 2.0})  # not changed in place
    grid = {"clf__settings__steps": [1, 3]}
    pipe = Pipeline([("scale", StandardScaler()), ("clf", CrowdClassifier("identity", method="ours"))])
    X, labels = np.arange(24.0).reshape(12, 2), np.array([[0, 0, 1], [1, 1, 1]] * 6)
    search = GridSearchCV(pipe, grid, cv=CrowdKFold(2)).fit(X, labels)
    assert search.best_estimator_[-1].settings == {"steps": search.best_params_["clf__settings__steps"]}


def test_ids_in_a_column_of_features_are_refused():
    X = pd.DataFrame({"page": [7, 8, 9, 10], "x": [0.0, 0.1, 5.0, 5.1]})
    labels = pd.DataFrame({"page": [7, 8, 9, 10] * 2, "worker": list("aaaabbbb"), "label": [0, 0, 1, 1] * 2})
    labels = labels.rename(columns={"page": "item"})
    X = X.rename(columns={"page": "item"})
    with pytest.raises(CrowdshotError, match="column 'item'") as error:
        CrowdClassifier("identity").fit(X, labels)
    assert error.value.hint == "Pass X.set_index('item')."
    clf = CrowdClassifier("identity").fit(X.set_index("item"), labels)
    assert (clf.consensus_["item"].tolist(), clf.n_features_in_) == ([7, 8, 9, 10], 1)


def test_items_that_a_pipeline_lost_are_explained():
    X = pd.DataFrame({"x": [0.0, 0.1, 5.0, 5.1]}, index=list("pqrs"))
    labels = pd.DataFrame({"item": list("pqrs") * 2, "worker": list("aaaabbbb"), "label": [0, 0, 1, 1] * 2})
    pipe = Pipeline([("scale", StandardScaler()), ("clf", CrowdClassifier("identity"))])
    with pytest.raises(CrowdshotError, match="X has no item for 4 of the 4 labelled items") as error:
        pipe.fit(X, labels)
    assert "__items=" in error.value.hint
    for fitted in (pipe.fit(X, labels, clf__items=X.index), pipe.set_output(transform="pandas").fit(X, labels)):
        assert fitted[-1].consensus_["item"].tolist() == list("pqrs")


@pytest.mark.parametrize("X", [[0.1, 0.2, 5.0], np.arange(3), pd.Series([0.1, 0.2, 5.0]), torch.zeros(3)])
def test_a_column_of_numbers_is_not_taken_for_images(X):
    with pytest.raises(CrowdshotError, match="X has 3 numbers, expected a row of features"):
        CrowdClassifier().fit(X, [0, 0, 1])


def test_a_table_with_only_texts_is_refused_with_advice():
    X = pd.DataFrame({"review": [f"a film of {n} minutes" for n in range(60, 120)]})
    with pytest.raises(CrowdshotError, match="no informative column") as error:
        CrowdClassifier().fit(X, [0, 1] * 30)
    assert "column 'review'" in error.value.hint


def test_encoders_of_scikit_learn():
    texts = ["a lovely film", "boring and long", "great and lovely", "awful, long and boring"]
    tfidf = TfidfVectorizer().fit(texts)
    clf = CrowdClassifier(tfidf.transform).fit(texts, [[0, 0], [1, 1], [0, 0], [1, 1]])  # returns sparse arrays
    np.testing.assert_allclose(clf.embeddings_, tfidf.transform(texts).toarray(), atol=1e-6)
    with pytest.raises(CrowdshotError) as error:
        CrowdClassifier(tfidf).fit(texts, [0, 1, 0, 1])
    assert "encoder.transform" in error.value.hint
    with pytest.raises(CrowdshotError, match="Did you mean 'texts'"):
        CrowdClassifier("text").fit(texts, [0, 1, 0, 1])
