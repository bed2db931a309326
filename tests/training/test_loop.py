"""Test the estimate of training time before a run."""

import itertools
from types import SimpleNamespace

import torch

from crowdshot import Job, Recipe, build_encoder
from crowdshot._cli.train import warn_time
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.encoders.image_input import ImageInput
from crowdshot.training import loop
from crowdshot.training.pools import ClassPool


def test_the_estimate_counts_steps_and_validations_and_changes_nothing(monkeypatch):
    pool = ClassPool.from_arrays(torch.randn(80, 6), [f"class {i % 8}" for i in range(80)])
    encoder = build_encoder("mlp", {"n_features": 6, "n_out": 4}, FeatureInput(6))
    recipe = Recipe(ways=(3, 3), shots=(1, 2), queries=3, iterations=90, validate_every=40, validation_episodes=8)
    before = {name: value.clone() for name, value in encoder.module.state_dict().items()}
    ticks = itertools.count(step=0.5)  # the clock advances by half a second per reading
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    found = loop.expected_seconds([Job(encoder, range(5), range(5, 8), recipe)], pool)
    # five steps read the clock before all but the first, and after the last: 2.5 s; two episodes take 0.5 s
    assert found == 90 * 0.5 + 3 * 8 * 0.25
    for name, value in encoder.module.state_dict().items():
        assert torch.equal(value, before[name])


def test_alternatives_to_long_training_are_named():
    network = build_encoder("conv4", {"width": 8}, ImageInput((16, 16)))
    job = Job(network, range(6), range(6, 10), Recipe(iterations=30_000))
    assert warn_time(100, job) == "30,000 iterations of conv4 take about 100 s on this CPU"
    assert warn_time(120_000, job) == (
        "30,000 iterations of conv4 take about 33 h on this CPU. Shipped encoders (`crowdshot encoders`) need no"
        " training, and training a head on a frozen encoder takes a minute (docs/training.md)."
    )
