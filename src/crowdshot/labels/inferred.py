"""Consensus by the learned inference (`crowdshot.model.inference`), and by the closed form that it starts from."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotators import expected_confusion
from crowdshot.labels.consensus import Consensus, check_numbers, in_parts
from crowdshot.labels.known_truth import Gold, find_items
from crowdshot.labels.matching import of_any_labels, row_by_row
from crowdshot.labels.positions import positions, unique_ids
from crowdshot.model import guesses, inference_network
from crowdshot.model.beliefs import likeliest
from crowdshot.model.class_sizes import SHARPER
from crowdshot.model.network_file import network_of
from crowdshot.model.rounds import Rounds
from crowdshot.wording import first, listing, show

Floats = NDArray[np.float64]
History = Mapping[Any, tuple[float, float]]
Network = str | os.PathLike[str] | Mapping[str, Floats] | None
LEAST = 1e-9  # of a probability, where its logarithm is taken


@of_any_labels
def learned(
    ann: Annotations,
    steps: int = 100,
    gold: Gold = None,
    network: Network = None,
    *,
    ordered: bool = False,
    history: History | None = None,
    pred_probs: ArrayLike | None = None,
) -> Consensus:
    """The default: a few rounds of EM whose constants were learned from simulated crowds.

    More careful than Dawid–Skene's: never much below a vote, and as sure as it is right (`crowdshot.model.inference`,
    docs/inference.md). ``steps``: rounds at most; it has three. ``gold``: as in `dawid_skene`. ``network``: the file of
    another than the shipped one, or its tensors. ``ordered``: the classes are in order (low, medium, high), so that a
    neighbour is the likelier mistake. ``history``: ``{annotator: (right, wrong)}``, counts from earlier projects; who
    is not among these annotators is passed over. ``pred_probs`` (N, K): what any classifier that never met these labels
    says of the items, trusted by how well it foretells them; a DataFrame that names items and classes goes by these.

    >>> from crowdshot import Annotations, aggregate
    >>> ann = Annotations.from_dict({"a": {"ann": "cat", "bob": "cat"}, "b": {"ann": "dog", "cy": "dog"}})
    >>> aggregate.learned(ann).labels.tolist()
    ['cat', 'dog']
    >>> ann = Annotations.from_dict({"a": {"ann": "cat", "bob": "dog"}, "b": {"ann": "dog", "bob": "dog"}})
    >>> aggregate.learned(ann, history={"ann": (97, 3), "bob": (50, 50)}).labels.tolist()
    ['cat', 'dog']
    """
    check_numbers(steps)
    rounds = inference_network.first_rounds(network_of(network), steps)
    return _inferred(ann, gold, rounds, ordered, history, pred_probs)


@of_any_labels
def shrunk(ann: Annotations, steps: int = 3, gold: Gold = None) -> Consensus:
    """What `learned` starts from, with the same constants for every crowd: a closed form, of ``steps`` rounds."""
    check_numbers(steps)
    return _inferred(ann, gold, inference_network.constant(steps), power=1.0)


def _inferred(
    ann: Annotations,
    gold: Gold,
    network: Mapping[str, Floats],
    ordered: bool = False,
    history: History | None = None,
    pred_probs: ArrayLike | None = None,
    power: float = SHARPER,
) -> Consensus:
    crowd = in_parts(ann, gold)
    N, K = ann.n_items, ann.n_classes
    known = crowd.known
    said = None if pred_probs is None else check_probabilities(ann, pred_probs, ann.items.tolist())
    right, wrong = (None, None) if history is None else _counts(ann, history)
    if K < 2:
        return Consensus(np.repeat(ann.classes, N), np.ones((N, K)), np.ones(K))
    way = Rounds(crowd.sizes, network, ordered, right, wrong, gold=bool((known >= 0).any()), power=power)
    belief = crowd.believe(way)[1]
    told = (np.bincount(ann.item, minlength=N) > 0) | (known >= 0)
    class_probs = told @ belief / told.sum()
    if not isinstance(belief, np.ndarray):
        if said is not None:
            raise CrowdshotError(f"pred_probs is given with {K} classes, expected fewer where items are so many.")
        return Consensus(ann.classes[likeliest(belief)[0]], belief, class_probs)
    belief[~told] = class_probs  # of items that nobody labelled the class sizes are all that is known
    if said is not None:
        evidence = np.log(belief.clip(LEAST)) - np.log(class_probs.clip(LEAST))
        beside = belief * np.exp(guesses.BESIDE_LABELS * guesses.trusted(said, evidence, told))
        belief = np.where((known >= 0)[:, None], belief, beside / beside.sum(axis=1, keepdims=True))
        class_probs = belief[told].sum(axis=0) / told.sum()
    return Consensus(
        labels=ann.classes[belief.argmax(axis=1)],
        probabilities=belief,
        class_probs=class_probs,
        confusion=expected_confusion(ann, belief),
    )


def _counts(ann: Annotations, history: History) -> tuple[Floats, Floats]:
    """(R,), (R,): answers that were right and wrong before; 0 of who has no history."""
    right, wrong = np.zeros(ann.n_annotators), np.zeros(ann.n_annotators)
    for place, name in enumerate(ann.annotators):
        if name in history:
            right[place], wrong[place] = history[name]
    bad = ~(np.isfinite(right) & np.isfinite(wrong) & (right >= 0) & (wrong >= 0))
    if bad.any():
        who = first(bad)
        raise CrowdshotError(
            f"history has {right[who]:g} right and {wrong[who]:g} wrong of annotator {show(ann.annotators[who])}, "
            "expected numbers, 0 or more."
        )
    return right, wrong


def check_probabilities(ann: Annotations, pred_probs: Any, names: Sequence[Any] | None = None) -> Floats:
    """(N, K), a row for each item and a column for each class; a DataFrame's go by ``names`` of items and by classes.

    ``names`` (N,): None where rows are in order whatever they are called.
    """
    if isinstance(pred_probs, pd.DataFrame):
        pred_probs = _with_rows_of(_with_columns_of(pred_probs, ann), ann, names)
    try:
        p: Floats = np.ascontiguousarray(pred_probs, dtype=np.float64)  # a reversed view could not be saved
    except (TypeError, ValueError):
        raise CrowdshotError("pred_probs is no table of numbers, expected a row an item, a column a class.") from None
    if p.shape != (ann.n_items, ann.n_classes):
        columns = f"a column for each of {listing(ann.classes)}"
        raise CrowdshotError(f"pred_probs has shape {p.shape}, expected {(ann.n_items, ann.n_classes)}, {columns}.")
    wrong = ~((p >= 0).all(axis=1) & (np.abs(p.sum(axis=1) - 1) < 1e-3))  # NaN is neither
    if wrong.any():
        raise CrowdshotError(
            f"pred_probs has no probabilities for item {show(ann.items[first(wrong)])}, expected numbers, 0 or more, "
            "that sum to 1."
        )
    return p


def _with_columns_of(table: pd.DataFrame, ann: Annotations) -> pd.DataFrame:
    """Columns in the order of the classes that they are called by; as they are where they are merely counted."""
    called = [str(name) for name in unique_ids(table.columns, "pred_probs").tolist()]
    classes = [str(name) for name in ann.classes.tolist()]
    if sorted(called) == sorted(classes):
        return table.iloc[:, positions(np.array(called, dtype=object), classes)]
    if called == [str(place) for place in range(len(called))]:
        return table
    strange = [name for name, word in zip(table.columns, called, strict=True) if word not in classes]
    found = f"has column {show(strange[0])}" if strange else f"has {len(called)} columns"
    raise CrowdshotError(f"pred_probs {found}, expected one for each of {listing(ann.classes)}.")


def _with_rows_of(table: pd.DataFrame, ann: Annotations, names: Sequence[Any] | None) -> pd.DataFrame:
    """Rows in the order of the items that they are called by."""
    if names is None or row_by_row(table.index, names):
        return table
    row = find_items(list(table.index), ann.items, names, "pred_probs")
    lost = np.setdiff1d(np.arange(ann.n_items), row)
    if len(lost):
        raise CrowdshotError(f"pred_probs has no row for item {show(ann.items[lost[0]])}, expected one for each item.")
    if (row < 0).any():
        stranger = show(table.index[first(row < 0)])
        raise CrowdshotError(
            f"pred_probs has a row for {stranger}, expected items that are there, as {listing(ann.items, 1)}."
        )
    return table.iloc[np.argsort(row)]
