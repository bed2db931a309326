"""Simulate ten weeks of a labelling operation with drift, fatigue and a bot, with and without crowdshot's advice.

    python benchmarks/ten_weeks.py --out results/ten-weeks            # measures; an hour on one core
    python benchmarks/ten_weeks.py --out results/ten-weeks --tables   # only the tables of these rows

Every week, 100 items of three classes arrive, a quarter of them hard, and 300 labels are paid for. Ten people work in
one session a round: five are steady (accuracy 0.8 to 0.92 on easy items), one drifts from 0.9 to 0.5 in week 5, one
tires from 0.92 to 0.5 within each session, one learns from 0.55 to 0.9 in ten weeks, one has 0.7, and a bot that
answers at random in two seconds joins in week 3. Nobody tells the operation who is who.

- "random": every item gets labels of three random people; there is no gold.
- "next": one random person for each new item, then two rounds of `crowdshot next` with the rest of the budget.
- "gold": random people, but a tenth of the labels are of 80 clear items with known answers, and who gives less than
  60 % right answers after ten is paused (`GoldRule`).
- "advice": `next` with gold and pausing. In addition, people flagged "accuracy fell" to less than 0.65, "spammer-like"
  or "one class only" at the end of a week are not asked any more, and people flagged "worse late in sessions" get at
  most ten questions a round.

All labels, also those of known items, are within the budget. The consensus is that of `crowdshot aggregate`.
"""

import argparse
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from rows import markdown

from crowdshot import Annotations, aggregate
from crowdshot._cli.inputs import LabelFiles
from crowdshot._cli.next import ask
from crowdshot.labels.accuracy_trends import accuracy_trends
from crowdshot.labels.annotator_flags import judge_each
from crowdshot.labels.gold_questions import PAUSED, GoldRule, gold_tests
from crowdshot.labels.label_times import Times
from crowdshot.labels.working_times import AFTER, CHANGE, EARLY, FAST, LATE

K, GOLD, WEEKS, ITEMS, BUDGET = 3, 80, 10, 100, 300
STEADY = {"steady-1": 0.92, "steady-2": 0.89, "steady-3": 0.86, "steady-4": 0.83, "steady-5": 0.8}
PEOPLE = (*STEADY, "drifts", "tires", "learns", "weak", "bot")
ARMS = ("random", "next", "gold", "advice")
BOT_JOINS, DRIFTS = 3, 5  # weeks
SHARE, BELOW, AFTER_TESTS = 0.1, 0.6, 10
TOO_LOW, SHORT = 0.65, 10  # accuracy after a fall; questions a round for people who tire
WEEK = 7 * 86_400.0
LESS = (250, 200)  # smaller budgets, to see how many labels are saved


