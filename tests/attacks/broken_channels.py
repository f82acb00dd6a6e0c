"""Channels that do not keep what they claim, each by one fault that has been found in somebody's code."""

import dataclasses
from functools import cached_property

import numpy as np

from privacy.channels.channel import Memory
from privacy.channels.histogram import HistogramProxies
from privacy.channels.noisy import NoisyProxies
from privacy.mechanisms import Grid, InsecureSeededNoise, Noise


class RowsForgetComposition(NoisyProxies):
    """Every release gets the noise of a single one."""

    @cached_property
    def noises(self):
        single = dataclasses.replace(self.budget, releases=1)
        return dataclasses.replace(as_shipped(self, NoisyProxies), budget=single).noises * self.budget.releases


class CountsForgetComposition(HistogramProxies):
    """Every release gets the noise of a single one."""

    @cached_property
    def sigma(self):
        single = dataclasses.replace(self.budget, releases=1)
        return dataclasses.replace(as_shipped(self, HistogramProxies), budget=single).sigma


class RowsForgetTheBudget(NoisyProxies):
    """A client that has used up its releases makes new ones."""

    def encode(self, losses, memory, noise):
        upload, memory = super().encode(losses, memory, noise)
        return upload, Memory(0, memory.total)


class CountsForgetTheBudget(HistogramProxies):
    """A client that has used up its releases makes new ones."""

    def encode(self, losses, memory, noise):
        return super().encode(losses, Memory.fresh(), noise)


class RowsKeepABudgetTooLarge(NoisyProxies):
    """A client makes `extra` releases more than its budget has, or twice as many where that is 0."""

    extra = 1

    def encode(self, losses, memory, noise):
        left = (self.extra or self.budget.releases) + self.budget.releases - memory.releases
        if left > 0:
            noised = self.grid.indices(losses.newest) + self.noises[0].draw(losses.newest.size, noise)
            memory = Memory(memory.releases + 1, noised + memory.total if memory.releases else noised)
        return {"total": memory.total, "losses": np.array([memory.releases])}, memory


class RowsKeepTwiceTheBudget(RowsKeepABudgetTooLarge):
    """Twice as many releases."""

    extra = 0


class CountsKeepABudgetTooLarge(HistogramProxies):
    """A client makes `extra` releases more than its budget has, or twice as many where that is 0."""

    extra = 1

    def encode(self, losses, memory, noise):
        left = memory.releases < (self.extra or self.budget.releases) + self.budget.releases
        counts = self.count(losses.mean) if left else np.zeros(self.bins, np.int64)
        noised = counts + noise.gaussian(self.sigma, self.bins)
        return {"counts": noised}, Memory(memory.releases + left, memory.total)


class CountsKeepTwiceTheBudget(CountsKeepABudgetTooLarge):
    """Twice as many releases."""

    extra = 0


class RowsReuseOldNoise(NoisyProxies):
    """The third release has the noise of the first, the fourth of the second, and so on with this `lag`."""

    lag = 2

    def encode(self, losses, memory, noise):
        drawn = self.__dict__.setdefault("drawn", {})
        at = memory.releases
        if at < self.budget.releases:
            if at < self.lag:
                drawn[at] = self.noises[0].draw(losses.newest.size, noise)
            noised = self.grid.indices(losses.newest) + drawn[at % self.lag]
            memory = Memory(at + 1, noised + memory.total if at else noised)
        return {"total": memory.total, "losses": np.array([memory.releases])}, memory


class RowsReuseNoiseOfThree(RowsReuseOldNoise):
    """The fourth release has the noise of the first."""

    lag = 3


class RowsShareNoiseInPairs(NoisyProxies):
    """Rows 2 i and 2 i + 1 get one number."""

    def encode(self, losses, memory, noise):
        if memory.releases:
            return {"total": memory.total, "losses": np.array([1])}, memory
        drawn = np.repeat(self.noises[0].draw(losses.mean.size // 2 + 1, noise), 2)[: losses.mean.size]
        values = self.grid.indices(losses.mean) + drawn
        return {"total": values, "losses": np.array([1])}, Memory(1, values)


class CountsShareNoiseInPairs(HistogramProxies):
    """Bins 2 i and 2 i + 1 get one number."""

    def encode(self, losses, memory, noise):
        left = memory.releases < self.budget.releases
        counts = self.count(losses.mean) if left else np.zeros(self.bins, np.int64)
        drawn = np.repeat(noise.gaussian(self.sigma, self.bins // 2), 2)
        return {"counts": counts + drawn}, Memory(memory.releases + left, memory.total)


class RowsBareInBetween(NoisyProxies):
    """Only 0 and the largest loss get noise."""

    def encode(self, losses, memory, noise):
        upload, memory = super().encode(losses, memory, noise)
        values = self.grid.indices(losses.mean)
        bare = np.where((values > 0) & (values < self.grid.steps), values, upload["total"])
        return {"total": bare, "losses": upload["losses"]}, Memory(memory.releases, bare)


class Unclipped(Grid):
    """A grid that goes on above its last point."""

    def indices(self, losses):
        return np.rint(np.asarray(losses) / self.largest * self.steps).astype(np.int64)


class RowsReuseNoise(NoisyProxies):
    """A client draws from the same seed in every round."""

    def encode(self, losses, memory, noise):
        return super().encode(losses, memory, InsecureSeededNoise(np.random.default_rng(7)))


class CountsReuseNoise(HistogramProxies):
    """A client draws from the same seed in every round."""

    def encode(self, losses, memory, noise):
        return super().encode(losses, memory, InsecureSeededNoise(np.random.default_rng(7)))


class RowsShareNoise(NoisyProxies):
    """One number is drawn for all rows."""

    def encode(self, losses, memory, noise):
        if memory.releases:
            return {"total": memory.total, "losses": np.array([1])}, memory
        values = self.grid.indices(losses.mean) + self.noises[0].draw(1, noise)
        return {"total": values, "losses": np.array([1])}, Memory(1, values)


class FloatLaplace(NoisyProxies):
    """Laplace noise in single precision on the exact number (Mironov 2012)."""

    def encode(self, losses, memory, noise):
        values = self.grid.indices(losses.mean).astype(np.float32)
        draw = np.random.default_rng(int(noise.laplace(1e9, 1)[0]) % 2**32)
        drawn = draw.laplace(0.0, self.noises[0].scale, values.size).astype(np.float32)
        return {"total": values + drawn, "losses": np.array([1])}, Memory(1, np.zeros(0, np.int64))


class RowsHalveTheScale(NoisyProxies):
    """The noise's scale is half of what the accountant asks for."""

    @cached_property
    def noises(self):
        return tuple(Noise(noise.kind, noise.scale / 2) for noise in as_shipped(self, NoisyProxies).noises)


class CountsHalveTheScale(HistogramProxies):
    """The noise's scale is half of what the accountant asks for."""

    @cached_property
    def sigma(self):
        return as_shipped(self, HistogramProxies).sigma / 2


class RowsHalveTheSensitivity(NoisyProxies):
    """The noise is that of a record that moves half as far."""

    @cached_property
    def noises(self):
        half = dataclasses.replace(self.grid, steps=self.grid.steps // 2)
        return dataclasses.replace(as_shipped(self, NoisyProxies), grid=half).noises


class CountsHalveTheSensitivity(HistogramProxies):
    """A record is said to move one count, and leaves one bin for another."""

    @property
    def _moves(self):
        return 1


def as_shipped(channel, kind):
    """The channel of the same settings, without the fault."""
    return kind(**{field.name: getattr(channel, field.name) for field in dataclasses.fields(channel)})
