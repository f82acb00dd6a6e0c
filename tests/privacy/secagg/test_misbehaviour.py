"""Servers, clients and networks that cheat: no share is given, nothing opens, and the sum is exact or not there."""

from functools import partial

import pytest
from secagg_driver import (
    Cohort,
    complete,
    enrolment,
    flipped,
    holds,
    identity,
    just_before,
    opened,
    refused,
    reworded,
    ring,
    rounding_of,
    same,
    told_survivors,
    values_of,
    weight_of,
)

from privacy.secagg import (
    AbortError,
    ConfigurationError,
    InsecureSeededEntropy,
    MessageError,
    Parameters,
    Phase,
    PhaseError,
    Policy,
    SecAggError,
    SecureSumClient,
)
from privacy.secagg.client import KEY_SHARE, SEED_SHARE, share_digest
from privacy.secagg.keys import KEY, KeyPair
from privacy.secagg.messages import (
    ENVELOPE,
    HASH,
    SERVER,
    Advert,
    Introductions,
    Kind,
    Shares,
    entries,
    members,
    pack,
    read_entries,
)
from privacy.secagg.shamir import PRIME, SHARE_BYTES

P = 2**255 - 19
ORDER_8 = [
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
]
SMALL_ORDER = [0, 1, P - 1, P, P + 1, *ORDER_8]
"""the u of all X25519 points of order 1, 2, 4 and 8, on the curve and its twist, in every encoding"""


def confirmed(cohort, told):
    """What each client confirms after it was told these survivors (by client); those that refuse are left out."""
    tags = {}
    for number, survivors in told.items():
        try:
            message = cohort.clients[number].confirm(told_survivors(cohort, number, survivors))
            tags[number] = read_entries(message[ENVELOPE:], KEY, "test")
        except AbortError as error:
            cohort.errors[number] = error
    return tags


def unmasked(cohort, tags, senders=None):
    """Every share that clients give when the server forwards these tags (or only those of `senders`, by client)."""
    given = {}
    for number in tags:
        body = entries(
            {
                peer: theirs[number]
                for peer, theirs in tags.items()
                if number in theirs and (senders is None or peer in senders[number])
            }
        )
        try:
            given[number] = opened(cohort.clients[number].unmask(cohort.from_server(Kind.CONFIRMATIONS, number, body)))
        except AbortError as error:
            cohort.errors[number] = error
    return given


# 1: one answer, once.


def test_row_1_a_second_unmask_call_is_refused():
    cohort = just_before(complete(5, 3), Phase.UNMASK)
    client, message = cohort.clients[0], cohort.inbox[0]
    assert client.unmask(message)
    with pytest.raises(PhaseError, match="unmask called, allowed now: ended"):
        client.unmask(message)


def test_row_1_a_second_list_of_survivors_is_refused():
    cohort = just_before(complete(5, 3), Phase.CONFIRM)
    client = cohort.clients[0]
    client.confirm(cohort.inbox[0])
    with pytest.raises(PhaseError, match="confirm called, allowed now: unmask"):
        client.confirm(told_survivors(cohort, 0, [0, 1, 2]))
    assert client._near == {1, 2, 3, 4}


def test_row_1_each_peer_is_answered_with_exactly_one_kind_of_share():
    cohort = just_before(complete(6, 4), Phase.MASK)
    cohort.step(absent=[5])
    cohort.step()
    for number, told in cohort.inbox.items():
        shares = opened(cohort.clients[number].unmask(told))
        assert shares.keys() == set(range(6))
        assert {peer for peer, share in shares.items() if share[:1] == KEY_SHARE} == {5}


def test_row_1_one_client_twice_among_the_survivors_is_no_message():
    cohort = just_before(complete(5, 3), Phase.CONFIRM)
    twice = (4).to_bytes(4, "big") + b"".join(number.to_bytes(4, "big") for number in (0, 1, 1, 2))
    client = cohort.clients[0]
    message = cohort.from_server(Kind.SURVIVORS, 0, twice + entries({}))
    refused(client, lambda: client.confirm(message), "client numbers out of order, allowed: rising", MessageError)


# 2: different survivors to different clients.

CAMPS = [(complete(8, 5), 4), (complete(7, 4), 3), (complete(8, 8), 4), (ring(12, 6, 4), 6)]


