"""The trainer: SGD by hand, every sample once an epoch, and draws that belong to (client, round)."""

from dataclasses import replace

import numpy as np
import pytest
import tiny_client as tiny
import torch
import torch.nn.functional as F
from torch import nn

from fedgr_secure import training
from fedgr_secure.errors import DivergedError, InputError
from fedgr_secure.models.output import Output
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import TrainingConfig
from fedgr_secure.training import Prediction, Workbench


def classify(parameters, batch, forward):
    return F.cross_entropy(forward(batch["images"])[0], batch["labels"])


def labelled(bench, count=10, **changes):
    """A classification task on random views."""
    columns = {"labels": torch.arange(count) % tiny.CLASSES}
    return tiny.task(bench, classify, images=tiny.pictures(count), view="strong", columns=columns, **changes)


class Spy:
    """An objective that notes every batch and otherwise does almost nothing."""

    def __init__(self):
        self.batches = []

    def __call__(self, parameters, batch, forward):
        self.batches.append({name: value.clone() for name, value in batch.items()})
        return sum(value.sum() for value in parameters.values()) * 0


# SGD


class Line(nn.Module):
    """Two weights and a buffer."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, -2.0]))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, images):
        return Output(self.w.expand(len(images), 2), images.flatten(1))


def test_momentum_and_weight_decay_by_hand():
    # loss = sum(w): gradient 1. With decay d: g = 1 + d w, v = mu v + g, w = w - lr v; a batch is a step
    lr, mu, d = 0.1, 0.5, 0.01
    bench = Workbench(Line(), None, TrainingConfig(1, 4, lr, mu, d), Randomness(0))
    bench.views = tiny.workbench().views
    got = bench.train(
        tiny.task(bench, lambda parameters, batch, forward: parameters["w"].sum(), images=tiny.pictures(8))
    )
    w, v = np.array([1.0, -2.0]), np.zeros(2)
    for _ in range(2):
        v = mu * v + 1 + d * w
        w = w - lr * v
    np.testing.assert_allclose(got["w"], w, rtol=1e-6)
    assert got["seen"] == 0


def test_the_optimiser_is_fresh_each_time():
    bench = tiny.workbench()
    task = labelled(bench, epochs=2)
    assert tiny.same(bench.train(task), bench.train(task))


# addresses


def test_equal_addresses_give_equal_weights_whatever_came_before():
    first, second = tiny.workbench(), tiny.workbench()
    start = first.weights()
    second.train(labelled(second, client=9, start=tiny.shifted(start, 1.0)))
    again = first.train(labelled(first, epochs=2))
    assert tiny.same(again, second.train(labelled(second, epochs=2, start=start)))
    assert not tiny.same(again, start)


@pytest.mark.parametrize("change", [{"client": 4}, {"round": 3}])
def test_another_address_gives_other_draws(change):
    bench = tiny.workbench()
    task = labelled(bench)
    assert not tiny.same(bench.train(task), bench.train(replace(task, **change)))


def test_another_seed_gives_other_draws():
    left, right = tiny.workbench(), tiny.workbench(tiny.config(seed=1))
    assert not tiny.same(left.train(labelled(left)), right.train(labelled(right)))


def test_the_global_random_state_is_neither_used_nor_touched():
    bench = tiny.workbench()
    task = labelled(bench)
    torch.manual_seed(1)
    before, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()
    first = bench.train(task)
    bench.predict(first, task.images, view="weak", draw=torch.Generator().manual_seed(0))
    assert torch.equal(before, torch.get_rng_state()) and np.array_equal(numbers, np.random.get_state()[1])
    torch.manual_seed(2)
    assert tiny.same(first, bench.train(task))


# batches


@pytest.mark.parametrize("at_a_time", [None, 4, 8])
def test_every_sample_is_seen_once_an_epoch_and_keeps_its_columns(monkeypatch, at_a_time):
    bench, spy, images = tiny.workbench(), Spy(), tiny.pictures(10)
    if at_a_time:
        monkeypatch.setattr(training, "_VIEW_VALUES", at_a_time * images[0].size)
    own = bench.views.plain(images)
    columns = {"rows": torch.arange(10), "own": own}
    bench.train(tiny.task(bench, spy, images=images, columns=columns, epochs=3))
    assert [len(batch["rows"]) for batch in spy.batches] == [4, 4, 2] * 3, "the last batch is kept"
    epochs = [torch.cat([b["rows"] for b in spy.batches[i : i + 3]]).tolist() for i in (0, 3, 6)]
    assert all(sorted(rows) == list(range(10)) for rows in epochs)
    assert epochs[0] != epochs[1] and epochs[0] != list(range(10)), "every epoch has its own order"
    for batch in spy.batches:
        assert torch.equal(batch["images"], batch["own"]) and torch.equal(batch["own"], own[batch["rows"]])


def test_fewer_samples_than_a_batch_are_one_batch():
    bench, spy = tiny.workbench(), Spy()
    bench.train(tiny.task(bench, spy, images=tiny.pictures(3)))
    assert [len(batch["rows"]) for batch in spy.batches] == [3]


def test_a_random_view_differs_between_epochs():
    bench, spy = tiny.workbench(), Spy()
    bench.train(tiny.task(bench, spy, images=tiny.pictures(1), view="strong", epochs=2))
    assert not torch.equal(spy.batches[0]["images"], spy.batches[1]["images"])


# batch norm and tiny clients


def test_one_sample_under_batch_norm_is_refused_since_it_would_never_train():
    bench = tiny.workbench(norm="batch")
    with pytest.raises(InputError, match="client 3: 1 sample, allowed with norm batch: from 2"):
        bench.train(labelled(bench, 1, epochs=2))


def test_one_sample_under_group_norm_trains():
    bench = tiny.workbench()
    start = bench.weights()
    assert not tiny.same(bench.train(labelled(bench, 1)), start)


def test_only_the_batch_of_one_is_skipped_under_batch_norm():
    steps, bench = [], tiny.workbench(norm="batch")
    trained = bench.train(labelled(bench, 5, epochs=2, on_step=lambda student, step: steps.append(step)))
    counters = [value for name, value in trained.items() if name.endswith("num_batches_tracked")]
    assert steps == [1, 2] and all(counter == 2 for counter in counters), "5 = 4 + 1: one step an epoch"


# callbacks


def test_steps_and_epochs_are_counted_from_one():
    calls, bench = [], tiny.workbench()
    task = labelled(
        bench,
        epochs=2,
        on_step=lambda student, step: calls.append(step),
        on_epoch=lambda epoch, weights: calls.append(f"epoch {epoch}"),
    )
    bench.train(task)
    assert calls == [1, 2, 3, "epoch 1", 4, 5, 6, "epoch 2"]


def test_callbacks_see_the_live_student():
    steps, epochs, bench = [], [], tiny.workbench()
    trained = bench.train(
        labelled(
            bench,
            epochs=2,
            on_step=lambda student, step: steps.append({n: v.detach().numpy().copy() for n, v in student.items()}),
            on_epoch=lambda epoch, weights: epochs.append(weights()),
        )
    )
    assert tiny.same(steps[-1], trained) and tiny.same(epochs[1], trained)
    assert tiny.same(steps[2], epochs[0]) and not tiny.same(epochs[0], epochs[1])


def test_a_prediction_between_epochs_leaves_the_training_as_it_was():
    bench = tiny.workbench(norm="batch")
    images = tiny.pictures(6, seed=1)
    plain = bench.train(labelled(bench, start=(start := bench.weights()), epochs=3))
    watched = labelled(bench, start=start, epochs=3, on_epoch=lambda epoch, weights: bench.predict(weights(), images))
    assert tiny.same(plain, bench.train(watched))
    counter = next(value for name, value in plain.items() if name.endswith("num_batches_tracked"))
    assert counter == 9, "3 epochs of 3 batches, all in training mode"


# divergence


@pytest.mark.parametrize("check", [True, False])
def test_a_loss_that_is_no_number_is_an_error_only_when_checked(check):
    bench = tiny.workbench()
    bench.check = check
    task = labelled(bench)
    values = iter([1.0, float("nan"), 1.0])
    spoiled = replace(task, objective=lambda *arguments: classify(*arguments) * next(values))
    if check:
        with pytest.raises(DivergedError, match="epoch 1, step 2: the loss is nan"):
            bench.train(spoiled)
    else:
        assert not np.isfinite(bench.train(spoiled)["classifier.weight"]).any()


# predict


def test_predict_is_in_evaluation_mode_and_changes_nothing():
    bench = tiny.workbench(norm="batch")
    weights, images = tiny.shifted(bench.weights(), 0.1), tiny.pictures(9)
    weights = {name: np.abs(value) for name, value in weights.items()}
    whole = bench.predict(weights, images)
    assert whole.logits.shape == (9, tiny.CLASSES) and whole.features.shape == (9, 8)
    assert tiny.same(bench.weights(), weights), "running statistics are only read"
    alone = [bench.predict(weights, images[i : i + 1]).logits for i in range(9)]
    torch.testing.assert_close(torch.cat(alone), whole.logits), "in training mode a batch of one would fail"
    assert not whole.logits.requires_grad


def test_predict_works_in_batches_without_changing_the_result(monkeypatch):
    bench, images = tiny.workbench(), tiny.pictures(11)
    whole = bench.predict(bench.weights(), images)
    monkeypatch.setattr(training, "_EVAL_BATCH", 4)
    parts = bench.predict(bench.weights(), images)
    torch.testing.assert_close(parts.logits, whole.logits)
    torch.testing.assert_close(parts.features, whole.features)


def test_training_after_a_prediction_is_in_training_mode():
    bench = tiny.workbench(norm="batch")
    start = bench.weights()
    bench.predict(start, tiny.pictures(4))
    trained = bench.train(labelled(bench, start=start))
    assert next(value for name, value in trained.items() if name.endswith("num_batches_tracked")) == 3


def test_probabilities_and_losses_by_hand():
    # logits (log 3, 0): probabilities 3/4 and 1/4, losses log(4/3) and log 4
    prediction = Prediction(torch.tensor([[np.log(3.0), 0.0]] * 2, dtype=torch.float32), torch.zeros(2, 1))
    np.testing.assert_allclose(prediction.probabilities(), [[0.75, 0.25]] * 2, rtol=1e-6)
    losses = prediction.losses(np.array([0, 1]))
    np.testing.assert_allclose(losses, [np.log(4 / 3), np.log(4)], rtol=1e-6)
    assert losses.dtype == np.float64


def test_losses_keep_what_float32_would_lose():
    # -log p for p so near 1 that float32 says 0: log(1 + exp(-40)) = 4.2e-18
    prediction = Prediction(torch.tensor([[20.0, -20.0]]), torch.zeros(1, 1))
    assert prediction.losses(np.array([1]))[0] == pytest.approx(40.0)
    assert Prediction(torch.tensor([[15.0, -15.0]]), torch.zeros(1, 1)).losses(np.array([0]))[0] > 0


def test_weights_are_copies():
    bench = tiny.workbench()
    weights = bench.weights()
    kept = {name: value.copy() for name, value in weights.items()}
    bench.load(tiny.shifted(weights, 1.0))
    assert tiny.same(weights, kept) and not tiny.same(bench.weights(), kept)
    bench.load(weights)
    assert tiny.same(bench.weights(), kept)
