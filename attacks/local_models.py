"""Membership from a client's own model: what it was trained on it has learnt.

In the clear the server holds the model that a client received and the one that it sent back. The loss of a record that
the training saw falls from one to the other (Nasr et al. 2019 attack such updates); the client for whom it fell most
is its source (after Hu et al. 2021).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from attacks.games import Candidates
from attacks.knowledge import Knowledge
from attacks.per_client import ClientReader
from fedgr_secure.data.types import UInt8

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class LocalReader(ClientReader):
    """Scores candidates against every client's newest local model.

    Attributes:
        knowledge: the server's.
        pool: uint8 (n, channels, height, width), the images that candidates point to.
    """

    knowledge: Knowledge
    pool: UInt8
    _fallen: dict[int, NDArray[np.float64]] = field(default_factory=dict, init=False, repr=False)

    @property
    def clients(self) -> tuple[int, ...]:
        """Those whose models came up in the clear."""
        return tuple(self.knowledge.trained)

    def of_client(self, client: int, candidates: Candidates) -> Scores:
        """By how much each record's loss fell while the client trained, float64 (n,) in nats."""
        if client not in self._fallen:
            received, sent = self.knowledge.trained[client]
            shares = (self.knowledge.log_shares(weights, self.pool) for weights in (sent, received))
            self._fallen[client] = next(shares) - next(shares)
        return self._fallen[client][candidates.image, candidates.labels]
