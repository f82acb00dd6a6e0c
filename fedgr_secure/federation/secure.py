"""The cohort's weights under secure aggregation: what a client sends is masked, what the server gets is the mean."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.aggregate import check_weights
from fedgr_secure.config import Config
from fedgr_secure.errors import InputError, require
from fedgr_secure.messages import Update
from fedgr_secure.randomness import Randomness
from fedgr_secure.records import SumRecord
from fedgr_secure.wire import Weights
from privacy.secagg import (
    AbortError,
    ConfigurationError,
    Contribution,
    Enrolment,
    Entropy,
    Group,
    Identity,
    InsecureSeededEntropy,
    Layout,
    Parameters,
    Phase,
    PhaseCost,
    Policy,
    SecureSumClient,
    SecureSumServer,
    SystemEntropy,
    Total,
    Wire,
    sum_context,
)

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


@dataclass
class SecureAggregation:
    """Secure sums of the clients' weights, one a round, each with new keys.

    Attributes:
        packing: tensors to groups.
        parameters: of the sums, by how many clients are drawn.
        samples: the clients' numbers of samples, each known to its client alone.
        identities: the clients' long-term keys; the server only knows their public halves (`enrolled`).
        session: names the run under every key.
        seed: of the insecure entropy, or None for the operating system's.
        randomness: of the stochastic rounding.
        threads: for masks.
    """

    packing: Packing
    parameters: Mapping[int, Parameters]
    samples: Mapping[int, int]
    identities: Mapping[int, Identity]
    session: bytes
    seed: int | None
    randomness: Randomness
    threads: int = 1
    enrolled: Enrolment = field(init=False)

    def __post_init__(self) -> None:
        self.enrolled = Enrolment({number: identity.public for number, identity in self.identities.items()})

    @classmethod
    def for_run(
        cls,
        config: Config,
        weights: Weights,
        trainable: Iterable[str],
        samples: Mapping[int, int],
        randomness: Randomness,
        *,
        sizes: Iterable[int],
        threads: int = 1,
    ) -> SecureAggregation:
        """Set up for one run; `samples` are the clients' numbers of samples, `sizes` those of the cohorts to come.

        Raises:
            InputError: the numbers do not fit the ring, a client has more samples than the public bound, or a cohort is
                too small for a sum.
        """
        settings, packing = config.secure_sum, Packing.of(weights, trainable)
        largest = settings.largest_samples or 1 << (max(samples.values()) - 1).bit_length()
        too_large = [client for client, count in samples.items() if count > largest]
        if too_large:
            raise InputError(
                f"client {too_large[0]}: {samples[too_large[0]]} samples, allowed: at most largest_samples = {largest}"
            )
        limits = {PARAMETERS: settings.update_limit, BUFFERS: settings.buffer_limit}
        rings: dict[str, int] = {PARAMETERS: settings.ring, BUFFERS: 64}
        try:
            groups = tuple(
                Group(name, sum(weights[tensor].size for tensor in names), limits[name], bits=rings[name])  # type: ignore[arg-type]
                for name, names in packing.names.items()
            )
            parameters = {
                size: Parameters.for_cohort(
                    Layout(groups, size, largest), corrupt=settings.corrupt, dropout=settings.expected_dropout
                )
                for size in sizes
            }
        except ConfigurationError as error:
            raise InputError(f"secagg: {error}") from None
        seed = config.seed if settings.entropy == "insecure-seeded" else None
        session = _entropy(seed, "session").draw(32)
        identities = {client: Identity.generate(_entropy(seed, "identity", client)) for client in samples}
        return cls(packing, parameters, samples, identities, session, seed, randomness, threads)

    def average(
        self,
        round: int,
        clients: Iterable[int],
        start: Weights,
        train: Callable[[int], Update],
        *,
        vanishes: Callable[[int, Phase], bool],
        heard: Callable[[bool, int, bytes], None],
    ) -> tuple[Weights, SumRecord, Mapping[Phase, PhaseCost]]:
        """Train every client and move `start` by the weighted mean of what they learned.

        A client's update exists only on its own side: the server half of the sum takes masked vectors and adds each to
        one running sum as it comes. When too few clients are left the weights stay what they were; the record says why.
        """
        cohort = tuple(clients)
        parameters = self.parameters[len(cohort)]
        context = sum_context(self.session, round, PURPOSE, parameters, model_digest(start))
        halves = {client: self._client(client, round, parameters, context) for client in cohort}
        server = SecureSumServer(enrolled=self.enrolled, parameters=parameters, context=context, threads=self.threads)

        def contribute(client: int) -> Contribution:
            """Train one client; what it puts into the sum."""
            update = train(client)
            check_weights(update.weights, start, who=f"client {client}, round {round}: update")
            rounding = self.randomness.numpy("stochastic rounding", client=client, round=round)
            said = self.samples[client]
            require(update.samples == said, f"client {client}: an update of {update.samples} samples, allowed: {said}")
            return Contribution(self.packing.difference(update.weights, start), rounding)

        wire = Wire(server, halves, contribute, vanishes, heard)
        total: Total | None = None
        aborted = None
        try:
            total = wire.run()
        except AbortError as error:
            aborted = str(error)
        weights = start if total is None else self.packing.moved(start, total.means)
        return weights, _record(parameters, self.seed, wire, total, aborted), wire.costs

    def _client(self, number: int, round: int, parameters: Parameters, context: bytes) -> SecureSumClient:
        return SecureSumClient(
            number,
            self.identities[number],
            enrolled=self.enrolled,
            parameters=parameters,
            policy=Policy.of(parameters),
            context=context,
            weight=self.samples[number],
            entropy=_entropy(self.seed, "sum", number, round),
            threads=self.threads,
        )


def _record(
    parameters: Parameters, seed: int | None, wire: Wire, total: Total | None, aborted: str | None
) -> SumRecord:
    return SumRecord(
        neighbours=parameters.neighbours,
        threshold=parameters.threshold,
        survivors=wire.server.survivors if total is not None else (),
        aborted=aborted,
        clipped=dict(total.clipped) if total is not None else {},
        entropy="system" if seed is None else "insecure-seeded",
        bytes_up={phase.name.lower(): cost.bytes_up for phase, cost in wire.costs.items()},
        bytes_down={phase.name.lower(): cost.bytes_down for phase, cost in wire.costs.items()},
    )


def model_digest(weights: Weights) -> bytes:
    """SHA-256 over names, types, shapes and values: which global model a sum belongs to."""
    state = hashlib.sha256()
    for name, value in weights.items():
        state.update(f"{name}\0{value.dtype.str}{value.shape}\0".encode())
        state.update(np.ascontiguousarray(value).data)
    return state.digest()


def _entropy(seed: int | None, *address: int | str) -> Entropy:
    return SystemEntropy() if seed is None else InsecureSeededEntropy(seed, *address)
