"""The protocol while everybody behaves: the exact sum, a key of its own for everything, order of calls, the wire."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secagg_driver import (
    COMPLETE,
    RING,
    Cohort,
    complete,
    enrolment,
    holds,
    identity,
    just_before,
    ring,
    rounding_of,
    same,
    values_of,
    weight_of,
)

from privacy.secagg import (
    AbortError,
    ConfigurationError,
    Contribution,
    Group,
    InsecureSeededEntropy,
    Layout,
    Parameters,
    Phase,
    PhaseError,
    Policy,
    SecureSumClient,
    SecureSumServer,
    Wire,
    sum_context,
)
from privacy.secagg import client as client_module
from privacy.secagg import keys as keys_module
from privacy.secagg import server as server_module
from privacy.secagg.groups import encode
from privacy.secagg.masks import Mask

GRAPHS = {
    "two": complete(2, 2),
    "complete": complete(7, 4),
    "ring": ring(12, 6, 4),
    "smallest ring": ring(5, 2, 2),
}


@pytest.mark.parametrize("parameters", GRAPHS.values(), ids=GRAPHS)
def test_the_sum_is_that_of_the_plain_vectors_to_the_last_bit(parameters):
    cohort = Cohort(parameters)
    total = cohort.run()
    assert same(total, cohort.expected(range(parameters.layout.clients)))
    assert not holds(cohort.server, cohort.secrets())
    assert not any(holds(client, cohort.secrets()) for client in cohort.clients.values())


def test_a_sparse_ring_talks_to_neighbours_only():
    cohort = just_before(ring(12, 6, 4), Phase.MASK)
    assert all(len(client._channels) == 6 for client in cohort.clients.values())
    assert all(len(shares.digests) == 6 for shares in cohort.server._shares.values())


def test_on_the_complete_graph_a_client_holds_a_share_of_its_own():
    cohort = just_before(complete(5, 5), Phase.MASK)
    assert all(len(shares.digests) == 5 for shares in cohort.server._shares.values())
    assert same(cohort.run(), cohort.expected(range(5)))  # all 5 shares are needed, one of them its own


@pytest.mark.parametrize("parameters", [complete(5, 3), ring(6, 4, 3)], ids=["complete", "ring"])
def test_calls_out_of_order_are_refused_and_the_client_goes_on(parameters):
    order = COMPLETE if parameters.complete else RING
    cohort = Cohort(parameters)
    for phase in order:
        for other in RING:
            if other is phase:
                continue
            calls = {Phase.ADVERTISE: (), Phase.MASK: (b"", {}, rounding_of(0))}
            with pytest.raises(PhaseError, match=f"{other.name.lower()} called, allowed now: {phase.name.lower()}"):
                getattr(cohort.clients[0], other.name.lower())(*calls.get(other, (b"",)))
        cohort.step()
    assert same(cohort.server.result, cohort.expected(range(parameters.layout.clients)))


def test_the_result_is_there_only_at_the_end():
    cohort = Cohort(complete(4, 3))
    while cohort.inbox:
        with pytest.raises(PhaseError, match="no result"):
            _ = cohort.server.result
        cohort.step()
    assert cohort.server.result.weight == sum(map(weight_of, range(4)))


# Every keystream of a run has a key of its own (row 23), and every box key seals once.


class Ledger:
    """Every key that a run makes: what it is for, with what it was made from."""

    def __init__(self, monkeypatch):
        self.derived, self.boxes, self.masks = {}, [], {}
        derive, cipher = keys_module.derive, keys_module.AESGCM

        def deriving(secret, context, purpose, ends, size=keys_module.KEY):
            key = derive(secret, context, purpose, ends, size)
            source = (context, purpose, tuple(sorted((end.number, end.public) for end in ends)))
            for start in range(0, size, keys_module.KEY):
                part = key[start : start + keys_module.KEY]
                assert self.derived.setdefault(part, (*source, start)) == (*source, start)
            return key

        ledger = self

        class Sealing:
            def __init__(self, key):
                self._key, self._inner = key, cipher(key)

            def encrypt(self, nonce, plain, data):
                ledger.boxes.append((self._key, nonce))
                return self._inner.encrypt(nonce, plain, data)

            def decrypt(self, nonce, box, data):
                return self._inner.decrypt(nonce, box, data)

        def masking(key, sign):
            self.masks.setdefault(key, set()).add(sign)
            return Mask(key, sign)

        for module in (keys_module, client_module):
            monkeypatch.setattr(module, "derive", deriving)
        for module in (client_module, server_module):
            monkeypatch.setattr(module, "Mask", masking)
        monkeypatch.setattr(keys_module, "AESGCM", Sealing)


def test_no_two_keystreams_and_no_two_boxes_share_a_key(monkeypatch):
    """Over clients, rounds, sums of a round and sessions; even where the entropy repeats itself from sum to sum."""
    ledger, runs = Ledger(monkeypatch), 0
    for session in (b"a", b"b"):
        for round_ in (0, 1):
            for purpose in ("weights", "losses"):
                cohort = Cohort(complete(4, 3), session=session, round=round_, purpose=purpose)
                repeating = {number: InsecureSeededEntropy(0, number) for number in cohort.clients}
                for number, client in cohort.clients.items():
                    client._entropy = repeating[number]
                cohort.run({Phase.MASK: [3]})
                runs += 1
    pairs, boxes = 4 * 3 // 2, 4 * 3
    assert len(ledger.boxes) == len(set(ledger.boxes)) == runs * boxes
    assert len({key for key, _ in ledger.boxes}) == len(ledger.boxes)
    # self masks of 3 survivors (put on and taken off), and every pair (both ends; with the one that vanished: one end)
    assert len(ledger.masks) == runs * (3 + pairs)
    assert not ledger.masks.keys() & {key for key, _ in ledger.boxes}
    # and no derived key, whatever for, was derived twice from different things: `deriving` asserts it
    assert len(ledger.derived) == runs * (3 + pairs + pairs * 4)


def test_two_clients_with_different_models_refuse_each_other():
    """Row 22 (Pasquini et al. 2022): whoever was sent another model is alone with its messages."""
    cohort = Cohort(complete(5, 3), models={4: b"another model"})
    total = cohort.run()
    assert "of another session, round, sum, configuration or model" in str(cohort.errors[4])
    assert same(total, cohort.expected(range(4)))


def test_with_different_models_masks_do_not_cancel_even_if_envelopes_are_forged():
    """The model is under every key, too: past the envelopes, the sum of both is noise and not their values."""
    cohort = just_before(complete(4, 3), Phase.MASK)
    other = sum_context(b"session", 0, "weights", cohort.parameters, b"another model")
    client, own = cohort.clients[3], cohort.clients[3]._gathering
    masks, theirs = client._masks, client_module.gathering(other, dict.fromkeys(range(4), b""))

    def of_the_other_model():
        client._gathering = theirs
        try:
            return masks()
        finally:
            client._gathering = own

    client._masks = of_the_other_model
    cohort.server.receive(cohort.answer(3, cohort.inbox[3]))
    cohort.step(absent=[3])
    with pytest.raises(AbortError, match="weight: more than the clients can have sent"):
        cohort.run()


@pytest.mark.parametrize("what", ["session", "round", "purpose", "parameters", "model"])
def test_masks_of_a_pair_differ_with_everything_that_names_a_sum(what):
    parameters = complete(4, 3)
    named = {"session": b"s", "round": 0, "purpose": "weights", "parameters": parameters, "model": b"m"}
    changed = {"session": b"t", "round": 1, "purpose": "losses", "parameters": complete(4, 4), "model": b"n"}
    pair, ends = keys_module.KeyPair(bytes([1]) * 32), []
    ends = keys_module.End(0, pair.public), keys_module.End(1, keys_module.KeyPair(bytes([2]) * 32).public)
    contexts = [sum_context(**named), sum_context(**(named | {what: changed[what]}))]
    one, two = [client_module.pair_mask(pair, *ends, context) for context in contexts]
    assert one.key != two.key
    seeds = [client_module.self_mask(bytes(32), ends[0], context) for context in contexts]
    assert seeds[0].key != seeds[1].key


def test_one_vector_is_masked_differently_in_every_sum():
    seen = set()
    for round_ in range(3):
        cohort = Cohort(complete(3, 2), round=round_)

        def collect(phase, number, data):
            if phase is Phase.MASK and number == 0:
                seen.add(data[48:])
            return data

        cohort.run(up=collect)
    assert len(seen) == 3


# Rows 19 and 20, through the client.


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_client_refuses_what_is_not_finite_and_sends_nothing(bad):
    client, message = masking_client()
    values = values_of(0) | {"w": np.array([0.5, bad, 0.5])}
    with pytest.raises(ConfigurationError, match="group 'w': NaN or an infinity"):
        client.mask(message, values, rounding_of(0))
    assert client.ended


def masking_client():
    cohort = just_before(complete(4, 3), Phase.MASK)
    return cohort.clients[0], cohort.inbox[0]


@pytest.mark.parametrize(
    "value", [-0.0, 5e-324, -5e-324, -1.0, 1.0, -0.3], ids=["-0", "denormal", "-denormal", "least", "most", "negative"]
)
def test_unusual_numbers_come_out_within_the_bound(value):
    parameters = complete(3, 2)
    clients = range(3)
    wire = wired(
        parameters,
        lambda number: Contribution(values_of(number) | {"w": np.full(3, value)}, rounding_of(number)),
    )
    total, bits = wire.run(), parameters.layout.fraction_bits["w"]
    bound = 3 / (2**bits * sum(map(weight_of, clients)))
    assert np.all(np.abs(total.means["w"] - value) <= bound)
    assert total.clipped["w"] == 0


# The wire, and a property.


def wired(parameters, contribute, *, weight=weight_of, **changes):
    everyone = {"parameters": parameters, "context": sum_context(b"s", 0, "w", parameters, b"m")}
    everyone["enrolled"] = enrolment(parameters.layout.clients)
    clients = {
        number: SecureSumClient(
            number,
            identity(number),
            policy=Policy.of(parameters),
            weight=weight(number),
            entropy=InsecureSeededEntropy(0, number),
            **everyone,
        )
        for number in range(parameters.layout.clients)
    }
    return Wire(SecureSumServer(**everyone), clients, contribute, **changes)


def contribution(number):
    return Contribution(values_of(number), rounding_of(number))


def test_the_wire_gives_the_same_total_and_counts_every_byte():
    heard = []
    wire = wired(complete(5, 3), contribution, heard=lambda *message: heard.append(message))
    total = wire.run()
    assert same(total, Cohort(complete(5, 3)).expected(range(5)))
    up = sum(len(data) for from_server, _, data in heard if not from_server)
    down = sum(len(data) for from_server, _, data in heard if from_server)
    assert sum(cost.bytes_up for cost in wire.costs.values()) == up
    assert sum(cost.bytes_down for cost in wire.costs.values()) == down
    assert list(wire.costs) == COMPLETE
    assert wire.left == {}


def test_the_wire_loses_who_vanishes_and_says_who_gave_up():
    wire = wired(complete(5, 3), contribution, vanishes=lambda number, phase: number == 1 and phase >= Phase.MASK)
    assert same(wire.run(), Cohort(complete(5, 3)).expected([0, 2, 3, 4]))
    wire = wired(ring(5, 2, 2), contribution, vanishes=lambda number, phase: number == 1 and phase >= Phase.MASK)
    with pytest.raises(AbortError):
        wire.run()
    # its two neighbours are left with one holder, and are then missing where the other two look for confirmations
    assert sorted(text.split(":")[0] for text in wire.left.values()) == ["confirm", "confirm", "unmask", "unmask"]


@pytest.mark.parametrize("vanishing", [0, 1, 4], ids=["a sum", "a sum without one", "an abort"])
def test_after_the_wire_nobody_holds_a_secret(vanishing):
    """Also those that were waiting for an answer when the sum ended."""
    wire = wired(
        complete(5, 3), contribution, vanishes=lambda number, phase: number < vanishing and phase >= Phase.CONFIRM
    )
    if vanishing < 3:
        wire.run()
    else:
        with pytest.raises(AbortError):
            wire.run()
    assert all(client.ended and not holds(client, ()) for client in wire.clients.values())


@settings(max_examples=25)
@given(st.data())
def test_means_are_within_the_bound_of_the_plain_weighted_mean(data):
    """n / (2^b sum n_k): each client rounds to one of the two whole numbers next to 2^b n_k x."""
    clients = data.draw(st.integers(3, 7), label="clients")
    size = data.draw(st.integers(1, 5), label="size")
    limit = data.draw(st.sampled_from([0.125, 1.0, 3.7, 1000.0]), label="limit")
    bits = data.draw(st.sampled_from([32, 64]), label="bits")
    most = data.draw(st.sampled_from([1, 7, 500]), label="largest weight")
    layout = Layout((Group("w", size, limit, bits=bits),), clients, most)
    numbers = st.floats(-limit, limit, width=64)
    values = [np.array(data.draw(st.lists(numbers, min_size=size, max_size=size))) for _ in range(clients)]
    weights = [data.draw(st.integers(1, most)) for _ in range(clients)]
    parameters = Parameters(layout, clients - 1, clients // 2 + 1)
    total = wired(
        parameters,
        lambda number: Contribution({"w": values[number]}, np.random.default_rng(number)),
        weight=weights.__getitem__,
    ).run()
    assert total.weight == sum(weights)
    plain = sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)
    bound = clients / (2.0 ** layout.fraction_bits["w"] * sum(weights))
    assert np.all(np.abs(total.means["w"] - plain) <= bound + 4 * clients * np.spacing(limit))


def test_the_masked_vector_says_nothing_of_the_plain_one():
    """What leaves the client shares no word with what it encodes."""
    cohort = just_before(complete(4, 3), Phase.MASK)
    layout = cohort.parameters.layout
    sent = cohort.answer(0, cohort.inbox[0])[48 : 48 + layout.nbytes]
    plain = encode(layout, values_of(0), weight_of(0), rounding_of(0)).tobytes()
    assert len(sent) == len(plain)
    assert not any(sent[at : at + 4] == plain[at : at + 4] for at in range(0, len(plain), 4))
