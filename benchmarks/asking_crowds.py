"""Compare strategies for buying labels on real crowds, using labels only (a part of `asking.py`).

All labels of a crowd except the first ones are hidden. A label can be bought only from an annotator who really labelled
the item, so there is less choice than in practice. Annotators without known labels can be chosen. From a crowd of more
than 1,000 items, each repeat draws 1,000. A problem starts with one random label per item, or with one label for a
fifth of the items. Each of ten rounds buys labels for a fifth of the items; then the default (`aggregate.learned`,
whose network saw no real crowd) and majority vote are applied again. The strategies are:

    expected gain         that of `crowdshot next`, with every annotator limited to `asking.fair_share`
    random                a random label
    fewest labels         the item with the fewest labels, any annotator
    vote entropy          the item with the highest entropy of votes, with one pseudo-vote per class, any annotator
    Dawid–Skene's doubt   the item with the lowest confidence by Dawid–Skene, any annotator
    ActiveLab             cleanlab's score, any annotator; instead of a classifier it gets the class frequencies
"""

import contextlib
import importlib.util
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import crowds
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rows import Row, Rows, commit, markdown

from crowdshot import Annotations, aggregate
from crowdshot.labels import annotator_quality, asking

Floats = NDArray[np.float64]
CROWDS = ("sentiment", "sentence-polarity", "face", "dog", "bluebird")
STARTS = {"one label an item": 1.0, "a fifth of the items": 0.2}  # start -> share of items with a label
KEYS = ("crowd", "start", "method", "seed", "bought")
FIRST = ("How far above random", "Forecasts and annotators")
OURS, RANDOM, ACTIVELAB = "expected gain", "random", "ActiveLab"
FIRST_SEED = 1000  # smaller seeds were used to choose the constants of `crowdshot.labels.asking`
ITEMS, ROUNDS, SHARE = 1000, 10, 0.2  # items at most, rounds, labels bought per item and round
ENOUGH = 10  # labels in the whole crowd that an annotator needs for a known accuracy


class Problem(NamedTuple):
    """All labels ``annotations``, those known from the start ``first`` (L,), and the truth (N,)."""

    annotations: Annotations
    first: NDArray[np.bool_]
    truth: NDArray[np.int64]


class State(NamedTuple):
    """The known labels ``annotations``, and those that can be bought, ``open_`` (L,)."""

    annotations: Annotations
    posterior: Floats
    open_: NDArray[np.bool_]


def draw(crowd: crowds.Crowd, labelled: float, seed: int) -> Problem:
    random = np.random.default_rng(seed)
    ann, truth = crowd.annotations, crowd.true_classes()
    chosen = random.permutation(ann.n_items)[:ITEMS]
    if len(chosen) < ann.n_items:
        table = ann.to_frame()
        table = table[table.iloc[:, 0].isin(ann.items[chosen])]
        ann = Annotations.from_frame(table, items=ann.items[chosen], classes=ann.classes)
        truth = truth[chosen]
    order = random.permutation(len(ann))
    first = np.zeros(len(ann), dtype=bool)
    first[order[np.unique(ann.item[order], return_index=True)[1]]] = True
    first &= np.isin(ann.item, random.permutation(ann.n_items)[: round(labelled * ann.n_items)])
    return Problem(ann, first, truth)


# ---- choosing: (problem, state, how many) -> rows of the labels to buy ----


def expected_gain(problem: Problem, state: State, n: int) -> tuple[NDArray[np.int64], float, float]:
    """Choose labels by expected gain; also return the expected reduction of uncertainty and of errors."""
    ann = problem.annotations
    row_of = np.full((ann.n_items, ann.n_annotators), -1)
    row_of[ann.item[state.open_], ann.annotator[state.open_]] = np.flatnonzero(state.open_)
    confusion = asking.expected_confusion(state.annotations, state.posterior)
    most = asking.fair_share(n, ann.n_annotators)
    first = asking.first_limits(np.bincount(state.annotations.annotator, minlength=ann.n_annotators), most)
    questions = asking.choose(state.posterior, confusion, np.nonzero(row_of < 0), n, most=most, first=first)
    rows = np.array([row_of[question.item, question.annotator] for question in questions], dtype=np.int64)
    plain = annotator_quality.expected_confusion(state.annotations, state.posterior)
    forecast = asking.mended(state.posterior, plain, questions)
    return rows, sum(question.gain for question in questions), forecast


