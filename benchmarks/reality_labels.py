"""Part A of `reality.py`: labels only, on every real crowd, full and thinned."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import crowds
import numpy as np
import pandas as pd
from measures import MEASURES, score
from rivals_labels import CLOSED_FORM, LABELS_ONLY, OURS, RIVALS, SLOW, VOTE, Floats, closed_form, ours
from rows import Row, Rows, attempt, commit, is_named, markdown

from crowdshot import Annotations

KEYS = ("crowd", "per_item", "seed", "method")
METHODS = (*RIVALS, CLOSED_FORM, OURS)
FULL = 0  # in place of labels per item
THINNED, SEEDS = (1, 2, 3, 5), (0, 1)
LIMIT = 60  # seconds for one method on one crowd
FIRST = ("Full crowds, on average", "Thinned crowds, on average", "Goals")  # printed
SLACK = 0.01  # accuracy below that of the vote that is tolerated
SHOWN = (VOTE, "one-coin", "Dawid–Skene", "MACE", "IBCC", "EBCC", "BWA", OURS)  # per crowd

# Accuracies in the notebooks of https://github.com/yuan-li/truth-inference-at-scale (test_ibcc, test_ebcc, test_bwa),
# by the authors of EBCC and BWA. Their `SP` has 5,000 items, of which sentence-polarity has 4,999.
PUBLISHED = {
    "SP_amt": {"IBCC": 0.944, "EBCC": 0.944, "BWA": 0.946},
    "ZC_all": {"IBCC": 0.795, "EBCC": 0.862, "BWA": 0.835},
    "ZC_in": {"IBCC": 0.770, "EBCC": 0.781, "BWA": 0.764},
    "ZC_us": {"IBCC": 0.827, "EBCC": 0.912, "BWA": 0.911},
    "adult": {"IBCC": 0.745, "EBCC": 0.748, "BWA": 0.742},
    "bluebird": {"IBCC": 0.889, "EBCC": 0.861, "BWA": 0.759},
    "dog": {"IBCC": 0.839, "EBCC": 0.840, "BWA": 0.831},
    "face": {"IBCC": 0.640, "EBCC": 0.635, "BWA": 0.618},
    "product": {"IBCC": 0.938, "EBCC": 0.935, "BWA": 0.919},
    "rte": {"IBCC": 0.928, "EBCC": 0.931, "BWA": 0.928},
    "sentence-polarity": {"IBCC": 0.915, "EBCC": 0.915, "BWA": 0.917},
    "sentiment": {"IBCC": 0.960, "EBCC": 0.961, "BWA": 0.956},
}


class Case(NamedTuple):
    crowd: str
    per_item: int
    seed: int


def cases(data: Path) -> Iterator[tuple[Case, crowds.Crowd]]:
    for name, crowd in crowds.load_all(data):
        yield Case(name, FULL, 0), crowd
        density = len(crowd.annotations) / crowd.annotations.n_items
        for per_item in THINNED:
            for seed in SEEDS if density > per_item / 0.7 else ():
                less = crowds.thinned(crowd.annotations, per_item, seed)
                yield Case(name, per_item, seed), crowds.Crowd(less, crowd.truth)


# ---- measuring ----


def measure(rows: Rows, data: Path, only: set[str]) -> None:
    """Measure what is missing; measure the methods in ``only`` again."""
    version = commit()
    for case, crowd in cases(data):
        wanted = [name for name in METHODS if wants(rows, case, name, only)]
        truth = crowd.true_classes()
        known = truth != crowds.UNKNOWN
        found = []
        for name in wanted:
            probabilities, row = run(name, crowd.annotations)
            if probabilities is not None:
                measured = score(probabilities[known], truth[known])
                row |= {"accuracy": measured["accuracy"]} if name in LABELS_ONLY else measured
            found.append({**case._asdict(), "method": name, **row, "commit": version})
        rows.put(found)
        if found:
            print(*case, {row["method"]: round(row.get("accuracy", np.nan), 3) for row in found}, flush=True)


def wants(rows: Rows, case: Case, name: str, only: set[str]) -> bool:
    if only:
        return is_named(name, only)
    if (*case, name) in rows.measured(*KEYS):
        return False
    if name in SLOW and case.per_item != FULL:  # one draw is enough, and none if the full crowd took too long
        full = rows.table.query("crowd == @case.crowd and per_item == @FULL and method == @name")
        return case.seed == SEEDS[0] and (full["failed"] == "").all()
    return True


def run(name: str, annotations: Annotations) -> tuple[Floats | None, Row]:
    way = {OURS: ours, CLOSED_FORM: closed_form, **RIVALS}[name]
    return attempt(lambda: way(annotations), LIMIT)


# ---- tables ----


def tables(rows: Rows) -> dict[str, str]:
    """Return {title: Markdown table}."""
    done = rows.table[rows.table["failed"] == ""]
    mean = done.groupby(["crowd", "per_item", "method"], as_index=False)[list(MEASURES)].mean()
    full, thin = mean[mean["per_item"] == FULL], mean[mean["per_item"] != FULL]
    by_crowd = per_crowd(full)
    return {
        "Full crowds, on average": markdown(averages(full)),
        "Thinned crowds, on average": markdown(averages(thin)),
        "Thinned crowds, by labels an item": markdown(by_labels(thin)),
        "Full crowds": markdown(by_crowd),
        "Log-loss on full crowds": markdown(log_losses(full)),
        "Published accuracies": markdown(published(full)),
        "Goals": goals(full, by_crowd),
        "How to read this": caption(),
    }


def wide(table: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return a row per crowd and thinning, and a column per method, which may be empty."""
    found = table.pivot_table(index=["crowd", "per_item"], columns="method", values=measure)
    return found.reindex(columns=list(METHODS))


