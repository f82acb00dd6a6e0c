"""Densities and bin probabilities by quadrature, one number at a time."""

import math
from itertools import pairwise

from scipy.integrate import quad


def normal(x, mean, variance):
    """Density of a Gaussian."""
    return math.exp(-((x - mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)


def laplace(x, scale):
    """Density of Laplace noise around 0."""
    return math.exp(-abs(x) / scale) / (2 * scale)


def noisy_density(value, mean, variance, noise):
    """Density of a Gaussian loss plus noise at `value`: the integral over every loss that it may have been."""
    deviation = math.sqrt(variance)
    breaks = {mean + at * deviation for at in (-40, -10, -3, 0, 3, 10, 40)}
    near = {value + at for at in (-1, -0.1, -0.01, 0, 0.01, 0.1, 1)}
    points = sorted(breaks | {at for at in near if min(breaks) < at < max(breaks)})
    return sum(
        quad(lambda x: normal(x, mean, variance) * noise(value - x), *piece, limit=200)[0] for piece in pairwise(points)
    )


def bin_probability(low, high, mean, variance):
    """P(low < x <= high) of a Gaussian."""
    at = [(edge - mean) / math.sqrt(2 * variance) for edge in (low, high)]
    return (math.erf(at[1]) - math.erf(at[0])) / 2
