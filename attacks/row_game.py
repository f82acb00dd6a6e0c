"""The worst-case game on the rows of a noisy channel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attacks.families import Family, Gaussians, Laplaces
from attacks.metrics import Scores, Truths
from attacks.worst_case import (
    BEYOND,
    LIKELIHOOD,
    LOW_BITS,
    NEIGHBOUR,
    NEXT,
    PREVIOUS,
    UNCHANGED,
    Play,
    Seen,
    at_levels,
    beyond,
    lowest_bit,
    steady,
)
from privacy.channels.channel import Losses, Memory
from privacy.channels.noisy import NoisyProxies
from privacy.mechanisms import NoiseSource

_CLIENTS = 8
"""that hold the canaries; noise that is the same on all rows of one is another on the next"""


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

    @property
    def scouted(self) -> tuple[Play, ...]:
        """Rows are tried at other losses as well."""
        releases = self.channel.budget.releases
        return steady(releases), beyond(releases), at_levels(releases)

    @property
    def noise(self) -> float:
        """In steps of the grid."""
        return min(noise.scale for noise in self.channel.noises)

    @property
    def integers(self) -> int:
        """Every row in every release."""
        return self._units * self.channel.budget.releases

    def draws(self, play: Play) -> int:
        """One for each row and release; past the budget the last release comes again."""
        return self._units * min(play.rounds, self.channel.budget.releases)

    def play(self, play: Play, canaries: int, noise: NoiseSource, coins: np.random.Generator) -> Seen:
        """The canaries, shared out among a few clients."""
        truth = coins.random(canaries) < 0.5
        even = np.arange(1, _CLIENTS) * canaries // _CLIENTS // 2 * 2
        clients = [self._client(part, play, noise, coins) for part in np.split(truth, even)]
        scores = {name: np.concatenate([seen.scores[name] for seen in clients]) for name in clients[0].scores}
        dtypes = frozenset[str]().union(*(seen.dtypes for seen in clients))
        return Seen(scores, truth, dtypes, np.concatenate([seen.rounds for seen in clients], axis=1))

    def _client(self, truth: Truths, play: Play, noise: NoiseSource, coins: np.random.Generator) -> Seen:
        """One client's canaries; its last row is known to be 0."""
        memory, uploads, dtypes = Memory.fresh(), [], set[str]()
        high = np.repeat(truth, self._units) == (play.signs()[:, None] > 0)
        pair = self._pair(high.shape[1], play, coins)
        for losses in np.where(high, *self._losses(pair, play)):
            held = np.append(losses, 0.0)
            upload, memory = self.channel.encode(Losses(held, held), memory, noise)
            dtypes |= {value.dtype.name for value in upload.values()}
            uploads.append(np.asarray(upload["total"], np.float64))
        sent, new = self._releases(np.stack(uploads))
        return self._seen(sent, new, play, pair, Seen({}, truth, frozenset(dtypes), np.where(high, *pair)))

    def _pair(self, rows: int, play: Play, coins: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The two losses of each row in steps."""
        steps = self.channel.grid.steps
        if play.levels:
            return coins.integers(0, steps + 1, rows), coins.integers(0, steps + 1, rows)
        return np.full(rows, steps), np.zeros(rows, np.int64)

    def _losses(
        self, pair: tuple[NDArray[np.int64], NDArray[np.int64]], play: Play
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The two losses of each row in nats; the largest as one beyond it."""
        nats = self.channel.largest / self.channel.grid.steps * (1 if play.levels else BEYOND)
        return np.asarray(pair[0] * nats, np.float64), np.asarray(pair[1] * nats, np.float64)

    def _seen(
        self,
        sent: NDArray[np.float64],
        new: NDArray[np.bool_],
        play: Play,
        pair: tuple[NDArray[np.int64], NDArray[np.int64]],
        held: Seen,
    ) -> Seen:
        """The scores of numbers whose losses, (rounds, rows) in steps, were `held.rounds`."""
        own, known, fresh, units = sent[:, :-1], sent[:, -1:], new[:, :-1], self._units
        others = np.concatenate([own - held.rounds, np.repeat(known, units, axis=1)], axis=1)

        def ratio(less: NDArray[np.float64]) -> Scores:
            return self._rounds(own - less, fresh, play, pair).sum(axis=0) * self._unit

        rounds = self._rounds(own, fresh, play, pair)
        unchanged = (own[0] == pair[0]).astype(np.float64) - (own[0] == pair[1])
        scores = {
            LIKELIHOOD: rounds.sum(axis=0) * self._unit,
            NEIGHBOUR: ratio(known),
            NEXT: ratio(np.roll(others, -units, axis=1)[:, :-units]),
            PREVIOUS: ratio(np.roll(others, units, axis=1)[:, :-units]),
            UNCHANGED: unchanged.reshape(-1, units).sum(axis=1),
            LOW_BITS: lowest_bit(own[0, ::units]),
        }
        return Seen(scores | play.learned(rounds), held.truth, held.dtypes, rounds)

    def _releases(self, uploads: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Each round's noised loss (rounds, rows), and whether it is one: past the budget the last may come again."""
        new = np.ones(uploads.shape, np.bool_)
        beyond = self.channel.budget.releases
        new[beyond:] = uploads[beyond:] != uploads[beyond - 1 : -1]
        if self.channel.noising in ("per_loss", "diagonal"):
            return np.diff(uploads, axis=0, prepend=0.0), new
        return uploads, new

    @property
    def _unit(self) -> float:
        """Of what a round says, in that of a log-likelihood ratio."""
        scale = self.channel.noises[0].scale
        return 1 / scale if self._laplace else self.channel.grid.steps / scale**2

    def _rounds(
        self,
        sent: NDArray[np.float64],
        new: NDArray[np.bool_],
        play: Play,
        pair: tuple[NDArray[np.int64], NDArray[np.int64]],
    ) -> NDArray[np.float64]:
        """What each round says (rounds, canaries); sums of integers are exact, so that ties stay ties."""
        weights = self._weights[np.minimum(np.arange(play.rounds), self.channel.budget.releases - 1)][:, None]
        terms = np.where(new, self._terms(sent, *pair), 0.0)
        rows = weights * play.signs()[:, None] * terms
        return rows.reshape(play.rounds, -1, self._units).sum(axis=2)

    def _terms(
        self, sent: NDArray[np.float64], first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """What each number says for the first loss and against the second, in `_unit`."""
        if self._laplace:
            return np.abs(sent - second) - np.abs(sent - first)
        return (sent - (first + second) / 2) * ((first - second) / self.channel.grid.steps)

    def imagined(self, canaries: int, draw: np.random.Generator) -> Scores:
        """Of canaries that are there."""
        steps, rows = self.channel.grid.steps, canaries * self._units
        sampler = draw.laplace if self._laplace else draw.normal
        sent = np.stack([sampler(steps, noise.scale, rows) for noise in self.channel.noises])
        play, new = steady(len(sent)), np.ones(sent.shape, np.bool_)
        return self._rounds(sent, new, play, self._pair(rows, play, draw)).sum(axis=0) * self._unit
