"""Attacks that score one client after the other: the same two games for each of them."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from attacks.games import Candidates
from attacks.knowledge import Knowledge

Scores = NDArray[np.float64]


class ClientReader(ABC):
    """Scores candidates by the log likelihood ratio that a client has them."""

    knowledge: Knowledge

    @property
    def clients(self) -> tuple[int, ...]:
        """Those of whom there is something to read."""
        return tuple(range(len(self.knowledge.sizes)))

    @abstractmethod
    def of_client(self, client: int, candidates: Candidates) -> Scores:
        """The log likelihood ratio that one client has the records, float64 (n,)."""

    def named_client(self, candidates: Candidates) -> Scores:
        """Whether the named client has the record, float64 (n,); minus infinity where there is nothing of it."""
        found = np.full(len(candidates), -np.inf)
        for client in self.clients:
            asked = np.flatnonzero(candidates.client == client)
            found[asked] = self.of_client(client, candidates.take(asked))
        return found

    def any_client(self, candidates: Candidates) -> Scores:
        """Whether anybody has the record, float64 (n,): the log mean over clients, by their numbers of samples."""
        sizes = np.array([self.knowledge.sizes[client] for client in self.clients], np.float64)
        each = np.stack([self.of_client(client, candidates) for client in self.clients])
        found: Scores = logsumexp(each, axis=0, b=(sizes / sizes.sum())[:, None])
        return found

    def source(self, candidates: Candidates) -> NDArray[np.int64]:
        """Whose record it most probably is, int64 (n,)."""
        each = np.stack([self.of_client(client, candidates) for client in self.clients])
        return np.array(self.clients, np.int64)[each.argmax(0)]
