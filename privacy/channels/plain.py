"""The plain channel: loss proxies as FedGR publishes them, one float32 per sample, in the clear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privacy.channels.channel import Losses, Memory, Rows, Upload, UploadError, describe
from privacy.claims import PrivacyClaim, no_privacy
from privacy.mechanisms import NoiseSource

LARGEST_LOSS = 100.0
"""nats; about the cross-entropy of the smallest float32 probability, so a bound that finite losses never reach"""


@dataclass(frozen=True)
class PlainProxies:
    """Running-mean losses without protection.

    Attributes:
        largest: nats; a client sends no loss above this, and the server takes none.
    """

    largest: float = LARGEST_LOSS
    name: ClassVar[str] = "plain"
    private: ClassVar[bool] = False

    def due(self, round: int) -> bool:
        """In every round."""
        return True

    def spent(self, releases: int) -> None:
        """No epsilon describes it."""
        return None

    def curve(self, orders: ArrayLike, releases: int) -> NDArray[np.float64]:
        """Nothing bounds it."""
        return np.full(np.shape(orders), np.inf)

    def encode(self, losses: Losses, memory: Memory, noise: NoiseSource) -> tuple[Upload, Memory]:
        """Client side: the running means in nats, float32 (n,)."""
        return {"proxies": losses.mean.astype(np.float32)}, memory

    def rows(self, client: int, upload: Upload) -> Rows:
        """Server side: one client's per-sample proxies.

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
            raise UploadError(
                f"client {client}: upload {describe(upload)}, allowed: one float32 vector named proxies, not empty"
            )
        outside = ~((proxies >= 0) & (proxies <= np.float32(self.largest)))
        if outside.any():
            raise UploadError(f"client {client}: proxy {proxies[outside][0]} nats, allowed: from 0 to {self.largest:g}")
        return Rows(proxies.astype(np.float64))

    def claims(self) -> tuple[PrivacyClaim, ...]:
        """What this channel promises: nothing."""
        return (
            no_privacy(
                "loss proxies",
                self.name,
                "The server sees one loss per training sample and can recognise records, their owner and their label.",
            ),
        )
