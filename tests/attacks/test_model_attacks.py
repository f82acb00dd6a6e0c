"""Attacks on the models alone: toys with known answers, figures of the published codes, invariances, nothing to find.

The figures of published codes were printed by running them once on the arrays below: LiRA is tensorflow/privacy,
research/mi_lira_2021/plot.py at ff99230, RMIA is ml_privacy_meter, modules/mia/attacks/rmia.py at 0b8cb7a.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, norm

from attacks.lira import lira_offline, lira_online, logit_confidence
from attacks.loss_series import loss_mean, loss_trend
from attacks.loss_threshold import loss_threshold
from attacks.metrics import evaluate
from attacks.rmia import Population, rmia_offline, rmia_online
from fedgr_secure.errors import InputError

INSIDE = np.array([[1, 0, 1, 0, 1], [0, 1, 1, 0, 0], [1, 1, 0, 1, 0], [0, 0, 0, 1, 1]], bool)
CONFIDENCES = np.array(
    [[2.0, -1.0, 0.5, 3.0, 1.5], [0.5, 1.0, 1.5, 2.0, -0.5], [3.0, 2.0, -1.0, 4.5, 0.0], [1.0, -2.0, -0.5, 4.0, 2.0]]
)
TARGET = np.array([2.0, 0.0, 3.0, 3.5, -1.0])
SHADOWS = np.array(
    [[0.9, 0.3, 0.6, 0.95, 0.8], [0.6, 0.7, 0.8, 0.9, 0.4], [0.95, 0.9, 0.3, 0.99, 0.5], [0.7, 0.1, 0.4, 0.98, 0.9]]
)
LIKELY = np.array([0.92, 0.45, 0.97, 0.93, 0.2])
Z, Z_SHADOW = np.array([0.95, 0.5, 0.3, 0.8, 0.05, 0.99, 0.7]), np.array([0.9, 0.6, 0.2, 0.8, 0.3, 0.97, 0.4])


def population(shadows):
    return Population(Z, np.tile(Z_SHADOW, (shadows, 1)))


def known(mean_in, sd_in, mean_out, sd_out, count):
    """Two shadows in and two out, whose mean and unbiased variance are the ones asked for."""
    step = np.array([1, -1]) / np.sqrt(2)
    column = np.concatenate([mean_in + sd_in * step, mean_out + sd_out * step])
    return np.tile(column[:, None], count), np.tile([[True], [True], [False], [False]], count)


# the losses


def test_the_last_row_is_the_final_model_s():
    losses = np.array([[0.1, 9.0], [2.0, 1.0]])
    np.testing.assert_array_equal(loss_threshold(losses), [-2.0, -1.0])
    np.testing.assert_array_equal(loss_threshold(losses[1]), [-2.0, -1.0])


@given(st.integers(0, 10**6), st.integers(2, 9), st.integers(1, 5))
def test_the_mean_does_not_know_the_order_and_the_trend_not_how_hard_a_candidate_is(seed, rounds, count):
    draw = np.random.default_rng(seed)
    losses = draw.exponential(size=(rounds, count))
    np.testing.assert_allclose(loss_mean(losses[draw.permutation(rounds)]), loss_mean(losses))
    np.testing.assert_allclose(loss_trend(losses + draw.normal(size=count)), loss_trend(losses), atol=1e-12)
    slopes = [np.polyfit(np.arange(rounds), column, 1)[0] for column in losses.T]
    np.testing.assert_allclose(loss_trend(losses), np.negative(slopes), atol=1e-9)


def test_more_rounds_tell_more_where_their_noise_is_their_own():
    draw, member = np.random.default_rng(1), np.arange(4000) < 2000
    losses = draw.normal(5, 1, (16, 4000)) - 0.3 * member
    last, series = (evaluate(score(losses), member).auc for score in (loss_threshold, loss_mean))
    assert last.low < norm.cdf(0.3 / np.sqrt(2)) < last.high
    assert series.low < norm.cdf(0.3 * 4 / np.sqrt(2)) < series.high, "the gap over 1 / sqrt(16)"


@pytest.mark.parametrize(
    ("attack", "losses", "words"),
    [
        (loss_threshold, np.array([1.0, np.nan]), r"^losses: 1 of 2 are not finite"),
        (loss_mean, np.array([[1.0, np.inf]]), r"^losses: 1 of 2 are not finite"),
        (loss_mean, np.zeros(3), r"^losses: shape \[3\]"),
        (loss_mean, np.zeros((0, 3)), r"^losses: shape \[0, 3\]"),
        (loss_trend, np.zeros((1, 3)), r"^losses: shape \[1, 3\].*from 2 rounds"),
        (loss_threshold, np.zeros((1, 2, 3)), r"^losses: shape \[1, 2, 3\]"),
    ],
)
def test_no_series_of_losses_is_refused(attack, losses, words):
    with pytest.raises(InputError, match=words):
        attack(losses)


# LiRA


def test_the_confidence_is_the_logit_and_stays_finite():
    logits = np.array([[2.0, 0.0, 1.0], [100.0, 0.0, 0.0], [-900.0, 0.0, -5.0]])
    log_p = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    found = logit_confidence(np.stack([log_p, log_p]), np.array([0, 0, 0]))
    # by hand: z_y - log(sum of the others' e^z); the probability of the second is 1 to the last digit
    wanted = [2 - np.log(1 + np.e), 100 - np.log(2), -900 - np.log1p(np.exp(-5))]
    np.testing.assert_allclose(found, [wanted, wanted], rtol=1e-12)


@pytest.mark.parametrize(
    ("log_p", "labels", "words"),
    [
        (np.zeros((2, 3)), [0, 3], r"^labels: \[3\], allowed: from 0 to 2"),
        (np.zeros((2, 3)), [-1, 0], r"^labels: \[-1\]"),
        (np.zeros((2, 3)), [0], r"^log_probabilities: \[2, 3\] for labels \[1\]"),
        (np.zeros((2, 1)), [0, 0], r"^log_probabilities: \[2, 1\].*from 2 classes"),
        (np.array([[0.0, -np.inf]]), [0], r"^log_probabilities: not all finite"),
    ],
)
def test_no_log_softmax_is_refused(log_p, labels, words):
    with pytest.raises(InputError, match=words):
        logit_confidence(log_p, np.array(labels))


@pytest.mark.parametrize("variance", ["global", "candidate"])
@pytest.mark.parametrize(("mean_in", "sd_in", "sd_out"), [(1.0, 1.0, 1.0), (2.0, 0.5, 1.5)])
def test_lira_is_the_log_likelihood_ratio_of_known_normals(variance, mean_in, sd_in, sd_out):
    target = np.linspace(-3, 4, 15)
    shadows, inside = known(mean_in, sd_in, 0.0, sd_out, 15)
    wanted = norm.logpdf(target, mean_in, sd_in) - norm.logpdf(target, 0.0, sd_out)
    np.testing.assert_allclose(lira_online(target, shadows, inside, variance=variance), wanted, atol=1e-12)
    wanted = target / sd_out  # norm.cdf of it is the paper's one-sided score
    np.testing.assert_allclose(lira_offline(target, shadows, inside, variance=variance), wanted, atol=1e-12)


@pytest.mark.parametrize("attack", [lira_online, lira_offline])
def test_lira_s_area_is_that_of_two_normals(attack):
    draw, member = np.random.default_rng(0), np.arange(6000) < 3000
    hardness = draw.normal(0, 5, 6000)  # that LiRA takes out, while a threshold drowns in it
    shadows, inside = known(1.2, 1.0, 0.0, 1.0, 6000)
    target = draw.normal(1.2 * member, 1.0) + hardness
    found = evaluate(attack(target, shadows + hardness, inside), member)
    assert found.auc.low < norm.cdf(1.2 / np.sqrt(2)) < found.auc.high
    assert found.points[1].tpr.low < norm.cdf(norm.ppf(0.01) + 1.2) < found.points[1].tpr.high
    assert evaluate(target, member).auc.high < 0.6


def test_lira_with_each_candidate_s_variance_is_the_published_code_s():
    """It divides by n where we divide by n - 1, and takes medians, which with two shadows a side are means."""
    shadows = CONFIDENCES.copy()
    for side in (INSIDE, ~INSIDE):
        mean = np.where(side, CONFIDENCES, 0).sum(0) / 2
        shadows = np.where(side, mean + (CONFIDENCES - mean) / np.sqrt(2), shadows)
    found = lira_online(TARGET, shadows, INSIDE, variance="candidate")
    np.testing.assert_allclose(found, [11.30685282, 0.0, 103.80685282, -1.80685282, -56.0], atol=1e-8)


@given(st.integers(0, 10**6), st.floats(0.1, 10), st.floats(-5, 5))
def test_lira_does_not_know_the_scale_nor_the_order_of_shadows(seed, scale, shift):
    draw = np.random.default_rng(seed)
    order = draw.permutation(4)
    for attack in (lira_online, lira_offline):
        once = attack(TARGET, CONFIDENCES, INSIDE)
        moved = attack(TARGET * scale + shift, CONFIDENCES[order] * scale + shift, INSIDE[order])
        np.testing.assert_allclose(moved, once, atol=1e-7)


def test_a_candidate_never_in_gets_the_others_gain():
    # the first is in two shadows of mean 3 and out of two of mean 1, a gain of 2; the second was never in, mean 5
    shadows = np.array([[2.5, 4.5], [3.5, 5.5], [0.5, 4.5], [1.5, 5.5]])
    inside = np.array([[1, 0], [1, 0], [0, 0], [0, 0]], bool)
    found = lira_online(np.array([3.0, 7.0]), shadows, inside)
    # variances: in 0.5; out (0.5 + 1.0) / (1 + 3) = 0.375
    wanted = -0.5 * np.log(0.5) + 0.5 * np.log(0.375) + 0.5 * 4 / 0.375
    np.testing.assert_allclose(found, [wanted, wanted])
    never_out = lira_online(np.array([3.0, 3.0]), shadows - [0, 2], ~inside[::-1])
    assert np.isfinite(never_out).all()


def test_a_candidate_never_out_is_compared_with_the_mean_of_all_others():
    shadows, inside = np.array([[1.0, 2.0, 9.0], [3.0, 4.0, 9.0]]), np.array([[0, 0, 1], [0, 0, 1]], bool)
    found = lira_offline(np.array([2.0, 3.0, 4.5]), shadows, inside)
    np.testing.assert_allclose(found, [0.0, 0.0, 2.0 / np.sqrt(2)])  # the others' means are 2 and 3, their variance 2


def test_one_shadow_is_enough_offline_and_refused_online():
    shadow, inside = np.array([[1.0, 2.0]]), np.array([[False, False]])
    np.testing.assert_allclose(lira_offline(np.array([2.0, 2.5]), shadow, inside), [1.0, 0.5])
    with pytest.raises(InputError, match=r"^shadows: 1, no candidate is in of two"):
        lira_online(np.array([2.0, 2.5]), shadow, inside)
    with pytest.raises(InputError, match=r"^shadows: every candidate is in all"):
        lira_offline(np.array([2.0, 2.5]), shadow, ~inside)
    apart = np.array([[1, 0], [1, 0], [1, 0]], bool)
    with pytest.raises(InputError, match=r"^shadows: 3, of which no candidate is in one and out of another"):
        lira_online(np.array([2.0, 2.5]), np.ones((3, 2)), apart)


@pytest.mark.parametrize("variance", ["global", "candidate"])
def test_equal_confidences_tell_nothing_and_are_no_nan(variance):
    shadows = np.full((4, 5), 3.0)
    for attack in (lira_online, lira_offline):
        assert (attack(np.full(5, 3.0), shadows, INSIDE, variance=variance) == 0).all()
    moved = lira_online(np.full(5, 4.0), shadows + INSIDE, INSIDE, variance=variance)
    assert np.isfinite(moved).all() and (moved > 0).all()


# RMIA


def test_rmia_by_hand():
    # two shadows, one in and one out of each candidate: Pr(x) = (0.9 + 0.3) / 2 and (0.5 + 0.5) / 2, ratios 1.5 and 1
    target, shadows = np.array([0.9, 0.5]), np.array([[0.9, 0.5], [0.3, 0.5]])
    inside = np.array([[1, 0], [0, 1]], bool)
    # Pr(z) = 0.5 for all: ratios 0.5, 1, 1.5, 2
    points = Population(np.array([0.25, 0.5, 0.75, 1.0]), np.array([[0.5] * 4, [0.5] * 4]))
    np.testing.assert_array_equal(rmia_online(target, shadows, inside, points), [0.75, 0.5])
    np.testing.assert_array_equal(rmia_online(target, shadows, inside, points, gamma=1.5), [0.5, 0.25])
    # offline with a = 1 is Pr_out alone: ratios 0.9 / 0.3 and 0.5 / 0.5
    np.testing.assert_array_equal(rmia_offline(target, shadows, inside, points, a=1.0), [1.0, 0.5])
    # a = 0.5: Pr(x) = (1.5 * 0.3 + 0.5) / 2 = 0.475, (1.5 * 0.5 + 0.5) / 2 = 0.625, as is Pr(z)
    # ratios 1.89 and 0.8; those of z 0.4, 0.8, 1.2, 1.6
    np.testing.assert_array_equal(rmia_offline(target, shadows, inside, points, a=0.5), [1.0, 0.5])


@pytest.mark.parametrize(
    ("shadows", "a", "wanted"),
    [
        (4, 0.3, [7, 4, 7, 4, 1]),
        (4, 0.6, [6, 6, 7, 4, 1]),
        (4, 1.0, [5, 7, 7, 3, 1]),
        (1, 0.3, [7, 3, 7, 4, 1]),
        (1, 0.6, [6, 5, 7, 4, 1]),
    ],
)
def test_rmia_offline_is_the_published_code_s(shadows, a, wanted):
    """It takes the larger half of a point z's shadows, so that all are given alike here."""
    found = rmia_offline(LIKELY, SHADOWS[:shadows], INSIDE[:shadows], population(shadows), a=a)
    np.testing.assert_allclose(found * 7, wanted)


