"""Measure whether the plan of `crowdshot judges` to label with models first keeps its promise.

    python benchmarks/models_first.py [--seeds 60]

Simulated projects: people with about 80 % accuracy and 2.5 labels per item, and independent models. In difficult
worlds, a share of the items is difficult for everybody. Some items are known. A plan is broken if fewer than 90 % of
the labels that it leaves to models are right.
"""

import argparse

import numpy as np

from crowdshot.labels import aggregation
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.judge_quality import answers_of, take_annotators
from crowdshot.labels.models_first import combine_held_out, plan_models_first

PEOPLE, LABELS_PER_ITEM, PROMISE = 5, 2.5, 0.9
WORLDS = {  # items, classes, models, range of their accuracies, share of difficult items
    "30 % difficult": (1000, 2, 4, (0.7, 0.9), 0.3),
    "weak models": (1000, 2, 4, (0.6, 0.75), 0.0),
    "weak models, 10 % difficult": (1000, 3, 4, (0.6, 0.75), 0.1),
    "two models, 10 % difficult": (1000, 2, 2, (0.75, 0.9), 0.1),
    "good models": (300, 3, 4, (0.7, 0.9), 0.0),
}
KNOWN = (0, 100, 200)


def simulated(seed, N, K, models, accuracy, difficult):
    """Return labels of people and models, and the truth."""
    random = np.random.default_rng(seed)
    truth, hard = random.integers(K, size=N), random.random(N) < difficult

    def answer(right):
        right = np.where(hard, min(right, 0.5), right)
        return np.where(random.random(N) < right, truth, (truth + random.integers(1, K, size=N)) % K)

    people = [answer(np.clip(random.normal(0.8, 0.07), 0.5, 0.98)) for _ in range(PEOPLE)]
    people = [np.where(random.random(N) < LABELS_PER_ITEM / PEOPLE, each, -1) for each in people]
    every = [*people, *(answer(random.uniform(*accuracy)) for _ in range(models))]
    ann = Annotations.from_matrix(np.array(every).T, classes=range(K), missing=-1)
    return ann, truth


def accuracy_of_plan(seed, world, n_known):
    """Return the share of items that the plan leaves to models, and how many are right; None without a plan."""
    ann, truth = simulated(seed, *world)
    people = take_annotators(ann, range(PEOPLE))
    models = take_annotators(ann, range(PEOPLE, ann.n_annotators))
    known = np.zeros(len(truth), dtype=bool)
    known[np.random.default_rng(seed).choice(len(truth), n_known, replace=False)] = True
    gold = {int(item): int(truth[item]) for item in np.flatnonzero(known)}
    posterior = np.asarray(aggregation.learned(people, gold=gold or None).probabilities)
    answers = [answers_of(models, model) for model in range(models.n_annotators)]
    judged_by = known if n_known else np.ones(len(truth), dtype=bool)
    found = plan_models_first(answers, [1.0] * len(answers), people, posterior, judged_by, PROMISE)
    if found is None or found.plan is None:
        return None
    items = np.flatnonzero(known | (np.bincount(people.item, minlength=len(truth)) > 0))
    p = combine_held_out([each[items] for each in answers], [1.0] * len(answers), posterior[items])
    kept = p.max(1) >= found.plan.threshold
    return found.plan.share, float((p.argmax(1) == truth[items])[kept].mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=60)
    options = parser.parse_args()
    for name, world in WORLDS.items():
        for n_known in KNOWN:
            found = [accuracy_of_plan(seed, world, n_known) for seed in range(options.seeds)]
            plans = np.array([each for each in found if each is not None]).reshape(-1, 2)
            broken = int((plans[:, 1] < PROMISE).sum())
            share = plans[:, 0].mean() if len(plans) else float("nan")
            print(
                f"{name}, {n_known} known: {len(plans)} plans, {broken} broken, {share:.2f} left to models", flush=True
            )


if __name__ == "__main__":
    main()
