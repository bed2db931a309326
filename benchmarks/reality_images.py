"""Part C of `reality.py`: images and shipped encoders, suitable and unsuitable ones, with rare or misspelt classes."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import reality_features as features
import rivals_labels
import sources
import torch
from measures import score
from numpy.typing import NDArray
from reality_features import CONSENSUS, STRAY, UNSEEN, Problem, Scenario
from rivals_labels import OURS
from rows import Row, Rows, attempt, commit, is_named, markdown
from threadpoolctl import threadpool_limits

from crowdshot import CrowdClassifier

KEYS = ("scenario", "seed", "method")
ALONE = features.OURS_ALONE
SEARCHED, LEARNED = "labeling-search", "features"  # the methods that the default combines
METHODS = (OURS, ALONE, SEARCHED, LEARNED)
SEEDS = 5
CHARACTERS, PHOTOGRAPHS = "glyphs-protonet", "photo-lite0-protonet"  # what "auto" chooses
SLACK = 0.005
FIRST = ("Goals", "By group", "A stray class", "Search or not")  # printed


# ---- scenarios ----


def scenarios() -> list[Scenario]:
    return [*at_home(), *many(), *stray(), *unequal(), *elsewhere()]


def at_home() -> Iterator[Scenario]:
    """Use few items with the encoder of their domain."""
    for items in (1, 3, 10):
        yield Scenario("at home", f"labelme:{PHOTOGRAPHS}", items)
        yield Scenario("at home", f"cifar10s:{PHOTOGRAPHS}", items, labels=2)
        yield Scenario("at home", f"cifar10s:{PHOTOGRAPHS}", items)
        for source in ("digits", "omniglot10"):
            for labels in (1, 2, 3):
                yield Scenario("at home", f"{source}:{CHARACTERS}", items, True, labels, "independent", "noisy")
            yield Scenario("at home", f"{source}:{CHARACTERS}", items, True, 2, "hard items", "noisy")


def many() -> Iterator[Scenario]:
    """Use numbers of items around the limit up to which the default searches labelings."""
    for items in (120, 200, 300, 500, 1000):
        yield Scenario("many", f"labelme:{PHOTOGRAPHS}", min(items, 990), False)
        yield Scenario("many", f"cifar10s:{PHOTOGRAPHS}", min(items, 800), False, 2)
        for kind in ("independent", "hard items"):
            yield Scenario("many", f"digits:{CHARACTERS}", items, False, 2, kind, "noisy")
            yield Scenario("many", f"digits:{CHARACTERS}", items, False, 3, kind, "decent")
            if items <= 500:
                yield Scenario("many", f"omniglot50:{CHARACTERS}", items, False, 2, kind, "noisy")
                yield Scenario("many", f"tiny20:{PHOTOGRAPHS}", items, False, 2, kind, "noisy")


def stray() -> Iterator[Scenario]:
    """Use one misspelt label, or three labels of non-existent classes, and the same problems without them."""
    for items in (3, 10, 20, 40):
        for number in (0, 1, 3):
            yield Scenario("stray", f"labelme:{PHOTOGRAPHS}", items, stray=number)
            for source in ("digits", "textures"):
                encoder = CHARACTERS
                yield Scenario("stray", f"{source}:{encoder}", items, True, 2, "independent", "noisy", stray=number)


def unequal() -> Iterator[Scenario]:
    for items in (10, 40):
        yield Scenario("20:1", f"labelme:{PHOTOGRAPHS}", items, unequal=True)
        yield Scenario("20:1", f"cifar10s:{PHOTOGRAPHS}", items, labels=2, unequal=True)
        yield Scenario("20:1", f"digits:{CHARACTERS}", items, True, 2, "independent", "noisy", unequal=True)
        yield Scenario("20:1", f"digits:{CHARACTERS}", items, True, 3, "hard items", "decent", unequal=True)
    yield Scenario("20:1", f"omniglot10:{CHARACTERS}", 10, True, 2, "independent", "noisy", unequal=True)


def elsewhere() -> Iterator[Scenario]:
    """Use an encoder of another domain."""
    for items in (3, 5, 10, 25, 60):
        yield Scenario("elsewhere", f"labelme:{CHARACTERS}", items)
        yield Scenario("elsewhere", f"cifar10s:{CHARACTERS}", items, labels=2)
        yield Scenario("elsewhere", f"cifar10s:{CHARACTERS}", items)
        yield Scenario("elsewhere", f"textures:{CHARACTERS}", items, True, 2, "independent", "noisy")
        yield Scenario("elsewhere", f"textures:{CHARACTERS}", items, True, 3, "hard items", "decent")
        if items <= 10:
            yield Scenario("elsewhere", "omniglot10:photo-protonet", items, True, 2, "independent", "noisy")


# ---- measuring ----


def judge(name: str, encoder: str, problem: Problem) -> Row:
    """Return measures of the consensus and of unseen items."""
    if name == ALONE:
        return described(CONSENSUS, problem, rivals_labels.ours(problem.annotations))
    method = "auto" if name == OURS else name
    items, unseen = (torch.from_numpy(x).float() for x in (problem.items, problem.unseen))
    clf = CrowdClassifier(encoder=encoder, method=method, device="cpu").fit_embeddings(items, problem.annotations)
    row = {"learner": clf.learner_, **described(CONSENSUS, problem, clf.label_proba_)}
    if len(unseen):
        row |= described(UNSEEN, problem, clf.predict_proba_embeddings(unseen))
    return row


def described(of: str, problem: Problem, posterior: NDArray[np.float64]) -> Row:
    truth = problem.truth if of == CONSENSUS else problem.unseen_truth
    best = posterior.argmax(1)
    found = {**score(posterior, truth), "stray": float((problem.annotations.classes[best] >= STRAY).mean())}
    if of == CONSENSUS:
        unsaid = problem.annotations.vote_counts()[np.arange(len(best)), best] == 0
        found |= {"unsaid": int(unsaid.sum()), "unsaid_right": int((best == truth)[unsaid].sum()), "items": len(best)}
    return {f"{of}_{measure}": value for measure, value in found.items()}


def run(scenario: Scenario, seed: int, methods: list[str], data: Path, keep: Path) -> list[Row]:
    torch.set_num_threads(1)
    problem = features.draw(scenario, sources.load(scenario.source, data, keep), seed)
    encoder, found = scenario.source.split(":")[1], []
    for name in methods:
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            judged, told = attempt(lambda: judge(name, encoder, problem), features.LIMIT)  # noqa: B023
        found.append({"scenario": scenario.name, "seed": seed, "method": name, **(judged or {}), **told})
    return found


def measure(rows: Rows, data: Path, keep: Path, only: set[str], quick: bool, processes: int) -> None:
    """Measure what is missing; measure the methods in ``only`` again. Quick: one seed."""
    version, there = commit(), rows.measured(*KEYS)
    jobs = []
    for seed in range(1 if quick else SEEDS):
        for scenario in {each.name: each for each in scenarios()}.values():
            wanted = [
                name for name in METHODS if (is_named(name, only) if only else (scenario.name, seed, name) not in there)
            ]
            jobs += [(scenario, seed, wanted, data, keep)] if wanted else []
    for i, found in enumerate(features.results(jobs, processes, run), 1):
        rows.put([{**row, "commit": version} for row in found])
        right = {row["method"]: round(row.get("consensus_accuracy", np.nan), 3) for row in found}
        print(f"{i}/{len(jobs)}", found[0]["scenario"], found[0]["seed"], right, flush=True)


# ---- tables ----


def tables(rows: Rows) -> dict[str, str]:
    """Return {title: Markdown table}."""
    done = rows.table[rows.table["failed"] == ""]
    known = {scenario.name: scenario for scenario in scenarios()}
    done = done[done["scenario"].isin(known)]
    done = done.assign(group=done["scenario"].map(lambda name: known[name].group))
    by_seed = done.set_index(["scenario", "seed", "method"])
    right = by_seed["consensus_accuracy"].unstack()
    ahead = (right[OURS] - right[ALONE]).groupby("scenario").agg(["mean", "sem"])
    return {
        "Goals": goals(done, ahead),
        "By group": markdown(by_group(done)),
        "A stray class": markdown(strays(by_seed, known)),
        "Search or not": markdown(by_size(done[done["group"] == "many"])),
        "By scenario": markdown(by_scenario(done, ahead)),
        "How to read this": CAPTION,
    }


def goals(done: pd.DataFrame, ahead: pd.DataFrame) -> str:
    """Check the goals of part C."""
    below = ahead[ahead["mean"] < -SLACK]
    surely = below[below["mean"] + below["sem"] < -SLACK]
    ours = done[done["method"] == OURS]
    unsaid, right, items = (ours[f"consensus_{name}"].sum() for name in ("unsaid", "unsaid_right", "items"))
    worst = f", worst {ahead['mean'].min():+.3f} ({ahead['mean'].idxmin()})" if len(below) else ""
    return "\n".join(
        [
            f"- consensus never more than {SLACK} below labels alone: missed in {len(below)} of {len(ahead)}, in"
            f" {len(surely)} by more than a standard error{worst}",
            f"- labelled items that get a label that nobody gave: {unsaid / items:.4f}, of which {right / unsaid:.3f}"
            " are right",
        ]
    )


def mean_of(part: pd.DataFrame, column: str) -> float:
    """Average such that every scenario has the same weight."""
    return float(part.groupby("scenario")[column].mean().mean())


def by_group(done: pd.DataFrame) -> pd.DataFrame:
    found = []
    for group, part in done.groupby("group"):
        of = {name: part[part["method"] == name] for name in METHODS}
        row = {"group": group, "scenarios": part["scenario"].nunique()}
        row["searched"] = float((of[OURS]["learner"] == "combined").mean())
        for name in (ALONE, SEARCHED, LEARNED, OURS):
            row[f"consensus: {name}"] = mean_of(of[name], "consensus_accuracy")
        row["log-loss: labels alone"] = mean_of(of[ALONE], "consensus_log_loss")
        row["log-loss: ours"], row["over"] = (mean_of(of[OURS], f"consensus_{m}") for m in ("log_loss", "over"))
        unsaid = of[OURS]["consensus_unsaid"].sum()
        row["unsaid"] = unsaid / of[OURS]["consensus_items"].sum()
        row["of these right"] = of[OURS]["consensus_unsaid_right"].sum() / max(unsaid, 1)
        for name in (SEARCHED, LEARNED, OURS):
            row[f"unseen: {name}"] = mean_of(of[name], "unseen_accuracy")
        row["unseen log-loss: ours"], row["unseen over"] = (
            mean_of(of[OURS], f"unseen_{m}") for m in ("log_loss", "over")
        )
        found.append(row)
    return pd.DataFrame(found)


def strays(by_seed: pd.DataFrame, known: dict[str, Scenario]) -> pd.DataFrame:
    """Compare problems with and without labels of non-existent classes; ± is the standard error over problems."""
    found = []
    cases = [each for each in known.values() if each.group == "stray" and each.stray]
    for source, number in sorted({(each.source, each.stray) for each in cases}):
        for method in (OURS, SEARCHED, LEARNED):
            names = [
                (each.name, each._replace(stray=0).name)
                for each in cases
                if (each.source, each.stray) == (source, number)
            ]
            one = by_seed.xs(method, level="method")
            pairs = pd.concat([one.loc[a].join(one.loc[b], rsuffix="_without") for a, b in names])
            lost = (pairs["unseen_accuracy_without"] - pairs["unseen_accuracy"]).dropna()
            row = {"source": source, "stray labels": number, "method": method}
            row["labelled items there"] = pairs["consensus_stray"].mean()
            row["problems with one"] = float((pairs["consensus_stray"] > 0).mean())
            row["unseen items there"] = pairs["unseen_stray"].mean()
            row["unseen right"], row["lost"] = pairs["unseen_accuracy"].mean(), f"{lost.mean():+.4f} ± {lost.sem():.4f}"
            found.append(row)
    return pd.DataFrame(found)


def by_size(done: pd.DataFrame) -> pd.DataFrame:
    names = {"consensus_accuracy": "consensus", "unseen_accuracy": "unseen"}
    wide = done.pivot_table(index="scenario", columns="method", values=list(names), sort=False)
    wide.columns = [f"{names[measure]}: {method}" for measure, method in wide.columns]
    return wide.reset_index()


def by_scenario(done: pd.DataFrame, ahead: pd.DataFrame) -> pd.DataFrame:
    wide = by_size(done).set_index("scenario")
    wide.insert(0, "group", done.groupby("scenario")["group"].first())
    wide["consensus: ours - labels alone"], wide["±"] = ahead["mean"], ahead["sem"]
    ours = done[done["method"] == OURS].groupby("scenario")
    wide["unsaid"] = ours["consensus_unsaid"].sum() / ours["consensus_items"].sum()
    wide["searched"] = ours["learner"].agg(lambda names: (names == "combined").mean())
    return wide.reset_index()


CAPTION = (
    "Ours: `CrowdClassifier(encoder=…)` with the encoder that the scenario names, and nothing else set; labels alone:"
    " `aggregate`'s default. Labeling-search and features: the two methods that the default combines. Searched: how"
    " often it used both. Means over five draws of items, annotators and labels, ± the standard error over these; in"
    " groups every scenario counts once. Over: mean confidence minus accuracy. Unsaid: share of labelled items with a"
    " consensus that no annotator named. Stray: one or three labels of a class that does not exist. Constants were"
    " chosen on digits, Omniglot and textures; LabelMe, CIFAR-10S and the classes of Tiny-ImageNet are the test."
)
