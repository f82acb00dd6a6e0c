"""The messages of a secure sum as bytes: versioned, length-checked, one encoding for each.

Every message is an envelope of 48 bytes (magic, version, kind, context, sender, receiver) and a body. Lists are sorted
by client number and hold nobody twice, so that equal content has equal bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from privacy.secagg.errors import MessageError
from privacy.secagg.keys import KEY, SIGNATURE, TAG
from privacy.secagg.shamir import SHARE_BYTES

SERVER = 2**32 - 1
"""the server's number in envelopes"""

VERSION = 2
ENVELOPE = 48
_MAGIC = b"FSUM"
_HEAD = struct.Struct(">4sBBxx32sII")

BOX = 2 * SHARE_BYTES + TAG
HASH = 32


class Kind(IntEnum):
    """What a message is; the order is the order of the protocol."""

    ADVERT = 1
    ROSTER = 2
    REVEAL = 3
    INTRODUCTIONS = 4
    SHARES = 5
    BOXES = 6
    MASKED = 7
    SURVIVORS = 8
    CONFIRM = 9
    CONFIRMATIONS = 10
    UNMASK = 11


def pack(kind: Kind, context: bytes, sender: int, receiver: int, body: bytes = b"") -> bytes:
    """An envelope with its body."""
    return _HEAD.pack(_MAGIC, VERSION, kind, context, sender, receiver) + body


def unpack(data: bytes, kind: Kind, context: bytes, *, receiver: int, sender: int | None = None) -> tuple[int, bytes]:
    """The sender and the body of a message that must be of this kind, sum and receiver (and sender).

    Raises:
        MessageError: it is not.
    """
    if not isinstance(data, bytes) or len(data) < ENVELOPE:
        size = len(data) if isinstance(data, bytes) else type(data).__name__
        raise MessageError(f"{kind.name}: {size}, allowed: bytes, {ENVELOPE} at least")
    magic, version, found, sum_, from_, to = _HEAD.unpack_from(data)
    if magic != _MAGIC or version != VERSION or data[6:8] != b"\0\0":
        raise MessageError(f"{kind.name}: not a message of version {VERSION}")
    if found != kind:
        raise MessageError(f"message kind: {found}, allowed now: {kind.name} ({int(kind)})")
    if sum_ != context:
        raise MessageError(f"{kind.name} from {_who(from_)}: of another session, round, sum, configuration or model")
    if to != receiver:
        raise MessageError(f"{kind.name}: addressed to {_who(to)}, allowed: {_who(receiver)}")
    if sender is not None and from_ != sender:
        raise MessageError(f"{kind.name}: from {_who(from_)}, allowed: {_who(sender)}")
    return from_, data[ENVELOPE:]


def kind_of(data: bytes) -> Kind:
    """What a message says that it is; nothing else of it is checked.

    Raises:
        MessageError: it says nothing that is known.
    """
    try:
        return Kind(data[5])
    except (IndexError, ValueError):
        raise MessageError(f"message of {len(data)} bytes: of no known kind") from None


def _who(number: int) -> str:
    return "the server" if number == SERVER else f"client {number}"


def entries(parts: Mapping[int, bytes]) -> bytes:
    """A list of (client number, fixed-size payload), sorted."""
    packed = b"".join(number.to_bytes(4, "big") + parts[number] for number in sorted(parts))
    return len(parts).to_bytes(4, "big") + packed


class Reader:
    """Takes a body apart; `end` must be reached exactly."""

    def __init__(self, body: bytes, what: str) -> None:
        self._body, self._at, self._what = body, 0, what

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        part = self._body[self._at : self._at + size]
        if len(part) != size:
            raise MessageError(f"{self._what}: {len(self._body)} bytes, which is too short")
        self._at += size
        return part

    def entries(self, size: int) -> dict[int, bytes]:
        """A list of payloads of `size` bytes by client number."""
        count = int.from_bytes(self.take(4), "big")
        if count * (4 + size) > len(self._body) - self._at:
            raise MessageError(f"{self._what}: a list of {count} in {len(self._body)} bytes")
        found = dict(struct.iter_unpack(f">I{size}s", self.take(count * (4 + size))))
        numbers = list(found)
        if len(numbers) != count or numbers != sorted(numbers) or SERVER in found:
            raise MessageError(f"{self._what}: client numbers out of order, allowed: rising, below {SERVER}")
        return found

    def end(self) -> None:
        """Refuse bytes that are left."""
        if self._at != len(self._body):
            raise MessageError(f"{self._what}: {len(self._body) - self._at} bytes too many")


