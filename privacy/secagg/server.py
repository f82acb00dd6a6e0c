"""The server's half of a secure sum: it holds keys, boxes and one running sum, never a client's vector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum

import numpy as np

from privacy.secagg.client import (
    KEY_SHARE,
    SEED_SHARE,
    gathering,
    nonce_commitment,
    pair_mask,
    ring_seed,
    seed_commitment,
    self_mask,
    share_digest,
)
from privacy.secagg.errors import AbortError, MessageError, PhaseError
from privacy.secagg.graph import neighbourhood, ring_order
from privacy.secagg.groups import Total, add, decode
from privacy.secagg.keys import KEY, End, Enrolment, KeyPair, usable
from privacy.secagg.masks import Mask, apply
from privacy.secagg.messages import (
    HASH,
    SERVER,
    Advert,
    Introductions,
    Kind,
    Shares,
    Survivors,
    entries,
    pack,
    read_entries,
    unpack,
)
from privacy.secagg.parameters import Parameters, require_context
from privacy.secagg.shamir import SHARE_BYTES, combine, share_from_bytes


class ServerPhase(IntEnum):
    """Which messages the server takes now."""

    ADVERTS = Kind.ADVERT
    REVEALS = Kind.REVEAL
    SHARES = Kind.SHARES
    MASKED = Kind.MASKED
    CONFIRMS = Kind.CONFIRM
    UNMASKS = Kind.UNMASK
    ENDED = 0


class SecureSumServer:
    """The server of one sum.

    Hand every client's bytes to `receive`; `close_phase` ends a phase and gives the next message for each client that
    is still taking part. After the last phase `result` holds the sum. A client that has not answered when a phase is
    closed has vanished. Below the threshold the sum is given up, and everything it held is dropped.

    Args:
        enrolled: everybody's public identities.
        parameters: of the sum.
        context: of the sum, from `sum_context`.
        threads: for removing masks.

    Raises:
        ConfigurationError: the context is none.
    """

    def __init__(self, *, enrolled: Enrolment, parameters: Parameters, context: bytes, threads: int = 1) -> None:
        require_context(context)
        self._enrolled, self._parameters, self._context, self._threads = enrolled, parameters, context, threads
        self._phase = ServerPhase.ADVERTS
        self._answered: dict[int, bytes] = {}
        self._members: tuple[int, ...] = ()
        self._adverts: dict[int, Advert] = {}
        self._keys: set[bytes] = set()
        self._neighbours: dict[int, tuple[int, ...]] = {}
        self._shares: dict[int, Shares] = {}
        self._survivors: tuple[int, ...] = ()
        self._surviving: frozenset[int] = frozenset()
        self._gathering = b""
        self._sum = np.zeros(parameters.layout.nbytes, np.uint8)
        self._result: Total | None = None

    def __repr__(self) -> str:
        return f"SecureSumServer(phase={self._phase.name}, answered={len(self._answered)})"

    @property
    def phase(self) -> ServerPhase:
        """Which messages are taken now."""
        return self._phase

    @property
    def answered(self) -> tuple[int, ...]:
        """Who has answered in this phase."""
        return tuple(sorted(self._answered))

    @property
    def survivors(self) -> tuple[int, ...]:
        """Whose values are in the sum, once masked vectors are in."""
        return self._survivors

    def receive(self, data: bytes) -> int:
        """Take one client's message of this phase; the client's number.

        Raises:
            MessageError: malformed, of another sum or phase, from somebody who takes no part or has answered already.
                Nothing has changed.
            PhaseError: the sum has ended.
        """
        if self._phase is ServerPhase.ENDED:
            raise PhaseError("secure sum: has ended and takes no message")
        kind = Kind(self._phase.value)
        sender, body = unpack(data, kind, self._context, receiver=SERVER)
        if sender in self._answered:
            raise MessageError(f"{kind.name}: a second one from client {sender}")
        if not self._expects(sender):
            raise MessageError(f"{kind.name}: from client {sender}, who takes no part")
        check: Mapping[Kind, Callable[[int, bytes], bytes]] = {
            Kind.ADVERT: self._take_advert,
            Kind.REVEAL: self._take_reveal,
            Kind.SHARES: self._take_shares,
            Kind.MASKED: self._take_masked,
            Kind.CONFIRM: self._take_confirm,
            Kind.UNMASK: self._take_unmask,
        }
        self._answered[sender] = check[kind](sender, body)
        return sender

    def close_phase(self) -> dict[int, bytes]:
        """End the phase; the next message by client number (none after the last phase, when `result` is ready).

        Raises:
            AbortError: too few are left. The sum has ended without a result.
        """
        following: Mapping[ServerPhase, Callable[[], dict[int, bytes]]] = {
            ServerPhase.ADVERTS: self._introduce if self._parameters.complete else self._roster,
            ServerPhase.REVEALS: self._order,
            ServerPhase.SHARES: self._forward_boxes,
            ServerPhase.MASKED: self._tell_survivors,
            ServerPhase.CONFIRMS: self._forward_confirmations,
            ServerPhase.UNMASKS: self._open,
        }
        if self._phase not in following:
            raise PhaseError("secure sum: has ended")
        with self._ending_on_error():
            messages = following[self._phase]()
            self._answered = {}
        return messages

    @property
    def result(self) -> Total:
        """The sum.

        Raises:
            PhaseError: it is not there (yet).
        """
        if self._result is None:
            raise PhaseError("secure sum: no result; every phase must be closed first")
        return self._result

    # what each phase takes

    def _expects(self, sender: int) -> bool:
        if self._phase is ServerPhase.ADVERTS:
            return sender in self._enrolled
        return sender in self._members

    def _take_advert(self, sender: int, body: bytes) -> bytes:
        advert = Advert.read(body)
        if not self._enrolled.verify(sender, advert.signature, advert.signed(self._context, sender)):
            raise MessageError(f"ADVERT: not signed by client {sender}")
        if len(self._answered) >= self._parameters.layout.clients:
            raise MessageError(f"ADVERT: client {sender} is one too many, allowed: {self._parameters.layout.clients}")
        keys = (advert.channel, advert.mask)
        if not all(usable(key) for key in keys):
            raise MessageError(f"ADVERT: client {sender}'s keys are of small order or malformed")
        if len({*keys, *self._keys}) < len(self._keys) + len(keys):
            raise MessageError(f"ADVERT: client {sender}'s keys come twice")
        self._keys.update(keys)
        self._adverts[sender] = advert
        return b""

    def _take_reveal(self, sender: int, body: bytes) -> bytes:
        if len(body) != HASH or nonce_commitment(self._context, sender, body) != self._adverts[sender].commitment:
            raise MessageError(f"REVEAL: client {sender}'s nonce is not as committed")
        return body

    def _take_shares(self, sender: int, body: bytes) -> bytes:
        shares, near = Shares.read(body), self._neighbours[sender]
        holders = self._parameters.holders(sender, near)
        if shares.boxes.keys() != set(near) or shares.digests.keys() != set(holders):
            raise MessageError(f"SHARES: from client {sender}, for others than its neighbours")
        self._shares[sender] = shares
        return b""

    def _take_masked(self, sender: int, body: bytes) -> bytes:
        layout = self._parameters.layout
        tags = read_entries(body[layout.nbytes :], HASH, f"MASKED from client {sender}: after the vector")
        if tags.keys() != self._near(sender, self._shares):
            raise MessageError(f"MASKED: from client {sender}, tags for others than its neighbours that shared")
        add(layout, self._sum, np.frombuffer(body, np.uint8, layout.nbytes))
        return body[layout.nbytes :]

    def _take_confirm(self, sender: int, body: bytes) -> bytes:
        tags = read_entries(body, HASH, "CONFIRM")
        if tags.keys() != self._near(sender, self._surviving):
            raise MessageError(f"CONFIRM: from client {sender}, for others than its surviving neighbours")
        return body

    def _take_unmask(self, sender: int, body: bytes) -> bytes:
        shares = read_entries(body, 1 + SHARE_BYTES, "UNMASK")
        if not shares.keys() <= {sender, *self._near(sender, self._shares)}:
            raise MessageError(f"UNMASK: from client {sender}, of others than its neighbours")
        return body

    # what each phase leads to

    def _introduce(self) -> dict[int, bytes]:
        """Complete graph: everybody meets everybody."""
        members = self._keep(sorted(self._adverts))
        self._neighbours = {member: tuple(m for m in members if m != member) for member in members}
        self._gathering = gathering(self._context, dict.fromkeys(members, b""))
        return self._introductions({})

    def _roster(self) -> dict[int, bytes]:
        """Sparse graph: everybody learns everybody's commitment to its part of the ring order."""
        members = self._keep(sorted(self._adverts))
        body = entries({member: self._adverts[member].commitment for member in members})
        self._phase = ServerPhase.REVEALS
        return self._to_all(Kind.ROSTER, body)

    def _order(self) -> dict[int, bytes]:
        """Sparse graph: the ring follows from the nonces."""
        missing, allowed = len(self._members) - len(self._answered), self._parameters.absent
        if missing > allowed:
            raise AbortError(f"secure sum: {missing} clients did not reveal their nonce, allowed: {allowed}")
        nonces = dict(self._answered)
        members = self._keep(sorted(nonces))
        order = ring_order(ring_seed(self._context, nonces), members)
        self._gathering, degree = gathering(self._context, nonces), self._parameters.neighbours
        self._neighbours = {member: neighbourhood(order, degree, member) for member in members}
        return self._introductions(nonces)

    def _introductions(self, nonces: Mapping[int, bytes]) -> dict[int, bytes]:
        self._phase = ServerPhase.SHARES
        bodies = {member: self._adverts[member].body() for member in self._members}
        return {
            member: self._send(
                Kind.INTRODUCTIONS, member, Introductions(nonces, {peer: bodies[peer] for peer in near}).body()
            )
            for member, near in self._neighbours.items()
        }

    def _forward_boxes(self) -> dict[int, bytes]:
        members = self._keep(sorted(self._shares))
        self._phase = ServerPhase.MASKED
        return {
            member: self._send(
                Kind.BOXES,
                member,
                entries({peer: self._shares[peer].boxes[member] for peer in self._near(member, self._shares)}),
            )
            for member in members
        }

    def _tell_survivors(self) -> dict[int, bytes]:
        self._survivors = self._keep(self.answered)
        self._surviving = frozenset(self._survivors)
        self._phase = ServerPhase.CONFIRMS
        return {
            member: self._send(Kind.SURVIVORS, member, Survivors(self._surviving, tags).body())
            for member, tags in self._tags("MASKED").items()
        }

    def _forward_confirmations(self) -> dict[int, bytes]:
        self._keep(self.answered)
        self._phase = ServerPhase.UNMASKS
        return {
            member: self._send(Kind.CONFIRMATIONS, member, entries(tags))
            for member, tags in self._tags("CONFIRM").items()
        }

    def _tags(self, what: str) -> dict[int, dict[int, bytes]]:
        """To each client that has answered the tags in its neighbours' answers for it."""
        tags = {sender: read_entries(body, HASH, what) for sender, body in self._answered.items()}
        return {member: {peer: tags[peer][member] for peer in self._near(member, tags)} for member in self._members}

    def _open(self) -> dict[int, bytes]:
        """Rebuild the seeds of survivors and the mask keys of who vanished; take their masks off the sum."""
        self._keep(self.answered, at_least=1)
        opened = {holder: read_entries(body, 1 + SHARE_BYTES, "UNMASK") for holder, body in self._answered.items()}
        masks = [mask for survivor in self._survivors for mask in self._of_survivor(survivor, opened)]
        for vanished in sorted(self._shares.keys() - set(self._survivors)):
            masks += self._of_vanished(vanished, opened)
        layout = self._parameters.layout
        for start in range(0, len(masks), _AT_ONCE):
            apply(self._sum, layout.words64, masks[start : start + _AT_ONCE], threads=self._threads)
        self._result = decode(layout, self._sum)
        self._phase = ServerPhase.ENDED
        self._forget()
        return {}

    def _of_survivor(self, survivor: int, opened: Mapping[int, Mapping[int, bytes]]) -> Iterator[Mask]:
        seed = self._rebuild(survivor, SEED_SHARE, opened)
        if seed_commitment(self._context, survivor, seed) != self._shares[survivor].seed:
            raise AbortError(f"client {survivor}: its shares make another seed than it committed to")
        mask = self_mask(seed, End(survivor, self._adverts[survivor].mask), self._gathering)
        yield Mask(mask.key, -mask.sign)

    def _of_vanished(self, vanished: int, opened: Mapping[int, Mapping[int, bytes]]) -> Iterator[Mask]:
        """The masks that survivors share with a client that vanished after it had shared."""
        near = sorted(self._near(vanished, self._surviving))
        if near:
            pair = KeyPair(self._rebuild(vanished, KEY_SHARE, opened))
            if pair.public != self._adverts[vanished].mask:
                raise AbortError(f"client {vanished}: its shares make another key than it advertised")
            own = End(vanished, pair.public)
            for survivor in near:
                # what the vanished client would have added takes off what the survivor put on
                yield pair_mask(pair, own, End(survivor, self._adverts[survivor].mask), self._gathering)

    def _rebuild(self, dealer: int, kind: bytes, opened: Mapping[int, Mapping[int, bytes]]) -> bytes:
        """A secret from the first t shares that are what their dealer dealt.

        Raises:
            AbortError: fewer than t are.
        """
        good: dict[int, int] = {}
        threshold, digests = self._parameters.threshold, self._shares[dealer].digests
        for holder in self._parameters.holders(dealer, self._neighbours[dealer]):
            answer = opened.get(holder, {}).get(dealer, b"")
            expected = digests[holder][:HASH] if kind == SEED_SHARE else digests[holder][HASH:]
            share = answer[1:]
            if answer[:1] == kind and share_digest(self._context, dealer, holder, kind, share) == expected:
                good[holder + 1] = _dealt(dealer, share)
            if len(good) == threshold:
                break
        if len(good) < threshold:
            raise AbortError(f"client {dealer}: {len(good)} good shares, allowed: from {threshold}")
        secret = combine(tuple(good), tuple(good.values()))
        if secret.bit_length() > 8 * KEY:
            raise AbortError(f"client {dealer}: its shares make no key")
        return secret.to_bytes(KEY, "big")

    # small things

    def _near(self, member: int, among: Mapping[int, object] | frozenset[int]) -> set[int]:
        return {peer for peer in self._neighbours[member] if peer in among}

    def _keep(self, members: list[int] | tuple[int, ...], *, at_least: int | None = None) -> tuple[int, ...]:
        """Go on with these."""
        fewest = max(self._parameters.survivors, self._parameters.threshold) if at_least is None else at_least
        if len(members) < fewest:
            raise AbortError(f"secure sum: {len(members)} clients left, allowed: from {fewest}")
        self._members = tuple(members)
        return self._members

    def _to_all(self, kind: Kind, body: bytes) -> dict[int, bytes]:
        return {member: self._send(kind, member, body) for member in self._members}

    def _send(self, kind: Kind, member: int, body: bytes) -> bytes:
        return pack(kind, self._context, SERVER, member, body)

    @contextmanager
    def _ending_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._phase = ServerPhase.ENDED
            self._forget()
            raise

    def _forget(self) -> None:
        self._shares, self._answered = {}, {}
        self._sum = np.zeros(0, np.uint8)


def _dealt(dealer: int, share: bytes) -> int:
    """A share that is just what its dealer dealt, which may still be no share."""
    try:
        return share_from_bytes(share)
    except MessageError:
        raise AbortError(f"client {dealer}: it dealt what is no share") from None


_AT_ONCE = 64
"""masks taken off in one pass over the sum"""
