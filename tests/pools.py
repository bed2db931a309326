"""Small random training sources, whose classes a tiny network can distinguish."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.encoder_files import build_encoder
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.encoders.image_input import ImageInput
from crowdshot.training.pools import ClassPool
from crowdshot.training.recipe import Job, Recipe

QUICK = {"ways": (2, 3), "shots": (1, 2), "annotators": (2, 3), "queries": 2, "validation_episodes": 4}


def patterns(n_classes: int = 10, n_examples: int = 6, size: int = 16, seed: int = 0) -> np.ndarray:
    """Return (n_classes, n_examples, size, size) uint8: a coarse pattern per class, with noise."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 2, (n_classes, 4, 4)) * 180
    clean = np.kron(coarse, np.ones((1, size // 4, size // 4)))
    noisy = clean[:, None] + rng.normal(30, 25, (n_classes, n_examples, size, size))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def image_pool(**arguments: Any) -> ClassPool:
    images = patterns(**arguments)
    return ClassPool.from_lists({f"class {i}": x for i, x in enumerate(images)})


def feature_pool(n_classes: int = 10, n_examples: int = 6, width: int = 5, seed: int = 0) -> ClassPool:
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 2, (n_classes, 1, width))
    features = centres + rng.normal(0, 0.5, (n_classes, n_examples, width))
    return ClassPool.from_lists({f"class {i}": x.astype(np.float32) for i, x in enumerate(features)})


def conv(seed: int = 0, size: int = 16, width: int = 4) -> Encoder:
    torch.manual_seed(seed)
    return build_encoder("conv4", {"width": width}, ImageInput((size, size)))


def mlp(seed: int = 0, n_features: int = 5) -> Encoder:
    torch.manual_seed(seed)
    return build_encoder("mlp", {"n_features": n_features, "hidden": [6], "n_out": 4}, FeatureInput(n_features))


def make_job(encoder: Encoder, n_classes: int = 10, held_out: Sequence[int] = (0, 1, 2), **settings: Any) -> Job:
    source = [i for i in range(n_classes) if i not in held_out]
    return Job(encoder, source, list(held_out), Recipe(**{**QUICK, **settings}))
