"""Bounds on epsilon: by hand, against slow or independent computations, and how often they are above the truth."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm

from attacks.bounds import (
    Rates,
    best_threshold,
    gaussian_mu,
    gaussian_sum,
    one_run,
    one_run_p_value,
    rates,
    two_sample,
)
from attacks.caps import tpr_cap
from attacks.families import Gaussians, Laplaces, lattice_power
from fedgr_secure.errors import InputError
from privacy.accounting import discrete_gaussian_epsilon
from privacy.accounting import gaussian_mu as mu_of


def of(tpr, fpr):
    return Rates(np.array([tpr]), np.array([fpr]))


def coins(n, rng):
    return np.concatenate([np.ones(n, bool), np.zeros(n, bool)])[rng.permutation(2 * n)]


def test_rates_are_clopper_pearson_s():
    scores, truth = np.array([0.0, 1, 2, 3, 1, 2, 5]), np.array([True, True, True, True, False, False, False])
    found = rates(scores, truth, np.array([2.0, 9.0, 0.0]), alpha=0.1)
    low = [binomtest(hits, 4, alternative="greater").proportion_ci(0.95).low for hits in (2, 0, 4)]
    high = [binomtest(hits, 3, alternative="less").proportion_ci(0.95).high for hits in (2, 0, 3)]
    assert found.tpr == pytest.approx(low) and found.fpr == pytest.approx(high)


def test_two_sample_by_hand():
    assert two_sample(of(0.5, 0.1), 0.0)[0] == pytest.approx(math.log(5))
    assert two_sample(of(0.9, 0.5), 0.1)[0] == pytest.approx(math.log(4)), "(1 - 0.5 - 0.1) / (1 - 0.9)"
    assert two_sample(of(0.5, 0.25), 0.1)[0] == pytest.approx(math.log(0.4 / 0.25))
    assert list(two_sample(Rates(np.array([0.1, 0.0, 0.3]), np.array([0.2, 1.0, 1.0])), 0.2)) == [0.0, 0.0, 0.0]


def test_two_sample_never_says_more_than_the_claim_allows():
    # the rates of a mechanism that is just (epsilon, delta)-private: the bound on them is epsilon, nowhere more
    fpr = np.linspace(0.0, 0.98, 99)
    found = two_sample(Rates(tpr_cap(fpr, epsilon=1.5, delta=0.01), np.maximum(fpr, 1e-12)), 0.01)
    assert found.max() == pytest.approx(1.5)


def test_mu_by_hand():
    assert gaussian_mu(of(norm.cdf(0.7), norm.cdf(-0.5)))[0] == pytest.approx(1.2)
    assert list(gaussian_mu(Rates(np.array([0.0, 0.2, 0.1]), np.array([0.5, 1.0, 0.3])))) == [0.0, 0.0, 0.0]


def slow_p_value(m, r, v, epsilon, delta):
    """Steinke, Nasr and Jagielski 2023, appendix D, as printed."""
    success = 1 / (1 + math.exp(-epsilon))
    worst = total = 0.0
    for i in range(1, v + 1):
        total += binom.pmf(v - i, r, success)
        worst = max(worst, total / i)
    return min(1.0, binom.sf(v - 1, r, success) + 2 * m * delta * worst)


@pytest.mark.parametrize(("m", "r", "v"), [(100, 20, 17), (100, 20, 20), (1000, 300, 200), (10, 4, 0)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (1.0, 1e-5), (3.0, 1e-3)])
def test_p_values_of_one_run(m, r, v, epsilon, delta):
    found = one_run_p_value(canaries=m, guesses=r, right=v, epsilon=epsilon, delta=delta)
    assert found == pytest.approx(slow_p_value(m, r, v, epsilon, delta), rel=1e-9)


def test_one_run_by_hand():
    # ten sure guesses, all right: p = (1 / (1 + e^-epsilon))^10 = 0.05 at delta 0
    truth = np.arange(40) % 2 == 0
    scores = np.where(truth, 1.0, -1.0) * (np.arange(40) + 1)
    found = one_run(scores, truth, guesses=10, delta=0.0, alpha=0.05)
    success = 0.05**0.1
    assert found == pytest.approx(math.log(success / (1 - success)), rel=1e-6)
    assert one_run(scores, truth, guesses=10, delta=1e-3, alpha=0.05) < found
    assert one_run(-scores, truth, guesses=10, delta=0.0, alpha=0.05) == 0.0


def test_bounds_are_above_the_truth_no_more_often_than_they_may():
    rng, mu, n, repeats, alpha = np.random.default_rng(0), 1.0, 400, 200, 0.1
    family, above = Gaussians(1e-5, None), {"rates": 0, "sum": 0, "split": 0, "one-run": 0}
    bounded = 1.0 + np.zeros(2 * n)
    for _ in range(repeats):
        truth = coins(n, rng)
        scores = mu * truth + rng.normal(size=2 * n)
        above["rates"] += family.strength(rates(scores, truth, np.array([0.3]), alpha=alpha)) > mu
        above["sum"] += gaussian_sum(scores, truth, alpha=alpha) > mu
        threshold = best_threshold(scores[:n], truth[:n], gaussian_mu, alpha=alpha)
        above["split"] += family.strength(rates(scores[n:], truth[n:], np.array([threshold]), alpha=alpha)) > mu
        flipped = rng.random(2 * n) < 1 / (1 + math.e)  # randomised response of epsilon 1
        above["one-run"] += one_run(bounded * (truth ^ flipped) - 0.5, truth, guesses=n, delta=0.0, alpha=alpha) > 1.0
    assert all(count <= binom.ppf(0.995, repeats, alpha) for count in above.values()), above
    assert above["sum"] >= binom.ppf(0.005, repeats, alpha), "an exact bound is not a cautious one"


def test_best_of_all_thresholds_on_the_same_trials_is_too_large():
    # why the thresholds are chosen elsewhere: on noise alone the best of many is above 0 many times as often as one
    rng, best, fixed = np.random.default_rng(1), 0, 0
    for _ in range(150):
        truth, noise = coins(1000, rng), rng.normal(size=2000)
        threshold = np.array([best_threshold(noise, truth, gaussian_mu, alpha=0.05)])
        best += gaussian_mu(rates(noise, truth, threshold, alpha=0.05))[0] > 0
        fixed += gaussian_mu(rates(noise, truth, np.zeros(1), alpha=0.05))[0] > 0
    assert best >= 5 > 1 >= fixed


def test_sum_of_scores_without_noise_says_nothing():
    truth = np.arange(100) % 2 == 0
    assert gaussian_sum(truth * 2.0, truth, alpha=0.05) == 0.0
    assert gaussian_sum(truth * 5.0 + np.random.default_rng(0).normal(size=100) * 1e-3, truth, alpha=0.05) > 3000
    assert gaussian_sum(truth * -5.0 + np.random.default_rng(0).normal(size=100), truth, alpha=0.05) == 0.0


def slow_power(fpr, missing, there):
    """The best test, outcome by outcome."""
    outcomes = sorted(missing, key=lambda outcome: -there[outcome] / missing[outcome])
    power, left = 0.0, fpr
    for outcome in outcomes:
        taken = min(1.0, left / missing[outcome])
        power, left = power + taken * there[outcome], left - taken * missing[outcome]
    return power


@pytest.mark.parametrize("fpr", [0.003, 0.1, 0.5, 0.99])
@pytest.mark.parametrize(("releases", "move", "epsilon"), [(1, 1, 1.0), (1, 4, 2.0), (3, 2, 1.5)])
def test_power_of_laplace_noise(fpr, releases, move, epsilon):
    scale = releases * move / epsilon
    line = range(-250, 251)
    noise = {x: math.tanh(1 / scale / 2) * math.exp(-abs(x) / scale) for x in line}
    # what lies beyond 0 .. move has the likelihood ratio of its end
    one = [(sum(p for x, p in noise.items() if x <= 0), sum(p for x, p in noise.items() if x <= -move))]
    one += [(noise[x], noise[x - move]) for x in range(1, move)]
    one += [(sum(p for x, p in noise.items() if x >= move), sum(p for x, p in noise.items() if x >= 0))]
    both = list(itertools.product(one, repeat=releases))
    missing = {at: math.prod(p for p, _ in seen) for at, seen in enumerate(both)}
    there = {at: math.prod(p for _, p in seen) for at, seen in enumerate(both)}
    found = Laplaces(releases, move).power(fpr, epsilon)
    assert found == pytest.approx(slow_power(fpr, missing, there), abs=1e-9)
    assert found <= tpr_cap(fpr, epsilon=epsilon, delta=0.0) + 1e-12


@pytest.mark.parametrize("fpr", [0.001, 0.2, 0.9])
def test_power_of_a_discrete_gaussian(fpr):
    line = range(-30, 40)
    missing = {x: math.exp(-(x**2) / (2 * 1.5**2)) for x in line}
    there = {x: math.exp(-((x - 2) ** 2) / (2 * 1.5**2)) for x in line}
    total = sum(missing.values())
    missing, there = ({x: p / total for x, p in pmf.items()} for pmf in (missing, there))
    assert lattice_power(fpr, 2 / 1.5, 2) == pytest.approx(slow_power(fpr, missing, there), rel=1e-9)
    assert lattice_power(fpr, 0.5, 1000) == pytest.approx(norm.cdf(norm.ppf(fpr) + 0.5), rel=1e-6)


@pytest.mark.parametrize(("move", "mu"), [(1, 1.6), (2, 0.3), (20, 0.27), (3000, 0.9), (None, 0.5)])
@pytest.mark.parametrize("fpr", [0.01, 0.4])
def test_the_strength_of_a_gaussian_is_found_again(move, mu, fpr):
    family = Gaussians(1e-5, move)
    power = norm.cdf(norm.ppf(fpr) + mu) if move is None else lattice_power(fpr, mu, move)
    found = family.strength(of(power, fpr))
    assert found == pytest.approx(mu, rel=1e-4) if move != 1 else 0.8 * mu < found < 1.0001 * mu
    if move:
        exact = discrete_gaussian_epsilon(1e-5, sigma=move / mu, shift=move, coordinates=1)
        assert family.epsilon(mu) == pytest.approx(exact, rel=1e-5)
    assert Gaussians(1e-5, None).epsilon(mu_of(1.0, 1e-5)) == pytest.approx(1.0)


def test_a_larger_mu_with_a_smaller_epsilon_is_not_excluded():
    exact = discrete_gaussian_epsilon(1e-5, sigma=8 / 6.06, shift=8, coordinates=1)
    assert discrete_gaussian_epsilon(1e-5, sigma=8 / 5.98, shift=8, coordinates=1) > exact + 1
    assert Gaussians(1e-5, 8).epsilon(5.98) <= exact + 0.1


def test_the_strength_of_laplace_noise_is_found_again():
    for releases, move, epsilon in [(1, 1024, 1.0), (10, 64, 0.5), (3, 8, 9.0)]:
        family = Laplaces(releases, move)
        assert family.strength(of(family.power(0.05, epsilon), 0.05)) == pytest.approx(epsilon, rel=1e-6)
        assert family.strength(of(0.1, 0.2)) == 0.0
    fine, coarse = Laplaces(10, 2**17).power(0.4, 1.0), Laplaces(10, 2**10).power(0.4, 1.0)
    assert fine == pytest.approx(coarse, abs=1e-6)


def test_trials_that_say_nothing_are_refused():
    both = np.arange(6) % 2 == 0
    for scores, truth, message in [
        (np.zeros(6), both[:5], r"scores: \[6\] for bool\[5\]"),
        (np.full(6, np.nan), both, "scores: not finite"),
        (np.zeros(6), np.arange(6) < 1, "trials: 1 of one kind, allowed: at least 2"),
    ]:
        with pytest.raises(InputError, match=f"^{message}"):
            rates(scores, truth, np.zeros(1), alpha=0.05)
    with pytest.raises(InputError, match=r"^right guesses: 5 of 4 on 9 canaries"):
        one_run_p_value(canaries=9, guesses=4, right=5, epsilon=1.0, delta=0.0)
