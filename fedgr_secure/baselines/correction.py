"""What passes between FedCorr's halves, and what each remembers (Xu et al. 2022), as `fedcorr` tells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.baselines.class_losses import noisy_clients
from fedgr_secure.errors import require
from fedgr_secure.wire import Array, Weights

LARGEST = 1e30
"""above every dimension that float64 distances have (`dimension`), and small enough to be squared"""


@dataclass(frozen=True)
class Estimate:
    """Server to client: you seem noisy; under these weights, estimate how much, and relabel the worst."""

    round: int
    weights: Weights


@dataclass(frozen=True)
class NoiseLevel:
    """Client to server: the share of its labels that it thinks wrong."""

    round: int
    level: float

    def __post_init__(self) -> None:
        if not 0 <= self.level <= 1:
            raise ValueError(f"level: {self.level}, allowed: from 0 to 1")


@dataclass(frozen=True)
class TrainStage:
    """Server to client: train from these weights.

    Attributes:
        proximal: weight of ||w - w_g||^2; 0 but for a noisy client's first stage.
        relabel: before that, take every sure prediction under these weights as the label, unless that was done.
    """

    round: int
    weights: Weights
    proximal: float
    relabel: bool

    def __post_init__(self) -> None:
        if not 0 <= self.proximal < np.inf:
            raise ValueError(f"proximal: {self.proximal}, allowed: a finite number from 0")


@dataclass(frozen=True)
class AskDimension:
    """Server to client: send the dimension of your predictions under the weights that your training ended with."""

    round: int


@dataclass(frozen=True)
class Dimension:
    """Client to server: the mean local intrinsic dimension of its predictions."""

    round: int
    mean: float

    def __post_init__(self) -> None:
        if not 0 <= self.mean <= LARGEST:
            raise ValueError(f"mean: {self.mean}, allowed: from 0 to {LARGEST:g}")


@dataclass(frozen=True)
class CorrClientState:
    """What a client remembers: its labels as corrected so far, and whether stage three has corrected them."""

    labels: NDArray[np.int64]
    corrected: bool


@dataclass(frozen=True)
class CorrState:
    """The global weights; by client number the sum and the number of its dimensions, and its level for stage two."""

    weights: Weights
    dimensions: dict[str, Array]
    levels: dict[str, Array]


def larger_scored(dimensions: Mapping[str, Array], seeds: Iterable[int]) -> frozenset[int]:
    """The clients whose mean dimension belongs to the larger component of a mixture over the clients' means.

    Args:
        dimensions: by client number, the sum and the number of its dimensions.
        seeds: of the fits; most of them decide.
    """
    clients = sorted(map(int, dimensions))
    pairs = [dimensions[str(client)] for client in clients]
    found = noisy_clients(np.array([[total / count] for total, count in pairs]).reshape(-1, 1), seeds)
    return frozenset(client for client, is_noisy in zip(clients, found, strict=True) if is_noisy)


def check_client_labels(state: CorrClientState, samples: int, classes: int) -> None:
    """Refuse labels that the client cannot have stored.

    Raises:
        InputError: naming what is allowed.
    """
    labels = state.labels
    fits = labels.shape == (samples,) and labels.dtype == np.int64
    require(fits, f"labels: {labels.dtype}{list(labels.shape)}, allowed: int64[{samples}]")
    require(bool(((labels >= 0) & (labels < classes)).all()), f"labels, allowed: 0 to {classes - 1}")


def check_told(dimensions: Mapping[str, Array], levels: Mapping[str, Array], samples: Sequence[int]) -> None:
    """Refuse stored scores that the clients cannot have told.

    Raises:
        InputError: naming the client and what is allowed.
    """
    known = {str(client) for client in range(len(samples))}
    for client in (*dimensions, *levels):
        require(client in known, f"scores: client {client!r}, allowed: 0 to {len(samples) - 1}")
    for client, pair in dimensions.items():
        fits = pair.shape == (2,) and pair.dtype == np.float64 and np.isfinite(pair).all()
        told = bool(fits and pair[1] >= 1 and 0 <= pair[0] / pair[1] <= LARGEST)
        require(told, f"dimensions: client {client}, allowed: sum and number")
    for client, level in levels.items():
        one = level.shape == () and level.dtype == np.float64
        require(one and 0 <= float(level) <= 1, f"levels: client {client}, allowed: from 0 to 1")
