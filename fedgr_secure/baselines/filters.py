"""FedDiv's noise filters (Li et al. 2024): each client's mixture over its losses, their mean, and how both travel."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.errors import InputError, require
from fedgr_secure.method.sieve import Mixture, MixtureSettings
from fedgr_secure.wire import Array, Weights

Vector = NDArray[np.float64]
_MEANS, _VARIANCES = (0.0, 1e39), (1e-6, 1e78)
"""what a filter of losses holds: these end with float32, and `reg_covar` keeps variances from 0"""


@dataclass(frozen=True)
class FitFilter:
    """Server to client: fit your filter under these weights, from this one."""

    round: int
    weights: Weights
    filter: Mixture | None

    def __post_init__(self) -> None:
        check_filter(self.filter)


@dataclass(frozen=True)
class LocalFilter:
    """Client to server: its number of samples and its filter; None where its losses cannot be told apart."""

    round: int
    samples: int
    filter: Mixture | None

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"samples: {self.samples}, allowed: from 1")
        check_filter(self.filter)


@dataclass(frozen=True)
class Refine:
    """Server to client: train from the weights of this round, on what the global filter leaves."""

    round: int
    filter: Mixture | None


def local_filter(losses: Vector, start: Mixture | None, *, seed: int) -> Mixture | None:
    """The mixture of a client's losses, its EM started from the global filter; the clean component first.

    None where losses cannot be told apart: fewer than two finite ones, or (nearly) constant ones. What is no finite
    number is left out.

    Args:
        losses: float64 (n,), nats.
        start: the global filter; None: k-means.
        seed: of k-means.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    values = losses[np.isfinite(losses)]
    if len(values) < 2 or np.ptp(values) < 1e-6 * max(1.0, abs(float(values.mean()))):
        return None
    settings = MixtureSettings()
    first = {} if start is None else _inits(start)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = GaussianMixture(
            2,
            max_iter=settings.max_iter,
            tol=settings.tol,
            reg_covar=settings.reg_covar,
            random_state=seed,
            **first,
        ).fit(values[:, None])
    order = np.argsort(fitted.means_[:, 0])
    return of_rows(
        np.stack(
            [fitted.means_[order, 0], fitted.covariances_[order, 0, 0], fitted.weights_[order] / fitted.weights_.sum()]
        )
    )


def _inits(start: Mixture) -> dict[str, Array]:
    means, variances, weights = rows_of(start)
    shares = np.clip(weights, 1e-300, 1)  # of no EM: 0, whose logarithm there is not, and what exceeds 1 by rounding
    return {"means_init": means[:, None], "precisions_init": 1 / variances[:, None, None], "weights_init": shares}


def rows_of(mixture: Mixture) -> Vector:
    """float64 (3, 2): means, variances and weights."""
    return np.array([mixture.means, mixture.variances, mixture.weights])


def of_rows(rows: Vector) -> Mixture:
    """The mixture back from its numbers."""
    means, variances, weights = (tuple(map(float, row)) for row in rows)
    return Mixture(means, variances, weights)  # type: ignore[arg-type]


def check_filter(mixture: Mixture | None) -> None:
    """Refuse a filter that no losses have.

    Raises:
        ValueError: naming its numbers and what is allowed.
    """
    if mixture is None:
        return
    for name, pair, (least, most) in (("means", mixture.means, _MEANS), ("variances", mixture.variances, _VARIANCES)):
        if not all(least <= value <= most for value in pair):
            raise ValueError(f"filter: {name} {pair}, allowed: from {least:g} to {most:g}")


def mean_filter(filters: Mapping[str, Array], samples: Mapping[str, Array]) -> Mixture | None:
    """The clients' filters averaged by their numbers of samples, each of the six numbers by itself; None of none."""
    if not filters:
        return None
    sizes = [float(samples[client]) for client in filters]
    return of_rows(np.average(np.stack(list(filters.values())), axis=0, weights=sizes))


def check_filters(filters: Mapping[str, Array], samples: Mapping[str, Array], known: Sequence[int]) -> None:
    """Refuse stored filters that the clients cannot have sent.

    Raises:
        InputError: naming the client and what is allowed.
    """
    require(filters.keys() == samples.keys(), "filters, allowed: of the clients whose numbers of samples there are")
    sizes = {str(client): size for client, size in enumerate(known)}
    for client, rows in filters.items():
        require(client in sizes, f"filters: client {client!r}, allowed: 0 to {len(known) - 1}")
        try:
            require(rows.shape == (3, 2) and rows.dtype == np.float64, "filter, allowed: float64[3, 2]")
            check_filter(of_rows(rows))
        except (InputError, ValueError) as error:
            raise InputError(f"client {client}: {error}") from None
        said = samples[client]
        fits = said.shape == () and said.dtype == np.int64 and int(said) == sizes[client]
        require(fits, f"samples: client {client}: {said.tolist()}, allowed: {sizes[client]}")
