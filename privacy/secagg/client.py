"""The client's half of a secure sum: bytes in, bytes out, one phase at a time, each once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privacy.secagg.entropy import Entropy, SystemEntropy
from privacy.secagg.errors import AbortError, ConfigurationError, PhaseError
from privacy.secagg.graph import neighbourhood, ring_order
from privacy.secagg.groups import encode
from privacy.secagg.keys import KEY, Channel, End, Enrolment, Identity, KeyPair, derive, digest, usable
from privacy.secagg.layout import require_whole
from privacy.secagg.masks import Mask, apply
from privacy.secagg.messages import (
    BOX,
    ENVELOPE,
    HASH,
    SERVER,
    Advert,
    Introductions,
    Kind,
    Shares,
    Survivors,
    entries,
    members,
    pack,
    read_entries,
    unpack,
)
from privacy.secagg.parameters import Parameters, Policy, require_context
from privacy.secagg.shamir import SHARE_BYTES, share_to_bytes, split

SEED_SHARE, KEY_SHARE = b"b", b"s"


class Phase(IntEnum):
    """What a client does next."""

    ADVERTISE = 1
    REVEAL = 2
    SHARE = 3
    MASK = 4
    CONFIRM = 5
    UNMASK = 6
    ENDED = 7


class SecureSumClient:
    """One client in one sum (Bonawitz et al. 2017, Figure 4; the sparse graph of Bell et al. 2020).

    Call `advertise`, on the sparse graph `reveal`, then `share`, `mask`, `confirm` and `unmask`, each with the server's
    bytes, each once. After any error the client has ended: it releases nothing more and its secrets are dropped.

    Args:
        number: this client.
        identity: its long-term key.
        enrolled: everybody's public identities, known beforehand.
        parameters: as the server proposes them.
        policy: what this client insists on.
        context: of the sum, from `sum_context` with the client's own view of session, round, purpose and global model.
        weight: n_k, a secret coordinate of the sum; a client without samples stays away from it.
        entropy: where secrets come from.
        threads: for adding masks.

    Raises:
        ConfigurationError: the parameters promise less than the policy, the context is none, the weight is no whole
            number from 1 to the layout's largest, or the client is not enrolled under its number and identity.
    """

    def __init__(
        self,
        number: int,
        identity: Identity,
        *,
        enrolled: Enrolment,
        parameters: Parameters,
        policy: Policy,
        context: bytes,
        weight: int,
        entropy: Entropy | None = None,
        threads: int = 1,
    ) -> None:
        policy.check(parameters)
        require_context(context)
        require_whole(weight, "weight", parameters.layout.largest_weight)
        if not enrolled.holds(number, identity.public):
            raise ConfigurationError(f"client {number!r}: not enrolled with this identity, allowed: enrolled clients")
        self.number = number
        self._identity, self._enrolled, self._parameters, self._policy = identity, enrolled, parameters, policy
        self._context, self._weight, self._threads = context, weight, threads
        self._entropy: Entropy = entropy or SystemEntropy()
        self._phase = Phase.ADVERTISE
        self._channels: dict[int, Channel] = {}
        self._peers: dict[int, Advert] = {}
        self._boxes: dict[int, bytes] = {}
        self._everyone: frozenset[int] = frozenset()
        self._gathering = b""

    def __repr__(self) -> str:
        return f"SecureSumClient(number={self.number}, phase={self._phase.name})"

    @property
    def ended(self) -> bool:
        """Whether the client is done or has given up."""
        return self._phase is Phase.ENDED

    def advertise(self) -> bytes:
        """The public keys of this sum, signed."""
        with self._step(Phase.ADVERTISE, Phase.SHARE if self._parameters.complete else Phase.REVEAL):
            draw = self._entropy.draw
            self._channel_pair, self._mask_pair_secret = KeyPair(draw(KEY)), draw(KEY)
            self._mask_pair, self._seed, self._nonce = KeyPair(self._mask_pair_secret), draw(KEY), draw(HASH)
            commitment = bytes(HASH) if self._parameters.complete else self._commitment(self.number, self._nonce)
            unsigned = Advert(self._channel_pair.public, self._mask_pair.public, commitment, b"")
            signature = self._identity.sign(unsigned.signed(self._context, self.number))
            self._own = Advert(unsigned.channel, unsigned.mask, commitment, signature)
            return self._send(Kind.ADVERT, self._own.body())

    def reveal(self, roster: bytes) -> bytes:
        """Sparse graph only: open the commitment to the nonce, once everybody's commitments are known.

        Raises:
            AbortError: the roster is too small or too large, names somebody unknown, or not this client as it is.
        """
        with self._step(Phase.REVEAL, Phase.SHARE):
            self._roster = read_entries(self._receive(Kind.ROSTER, roster), HASH, "ROSTER")
            self._check_members(self._roster)
            _abort_unless(self._roster.get(self.number) == self._own.commitment, "roster: without this client's own")
            return self._send(Kind.REVEAL, self._nonce)

    def share(self, introductions: bytes) -> bytes:
        """Check the neighbours' keys, and give each a sealed share of the seed b_u and of the mask key s_u.

        Raises:
            AbortError: too few neighbours, a forged, repeated or weak key, or nonces that do not fit the roster.
        """
        with self._step(Phase.SHARE, Phase.MASK):
            told = Introductions.read(self._receive(Kind.INTRODUCTIONS, introductions))
            self._meet(told)
            holders = self._parameters.holders(self.number, self._peers)
            points = [holder + 1 for holder in holders]
            halves = []
            for secret in (self._seed, self._mask_pair_secret):
                shares = split(int.from_bytes(secret, "big"), points, self._parameters.threshold, self._entropy.draw)
                halves.append([share_to_bytes(share) for share in shares])
            pairs = dict(zip(holders, zip(*halves, strict=True), strict=True))
            digests = {
                holder: share_digest(self._context, self.number, holder, SEED_SHARE, seed)
                + share_digest(self._context, self.number, holder, KEY_SHARE, key)
                for holder, (seed, key) in pairs.items()
            }
            own = pairs.pop(self.number, None)
            self._opened = {} if own is None else {self.number: SEED_SHARE + own[0]}
            boxes = {peer: self._channels[peer].seal(seed + key) for peer, (seed, key) in pairs.items()}
            return self._send(Kind.SHARES, Shares(self._seed_commitment(), boxes, digests).body())

    def mask(self, boxes: bytes, values: Mapping[str, NDArray[Any]], rounding: np.random.Generator) -> bytes:
        """The encoded values under the self mask and the masks of all pairs with who shared, and a tag for each.

        The tag tells the peer that this client's value bears the mask that the two share.

        Args:
            boxes: the server's message.
            values: by group, as the layout says.
            rounding: of the stochastic rounding; it protects nothing.

        Raises:
            ConfigurationError: the values are not what the layout allows.
            AbortError: too few neighbours shared.
        """
        with self._step(Phase.MASK, Phase.CONFIRM):
            self._boxes = read_entries(self._receive(Kind.BOXES, boxes), BOX, "BOXES")
            _abort_unless(self._boxes.keys() <= self._peers.keys(), "boxes: from somebody who is no neighbour")
            self._enough(self._boxes, "shared")
            layout, paired = self._parameters.layout, paired_statement(self._gathering)
            tags = entries({peer: self._channels[peer].confirm(paired) for peer in self._boxes})
            data = bytearray(pack(Kind.MASKED, self._context, self.number, SERVER) + bytes(layout.nbytes) + tags)
            vector = np.frombuffer(data, np.uint8, layout.nbytes, ENVELOPE)
            encode(layout, values, self._weight, rounding, out=vector)
            apply(vector, layout.words64, self._masks(), threads=self._threads)
            return bytes(data)

    def confirm(self, survivors: bytes) -> bytes:
        """Tell every surviving neighbour, under the key shared with it, which survivors this client was told.

        Raises:
            AbortError: survivors that never shared, without this client, or too few.
        """
        with self._step(Phase.CONFIRM, Phase.UNMASK):
            message = Survivors.read(self._receive(Kind.SURVIVORS, survivors))
            told = message.numbers
            _abort_unless(self.number in told, "survivors: without this client")
            _abort_unless(told <= self._everyone, "survivors: somebody who was never introduced")
            near = told & self._peers.keys()
            _abort_unless(near <= self._boxes.keys(), "survivors: somebody who never shared")
            fewest = max(self._policy.survivors, self._parameters.survivors)
            _abort_unless(len(told) >= fewest, f"survivors: {len(told)}, allowed: from {fewest}")
            _abort_unless(message.tags.keys() <= near, "survivors: a tag of somebody who is no surviving neighbour")
            self._enough(near, "survived")
            self._statement = digest(self._gathering, "survivors", members(told))
            self._near, paired = near, paired_statement(self._gathering)
            self._paired = {peer for peer, tag in message.tags.items() if self._channels[peer].confirms(tag, paired)}
            return self._send(
                Kind.CONFIRM, entries({peer: self._channels[peer].confirm(self._statement) for peer in near})
            )

    def unmask(self, confirmations: bytes) -> bytes:
        """For every neighbour at most one share: of the seed of a survivor, of the mask key of who vanished.

        A survivor that has not shown that its value bears the mask of the two gets none: the server may have kept
        this client's box from it, to take it out of everybody's masks (docs/secure_sums.md).

        Raises:
            AbortError: fewer than t holders stand by the same survivors.
        """
        with self._step(Phase.UNMASK, Phase.ENDED):
            tags = read_entries(self._receive(Kind.CONFIRMATIONS, confirmations), HASH, "CONFIRMATIONS")
            _abort_unless(tags.keys() <= self._near, "confirmations: from somebody who did not survive")
            agree = [peer for peer, tag in tags.items() if self._channels[peer].confirms(tag, self._statement)]
            self._enough(agree, "were told of the same survivors")
            opened = dict(self._opened)
            for peer, box in self._boxes.items():
                content = self._channels[peer].open(box)
                if content is not None and (peer not in self._near or peer in self._paired):
                    seed, key = content[:SHARE_BYTES], content[SHARE_BYTES:]
                    opened[peer] = SEED_SHARE + seed if peer in self._near else KEY_SHARE + key
            return self._send(Kind.UNMASK, entries(opened))

    def abort(self) -> None:
        """Give up: nothing more is released."""
        self._phase = Phase.ENDED
        for name in ("_channel_pair", "_mask_pair", "_mask_pair_secret", "_seed", "_nonce", "_weight", "_opened"):
            self.__dict__.pop(name, None)
        self._channels, self._boxes = {}, {}

    @contextmanager
    def _step(self, phase: Phase, following: Phase) -> Iterator[None]:
        """One phase: out of order it is refused and the client goes on; any error inside ends the client."""
        if self._phase is not phase:
            raise PhaseError(
                f"client {self.number}: {phase.name.lower()} called, allowed now: {self._phase.name.lower()}"
            )
        self._phase = Phase.ENDED
        try:
            yield
        except BaseException:
            self.abort()
            raise
        self._phase = following
        if following is Phase.ENDED:
            self.abort()

    def _send(self, kind: Kind, body: bytes) -> bytes:
        return pack(kind, self._context, self.number, SERVER, body)

    def _receive(self, kind: Kind, data: bytes) -> bytes:
        return unpack(data, kind, self._context, receiver=self.number, sender=SERVER)[1]

    def _commitment(self, number: int, nonce: bytes) -> bytes:
        return nonce_commitment(self._context, number, nonce)

    def _seed_commitment(self) -> bytes:
        return seed_commitment(self._context, self.number, self._seed)

    def _check_members(self, numbers: Mapping[int, bytes]) -> None:
        most, fewest = self._parameters.layout.clients, max(self._policy.survivors, self._parameters.survivors)
        _abort_unless(
            fewest <= len(numbers) <= most, f"cohort: {len(numbers)} clients, allowed: from {fewest} to {most}"
        )
        unknown = [number for number in numbers if number not in self._enrolled]
        _abort_unless(not unknown, f"cohort: client {unknown[:1]} is not enrolled")

    def _meet(self, told: Introductions) -> None:
        """Who the neighbours are, and a channel with each."""
        adverts = {number: Advert.read(body) for number, body in told.adverts.items()}
        gathered = told.nonces
        if self._parameters.complete:
            _abort_unless(not told.nonces, "introductions: nonces, allowed on the complete graph: none")
            gathered = dict.fromkeys([*adverts, self.number], b"")
            self._check_members(gathered)
            expected = gathered.keys() - {self.number}
        else:
            expected = set(self._ring(told.nonces))
        _abort_unless(
            adverts.keys() == expected,
            f"introductions: {len(adverts)} clients, allowed: the {len(expected)} neighbours",
        )
        self._peers, self._everyone = adverts, frozenset(gathered)
        self._gathering = gathering(self._context, gathered)
        self._enough(adverts, "advertised")
        self._check_keys(adverts)
        self._channels = {
            peer: Channel.between(self._channel_pair, self.number, End(peer, advert.channel), self._gathering)
            for peer, advert in adverts.items()
        }

    def _ring(self, nonces: Mapping[int, bytes]) -> tuple[int, ...]:
        """The neighbours on the ring whose order follows from everybody's nonces."""
        self._check_members(nonces)
        _abort_unless(self.number in nonces, "introductions: without this client's nonce")
        _abort_unless(nonces.keys() <= self._roster.keys(), "introductions: a nonce of nobody on the roster")
        missing = len(self._roster) - len(nonces)
        allowed = self._parameters.absent
        _abort_unless(missing <= allowed, f"introductions: {missing} nonces missing, allowed: {allowed}")
        for number, nonce in nonces.items():
            _abort_unless(
                self._commitment(number, nonce) == self._roster[number], f"client {number}: nonce not as committed"
            )
        order = ring_order(ring_seed(self._context, nonces), sorted(nonces))
        return neighbourhood(order, self._parameters.neighbours, self.number)

    def _check_keys(self, adverts: Mapping[int, Advert]) -> None:
        """Signed by whom they name, and no key anywhere twice."""
        for peer, advert in adverts.items():
            weak = not (usable(advert.channel) and usable(advert.mask))
            _abort_unless(not weak, f"client {peer}: public key of small order or malformed")
            signed = advert.signed(self._context, peer)
            _abort_unless(self._enrolled.verify(peer, advert.signature, signed), f"client {peer}: forged keys")
            if not self._parameters.complete:
                _abort_unless(advert.commitment == self._roster[peer], f"client {peer}: other commitment than its own")
        keys = [key for advert in (self._own, *adverts.values()) for key in (advert.channel, advert.mask)]
        _abort_unless(len(set(keys)) == len(keys), "introductions: one key twice")

    def _enough(self, peers: Any, did: str) -> None:
        """At least t holders."""
        count = len(peers) + self._parameters.own_shares
        threshold = self._parameters.threshold
        _abort_unless(count >= threshold, f"{count} of this client's share holders {did}, allowed: from {threshold}")

    def _masks(self) -> list[Mask]:
        """The self mask, plus the mask of each pair: added by the higher number, subtracted by the lower."""
        own = End(self.number, self._mask_pair.public)
        masks = [self_mask(self._seed, own, self._gathering)]
        for peer in sorted(self._boxes):
            other = End(peer, self._peers[peer].mask)
            masks.append(pair_mask(self._mask_pair, own, other, self._gathering))
        return masks


