"""The loss threshold: training lowers the loss of what is trained on (Yeom et al. 2018, "Privacy risk")."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.errors import require

Array = NDArray[np.float64]


def loss_threshold(losses: Array) -> Array:
    """Minus the loss under the final global model.

    Args:
        losses: float64 (n,), nats, or (rounds, n) in the order of the rounds, whose last row is used.

    Returns:
        float64 (n,), higher for members.

    Raises:
        InputError: other shapes, no round, or a loss that is not finite.

    >>> loss_threshold(np.array([[2.3, 2.3], [0.5, 1.5]]))
    array([-0.5, -1.5])
    """
    series = np.asarray(losses, np.float64)
    check_losses(series[None] if series.ndim == 1 else series)
    return -(series if series.ndim == 1 else series[-1])


def check_losses(losses: Array, *, rounds: int = 1) -> None:
    """Refuse what is no series of losses over at least so many rounds."""
    fits = losses.ndim == 2 and len(losses) >= rounds
    require(fits, f"losses: shape {list(losses.shape)}, allowed: (rounds, candidates), from {rounds} rounds")
    bad = int((~np.isfinite(losses)).sum())
    require(bad == 0, f"losses: {bad} of {losses.size} are not finite, allowed: finite numbers")
