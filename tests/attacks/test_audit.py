"""The audit: sound channels pass, or say that there was no power, and each of many broken ones fails."""

import dataclasses
import json

import numpy as np
import pytest
from scipy.stats import binom

from attacks.audit import AuditResult, Bound, audit, draws
from fedgr_secure.app import auditor, cli
from fedgr_secure.errors import InputError
from privacy.budget import Budget, Schedule
from privacy.channels.histogram import HistogramProxies
from privacy.channels.noisy import NoisyProxies
from privacy.channels.plain import PlainProxies
from privacy.claims import no_privacy
from privacy.mechanisms import Grid, InsecureSeededNoise, SystemNoise
from tests.attacks import broken_channels as broken

ALWAYS = Schedule(0, 0, 1)
EPSILONS = [0.5, 1.0, 2.0, 4.0, 8.0]


def budget(epsilon, releases=1, adjacency="replace-one"):
    return Budget(epsilon, 1e-5, releases, adjacency, records=1000, largest=4)


def rows(epsilon=1.0, mechanism="laplace", releases=1, noising=None, kind=NoisyProxies, grid=None, **changes):
    noising = noising or ("once" if releases == 1 else "per_loss")
    return kind(budget(epsilon, releases, **changes), grid or Grid(4.605), noising, mechanism, ALWAYS)


def histogram(epsilon=1.0, releases=1, honest=3, kind=HistogramProxies, bins=400, **changes):
    edges = tuple(4.605 * np.linspace(0, 1, bins + 1) ** 1.5)
    return kind(budget(epsilon, releases, **changes), edges, honest, ALWAYS)


def fast(channel, trials, seed=0):
    noise = InsecureSeededNoise(np.random.default_rng([seed, 0]))
    return audit(channel, noise, trials=trials, coins=np.random.default_rng([seed, 1]))


SOUND = {
    "Laplace": (lambda epsilon: rows(epsilon), 120_000, "two-sample", EPSILONS),
    "Gaussian": (lambda epsilon: rows(epsilon, "gaussian"), 120_000, "trade-off", EPSILONS),
    "Gaussian, 10 releases": (lambda epsilon: rows(epsilon, "gaussian", 10), 60_000, "sum", EPSILONS),
    "histogram": (lambda epsilon: histogram(epsilon), 16_000, "sum", EPSILONS),
    "histogram, 10 releases": (lambda epsilon: histogram(epsilon, 10), 8_000, "sum", [1.0, 4.0]),
}


@pytest.mark.parametrize(("name", "epsilon"), [(name, epsilon) for name in SOUND for epsilon in SOUND[name][3]])
def test_a_sound_channel_is_certified_near_its_claim(name, epsilon):
    channel, trials, method, _ = SOUND[name]
    found = fast(channel(epsilon), trials, seed=int(epsilon * 10) + 2)
    assert found.verdict == "PASS" and found.claimed <= epsilon * 1.000001
    assert all(bound.epsilon <= found.claimed for bound in found.bounds)
    assert found.of(method) >= 0.6 * found.claimed
    assert found.integers and found.dtypes == ("int64",)


@pytest.mark.parametrize(
    "channel",
    [
        rows(2.0, adjacency="client"),
        rows(4.0, "gaussian", 3, adjacency="client"),
        rows(4.0, "gaussian", 5, "diagonal"),
        rows(4.0, "gaussian", 4, "fresh_on_mean"),
        rows(4.0, "laplace", 3),
        rows(2.0, adjacency="label", grid=Grid(4.605, 8)),
        histogram(4.0, 2, adjacency="client"),
        histogram(2.0, 2, adjacency="add-remove"),
    ],
    ids=lambda channel: f"{channel.name}-{channel.budget.adjacency}-{getattr(channel, 'noising', '')}",
)
def test_every_plan_and_neighbour_has_its_game(channel):
    found = fast(channel, 20_000)
    assert found.verdict == "PASS"


NARROW = {
    "one": (rows(100.0, "gaussian", grid=Grid(4.605, 4)), {"two-sample", "one-run", "trade-off"}),
    "two": (rows(150.0, "gaussian", 2, grid=Grid(4.605, 4)), {"two-sample", "one-run"}),
}


@pytest.mark.parametrize("name", NARROW)
def test_noise_below_a_step_of_the_grid_is_no_gaussian_number(name):
    channel, methods = NARROW[name]
    assert channel.noises[0].scale < 1
    found = [fast(channel, 4000, seed) for seed in range(2)]
    assert all(result.verdict != "FAIL" for result in found)
    assert all({bound.method for bound in result.bounds} == methods for result in found)


def test_the_noise_of_the_operating_system():
    found = audit(rows(2.0), SystemNoise(), trials=20_000, confidence=0.99999)
    assert found.verdict == "PASS" and 1.2 <= found.of("two-sample") <= 2.0