@given(st.integers(0, 10**6), st.floats(1, 3))
def test_rmia_is_the_double_loop(seed, gamma):
    draw = np.random.default_rng(seed)
    target, shadows, inside = draw.random(6), draw.random((5, 6)), draw.random((5, 6)) < 0.5
    inside[:2] = [[True] * 6, [False] * 6]
    points = Population(draw.random(9), draw.random((5, 9)))
    found = rmia_online(target, shadows, inside, points, gamma=gamma)
    for k in range(6):
        own = target[k] / ((shadows[inside[:, k], k].mean() + shadows[~inside[:, k], k].mean()) / 2)
        wins = [own / (points.target[j] / points.shadows[:, j].mean()) >= gamma for j in range(9)]
        assert found[k] == pytest.approx(np.mean(wins))


def test_rmia_fills_in_what_no_shadow_says_by_the_line():
    line = 0.4 * SHADOWS + 0.6
    outside, both = np.zeros((4, 5), bool), np.tile([[True], [False]], (4, 5))
    doubled = np.stack([line, SHADOWS], axis=1).reshape(8, 5)
    never = rmia_online(LIKELY, SHADOWS, outside, population(4), a=0.4)
    np.testing.assert_array_equal(never, rmia_online(LIKELY, doubled, both, population(8)))
    always = rmia_offline(LIKELY, line, ~outside, population(4), a=0.4)
    np.testing.assert_array_equal(always, rmia_offline(LIKELY, SHADOWS, outside, population(4), a=0.4))


