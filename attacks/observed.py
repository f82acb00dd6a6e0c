"""What a server has of one client's samples, and how likely it is for a given record: every kind of row in one form.

A row is what one training sample left behind: a number at each of some participations, with noise of a known kind.
The likelihood of a row under a record is exact for Gaussian and Laplace noise and for rounding; float32 is taken as a
Gaussian of a millionth of a nat.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.errors import require
from privacy.channels.channel import Channel, Upload
from privacy.channels.noisy import NoisyProxies

Kind = Literal["gaussian", "laplace", "rounded"]
Matrix = NDArray[np.float64]

FLOAT32 = 1e-6
"""nats; float32 rounding of a loss, and what another order of additions does to it"""
_CHUNK = 1 << 22


@dataclass(frozen=True)
class Observed:
    """Rows of one client.

    Attributes:
        values: float64 (T, n), nats.
        at: int (T,), the participations, from 0, that they belong to.
        averaged: they are running means of all losses so far; else each is of one loss.
        scale: float64 (T,), nats: standard deviation (gaussian), b (laplace), or half a step (rounded).
        kind: of the noise.
        largest: nats; what a client clips each loss to.
    """

    values: Matrix
    at: NDArray[np.int64]
    averaged: bool
    scale: NDArray[np.float64]
    kind: Kind
    largest: float

    def expected(self, losses: Matrix) -> Matrix:
        """What records with these losses would have left without noise.

        Args:
            losses: float64 (participations, m), one row for each of the client's participations, in order.

        Returns:
            float64 (T, m).
        """
        clipped = np.fmin(losses, self.largest)  # not a number counts as the worst loss, as on the client
        np.maximum(clipped, 0.0, out=clipped)
        if self.averaged:
            np.cumsum(clipped, axis=0, out=clipped)
            clipped /= np.arange(1, len(clipped) + 1)[:, None]
        every = len(self.at) == len(clipped)
        return clipped if every else clipped[self.at]

    def newest(self, count: int) -> Observed:
        """The last so many observations alone."""
        return replace(self, values=self.values[-count:], at=self.at[-count:], scale=self.scale[-count:])

    def rounded(self, decimals: int) -> Observed:
        """The same rows if clients had rounded what they upload."""
        half = np.full(len(self.at), 0.5 * 10.0**-decimals)
        return replace(self, values=np.round(self.values, decimals), scale=half, kind="rounded")


def observe_plain(uploads: list[Upload], at: list[int], largest: float) -> Observed:
    """Running means in the clear, float32."""
    values = np.stack([upload["proxies"].astype(np.float64) for upload in uploads])
    return Observed(values, np.asarray(at, np.int64), True, np.full(len(at), FLOAT32), "gaussian", largest)


def observe_noisy(channel: NoisyProxies, uploads: list[Upload], at: list[int]) -> Observed:
    """Every release of the noisy channel once: sums of noised losses are taken apart, repetitions left out."""
    sums = channel.noising in ("per_loss", "diagonal")
    fresh, before, seen = [], None, 0
    for upload, participation in zip(uploads, at, strict=True):
        total = upload["total"]
        if before is None or (total != before).any():
            require(seen < len(channel.noises), f"rows: more than {len(channel.noises)} different uploads of a client")
            values = total - before if sums and before is not None else total
            fresh.append((participation, channel.grid.values(values), channel.noises[seen]))
            seen += 1
        before = total
    kinds = {noise.kind for _, _, noise in fresh}
    require(len(kinds) == 1, f"noise of rows: {sorted(kinds)}, allowed: one kind")
    scale = [max(noise.scale * channel.grid.step, FLOAT32) for _, _, noise in fresh]
    return Observed(
        np.stack([values for _, values, _ in fresh]),
        np.array([participation for participation, _, _ in fresh], np.int64),
        not sums,
        np.array(scale),
        kinds.pop(),
        channel.largest,
    )


def observe(channel: Channel, uploads: list[Upload], at: list[int], largest: float) -> Observed:
    """A client's uploads as rows, for either channel that has rows."""
    return (
        observe_noisy(channel, uploads, at)
        if isinstance(channel, NoisyProxies)
        else observe_plain(uploads, at, largest)
    )


def likelihoods(observed: Observed, expected: Matrix, less: NDArray[np.float64] | None = None) -> Matrix:
    """Log likelihood of every row under every record, but for a constant that is the same for all.

    Args:
        observed: T observations of n rows.
        expected: float64 (T, m), what the records would have left.
        less: float64 (n,), taken off each row's.

    Returns:
        float64 (m, n).
    """
    values, scale = observed.values / observed.scale[:, None], observed.scale[:, None]
    records, less = expected / scale, np.zeros(values.shape[1]) if less is None else less
    if observed.kind == "gaussian":
        return _gaussian(values, records, less)
    found = np.empty((records.shape[1], values.shape[1]))
    step = max(1, _CHUNK // max(1, values.size))
    for start in range(0, len(found), step):
        distance = np.abs(records.T[start : start + step, :, None] - values[None])
        if observed.kind == "rounded":  # flat within half a step; a millionth of a nat beyond it
            distance = np.maximum(distance - 1.0, 0.0) * (scale / FLOAT32)
        found[start : start + step] = -distance.sum(1)
    found -= less
    return found


def paired(observed: Observed, expected: Matrix) -> NDArray[np.float64]:
    """Log likelihood of each row under the record of the same position, float64 (n,); expected is (T, n)."""
    distance = np.abs(expected - observed.values) / observed.scale[:, None]
    if observed.kind == "gaussian":
        return -0.5 * (distance**2).sum(0)
    if observed.kind == "rounded":
        distance = np.maximum(distance - 1.0, 0.0) * (observed.scale[:, None] / FLOAT32)
    return -distance.sum(0)


def _gaussian(values: Matrix, records: Matrix, less: NDArray[np.float64]) -> Matrix:
    """Half the squared distances, all in one matrix product, from near the middle, where it cancels least."""
    middle = values.mean(1, keepdims=True)
    values, records = values - middle, records - middle
    left = np.vstack([records, -0.5 * (records**2).sum(0), np.ones(records.shape[1])])
    right = np.vstack([values, np.ones(values.shape[1]), -0.5 * (values**2).sum(0) - less])
    found: Matrix = left.T @ right
    return found
