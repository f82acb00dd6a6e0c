"""The numbers of a secure sum: exact bounds, unbiased rounding, the ring's limits, refusals, canonical bytes."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import slow_sums
from scipy import stats

from privacy.secagg.errors import AbortError, ConfigurationError, MessageError
from privacy.secagg.groups import COORDINATES, Group, Layout, add, decode, encode
from privacy.secagg.layout import MOST


def rng(seed=0):
    return np.random.default_rng(seed)


def one_mean(size=4, limit=1.0, clients=3, largest_weight=10, bits=32):
    return Layout((Group("w", size, limit, bits=bits),), clients, largest_weight)


def summed(layout, columns, weights, seed=0):
    """The sum of what clients with these values and weights send."""
    total = np.zeros(layout.nbytes, np.uint8)
    for index, (values, weight) in enumerate(zip(columns, weights, strict=True)):
        add(layout, total, encode(layout, values, weight, rng([seed, index])))
    return total


def signed_words(layout, vector):
    """The ring words of a layout with one group, as Python ints from -M/2 to M/2 - 1."""
    (group,) = layout.groups
    words = slow_sums.words(vector, layout.words64)
    header = 1 + len(layout.means)
    words = words[layout.words64 :] if group.bits == 32 else words[header : header + group.size]
    return [value - (value >> (bits - 1) << bits) for value, bits in words]


# --- the weighted mean ---------------------------------------------------------------------------------------------


@st.composite
def sums(draw):
    """A layout with one mean, and for each client an array (any shape, float32 or float64) and a weight."""
    limit = draw(st.sampled_from([1.0, 0.1, 8.0, 1e-3, 1e-30, 5e-7, 1000.0]))
    largest = draw(st.sampled_from([1, 2, 7, 512, 1000]))
    bits = draw(st.sampled_from([32, 64]))
    shape = draw(st.sampled_from([(), (1,), (5,), (2, 3), (3, 1, 2)]))
    clients = draw(st.integers(1, 5))
    columns, weights = [], []
    for _ in range(draw(st.integers(1, clients))):
        dtype = draw(st.sampled_from([np.float32, np.float64]))
        size = int(np.prod(shape, dtype=int))
        parts = draw(st.lists(st.floats(-1.25, 1.25) | st.sampled_from([0.0, -0.0, 1.0]), min_size=size, max_size=size))
        columns.append((np.array(parts) * limit).astype(dtype).reshape(shape))
        weights.append(draw(st.integers(1, largest)))
    return one_mean(size, limit, clients, largest, bits), columns, weights


@given(sums())
def test_the_mean_of_n_clients_is_within_its_bound_of_the_weighted_mean(case):
    """|sum of words - 2^b sum n_k x_k| < n exactly; the mean then differs by float64's own rounding of it only."""
    layout, columns, weights = case
    total = summed(layout, [{"w": column} for column in columns], weights)
    decoded = decode(layout, total)
    bits, limit, n = layout.fraction_bits["w"], layout.groups[0].limit, len(columns)
    flat = list(zip(*(column.ravel().tolist() for column in columns), strict=True))
    for word, mean, values in zip(signed_words(layout, total), decoded.means["w"].tolist(), flat, strict=True):
        exact = slow_sums.weighted_mean(values, weights, limit)
        assert abs(word - 2**bits * sum(weights) * exact) < n
        bound = Fraction(n, 2**bits * sum(weights))
        assert abs(Fraction(mean) - exact) <= bound + Fraction(2 * np.spacing(abs(mean)))
    assert decoded.weight == sum(weights)
    beyond = sum(abs(Fraction(x)) > Fraction(limit) for column in columns for x in column.ravel().tolist())
    assert decoded.clipped == {"w": beyond}


HARD = {
    "the largest weight, near the ring's limit": (31.9999, 2**25 - 1, 32, 1),
    "64 bits, all digits of a float64": (0.9999999999999999, 1_000_003, 64, 1),
    "64 bits, the largest weight": (0.7000000000000001, MOST, 64, 1),
    "32 bits, a tiny limit": (1e-30, MOST, 32, 7),
}


