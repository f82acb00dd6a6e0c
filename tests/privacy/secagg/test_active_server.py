"""A server that chooses who is introduced, whose boxes arrive and who is called vanished: it opens one sum at most."""

from functools import partial

import numpy as np
import pytest
from secagg_driver import (
    Cohort,
    complete,
    just_before,
    layout_of,
    opened,
    refused,
    ring,
    told_survivors,
)

from privacy.secagg import AbortError, Group, Layout, Parameters, Phase
from privacy.secagg.client import KEY_SHARE, SEED_SHARE
from privacy.secagg.graph import find_degree
from privacy.secagg.keys import digest
from privacy.secagg.messages import (
    BOX,
    ENVELOPE,
    HASH,
    Advert,
    Introductions,
    Kind,
    Survivors,
    entries,
    members,
    read_entries,
)

# What the proof in docs/secure_sums.md says of rings, tried out on every small one.


def closed_sets(places, neighbours, threshold, corrupt):
    """Every nonempty set of honest places, as bits, each of which has t holders that are in the set or corrupt."""
    sets, half = np.arange(1 << places, dtype=np.uint32), neighbours // 2
    good = (sets != 0) & (sets & corrupt == 0)
    for place in range(places):
        near = sum(1 << (place + step) % places for step in range(-half, half + 1) if step)
        good &= (sets >> place & 1 == 0) | (np.bitwise_count((sets | corrupt) & near) >= threshold)
    return good


def are_two_disjoint(good, places):
    """Whether two of these sets have no place in common."""
    inside = good.copy()  # whether a set holds one of them, built up place by place
    for place in range(places):
        with_it = np.arange(1 << places) >> place & 1 == 1
        inside[with_it] |= inside[np.flatnonzero(with_it) ^ (1 << place)]
    return bool((good & inside[::-1]).any())  # the complement of a set is what mirrors it


def crowded(places, half, corrupt):
    """The most corrupt places among `half` successive ones."""
    return max(sum(corrupt >> (start + step) % places & 1 for step in range(half)) for start in range(places))


@pytest.mark.parametrize(
    ("places", "neighbours"),
    [(11, 6), (12, 4), pytest.param(12, 6, marks=pytest.mark.slow), pytest.param(12, 8, marks=pytest.mark.slow)],
)
def test_no_ring_can_be_cut_where_no_half_neighbourhood_is_crowded_with_corrupt_clients(places, neighbours):
    half, cut = neighbours // 2, 0
    for corrupt in range(0, 1 << places, 2):  # place 0 is honest: a ring can be turned
        threshold = half + 1 + crowded(places, half, corrupt)
        if threshold <= neighbours:
            assert not are_two_disjoint(closed_sets(places, neighbours, threshold, corrupt), places)
            cut += are_two_disjoint(closed_sets(places, neighbours, threshold - 1, corrupt), places)
    assert cut  # and a threshold one lower would let some be cut


def test_the_degree_against_an_active_server_is_the_least_that_no_half_neighbourhood_defeats():
    rng, degree = np.random.default_rng(5), find_degree(80, corrupt=0.2, dropout=0.05, sigma=5, eta=5, server="active")
    half, spare = degree.neighbours // 2, degree.threshold - degree.neighbours // 2
    worst = []
    for _ in range(4000):
        corrupt = np.zeros(80, int)
        corrupt[rng.choice(80, 16, replace=False)] = 1
        sums = np.convolve(np.concatenate([corrupt, corrupt[: half - 1]]), np.ones(half, int), "valid")
        worst.append(sums.max())
    # the union bound over 80 places is within a factor of a few of the truth, which decides between spare and spare - 1
    assert np.mean(np.array(worst) >= spare) <= 2**-6 < np.mean(np.array(worst) >= spare - 1) * 4


def test_the_fewest_honest_clients_of_a_sum():
    assert complete(10, 6).honest == 5  # with 2 t > n + corrupt one of ten may be corrupt: t - 1
    assert ring(12, 6, 4).honest == 5  # one place in three may not be corrupt: a client and its 4 holders
    for clients in (61, 100, 1000):
        parameters = Parameters.for_cohort(Layout((Group("w", 1, 1.0),), clients, 10))
        half, corrupt = parameters.neighbours // 2, 2 * (parameters.threshold - parameters.neighbours // 2 - 1)
        assert parameters.honest == 1 + parameters.threshold - corrupt >= half // 2


# What clients do.


def kept_from(cohort, client, hidden):
    """The boxes of a client as the server has them, without those of `hidden`."""
    boxes = read_entries(cohort.inbox[client][ENVELOPE:], BOX, "test")
    body = entries({peer: box for peer, box in boxes.items() if peer not in hidden})
    return cohort.from_server(Kind.BOXES, client, body)


