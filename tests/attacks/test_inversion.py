"""Inverting running means gives back every single loss."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from attacks.inversion import single_losses
from fedgr_secure.method.proxies import running_mean

LOSSES = arrays.arrays(np.float64, st.tuples(st.integers(1, 15), st.integers(0, 4)), elements=st.floats(0, 30))


def running_means(losses):
    """What a client uploads, as the method computes it."""
    mean, means = np.zeros(losses.shape[1]), []
    for observed, row in enumerate(losses):
        mean = running_mean(mean, observed, row)
        means.append(mean)
    return np.stack(means)


@given(losses=LOSSES)
def test_inverts_the_methods_running_mean(losses):
    np.testing.assert_allclose(single_losses(running_means(losses)), losses, atol=1e-11)


@given(losses=LOSSES)
def test_float32_uploads_hide_no_more_than_their_rounding(losses):
    # T m_T - (T - 1) m_{T-1}, each mean rounded by at most 2^-24 of itself (30 nats): 2 T * 30 * 2^-24
    uploads = running_means(losses).astype(np.float32).astype(np.float64)
    bound = 2 * len(losses) * 30 * 2.0**-24
    assert np.abs(single_losses(uploads) - losses).max(initial=0) <= bound + 1e-11


def test_by_hand():
    # means 4, 3, 10/3: losses 4, 2 * 3 - 4 = 2, 10 - 6 = 4
    np.testing.assert_allclose(single_losses(np.array([[4.0], [3.0], [10 / 3]])).ravel(), [4, 2, 4])


def test_one_participation_is_its_own_loss():
    assert single_losses(np.array([[1.5, 2.0]])).tolist() == [[1.5, 2.0]]


@pytest.mark.parametrize("shape", [(3,), (), (1, 2, 3)])
def test_anything_but_a_matrix_is_refused(shape):
    with pytest.raises(ValueError, match="means: shape"):
        single_losses(np.zeros(shape))
