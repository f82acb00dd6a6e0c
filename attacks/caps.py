"""What differential privacy allows at most: of every attack, whatever it knows (Kairouz, Oh and Viswanath 2015)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import trapezoid


def tpr_cap(fpr: float | NDArray[np.float64], *, epsilon: float, delta: float) -> NDArray[np.float64]:
    """The largest true positive rate at each false positive rate against an (epsilon, delta)-private mechanism.

    Args:
        fpr: from 0 to 1.
        epsilon: nats; infinity for no promise.
        delta: from 0 to 1.

    >>> float(tpr_cap(0.001, epsilon=1.0, delta=1e-5).round(5))
    0.00273
    """
    rate = np.asarray(fpr, np.float64)
    if math.isinf(epsilon):
        return np.ones_like(rate)
    rising, falling = math.exp(epsilon) * rate + delta, 1 - math.exp(-epsilon) * (1 - delta - rate)
    return np.minimum(np.minimum(rising, falling), 1.0)


def auc_cap(*, epsilon: float, delta: float) -> float:
    """The largest area under an ROC curve that `tpr_cap` allows.

    >>> round(auc_cap(epsilon=0.0, delta=0.0), 3), round(auc_cap(epsilon=1.0, delta=0.0), 3)
    (0.5, 0.731)
    """
    if math.isinf(epsilon):
        return 1.0
    corner = (1 - delta) / (1 + math.exp(epsilon))
    rates = np.array([0.0, corner, 1 - delta, 1.0])
    return float(trapezoid(tpr_cap(rates, epsilon=epsilon, delta=delta), rates))


def advantage_cap(*, epsilon: float, delta: float) -> float:
    """The largest difference of true and false positive rate.

    >>> round(advantage_cap(epsilon=1.0, delta=0.0), 3)
    0.462
    """
    return float(math.tanh(epsilon / 2) * (1 - delta) + delta)
