"""Noisy clients by their mean losses of each class, and an average that trusts them less (Wu et al. 2023, FedNoRo).

What differs from the published code, or is ours, is told in `fednoro`.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.aggregate import by_samples
from fedgr_secure.errors import InputError, require
from fedgr_secure.messages import Update
from fedgr_secure.method.proxies import cap_losses
from fedgr_secure.wire import Array, Weights

Matrix = NDArray[np.float64]
_LARGEST_LOSS = float(np.finfo(np.float32).max)
_LARGEST_SAID = 1e39
"""above every mean of such losses, and small enough to be squared"""


@dataclass(frozen=True)
class Measure:
    """Server to client: say your mean loss of each class under these weights."""

    round: int
    weights: Weights


@dataclass(frozen=True)
class ClassLosses:
    """Client to server: float64 (C,) mean losses in nats, 0 for a class without samples, and int64 (C,) samples."""

    round: int
    losses: NDArray[Any]
    counts: NDArray[Any]

    def __post_init__(self) -> None:
        for name, array, kind in (("losses", self.losses, np.float64), ("counts", self.counts, np.int64)):
            fits = array.ndim == 1 and array.dtype == kind and array.shape == self.counts.shape
            if not fits or not ((array >= 0) & (array <= _LARGEST_SAID)).all():
                said = f"{array.dtype}{list(array.shape)}"
                raise ValueError(f"{name}: {said}, allowed: a number from 0 to {_LARGEST_SAID:g} a class")
        if self.losses[self.counts == 0].any():
            raise ValueError("losses, allowed: 0 for a class without samples")
        if not self.counts.any():
            raise ValueError("counts: 0 samples, allowed: from 1")

    @classmethod
    def of(cls, round: int, losses: Matrix, labels: NDArray[np.int64], classes: int) -> ClassLosses:
        """From the losses of a client's samples, float64 (n,); one that is no number counts as very large."""
        counts = np.bincount(labels, minlength=classes)
        sums = np.bincount(labels, cap_losses(losses, _LARGEST_LOSS), minlength=classes)
        return cls(round, sums / np.maximum(counts, 1), counts.astype(np.int64))


def class_vectors(losses: Matrix, counts: NDArray[np.int64]) -> Matrix:
    """The clients' losses (K, C) from 0 to 1 in each class; a client that lacks a class is put at the class's least.

    A class in which all have the same loss, or that nobody has, is 0 for everybody.
    """
    present = counts > 0
    low, high = np.where(present, losses, np.inf).min(0), np.where(present, losses, -np.inf).max(0)
    span = np.where(high > low, high - low, 1.0)
    return np.where(present, losses - low, 0.0) / span


def noisy_clients(vectors: Matrix, seeds: Iterable[int]) -> NDArray[np.bool_]:
    """Which rows belong to the component whose mean has the larger sum, as most of the fitted mixtures say it.

    Nobody is noisy where fewer than two clients, or only equal ones, are known.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    if len(vectors) < 2 or not np.ptp(vectors, axis=0).any():
        return np.zeros(len(vectors), bool)
    votes: Counter[tuple[bool, ...]] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for seed in seeds:
            mixture = GaussianMixture(2, random_state=seed).fit(vectors)
            worse = mixture.means_.sum(axis=1).argmax()
            votes[tuple((mixture.predict(vectors) == worse).tolist())] += 1
    return np.array(votes.most_common(1)[0][0])


def distance_weights(updates: Mapping[int, Update], noisy: frozenset[int]) -> Mapping[int, float]:
    """n_k exp(-d_k / max d), where d_k is the distance to the nearest clean client's model."""
    clean = [client for client in updates if client not in noisy]
    far = {
        client: min(distance(updates[client].weights, updates[other].weights) for other in clean)
        for client in updates
        if clean and client in noisy
    }
    largest = max(far.values(), default=0.0)
    if largest == 0:
        return by_samples(updates)
    return {client: update.samples * math.exp(-far.get(client, 0.0) / largest) for client, update in updates.items()}


def distance(one: Weights, other: Weights) -> float:
    """The L2 distance of two models over all floating-point tensors."""
    names = [name for name, value in one.items() if np.issubdtype(value.dtype, np.floating)]
    return math.sqrt(sum(float(np.square(one[n].astype(np.float64) - other[n]).sum()) for n in names))


def check_said(losses: Mapping[str, Array], counts: Mapping[str, Array], samples: Sequence[int]) -> None:
    """Refuse stored losses and counts that the clients cannot have said.

    Args:
        losses, counts: of `ClassLosses`, by client number.
        samples: of every client.

    Raises:
        InputError: naming the client and what is allowed.
    """
    require(losses.keys() == counts.keys(), "losses, allowed: of the clients whose counts there are")
    known = {str(client): size for client, size in enumerate(samples)}
    for client in losses:
        require(client in known, f"losses: client {client!r}, allowed: 0 to {len(samples) - 1}")
        try:
            total = int(ClassLosses(0, losses[client], counts[client]).counts.sum())
        except ValueError as error:
            raise InputError(f"client {client}: {error}") from None
        require(total == known[client], f"counts: client {client}: {total} samples, allowed: {known[client]}")
    check_alike(counts)


def check_alike(counts: Mapping[str, Array]) -> None:
    """Refuse clients that speak of different numbers of classes.

    Raises:
        InputError: naming the numbers.
    """
    sizes = sorted({len(said) for said in counts.values()})
    require(len(sizes) <= 1, f"class-wise losses: of {sizes} classes, allowed: one number for all clients")
