"""Loss proxies: the running mean of a sample's losses under the global models that its client received."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Losses = NDArray[np.float64]


def cap_losses(losses: Losses, cap: float) -> Losses:
    """Losses of at most `cap`; one that is not finite counts as `cap`, so that it cannot spoil a running mean.

    >>> cap_losses(np.array([0.5, 7.0, np.nan, np.inf]), 3.0)
    array([0.5, 3. , 3. , 3. ])
    """
    return np.minimum(np.nan_to_num(losses, nan=cap, posinf=cap), cap)


def running_mean(mean: Losses, observed: int, losses: Losses) -> Losses:
    """Fold one more observation into the running mean (docs/method.md, step 1).

    Args:
        mean: float64 (n,), the mean of the first `observed` losses; ignored when `observed` is 0.
        observed: how many losses `mean` holds.
        losses: float64 (n,), the new losses in nats.

    >>> running_mean(np.array([1.0]), 2, np.array([4.0]))
    array([2.])
    """
    if observed == 0:
        return losses.copy()
    return mean + (losses - mean) / (observed + 1)
