"""What a server learns of a client as a whole: its share of wrong labels, and its mix of classes.

No record is recognised here. From rows, wrong labels show as high losses, and classes by how their losses are spread
(Wang et al. 2019 infer the labels of others in a similar way). From secure histograms of changing cohorts, a client's
share follows by regression (Kerkouche et al. 2023 take sums of updates apart so).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from attacks.games import Candidates
from attacks.knowledge import Knowledge, LogProbabilities, losses_of
from attacks.observed import Observed

Vector = NDArray[np.float64]
_BINS = 12


def level_of_rows(observed: Observed) -> Vector:
    """How high the losses of each row are: their mean, weighted by 1 / variance, float64 (n,) in nats.

    Ranks rows by how probably their label is wrong: with a mixture of two rising densities P(wrong) rises with it.
    """
    return _level(observed, observed.values)


def rates_of_rows(rows: dict[int, Observed], middle: float) -> dict[int, float]:
    """The share of each client's rows that are above `middle` nats, where clean and wrong labels part."""
    return {client: float((level_of_rows(observed) > middle).mean()) for client, observed in rows.items()}


def rates_of_counts(knowledge: Knowledge, edges: Vector, middle: float) -> dict[int, float]:
    """The share of each client's samples above `middle`, from sums over changing cohorts, by ridge regression.

    Args:
        knowledge: with releases.
        edges: of the bins, nats.
        middle: where clean and wrong labels part, nats.
    """
    sizes, high = np.asarray(knowledge.sizes, np.float64), edges[:-1] >= middle
    there = np.array([np.isin(np.arange(len(sizes)), one.contributors) for one in knowledge.releases], float)
    shares = np.array([one.counts[high].sum() for one in knowledge.releases]) / (there @ sizes)
    usual, weights = shares.mean(), there * sizes / (there @ sizes)[:, None]
    gram = weights.T @ weights + 0.1 * np.diag(weights.T @ weights).mean() * np.eye(len(sizes))
    off = np.linalg.solve(gram, weights.T @ (shares - usual))
    return {client: float(usual + off[client]) for client in range(len(sizes))}


def classes_of_rows(
    knowledge: Knowledge, rows: dict[int, Observed], known: LogProbabilities, references: Candidates
) -> dict[int, Vector]:
    """Each client's mix of given labels, float64 (classes,): non-negative least squares on the spread of its losses.

    Args:
        knowledge: the server's.
        rows: by client.
        known: what every global model says of the pool of images.
        references: records from outside with labels by the clients' noise; a class without any has no share.
    """
    found = {}
    for client, observed in rows.items():
        drawn = knowledge.drawn(client)
        losses = losses_of(known[drawn], references.labels, references.image)
        levels = _level(observed, observed.expected(losses))
        edges = np.quantile(np.concatenate([levels, level_of_rows(observed)]), np.linspace(0, 1, _BINS + 1))
        spread = np.stack(
            [_shares(levels[references.labels == label], edges) for label in range(knowledge.classes)], axis=1
        )
        share, _ = nnls(spread, _shares(level_of_rows(observed), edges))
        found[client] = share / share.sum() if share.sum() else np.full(knowledge.classes, 1 / knowledge.classes)
    return found


def _level(observed: Observed, values: NDArray[np.float64]) -> Vector:
    """The weighted mean over the observations of (T, n) values."""
    weight = 1.0 / observed.scale**2
    level: Vector = (weight[:, None] * values).sum(0) / weight.sum()
    return level


def _shares(levels: Vector, edges: Vector) -> Vector:
    counts = np.histogram(np.clip(levels, edges[0], edges[-1]), edges)[0].astype(np.float64)
    return counts / counts.sum() if counts.sum() else counts
