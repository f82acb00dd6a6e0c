"""The loss over all rounds: a server sees every global model, and so the whole series of a candidate's losses.

One model's loss of a candidate depends on who was in the last cohort; over the rounds that averages out, while what
training on the candidate takes off its loss stays. The mean is the best linear score where the gap between members and
others is alike in all rounds; Nasr et al. 2019 ("Comprehensive privacy analysis") show that several snapshots of a
federated model tell more than its last. The trend is blind to how hard a candidate is, for a constant that is added to
all its losses does not change it: the early models, which have learnt but not yet memorised, stand in for shadows.
Where a model memorises late, it is therefore far better than the mean (`benchmarks/results/`).
"""

from __future__ import annotations

import numpy as np

from attacks.loss_threshold import Array, check_losses


def loss_mean(losses: Array) -> Array:
    """Minus the mean of the losses over the rounds.

    Args:
        losses: float64 (rounds, n), nats; leave out the initial model, which has seen nobody.

    Returns:
        float64 (n,), higher for members.

    Raises:
        InputError: another shape, no round, or a loss that is not finite.

    >>> loss_mean(np.array([[2.0, 2.0], [0.5, 1.5]]))
    array([-1.25, -1.75])
    """
    series = np.asarray(losses, np.float64)
    check_losses(series)
    return -series.mean(axis=0)


def loss_trend(losses: Array) -> Array:
    """How fast the loss falls: minus its least-squares slope, nats a round.

    Args:
        losses: float64 (rounds, n), nats, from two rounds; with the initial model, from which everybody's loss falls.

    Returns:
        float64 (n,), higher for members.

    Raises:
        InputError: another shape, fewer than two rounds, or a loss that is not finite.

    >>> loss_trend(np.array([[2.0, 2.0], [1.0, 1.5], [0.0, 1.0]]))
    array([1. , 0.5])
    """
    series = np.asarray(losses, np.float64)
    check_losses(series, rounds=2)
    time = np.arange(len(series)) - (len(series) - 1) / 2
    return -(time @ series) / (time @ time)
