"""The weighted average, and what must not be averaged."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import slow_averages

from fedgr_secure.aggregate import average, check_weights
from fedgr_secure.errors import DivergedError, InputError
from fedgr_secure.messages import Update


def update(samples=1, **weights):
    return Update(6, samples, {name: np.asarray(value) for name, value in weights.items()})


def test_by_hand():
    # (1 * 2 + 3 * 6) / 4 = 5 and (1 * 8 - 3 * 4) / 4 = -1
    current = {"w": np.zeros(2, np.float32)}
    got = average(current, {0: update(1, w=np.float32([2, 8])), 1: update(3, w=np.float32([6, -4]))})
    assert got["w"].tolist() == [5.0, -1.0] and got["w"].dtype == np.float32


def test_float_buffers_are_averaged_and_counters_stay_the_servers():
    current = {"running_var": np.float32([1.0]), "num_batches_tracked": np.array(7)}
    first = update(1, running_var=np.float32([2.0]), num_batches_tracked=np.array(70))
    second = update(1, running_var=np.float32([4.0]), num_batches_tracked=np.array(90))
    got = average(current, {0: first, 1: second})
    assert got["running_var"].tolist() == [3.0]
    assert got["num_batches_tracked"] == 7 and got["num_batches_tracked"].dtype == np.int64


PARTS = st.lists(
    st.tuples(st.integers(1, 1000), st.lists(st.floats(-100, 100, width=32), min_size=4, max_size=4)),
    min_size=1,
    max_size=6,
)


@given(parts=PARTS)
def test_equals_the_slow_mean_and_does_not_depend_on_the_order_of_arrival(parts):
    updates = {k: update(n, w=np.array(values, np.float32).reshape(2, 2)) for k, (n, values) in enumerate(parts)}
    current = {"w": np.zeros((2, 2), np.float32)}
    got = average(current, updates)["w"]
    expected = slow_averages.weighted_mean([u.weights["w"] for u in updates.values()], [n for n, _ in parts])
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-5)
    turned = average(current, dict(reversed(updates.items())))["w"]
    assert np.array_equal(got, turned), "bit for bit"


def test_sums_are_made_in_float64():
    # in float32, 1e8 + 1 is 1e8: adding three ones one by one to 1e8 and taking 1e8 off again would leave 0, not 3/5
    values = [1e8, 1.0, 1.0, 1.0, -1e8]
    updates = {k: update(w=np.float32([v])) for k, v in enumerate(values)}
    assert average({"w": np.zeros(1, np.float32)}, updates)["w"][0] == pytest.approx(3 / 5)


def test_clients_are_summed_in_the_order_of_their_numbers():
    # (1e16 + 1) / 3 - 1e16 / 3 depends on the order of the sum even in float64
    parts = {0: update(w=np.array([1e16])), 1: update(w=np.array([1.0])), 2: update(w=np.array([-1e16]))}
    sums = {
        order: average({"w": np.zeros(1)}, {client: parts[client] for client in order})["w"][0]
        for order in itertools.permutations(parts)
    }
    assert len(set(sums.values())) == 1
    assert sum(1e16 * sign / 3 for sign in (1, 1e-16, -1)) != sum(1e16 * sign / 3 for sign in (1, -1, 1e-16))


def test_an_empty_cohort_keeps_the_model_and_no_update_is_changed():
    current = {"w": np.float32([1.0, 2.0])}
    assert average(current, {})["w"].tolist() == [1.0, 2.0]
    one = update(w=np.float32([3.0, 4.0]))
    got = average(current, {0: one})
    got["w"][:] = 0
    assert one.weights["w"].tolist() == [3.0, 4.0] and current["w"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_non_finite_update_is_refused_by_name(bad):
    current = {"body.weight": np.zeros(2, np.float32)}
    updates = {0: update(**{"body.weight": np.float32([1, 1])}), 8: update(**{"body.weight": np.float32([1, bad])})}
    with pytest.raises(DivergedError) as error:
        average(current, updates)
    for part in ("client 8", "round 6", "body.weight"):
        assert part in str(error.value)


@pytest.mark.parametrize(
    "weights, message",
    [
        ({"w": np.zeros(3, np.float32)}, r"w is float32\[3\], allowed: float32\[2\]"),
        ({"w": np.zeros((2, 1), np.float32)}, r"w is float32\[2, 1\], allowed: float32\[2\]"),
        ({"w": np.zeros(2)}, r"w is float64\[2\], allowed: float32\[2\]"),
        ({"w": np.zeros(2, np.int32)}, r"w is int32\[2\], allowed"),
        ({}, r"other tensors than the global model's: \['w'\]"),
        ({"w": np.zeros(2, np.float32), "v": np.zeros(1)}, r"other tensors than the global model's: \['v'\]"),
    ],
)
def test_an_update_of_another_form_is_refused_by_name(weights, message):
    with pytest.raises(InputError, match="client 8, round 6: update: " + message):
        average({"w": np.zeros(2, np.float32)}, {8: Update(6, 1, weights)})


def test_good_weights_pass():
    check_weights({"n": np.array(3)}, {"n": np.array(4)}, who="x")


@pytest.mark.parametrize("samples", [0, -1])
def test_an_update_without_samples_does_not_exist(samples):
    with pytest.raises(ValueError, match=f"samples: {samples}"):
        Update(0, samples, {})


@pytest.mark.parametrize(
    ("weights", "named"),
    [([1.0], "client 4, round 6: update: list, allowed: arrays"), ({"w": [1.0]}, "w is list, allowed: float32")],
)
def test_weights_that_are_no_arrays_are_refused(weights, named):
    with pytest.raises(InputError, match=named):
        average({"w": np.zeros(1, np.float32)}, {4: Update(6, 1, weights)})


@pytest.mark.parametrize("samples", [0, -1, 2**31, 2.0, True, "3", None])
def test_a_weight_that_is_no_number_of_samples_is_refused(samples):
    with pytest.raises(ValueError, match=f"samples: {samples}, allowed: a whole number from 1 to 2147483647"):
        Update(6, samples, {})
