"""The cohort's weights under secure aggregation: what a client sends is masked, what the server gets is the mean."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.aggregate import check_weights
from fedgr_secure.errors import InputError, require
from fedgr_secure.federation.sums import Hearing, Opened, SecureSums
from fedgr_secure.messages import Update
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import SecureSumConfig
from fedgr_secure.wire import Weights
from privacy.secagg import ConfigurationError, Contribution, Group, Layout, Parameters

PURPOSE = "weights"
PARAMETERS, BUFFERS = "parameters", "buffers"


@dataclass(frozen=True)
class Packing:
    """How a model's tensors lie in the groups of a sum.

    Trainable parameters are one group; floating-point buffers (BatchNorm's running statistics) another, with a range of
    their own; integer buffers (BatchNorm's counters) are left out and keep the server's value.

    Attributes:
        names: tensor names by group, in the order in which they are laid out.
    """

    names: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, weights: Weights, trainable: Iterable[str]) -> Packing:
        """The packing of a model's weights."""
        trained = set(trainable)
        floats = [name for name, value in weights.items() if np.issubdtype(value.dtype, np.floating)]
        groups = {
            PARAMETERS: tuple(name for name in floats if name in trained),
            BUFFERS: tuple(name for name in floats if name not in trained),
        }
        return cls({group: names for group, names in groups.items() if names})

    def difference(self, weights: Weights, start: Weights) -> dict[str, NDArray[np.float32]]:
        """w_k - w_g by group, float32 vectors."""
        return {
            group: np.concatenate([(weights[name] - start[name]).ravel() for name in names]).astype(np.float32)
            for group, names in self.names.items()
        }

    def moved(self, start: Weights, means: Mapping[str, NDArray[np.float64]]) -> Weights:
        """w_g plus the mean difference; what is in no group stays as it is."""
        result = dict(start)
        for group, names in self.names.items():
            at = 0
            for name in names:
                value = start[name]
                step = means[group][at : at + value.size].reshape(value.shape)
                result[name] = (value + step).astype(value.dtype)
                at += value.size
        return result


@dataclass(frozen=True)
class SecureAggregation:
    """Secure sums of the clients' weights, one a round.

    Attributes:
        sums: the run's secure sums.
        packing: tensors to groups.
        parameters: of the sums, by how many clients are drawn.
        samples: the clients' numbers of samples, each known to its client alone.
        randomness: of the stochastic rounding.
    """

    sums: SecureSums
    packing: Packing
    parameters: Mapping[int, Parameters]
    samples: Mapping[int, int]
    randomness: Randomness

    @classmethod
    def for_run(
        cls,
        sums: SecureSums,
        settings: SecureSumConfig,
        weights: Weights,
        trainable: Iterable[str],
        samples: Mapping[int, int],
        randomness: Randomness,
        *,
        sizes: Iterable[int],
    ) -> SecureAggregation:
        """Set up for one run; `samples` are the clients' numbers of samples, `sizes` those of the cohorts to come.

        Raises:
            InputError: the numbers do not fit the ring, a client has more samples than the public bound, or a cohort is
                too small for a sum.
        """
        packing = Packing.of(weights, trainable)
        largest = settings.largest_samples or 1 << (max(samples.values()) - 1).bit_length()
        too_large = [client for client, count in samples.items() if count > largest]
        if too_large:
            raise InputError(
                f"client {too_large[0]}: {samples[too_large[0]]} samples, allowed: at most largest_samples = {largest}"
            )
        limits = {PARAMETERS: settings.update_limit, BUFFERS: settings.buffer_limit}
        rings: dict[str, int] = {PARAMETERS: settings.ring, BUFFERS: 64}
        with refusing():
            groups = tuple(
                Group(name, sum(weights[tensor].size for tensor in names), limits[name], bits=rings[name])  # type: ignore[arg-type]
                for name, names in packing.names.items()
            )
            parameters = {size: parameters_of(Layout(groups, size, largest), settings) for size in sizes}
        return cls(sums, packing, parameters, samples, randomness)

    def average(
        self,
        round: int,
        clients: Iterable[int],
        start: Weights,
        train: Callable[[int], Update],
        around: Hearing,
    ) -> tuple[Weights, Opened]:
        """Train every client and move `start` by the weighted mean of what they learned.

        When too few clients are left the weights stay what they were.
        """
        weights = {client: self.samples[client] for client in clients}

        def contribute(client: int) -> Contribution:
            """Train one client; what it puts into the sum."""
            update = train(client)
            check_weights(update.weights, start, who=f"client {client}, round {round}: update")
            rounding = self.randomness.numpy("stochastic rounding", client=client, round=round)
            said = self.samples[client]
            require(update.samples == said, f"client {client}: an update of {update.samples} samples, allowed: {said}")
            return Contribution(self.packing.difference(update.weights, start), rounding)

        opened = self.sums.open(
            round,
            PURPOSE,
            self.parameters[len(weights)],
            model=model_digest(start),
            weights=weights,
            contribute=contribute,
            around=around,
        )
        return start if opened.total is None else self.packing.moved(start, opened.total.means), opened


def parameters_of(layout: Layout, settings: SecureSumConfig) -> Parameters:
    """Neighbours and threshold of a sum under the run's settings.

    Raises:
        ConfigurationError: none will do.
    """
    return Parameters.for_cohort(layout, colluders=settings.colluders, dropout=settings.expected_dropout)


@contextmanager
def refusing() -> Iterator[None]:
    """Settings that no secure sum can have are bad input."""
    try:
        yield
    except ConfigurationError as error:
        raise InputError(f"secagg: {error}") from None


def model_digest(weights: Weights) -> bytes:
    """SHA-256 over names, types, shapes and values: which global model a sum belongs to."""
    state = hashlib.sha256()
    for name, value in weights.items():
        state.update(f"{name}\0{value.dtype.str}{value.shape}\0".encode())
        state.update(np.ascontiguousarray(value).data)
    return state.digest()
