"""Compare mirrored and shifted images with NumPy's padding and flipping."""

import numpy as np
import pytest
import torch

from crowdshot.errors import CrowdshotError
from crowdshot.training.episodes import augment
from crowdshot.training.random_streams import Uniforms


def moved(image, mirrored, down, right):
    """Mirror the image, then shift it: row y becomes row y + down, with repeated edges; likewise for columns."""
    reach = 2
    wide = np.pad(image[:, ::-1] if mirrored else image, ((reach, reach), (reach, reach)), mode="edge")
    height, width = image.shape
    return wide[reach + down : reach + down + height, reach + right : reach + right + width]


@pytest.mark.parametrize("colour", [False, True])
def test_every_image_is_augmented_separately(colour):
    """Images of 20 pixels shift by at most two, so each of five shifts has a fifth of the numbers in [0, 1)."""
    images = np.random.default_rng(0).integers(0, 256, (1, 4, 3, 20, 20) if colour else (1, 4, 20, 20), np.uint8)
    lots = [0.0, 0.0, 0.99, 0.7, 0.5, 0.5, 0.49, 0.25, 0.61, 0.5, 0.999, 0.1]
    expected = [(True, -2, 2), (False, 0, 0), (True, -1, 1), (False, 2, -2)]
    found = augment(torch.from_numpy(images), "photo", Uniforms(torch.tensor([lots]))).numpy()
    for before, after, how in zip(images[0], found[0], expected, strict=True):
        for channel, shown in zip(before, after, strict=True) if colour else [(before, after)]:
            np.testing.assert_array_equal(shown, moved(channel, *how))


def test_feature_vectors_cannot_be_mirrored():
    with pytest.raises(CrowdshotError, match="augment is 'photo', but the source has feature"):
        augment(torch.zeros(1, 4, 20), "photo", torch.Generator())
