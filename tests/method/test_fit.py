"""The fit to any evidence: scikit-learn's likelihood without noise, and what noise may cost."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import slow_sieve
from sklearn.mixture import GaussianMixture

from fedgr_secure.method.evidence import NoisyCounts, NoisyValues, RawValues, combine
from fedgr_secure.method.fit import fit_evidence, noisy_verdict
from fedgr_secure.method.sieve import Mixture, judge

CAP = 2 * np.log(10)
EDGES = CAP * np.linspace(0, 1, 25) ** 1.5


def skewed(samples=900, seed=0, clean=0.5, shape=1.0, mean=0.5, wrong=2.6, spread=0.7):
    """Losses as a run has them, skewed near 0 where the label is right, and which labels are wrong."""
    draw = np.random.default_rng(seed)
    is_wrong = draw.random(samples) > clean
    values = np.where(is_wrong, draw.normal(wrong, spread, samples), draw.gamma(shape, mean / shape, samples))
    return np.clip(values, 0, CAP), is_wrong


def two_gaussians(samples=2000, seed=0, variances=(0.1, 0.15)):
    """Losses of the very mixture that is fitted: means 0.5 and 2.5, weights 0.6 and 0.4."""
    draw = np.random.default_rng(seed)
    component = draw.choice(2, samples, p=[0.6, 0.4])
    return draw.normal(np.array([0.5, 2.5])[component], np.sqrt(np.array(variances)[component]))


def counted(values, sd=0.0, seed=0, edges=EDGES):
    """A histogram with noise."""
    counts = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]
    noisy = counts + np.random.default_rng(seed).normal(0, sd, len(counts))
    return NoisyCounts(edges, noisy, float(sd) ** 2, float(len(values)))


def noisy(values, sd, kind, seed=0, **more):
    """Values with noise."""
    draw = np.random.default_rng(seed + 1000)
    noise = draw.normal(0, 1, len(values)) if kind == "gaussian" else draw.laplace(0, np.sqrt(0.5), len(values))
    return NoisyValues(values + sd * noise, sd, kind, **more)


def accuracy(mixture, values, is_wrong):
    """Share of right verdicts from exact losses."""
    return np.mean((mixture.clean_probability(values) < 0.5) == is_wrong)


def numbers(mixture):
    """All parameters in a row."""
    return np.array([*mixture.means, *mixture.variances, *mixture.weights])


# without noise


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("variances, covariance", [("free", "full"), ("tied", "tied")])
def test_exact_losses_reach_scikit_learns_likelihood(variances, covariance, seed):
    values = skewed(600, seed, clean=0.3 + 0.1 * seed)[0]
    theirs = GaussianMixture(
        2, covariance_type=covariance, tol=1e-12, max_iter=20_000, reg_covar=5e-4, random_state=seed
    ).fit(values[:, None])
    mixture = fit_evidence(RawValues(values), seed=seed, variances=variances)
    ours = RawValues(values).log_likelihood(*np.array([mixture.means, mixture.variances, mixture.weights]))
    assert ours / 600 > theirs.score(values[:, None]) - 1e-6
    if variances == "tied":
        assert mixture.variances[0] == mixture.variances[1]
        np.testing.assert_allclose(mixture.means, np.sort(theirs.means_.ravel()), atol=2e-3)


@pytest.mark.parametrize("variances", ["free", "tied", "auto"])
def test_all_evidence_without_noise_gives_nearly_one_mixture(variances):
    values = two_gaussians()
    exact = fit_evidence(RawValues(values), seed=0, variances=variances)
    for kind in ("gaussian", "laplace"):
        still = fit_evidence(NoisyValues(values, np.zeros(2000), kind), seed=0, variances=variances)
        np.testing.assert_allclose(numbers(still), numbers(exact), atol=1e-6)
    fine = np.linspace(-2, 6, 801)
    np.testing.assert_allclose(
        numbers(fit_evidence(counted(values, edges=fine), seed=0, variances=variances)), numbers(exact), atol=1e-3
    )


@pytest.mark.parametrize(
    "variances, note, ratio",
    [("free", "free variances", np.inf), ("tied", "tied variances", 1), ("auto", "variances within a factor of 2", 2)],
)
def test_the_note_names_the_family_and_the_family_holds(variances, note, ratio):
    mixture = fit_evidence(RawValues(skewed()[0]), seed=0, variances=variances)
    assert mixture.note == note and not mixture.all_clean
    largest = max(mixture.variances) / min(mixture.variances)
    # the bound is on what lies above the floor of 5e-4
    assert largest <= ratio and (largest > 0.99 * ratio or largest > 4)


def test_free_variances_flag_right_labels_that_auto_keeps():
    """The reason for the default: the likelihood prefers the free fit, by far, and its verdicts are worse."""
    values, is_wrong = skewed()
    free, auto = (fit_evidence(RawValues(values), seed=0, variances=v) for v in ("free", "auto"))
    likelihoods = [RawValues(values).log_likelihood(m.means, m.variances, np.array(m.weights)) for m in (free, auto)]
    assert likelihoods[0] > likelihoods[1] + 20
    assert accuracy(auto, values, is_wrong) > accuracy(free, values, is_wrong) + 0.02


def test_equal_seeds_give_equal_fits():
    evidence = counted(skewed()[0], 17.0)
    assert fit_evidence(evidence, seed=3) == fit_evidence(evidence, seed=3)


def test_the_order_of_values_does_not_matter():
    values = skewed()[0]
    turned = fit_evidence(RawValues(values[::-1]), seed=0)
    np.testing.assert_allclose(numbers(turned), numbers(fit_evidence(RawValues(values), seed=0)), atol=1e-6)


# with noise


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_the_noise_is_taken_out_of_the_variances(kind):
    """Noise of variance 0.36 on components of 0.1 and 0.15; 6,000 values settle the variances to about 0.03."""
    values = two_gaussians(6000)
    evidence = noisy(values, 0.6, kind)
    mixture = fit_evidence(evidence, seed=0, variances="free")
    np.testing.assert_allclose(mixture.means, [0.5, 2.5], atol=0.06)
    np.testing.assert_allclose(mixture.variances, [0.1, 0.15], atol=0.06)
    np.testing.assert_allclose(mixture.weights, [0.6, 0.4], atol=0.02)
    blind = fit_evidence(RawValues(evidence.values), seed=0, variances="free")
    assert min(blind.variances) > 0.3, "the test has power: left out, the noise is in the variances"


def test_values_of_little_noise_count_for_more():
    """A hundred clear values among 1,900 drowned ones: told apart, they settle the means; told alike, they do not."""
    values, draw = two_gaussians(2000), np.random.default_rng(0)
    sd = np.where(np.arange(2000) < 200, 0.1, 5.0)
    heard = values + draw.normal(0, 1, 2000) * sd
    apart = fit_evidence(NoisyValues(heard, sd, bounds=(0, CAP)), seed=0)
    np.testing.assert_allclose(apart.means, [0.5, 2.5], atol=0.15)
    alike = fit_evidence(NoisyValues(heard, float(np.sqrt(np.mean(sd**2))), bounds=(0, CAP)), seed=0)
    assert alike.all_clean or np.abs(np.subtract(alike.means, [0.5, 2.5])).max() > 0.15


@pytest.mark.parametrize("variances", ["tied", "auto"])
def test_noise_of_sd_5_on_900_losses_costs_half_a_point(variances):
    lost = []
    for seed in range(12):
        values, is_wrong = skewed(900, seed, clean=[0.3, 0.5, 0.75][seed % 3])
        exact, heard = (
            fit_evidence(e, seed=0, variances=variances) for e in (counted(values), counted(values, 5.0, seed))
        )
        lost.append(accuracy(exact, values, is_wrong) - accuracy(heard, values, is_wrong))
    assert np.mean(lost) < 0.005


def test_noise_left_out_of_the_counts_costs_more():
    """Noise of sd 40 a bin pulls the variances of a fit that does not know it; the prior is the same for both."""
    off = {"told": [], "not told": []}
    for seed in range(16):
        evidence = counted(two_gaussians(2000, seed, (0.15, 0.15)), 40.0, seed)
        for name, told in (("told", evidence), ("not told", replace(evidence, variance=1.0))):
            error = numbers(fit_evidence(told, seed=0)) - [0.5, 2.5, 0.15, 0.15, 0.6, 0.4]
            off[name].append(np.abs(error).sum())
    assert np.mean(off["told"]) < 0.8 * np.mean(off["not told"]), {k: np.mean(v) for k, v in off.items()}
    assert np.mean(off["told"]) < 0.3


def test_the_noise_of_each_bin_is_its_own():
    """Sixteen clear bins and eight drowned ones: told of each, the fit listens to the clear ones."""
    off = []
    for seed in range(8):
        clear = counted(two_gaussians(2000, seed, (0.15, 0.15)))
        sd = np.where(np.arange(24) % 3 == 0, 300.0, 1.0)
        drowned = clear.counts + sd * np.random.default_rng(seed).normal(0, 1, 24)
        for variance in (sd**2, float(np.mean(sd**2))):
            mixture = fit_evidence(replace(clear, counts=drowned, variance=variance), seed=0)
            off.append(np.abs(numbers(mixture) - [0.5, 2.5, 0.15, 0.15, 0.6, 0.4]).sum())
    assert np.mean(off[::2]) < 0.15 and np.mean(off[1::2]) > 0.5, (off[::2], off[1::2])


def test_a_window_of_rounds_hears_what_one_round_does_not():
    right = {"one": [], "window": []}
    for seed in range(8):
        window = None
        for number in range(6):
            values, is_wrong = skewed(900, 10 * seed + number)
            newest = counted(values, 40.0, 10 * seed + number)
            window = combine(window, newest, 0.9)
        for name, evidence in (("one", newest), ("window", window)):
            right[name].append(accuracy(fit_evidence(evidence, seed=0), values, is_wrong))
    assert np.mean(right["window"]) > max(np.mean(right["one"]), 0.9), right


def test_what_noise_hides_is_not_taken_for_one_mode():
    """By plain AIC, with every parameter at full price, ten of these sixteen cohorts are one mode, so all clean."""
    heard = (noisy(skewed(900, seed)[0], 2.0, "gaussian", seed, bounds=(0, CAP)) for seed in range(16))
    assert sum(fit_evidence(evidence, seed=0).all_clean for evidence in heard) <= 2


# one mode

ONE_MODE = np.random.default_rng(0).normal(2.0, 0.3, 900)


@pytest.mark.parametrize(
    "evidence, note",
    [
        (RawValues(ONE_MODE), "one mode"),
        (RawValues(np.full(50, 1.7)), "one mode"),
        (RawValues(np.zeros(10)), "one mode"),
        (RawValues(np.array([0.1, 0.2, 5.0])), "only 3 losses"),
        (RawValues(np.empty(0)), "only 0 losses"),
        (noisy(ONE_MODE, 0.5, "gaussian"), "one mode"),
        (noisy(ONE_MODE, 0.5, "laplace"), "one mode"),
        (counted(ONE_MODE), "one mode"),
        (counted(ONE_MODE, 5.0), "one mode"),
        (counted(np.empty(0), 5.0), "only 0 losses"),
        (NoisyCounts(EDGES, np.zeros(24), 1e8, 900.0), "one mode"),
    ],
)
def test_evidence_that_does_not_separate_is_all_clean_and_says_why(evidence, note):
    mixture = fit_evidence(evidence, seed=0)
    assert mixture.all_clean and mixture.note.startswith("all clean: " + note)
    assert judge(mixture, np.array([0.0, 50.0])).noise_rate == 0.0


def test_one_mode_keeps_its_mean_and_variance():
    mixture = fit_evidence(noisy(ONE_MODE, 0.5, "gaussian"), seed=0)
    assert mixture.means == pytest.approx((2.0, 2.0), abs=0.05)
    assert mixture.variances == pytest.approx((0.09, 0.09), abs=0.06)


@pytest.mark.parametrize("sd", [5.0, 40.0, 1000.0])
def test_noise_alone_sends_no_fit_beyond_the_losses(sd):
    for seed in range(5):
        counts = np.random.default_rng(seed).normal(0, sd, 24)
        mixture = fit_evidence(NoisyCounts(EDGES, counts, sd**2, 900.0), seed=0)
        assert -1 < mixture.means[0] <= mixture.means[1] < CAP + 1 and max(mixture.variances) < CAP**2


@given(
    counts=st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=8),
    sd=st.sampled_from([0.0, 0.1, 10.0, 1e5]),
    total=st.floats(0, 1e6),
)
@settings(max_examples=25, deadline=None)
def test_any_counts_give_a_mixture(counts, sd, total):
    edges = np.linspace(0, CAP, len(counts) + 1)
    mixture = fit_evidence(NoisyCounts(edges, np.array(counts), sd**2, total), seed=0)
    assert np.isfinite(numbers(mixture)).all()


@given(
    values=st.lists(st.floats(-50, 50), max_size=12),
    sd=st.sampled_from([0.0, 1e-3, 1.0, 1e3]),
    kind=st.sampled_from(["gaussian", "laplace"]),
)
@settings(max_examples=25, deadline=None)
def test_any_values_give_a_mixture_and_a_verdict(values, sd, kind):
    evidence = NoisyValues(np.array(values, dtype=np.float64), sd, kind)
    mixture = fit_evidence(evidence, seed=0)
    assert np.isfinite(numbers(mixture)).all()
    if values:
        verdict = noisy_verdict(mixture, evidence)
        assert ((verdict.q >= 0) & (verdict.q <= 1)).all() and 0 <= verdict.noise_rate <= 1


# verdicts

MIXTURE = Mixture((0.4, 2.5), (0.2, 0.3), (0.6, 0.4))


def test_without_noise_the_posterior_is_the_sieves():
    values = np.linspace(-1, 5, 61)
    np.testing.assert_allclose(noisy_verdict(MIXTURE, RawValues(values)).q, judge(MIXTURE, values).q, rtol=1e-9)


def test_the_posterior_knows_the_noise():
    wider = Mixture((0.4, 2.5), (0.2 + 0.64, 0.3 + 0.64), (0.6, 0.4))
    values = [-3.0, 0.4, 1.4, 2.0, 6.0]
    expected = [slow_sieve.clean_probability(wider, value) for value in values]
    np.testing.assert_allclose(noisy_verdict(MIXTURE, NoisyValues(np.array(values), 0.8)).q, expected, rtol=1e-9)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_the_rate_of_largest_likelihood_beats_counting_verdicts(kind):
    """200 clients of 72 losses, rates U(0.1, 0.9), noise of sd 1.5."""
    draw, errors = np.random.default_rng(7), {"likelihood": [], "counting": []}
    for client in range(200):
        wrong = (draw.random(72) < draw.uniform(0.1, 0.9)).astype(int)
        values = draw.normal(np.array(MIXTURE.means)[wrong], np.sqrt(np.array(MIXTURE.variances)[wrong]))
        verdict = noisy_verdict(MIXTURE, noisy(values, 1.5, kind, client))
        errors["likelihood"].append(abs(verdict.noise_rate - wrong.mean()))
        errors["counting"].append(abs(np.mean(verdict.q < 0.5) - wrong.mean()))
    assert np.mean(errors["likelihood"]) < 0.85 * np.mean(errors["counting"]), {
        k: np.mean(v) for k, v in errors.items()
    }


def test_the_rate_is_the_likeliest():
    evidence = noisy(two_gaussians(60), 1.0, "laplace")
    rate = noisy_verdict(MIXTURE, evidence).noise_rate
    grid = np.linspace(0.001, 0.999, 999)
    likeliest = grid[
        np.argmax([evidence.log_likelihood(MIXTURE.means, MIXTURE.variances, np.array([1 - r, r])) for r in grid])
    ]
    assert rate == pytest.approx(likeliest, abs=0.001)


def test_a_client_may_be_wholly_clean_or_wholly_wrong():
    assert noisy_verdict(MIXTURE, NoisyValues(np.full(20, 0.1), 0.1)).noise_rate == 0.0
    assert noisy_verdict(MIXTURE, NoisyValues(np.full(20, 3.0), 0.1)).noise_rate == 1.0
    everyone = noisy_verdict(replace(MIXTURE, weights=(1.0, 0.0), all_clean=True), RawValues(np.array([9.0])))
    assert everyone.q.tolist() == [1.0] and everyone.noise_rate == 0.0