def vote_entropy(ann: Annotations) -> Floats:
    shares = ann.vote_counts() + 1
    shares /= shares.sum(1, keepdims=True)
    return (shares * np.log(shares)).sum(1)


def activelab(ann: Annotations) -> Floats:
    from cleanlab.multiannotator import get_active_learning_scores  # imported here: from the extra `bench`

    labels = np.full((ann.n_items, ann.n_annotators), np.nan)
    labels[ann.item, ann.annotator] = ann.label
    labelled, said = ~np.isnan(labels).all(1), ~np.isnan(labels).all(0)
    sizes = np.tile(aggregate.majority_vote(ann).class_probs.clip(1e-3), (ann.n_items, 1))
    sizes /= sizes.sum(1, keepdims=True)
    scores = np.empty(ann.n_items)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known, unknown = get_active_learning_scores(
            labels[labelled][:, said], sizes[labelled], sizes[~labelled] if (~labelled).any() else None
        )
    scores[labelled] = known
    scores[~labelled] = unknown
    return scores


BY_ITEM: dict[str, Callable[[Annotations], Floats]] = {  # the lowest score first
    "fewest labels": lambda ann: np.bincount(ann.item, minlength=ann.n_items),
    "vote entropy": vote_entropy,
    "Dawid–Skene's doubt": lambda ann: aggregate.dawid_skene(ann).probabilities.max(1),
    ACTIVELAB: activelab,
}
WAYS = (OURS, RANDOM, *BY_ITEM)


def of_anybody(problem: Problem, state: State, n: int, score: Floats, random: np.random.Generator):
    """Choose a random available label of each of the items with the lowest scores; ties are broken at random."""
    rows = random.permutation(np.flatnonzero(state.open_))
    rows = rows[np.unique(problem.annotations.item[rows], return_index=True)[1]]
    return rows[np.lexsort((random.random(len(rows)), score[problem.annotations.item[rows]]))][:n]


# ---- measuring ----


def measure(rows: Rows, data: Path, repeats: int, only: set[str]) -> None:
    """Measure what is missing; measure the strategies in ``only`` again."""
    version, ways = commit(), [way for way in WAYS if not only or way in only]
    if ACTIVELAB in ways and importlib.util.find_spec("cleanlab") is None:
        print("ActiveLab is left out: cleanlab is not installed (extra bench).")
        ways.remove(ACTIVELAB)
    for name in CROWDS:
        crowd = crowds.load(data, name)
        for start, labelled in STARTS.items():
            found: list[Row] = []
            there = set() if only else rows.measured("crowd", "start", "method", "seed")
            for seed in range(FIRST_SEED, FIRST_SEED + repeats):
                problem = draw(crowd, labelled, seed)
                for way in ways:
                    if (
                        way == ACTIVELAB and seed >= FIRST_SEED + repeats // 4
                    ):  # it takes fifty times as long as the others
                        continue
                    case = {"crowd": name, "start": start, "method": way, "seed": seed}
                    if tuple(case.values()) not in there:
                        found += [{**case, **row, "commit": version} for row in course(problem, way, seed)]
            rows.put(found)
            print(name, start, flush=True)


def course(problem: Problem, way: str, seed: int) -> list[Row]:
    """Return a row per purchase: the accuracy after it, and the forecast for the next purchase."""
    random = np.random.default_rng(seed)
    ann, known = problem.annotations, problem.truth != crowds.UNKNOWN
    bought, n = problem.first.copy(), round(SHARE * ann.n_items)
    found: list[Row] = []
    for _ in range(ROUNDS + 1):
        now = ann.keep(bought)
        state = State(now, aggregate.learned(now).probabilities, ~bought)
        row = {"bought": int(bought.sum() - problem.first.sum())}
        for judge, posterior in (("default", state.posterior), ("vote", aggregate.soft_vote(now))):
            row[judge] = right(posterior[known], problem.truth[known])
        row["errors"] = float((1 - row["default"]) * known.sum())
        row |= intervals(problem, state)
        rest, chosen = state.open_.copy(), np.array([], dtype=np.int64)
        if way == OURS:
            chosen, row["doubt_less"], row["errors_less"] = expected_gain(problem, state, n)
        elif way in BY_ITEM:
            chosen = of_anybody(problem, state, n, BY_ITEM[way](now), random)
        row["largest_share"] = np.bincount(ann.annotator[chosen]).max() / n if len(chosen) else np.nan
        row["allowed_share"] = asking.fair_share(n, ann.n_annotators) / n
        rest[chosen] = False
        more = random.permutation(np.flatnonzero(rest))[: n - len(chosen)]  # the rest is bought at random
        row["by_lot"] = len(more)
        bought[chosen], bought[more] = True, True
        found.append(row)
    return found


