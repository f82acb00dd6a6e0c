"""Accounting: against other accountants, against enumeration, and against itself."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st
from reference import slow_hockey_stick as slow

from privacy import accounting
from privacy.accounting import (
    discrete_gaussian_delta,
    discrete_gaussian_epsilon,
    discrete_gaussian_sigma,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    laplace_epsilon,
    laplace_scale,
)
from privacy.errors import PrivacyError

EPSILONS = st.floats(0.01, 30)
DELTAS = st.floats(-14, -0.5).map(lambda power: 10.0**power)


@pytest.mark.parametrize(("epsilon", "multiplier"), [(1, 3.731), (2, 1.994), (4, 1.081), (8, 0.600)])
def test_known_noise_multipliers_at_delta_1e5(epsilon, multiplier):
    assert 1 / gaussian_mu(epsilon, 1e-5) == pytest.approx(multiplier, abs=5e-4)


@pytest.mark.parametrize(
    ("epsilon", "releases"), [(0.1, 1), (0.1, 100), (1, 1), (1, 10), (4, 10), (4, 100), (10, 1), (10, 100)]
)
def test_gaussian_noise_is_worth_what_the_privacy_loss_distribution_says(epsilon, releases):
    sigma = math.sqrt(releases) / gaussian_mu(epsilon, 1e-5)
    other = pld.from_gaussian_mechanism(sigma, value_discretization_interval=1e-3).self_compose(releases)
    assert epsilon == pytest.approx(other.get_epsilon_for_delta(1e-5), abs=1e-3)
    assert gaussian_epsilon(1e-5, math.sqrt(releases) / sigma) == pytest.approx(epsilon, abs=1e-9)


@given(EPSILONS, DELTAS)
def test_gaussian_calibration_inverts_accounting_and_is_never_too_small(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(epsilon, mu) == pytest.approx(delta, rel=1e-8)
    assert gaussian_epsilon(delta, mu) == pytest.approx(epsilon, rel=1e-8)
    assert gaussian_delta(gaussian_epsilon(delta, mu), mu) <= delta


@given(st.floats(0, 100), st.floats(-6, 1.7).map(lambda power: 10.0**power))
def test_gaussian_delta_is_a_probability_that_falls_with_epsilon_and_grows_with_mu(epsilon, mu):
    delta = gaussian_delta(epsilon, mu)
    assert 0 <= delta <= 1
    assert gaussian_delta(epsilon * 1.01 + 1e-4, mu) <= delta <= gaussian_delta(epsilon, mu * 1.01)


@pytest.mark.parametrize(
    ("epsilon", "mu"),
    [(0, 1e-6), (1e-6, 1e-6), (3e-5, 1e-6), (0.1, 0.01), (1, 0.268), (8, 5 / 3), (100, 50), (100, 5), (1e-3, 50)],
)
def test_gaussian_delta_has_no_cancellation(epsilon, mu):
    """Delta is the integral of phi(y) (1 - exp(-mu (y - x))) over y > x; nothing in it cancels."""
    x = epsilon / mu - mu / 2
    start = max(x, -12.0)
    y, step = np.linspace(start, max(start, 0.0) + 14, 400_001, retstep=True)
    values = np.exp(-(y**2) / 2) / math.sqrt(2 * math.pi) * -np.expm1(-mu * (y - x))
    simpson = step / 3 * (values[0] + 4 * values[1::2].sum() + 2 * values[2:-1:2].sum() + values[-1])
    assert gaussian_delta(epsilon, mu) == pytest.approx(simpson, rel=1e-7)


def test_the_ends_of_the_gaussian():
    assert gaussian_delta(1.0, 0.0) == 0
    assert gaussian_delta(1.0, math.inf) == 1
    assert gaussian_epsilon(1e-5, 0.0) == 0
    assert gaussian_epsilon(1e-5, math.inf) == math.inf
    assert gaussian_epsilon(1e-5, 1e300) == math.inf
    assert gaussian_epsilon(0.5, 1.0) == 0  # the whole distance is 2 Phi(1/2) - 1 = 0.383
    assert gaussian_epsilon(0.38, 1.0) > 0


@given(st.integers(1, 4096), st.integers(1, 500), EPSILONS)
def test_laplace_sums_are_exact_and_calibration_is_never_too_small(shift, releases, epsilon):
    assert laplace_epsilon(shift, 8.0, releases) == shift * releases / 8
    scale = laplace_scale(epsilon, shift, releases)
    assert scale == pytest.approx(shift * releases / epsilon, rel=1e-12)
    assert shift * releases / scale <= epsilon


@pytest.mark.parametrize(("scale", "shift", "releases"), [(2.0, 1, 1), (3.5, 3, 4)])
def test_laplace_noise_is_worth_what_the_privacy_loss_distribution_says(scale, shift, releases):
    other = pld.from_discrete_laplace_mechanism(1 / scale, shift, value_discretization_interval=1e-4)
    total = other.self_compose(releases).get_epsilon_for_delta(0)
    assert laplace_epsilon(shift, scale, releases) == pytest.approx(total, abs=1e-3)


ENUMERATED = [  # sigma, shift, coordinates, summands
    (0.6, 1, 1, 1),
    (0.6, 3, 1, 1),
    (1.0, 2, 1, 1),
    (0.95, 1, 2, 1),
    (1.2, 1, 6, 1),
    (3.0, 3, 4, 1),
    (0.95, 1, 1, 2),
    (1.1, 2, 1, 4),
    (1.0, 1, 2, 2),
    (1.5, 3, 3, 3),
    (1.5, 1, 6, 4),
    (3.0, 2, 2, 4),
]


@pytest.mark.parametrize(("sigma", "shift", "coordinates", "summands"), ENUMERATED)
def test_the_discrete_delta_is_never_below_enumeration_and_near_it(sigma, shift, coordinates, summands):
    tau = sum(accounting._taus(sigma, coordinates, summands))
    near = 1e-6 if tau < 1e-9 else 0.02
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0):
        true = slow.delta(epsilon, sigma, shift, coordinates, summands)
        noise = {"sigma": sigma, "shift": shift, "coordinates": coordinates, "summands": summands}
        bound = discrete_gaussian_delta(epsilon, **noise)
        assert true <= bound
        if true > 1e-9:
            assert bound <= true * (1 + near)


@pytest.mark.parametrize(
    ("sigma", "shift", "coordinates", "summands"), [(0.6, 1, 2, 1), (0.6, 1, 1, 2), (0.5, 1, 2, 3), (0.7, 2, 3, 2)]
)
def test_the_terms_of_the_sums_hold_where_they_are_large(monkeypatch, sigma, shift, coordinates, summands):
    monkeypatch.setattr(accounting, "MOST_TAU", 50.0)
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0):
        bound = discrete_gaussian_delta(epsilon, sigma=sigma, shift=shift, coordinates=coordinates, summands=summands)
        assert slow.delta(epsilon, sigma, shift, coordinates, summands) <= bound


@pytest.mark.parametrize("summands", [2, 3, 5])
@pytest.mark.parametrize("sigma", [0.65, 0.8, 1.0])
def test_tau_bounds_how_far_a_sum_is_from_a_discrete_gaussian(sigma, summands):
    pmf = slow.discrete_gaussian_pmf(sigma, summands)
    z = np.arange(len(pmf)) - len(pmf) // 2
    central = np.abs(z) <= 4 * sigma * math.sqrt(summands)
    ratio = np.log(pmf[central]) + z[central] ** 2 / (2 * summands * sigma**2)
    share = (ratio.max() - ratio.min()) / accounting._tau(summands, sigma)
    assert share <= 1
    if summands == 2:
        assert share > 0.75  # 4 q of 5 q


@pytest.mark.parametrize(("sigma", "shift", "releases"), [(1.0, 1, 1), (2.0, 1, 4), (3.0, 2, 9), (60.0, 10, 25)])
def test_discrete_noise_is_worth_what_the_privacy_loss_distribution_says(sigma, shift, releases):
    other = pld.from_discrete_gaussian_mechanism(sigma, shift, value_discretization_interval=1e-3)
    total = other.self_compose(releases).get_epsilon_for_delta(1e-5)
    ours = discrete_gaussian_epsilon(1e-5, sigma=sigma, shift=shift, coordinates=releases)
    assert ours == pytest.approx(total, rel=1e-2)
    assert ours <= total + 1e-6  # theirs is rounded up to a grid of losses


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 8.0, 30.0])
@pytest.mark.parametrize("shift", [50, 1000, 30_000])
def test_large_noise_is_bounded_from_above_and_sharply(monkeypatch, epsilon, shift):
    noise = {"sigma": 3000.0, "shift": shift, "coordinates": 4}
    epsilon = max(epsilon, 1e-9)
    exact = discrete_gaussian_delta(epsilon, **noise)
    monkeypatch.setattr(accounting, "LATTICE", 1.0)
    bound = discrete_gaussian_delta(epsilon, **noise)
    assert exact * (1 - 1e-12) <= bound
    if exact > 1e-12:
        assert bound <= exact * (1 + 1e-5)


@given(st.floats(0, 3), st.floats(0.1, 4), st.integers(1, 40))
def test_the_line_is_above_the_lattice_at_any_sd(shift, epsilon, sd):
    """At small sd the remainder is large, and a missing factor would show."""
    move = math.ceil(sd * shift) + 1
    assert accounting._over_the_lattice(epsilon, sd, move) <= accounting._over_the_line(epsilon, sd, move) + 1e-15


@pytest.mark.parametrize(
    "noise", [{"sigma": 1e6, "shift": 1024, "coordinates": 1}, {"sigma": 1e6, "shift": 2**20, "coordinates": 300}]
)
def test_noise_of_a_million_grid_units_is_worth_the_continuous_gaussian(noise):
    mu = noise["shift"] / noise["sigma"] * math.sqrt(noise["coordinates"])
    assert discrete_gaussian_epsilon(1e-5, **noise) == pytest.approx(gaussian_epsilon(1e-5, mu), rel=1e-6)


@pytest.mark.parametrize(("epsilon", "move"), [(0.1, 3), (1.0, 2), (4.0, 9)])
def test_the_remainder_of_the_line_is_the_integral_it_stands_for(epsilon, move):
    sd = 7.0
    mu, x = move / sd, epsilon / move * sd - move / sd / 2
    y, step = np.linspace(x, 15, 200_001, retstep=True)
    phi = np.exp(-(y**2) / 2) / math.sqrt(2 * math.pi)
    parts = (1 + y**2 + 2 * mu * np.abs(y) + mu**2) * phi
    variation = (mu * phi[0] + step * (parts.sum() - parts[0] / 2)) / sd**2
    assert x > 0
    remainder = accounting._over_the_line(epsilon, sd, move) - gaussian_delta(epsilon, mu)
    assert remainder == pytest.approx(variation / 16, rel=1e-6)


def test_extreme_budgets_overflow_nothing():
    noise = {"shift": 1, "coordinates": 2}
    for sigma in (2.0, 1e6):
        assert discrete_gaussian_delta(np.float64(1e308), sigma=np.float64(sigma), **noise) == 0
    assert discrete_gaussian_epsilon(1e-300, sigma=2.0, **noise) < 50
    assert laplace_scale(1e9, 1, 1) == 1e-3
    with pytest.raises(PrivacyError, match=r"scale for epsilon 1e-300: .*, allowed: 0.001 to"):
        laplace_scale(1e-300, 1, 1)
    with pytest.raises(PrivacyError, match=r"sigma for epsilon 1e-300: .*, allowed: 0.001 to"):
        discrete_gaussian_sigma(1e-300, 1e-15, **noise)


@pytest.mark.parametrize("summands", [1, 10])
@pytest.mark.parametrize("coordinates", [2, 30])
def test_delta_falls_with_epsilon_sigma_and_summands(coordinates, summands):
    def delta(epsilon=1.0, sigma=6.0, shift=2, n=coordinates, m=summands):
        return discrete_gaussian_delta(epsilon, sigma=sigma, shift=shift, coordinates=n, summands=m)

    base = delta()
    assert delta(sigma=6.5) < base < delta(sigma=5.5)
    assert delta(epsilon=1.1) < base < delta(epsilon=0.9)
    assert delta(m=summands + 1) < base < delta(n=coordinates + 1)
    assert base < delta(shift=3)
    sigmas = [delta(sigma=sigma) for sigma in np.geomspace(3, 60, 200)]
    assert sigmas == sorted(sigmas, reverse=True)


@given(st.floats(0.1, 8), st.floats(-10, -2), st.sampled_from([1, 3, 1024]), st.integers(1, 200), st.integers(1, 60))
def test_discrete_calibration_inverts_accounting_and_is_never_too_small(epsilon, power, shift, coordinates, summands):
    delta, counts = 10.0**power, {"shift": shift, "coordinates": coordinates, "summands": summands}
    sigma = discrete_gaussian_sigma(epsilon, delta, **counts)
    assert discrete_gaussian_delta(epsilon, sigma=sigma, **counts) <= delta
    assert discrete_gaussian_epsilon(delta, sigma=sigma, **counts) <= epsilon * (1 + 1e-8)
    least = accounting._smallest_sigma(coordinates, summands)
    if sigma > least:
        assert discrete_gaussian_delta(epsilon, sigma=max(least, sigma * (1 - 1e-6)), **counts) > delta


def test_a_histogram_of_one_fit_needs_the_known_noise():
    """A replaced record moves two bins by one count: sqrt(2) * 3.731 counts at epsilon 1."""
    assert discrete_gaussian_sigma(1.0, 1e-5, shift=1, coordinates=2) == pytest.approx(5.276, abs=1e-3)


def test_a_delta_that_covers_everything_needs_no_epsilon():
    assert discrete_gaussian_epsilon(0.5, sigma=10.0, shift=1, coordinates=2) == 0


@pytest.mark.parametrize(("coordinates", "summands", "least"), [(2, 1, 0.929), (1, 2, 0.929), (60, 100, 1.1313)])
def test_noise_too_small_to_sum_is_refused(coordinates, summands, least):
    counts = {"shift": 1, "coordinates": coordinates, "summands": summands}
    message = (
        rf"sigma: 0.9, allowed: at least {least} grid units with {coordinates} coordinates and {summands} summands"
    )
    with pytest.raises(PrivacyError, match=message):
        discrete_gaussian_delta(1.0, sigma=0.9, **counts)
    assert discrete_gaussian_delta(1.0, sigma=least, **counts) <= 1
    assert discrete_gaussian_sigma(500.0, 0.5, **counts) == pytest.approx(least, abs=1e-4)


GOOD = {"sigma": 2.0, "shift": 1, "coordinates": 2, "summands": 2}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gaussian_delta(-1.0, 1.0), "epsilon: -1.0, allowed: finite, from 0"),
        (lambda: gaussian_delta(math.inf, 1.0), "epsilon: inf, allowed"),
        (lambda: gaussian_delta(1.0, math.nan), "mu: nan, allowed: from 0"),
        (lambda: gaussian_epsilon(1e-5, -1.0), "mu: -1.0, allowed"),
        (lambda: gaussian_epsilon(0.0, 1.0), "delta: 0.0, allowed: above 0, below 1"),
        (lambda: gaussian_epsilon(1, 1.0), "delta: 1, allowed"),
        (lambda: gaussian_mu(0.0, 1e-5), "epsilon: 0.0, allowed: finite, above 0"),
        (lambda: gaussian_mu("1", 1e-5), "epsilon: '1', allowed"),
        (lambda: gaussian_mu(1.0, math.nan), "delta: nan, allowed"),
        (lambda: laplace_epsilon(1.5, 2.0, 1), "l1_sensitivity: 1.5, allowed: an integer from 1"),
        (lambda: laplace_epsilon(1, 2.0, 0), "releases: 0, allowed: an integer from 1"),
        (lambda: laplace_epsilon(1, 0.0, 1), "scale: 0.0, allowed: 0.001 to"),
        (lambda: laplace_scale(math.nan, 1, 1), "epsilon: nan, allowed"),
        (lambda: discrete_gaussian_delta(0.0, **GOOD), "epsilon: 0.0, allowed"),
        (lambda: discrete_gaussian_delta(1.0, **GOOD | {"sigma": math.nan}), "sigma: nan, allowed: 0.001 to"),
        (lambda: discrete_gaussian_delta(1.0, **GOOD | {"shift": 0.5}), "shift: 0.5, allowed: an integer from 1"),
        (lambda: discrete_gaussian_delta(1.0, **GOOD | {"coordinates": True}), "coordinates: True, allowed"),
        (lambda: discrete_gaussian_epsilon(1.5, **GOOD), "delta: 1.5, allowed"),
        (lambda: discrete_gaussian_epsilon(1e-5, **GOOD | {"summands": 0}), "summands: 0, allowed"),
        (lambda: discrete_gaussian_sigma(1.0, 1e-5, shift=-1, coordinates=1), "shift: -1, allowed"),
    ],
)
def test_what_is_no_budget_is_refused_in_one_line(call, message):
    with pytest.raises(PrivacyError) as caught:
        call()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
