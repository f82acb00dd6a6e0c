"""The accountant: figures that are known by heart, its two directions, and what it refuses."""

import json

import pytest

from fedgr_secure.app import cli
from fedgr_secure.app.accountant import account
from fedgr_secure.app.plan import Plan
from fedgr_secure.errors import InputError


def test_one_histogram_at_epsilon_one():
    found = account(Plan(releases=1))
    # sqrt(2) * 3.731 (Balle and Wang 2018, at delta 1e-5), shared by five
    assert found.scale == pytest.approx(5.276, rel=1e-3) and found.share == pytest.approx(5.276 / 5**0.5, rel=1e-3)
    assert found.epsilons == {1: pytest.approx(1.0, rel=1e-4)}


@pytest.mark.parametrize(
    "plan",
    [
        {"releases": 10},
        {"releases": 3, "adjacency": "client", "honest": 13},
        {"channel": "noisy"},
        {"channel": "noisy", "mechanism": "gaussian", "noising": "per_loss", "releases": 7},
        {"channel": "weights", "rate": 0.4, "steps": 5, "releases": 12},
    ],
)
def test_the_noise_of_an_epsilon_costs_that_epsilon(plan):
    noise = account(Plan(**plan, epsilon=2.5))
    cost = account(Plan(**plan, scale=noise.scale))
    assert list(cost.epsilons.values())[-1] == pytest.approx(2.5, rel=2e-3)
    assert cost.epsilons == pytest.approx(noise.epsilons, rel=1e-4)
    assert list(cost.epsilons.values()) == sorted(cost.epsilons.values())
    assert list(cost.epsilons) == list(range(1, plan.get("releases", 1) + 1))


def test_a_laplace_release_needs_the_clip_over_epsilon():
    assert account(Plan(channel="noisy", epsilon=4.0)).scale == pytest.approx(4.605 / 4)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"epsilon": 0.0}, "epsilon: 0.0, allowed"),
        ({"epsilon": 1.0, "scale": 1.0}, "epsilon and scale: both given, allowed: one of them"),
        ({"scale": -1.0}, "scale: -1.0, allowed: a finite number above 0"),
        ({"delta": 0.1}, "delta: 0.1, allowed: above 0 and below 1/n"),
        ({"releases": 0}, "releases: 0, allowed: an integer from 1"),
        ({"honest": 0}, "honest: 0, allowed: a whole number from 1"),
        (
            {"channel": "noisy", "noising": "diagonal", "mechanism": "gaussian", "scale": 1.0},
            "scale: given, allowed with",
        ),
        ({"channel": "weights", "rate": 0.0}, "sampling rate: 0.0, allowed: above 0"),
        ({"channel": "weights", "epsilon": 0.0}, "epsilon: 0.0, allowed"),
        ({"channel": "weights", "scale": 1e9}, "noise multiplier: 1000000000.0, allowed: 0.001 to"),
        ({"channel": "weights", "scale": 1e-200}, "noise multiplier: 1e-200, allowed: 0.001 to"),
        ({"channel": "weights", "adjacency": "add-remove"}, "adjacency: add-remove, allowed with channel weights"),
        ({"channel": "noisy", "clip": 0.0}, "largest loss of the grid: 0.0"),
    ],
)
def test_plans_that_cannot_be_are_refused(plan, message):
    with pytest.raises(InputError, match=f"^{message}"):
        account(Plan(**plan))


def test_the_command(capsys):
    assert cli._run(["accountant", "--releases", "30"]) == 0
    text = capsys.readouterr().out
    assert "noise of scale" in text and "5 honest clients" in text and "Runs on the same data add up" in text
    assert sum(line.strip().startswith(("1 ", "28 ", "30 ")) for line in text.splitlines()) == 3
    assert cli._run(["accountant", "--channel", "noisy", "--epsilon", "8", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["delta"], said["epsilon"]) == (0.0, {"1": 8.0}) and said["scale"] == pytest.approx(4.605 / 8)
