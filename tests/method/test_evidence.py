"""Evidence about losses: each likelihood against a slow one, and against noise of another size than it was told."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from reference import slow_evidence
from scipy.stats import multinomial, norm

from fedgr_secure.errors import InputError
from fedgr_secure.method.densities import bin_probabilities
from fedgr_secure.method.evidence import NoisyCounts, NoisyValues, RawValues, combine

MEANS, VARIANCES, WEIGHTS = np.array([0.3, 2.0]), np.array([0.1, 0.5]), np.array([0.6, 0.4])
TRUTH = np.stack([MEANS, VARIANCES, WEIGHTS])
OTHER = np.array([[0.5, 2.2], [0.2, 0.3], [0.5, 0.5]])
EDGES = np.linspace(0, 4.6, 25)


def losses(samples, seed=0):
    """Losses of the true mixture."""
    draw = np.random.default_rng(seed)
    component = draw.choice(2, samples, p=WEIGHTS)
    return draw.normal(MEANS[component], np.sqrt(VARIANCES[component]))


def probabilities(parameters, edges=EDGES):
    """P(bin) of a mixture, the outermost bins open."""
    ends = [-math.inf, *edges[1:-1], math.inf]
    bins = [
        [slow_evidence.bin_probability(low, high, *component) for component in parameters[:2].T]
        for low, high in pairwise(ends)
    ]
    return np.array(bins) @ parameters[2]


TRUE_BINS = probabilities(TRUTH)


def noise(kind, sd, shape, draw):
    """Noise of one kind."""
    return draw.normal(0, sd, shape) if kind == "gaussian" else draw.laplace(0, sd / math.sqrt(2), shape)


def counted(samples, sd, draw, sampling=1.0):
    """A noisy histogram of losses of the true mixture."""
    counts = draw.multinomial(samples, TRUE_BINS) + draw.normal(0, sd, 24)
    return NoisyCounts(EDGES, counts, float(sd**2), float(samples), sampling)


# densities


@pytest.mark.parametrize("ratio", [0.01, 0.1, 1.0, 10.0, 100.0])
def test_laplace_noise_is_folded_into_the_component(ratio):
    scale = ratio * math.sqrt(0.1)
    values = 0.3 + max(1.0, scale) * np.array([-6.0, -1.0, -0.1, 0.0, 0.4, 3.0])
    evidence = NoisyValues(values, scale * math.sqrt(2), "laplace")
    expected = [slow_evidence.noisy_density(z, 0.3, 0.1, lambda x: slow_evidence.laplace(x, scale)) for z in values]
    ours = evidence.log_densities(MEANS, VARIANCES)[:, 0]
    near = np.array(expected) > 1e-290
    np.testing.assert_allclose(ours[near], np.log(np.array(expected)[near]), rtol=1e-6, atol=1e-6)
    assert near.sum() >= 5 and np.isfinite(ours).all()


@pytest.mark.parametrize("ratio", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_densities_integrate_to_one(kind, ratio):
    reach = 12 * (1 + ratio)
    grid = np.linspace(-reach, reach, 400_001)
    density = np.exp(NoisyValues(grid, ratio, kind).log_densities(np.zeros(2), np.ones(2))[:, 0])
    assert density.sum() * (grid[1] - grid[0]) == pytest.approx(1, abs=1e-6)


def test_gaussian_noise_adds_its_variance():
    values, sd = np.array([0.0, 1.0, 4.0]), np.array([0.0, 0.5, 2.0])
    expected = norm.logpdf(values[:, None], MEANS, np.sqrt(VARIANCES + sd[:, None] ** 2))
    np.testing.assert_allclose(NoisyValues(values, sd).log_densities(MEANS, VARIANCES), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_no_noise_is_exact_values(kind):
    values = losses(30)
    raw = RawValues(values)
    assert raw.exact and NoisyValues(values, 0.0, kind).exact and not NoisyValues(values, 0.1, kind).exact
    expected, slopes = raw.slopes(TRUTH)
    for sd in (0.0, np.zeros(30)):
        value, ours = NoisyValues(values, sd, kind).slopes(TRUTH)
        assert value == expected and np.array_equal(ours, slopes)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_each_value_has_the_noise_of_its_own_client(kind):
    values, sd = losses(6), np.array([0.0, 0.01, 0.5, 0.5, 3.0, 0.0])
    alone = sum(NoisyValues(values[[i]], sd[i], kind).log_likelihood(*TRUTH) for i in range(6))
    assert NoisyValues(values, sd, kind).log_likelihood(*TRUTH) == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize("sd", [0.0, 1e-4, 1.0, 1e4])
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_far_values_have_finite_likelihoods_and_slopes(kind, sd):
    value, slopes = NoisyValues(np.array([-1e6, 0.3, 1e6]), sd, kind).slopes(TRUTH)
    assert np.isfinite(value) and np.isfinite(slopes).all()


# counts


def test_counts_without_noise_are_multinomial():
    draw = np.random.default_rng(0)
    evidence = counted(900, 0.0, draw)
    assert evidence.exact
    ours = evidence.log_likelihood(*TRUTH) - evidence.log_likelihood(*OTHER)
    theirs = [multinomial.logpmf(evidence.counts, 900, probabilities(p)) for p in (TRUTH, OTHER)]
    assert ours == pytest.approx(theirs[0] - theirs[1], rel=1e-9)


def test_counts_with_much_noise_are_gaussian():
    evidence = counted(900, 200.0, np.random.default_rng(0))
    ours = evidence.log_likelihood(*TRUTH) - evidence.log_likelihood(*OTHER)
    expected = [900 * probabilities(p) for p in (TRUTH, OTHER)]
    theirs = [norm.logpdf(evidence.counts, e, np.sqrt(e + 200.0**2)).sum() for e in expected]
    assert ours == pytest.approx(theirs[0] - theirs[1], rel=0.05)


def test_the_outermost_bins_take_everything_beyond_them():
    everything = NoisyCounts(np.array([1.0, 2.0, 3.0]), np.array([5.0, 95.0]), 0.0, 100.0)
    below = slow_evidence.bin_probability(-math.inf, 2.0, 7.0, 1.0)
    log_likelihood = everything.log_likelihood(np.full(2, 7.0), np.ones(2), WEIGHTS)
    expected = 5 * math.log(100 * below / 5) + 95 * math.log(100 * (1 - below) / 95)
    assert log_likelihood == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("edges, at", [([0.0, 20.0, 30.0], 1), ([-30.0, -20.0, 0.0], 0)])
def test_far_bins_keep_their_digits(edges, at):
    """P(x > 20 deviations) is 2.8e-89: differences of Phi near 1 would give 0."""
    bins, _, _ = bin_probabilities(np.array(edges), np.zeros(2), np.ones(2))
    np.testing.assert_allclose(bins[at], norm.sf(20), rtol=1e-9)


# slopes

EVIDENCE = {
    "raw": RawValues(losses(50)),
    "gaussian": NoisyValues(losses(50), 0.5),
    "laplace": NoisyValues(losses(50), 0.5, "laplace"),
    "laplace, some exact": NoisyValues(losses(50), np.repeat([0.0, 0.4], 25), "laplace"),
    "counts": counted(450, 0.0, np.random.default_rng(1)),
    "noisy counts": replace(counted(450, 6.0, np.random.default_rng(1)), sampling=0.7),
}


@pytest.mark.parametrize("name", EVIDENCE)
def test_slopes_are_those_of_the_likelihood(name):
    evidence, step = EVIDENCE[name], 1e-6
    value, slopes = evidence.slopes(OTHER)
    assert value == evidence.log_likelihood(*OTHER)
    for index in np.ndindex(3, 2):
        change = np.zeros((3, 2))
        change[index] = step
        ends = [evidence.slopes(OTHER + sign * change)[0] for sign in (1, -1)]
        assert slopes[index] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-4), index


# the size of the noise


@pytest.mark.parametrize("told, fits", [(1.0, True), (2 / 3, False), (3 / 2, False), (0.0, False)])
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_values_fit_only_the_noise_they_carry(kind, told, fits):
    """At the truth every slope is 0 on average: five standard errors of 4,000 values tell sd from 2/3 and 3/2 of it."""
    draw = np.random.default_rng(3)
    sd = np.repeat([0.5, 0.8], 2000)
    values = losses(4000) + noise(kind, sd, 4000, draw)
    parts = [NoisyValues(values[i : i + 20], told * sd[i : i + 20], kind).slopes(TRUTH)[1] for i in range(0, 4000, 20)]
    slopes = np.array(parts)[:, :2]
    errors = slopes.mean(axis=0) / (slopes.std(axis=0) / math.sqrt(len(parts)))
    assert (np.abs(errors).max() < 5) == fits, errors


@pytest.mark.parametrize("told, fits", [(1.0, True), (2 / 3, False), (3 / 2, False), (0.0, False)])
def test_counts_fit_only_the_noise_they_carry(told, fits):
    """Twice the log likelihood lost at the truth is chi-squared, one degree a bin: 4,800 +- 98 of 200 histograms."""
    draw = np.random.default_rng(4)
    drawn = [counted(9000, 20.0, draw) for _ in range(200)]
    lost = -2 * sum(replace(e, variance=told**2 * 400.0).log_likelihood(*TRUTH) for e in drawn)
    assert (abs(lost - 4800) < 5 * 98) == fits, lost


# decayed sums


def test_a_decayed_sum_by_hand():
    old, new = (NoisyCounts(EDGES, np.full(24, c), v, t) for c, v, t in [(10.0, 4.0, 240.0), (5.0, 1.0, 120.0)])
    both = combine(combine(None, old, 0.5), new, 0.5)
    assert both.counts.tolist() == [10.0] * 24 and np.all(both.variance == 2.0) and both.total == 240.0
    # sampling variance 0.25 * 240 + 120 = 180 of a total of 240; a multinomial of 240^2 / 180 samples varies as much
    assert both.sampling == 0.75 and both.size == 320.0
    thrice = combine(both, new, 0.5)
    assert thrice.total == 240.0 and thrice.sampling == (0.0625 * 240 + 0.25 * 120 + 120) / 240


@pytest.fixture(scope="module")
def windows():
    """200 decayed sums of five rounds."""
    draw, sums = np.random.default_rng(5), []
    for _ in range(200):
        window = None
        for _ in range(5):
            window = combine(window, counted(9000, 20.0, draw), 0.6)
        sums.append(window)
    return sums


@pytest.mark.parametrize("changed, fits", [({}, True), ({"sampling": 1.0}, False), ({"variance": 400.0}, False)])
def test_a_decayed_sum_varies_as_it_says(windows, changed, fits):
    """As above, chi-squared: 4,800 +- 98 of 200 sums of five rounds, unless sampling or noise is left undecayed."""
    lost = -2 * sum(replace(window, **changed).log_likelihood(*TRUTH) for window in windows)
    assert (abs(lost - 4800) < 5 * 98) == fits, lost


def test_the_newest_alone_and_all_alike():
    old, new = counted(900, 5.0, np.random.default_rng(0)), counted(900, 5.0, np.random.default_rng(1))
    newest = combine(old, new, 0.0)
    assert np.array_equal(newest.counts, new.counts) and (newest.total, newest.sampling) == (900.0, 1.0)
    alike = combine(old, new, 1.0)
    assert (alike.total, alike.sampling) == (1800.0, 1.0) and np.all(alike.variance == 50.0)
    nobody = NoisyCounts(EDGES, np.zeros(24), 1.0, 0.0)
    assert combine(nobody, nobody, 0.5).size == 0.0


def test_histograms_of_other_edges_are_not_added():
    new = NoisyCounts(np.array([0.0, 1.0, 2.0]), np.zeros(2), 1.0, 5.0)
    old = NoisyCounts(np.array([0.0, 1.0, 3.0]), np.zeros(2), 1.0, 5.0)
    with pytest.raises(InputError, match=r"edges: \[0. 1. 2.\], allowed: those of the sum so far, \[0. 1. 3.\]"):
        combine(old, new, 0.5)
    with pytest.raises(InputError, match=r"decay: 1.5, allowed: from 0 to 1"):
        combine(new, new, 1.5)


# what is no evidence

COUNTS = {"edges": np.array([0.0, 1.0, 2.0]), "counts": np.array([3.0, 4.0]), "variance": 1.0, "total": 7.0}
REFUSED = {
    "values: 2 of 3 not finite": lambda: RawValues(np.array([1.0, np.nan, np.inf])),
    r"values: shape \(2, 1\), allowed: one vector": lambda: RawValues(np.ones((2, 1))),
    "sd: -1.0, allowed: finite numbers from 0": lambda: NoisyValues(np.ones(2), np.array([1.0, -1.0])),
    "sd: nan, allowed": lambda: NoisyValues(np.ones(2), math.nan),
    r"sd: shape \(3,\), allowed: \(\) or \(2,\)": lambda: NoisyValues(np.ones(2), np.ones(3)),
    "kind: 'cauchy', allowed: gaussian, laplace": lambda: NoisyValues(np.ones(2), 1.0, "cauchy"),
    r"bounds: \(2.0, 1.0\), allowed: two rising": lambda: NoisyValues(np.ones(2), 1.0, bounds=(2.0, 1.0)),
    r"edges: \[0. 2. 1.\], allowed: three": lambda: NoisyCounts(**COUNTS | {"edges": np.array([0.0, 2.0, 1.0])}),
    r"edges: \[ 0.  1. inf\]": lambda: NoisyCounts(**COUNTS | {"edges": np.array([0.0, 1.0, np.inf])}),
    r"counts: shape \(3,\), allowed: \(2,\)": lambda: NoisyCounts(**COUNTS | {"counts": np.ones(3)}),
    "counts: nan, allowed: finite": lambda: NoisyCounts(**COUNTS | {"counts": np.array([1.0, np.nan])}),
    "variance: -1.0, allowed": lambda: NoisyCounts(**COUNTS | {"variance": -1.0}),
    r"variance: shape \(1,\), allowed: \(\) or \(2,\)": lambda: NoisyCounts(**COUNTS | {"variance": np.ones(1)}),
    "total: -1.0, allowed: from 0": lambda: NoisyCounts(**COUNTS | {"total": -1.0}),
    "sampling: 0.0, allowed: above 0, at most 1": lambda: NoisyCounts(**COUNTS, sampling=0.0),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_no_evidence_is_refused_by_name(message):
    with pytest.raises(InputError, match=message):
        REFUSED[message]()
