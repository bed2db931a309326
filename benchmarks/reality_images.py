"""Part C of `reality.py`: images through shipped encoders, right and wrong ones; classes that are rare, or mistakes."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import reality_features as features
import rivals_labels
import sources
import torch
from measures import score
from numpy.typing import NDArray
from reality_features import CONSENSUS, STRAY, UNSEEN, Problem, Scenario
from rivals_labels import OURS
from rows import Row, Rows, attempt, commit, is_named
from threadpoolctl import threadpool_limits

from crowdshot import CrowdClassifier

KEYS = ("scenario", "seed", "method")
ALONE = features.OURS_ALONE
SEARCHED, LEARNED = "Labelings", "Learned"  # both that the default chooses from
METHODS = (OURS, ALONE, SEARCHED, LEARNED)
SEEDS = 8
CHARACTERS, PHOTOGRAPHS = "glyphs-protonet", "photo-lite0-protonet"  # what "auto" takes
SLACK = 0.005
FIRST = ("What was to be reached", "By group", "A stray class", "Search or Learned")  # on the screen


# ---- scenarios --------------------------------------------------------------------------------------------------


def scenarios() -> list[Scenario]:
    return [*at_home(), *many(), *stray(), *unequal(), *elsewhere()]


def at_home() -> Iterator[Scenario]:
    """Few items through the encoder that suits them."""
    for items in (1, 3, 10):
        yield Scenario("at home", f"labelme:{PHOTOGRAPHS}", items)
        yield Scenario("at home", f"cifar10s:{PHOTOGRAPHS}", items, labels=2)
        yield Scenario("at home", f"cifar10s:{PHOTOGRAPHS}", items)
        for source in ("digits", "omniglot10"):
            for labels in (1, 2, 3):
                yield Scenario("at home", f"{source}:{CHARACTERS}", items, True, labels, "independent", "noisy")
            yield Scenario("at home", f"{source}:{CHARACTERS}", items, True, 2, "hard items", "noisy")


def many() -> Iterator[Scenario]:
    """From where the default has searched to where it might."""
    for items in (120, 200, 300, 500, 1000):
        yield Scenario("many", f"labelme:{PHOTOGRAPHS}", min(items, 990), False)
        yield Scenario("many", f"cifar10s:{PHOTOGRAPHS}", min(items, 800), False, 2)
        for kind in ("independent", "hard items"):
            yield Scenario("many", f"digits:{CHARACTERS}", items, False, 2, kind, "noisy")
            yield Scenario("many", f"digits:{CHARACTERS}", items, False, 3, kind, "decent")
            if items <= 800:
                yield Scenario("many", f"omniglot50:{CHARACTERS}", items, False, 2, kind, "noisy")


def stray() -> Iterator[Scenario]:
    """One label misspelt, or three labels that are each a class there is not; and the same without."""
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
    """Through an encoder of another domain."""
    for items in (3, 5, 10, 25, 60):
        yield Scenario("elsewhere", f"labelme:{CHARACTERS}", items)
        yield Scenario("elsewhere", f"cifar10s:{CHARACTERS}", items, labels=2)
        yield Scenario("elsewhere", f"cifar10s:{CHARACTERS}", items)
        yield Scenario("elsewhere", f"textures:{CHARACTERS}", items, True, 2, "independent", "noisy")
        yield Scenario("elsewhere", f"textures:{CHARACTERS}", items, True, 3, "hard items", "decent")
        if items <= 10:
            yield Scenario("elsewhere", "omniglot10:photo-protonet", items, True, 2, "independent", "noisy")


# ---- measuring --------------------------------------------------------------------------------------------------


def judge(name: str, encoder: str, problem: Problem) -> Row:
    """Measures of the consensus and of unseen items."""
    if name == ALONE:
        return described(CONSENSUS, problem, rivals_labels.ours(problem.annotations))
    method = "auto" if name == OURS else name
    items, unseen = (torch.from_numpy(x).float() for x in (problem.items, problem.unseen))
    clf = CrowdClassifier(encoder=encoder, method=method, device="cpu").fit_embeddings(items, problem.annotations)
    row = {"learner": clf.learner_, **described(CONSENSUS, problem, clf.belief_)}
    if len(unseen):
        row |= described(UNSEEN, problem, clf.predict_proba_embeddings(unseen))
    return row


def described(of: str, problem: Problem, belief: NDArray[np.float64]) -> Row:
    truth = problem.truth if of == CONSENSUS else problem.unseen_truth
    best = belief.argmax(1)
    found = {**score(belief, truth), "stray": float((problem.annotations.classes[best] >= STRAY).mean())}
    if of == CONSENSUS:
        unsaid = problem.annotations.vote_counts()[np.arange(len(best)), best] == 0
        found |= {"unsaid": int(unsaid.sum()), "unsaid_right": int((best == truth)[unsaid].sum()), "items": len(best)}
    return {f"{of}_{measure}": value for measure, value in found.items()}


def measure(rows: Rows, data: Path, keep: Path, only: set[str], group: str, seeds: range) -> None:
    """What is not there yet; what ``only`` names, anew and alone."""
    version, there = commit(), rows.measured(*KEYS)
    torch.set_num_threads(1)
    for seed in seeds:
        for scenario in scenarios():
            wanted = [
                name
                for name in METHODS
                if (is_named(name, only) if only else (scenario.name, seed, name) not in there)
                and (not group or scenario.group == group)
            ]
            if not wanted:
                continue
            problem = features.draw(scenario, sources.load(scenario.source, data, keep), seed)
            found = []
            for name in wanted:
                encoder = scenario.source.split(":")[1]
                with threadpool_limits(1), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    judged, told = attempt(lambda: judge(name, encoder, problem), features.LIMIT)  # noqa: B023
                found.append({"scenario": scenario.name, "seed": seed, "method": name, **(judged or {}), **told})
            rows.put([{**row, "commit": version} for row in found])
            right = {row["method"]: round(row.get("consensus_accuracy", np.nan), 3) for row in found}
            print(scenario.name, seed, right, flush=True)