def test_certainty_and_impossibility_are_no_nan():
    nothing, sure = np.zeros(3), np.ones(3)
    inside, points = np.array([[1, 1, 1], [0, 0, 0]], bool), Population(nothing, np.zeros((2, 3)))
    for attack in (rmia_online, rmia_offline):
        for target in (nothing, sure):
            for shadows in (np.zeros((2, 3)), np.ones((2, 3))):
                found = attack(target, shadows, inside, points)
                assert ((found >= 0) & (found <= 1)).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gamma": 0.5}, r"^gamma: 0.5, allowed: from 1"),
        ({"gamma": np.nan}, r"^gamma: nan"),
        ({"a": 0.0}, r"^a: 0.0, allowed: above 0"),
        ({"target": LIKELY * 2}, r"^target: not all from 0 to 1"),
        ({"target": LIKELY * np.nan}, r"^target: not all from 0 to 1"),
        ({"population": Population(np.zeros(0), np.zeros((4, 0)))}, r"^population: \[0\]"),
        ({"population": population(3)}, r"^population: \[7\] and \[3, 7\], allowed: \(m,\) and \(4, m\)"),
    ],
)
def test_what_is_no_probability_is_refused(changes, words):
    arguments = {"target": LIKELY, "shadows": SHADOWS, "inside": INSIDE, "population": population(4)} | changes
    for attack in (rmia_online, rmia_offline):
        with pytest.raises(InputError, match=words):
            attack(**arguments)


