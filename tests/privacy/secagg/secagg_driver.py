"""A cohort of clients and their server that tests drive by hand, with messages lost, changed or replayed."""

import copy
import hashlib
from functools import lru_cache

import numpy as np
import pytest

from privacy.secagg import (
    AbortError,
    Enrolment,
    Group,
    Identity,
    InsecureSeededEntropy,
    Layout,
    Parameters,
    Phase,
    Policy,
    SecAggError,
    SecureSumClient,
    SecureSumServer,
    sum_context,
)
from privacy.secagg.groups import add, decode, encode
from privacy.secagg.keys import KEY
from privacy.secagg.local import PHASE_OF_SERVER
from privacy.secagg.messages import ENVELOPE, SERVER, Kind, Survivors, pack, read_entries
from privacy.secagg.shamir import SHARE_BYTES

COMPLETE = [Phase.ADVERTISE, Phase.SHARE, Phase.MASK, Phase.CONFIRM, Phase.UNMASK]
RING = [Phase.ADVERTISE, Phase.REVEAL, *COMPLETE[1:]]


def layout_of(clients):
    groups = (Group("w", 3, limit=1.0), Group("wide", 2, limit=4.0, bits=64), Group("n", 2, limit=50, kind="count"))
    return Layout(groups, clients=clients, largest_weight=10)


def complete(clients, threshold, **changes):
    return Parameters(layout_of(clients), clients - 1, threshold, **changes)


def ring(clients, neighbours, threshold, **changes):
    return Parameters(layout_of(clients), neighbours, threshold, **changes)


def private(number):
    return hashlib.sha256(b"identity %d" % number).digest()


@lru_cache
def identity(number):
    return Identity(private(number))


@lru_cache
def enrolment(clients):
    return Enrolment({number: identity(number).public for number in range(clients)})


def values_of(number):
    rng = np.random.default_rng([number, 1])
    return {
        "w": rng.uniform(-1.2, 1.2, 3),  # now and then clipped
        "wide": rng.uniform(-4, 4, 2),
        "n": rng.integers(-50, 51, 2),
    }


def weight_of(number):
    return 1 + number % 10


def rounding_of(number):
    return np.random.default_rng([number, 2])


def plain_total(layout, numbers):
    """The total of these clients' vectors, summed in the ring without any mask."""
    into = np.zeros(layout.nbytes, np.uint8)
    for number in numbers:
        add(layout, into, encode(layout, values_of(number), weight_of(number), rounding_of(number)))
    return decode(layout, into)


def same(total, other):
    """Whether two totals hold the same numbers, bit for bit."""
    arrays = [(total.means, other.means), (total.counts, other.counts)]
    return (total.weight, total.clipped) == (other.weight, other.clipped) and all(
        one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one) for one, two in arrays
    )


class Recorded:
    """An entropy that keeps what it gave."""

    secure = False

    def __init__(self, *address):
        self._inner, self.drawn = InsecureSeededEntropy(*address), []

    def draw(self, size):
        self.drawn.append(self._inner.draw(size))
        return self.drawn[-1]


