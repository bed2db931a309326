"""Write the report of an estimator in memory."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdshot.errors import CrowdshotError
from crowdshot.io.atomic import check_file, replacing
from crowdshot.io.dataframes import to_pandas
from crowdshot.io.file_names import strings_in
from crowdshot.report.summary import FeatureEffect, describe_feature_effect

if TYPE_CHECKING:
    from crowdshot.classifier.crowd_aggregator import CrowdAggregator
    from crowdshot.classifier.crowd_classifier import CrowdClassifier
    from crowdshot.report.page.facts import Facts

TABLE = "consensus_"  # what the page calls the table of all items


def write_report(estimator: Any, path: str | os.PathLike[str], X: Any = None) -> None:
    """Write the report of a fitted estimator to an HTML file.

    Parameters
    ----------
    estimator : CrowdClassifier or CrowdAggregator
    path : str or path
        The file.
    X : sequence of paths or texts, optional
        The items, in the order of the fit; the page shows them.
    """
    from crowdshot.report.page.page_writer import write_page

    out = Path(path)
    check_file(out)
    facts_of = _of_classifier if hasattr(estimator, "embeddings_") else _of_labels
    name = f"{type(estimator).__name__}(method={estimator.method!r})"
    found = facts_of(estimator, X, name, out)
    with replacing(out) as temporary:
        write_page(temporary, found)


def _of_labels(estimator: CrowdAggregator, X: Any, name: str, out: Path) -> Facts:
    from crowdshot.report.page.basis import Basis
    from crowdshot.report.page.facts import Run, describe_labels, gather_facts

    if X is not None:
        raise CrowdshotError("cannot be used with labels alone", argument="X", hint="Fit a CrowdClassifier.")
    how, command = describe_labels(estimator.method), f"{name}.fit(labels).report({out.name!r})"
    run = Run([name], "", [], how, command, ordered=estimator._known.ordered, table=TABLE)
    return gather_facts(Basis.of_aggregator(estimator), run)


def _of_classifier(estimator: CrowdClassifier, X: Any, name: str, out: Path) -> Facts:
    from crowdshot.classifier.diagnostics import feature_value
    from crowdshot.report.page.facts import Run, describe, gather

    embeddings = estimator.embeddings_
    if embeddings is None:
        raise CrowdshotError(f"This {type(estimator).__name__} was saved without its items", hint="Fit it again.")
    paths, texts = _shown_items(X, estimator.annotations_.n_items)
    run = Run(
        sources=[name],
        items_from=f"{estimator.annotations_.n_items:,} items",
        paths=paths,
        texts=texts,
        how=describe(estimator, estimator.encoder if isinstance(estimator.encoder, str) else None),
        command=f"{name}.fit(X, labels).report({out.name!r})",
        ordered=estimator._known.ordered,
        table=TABLE,
    )
    n_labelled = len(np.unique(estimator.annotations_.item))
    effect = FeatureEffect.of(estimator, feature_value(estimator, embeddings), run.things)
    return gather(estimator, embeddings, replace(run, feature_value=describe_feature_effect(effect, n_labelled)))


def _shown_items(X: Any, n_items: int) -> tuple[list[Path], list[str]]:
    """Return the paths of images or the texts; both are empty for other items."""
    if X is None:
        return [], []
    X = to_pandas(X, "X")
    kind = strings_in(X)
    if kind is None:
        raise CrowdshotError("has no paths or texts", argument="X", expected="paths of images, texts or None")
    if len(X) != n_items:
        raise CrowdshotError(f"has {len(X):,} items", argument="X", found=len(X), expected=f"{n_items:,} as in fit")
    return ([Path(one) for one in X], []) if kind == "paths" else ([], [str(one) for one in X])