@pytest.mark.parametrize(("limit", "weight", "bits", "clients"), HARD.values(), ids=HARD)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_each_word_is_one_of_the_two_next_to_the_exact_product(limit, weight, bits, clients, dtype):
    layout = one_mean(3 * COORDINATES + 5, limit, clients, weight, bits)
    values = (rng(3).uniform(-1.01, 1.01, layout.groups[0].size) * limit).astype(dtype)
    vector = encode(layout, {"w": values}, weight, rng())
    scale = 2 ** layout.fraction_bits["w"] * weight
    for word, x in zip(signed_words(layout, vector), values.tolist(), strict=True):
        exact = slow_sums.clip(x, limit)
        assert abs(word * exact.denominator - scale * exact.numerator) < exact.denominator  # |word - scale x| < 1


@pytest.mark.parametrize("bits", [32, 64])
def test_whole_products_are_never_moved(bits):
    layout = one_mean(50_000, 1.0, 1, 1, bits)
    scale = 2 ** layout.fraction_bits["w"]
    values = rng(1).integers(-(2**24), 2**24, 50_000) / 2**24  # products are whole: 2^b is a multiple of 2^24
    vector = encode(layout, {"w": values}, 1, rng())
    assert signed_words(layout, vector) == [int(x * scale) for x in values.tolist()]


# Rounding: N draws of floor(v + U) - v have mean 0 and standard deviation sqrt(f (1 - f)), f the fraction of v.
FRACTIONS = [0.001, 0.25, 0.5, 0.9]
DRAWS = 200_000


def rounding_z(rounded, fraction):
    return (np.mean(rounded) - fraction) / np.sqrt(fraction * (1 - fraction) / DRAWS)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("sign", [1, -1])
def test_rounding_is_unbiased_on_both_sides_of_zero(bits, fraction, sign):
    layout = one_mean(DRAWS, 1.0, 1, 1, bits)
    scale = 2.0 ** layout.fraction_bits["w"]
    vector = encode(layout, {"w": np.full(DRAWS, sign * fraction / scale)}, 1, rng(11))
    z = rounding_z(np.abs(signed_words(layout, vector)), fraction)
    assert abs(z) < 5


@pytest.mark.parametrize(
    ("fraction", "mean"),
    [(f, 0.0) for f in FRACTIONS]  # always down: off by f
    + [(0.25, 0.0), (0.5, 0.0), (0.9, 1.0)]  # to nearest
    + [(f, by * f) for f in FRACTIONS[1:] for by in (0.95, 1.05)],  # 5 % too little, 5 % too much
)
def test_that_statistic_rejects_a_biased_rounding(fraction, mean):
    """Power above 99.9 %: the z of rounding whose mean is `mean` is normal around its offset, with deviation <= 1.1."""
    offset = (mean - fraction) / np.sqrt(fraction * (1 - fraction) / DRAWS)
    assert stats.norm.sf((5 - abs(offset)) / 1.1) > 0.999


def test_rounding_draws_are_independent_between_coordinates_blocks_groups_and_clients():
    """Neighbouring words and equal positions of groups and clients agree half of the time: 5 standard deviations."""
    size = 2 * COORDINATES
    layout = Layout((Group("a", size, 1.0), Group("b", size, 1.0, bits=64)), 2, 1)
    scale = {name: 2.0**bits for name, bits in layout.fraction_bits.items()}
    values = {name: np.full(size, 0.5 / scale[name]) for name in "ab"}
    one, two = (decode(layout, encode(layout, values, 1, rng(seed))).means for seed in (1, 2))
    draws = [one["a"] * scale["a"], one["b"] * scale["b"], two["a"] * scale["a"]]
    pairs = [(draws[0], draws[1]), (draws[0], draws[2])] + [(d[:-lag], d[lag:]) for d in draws for lag in (1, 2, 4)]
    pairs.append((draws[0][:COORDINATES], draws[0][COORDINATES:]))
    for left, right in pairs:
        agree = np.mean(left == right)
        assert abs(agree - 0.5) < 5 * 0.5 / np.sqrt(left.size)