def right(posterior: Floats, truth: NDArray[np.int64]) -> float:
    """Return the accuracy; items with ties count in part."""
    top = posterior >= posterior.max(1, keepdims=True) - 1e-9
    hit = np.where(truth >= 0, top[np.arange(len(truth)), truth], False)
    return float((hit / top.sum(1)).mean())


def intervals(problem: Problem, state: State) -> Row:
    """Count the annotators whose accuracy, over all their labels, is within the current interval."""
    ann = problem.annotations
    known = problem.truth[ann.item] != crowds.UNKNOWN
    hits = np.bincount(ann.annotator, known & (ann.label == problem.truth[ann.item]), ann.n_annotators)
    n = np.bincount(ann.annotator, known, ann.n_annotators)
    people = annotator_quality.judge(state.annotations, state.posterior)
    counted = (n >= ENOUGH) & (people["n_labels"] > 0).to_numpy()
    accuracy = hits[counted] / n[counted]
    within = (people["low"][counted] <= accuracy) & (accuracy <= people["high"][counted])
    return {"annotators": int(counted.sum()), "within": int(within.sum())}


# ---- tables ----


def tables(rows: Rows) -> dict[str, str]:
    """Return {title: Markdown table}."""
    table = rows.table
    after = table[table["bought"] > 0]
    means = after.groupby(["crowd", "start", "method", "seed"])[["default", "vote"]].mean()
    repeats = table.groupby(["crowd", "start"])["seed"].nunique()
    return {
        "How far above random": "\n\n".join(
            f"Judged by the {judge}:\n\n{markdown(above_random(means[judge]))}" for judge in ("default", "vote")
        ),
        "Forecasts and annotators": markdown(forecasts(table)),
        "How to read this": f"""In hundredths of accuracy, the mean over all purchases, with the paired standard error
over {repeats.min()} or more repeats (ActiveLab: a quarter); random: its accuracy. \\*: below the best way by
more than the paired standard error. Forecast and what happened are summed over purchases and repeats. within: of the
annotators' intervals, how many hold the accuracy of all their labels ({ENOUGH} or more), at first and over all.""",
    }


def above_random(means: pd.Series) -> pd.DataFrame:
    found = []
    for crowd in CROWDS:
        for start in STARTS:
            wide = means[crowd, start].unstack("method") * 100
            ways = [way for way in WAYS if way in wide]
            best = wide[[way for way in ways if way != ACTIVELAB]].mean().idxmax()  # it has fewer repeats
            row = {"crowd": crowd, "start": start, RANDOM: f"{wide[RANDOM].mean() / 100:.3f}"}
            for way in ways:
                ahead, behind = wide[way] - wide[RANDOM], wide[best] - wide[way]
                if way != RANDOM:
                    star = " \\*" if behind.mean() > behind.sem() else ""
                    row[way] = f"{ahead.mean():+.1f} ± {ahead.sem():.1f}{star}"
            found.append(row)
    return pd.DataFrame(found)


def forecasts(table: pd.DataFrame) -> pd.DataFrame:
    found = []
    for crowd in CROWDS:
        for start in STARTS:
            part = table[(table["crowd"] == crowd) & (table["start"] == start)]
            mine = part[part["method"] == OURS].sort_values(["seed", "bought"])
            mended = -mine.groupby("seed")["errors"].diff().sum()
            buys = mine[
                mine.groupby("seed").cumcount(ascending=False) > 0
            ]  # labels chosen in the last state are not bought
            first = mine[mine["bought"] == 0]
            found.append(
                {
                    "crowd": crowd,
                    "start": start,
                    "errors mended, each repeat": mended / mine["seed"].nunique(),
                    "forecast / mended": buys["errors_less"].sum() / mended,
                    "doubt / mended": buys["doubt_less"].sum() / mended,
                    "largest share": buys["largest_share"].max(),
                    "allowed": buys["allowed_share"].max(),
                    "left to lot": buys["by_lot"].sum() / buys["bought"].max() / mine["seed"].nunique(),
                    "within, at first": first["within"].sum() / first["annotators"].sum(),
                    "within": part["within"].sum() / part["annotators"].sum(),
                }
            )
    return pd.DataFrame(found)