@pytest.mark.parametrize("seeds", [10, pytest.param(67, marks=pytest.mark.slow)])
def test_null_audits_fail_no_more_often_than_they_may(seeds):
    coarse = Grid(4.605, 64)
    channels = [rows(1.0, grid=coarse), rows(2.0, "gaussian", grid=coarse), histogram(2.0, bins=100)]
    found = [fast(channel, 600, seed) for channel in channels for seed in range(seeds)]
    failed = sum(result.verdict == "FAIL" for result in found)
    assert failed <= binom.ppf(0.99, len(found), 0.05), "nominal 5 % for all methods together"
    for method in ("two-sample", "trade-off", "one-run", "sum"):
        ratios = [b.epsilon / result.claimed for result in found for b in result.bounds if b.method == method]
        # an equal share of 5 %: of three methods for Laplace noise, of four otherwise
        assert sum(ratio > 1 for ratio in ratios) <= binom.ppf(0.99, len(ratios), 0.05 / 3), method
        assert max(ratios) > 0.4, f"{method} certifies something"


FAULTS = {
    "composition forgotten": [
        rows(1.0, "gaussian", 10, kind=broken.RowsForgetComposition),
        rows(1.0, "laplace", 10, kind=broken.RowsForgetComposition),
        histogram(1.0, 10, kind=broken.CountsForgetComposition),
    ],
    "budget not kept": [
        rows(1.0, kind=broken.RowsForgetTheBudget),
        rows(1.0, "gaussian", 3, "fresh_on_mean", kind=broken.RowsForgetTheBudget),
        histogram(1.0, 2, kind=broken.CountsForgetTheBudget),
        rows(2.0, "gaussian", 4, kind=broken.RowsKeepTwiceTheBudget),
    ],
    "clip missing": [
        rows(1.0, grid=broken.Unclipped(4.605)),
        rows(1.0, "gaussian", 10, grid=broken.Unclipped(4.605)),
    ],
    "noise reused": [
        rows(1.0, "gaussian", 2, kind=broken.RowsReuseNoise),
        rows(1.0, "laplace", 10, kind=broken.RowsReuseNoise),
        rows(1.0, "gaussian", 4, "fresh_on_mean", kind=broken.RowsReuseNoise),
        histogram(1.0, 6, kind=broken.CountsReuseNoise),
        histogram(1.0, 1, kind=broken.CountsReuseNoise),
        *(rows(2.0, "gaussian", count, kind=broken.RowsReuseOldNoise) for count in (4, 6, 10)),
        *(rows(2.0, "laplace", count, kind=broken.RowsReuseNoiseOfThree) for count in (4, 6)),
    ],
    "noise shared by rows": [
        rows(1.0, kind=broken.RowsShareNoise),
        rows(1.0, "gaussian", kind=broken.RowsShareNoise),
        rows(2.0, "gaussian", kind=broken.RowsShareNoiseInPairs),
        histogram(2.0, kind=broken.CountsShareNoiseInPairs),
        histogram(2.0, adjacency="add-remove", kind=broken.CountsShareNoiseInPairs),
    ],
    "no noise in between": [
        rows(2.0, kind=broken.RowsBareInBetween),
        rows(2.0, "gaussian", kind=broken.RowsBareInBetween),
    ],
    "float32 Laplace": [rows(1.0, kind=broken.FloatLaplace)],
    "scale halved": [
        rows(1.0, kind=broken.RowsHalveTheScale),
        rows(1.0, "gaussian", 10, kind=broken.RowsHalveTheScale),
        histogram(1.0, 2, kind=broken.CountsHalveTheScale),
    ],
    "sensitivity halved": [
        rows(1.0, kind=broken.RowsHalveTheSensitivity),
        rows(1.0, "gaussian", 10, kind=broken.RowsHalveTheSensitivity),
        histogram(1.0, 1, kind=broken.CountsHalveTheSensitivity),
    ],
}


@pytest.mark.parametrize(
    ("fault", "channel"), [(fault, channel) for fault, channels in FAULTS.items() for channel in channels]
)
def test_a_broken_channel_fails(fault, channel):
    found = fast(channel, 20_000 if channel.name == "noisy" else 8_000)
    assert found.verdict == "FAIL" and found.best.epsilon > found.claim.epsilon


