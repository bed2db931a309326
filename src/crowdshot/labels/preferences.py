"""Rank items from pairwise preferences, with a reliability of each annotator and intervals.

>>> from crowdshot import preferences
>>> rows = [("tea", "mate", "model_a"), ("mate", "tea", "model_b"), ("mate", "tea", "model_a")] * 20
>>> table = [{"item_a": a, "item_b": b, "winner": winner} for a, b, winner in rows]
>>> preferences.fit(table).ranking_[["rank", "item", "score", "low", "high"]].round(2)
   rank  item  score   low  high
0     1   tea   0.34  0.12  0.57
1     2  mate  -0.34 -0.57 -0.12

The model is in `crowdshot.model.bradley_terry`. Items are only comparable if a chain of comparisons connects them;
items that no chain connects get different groups, each with its own ranks.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import norm

from crowdshot.errors import CrowdshotError, CrowdshotWarning, NoLabelError, Use
from crowdshot.formatting import counted, listing
from crowdshot.io.cells import Ids, ordered
from crowdshot.io.dataframes import to_pandas
from crowdshot.io.json_text import OMITTED
from crowdshot.io.tables import Table
from crowdshot.labels.columns import matches, plain
from crowdshot.labels.formats.label_file import LabelFile
from crowdshot.model import bradley_terry
from crowdshot.model.bradley_terry import Comparisons, Positions

__all__ = ["Preferences", "fit"]

THINGS = ("model", "item", "option", "candidate", "system", "player", "image", "generator", "assistant")
TEXTS = ("response", "answer", "output", "text", "summary")
SIDES = (("a", "b"), ("1", "2"), ("left", "right"), ("first", "second"))
PAIRS = [  # names of the columns of both items, the most usual first
    pair
    for thing, (one, other) in product((*THINGS, "", *TEXTS), SIDES)
    for pair in ((thing + one, thing + other), (one + thing, other + thing))
]
WON_LOST = (("winner", "loser"), ("better", "worse"), ("chosen", "rejected"))
WINNERS = ("winner", "preference", "preferred", "better", "verdict", "choice", "vote", "label", "answer", "result")
FIRST = {pair[0] for pair in PAIRS}
SECOND = {pair[1] for pair in PAIRS}
TIES = {"tie", "tied", "tiebothbad", "bothbad", "bothgood", "draw", "equal", "same", "both", "neither"}
SIGNS = {  # verdicts that `plain` would not keep apart
    **dict.fromkeys(("A>B", "A>>B", "B<A", "B<<A"), 1.0),
    **dict.fromkeys(("B>A", "B>>A", "A<B", "A<<B"), 0.0),
    **dict.fromkeys(("A=B", "B=A", "=", "[[C]]"), 0.5),  # [[C]] is a tie in MT-bench
}
MISSING = {"error", "invalid", "refusal", "refused", "null", "nan", "none", "na"}
NO_WINNER, INCOMPLETE = "comparisons without a winner", "comparisons without two items or an annotator"
WITH_ITSELF = "comparisons of an item with itself"
ONE = "all"  # the annotator of a table that names none
MOST_ITEMS = 3_000  # the covariance matrix has their square
LEVEL = 0.9
RANDOM_P = 0.05
FEW = 10  # comparisons of an annotator, below which no warning lists them
Side = Literal["name", "side"]
ROLES = ("first", "second", "winner", "annotator")


@dataclass(frozen=True)
class Preferences:
    """A ranking from pairwise preferences.

    Attributes
    ----------
    ranking_ : DataFrame
        rank, rank_low, rank_high, item, score, low, high, comparisons, wins, ties, losses and group, best first. A
        score is a log odds: of items with the difference d, an annotator of reliability 1 prefers the better one with
        probability 1 / (1 + exp(−d)). The scores of a group have the sum 0. The interval of the rank holds for the
        ranks among all items of the group (Bonferroni).
    annotators_ : DataFrame
        annotator, comparisons, ties, agreement (the share of answers, without ties, that agree with the ranking),
        reliability, low and high, least reliable first. The mean reliability of a comparison is 1, a guesser has 0, and
        who prefers the worse item is below 0. With one annotator, it is not estimated.
    groups_ : int
        The number of groups; items of different groups cannot be compared.
    random_p_ : float
        The p value of the hypothesis that all answers are random.
    left_out_ : dict
        The number of rows that are not used, by reason.
    columns_ : dict
        The columns of the table by role: first, second, winner and annotator.
    level_ : float
        The level of the intervals.
    warnings_ : list of str
        What the ranking cannot show. `fit` warns of it too.
    """

    ranking_: pd.DataFrame = field(metadata=OMITTED)
    annotators_: pd.DataFrame = field(metadata=OMITTED)
    groups_: int
    random_p_: float
    left_out_: Mapping[str, int]
    columns_: Mapping[str, str]
    level_: float
    warnings_: list[str]


def fit(
    table: Any,
    columns: Mapping[str, str] | None = None,
    *,
    winner_is: Side | None = None,
    skip_bad: bool = False,
    sheet: str | None = None,
    level: float = LEVEL,
) -> Preferences:
    """Rank items from a table of pairwise preferences.

    Parameters
    ----------
    table : path, DataFrame of any library, or list of dicts
        A row for each comparison, with two items, the winner and perhaps the annotator.
    columns : dict, optional
        The columns by role: first, second, winner and annotator. Others are recognised by their names, such as
        model_a, model_b, winner and judge, or left, right and preference. A table may also have the columns winner and
        loser, or chosen and rejected.
    winner_is : {"name", "side"}, optional
        Whether the winner is the name of an item or a side, such as model_a or 1. By default both are recognised.
    skip_bad : bool
        Whether to leave out rows that lack an item or the annotator, or compare an item with itself.
    sheet : str, optional
        The sheet of a workbook.
    level : float
        The level of the intervals.

    Returns
    -------
    Preferences

    Raises
    ------
    CrowdshotError
        If columns are not found, a winner is not recognised or a row is incomplete.

    Examples
    --------
    >>> from crowdshot import preferences
    >>> rows = [(judge, winner) for judge in ("ann", "bob") for winner in ("tea", "tea", "mate")] * 10
    >>> table = [{"a": "mate", "b": "tea", "winner": winner, "judge": judge} for judge, winner in rows]
    >>> preferences.fit(table).ranking_[["item", "wins", "losses"]]
       item  wins  losses
    0   tea    40      20
    1  mate    20      40
    """
    if not 0 < level < 1:
        raise CrowdshotError(f"is {level}", argument="level", found=level, expected="a share, such as 0.9")
    if winner_is is not None and winner_is not in get_args(Side):
        raise CrowdshotError(
            f"is {winner_is!r}", argument="winner_is", found=winner_is, expected="name or side", among=get_args(Side)
        )
    source = _table_of(table, sheet, skip_bad)
    found = _columns_of(source, columns)
    rows, left_out = _rows_of(source, found, winner_is, skip_bad)
    items, annotators = (
        ordered(pd.unique(np.concatenate([rows.first, rows.second]))),
        ordered(pd.unique(rows.annotator)),
    )
    if len(items) > MOST_ITEMS:
        raise CrowdshotError(
            f"compares {len(items):,} items", where=source.name, found=len(items), expected=f"at most {MOST_ITEMS:,}"
        )
    data = Comparisons.of(
        pd.Index(items).get_indexer(rows.first),
        pd.Index(items).get_indexer(rows.second),
        pd.Index(annotators).get_indexer(rows.annotator),
        rows.outcome,
        len(items),
        len(annotators),
    )
    graph = _beaten(data)
    groups, group = connected_components(graph, directed=False)
    order = np.argsort(-np.bincount(group), kind="stable")  # the largest group is 1
    group = np.argsort(order)[group]
    fitted = bradley_terry.fit(data, group)
    ranking = _ranking(data, fitted, items, group, level)
    people = _annotators(data, fitted, annotators, level)
    random_p = bradley_terry.random_answers_p(data)
    cautions = _cautions(ranking, people, random_p, graph)
    for message in cautions:
        warnings.warn(CrowdshotWarning(message, where=source.name), stacklevel=2)
    used = {role: source.header[column] for role, column in found.items()}
    return Preferences(ranking, people, int(groups), random_p, dict(left_out), used, level, cautions)


# ---- reading ----


@dataclass(frozen=True)
class _Rows:
    first: Ids
    second: Ids
    annotator: Ids
    outcome: NDArray[np.float64]


def _table_of(table: Any, sheet: str | None, skip_bad: bool) -> Table:
    """Return a file or any table as a `Table`."""
    if isinstance(table, str | os.PathLike):
        return LabelFile(table, sheet=sheet, skip_bad=skip_bad).table
    frame = to_pandas(table, "table")
    if isinstance(frame, Mapping):
        frame = pd.DataFrame(frame)
    if not isinstance(frame, pd.DataFrame):
        raise CrowdshotError(
            f"is a {type(table).__name__}", argument="table", expected="a path, a table or a list of dicts"
        )
    return Table("the table", frame.reset_index(drop=True), np.arange(1, 1 + len(frame)))


def _columns_of(table: Table, columns: Mapping[str, str] | None) -> dict[str, int]:
    """Return the positions of the columns by role."""
    header, named = table.header, _named_columns(table, columns)
    free = {plain(name): name for name in header if name not in named.values()}
    if not {"first", "second"} & set(named):
        lost = next((pair for pair in WON_LOST if set(pair) <= set(free)), None)
        both = next((pair for pair in PAIRS if set(pair) <= set(free)), None)
        if both or lost:
            named |= dict(zip(ROLES, (free[name] for name in both or lost or ()), strict=False))
            if not both and "winner" not in named:
                named["winner"] = named["first"]
    if "winner" not in named:
        named |= dict([("winner", free[name]) for name in WINNERS if name in free][:1])
    for role, usual in (("first", "model_a, item_a, left"), ("second", "model_b, item_b, right"), ("winner", "winner")):
        if role not in named:
            raise CrowdshotError(
                f"has no column for the {role}{'' if role == 'winner' else ' item'} among {listing(header)}",
                where=table.name,
                found=header[:10],
                expected=f"one called {usual} or similar",
                hint=Use("to name another column", columns={role: "NAME"}),
            )
    if named["first"] == named["second"] or named["winner"] == named["second"]:
        raise CrowdshotError(
            f"names {listing(named.values())}", argument="columns", found=named, expected="different columns"
        )
    if "annotator" not in named:
        people = matches("annotator", [name for name in header if name not in named.values()], ranks=2)
        if len(people) > 1:
            raise CrowdshotError(
                f"has {len(people)} columns that could be the annotator, {listing(people)}",
                where=table.name,
                found=people,
                expected="one",
                hint=Use("to choose one", columns={"annotator": "NAME"}),
            )
        named |= dict(zip(["annotator"], people, strict=False))
    return {role: header.index(named[role]) for role in ROLES if role in named}


def _named_columns(table: Table, columns: Mapping[str, str] | None) -> dict[str, str]:
    """Return the caller's columns by role; refuse other roles and columns that do not exist."""
    header, named = table.header, dict(columns or {})
    unknown = [role for role in named if role not in ROLES]
    if unknown:
        raise CrowdshotError(
            f"names {listing(unknown)}", argument="columns", found=unknown, expected=f"keys among {listing(ROLES)}"
        )
    for role, name in named.items():
        if header.count(name) != 1:
            times = "more than one" if name in header else "no"
            raise CrowdshotError(
                f"has {times} column {name!r} for the {role} among {listing(header)}",
                where=table.name,
                found=name,
                expected="one",
                among=header,
            )
    return named


