"""Shamir's secret sharing: against the slow reference, by hand, and what fewer shares than the threshold say."""

import os
import random
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.secagg.errors import ConfigurationError, MessageError
from privacy.secagg.shamir import PRIME, combine, lagrange_weights, share_from_bytes, share_to_bytes, split
from tests.reference import slow_shamir

elements = st.integers(0, PRIME - 1)
point_lists = st.lists(st.integers(1, 60) | st.integers(1, PRIME - 1), min_size=1, max_size=12, unique=True)


def scripted(*numbers):
    """A source that gives these numbers as 33 bytes, one after the other, and no more."""
    rest = list(numbers)

    def draw(size):
        return rest.pop(0).to_bytes(size, "big")

    draw.rest = rest
    return draw


def test_the_modulus_is_the_first_prime_above_two_to_the_256():
    bases = [random.Random(1).randrange(2, PRIME - 1) for _ in range(40)]
    assert slow_shamir.is_probable_prime(PRIME, bases)
    assert not any(slow_shamir.is_probable_prime(2**256 + step, bases) for step in range(1, 297, 2))
    assert not slow_shamir.is_probable_prime(561, [5])  # Carmichael's number passes Fermat's test


@given(elements, point_lists, st.data())
def test_any_t_shares_give_the_secret(secret, points, data):
    threshold = data.draw(st.integers(1, len(points)))
    shares = dict(zip(points, split(secret, points, threshold, os.urandom), strict=True))
    size = data.draw(st.integers(threshold, len(points)))
    some = tuple(data.draw(st.permutations(points))[:size])
    assert combine(some, [shares[point] for point in some]) == secret


@given(st.lists(elements, min_size=1, max_size=8), point_lists)
def test_shares_are_the_values_of_the_random_polynomial(falling, points):
    falling = falling[-len(points) :]
    shares = split(falling[-1], points, len(falling), scripted(*falling[:-1]))
    assert shares == [slow_shamir.evaluate(falling[::-1], point, PRIME) for point in points]


@pytest.mark.parametrize("count", [51, 52, 120])
def test_long_polynomials_are_reduced_on_the_way(count):
    falling = [PRIME - 1 - i for i in range(count)]
    points = [*range(1, count), 1023, 2**255, PRIME - 1]
    shares = split(falling[-1], points, count, scripted(*falling[:-1]))
    assert shares == [slow_shamir.evaluate(falling[::-1], point, PRIME) for point in points]
    assert combine(tuple(points[2:]), shares[2:]) == falling[-1]


@given(point_lists, st.data())
def test_the_value_at_zero_is_that_of_the_polynomial_through_the_points(points, data):
    values = [data.draw(elements) for _ in points]
    assert combine(tuple(points), values) == slow_shamir.interpolate(points, values, PRIME)[0]


def test_by_hand():
    # 7 + 3 x + 2 x^2 at 1, 2, 3: 12, 21, 34; at 0: 3 * 12 - 3 * 21 + 34 = 7
    assert split(7, (1, 2, 3), 3, scripted(2, 3)) == [12, 21, 34]
    assert lagrange_weights((1, 2, 3)) == (3, PRIME - 3, 1)
    assert combine((1, 2, 3), (12, 21, 34)) == 7
    # 5 - x at 5 and 6: 0 and -1
    assert split(5, (5, 6), 2, scripted(PRIME - 1)) == [0, PRIME - 1]
    assert split(9, (4, 2), 1, scripted()) == [9, 9]


@given(elements, elements, point_lists.filter(lambda points: len(points) > 1), st.data())
def test_fewer_shares_fit_every_secret(secret, other, points, data):
    """For every other secret there is exactly one choice of the coefficients that gives the same t - 1 shares."""
    threshold = data.draw(st.integers(2, len(points)))
    shares = split(secret, points, threshold, os.urandom)
    known = points[: threshold - 1]
    coefficients = slow_shamir.interpolate([0, *known], [other, *shares[: threshold - 1]], PRIME)
    assert coefficients[0] == other
    again = split(other, points, threshold, scripted(*coefficients[:0:-1]))
    assert again[: threshold - 1] == shares[: threshold - 1]
    assert (again == shares) == (other == secret)


def test_in_a_small_field_fewer_shares_leave_every_secret_equally_likely():
    for shares in ((3, 6), (0, 0)):
        counts = [slow_shamir.polynomials_through((1, 2), shares, secret, 3, 7) for secret in range(7)]
        assert counts == [1] * 7
    assert [slow_shamir.polynomials_through((1, 2, 3), (5, 5, 5), secret, 3, 7) for secret in range(7)].count(0) == 6


