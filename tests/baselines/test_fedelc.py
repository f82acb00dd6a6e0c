"""FedELC: labels that are learnt with the model, what a client keeps of them, roles, and whole runs."""

import dataclasses
import math
import re

import numpy as np
import pytest
import tiny_client as tiny
import torch
import torch.nn.functional as F

from fedgr_secure.baseline_sections import FedELCConfig
from fedgr_secure.baselines.class_losses import ClassLosses, Measure
from fedgr_secure.baselines.fedelc import FEDELC, ELCState, LearntLabels, check_client, first_logits, merged
from fedgr_secure.baselines.fednoro import TrainAs
from fedgr_secure.baselines.logit_adjustment import AdjustedLoss
from fedgr_secure.checks import check, unused
from fedgr_secure.data.types import ArrayImages, Shard
from fedgr_secure.errors import InputError
from fedgr_secure.federation.loop import resume
from fedgr_secure.models.output import Output
from fedgr_secure.wire import from_bytes

# the loss and the labels


def loss_of(predicted, label_logits, given, **weights):
    """The loss on one sample of two classes, and where its label's logits are after a step of 8."""
    logits = torch.tensor([[9.0, 9.0], label_logits], requires_grad=True)  # the sample is the second
    learnt = LearntLabels(logits, **{"compatibility": 0.5, "entropy": 0.2} | weights)
    batch = {"images": torch.zeros(1, 1), "labels": torch.tensor([given]), "sample": torch.tensor([1])}
    loss = learnt({}, batch, lambda images: Output(torch.tensor([predicted]).log(), images))
    loss.backward()
    learnt.step(8.0)
    assert learnt.logits.grad is None and learnt.logits[0].tolist() == [9, 9]
    return loss.item(), learnt.logits[1].tolist()


def test_the_loss_and_the_label_s_step_by_hand():
    # prediction p = (1/4, 3/4), label y = (4/5, 1/5) given as class 0
    loss, label = loss_of([0.25, 0.75], [math.log(4), 0.0], 0)
    divergence = 0.25 * math.log(0.25 / 0.8) + 0.75 * math.log(0.75 / 0.2)
    entropy = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    assert loss == pytest.approx(divergence / 2 - 0.5 * math.log(0.8) + 0.2 * entropy / 2, rel=1e-5)
    # the gradient is (y - p) / C + a (y - given): (0.55, -0.55) / 2 + 0.5 (-0.2, 0.2) = (0.175, -0.175); a step of 8
    assert label == pytest.approx([math.log(4) - 1.4, 1.4], rel=1e-5)


def test_each_weight_alone():
    flat = [0.0, 0.0]
    assert loss_of([0.5, 0.5], flat, 1, compatibility=0.0, entropy=0.0)[0] == pytest.approx(0, abs=1e-6)
    assert loss_of([0.5, 0.5], flat, 1, compatibility=3.0, entropy=0.0)[0] == pytest.approx(3 * math.log(2), rel=1e-5)
    assert loss_of([0.5, 0.5], flat, 1, compatibility=0.0, entropy=3.0)[0] == pytest.approx(1.5 * math.log(2), rel=1e-5)


def test_where_labels_start_and_what_becomes_of_them():
    assert first_logits(np.array([1, 0]), 3, 10.0).tolist() == [[0, 10, 0], [10, 0, 0]]
    logits = torch.tensor([[math.log(3), 0.0]], requires_grad=True)
    found = merged(logits, np.array([[0.25, 0.75]], np.float32), 10.0)  # (3/4, 1/4) and (1/4, 3/4)
    assert found == pytest.approx(np.array([[5.0, 5.0]]), rel=1e-6) and found.dtype == np.float32


# one client


def context(labels=(0, 1, 2, 0, 1), *, norm="group", epochs=2, **settings):
    labels = np.array(labels, np.int64)
    own = Shard(3, np.arange(len(labels)), labels, ArrayImages(tiny.pictures(len(labels))))
    return tiny.context(tiny.config(epochs=epochs, fedelc=FedELCConfig(**settings)), own=own, norm=norm)


def train(own, state=None, *, round=9, weights=None):
    """The task of a noisy client, the reply, and the state after it."""
    half = FEDELC.client(own, state)
    task = half.answer(TrainAs(round, weights or own.bench.weights(), noisy=True))
    return task, task.finish(own.bench.train(task)), half.state


def test_a_clean_client_is_fednoro_s_and_keeps_what_it_has():
    own = context()
    for state in (None, ELCState(np.ones((5, 3), np.float32))):
        half = FEDELC.client(own, state)
        task = half.answer(TrainAs(9, own.bench.weights(), noisy=False))
        assert isinstance(task.objective, AdjustedLoss) and task.objective.weight == 0 and "soft" not in task.columns
        task.finish(own.bench.train(task))
        assert isinstance(half.answer(Measure(9, own.bench.weights())), ClassLosses)
        assert (half.state.label_logits == (first_logits(own.shard.labels, 3, 10.0) if state is None else 1)).all()


