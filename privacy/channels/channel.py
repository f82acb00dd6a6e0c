"""What every channel for loss proxies is: a client side, a server side, a budget, and a claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privacy.claims import PrivacyClaim
from privacy.mechanisms import NoiseSource

Upload = dict[str, NDArray[Any]]
NoiseKind = Literal["gaussian", "laplace"]


class UploadError(ValueError):
    """An upload that no client of this channel sends; the message names the client."""


@dataclass(frozen=True)
class Losses:
    """What a client has to tell.

    Attributes:
        newest: float64 (n,), the losses of this participation in nats, finite, from 0 to the channel's `largest`.
        mean: float64 (n,), their running means.
    """

    newest: NDArray[np.float64]
    mean: NDArray[np.float64]


@dataclass(frozen=True)
class Memory:
    """What a client remembers of its releases.

    Attributes:
        releases: how many it has been charged for.
        total: int64 (n,), the sum of what it has released of each sample, in steps of the grid; empty without.
    """

    releases: int
    total: NDArray[np.int64]

    @classmethod
    def fresh(cls) -> Memory:
        """Of a client that has released nothing."""
        return cls(0, np.zeros(0, np.int64))


@dataclass(frozen=True)
class Rows:
    """What the server knows of one client's proxies.

    Attributes:
        values: float64 (n,), nats.
        sd: the standard deviation of the noise in each value; 0 without.
        kind: of the noise.
    """

    values: NDArray[np.float64]
    sd: float = 0.0
    kind: NoiseKind = "gaussian"


class Channel(Protocol):
    """How loss proxies reach the server. A method does not know which one it runs on."""

    @property
    def name(self) -> str:
        """As on the command line."""

    @property
    def largest(self) -> float:
        """Nats; a client clips every loss to this before anything else, and counts one that is not finite as it."""

    @property
    def private(self) -> bool:
        """Whether uploads carry noise, so that each is charged to a budget and must not be made twice."""

    def due(self, round: int) -> bool:
        """Whether the server asks for uploads in this round."""

    def encode(self, losses: Losses, memory: Memory, noise: NoiseSource) -> tuple[Upload, Memory]:
        """Client side: what it uploads, and what it remembers; past its budget nothing new of its samples."""

    def spent(self, releases: int) -> float | None:
        """Epsilon after so many releases of one client; None where there is none."""

    def curve(self, orders: ArrayLike, releases: int) -> NDArray[np.float64]:
        """Renyi divergence at each order above 1 after so many releases of one client; infinity where nothing is."""

    def claims(self) -> tuple[PrivacyClaim, ...]:
        """What the channel promises."""


class RowChannel(Channel, Protocol):
    """A channel whose server sees something of every sample."""

    def rows(self, client: int, upload: Upload) -> Rows:
        """Server side: one client's upload, checked.

        Raises:
            UploadError: it is none of this channel's.
        """


def pooled(rows: Mapping[int, Rows]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The values and the noise of several clients as one sample, in the order of the client numbers."""
    order = sorted(rows)
    values = [rows[client].values for client in order]
    sds = [np.full(len(rows[client].values), rows[client].sd) for client in order]
    empty = np.empty(0)
    return np.concatenate([empty, *values]), np.concatenate([empty, *sds])


def describe(upload: Upload) -> dict[str, str]:
    """The types and shapes of an upload, for an error."""
    return {key: f"{value.dtype}{list(value.shape)}" for key, value in upload.items()}