def test_coefficients_are_drawn_again_rather_than_biased():
    # 256^33 = 255 PRIME + a rest, so 255 PRIME is the first number too many: below it each remainder comes 255 times
    assert 256**33 // PRIME == 255
    draw = scripted(255 * PRIME, 256**33 - 1, 255 * PRIME - 1)
    assert split(3, (1,), 1, draw) == [3] and len(draw.rest) == 3
    assert split(3, (1, 2), 2, draw) == [2, 1]
    assert draw.rest == []
    assert split(3, (1, 2), 2, scripted(PRIME + 4)) == [7, 11]
    assert split(3, (1, 2), 2, scripted(0)) == [3, 3]  # the leading coefficient may be zero


def test_every_coefficient_is_drawn_anew():
    asked = []

    def draw(size):
        asked.append(size)
        return os.urandom(size)

    first, second = (split(11, range(1, 6), 4, draw) for _ in range(2))
    assert asked == [33] * 6
    assert all(a != b for a, b in zip(first, second, strict=True))


def test_weights_are_computed_once_for_the_same_survivors():
    points = (3, 14, 15, 92)
    combine(points, (1, 2, 3, 4))
    hits = lagrange_weights.cache_info().hits
    combine(points, (5, 6, 7, 8))
    assert lagrange_weights.cache_info().hits == hits + 1


@pytest.mark.parametrize(
    ("points", "threshold", "text"),
    [
        ((), 1, r"points: none, allowed: at least one"),
        ((1, 2, 0), 2, r"points: 0, allowed: whole numbers from 1 to PRIME - 1"),
        ((1, -2), 2, r"points: -2, allowed"),
        ((1, PRIME), 2, rf"points: {PRIME}, allowed"),
        ((1, 2.0), 2, r"points: 2\.0, allowed"),
        ((4, 5, 6, 5), 2, r"points: 5 comes twice, allowed: distinct points"),
        ((1, 2, 3), 4, r"threshold: 4, allowed: 1 to the 3 points"),
        ((1, 2, 3), 0, r"threshold: 0, allowed: 1 to the 3 points"),
        ((1, 2, 3), 2.0, r"threshold: 2\.0, allowed: 1 to the 3 points"),
    ],
)
def test_points_and_thresholds_that_cannot_work(points, threshold, text):
    with pytest.raises(ConfigurationError, match=f"^{text}"):
        split(1, points, threshold, os.urandom)


@pytest.mark.parametrize("points", [(), (1, 0), (2, 2), (1, PRIME)])
def test_weights_refuse_the_same_points(points):
    with pytest.raises(ConfigurationError, match=r"^points: "):
        lagrange_weights(points)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_one_share_for_each_point(count):
    with pytest.raises(ConfigurationError, match=rf"^shares: {count}, allowed: 2, one for each point"):
        combine((1, 2), [1] * count)


@pytest.mark.parametrize("secret", [-123456789, PRIME, PRIME + 123456789, 123456789.5])
def test_no_error_holds_the_secret_or_the_share(secret):
    for call, name in (
        (lambda: split(secret, (1, 2), 2, os.urandom), "secret"),
        (lambda: share_to_bytes(secret), "share"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            call()
        assert str(caught.value) == f"{name}: not in the field, allowed: a whole number from 0 to PRIME - 1"
        assert str(secret) not in "".join(traceback.format_exception_only(caught.value))


@pytest.mark.parametrize("size", [0, 32, 34])
def test_a_random_source_that_gives_too_little_is_refused(size):
    with pytest.raises(ConfigurationError, match=rf"^random_bytes: gave {size} bytes, allowed: the 33 asked for"):
        split(1, (1, 2), 2, lambda _: bytes(size))


@given(elements)
def test_shares_travel_as_33_bytes(share):
    data = share_to_bytes(share)
    assert len(data) == 33 and share_from_bytes(data) == share


def test_share_bytes_are_big_endian():
    assert share_to_bytes(258) == bytes(31) + b"\x01\x02"
    assert share_to_bytes(PRIME - 1) == b"\x01" + bytes(30) + b"\x01\x28"  # 2^256 + 296


@pytest.mark.parametrize("size", [0, 32, 34, 66])
def test_shares_of_another_length_are_refused(size):
    with pytest.raises(MessageError, match=rf"^share: {size} bytes, allowed: 33$"):
        share_from_bytes(bytes(size))


@pytest.mark.parametrize("value", [PRIME, PRIME + 1, 256**33 - 1])
def test_a_value_has_one_encoding(value):
    with pytest.raises(MessageError) as caught:
        share_from_bytes(value.to_bytes(33, "big"))
    assert str(caught.value) == "share: a value above the field, allowed: 0 to PRIME - 1"
