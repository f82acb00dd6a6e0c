"""The training objective, term by term against loops and `math`."""

import math

import pytest
import torch
from reference import slow_losses

from fedgr_secure.method.objective import FedGRObjective, distillation, representation, soft_cross_entropy


def rows(count, width, seed):
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


LOGITS, TEACHER = rows(5, 4, 1) * 2, rows(5, 4, 2) * 2
FEATURES, REFERENCE = rows(5, 6, 3), rows(5, 6, 4)
TARGETS = torch.tensor([[1, 0, 0, 0], [0, 0.25, 0, 0.75], [0, 0, 0.3, 0], [0, 0, 0, 0], [0, 0, 0, 1]]).double()


def test_cross_entropy_by_hand():
    # uniform logits over 4 classes: -log(1/4) = 2 log 2 for a one-hot row; a share of it for a row that sums to less
    uniform = torch.zeros(2, 4)
    assert soft_cross_entropy(uniform, torch.eye(4)[:2]).item() == pytest.approx(2 * math.log(2))
    assert soft_cross_entropy(uniform, 0.25 * torch.eye(4)[:2]).item() == pytest.approx(0.5 * math.log(2))


def test_cross_entropy_equals_loops():
    assert soft_cross_entropy(LOGITS, TARGETS).item() == pytest.approx(
        slow_losses.cross_entropy(LOGITS.tolist(), TARGETS.tolist())
    )


def test_rows_of_zeros_count_in_the_mean():
    # one of two rows has no target: half the loss of the other alone
    targets = torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 0]]).double()
    alone = soft_cross_entropy(LOGITS[:1], targets[:1])
    assert soft_cross_entropy(LOGITS[:2], targets).item() == pytest.approx(alone.item() / 2)
    assert soft_cross_entropy(LOGITS, torch.zeros(5, 4).double()).item() == 0


def test_distillation_by_hand():
    # teacher (3/4, 1/4), student (1/2, 1/2): KL = 3/4 log(3/2) + 1/4 log(1/2); tau = 1/2 doubles the logits
    teacher, student = torch.tensor([[0.5 * math.log(3), 0.0]]), torch.zeros(1, 2)
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert distillation(teacher, student, 0.5).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("tau", [0.5, 1.0, 3.0])
def test_distillation_equals_loops_and_has_no_tau_squared(tau):
    got = distillation(TEACHER, LOGITS, tau).item()
    assert got == pytest.approx(slow_losses.divergence(TEACHER.tolist(), LOGITS.tolist(), tau))
    assert distillation(TEACHER, TEACHER, tau).item() == pytest.approx(0, abs=1e-12)


def test_distillation_is_from_the_teacher_to_the_student():
    assert distillation(TEACHER, LOGITS, 0.5).item() != pytest.approx(distillation(LOGITS, TEACHER, 0.5).item())


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("cosine", slow_losses.cosine_distance(FEATURES.tolist(), REFERENCE.tolist())),
        ("l2", slow_losses.normalised_distance(FEATURES.tolist(), REFERENCE.tolist())),
        ("kl", slow_losses.divergence(REFERENCE.tolist(), FEATURES.tolist(), 0.5)),
    ],
)
def test_representation_equals_loops(kind, expected):
    assert representation(kind, FEATURES, REFERENCE, 0.5).item() == pytest.approx(expected)
    assert representation(kind, REFERENCE, REFERENCE, 0.5).item() == pytest.approx(0, abs=1e-12)


def test_representation_by_hand():
    # a right angle: cos = 0, and the unit vectors are sqrt(2) apart; lengths do not matter
    left, right = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 5.0]])
    assert representation("cosine", left, right, 0.5).item() == pytest.approx(1.0)
    assert representation("l2", left, right, 0.5).item() == pytest.approx(2.0)


@pytest.mark.parametrize("kind", ["cosine", "l2", "kl"])
def test_features_of_zeros_give_a_finite_gradient(kind):
    features = torch.zeros(2, 3, requires_grad=True)
    representation(kind, features, torch.ones(2, 3), 0.5).backward()
    assert torch.isfinite(features.grad).all()


def loss(batch, **changes):
    settings = {"lambda_b": 0.7, "lambda_r": 0.3, "tau": 0.5, "representation": "cosine"} | changes
    return FedGRObjective(**settings)({}, {"images": torch.empty(0)} | batch, lambda images: (LOGITS, FEATURES))


BATCH = {"targets": TARGETS, "teacher_logits": TEACHER, "global_features": REFERENCE}


@pytest.mark.parametrize("kind", ["cosine", "l2", "kl"])
def test_the_loss_is_the_weighted_sum(kind):
    slow = {
        "cosine": slow_losses.cosine_distance(FEATURES.tolist(), REFERENCE.tolist()),
        "l2": slow_losses.normalised_distance(FEATURES.tolist(), REFERENCE.tolist()),
        "kl": slow_losses.divergence(REFERENCE.tolist(), FEATURES.tolist(), 0.5),
    }
    expected = slow_losses.cross_entropy(LOGITS.tolist(), TARGETS.tolist())
    expected += 0.7 * slow_losses.divergence(TEACHER.tolist(), LOGITS.tolist(), 0.5) + 0.3 * slow[kind]
    assert loss(BATCH, representation=kind).item() == pytest.approx(expected)


@pytest.mark.parametrize("weight, column", [("lambda_b", "teacher_logits"), ("lambda_r", "global_features")])
def test_a_weight_of_zero_needs_no_column(weight, column):
    without = {name: value for name, value in BATCH.items() if name != column}
    spoiled = BATCH | {column: torch.full_like(BATCH[column], torch.nan)}
    assert loss(without, **{weight: 0.0}).item() == loss(spoiled, **{weight: 0.0}).item()
    assert math.isfinite(loss(without, **{weight: 0.0}).item())
    with pytest.raises(KeyError, match=column):
        loss(without)


def test_only_the_student_is_trained():
    # the columns are constants: cached once, so no gradient may reach them
    logits = LOGITS.clone().requires_grad_(True)
    batch = {name: value.clone() for name, value in BATCH.items()}
    objective = FedGRObjective(1.0, 1.0, 0.5, "cosine")
    objective({}, {"images": torch.empty(0)} | batch, lambda images: (logits, FEATURES)).backward()
    # d/dz of the cross-entropy with soft targets: (p sum(y) - y) / b;
    # d/dz of KL(t || softmax(z / tau)): (softmax(z / tau) - t) / (tau b)
    probabilities, student = LOGITS.softmax(1), (LOGITS / 0.5).softmax(1)
    expected = (probabilities * TARGETS.sum(1, keepdim=True) - TARGETS) / 5
    expected += (student - (TEACHER / 0.5).softmax(1)) / (0.5 * 5)
    torch.testing.assert_close(logits.grad, expected)
