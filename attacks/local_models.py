"""Membership from a client's own model: what it was trained on it has learnt.

In the clear the server holds the model that a client received and the one that it sent back. The loss of a record that
the training saw falls from one to the other (Nasr et al. 2019 attack such updates), and further than for the other
clients, who tell how easily it falls (as Watson et al. 2022 calibrate by difficulty). Where it falls furthest is its
source (after Hu et al. 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attacks.games import Candidates
from attacks.knowledge import Knowledge
from attacks.per_client import ClientReader
from fedgr_secure.data.types import UInt8
from fedgr_secure.errors import require

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

    @property
    def clients(self) -> tuple[int, ...]:
        """Those whose models came up in the clear."""
        return tuple(self.knowledge.trained)

    def of_client(self, client: int, candidates: Candidates) -> Scores:
        """How much further each record's loss fell while the client trained than for all on average, float64 (n,).

        Of the only client that there is, how far it fell: nobody else tells how easily.
        """
        at = candidates.image, candidates.labels
        return self.fallen[client][at] - self._usual[at]

    @cached_property
    def fallen(self) -> dict[int, NDArray[np.float64]]:
        """By client, the fall of every image's loss with every label, float64 (pool, classes) in nats."""
        return {client: fallen for client, (fallen, _) in self._changes.items()}

    @cached_property
    def surer(self) -> dict[int, NDArray[np.float64]]:
        """By client, the rise of every image's largest log share, float64 (pool,) in nats."""
        return {client: surer for client, (_, surer) in self._changes.items()}

    @cached_property
    def _changes(self) -> dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        found = {}
        for client, weights in self.knowledge.trained.items():
            before, after = (self.knowledge.log_shares(one, self.pool) for one in weights)
            finite = np.isfinite(before).all() and np.isfinite(after).all()
            require(bool(finite), f"client {client}: predictions of its own model that are no numbers, allowed: finite")
            found[client] = after - before, after.max(1) - before.max(1)
        return found

    @cached_property
    def _usual(self) -> NDArray[np.float64]:
        return _usual(self.fallen)


@dataclass(frozen=True)
class SureReader(ClientReader):
    """Scores candidates by how sure local models are of their images, whatever the label.

    A client that corrects labels learns others than it was given; of those `LocalReader` hears the opposite.

    Attributes:
        local: the same models' reader.
    """

    local: LocalReader

    @property
    def knowledge(self) -> Knowledge:  # type: ignore[override]
        """The server's."""
        return self.local.knowledge

    @property
    def clients(self) -> tuple[int, ...]:
        """Those whose models came up in the clear."""
        return self.local.clients

    def of_client(self, client: int, candidates: Candidates) -> Scores:
        """How much surer the client's model became of each image than all did on average, float64 (n,)."""
        return self.local.surer[client][candidates.image] - self._usual[candidates.image]

    @cached_property
    def _usual(self) -> NDArray[np.float64]:
        return _usual(self.local.surer)


def _usual(changes: Mapping[int, NDArray[np.float64]]) -> NDArray[np.float64]:
    """The mean over clients, which a single one would cancel with itself; then 0."""
    mean: NDArray[np.float64] = np.mean(list(changes.values()), axis=0)
    return mean if len(changes) > 1 else np.zeros_like(mean)