@pytest.mark.parametrize(("parameters", "half"), CAMPS)
@pytest.mark.parametrize("filtering", [False, True], ids=["all tags forwarded", "tags of one's own half"])
def test_row_2_different_survivors_to_two_halves_open_nothing(parameters, half, filtering):
    """One half is told that client 0 vanished: with t answers from each, its mask key and its seed would both open."""
    cohort = just_before(parameters, Phase.CONFIRM)
    everyone = set(range(parameters.layout.clients))
    other = {number for number in everyone if number >= half}
    told = {number: everyone - {0} if number in other else everyone for number in everyone}
    tags = confirmed(cohort, told)
    senders = {number: other if number in other else everyone - other for number in everyone} if filtering else None
    shares = unmasked(cohort, tags, senders)
    kinds = {given[0][:1] for given in shares.values() if 0 in given}
    assert len(kinds) <= 1
    assert all(cohort.clients[number].ended for number in everyone - shares.keys())
    if parameters.complete and max(half, len(other)) < parameters.threshold:
        assert shares == {}


def test_row_2_no_split_of_the_complete_graph_opens_both_secrets():
    """Every size of the second camp, and the server keeps tags back as it likes: never t shares of both kinds."""
    for clients, threshold in ((5, 3), (6, 4), (7, 4)):
        for half in range(clients + 1):
            cohort = just_before(complete(clients, threshold), Phase.CONFIRM)
            camps = [set(range(half)), set(range(half, clients))]
            told = {number: set(range(clients)) - ({0} if number in camps[1] else set()) for number in range(clients)}
            tags = confirmed(cohort, told)
            senders = {number: camps[number in camps[1]] for number in range(clients)}
            kinds = [given[0][:1] for given in unmasked(cohort, tags, senders).values() if 0 in given]
            assert min(kinds.count(SEED_SHARE), kinds.count(KEY_SHARE)) == 0


def test_row_2_a_tag_for_other_survivors_does_not_count_and_too_few_others_end_the_client():
    cohort = just_before(complete(5, 3), Phase.CONFIRM)
    tags = confirmed(cohort, {number: {0, 1, 2, 3} if number else range(5) for number in range(4)})
    body = entries({peer: tags[peer][0] for peer in (1, 2, 3) if 0 in tags[peer]})
    client, message = cohort.clients[0], cohort.from_server(Kind.CONFIRMATIONS, 0, body)
    refused(client, lambda: client.unmask(message), "1 of this client's share holders were told of the same survivors")


def test_row_2_one_wrong_tag_among_enough_right_ones_stops_nobody():
    cohort = just_before(complete(5, 3), Phase.CONFIRM)
    tags = confirmed(cohort, {number: range(5) for number in range(5)})
    body = entries({peer: bytes(HASH) if peer == 1 else tags[peer][0] for peer in (1, 2, 3)})
    shares = cohort.clients[0].unmask(cohort.from_server(Kind.CONFIRMATIONS, 0, body))
    assert len(shares) > ENVELOPE and cohort.clients[0].ended


# 3: survivors that cannot be.


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ([1, 2, 3, 4], "survivors: without this client"),
        ([0, 1, 2, 3, 9], "survivors: somebody who was never introduced"),
        ([0, 1, 2, 3, 4, 5], "survivors: somebody who never shared"),
        ([0, 1], "survivors: 2, allowed: from 4"),
        ([0, 1, 2, 3], "4 of this client's share holders survived, allowed: from 5"),
        ([], "survivors: without this client"),
    ],
)
def test_row_3_survivors_that_cannot_be_end_the_client(told, message):
    """Client 5 was introduced but has not shared."""
    cohort = Cohort(complete(6, 5, survivors=4))
    cohort.step()
    cohort.step(absent=[5])
    cohort.step()
    client, survivors = cohort.clients[0], told_survivors(cohort, 0, told)
    refused(client, lambda: client.confirm(survivors), message)


