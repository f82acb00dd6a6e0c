"""The plain channel: loss proxies as FedGR publishes them, one float32 per sample, in the clear."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privacy.claims import PrivacyClaim, no_privacy

Upload = dict[str, NDArray[Any]]

LARGEST_LOSS = 100.0
"""nats; about the cross-entropy of the smallest float32 probability, so a bound that finite losses never reach"""


class UploadError(ValueError):
    """An upload that no client of this channel sends; the message names the client."""


@dataclass(frozen=True)
class ProxySample:
    """What the server may fit its mixture to.

    Attributes:
        values: float64 (m,), the pooled proxies in nats.
    """

    values: NDArray[np.float64]


@dataclass(frozen=True)
class PlainProxies:
    """Running-mean losses without protection.

    A channel is a value with a client side (`encode`), a server side (`rows`, `pool`) and a claim (`claims`).

    Attributes:
        largest: nats; a client sends no loss above this, and the server takes none.

    >>> channel = PlainProxies()
    >>> upload = channel.encode(np.array([0.5, 2.0]))
    >>> channel.pool({3: upload}).values
    array([0.5, 2. ])
    """

    largest: float = LARGEST_LOSS
    name: ClassVar[str] = "plain"

    def encode(self, proxies: NDArray[np.float64]) -> Upload:
        """Client side: proxies in nats, float64 (n,) -> the upload, float32 (n,)."""
        return {"proxies": proxies.astype(np.float32)}

    def rows(self, client: int, upload: Upload) -> NDArray[np.float64]:
        """Server side: one client's per-sample proxies, float64 (n,).

        Raises:
            UploadError: the upload holds anything but one float32 vector of losses from 0 to `largest`.
        """
        proxies = upload.get("proxies")
        if (
            set(upload) != {"proxies"}
            or proxies is None
            or proxies.dtype != np.float32
            or proxies.ndim != 1
            or not len(proxies)
        ):
            shapes = {key: f"{value.dtype}{list(value.shape)}" for key, value in upload.items()}
            raise UploadError(f"client {client}: upload {shapes}, allowed: one float32 vector named proxies, not empty")
        outside = ~((proxies >= 0) & (proxies <= np.float32(self.largest)))
        if outside.any():
            raise UploadError(f"client {client}: proxy {proxies[outside][0]} nats, allowed: from 0 to {self.largest:g}")
        return proxies.astype(np.float64)

    def pool(self, uploads: Mapping[int, Upload]) -> ProxySample:
        """Server side: the uploads of several clients as one sample, in the order of the client numbers."""
        rows = [self.rows(client, uploads[client]) for client in sorted(uploads)]
        return ProxySample(np.concatenate(rows) if rows else np.empty(0))

    def claims(self) -> tuple[PrivacyClaim, ...]:
        """What this channel promises: nothing."""
        return (
            no_privacy(
                "loss proxies",
                self.name,
                "The server sees one loss per training sample and can recognise records, their owner and their label.",
            ),
        )
