"""Pipelines as files: the same after loading, nothing unpickled, and told where a step does not allow it."""

import pickle
import sys

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from crowdshot import CrowdClassifier, CrowdshotError, load_pipeline, save_pipeline
from crowdshot.io.cards import read_safetensors, write_safetensors

random = np.random.default_rng(0)
X = np.repeat([[0.0, 0, 0], [4.0, 4, 4]], 10, 0) + random.normal(size=(20, 3))
LABELS = np.repeat([["a", "a", "b"], ["b", "b", "b"]], 10, 0)
TOLD = "pipeline has steps that skops cannot write"


class Doubled(BaseEstimator, TransformerMixin):
    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        return 2 * np.asarray(X)


def fitted(*steps, X=X):
    return make_pipeline(*steps, CrowdClassifier("identity")).fit(X, LABELS)


@pytest.mark.slow
def test_what_is_loaded_is_what_was_saved(tmp_path, monkeypatch):
    pipeline = fitted(StandardScaler(), PCA(2))
    save_pipeline(pipeline, tmp_path / "model.safetensors")
    monkeypatch.setattr(pickle, "loads", None)
    monkeypatch.setattr(pickle, "load", None)
    loaded = load_pipeline(tmp_path / "model.safetensors")
    assert [name for name, _ in loaded.steps] == ["standardscaler", "pca", "crowdclassifier"]
    np.testing.assert_allclose(loaded.predict_proba(X), pipeline.predict_proba(X), atol=1e-12)
    assert pipeline.steps[-1][1] is not None  # and the one that was saved still works
    pipeline.predict(X)
    loaded[-1].update({0: {0: "a"}})  # and learns on


def test_a_table_with_columns_of_its_own_kind(tmp_path):
    import pandas as pd

    table = pd.DataFrame({"age": X[:, 0], "town": ["York", "Bath"] * 10})
    by_kind = make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(), ["town"]))
    pipeline = fitted(by_kind, X=table)
    save_pipeline(pipeline, tmp_path / "model.safetensors")
    found = load_pipeline(tmp_path / "model.safetensors").predict_proba(table)
    np.testing.assert_allclose(found, pipeline.predict_proba(table), atol=1e-12)


def test_types_of_other_packages_have_to_be_trusted_by_name(tmp_path):
    save_pipeline(fitted(Doubled()), tmp_path / "model.safetensors")
    name = f"{Doubled.__module__}.Doubled"
    with pytest.raises(CrowdshotError, match="types that skops does not trust") as error:
        load_pipeline(tmp_path / "model.safetensors")
    assert (error.value.argument, error.value.found) == ("trusted", [name])
    assert load_pipeline(tmp_path / "model.safetensors", trusted=[name]).predict(X[:1]).tolist() == ["a"]


def test_steps_that_cannot_be_written_are_told_and_nothing_is(tmp_path):
    with pytest.raises(CrowdshotError, match=TOLD):
        save_pipeline(fitted(FunctionTransformer(lambda X: X * 2)), tmp_path / "model.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_each_loads_its_own_files(tmp_path):
    pipeline = fitted(StandardScaler())
    save_pipeline(pipeline, tmp_path / "pipeline.safetensors")
    pipeline[-1].save(tmp_path / "classifier.safetensors")
    with pytest.raises(CrowdshotError, match="holds a pipeline, expected a classifier"):
        CrowdClassifier.load(tmp_path / "pipeline.safetensors")  # it would be fed with what is not scaled
    with pytest.raises(CrowdshotError, match="holds a classifier, expected a pipeline"):
        load_pipeline(tmp_path / "classifier.safetensors")


@pytest.mark.parametrize("given", [StandardScaler(), make_pipeline(StandardScaler(), PCA(1)), None])
def test_what_is_no_such_pipeline(given, tmp_path):
    with pytest.raises(CrowdshotError, match=r"pipeline is a \w+, expected a Pipeline that ends in CrowdClassifier"):
        save_pipeline(given, tmp_path / "model.safetensors")


def test_steps_that_are_damaged(tmp_path):
    save_pipeline(fitted(StandardScaler()), tmp_path / "model.safetensors")
    tensors, card = read_safetensors(tmp_path / "model.safetensors", "pipeline")
    write_safetensors(
        tmp_path / "model.safetensors", tensors | {"pipeline.steps": torch.zeros(9, dtype=torch.uint8)}, card
    )
    with pytest.raises(CrowdshotError, match=r"has steps that cannot be read \(BadZipFile: .*\), expected steps that"):
        load_pipeline(tmp_path / "model.safetensors")


def test_steps_that_unpack_to_all_memory_are_refused(tmp_path, monkeypatch):
    save_pipeline(fitted(StandardScaler()), tmp_path / "model.safetensors")
    monkeypatch.setattr("crowdshot.io.archive_limits.MOST_UNPACKED", 10)
    monkeypatch.setattr("crowdshot.io.archive_limits.MOST_TIMES", 0)
    with pytest.raises(CrowdshotError, match="unpacks to"):
        load_pipeline(tmp_path / "model.safetensors")


def test_without_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "skops", None)
    for do in (lambda: save_pipeline(fitted(), tmp_path / "a"), lambda: load_pipeline(tmp_path / "a")):
        with pytest.raises(CrowdshotError, match=r"skops, .* not installed.* pip install 'crowdshot\[skops\]'"):
            do()
