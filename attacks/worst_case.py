"""The worst-case game: a canary's loss is 0 or the largest, by a coin, and everything else is known.

Each game (`row_game`, `histogram_game`) plays through the `encode` of the channel that it is given, with all clients
whose noise a claim counts on, and turns what the server sees into scores. Canaries are independent trials: rows of a
client, or bins of a histogram, each with noise of its own. Losses are sent above the clip, so that a missing clip
shows.

The scores are those of who takes the claim at its word (the log-likelihood ratio of its noise), of who knows another
row as well, and of who looks at the lowest bits of the first number only (Mironov 2012). A score that is not the best
makes a bound weaker, never wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from attacks.families import Family
from attacks.metrics import Scores, Truths
from privacy.channels.histogram import HistogramProxies
from privacy.channels.noisy import NoisyProxies
from privacy.mechanisms import NoiseSource

LIKELIHOOD, NEIGHBOUR, LOW_BITS = "likelihood ratio", "likelihood ratio against a known row", "lowest bits"
BEYOND = 3.0
"""times the clip: the largest loss that is sent"""
_ZERO_S_BIT = 64.0


@dataclass(frozen=True)
class Play:
    """What a canary does over the rounds.

    Attributes:
        name: for people.
        rounds: in how many uploads are made; more than the budget's releases shows a budget that is not kept.
        turns: whether the two losses change places in every round, so that noise which is used again cancels.
    """

    name: str
    rounds: int
    turns: bool

    def signs(self) -> NDArray[np.int64]:
        """+1 in the rounds in which the canary that is there has the largest loss, -1 in the others; int64 (rounds,)"""
        signs = np.ones(self.rounds, np.int64)
        signs[1::2] = -1 if self.turns else 1
        return signs


def plays(releases: int) -> tuple[Play, ...]:
    """What is worth trying on a budget of so many releases."""
    steady = Play("the same loss in every release", releases, turns=False)
    turning = Play("losses that change places in every release", releases, turns=True)
    beyond = Play("more rounds than the budget has releases", releases + max(2 * releases, 3), turns=False)
    return (steady, turning, beyond) if releases > 1 else (steady, beyond)


@dataclass(frozen=True)
class Seen:
    """What the server saw of many canaries.

    Attributes:
        scores: by name, float64 (n,).
        truth: bool (n,), the coins.
        dtypes: of everything that was uploaded.
    """

    scores: dict[str, Scores]
    truth: Truths
    dtypes: frozenset[str]

    @property
    def integers(self) -> bool:
        """Whether nothing but integers was uploaded."""
        return all(np.issubdtype(np.dtype(name), np.integer) for name in self.dtypes)


class Game(Protocol):
    """The worst case of one channel."""

    @property
    def channel(self) -> NoisyProxies | HistogramProxies:
        """Whose `encode` is played through."""

    @property
    def family(self) -> Family:
        """What its noise is claimed to be."""

    def draws(self, play: Play) -> int:
        """Random numbers that one canary costs a sound channel."""

    def play(self, play: Play, canaries: int, noise: NoiseSource, coins: np.random.Generator) -> Seen:
        """What so many canaries look like."""

    def imagined(self, canaries: int, draw: np.random.Generator) -> Scores:
        """Likelihood ratios as the claim would have them; by which a number of guesses is fixed beforehand."""


def lowest_bit(numbers: NDArray[np.float64]) -> Scores:
    """The exponent of the lowest bit that is set: what was added to a large number in floating point is coarser."""
    fractions, exponents = np.frexp(numbers)
    whole = (np.abs(fractions) * 2.0**53).astype(np.int64)
    lowest = np.log2(np.maximum(whole & -whole, 1)) + exponents - 53
    return np.where(numbers == 0, _ZERO_S_BIT, lowest)
