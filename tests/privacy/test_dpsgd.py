"""DP-SGD's accounting: never below another library's numerical one, additive, and composed with the proxies'."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import (
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.pld import PLDAccountant

from privacy.accounting import discrete_gaussian_curve, discrete_gaussian_epsilon, gaussian_epsilon, pure_curve
from privacy.budget import Budget, Schedule
from privacy.channels.histogram import HistogramProxies
from privacy.channels.noisy import NoisyProxies
from privacy.channels.plain import PlainProxies
from privacy.dpsgd import DPSGD, ORDERS, plan_dpsgd, renyi_epsilon
from privacy.errors import PrivacyError
from privacy.mechanisms import Grid

DELTA = 1e-5


def replaced(rate, noise, steps):
    """Epsilon of replacing a record, by numerical composition of the privacy loss (dp-accounting)."""
    accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE)
    accountant.compose(SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), steps))
    return accountant.get_epsilon(DELTA)


@pytest.mark.parametrize(
    ("rate", "noise", "steps", "slack"),
    [(0.44, 12.0, 450, 1.15), (0.3, 20.0, 100, 1.15), (0.1, 2.0, 100, 1.4), (0.01, 0.8, 500, 3.0)],
)
def test_epsilon_is_above_the_numerical_one_and_not_far(rate, noise, steps, slack):
    exact, ours = replaced(rate, noise, steps), DPSGD(rate, steps, 1, noise, DELTA).spent(1)
    assert exact < ours < slack * exact


def test_without_sampling_it_is_a_gaussian_that_moves_by_twice_the_clip():
    for noise, steps in [(4.0, 5), (10.0, 40), (50.0, 10)]:
        exact = gaussian_epsilon(DELTA, 2 * math.sqrt(steps) / noise)
        assert exact < DPSGD(1.0, steps, 1, noise, DELTA).spent(1) < 1.15 * exact


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 100.0])
def test_a_plan_keeps_its_budget_with_little_to_spare(epsilon):
    plan = plan_dpsgd(epsilon, DELTA, rate=0.4, steps=10, trainings=20)
    assert plan.spent(20) <= epsilon < DPSGD(0.4, 10, 20, plan.noise_multiplier * 0.995, DELTA).spent(20)
    spent = [plan.spent(done) for done in range(21)]
    assert spent[0] == 0 and all(early < late for early, late in itertools.pairwise(spent))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.0}, r"^epsilon: 0\.0"),
        ({"epsilon": math.inf}, r"^epsilon: inf"),
        ({"epsilon": 1e-9}, r"^epsilon: 1e-09, allowed: more"),
        ({"delta": 0.0}, r"^delta: 0\.0"),
        ({"rate": 0.0}, r"^sampling rate: 0\.0"),
        ({"rate": 1.5}, r"^sampling rate: 1\.5"),
        ({"steps": 0}, r"^steps: 0"),
        ({"trainings": 0}, r"^trainings: 0"),
    ],
)
def test_plans_that_cannot_be(changes, message):
    settings = {"epsilon": 1.0, "delta": DELTA, "rate": 0.5, "steps": 3, "trainings": 2} | changes
    with pytest.raises(PrivacyError, match=message):
        plan_dpsgd(settings.pop("epsilon"), settings.pop("delta"), **settings)


def test_nothing_released_costs_nothing_and_much_is_not_negative():
    assert renyi_epsilon(np.zeros(len(ORDERS)), DELTA) == 0.0
    assert renyi_epsilon(np.full(len(ORDERS), 1e-12), 0.4) == 0.0
    assert renyi_epsilon(np.full(len(ORDERS), np.inf), DELTA) == math.inf


def histogram(**changes):
    budget = Budget(changes.pop("epsilon", 1.0), DELTA, 6, changes.pop("adjacency", "replace-one"), 1000, 64)
    return HistogramProxies(budget, (0.0, 1.0, 2.0, 4.0), 5, Schedule(0, 3, 1), **changes)


def noisy(noising="once", mechanism="laplace", releases=1, **changes):
    budget = Budget(2.0, DELTA, releases, "replace-one", 1000, 64)
    return NoisyProxies(budget, Grid(4.0), noising, mechanism, Schedule(0, 3, 1), **changes)


@pytest.mark.parametrize(
    ("channel", "releases", "slack"),
    [
        (histogram(), 6, 1.12),
        (histogram(epsilon=8.0), 2, 1.12),
        (histogram(adjacency="client"), 6, 1.12),
        (noisy(), 1, 1.01),
        (noisy("per_loss", "gaussian", 5), 5, 1.12),
        (noisy("per_loss", "gaussian", 5), 2, 1.12),
        (noisy("diagonal", "gaussian", 5), 3, 1.12),
    ],
)
def test_the_curve_of_a_channel_gives_its_epsilon_again(channel, releases, slack):
    exact = channel.spent(releases)
    found = renyi_epsilon(channel.curve(ORDERS, releases), DELTA)
    assert 0.95 * exact < found < slack * exact
    assert not channel.curve(ORDERS, 0).any()


def test_the_curve_of_sums_of_discrete_gaussians_pays_for_not_being_one():
    orders = np.array([1.5, 4.0, 64.0])
    one = discrete_gaussian_curve(orders, sigma=3.0, shift=1, coordinates=4)
    np.testing.assert_allclose(one, orders * 4 / 18, rtol=1e-12)
    few = discrete_gaussian_curve(orders, sigma=1.05, shift=1, coordinates=4, summands=9)
    assert (few > orders * 4 / (2 * 9 * 1.05**2)).all()
    exact = discrete_gaussian_epsilon(DELTA, sigma=3.0, shift=1, coordinates=4)
    curve = discrete_gaussian_curve(ORDERS, sigma=3.0, shift=1, coordinates=4)
    assert exact < renyi_epsilon(curve, DELTA) < 1.12 * exact


def test_a_pure_curve_is_never_above_its_epsilon():
    orders = np.array([1.5, 4.0, 1e4])
    np.testing.assert_allclose(pure_curve(orders, 0.5), [0.1875, 0.5, 0.5])


def test_channels_that_promise_nothing_have_no_finite_curve():
    for channel in (PlainProxies(), histogram(insecure=True), noisy(insecure=True)):
        assert np.isinf(channel.curve(ORDERS, 1)).all()


def test_both_together_cost_less_than_their_sum_and_more_than_either():
    plan, channel = plan_dpsgd(4.0, DELTA, rate=0.4, steps=5, trainings=10), histogram()
    both = renyi_epsilon(plan.curve(10) + channel.curve(ORDERS, 6), DELTA)
    assert 4.0 < both < 4.0 + channel.spent(6)
