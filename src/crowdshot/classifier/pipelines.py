"""A Pipeline that ends in a `CrowdClassifier` as one file, nothing of which is unpickled.

The classifier is in it as `CrowdClassifier.save` writes it, what comes before as skops does: scikit-learn's own steps,
and others as far as skops can write them. Types that it does not know to be harmless have to be trusted by name.
"""

from __future__ import annotations

import copy
import io
import os
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from crowdshot.classifier.crowd_classifier import CrowdClassifier
from crowdshot.classifier.saving import fill, state_of
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first_line, listing, shown
from crowdshot.io.archive_limits import check_parts
from crowdshot.io.cards import read_safetensors, write_safetensors

KIND, STEPS = "pipeline", "pipeline.steps"


def save_pipeline(pipeline: Pipeline, path: str | os.PathLike[str]) -> None:
    """One file with all steps of a fitted pipeline; needs the extra ``skops``.

    >>> from crowdshot import CrowdClassifier, load_pipeline, save_pipeline
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, labels = [[0.0], [1.0], [70.0], [71.0]], [["a", "a"], ["a", None], ["b", "b"], ["b", "b"]]
    >>> save_pipeline(make_pipeline(StandardScaler(), CrowdClassifier("identity")).fit(X, labels), "model.safetensors")
    >>> load_pipeline("model.safetensors").predict([[0.5]]).tolist()
    ['a']
    """
    skops = _skops()
    if not isinstance(pipeline, Pipeline) or not isinstance(pipeline.steps[-1][1], CrowdClassifier):
        raise CrowdshotError(
            f"pipeline is a {type(pipeline).__name__}, expected a Pipeline that ends in CrowdClassifier."
        )
    name, clf = pipeline.steps[-1]
    check_is_fitted(clf, "fit_")
    before = copy.copy(pipeline)
    before.steps = [*pipeline.steps[:-1], (name, "passthrough")]
    try:
        content = skops.dumps(before)
        skops.loads(content, trusted=skops.get_untrusted_types(data=content))  # some cannot be read, which shows here
    except Exception as error:  # whatever a step raises is about that step
        raise CrowdshotError(
            f"pipeline has steps that skops cannot write ({type(error).__name__}: {first_line(error)}), expected such"
            " as it can; save the last step alone, and make the others anew."
        ) from None
    tensors, card = state_of(clf)
    tensors[STEPS] = torch.from_numpy(np.frombuffer(content, dtype=np.uint8).copy())
    write_safetensors(path, tensors, {**card, "kind": KIND})


def load_pipeline(path: str | os.PathLike[str], trusted: Sequence[str] = ()) -> Pipeline:
    """What `save_pipeline` wrote. ``trusted``: types, by their full names, that skops does not know to be harmless.

    >>> from crowdshot import load_pipeline
    >>> load_pipeline("elsewhere.safetensors")
    Traceback (most recent call last):
    crowdshot.errors.CrowdshotError: elsewhere.safetensors does not exist, expected a pipeline file.
    """
    skops = _skops()
    tensors, card = read_safetensors(path, KIND)
    content = tensors.pop(STEPS, torch.empty(0)).numpy().tobytes()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            check_parts(shown(path), archive, archive.namelist())
        strange = [name for name in skops.get_untrusted_types(data=content) if name not in trusted]
        if strange:
            raise CrowdshotError(
                f"{shown(path)} has steps of {listing(strange)}, expected types that skops trusts; trusted= names"
                " others that you do."
            )
        pipeline = skops.loads(content, trusted=list(trusted))
        name = pipeline.steps[-1][0]
    except CrowdshotError:
        raise
    except Exception as error:  # a stranger's file may hold anything
        raise CrowdshotError(
            f"{shown(path)} has steps that cannot be read ({type(error).__name__}: {first_line(error)}), expected them"
            " as crowdshot saved them."
        ) from None
    clf = CrowdClassifier()
    fill(clf, tensors, card, path)
    pipeline.steps[-1] = (name, clf)
    assert isinstance(pipeline, Pipeline)
    return pipeline


def _skops() -> Any:
    try:
        import skops.io  # an extra
    except ImportError:
        raise CrowdshotError(
            "skops is not installed, expected it to keep the steps of a pipeline; pip install 'crowdshot[skops]'"
            " brings it."
        ) from None
    return skops.io
