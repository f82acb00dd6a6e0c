"""FedAvg's weighted average (McMahan et al. 2017, Algorithm 1), refusing what must not be averaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fedgr_secure.errors import DivergedError, InputError
from fedgr_secure.messages import Update
from fedgr_secure.wire import Weights

Weigh = Callable[[Mapping[int, Update]], Mapping[int, float]]
"""how much each client's update counts in their mean, a number above 0 by client number"""


def by_samples(updates: Mapping[int, Update]) -> dict[int, int]:
    """FedAvg's: as much as it has samples."""
    return {client: update.samples for client, update in updates.items()}


def average(current: Weights, updates: Mapping[int, Update], weigh: Weigh = by_samples) -> Weights:
    """The weighted mean of the clients' weights; FedAvg's by default.

    Floating-point parameters and buffers (BatchNorm's running statistics) are averaged in float64; integer buffers
    (BatchNorm's counters) keep the server's value. Clients are summed in the order of their numbers, so the result does
    not depend on the order of arrival.

    Args:
        current: the global weights; they fix names, shapes and dtypes.
        updates: by client number.
        weigh: asked once every update has been found to be sound.

    Raises:
        InputError: an update's tensors differ from `current`'s.
        DivergedError: an update holds a non-finite number.
    """
    for client, update in updates.items():
        check_weights(update.weights, current, who=f"client {client}, round {update.round}: update")
    counts = weigh(updates)
    total = sum(counts.values())
    result: Weights = {}
    for name, value in current.items():
        if not np.issubdtype(value.dtype, np.floating) or not updates:
            result[name] = value
            continue
        mean = np.zeros(value.shape, np.float64)
        for client in sorted(updates):
            mean += updates[client].weights[name] * (counts[client] / total)
        result[name] = mean.astype(value.dtype)
    return result


def check_weights(weights: Weights, like: Weights, *, who: str) -> None:
    """Refuse weights whose names, shapes or dtypes differ from `like`, or that hold a non-finite number."""
    if not isinstance(weights, Mapping):
        raise InputError(f"{who}: {type(weights).__name__}, allowed: arrays by name")
    if weights.keys() != like.keys():
        raise InputError(f"{who}: other tensors than the global model's: {sorted(weights.keys() ^ like.keys())}")
    for name, array in weights.items():
        other = like[name]
        if not isinstance(array, np.ndarray):
            raise InputError(f"{who}: {name} is {type(array).__name__}, allowed: {other.dtype}{list(other.shape)}")
        if array.shape != other.shape or array.dtype != other.dtype:
            raise InputError(
                f"{who}: {name} is {array.dtype}{list(array.shape)}, allowed: {other.dtype}{list(other.shape)}"
            )
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            raise DivergedError(f"{who}: {name} holds a non-finite number; a smaller --lr usually helps")
