"""Test annotators' history as a prior on their skills, against sums written out."""

import itertools
import math

import numpy as np
import pytest
import torch

from crowdshot import labelings
from crowdshot.model import annotator_model, array_api
from plain_labelings import Problem, kinds_by_hand
from plain_labelings import evidence as evidence_by_hand

APIS = (array_api.NumPyApi(), array_api.TorchApi(torch.device("cpu")))


def kinds_with_history(counts, right, wrong):
    """Return the result of `plain_labelings.kinds_by_hand`, with skills weighted by the history."""
    K = len(counts)
    q = [min(1 / K + (1 - 1 / K) * rho, annotator_model.NEVER_WRONG) for rho in annotator_model.SKILLS]

    def coin(hits, misses, share=1.0):
        prior = [
            p * x ** (right * share) * (1 - x) ** (wrong * share)
            for p, x in zip(annotator_model.P_SKILL, q, strict=True)
        ]
        return sum(p * x**hits * (1 - x) ** misses for p, x in zip(prior, q, strict=True)) / sum(prior)

    plain = kinds_by_hand(counts)
    hits = [counts[k][k] for k in range(K)]
    misses = [sum(counts[k]) - counts[k][k] for k in range(K)]
    alone = sum(p * x ** sum(hits) * (1 - x) ** sum(misses) for p, x in zip(annotator_model.P_SKILL, q, strict=True))
    together = math.log(coin(sum(hits), sum(misses)) / alone)
    by_class = math.log(math.prod(coin(h, m, 1 / K) for h, m in zip(hits, misses, strict=True)))
    return [plain[0] + together, by_class - math.log(K - 1) * sum(misses), plain[2] + together]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.xp.__name__)
def test_history_changes_the_prior_on_skills(api):
    torch.manual_seed(0)
    counts = torch.randint(0, 3, (2, 3, 3))  # two annotators
    history = torch.tensor([[7.5, 1.5], [0.0, 4.0]])
    tables = annotator_model.tables_for(20, 3, api, history)
    kinds, evidence = annotator_model.judge(api.array(counts[..., None]), tables, api)
    for r in range(2):
        by_hand = kinds_with_history(tuple(map(tuple, counts[r].tolist())), *history[r].tolist())
        joint = [math.log(p) + x for p, x in zip(annotator_model.P_KIND, by_hand, strict=True)]
        total = math.log(sum(map(math.exp, joint)))
        assert float(torch.as_tensor(evidence)[r, 0]) == pytest.approx(total)
        found = torch.as_tensor(kinds)[:, r, 0].tolist()
        assert found == pytest.approx([math.exp(x - total) for x in joint])


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.xp.__name__)
def test_the_search_takes_history_into_account(api, monkeypatch):
    """Compare a search that keeps all labelings of four items with the definition."""
    monkeypatch.setattr("crowdshot.model.labeling_search.array_api_of", lambda device: api)
    torch.manual_seed(3)
    u, labels = torch.randn(1, 4, 2, dtype=torch.float64), torch.randint(-1, 3, (1, 4, 3))
    history = torch.tensor([[20.0, 1.0], [2.0, 9.0], [0.0, 0.0]])
    found = labelings.fit(u[0], labels[0], 3, scale=2.0, tau=0.5, width=81, history=history)
    plain = Problem(u[0], labels[0], 3, 2.0, 0.5)
    every = {}
    for z in itertools.product(range(3), repeat=len(plain.seen)):
        classes = dict(zip(plain.seen, z, strict=True))
        log_p = plain.log_probability(classes)
        for r in range(labels.shape[-1]):
            counts = [[0] * 3 for _ in range(3)]
            for n, k in classes.items():
                if labels[0, n, r] >= 0:
                    counts[k][int(labels[0, n, r])] += 1
            counts = tuple(map(tuple, counts))
            with_history = kinds_with_history(counts, *history[r].tolist())
            log_ratio = math.log(
                sum(p * math.exp(x) for p, x in zip(annotator_model.P_KIND, with_history, strict=True))
            )
            log_p += log_ratio - evidence_by_hand(counts)
        every[tuple(classes.get(n, -1) for n in range(4))] = log_p
    top = max(every.values())
    total = sum(math.exp(x - top) for x in every.values())
    expected = {z: math.exp(x - top) / total for z, x in every.items()}
    weights = dict(zip(map(tuple, found.labelings.tolist()), found.log_weights.exp().tolist(), strict=True))
    assert weights == pytest.approx(expected, abs=1e-6)
    posteriors = labelings.item_posteriors(found, labels[0], history=history)
    shares = sum(w * torch.eye(3, dtype=torch.float64)[list(z)] for z, w in expected.items() if min(z) >= 0)
    np.testing.assert_allclose(posteriors, shares, atol=1e-5)  # with all labelings, the average is exact