def averages(table: pd.DataFrame) -> pd.DataFrame:
    """Average each method over the crowds that it can handle; ahead is ours minus the method."""
    right = wide(table, "accuracy")
    found = []
    for name in right.columns[right.notna().any()]:
        mine = table[table["method"] == name]
        ahead = (right[OURS] - right[name]).dropna()
        crowd_means = ahead.groupby("crowd").mean()
        below = (right[VOTE] - right[name]).dropna()
        found.append(
            {
                "method": name,
                "crowds": len(crowd_means),
                "right": mine["accuracy"].mean(),
                "ours ahead": "–" if name == OURS else f"{ahead.mean():+.3f} ± {crowd_means.sem():.3f}",
                "below the vote": f"{(below > SLACK).sum()} of {len(below)}, worst {-below.max():+.3f}",
                **{title: mine[measure].mean() for title, measure in TITLES.items()},
            }
        )
    return pd.DataFrame(found)


TITLES = {
    "log-loss": "log_loss",
    "calibration": "calibration",
    "over": "over",
    "accepted": "accepted",
    "of these right": "settled_right",
}


def by_labels(table: pd.DataFrame) -> pd.DataFrame:
    """Return accuracy, and the log-loss of ours and the vote."""
    found = []
    for per_item, part in table.groupby("per_item"):
        right, loss = wide(part, "accuracy").mean(), wide(part, "log_loss").mean()
        row = {"labels an item": per_item, "crowds": part["crowd"].nunique()}
        row |= {name: right[name] for name in METHODS if name not in SLOW}
        found.append({**row, "log-loss, vote": loss[VOTE], "log-loss, ours": loss[OURS]})
    return pd.DataFrame(found)


