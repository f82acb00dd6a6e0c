"""Mechanisms known up to one number, their strength: what the rates of a threshold say about it.

The trade-off function of each family is exact, so that the bound of a sound mechanism is above its claim no more often
than the rates' limits are wrong. It says: *if* the noise is of the claimed family, its strength is at least this. A
bound above the claim refutes the claimed mechanism in any case.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from attacks.bounds import Rates, gaussian_mu, largest
from privacy.accounting import discrete_gaussian_epsilon, gaussian_epsilon

_SMOOTH = 200.0
"""sd in steps from which the trade-off function of a discrete Gaussian is the continuous one's, to 1 / 24 sd^2 of mu"""
_TRIED = 60
_COARSE = 0.5
"""step between two values of a discrete Gaussian's privacy loss from which its epsilon does not only rise with mu"""
_LOSSES = 2**17
"""values of the privacy loss of Laplace noise that are told apart, if that leaves 64 a release"""
_MOST_MU = 12.0
"""epsilon 120 or so; what is worse is no privacy all the same"""


class Family(Protocol):
    """Mechanisms of one kind, by rising strength."""

    def strength(self, found: Rates) -> float:
        """The least with which the rates of one threshold (the first) are possible."""

    def epsilon(self, strength: float) -> float:
        """At the claim's delta."""


@dataclass(frozen=True)
class Gaussians:
    """Gaussian noise on one number; the strength is mu, the move over the noise's sd.

    Attributes:
        delta: of the claim.
        move: how far an integer with discrete noise moves (all coordinates of a log-likelihood ratio added up, as in
            `privacy.accounting.discrete_gaussian_delta`); None for continuous noise.
    """

    delta: float
    move: int | None

    def strength(self, found: Rates) -> float:
        """The least mu. The power of a coarse lattice does not quite rise with mu: everything below is refuted."""
        mu = float(gaussian_mu(found)[0])
        if not mu or self.move is None or self.move / mu > _SMOOTH:
            return mu
        move, fpr, tpr = self.move, float(found.fpr[0]), float(found.tpr[0])
        tried = np.linspace(0.0, 1.2 * mu, _TRIED)
        at = next((at for at in range(1, _TRIED) if lattice_power(fpr, tried[at], move) >= tpr), _TRIED - 1)
        return largest(lambda mu: lattice_power(fpr, mu, move) < tpr, tried[at], tried[at - 1])

    def epsilon(self, strength: float) -> float:
        """Of the Gaussian with this mu or a larger one, whichever is least; discrete where the noise is."""
        mu = min(strength, _MOST_MU)
        if not mu or self.move is None or self.move / mu > _SMOOTH:
            return gaussian_epsilon(self.delta, mu)
        if mu**2 / self.move <= _COARSE:
            return self._discrete(mu, self.move)
        # where the privacy loss takes few values, a larger mu may have a smaller epsilon
        low, high, least = mu, 1.25 * mu, math.inf
        for _ in range(3):
            tried = np.linspace(low, high, _TRIED // 5)
            epsilons = [self._discrete(float(one), self.move) for one in tried]
            at, least = int(np.argmin(epsilons)), min(least, *epsilons)
            low, high = float(tried[max(at - 1, 0)]), float(tried[min(at + 1, tried.size - 1)])
        return least

    def _discrete(self, mu: float, move: int) -> float:
        return discrete_gaussian_epsilon(self.delta, sigma=move / mu, shift=move, coordinates=1)


@dataclass(frozen=True)
class Laplaces:
    """Discrete Laplace noise on several integers that all move by the same; the strength is epsilon.

    Attributes:
        releases: how many integers.
        move: of each; a finer grid than needed is taken for a coarser one, whose power is a millionth larger.
    """

    releases: int
    move: int

    @property
    def _steps(self) -> int:
        return min(self.move, max(64, _LOSSES // self.releases))

    def strength(self, found: Rates) -> float:
        """The least epsilon, by the exact trade-off function of all releases together."""
        fpr, tpr = float(found.fpr[0]), float(found.tpr[0])
        return largest(lambda tried: tried == 0 or self.power(fpr, tried) < tpr, _reach(self.power, fpr, tpr))

    def epsilon(self, strength: float) -> float:
        """The strength itself; it holds at delta 0."""
        return strength

    def power(self, fpr: float, epsilon: float) -> float:
        """The largest true positive rate at a false positive rate.

        The privacy loss of one release is (2 j - move) / scale, where j is the noisy number cut off to 0 .. move; that
        of all is a sum, whose distribution is a convolution.
        """
        step = epsilon / (self.releases * self._steps)
        size = self.releases * self._steps + 1
        padded = 1 << (size - 1).bit_length()
        missing = np.exp(-step * np.arange(self._steps + 1)) * math.tanh(step / 2)
        missing[0], missing[-1] = 1 / (1 + math.exp(-step)), math.exp(-step * self._steps) / (1 + math.exp(-step))
        total = np.fft.irfft(np.fft.rfft(missing, padded) ** self.releases, padded)[:size]
        total = np.maximum(total, 0.0)
        return _power(fpr, total, total[::-1])


def lattice_power(fpr: float, mu: float, move: int) -> float:
    """The largest true positive rate at a false positive rate of a discrete Gaussian that moves by `move` or not."""
    sd = move / mu
    reach = math.ceil(12 * sd) + 1
    u = np.arange(-reach, reach + move + 1, dtype=np.float64)
    missing, there = np.exp(-((u / sd) ** 2) / 2), np.exp(-(((u - move) / sd) ** 2) / 2)
    return _power(fpr, missing / missing.sum(), there / there.sum())


def _power(fpr: float, missing: NDArray[np.float64], there: NDArray[np.float64]) -> float:
    """The most powerful randomised test between two distributions, listed by rising likelihood ratio."""
    false = np.concatenate([[0.0], np.cumsum(missing[::-1])])
    true = np.concatenate([[0.0], np.cumsum(there[::-1])])
    return float(np.interp(fpr, false, true))


def _reach(power: Callable[[float, float], float], fpr: float, tpr: float) -> float:
    """A strength with which the rates are possible."""
    tried = 1.0
    while power(fpr, tried) < tpr and tried < 2**10:
        tried *= 2
    return tried
