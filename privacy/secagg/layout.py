"""What a secure sum adds up: named groups, their ranges, and the one vector of ring words that holds them."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from privacy.secagg.errors import ConfigurationError, MessageError

MOST = 2**31 - 1
"""clients of a sum, samples of a client, coordinates of a group; more is a mistake"""
SMALLEST_LIMIT = 1e-30
"""of a mean; below it, values are not what anybody averages"""
MOST_NAME_BYTES = 1000
_MAGIC = b"groups 1"
_HEAD = struct.Struct(f">{len(_MAGIC)}sIII")
_GROUP = struct.Struct(">BBIH8s")
_KINDS: tuple[Literal["mean", "count"], ...] = ("mean", "count")
_LIMIT = {"mean": ">d", "count": ">Q"}


def require(condition: bool, message: str) -> None:
    """Raise `ConfigurationError(message)` unless `condition` holds."""
    if not condition:
        raise ConfigurationError(message)


def require_whole(value: int, what: str, most: int) -> None:
    """Raise `ConfigurationError` unless `value` is an int from 1 to `most`."""
    whole = type(value) is int and 1 <= value <= most
    require(whole, f"{what}: {value!r}, allowed: a whole number from 1 to {most}")


@dataclass(frozen=True)
class Group:
    """Equal things that are summed together.

    Attributes:
        name: of the group in the values and the total.
        size: how many coordinates.
        limit: of a mean, coordinates are clipped to +-limit; of a count, those outside +-limit are refused.
        kind: "mean", real numbers averaged with the clients' weights; "count", whole numbers summed exactly, without.
        bits: of a ring word.
    """

    name: str
    size: int
    limit: float
    kind: Literal["mean", "count"] = "mean"
    bits: Literal[32, 64] = 32

    def __post_init__(self) -> None:
        named = (
            isinstance(self.name, str) and self.name.isprintable() and 0 < len(self.name.encode()) <= MOST_NAME_BYTES
        )
        require(named, f"group name: {self.name!r}, allowed: 1 to {MOST_NAME_BYTES} printable bytes")
        require_whole(self.size, f"group {self.name!r}: size", MOST)
        require(self.kind in _KINDS, f"group {self.name!r}: kind {self.kind!r}, allowed: mean or count")
        wide = type(self.bits) is int and self.bits in (32, 64)
        require(wide, f"group {self.name!r}: bits {self.bits!r}, allowed: 32 or 64")
        object.__setattr__(self, "limit", self._checked_limit())

    def _checked_limit(self) -> float:
        """The limit as a float of a mean and as an int of a count, so that equal groups have equal bytes."""
        least, allowed, number = (
            (SMALLEST_LIMIT, f"a float64 from {SMALLEST_LIMIT}", float)
            if self.kind == "mean"
            else (1, "a whole number from 1", int)
        )
        real = isinstance(self.limit, int | float) and not isinstance(self.limit, bool)
        valid = real and least <= self.limit < 2**63 and number(self.limit) == self.limit
        require(valid, f"group {self.name!r}: limit {self.limit!r}, allowed: {allowed} to below 2^63")
        return number(self.limit)


@dataclass(frozen=True)
class Layout:
    """Which groups are summed, over at most how many clients of at most which weight; nothing in it can overflow.

    A vector holds little-endian words: of 8 bytes the client's weight, per mean the number of clipped coordinates, and
    the groups of 64 bits, padded with zeros to a multiple of 16 bytes; then, of 4 bytes, the groups of 32 bits.

    Raises:
        ConfigurationError: for two groups of one name, none at all, or limits whose sums overflow a group's words.

    >>> Layout((Group("weights", 1000, limit=1.0),), clients=100, largest_weight=512).fraction_bits
    {'weights': 15}
    """

    groups: tuple[Group, ...]
    clients: int
    largest_weight: int

    def __post_init__(self) -> None:
        require_whole(self.clients, "clients", MOST)
        require_whole(self.largest_weight, "largest weight", MOST)
        grouped = isinstance(self.groups, tuple) and all(isinstance(group, Group) for group in self.groups)
        require(grouped and len(self.groups) > 0, f"groups: {self.groups!r}, allowed: a tuple of one Group or more")
        for name, times in Counter(group.name for group in self.groups).items():
            require(times == 1, f"group {name!r}: declared {times} times, allowed: once")
        for group in self.groups:
            self._require_fit(group)

    def _require_fit(self, group: Group) -> None:
        """The sum over all clients is below half the ring, whatever they send."""
        room = 2 ** (group.bits - 1)
        if group.kind == "count":
            fits, allowed = self.clients * group.limit < room, f"at most {(room - 1) // self.clients}"
        else:
            most = (room - self.clients) / (2 * self.clients * self.largest_weight)
            fits, allowed = self.bits_of(group) >= 1, f"below {most:.9g}"
        clients = f"{self.clients} clients of weight up to {self.largest_weight}"
        require(
            fits, f"group {group.name!r}: limit {group.limit} with {clients}, allowed: {allowed} in {group.bits} bits"
        )

    def bits_of(self, group: Group) -> int:
        """The largest b with n (2^b W C + 1) < 2^(bits - 1), in whole numbers; below 1 if there is none."""
        top, bottom = group.limit.as_integer_ratio()
        most = ((2 ** (group.bits - 1) - self.clients) * bottom - 1) // (self.clients * self.largest_weight * top)
        return most.bit_length() - 1  # 2^b <= most

    @property
    def means(self) -> tuple[Group, ...]:
        """The groups that are averaged; each has a word for its clipped coordinates."""
        return tuple(group for group in self.groups if group.kind == "mean")

    @property
    def fraction_bits(self) -> dict[str, int]:
        """b of each mean: a coordinate is rounded to a multiple of 2^-b over the client's weight."""
        return {group.name: self.bits_of(group) for group in self.means}

    @property
    def words64(self) -> int:
        """How many words of 8 bytes a vector begins with; even."""
        used = 1 + len(self.means) + sum(group.size for group in self.groups if group.bits == 64)
        return used + used % 2

    @property
    def words32(self) -> int:
        """How many words of 4 bytes follow."""
        return sum(group.size for group in self.groups if group.bits == 32)

    @property
    def nbytes(self) -> int:
        """Of a vector."""
        return 8 * self.words64 + 4 * self.words32

    def to_bytes(self) -> bytes:
        """The one encoding of this layout, to be signed and hashed into keys."""
        parts = [_HEAD.pack(_MAGIC, self.clients, self.largest_weight, len(self.groups))]
        for group in self.groups:
            name, limit = group.name.encode(), struct.pack(_LIMIT[group.kind], group.limit)
            parts += [_GROUP.pack(_KINDS.index(group.kind), group.bits, group.size, len(name), limit), name]
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Layout:
        """The layout whose `to_bytes` these are.

        Raises:
            MessageError: for any other bytes.
        """
        try:
            layout = cls._parsed(data)
        except (struct.error, ValueError, IndexError) as error:
            raise MessageError(
                f"layout: {len(data)} bytes that hold none ({error}), allowed: those of a layout"
            ) from error
        if layout.to_bytes() != data:
            raise MessageError(f"layout: {len(data)} bytes in another form, allowed: exactly those of its to_bytes")
        return layout

    @classmethod
    def _parsed(cls, data: bytes) -> Layout:
        _, clients, largest_weight, count = _HEAD.unpack_from(data)
        groups, at = [], _HEAD.size
        for _ in range(count):
            kind, bits, size, length, limit = _GROUP.unpack_from(data, at)
            at += _GROUP.size + length
            name, (value,) = data[at - length : at].decode(), struct.unpack(_LIMIT[_KINDS[kind]], limit)
            groups.append(Group(name, size, value, _KINDS[kind], bits))
        return cls(tuple(groups), clients, largest_weight)
