"""Cohorts: who is drawn in a round, and how the server half talks to them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.aggregate import Weigh, average, by_samples
from fedgr_secure.context import ClientHalf, Tally
from fedgr_secure.errors import InputError, require
from fedgr_secure.federation.counts import PURPOSE, SecureCounts
from fedgr_secure.federation.runner import ClientRunner
from fedgr_secure.federation.secure import SecureAggregation
from fedgr_secure.federation.sums import Heard, Hearing, Opened, Vanishes
from fedgr_secure.federation.view import ViewRecorder
from fedgr_secure.messages import Update
from fedgr_secure.method.messages import Counted
from fedgr_secure.randomness import Randomness
from fedgr_secure.records import SumRecord
from fedgr_secure.sections import DropoutConfig
from fedgr_secure.wire import Weights, to_bytes
from privacy.secagg import Phase
from privacy.secagg.messages import kind_of

BEFORE_UPLOAD = (Phase.ADVERTISE, Phase.SHARE, Phase.MASK)
"""a client that vanishes in one of these has no part in the average"""


def nobody_vanishes(client: int, phase: Phase) -> bool:
    """Every client answers in every phase."""
    return False


def draw_dropouts(config: DropoutConfig, round: int, randomness: Randomness) -> Vanishes:
    """Which clients vanish in which phase of a round: fixed by the seed, alike in the clear and under secure sums."""
    rates = {
        Phase.ADVERTISE: config.dropout_keys,
        Phase.SHARE: config.dropout_shares,
        Phase.MASK: config.dropout,
        Phase.UNMASK: config.dropout_unmask,
    }

    def vanishes(client: int, phase: Phase) -> bool:
        """One draw an address, so that the order of the questions does not matter."""
        rate = rates.get(phase, 0.0)
        if rate == 0.0:
            return False
        return bool(randomness.numpy(f"dropout {phase.name}", client=client, round=round).random() < rate)

    return vanishes


@dataclass
class Cohort:
    """This round's clients. What passes between them and the server is counted here, and recorded on request.

    Attributes:
        round: the round's number.
        halves: the client halves by client number.
        runner: how the clients are run.
        recorder: where the server's view is recorded.
        secure: how weights are averaged without showing one; None: in the clear.
        counts: how histograms are summed without showing one; None: they are not.
        vanishes: whether a client is gone before it answers in a phase of the averaging.
        bytes_up, bytes_down: serialised sizes of all messages so far.
        seconds: wall seconds by message type, and by phase of a secure sum.
        updates: local trainings done.
        survivors: whose updates are in the averages of this round; None before there is one.
        gone: who has vanished in the averages of this round, and answers nothing more.
        secure_sum: how the newest secure sum of weights went.
        counted: how the newest secure sum of histograms went.
        released: whether clients were asked for loss proxies.
    """

    round: int
    halves: Mapping[int, ClientHalf]
    runner: ClientRunner
    recorder: ViewRecorder
    secure: SecureAggregation | None = None
    counts: SecureCounts | None = None
    vanishes: Vanishes = nobody_vanishes
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    updates: int = 0
    survivors: tuple[int, ...] | None = None
    gone: set[int] = field(default_factory=set)
    secure_sum: SumRecord | None = None
    counted: SumRecord | None = None
    released: bool = False

    @property
    def clients(self) -> tuple[int, ...]:
        """Their numbers, in order."""
        return tuple(sorted(self.halves))

    def ask(self, message: Any, *, expect: type[Any] = Update) -> dict[int, Any]:
        """Send one message to every client (or each its own, by client number); their replies in client order.

        Who has vanished in this round's averaging does not reply.

        Raises:
            InputError: a reply is of another type than `expect`, or answers another round.
        """
        self.released = True
        return self._collect(self._still_here(self._send(message)), expect)

    def average(
        self,
        message: Any,
        start: Weights,
        *,
        samples: Mapping[int, int] | None = None,
        weigh: Weigh = by_samples,
    ) -> Weights:
        """Have every client train on a message; the weighted mean of what comes back (by default FedAvg's average).

        In the clear the server sees every update on the way; under secure aggregation it sees the mean alone. Clients
        that vanish are left out; when too few stay for a secure sum, the weights stay what they were.

        Args:
            message: for every client, or each its own by client number.
            start: the global weights that the message trains from.
            samples: how many samples each client has said to hold, where it has; in the clear no other is taken.
            weigh: how much each update counts; a secure sum knows no other way than FedAvg's.

        Raises:
            InputError: a reply is no update of this round or of other tensors, or states another number of samples; or
                updates that nobody sees are to be weighed by what is in them.
            DivergedError: an update holds a non-finite number.
        """
        each = self._send(message)
        if self.secure is not None:
            require(weigh is by_samples, "secagg: on, allowed: off (single updates are to be weighed, by --no-secagg)")
            return self._secure_average(self.secure, each, start)
        self._lose(each, BEFORE_UPLOAD)
        updates = self._collect(self._still_here(each), Update)
        self.survivors = tuple(sorted({*(self.survivors or ()), *updates}))
        for client, update in updates.items():
            said = samples[client] if samples is not None else update.samples
            who = f"client {client}, round {self.round}"
            require(said == update.samples, f"{who}: an update of {update.samples} samples, allowed: {said} as before")
        return average(start, updates, weigh)

    def tally(self, message: Any, weights: Weights, *, expect: type[Any]) -> Tally | None:
        """Send one message to every client; the secure sum of the counts in their replies.

        Args:
            message: for every client.
            weights: the global model that the sum is bound to.
            expect: the type of the replies, whose `upload` holds the counts; they stay on the clients' side.

        Returns:
            What the server sees; None when too few clients stayed.

        Raises:
            InputError: the run has no secure sums of counts.
        """
        counts = self.counts
        if counts is None:
            raise InputError("channel: histogram, allowed: with --secagg")
        each = self._send(message)
        self.released = True

        def encode(client: int) -> NDArray[np.int64]:
            """One client's noisy counts, on its own side of the wire."""
            upload: NDArray[np.int64] = self._answers({client: each[client]}, expect)[client].upload["counts"]
            return upload

        opened = counts.total(self.round, each, weights, encode, Hearing(self.vanishes, self._heard_as("Counts")))
        self.counted = opened.record
        self._pay(opened, "histogram sum")
        if opened.total is None:
            return None
        tally = Tally(opened.total.counts[PURPOSE].astype(np.int64), opened.record.survivors)
        seen = Counted(self.round, tally.counts, np.asarray(tally.contributors, np.int64))
        self.recorder.received(self.round, None, Counted.__name__, to_bytes(seen))
        return tally

    def _pay(self, opened: Opened, what: str) -> None:
        """Bytes and seconds of a secure sum."""
        for phase, cost in opened.costs.items():
            self.bytes_up += cost.bytes_up
            self.bytes_down += cost.bytes_down
            self.seconds[f"{what}: {phase.name.lower()}"] += cost.client_seconds + cost.server_seconds

    def _secure_average(self, secure: SecureAggregation, each: Mapping[int, Any], start: Weights) -> Weights:
        def train(client: int) -> Update:
            """One client's update, on its own side of the wire."""
            update: Update = self._answers({client: each[client]}, Update)[client]
            self.updates += 1
            return update

        weights, opened = secure.average(self.round, each, start, train, Hearing(self.vanishes, self._heard_as("Sum")))
        self.secure_sum, self.survivors = opened.record, opened.record.survivors
        self._lose(each, Phase)
        self._pay(opened, "secure sum")
        return weights

    def _lose(self, clients: Iterable[int], phases: Iterable[Phase]) -> None:
        """Note who vanishes in one of these phases."""
        self.gone |= {client for client in clients if any(self.vanishes(client, phase) for phase in phases)}

    def _still_here(self, each: Mapping[int, Any]) -> dict[int, Any]:
        """The messages that reach somebody."""
        return {client: one for client, one in each.items() if client not in self.gone}

    def _heard_as(self, what: str) -> Heard:
        """Tells the recorder of what the server saw of every message of a secure sum, under names that say which."""

        def heard(from_server: bool, client: int, data: bytes) -> None:
            """One message."""
            tell = self.recorder.sent if from_server else self.recorder.received
            tell(self.round, client, what + kind_of(data).name.title(), data)

        return heard

    def _send(self, message: Any) -> dict[int, Any]:
        """Count and record what goes down; the message of each client."""
        if isinstance(message, Mapping):
            for client, one in message.items():
                data = to_bytes(one)
                self.bytes_down += len(data)
                self.recorder.sent(self.round, client, type(one).__name__, data)
            return dict(message)
        data = to_bytes(message)
        self.bytes_down += len(data) * len(self.halves)
        self.recorder.sent(self.round, None, type(message).__name__, data)
        return dict.fromkeys(sorted(self.halves), message)

    def _collect(self, each: Mapping[int, Any], expect: type[Any]) -> dict[int, Any]:
        """The replies, counted and recorded as what the server receives."""
        replies = self._answers(each, expect)
        for client, reply in replies.items():
            data = to_bytes(reply)
            self.bytes_up += len(data)
            self.updates += isinstance(reply, Update)
            self.recorder.received(self.round, client, type(reply).__name__, data)
        return replies

    def _answers(self, each: Mapping[int, Any], expect: type[Any]) -> dict[int, Any]:
        """The replies on the clients' side, of the right type and round."""
        started = time.perf_counter()
        replies = self.runner.run(self.halves, each, round=self.round)
        for client, reply in replies.items():
            if not isinstance(reply, expect) or reply.round != self.round:
                raise InputError(
                    f"client {client}, round {self.round}: answered {type(reply).__name__}, "
                    f"allowed: {expect.__name__} of this round"
                )
        for name in {type(one).__name__.lower() for one in each.values()}:
            self.seconds[name] += time.perf_counter() - started
        return replies