def gathering(context: bytes, members: Mapping[int, bytes]) -> bytes:
    """The 32 bytes that name a sum among these members (with their nonces on the ring): under every key between two.

    Clients that are told of other members share nothing, so a server gains nothing by telling them so.
    """
    return digest(context, "gathering", entries(members))


def paired_statement(gathering: bytes) -> bytes:
    """What a client confirms to every peer whose mask its value bears."""
    return digest(gathering, "paired")


def self_mask(seed: bytes, own: End, gathering: bytes) -> Mask:
    """The mask that only the client's own seed makes."""
    return Mask(derive(seed, gathering, "self mask", (own,)), 1)


def pair_mask(pair: KeyPair, own: End, other: End, gathering: bytes) -> Mask:
    """The mask between two clients with the sign that it has at `own`."""
    key = derive(pair.agree(other.public), gathering, "pair mask", (own, other))
    return Mask(key, 1 if other.number < own.number else -1)


def nonce_commitment(context: bytes, number: int, nonce: bytes) -> bytes:
    """Commitment to a client's part of the ring order."""
    return digest(context, "nonce", number.to_bytes(4, "big"), nonce)


def seed_commitment(context: bytes, number: int, seed: bytes) -> bytes:
    """Commitment to a client's self-mask seed."""
    return digest(context, "seed", number.to_bytes(4, "big"), seed)


def share_digest(context: bytes, dealer: int, holder: int, kind: bytes, share: bytes) -> bytes:
    """What an opened share is checked against."""
    return digest(context, "share", dealer.to_bytes(4, "big"), holder.to_bytes(4, "big"), kind, share)


def ring_seed(context: bytes, nonces: Mapping[int, bytes]) -> bytes:
    """The seed of the ring order."""
    return digest(context, "ring", entries(nonces))


def _abort_unless(condition: bool, message: str) -> None:
    if not condition:
        raise AbortError(message)
