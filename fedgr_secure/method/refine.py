"""Label refinement: which target each sample is trained on (docs/method.md, step 3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int64]
Vector = NDArray[np.float64]
Targets = NDArray[np.float32]

NO_LABEL = -1


def update_pseudo_labels(table: Labels, probabilities: NDArray[np.floating], threshold: float) -> Labels:
    """Keep the global model's confident predictions (Sohn et al. 2020, FixMatch); older ones persist.

    Args:
        table: int64 (n,), the pseudo-labels so far, `NO_LABEL` where there is none.
        probabilities: (n, C), the global model's softmax on the weak view.
        threshold: strict lower bound of the confidence.
    """
    confident = probabilities.max(axis=1) > threshold
    return np.where(confident, probabilities.argmax(axis=1), table).astype(np.int64)


def one_hot(labels: Labels, classes: int) -> Targets:
    """float32 (n, C); a row of zeros where the label is `NO_LABEL`."""
    rows = np.zeros((len(labels), classes), np.float32)
    known = labels != NO_LABEL
    rows[np.flatnonzero(known), labels[known]] = 1.0
    return rows


def refined_targets(
    given: Labels, pseudo: Labels, q: Vector, *, noise_rate: float, beta: float, classes: int
) -> Targets:
    """Soft targets, float32 (n, C). Rows need not sum to 1: what has no label adds nothing to the loss.

    With r_k < beta a clean sample keeps its given label and a noisy one gets q * given + (1 - q) * pseudo; with
    r_k >= beta every sample gets its pseudo-label alone.

    >>> refined_targets(np.array([0]), np.array([1]), np.array([0.25]), noise_rate=0.2, beta=0.8, classes=2)
    array([[0.25, 0.75]], dtype=float32)
    """
    if noise_rate >= beta:
        return one_hot(pseudo, classes)
    keep = np.where(q >= 0.5, 1.0, q).astype(np.float32)[:, None]
    return keep * one_hot(given, classes) + (1 - keep) * one_hot(pseudo, classes)


def clean_targets(given: Labels, q: Vector, classes: int) -> Targets:
    """Targets without refinement ('w/o LR'): given labels of the samples sieved clean, zeros for the rest."""
    return one_hot(np.where(q >= 0.5, given, NO_LABEL), classes)
