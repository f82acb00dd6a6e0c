"""The secure sums of a run: who is enrolled, under which session, and one sum from its name to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from fedgr_secure.records import SumRecord
from fedgr_secure.sections import SecureSumConfig
from privacy.secagg import (
    AbortError,
    Contribution,
    Enrolment,
    Entropy,
    Identity,
    InsecureSeededEntropy,
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

Vanishes = Callable[[int, Phase], bool]
Heard = Callable[[bool, int, bytes], None]


@dataclass(frozen=True)
class Hearing:
    """What happens around a sum: who vanishes when, and who is told of every message."""

    vanishes: Vanishes
    heard: Heard


@dataclass(frozen=True)
class Opened:
    """How a sum ended.

    Attributes:
        total: the sum, or None when too few clients were left.
        record: for the run's records.
        costs: by phase.
    """

    total: Total | None
    record: SumRecord
    costs: Mapping[Phase, PhaseCost]


@dataclass(frozen=True)
class SecureSums:
    """Everything that the secure sums of a run share; each sum has keys of its own.

    Attributes:
        identities: the clients' long-term keys; the server only knows their public halves (`enrolled`).
        session: names the run under every key.
        seed: of the insecure entropy, or None for the operating system's.
        threads: for masks.
    """

    identities: Mapping[int, Identity]
    session: bytes
    seed: int | None
    threads: int = 1
    enrolled: Enrolment = field(init=False)

    def __post_init__(self) -> None:
        public = {number: identity.public for number, identity in self.identities.items()}
        object.__setattr__(self, "enrolled", Enrolment(public))

    @classmethod
    def for_clients(cls, clients: Iterable[int], settings: SecureSumConfig, *, seed: int, threads: int) -> SecureSums:
        """New identities and a new session."""
        own = seed if settings.entropy == "insecure-seeded" else None
        identities = {client: Identity.generate(_entropy(own, "identity", client)) for client in clients}
        return cls(identities, _entropy(own, "session").draw(32), own, threads)

    def open(
        self,
        round: int,
        purpose: str,
        parameters: Parameters,
        *,
        model: bytes,
        weights: Mapping[int, int],
        contribute: Callable[[int], Contribution],
        around: Hearing,
    ) -> Opened:
        """One sum over the clients in `weights`, which are their weights in it.

        A client's contribution exists only on its own side: the server half takes masked vectors and adds each to one
        running sum as it comes. When too few clients are left there is no total; the record says why.

        Args:
            round, purpose, model: name the sum (`sum_context`).
            parameters: of the sum.
            weights: by client.
            contribute: what a client puts in; called once, when it masks.
            around: who vanishes, and who listens.
        """
        context = sum_context(self.session, round, purpose, parameters, model)
        halves = {
            client: self._client(client, (purpose, round), parameters, context, weight)
            for client, weight in weights.items()
        }
        server = SecureSumServer(enrolled=self.enrolled, parameters=parameters, context=context, threads=self.threads)
        wire = Wire(server, halves, contribute, around.vanishes, around.heard)
        total: Total | None = None
        aborted = None
        try:
            total = wire.run()
        except AbortError as error:
            aborted = str(error)
        return Opened(total, self._record(parameters, wire, total, aborted), wire.costs)

    def _client(
        self, number: int, name: tuple[str, int], parameters: Parameters, context: bytes, weight: int
    ) -> SecureSumClient:
        return SecureSumClient(
            number,
            self.identities[number],
            enrolled=self.enrolled,
            parameters=parameters,
            policy=Policy.of(parameters),
            context=context,
            weight=weight,
            entropy=_entropy(self.seed, "sum", number, *name),
            threads=self.threads,
        )

    def _record(self, parameters: Parameters, wire: Wire, total: Total | None, aborted: str | None) -> SumRecord:
        return SumRecord(
            neighbours=parameters.neighbours,
            threshold=parameters.threshold,
            survivors=wire.server.survivors if total is not None else (),
            aborted=aborted,
            clipped=dict(total.clipped) if total is not None else {},
            entropy="system" if self.seed is None else "insecure-seeded",
            bytes_up={phase.name.lower(): cost.bytes_up for phase, cost in wire.costs.items()},
            bytes_down={phase.name.lower(): cost.bytes_down for phase, cost in wire.costs.items()},
        )


def _entropy(seed: int | None, *address: int | str) -> Entropy:
    return SystemEntropy() if seed is None else InsecureSeededEntropy(seed, *address)
