"""Densities of a Gaussian component, alone, with noise, and in bins, with their derivatives by mean and variance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, ndtr

Vector = NDArray[np.float64]

_LOG_2PI = float(np.log(2 * np.pi))


def normal(offset: Vector, variances: Vector) -> tuple[Vector, Vector, Vector]:
    """Log density of a Gaussian at an offset from its mean, and its derivatives by mean and variance."""
    scaled = offset / variances
    log_density = -0.5 * (_LOG_2PI + np.log(variances) + offset * scaled)
    return log_density, scaled, 0.5 * (scaled * scaled - 1 / variances)


def normal_laplace(offset: Vector, variances: Vector, scale: Vector) -> tuple[Vector, Vector, Vector]:
    """Log density of a Gaussian plus Laplace noise (Reed, 2006), and its derivatives.

    The density is the mean of two tails, exp(s^2 / 2 b^2 -+ d / b) Phi(+-d / s - s / b) / b, for the offset d, the
    component's deviation s and the noise's scale b.
    """
    deviation = np.sqrt(variances)
    at, steep = offset / deviation, deviation / scale
    bell = -0.5 * at * at
    right, left = _log_tail(steep - at, bell), _log_tail(steep + at, bell)
    both = np.logaddexp(right, left)
    log_density = both - np.log(2 * scale)
    to_right, to_left = np.exp(right - both), np.exp(left - both)
    by_mean = (to_right - to_left) / scale
    # the heat equation: by variance a density changes as half its second derivative, here (density - Gaussian) / b^2
    bare = np.exp(normal(offset, np.broadcast_to(variances, offset.shape))[0] - log_density)
    return log_density, by_mean, 0.5 * (1 - bare) / scale**2


def _log_tail(argument: Vector, bell: Vector) -> Vector:
    """log(exp(bell + argument^2 / 2) Phi(-argument)), without overflow or cancellation at either end."""
    far = argument > 0
    with np.errstate(divide="ignore"):
        above = np.log(0.5 * erfcx(np.where(far, argument, 0.0) / np.sqrt(2)))
    below = 0.5 * np.square(np.where(far, 0.0, argument)) + log_ndtr(-np.where(far, 0.0, argument))
    return bell + np.where(far, above, below)


def bin_probabilities(edges: Vector, means: Vector, variances: Vector) -> tuple[Vector, Vector, Vector]:
    """P(bin | component) and its derivatives by mean and variance: three float64 (B, 2)."""
    at = (edges[1:-1, None] - means) / np.sqrt(variances)
    low, high = np.vstack([[[-np.inf] * 2], at]), np.vstack([at, [[np.inf] * 2]])
    upper = low > 0  # differences of the smaller tails keep their digits
    bins = ndtr(np.where(upper, -low, high)) - ndtr(np.where(upper, -high, low))
    bell = np.zeros((len(edges), 2))
    bell[1:-1] = np.exp(-0.5 * at * at) / np.sqrt(2 * np.pi)
    sloped = np.zeros_like(bell)
    sloped[1:-1] = at * bell[1:-1]
    return bins, -np.diff(bell, axis=0) / np.sqrt(variances), -0.5 * np.diff(sloped, axis=0) / variances
