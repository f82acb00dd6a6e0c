"""Membership from means over groups of records: a member pulls its group's mean towards itself.

After Homer et al. (2008), who found single genomes in published mean frequencies, as the likelihood ratio of
Sankararaman et al. (2009). With n records in a group whose numbers have mean mu and covariance S, their mean m is
N(mu, S / n); with a known record x among them it is N(mu + (x - mu) / n, (n - 1) S / n^2). mu and S are of references.
What a client says of its losses in several rounds is one long vector. With n = 1 the mean is the record's own number,
and the ratio finds it exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attacks.games import Candidates
from attacks.knowledge import Knowledge
from attacks.observed import FLOAT32
from attacks.per_client import ClientReader
from attacks.statements import GroupMean
from fedgr_secure.errors import require

Scores = NDArray[np.float64]
Matrix = NDArray[np.float64]
Numbers = Callable[[GroupMean, Candidates], Matrix]
_LEAST = 1e-12
_PER_ROUND = frozenset({"features"})
"""numbers of which a round has so many that rounds are taken by themselves"""


@dataclass(frozen=True)
class Scale:
    """Numbers of records, as references have them, made independent and of variance 1.

    Attributes:
        usual: float64 (d,), the references' mean, by label; None: of all.
        whiten: float64 (d, d).
    """

    usual: Mapping[int | None, NDArray[np.float64]]
    whiten: Matrix

    @classmethod
    def of(cls, numbers: Matrix, labels: NDArray[np.int64], *, by_label: bool) -> Scale:
        """From the references' numbers, float64 (n, d); the covariance, shrunk, is about each label's own mean."""
        from sklearn.covariance import ledoit_wolf

        usual: dict[int | None, NDArray[np.float64]] = {None: numbers.mean(0)}
        usual |= {int(label): numbers[labels == label].mean(0) for label in np.unique(labels)}
        spread = numbers - (np.stack([usual[int(label)] for label in labels]) if by_label else usual[None])
        values, vectors = np.linalg.eigh(ledoit_wolf(spread, assume_centered=True)[0])
        return cls(usual, vectors / np.sqrt(np.maximum(values, _LEAST)))

    def away(self, numbers: Matrix, label: int | None) -> Matrix:
        """How far from the usual, float64 (..., d); of a label that references lack, from that of all."""
        away: Matrix = (numbers - self.usual.get(label, self.usual[None])) @ self.whiten
        return away


def pulled(mean: NDArray[np.float64], records: Matrix, count: float) -> Scores:
    """The log likelihood ratio that each record is in a group, given its mean; all in units of one record's spread.

    Args:
        mean: float64 (d,), away from the usual.
        records: float64 (m, d), likewise.
        count: of the group's records, n, at least 1.

    >>> pulled(np.array([2.0]), np.array([[2.0], [0.0]]), 2.0).round(3)
    array([ 2.347, -3.653])
    """
    without, within = 1 / count, max((count - 1) / count**2, FLOAT32**2)
    left = ((mean - records / count) ** 2).sum(1) / within
    found: Scores = ((mean**2).sum() / without - left + len(mean) * np.log(without / within)) / 2
    return found


@dataclass(frozen=True)
class MeanReader(ClientReader):
    """Scores candidates against what clients said.

    Attributes:
        knowledge: the server's.
        numbers: of candidates, float64 (n, d), as they would go into a mean.
        references: records from outside that the attacker has.
    """

    knowledge: Knowledge
    numbers: Numbers
    references: Candidates

    def of_client(self, client: int, candidates: Candidates) -> Scores:
        """The sum over everything that the client said; minus infinity for a label that it does not have."""
        found, groups = np.zeros(len(candidates)), self._groups.get(client, {})
        if groups and None not in groups:
            found[~np.isin(candidates.labels, [label for label in groups if label is not None])] = -np.inf
        for label, parts in groups.items():
            asked = np.arange(len(candidates)) if label is None else np.flatnonzero(candidates.labels == label)
            for part in parts if len(asked) else ():
                found[asked] += self._score(part, candidates.take(asked))
        return found

    def _score(self, part: tuple[GroupMean, ...], candidates: Candidates) -> Scores:
        first, scale = part[0], self._scale(part)
        mean, wanted = np.concatenate([group.values for group in part]), len(scale.whiten)
        require(len(mean) == wanted, f"client {first.client}: means of {len(mean)} {first.kind}, allowed: {wanted}")
        count = first.count or max(self.knowledge.sizes[first.client] / self.knowledge.classes, 1.0)
        away = scale.away(self._numbers(part, candidates), first.label)
        return pulled(scale.away(mean, first.label), away, count)

    @cached_property
    def _groups(self) -> dict[int, dict[int | None, list[tuple[GroupMean, ...]]]]:
        """By client and label, what belongs into one vector: all rounds, or one."""
        found: dict[int, dict[int | None, list[list[GroupMean]]]] = defaultdict(lambda: defaultdict(list))
        for group in self.knowledge.said.means:
            parts = found[group.client][group.label]
            if not parts or group.kind in _PER_ROUND:
                parts.append([])
            parts[-1].append(group)
        return {k: {label: [tuple(p) for p in parts] for label, parts in by.items()} for k, by in found.items()}

    @cached_property
    def _scales(self) -> dict[tuple[str, tuple[int, ...]], Scale]:
        return {}

    def _scale(self, part: tuple[GroupMean, ...]) -> Scale:
        """The same for all who were asked in the same rounds."""
        key = part[0].kind, tuple(group.round for group in part)
        if key not in self._scales:
            numbers, labels = self._numbers(part, self.references), self.references.labels
            self._scales[key] = Scale.of(numbers, labels, by_label=part[0].label is not None)
        return self._scales[key]

    def _numbers(self, part: tuple[GroupMean, ...], candidates: Candidates) -> Matrix:
        return np.hstack([self.numbers(group, candidates) for group in part])