class Cohort:
    """One sum: the server, its clients, and what the server last said to each."""

    def __init__(
        self,
        parameters,
        *,
        session=b"session",
        round=0,
        purpose="weights",
        model=b"model",
        models=None,
        policy=None,
        enrolled=None,
        seed=0,
    ):
        clients = parameters.layout.clients
        self.parameters, self.enrolled = parameters, enrolled or enrolment(clients)
        self.context = sum_context(session, round, purpose, parameters, model)
        self.server = SecureSumServer(enrolled=self.enrolled, parameters=parameters, context=self.context)
        self.entropies = {n: Recorded(seed, repr(session), round, purpose, n) for n in range(clients)}
        self.clients = {
            number: SecureSumClient(
                number,
                identity(number),
                enrolled=self.enrolled,
                parameters=parameters,
                policy=policy or Policy.of(parameters),
                context=sum_context(session, round, purpose, parameters, (models or {}).get(number, model)),
                weight=weight_of(number),
                entropy=self.entropies[number],
            )
            for number in range(clients)
        }
        self.inbox = dict.fromkeys(self.clients, b"")
        self.errors = {}

    @property
    def phase(self):
        return PHASE_OF_SERVER[self.server.phase.name]

    def answer(self, number, message):
        """What a client says to a message in this phase."""
        client, phase = self.clients[number], self.phase
        if phase is Phase.ADVERTISE:
            return client.advertise()
        if phase is Phase.MASK:
            return client.mask(message, values_of(number), rounding_of(number))
        return getattr(client, phase.name.lower())(message)

    def step(self, *, absent=(), down=None, up=None):
        """One phase. `down` and `up` may change a message on its way to or from a client, or lose it (None)."""
        phase = self.phase
        for number, told in self.inbox.items():
            if number in absent:
                continue
            message = down(phase, number, told) if down else told
            try:
                data = self.answer(number, message) if message is not None else None
                data = up(phase, number, data) if up and data is not None else data
                if data is not None:
                    self.server.receive(data)
            except SecAggError as error:
                self.errors.setdefault(number, error)
        self.inbox = self.server.close_phase()

    def run(self, drops=None, **hooks):
        """Every phase to the end; `drops` names who is gone from a phase on."""
        gone = set()
        while self.inbox:
            gone |= set((drops or {}).get(self.phase, ()))
            self.step(absent=gone, **hooks)
        return self.server.result

    def snapshot(self):
        """A copy to play another ending with; both halves replace or copy what they hold, but for these."""
        other = copy.copy(self)
        other.clients = {number: copy.copy(client) for number, client in self.clients.items()}
        other.inbox, other.errors = dict(self.inbox), {}
        other.server = copy.copy(self.server)
        for name in ("_answered", "_adverts", "_shares"):
            setattr(other.server, name, dict(getattr(self.server, name)))
        other.server._keys = set(getattr(self.server, "_keys", ()))
        other.server._sum = self.server._sum.copy()
        return other

    def secrets(self):
        """Everything that was drawn as a private key, a seed or a nonce."""
        return {part for entropy in self.entropies.values() for part in entropy.drawn if len(part) == KEY}

    def from_server(self, kind, number, body):
        return pack(kind, self.context, SERVER, number, body)

    def expected(self, numbers):
        return plain_total(self.parameters.layout, numbers)


@lru_cache(maxsize=64)
def _just_before(parameters, phase):
    if phase is Phase.ADVERTISE:
        return Cohort(parameters)
    earlier = COMPLETE if parameters.complete else RING
    cohort = _just_before(parameters, earlier[earlier.index(phase) - 1]).snapshot()
    cohort.step()
    return cohort


def just_before(parameters, phase):
    """A cohort that has come up to this phase without trouble; the way there is played once."""
    return _just_before(parameters, phase).snapshot()


def reworded(message, body):
    """The message with another body."""
    return message[:ENVELOPE] + body


def flipped(data, bit):
    """The bytes with one bit changed; negative counts from the end."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def holds(thing, secrets, seen=None):
    """Whether a secret, or an object made to hold one, can be reached from here; identities and entropy left out."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return False
    seen.add(id(thing))
    if isinstance(thing, bytes):
        return any(secret in thing for secret in secrets)
    if isinstance(thing, dict):
        return any(holds(part, secrets, seen) for pair in thing.items() for part in pair)
    if isinstance(thing, list | tuple | set | frozenset):
        return any(holds(part, secrets, seen) for part in thing)
    if type(thing).__name__ in ("Channel", "KeyPair", "Mask"):
        return True
    skipped = ("_identity", "_entropy", "_enrolled")
    return any(
        holds(part, secrets, seen) for name, part in getattr(thing, "__dict__", {}).items() if name not in skipped
    )


def refused(client, call, message, error=AbortError):
    """The call ends the client, which keeps nothing, and says why."""
    with pytest.raises(error, match=message):
        call()
    assert client.ended
    assert not holds(client, ())


def opened(message):
    """The shares in an UNMASK message, by dealer: b"b" and seed share, or b"s" and key share."""
    return read_entries(message[ENVELOPE:], 1 + SHARE_BYTES, "test")


def told_survivors(cohort, number, numbers):
    """SURVIVORS for one client that names these, with the tags that the server has for it of those among them."""
    tags = Survivors.read(cohort.inbox[number][ENVELOPE:]).tags
    body = Survivors(frozenset(numbers), {peer: tag for peer, tag in tags.items() if peer in numbers}).body()
    return cohort.from_server(Kind.SURVIVORS, number, body)