def test_one_generator_gives_one_vector():
    layout, values = one_mean(1000), {"w": rng(2).normal(size=1000)}
    first, again, other = (encode(layout, values, 3, rng(seed)) for seed in (5, 5, 6))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


# --- the ring's limit ----------------------------------------------------------------------------------------------

RINGS = [(3, 10, 1.0, 32), (100, 512, 8.0, 32), (7, 1000, 0.1, 32), (5, 33, 1e-3, 64), (100, 512, 8.0, 64)]


@pytest.mark.parametrize(("clients", "largest_weight", "limit", "bits"), RINGS)
@pytest.mark.parametrize("sign", [1, -1])
def test_all_clients_at_the_limit_with_the_largest_weight_are_summed(clients, largest_weight, limit, bits, sign):
    layout = one_mean(40, limit, clients, largest_weight, bits)
    values = {"w": np.full(40, sign * 2 * limit)}
    total = summed(layout, [values] * clients, [largest_weight] * clients)
    scale = 2 ** layout.fraction_bits["w"] * largest_weight * clients
    assert all(abs(word - sign * scale * Fraction(limit)) < clients for word in signed_words(layout, total))
    decoded = decode(layout, total)
    assert decoded.clipped == {"w": 40 * clients}
    assert decoded.means["w"] == pytest.approx(sign * limit, abs=clients / scale, rel=1e-15)


@pytest.mark.parametrize(("clients", "largest_weight", "limit", "bits"), RINGS)
def test_fraction_bits_are_the_most_that_fit(clients, largest_weight, limit, bits):
    fraction_bits = one_mean(1, limit, clients, largest_weight, bits).fraction_bits["w"]
    assert slow_sums.fits(clients, largest_weight, limit, fraction_bits, bits)
    assert not slow_sums.fits(clients, largest_weight, limit, fraction_bits + 1, bits)


def test_the_published_examples_of_fraction_bits():
    """n = 100, W = 512: 2^b < (2^31 / 100 - 1) / (512 C) = 41942 at C = 1 and 5242 at C = 8, by hand."""
    assert one_mean(1, 1.0, 100, 512).fraction_bits == {"w": 15}
    assert one_mean(1, 8.0, 100, 512).fraction_bits == {"w": 12}
    assert one_mean(1, 8.0, 100, 512, 64).fraction_bits == {"w": 44}


@pytest.mark.parametrize("bits", [32, 64])
def test_a_mean_at_the_limit_is_accepted_and_one_unit_beyond_refused(bits):
    """With n = W = 1 and one fraction bit: 2 C + 1 < 2^(bits - 1)."""
    beyond = 2 ** (bits - 2) - 0.5 if bits == 32 else 2.0 ** (bits - 2)
    last = np.nextafter(beyond, 0)
    layout = one_mean(1, float(last), 1, 1, bits)
    assert layout.fraction_bits == {"w": 1}
    total = encode(layout, {"w": np.array([last])}, 1, rng())
    assert abs(signed_words(layout, total)[0] - 2 * Fraction(float(last))) < 1
    with pytest.raises(ConfigurationError, match=rf"group 'w': limit .*, allowed: below .* in {bits} bits"):
        one_mean(1, beyond, 1, 1, bits)


@pytest.mark.parametrize(("clients", "bits"), [(1, 32), (3, 32), (4, 32), (7, 64), (4, 64)])
def test_a_count_at_the_limit_is_exact_and_one_unit_beyond_refused(clients, bits):
    last = (2 ** (bits - 1) - 1) // clients
    layout = Layout((Group("c", 2, last, "count", bits),), clients, 1)
    total = summed(layout, [{"c": np.array([last, -last])}] * clients, [1] * clients)
    assert decode(layout, total).counts["c"].tolist() == [clients * last, -clients * last]
    with pytest.raises(ConfigurationError, match=rf"group 'c': limit {last + 1} .*, allowed: at most {last} in {bits}"):
        Layout((Group("c", 2, last + 1, "count", bits),), clients, 1)


