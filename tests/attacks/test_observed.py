"""Rows and their likelihoods: against scipy, against slow sums, and against what clients really upload."""

import numpy as np
import pytest
from scipy import stats

from attacks.observed import FLOAT32, Observed, likelihoods, observe_noisy, observe_plain, paired
from privacy.budget import Budget, Schedule
from privacy.channels.channel import Losses, Memory
from privacy.channels.noisy import NoisyProxies
from privacy.channels.plain import PlainProxies
from privacy.mechanisms import Grid, InsecureSeededNoise

DRAW = np.random.default_rng(1)


def rows(kind, *, count=7, rounds=4, averaged=False, scale=0.3):
    values = DRAW.uniform(0, 4, (rounds, count))
    return Observed(values, np.arange(rounds), averaged, np.full(rounds, scale), kind, 5.0)


@pytest.mark.parametrize(("kind", "density"), [("gaussian", stats.norm), ("laplace", stats.laplace)])
def test_likelihoods_are_scipy_s_but_for_a_constant(kind, density):
    observed = rows(kind)
    expected = DRAW.uniform(0, 4, (4, 5))
    wanted = density(expected[:, :, None], observed.scale[:, None, None]).logpdf(observed.values[:, None, :]).sum(0)
    found = likelihoods(observed, expected)
    np.testing.assert_allclose(found - found[0, 0], wanted - wanted[0, 0], atol=1e-9)
    same = paired(observed, observed.values + 0.1)
    wanted = density(0.1, 0.3).logpdf(0.0) - density(0, 0.3).logpdf(0.0)
    np.testing.assert_allclose(same - paired(observed, observed.values), 4 * wanted, atol=1e-9)


def test_rounded_rows_are_alike_within_half_a_step_and_impossible_beyond():
    observed = rows("gaussian").rounded(1)
    np.testing.assert_allclose(observed.values, np.round(observed.values, 1))
    within = observed.values + 0.049
    beyond = observed.values + 0.051
    assert (paired(observed, within) == 0).all() and (paired(observed, beyond) < -900).all()
    both = likelihoods(observed, within)
    np.testing.assert_array_equal(np.diag(both), np.zeros(7))


def test_close_rows_are_told_apart_to_a_few_millionths():
    values = 3.0 + np.arange(50)[None, :] * 1e-4 * np.ones((20, 1))
    observed = Observed(values, np.arange(20), False, np.full(20, FLOAT32), "gaussian", 5.0)
    found = likelihoods(observed, values + 3e-6)
    np.testing.assert_array_equal(found.argmax(1), np.arange(50))
    np.testing.assert_allclose(np.diag(found), -0.5 * 20 * 9, rtol=0.01)


def test_expected_rows_are_clipped_losses_or_their_running_means():
    losses = np.array([[1.0, 9.0], [2.0, np.nan], [3.0, -1.0], [6.0, np.inf]])
    observed = Observed(np.zeros((2, 1)), np.array([1, 3]), True, np.ones(2), "gaussian", 5.0)
    assert observed.expected(losses).tolist() == [[1.5, 5.0], [(1 + 2 + 3 + 5) / 4, (5 + 5 + 0 + 5) / 4]]
    single = Observed(np.zeros((2, 1)), np.array([1, 3]), False, np.ones(2), "gaussian", 5.0)
    assert single.expected(losses).tolist() == [[2.0, 5.0], [5.0, 5.0]]


def test_the_newest_rows_alone():
    observed = rows("laplace", averaged=True)
    newest = observed.newest(1)
    assert newest.values.tolist() == [observed.values[-1].tolist()] and newest.at.tolist() == [3]


def uploads(channel, losses, noise):
    """What a client sends in each participation, as it does it."""
    memory, sent = Memory.fresh(), []
    for count in range(1, len(losses) + 1):
        upload, memory = channel.encode(Losses(losses[count - 1], losses[:count].mean(0)), memory, noise)
        sent.append(upload)
    return sent


@pytest.mark.parametrize(
    ("noising", "mechanism", "releases", "averaged", "at"),
    [
        ("once", "laplace", 1, True, [0]),
        ("per_loss", "gaussian", 3, False, [0, 1, 2]),
        ("diagonal", "gaussian", 3, False, [0, 1, 2]),
        ("fresh_on_mean", "gaussian", 3, True, [0, 1, 2]),
    ],
)
def test_rows_of_the_noisy_channel_are_what_was_released_with_the_noise_that_was_drawn(
    noising, mechanism, releases, averaged, at
):
    budget = Budget(6.0, 1e-5, releases, "replace-one", 10_000, 5000)
    channel = NoisyProxies(budget, Grid(4.0), noising, mechanism, Schedule(0, 5, 1))
    losses = DRAW.uniform(0.5, 3.5, (5, 4000))
    observed = observe_noisy(channel, uploads(channel, losses, InsecureSeededNoise(np.random.default_rng(3))), range(5))
    assert observed.averaged is averaged and observed.at.tolist() == at and observed.kind == mechanism
    noise = observed.values - observed.expected(losses)
    spread = noise.std(1) / (2**0.5 if mechanism == "laplace" else 1)
    np.testing.assert_allclose(spread, observed.scale, rtol=0.05)
    assert (np.abs(noise.mean(1)) < 5 * observed.scale / 4000**0.5 * 1.5).all()


def test_rows_in_the_clear_are_within_a_few_float32_steps():
    losses = DRAW.uniform(0, 9, (6, 50))
    observed = observe_plain(uploads(PlainProxies(), losses, None), range(6), 100.0)
    assert observed.averaged and np.abs(observed.values - observed.expected(losses)).max() < FLOAT32
