"""The histogram channel: counts move by what the claim says, the noise adds up to what it needs, and the cap holds."""

import functools

import numpy as np
import pytest
from channel_driver import LARGEST, NoNoise, budget, losses, seeded
from hypothesis import given
from hypothesis import strategies as st

from privacy.accounting import discrete_gaussian_delta
from privacy.budget import Schedule
from privacy.channels.channel import Memory
from privacy.channels.histogram import HistogramProxies
from privacy.errors import PrivacyError
from privacy.mechanisms import SystemNoise

EDGES = tuple(np.linspace(0, LARGEST, 9))


@functools.cache  # it is frozen, and takes tens of milliseconds to calibrate
def channel(honest=5, insecure=False, schedule=None, **changes):
    return HistogramProxies(budget(**changes), EDGES, honest, schedule or Schedule(2, 4, 3), insecure)


ANY = st.floats(allow_nan=False, allow_infinity=True, width=32) | st.sampled_from([0.0, LARGEST, *EDGES])
RECORDS = st.lists(ANY, min_size=1, max_size=40)


def test_losses_are_counted_in_their_bins():
    counts = channel().count(np.array([0.0, 0.49, 0.5, 3.9, 4.0, 99.0, np.inf, -1.0, -np.inf]))
    assert counts.tolist() == [4, 1, 0, 0, 0, 0, 0, 4] and counts.dtype == np.int64


@given(RECORDS, ANY, st.integers(0, 39), st.sampled_from(["replace-one", "label", "add-remove"]))
def test_a_record_moves_the_counts_by_what_the_noise_is_made_for(records, other, place, adjacency):
    """Replacing a loss (or a label, and with it the loss) moves two counts by one; one record more moves one by one."""
    subject = channel(adjacency=adjacency)
    changed = [*records, other]
    if adjacency != "add-remove":
        changed = [*records]
        changed[place % len(records)] = other
    moved = subject.count(np.array(changed)) - subject.count(np.array(records))
    assert np.abs(moved).max() <= 1 and np.abs(moved).sum() <= subject._moves


@given(st.lists(st.tuples(ANY, ANY), min_size=1, max_size=64))
def test_a_client_moves_no_count_by_more_than_its_records(pairs):
    subject = channel(adjacency="client")
    one, other = (subject.count(np.array(side)) for side in zip(*pairs, strict=True))
    assert np.abs(one - other).max() <= len(pairs) <= subject.budget.units == 64
    assert np.square(one - other).sum() <= subject._moves * len(pairs) ** 2


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove", "label", "client"])
@pytest.mark.parametrize(
    ("epsilon", "releases", "honest"), [(0.1, 1, 5), (1.0, 1, 5), (1.0, 10, 5), (1.0, 3, 13), (4.0, 6, 2)]
)
def test_the_honest_clients_noise_keeps_the_budget_over_all_releases_and_hardly_more(
    adjacency, epsilon, releases, honest
):
    subject = channel(epsilon=epsilon, releases=releases, honest=honest, adjacency=adjacency)
    moves, shift = {"add-remove": 1}.get(adjacency, 2) * releases, 64 if adjacency == "client" else 1
    spent = discrete_gaussian_delta(epsilon, sigma=subject.sigma, shift=shift, coordinates=moves, summands=honest)
    assert spent <= 1e-5
    assert subject.spent(releases) <= epsilon * (1 + 1e-6)
    at_its_floor = subject.sigma < 1.2  # narrower sums of discrete Gaussians are not accounted
    assert at_its_floor or subject.spent(releases) > 0.97 * epsilon
    assert subject.spent(0) == 0 and (releases == 1 or subject.spent(releases - 1) < subject.spent(releases))


