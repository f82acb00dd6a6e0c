"""The teacher: the global revision, and the moving average over local steps."""

import numpy as np
import pytest
import torch
from reference import slow_averages

from fedgr_secure.method.teacher import MovingAverage, revise, step_gamma


def weights(seed, count):
    draw = np.random.default_rng(seed)
    return {
        "matrix": draw.standard_normal((2, 3)).astype(np.float32),
        "scalar": np.array(draw.standard_normal(), np.float32),
        "batches": np.array(count, np.int64),
    }


def tensors(values):
    return {name: torch.from_numpy(np.array(value)) for name, value in values.items()}


def test_the_first_participation_starts_from_the_global_model():
    start = weights(0, 4)
    got = revise(None, start, 0.9)
    assert all(np.array_equal(got[name], start[name]) for name in start)


def test_revision_by_hand():
    # 0.9 * 2 + 0.1 * -3 = 1.5 and 0.9 * -1 + 0.1 * 4 = -0.5; the counter is the global model's
    own = {"w": np.array([2.0, -1.0], np.float32), "batches": np.array(7)}
    given = {"w": np.array([-3.0, 4.0], np.float32), "batches": np.array(40)}
    got = revise(own, given, 0.9)
    np.testing.assert_allclose(got["w"], [1.5, -0.5], rtol=1e-6)
    assert got["w"].dtype == np.float32 and got["batches"] == 40
    assert own["w"].tolist() == [2.0, -1.0] and given["w"].tolist() == [-3.0, 4.0]


@pytest.mark.parametrize("gamma_g, side", [(0.0, "given"), (1.0, "own")])
def test_revision_at_its_ends(gamma_g, side):
    sides = {"own": weights(1, 7), "given": weights(2, 40)}
    got = revise(sides["own"], sides["given"], gamma_g)
    for name in ("matrix", "scalar"):
        assert np.array_equal(got[name], sides[side][name])


def test_step_schedule():
    # 1 - 1/2, 1 - 1/3, 1 - 1/4, ... reaches 0.99 at m = 99 and stays there
    assert [step_gamma(0.99, m) for m in (1, 2, 3)] == pytest.approx([1 / 2, 2 / 3, 3 / 4])
    assert step_gamma(0.99, 98) == pytest.approx(98 / 99) and step_gamma(0.99, 98) < 0.99
    assert step_gamma(0.99, 100) == 0.99 and step_gamma(0.99, 10**6) == 0.99
    assert step_gamma(0.6, 1) == 0.5 and step_gamma(0.6, 2) == 0.6
    assert step_gamma(0.0, 5) == 0.0


@pytest.mark.parametrize("gamma_l", [0.99, 0.7, 0.0])
def test_ten_steps_equal_the_slow_average(gamma_l):
    start, students = weights(0, 3), [weights(m, 3 + m) for m in range(1, 11)]
    average = MovingAverage(start, gamma_l, "cpu")
    for m, student in enumerate(students, start=1):
        average.step(tensors(student), m)
    got, expected = average.weights(), slow_averages.moving_average(start, students, gamma_l)
    for name in start:
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-5, atol=1e-6)
        assert got[name].dtype == start[name].dtype and got[name].shape == start[name].shape
    assert got["batches"] == 13


def test_the_warm_up_makes_the_first_steps_a_plain_mean():
    # while 1 - 1/(1+m) < gamma_l the average of the start and m students has equal weights 1/(m+1)
    start, students = weights(0, 0), [weights(m, 0) for m in range(1, 6)]
    average = MovingAverage(start, 0.99, "cpu")
    for m, student in enumerate(students, start=1):
        average.step(tensors(student), m)
    expected = np.mean([w["matrix"] for w in [start, *students]], axis=0)
    np.testing.assert_allclose(average.weights()["matrix"], expected, rtol=1e-5, atol=1e-6)


def test_neither_start_nor_student_is_changed_and_gradients_are_no_obstacle():
    start, student = weights(0, 3), tensors(weights(1, 4))
    student["matrix"].requires_grad_(True)
    kept = {name: value.copy() for name, value in start.items()}, student["matrix"].detach().clone()
    average = MovingAverage(start, 0.99, "cpu")
    average.step(student, 1)
    assert all(np.array_equal(start[name], kept[0][name]) for name in start)
    assert torch.equal(student["matrix"].detach(), kept[1])
