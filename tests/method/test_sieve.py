"""The sieve: scikit-learn's posterior without scikit-learn, and every way in which losses do not separate."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import slow_sieve
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from fedgr_secure.method.sieve import Mixture, MixtureSettings, fit_mixture, judge


def two_modes(clean=300, wrong=200, seed=0, means=(0.3, 3.0), spread=(0.1, 0.4)):
    """Losses of `clean` right labels, then of `wrong` wrong ones."""
    draw = np.random.default_rng(seed)
    return np.concatenate([draw.normal(means[0], spread[0], clean), draw.normal(means[1], spread[1], wrong)])


def fitted(values, seed, max_iter=50):
    """scikit-learn's own fit with the paper's settings."""
    return GaussianMixture(2, max_iter=max_iter, tol=1e-2, reg_covar=5e-4, random_state=seed).fit(values[:, None])


# posterior

MIXTURE = Mixture(means=(0.4, 2.0), variances=(0.05, 0.8), weights=(0.7, 0.3))


def scikit(mixture):
    """A scikit-learn mixture with the same parameters, which has never seen data."""
    model = GaussianMixture(2)
    model.weights_ = np.array(mixture.weights)
    model.means_ = np.array(mixture.means)[:, None]
    model.covariances_ = np.array(mixture.variances)[:, None, None]
    model.precisions_cholesky_ = 1 / np.sqrt(model.covariances_)
    return model


def test_the_posterior_is_scikit_learns():
    losses = np.linspace(-3, 12, 301)
    expected = scikit(MIXTURE).predict_proba(losses[:, None])[:, 0]
    np.testing.assert_allclose(MIXTURE.clean_probability(losses), expected, rtol=1e-9, atol=1e-300)


def test_the_posterior_is_bayes_rule():
    losses = [0.1, 0.4, 0.9, 1.2, 2.5]
    expected = [slow_sieve.clean_probability(MIXTURE, loss) for loss in losses]
    np.testing.assert_allclose(MIXTURE.clean_probability(np.array(losses)), expected, rtol=1e-12)


def test_equal_components_give_the_prior():
    # the densities cancel: P(clean | x) = weight of the clean component, whatever x
    mixture = Mixture((1.0, 1.0), (0.5, 0.5), (0.8, 0.2))
    np.testing.assert_allclose(mixture.clean_probability(np.array([-4.0, 1.0, 7.0])), 0.8, rtol=1e-12)


def test_an_empty_component_and_far_losses_give_numbers():
    far = np.array([0.0, 1e4, 3e38])
    assert Mixture((0.0, 1.0), (1.0, 1.0), (1.0, 0.0)).clean_probability(far).tolist() == [1.0, 1.0, 1.0]
    assert Mixture((0.0, 1.0), (1.0, 1.0), (0.0, 1.0)).clean_probability(far).tolist() == [0.0, 0.0, 0.0]
    q = MIXTURE.clean_probability(far)
    assert np.isfinite(q).all() and q[1:].tolist() == [0.0, 0.0]


def test_a_proxy_that_is_not_finite_counts_as_wrong():
    q = MIXTURE.clean_probability(np.array([0.4, np.nan, np.inf, -np.inf]))
    assert q[0] > 0.9 and q[1:].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "means, variances, weights",
    [
        ((2.0, 1.0), (1.0, 1.0), (0.5, 0.5)),
        ((1.0, 2.0), (0.0, 1.0), (0.5, 0.5)),
        ((1.0, 2.0), (1.0, -1.0), (0.5, 0.5)),
        ((1.0, 2.0), (1.0, 1.0), (0.5, 0.4)),
        ((1.0, 2.0), (1.0, 1.0), (1.5, -0.5)),
        ((1.0, np.nan), (1.0, 1.0), (0.5, 0.5)),
        ((1.0, 2.0), (np.inf, 1.0), (0.5, 0.5)),
    ],
)
def test_a_mixture_that_is_none_is_refused(means, variances, weights):
    with pytest.raises(ValueError, match="mixture"):
        Mixture(means, variances, weights)


def test_verdict_by_hand():
    # equal variances and weights: q = 1 / (1 + exp(x - 0.5)) for means 0 and 1, so q >= 0.5 up to the midpoint
    mixture = Mixture((0.0, 1.0), (1.0, 1.0), (0.5, 0.5))
    losses = np.array([0.0, 0.5, 0.6, 2.0])
    verdict = judge(mixture, losses)
    np.testing.assert_allclose(verdict.q, 1 / (1 + np.exp(losses - 0.5)), rtol=1e-12)
    assert verdict.noise_rate == 0.5, "q = 0.5 exactly is clean"


# fit


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("max_iter", [50, 20])
def test_the_fit_is_scikit_learns(seed, max_iter):
    values = two_modes(seed=seed, spread=(0.3, 0.9))
    ours = fit_mixture(values, seed=seed, settings=MixtureSettings(max_iter=max_iter))
    theirs = fitted(values, seed, max_iter)
    order = np.argsort(theirs.means_.ravel())
    np.testing.assert_allclose(ours.means, theirs.means_.ravel()[order], rtol=1e-12)
    np.testing.assert_allclose(ours.variances, theirs.covariances_.ravel()[order], rtol=1e-12)
    np.testing.assert_allclose(ours.weights, theirs.weights_[order], rtol=1e-9)
    clean = theirs.predict_proba(values[:, None])[:, order[0]]
    np.testing.assert_allclose(ours.clean_probability(values), clean, atol=1e-9)
    assert not ours.all_clean and ours.note is None


def test_the_defaults_are_the_papers():
    assert MixtureSettings() == MixtureSettings(max_iter=50, tol=1e-2, reg_covar=5e-4, tied=False)


def test_separated_losses_get_the_right_verdicts():
    verdict = judge(fit_mixture(two_modes(), seed=1), two_modes())
    assert (verdict.q[:300] >= 0.5).all() and (verdict.q[300:] < 0.5).all()
    assert verdict.noise_rate == 200 / 500


def test_the_smaller_mean_is_clean_in_whatever_order_scikit_learn_returns_the_components():
    values = two_modes(spread=(0.3, 0.5))
    first_is_smaller = {seed: bool(np.diff(fitted(values, seed).means_.ravel()) > 0) for seed in range(20)}
    assert set(first_is_smaller.values()) == {True, False}, "both orders must occur for the test to mean anything"
    for seed in first_is_smaller:
        mixture = fit_mixture(values, seed=seed)
        assert mixture.means[0] < 1 < mixture.means[1] and mixture.weights[0] > 0.5
        assert mixture.variances[0] < mixture.variances[1]


def test_the_order_of_the_losses_does_not_change_the_verdicts():
    values = two_modes()
    turned = judge(fit_mixture(values[::-1], seed=0), values)
    np.testing.assert_allclose(turned.q, judge(fit_mixture(values, seed=0), values).q, atol=1e-6)


def test_equal_seeds_give_equal_fits():
    # overlapping modes: the fit depends on where k-means starts
    values = two_modes(means=(0.5, 1.5), spread=(0.4, 0.5))
    assert fit_mixture(values, seed=4) == fit_mixture(values, seed=4)
    before = np.random.get_state()[1].copy()
    fit_mixture(values, seed=4)
    assert np.array_equal(before, np.random.get_state()[1]), "NumPy's global state is left alone"


ALL_CLEAN = {
    "constant": (np.full(50, 1.7), "constant losses"),
    "nearly constant": (1.7 + 1e-9 * np.arange(50), "constant losses"),
    "all zero": (np.zeros(10), "constant losses"),
    "empty": (np.empty(0), "only 0 finite losses"),
    "three": (np.array([0.1, 0.2, 5.0]), "only 3 finite losses"),
    "three finite": (np.array([0.1, np.nan, 0.2, np.inf, 5.0]), "only 3 finite losses; 2 non-finite losses left out"),
    "nothing finite": (np.full(9, np.nan), "only 0 finite losses; 9 non-finite losses left out"),
    "one Gaussian": (np.random.default_rng(0).normal(2.0, 0.3, 400), "one mode"),
}


@pytest.mark.parametrize("case", ALL_CLEAN)
def test_losses_that_do_not_separate_are_all_clean_and_say_why(case):
    values, note = ALL_CLEAN[case]
    mixture = fit_mixture(values, seed=0)
    assert mixture.all_clean and mixture.note.startswith("all clean: " + note)
    proxies = np.array([0.0, 50.0, np.nan])
    verdict = judge(mixture, proxies)
    assert verdict.q.tolist() == [1.0, 1.0, 1.0] and verdict.noise_rate == 0.0


def test_losses_that_are_not_finite_do_not_disturb_the_fit():
    values = two_modes()
    holes = np.insert(values, [0, 100, 499], [np.nan, np.inf, -np.inf])
    mixture = fit_mixture(holes, seed=0)
    assert mixture.note == "3 non-finite losses left out" and not mixture.all_clean
    clean = fit_mixture(values, seed=0)
    assert (mixture.means, mixture.variances, mixture.weights) == (clean.means, clean.variances, clean.weights)


def test_four_losses_in_two_pairs_are_enough():
    mixture = fit_mixture(np.array([0.1, 0.11, 5.0, 5.01]), seed=0)
    assert not mixture.all_clean
    assert judge(mixture, np.array([0.1, 0.11, 5.0, 5.01])).noise_rate == 0.5


def test_a_fit_that_did_not_settle_says_so_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        mixture = fit_mixture(two_modes(spread=(0.5, 1.0)), seed=0, settings=MixtureSettings(max_iter=1, tol=1e-9))
    assert mixture.note is not None and "did not converge" in mixture.note


@given(
    losses=st.lists(st.floats(0, 100) | st.sampled_from([np.nan, np.inf]), max_size=12), seed=st.integers(0, 2**32 - 1)
)
def test_any_losses_give_probabilities_and_a_rate(losses, seed):
    values = np.array(losses, dtype=np.float64)
    mixture = fit_mixture(values, seed=seed)
    q = mixture.clean_probability(values)
    assert ((q >= 0) & (q <= 1)).all()
    if len(values):
        assert judge(mixture, values).noise_rate == np.mean(q < 0.5)


def test_where_neither_component_has_a_density_there_is_no_verdict():
    q = Mixture((0.0, 1.0), (1e-300, 1e-300), (0.5, 0.5)).clean_probability(np.array([1e10, -1e10, 0.0, 1.0]))
    assert q.tolist() == [0.0, 0.0, 1.0, 0.0]
