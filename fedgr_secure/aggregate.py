"""FedAvg's weighted average (McMahan et al. 2017, Algorithm 1), refusing what must not be averaged."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedgr_secure.errors import DivergedError, InputError
from fedgr_secure.messages import Update
from fedgr_secure.wire import Weights


def average(current: Weights, updates: Mapping[int, Update]) -> Weights:
    """The sample-weighted mean of the clients' weights.

    Floating-point parameters and buffers (BatchNorm's running statistics) are averaged in float64; integer buffers
    (BatchNorm's counters) keep the server's value. Clients are summed in the order of their numbers, so the result does
    not depend on the order of arrival.

    Args:
        current: the global weights; they fix names, shapes and dtypes.
        updates: by client number.

    Raises:
        InputError: an update's tensors differ from `current`'s.
        DivergedError: an update holds a non-finite number.
    """
    for client, update in updates.items():
        check_weights(update.weights, current, who=f"client {client}, round {update.round}: update")
    total = sum(update.samples for update in updates.values())
    result: Weights = {}
    for name, value in current.items():
        if not np.issubdtype(value.dtype, np.floating) or not updates:
            result[name] = value
            continue
        mean = np.zeros(value.shape, np.float64)
        for client in sorted(updates):
            mean += updates[client].weights[name] * (updates[client].samples / total)
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