def _rows_of(
    table: Table, found: Mapping[str, int], winner_is: Side | None, skip_bad: bool
) -> tuple[_Rows, Counter[str]]:
    """Return the comparisons, and how many rows are left out by reason."""
    first, second, winner = (table.text(found[role]) for role in ("first", "second", "winner"))
    annotator = table.text(found["annotator"]) if "annotator" in found else np.full(len(first), ONE, dtype=object)
    left_out: Counter[str] = Counter()
    kept = np.ones(len(first), dtype=bool)
    checks = [
        (first == "", INCOMPLETE, "first", "is blank"),
        (second == "", INCOMPLETE, "second", "is blank"),
        (annotator == "", INCOMPLETE, "annotator", "is blank"),
        (first == second, WITH_ITSELF, "second", "is the first item too"),
    ]
    for found_bad, reason, role, message in checks:
        bad = np.asarray(found_bad, dtype=bool) & kept
        if bad.any() and not skip_bad:
            raise CrowdshotError(
                message,
                where=table.place(int(np.argmax(bad)), found[role]),
                hint=Use(f"to leave out {counted(int(bad.sum()), 'rows')} like this", skip_bad=True),
            )
        left_out[reason] += int(bad.sum())
        kept &= ~bad
    by_name_only = found["winner"] == found["first"]  # the columns winner and loser
    own_names = (plain(table.header[found["first"]]), plain(table.header[found["second"]]))
    key, distinct = pd.factorize(pd.MultiIndex.from_arrays([first, second, winner]))
    outcomes = np.full(len(distinct), np.nan)
    for at, (one, other, word) in enumerate(distinct):
        try:
            outcomes[at] = _outcome(one, other, word, own_names, "name" if by_name_only else winner_is)
        except CrowdshotError as error:
            rows = np.flatnonzero((key == at) & kept)
            if not len(rows):
                continue
            error.where = table.place(int(rows[0]), found["winner"])
            raise
    outcome = outcomes[key]
    left_out[NO_WINNER] += int((kept & np.isnan(outcome)).sum())
    kept &= ~np.isnan(outcome)
    if not kept.any():
        raise NoLabelError("has no comparison with a winner or a tie", where=table.name, expected="at least one")
    return _Rows(first[kept], second[kept], annotator[kept], outcome[kept]), +left_out