# --- what is sent exactly, and what is refused ---------------------------------------------------------------------


@given(st.data())
def test_counts_are_exact_in_any_type_that_holds_them(data):
    dtype = data.draw(st.sampled_from([np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64]))
    low = max(-1000, np.iinfo(dtype).min)
    bits = data.draw(st.sampled_from([32, 64]))
    numbers = st.lists(st.integers(low, min(1000, np.iinfo(dtype).max)), min_size=6, max_size=6)
    columns = data.draw(st.lists(numbers, min_size=1, max_size=4))
    layout = Layout((Group("c", 6, 1000, "count", bits),), 4, 9)
    values = [{"c": np.array(column, dtype).reshape(2, 3)} for column in columns]
    decoded = decode(layout, summed(layout, values, [9] * len(columns)))
    assert decoded.counts["c"].dtype == np.int64
    assert decoded.counts["c"].tolist() == [sum(column) for column in zip(*columns, strict=True)]
    assert decoded.means == decoded.clipped == {}


SPECIAL = {
    "minus zero": [-0.0, 0.0, -0.0],
    "denormals": [5e-324, -5e-324, 1e-310],
    "all negative": [-0.25, -1.0, -0.7],
    "the limits": [1.0, -1.0, 0.5],
}


@pytest.mark.parametrize("numbers", SPECIAL.values(), ids=SPECIAL)
@pytest.mark.parametrize("bits", [32, 64])
def test_special_numbers_are_within_the_bound(numbers, bits):
    layout = one_mean(3, 1.0, 2, 6, bits)
    decoded = decode(layout, summed(layout, [{"w": np.array(numbers)}] * 2, [6, 5]))
    assert decoded.means["w"] == pytest.approx(numbers, rel=0, abs=2 / (2 ** layout.fraction_bits["w"] * 11))
    assert decoded.clipped == {"w": 0} and decoded.weight == 11


def signalling_nan():
    return np.array([0, 0x7F800001], np.uint32).view(np.float32)


NOT_FINITE = [np.array([0.5, bad]) for bad in (np.nan, np.inf, -np.inf)]
NOT_FINITE += [array.astype(np.float32) for array in NOT_FINITE] + [signalling_nan(), np.array([2.0, np.nan])]


@pytest.mark.parametrize("values", NOT_FINITE, ids=lambda values: f"{values.dtype} {values[1]}")
@pytest.mark.parametrize("bits", [32, 64])
def test_numbers_that_are_not_finite_are_refused_and_nothing_is_left_behind(values, bits):
    layout = Layout((Group("a", 2, 1.0), Group("w", 2, 1.0, bits=bits)), 3, 10)
    out = np.full(layout.nbytes, 7, np.uint8)
    with pytest.raises(ConfigurationError, match=r"group 'w': NaN or an infinity .*, allowed: finite numbers"):
        encode(layout, {"a": np.ones(2), "w": values}, 10, rng(), out=out)
    assert not out.any()


def test_a_nan_in_the_last_of_many_blocks_is_seen():
    values = np.zeros(3 * COORDINATES + 1, np.float32)
    values[-1] = np.nan
    with pytest.raises(ConfigurationError, match="NaN"):
        encode(one_mean(values.size), {"w": values}, 1, rng())


@pytest.mark.parametrize("limit", [0.1, 1.0, 1 / 3])
def test_clipping_is_counted_in_float64_even_next_to_the_limit(limit):
    """The float32 above .1 is beyond .1, the one below is not, though both compare equal to it in float32 or nearly."""
    near = np.float32(limit)
    values = np.array([np.nextafter(near, np.float32(step)) for step in (0, 9)] + [near, -near], np.float32)
    layout = one_mean(4, limit)
    decoded = decode(layout, encode(layout, {"w": values}, 1, rng()))
    assert decoded.clipped == {"w": sum(abs(x) > limit for x in values.tolist())}
    assert decoded.clipped["w"] >= 1