@pytest.mark.parametrize(
    "body",
    [
        (2).to_bytes(4, "big") + (3).to_bytes(4, "big") + (0).to_bytes(4, "big") + entries({}),
        (1).to_bytes(4, "big") + b"\xff\xff\xff\xff" + entries({}),
        (2**32 - 1).to_bytes(4, "big") + (0).to_bytes(4, "big") + entries({}),
        members(range(5)) + entries({}) + b"\0",
        members(range(5)) + entries({})[:-1],
        members(range(5)),
        b"",
    ],
    ids=["falling", "the server's number", "a huge count", "a byte too many", "a byte missing", "no tags", "empty"],
)
def test_row_3_lists_in_another_form_are_no_message(body):
    cohort = just_before(complete(5, 3), Phase.CONFIRM)
    client, message = cohort.clients[0], cohort.from_server(Kind.SURVIVORS, 0, body)
    refused(client, lambda: client.confirm(message), "SURVIVORS", MessageError)


def test_the_client_decides_by_its_own_survivor_policy():
    """Row 21: the server's parameters would open the sum of two, but the client does not help."""
    parameters = complete(6, 4, survivors=6)
    policy = Policy.of(parameters)
    with pytest.raises(ConfigurationError, match="survivors: 5, allowed by this client: from 6"):
        Cohort(complete(6, 4, survivors=5), policy=policy)
    cohort = just_before(parameters, Phase.CONFIRM)
    client, message = cohort.clients[0], told_survivors(cohort, 0, range(5))
    refused(client, lambda: client.confirm(message), "survivors: 5, allowed: from 6")


# 4 and 5: keys of another sum, forged, swapped or shared.


def introduced(cohort, number, changed):
    """The introductions of a client with some adverts changed."""
    told = Introductions.read(cohort.inbox[number][ENVELOPE:])
    adverts = dict(told.adverts)
    for peer, change in changed.items():
        adverts[peer] = change(Advert.read(adverts[peer])).body()
    return cohort.from_server(Kind.INTRODUCTIONS, number, Introductions(told.nonces, adverts).body())


def signed_by(cohort, signer, sender, channel, mask, commitment=bytes(32), context=None):
    unsigned = Advert(channel, mask, commitment, b"")
    signature = identity(signer).sign(unsigned.signed(context or cohort.context, sender))
    return Advert(channel, mask, commitment, signature)