def _outcome(one: str, other: str, word: str, own_names: tuple[str, str], winner_is: Side | None) -> float:
    """Return 1 if the first item won, 0 if the second did, 0.5 for a tie and NaN without a winner."""
    name = {one: 1.0, other: 0.0}.get(word)
    signs, bare = word.replace(" ", "").upper(), plain(word)
    side: float | None = SIGNS.get(signs)
    if side is None and not {">", "<", "="} & set(signs):
        side = 1.0 if bare in FIRST or bare == own_names[0] else 0.0 if bare in SECOND or bare == own_names[1] else None
        side = 0.5 if side is None and bare in TIES else side
    missing = np.nan if not word or bare in MISSING else None
    if winner_is is None and name is not None and side is not None and name != side:
        raise CrowdshotError(
            f"is {word!r}, which is the name of an item on one side and the name of the other side",
            found=word,
            hint=Use("to read names", winner_is="name") | Use("to read sides", winner_is="side"),
        )
    readings = {"name": (name,), "side": (side,)}.get(winner_is or "", (name, side))
    if winner_is == "name" and side == 0.5:
        readings = (name, side)  # a tie has no name
    known = next((value for value in (*readings, missing) if value is not None), None)
    if known is None:
        raise CrowdshotError(
            f"is {word!r}",
            found=word,
            expected=f"{one!r}, {other!r}, a side such as A or B, or tie",
            among=(one, other, "tie", *own_names),
        )
    return float(known)