@dataclass
class Operation:
    """The state of an operation; ``rows`` are (item, annotator, label, time, seconds)."""

    arm: str
    seed: int
    items: int = ITEMS
    budget: int = BUDGET
    rows: list[tuple[str, str, str, float, float]] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)
    tired: set[str] = field(default_factory=set)
    noticed: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng([self.seed, ARMS.index(self.arm)])
        world = np.random.default_rng([self.seed, 99])  # the same items in every arm
        names = [f"known-{i}" for i in range(GOLD)] + [f"item-{i}" for i in range(self.items * WEEKS)]
        self.truth = dict(zip(names, world.integers(K, size=len(names)).tolist(), strict=True))
        self.hard = dict(zip(names, (world.random(len(names)) < 0.25).tolist(), strict=True))
        self.hard |= dict.fromkeys(names[:GOLD], False)  # known answers are of clear items
        self.has_gold = self.arm in ("gold", "advice")
        self.gold = {name: f"class-{self.truth[name]}" for name in names[:GOLD]} if self.has_gold else {}

    # ---- people ----

    def accuracy(self, who: str, week: int, place: int) -> float:
        """Return the accuracy on an easy item, at a place in a session."""
        if who in STEADY:
            return STEADY[who]
        if who == "drifts":
            return 0.9 if week < DRIFTS else 0.5
        if who == "tires":
            return max(0.92 - 0.42 * place / 20, 0.5)
        return {"learns": 0.55 + 0.35 * (week - 1) / (WEEKS - 1), "weak": 0.7, "bot": 1 / K}[who]

    def answer(self, questions: list[tuple[str, str]], week: int, round_: int) -> None:
        """Let people answer; each works through their questions in one session, in random order."""
        done = {(item, who) for item, who, *_ in self.rows}
        for who in dict.fromkeys(who for _, who in questions):
            mine = [item for item, asked in questions if asked == who and (item, who) not in done]
            at = 1.77e9 + WEEK * week + 2 * 86_400 * round_
            for place, item in enumerate(self.random.permutation(mine).tolist()):
                p = self.accuracy(who, week, place)
                p = 1 / K + (p - 1 / K) / 2 if self.hard[item] else p
                wrong = (self.truth[item] + int(self.random.integers(1, K))) % K
                label = self.truth[item] if self.random.random() < p else wrong
                took = self.random.uniform(1, 3) if who == "bot" else self.random.lognormal(np.log(30), 0.4)
                at += took
                self.rows.append((item, who, f"class-{label}", at, took))

    # ---- choosing ----

    def available(self, week: int) -> list[str]:
        return [who for who in PEOPLE if (who != "bot" or week >= BOT_JOINS) and who not in self.dropped]

    def for_random(self, items: list[str], each: int, week: int, gold: float) -> list[tuple[str, str]]:
        """Return random people for each item, of which a share ``gold`` gets known items instead."""
        people, done = self.available(week), {(item, who) for item, who, *_ in self.rows}
        number = min(each, len(people))
        pairs = [(item, str(who)) for item in items for who in self.random.choice(people, number, replace=False)]
        for place in np.flatnonzero(self.random.random(len(pairs)) < gold).tolist():
            who = pairs[place][1]
            left = [item for item in self.gold if (item, who) not in done]
            if left:
                pairs[place] = (str(self.random.choice(left)), who)
                done.add(pairs[place])
        return pairs

    def by_next(self, budget: int, week: int, folder: Path) -> list[tuple[str, str]]:
        """Return the questions of `crowdshot next`."""
        labels, known = folder / "labels.csv", folder / "known.csv"
        pd.DataFrame(self.rows).iloc[:, :3].set_axis(["item", "annotator", "label"], axis=1).to_csv(labels, index=False)
        pd.DataFrame(self.gold.items(), columns=["item", "truth"]).to_csv(known, index=False)
        advice = self.arm == "advice"
        rule = GoldRule(SHARE * self.budget / (self.budget - self.items), BELOW, AFTER_TESTS) if advice else None
        files = LabelFiles([labels], gold=known if advice else None)
        _, table = ask(files, budget, available=self.available(week) if advice else None, rule=rule)
        questions = list(zip(table["item"], table["annotator"], strict=True))
        for who in self.tired:
            mine = [pair for pair in questions if pair[1] == who]
            questions = [pair for pair in questions if pair[1] != who] + mine[:SHORT]
        return questions

    def run_week(self, week: int, folder: Path) -> None:
        new = [f"item-{i}" for i in range(self.items * (week - 1), self.items * week)]
        each = self.budget // self.items
        if self.arm in ("random", "gold"):
            gold = SHARE if self.has_gold else 0.0
            pairs = self.for_random(new, each, week, gold)
            for round_ in range(each):
                self.answer(pairs[round_::each], week, round_)
            return
        self.answer(self.for_random(new, 1, week, 0.0), week, 0)
        for round_ in (1, 2):
            self.answer(self.by_next((self.budget - self.items) // 2, week, folder), week, round_)

    # ---- looking back at the week ----

    def annotations(self) -> tuple[Annotations, Times]:
        table = pd.DataFrame(self.rows, columns=["item", "annotator", "label", "at", "took"])
        table = table.drop_duplicates(["item", "annotator"], ignore_index=True)
        ann = Annotations.from_frame(table, classes=[f"class-{k}" for k in range(K)])
        return ann, Times(table["at"].to_numpy(), durations=table["took"].to_numpy())

    def look(self, week: int) -> dict[str, float]:
        """Note what the tool reports after a week, follow it, and return the accuracy so far."""
        ann, times = self.annotations()
        gold = {item: label for item, label in self.gold.items() if item in set(ann.items)}
        posterior = aggregate.learned(ann, gold=gold).probabilities
        found = self.report(ann, times, np.asarray(posterior))
        for sign in found:
            self.noticed.setdefault(sign, week)
        if self.has_gold:
            self.dropped |= {who for who, sign in found if sign == PAUSED}
        if self.arm == "advice":
            self.dropped |= {who for who, sign in found if sign in ("spammer-like", "one class only", "fell low")}
            self.tired |= {who for who, sign in found if sign == "worse late"}
        real = [row for row, item in enumerate(ann.items) if item not in self.gold]
        label = posterior.argmax(1)
        right = np.array([label[row] == self.truth[ann.items[row]] for row in real])
        missing = self.items * week - len(real)  # without a label, a guess
        return {
            "week": week,
            "labels": ann.n_labels,
            "accuracy": float((right.sum() + missing / K) / (len(real) + missing)),
        }

    def report(self, ann: Annotations, times: Times, posterior: np.ndarray) -> set[tuple[str, str]]:
        """Return what the tool reports: (annotator, sign)."""
        found = set()
        names = [str(name) for name in ann.classes]
        for who, one in zip(ann.annotators, judge_each(ann, posterior, names), strict=True):
            if one is not None and one.flag is not None:
                found.add((str(who), one.flag.name))
        trends = accuracy_trends(ann, posterior, times)
        for who, row in trends.iterrows():
            if isinstance(row[CHANGE], str):
                found.add((who, row[CHANGE].split()[0]))
                if row[CHANGE].startswith("fell") and row[AFTER] < TOO_LOW:
                    found.add((who, "fell low"))
            if row[LATE] < row[EARLY]:
                found.add((who, "worse late"))
            if not np.isnan(row[FAST]):
                found.add((who, "fast worse"))
        if self.gold:
            known = np.array([self.truth[item] if item in self.gold else -1 for item in ann.items])
            rule = GoldRule(SHARE, BELOW, AFTER_TESTS)
            results = zip(ann.annotators, gold_tests(ann, known, rule), strict=True)
            found |= {(str(who), PAUSED) for who, tests in results if tests.status == PAUSED}
        return found


def operate(arm: str, seed: int, weeks: int = WEEKS, items: int = ITEMS, budget: int = BUDGET) -> pd.DataFrame:
    """Return a row per week, and what was noticed first in this week."""
    operation, rows = Operation(arm, seed, items, budget), []
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for week in range(1, weeks + 1):
            operation.run_week(week, Path(folder))
            row = operation.look(week)
            new = sorted(f"{who}: {sign}" for (who, sign), at in operation.noticed.items() if at == week)
            rows.append({"arm": arm, "budget": budget, "seed": seed, **row, "noticed": "; ".join(new)})
    return pd.DataFrame(rows)


# ---- tables ----


def with_error(values: pd.Series, digits: int = 1) -> str:
    error = values.std() / len(values) ** 0.5
    return f"{100 * values.mean():.{digits}f} ± {100 * error:.{digits}f}"


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the final results of each arm and budget, in percent with standard errors."""
    last = rows[rows["week"] == rows["week"].max()]
    base = last[(last["arm"] == "random") & (last["budget"] == BUDGET)].set_index("seed")["accuracy"]
    out = []
    for (arm, budget), some in last.groupby(["arm", "budget"], sort=False):
        gain = some.set_index("seed")["accuracy"] - base
        out.append(
            {
                "operation": arm,
                "labels a week": budget,
                "labels": round(some["labels"].mean()),
                "accuracy": with_error(some["accuracy"]),
                "more than random": with_error(gain.dropna()),
                "seeds": len(some),
            }
        )
    return pd.DataFrame(out)


def noticed(rows: pd.DataFrame) -> pd.DataFrame:
    """Return in how many operations each sign was noticed, and in which week at the median and at the quartiles."""
    rows = rows[rows["budget"] == BUDGET]
    seeds = rows.groupby("arm")["seed"].nunique()
    signs = rows.assign(sign=rows["noticed"].fillna("").str.split("; ")).explode("sign")
    signs = signs[signs["sign"] != ""]
    signs["who"] = signs["sign"].str.split(":").str[0].str.replace(r"-\d", "", regex=True)
    signs["sign"] = signs["sign"].str.split(": ").str[1]
    first = signs.groupby(["arm", "who", "sign", "seed"])["week"].min().reset_index()
    table = first.groupby(["arm", "who", "sign"])["week"].describe()[["count", "25%", "50%", "75%"]].reset_index()
    table["share"] = [round(row["count"] / seeds[row["arm"]], 2) for _, row in table.iterrows()]
    order = {name: i for i, name in enumerate(ARMS)}
    return table.sort_values(["arm", "who", "share"], key=lambda x: x.map(order) if x.name == "arm" else x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/ten-weeks"))
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--tables", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "weeks.csv"
    done = pd.read_csv(path) if path.exists() else pd.DataFrame()
    if not args.tables:
        cases = [(arm, BUDGET) for arm in ARMS] + [(arm, budget) for budget in LESS for arm in ("next", "advice")]
        for seed in range(args.first, args.first + args.seeds):
            for arm, budget in cases:
                if len(done) and ((done["arm"] == arm) & (done["budget"] == budget) & (done["seed"] == seed)).any():
                    continue
                done = pd.concat([done, operate(arm, seed, budget=budget)], ignore_index=True)
                done.round(5).to_csv(path, index=False)
    text = f"{markdown(summarise(done))}\n\n{markdown(noticed(done))}\n"
    (args.out / "ten-weeks.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
