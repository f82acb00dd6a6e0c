"""Budgets and losses that the tests of channels share."""

import numpy as np

from privacy.budget import Budget
from privacy.channels.channel import Losses
from privacy.mechanisms import InsecureSeededNoise

LARGEST = 4.0


class NoNoise:
    """A source that adds nothing, so that what a channel does besides can be seen."""

    secure = False

    def laplace(self, scale, size):
        return np.zeros(size, np.int64)

    def gaussian(self, sigma, size):
        return np.zeros(size, np.int64)


def budget(epsilon=1.0, releases=3, adjacency="replace-one", delta=1e-5, records=1000, largest=64):
    return Budget(epsilon, delta, releases, adjacency, records, largest)


def losses(mean, newest=None):
    mean = np.asarray(mean, np.float64)
    return Losses(mean if newest is None else np.asarray(newest, np.float64), mean)


def seeded(seed=0):
    return InsecureSeededNoise(np.random.default_rng(seed))