def test_a_noisy_client_s_labels_by_an_independent_run():
    own, weights = context(label_step=50.0), tiny.shifted(context().bench.weights(), 0.5)
    task, reply, state = train(own, weights=weights)
    assert (reply.round, reply.samples, task.epochs) == (9, 5, 2)
    # the same steps by hand, with every batch's labels in a tensor of their own
    other = context(label_step=50.0)
    logits, gradient = torch.tensor(first_logits(own.shard.labels, 3, 10.0)), torch.zeros(5, 3)

    def objective(parameters, batch, forward):
        live = logits[batch["sample"]].clone().requires_grad_()
        share, label = F.softmax(forward(batch["images"])[0], 1), F.softmax(live, 1)
        lc = (share * (share / label).log()).sum(1).mean() / 3
        lo = F.cross_entropy(live, batch["labels"])
        le = -(share * share.log()).sum(1).mean() / 3
        loss = lc + 0.5 * lo + 0.2 * le
        gradient[batch["sample"]] = torch.autograd.grad(loss, live, retain_graph=True)[0]
        return loss

    def after(epoch, weights):
        logits.sub_(50.0 * gradient)

    plain = dataclasses.replace(task, objective=objective, on_epoch=after)
    trained = other.bench.train(plain)
    for name, value in trained.items():
        np.testing.assert_allclose(reply.weights[name], value, rtol=1e-4, atol=1e-5)
    expected = (F.softmax(logits, 1).numpy() + other.bench.predict(trained, own.shard.images()).probabilities()) / 2
    np.testing.assert_allclose(state.label_logits, 10 * expected, rtol=1e-3, atol=1e-4)


def test_a_client_goes_on_with_the_labels_it_has_and_leaves_them_as_they_were():
    own = context(label_step=0.0)
    weights, kept = own.bench.weights(), ELCState(np.zeros((5, 3), np.float32))
    task, _, state = train(own, kept, weights=weights)
    assert not task.objective.logits.any() and not kept.label_logits.any()
    train(context(label_step=5.0), kept)
    assert not kept.label_logits.any()
    again = train(own, kept, weights=weights)[2]
    assert (again.label_logits == state.label_logits).all()
    shares = own.bench.predict(train(own, kept, weights=weights)[1].weights, own.shard.images()).probabilities()
    np.testing.assert_allclose(state.label_logits, 10 * (1 / 3 + shares) / 2, rtol=1e-5)


@pytest.mark.parametrize("labels", [[1, 1], [0, 1, 2, 0, 1], [2] * 9], ids=str)  # batches of 4: also of one sample
def test_absent_classes_and_small_batches_train_with_batch_norm(labels):
    _, reply, state = train(context(labels, norm="batch"))
    assert all(np.isfinite(value).all() for value in reply.weights.values()) and np.isfinite(state.label_logits).all()


@pytest.mark.parametrize(
    ("logits", "words"),
    [
        (np.zeros((4, 3), np.float32), "label_logits: float32[4, 3], allowed: float32[5, 3]"),
        (np.zeros((5, 3)), "label_logits: float64[5, 3], allowed: float32[5, 3]"),
        (np.full((5, 3), np.nan, np.float32), "label_logits, allowed: finite numbers"),
    ],
)
def test_a_stored_state_that_is_not_the_client_s_is_refused(logits, words):
    check_client(ELCState(np.zeros((5, 3), np.float32)), context())
    with pytest.raises(InputError, match=re.escape(words)):
        check_client(ELCState(logits), context())


# runs

RUN = {"method": "fedelc", "warmup": 2, "rounds": 5, "checkpoint_every": 5}


def labels_kept(result):
    """What the clients keep, by the names of the files in the checkpoint."""
    files = sorted((result.folder / "checkpoint").rglob("*"))
    found = {}
    for path in files:
        if path.is_file() and b"ELCState" in path.read_bytes()[:4096]:
            found[path.name] = from_bytes(path.read_bytes(), [ELCState]).label_logits
    return found


def test_only_noisy_clients_change_labels_and_no_label_leaves_a_client(finished):
    result = finished(**RUN, record_view="all")
    kept = labels_kept(result)
    assert len(kept) == 4 and all(np.allclose(logits.sum(1), 10, atol=1e-3) for logits in kept.values())
    assert 0 < sum(set(np.unique(logits)) != {0, 10} for logits in kept.values()) < 4
    sent = [path.read_bytes() for path in (result.folder / "view").rglob("*.up.*")]
    assert sent and not any(b"label_logits" in data or b"ELCState" in data for data in sent)
    assert result.summary.bytes_up == finished(method="fednoro", warmup=2, rounds=5).summary.bytes_up


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 4], ids=["in the warm-up", "in stage two"])
def test_a_stopped_run_continues_to_the_same_bytes(stopped, finished, after):
    folder = stopped(after=after, **RUN | {"checkpoint_every": 1})
    resume(folder)
    for name in ("rounds.jsonl", "weights.safetensors", "clients.json"):
        assert (folder / name).read_bytes() == (finished(**RUN).folder / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"dropout": 0.4}, {"norm": "batch"}, {"cohort": 4, "warmup": 0}], ids=str)
def test_other_surroundings(finished, changes):
    assert len(finished(**RUN | changes).rounds) == 5


def test_it_refuses_secure_sums_and_dp_sgd_by_name(tiny):
    check(tiny(method="fedelc"))
    with pytest.raises(InputError, match=r"secagg: on, allowed with method fedelc: off, by --no-secagg \(its server"):
        check(tiny(method="fedelc", secagg=True))
    with pytest.raises(InputError, match=r"weights_epsilon: 2\.0, allowed with method fedelc: none \(its mean"):
        check(tiny(method="fedelc", weights_epsilon=2.0))


def test_settings_without_effect_are_told(tiny):
    assert unused(tiny(method="fedelc", channel="histogram", distillation_weight=0.5, label_step=9.0)) == (
        "distillation_weight: 0.5 has no effect with method fedelc",
    )