def test_each_group_and_client_has_its_own_count_of_clipped_coordinates():
    groups = (Group("a", 3, 1.0), Group("c", 2, 5, "count"), Group("b", 2, 2.0, bits=64))
    layout = Layout(groups, 2, 4)
    counts = np.array([5, -5])
    values = [
        {"a": np.array([2.0, -3.0, 0.5]), "b": np.array([2.0, 2.1]), "c": counts},
        {"a": np.array([1.5, 0.0, 0.0]), "b": np.array([0.0, -1.0]), "c": counts},
    ]
    decoded = decode(layout, summed(layout, values, [4, 1]))
    assert decoded.clipped == {"a": 3, "b": 1}
    assert decoded.means["a"] == pytest.approx([1.0, -0.8, 0.4], abs=1e-6)
    assert decoded.means["b"] == pytest.approx([1.6, 1.4], abs=1e-12)
    assert decoded.counts["c"].tolist() == [10, -10] and decoded.weight == 5


MIXED = Layout((Group("w", 6, 1.0), Group("c", 2, 5, "count")), 3, 10)
GOOD = {"w": np.zeros(6, np.float32), "c": np.zeros(2, np.int64)}


@pytest.mark.parametrize("weight", [0, -1, 11, 1.0, True, np.int64(3), None, "3"])
def test_other_weights_are_refused(weight):
    with pytest.raises(ConfigurationError, match=r"weight: .*, allowed: a whole number from 1 to 10"):
        encode(MIXED, GOOD, weight, rng())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"losses": np.ones(1)}, r"values: 'losses', allowed: only declared groups"),
        ({3: np.ones(1)}, r"values: 3, allowed: only declared groups"),
        ({"w": None}, r"values: without 'w', allowed: every declared group"),
        ({"w": [0.0] * 6}, r"group 'w': a list, allowed: a numpy array"),
        ({"w": np.zeros(5)}, r"group 'w': 5 coordinates, allowed: 6"),
        ({"w": np.zeros(0)}, r"group 'w': 0 coordinates, allowed: 6"),
        ({"w": np.zeros(6, np.float16)}, r"group 'w': values of type float16, allowed: float32 or float64"),
        ({"w": np.zeros(6, np.int64)}, r"group 'w': values of type int64, allowed: float32 or float64"),
        ({"w": np.zeros(6, ">f4")}, r"group 'w': values of type >f4, allowed: float32 or float64"),
        ({"w": np.zeros(6, complex)}, r"group 'w': values of type complex128, allowed: float32 or float64"),
        ({"c": np.zeros(2)}, r"group 'c': values of type float64, allowed: whole numbers"),
        ({"c": np.zeros(2, bool)}, r"group 'c': values of type bool, allowed: whole numbers"),
        ({"c": np.array([0, 6])}, r"group 'c': a coordinate beyond its limit, allowed: whole numbers from -5 to 5"),
        ({"c": np.array([-6, 0])}, r"group 'c': a coordinate beyond its limit"),
        ({"c": np.array([0, 2**64 - 1], np.uint64)}, r"group 'c': a coordinate beyond its limit"),
        ({"c": np.array([0, -(2**63)])}, r"group 'c': a coordinate beyond its limit"),
    ],
)
def test_other_values_are_refused(changes, message):
    values = {name: value for name, value in (GOOD | changes).items() if value is not None}
    with pytest.raises(ConfigurationError, match=message):
        encode(MIXED, values, 1, rng())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_in_any_memory_order_are_encoded_alike_and_left_alone(dtype):
    size = 2 * COORDINATES
    straight = rng(4).uniform(-2, 2, (size // 8, 8)).astype(dtype)
    layout = one_mean(size)
    expected = encode(layout, {"w": straight}, 3, rng())
    wide = np.repeat(straight, 2, axis=1)[:, ::2]
    for values in (straight.ravel(), np.asfortranarray(straight), wide):
        before = values.copy()
        values.setflags(write=False)
        assert np.array_equal(encode(layout, {"w": values}, 3, rng()), expected)
        assert np.array_equal(values, before)


def test_counts_in_any_memory_order_are_encoded_alike():
    layout = Layout((Group("c", 6, 9, "count"),), 1, 1)
    straight = np.arange(6).reshape(2, 3)
    for values in (straight, np.asfortranarray(straight), np.repeat(straight, 2, axis=1)[:, ::2]):
        assert decode(layout, encode(layout, {"c": values}, 1, rng())).counts["c"].tolist() == list(range(6))


# --- the vector ----------------------------------------------------------------------------------------------------


def test_the_vector_is_header_wide_words_padding_and_narrow_words():
    groups = (Group("n", 2, 5, "count"), Group("m", 1, 7, "count", 64), Group("a", 1, 1.0))
    layout = Layout(groups, 1, 9)
    assert (layout.words64, layout.words32, layout.nbytes) == (4, 3, 44)  # weight, clipped of a, m, padding; n, n, a
    values = {"n": np.array([1, -2]), "m": np.array([-3]), "a": np.array([4.0])}
    out = np.full(44, 255, np.uint8)
    assert encode(layout, values, 8, rng(), out=out) is out
    a = 8 * 2 ** layout.fraction_bits["a"]
    expected = [(8, 64), (1, 64), (2**64 - 3, 64), (0, 64), (1, 32), (2**32 - 2, 32), (a, 32)]
    assert slow_sums.words(out, 4) == expected


@pytest.mark.parametrize("sizes", [(1,), (2, 1), (1, 1, 1)])
@pytest.mark.parametrize("bits", [32, 64])
def test_the_wide_part_is_a_whole_number_of_cipher_blocks(sizes, bits):
    layout = Layout(tuple(Group(str(i), size, 1.0, bits=bits) for i, size in enumerate(sizes)), 1, 1)
    assert layout.words64 * 8 % 16 == 0
    assert encode(layout, {str(i): np.zeros(n) for i, n in enumerate(sizes)}, 1, rng()).size == layout.nbytes


@given(st.binary(min_size=44, max_size=44), st.binary(min_size=44, max_size=44))
def test_vectors_are_added_word_by_word(left, right):
    layout = Layout((Group("n", 2, 5, "count"), Group("m", 1, 7, "count", 64), Group("a", 1, 1.0)), 1, 9)
    into = np.frombuffer(left, np.uint8).copy()
    add(layout, into, np.frombuffer(right, np.uint8))
    pairs = zip(slow_sums.words(left, 4), slow_sums.words(right, 4), strict=True)
    assert slow_sums.words(into, 4) == [((a + b) % 2**bits, bits) for (a, bits), (b, _) in pairs]


ZEROS = np.zeros(MIXED.nbytes, np.uint8)


@pytest.mark.parametrize(
    "vector",
    [ZEROS[:-1], np.zeros(MIXED.nbytes + 4, np.uint8), bytes(ZEROS), ZEROS.view(np.int8), np.zeros((2, 2), np.uint8)],
    ids=["short", "long", "bytes", "int8", "a matrix"],
)
def test_other_vectors_are_refused(vector):
    for use in (
        lambda: add(MIXED, ZEROS.copy(), vector),
        lambda: add(MIXED, vector, ZEROS),
        lambda: decode(MIXED, vector),
        lambda: encode(MIXED, GOOD, 1, rng(), out=vector),
    ):
        with pytest.raises(ConfigurationError, match=r"vector: .*, allowed: "):
            use()


def test_read_only_memory_is_refused_for_results():
    frozen = np.frombuffer(bytes(MIXED.nbytes), np.uint8)
    for use in (lambda: add(MIXED, frozen, ZEROS), lambda: encode(MIXED, GOOD, 1, rng(), out=frozen)):
        with pytest.raises(ConfigurationError, match="vector: read-only, allowed: memory to write to"):
            use()


# --- sums whose masks did not cancel -------------------------------------------------------------------------------

FOUR = Layout(
    (Group("w", 2, 1.0), Group("m", 1, 5.0, bits=64), Group("c", 1, 5, "count")), 3, 10
)  # 4 words, no padding
PADDED = Layout((Group("w", 2, 1.0), Group("c", 3, 5, "count"), Group("d", 1, 5, "count", 64)), 3, 10)


def good_sum(layout, weight=10):
    values = {group.name: np.zeros(group.size, float if group.kind == "mean" else int) for group in layout.groups}
    return encode(layout, values, weight, rng())


def test_the_limits_themselves_are_decoded():
    vector = good_sum(PADDED)
    wide, narrow = vector[:32].view("<u8"), vector[32:].view("<i4")
    wide[:3] = [30, 6, 15]
    bound = 2 ** PADDED.fraction_bits["w"] * 30 + 3
    narrow[:] = [bound, -bound, 15, -15, 0]
    total = decode(PADDED, vector)
    assert total.weight == 30 and total.clipped == {"w": 6}
    assert total.counts["d"].tolist() == [15] and total.counts["c"].tolist() == [15, -15, 0]


@pytest.mark.parametrize(
    ("word", "value", "what"),
    [
        (0, 0, "weight"),
        (0, 31, "weight"),
        (0, 2**64 - 1, "weight"),
        (1, 7, "number of clipped coordinates of group 'w'"),
        (1, 2**64 - 1, "number of clipped coordinates of group 'w'"),
        (2, 16, "group 'd'"),
        (2, 2**64 - 16, "group 'd'"),
        (2, 2**63, "group 'd'"),
        (3, 1, "padding"),
    ],
)
def test_wide_words_that_no_clients_can_have_sent_end_the_sum(word, value, what):
    vector = good_sum(PADDED)
    vector[:32].view("<u8")[word] = value
    with pytest.raises(AbortError, match=rf"^{what}: more than the clients can have sent"):
        decode(PADDED, vector)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("word", "what"), [(0, "group 'w'"), (2, "group 'c'")])
def test_narrow_words_that_no_clients_can_have_sent_end_the_sum(sign, word, what):
    vector = good_sum(PADDED)
    most = 2 ** PADDED.fraction_bits["w"] * 10 + 3 if word == 0 else 15
    vector[32:].view("<i4")[word] = sign * (most + 1)
    with pytest.raises(AbortError, match=what):
        decode(PADDED, vector)


# --- declarations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, r"group name: ''"),
        ({"name": 3}, r"group name: 3"),
        ({"name": "a\nb"}, r"group name: 'a\\nb'"),
        ({"name": "\ud800"}, r"group name: '\\ud800'"),
        ({"name": "é" * 501}, r"allowed: 1 to 1000 printable bytes"),
        ({"size": 0}, r"group 'g': size: 0, allowed: a whole number from 1 to 2147483647"),
        ({"size": -3}, r"size: -3"),
        ({"size": 2.0}, r"size: 2.0"),
        ({"size": True}, r"size: True"),
        ({"size": 2**31}, r"size: 2147483648"),
        ({"kind": "sum"}, r"group 'g': kind 'sum', allowed: mean or count"),
        ({"bits": 16}, r"group 'g': bits 16, allowed: 32 or 64"),
        ({"bits": 32.0}, r"bits 32.0"),
        *[
            ({"limit": limit}, r"group 'g': limit .*, allowed: a float64 from 1e-30 to below 2\^63")
            for limit in (0, 0.0, -1.0, np.nan, np.inf, -np.inf, True, "1", None, 1e-31, 2.0**63, 10**400, 2**53 + 1)
        ],
        *[
            ({"kind": "count", "limit": limit}, r"group 'g': limit .*, allowed: a whole number from 1 to below 2\^63")
            for limit in (0, -1, 1.5, np.nan, np.inf, 2**63, 10**400, True)
        ],
    ],
)
def test_other_groups_are_refused(change, message):
    with pytest.raises(ConfigurationError, match=message):
        Group(**({"name": "g", "size": 2, "limit": 1.0} | change))


