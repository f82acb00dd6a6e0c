"""A whole secure sum in one process: the wire between both halves, with clients that vanish on request."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privacy.secagg.client import Phase, SecureSumClient
from privacy.secagg.errors import AbortError
from privacy.secagg.groups import Total
from privacy.secagg.server import SecureSumServer


@dataclass(frozen=True)
class Contribution:
    """What one client puts into the sum: values by group, which are never shown, and the generator of the rounding."""

    values: Mapping[str, NDArray[Any]] = field(repr=False)
    rounding: np.random.Generator


@dataclass
class PhaseCost:
    """One phase of a sum.

    Attributes:
        bytes_up, bytes_down: from and to all clients.
        client_seconds, server_seconds: wall time in the two halves; `client_seconds` leaves out what computes the
            contributions.
    """

    bytes_up: int = 0
    bytes_down: int = 0
    client_seconds: float = 0.0
    server_seconds: float = 0.0


@dataclass
class Wire:
    """Moves the bytes of one sum, and counts them.

    Attributes:
        server, clients: the halves.
        contribute: what a client puts in; called once, when the client masks.
        vanishes: whether a client is gone before it answers in a phase.
        heard: told every message, as (sender is the server, client, bytes): for a recorder.
        costs: by phase, in order.
        left: why a client gave up, by number, for those that did by themselves.
    """

    server: SecureSumServer
    clients: Mapping[int, SecureSumClient]
    contribute: Callable[[int], Contribution]
    vanishes: Callable[[int, Phase], bool] = lambda number, phase: False
    heard: Callable[[bool, int, bytes], None] = lambda from_server, number, data: None
    costs: dict[Phase, PhaseCost] = field(default_factory=dict)
    left: dict[int, str] = field(default_factory=dict)

    def run(self) -> Total:
        """Every phase to the end, after which no client holds a secret of this sum, however it ended.

        Raises:
            AbortError: too few clients are left.
        """
        inbox: Mapping[int, bytes] = dict.fromkeys(sorted(self.clients), b"")
        try:
            while inbox:
                inbox = self._phase(inbox)
        finally:
            for client in self.clients.values():
                client.abort()
        return self.server.result

    def _phase(self, inbox: Mapping[int, bytes]) -> dict[int, bytes]:
        phase = PHASE_OF_SERVER[self.server.phase.name]
        cost = self.costs.setdefault(phase, PhaseCost())
        for number in sorted(inbox):
            if self.vanishes(number, phase):
                continue
            try:
                data = self._answer(phase, number, inbox[number], cost)
            except AbortError as error:
                self.left[number] = f"{phase.name.lower()}: {error}"
                continue
            cost.bytes_up += len(data)
            self.heard(False, number, data)
            started = time.perf_counter()
            self.server.receive(data)
            cost.server_seconds += time.perf_counter() - started
        started = time.perf_counter()
        outbox = self.server.close_phase()
        cost.server_seconds += time.perf_counter() - started
        for number, data in outbox.items():
            cost.bytes_down += len(data)
            self.heard(True, number, data)
        return outbox

    def _answer(self, phase: Phase, number: int, message: bytes, cost: PhaseCost) -> bytes:
        given = self.contribute(number) if phase is Phase.MASK else None
        client, started = self.clients[number], time.perf_counter()
        try:
            if phase is Phase.ADVERTISE:
                return client.advertise()
            if given is not None:
                return client.mask(message, given.values, given.rounding)
            step: Callable[[bytes], bytes] = getattr(client, phase.name.lower())
            return step(message)
        finally:
            cost.client_seconds += time.perf_counter() - started


PHASE_OF_SERVER = {
    "ADVERTS": Phase.ADVERTISE,
    "REVEALS": Phase.REVEAL,
    "SHARES": Phase.SHARE,
    "MASKED": Phase.MASK,
    "CONFIRMS": Phase.CONFIRM,
    "UNMASKS": Phase.UNMASK,
}