# ---- results ----


def _beaten(data: Comparisons) -> csr_array:
    """Return the graph (N, N) with an edge from each item to those that it has beaten or tied with."""
    won, lost = data.outcome > 0, data.outcome < 1
    rows = np.concatenate([data.first[won], data.second[lost]])
    columns = np.concatenate([data.second[won], data.first[lost]])
    return csr_array((np.ones(len(rows)), (rows, columns)), (data.n_items, data.n_items))


def _ranking(
    data: Comparisons, fitted: bradley_terry.Fitted, items: Ids, group: Positions, level: float
) -> pd.DataFrame:
    half = norm.ppf((1 + level) / 2) * np.sqrt(np.diag(fitted.covariance))
    difference, sd = fitted.differences()
    same = group[:, None] == group
    size = same.sum(1)
    z = norm.ppf(1 - (1 - level) / 2 / np.maximum(size - 1, 1))[:, None]
    below = same & (difference < -z * sd)  # certainly worse than the other
    above = same & (difference > z * sd)
    tied = data.count * data.is_tie
    won, lost = data.count * (data.outcome == 1), data.count * (data.outcome == 0)
    counts = {
        "comparisons": data.per_item(data.count, data.count),
        "wins": data.per_item(won, lost),
        "ties": data.per_item(tied, tied),
        "losses": data.per_item(lost, won),
    }
    table = pd.DataFrame(
        {
            "rank": 1 + (same & (difference < 0)).sum(1),
            "rank_low": 1 + below.sum(1),
            "rank_high": size - above.sum(1),
            "item": items,
            "score": fitted.score,
            "low": fitted.score - half,
            "high": fitted.score + half,
            **{name: np.rint(values).astype(np.int64) for name, values in counts.items()},
            "group": group + 1,
        }
    )
    return table.sort_values(["group", "rank"], kind="stable", ignore_index=True)