def test_one_release_is_known_by_heart():
    """sqrt(2) / 0.268 = 5.276 counts for epsilon 1 at 1e-5 (Balle and Wang 2018), of which each of 5 adds a share."""
    assert channel(releases=1).sigma == pytest.approx(5.276 / 5**0.5, rel=1e-3)
    assert channel(releases=4).sigma == pytest.approx(2 * 5.276 / 5**0.5, rel=1e-3)


def test_the_sum_of_honest_shares_has_the_variance_that_the_fit_is_told():
    subject, memory = channel(releases=1), Memory.fresh()
    empty = losses([])
    noise = seeded(3)
    sums = [sum(subject.encode(empty, memory, noise)[0]["counts"] for _ in range(7)) for _ in range(800)]
    measured = np.var(sums)
    # 6,400 numbers: the variance is known to 2 sqrt(2 / 6400) = 3.5 % (two standard deviations)
    assert measured == pytest.approx(subject.variance(7), rel=0.06)
    assert subject.variance(7) == pytest.approx(7 / 5 * 5.276**2, rel=1e-3)


def test_what_leaves_is_integers_with_noise_of_the_system():
    subject = channel()
    uploads = [subject.encode(losses(np.full(64, 1.0)), Memory.fresh(), SystemNoise())[0] for _ in range(2)]
    assert all(set(upload) == {"counts"} and upload["counts"].dtype == np.int64 for upload in uploads)
    assert uploads[0]["counts"].tolist() != uploads[1]["counts"].tolist()


def test_past_its_releases_a_client_adds_noise_alone():
    subject, memory = channel(releases=2), Memory.fresh()
    told = []
    for _ in range(4):
        upload, memory = subject.encode(losses(np.full(10, 0.1)), memory, NoNoise())
        told.append((int(upload["counts"].sum()), memory.releases))
    assert told == [(10, 1), (10, 2), (0, 2), (0, 2)]


def test_a_count_stays_in_the_public_range_of_the_sum():
    class Huge(NoNoise):
        def gaussian(self, sigma, size):
            return np.full(size, 10**12) * np.resize([1, -1], size)

    subject = channel()
    counts = subject.encode(losses(np.zeros(64)), Memory.fresh(), Huge())[0]["counts"]
    assert set(np.abs(counts).tolist()) == {subject.largest_count}
    assert subject.largest_count >= 64 + 15 * subject.sigma


def test_releases_follow_the_schedule():
    assert [round for round in range(12) if channel().due(round)] == [2, 3, 4, 7, 10]
    assert [round for round in range(12) if channel(schedule=Schedule(2, 4, 0)).due(round)] == [2, 3]


def test_the_claim_has_everything_that_its_epsilon_depends_on():
    (claim,) = channel(epsilon=0.5, releases=6).claims()
    assert (claim.subject, claim.channel, claim.epsilon, claim.delta) == ("loss proxies", "histogram", 0.5, 1e-5)
    assert claim.adjacency == "replace-one" and "no" in claim.sampling and "discrete Gaussians" in claim.mechanism
    for part in ("at most 6 times", "at least 5", "8 bins", "any fixed sequence of models"):
        assert part in claim.statement


def test_seeded_noise_claims_nothing():
    (claim,) = channel(insecure=True).claims()
    assert claim.epsilon is None and "simulation" in claim.statement.lower()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.0}, r"epsilon: 0\.0, allowed: a finite number above 0"),
        ({"epsilon": -1.0}, "epsilon: -1"),
        ({"epsilon": float("nan")}, "epsilon: nan"),
        ({"epsilon": float("inf")}, "epsilon: inf"),
        ({"delta": 0.0}, r"delta: 0\.0, allowed: above 0 and below 1/n = 0\.001 for 1000 records"),
        ({"delta": 1e-3}, r"delta: 0\.001, allowed: above 0 and below 1/n"),
        ({"releases": 0}, "releases: 0, allowed: an integer from 1"),
    ],
)
def test_budgets_that_promise_nothing_are_refused(changes, message):
    with pytest.raises(PrivacyError, match=f"^{message}"):
        budget(**changes)
