"""What the two halves of a method are given, and the shapes that they have.

A method is a client half and a server half that share no object; they exchange frozen messages. A method's file
registers a `Method`, and everything else (runner, view, checkpoint, evaluator, adapters) works from that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.aggregate import Weigh, by_samples
from fedgr_secure.data.types import Shard
from fedgr_secure.messages import Update
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import Config
from fedgr_secure.wire import Weights
from privacy.channels.channel import Channel, Memory, Upload
from privacy.claims import PrivacyClaim
from privacy.mechanisms import NoiseSource

if TYPE_CHECKING:
    from fedgr_secure.method.sieve import Mixture, Verdict
    from fedgr_secure.training import Workbench


Release = tuple[Upload, Memory]
"""what a client uploads of its losses, and what it remembers of that"""


class Releases(Protocol):
    """Where a client keeps what it has released, so that a round that is played again releases nothing new."""

    def once(self, client: int, round: int, make: Callable[[], Release]) -> Release:
        """The client's release of this round: the one that is kept, or else a new one, which is kept first."""


@dataclass(frozen=True)
class ClientContext:
    """One client's surroundings: its own data, and the tools of the process that plays it.

    Attributes:
        channel: how its loss proxies reach the server.
        noise: where a private channel's noise comes from, by round.
        releases: what it has released.
        oracle_rate: its true noise rate, where the configuration asks for it (`checks.oracle`); the only truth that a
            client can be told.
    """

    shard: Shard
    classes: int
    config: Config
    bench: Workbench
    randomness: Randomness
    channel: Channel
    noise: Callable[[int], NoiseSource]
    releases: Releases
    oracle_rate: float | None = None


@dataclass(frozen=True)
class ServerContext:
    """The server's surroundings."""

    config: Config
    initial_weights: Weights
    randomness: Randomness
    channel: Channel


@dataclass(frozen=True)
class Tally:
    """What the server sees of a secure sum of counts.

    Attributes:
        counts: int64 (bins,), the sum over the contributors.
        contributors: whose counts are in it.
    """

    counts: NDArray[np.int64]
    contributors: tuple[int, ...]


class AskCohort(Protocol):
    """This round's clients, wherever they live."""

    @property
    def clients(self) -> tuple[int, ...]:
        """Their numbers, in order."""

    @property
    def survivors(self) -> tuple[int, ...] | None:
        """Whose updates are in this round's averages; None before there is one."""

    def ask(self, message: Any, *, expect: type[Any] = Update) -> dict[int, Any]:
        """Send one message to every client of the cohort (or each its own, by client number); their replies.

        Who has vanished in this round's averaging does not reply.
        """

    def tally(self, message: Any, weights: Weights, *, expect: type[Any]) -> Tally | None:
        """Send one message to every client; the secure sum of the counts in their replies, or None below threshold."""

    def average(
        self, message: Any, start: Weights, *, samples: Mapping[int, int] | None = None, weigh: Weigh = by_samples
    ) -> Weights:
        """Have every client train on a message; FedAvg's average, as a secure sum or in the clear, or there another."""


class ClientHalf(Protocol):
    """One client in one round; `state` is kept until its next participation."""

    state: Any

    def answer(self, message: Any) -> Any:
        """The reply message, or a `TrainingTask` that ends in it."""


class ServerHalf(Protocol):
    """The server; `state` is what a checkpoint keeps of it, and holds the global `weights`."""

    state: Any

    def round(self, number: int, cohort: AskCohort) -> Mixture | None:
        """One round; the mixture, if one was fitted, for the record."""


@dataclass(frozen=True)
class Method:
    """A method as the rest of the software sees it.

    Attributes:
        name: as on the command line.
        source: author, year, venue.
        stages: what happens when, in words.
        client, server: make the halves from a context and a stored state (None: first time).
        messages: every message type that the halves exchange.
        client_state, server_state: the record types of the stored states (None: nothing is stored).
        claims: what is promised about everything that leaves a client, given how proxies travel and what is promised
            about the weights.
        verdict: the client's estimate of its own label errors, from its state; None where the method makes none.
        releases: how many releases the client was charged for, from its state; None where the method makes none.
        mean_losses: the client's running-mean losses, from its state; None where the method keeps none.
        check_client: refuses (`InputError`) a stored client state that does not fit the client.
        check_server: refuses a stored server state that does not fit the clients' numbers of samples; its `weights` are
            checked for every method.
        pooled: the method trains on everybody's data in one place (no federation).
        networks: how many networks of the configured kind are its one model (`models.several`).
        uploads: what leaves a client beside the model it trained, in words; None for nothing.
        under_secure_sum: what can travel under a secure sum and what not, in words; None when everything can.
    """

    name: str
    source: str
    stages: str
    client: Callable[[ClientContext, Any], ClientHalf]
    server: Callable[[ServerContext, Any], ServerHalf]
    messages: tuple[type[Any], ...]
    client_state: type[Any] | None
    server_state: type[Any]
    claims: Callable[[Config, Channel, PrivacyClaim], tuple[PrivacyClaim, ...]]
    verdict: Callable[[Any], Verdict | None] | None = None
    mean_losses: Callable[[Any], Any] | None = None
    releases: Callable[[Any], int] | None = None
    check_client: Callable[[Any, ClientContext], None] | None = None
    check_server: Callable[[Any, Sequence[int]], None] | None = None
    pooled: bool = False
    networks: int = 1
    uploads: str | None = None
    under_secure_sum: str | None = None
