"""Metrics of attacks: by hand, against scikit-learn, under ties, and undefined where nothing can be said."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from scipy.stats import binomtest, norm
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from attacks.caps import advantage_cap, auc_cap, tpr_cap
from attacks.metrics import clopper_pearson, correlation, evaluate, share
from fedgr_secure.errors import InputError


def both(inside, outside):
    scores = np.concatenate([np.asarray(inside, float), np.asarray(outside, float)])
    return scores, np.arange(len(scores)) < len(inside)


def test_a_perfect_and_a_blind_attack():
    perfect = evaluate(*both(np.arange(50) + 10, np.zeros(2000)))
    assert perfect.auc.value == 1.0 and perfect.advantage == 1.0 and perfect.balanced_accuracy == 1.0
    assert [point.tpr.value for point in perfect.points] == [1.0, 1.0, 1.0]
    assert all(point.realised.value == 0.0 for point in perfect.points), "nobody else scores as high"
    assert perfect.points[0].tpr.low == pytest.approx(0.025 ** (1 / 50))
    blind = evaluate(*both(np.ones(50), np.ones(2000)))
    assert blind.auc.value == 0.5 and blind.advantage == 0.0
    assert all(point.tpr.value == 0.0 and point.realised.value == 0.0 for point in blind.points), "ties cannot be split"


def test_ties_lower_the_realised_rate_and_are_not_split():
    # ten of 100 others tie at the top with 30 of 40 members: at 1 % no threshold is below, at 10 % the first
    scores, member = both([9] * 30 + [0] * 10, [9] * 10 + [0] * 90)
    found = evaluate(scores, member)
    assert (found.points[0].realised.value, found.points[0].tpr.value) == (0.1, 0.75)
    assert (found.points[1].realised.value, found.points[1].tpr.value) == (0.0, 0.0)
    assert found.points[2] is None, "100 others say nothing about one in a thousand"


@pytest.mark.parametrize(("others", "defined"), [(9, 0), (10, 1), (99, 1), (100, 2), (999, 2), (1000, 3)])
def test_a_rate_is_undefined_with_fewer_others_than_one_over_it(others, defined):
    found = evaluate(*both(np.arange(5), np.arange(others)))
    assert [point is not None for point in found.points] == [True] * defined + [False] * (3 - defined)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=60), st.lists(st.integers(0, 8), min_size=1, max_size=60))
def test_area_and_accuracy_are_scikit_learn_s(inside, outside):
    scores, member = both(inside, outside)
    found = evaluate(scores, member)
    assert found.auc.value == pytest.approx(roc_auc_score(member, scores))
    best = max(balanced_accuracy_score(member, scores >= cut) for cut in [*scores, 99])
    assert found.balanced_accuracy == pytest.approx(best) and found.advantage == pytest.approx(2 * best - 1)
    assert found.auc.low <= found.auc.high


@pytest.mark.slow
def test_the_interval_of_the_area_covers_the_true_one():
    draw, hits = np.random.default_rng(0), 0
    for seed in range(100):
        scores, member = both(draw.normal(1, 1, 60), draw.normal(0, 1, 80))
        found = evaluate(scores, member, seed=seed).auc
        hits += found.low <= 0.76025 <= found.high  # P[N(1, 2) > 0]
    assert 88 <= hits <= 99


def test_a_correlation_has_fisher_s_interval_and_stands_any_estimate():
    draw = np.random.default_rng(3)
    truth = draw.normal(size=30)
    estimates = truth + draw.normal(size=30)
    found, wanted = correlation(estimates, truth), np.corrcoef(estimates, truth)[0, 1]
    ends = np.tanh(np.arctanh(wanted) + np.array([-1, 1]) * norm.ppf(0.975) / np.sqrt(27))
    assert (found.value, found.low, found.high) == pytest.approx((wanted, *ends), rel=1e-9)
    assert correlation(np.full(30, 1e38) + 0 * truth, truth) is None
    nearly = np.where(np.arange(30) == 4, 1e38 * (1 + 1e-15), 1e38)
    assert correlation(nearly, truth) is not None, "and without a warning"


def test_clopper_pearson_is_scipy_s():
    for hits, trials in [(0, 10), (3, 10), (10, 10), (997, 1000)]:
        wanted = binomtest(hits, trials).proportion_ci(method="exact")
        found = clopper_pearson(hits, trials)
        assert (found.value, found.low, found.high) == pytest.approx((hits / trials, wanted.low, wanted.high))
    assert share(np.zeros(0, bool)) is None and share(np.array([True, False])).value == 0.5
    with pytest.raises(InputError, match=r"^hits: 3 of 2"):
        clopper_pearson(3, 2)


def test_nobody_on_one_side_is_undefined():
    assert evaluate(*both([1.0], [])) is None and evaluate(*both([], [1.0])) is None


def test_scores_that_cannot_be_ranked_are_refused():
    with pytest.raises(InputError, match=r"^scores: not a number"):
        evaluate(np.array([0.0, np.nan]), np.array([True, False]))
    with pytest.raises(InputError, match=r"^scores: \[2\] for bool\[3\]"):
        evaluate(np.zeros(2), np.zeros(3, bool))
    found = evaluate(np.array([-np.inf, 0.0, np.inf]), np.array([False, False, True]))
    assert found.auc.value == 1.0


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.1])
def test_the_caps_are_those_of_randomised_response(epsilon, delta):
    """It says the truth in the clear with delta, and else lies with probability 1 / (1 + e^epsilon): no attack does
    better against any mechanism, so that its own ROC curve is the cap."""
    lie = 1 / (1 + np.exp(epsilon))
    inside = {"sure": delta, "yes": (1 - delta) * (1 - lie), "no": (1 - delta) * lie, "sure not": 0.0}
    outside = {"sure": 0.0, "yes": (1 - delta) * lie, "no": (1 - delta) * (1 - lie), "sure not": delta}
    tpr = np.concatenate([[0.0], np.cumsum(list(inside.values()))])
    fpr = np.concatenate([[0.0], np.cumsum(list(outside.values()))])
    np.testing.assert_allclose(tpr_cap(fpr[1:], epsilon=epsilon, delta=delta), np.minimum(tpr[1:], 1), atol=1e-12)
    assert auc_cap(epsilon=epsilon, delta=delta) == pytest.approx(trapezoid(tpr, fpr))
    assert advantage_cap(epsilon=epsilon, delta=delta) == pytest.approx((tpr - fpr).max())


def test_without_a_promise_everything_is_allowed():
    assert tpr_cap(0.0, epsilon=np.inf, delta=0.0) == 1.0 and auc_cap(epsilon=np.inf, delta=0.0) == 1.0
    assert advantage_cap(epsilon=np.inf, delta=0.0) == 1.0