G = Group("g", 2, 1.0)


@pytest.mark.parametrize(
    ("groups", "clients", "largest_weight", "message"),
    [
        ((), 3, 10, r"groups: \(\), allowed: a tuple of one Group or more"),
        ([G], 3, 10, r"groups: .*, allowed: a tuple"),
        ((G, "g"), 3, 10, r"groups: .*, allowed: a tuple"),
        ((G, Group("h", 1, 1.0), G), 3, 10, r"group 'g': declared 2 times, allowed: once"),
        ((G,), 0, 10, r"clients: 0, allowed: a whole number from 1"),
        ((G,), 3.0, 10, r"clients: 3.0"),
        ((G,), True, 10, r"clients: True"),
        ((G,), 3, 0, r"largest weight: 0, allowed: a whole number from 1"),
        ((G,), 3, 2**31, r"largest weight: 2147483648"),
        ((G,), 3, MOST, r"group 'g': limit 1.0 with 3 clients of weight up to 2147483647, allowed: below 0.1666"),
        (
            (Group("h", 1, 1.0), Group("k", 1, 2**30, "count")),
            2,
            10,
            r"group 'k': limit 1073741824 .*at most 1073741823",
        ),
    ],
)
def test_other_layouts_are_refused(groups, clients, largest_weight, message):
    with pytest.raises(ConfigurationError, match=message):
        Layout(groups, clients, largest_weight)


