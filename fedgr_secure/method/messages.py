"""FedGR's own messages, beside the shared `Update`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.method.sieve import Mixture
from fedgr_secure.wire import Weights


@dataclass(frozen=True)
class Observe:
    """Server to client: measure your losses under these global weights and upload the proxies."""

    round: int
    weights: Weights


@dataclass(frozen=True)
class Proxies:
    """Client to server: the loss proxies, as the channel encoded them.

    Where the channel's uploads travel under a secure sum, this message stays on the client's side of it.
    """

    round: int
    upload: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Counted:
    """What the server has when a secure sum of counts is opened; no client sends it.

    Attributes:
        round: from 0.
        counts: int64 (bins,), the sum over the contributors.
        contributors: int64, whose counts are in it.
    """

    round: int
    counts: NDArray[Any]
    contributors: NDArray[Any]

    def __post_init__(self) -> None:
        for name, array in (("counts", self.counts), ("contributors", self.contributors)):
            if array.ndim != 1 or array.dtype != np.int64:
                raise ValueError(f"{name}: {array.dtype}{list(array.shape)}, allowed: one vector of int64")


@dataclass(frozen=True)
class Revise:
    """Server to client: refine your labels, revise your teacher, train.

    Attributes:
        round: from 0.
        weights: the global weights, or None when `Observe` brought them in this round.
        mixture: the sieve's parameters, from which the client computes q and r_k itself; None when the server decides
            or when there is no global sieve.
        q: float64 (n_k,), P(clean), when the server decides (as published).
        noise_rate: r_k, when the server decides.
    """

    round: int
    weights: Weights | None
    mixture: Mixture | None
    q: NDArray[Any] | None
    noise_rate: float | None

    def __post_init__(self) -> None:
        if self.noise_rate is not None and not 0 <= self.noise_rate <= 1:
            raise ValueError(f"noise_rate: {self.noise_rate}, allowed: from 0 to 1")
        if self.q is not None and (self.q.ndim != 1 or not ((self.q >= 0) & (self.q <= 1)).all()):
            raise ValueError("q, allowed: one vector of numbers from 0 to 1")
