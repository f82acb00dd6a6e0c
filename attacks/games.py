"""The worst-case game: a canary's loss is 0 or the largest, by a coin, and everything else is known.

Each game plays through the `encode` of the channel that it is given, with all clients whose noise a claim counts on,
and turns what the server sees into scores. Canaries are independent trials: rows of one client, or bins of one
histogram, each with noise of its own. Losses are sent above the clip, so that a clip that is missing shows.

The scores are those of who takes the claim at its word (the log-likelihood ratio of its noise), of who knows another
row as well, and of who looks at the lowest bits of the first number only (Mironov 2012). A score that is not the best
makes a bound weaker, never wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attacks.families import Family, Gaussians, Laplaces
from attacks.metrics import Scores, Truths
from fedgr_secure.errors import InputError
from privacy.channels.channel import Channel, Losses, Memory
from privacy.channels.histogram import HistogramProxies
from privacy.channels.noisy import NoisyProxies
from privacy.claims import PrivacyClaim
from privacy.mechanisms import NoiseSource

LIKELIHOOD, NEIGHBOUR, LOW_BITS = "likelihood ratio", "likelihood ratio against a known row", "lowest bits"
_BEYOND = 3.0
"""times the clip: the largest loss that is sent"""
_CLIENTS = 8
"""that hold the canaries; noise that is the same on all rows of one is another on the next"""
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
    beyond = Play("more rounds than the budget has releases", releases + max(releases, 3), turns=False)
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
        """Random numbers that one canary costs, at most."""

    def play(self, play: Play, canaries: int, noise: NoiseSource, coins: np.random.Generator) -> Seen:
        """What so many canaries look like."""

    def imagined(self, canaries: int, draw: np.random.Generator) -> Scores:
        """Likelihood ratios as the claim would have them; by which a number of guesses is fixed beforehand."""


def game_of(channel: Channel) -> Game:
    """The game of a channel.

    Raises:
        InputError: the channel claims nothing, or its claims are of another kind.
    """
    if isinstance(channel, NoisyProxies) and channel.claims()[0].epsilon is not None:
        return Rows(channel)
    if isinstance(channel, HistogramProxies) and channel.claims()[0].epsilon is not None:
        return Histograms(channel)
    raise InputError(f"channel: {channel.name}, which claims no epsilon here; allowed: noisy or histogram, not insecure")


def claim_of(channel: Channel) -> PrivacyClaim:
    """What is audited."""
    return channel.claims()[0]


@dataclass(frozen=True)
class Rows:
    """Rows of a noisy channel; a canary is as many rows as change between neighbours."""

    channel: NoisyProxies

    @property
    def _units(self) -> int:
        return self.channel.budget.units

    @property
    def _laplace(self) -> bool:
        return self.channel.mechanism == "laplace"

    @property
    def _weights(self) -> NDArray[np.float64]:
        """Of each release in the likelihood ratio, the first release's being exactly 1."""
        scales = np.array([noise.scale for noise in self.channel.noises])
        return (scales[0] / scales) ** (1 if self._laplace else 2)

    @cached_property
    def family(self) -> Family:
        """Laplace or Gaussian; continuous where the scales are unequal."""
        steps, count = self.channel.grid.steps, self._units * self.channel.budget.releases
        if self._laplace:
            return Laplaces(count, steps)
        even = self.channel.noising != "diagonal"
        return Gaussians(self.channel.budget.delta, steps * count if even else None)

    def draws(self, play: Play) -> int:
        """One for each row and release."""
        return self._units * play.rounds

    def play(self, play: Play, canaries: int, noise: NoiseSource, coins: np.random.Generator) -> Seen:
        """The canaries, shared out among a few clients."""
        truth = coins.random(canaries) < 0.5
        clients = [self._client(part, play, noise) for part in np.array_split(truth, _CLIENTS)]
        scores = {name: np.concatenate([scores[name] for scores, _ in clients]) for name in clients[0][0]}
        return Seen(scores, truth, frozenset().union(*(dtypes for _, dtypes in clients)))

    def _client(self, truth: Truths, play: Play, noise: NoiseSource) -> tuple[dict[str, Scores], set[str]]:
        """Scores of one client's canaries, whose last row is known to be 0, and the types of what it uploaded."""
        memory, uploads, dtypes = Memory.fresh(), [], set[str]()
        for sign in play.signs():
            high = np.repeat(truth == (sign > 0), self._units)
            losses = np.append(np.where(high, _BEYOND * self.channel.largest, 0.0), 0.0)
            upload, memory = self.channel.encode(Losses(losses, losses), memory, noise)
            dtypes |= {value.dtype.name for value in upload.values()}
            uploads.append(np.asarray(upload["total"], np.float64))
        sent, new = self._releases(np.stack(uploads))
        scores = {
            LIKELIHOOD: self._ratio(sent[:, :-1], new[:, :-1], play),
            NEIGHBOUR: self._ratio(sent[:, :-1] - sent[:, -1:], new[:, :-1], play),
            LOW_BITS: _lowest_bit(sent[0, :-1 : self._units]),
        }
        return scores, dtypes

    def _releases(self, uploads: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Each round's noised loss (rounds, rows), and whether it is one: past the budget the last may come again."""
        new = np.ones(uploads.shape, np.bool_)
        beyond = self.channel.budget.releases
        new[beyond:] = uploads[beyond:] != uploads[beyond - 1 : -1]
        if self.channel.noising in ("per_loss", "diagonal"):
            return np.diff(uploads, axis=0, prepend=0.0), new
        return uploads, new

    def _ratio(self, sent: NDArray[np.float64], new: NDArray[np.bool_], play: Play) -> Scores:
        """Log-likelihood ratios of the canaries (canaries,); sums of integers are exact, so that ties stay ties."""
        steps, noise, signs = self.channel.grid.steps, self.channel.noises[0], play.signs()[:, None]
        weights = self._weights[np.minimum(np.arange(play.rounds), self.channel.budget.releases - 1)][:, None]
        terms = np.where(new, _terms(sent, steps, laplace=self._laplace), 0.0)
        rows = (weights * signs * terms).sum(axis=0)
        unit = 1 / noise.scale if self._laplace else steps / noise.scale**2
        return rows.reshape(-1, self._units).sum(axis=1) * unit

    def imagined(self, canaries: int, draw: np.random.Generator) -> Scores:
        """Of canaries that are there."""
        steps, rows = self.channel.grid.steps, canaries * self._units
        sampler = draw.laplace if self._laplace else draw.normal
        sent = np.stack([sampler(steps, noise.scale, rows) for noise in self.channel.noises])
        steady = Play("", len(sent), turns=False)
        return self._ratio(sent, np.ones(sent.shape, np.bool_), steady)


def _terms(sent: NDArray[np.float64], steps: int, *, laplace: bool) -> NDArray[np.float64]:
    """What each number says for the largest loss and against 0, in the unit of the noise."""
    if laplace:
        return np.abs(sent) - np.abs(sent - steps)
    return sent - steps / 2


@dataclass(frozen=True)
class Histograms:
    """Sums of the honest clients' noisy counts. One client holds a canary for every two bins, from the outermost in.

    A canary is as many records as change between neighbours: in the upper bin or in the lower one; without the number
    of records being public there is a canary for every bin, in it or nowhere. The others hold nothing: what they hold
    is known, and would be subtracted. The secure sum is taken to be one.
    """

    channel: HistogramProxies

    @property
    def _units(self) -> int:
        return self.channel.budget.units

    @property
    def _moves(self) -> int:
        return 1 if self.channel.budget.adjacency == "add-remove" else 2

    @property
    def _each(self) -> int:
        """Canaries of one histogram."""
        return self.channel.bins // self._moves

    @cached_property
    def family(self) -> Family:
        """Gaussian: all counts of a canary added up are one discrete Gaussian."""
        budget = self.channel.budget
        return Gaussians(budget.delta, self._moves * budget.releases * self._units)

    @cached_property
    def _losses(self) -> NDArray[np.float64]:
        """One within each bin; in the outermost 0 and beyond the largest."""
        edges = np.asarray(self.channel.edges)
        middles = (edges[1:] + edges[:-1]) / 2
        middles[0], middles[-1] = 0.0, _BEYOND * self.channel.largest
        return middles

    def draws(self, play: Play) -> int:
        """One for each client, round and bin."""
        return self._moves * play.rounds * self.channel.honest

    def play(self, play: Play, canaries: int, noise: NoiseSource, coins: np.random.Generator) -> Seen:
        """As many histograms as the canaries need."""
        if not self._each:
            raise InputError(f"bins: {self.channel.bins}, allowed: at least {self._moves} for an audit")
        truth = coins.random(-(-canaries // self._each) * self._each) < 0.5
        games = [list(self._rounds(part, play, noise)) for part in truth.reshape(-1, self._each)]
        dtypes = frozenset(name for rounds in games for _, name in rounds)
        sent = np.concatenate([np.stack([moved for moved, _ in rounds]) for rounds in games], axis=1)
        centre = self._units / 2 if self._moves == 1 else 0.0
        total = (play.signs()[:, None] * (sent - centre)).sum(axis=0)
        scores = {LIKELIHOOD: total * self._units / self.channel.variance(self.channel.honest)}
        return Seen(scores | {LOW_BITS: _lowest_bit(sent[0])}, truth, dtypes)

    def _rounds(self, truth: Truths, play: Play, noise: NoiseSource) -> Iterator[tuple[NDArray[Any], str]]:
        """By round what a histogram says for each canary, and of which type the counts were."""
        memories = [Memory.fresh()] * self.channel.honest
        upper, lower = np.arange(self.channel.bins)[::-1][: self._each], np.arange(self._each)
        for sign in play.signs():
            high = truth == (sign > 0)
            bins = upper[high] if self._moves == 1 else np.where(high, upper, lower)
            held = np.repeat(self._losses[bins], self._units)
            total = np.zeros(self.channel.bins)
            for client, memory in enumerate(memories):
                own = held if client == 0 else held[:0]
                upload, memories[client] = self.channel.encode(Losses(own, own), memory, noise)
                total = total + upload["counts"]
            yield (total[upper] - (total[lower] if self._moves == 2 else 0.0), upload["counts"].dtype.name)

    def imagined(self, canaries: int, draw: np.random.Generator) -> Scores:
        """Of canaries that are there."""
        budget, channel = self.channel.budget, self.channel
        square = self._moves * budget.releases * self._units**2 / channel.variance(channel.honest)
        return draw.normal(square / 2, math.sqrt(square), canaries)


def _lowest_bit(numbers: NDArray[np.float64]) -> Scores:
    """The exponent of the lowest bit that is set: what was added to a large number in floating point is coarser."""
    fractions, exponents = np.frexp(numbers)
    whole = (np.abs(fractions) * 2.0**53).astype(np.int64)
    lowest = np.log2(np.maximum(whole & -whole, 1)) + exponents - 53
    return np.where(numbers == 0, _ZERO_S_BIT, lowest)
