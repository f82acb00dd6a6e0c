"""Masks: AES-256-CTR keystreams added to a vector of ring words in place.

A key serves one mask, so the counter starts at zero; the counter of a 16-byte block is its index, so a thread may
start at any block and the result does not depend on how the vector is cut. Python cannot wipe secrets reliably: a
mask should live no longer than its round.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from privacy.secagg.errors import ConfigurationError

KEY_BYTES = 32
COUNTER_BYTES = 16  # of AES, and the grain at which a vector is cut
BLOCK = 512 * 1024
"""bytes masked at a time: they stay in the cache, and a call lasts long enough for threads to take turns"""
_ZEROS = memoryview(bytes(BLOCK))


@dataclass(frozen=True, eq=False)
class Mask:
    """A keystream to add to a vector, or to subtract from it.

    Attributes:
        key: 32 bytes, for this mask alone. Never shown.
        sign: +1 adds, -1 subtracts.

    >>> Mask(bytes(32), -1)
    Mask(sign=-1)
    """

    key: bytes = field(repr=False)
    sign: int

    def __post_init__(self) -> None:
        if not isinstance(self.key, bytes):
            raise ConfigurationError(f"mask key: a {type(self.key).__name__}, allowed: {KEY_BYTES} bytes")
        if len(self.key) != KEY_BYTES:
            raise ConfigurationError(f"mask key: {len(self.key)} bytes, allowed: {KEY_BYTES}")
        if type(self.sign) is not int or self.sign not in (1, -1):
            raise ConfigurationError(f"mask sign: {self.sign!r}, allowed: 1 or -1")


class Keystream:
    """The keystream of AES-256-CTR from a block on, read in order (NIST SP 800-38A, 6.5)."""

    def __init__(self, key: bytes, counter: int = 0) -> None:
        start = (counter % 2 ** (8 * COUNTER_BYTES)).to_bytes(COUNTER_BYTES, "big")
        self._cipher = Cipher(AES(key), CTR(start)).encryptor()

    def read_into(self, buffer: NDArray[np.uint8]) -> None:
        """Fill the buffer, of at most `BLOCK` bytes, with the next bytes of the keystream."""
        self._cipher.update_into(_ZEROS[: buffer.size], buffer.data)


def apply(vector: NDArray[np.uint8], words64: int, masks: Sequence[Mask], *, threads: int = 1) -> None:
    """Add the masks to a vector, in place: modulo 2^64 in its first words, modulo 2^32 in the others.

    Extra memory: one block of `BLOCK` bytes a thread. The result does not depend on the number of threads.

    Args:
        vector: contiguous bytes, little-endian words.
        words64: how many words of 8 bytes it begins with; words of 4 bytes follow.
        masks: each with a key of its own.
        threads: how many parts of the vector to mask at the same time.

    Raises:
        ConfigurationError: for another vector, two masks with one key, or no thread.
    """
    _check(vector, words64, masks, threads)
    blocks = -(-vector.size // BLOCK)
    parts = max(1, min(threads, blocks))
    cuts = [BLOCK * (blocks * part // parts) for part in range(parts)] + [vector.size]
    if parts == 1:
        return _apply_range(vector, words64, masks, 0, vector.size)
    with ThreadPoolExecutor(parts) as pool:
        for done in [pool.submit(_apply_range, vector, words64, masks, *cut) for cut in pairwise(cuts)]:
            done.result()


def _check(vector: NDArray[np.uint8], words64: int, masks: Sequence[Mask], threads: int) -> None:
    """Refuse what would be masked wrongly, partly, or not at all."""
    if not (isinstance(vector, np.ndarray) and vector.dtype == np.uint8 and vector.ndim == 1):
        raise ConfigurationError("vector to mask: something else, allowed: one row of uint8")
    if not (vector.flags.c_contiguous and vector.flags.writeable):
        raise ConfigurationError("vector to mask: strided or read-only, allowed: contiguous and writeable")
    if type(words64) is not int or not 0 <= 8 * words64 <= vector.size or vector.size % 4:
        raise ConfigurationError(
            f"vector to mask: {vector.size} bytes with {words64!r} words of 8 bytes, allowed: those, then words of 4"
        )
    if type(threads) is not int or threads < 1:
        raise ConfigurationError(f"threads: {threads!r}, allowed: a whole number from 1")
    if len({mask.key for mask in masks}) != len(masks):
        raise ConfigurationError(f"masks: {len(masks)} that share a key, allowed: a key of its own for each")


def _apply_range(
    vector: NDArray[np.uint8],
    words64: int,
    masks: Sequence[Mask],
    start: int,
    stop: int,
    *,
    first_counter: int = 0,
    block: int = BLOCK,
) -> None:
    """Mask the bytes from `start`, a multiple of 16, to `stop`; all masks of a block before the next block."""
    streams = [(Keystream(mask.key, first_counter + start // COUNTER_BYTES), mask.sign) for mask in masks]
    space = np.empty(min(block, stop - start), np.uint8)
    for low in range(start, stop, block):
        part = vector[low : min(low + block, stop)]
        noise = space[: part.size]
        pairs = list(zip(_words(part, 8 * words64 - low), _words(noise, 8 * words64 - low), strict=True))
        for stream, sign in streams:
            stream.read_into(noise)
            combine = np.add if sign > 0 else np.subtract
            for words, other in pairs:
                combine(words, other, out=words)


def _words(part: NDArray[np.uint8], wide: int) -> list[NDArray[np.unsignedinteger]]:
    """Views of a part of a vector: words of 8 bytes in its first `wide` bytes, then words of 4; empty ones left out."""
    cut = min(max(wide, 0), part.size)
    views: list[NDArray[np.unsignedinteger]] = [part[:cut].view("<u8"), part[cut:].view("<u4")]
    return [view for view in views if view.size]