FORGERIES = {
    "flipped signature": lambda cohort, advert: Advert(
        advert.channel, advert.mask, advert.commitment, flipped(advert.signature, 5)
    ),
    "another's signature": lambda cohort, advert: signed_by(cohort, 2, 1, advert.channel, advert.mask),
    "of another client": lambda cohort, advert: signed_by(cohort, 1, 2, advert.channel, advert.mask),
    "of another round": lambda cohort, advert: signed_by(
        cohort, 1, 1, advert.channel, advert.mask, context=Cohort(cohort.parameters, round=1).context
    ),
    "of another session": lambda cohort, advert: signed_by(
        cohort, 1, 1, advert.channel, advert.mask, context=Cohort(cohort.parameters, session=b"t").context
    ),
    "swapped keys": lambda cohort, advert: Advert(advert.mask, advert.channel, advert.commitment, advert.signature),
    "forged key": lambda cohort, advert: Advert(
        KeyPair(bytes([7]) * 32).public, advert.mask, advert.commitment, advert.signature
    ),
    "no signature": lambda cohort, advert: Advert(advert.channel, advert.mask, advert.commitment, bytes(64)),
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_rows_4_and_5_forged_keys_end_the_client_and_do_not_reach_the_server(forgery):
    cohort = just_before(complete(4, 3), Phase.SHARE)
    message = introduced(cohort, 0, {1: lambda advert: forgery(cohort, advert)})
    client = cohort.clients[0]
    refused(client, lambda: client.share(message), "client 1: forged keys")
    cohort = Cohort(complete(4, 3))
    forged = forgery(cohort, Advert.read(cohort.clients[1].advertise()[ENVELOPE:]))
    with pytest.raises(MessageError, match="ADVERT: not signed by client 1"):
        cohort.server.receive(pack(Kind.ADVERT, cohort.context, 1, SERVER, forged.body()))


def said(cohort):
    """One phase, and what the clients said in it."""
    sent = []
    cohort.step(up=lambda phase, number, data: sent.append(data) or data)
    return sent


@pytest.mark.parametrize("change", [{"round": 1}, {"session": b"t"}, {"purpose": "losses"}, {"model": b"other"}])
def test_row_4_messages_of_another_sum_are_refused_in_every_phase(change):
    parameters = complete(4, 3)
    here, there = Cohort(parameters), Cohort(parameters, **change)
    while here.inbox:
        for number, message in there.inbox.items():
            if message:
                ending = here.snapshot()
                client = ending.clients[number]
                refused(client, partial(ending.answer, number, message), "of another session, round, sum", MessageError)
        for data in said(there):
            with pytest.raises(MessageError, match="of another session, round, sum"):
                here.server.receive(data)
        here.step()
    assert same(here.server.result, here.expected(range(4)))


def test_row_5_two_peers_with_one_key_end_the_client():
    cohort = just_before(complete(4, 3), Phase.SHARE)
    taken = Advert.read(Introductions.read(cohort.inbox[0][ENVELOPE:]).adverts[2])
    for copied in (
        lambda advert: signed_by(cohort, 1, 1, taken.channel, advert.mask),
        lambda advert: signed_by(cohort, 1, 1, advert.channel, taken.mask),
        lambda advert: signed_by(cohort, 1, 1, taken.mask, advert.mask),
        lambda advert: signed_by(cohort, 1, 1, advert.channel, cohort.clients[0]._own.mask),
        lambda advert: signed_by(cohort, 1, 1, advert.mask, advert.mask),
    ):
        ending = cohort.snapshot()
        client, message = ending.clients[0], introduced(ending, 0, {1: copied})
        refused(client, partial(client.share, message), "introductions: one key twice")


def in_another_form(key):
    """The same X25519 key with the bit that agreement ignores."""
    return flipped(key, 255)


def test_row_5_one_key_in_two_forms_is_refused():
    """X25519 ignores the top bit: equal keys can have different bytes, and would pass a comparison of bytes."""
    cohort = just_before(complete(4, 3), Phase.SHARE)
    taken = Advert.read(Introductions.read(cohort.inbox[0][ENVELOPE:]).adverts[2])
    copied = in_another_form(taken.channel)
    client = cohort.clients[0]
    message = introduced(cohort, 0, {1: lambda advert: signed_by(cohort, 1, 1, copied, advert.mask)})
    refused(client, lambda: client.share(message), "public key of small order or malformed")


def test_row_5_a_client_cannot_end_the_sum_with_the_keys_of_another():
    """The server drops whoever sends a key that is there already, so that the others can go on."""
    cohort = Cohort(complete(4, 3))
    for number in (0, 1, 2):
        cohort.server.receive(cohort.clients[number].advertise())
    taken, fresh = cohort.clients[2]._own, KeyPair(bytes([9]) * 32).public
    for channel, mask in ((taken.channel, fresh), (fresh, taken.mask), (taken.mask, fresh), (fresh, fresh)):
        advert = signed_by(cohort, 3, 3, channel, mask)
        with pytest.raises(MessageError, match="ADVERT: client 3's keys come twice"):
            cohort.server.receive(pack(Kind.ADVERT, cohort.context, 3, SERVER, advert.body()))
    cohort.inbox = cohort.server.close_phase()
    assert same(cohort.run(), cohort.expected(range(3)))


# 6: points of small order.


@pytest.mark.parametrize("u", SMALL_ORDER, ids=["0", "1", "p - 1", "p", "p + 1", "order 8", "another of order 8"])
@pytest.mark.parametrize("which", ["channel", "mask"])
@pytest.mark.parametrize("top_bit", [0, 1])
def test_row_6_small_order_points_end_the_client_and_do_not_reach_the_server(u, which, top_bit):
    point = (u + (top_bit << 255)).to_bytes(32, "little")
    cohort = just_before(complete(4, 3), Phase.SHARE)

    def weak(advert):
        keys = {"channel": advert.channel, "mask": advert.mask} | {which: point}
        return signed_by(cohort, 1, 1, **keys)

    client, message = cohort.clients[0], introduced(cohort, 0, {1: weak})
    refused(client, lambda: client.share(message), "public key of small order or malformed")
    cohort = Cohort(complete(4, 3))
    advert = weak(Advert.read(cohort.clients[1].advertise()[ENVELOPE:]))
    with pytest.raises(MessageError, match="ADVERT: client 1's keys are of small order or malformed"):
        cohort.server.receive(pack(Kind.ADVERT, cohort.context, 1, SERVER, advert.body()))


# 10: boxes.


def boxes_with(cohort, number, change):
    boxes = read_entries(cohort.inbox[number][ENVELOPE:], 82, "test")
    return cohort.from_server(Kind.BOXES, number, entries(change(boxes)))


def other_round_boxes(cohort):
    other = Cohort(cohort.parameters, round=1)
    other.step(), other.step()
    return read_entries(other.inbox[0][ENVELOPE:], 82, "test")


BOXES = {
    "tampered": lambda cohort, boxes: boxes | {1: flipped(boxes[1], 100)},
    "tag tampered": lambda cohort, boxes: boxes | {1: flipped(boxes[1], -1 + 8 * 82)},
    "another peer's": lambda cohort, boxes: boxes | {1: boxes[2]},
    "sent back": lambda cohort, boxes: boxes | {1: sent_box(cohort, 0, 1)},
    "for another": lambda cohort, boxes: boxes | {1: sent_box(cohort, 1, 2)},
    "of another round": lambda cohort, boxes: boxes | {1: other_round_boxes(cohort)[1]},
    "zeros": lambda cohort, boxes: boxes | {1: bytes(82)},
}


def sent_box(cohort, sender, receiver):
    return cohort.server._shares[sender].boxes[receiver]


@pytest.mark.parametrize("change", BOXES.values(), ids=BOXES)
def test_row_10_a_wrong_box_gives_no_share_and_the_others_still_open_the_sum(change):
    cohort = just_before(complete(5, 3), Phase.MASK)
    cohort.inbox[0] = boxes_with(cohort, 0, lambda boxes: change(cohort, boxes))
    given = {}

    def collect(phase, number, data):
        if phase is Phase.UNMASK:
            given[number] = opened(data)
        return data

    assert same(cohort.run(up=collect), cohort.expected(range(5)))
    assert given[0].keys() == {0, 2, 3, 4}
    assert given[2].keys() == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("size", [0, 16, 81, 83])
def test_row_10_truncated_boxes_are_no_message(size):
    cohort = just_before(complete(5, 3), Phase.MASK)
    body = entries({peer: bytes(size) for peer in (1, 2, 3, 4)})
    client, message = cohort.clients[0], cohort.from_server(Kind.BOXES, 0, body)
    refused(client, lambda: client.mask(message, values_of(0), rounding_of(0)), "BOXES: ", MessageError)


@pytest.mark.parametrize("stranger", [0, 5, 77])
def test_row_10_boxes_of_nobody_end_the_client(stranger):
    cohort = just_before(complete(5, 3), Phase.MASK)
    message = boxes_with(cohort, 0, lambda boxes: boxes | {stranger: bytes(82)})
    client = cohort.clients[0]
    refused(
        client,
        lambda: client.mask(message, values_of(0), rounding_of(0)),
        "boxes: from somebody who is no neighbour",
    )


# 11: wrong shares.


@pytest.mark.parametrize("liars", [1, 2])
@pytest.mark.parametrize("vanished", [(), (4,)], ids=["all survive", "one vanished"])
def test_row_11_wrong_shares_are_found_and_others_used(liars, vanished):
    def lie(phase, number, data):
        if phase is not Phase.UNMASK or number >= liars:
            return data
        return reworded(data, entries({peer: flipped(share, 100) for peer, share in opened(data).items()}))

    cohort = just_before(complete(6, 4), Phase.MASK)
    survivors = [number for number in range(6) if number not in vanished]
    if len(survivors) - liars >= 4:
        assert same(cohort.run({Phase.MASK: vanished}, up=lie), cohort.expected(survivors))
    else:
        with pytest.raises(AbortError, match="client 0: 3 good shares, allowed: from 4"):
            cohort.run({Phase.MASK: vanished}, up=lie)


def test_row_11_shares_of_the_other_kind_or_another_holder_are_not_used():
    """A share of the seed given as one of the key, and one holder's share given by another."""
    cohort = just_before(complete(5, 3), Phase.UNMASK)
    given = {number: opened(cohort.clients[number].unmask(told)) for number, told in cohort.inbox.items()}
    renamed = {peer: KEY_SHARE + share[1:] for peer, share in given[0].items()}
    for number, shares in ((0, renamed), (1, given[2]), (2, given[2]), (3, given[3])):
        cohort.server.receive(pack(Kind.UNMASK, cohort.context, number, SERVER, entries(shares)))
    with pytest.raises(AbortError, match="client 0: 2 good shares, allowed: from 3"):
        cohort.server.close_phase()
    assert not holds(cohort.server, cohort.secrets())


def dealt_badly(cohort, dealer, value):
    """Every share of the dealer becomes `value`, with digests and commitment that fit it."""

    def change(phase, number, data):
        if phase is not Phase.SHARE or number != dealer:
            return data
        shares = Shares.read(data[ENVELOPE:])
        raw = value.to_bytes(SHARE_BYTES, "big")
        digests = {
            holder: b"".join(
                share_digest(cohort.context, dealer, holder, kind, raw) for kind in (SEED_SHARE, KEY_SHARE)
            )
            for holder in shares.digests
        }
        client = cohort.clients[dealer]
        client._opened = {dealer: SEED_SHARE + raw}
        boxes = {peer: client._channels[peer].seal(raw + raw) for peer in shares.boxes}
        return reworded(data, Shares(shares.seed, boxes, digests).body())

    return change


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1, "client 1: its shares make another seed than it committed to"),
        (PRIME - 1, "client 1: its shares make no key"),
        (PRIME, "client 1: it dealt what is no share"),
        (256**SHARE_BYTES - 1, "client 1: it dealt what is no share"),
    ],
)
def test_row_11_a_dealer_of_bad_shares_ends_the_sum(value, message):
    cohort = Cohort(complete(4, 3))
    with pytest.raises(AbortError, match=message):
        cohort.run(up=dealt_badly(cohort, 1, value))
    assert not holds(cohort.server, cohort.secrets())


