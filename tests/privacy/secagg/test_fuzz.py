"""Ten thousand mutated messages, over every phase and both directions: refused with a known error, or without effect.

A mutated message that is taken leads to the exact sum of the survivors or to an abort, with one exception by design:
the body of a masked vector. Every value of it is equally likely, so a client may send whatever vector it likes (it may
choose its values anyway), and a bit that a network flips is for the transport to find. There, only errors are checked.
"""

import random
from functools import lru_cache

import pytest
import secagg_driver
from secagg_driver import COMPLETE, RING, Cohort, complete, flipped, holds, just_before, ring, same

from privacy.secagg import AbortError, MessageError, Phase, SecAggError
from privacy.secagg import client as client_module
from privacy.secagg import keys as keys_module
from privacy.secagg import server as server_module
from privacy.secagg.messages import ENVELOPE

SUMS = {"complete": complete(4, 3), "ring": ring(6, 4, 3)}
UP = [(name, phase) for name, order in (("complete", COMPLETE), ("ring", RING)) for phase in order]
DOWN = [(name, phase) for name, phase in UP if phase is not Phase.ADVERTISE]  # the server speaks first in no sum
TIMES = 500
"""mutations of each of the 11 kinds of message from clients and 9 from the server: 10,000"""


PLAYED = 60
"""of each kind, so many that were taken are played to the end of the sum"""


@pytest.fixture
def secrets(monkeypatch):
    """Everything secret that both halves make during a test, collected where it is made."""
    made = set()

    def collecting(module, name, parts):
        inner = getattr(module, name)

        def call(*arguments, **named):
            result = inner(*arguments, **named)
            made.update(parts(result))
            return result

        monkeypatch.setattr(module, name, call)

    collecting(client_module, "derive", lambda key: [key])
    collecting(keys_module, "derive", lambda key: [key[start : start + 32] for start in range(0, len(key), 32)])
    collecting(client_module, "split", lambda shares: [share.to_bytes(33, "big") for share in shares])
    collecting(server_module, "combine", lambda secret: [secret.to_bytes(33, "big")[-32:]])
    secagg_driver._just_before.cache_clear()  # made before anybody listened
    yield made
    secagg_driver._just_before.cache_clear()


def shows_a_secret(text, secrets):
    """Whether a text holds a secret as hexadecimal digits, as a number or as Python writes bytes."""
    low = text.lower()
    return any(
        secret.hex() in low
        or str(int.from_bytes(secret, "big")) in text
        or str(int.from_bytes(secret, "little")) in text
        or repr(secret)[2:-1] in text
        for secret in secrets
    )


def mutated(rng, message, others):
    """A message with one thing wrong; `others` are messages to replay or to take parts from."""
    body = len(message) > ENVELOPE
    changes = [
        lambda: flipped(message, rng.randrange(8 * len(message))),
        lambda: flipped(message, rng.randrange(8 * ENVELOPE, 8 * len(message)) if body else rng.randrange(64)),
        lambda: flipped(flipped(message, rng.randrange(8 * len(message))), rng.randrange(8 * len(message))),
        lambda: message[: rng.randrange(len(message))],
        lambda: message[: -rng.choice([1, 2, 4, 32, 33, 64])],
        lambda: message + rng.randbytes(rng.choice([1, 2, 4, 8, 32, 36])),
        lambda: message[:40] + message[44:48] + message[40:44] + message[48:],  # sender and receiver swapped
        lambda: message[:40] + rng.randrange(9).to_bytes(4, "big") + message[44:],
        lambda: message[:44] + rng.randrange(9).to_bytes(4, "big") + message[48:],
        lambda: rng.choice(others),
        lambda: message[:ENVELOPE] + rng.choice(others)[ENVELOPE:],
        lambda: message[:ENVELOPE] + rng.choice([2**32 - 1, 2**31, 255, 0]).to_bytes(4, "big") + message[52:],
        lambda: reordered(rng, message),
        lambda: overwritten(rng, message),
        lambda: message[:ENVELOPE] + rng.randbytes(len(message) - ENVELOPE),
    ]
    return rng.choice(changes)()


def reordered(rng, message):
    """Two equal pieces of the body change places, as entries of a list would."""
    size = rng.choice([4, 36, 38, 68, 86, 228])
    pieces = (len(message) - ENVELOPE - 4) // size
    if pieces < 2:
        return message[:ENVELOPE] + message[ENVELOPE:][::-1]
    first, second = sorted(rng.sample(range(pieces), 2))
    a, b = (ENVELOPE + 4 + size * place for place in (first, second))
    return message[:a] + message[b : b + size] + message[a + size : b] + message[a : a + size] + message[b + size :]


def overwritten(rng, message):
    at = rng.randrange(len(message))
    size = rng.choice([1, 4, 16, 32])
    return (message[:at] + rng.choice([bytes(size), b"\xff" * size, rng.randbytes(size)]) + message[at + size :])[
        : len(message)
    ]


def conversation(parameters, **changes):
    """Every message of an undisturbed sum, by direction and phase."""
    said, cohort = {}, Cohort(parameters, **changes)

    def down(phase, number, data):
        if data:
            said.setdefault((True, phase), {})[number] = data
        return data

    def up(phase, number, data):
        said.setdefault((False, phase), {})[number] = data
        return data

    cohort.run(down=down, up=up)
    return said


def told(said):
    return [data for messages in said.values() for data in messages.values()]


