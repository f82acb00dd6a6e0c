"""Delta of integer noise by enumeration of everything that can come out; it never says too much."""

import numpy as np


def discrete_gaussian_pmf(sigma, summands):
    """The pmf of a sum of discrete Gaussians on the integers of a symmetric window."""
    reach = int(np.ceil(12 * sigma)) + 2
    one = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * sigma**2))
    one /= one.sum()
    pmf = np.ones(1)
    for _ in range(summands):
        pmf = np.convolve(pmf, one)
    return pmf


def privacy_loss(pmf, shift):
    """Masses and losses of all outcomes of one coordinate when the data move by `shift`."""
    kept = pmf > 1e-22
    pmf = pmf[kept]
    return pmf[:-shift], np.log(pmf[:-shift] / pmf[shift:])


def compose(first, second):
    """The privacy losses of two independent coordinates; equal losses are merged, masses of nothing dropped."""
    masses, losses = np.multiply.outer(first[0], second[0]).ravel(), np.add.outer(first[1], second[1]).ravel()
    kept = masses > 1e-15
    losses, where = np.unique(losses[kept].round(12), return_inverse=True)
    return np.bincount(where, masses[kept]), losses


def delta(epsilon, sigma, shift, coordinates, summands):
    """The hockey-stick divergence: the sum over outcomes of max(0, P - e^epsilon Q)."""
    one = total = privacy_loss(discrete_gaussian_pmf(sigma, summands), shift)
    for _ in range(coordinates - 1):
        total = compose(total, one)
    masses, losses = total
    return float((masses * -np.expm1(np.minimum(0.0, epsilon - losses))).sum())