def test_row_11_a_vanished_dealer_of_bad_key_shares_ends_the_sum():
    cohort = Cohort(complete(4, 3))
    with pytest.raises(AbortError, match="client 1: its shares make another key than it advertised"):
        cohort.run({Phase.MASK: [1]}, up=dealt_badly(cohort, 1, 1))


# 13: parameters that promise less.

AGREED = ring(12, 6, 4, absent=1, survivors=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threshold": 1}, "threshold: 1, allowed: more than half of 6 holders, at most all"),
        ({"threshold": 3}, "threshold: 3, allowed: more than half of 6 holders, at most all"),
        ({"neighbours": 4, "threshold": 4}, "neighbours: 4, allowed by this client: 6"),
        ({"neighbours": 4, "threshold": 3}, "threshold: 3, allowed by this client: from 4"),
        ({"neighbours": 8, "threshold": 5}, "neighbours: 8, allowed by this client: 6"),
        ({"absent": 11}, "absent: 11, allowed by this client: up to 1"),
        ({"survivors": 2}, "survivors: 2, allowed by this client: from 3"),
    ],
)
def test_row_13_parameters_that_promise_less_are_refused(changes, message):
    def propose():
        named = {"neighbours": 6, "threshold": 4, "absent": 1, "survivors": 3} | changes
        return Cohort(Parameters(AGREED.layout, **named), policy=Policy.of(AGREED))

    with pytest.raises(ConfigurationError, match=message):
        propose()


