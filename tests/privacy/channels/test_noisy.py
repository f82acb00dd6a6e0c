"""The noisy channel: whole steps leave, each loss is noised once, the budget is kept, and then nothing new leaves."""

import functools

import numpy as np
import pytest
from channel_driver import LARGEST, NoNoise, budget, losses, seeded
from hypothesis import given
from hypothesis import strategies as st

from privacy.accounting import discrete_gaussian_delta, zcdp_epsilon
from privacy.budget import Schedule
from privacy.channels.channel import Memory, UploadError
from privacy.channels.noisy import NoisyProxies
from privacy.errors import PrivacyError
from privacy.mechanisms import Grid, SystemNoise

ALWAYS = Schedule(0, 10**6, 1)
STEPS = 256


@functools.cache  # it is frozen, and takes tens of milliseconds to calibrate
def channel(noising="once", mechanism="laplace", insecure=False, **changes):
    if noising == "once":
        changes = {"releases": 1} | changes
    return NoisyProxies(budget(**changes), Grid(LARGEST, STEPS), noising, mechanism, ALWAYS, insecure)


PLANS = [("once", "laplace"), ("once", "gaussian"), ("per_loss", "laplace"), ("per_loss", "gaussian")]
PLANS += [("diagonal", "gaussian"), ("fresh_on_mean", "gaussian")]
ANY = st.floats(allow_nan=True, allow_infinity=True, width=32)


@pytest.mark.parametrize(("noising", "mechanism"), PLANS)
@given(st.lists(st.tuples(ANY, ANY), min_size=1, max_size=8))
def test_a_record_moves_each_release_by_at_most_the_grid(noising, mechanism, series):
    """One record's losses over its participations against any other's: what is noised moves by C at most, each time."""
    subject = channel(noising, mechanism)
    told = []
    for side in zip(*series, strict=True):
        memory, before, moved = Memory.fresh(), np.zeros(1, np.int64), []
        for loss in side:
            upload, after = subject.encode(losses([loss]), memory, NoNoise())
            if after.releases > memory.releases:
                moved.append(int((upload["total"] - (before if subject._averages else 0))[0]))
            memory, before = after, upload["total"]
        told.append(moved)
    assert len(told[0]) == len(told[1]) == min(len(series), subject.budget.releases)
    assert all(abs(one - other) <= STEPS for one, other in zip(*told, strict=True))


@pytest.mark.parametrize("adjacency", ["replace-one", "label", "client"])
@pytest.mark.parametrize(("noising", "mechanism"), PLANS)
def test_the_noise_keeps_the_budget_and_hardly_more(noising, mechanism, adjacency):
    subject = channel(noising, mechanism, epsilon=2.0, adjacency=adjacency)
    count, units = subject.budget.releases, 64 if adjacency == "client" else 1
    scales = [noise.scale for noise in subject.noises]
    assert len(scales) == count
    if mechanism == "laplace":
        assert sum(units * STEPS / scale for scale in scales) == pytest.approx(2.0, rel=1e-12)
    elif noising == "diagonal":
        rho = sum(units * (STEPS / scale) ** 2 / 2 for scale in scales)
        assert zcdp_epsilon(rho, 1e-5) == pytest.approx(2.0, rel=1e-6)
    else:
        (sigma,) = set(scales)
        delta = discrete_gaussian_delta(2.0, sigma=sigma, shift=STEPS, coordinates=count * units)
        assert 0.99e-5 < delta <= 1e-5
    assert subject.spent(count) == pytest.approx(2.0, rel=1e-3) and subject.spent(0) == 0


def test_scales_that_are_known_by_heart():
    """Laplace: C / epsilon. Gaussian: 3.731 C at epsilon 1, delta 1e-5, and sqrt(T) of it (Balle and Wang 2018)."""
    assert channel().noises[0].scale == STEPS
    assert channel(mechanism="gaussian").noises[0].scale == pytest.approx(3.731 * STEPS, rel=2e-4)
    per_loss = channel("per_loss", "gaussian", releases=10)
    assert per_loss.noises[3].scale == pytest.approx(11.80 * STEPS, rel=5e-4)


def test_diagonal_noise_falls_on_the_first_losses():
    scales = np.array([noise.scale for noise in channel("diagonal", "gaussian", releases=6).noises])
    assert np.all(np.diff(scales) > 0)
    # w_s^2 in proportion to sqrt(sum over t >= s of 1 / t^2), here for 6: 1.4914 in all, 1 / 36 in the last
    assert (scales[-1] / scales[0]) ** 2 == pytest.approx(np.sqrt(1.491389 / (1 / 36)), rel=1e-5)


