"""Shamir's secret sharing (1979) over the first prime above 2^256: any `t` shares give the secret, fewer say nothing.

A share is the value of a random polynomial of degree t - 1 at a public point; the secret is its value at 0. This is
Python's integer arithmetic and not constant time: the dealer runs it on its own secret only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import mul

from privacy.secagg.errors import ConfigurationError, MessageError

PRIME = 2**256 + 297
SHARE_BYTES = 33

_MULTIPLES = 256**SHARE_BYTES // PRIME * PRIME  # below it 33 random bytes are uniform modulo the prime
_LAZY_BITS = 512  # a remainder costs more than a few longer products: halves the time where points are small


def split(secret: int, points: Sequence[int], threshold: int, random_bytes: Callable[[int], bytes]) -> list[int]:
    """One share of the secret for every point, any `threshold` of which give it back.

    Args:
        secret: a whole number from 0 to PRIME - 1.
        points: distinct numbers from 1 to PRIME - 1, public; small ones are fast.
        threshold: how many shares are needed, from 1 to the number of points.
        random_bytes: gives that many uniform secret bytes, such as `os.urandom`.

    Raises:
        ConfigurationError: an argument is out of range. The secret is never in the text.

    >>> import os
    >>> shares = split(42, (1, 2, 3), 2, os.urandom)
    >>> combine((1, 3), (shares[0], shares[2]))
    42
    """
    _require_points(points)
    if not isinstance(threshold, int) or not 1 <= threshold <= len(points):
        raise ConfigurationError(f"threshold: {threshold}, allowed: 1 to the {len(points)} points")
    _require_element("secret", secret)
    falling = [_random_element(random_bytes) for _ in range(threshold - 1)]
    return [_evaluate([*falling, secret], point) for point in points]


@lru_cache(maxsize=256)
def lagrange_weights(points: tuple[int, ...]) -> tuple[int, ...]:
    """What to multiply the shares at these points with, so that they add up to the secret: Lagrange's formula at 0.

    Raises:
        ConfigurationError: no point, two equal ones, or one outside 1 to PRIME - 1.
    """
    _require_points(points)
    product = math.prod(points) % PRIME
    below = []
    for place, point in enumerate(points):
        factors = [other - point for other in points]
        factors[place] = point  # takes the point itself out of `product`
        below.append(math.prod(factors) % PRIME)
    return tuple(product * inverse % PRIME for inverse in _inverses(below))


def combine(points: tuple[int, ...], shares: Sequence[int]) -> int:
    """The secret behind the shares at these points: the value at 0 of the polynomial through them.

    Shares that are too few or wrong give another number without notice: check it against a commitment.

    Raises:
        ConfigurationError: not one share for each point, or points as in `lagrange_weights`.
    """
    if len(shares) != len(points):
        raise ConfigurationError(f"shares: {len(shares)}, allowed: {len(points)}, one for each point")
    return sum(map(mul, lagrange_weights(points), shares)) % PRIME


def share_to_bytes(share: int) -> bytes:
    """The share as 33 bytes, big endian.

    Raises:
        ConfigurationError: it is outside 0 to PRIME - 1. The share is not in the text.
    """
    _require_element("share", share)
    return share.to_bytes(SHARE_BYTES, "big")


def share_from_bytes(data: bytes) -> int:
    """The share that `share_to_bytes` wrote.

    Raises:
        MessageError: another number of bytes, or a value that is no share. The value is not in the text.
    """
    if len(data) != SHARE_BYTES:
        raise MessageError(f"share: {len(data)} bytes, allowed: {SHARE_BYTES}")
    share = int.from_bytes(data, "big")
    if share >= PRIME:
        raise MessageError("share: a value above the field, allowed: 0 to PRIME - 1")
    return share


def _evaluate(falling: list[int], point: int) -> int:
    """Horner's rule from the highest power down, reduced only when the value has grown by `_LAZY_BITS`."""
    value, stride = 0, max(1, _LAZY_BITS // point.bit_length())
    for start in range(0, len(falling), stride):
        for coefficient in falling[start : start + stride]:
            value = value * point + coefficient
        value %= PRIME
    return value


def _inverses(values: list[int]) -> list[int]:
    """The inverses modulo the prime, for one inversion and three multiplications each (Montgomery 1987)."""
    products = [1]
    for value in values:
        products.append(products[-1] * value % PRIME)
    inverse = pow(products.pop(), -1, PRIME)
    backwards = []
    for value, product in zip(reversed(values), reversed(products), strict=True):
        backwards.append(inverse * product % PRIME)
        inverse = inverse * value % PRIME
    return backwards[::-1]


def _random_element(random_bytes: Callable[[int], bytes]) -> int:
    """A uniform field element: 33 bytes, drawn again where a remainder would be biased (once in 256)."""
    while True:
        drawn = random_bytes(SHARE_BYTES)
        if len(drawn) != SHARE_BYTES:
            raise ConfigurationError(f"random_bytes: gave {len(drawn)} bytes, allowed: the {SHARE_BYTES} asked for")
        number = int.from_bytes(drawn, "big")
        if number < _MULTIPLES:
            return number % PRIME


def _require_element(name: str, value: int) -> None:
    if not isinstance(value, int) or not 0 <= value < PRIME:
        raise ConfigurationError(f"{name}: not in the field, allowed: a whole number from 0 to PRIME - 1")


def _require_points(points: Sequence[int]) -> None:
    if not points:
        raise ConfigurationError("points: none, allowed: at least one")
    for point in points:
        if not isinstance(point, int) or not 0 < point < PRIME:
            raise ConfigurationError(f"points: {point}, allowed: whole numbers from 1 to PRIME - 1")
    if len(set(points)) < len(points):
        twice = next(point for place, point in enumerate(points) if point in points[:place])
        raise ConfigurationError(f"points: {twice} comes twice, allowed: distinct points")