GROUPS = st.builds(
    Group,
    name=st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=20),
    size=st.integers(1, MOST),
    limit=st.integers(1, 100),
    kind=st.sampled_from(["mean", "count"]),
    bits=st.sampled_from([32, 64]),
)
LAYOUTS = st.builds(
    Layout,
    groups=st.lists(GROUPS, min_size=1, max_size=5, unique_by=lambda group: group.name).map(tuple),
    clients=st.integers(1, 100),
    largest_weight=st.integers(1, 1000),
)


@given(LAYOUTS, LAYOUTS)
def test_bytes_name_one_layout(layout, other):
    assert Layout.from_bytes(layout.to_bytes()) == layout
    assert (layout == other) == (layout.to_bytes() == other.to_bytes())


def test_equal_limits_have_equal_bytes():
    pairs = [(Group("g", 1, 1), Group("g", 1, 1.0)), (Group("g", 1, 7.0, "count"), Group("g", 1, 7, "count"))]
    for one, two in pairs:
        assert one == two and Layout((one,), 1, 1).to_bytes() == Layout((two,), 1, 1).to_bytes()
    assert Group("g", 1, 2**60 + 1, "count", 64).limit == 2**60 + 1


def test_the_bytes_of_a_layout_stay_what_they_are():
    """Signatures and keys hang on them: magic, clients, largest weight, groups; kind, bits, size, name, limit."""
    layout = Layout((Group("w", 5, 1.0), Group("hé", 2, 3, "count", 64)), 100, 512)
    assert layout.to_bytes().hex() == (
        "67726f7570732031" + "00000064" + "00000200" + "00000002"
        "00" + "20" + "00000005" + "0001" + "3ff0000000000000" + "77"
        "01" + "40" + "00000002" + "0003" + "0000000000000003" + "68c3a9"
    )  # fmt: skip


@given(LAYOUTS, st.data())
def test_other_bytes_are_refused(layout, data):
    """Every truncation, appended byte and changed byte names no layout or a different one."""
    good = layout.to_bytes()
    at, flip = data.draw(st.integers(0, len(good) - 1)), data.draw(st.integers(1, 255))
    changed = good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :]
    for bad in (good[:at], good + bytes([flip]), good + b"\0"):
        with pytest.raises(MessageError, match=r"layout: \d+ bytes .*, allowed: "):
            Layout.from_bytes(bad)
    try:
        other = Layout.from_bytes(changed)
    except MessageError:
        return
    assert other != layout and other.to_bytes() == changed


@pytest.mark.parametrize("limit", ["7ff8000000000000", "7ff0000000000000", "bff0000000000000", "0000000000000000"])
def test_bytes_with_a_limit_that_no_group_has_are_refused(limit):
    good = one_mean().to_bytes()
    bad = good.replace(bytes.fromhex("3ff0000000000000"), bytes.fromhex(limit))
    assert bad != good
    with pytest.raises(MessageError, match="limit"):
        Layout.from_bytes(bad)