@lru_cache
def replays(name):
    """Messages of other phases of a sum, and of the same sum in other rounds, sessions and with other keys."""
    changes = [{"round": 1}, {"session": b"t"}, {"purpose": "losses"}, {"seed": 1}]
    return told(conversation(SUMS[name])) * 3 + [
        data for change in changes for data in told(conversation(SUMS[name], **change))
    ]


def mutations(name, phase, honest):
    """`TIMES` pairs of a client and a message changed from the honest one to or from it."""
    rng, others = random.Random(f"{name} {phase}"), replays(name)
    for _ in range(TIMES):
        number = rng.choice(sorted(honest))
        changed = mutated(rng, honest[number], others)
        while changed == honest[number]:
            changed = mutated(rng, honest[number], others)
        yield number, changed


def answered(before):
    """The cohort after every client has answered, and the answers, which the server has yet to receive."""
    after = before.snapshot()
    return after, {number: after.answer(number, message) for number, message in after.inbox.items()}


def finish(world, answers, texts):
    """The total after these answers and all the phases to come, or None; nothing but known errors on the way."""
    for data in answers:
        try:
            world.server.receive(data)
        except MessageError as error:
            texts.add(str(error))
    try:
        world.inbox = world.server.close_phase()
        return world.run()
    except AbortError as error:
        texts.add(str(error))
        assert not holds(world.server, world.secrets())
        return None
    finally:
        texts.update(map(str, world.errors.values()))


def state(server):
    return server._answered, server._adverts, server._shares, server._keys, server._sum.tobytes()


@pytest.mark.parametrize(("name", "phase"), UP, ids=str)
def test_mutated_messages_from_clients(name, phase, secrets):
    before = just_before(SUMS[name], phase)
    after, honest = answered(before)
    texts, refused, exact, played = set(), 0, 0, 0
    for _, message in mutations(name, phase, honest):
        world = after.snapshot()
        try:
            sender = world.server.receive(message)
        except SecAggError as error:
            assert type(error) is MessageError
            assert state(world.server) == state(after.server)
            texts.add(str(error))
            refused += 1
            continue
        played += 1
        if played > PLAYED:
            continue
        total = finish(world, [data for number, data in honest.items() if number != sender], texts)
        if total is not None and phase is not Phase.MASK:
            assert same(total, world.expected(world.server.survivors))
            exact += 1
    assert refused > TIMES // 2
    assert exact or phase in (Phase.ADVERTISE, Phase.REVEAL, Phase.MASK)
    assert not shows_a_secret("\n".join(texts), secrets | after.secrets())


@pytest.mark.parametrize(("name", "phase"), DOWN, ids=str)
def test_mutated_messages_from_the_server(name, phase, secrets):
    before = just_before(SUMS[name], phase)
    after, honest = answered(before)
    texts, refused, played = set(), 0, 0
    for number, message in mutations(name, phase, before.inbox):
        world = after.snapshot()
        client = world.clients[number] = before.snapshot().clients[number]
        try:
            answer = world.answer(number, message)
        except SecAggError as error:
            assert isinstance(error, MessageError | AbortError)
            assert client.ended
            assert not holds(client, after.secrets())
            texts.add(str(error))
            refused += 1
            continue
        played += 1
        if played > PLAYED:
            continue
        total = finish(world, (honest | {number: answer}).values(), texts)
        if total is not None:
            assert same(total, world.expected(world.server.survivors))
    assert refused > TIMES // 2
    assert not shows_a_secret("\n".join(texts), secrets | after.secrets())


def test_ten_thousand_mutations():
    assert (len(UP) + len(DOWN)) * TIMES == 10_000


def things(thing, seen):
    """Every object of the package that can be reached from one."""
    if id(thing) in seen:
        return
    seen[id(thing)] = thing
    if type(thing).__module__.startswith("privacy.secagg"):
        yield thing
    parts = [*thing.keys(), *thing.values()] if isinstance(thing, dict) else []
    parts += list(thing) if isinstance(thing, list | tuple | set | frozenset) else []
    for part in [*parts, *getattr(thing, "__dict__", {}).values()]:
        yield from things(part, seen)


@pytest.mark.parametrize("name", SUMS)
def test_no_object_shows_a_secret_in_any_phase(name, secrets, monkeypatch):
    made, mask = [], client_module.Mask
    monkeypatch.setattr(client_module, "Mask", lambda key, sign: made.append(mask(key, sign)) or made[-1])
    cohort, kinds = Cohort(SUMS[name]), set()
    while cohort.inbox:
        cohort.step()
        found = [*things([cohort.server, cohort.clients, made], {}), *made]
        kinds |= {type(thing).__name__ for thing in found}
        text = "\n".join(f"{thing!r} {thing!s}" for thing in found)
        open_nonces = {client._nonce for client in cohort.clients.values() if "_nonce" in vars(client)}
        assert not shows_a_secret(text, secrets | cohort.secrets() - open_nonces)
    assert {"SecureSumClient", "SecureSumServer", "KeyPair", "Channel", "Identity", "Mask", "Shares"} <= kinds
    identities = [hidden for number in cohort.clients for hidden in [secagg_driver.private(number)]]
    assert not shows_a_secret(text, identities)


def test_the_search_for_secrets_in_texts_finds_them():
    secret = bytes(range(100, 132))
    for shown in (secret.hex(), secret.hex().upper(), repr(secret), int.from_bytes(secret, "big"), secret):
        assert shows_a_secret(f"key {shown}!", {secret})
    assert not shows_a_secret("key 12!", {secret})