def test_row_13_parameters_that_promise_more_are_taken():
    stricter = Parameters(AGREED.layout, 6, 5, absent=0, survivors=4)
    assert Cohort(stricter, policy=Policy.of(AGREED)).run().weight == sum(map(weight_of, range(12)))


def test_row_13_parameters_changed_on_the_way_make_another_sum():
    """A server that tells one client t = 4 and another t = 5 gets two sums that refuse each other's messages."""
    one, two = Cohort(complete(6, 4)), Cohort(complete(6, 5))
    with pytest.raises(MessageError, match="of another session, round, sum, configuration or model"):
        one.server.receive(two.clients[0].advertise())


# The ring order, and cohorts that cannot be.


def rostered(change):
    cohort = just_before(ring(6, 4, 3, absent=1), Phase.REVEAL)
    roster = read_entries(cohort.inbox[0][ENVELOPE:], 32, "test")
    return cohort, cohort.from_server(Kind.ROSTER, 0, entries(change(roster)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda roster: roster | {9: bytes(32)}, "cohort: 7 clients, allowed: from 2 to 6"),
        (lambda roster: {0: roster[0]}, "cohort: 1 clients, allowed: from 2 to 6"),
        (lambda roster: {**{n: roster[n] for n in range(5)}, 9: bytes(32)}, "cohort: client .9. is not enrolled"),
        (lambda roster: roster | {0: bytes(32)}, "roster: without this client's own"),
        (lambda roster: {n: roster[n] for n in range(1, 6)}, "roster: without this client's own"),
    ],
)
def test_a_roster_that_cannot_be_ends_the_client(change, message):
    cohort, roster = rostered(change)
    client = cohort.clients[0]
    refused(client, lambda: client.reveal(roster), message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda nonces: nonces | {1: bytes(32)}, "client 1: nonce not as committed"),
        (lambda nonces: nonces | {1: nonces[2], 2: nonces[1]}, "client 1: nonce not as committed"),
        (lambda nonces: {n: nonces[n] for n in range(1, 6)}, "introductions: without this client's nonce"),
        (lambda nonces: {n: nonces[n] for n in range(4)}, "introductions: 2 nonces missing, allowed: 1"),
        (lambda nonces: {n: nonces[n] for n in range(5)}, "introductions: 4 clients, allowed: the 4 neighbours|None"),
    ],
)
def test_the_server_cannot_choose_the_ring_order(change, message):
    cohort = just_before(ring(6, 4, 3, absent=1), Phase.SHARE)
    told = Introductions.read(cohort.inbox[0][ENVELOPE:])
    body = Introductions(change(dict(told.nonces)), told.adverts).body()
    client, changed = cohort.clients[0], cohort.from_server(Kind.INTRODUCTIONS, 0, body)
    if "|None" in message and 5 not in told.adverts:
        client.share(changed)  # one may be missing, and it was no neighbour
    else:
        refused(client, lambda: client.share(changed), message)


