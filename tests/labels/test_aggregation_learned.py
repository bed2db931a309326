"""Test the default aggregator on small crowds."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdshot import Annotations, CrowdshotError, aggregate
from crowdshot.labels.annotator_quality import judge


def crowd(seed: int, N: int = 30, R: int = 6, K: int = 3, per_item: int = 3, right: float = 0.8) -> tuple:
    random = np.random.default_rng(seed)
    truth = random.integers(K, size=N)
    item = np.repeat(np.arange(N), per_item)
    annotator = np.concatenate([random.permutation(R)[:per_item] for _ in range(N)])
    wrong = (truth[item] + random.integers(1, K, len(item))) % K
    label = np.where(random.random(len(item)) < right, truth[item], wrong)
    names = {"items": np.arange(N), "annotators": np.arange(R), "classes": np.arange(K)}
    return Annotations(item=item, annotator=annotator, label=label, **names), truth


@pytest.mark.parametrize("method", [aggregate.learned, aggregate.shrunk])
def test_posteriors_sum_to_one(method) -> None:
    ann, truth = crowd(0, right=0.9)
    found = method(ann)
    assert found.probabilities.shape == (30, 3)
    np.testing.assert_allclose(found.probabilities.sum(1), 1)
    assert (found.labels == truth).mean() >= 0.9
    np.testing.assert_allclose(found.confusion.sum(2), 1)
    np.testing.assert_allclose(found.class_probs, found.probabilities.mean(0))


@pytest.mark.slow
@given(seed=st.integers(0, 10_000), per_item=st.integers(1, 5), K=st.integers(2, 5))
def test_results_do_not_depend_on_names_or_order(seed: int, per_item: int, K: int) -> None:
    ann, _ = crowd(seed, N=12, R=5, K=K, per_item=per_item)
    random = np.random.default_rng(seed)
    rows, items, people, classes = (random.permutation(n) for n in (len(ann), 12, 5, K))
    other = Annotations(
        item=np.argsort(items)[ann.item[rows]],
        annotator=np.argsort(people)[ann.annotator[rows]],
        label=np.argsort(classes)[ann.label[rows]],
        items=ann.items[items],
        annotators=ann.annotators[people],
        classes=ann.classes[classes],
    )
    here, there = aggregate.learned(ann).probabilities, aggregate.learned(other).probabilities
    np.testing.assert_allclose(there, here[items][:, classes], atol=1e-9)


def test_more_votes_and_better_annotators_weigh_more() -> None:
    """Two accurate annotators agree on y; on x an accurate one and a guesser disagree."""
    rows = [(i, who, "cd"[i % 2]) for i in range(20) for who in ("ann", "bob")]
    rows += [(i, "cyd", "cd"[(i // 2) % 2]) for i in range(20)]  # right for half of the items
    rows += [("x", "ann", "c"), ("x", "cyd", "d"), ("y", "ann", "c"), ("y", "bob", "c")]
    ann = Annotations.from_frame(pd.DataFrame(rows, columns=["item", "annotator", "label"]).astype(str))
    found = pd.DataFrame(aggregate.learned(ann).probabilities, index=ann.items, columns=ann.classes)
    assert 0.5 < found.loc["x", "c"] < found.loc["y", "c"]


def test_one_label_gives_no_more_confidence_than_two() -> None:
    rows = [(i, f"{who}", i % 2) for i in range(40) for who in range(3)] + [("lone", "0", 1)]
    ann = Annotations.from_frame(pd.DataFrame(rows, columns=["item", "annotator", "label"]).astype(str))
    sure = pd.Series(aggregate.learned(ann).probabilities.max(1), index=ann.items)
    assert sure["lone"] < sure["1"]


def test_gold_is_fixed_and_informs_accuracies() -> None:
    """Gold shows that one annotator is right and the two who contradict them are wrong."""
    rows = [(i, who, said) for i in range(30) for who, said in (("a", "x"), ("b", "x"), ("c", "y"))]
    rows += [(i, who, said) for i in range(30, 60) for who, said in (("a", "y"), ("b", "y"), ("c", "x"))]
    ann = Annotations.from_frame(pd.DataFrame(rows, columns=["item", "annotator", "label"]).astype(str))
    gold = {str(i): "y" for i in range(25)} | {str(i): "x" for i in range(30, 55)}
    with_gold = pd.DataFrame(aggregate.learned(ann, gold=gold).probabilities, index=ann.items, columns=ann.classes)
    assert (with_gold.loc[list(gold)].to_numpy().max(1) == 1).all()
    assert with_gold.loc["27", "y"] > 0.5
    assert aggregate.learned(ann).labels[27] == "x"


def test_edge_cases() -> None:
    for rows in (
        [("a", "r", "x"), ("b", "r", "y")],  # one annotator
        [("a", f"{r}", "x") for r in range(5000)] + [("b", "0", "y")],  # five thousand labels of one item
        [(f"{i}", f"{i % 3}", f"class {i}") for i in range(300)],  # as many classes as items
        [("a", f"{r}", f"{r}") for r in range(9)],  # all disagree
    ):
        ann = Annotations.from_frame(pd.DataFrame(rows, columns=["item", "annotator", "label"]))
        found = aggregate.learned(ann).probabilities
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found.sum(1), 1)
        assert judge(ann, found)[["accuracy", "low", "high"]].notna().to_numpy().all()
    one = Annotations.from_frame(pd.DataFrame([("a", "r", "x")], columns=["item", "annotator", "label"]))
    assert aggregate.learned(one).probabilities.tolist() == [[1.0]]


def test_an_item_without_a_label_has_the_class_sizes() -> None:
    ann, _ = crowd(3)
    more = Annotations(
        item=ann.item, annotator=ann.annotator, label=ann.label, items=np.arange(31), annotators=ann.annotators,
        classes=ann.classes,
    )  # fmt: skip
    found = aggregate.learned(more)
    np.testing.assert_allclose(found.probabilities[30], found.class_probs)
    np.testing.assert_allclose(found.probabilities[:30], aggregate.learned(ann).probabilities, atol=1e-9)


def test_an_annotator_with_constant_labels_has_uncertain_accuracy() -> None:
    """With one label per item, nothing distinguishes the annotator who always chooses yes from the others."""
    random = np.random.default_rng(1)
    rows = [(i, f"{i % 4}", "yes" if i % 4 == 0 else random.choice(["yes", "no"])) for i in range(200)]
    ann = Annotations.from_frame(pd.DataFrame(rows, columns=["item", "annotator", "label"]))
    people = judge(ann, aggregate.learned(ann).probabilities).set_index("annotator")
    assert people["high"]["0"] - people["low"]["0"] > 0.2
    assert people["accuracy"]["0"] < people["accuracy"].drop("0").mean() + 0.1


def test_steps_are_rounds_at_most() -> None:
    ann, _ = crowd(5)
    np.testing.assert_array_equal(aggregate.learned(ann, 3).probabilities, aggregate.learned(ann, 100).probabilities)
    assert not np.allclose(aggregate.learned(ann, 1).probabilities, aggregate.learned(ann).probabilities)
    with pytest.raises(CrowdshotError, match="steps is 0, expected a whole number"):
        aggregate.learned(ann, 0)


# ---- history, pred_probs and gold -----------------------------------------------------------------------------------


def test_history_decides_between_two_annotators_who_disagree() -> None:
    said = {f"i{n}": {"ann": "cat", "bob": "dog"} for n in range(10)}
    ann = Annotations.from_dict(said)
    history = {"bob": (96, 4), "ann": (30, 30), "stranger": (5, 5)}
    assert (aggregate.learned(ann, history=history).labels == "dog").all()
    swapped = {"ann": history["bob"], "bob": history["ann"]}
    assert (aggregate.learned(ann, history=swapped).labels == "cat").all()


@pytest.mark.parametrize("counts", [(-1, 3), (np.nan, 3), (3, np.inf)])
def test_invalid_history(counts) -> None:
    ann, _ = crowd(0)
    with pytest.raises(
        CrowdshotError, match=r"^history has .* wrong labels for annotator 2, expected two numbers, 0 or more\.$"
    ):
        aggregate.learned(ann, history={2: counts})


def classifier(truth, right: float, seed: int = 0, sure: float = 0.9):
    """Return (N, K) predictions with confidence ``sure``, correct for the share ``right``."""
    random = np.random.default_rng(seed)
    said = np.where(random.random(len(truth)) < right, truth, (truth + 1) % 3)
    return np.where(np.arange(3) == said[:, None], sure, (1 - sure) / 2)


@pytest.mark.slow
def test_a_good_classifier_helps_and_a_bad_one_does_no_harm() -> None:
    rights = {name: [] for name in ("alone", "good", "bad", "noise")}
    for seed in range(10):
        ann, truth = crowd(seed, N=120, per_item=2, right=0.65)
        random = np.random.default_rng(seed)
        given = {
            "alone": None,
            "good": classifier(truth, 0.9, seed),
            "bad": classifier(truth, 0.1, seed),  # confident, and nearly always wrong
            "noise": classifier(random.permutation(truth), 0.9, seed),
        }
        for name, p in given.items():
            rights[name].append((aggregate.learned(ann, pred_probs=p).labels == truth).mean())
    alone, good, bad, noise = (float(np.mean(each)) for each in rights.values())
    assert good > alone + 0.1
    assert bad > alone - 0.02
    assert noise > alone - 0.02


def test_pred_probs_decide_for_items_without_labels() -> None:
    ann, truth = crowd(1, N=60, per_item=3, right=0.9)
    kept = ann.keep(ann.item < 50)
    found = aggregate.learned(kept, pred_probs=classifier(truth, 1.0, sure=0.99))
    assert (found.labels[50:] == truth[50:]).all()
    np.testing.assert_allclose(found.probabilities.sum(1), 1)


def test_gold_overrides_pred_probs() -> None:
    ann, truth = crowd(1)
    wrong = (truth + 1) % 3
    found = aggregate.learned(ann, gold={0: wrong[0]}, pred_probs=classifier(truth, 1.0))
    assert found.probabilities[0, wrong[0]] == 1


@pytest.mark.parametrize(
    ("p", "told"),
    [
        (np.ones((3, 3)), r"has shape \(3, 3\), expected \(30, 3\)"),
        (np.full((30, 3), np.nan), "has no valid probabilities for item 0, expected"),
        (np.ones((30, 3)), "has no valid probabilities for item 0, expected"),
        (np.tile([1.5, -0.5, 0], (30, 1)), "has no valid probabilities for item 0, expected"),
        ([["a"] * 3] * 30, "is not a table of numbers, expected"),
    ],
)
def test_invalid_pred_probs(p, told) -> None:
    ann, _ = crowd(0)
    with pytest.raises(CrowdshotError, match=rf"^pred_probs {told}.*\.$"):
        aggregate.learned(ann, pred_probs=p)


def test_ordered_classes() -> None:
    """Annotators err by one of five ordered classes; with the order, labels 1 and 3 make 2 likelier."""
    random = np.random.default_rng(0)
    truth = random.integers(5, size=150)
    answers = (truth[:, None] + random.choice([-1, 0, 1], p=[0.25, 0.5, 0.25], size=(150, 6))).clip(0, 4).astype(float)
    answers = np.vstack([answers, [1, 3, *[np.nan] * 4]])
    ann = Annotations.from_matrix(answers)
    plain, ordered = (aggregate.learned(ann, ordered=each).probabilities[150] for each in (False, True))
    assert ordered[2] > plain[2]
