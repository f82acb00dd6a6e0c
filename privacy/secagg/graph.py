"""Who shares keys with whom: the degree, the threshold and the random ring of one secure sum.

Bell et al. 2020 (SecAgg+), section 3: every client has `k` neighbours on a ring in random order, and `t` of them must
answer. Every probability is compared in exact integers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Literal

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from privacy.secagg.errors import ConfigurationError

SEED_BYTES = 32

Server = Literal["curious", "lying", "active"]
"""What the server may do: read; tell clients different survivors, of those that vanish by chance; choose as well who is
called vanished, to whom, and whose boxes arrive (with `lying`, the semi-malicious server of Bell et al. 2020)."""


@dataclass(frozen=True)
class Degree:
    """How many neighbours a client has, and how many of their shares rebuild its secrets.

    The shares are `threshold` of `neighbours`: a client holds none of its own. With one of its own there are
    `neighbours + 1`, and a lying server needs that many to be counted.

    Attributes:
        neighbours: k, even: half of them on each side of the ring.
        threshold: t, from 2 to k.
    """

    neighbours: int
    threshold: int


def find_degree(
    clients: int,
    *,
    corrupt: float | Fraction,
    dropout: float,
    sigma: int = 40,
    eta: int = 30,
    server: Server,
    least: int | None = None,
) -> Degree:
    """The fewest neighbours that keep every secret but for 2^-sigma, and lose the sum with probability 2^-eta at most.

    Four conditions (Bell et al. 2020): honest survivors stay connected, no client has `t` corrupt neighbours, every
    client has `t` surviving ones, and no lying server gets both kinds of share of one client. Against an active server
    one condition of ours implies the second and the last: no k/2 successive places of the ring hold t - k/2 corrupt
    clients (docs/secure_sums.md). The fractions become whole clients, rounded down: below some 60 clients the complete
    graph is the safer choice.

    Args:
        clients: how many take part.
        corrupt: the fraction that may collude with the server, in [0, 1).
        dropout: the fraction that may vanish during the sum, in [0, 1).
        sigma: bits of secrecy.
        eta: bits of correctness.
        server: what it may do.
        least: the fewest clients that the server may introduce (default: all). Every corrupt client may be among them,
            so secrecy and connection are those of a ring of this many; more than half of `clients`.

    Raises:
        ConfigurationError: no even number of neighbours below `clients` will do, or an argument is out of range.

    >>> find_degree(100, corrupt=0.05, dropout=0.05, server="lying")
    Degree(neighbours=16, threshold=11)
    >>> find_degree(100, corrupt=0.05, dropout=0.05, server="active")
    Degree(neighbours=22, threshold=17)
    """
    corrupted, dropped = _part(clients, "corrupt", corrupt), _part(clients, "dropout", dropout)
    _require_whole("sigma", sigma, 1)
    _require_whole("eta", eta, 1)
    ring = clients if least is None else least
    if not clients // 2 < ring <= clients:
        raise ConfigurationError(f"least: {least}, allowed: more than half of {clients} clients, at most all")
    if ring < clients:
        sigma += 1  # the union is over at most `clients`, fewer than twice as many as are on the smallest ring
    found = _least_degree(clients, ring, corrupted, dropped, (sigma + 1, eta), server)
    if found is not None:
        return found
    raise ConfigurationError(
        f"clients: {clients} with corrupt {corrupt}, dropout {dropout}, sigma {sigma}, eta {eta} and a "
        f"server that is {server} leave no number of neighbours, allowed: smaller fractions, "
        "more clients or the complete graph"
    )


def _least_degree(
    clients: int, ring: int, corrupted: int, dropped: int, bits: tuple[int, int], server: Server
) -> Degree | None:
    """The search of `find_degree` in whole clients; `bits` of secrecy for each condition, and of correctness."""
    sigma, eta = bits
    secrecy = 1  # the corrupt clients that no such part of a neighbourhood holds; it grows with the degree
    for neighbours in range(2, ring, 2):
        part = neighbours // 2 if server == "active" else neighbours
        while _is_common(ring, corrupted, part, secrecy, sigma):
            secrecy += 1
        threshold = _graph_threshold(neighbours, secrecy, server)
        if _is_common(clients, dropped, neighbours, neighbours - threshold + 1, eta):
            continue
        while not _is_rare(ring, corrupted, part, secrecy, sigma):
            secrecy += 1
        threshold = _graph_threshold(neighbours, secrecy, server)
        if _is_connected(ring, corrupted + dropped, neighbours, sigma) and _is_rare(
            clients, dropped, neighbours, neighbours - threshold + 1, eta
        ):
            return Degree(neighbours, threshold)
    return None


def complete_threshold(clients: int, *, corrupt: float | Fraction, server: Server) -> int:
    """The threshold where everybody is everybody's neighbour: `t` of `clients` shares, one of them the client's own.

    Bonawitz et al. 2017, section 6: more than half against a curious server, and 2 t > n + corrupt against any other.

    Raises:
        ConfigurationError: the corrupt clients alone would hold `t` shares, or an argument is out of range.

    >>> complete_threshold(100, corrupt=0.2, server="curious")
    51
    >>> complete_threshold(100, corrupt=0.2, server="active")
    61
    """
    corrupted = _part(clients, "corrupt", corrupt)
    threshold = _against_lies(clients, 0 if server == "curious" else corrupted)
    if not corrupted < threshold <= clients:
        raise ConfigurationError(
            f"corrupt: {corrupt} of {clients} clients hold {corrupted} shares where {threshold} open a secret, "
            f"allowed: at most {threshold - 1}"
        )
    return threshold


def ring_order(seed: bytes, members: Sequence[int]) -> tuple[int, ...]:
    """A uniformly random order of the members, the same for everyone who knows the public seed.

    Fisher and Yates' shuffle of the sorted members. Its draws are little-endian 32-bit words of the AES-256-CTR
    keystream under the seed (counter 0), cut to the bits needed and drawn again where too large.

    Args:
        seed: 32 public bytes that the server cannot choose, used for nothing else.
        members: distinct client ids, in any order.

    Raises:
        ConfigurationError: the seed has another length, or a member comes twice.
    """
    if len(seed) != SEED_BYTES:
        raise ConfigurationError(f"ring seed: {len(seed)} bytes, allowed: {SEED_BYTES}")
    order = sorted(members)
    twice = [a for a, b in pairwise(order) if a == b]
    if twice:
        raise ConfigurationError(f"ring members: {twice[0]} comes twice, allowed: distinct ids")
    words = _keystream_words(seed)
    for last in range(len(order) - 1, 0, -1):
        other = _draw_up_to(last, words)
        order[last], order[other] = order[other], order[last]
    return tuple(order)


def neighbourhood(order: Sequence[int], neighbours: int, member: int) -> tuple[int, ...]:
    """The `neighbours` nearest to a member on the ring, half on each side, sorted; without the member itself.

    With `neighbours >= len(order) - 1` that is everybody else. If a is a neighbour of b, b is one of a.

    Raises:
        ConfigurationError: the member is not on the ring, or `neighbours` is odd, or below 2, on a larger ring.

    >>> neighbourhood((4, 0, 3, 1, 2), 2, 4)
    (0, 2)
    """
    if member not in order:
        raise ConfigurationError(f"ring member: {member}, allowed: the {len(order)} members of the ring")
    if neighbours >= len(order) - 1:
        return tuple(sorted(set(order) - {member}))
    if neighbours < 2 or neighbours % 2:
        raise ConfigurationError(
            f"neighbours: {neighbours}, allowed: an even number from 2, or at least {len(order) - 1} for everybody"
        )
    place, half = order.index(member), neighbours // 2
    return tuple(sorted(order[(place + step) % len(order)] for step in range(-half, half + 1) if step))


def _against_lies(holders: int, corrupted: int) -> int:
    """The least t with 2 t > holders + corrupted: two camps that are told different survivors cannot both reach it."""
    return (holders + corrupted) // 2 + 1


def _graph_threshold(neighbours: int, secrecy: int, server: Server) -> int:
    """The least t where no part of a neighbourhood holds `secrecy` corrupt clients; never 1, the secret itself."""
    if server == "active":
        return neighbours // 2 + secrecy
    return _against_lies(neighbours, secrecy - 1) if server == "lying" else max(secrecy, 2)


def _is_connected(clients: int, lost: int, neighbours: int, bits: int) -> bool:
    """Whether losing clients cuts the ring with probability below 2^-bits (union bound over pairs of places)."""
    pairs = clients * (clients - neighbours - 1) // 2
    return pairs * math.comb(lost, neighbours) << bits < math.comb(clients, neighbours)


def _is_rare(clients: int, marked: int, drawn: int, least: int, bits: int) -> bool:
    """Whether Pr[at least `least` marked clients among `drawn`] <= 2^-bits / clients (hypergeometric).

    `room` is what the tail may still add up to, in units of C(clients, drawn)^-1 2^-bits / clients. The ratio of
    successive terms falls, so a geometric series bounds the rest and ends the sum early without an approximation.
    """
    if least > min(marked, drawn):
        return True
    unmarked = clients - marked
    first = max(least, drawn - unmarked, 0)
    term = (clients * math.comb(marked, first) * math.comb(unmarked, drawn - first)) << bits
    room = math.comb(clients, drawn)
    for count in range(first, min(marked, drawn) + 1):
        room -= term
        if room < 0:
            return False
        up, down = (marked - count) * (drawn - count), (count + 1) * (unmarked - drawn + count + 1)
        if term * up <= room * (down - up):
            return True
        term = term * up // down
    return True


def _is_common(clients: int, marked: int, drawn: int, least: int, bits: int) -> bool:
    """Whether the largest term alone shows, a full bit beyond rounding, that the tail of `_is_rare` is too heavy."""
    mode = (drawn + 1) * (marked + 1) // (clients + 2)
    count = max(least, mode)
    if count > min(marked, drawn):
        return False
    term = _log_comb(marked, count) + _log_comb(clients - marked, drawn - count) - _log_comb(clients, drawn)
    return term / math.log(2) > 1 - bits - math.log2(clients)


def _log_comb(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


def _keystream_words(seed: bytes) -> Iterator[int]:
    stream = Cipher(AES(seed), CTR(bytes(16))).encryptor()
    while True:
        yield from (word for (word,) in struct.iter_unpack("<I", stream.update(bytes(1024))))


def _draw_up_to(largest: int, words: Iterator[int]) -> int:
    """A uniform whole number from 0 to `largest`, by rejection."""
    mask = (1 << largest.bit_length()) - 1
    return next(number for word in words if (number := word & mask) <= largest)


def _part(clients: int, name: str, fraction: float | Fraction) -> int:
    """The fraction of the clients in whole clients, rounded down as the decimal number it was written as."""
    _require_whole("clients", clients, 2)
    if not 0 <= fraction < 1:
        raise ConfigurationError(f"{name}: {fraction}, allowed: a fraction of the clients from 0 up to but not 1")
    return math.floor(clients * Fraction(str(fraction)))


def _require_whole(name: str, value: int, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{name}: {value}, allowed: a whole number from {least}")