@pytest.mark.parametrize("parameters", [complete(6, 4), ring(6, 4, 3)], ids=["complete", "ring"])
@pytest.mark.parametrize("change", ["one missing", "itself", "another"])
def test_other_neighbours_than_the_graph_says_end_the_client(parameters, change):
    cohort = just_before(parameters, Phase.SHARE)
    told = Introductions.read(cohort.inbox[0][ENVELOPE:])
    first = min(told.adverts)
    others = [number for number in range(1, 6) if number not in told.adverts] or [17]
    adverts = dict(told.adverts)
    if change == "one missing":
        del adverts[first]
    elif change == "itself":
        adverts[0] = cohort.clients[0]._own.body()
    else:
        adverts[others[0]] = adverts.pop(first)
    body = Introductions(told.nonces, adverts).body()
    client, message = cohort.clients[0], cohort.from_server(Kind.INTRODUCTIONS, 0, body)
    if parameters.complete and change == "one missing":
        client.share(message)  # who has not advertised is in no list
        return
    refused(client, lambda: client.share(message), "introductions: |cohort: |forged keys")


def test_a_client_that_commits_to_one_nonce_and_signs_another_is_refused():
    cohort = just_before(ring(6, 4, 3), Phase.SHARE)
    told = Introductions.read(cohort.inbox[0][ENVELOPE:])
    peer = min(told.adverts)
    message = introduced(
        cohort, 0, {peer: lambda advert: signed_by(cohort, peer, peer, advert.channel, advert.mask, bytes([1]) * 32)}
    )
    client = cohort.clients[0]
    refused(client, lambda: client.share(message), f"client {peer}: other commitment than its own")


def test_too_few_introduced_end_the_client():
    cohort = just_before(complete(6, 4), Phase.SHARE)
    told = Introductions.read(cohort.inbox[0][ENVELOPE:])
    body = Introductions({}, {peer: told.adverts[peer] for peer in (1, 2)}).body()
    client, message = cohort.clients[0], cohort.from_server(Kind.INTRODUCTIONS, 0, body)
    refused(client, lambda: client.share(message), "3 of this client's share holders advertised, allowed: from 4")


def test_nonces_on_the_complete_graph_end_the_client():
    cohort = just_before(complete(4, 3), Phase.SHARE)
    told = Introductions.read(cohort.inbox[0][ENVELOPE:])
    body = Introductions({1: bytes(32)}, told.adverts).body()
    client, message = cohort.clients[0], cohort.from_server(Kind.INTRODUCTIONS, 0, body)
    refused(client, lambda: client.share(message), "introductions: nonces, allowed on the complete graph: none")


