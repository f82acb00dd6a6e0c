"""Clients that vanish before any phase: the exact sum of those whose vectors arrived, or no result and nothing kept."""

import numpy as np
import pytest
from secagg_driver import COMPLETE, RING, Cohort, complete, holds, just_before, ring, same, weight_of

from privacy.secagg import AbortError, Phase, PhaseError

UPLOADED = (Phase.CONFIRM, Phase.UNMASK)
"""phases in which a client that is gone has already sent its vector"""


def outcome(cohort, drops):
    """The total, or None after an abort that left nothing behind."""
    try:
        return cohort.run(drops)
    except AbortError:
        ended_with_nothing(cohort)
        return None


def ended_with_nothing(cohort):
    secrets = cohort.secrets()
    assert not holds(cohort.server, secrets)
    with pytest.raises(PhaseError):
        cohort.server.receive(b"")
    with pytest.raises(PhaseError):
        cohort.server.close_phase()
    with pytest.raises(PhaseError):
        _ = cohort.server.result
    for client in cohort.clients.values():
        client.abort()
        every_call_is_refused(client)
        assert not holds(client, secrets)


def every_call_is_refused(client):
    calls = [client.advertise, *[lambda name=name: getattr(client, name)(b"") for name in ("reveal", "share")]]
    calls += [lambda: client.mask(b"", {}, np.random.default_rng(0))]
    calls += [lambda name=name: getattr(client, name)(b"") for name in ("confirm", "unmask")]
    for call in calls:
        with pytest.raises(PhaseError, match="allowed now: ended"):
            call()


def vanish(clients, count, where):
    """Which `count` clients vanish: the first, the last, or every other one."""
    order = {
        "first": range(clients),
        "last": range(clients - 1, -1, -1),
        "spread": [*range(0, clients, 2), *range(1, clients, 2)],
    }
    return list(order[where])[:count]


def spread_over(phases, gone):
    """One after the other, each in the next phase."""
    drops = {}
    for place, number in enumerate(gone):
        drops.setdefault(phases[place % len(phases)], []).append(number)
    return drops


def in_the_sum(clients, drops):
    """All but those that were gone before they sent a vector."""
    early = {number for phase, gone in drops.items() if phase not in UPLOADED for number in gone}
    return [number for number in range(clients) if number not in early]


WHERE = ["spread", "first", "last"]
SIZES = [(5, 3), (5, 4), (6, 4), (7, 5), (8, 5), (8, 7)]


@pytest.mark.parametrize("phase", [*COMPLETE, "mixed"], ids=lambda phase: getattr(phase, "name", phase))
@pytest.mark.parametrize(("clients", "threshold"), SIZES)
@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_complete_graph_with_survivors_around_the_threshold(clients, threshold, phase, beyond):
    left = min(clients, threshold + beyond)
    for where in WHERE[: 3 if clients < 7 else 1]:
        gone = vanish(clients, clients - left, where)
        drops = spread_over(COMPLETE, gone) if phase == "mixed" else {phase: gone}
        cohort = just_before(complete(clients, threshold), min(drops, default=Phase.ADVERTISE))
        total = outcome(cohort, drops)
        if left < threshold:
            assert total is None
        else:
            assert same(total, cohort.expected(in_the_sum(clients, drops)))
            assert cohort.errors == {}


@pytest.mark.parametrize("phase", [*RING, "mixed"], ids=lambda phase: getattr(phase, "name", phase))
@pytest.mark.parametrize("left", [3, 4, 5, 9, 10])
def test_ring_with_survivors_around_the_threshold(phase, left):
    """Of 6 neighbours 4 must answer: two missing never matter, below 4 the server gives up, between it depends."""
    for where in WHERE[: 2 if left in (4, 9) else 1]:
        gone = vanish(12, 12 - left, where)
        drops = spread_over(RING, gone) if phase == "mixed" else {phase: gone}
        cohort = just_before(ring(12, 6, 4, absent=9), min(drops))
        total = outcome(cohort, drops)
        if left >= 10:
            assert cohort.errors == {}
            assert same(total, cohort.expected(in_the_sum(12, drops)))
        elif left < 4:
            assert total is None
        elif total is not None:
            assert same(total, cohort.expected(cohort.server.survivors))


def test_ring_gives_up_when_one_more_than_allowed_does_not_reveal_its_nonce():
    cohort = Cohort(ring(12, 6, 4, absent=1))
    assert outcome(cohort, {Phase.REVEAL: [3]}) is not None
    cohort = Cohort(ring(12, 6, 4, absent=1))
    with pytest.raises(AbortError, match="2 clients did not reveal their nonce, allowed: 1"):
        cohort.run({Phase.REVEAL: [3, 4]})
    ended_with_nothing(cohort)


@pytest.mark.parametrize("parameters", [complete(7, 4), ring(12, 6, 4)], ids=["complete", "ring"])
@pytest.mark.parametrize("phase", [Phase.MASK, Phase.CONFIRM, Phase.UNMASK], ids=lambda phase: phase.name)
def test_two_neighbours_both_vanish_and_their_common_mask_cancels(parameters, phase):
    """Before the upload their pair mask is in no vector; after it, in two."""
    cohort = just_before(parameters, Phase.MASK)
    clients = parameters.layout.clients
    for number, near in list(cohort.server._neighbours.items())[:2]:
        pair = [number, near[0]]
        ending = cohort.snapshot()
        assert same(ending.run({phase: pair}), ending.expected(in_the_sum(clients, {phase: pair})))


def test_one_neighbour_vanishes_before_and_one_after_the_upload():
    cohort = just_before(ring(12, 6, 4), Phase.MASK)
    one, (two, *_) = next(iter(cohort.server._neighbours.items()))
    total = cohort.run({Phase.MASK: [one], Phase.UNMASK: [two]})
    assert same(total, cohort.expected([number for number in range(12) if number != one]))


def test_a_client_that_vanished_before_it_shared_is_in_no_mask():
    cohort = Cohort(complete(5, 3))
    total = cohort.run({Phase.SHARE: [2]})
    assert cohort.server.survivors == (0, 1, 3, 4)
    assert total.weight == sum(weight_of(number) for number in (0, 1, 3, 4))


@pytest.mark.parametrize("phase", COMPLETE, ids=lambda phase: phase.name)
def test_the_server_ends_with_nothing_at_each_stage(phase):
    cohort = Cohort(complete(5, 4))
    with pytest.raises(AbortError, match=r"allowed: from 4"):
        cohort.run({phase: [0, 3]})
    ended_with_nothing(cohort)


def test_fewer_than_the_fewest_survivors_give_no_sum():
    """Row 21: t shares are there, but the sum of so few would say too much about one of them."""
    assert Cohort(complete(6, 4, survivors=5)).run({Phase.MASK: [0]}) is not None
    cohort = Cohort(complete(6, 4, survivors=5))
    with pytest.raises(AbortError, match="4 clients left, allowed: from 5"):
        cohort.run({Phase.MASK: [0, 1]})
    ended_with_nothing(cohort)