@pytest.mark.parametrize("forged", [False, True], ids=["no tag", "a forged tag"])
@pytest.mark.parametrize("parameters", [complete(8, 5), ring(12, 8, 5)], ids=["complete", "ring"])
def test_who_was_kept_from_masking_with_a_client_gets_no_seed_share_of_it(parameters, forged):
    """The server wants client 0's value without the masks of some: it keeps their boxes from it and opens its seed."""
    cohort = just_before(parameters, Phase.MASK)
    near = sorted(cohort.clients[0]._peers)
    hidden, seen = set(near[-3:]), set(near[:-3])
    layout, sent = parameters.layout, {}
    for number, client in cohort.clients.items():
        message = kept_from(cohort, number, hidden) if number == 0 else cohort.inbox[number]
        sent[number] = read_entries(cohort.answer(number, message)[ENVELOPE + layout.nbytes :], HASH, "test")
        assert client.ended is False
    assert sent[0].keys() == seen
    everyone, given = frozenset(cohort.clients), {}
    confirmed = {}
    for number, client in cohort.clients.items():
        tags = {peer: theirs[number] for peer, theirs in sent.items() if number in theirs}
        if forged and number in hidden:
            tags[0] = sent[0][near[0]]
        if number:
            message = cohort.from_server(Kind.SURVIVORS, number, Survivors(everyone, tags).body())
            confirmed[number] = read_entries(client.confirm(message)[ENVELOPE:], HASH, "test")
    for number in confirmed:
        body = entries({peer: tags[number] for peer, tags in confirmed.items() if number in tags})
        message = cohort.from_server(Kind.CONFIRMATIONS, number, body)
        given[number] = opened(cohort.clients[number].unmask(message))
    assert {number for number, shares in given.items() if 0 in shares} == seen
    assert all(given[number][0][:1] == SEED_SHARE for number in seen)
    # the others are answered as ever
    assert all(peer in given[number] for number in hidden for peer in cohort.clients[number]._peers.keys() - {0})


def test_clients_that_are_told_of_other_members_share_nothing():
    """Client 0 is told of all, the rest that client 5 is not there: none opens a box or believes a tag of the other."""
    cohort = Cohort(complete(6, 4))
    cohort.step()
    told = {}
    for number in range(5):
        adverts = Introductions.read(cohort.inbox[number][ENVELOPE:]).adverts
        some = {peer: body for peer, body in adverts.items() if number == 0 or peer != 5}
        message = cohort.from_server(Kind.INTRODUCTIONS, number, Introductions({}, some).body())
        told[number] = cohort.clients[number].share(message)
    one, other = cohort.clients[0], cohort.clients[1]
    assert one._gathering != other._gathering == cohort.clients[2]._gathering
    box = other._channels[0].seal(b"to client 0")
    assert one._channels[1].open(box) is None
    assert cohort.clients[2]._channels[1].open(other._channels[2].seal(b"to client 2")) == b"to client 2"
    assert not one._channels[1].confirms(other._channels[0].confirm(b"so it is"), b"so it is")


def test_a_tag_of_who_is_no_surviving_neighbour_ends_the_client():
    cohort = just_before(complete(5, 3), Phase.CONFIRM)
    tags = Survivors.read(cohort.inbox[0][ENVELOPE:]).tags
    message = cohort.from_server(Kind.SURVIVORS, 0, Survivors(frozenset({0, 1, 2}), tags).body())
    refused(cohort.clients[0], partial(cohort.clients[0].confirm, message), "survivors: a tag of somebody who is no")
    cohort = just_before(complete(5, 3), Phase.CONFIRM)
    assert cohort.clients[0].confirm(told_survivors(cohort, 0, [0, 1, 2]))


@pytest.mark.parametrize("introduced", [range(12), range(50), range(89)], ids=["12 of 100", "50 of 100", "89 of 100"])
def test_a_server_that_introduces_a_part_of_the_ring_learns_no_nonce_and_no_share(introduced):
    """Its ten colluders and two honest clients, or one half of two: k and t promise nothing there."""
    parameters = Parameters.for_cohort(Layout((Group("w", 3, 1.0),), 100, 10), colluders=10, dropout=0.1)
    assert not parameters.complete and parameters.survivors == 90
    cohort = Cohort(parameters)
    adverts = {n: Advert.read(cohort.clients[n].advertise()[ENVELOPE:]) for n in introduced}
    roster = entries({n: advert.commitment for n, advert in adverts.items()})
    for number in introduced:
        client, message = cohort.clients[number], cohort.from_server(Kind.ROSTER, number, roster)
        refused(client, partial(client.reveal, message), f"cohort: {len(introduced)} clients, allowed: from 90 to 100")


@pytest.mark.parametrize(("made_for", "reads"), [(1, True), (2, False)])
def test_the_promise_ends_with_the_number_of_colluders_that_the_sum_was_made_for(made_for, reads):
    """A server with two colluders in a cohort of ten tells its honest halves of each other that they vanished.

    In a sum made for one colluder each half and the two make t, and both of a client's secrets come out.
    """
    parameters = Parameters.for_cohort(layout_of(10), colluders=made_for)
    assert parameters.complete
    cohort = Cohort(parameters)
    while cohort.phase is not Phase.CONFIRM:
        cohort.step()
    corrupt, camps, gathering = {8, 9}, ({0, 1, 2, 3, 8, 9}, {4, 5, 6, 7, 8, 9}), cohort.clients[0]._gathering
    sent, given = {}, {}
    for camp in camps:
        for number in camp - corrupt:
            try:
                message = cohort.clients[number].confirm(told_survivors(cohort, number, camp))
                sent[number] = read_entries(message[ENVELOPE:], HASH, "test")
            except AbortError:
                continue
    for camp in camps:
        told = digest(gathering, "survivors", members(camp))
        for number in (camp - corrupt) & sent.keys():
            tags = {peer: sent[peer][number] for peer in camp - corrupt - {number}}
            tags |= {peer: cohort.clients[peer]._channels[number].confirm(told) for peer in corrupt}
            message = cohort.from_server(Kind.CONFIRMATIONS, number, entries(tags))
            given[number] = opened(cohort.clients[number].unmask(message))
    kinds = [shares[0][:1] for shares in given.values()]
    both = min(kinds.count(SEED_SHARE), kinds.count(KEY_SHARE)) + len(corrupt) >= parameters.threshold
    assert both is reads and (reads or not given)
