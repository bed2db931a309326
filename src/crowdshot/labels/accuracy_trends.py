"""Test whether an annotator's accuracy changes over time, within sessions, and with the speed of the answers.

An item has the class probabilities q (K,) by the labels of all other annotators, or the known class. With accuracy a
and equally likely mistakes, the annotator chooses class l with the probability

    p_l = a q_l + (1 - a) (1 - q_l) / (K - 1)

At the maximum likelihood estimate of a, the label of item i has the score u_i = d log p / d a and the information
I_i = E[u_i²]. Items that say little about a, because q is flat, have little information. Let S and V be the sums of
the scores and of the information of the first t of m labels. The standardised difference between these and the rest is

    z_t = S / sqrt(V (1 - V / V_m))

- **Change:** the largest |z_t| over all splits by time, or |z| of a linear trend over the labels if that is larger.
  The p-value is the share of random orders of the labels with a larger statistic, so it accounts for the search over
  splits. Orders permute u_i / sqrt(I_i), because later items may have more labels and therefore more information.
- **Sessions:** a linear trend over the minutes since the session began, with a p-value by random orders as well. A
  break of half an hour ends a session.
- **Fast answers:** labels in the order of their durations. Only splits after the fastest labels count, up to half of
  them, and only lower accuracy of the fast ones. Fast answers that are as accurate as the others are never reported.

Of all findings, 5 % may be false (Benjamini and Hochberg over annotators and tests), if the labels are tested
once. benchmarks/trends.py measures this on simulated annotators of constant accuracy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.io.cells import Positions, positions
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_flags import OtherLabels, false_discovery
from crowdshot.labels.annotator_quality import judge
from crowdshot.labels.label_times import DAY, Times
from crowdshot.labels.working_times import (
    AFTER,
    BEFORE,
    CHANGE,
    CHANGED_AT,
    COURSE,
    EARLY,
    FAST,
    FAST_BELOW,
    FAST_LABELS,
    LATE,
    LONGEST_GAP,
    SAME_MOMENT,
    SLOW,
    TEXTS,
    TRENDS,
    certain_seconds,
    is_break,
    time_text,
)

if TYPE_CHECKING:
    from crowdshot.labels.formats.label_file import LabelsRead
    from crowdshot.model.parts import PosteriorMatrix

Floats = NDArray[np.float64]

FEWEST = 30  # labels for a test
FEWEST_APART, SHARE_APART = 8, 0.05  # labels on each side of a split, and their share of the information
MOST_FAST = 0.5  # share of labels that may count as fast
DRAWS, FEW_LARGER = (100, 1_000, 20_000), 10  # random orders; more, if fewer of them have a larger statistic
DRAWS_PER_ANNOTATOR = 100  # so that the smallest p-value is below 5 % of the reciprocal number of tests
UNLIKELY = 2.2  # smaller statistics count as not significant
AT_ONCE = 4_000_000  # numbers that are permuted together
LEAST_PART, FEWEST_PARTS, MOST_PARTS = 20, 3, 12  # labels in a part of the course, and numbers of parts
SHRINK = 2.0  # labels: weight of the annotator's accuracy in that of a part of the labels
MOST_CELLS = 50_000_000  # items times classes; with more, nothing is tested


class Scores(NamedTuple):
    """The evidence of m labels about an annotator's accuracy (see the module); ``right`` (m,) is q of the label.

    ``shift`` is added to accuracies of parts, so that they agree with the accuracy of all labels in other tables.
    ``draws`` is the largest number of random orders.
    """

    right: Floats
    score: Floats
    information: Floats
    accuracy: float
    n_classes: int
    shift: float = 0.0
    draws: int = DRAWS[-1]

    def take(self, rows: Positions) -> Scores:
        return self._replace(right=self.right[rows], score=self.score[rows], information=self.information[rows])

    def accuracy_of(self, rows: Any) -> float:
        """Return the accuracy of some labels, shrunk to that of all."""
        part = _accuracy(self.right[rows], self.n_classes, self.accuracy, SHRINK) + self.shift
        return min(max(part, 0.01), 0.99)


class Tested(NamedTuple):
    """The p-value of a test, None for a mere description, and the columns that describe the finding."""

    p_value: float | None
    found: dict[str, Any]


def _accuracy(right: Floats, n_classes: int, start: float = 0.7, weight: float = 0.0) -> float:
    """Return the accuracy with the highest likelihood (EM); ``weight`` labels have the accuracy ``start``."""
    a = start
    for _ in range(30):
        mine = a * right
        a = float((mine / (mine + (1 - a) * (1 - right) / (n_classes - 1))).sum() + weight * start + 1e-3)
        a = min(max(a / (len(right) + weight + 2e-3), 0.01), 0.99)
    return a


def scores_of(q: Floats, label: Positions) -> Scores:
    """Return the evidence of labels (m,), given the class probabilities q (m, K) without them."""
    m, K = q.shape
    right = q[np.arange(m), label].clip(1e-6, 1 - 1e-6)
    a = _accuracy(right, K, weight=SHRINK)
    slope = q - (1 - q) / (K - 1)
    p = a * q + (1 - a) * (1 - q) / (K - 1)
    information = (np.square(slope) / p.clip(1e-9)).sum(1)
    score = (slope / p.clip(1e-9))[np.arange(m), label]
    return Scores(right, score, information, a, K)


# ---- tests ---------------------------------------------------------------------------------------------------------


def _splits(scores: Scores, values: Floats) -> Positions:
    """Return the t at which labels, sorted by ``values`` (m,), may be split into the first t and the rest."""
    t = np.flatnonzero(np.diff(values) > 0) + 1
    share = scores.information.cumsum()[t - 1] / scores.information.sum()
    wide = (t >= FEWEST_APART) & (t <= len(values) - FEWEST_APART)
    out: Positions = t[wide & (share >= SHARE_APART) & (share <= 1 - SHARE_APART)]
    return out


def _differences(scores: Floats, information: Floats, splits: Positions) -> Floats:
    """Return z (..., splits) for scores (..., m)."""
    total = scores.sum(-1, keepdims=True)
    before = information.cumsum()[splits - 1]
    share = before / information.sum()
    out: Floats = (scores.cumsum(-1)[..., splits - 1] - share * total) / np.sqrt(before * (1 - share))
    return out


def _trend(scores: Floats, information: Floats, x: Floats) -> Any:
    """Return the standardised slope (...) of scores (..., m) on x (m,)."""
    x = x - (information @ x) / information.sum()
    return scores @ x / max(float(information @ np.square(x)), 1e-12) ** 0.5


def _p_value(scores: Scores, observed: float, statistic: Any) -> float:
    """Return the share of random orders whose ``statistic`` of the scores (n, m) is at least the observed one."""
    if observed < UNLIKELY:
        return 1.0
    random, root = np.random.default_rng(0), np.sqrt(scores.information)
    residual = scores.score / root
    done, larger, at_once = 0, 0, max(AT_ONCE // len(residual), 1)
    for most in np.minimum(DRAWS, scores.draws).tolist():
        while done < most and larger < FEW_LARGER:
            n = min(at_once, most - done)
            drawn = random.permuted(np.tile(residual, (n, 1)), axis=1) * root
            larger += int((statistic(drawn) >= observed - 1e-9).sum())
            done += n
    return (1 + larger) / (1 + done)


def change_over_time(scores: Scores, seconds: Floats) -> Tested | None:
    """Test whether the accuracy changes with time; ``scores`` and ``seconds`` (m,) are in the order of time."""
    splits = _splits(scores, seconds)
    if not len(splits):
        return None
    order = np.unique(seconds, return_inverse=True)[1].astype(np.float64)

    def statistic(u: Floats) -> Floats:
        steps = np.abs(_differences(u, scores.information, splits)).max(-1)
        out: Floats = np.maximum(steps, np.abs(_trend(u, scores.information, order)))
        return out

    z = _differences(scores.score, scores.information, splits)
    slope = float(_trend(scores.score, scores.information, order))
    gradual = abs(slope) > np.abs(z).max()
    at = int(splits[np.abs(z).argmax()])
    quarter = max(len(seconds) // 4, FEWEST_APART)
    first, last = (slice(quarter), slice(-quarter, None)) if gradual else (slice(at), slice(at, None))
    before, after = scores.accuracy_of(first), scores.accuracy_of(last)
    name = ("rose" if after > before else "fell") + (" gradually" if gradual else "")
    found: dict[str, Any] = {CHANGE: name, BEFORE: before, AFTER: after}
    if not gradual:
        found[CHANGED_AT] = time_text(float(seconds[at]), bool((seconds % DAY == 0).all()))
    return Tested(_p_value(scores, float(statistic(scores.score)), statistic), found)


def course_of(scores: Scores, seconds: Floats) -> Tested | None:
    """Return the accuracy in successive parts of the labels; ``scores`` and ``seconds`` (m,) are in order of time."""
    parts = min(len(seconds) // LEAST_PART, MOST_PARTS)
    if parts < FEWEST_PARTS or seconds[0] == seconds[-1]:
        return None
    rows = np.array_split(np.arange(len(seconds)), parts)
    return Tested(None, {COURSE: " ".join(f"{scores.accuracy_of(part):.2f}" for part in rows)})


def trend_in_sessions(scores: Scores, seconds: Floats) -> Tested | None:
    """Test for a trend within sessions; ``scores`` and ``seconds`` (m,) are in the order of time."""
    session = np.cumsum(np.diff(seconds, prepend=seconds[0]) > LONGEST_GAP)
    start = seconds[np.searchsorted(session, session)]
    minutes, weight = (seconds - start) / 60, np.bincount(session, scores.information)
    x = minutes - (np.bincount(session, scores.information * minutes) / weight)[session]
    spread = float(scores.information @ np.square(x))
    late = minutes > np.median(minutes)
    if spread < 1 or min(late.sum(), (~late).sum()) < FEWEST_APART:
        return None

    def statistic(u: Floats) -> Floats:
        out: Floats = np.abs(u @ x) / spread**0.5
        return out

    found = {EARLY: scores.accuracy_of(~late), LATE: scores.accuracy_of(late)}
    same_sign = float(scores.score @ x) * (found[LATE] - found[EARLY]) > 0
    return Tested(_p_value(scores, float(statistic(scores.score)), statistic) if same_sign else 1.0, found)


def fast_answers(scores: Scores, durations: Floats) -> Tested | None:
    """Test whether the fastest answers are worse; ``durations`` (m,) are ascending."""
    splits = _splits(scores, durations)
    splits = splits[splits <= MOST_FAST * len(durations)]
    if not len(splits):
        return None

    def statistic(u: Floats) -> Floats:
        out: Floats = (-_differences(u, scores.information, splits)).max(-1)
        return out

    z = -_differences(scores.score, scores.information, splits)
    at = int(splits[z.argmax()])
    fast, slow = scores.accuracy_of(slice(at)), scores.accuracy_of(slice(at, None))
    between = float(durations[at - 1 : at + 1].clip(SAME_MOMENT).prod()) ** 0.5
    found = {FAST_BELOW: between, FAST_LABELS: at, FAST: fast, SLOW: slow}
    return Tested(_p_value(scores, float(z.max()), statistic) if fast < slow else 1.0, found)


# ---- all annotators ------------------------------------------------------------------------------------------------


def accuracy_trends(
    ann: Annotations, posterior: PosteriorMatrix, times: Times | None, history: Floats | None = None
) -> pd.DataFrame:
    """Test every annotator with at least `FEWEST` labels whose items others labelled too or have a known class.

    Parameters
    ----------
    ann : Annotations
    posterior : array of shape (N, K)
        Class probabilities of the items.
    times : Times or None
        When the labels were given, and how long they took.
    history : array of shape (R, 2), optional
        Numbers of right and wrong labels in earlier projects.

    Returns
    -------
    DataFrame
        A row for each annotator, indexed by name. Only what is significant is filled in:

        - accuracy_change ("fell", "rose", "fell gradually" or "rose gradually"), changed_at (the time of the first
          label after a sudden change), accuracy_before and accuracy_after (of a gradual change: the first and the last
          quarter of the labels);
        - accuracy_early_in_session and accuracy_late_in_session: before and after the median minute of sessions;
        - fast_below_seconds, fast_labels, accuracy_fast and accuracy_not_fast: answers that are faster and less
          accurate.

        accuracy_course is no test: the accuracy in 3 to 12 successive parts of 20 labels or more, as text.
    """
    names = pd.Index([str(name) for name in ann.annotators], dtype=object)
    table = pd.DataFrame(index=names, columns=list(TRENDS), dtype=object)
    is_small = isinstance(posterior, np.ndarray) and posterior.size <= MOST_CELLS
    if times is None or not is_small or ann.n_classes < 2 or not ann.n_labels:
        return _typed(table)
    seconds = certain_seconds(times)
    durations = np.full(len(seconds), np.nan) if times.durations is None else times.durations
    others = OtherLabels(ann, np.asarray(posterior), history)
    order = np.lexsort((seconds, ann.annotator))
    each = np.split(order, np.cumsum(np.bincount(ann.annotator, minlength=ann.n_annotators))[:-1])
    accuracy = judge(ann, posterior, history)["accuracy"].tolist()
    tested = [_test_each(ann, others, *one, seconds, durations) for one in zip(each, accuracy, strict=True)]
    tests = [(row, test) for row, results in enumerate(tested) for test in results if test is not None]
    wanted = false_discovery([test.p_value for _, test in tests])
    for (row, test), is_wanted in zip(tests, wanted, strict=True):
        for column, value in test.found.items() if is_wanted or test.p_value is None else ():
            table.iat[row, TRENDS.index(column)] = value
    return _typed(table)


def _typed(table: pd.DataFrame) -> pd.DataFrame:
    numbers = {name: float for name in table if name not in TEXTS}
    return table.astype(numbers).round({name: 1 if name == FAST_BELOW else 3 for name in numbers})


def _test_each(
    ann: Annotations, others: OtherLabels, rows: Positions, accuracy: float, seconds: Floats, durations: Floats
) -> list[Tested | None]:
    """Return the tests of an annotator whose labels are the ``rows``, sorted by time, with this accuracy."""
    used = others.testable(rows)
    if len(used) < FEWEST:
        return []
    scores = scores_of(others.of(used), ann.label[used])
    draws = max(DRAWS[1], DRAWS_PER_ANNOTATOR * ann.n_annotators)
    scores = scores._replace(shift=accuracy - scores.accuracy, draws=draws)
    at, took = seconds[used], durations[used]
    if np.isnan(took).all():
        took = _gaps(seconds[rows])[np.isin(rows, used)]
    timed, lasting = np.flatnonzero(~np.isnan(at)), np.flatnonzero(~np.isnan(took))
    by_duration = lasting[np.argsort(took[lasting], kind="stable")]
    found: list[Tested | None] = []
    if len(timed) >= FEWEST:
        found = [test(scores.take(timed), at[timed]) for test in (change_over_time, trend_in_sessions, course_of)]
    if len(lasting) >= FEWEST:
        found.append(fast_answers(scores.take(by_duration), took[by_duration]))
    return found


def _gaps(seconds: Floats) -> Floats:
    """Return the time since the annotator's label before, NaN after breaks and for labels submitted together."""
    gaps = np.diff(seconds, prepend=np.nan)
    known = gaps > SAME_MOMENT
    gaps[~known] = np.nan
    gaps[np.flatnonzero(known)[is_break(gaps[known])]] = np.nan
    return gaps


def trends_of(labels: LabelsRead, ann: Annotations, posterior: PosteriorMatrix) -> pd.DataFrame:
    """Return the `accuracy_trends` of labels as they were read, with the posterior (N, K) of the items of ``ann``.

    ``ann`` may have more items and classes, in another order. Labels of items that it lacks are not tested.
    """
    read = labels.annotations
    item = positions(ann.items, read.items)[read.item]
    label = positions(ann.classes.astype(str), read.classes.astype(str))[read.label]
    known = (item >= 0) & (label >= 0)
    if labels.times is None or labels.several or not known.any():
        return accuracy_trends(read, posterior, None)
    same = Annotations(
        item[known], read.annotator[known], label[known], ann.items, read.annotators, ann.classes, read.columns
    )
    return accuracy_trends(same, posterior, labels.times.take(known), labels.history.of(read.annotators))
