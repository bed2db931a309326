"""Check random problems: results are finite, sum to one, objectives never fall, names and order do not matter.

python -m torture.random_problems --problems 100000 --seconds 600
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable

import numpy as np
import torch

from crowdshot import Annotations, CrowdClassifier, aggregate, labelings, mixture
from crowdshot.errors import CrowdshotError
from crowdshot.model.priors import PAPER


def draw(rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return items (N, D), labels (N, R) with -1 for missing, and K; sizes and scales vary, with duplicates."""
    N, R, K, D = (int(rng.integers(low, high)) for low, high in ((1, 12), (1, 6), (2, 6), (1, 8)))
    x = rng.normal(size=(N, D)) * 10.0 ** rng.uniform(-6, 6) + 10.0 ** rng.uniform(-3, 5) * rng.integers(0, 2)
    if rng.random() < 0.2:
        x[:, rng.integers(D)] = x[:, 0]
    if rng.random() < 0.2:
        x[rng.integers(N)] = x[0]
    labels = rng.integers(0, K, (N, R))
    labels[rng.random((N, R)) < rng.choice([0, 0.3, 0.8])] = -1
    labels[0, 0] = max(0, labels[0, 0])
    return torch.tensor(x, dtype=torch.float32), torch.tensor(labels), K


def _sound(probabilities: torch.Tensor, what: str) -> str:
    if not bool(torch.isfinite(probabilities).all()):
        return f"{what} is not finite"
    return "" if bool(((probabilities.sum(-1) - 1).abs() < 1e-4).all()) else f"{what} does not sum to one"


def check_mixture(rng: np.random.Generator) -> str:
    x, labels, K = draw(rng)
    kind = str(rng.choice(["identity", "isotropic", "diagonal", "full"]))
    fit = mixture.fit(x, labels, K, steps=6, **PAPER, covariance=kind)
    for what in ("responsibilities", "class_probs", "confusion"):
        if told := _sound(getattr(fit, what), f"{what} ({kind})"):
            return told
    if told := _sound(fit.log_proba(x).exp(), f"log_proba ({kind})"):
        return told
    fall = float(-(fit.log_posterior.diff() / fit.log_posterior.abs().amax().clamp_min(1)).min())
    return f"the objective falls ({kind})" if fall > 1e-3 else ""


def check_search(rng: np.random.Generator) -> str:
    x, labels, K = draw(rng)
    found = labelings.fit(x, labels, K)
    return _sound(found.log_proba(x).exp(), "log_proba") or _sound(found.responsibilities, "responsibilities")


def check_learned(rng: np.random.Generator) -> str:
    _, labels, _ = draw(rng)
    matrix = labels.numpy()
    ann = Annotations.from_matrix(matrix, missing=-1)
    p = aggregate.learned(ann).probabilities
    if told := _sound(torch.from_numpy(p), "probabilities"):
        return told
    order = rng.permutation(len(matrix))
    again = aggregate.learned(Annotations.from_matrix(matrix[order][:, ::-1], missing=-1)).probabilities
    return "" if np.allclose(again, p[order], atol=1e-6) else "order decides"


def check_default(rng: np.random.Generator) -> str:
    """Fit the default classifier, and again with items, annotators and classes renamed."""
    x, labels, K = draw(rng)
    order, names = rng.permutation(len(x)), rng.permutation(K)
    matrix = labels.numpy()
    again = np.where(matrix < 0, -1, names[matrix])[order][:, ::-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = CrowdClassifier("identity").fit(x.numpy(), matrix, missing=-1)
        other = CrowdClassifier("identity").fit(x.numpy()[order], again, missing=-1)
    if told := _sound(torch.from_numpy(clf.label_proba_), "posterior") or _sound(
        torch.from_numpy(clf.predict_proba(x.numpy())), "predict_proba"
    ):
        return told
    place = [list(other.classes_).index(names[c]) for c in clf.classes_]
    return (
        "" if np.allclose(other.label_proba_[:, place], clf.label_proba_[order], atol=1e-4) else "names or order decide"
    )


CHECKS: dict[str, Callable[[np.random.Generator], str]] = {
    "mixture": check_mixture,
    "search": check_search,
    "learned": check_learned,
    "default": check_default,
}


def run(name: str, problems: int, seed: int, seconds: float = float("inf")) -> tuple[int, Counter[str]]:
    """Return the number of problems, and counts of faults; a problem refused with CrowdshotError is fine."""
    stop, wrong = time.monotonic() + seconds, Counter[str]()
    for number in range(problems):
        if time.monotonic() > stop:
            return number, wrong
        try:
            told = CHECKS[name](np.random.default_rng([seed, number]))
        except CrowdshotError:
            continue
        except Exception as error:
            told = f"{type(error).__name__}: {str(error)[:80]}"
        wrong.update([told] if told else [])
    return problems, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Random problems for the mixture, the search and the default.")
    parser.add_argument("--problems", type=int, default=100_000, help="of each kind")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds whose name has this in it")
    given = parser.parse_args()
    bad = 0
    for name in (name for name in CHECKS if given.only in name):
        tried, wrong = run(name, given.problems, given.seed, given.seconds)
        print(f"{name:<10} {tried:>9,} problems, {sum(wrong.values()):,} wrong {dict(wrong) or ''}", flush=True)
        bad += len(wrong)
    return min(1, bad)


if __name__ == "__main__":
    sys.exit(main())