# What the server refuses without changing.


def test_the_server_takes_one_message_from_each_client_of_this_phase():
    cohort = Cohort(complete(4, 3))
    first = cohort.clients[0].advertise()
    cohort.server.receive(first)
    with pytest.raises(MessageError, match="ADVERT: a second one from client 0"):
        cohort.server.receive(first)
    stranger = pack(Kind.ADVERT, cohort.context, 9, SERVER, bytes(Advert.SIZE))
    with pytest.raises(MessageError, match="ADVERT: from client 9, who takes no part"):
        cohort.server.receive(stranger)
    with pytest.raises(MessageError, match=r"message kind: 5, allowed now: ADVERT \(1\)"):
        cohort.server.receive(pack(Kind.SHARES, cohort.context, 1, SERVER))
    for wrong in (None, "text", bytearray(first), 7):
        with pytest.raises(MessageError, match=r"ADVERT: .*, allowed: bytes, 48 at least"):
            cohort.server.receive(wrong)


def test_a_late_vector_is_not_added_once_its_client_was_declared_gone():
    """The reason for two masks: the key of who vanished is open, its seed must not be."""
    cohort = just_before(complete(5, 3), Phase.MASK)
    late = cohort.answer(4, cohort.inbox[4])
    cohort.step(absent=[4])
    with pytest.raises(MessageError, match=r"message kind: 7, allowed now: CONFIRM \(9\)"):
        cohort.server.receive(late)
    assert same(cohort.run(), cohort.expected(range(4)))


@pytest.mark.parametrize(
    ("phase", "change", "message"),
    [
        (Phase.SHARE, lambda body: body[:-64], "SHARES"),
        (Phase.MASK, lambda body: body[:-4], "MASKED from client 0: after the vector: a list of 4 in 144 bytes"),
        (Phase.MASK, lambda body: body + bytes(4), "MASKED from client 0: after the vector: 4 bytes too many"),
        (Phase.MASK, lambda body: body[:68] + entries({1: bytes(32)}), "MASKED: from client 0, tags for others"),
        (Phase.MASK, lambda body: body[:60], "MASKED from client 0: after the vector: 0 bytes, which is too short"),
        (Phase.CONFIRM, lambda body: entries({1: bytes(32)}), "CONFIRM: from client 0, for others than its surviving"),
        (Phase.UNMASK, lambda body: entries({9: bytes(34)}), "UNMASK: from client 0, of others than its neighbours"),
    ],
)
def test_the_server_refuses_bodies_that_cannot_be_and_goes_on(phase, change, message):
    cohort = just_before(complete(5, 3), phase)
    data = cohort.answer(0, cohort.inbox[0])
    with pytest.raises(MessageError, match=message):
        cohort.server.receive(reworded(data, change(data[ENVELOPE:])))
    cohort.server.receive(data)
    cohort.step(absent=[0])
    assert same(cohort.run() if cohort.inbox else cohort.server.result, cohort.expected(range(5)))


def test_more_clients_than_the_layout_has_room_for_are_refused():
    """The sum of one more could overflow the ring."""
    cohort = Cohort(complete(4, 3), enrolled=enrolment(5))
    for client in cohort.clients.values():
        cohort.server.receive(client.advertise())
    fifth = SecureSumClient(
        4,
        identity(4),
        enrolled=enrolment(5),
        parameters=cohort.parameters,
        policy=Policy.of(cohort.parameters),
        context=cohort.context,
        weight=1,
        entropy=InsecureSeededEntropy(0, 4),
    )
    with pytest.raises(MessageError, match="ADVERT: client 4 is one too many, allowed: 4"):
        cohort.server.receive(fifth.advertise())


def test_an_error_inside_a_step_ends_the_client_whatever_it_is():
    class Failing:
        secure = False

        def draw(self, size):
            raise OSError("no entropy")

    cohort = Cohort(complete(4, 3))
    client = cohort.clients[0]
    client._entropy = Failing()
    with pytest.raises(OSError, match="no entropy"):
        client.advertise()
    assert client.ended


def test_every_error_is_a_secagg_error_and_a_value_error():
    for error in (AbortError, ConfigurationError, MessageError, PhaseError):
        assert issubclass(error, SecAggError)
    assert issubclass(SecAggError, ValueError)
