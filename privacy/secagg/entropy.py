"""Where keys, seeds and shares come from: the operating system, or a seeded stream that says it is insecure."""

from __future__ import annotations

import hashlib
import secrets
from typing import Protocol

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes


class Entropy(Protocol):
    """A source of random bytes."""

    secure: bool
    """whether a real secret may come from it"""

    def draw(self, size: int) -> bytes:
        """The next `size` random bytes."""


class SystemEntropy:
    """The operating system's generator; the only source for a deployment."""

    secure = True

    def draw(self, size: int) -> bytes:
        """The next `size` random bytes."""
        return secrets.token_bytes(size)


class InsecureSeededEntropy:
    """A keystream that anybody who knows the seed can repeat: for reproducible simulations and tests, nothing else.

    Args:
        seed: of the simulation.
        address: who draws, so that no two clients, rounds or sums share a stream.
    """

    secure = False

    def __init__(self, seed: int, *address: int | str) -> None:
        name = repr(("fedgr-secure insecure entropy", seed, *address)).encode()
        cipher = Cipher(algorithms.AES256(hashlib.sha256(name).digest()), modes.CTR(bytes(16)))
        self._stream = cipher.encryptor()

    def draw(self, size: int) -> bytes:
        """The next `size` bytes of the stream."""
        return self._stream.update(bytes(size))

    def __repr__(self) -> str:
        return "InsecureSeededEntropy(...)"
