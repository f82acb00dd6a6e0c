"""What everybody in a secure sum agrees on, what a client insists on, and the digest that binds both to every key."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from privacy.secagg.errors import ConfigurationError, MessageError
from privacy.secagg.graph import Server, complete_threshold, find_degree
from privacy.secagg.groups import Layout

COMPLETE_UP_TO = 60
"""clients up to which everybody is everybody's neighbour: below it the sparse graph saves little and promises less"""

_FIXED = struct.Struct(">4sIIII")
_MAGIC = b"FSP1"


@dataclass(frozen=True)
class Parameters:
    """The public parameters of a secure sum.

    Attributes:
        layout: what is summed; `layout.clients` is the most that may take part.
        neighbours: k, with whom each client exchanges masks and shares; `layout.clients - 1` is the complete graph.
        threshold: t, how many of a client's share holders must answer. On the complete graph a client holds a share of
            its own besides its neighbours' (Bonawitz et al. 2017), on the ring it does not (Bell et al. 2020).
        absent: on the sparse graph, how many clients may fail to reveal their nonce for the ring order; each gives the
            server some choice between orders, which `for_cohort` pays for.
        survivors: the sum is given up below this many.
    """

    layout: Layout
    neighbours: int
    threshold: int
    absent: int = 0
    survivors: int = 2

    def __post_init__(self) -> None:
        for name in ("neighbours", "threshold", "absent", "survivors"):
            _require_whole(name, getattr(self, name))
        n, k, t = self.layout.clients, self.neighbours, self.threshold
        _require(n >= 2, f"clients: {n}, allowed: from 2 (the sum of one is its value)")
        _require(1 <= k <= n - 1, f"neighbours: {k}, allowed: from 1 to clients - 1 = {n - 1}")
        _require(k == n - 1 or k % 2 == 0, f"neighbours: {k}, allowed on a ring: an even number")
        holders = k + self.own_shares
        _require(
            holders // 2 < t <= holders, f"threshold: {t}, allowed: more than half of {holders} holders, at most all"
        )
        _require(t >= 2, f"threshold: {t}, allowed: from 2 (a share of 1 would be the secret)")
        _require(0 <= self.absent < n, f"absent: {self.absent}, allowed: from 0 to below clients = {n}")
        _require(2 <= self.survivors <= n, f"survivors: {self.survivors}, allowed: from 2 to clients = {n}")

    @property
    def complete(self) -> bool:
        """Whether everybody is everybody's neighbour."""
        return self.neighbours == self.layout.clients - 1

    @property
    def own_shares(self) -> int:
        """How many shares of its own secrets a client holds itself."""
        return int(self.complete)

    @property
    def honest(self) -> int:
        """The fewest honest clients whose sum a server can open, whatever it does (docs/secure_sums.md).

        It holds for parameters against an active server, while no more clients collude than they were made for.
        """
        return self.neighbours + 1 - self.threshold + (1 if self.complete else 2)

    def holders(self, member: int, neighbours: Iterable[int]) -> list[int]:
        """Who holds a share of `member`'s secrets, sorted."""
        return sorted([*neighbours, member] if self.complete else neighbours)

    @classmethod
    def for_cohort(
        cls,
        layout: Layout,
        *,
        colluders: int | None = None,
        dropout: float = 0.1,
        sigma: int = 40,
        eta: int = 30,
        server: Server = "active",
        survivors: int | None = None,
    ) -> Parameters:
        """Degree and threshold from the exact tail conditions (Bell et al. 2020), or the complete graph when small.

        Args:
            layout: what is summed, and the most clients.
            colluders: how many clients of this sum may collude with the server; default `default_colluders`. Who
                chooses the cohort can choose all of its colluders into it, so this is their number among everybody
                enrolled where the server chooses.
            dropout: share of clients that may vanish.
            sigma: -log2 of the chance that a client is exposed.
            eta: -log2 of the chance that the sum fails although no more than `dropout` vanish.
            server: what it may do; the sparse graph always counts on an active one.
            survivors: the fewest clients whose sum may be opened; default on the complete graph: t, and two honest.
                On the ring at least all but those that may vanish: fewer may not even be introduced, so that a server
                cannot surround a client with its colluders.

        Raises:
            ConfigurationError: no degree meets the conditions.
        """
        n = layout.clients
        _require(n >= 2, f"clients: {n}, allowed: from 2 (the sum of one is its value)")
        corrupted = default_colluders(n) if colluders is None else colluders
        _require_whole("colluders", corrupted)
        _require(0 <= corrupted <= n - 2, f"colluders: {corrupted} of {n} clients, allowed: from 0 to {n - 2}")
        fewest = corrupted + 2 if survivors is None else survivors
        if n <= COMPLETE_UP_TO:
            return cls._complete(layout, corrupted, dropout, server, fewest)
        corrupt = Fraction(corrupted, n)
        absent = max(1, n // 500)
        choices = (absent + 1) * n.bit_length() + 1  # orders of those who reveal, for every client that is told last
        least = max(fewest, n - math.floor(n * Fraction(str(dropout))))
        degree = find_degree(
            n, corrupt=corrupt, dropout=dropout, sigma=sigma + choices, eta=eta, server="active", least=least
        )
        if degree.neighbours >= n - 1:
            return cls._complete(layout, corrupted, dropout, server, fewest)
        return cls(layout, degree.neighbours, degree.threshold, absent, least)

    @classmethod
    def _complete(cls, layout: Layout, colluders: int, dropout: float, server: Server, fewest: int) -> Parameters:
        """Everybody is everybody's neighbour."""
        n = layout.clients
        threshold = complete_threshold(n, corrupt=Fraction(colluders, n), server=server)
        stay, needed = n - math.floor(n * Fraction(str(dropout))), max(fewest, threshold)
        _require(stay >= needed, f"dropout: {dropout} leaves {stay} of {n} clients, allowed: {needed} or more stay")
        return cls(layout, n - 1, threshold, survivors=needed)

    def to_bytes(self) -> bytes:
        """The one encoding of these parameters."""
        head = _FIXED.pack(_MAGIC, self.neighbours, self.threshold, self.absent, self.survivors)
        return head + self.layout.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Parameters:
        """Read parameters that somebody sent.

        Raises:
            MessageError: not such bytes.
            ConfigurationError: parameters that cannot work.
        """
        if len(data) < _FIXED.size or data[:4] != _MAGIC:
            raise MessageError(f"parameters: {len(data)} bytes that hold none of this version")
        _, neighbours, threshold, absent, survivors = _FIXED.unpack_from(data)
        return cls(Layout.from_bytes(data[_FIXED.size :]), neighbours, threshold, absent, survivors)


@dataclass(frozen=True)
class Policy:
    """What a client insists on, whatever the server proposes.

    Attributes:
        layout: the groups with their ranges, rings and weights: exactly these.
        threshold: t must be at least this.
        neighbours: k must be exactly this: with more, t would be a smaller part of them, and two camps could reach it.
        survivors: the client helps to open no sum of fewer.
        absent: at most so many clients may keep their nonce back, so that the server cannot choose the ring order.
    """

    layout: Layout
    threshold: int
    neighbours: int
    survivors: int
    absent: int = 0

    @classmethod
    def of(cls, parameters: Parameters) -> Policy:
        """Insist on exactly what these parameters promise."""
        return cls(
            parameters.layout, parameters.threshold, parameters.neighbours, parameters.survivors, parameters.absent
        )

    def check(self, parameters: Parameters) -> None:
        """Refuse parameters that promise less.

        Raises:
            ConfigurationError: naming the parameter, its value and what this client allows.
        """
        _require(parameters.layout == self.layout, "layout: other groups, ranges, rings or weights than this client's")
        for name in ("threshold", "survivors"):
            given, least = getattr(parameters, name), getattr(self, name)
            _require(given >= least, f"{name}: {given}, allowed by this client: from {least}")
        given, exactly = parameters.neighbours, self.neighbours
        _require(given == exactly, f"neighbours: {given}, allowed by this client: {exactly}")
        _require(
            parameters.absent <= self.absent,
            f"absent: {parameters.absent}, allowed by this client: up to {self.absent}",
        )


def default_colluders(clients: int) -> int:
    """A tenth of the clients, but one at least where that leaves two honest ones.

    >>> [default_colluders(clients) for clients in (2, 3, 10, 19, 100)]
    [0, 1, 1, 1, 10]
    """
    return min(max(clients // 10, 1), clients - 2)


def sum_context(session: bytes, round: int, purpose: str, parameters: Parameters, model: bytes) -> bytes:
    """The 32 bytes that name one sum: they are in every message and under every key of it.

    Args:
        session: any bytes that name the run.
        round: from 0.
        purpose: which sum of the round, such as "weights"; separate sums share no key material.
        parameters: the public parameters.
        model: a digest of the global model that the values were computed from.

    Raises:
        ConfigurationError: an argument of another type, or a negative round.
    """
    for name, value in (("session", session), ("model", model)):
        _require(isinstance(value, bytes), f"{name}: a {type(value).__name__}, allowed: bytes")
    _require_whole("round", round)
    _require(0 <= round < 2**64, f"round: {round}, allowed: from 0 to below 2^64")
    _require(isinstance(purpose, str) and purpose.isprintable(), f"purpose: {purpose!r}, allowed: printable text")
    state = hashlib.sha256(b"fedgr-secure secure sum 2\0")
    for part in (session, round.to_bytes(8, "big"), purpose.encode(), parameters.to_bytes(), model):
        state.update(len(part).to_bytes(8, "big") + part)
    return state.digest()


def require_context(context: bytes) -> None:
    """Refuse what `sum_context` cannot have given: in an envelope it would be cut or filled up without notice."""
    whole = isinstance(context, bytes) and len(context) == hashlib.sha256().digest_size
    _require(whole, f"context: a {type(context).__name__}, allowed: the 32 bytes that sum_context gives")


def _require_whole(name: str, value: int) -> None:
    _require(type(value) is int, f"{name}: {value!r}, allowed: a whole number")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigurationError(message)
