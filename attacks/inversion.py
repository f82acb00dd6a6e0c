"""Inverting running means: the mean of losses hides none of them from who sees two consecutive means."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def single_losses(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Every single loss from its running means: l_T = T m_T - (T - 1) m_{T-1}.

    Args:
        means: float64 (T, n), one row per participation in order, in nats.

    Returns:
        float64 (T, n), the losses that were folded in. With float32 uploads the error grows as T times their rounding.

    Raises:
        ValueError: `means` is not a matrix.

    >>> single_losses(np.array([[2.0], [1.5], [2.0]])).ravel()
    array([2., 1., 3.])
    """
    if means.ndim != 2:
        raise ValueError(f"means: shape {list(means.shape)}, allowed: (participations, samples)")
    count = np.arange(1, len(means) + 1, dtype=np.float64)[:, None]
    totals = count * means
    return np.diff(totals, axis=0, prepend=0.0)
