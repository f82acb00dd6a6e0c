"""The evaluator's figures, worked out by hand on a handful of samples."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedgr_secure.data.types import ArrayImages, FederatedData, ImageSpec, Shard, Truth
from fedgr_secure.federation.evaluate import Evaluator, calibration_error
from fedgr_secure.method.sieve import Verdict
from fedgr_secure.registry import METHODS
from fedgr_secure.sections import Config
from fedgr_secure.training import Prediction

SPEC = ImageSpec(1, 1, 1, ("a", "b"), (0.0,), (1.0,), False)


class Bench:
    """Predicts class 1 with logit = pixel, against 0 for class 0."""

    def predict(self, weights, images):
        logits = torch.from_numpy(images.reshape(len(images), 1).astype(np.float32) - weights["threshold"])
        return Prediction(torch.cat([torch.zeros_like(logits), logits], 1), logits)


def evaluator(given, true, pixels):
    """Clients with these given and true labels; the images' only pixels; the test set is client 0's."""
    store = ArrayImages(np.concatenate(pixels).astype(np.uint8).reshape(-1, 1, 1, 1))
    starts = np.cumsum([0, *map(len, pixels)])
    shards = tuple(
        Shard(k, np.arange(starts[k], starts[k + 1]), np.array(labels), store) for k, labels in enumerate(given)
    )
    wrong = tuple((np.array(t) >= 0) & (np.array(g) != t) for g, t in zip(given, true, strict=True))
    truth = Truth(
        true_labels=tuple(map(np.array, true)),
        wrong=wrong,
        drawn_rate=np.zeros(len(given)),
        realised_rate=np.array([w.mean() for w in wrong]),
        kind=("symmetric",) * len(given),
        test=ArrayImages(store.array[: len(pixels[0])]),
        test_labels=np.array(true[0]),
    )
    return Evaluator(FederatedData(SPEC, shards), truth, Bench(), METHODS["fedgr"])


@pytest.fixture
def two_clients():
    """Client 0: one of four labels wrong; client 1: one of two."""
    return evaluator(given=[[0, 1, 1, 0], [0, 1]], true=[[0, 1, 0, 0], [1, 1]], pixels=[[0, 9, 9, 0], [9, 9]])


WEIGHTS = {"threshold": np.float32(5)}


def test_test_accuracy_and_loss(two_clients):
    accuracy, loss = two_clients.test(WEIGHTS)
    assert accuracy == 3 / 4  # predictions 0 1 1 0 against 0 1 0 0
    right = [np.log1p(np.exp(-5)), np.log1p(np.exp(-4)), np.log1p(np.exp(-5))]
    assert loss == pytest.approx((sum(right) + np.log1p(np.exp(4))) / 4, rel=1e-6)


def test_memorised_share_counts_wrong_labels_that_the_model_repeats(two_clients):
    # wrong: client 0's third (given 1, predicted 1: memorised) and client 1's first (given 0, predicted 1: not)
    assert two_clients.memorised_share(WEIGHTS) == 1 / 2
    clean = evaluator(given=[[0, 1]], true=[[0, 1]], pixels=[[0, 9]])
    assert clean.memorised_share(WEIGHTS) is None


def test_sieve_scores(two_clients):
    assert two_clients.sieve_scores().mislabel_accuracy is None
    two_clients.verdicts[0] = Verdict(np.array([0.9, 0.4, 0.2, 0.5]), 0.5)  # wrong: the third
    scores = two_clients.sieve_scores()
    assert scores.mislabel_accuracy == 3 / 4  # the second is called wrong and is not; q = 0.5 counts as clean
    assert scores.mislabel_auc == 1.0
    assert scores.pearson is None  # of one client
    # P(wrong) .1 .6 .8 .5 in bins of their own, and 0 0 1 0 happened: (.1 + .6 + .2 + .5) / 4
    assert scores.mislabel_calibration_error == pytest.approx(0.35)
    two_clients.verdicts[1] = Verdict(np.array([0.3, 0.25]), 1.0)  # wrong: the first
    scores = two_clients.sieve_scores()
    assert scores.mislabel_accuracy == 4 / 6
    # pairs (wrong, clean) where the wrong one has the smaller q: .2 beats all 4; .3 beats .9 .4 .5, loses to .25
    assert scores.mislabel_auc == pytest.approx(7 / 8)
    assert scores.pearson == pytest.approx(1.0)  # estimates .5 and 1 against .25 and .5
    two_clients.verdicts[1] = Verdict(np.array([0.3, 0.25]), 0.5)
    assert two_clients.sieve_scores().pearson is None  # estimates without spread


def test_calibration_error_is_that_of_a_plain_loop_and_fades_for_a_calibrated_judge():
    draw = np.random.default_rng(0)
    chance = draw.random(50_000)
    happened = draw.random(50_000) < chance**2
    by_hand = 0.0
    for low in np.arange(15) / 15:
        inside = (chance >= low) & (chance < low + 1 / 15)
        by_hand += inside.mean() * abs(chance[inside].mean() - happened[inside].mean())
    assert calibration_error(chance, happened) == pytest.approx(by_hand, abs=1e-3)  # an edge may fall either way
    assert calibration_error(chance, draw.random(50_000) < chance) < 0.02
    assert calibration_error(np.ones(3), np.array([True, True, False])) == pytest.approx(1 / 3)  # 1 is in the last bin
    assert calibration_error(np.empty(0), np.empty(0, bool)) is None


def test_samples_of_unknown_truth_do_not_count():
    one = evaluator(given=[[0, 1, 1]], true=[[0, -1, 0]], pixels=[[0, 9, 9]])
    one.verdicts[0] = Verdict(np.array([0.9, 0.0, 0.1]), 0.5)
    assert one.sieve_scores().mislabel_accuracy == 1.0
    assert one.memorised_share(WEIGHTS) == 1.0


def test_estimated_noise_is_the_mean_over_the_cohort(two_clients):
    assert two_clients.estimated_noise((0, 1)) is None
    two_clients.verdicts = {0: Verdict(np.ones(4), 0.2), 1: Verdict(np.ones(2), 0.6)}
    assert two_clients.estimated_noise((0, 1)) == pytest.approx(0.4)
    assert two_clients.estimated_noise((1,)) == pytest.approx(0.6)


def test_loss_histogram_splits_by_the_truth_and_leaves_non_finite_losses_out(two_clients):
    assert two_clients.loss_histogram(None) is None
    two_clients.mean_losses = {0: np.array([0.0, 1.0, 4.0, np.inf]), 1: np.array([3.0, 0.5])}
    histogram = two_clients.loss_histogram(None, bins=2)
    assert histogram.edges == (0.0, 2.0, 4.0)
    assert histogram.clean == (3, 0)  # 0.0, 1.0 and client 1's 0.5
    assert histogram.wrong == (0, 2)  # 4.0 and 3.0


def test_a_verdict_is_noted_without_mean_losses_and_releases_without_a_verdict(two_clients):
    two_clients.method = replace(METHODS["fedavg"], verdict=lambda state: Verdict.of(state))
    two_clients.note(1, np.array([0.3, 0.9]))
    assert two_clients.verdicts[1].noise_rate == 0.5 and two_clients.mean_losses == two_clients.releases == {}
    assert two_clients.loss_histogram(None) is None
    two_clients.method = replace(METHODS["fedavg"], releases=lambda state: 7)
    two_clients.note(0, object())
    assert two_clients.releases == {0: 7} and set(two_clients.verdicts) == {1}


def test_methods_without_verdicts_leave_nothing_to_note(two_clients):
    two_clients.method = METHODS["fedavg"]
    two_clients.note(0, object())
    two_clients.note(0, None)
    assert two_clients.verdicts == two_clients.mean_losses == {}
    assert Config().method == "fedgr"
