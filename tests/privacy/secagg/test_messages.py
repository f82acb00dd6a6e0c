"""Messages: one encoding for each content, and nothing else is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from secagg_driver import flipped

from privacy.secagg import MessageError
from privacy.secagg.messages import (
    BOX,
    ENVELOPE,
    SERVER,
    Advert,
    Introductions,
    Kind,
    Reader,
    Shares,
    entries,
    members,
    pack,
    read_entries,
    unpack,
)

CONTEXT = bytes(range(32))
MESSAGE = pack(Kind.SHARES, CONTEXT, 7, SERVER, b"body")


def test_an_envelope_is_48_bytes_of_magic_version_kind_context_sender_and_receiver():
    assert MESSAGE.hex() == "4653554d02050000" + CONTEXT.hex() + "00000007" + "ffffffff" + b"body".hex()
    assert len(MESSAGE) == ENVELOPE + 4
    assert unpack(MESSAGE, Kind.SHARES, CONTEXT, receiver=SERVER) == (7, b"body")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (MESSAGE[:47], "SHARES: 47, allowed: bytes, 48 at least"),
        (b"", "SHARES: 0, allowed"),
        (None, "SHARES: NoneType, allowed"),
        (memoryview(MESSAGE), "SHARES: memoryview, allowed"),
        (b"X" + MESSAGE[1:], "SHARES: not a message of version 2"),
        (flipped(MESSAGE, 33), "SHARES: not a message of version 2"),
        (flipped(MESSAGE, 50), "SHARES: not a message of version 2"),
        (flipped(MESSAGE, 57), "SHARES: not a message of version 2"),
        (pack(Kind.MASKED, CONTEXT, 7, SERVER), r"message kind: 7, allowed now: SHARES \(5\)"),
        (pack(Kind.SHARES, bytes(32), 7, SERVER), "SHARES from client 7: of another session, round, sum"),
        (pack(Kind.SHARES, CONTEXT, 7, 3), "SHARES: addressed to client 3, allowed: the server"),
    ],
)
def test_other_envelopes_are_refused(data, message):
    with pytest.raises(MessageError, match=message):
        unpack(data, Kind.SHARES, CONTEXT, receiver=SERVER)


def test_a_message_of_another_sender_is_refused():
    with pytest.raises(MessageError, match="SHARES: from client 7, allowed: the server"):
        unpack(MESSAGE, Kind.SHARES, CONTEXT, receiver=SERVER, sender=SERVER)


@given(st.binary(max_size=120))
def test_any_bytes_are_read_to_the_same_bytes_or_refused(data):
    """One encoding for each content: what is read writes itself back unchanged."""
    bodies = [
        lambda: members(read_entries(data, 0, "x")),
        lambda: entries(read_entries(data, 3, "x")),
        lambda: Advert.read(data).body(),
        lambda: Shares.read(data).body(),
        lambda: Introductions.read(data).body(),
    ]
    for body in bodies:
        try:
            assert body() == data
        except MessageError as refused:
            assert str(refused)


PARTS = st.dictionaries(st.integers(0, SERVER - 1), st.binary(min_size=BOX, max_size=BOX), max_size=4)
DIGESTS = st.dictionaries(st.integers(0, SERVER - 1), st.binary(min_size=64, max_size=64), max_size=4)


@given(st.binary(min_size=32, max_size=32), PARTS, DIGESTS, st.integers(1, 300))
def test_every_message_comes_back_and_no_part_or_extension_of_it_does(seed, boxes, digests, cut):
    shares = Shares(seed, boxes, digests)
    body = shares.body()
    assert Shares.read(body) == shares
    for other in (body[:-cut], body + bytes(cut)):
        with pytest.raises(MessageError, match="SHARES"):
            Shares.read(other)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"\xff\xff\xff\xff", "x: a list of 4294967295 in 4 bytes"),
        (b"\0\0\0\2" + b"\0\0\0\1" * 2, "x: client numbers out of order, allowed: rising"),
        (b"\0\0\0\2" + b"\0\0\0\2" + b"\0\0\0\1", "x: client numbers out of order, allowed: rising"),
        (b"\0\0\0\1" + b"\xff" * 4, "x: client numbers out of order, allowed: rising"),
        (b"\0\0\0\0" + b"\0", "x: 1 bytes too many"),
        (b"\0\0\0", "x: 3 bytes, which is too short"),
    ],
)
def test_other_lists_are_refused(body, message):
    with pytest.raises(MessageError, match=message):
        read_entries(body, 0, "x")


def test_a_huge_count_is_refused_before_anything_is_read():
    """Four bytes must not make anybody loop four billion times."""
    with pytest.raises(MessageError, match="a list of 4294967295 in 4 bytes"):
        Reader(b"\xff" * 4, "x").entries(BOX)
