"""The worst-case game: a canary's loss is 0 or the largest, by a coin, and everything else is known.

Each game (`row_game`, `histogram_game`) plays through the `encode` of the channel that it is given, with all clients
whose noise a claim counts on, and turns what the server sees into scores. Canaries are independent trials: rows of a
client, or bins of a histogram, each with noise of its own. Losses are sent above the clip, so that a missing clip
shows.

The scores are those of who takes the claim at its word (the log-likelihood ratio of its noise), of who knows another
row as well (one of no change, or the canary before or after), of who looks for a loss that comes back as it was, of who
has learned from other canaries which rounds have the same noise, and of who looks at the lowest bits of the first
number only (Mironov 2012). A score that is not the best makes a bound weaker, never wrong.
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
NEXT, PREVIOUS = "likelihood ratio against the next canary", "likelihood ratio against the previous canary"
UNCHANGED, LEARNED = "losses without noise", "likelihood ratio of noise that rounds share"
BEYOND = 3.0
"""times the clip: the largest loss that is sent"""
_ZERO_S_BIT = 64.0
_SURE = 4.5
"""standard errors from which two rounds are taken to share noise"""
_LIKELY = 3.5
"""standard errors from which rounds past the budget are taken to say something"""
_RIDGE = 1e-6


@dataclass(frozen=True)
class Play:
    """What a canary does over the rounds.

    Attributes:
        name: for people.
        turns: by round +1 where the canary that is there has the largest loss, -1 where the two losses have changed
            places, so that noise which is used again cancels. More rounds than the budget's releases show a budget
            that is not kept.
        weights: of the rounds in the score `LEARNED`; None without one.
        levels: whether every canary has two losses of its own, drawn at random, instead of 0 and the largest.
    """

    name: str
    turns: tuple[int, ...]
    weights: tuple[float, ...] | None = None
    levels: bool = False

    @property
    def rounds(self) -> int:
        """In how many uploads are made."""
        return len(self.turns)

    def signs(self) -> NDArray[np.int64]:
        """The turns, int64 (rounds,)."""
        return np.array(self.turns, np.int64)

    def learned(self, rounds: NDArray[np.float64]) -> dict[str, Scores]:
        """The score that weighs what each round says, (rounds, n), if there is one."""
        return {} if self.weights is None else {LEARNED: np.asarray(self.weights) @ rounds}


def steady(releases: int) -> Play:
    """What is best against a sound channel."""
    return Play("the same loss in every release", (1,) * releases)


def beyond(releases: int) -> Play:
    """What shows a budget that is not kept, and noise that comes again."""
    return Play(_MORE, (1,) * (releases + max(2 * releases, 3)))


def at_levels(releases: int) -> Play:
    """What shows a loss in between that gets other noise than 0 and the largest."""
    return Play("two losses of each canary's own", (1,) * releases, levels=True)


_MORE = "more rounds than the budget has releases"


@dataclass(frozen=True)
class Seen:
    """What the server saw of many canaries.

    Attributes:
        scores: by name, float64 (n,).
        truth: bool (n,), the coins.
        dtypes: of everything that was uploaded.
        rounds: float64 (rounds, n), what each round says for a canary that is there, in any unit.
    """

    scores: dict[str, Scores]
    truth: Truths
    dtypes: frozenset[str]
    rounds: NDArray[np.float64]

    def of(self, name: str) -> tuple[Scores, Truths]:
        """The scores of independent trials and their coins: every other canary if the one beside it is taken as known.

        Its own trial would use the same two numbers.
        """
        step = 2 if name in (NEXT, PREVIOUS) else 1
        return self.scores[name][::step], self.truth[::step]

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

    @property
    def scouted(self) -> tuple[Play, ...]:
        """What is worth trying: `steady`, `beyond` and more."""

    @property
    def noise(self) -> float:
        """The smallest scale of the noise on one integer."""

    @property
    def integers(self) -> int:
        """How many noisy integers, of all releases together, a canary moves."""

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


def past(seen: Seen, releases: int) -> Scores:
    """By how many standard errors the first 1, 2 .. rounds past the budget tell the canaries apart, all of one sign."""
    said = np.cumsum(seen.rounds[releases:], axis=0)
    return np.array([_errors_apart(scores, seen.truth) for scores in said])


def learn(seen: Seen, releases: int) -> Play | None:
    """The play that what `beyond` showed asks for; None if it showed nothing that a sound channel does not.

    Rounds that share noise are found by what is left of them without the canary. If there are some, the losses change
    places where that tells most, and all rounds count with the weights of Fisher's linear discriminant.
    """
    gaps, spreads, shared = _noise(seen)
    apart = past(seen, releases)
    more = int(np.argmax(apart)) + 1 if apart.max() > _LIKELY else 0
    if not (shared - np.eye(len(shared))).any():
        return Play(_MORE, (1,) * (releases + more)) if more else None
    precision = np.linalg.pinv(shared + _RIDGE * np.eye(len(shared)), hermitian=True)
    effects = np.zeros(len(gaps))
    np.divide(gaps, spreads, out=effects, where=spreads > 0)
    turns = _turns(np.asarray(precision, np.float64), effects)
    weights = turns * (precision @ (turns * effects)) / np.where(spreads > 0, spreads, np.inf)
    name = "losses that change places between releases, where noise comes again"
    return Play(name, tuple(int(turn) for turn in turns), weights=tuple(float(weight) for weight in weights))


def _errors_apart(scores: Scores, truth: Truths) -> float:
    """The difference of the means over its standard error; 0 where there is nothing."""
    there, missing = scores[truth], scores[~truth]
    gap = float(there.mean() - missing.mean())
    error = float(np.sqrt(there.var() / there.size + missing.var() / missing.size))
    return gap / error if error else float(np.sign(gap)) * np.inf if gap else 0.0


def _noise(seen: Seen) -> tuple[Scores, Scores, NDArray[np.float64]]:
    """By round how far the canaries are apart and the noise's sd; and its correlations, 0 where they may be chance."""
    truth = seen.truth
    there, missing = seen.rounds[:, truth], seen.rounds[:, ~truth]
    gaps = there.mean(axis=1) - missing.mean(axis=1)
    left = np.concatenate([there - there.mean(axis=1)[:, None], missing - missing.mean(axis=1)[:, None]], axis=1)
    spreads = left.std(axis=1)
    unit = np.divide(left, spreads[:, None], out=np.zeros_like(left), where=spreads[:, None] > 0)
    shared = unit @ unit.T / truth.size
    shared[np.abs(shared) < _SURE / np.sqrt(truth.size)] = 0.0
    np.fill_diagonal(shared, 1.0)
    return gaps, spreads, shared


def _turns(precision: NDArray[np.float64], effects: Scores) -> NDArray[np.float64]:
    """The signs of the effects with which they say most: each in turn is changed if that says more."""
    turns = np.ones(len(effects))

    def says(signs: NDArray[np.float64]) -> float:
        return float((signs * effects) @ precision @ (signs * effects))

    for at in range(len(effects)):
        other = turns.copy()
        other[at] = -1
        turns = other if says(other) > 1.01 * says(turns) else turns
    return turns
