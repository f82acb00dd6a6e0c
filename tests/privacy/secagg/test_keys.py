"""Keys: known answers of the standards, weak points by real curve arithmetic, and what a derived key depends on."""

import hmac

import pytest
from reference import slow_curve
from secagg_driver import flipped, holds

from privacy.secagg import AbortError, ConfigurationError, Enrolment, Identity, InsecureSeededEntropy, SystemEntropy
from privacy.secagg.keys import Channel, End, KeyPair, derive, digest, usable

CONTEXT = bytes(range(32))
SMALL_IDENTITIES = [encoded for point in slow_curve.small_points() for encoded in slow_curve.encodings(point)]
P = slow_curve.P


def test_ed25519_signs_as_rfc_8032_says():
    """Section 7.1, tests 1 and 2."""
    one = Identity(bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"))
    assert one.public.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert one.sign(b"").hex() == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )
    two = Identity(bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"))
    signature = two.sign(b"\x72")
    assert signature.hex() == (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    enrolled = Enrolment({1: one.public, 2: two.public})
    assert enrolled.verify(2, signature, b"\x72")
    assert not enrolled.verify(1, signature, b"\x72")
    assert not enrolled.verify(2, signature, b"\x73")
    assert not enrolled.verify(3, signature, b"\x72")
    assert not enrolled.verify(2, signature[:-1], b"\x72")
    assert not any(enrolled.verify(2, flipped(signature, bit), b"\x72") for bit in range(0, 512, 37))


ALICE = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")


def test_x25519_agrees_as_rfc_7748_says():
    """Section 6.1."""
    alice, bob = KeyPair(ALICE), KeyPair(BOB)
    assert alice.public.hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert bob.public.hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert alice.agree(bob.public).hex() == bob.agree(alice.public).hex() == shared


def hkdf(secret, salt, info, size):
    """HKDF-SHA256 by RFC 5869, section 2."""
    key, stream, block, count = hmac.digest(salt, secret, "sha256"), b"", b"", 0
    while len(stream) < size:
        count += 1
        block = hmac.digest(key, block + info + bytes([count]), "sha256")
        stream += block
    return stream[:size]


def test_the_reference_derives_as_rfc_5869_says():
    """Appendix A.1."""
    found = hkdf(b"\x0b" * 22, bytes(range(13)), bytes(range(0xF0, 0xFA)), 42)
    assert found.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"


@pytest.mark.parametrize("size", [32, 128])
def test_keys_are_derived_by_hkdf_from_the_context_the_purpose_and_both_ends_in_order(size):
    one, two = End(3, b"p" * 32), End(500, b"q" * 32)
    info = b"pair mask\0" + b"\0\0\0\x03" + b"p" * 32 + b"\0\0\x01\xf4" + b"q" * 32
    expected = hkdf(b"secret", CONTEXT, info, size)
    assert derive(b"secret", CONTEXT, "pair mask", (one, two), size) == expected
    assert derive(b"secret", CONTEXT, "pair mask", (two, one), size) == expected


# Weak keys.


def test_the_curve_has_8_points_of_small_order_in_14_encodings():
    points = slow_curve.small_points()
    assert len(set(points)) == 8
    assert all(slow_curve.is_small(point) for point in points)
    # y = 1 and y = -1 with either sign of x = 0; y = 1 and y = 0 once more with P added
    assert len(set(SMALL_IDENTITIES)) == len(SMALL_IDENTITIES) == 8 + 2 + 2 + 2
    assert all(slow_curve.decode(encoded) in points for encoded in SMALL_IDENTITIES)


@pytest.mark.parametrize("encoded", SMALL_IDENTITIES, ids=bytes.hex)
def test_identities_of_small_order_are_refused(encoded):
    """Under the neutral point, a signature that anybody can write verifies."""
    with pytest.raises(ConfigurationError, match="client 1: identity key of small order: anybody can sign under it"):
        Enrolment({0: Identity(ALICE).public, 1: encoded})


def test_identities_of_large_order_are_taken_even_next_to_the_small_ones():
    taken = 0
    for y in [*range(30), *range(P - 30, P)]:
        encoded = y.to_bytes(32, "little")
        point = slow_curve.decode(encoded)
        if point is not None and not slow_curve.is_small(point):
            assert Enrolment({0: encoded}).holds(0, encoded)
            taken += 1
    assert taken > 10


def test_a_forged_signature_under_the_neutral_point_would_verify():
    """Why the refusal: with R = S B and S = 0, R is the neutral point, and R + h A = R for every message."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    neutral = (1).to_bytes(32, "little")
    Ed25519PublicKey.from_public_bytes(neutral).verify(neutral + bytes(32), b"anything")  # raises nothing


MONTGOMERY = sorted({slow_curve.montgomery(point) for point in slow_curve.small_points()} | {P - 1, P, P + 1})


@pytest.mark.parametrize("u", MONTGOMERY)
def test_points_of_small_order_agree_with_nobody(u):
    assert len(MONTGOMERY) == 7
    point = u.to_bytes(32, "little")
    assert not usable(point)
    assert not usable(flipped(point, 255))
    with pytest.raises(AbortError, match="public key of small order or malformed") as refused:
        KeyPair(ALICE).agree(point)
    assert refused.value.__suppress_context__


@pytest.mark.parametrize("public", [b"", bytes(31), bytes([9]) + bytes(32), bytes([9]) + bytes(30) + b"\x80"])
def test_keys_in_another_form_agree_with_nobody(public):
    """The last is the base point with the bit that X25519 ignores."""
    assert not usable(public)
    with pytest.raises(AbortError, match="public key of small order or malformed"):
        KeyPair(ALICE).agree(public)
    assert usable(bytes([9]) + bytes(31))


@pytest.mark.parametrize("private", [b"", bytes(31), bytes(33), "k" * 32, None])
@pytest.mark.parametrize("kind", [Identity, KeyPair])
def test_private_keys_of_another_length_are_refused_without_showing_them(kind, private):
    with pytest.raises(ConfigurationError) as refused:
        kind(private)
    assert str(refused.value) == "private key: other than 32 bytes, allowed: 32 bytes"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({-1: b"k" * 32}, "client number: -1, allowed: from 0 to 4294967294"),
        ({2**32 - 1: b"k" * 32}, "client number: 4294967295, allowed"),
        ({True: b"k" * 32}, "client number: True, allowed"),
        ({"1": b"k" * 32}, "client number: '1', allowed"),
        ({1: b"k" * 31}, "client 1: identity key, allowed: 32 bytes"),
        ({1: bytearray(b"k" * 32)}, "client 1: identity key, allowed: 32 bytes"),
        ({1: b"k" * 32, 2: b"k" * 32}, "identity keys: two clients share one, allowed: one each"),
    ],
)
def test_enrolments_that_cannot_be_are_refused(keys, message):
    with pytest.raises(ConfigurationError, match=message):
        Enrolment(keys)


# Channels.


def channels(context=CONTEXT, other=CONTEXT):
    alice, bob = KeyPair(ALICE), KeyPair(BOB)
    return (
        Channel.between(alice, 5, End(3, bob.public), context),
        Channel.between(bob, 3, End(5, alice.public), other),
    )


def test_a_box_opens_at_the_other_end_only_and_a_tag_counts_there_only():
    one, two = channels()
    box, tag = one.seal(b"shares"), one.confirm(b"survivors")
    assert two.open(box) == b"shares"
    assert one.open(box) is None
    assert two.confirms(tag, b"survivors")
    assert not one.confirms(tag, b"survivors")
    assert not two.confirms(tag, b"other survivors")
    assert not two.confirms(tag[:-1], b"survivors")
    assert all(two.open(flipped(box, bit)) is None for bit in range(8 * len(box)))


def test_channels_of_two_sums_do_not_understand_each_other():
    one, two = channels(other=bytes(32))
    assert two.open(one.seal(b"shares")) is None
    assert not two.confirms(one.confirm(b"survivors"), b"survivors")


def test_the_four_keys_of_a_channel_differ():
    one, two = channels()
    keys = {one._seal, one._open, one._confirm, one._check}
    assert len(keys) == 4
    assert (one._seal, one._open, one._confirm, one._check) == (two._open, two._seal, two._check, two._confirm)


def test_digests_tell_apart_what_is_split_elsewhere():
    assert digest(CONTEXT, "share", b"ab", b"c") != digest(CONTEXT, "share", b"a", b"bc")
    assert digest(CONTEXT, "share", b"ab") != digest(CONTEXT, "nonce", b"ab")
    assert digest(CONTEXT, "share", b"ab") != digest(bytes(32), "share", b"ab")


def test_nothing_shows_a_key():
    one, _ = channels()
    shown = [repr(thing) for thing in (one, KeyPair(ALICE), Identity(ALICE), End(1, b"p" * 32), SystemEntropy())]
    secrets = [ALICE, one._seal, one._open, one._confirm, one._check]
    assert not any(secret.hex() in text or str(secret) in text for secret in secrets for text in shown)
    assert shown[0] == "Channel(5 to 3)"


# Entropy.


def test_seeded_entropy_repeats_itself_and_differs_by_address():
    draws = [InsecureSeededEntropy(1, "weights", 2).draw(64) for _ in range(2)]
    assert draws[0] == draws[1]
    others = [(2, "weights", 2), (1, "weights", 3), (1, "weights", "2"), (1, "weights2"), (1, "weights", 2, 0)]
    streams = {InsecureSeededEntropy(*address).draw(64) for address in others}
    assert len(streams | {draws[0]}) == len(others) + 1
    entropy = InsecureSeededEntropy(1, "weights", 2)
    assert entropy.draw(10) + entropy.draw(54) == draws[0]


def test_only_the_system_is_called_secure():
    assert SystemEntropy().secure
    assert not InsecureSeededEntropy(7).secure
    assert SystemEntropy().draw(32) != SystemEntropy().draw(32)
    assert repr(InsecureSeededEntropy(12345)) == "InsecureSeededEntropy(...)"


def test_the_search_for_secrets_finds_them():
    """The helper that other tests rely on."""
    one, _ = channels()
    assert holds({"a": [one]}, ())
    assert holds({"a": (b"xx" + ALICE,)}, {ALICE})
    assert not holds({"a": (b"xx",)}, {ALICE})