@dataclass(frozen=True)
class Advert:
    """Client to server: its public keys for this sum, signed with its identity.

    Attributes:
        channel: X25519 key for share boxes and confirmations.
        mask: X25519 key for pairwise masks.
        commitment: to the nonce that the ring order is drawn from (zeros on the complete graph).
        signature: Ed25519 over the envelope and the rest.
    """

    SIZE = 3 * KEY + SIGNATURE

    channel: bytes
    mask: bytes
    commitment: bytes
    signature: bytes

    def signed(self, context: bytes, sender: int) -> bytes:
        """What the signature covers."""
        return pack(Kind.ADVERT, context, sender, SERVER, self.channel + self.mask + self.commitment)

    def body(self) -> bytes:
        """The bytes."""
        return self.channel + self.mask + self.commitment + self.signature

    @classmethod
    def read(cls, body: bytes) -> Advert:
        """From the bytes."""
        reader = Reader(body, "ADVERT")
        advert = cls(reader.take(KEY), reader.take(KEY), reader.take(HASH), reader.take(SIGNATURE))
        reader.end()
        return advert


@dataclass(frozen=True)
class Introductions:
    """Server to client: the revealed nonces of everyone, and the adverts of the neighbours."""

    nonces: Mapping[int, bytes]
    adverts: Mapping[int, bytes]

    def body(self) -> bytes:
        """The bytes."""
        return entries(self.nonces) + entries(self.adverts)

    @classmethod
    def read(cls, body: bytes) -> Introductions:
        """From the bytes."""
        reader = Reader(body, "INTRODUCTIONS")
        read = cls(reader.entries(HASH), reader.entries(Advert.SIZE))
        reader.end()
        return read


@dataclass(frozen=True)
class Shares:
    """Client to server: a sealed pair of shares for every neighbour, and what the server checks opened shares with.

    Attributes:
        seed: commitment to the self-mask seed b_u.
        boxes: by neighbour.
        digests: by holder (neighbours and the client itself), of the seed share and of the key share.
    """

    seed: bytes
    boxes: Mapping[int, bytes]
    digests: Mapping[int, bytes]

    def body(self) -> bytes:
        """The bytes."""
        return self.seed + entries(self.boxes) + entries(self.digests)

    @classmethod
    def read(cls, body: bytes) -> Shares:
        """From the bytes."""
        reader = Reader(body, "SHARES")
        read = cls(reader.take(HASH), reader.entries(BOX), reader.entries(2 * HASH))
        reader.end()
        return read


@dataclass(frozen=True)
class Survivors:
    """Server to client: who has survived, and the tags for it of its neighbours among them.

    Attributes:
        numbers: everybody whose masked vector has arrived.
        tags: by neighbour: its value bears the mask that it shares with the receiver.
    """

    numbers: frozenset[int]
    tags: Mapping[int, bytes]

    def body(self) -> bytes:
        """The bytes."""
        return members(self.numbers) + entries(self.tags)

    @classmethod
    def read(cls, body: bytes) -> Survivors:
        """From the bytes."""
        reader = Reader(body, "SURVIVORS")
        read = cls(frozenset(reader.entries(0)), reader.entries(HASH))
        reader.end()
        return read


def read_entries(body: bytes, size: int, what: str) -> dict[int, bytes]:
    """A body that is one list."""
    reader = Reader(body, what)
    found = reader.entries(size)
    reader.end()
    return found


def members(numbers: Iterable[int]) -> bytes:
    """A list of client numbers."""
    return entries(dict.fromkeys(numbers, b""))
