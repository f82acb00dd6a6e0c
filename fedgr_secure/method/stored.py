"""Stored states that come back from a disk: could this client, could this server have written them?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.aggregate import check_weights
from fedgr_secure.context import ClientContext
from fedgr_secure.errors import require
from fedgr_secure.method.client import FedGRState
from fedgr_secure.method.refine import NO_LABEL
from fedgr_secure.method.server import FedGRServerState, recalled


def check_client(state: FedGRState, context: ClientContext) -> None:
    """Refuse a client state that does not fit the client's shard and model.

    Raises:
        InputError: naming the field and what is allowed.
        DivergedError: the teacher holds a non-finite number.
    """
    samples, classes = len(context.shard), context.classes
    require(
        0 <= state.participations <= state.observed and (state.participations > 0 or state.observed == 0),
        f"participations: {state.participations} with {state.observed} observed, allowed: from 1 to observed, or none",
    )
    require(0 <= state.noise_rate <= 1, f"noise_rate: {state.noise_rate}, allowed: from 0 to 1")
    check_vector("mean_losses", state.mean_losses, samples, np.float64)
    require(
        0 <= state.releases <= state.participations,
        f"releases: {state.releases}, allowed: from 0 to participations = {state.participations}",
    )
    check_vector("released", state.released, state.released.size and samples, np.int64)
    check_vector("q", state.q, samples, np.float64, (0, 1))
    check_vector("pseudo_labels", state.pseudo_labels, samples, np.int64, (NO_LABEL, classes - 1))
    if state.teacher:
        check_weights(state.teacher, context.bench.weights(), who="teacher")


def check_server(state: FedGRServerState, samples: Sequence[int]) -> None:
    """Refuse newest proxies that do not fit the clients.

    Raises:
        InputError: naming the client and what is allowed.
    """
    if state.window:
        bins = np.size(state.window.get("counts", ()))
        recalled(tuple(range(bins + 1)), state.window)
    known = {str(client): size for client, size in enumerate(samples)}
    for client, count in state.asked.items():
        require(client in known, f"asked: client {client!r}, allowed: 0 to {len(samples) - 1}")
        require(
            count.shape == () and count.dtype == np.int64 and int(count) >= 0,
            f"asked: client {client}: {count.dtype}{list(count.shape)}, allowed: a whole number from 0",
        )
    for client, row in state.newest.items():
        require(client in known, f"newest: client {client!r}, allowed: 0 to {len(samples) - 1}")
        check_vector(f"newest: client {client}", row, known[client], np.float32)


def check_vector(
    name: str,
    array: NDArray[Any],
    samples: int,
    dtype: type[np.generic],
    span: tuple[float, float] | None = None,
) -> None:
    """Hold an array against its length, its dtype, and a span of values (None: whatever is finite)."""
    fits = array.shape == (samples,) and array.dtype == dtype
    require(fits, f"{name}: {array.dtype}{list(array.shape)}, allowed: {np.dtype(dtype)}[{samples}]")
    if span is None:
        require(bool(np.isfinite(array).all()), f"{name}, allowed: finite numbers")
    else:
        low, high = span
        require(bool(((array >= low) & (array <= high)).all()), f"{name}, allowed: from {low} to {high}")
