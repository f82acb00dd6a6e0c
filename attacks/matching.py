"""Matching rows with records: a server that can compute a record's losses looks for the row that it left.

The server knows every global model, and so what a record would have uploaded. Against a population of references the
best test is the likelihood ratio: for a row z, log f(z | record) - log g(z), with g the mean over references; for a
client, the logarithm of its mean over the client's rows. Without noise it is the distance to the nearest row.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from attacks.games import Candidates
from attacks.knowledge import Knowledge, LogProbabilities, losses_of
from attacks.observed import Observed, likelihoods, paired
from attacks.per_client import ClientReader

Scores = NDArray[np.float64]
_SHARP = 1e-4
"""nats; with less noise than this references tell nothing of the density at a row"""
_AT_A_TIME = 1 << 20


@dataclass(frozen=True)
class Matcher(ClientReader):
    """Scores candidates against the rows of a run.

    Attributes:
        knowledge: the server's.
        rows: by client; those of the run, or a variant of them (rounded, the newest alone).
        known: what every global model says of the pool of images.
        references: records from outside that the attacker has.
    """

    knowledge: Knowledge
    rows: dict[int, Observed]
    known: LogProbabilities
    references: Candidates
    _asked: tuple[Candidates, NDArray[np.float64]] | None = field(default=None, init=False, repr=False)

    @property
    def clients(self) -> tuple[int, ...]:
        """Those with rows."""
        return tuple(self.rows)

    def named_row(self, candidates: Candidates) -> Scores:
        """Whether the named row is the record's, float64 (n,)."""
        found = np.full(len(candidates), -np.inf)
        for client, observed in self.rows.items():
            asked = np.flatnonzero(candidates.client == client)
            rows, some = candidates.row[asked], candidates.take(asked)
            pairs = replace(observed, values=observed.values[:, rows])
            found[asked] = paired(pairs, self._expected(client, some)) - self._population[client][rows]
        return found

    def label(self, candidates: Candidates) -> NDArray[np.int64]:
        """The label that the named client's record most probably carries, int64 (n,).

        Before the rows, half of the belief is the newest model's, and half is even: some labels are wrong.
        """
        classes = self.known.shape[2]
        believed = np.exp(self.known[-1, candidates.image].astype(np.float64))
        prior = np.log((believed + 1 / classes) / 2).T
        guesses = []
        for label in range(classes):
            labels = np.full(len(candidates), label, np.int64)
            guesses.append(self.named_client(replace(candidates, labels=labels)))
        return (np.stack(guesses) + prior).argmax(0).astype(np.int64)

    def of_client(self, client: int, candidates: Candidates) -> Scores:
        """The log mean likelihood ratio over one client's rows, float64 (n,)."""
        observed, found = self.rows[client], np.empty(len(candidates))
        expected = self._expected(client, candidates)
        step = max(1, _AT_A_TIME // observed.values.shape[1])
        for start in range(0, len(candidates), step):
            ratio = likelihoods(observed, expected[:, start : start + step], self._population[client])
            found[start : start + step] = _log_mean(ratio, sharp=_sharp(observed))
        return found

    def _expected(self, client: int, candidates: Candidates) -> NDArray[np.float64]:
        return self.rows[client].expected(self._losses(candidates)[self.knowledge.drawn(client)])

    def _losses(self, candidates: Candidates) -> NDArray[np.float64]:
        """Under every model; those of the newest question are kept, since every client's rows ask for them."""
        if self._asked is None or self._asked[0] is not candidates:
            asked = losses_of(self.known, candidates.labels, candidates.image)
            object.__setattr__(self, "_asked", (candidates, asked))
            return asked
        return self._asked[1]

    @cached_property
    def _population(self) -> dict[int, Scores]:
        """log g of every row: the mean likelihood over the references."""
        found = {}
        for client, observed in self.rows.items():
            each = likelihoods(observed, self._expected(client, self.references))
            count = len(self.references)
            floor = np.full((1, each.shape[1]), 0.0 if _sharp(observed) else -np.inf)
            found[client] = logsumexp(np.concatenate([each, floor]), axis=0) - np.log(count + _sharp(observed))
        return found


def _sharp(observed: Observed) -> bool:
    """Whether rows are so exact that a density made of references is one at the references alone."""
    return observed.kind == "rounded" or float(observed.scale.max()) <= _SHARP


def _log_mean(ratio: NDArray[np.float64], *, sharp: bool) -> Scores:
    """Log of the mean over rows; of exact rows only the nearest counts."""
    if sharp:
        return np.asarray(ratio.max(1) - np.log(ratio.shape[1]))
    top = ratio.max(1, keepdims=True)
    np.exp(np.subtract(ratio, top, out=ratio), out=ratio)
    return np.asarray(np.log(ratio.mean(1)) + top[:, 0])
