"""Measure how often the 90 % intervals of annotators' accuracy contain the true accuracy, on real crowds.

    python benchmarks/intervals.py --data ../shared/data --out results/intervals    # measures; minutes
    python benchmarks/intervals.py --out results/intervals --tables                 # only the tables of these rows

Each crowd is aggregated by the default, whose network saw no real crowd: in full, thinned to 1, 2, 3 and 5 labels per
item, and 300 of its items. Annotators with 20 labels or more of items with known truth are counted. Crowds with fewer
than three such annotators are left out, and so are hitspam_cf, adult and fact_eval, whose truth is known for few items
only. Every tenth annotator of cifar10h is used.

The true accuracy is not known exactly: somebody with 20 of 20 labels right may have an accuracy of 0.95. The true
labels give it a Beta distribution, with the crowd's as its prior. ``coverage`` is the probability of the interval under
this distribution, averaged over annotators; ``share`` is how often the interval contains the share of right labels.

The constants `PRIOR`, `SHIFT` and `SHARED` (`crowdshot.labels.annotator_quality`) maximise the expected log-density of
the true accuracy. The rows of each crowd, and of its relatives (`crowds.RELATIVES`), are measured with constants that
were fitted to the other crowds. The shipped constants are fitted to all of them. Simulated crowds are not fitted to.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import crowds
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from rows import markdown
from scipy.optimize import minimize
from scipy.special import betainc, betaincinv, betaln, digamma

from crowdshot import Annotations, aggregate, simulate
from crowdshot.labels import annotator_quality
from crowdshot.labels.annotator_quality import Tally, tally
from crowdshot.model.parts import Sizes

FEW_TRUTHS = ("hitspam_cf", "adult", "fact_eval")
ENOUGH, ITEMS = 20, 300
THINNED = (None, 5, 3, 2, 1)
TEXTS = {"sentence-polarity", "SP_amt", "sentiment", "mozafari", "isbook", "rte", "wsd", "temp", "fej2013"}
LINKS = {"product", "ZC_all", "ZC_in", "ZC_us"}
NAMES, START = ("PRIOR", "SHIFT", "SHARED"), (7.3, 0.77, 0.62)
SIMULATED = ((2, 20, 200, 3), (4, 20, 200, 5), (8, 40, 300, 3), (2, 60, 300, 10))  # classes, annotators, items, labels


class Case(NamedTuple):
    """The tally of a crowd; ``use`` (M,) are annotators with enough known labels, ``right`` of ``n`` labels right."""

    crowd: str
    kind: str
    labels: str
    tally: Tally
    use: NDArray[np.int64]
    right: NDArray[np.float64]
    n: NDArray[np.float64]


# ---- cases ----


def cases_of(name: str, ann: Annotations, truth: NDArray[np.int64], kind: str) -> list[Case]:
    known = truth[ann.item] != crowds.UNKNOWN
    n = np.bincount(ann.annotator[known], minlength=ann.n_annotators).astype(float)
    right = np.bincount(ann.annotator[known], (truth[ann.item] == ann.label)[known], ann.n_annotators)
    people = pd.DataFrame({"n": n, "right": right}, index=ann.annotators)
    if name == "cifar10h":
        people = people.iloc[::10]
    found = []
    for most in THINNED:
        found.append((str(most or "all"), ann if most is None else crowds.thinned(ann, most, 0)))
    if ann.n_items > 1.5 * ITEMS:
        chosen = np.random.default_rng(0).permutation(ann.n_items)[:ITEMS]
        some = Annotations.from_frame(ann.keep(np.isin(ann.item, chosen)).to_frame(), classes=ann.classes)
        found += [("all, 300 items", some), ("3, 300 items", crowds.thinned(some, 3, 0))]
    cases = []
    for labels, some in found:
        posterior = aggregate.learned(some).probabilities
        counts = tally(
            some.item,
            some.annotator,
            some.label,
            posterior,
            Sizes(*posterior.shape[:1], some.n_annotators, some.n_classes),
        )
        here = people.reindex(some.annotators).fillna(0)
        use = np.flatnonzero((here["n"] >= ENOUGH) & (counts.labels > 0))
        if len(use) > 2:
            cases.append(
                Case(
                    name,
                    kind,
                    labels,
                    counts._replace(confusion=None),
                    use,
                    here["right"].to_numpy()[use],
                    here["n"].to_numpy()[use],
                )
            )
    return cases


def simulated(seed: int) -> list[Case]:
    found = []
    for K, R, N, per_item in SIMULATED:
        generator = torch.Generator().manual_seed(seed)
        truth = torch.randint(K, (N,), generator=generator)
        crowd = simulate.draw_annotators(R, K, simulate.PAPER_SOURCE, generator=generator)
        labels = simulate.draw_labels(truth, crowd.confusion, generator=generator).numpy()
        turn = np.random.default_rng(seed).random(labels.shape).argsort(1).argsort(1)
        ann = Annotations.from_matrix(np.where(turn < per_item, labels, -1), classes=range(K))
        posterior = aggregate.learned(ann).probabilities
        counts = tally(ann.item, ann.annotator, ann.label, posterior, Sizes(N, R, K))
        accuracy = crowd.confusion.diagonal(dim1=-2, dim2=-1).mean(-1).numpy()
        name = f"simulated, {K} classes, {R} annotators, {N} items"
        use = np.flatnonzero(counts.labels > 0)
        found.append(Case(name, "simulated", str(per_item), counts, use, 1e6 * accuracy[use], np.full(len(use), 1e6)))
    return found


# ---- true accuracies, and estimates ----


def true_beta(cases: list[Case]) -> dict[str, tuple[float, float]]:
    """Return the Beta distribution of the accuracies of each crowd, by the method of moments."""
    found = {}
    for case in cases:
        if case.crowd in found:
            continue
        share, mean = case.right / case.n, case.right.sum() / case.n.sum()
        variance = max(np.square(share - mean).mean() - (mean * (1 - mean) / case.n).mean(), 1e-4)
        strength = float(np.clip(mean * (1 - mean) / variance - 1, 1, 200))
        found[case.crowd] = (mean * strength, (1 - mean) * strength)
    return found


def estimated(case: Case, constants: tuple[float, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    for name, value in zip(NAMES, constants, strict=True):
        setattr(annotator_quality, name, value)
    a, b = annotator_quality._beta(case.tally, case.tally.right, case.tally.labels)
    return a[case.use], b[case.use]


def loss(cases: list[Case], prior: dict[str, tuple[float, float]], constants: tuple[float, ...]) -> float:
    """Return minus the expected log-density of the true accuracy: the mean over families, then cases, then people."""
    found: dict[frozenset[str], list[float]] = {}
    for case in cases:
        a, b = estimated(case, constants)
        right, wrong = case.right + prior[case.crowd][0], case.n - case.right + prior[case.crowd][1]
        log_p, log_q = (digamma(part) - digamma(right + wrong) for part in (right, wrong))
        density = (a - 1) * log_p + (b - 1) * log_q - betaln(a, b)
        found.setdefault(crowds.relatives(case.crowd), []).append(float(density.mean()))
    return -float(np.mean([np.mean(each) for each in found.values()]))


def fit(cases: list[Case], prior: dict[str, tuple[float, float]]) -> tuple[float, ...]:
    def objective(logs: NDArray[np.float64]) -> float:
        return loss(cases, prior, tuple(np.exp(logs)))

    best = minimize(objective, np.log(START), method="Nelder-Mead", options={"xatol": 0.01, "fatol": 1e-5})
    return tuple(np.exp(best.x).tolist())


def measured(case: Case, prior: dict[str, tuple[float, float]], constants: tuple[float, ...]) -> dict[str, object]:
    a, b = estimated(case, constants)
    low, high = betaincinv(a, b, 0.05), betaincinv(a, b, 0.95)
    right, wrong = case.right + prior[case.crowd][0], case.n - case.right + prior[case.crowd][1]
    share = case.right / case.n
    numbers = {
        "coverage": (betainc(right, wrong, high) - betainc(right, wrong, low)).mean(),
        "share": ((low <= share) & (share <= high)).mean(),
        "width": (high - low).mean(),
        "bias": (a / (a + b) - share).mean(),
    }
    where = {"crowd": case.crowd, "kind": case.kind, "labels": case.labels, "annotators": len(case.use)}
    return where | {name: round(float(value), 4) for name, value in numbers.items()}


def measure(data: Path) -> pd.DataFrame:
    cases: list[Case] = []
    for name in sorted(set(crowds.names(data)) - set(FEW_TRUTHS)):
        crowd = crowds.load(data, name)
        kind = "texts" if name in TEXTS else "links" if name in LINKS else "images"
        cases += cases_of(name, crowd.annotations, crowd.true_classes(), kind)
        print(name, flush=True)
    prior = true_beta(cases)
    found = []
    for family in sorted({crowds.relatives(case.crowd) for case in cases}, key=sorted):
        constants = fit([case for case in cases if case.crowd not in family], prior)
        found += [measured(case, prior, constants) for case in cases if case.crowd in family]
        print(sorted(family), dict(zip(NAMES, np.round(constants, 3).tolist(), strict=True)), flush=True)
    final = fit(cases, prior)
    print("fitted to all:", dict(zip(NAMES, np.round(final, 3).tolist(), strict=True)))
    many = [case for seed in range(20) for case in simulated(seed)]
    each = {case.crowd: (1.0, 1.0) for case in many}
    return pd.concat([pd.DataFrame(found), pd.DataFrame([measured(case, each, final) for case in many])])


# ---- tables ----


def tables(rows: pd.DataFrame) -> str:
    means = rows.groupby(["kind", "labels", "crowd"])[["coverage", "share", "width", "bias"]].mean()
    by_kind = means.groupby(["kind", "labels"]).mean().reset_index()
    full = rows[rows["labels"] == "all"].drop(columns="labels").sort_values(["kind", "crowd"])
    return f"By kind, the mean over crowds:\n\n{markdown(by_kind, 2)}\n\nWith all labels:\n\n{markdown(full, 2)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    path = options.out / "coverage.csv"
    if not options.tables:
        options.out.mkdir(parents=True, exist_ok=True)
        measure(options.data).to_csv(path, index=False)
    rows = pd.read_csv(path)
    (options.out / "coverage.md").write_text(tables(rows))
    print(tables(rows))


if __name__ == "__main__":
    main()
