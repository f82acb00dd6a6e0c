"""The sieve's posterior and the refinement's decision table, sample by sample."""

import math


def clean_probability(mixture, loss):
    """P(component 0 | loss) by Bayes' rule on the densities of two Gaussians."""
    joint = [
        weight / math.sqrt(2 * math.pi * variance) * math.exp(-((loss - mean) ** 2) / (2 * variance))
        for mean, variance, weight in zip(mixture.means, mixture.variances, mixture.weights, strict=True)
    ]
    return joint[0] / sum(joint)


def target(given, pseudo, q, noise_rate, beta, classes):
    """METHOD, step 3: the target row of one sample; `pseudo` is None where there is none."""

    def row(label, share):
        return [share if c == label else 0.0 for c in range(classes)]

    if noise_rate >= beta:
        return row(pseudo, 1.0)
    if q >= 0.5:
        return row(given, 1.0)
    return [a + b for a, b in zip(row(given, q), row(pseudo, 1 - q), strict=True)]
