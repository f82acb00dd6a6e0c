"""Long-term identities, the key pairs of one sum, and everything derived from them.

Signatures are Ed25519, agreement is X25519, derivation HKDF-SHA256, boxes AES-256-GCM, all from `cryptography`. Every
derived key is bound to the sum's context (session, round, purpose, parameters, global model) and to both ends.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from privacy.secagg.entropy import Entropy
from privacy.secagg.errors import AbortError, ConfigurationError

KEY = 32
TAG = 16
SIGNATURE = 64
_ONCE = bytes(12)
"""the nonce of a key that seals one message in its life"""

_P = 2**255 - 19
_ORDER_8 = int.from_bytes(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little")
_SMALL_ORDER = frozenset({0, 1, _ORDER_8, _P - _ORDER_8, _P - 1, _P, _P + 1})
"""the y of every Ed25519 point of order 1, 2, 4 or 8, non-canonical encodings included"""
_ORDER_8_U = tuple(
    int.from_bytes(bytes.fromhex(point), "little")
    for point in (
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    )
)
_SMALL_ORDER_U = frozenset({0, 1, _P - 1, *_ORDER_8_U})
"""the u of every X25519 point of order 1, 2, 4 or 8 on the curve and its twist"""


class Identity:
    """A client's long-term signing key."""

    def __init__(self, private: bytes) -> None:
        _require_private(private)
        self._key = Ed25519PrivateKey.from_private_bytes(private)
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, entropy: Entropy) -> Identity:
        """A new identity."""
        return cls(entropy.draw(KEY))

    def sign(self, data: bytes) -> bytes:
        """Signature, 64 bytes."""
        return self._key.sign(data)

    def __repr__(self) -> str:
        return f"Identity(public={self.public.hex()})"


class Enrolment:
    """The public identities of everyone who may take part, by client number; agreed outside of the protocol.

    Raises:
        ConfigurationError: a number or a key that cannot be, a key of small order (under which anybody can sign), or
            one key under two numbers.
    """

    def __init__(self, keys: Mapping[int, bytes]) -> None:
        for number, key in keys.items():
            if type(number) is not int or not 0 <= number < 2**32 - 1:
                raise ConfigurationError(f"client number: {number!r}, allowed: from 0 to {2**32 - 2}")
            if not isinstance(key, bytes) or len(key) != KEY:
                raise ConfigurationError(f"client {number}: identity key, allowed: {KEY} bytes")
            if int.from_bytes(key, "little") % 2**255 in _SMALL_ORDER:
                raise ConfigurationError(f"client {number}: identity key of small order: anybody can sign under it")
        if len(set(keys.values())) < len(keys):
            raise ConfigurationError("identity keys: two clients share one, allowed: one each")
        self._keys = {number: Ed25519PublicKey.from_public_bytes(key) for number, key in keys.items()}

    def __contains__(self, number: int) -> bool:
        return number in self._keys

    def holds(self, number: int, public: bytes) -> bool:
        """Whether client `number` is enrolled with this identity."""
        return type(number) is int and number in self._keys and self._keys[number].public_bytes_raw() == public

    def verify(self, number: int, signature: bytes, data: bytes) -> bool:
        """Whether `signature` over `data` is client `number`'s."""
        try:
            self._keys[number].verify(signature, data)
        except (InvalidSignature, KeyError):
            return False
        return True


class KeyPair:
    """An X25519 key pair of one sum."""

    def __init__(self, private: bytes) -> None:
        _require_private(private)
        self._key = X25519PrivateKey.from_private_bytes(private)
        self.public = self._key.public_key().public_bytes_raw()

    def agree(self, public: bytes) -> bytes:
        """The shared secret with the holder of `public`, 32 bytes; still to be put through `derive`.

        Raises:
            AbortError: the point is of small order, so the secret would be known to everybody, or it is not `usable`.
        """
        try:
            if not usable(public):
                raise ValueError
            return self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise AbortError("public key of small order or malformed") from None

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public.hex()})"


def usable(public: bytes) -> bool:
    """Whether an X25519 key has the form that its owner computes (one cannot pass for two) and not a small order."""
    u = int.from_bytes(public, "little")
    return len(public) == KEY and u < _P and u not in _SMALL_ORDER_U


@dataclass(frozen=True)
class End:
    """One end of a pair: its client number and its public key for the purpose at hand."""

    number: int
    public: bytes

    def info(self) -> bytes:
        """For key derivation."""
        return self.number.to_bytes(4, "big") + self.public


def derive(secret: bytes, context: bytes, purpose: str, ends: tuple[End, ...], size: int = KEY) -> bytes:
    """HKDF-SHA256: a key of `size` bytes for one purpose between these ends, in the order of their numbers."""
    ordered = sorted(ends, key=lambda end: end.number)
    info = purpose.encode() + b"\0" + b"".join(end.info() for end in ordered)
    return HKDF(SHA256(), size, salt=context, info=info).derive(secret)


@dataclass(frozen=True, repr=False)
class Channel:
    """The keys between this client and one peer: each seals one message in its life, or confirms several statements."""

    context: bytes
    own: int
    peer: int
    _seal: bytes
    _open: bytes
    _confirm: bytes
    _check: bytes

    @classmethod
    def between(cls, pair: KeyPair, own: int, peer: End, context: bytes) -> Channel:
        """Agree with a peer's channel key."""
        ends = (End(own, pair.public), peer)
        keys = derive(pair.agree(peer.public), context, "channel", ends, 4 * KEY)
        low_seals, high_seals, low_confirms, high_confirms = (keys[i : i + KEY] for i in range(0, 4 * KEY, KEY))
        low = own < peer.number
        seal, open_ = (low_seals, high_seals) if low else (high_seals, low_seals)
        confirm, check = (low_confirms, high_confirms) if low else (high_confirms, low_confirms)
        return cls(context, own, peer.number, seal, open_, confirm, check)

    def seal(self, plain: bytes) -> bytes:
        """The box for the peer: AES-256-GCM under this direction's key."""
        return AESGCM(self._seal).encrypt(_ONCE, plain, self._aad(self.own, self.peer))

    def open(self, box: bytes) -> bytes | None:
        """The content of the peer's box, or None when it is not one."""
        try:
            return AESGCM(self._open).decrypt(_ONCE, box, self._aad(self.peer, self.own))
        except InvalidTag:
            return None

    def confirm(self, statement: bytes) -> bytes:
        """A tag that tells the peer that this client stands by `statement`."""
        return hmac.digest(self._confirm, statement, "sha256")

    def confirms(self, tag: bytes, statement: bytes) -> bool:
        """Whether the peer stands by `statement`."""
        return hmac.compare_digest(tag, hmac.digest(self._check, statement, "sha256"))

    def _aad(self, sender: int, receiver: int) -> bytes:
        return self.context + sender.to_bytes(4, "big") + receiver.to_bytes(4, "big")

    def __repr__(self) -> str:
        return f"Channel({self.own} to {self.peer})"


def digest(context: bytes, purpose: str, *parts: bytes) -> bytes:
    """SHA-256 over a purpose and parts of unambiguous lengths, within one sum."""
    sized = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hashlib.sha256(context + purpose.encode() + b"\0" + sized).digest()


def _require_private(private: bytes) -> None:
    if not isinstance(private, bytes) or len(private) != KEY:
        raise ConfigurationError(f"private key: other than {KEY} bytes, allowed: {KEY} bytes")