def per_crowd(full: pd.DataFrame) -> pd.DataFrame:
    right, loss, accepted, sure = (
        wide(full, measure).droplevel("per_item") for measure in ("accuracy", "log_loss", "accepted", "settled_right")
    )
    rivals = right[list(RIVALS)]
    best = rivals.idxmax(axis=1)
    return pd.DataFrame(
        {
            "crowd": right.index,
            **{name: right[name].to_numpy() for name in SHOWN},
            "best rival": [f"{rivals.loc[crowd, name]:.3f} {name}" for crowd, name in best.items()],
            "regret": (rivals.max(axis=1) - right[OURS]).to_numpy(),
            "ours − vote": (right[OURS] - right[VOTE]).to_numpy(),
            "log-loss, vote": loss[VOTE].to_numpy(),
            "log-loss, ours": loss[OURS].to_numpy(),
            "accepted": accepted[OURS].to_numpy(),
            "of these right": sure[OURS].to_numpy(),
        }
    )


def log_losses(full: pd.DataFrame) -> pd.DataFrame:
    loss = wide(full, "log_loss").droplevel("per_item")
    return loss[list(SHOWN)].rename_axis(columns=None).reset_index()


def published(full: pd.DataFrame) -> pd.DataFrame:
    """Return published accuracies, those measured here, and ours."""
    right = wide(full, "accuracy").droplevel("per_item")
    rows = []
    for name in sorted(PUBLISHED.keys() & set(right.index)):
        row = {"crowd": name}
        for method, accuracy in PUBLISHED[name].items():
            row |= {f"{method}, published": accuracy, f"{method}, here": right.loc[name, method]}
        rows.append(row | {OURS: right.loc[name, OURS]})
    table = pd.DataFrame(rows)
    mean = {"crowd": "mean", **table.drop(columns="crowd").mean()}
    return pd.concat([table, pd.DataFrame([mean])], ignore_index=True)


def goals(full: pd.DataFrame, by_crowd: pd.DataFrame) -> str:
    """Check the goals of part A."""
    ahead = {name: (wide(full, "accuracy")[OURS] - wide(full, "accuracy")[name]).mean() for name in RIVALS}
    nearest = min(ahead, key=lambda name: ahead[name])
    below = by_crowd["crowd"][by_crowd["ours − vote"] < -SLACK]
    worse = by_crowd["crowd"][by_crowd["log-loss, ours"] >= by_crowd["log-loss, vote"]]
    unsure = by_crowd["crowd"][by_crowd["of these right"] < 0.85]
    return "\n".join(
        [
            f"- ahead of every row by 0.01: the nearest is {nearest}, {ahead[nearest]:+.3f}",
            f"- more than 0.01 below the vote on no crowd: {named(below)}",
            f"- log-loss below the vote's on every crowd: not on {named(worse)}",
            f"- log-loss 0.65 or less on average: {by_crowd['log-loss, ours'].mean():.3f}",
            f"- 0.90 of what is accepted right on average: {by_crowd['of these right'].mean():.3f}",
            f"- less than 0.85 on one crowd in five at most: {len(unsure)} of {len(by_crowd)} ({named(unsure)})",
        ]
    )


def named(which: pd.Series) -> str:
    return ", ".join(which) or "none"


def caption() -> str:
    return (
        "Ours is the shipped network, which learned from simulated crowds alone. The ranges of these crowds and the"
        " correction for subtypes were set with the real crowds in view. Right: ties in expectation. Log-loss with"
        " probabilities floored at 0.001. Over: mean confidence minus right. Accepted: probability 0.9 or more. A"
        f" method is averaged over the crowds where it ran (in {LIMIT} s and in memory), and ours ahead over the same,"
        " ± the standard error over crowds. Thinned crowds keep 1, 2, 3 or 5 labels an item, by lot, where there were"
        " more than that / 0.7; mean of two lots, for EBCC, GLAD, MACE and MMSR one. MMSR gives no probabilities."
        " Wawa, ZeroBasedSkill, IBCC, EBCC and BWA are written anew. EBCC has up to 40 starts, fewer on large crowds."
        " Regret: the best rival, picked with the truth, minus ours."
    )