def test_each_new_loss_is_noised_once_and_the_server_averages():
    subject, memory = channel("per_loss", "gaussian", epsilon=8.0), Memory.fresh()
    series, told = [1.0, 3.0, 2.0, 4.0, 0.0], []
    for loss in series:
        upload, memory = subject.encode(losses([0.123], [loss]), memory, NoNoise())
        told.append(float(subject.rows(0, upload).values[0]))
    assert told == [1.0, 2.0, 2.0, 2.0, 2.0], "after three releases the last is sent again"
    noise = seeded(1)
    upload, memory = subject.encode(losses(np.ones(5)), Memory.fresh(), noise)
    again, _ = subject.encode(losses(np.ones(5)), memory, noise)
    first, second = upload["total"], again["total"] - upload["total"]
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize(("noising", "mechanism"), PLANS)
def test_the_noise_of_a_row_is_what_the_server_is_told(noising, mechanism):
    subject, noise, memory = channel(noising, mechanism), seeded(5), Memory.fresh()
    for number in range(1, subject.budget.releases + 1):
        upload, memory = subject.encode(losses(np.full(4000, 2.0)), memory, noise)
        row = subject.rows(0, upload)
        # 4,000 numbers: a Gaussian's standard deviation is known to 1.1 %, a Laplace's to 1.8 % (one of them)
        assert np.std(row.values) == pytest.approx(row.sd, rel=0.08)
        assert row.kind == ("laplace" if mechanism == "laplace" and number == 1 else "gaussian")
        assert abs(row.values.mean() - 2.0) < 5 * row.sd / 4000**0.5


@pytest.mark.parametrize(("noising", "mechanism"), PLANS)
def test_past_the_cap_the_last_release_is_sent_again(noising, mechanism):
    subject, memory = channel(noising, mechanism), Memory.fresh()
    for number in range(subject.budget.releases):
        upload, memory = subject.encode(losses(np.full(20, number)), memory, SystemNoise())
    again, later = subject.encode(losses(np.full(20, 3.5)), memory, SystemNoise())
    assert again["total"].tolist() == upload["total"].tolist() and again["losses"] == upload["losses"]
    assert later.releases == memory.releases == subject.budget.releases


def test_what_leaves_is_whole_steps():
    upload, _ = channel().encode(losses([0.1, 0.2, 3.3]), Memory.fresh(), SystemNoise())
    assert {name: array.dtype for name, array in upload.items()} == {"total": np.int64, "losses": np.int64}
    values = channel().rows(0, upload).values
    assert np.array_equal(values / (LARGEST / STEPS), np.round(values / (LARGEST / STEPS)))


TOTAL, HELD = np.zeros(3, np.int64), np.array([1])


@pytest.mark.parametrize(
    ("upload", "message"),
    [
        ({}, "int64 vectors named total, not empty, and losses"),
        ({"total": TOTAL}, "int64 vectors"),
        ({"total": TOTAL, "losses": HELD, "more": HELD}, "int64 vectors"),
        ({"total": TOTAL.astype(float), "losses": HELD}, "int64 vectors"),
        ({"total": TOTAL[:0], "losses": HELD}, "int64 vectors"),
        ({"total": TOTAL[:, None], "losses": HELD}, "int64 vectors"),
        ({"total": TOTAL, "losses": np.array(1)}, "int64 vectors"),
        ({"total": TOTAL, "losses": np.array([0])}, "a sum of 0 losses, allowed: from 1 to 3"),
        ({"total": TOTAL, "losses": np.array([4])}, "a sum of 4 losses, allowed: from 1 to 3"),
        ({"total": TOTAL - 2**41, "losses": HELD}, "steps, allowed: from"),
        ({"total": np.full(3, -(2**63)), "losses": HELD}, "steps, allowed: from"),
    ],
)
def test_any_other_upload_is_refused_and_the_client_named(upload, message):
    with pytest.raises(UploadError, match=rf"client 6: .*{message}"):
        channel("per_loss", "gaussian").rows(6, upload)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: channel(adjacency="add-remove"), "adjacency: add-remove, allowed with the noisy channel: replace-one"),
        (lambda: channel(releases=2), "releases: 2, allowed with the plan once: 1"),
        (lambda: channel("diagonal", "laplace"), "mechanism: laplace, allowed with the plan diagonal: gaussian"),
    ],
)
def test_plans_that_cannot_be_are_refused(make, message):
    with pytest.raises(PrivacyError, match=message):
        make()


def test_the_claim_is_pure_for_laplace_and_none_for_seeded_noise():
    (pure,), (gauss,), (none,) = (
        channel().claims(),
        channel(mechanism="gaussian").claims(),
        channel(insecure=True).claims(),
    )
    assert (pure.epsilon, pure.delta) == (1.0, 0.0) and (gauss.epsilon, gauss.delta) == (1.0, 1e-5)
    assert "Laplace" in pure.mechanism and "4 nats" in pure.mechanism and none.epsilon is None
