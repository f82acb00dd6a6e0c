"""Label refinement: the decision table of METHOD, step 3."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import slow_sieve

from fedgr_secure.method.refine import NO_LABEL, clean_targets, one_hot, refined_targets, update_pseudo_labels

BETA = 0.8


def target(*, given=0, pseudo=NO_LABEL, q=1.0, noise_rate=0.0):
    """The target row of one sample among three classes."""
    rows = refined_targets(
        np.array([given]), np.array([pseudo]), np.array([q]), noise_rate=noise_rate, beta=BETA, classes=3
    )
    assert rows.dtype == np.float32
    return rows[0].tolist()


@pytest.mark.parametrize(
    "case, expected",
    [
        # r_k < beta, clean: the given label, whatever the pseudo-label and q >= 0.5 say
        ({"q": 1.0}, [1, 0, 0]),
        ({"q": 0.625, "pseudo": 2}, [1, 0, 0]),
        ({"q": 0.5, "pseudo": 2}, [1, 0, 0]),
        # r_k < beta, noisy: q given + (1 - q) pseudo
        ({"q": 0.25, "pseudo": 2}, [0.25, 0, 0.75]),
        ({"q": 0.0, "pseudo": 1}, [0, 1, 0]),
        ({"q": 0.25, "pseudo": 0}, [1, 0, 0]),
        # r_k < beta, noisy, no pseudo-label: the first term alone
        ({"q": 0.25}, [0.25, 0, 0]),
        ({"q": 0.0}, [0, 0, 0]),
        # r_k >= beta: the pseudo-label, or nothing
        ({"q": 1.0, "pseudo": 2, "noise_rate": 0.9}, [0, 0, 1]),
        ({"q": 0.25, "pseudo": 2, "noise_rate": 0.9}, [0, 0, 1]),
        ({"q": 1.0, "noise_rate": 0.9}, [0, 0, 0]),
        # the boundary r_k = beta belongs to the noisy clients
        ({"q": 1.0, "pseudo": 2, "noise_rate": BETA}, [0, 0, 1]),
        ({"q": 1.0, "pseudo": 2, "noise_rate": np.nextafter(BETA, 0)}, [1, 0, 0]),
    ],
)
def test_decision_table(case, expected):
    assert target(**case) == expected


SAMPLES = st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 3), st.floats(0, 1, width=32)), min_size=1, max_size=8)


@given(samples=SAMPLES, noise_rate=st.floats(0, 1))
def test_equals_the_table_sample_by_sample(samples, noise_rate):
    labels, pseudo, q = (np.array(column) for column in zip(*samples, strict=True))
    rows = refined_targets(labels, pseudo, q, noise_rate=noise_rate, beta=BETA, classes=4)
    expected = [
        slow_sieve.target(y, None if p == NO_LABEL else p, share, noise_rate, BETA, 4) for y, p, share in samples
    ]
    np.testing.assert_allclose(rows, expected, atol=1e-7)


def test_one_hot():
    assert one_hot(np.array([2, NO_LABEL, 0]), 3).tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
    assert one_hot(np.empty(0, np.int64), 3).shape == (0, 3)


# the table of pseudo-labels


def table(old, probabilities, dtype=np.float64, threshold=0.9):
    return update_pseudo_labels(np.array(old), np.array(probabilities, dtype), threshold).tolist()


def test_only_confident_predictions_are_kept():
    assert table([NO_LABEL] * 3, [[0.05, 0.95], [0.91, 0.09], [0.6, 0.4]]) == [1, 0, NO_LABEL]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_threshold_is_strict(dtype):
    above = np.nextafter(dtype(0.9), dtype(1))
    assert table([NO_LABEL] * 2, [[0.9, 0.1], [above, 1 - above]], dtype) == [NO_LABEL, 0]


def test_older_labels_persist_and_newer_ones_replace_them():
    once = table([NO_LABEL] * 3, [[0.95, 0.05], [0.95, 0.05], [0.5, 0.5]])
    assert once == [0, 0, NO_LABEL]
    assert table(once, [[0.5, 0.5], [0.05, 0.95], [0.05, 0.95]]) == [0, 1, 1]


def test_the_old_table_is_left_alone_and_a_prediction_that_is_no_number_adds_nothing():
    old = np.array([NO_LABEL, 1])
    new = update_pseudo_labels(old, np.array([[1.0, 0.0], [np.nan, np.nan]]), 0.9)
    assert new.tolist() == [0, 1] and new.dtype == np.int64 and old.tolist() == [NO_LABEL, 1]


def test_without_refinement_the_clean_keep_their_labels_and_the_rest_adds_nothing():
    rows = clean_targets(np.array([0, 1, 1, 0]), np.array([1.0, 0.5, 0.49, 0.0]), 2)
    assert rows.tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]