# all of them


@pytest.mark.parametrize(
    ("target", "shadows", "inside"),
    [
        (TARGET[:4], CONFIDENCES, INSIDE),
        (TARGET, CONFIDENCES, INSIDE.astype(int)),
        (TARGET, CONFIDENCES, INSIDE[:3]),
        (TARGET, CONFIDENCES[:0], INSIDE[:0]),
        (TARGET + np.inf, CONFIDENCES, INSIDE),
        (TARGET, CONFIDENCES * np.nan, INSIDE),
    ],
)
def test_what_does_not_belong_together_is_refused(target, shadows, inside):
    for attack in (lira_online, lira_offline):
        with pytest.raises(InputError, match=r"^confidences: "), np.errstate(invalid="ignore"):
            attack(target, shadows, inside)


def scores_of_nothing(draw, count):
    """Every attack on a model that was trained on nobody, with shadows that were not either."""
    inside = np.stack([draw.permutation(count) < count // 2 for _ in range(6)])
    p, shadows = draw.beta(2, 1, count), draw.beta(2, 1, (6, count))
    points = Population(draw.beta(2, 1, 400), draw.beta(2, 1, (6, 400)))
    logit, logits = np.log(p / (1 - p)), np.log(shadows / (1 - shadows))
    return {
        "threshold": loss_threshold(-np.log(p)),
        "mean": loss_mean(-np.log(shadows)),
        "trend": loss_trend(-np.log(shadows)),
        "online": lira_online(logit, logits, inside),
        "candidate": lira_online(logit, logits, inside, variance="candidate"),
        "offline": lira_offline(logit, logits, inside),
        "rmia": rmia_online(p, shadows, inside, points),
        "rmia offline": rmia_offline(p, shadows, inside, points),
    }


def test_where_there_is_nothing_to_find_nothing_is_found():
    """Members and others are exchangeable: the rank test at 5 % fires about 4 times in 80, and areas average 0.5."""
    draw, member, fired, areas = np.random.default_rng(5), np.arange(300) < 150, {}, {}
    for _ in range(80):
        for name, scores in scores_of_nothing(draw, 300).items():
            test = mannwhitneyu(scores[member], scores[~member])
            fired[name] = fired.get(name, 0) + (test.pvalue < 0.05)
            areas.setdefault(name, []).append(test.statistic / 150**2)
    assert max(fired.values()) <= 12, "4 deviations of a binomial count"
    assert all(abs(np.mean(each) - 0.5) < 4 * np.sqrt(301 / (12 * 150**2) / 80) for each in areas.values())
    scores = scores_of_nothing(draw, 300)
    for name in ("threshold", "online", "rmia"):
        found = evaluate(scores[name], member).auc
        assert found.low < 0.5 < found.high, name


def test_the_metrics_are_those_of_another_library_on_the_same_scores():
    draw, member = np.random.default_rng(2), np.arange(300) < 120
    for name, scores in scores_of_nothing(draw, 300).items():
        scores = scores + 0.3 * member * scores.std()
        found = evaluate(scores, member)
        area = mannwhitneyu(scores[member], scores[~member]).statistic / (120 * 180)
        assert found.auc.value == pytest.approx(area), name
        cut = np.sort(scores[~member])[::-1][1]  # one of 180 others is above: one in a hundred allows one
        assert found.points[1].tpr.value == pytest.approx((scores[member] > cut).mean()), name
        grid = [(scores[member] >= c).mean() - (scores[~member] >= c).mean() for c in scores]
        assert found.advantage == pytest.approx(max(0.0, *grid)), name
