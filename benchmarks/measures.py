"""Measure accuracy and calibration of class probabilities."""

import numpy as np
from numpy.typing import NDArray

from crowdshot.labels.consensus import THRESHOLD

Floats = NDArray[np.float64]
FLOOR = 0.001  # lower bound of probabilities in the log-loss: a mistake costs at most seven nats
BINS = 10
MEASURES = ("accuracy", "log_loss", "calibration", "over", "accepted", "settled_right")


def score(probabilities: Floats, truth: NDArray[np.int64]) -> dict[str, float]:
    """Score probabilities (N, K) against true classes (N,); negative classes are none of the K and always wrong.

    ``accuracy``: an item with ties for the likeliest class counts in part. ``log_loss``: see FLOOR. ``calibration``:
    expected calibration error with BINS bins of confidence. ``over``: mean confidence minus accuracy. ``accepted``:
    share of items with a confidence of THRESHOLD or more. ``settled_right``: their accuracy, NaN if there are none.
    """
    every = np.arange(len(truth))
    confidence = probabilities.max(1)
    leads = np.isclose(probabilities, confidence[:, None], rtol=0, atol=1e-9)
    named = truth >= 0
    right = np.where(named, leads[every, truth], 0) / leads.sum(1)
    of_truth = np.where(named, probabilities[every, truth], 0)
    accepted = confidence >= THRESHOLD
    return {
        "accuracy": float(right.mean()),
        "log_loss": float(-np.log(np.maximum(of_truth, FLOOR)).mean()),
        "calibration": calibration_error(confidence, right),
        "over": float((confidence - right).mean()),
        "accepted": float(accepted.mean()),
        "settled_right": float(right[accepted].mean()) if accepted.any() else np.nan,
    }


def calibration_error(confidence: Floats, right: Floats) -> float:
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return float(np.abs(np.bincount(bins, confidence - right, BINS)).sum() / len(bins))