def _annotators(data: Comparisons, fitted: bradley_terry.Fitted, names: Ids, level: float) -> pd.DataFrame:
    difference = fitted.score[data.first] - fitted.score[data.second]
    with_ranking = (2 * data.outcome - 1) * difference > 0
    decided = data.per_annotator(data.count * ~data.is_tie)
    with np.errstate(invalid="ignore"):
        agreement = data.per_annotator(data.count * with_ranking) / decided
    half = norm.ppf((1 + level) / 2) * fitted.reliability_sd
    known = np.where(data.n_annotators > 1, 1.0, np.nan)
    total = data.per_annotator(data.count)
    table = pd.DataFrame(
        {
            "annotator": names,
            "comparisons": total.astype(np.int64),
            "ties": (total - decided).astype(np.int64),
            "agreement": agreement,
            "reliability": known * fitted.reliability,
            "low": known * (fitted.reliability - half),
            "high": known * (fitted.reliability + half),
        }
    )
    return table.sort_values("reliability", kind="stable", ignore_index=True)


def _cautions(table: pd.DataFrame, people: pd.DataFrame, random_p: float, graph: csr_array) -> list[str]:
    """Return what the ranking cannot show, as sentences."""
    found: list[str] = []
    groups = int(table["group"].max())
    if groups > 1:
        found.append(
            f"No comparison connects {groups} groups of items; ranks and scores of different groups cannot be compared"
        )
    always, never = (table[column] == table["comparisons"] for column in ("wins", "losses"))
    for which, verb in ((always, "win"), (never, "lose")):
        if which.any():
            items = listing(table["item"][which], 5)
            found.append(f"These items always {verb}, so that only the prior limits their scores: {items}")
    strong = connected_components(graph, directed=True, connection="strong")[0]
    if strong > groups and not always.any() and not never.any():
        found.append("Some items never lose to the others, so that only the prior limits the distance of their scores")
    if random_p > RANDOM_P:
        found.append(
            f"The answers do not differ significantly from random ones (p = {random_p:.2f}); the ranking may be chance"
        )
    weak = people["annotator"][(people["low"] <= 0) & (people["comparisons"] >= FEW)]
    if len(weak):
        found.append(f"Annotators not shown to be better than chance: {listing(weak, 5)}")
    return found
