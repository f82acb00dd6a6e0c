"""Members of small groups, from the subsets of a list that a group's mean can be of.

The mean of n losses, of which the server can compute every candidate's, is an exact sum, but for a float32's rounding.
Where few subsets of n candidates have that sum, it says who is in the group: exact sums give records away (Dinur and
Nissim 2003). Both halves of a subset are listed and meet in the middle (Horowitz and Sahni 1974), which is quick up to
eight records. All rests on a list that has every record of the group; `means` needs none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from attacks.games import Candidates
from attacks.means import MeanReader
from attacks.observed import FLOAT32
from attacks.statements import GroupMean

Scores = NDArray[np.float64]
Numbers = NDArray[np.float64]
Rows = NDArray[np.int64]
_EXACT = frozenset({"loss", "moments"})
"""kinds of numbers that the server computes as the client did"""
_MOST = 8
"""records in a group"""
_MOST_HALVES = 10**6
_MOST_PAIRS = 2 * 10**6
_MOST_ACCIDENTS = 100
"""subsets that fit by accident: the group's own no longer stands out among more"""
_SURE = 1e-9


@dataclass(frozen=True)
class Fitting:
    """The subsets of a list whose sum is a given one.

    Attributes:
        count: how many there are.
        having: float64 (m,), how many of them have each record.
    """

    count: int
    having: Scores


def fitting(numbers: Numbers, total: Numbers, size: int, slack: Numbers) -> Fitting | None:
    """All subsets with a sum; None where there is more to list than is worth the time.

    Args:
        numbers: float64 (m, d), of each record of the list.
        total: float64 (d,), their sum over the subset.
        size: n, of the subset; from 1 to m.
        slack: float64 (d,), by how much a sum may differ.

    >>> found = fitting(np.array([[1.0], [2.0], [4.0], [5.0]]), np.array([6.0]), 2, np.array([0.1]))
    >>> found.count, found.having.tolist()
    (2, [1.0, 1.0, 1.0, 1.0])
    """
    least, most = size // 2, size - size // 2
    if math.comb(len(numbers), most) > _MOST_HALVES:
        return None
    left, wanted = _ascending(numbers[:, 0], least, total[0], -1)
    right, sums = _ascending(numbers[:, 0], most, 0.0, 1)
    low = np.searchsorted(sums, wanted - slack[0])
    high = np.searchsorted(sums, wanted + slack[0], side="right")
    if (high - low).sum() > _MOST_PAIRS:
        return None
    one, other = left[np.repeat(np.arange(len(left)), high - low)], right[_ranges(low, high - low)]
    whole = np.hstack([one, other])[(one[:, :, None] != other[:, None, :]).all((1, 2))]
    for column, wanted_, slack_ in zip(numbers.T, total, slack, strict=True):  # one by one: there may be many
        whole = whole[np.abs(column[whole].sum(1) - wanted_) <= slack_]
    whole = np.unique(np.sort(whole, axis=1), axis=0)  # each was found by all its splits into halves
    return Fitting(len(whole), np.bincount(whole.ravel(), minlength=len(numbers)).astype(np.float64))


def _ascending(numbers: Scores, size: int, start: float, sign: int) -> tuple[Rows, Scores]:
    """All subsets of a size, by start + sign * sum, and that."""
    subsets = _subsets(len(numbers), size)
    sums = start + sign * numbers[subsets].sum(1)
    order = np.argsort(sums)
    return subsets[order], sums[order]


def by_accident(numbers: Numbers, size: int, slack: Numbers) -> float:
    """About how many subsets fit, at most, where the sum is that of no subset: sums taken as Gaussian, at its peak."""
    spread = np.atleast_2d(np.cov(numbers.T)) / np.outer(slack, slack)
    deviations = np.sqrt(size * np.maximum(np.linalg.eigvalsh(spread), 0.0))
    shares = np.minimum(1.0, 2 / np.maximum(np.sqrt(2 * np.pi) * deviations, 1.0))
    return math.comb(len(numbers), size) * float(shares.prod())


def _subsets(length: int, size: int) -> Rows:
    """All subsets of 0 to length - 1, int64 (C(length, size), size), each ascending."""
    rows = np.empty((1, 0), np.int64)
    for _ in range(size):
        after = rows[:, -1] + 1 if rows.shape[1] else np.zeros(1, np.int64)
        rows = np.column_stack([np.repeat(rows, length - after, axis=0), _ranges(after, length - after)])
    return rows


def _ranges(starts: Rows, lengths: Rows) -> Rows:
    """start, start + 1, ... of each length, one after the other."""
    before = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + np.repeat(starts - before, lengths)


@dataclass(frozen=True)
class SubsetReader(MeanReader):
    """Scores candidates by the subsets that fit; where none can be listed, or none fits, as `MeanReader` does."""

    @property
    def reads(self) -> bool:
        """Whether a group is small enough."""
        return any(self._size(part) for by in self._groups.values() for parts in by.values() for part in parts)

    def _score(self, part: tuple[GroupMean, ...], candidates: Candidates) -> Scores:
        size, length = self._size(part), len(candidates)
        if not 0 < size < length:
            return super()._score(part, candidates)
        numbers, mean = self._numbers(part, candidates), np.concatenate([group.values for group in part])
        slack = size * FLOAT32 * np.maximum(np.abs(mean), 1.0)
        accidents, usual = by_accident(numbers, size, slack), size / length
        found = fitting(numbers, size * mean, size, slack) if accidents < _MOST_ACCIDENTS else None
        if found is None or not found.count:
            return super()._score(part, candidates)
        # Those that fit by accident weigh as much as if the list lacked somebody and no subset said anything.
        share = (found.having + accidents * usual) / (found.count + accidents)
        return logit(np.clip(share, _SURE, 1 - _SURE)) - logit(usual)

    @staticmethod
    def _size(part: tuple[GroupMean, ...]) -> int:
        """Of a group whose subsets can be listed; 0 for another."""
        return part[0].count if part[0].kind in _EXACT and part[0].count and part[0].count <= _MOST else 0