@pytest.mark.parametrize("releases", [1, 2, pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [broken.CountsKeepABudgetTooLarge, broken.CountsKeepTwiceTheBudget])
def test_a_budget_too_large_fails(kind, releases):
    found = fast(histogram(2.0, releases, kind=kind, bins=256), 20_000)
    assert found.verdict == "FAIL" and found.past and "more rounds" in found.play
    assert found.best.epsilon > 2.0 or releases == 6


@pytest.mark.parametrize("kind", [broken.RowsKeepABudgetTooLarge, broken.RowsKeepTwiceTheBudget])
@pytest.mark.parametrize("releases", [1, 2, 6])
def test_a_budget_of_rows_too_large_fails(kind, releases):
    found = fast(rows(2.0, "gaussian", releases, "per_loss", kind), 20_000)
    assert found.verdict == "FAIL" and found.past


def test_what_gives_a_broken_channel_away():
    lowest = fast(rows(1.0, kind=broken.FloatLaplace), 60_000)
    assert not lowest.integers and lowest.dtypes == ("float32", "int64")
    assert lowest.of("two-sample") > 6 and "lowest bits" in lowest.bounds[0].how
    reused = fast(rows(1.0, "gaussian", 2, kind=broken.RowsReuseNoise), 20_000)
    assert "change places" in reused.play and reused.of("two-sample") > 6
    assert "more rounds" in fast(rows(1.0, kind=broken.RowsForgetTheBudget), 20_000).play
    assert "known row" in fast(rows(1.0, kind=broken.RowsShareNoise), 20_000).bounds[0].how


def test_the_verdict():
    claim = rows(2.0).claims()[0]

    def verdict(epsilon, integers=True, accounted=2.0, past=False):
        bounds = (Bound("two-sample", epsilon, ""), Bound("one-run", 0.1, ""))
        return AuditResult(claim, accounted, bounds, "", 1, integers, ("int64",), 0.95, 0.0, past).verdict

    assert [verdict(epsilon) for epsilon in (1.19, 1.2, 2.0, 2.01)] == ["NO POWER", "PASS", "PASS", "FAIL"]
    assert verdict(1.5, integers=False) == "FAIL", "a claim of discrete noise on numbers that are none"
    assert verdict(1.5, past=True) == "FAIL", "whatever epsilon says"
    assert verdict(1.2, accounted=1.0) == "FAIL", "what the ledger charges must hold as well"


def test_what_cannot_be_audited():
    for channel in (PlainProxies(), dataclasses.replace(rows(), insecure=True)):
        with pytest.raises(InputError, match=r"^channel: (plain|noisy), which claims no epsilon here"):
            fast(channel, 1000)
    with pytest.raises(InputError, match=r"^trials: 99, allowed: an integer from 100"):
        fast(rows(), 99)
    with pytest.raises(InputError, match=r"^bins: 1, allowed: at least 2"):
        fast(histogram(bins=1), 1000)
    assert no_privacy("a", "b", "c").epsilon is None


def test_the_cost_in_random_numbers():
    assert draws(rows(1.0), 400) == (1 + 1 + 1) * 100 + 1 * 400
    assert draws(histogram(1.0, 2, honest=3), 400) == 6 * (2 + 6) * 100 + 6 * 2 * 400


def test_the_command(capsys):
    flags = ["audit", "--channel", "noisy", "--epsilon", "2", "--trials", "4000", "--confidence", "0.9999"]
    assert cli._run(flags) == 0
    text = capsys.readouterr().out
    assert (
        "discrete Laplace" in text
        and "PASS: epsilon is at least 1." in text
        and "nothing refutes the claimed 2" in text
    )
    assert cli._run([*flags, "--trials", "100", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] in ("PASS", "NO POWER") and said["delta"] == 0.0 and said["trials"] == 100
    assert set(said["certified"]) == {"two-sample", "trade-off", "one-run"} and said["integers"]


def test_an_audit_without_power_says_so(capsys):
    flags = ["audit", "--epsilon", "0.1", "--releases", "1", "--trials", "100", "--confidence", "0.9999"]
    assert cli._run(flags) == 0
    assert "NO POWER: epsilon is at least 0 (two-sample), below 0.6 of the claimed 0.1" in capsys.readouterr().out
    assert cli._run([*flags, "--require-power"]) == 1


def test_a_refuted_claim_is_exit_code_1(capsys, monkeypatch):
    monkeypatch.setattr(auditor, "noisy_of", lambda plan: rows(1.0, kind=broken.RowsHalveTheScale))
    assert cli._run(["audit", "--channel", "noisy", "--trials", "20000"]) == 1
    text = capsys.readouterr().out
    assert "FAIL: epsilon is at least 1." in text and "the claimed 1. Of sound channels at most 5% fail" in text
    monkeypatch.setattr(auditor, "noisy_of", lambda plan: rows(1.0, kind=broken.FloatLaplace))
    assert cli._run(["audit", "--channel", "noisy", "--trials", "2000"]) == 1
    assert "FAIL: uploads hold float32, int64, allowed: integers" in capsys.readouterr().out


def test_a_budget_that_is_not_kept_is_exit_code_1(capsys, monkeypatch):
    monkeypatch.setattr(auditor, "audit", lambda *_, **__: dataclasses.replace(fast(rows(1.0), 1000), past=True))
    assert cli._run(["audit", "--channel", "noisy", "--trials", "1000"]) == 1
    assert "FAIL: uploads past the budget's releases tell" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--channel", "weights"], "channel: weights, allowed with audit: histogram or noisy"),
        (["--scale", "2"], "scale: 2.0, allowed with audit: epsilon"),
        (["--epsilon", "0"], "epsilon: 0.0, allowed"),
        (["--trials", "5"], "trials: 5, allowed: an integer from 100"),
        (["--trials", "-5"], "trials: -5, allowed: an integer from 100"),
        (["--confidence", "1"], "confidence: 1.0, allowed: above 0 and below 1"),
        (["--releases", "100000"], "trials: none given, allowed with this plan: a number (100 canaries need "),
        (["--honest", "0"], "honest: 0, allowed: a whole number from 1"),
    ],
)
def test_plans_that_cannot_be_audited_are_refused(capsys, flags, message):
    assert cli._run(["audit", *flags]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")
