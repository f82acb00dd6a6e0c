"""The worst-case game on the rows of a noisy channel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attacks.families import Family, Gaussians, Laplaces
from attacks.metrics import Scores, Truths
from attacks.worst_case import BEYOND, LIKELIHOOD, LOW_BITS, NEIGHBOUR, Play, Seen, lowest_bit
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

    def draws(self, play: Play) -> int:
        """One for each row and release; past the budget the last release comes again."""
        return self._units * min(play.rounds, self.channel.budget.releases)

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
            losses = np.append(np.where(high, BEYOND * self.channel.largest, 0.0), 0.0)
            upload, memory = self.channel.encode(Losses(losses, losses), memory, noise)
            dtypes |= {value.dtype.name for value in upload.values()}
            uploads.append(np.asarray(upload["total"], np.float64))
        sent, new = self._releases(np.stack(uploads))
        scores = {
            LIKELIHOOD: self._ratio(sent[:, :-1], new[:, :-1], play),
            NEIGHBOUR: self._ratio(sent[:, :-1] - sent[:, -1:], new[:, :-1], play),
            LOW_BITS: lowest_bit(sent[0, : -1 : self._units]),
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
