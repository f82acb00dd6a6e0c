"""The worst-case game on the noisy counts of a cohort."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attacks.families import Family, Gaussians
from attacks.metrics import Scores, Truths
from attacks.worst_case import BEYOND, LIKELIHOOD, LOW_BITS, NEXT, PREVIOUS, Play, Seen, beyond, lowest_bit, steady
from fedgr_secure.errors import InputError
from privacy.channels.channel import Losses, Memory
from privacy.channels.histogram import HistogramProxies
from privacy.mechanisms import NoiseSource


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
        middles[0], middles[-1] = 0.0, BEYOND * self.channel.largest
        return middles

    @property
    def scouted(self) -> tuple[Play, ...]:
        """All bins have canaries, so that there are no other losses to try."""
        return steady(self.channel.budget.releases), beyond(self.channel.budget.releases)

    @property
    def noise(self) -> float:
        """Of a sum over the honest clients, in counts; no client's share is much below 1."""
        return math.sqrt(self.channel.variance(self.channel.honest))

    @property
    def integers(self) -> int:
        """The bins of every release, each a sum over the clients."""
        return self._moves * self.channel.budget.releases * self.channel.honest

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
        return self._seen(sent, play, truth, dtypes)

    def _seen(self, sent: NDArray[np.float64], play: Play, truth: Truths, dtypes: frozenset[str]) -> Seen:
        """The scores of what the histograms say, (rounds, canaries)."""
        low, signs = (0.0 if self._moves == 1 else -self._units), play.signs()[:, None]
        held = np.where(truth == (signs > 0), self._units, low)
        held[self.channel.budget.releases :] = 0.0
        noise = sent - held
        unit = self._units / self.channel.variance(self.channel.honest)
        rounds = signs * (sent - (self._units + low) / 2)
        scores = {
            LIKELIHOOD: rounds.sum(axis=0) * unit,
            NEXT: (rounds - signs * np.roll(noise, -1, axis=1)).sum(axis=0) * unit,
            PREVIOUS: (rounds - signs * np.roll(noise, 1, axis=1)).sum(axis=0) * unit,
            LOW_BITS: lowest_bit(sent[0]),
        }
        return Seen(scores | play.learned(rounds), truth, dtypes, rounds)

    def _rounds(self, truth: Truths, play: Play, noise: NoiseSource) -> Iterator[tuple[NDArray[np.float64], str]]:
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
