"""Save a scikit-learn Pipeline that ends in a `CrowdClassifier` to one file, and load it. Nothing is unpickled.

The classifier is stored as `CrowdClassifier.save` writes it. The steps before it are stored by skops: those of
scikit-learn, and others that skops can write. Types that skops does not know to be safe must be trusted by name.
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
from crowdshot.encoders.outside import allowed
from crowdshot.errors import CrowdshotError, Use
from crowdshot.extras import missing_packages_explained
from crowdshot.formatting import first_line, listing, shown
from crowdshot.io.archive_limits import check_parts
from crowdshot.io.cards import read_safetensors, write_safetensors

KIND, STEPS = "pipeline", "pipeline.steps"


def save_pipeline(pipeline: Pipeline, path: str | os.PathLike[str]) -> None:
    """Write all steps of a fitted pipeline to one file. Requires the extra ``skops``.

    Parameters
    ----------
    pipeline : sklearn.pipeline.Pipeline
        A fitted pipeline whose last step is a `CrowdClassifier`.
    path : str or path
        The .safetensors file.

    Raises
    ------
    CrowdshotError
        If skops is not installed or cannot write a step.

    Examples
    --------
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
            f"is a {type(pipeline).__name__}",
            argument="pipeline",
            found=type(pipeline).__name__,
            expected="a Pipeline that ends in CrowdClassifier",
        )
    name, clf = pipeline.steps[-1]
    check_is_fitted(clf)
    before = copy.copy(pipeline)
    before.steps = [*pipeline.steps[:-1], (name, "passthrough")]
    try:
        content = skops.dumps(before)
        skops.loads(
            content, trusted=skops.get_untrusted_types(data=content)
        )  # fails for types that cannot be read back
    except Exception as error:  # a step of another package may raise anything
        raise CrowdshotError(
            f"has steps that skops cannot write ({type(error).__name__}: {first_line(error)})",
            argument="pipeline",
            hint="Save the last step alone, and rebuild the others.",
        ) from None
    tensors, card = state_of(clf)
    tensors[STEPS] = torch.from_numpy(np.frombuffer(content, dtype=np.uint8).copy())
    write_safetensors(path, tensors, {**card, "kind": KIND})


def load_pipeline(path: str | os.PathLike[str], trusted: Sequence[str] = (), allow_outside: bool = False) -> Pipeline:
    """Load a pipeline that `save_pipeline` wrote.

    Parameters
    ----------
    path : str or path
        The .safetensors file.
    trusted : sequence of str
        Full names of further types to load, which skops does not know to be safe.
    allow_outside : bool
        Whether the file may use a network of another library, which is then downloaded or read from another file.

    Returns
    -------
    sklearn.pipeline.Pipeline

    Raises
    ------
    CrowdshotError
        If the file is damaged or has a step of a type that is not trusted.

    Examples
    --------
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
        untrusted = [name for name in skops.get_untrusted_types(data=content) if name not in trusted]
        if untrusted:
            raise CrowdshotError(
                f"The steps have types that skops does not trust: {listing(untrusted)}",
                argument="trusted",
                where=shown(path),
                found=untrusted,
                hint=Use("if you trust them", trusted=untrusted),
            )
        pipeline = skops.loads(content, trusted=list(trusted))
        name = pipeline.steps[-1][0]
    except CrowdshotError:
        raise
    except Exception as error:  # an unknown file may contain anything
        raise CrowdshotError(
            f"has steps that cannot be read ({type(error).__name__}: {first_line(error)})",
            where=shown(path),
            expected="steps that crowdshot saved",
        ) from None
    clf = CrowdClassifier()
    with allowed(allow_outside):
        fill(clf, tensors, card, path)
    pipeline.steps[-1] = (name, clf)
    assert isinstance(pipeline, Pipeline)
    return pipeline


def _skops() -> Any:
    with missing_packages_explained("Saving the steps of a pipeline"):
        import skops.io
    return skops.io
