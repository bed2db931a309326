"""Compare whom `crowdshot next` asks, and how much the answers help, with earlier rules and with random questions.

    python benchmarks/asking_people.py --data ../shared/data --out results/asking    # measures; minutes
    python benchmarks/asking_people.py --out results/asking --tables                 # only the table of these rows

Real crowds as in `asking_crowds.py`: labels are withheld and bought in rounds of one label for every fifth item. The
rules are

    first limits    the shipped rule: nobody gets more questions than known labels plus one, as long as others can be
                    asked; accuracies are raised by half a standard deviation
    no limits       the rule of version 0.2: accuracies are raised by one standard deviation, and no such limits
    random          random labels

Measured are the gain in accuracy over random questions (mean over rounds), the accuracy of the asked people over all
their labels, the share of questions to people with five labels or fewer, and the share of bought labels that are right,
beside that of the other available labels of the same items, which are more difficult than average. sentiment and face
were used to choose the rule, with other seeds.
"""

import argparse
from pathlib import Path

import asking_crowds
import crowds
import numpy as np
import pandas as pd
from rows import markdown

from crowdshot import aggregate
from crowdshot.labels import asking

FIRST_SEED, ROUNDS, FEW = 1000, 5, 5
LIMITS, NO_LIMITS, RANDOM = "first limits", "no limits", "random"


def chosen(rule: str, problem: asking_crowds.Problem, state: asking_crowds.State, n: int) -> np.ndarray:
    """Return rows of the labels to buy."""
    if rule == RANDOM:
        return np.array([], dtype=np.int64)
    ann = problem.annotations
    row_of = np.full((ann.n_items, ann.n_annotators), -1)
    row_of[ann.item[state.open_], ann.annotator[state.open_]] = np.flatnonzero(state.open_)
    shipped = asking.BENEFIT
    asking.BENEFIT = shipped if rule == LIMITS else 1.0
    confusion = asking.expected_confusion(state.annotations, state.posterior)
    asking.BENEFIT = shipped
    most = asking.fair_share(n, ann.n_annotators)
    n_labels = np.bincount(state.annotations.annotator, minlength=ann.n_annotators)
    first = asking.first_limits(n_labels, most) if rule == LIMITS else None
    questions = asking.choose(state.posterior, confusion, np.nonzero(row_of < 0), n, most=most, first=first)
    return np.array([row_of[question.item, question.annotator] for question in questions], dtype=np.int64)


def course(problem: asking_crowds.Problem, rule: str, seed: int) -> dict[str, float]:
    random = np.random.default_rng(seed)
    ann, known = problem.annotations, problem.truth != crowds.UNKNOWN
    counted = known[ann.item]
    right = counted & (problem.truth[ann.item] == ann.label)
    n_known = np.bincount(ann.annotator[counted], minlength=ann.n_annotators)
    skill = np.bincount(ann.annotator, right, ann.n_annotators) / n_known.clip(1)
    bought, n = problem.first.copy(), round(asking_crowds.SHARE * ann.n_items)
    found: list[dict[str, float]] = []
    for _ in range(ROUNDS):
        now = ann.keep(bought)
        state = asking_crowds.State(now, aggregate.learned(now).probabilities, ~bought)
        rows = chosen(rule, problem, state, n)
        rest = ~bought
        rest[rows] = False
        rows = np.concatenate([rows, random.permutation(np.flatnonzero(rest))[: n - len(rows)]])
        others = np.flatnonzero(~bought & counted & np.isin(ann.item, ann.item[rows]))
        n_labels = np.bincount(now.annotator, minlength=ann.n_annotators)
        bought[rows] = True
        now = ann.keep(bought)
        asked = rows[counted[rows]]
        found.append(
            {
                "accuracy": asking_crowds.right(aggregate.learned(now).probabilities[known], problem.truth[known]),
                "asked people": skill[ann.annotator[asked]].mean(),
                "their answers": right[asked].mean(),
                "others on these items": right[others].mean(),
                "few labels": (n_labels[ann.annotator[rows]] <= FEW).mean(),
            }
        )
    return pd.DataFrame(found).mean().to_dict()


def measure(data: Path, repeats: int) -> pd.DataFrame:
    found = []
    for name in asking_crowds.CROWDS:
        crowd = crowds.load(data, name)
        for start, labelled in asking_crowds.STARTS.items():
            for seed in range(FIRST_SEED, FIRST_SEED + repeats):
                problem = asking_crowds.draw(crowd, labelled, seed)
                for rule in (LIMITS, NO_LIMITS, RANDOM):
                    case = {"crowd": name, "start": start, "seed": seed, "rule": rule}
                    found.append(case | {key: round(x, 4) for key, x in course(problem, rule, seed).items()})
            print(name, start, flush=True)
    return pd.DataFrame(found)


def table(rows: pd.DataFrame) -> str:
    by = ["crowd", "start"]
    wide = rows.pivot(index=[*by, "seed"], columns="rule")
    shown = {}
    for rule in (LIMITS, NO_LIMITS):
        ahead = 100 * (wide["accuracy"][rule] - wide["accuracy"][RANDOM])
        mean, error = ahead.groupby(by, sort=False).mean(), ahead.groupby(by, sort=False).sem()
        shown[f"gain, {rule}"] = [f"{m:+.1f} ± {e:.1f}" for m, e in zip(mean, error, strict=True)]
    for column in ("asked people", "their answers", "others on these items", "few labels"):
        means = wide[column].groupby(by, sort=False).mean()
        rules = (LIMITS, NO_LIMITS, RANDOM) if column in ("asked people", "few labels") else (LIMITS,)
        shown |= {f"{column}, {rule}": means[rule].map("{:.2f}".format).tolist() for rule in rules}
    index = ahead.groupby(by, sort=False).mean().index.to_frame(index=False)
    return markdown(pd.concat([index, pd.DataFrame(shown)], axis=1)) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    path = options.out / "people.csv"
    if not options.tables:
        measure(options.data, options.repeats).to_csv(path, index=False)
    text = table(pd.read_csv(path))
    (options.out / "people.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
