"""Running means of losses."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedgr_secure.method.proxies import running_mean

LOSSES = arrays.arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(0, 5)), elements=st.floats(0, 50))


def fold(losses):
    """The running mean after each row."""
    mean, means = np.full(losses.shape[1], 99.0), []
    for observed, row in enumerate(losses):
        mean = running_mean(mean, observed, row)
        means.append(mean)
    return np.stack(means)


@given(losses=LOSSES)
def test_equals_the_mean_of_what_was_seen_so_far(losses):
    for count, mean in enumerate(fold(losses), start=1):
        np.testing.assert_allclose(mean, losses[:count].mean(axis=0), rtol=1e-12, atol=1e-12)


def test_by_hand():
    # 4; (4 + 1) / 2; (4 + 1 + 1) / 3
    assert fold(np.array([[4.0], [1.0], [1.0]])).ravel().tolist() == [4.0, 2.5, 2.0]


def test_neither_the_mean_nor_the_first_losses_are_shared_with_the_result():
    losses, mean = np.ones(2), np.zeros(2)
    first = running_mean(mean, 0, losses)
    first += 1
    second = running_mean(mean, 1, losses)
    second += 1
    assert losses.tolist() == [1, 1] and mean.tolist() == [0, 0]
